//! Two sides of a split brain; and damage while a volume is in use.

use super::check::{CrashedVolume, Failure, Stage, What, history_failure, stopped};
use super::media::Media;
use super::testbed::{BlockRead, Mounted, Stop, Testbed};
use super::{Fault, Op, Setup};
use crate::VolumeError;
use crate::testing::Strictness;

/// Blocks of [`Op::WriteTwo`].
pub(super) const WRITTEN_BLOCKS: usize = 2;

impl CrashedVolume {
    /// Each side is mounted without the members of the other one and without a known epoch, and
    /// written to. Together they are refused: no mount can determine which of them counts.
    pub(super) fn check_split(&self, first: u32, second: u32) -> Result<u32, Failure> {
        let setup = self.setup.without_known_epoch();
        let mut media = self.media.clone();
        for absent in [first, second] {
            let mut check = self.begin(setup, Stage::First);
            check.is_tolerated = false;
            check.model.is_lost = true;
            let (mut bed, mounted) = Testbed::mount(setup, self.media.clone(), check.model.clone(), absent)
                .map_err(|stop| check.stopped(stop))?;
            if matches!(mounted, Mounted::Refused(_)) {
                return Ok(1);
            }
            check.write(&mut bed)?;
            bed.power_cut();
            let (side, _) = bed.into_parts();
            let is_present = |(at, _): &(usize, Media)| absent >> at & 1 == 0;
            side.into_iter().enumerate().filter(is_present).for_each(|(at, member)| media[at] = member);
        }
        let check = self.begin(setup, Stage::Together);
        match Testbed::mount(setup, media, self.model.clone(), 0).map_err(|stop| check.stopped(stop))? {
            (_, Mounted::Refused(_)) => Ok(3),
            (_, Mounted::Ready) => Err(check.failure(What::NotRefused, "both sides were written to".to_owned())),
        }
    }
}

/// Damages a block while the volume is in use, and scrubs it: afterwards nothing that is needed is
/// damaged. Then blocks are written, and the volume is mounted: later writes can be read, and all
/// others where the level tolerates the damage.
pub(super) fn check_scrub(setup: Setup, history: &[Op], fault: &Fault) -> Result<(), Failure> {
    let is_tolerated = setup.tolerates() > 0;
    let failed = |stop: Stop| stopped(stop, Stage::Scrubbed, is_tolerated);
    let mut bed = Testbed::create(setup).map_err(history_failure)?;
    history.iter().try_for_each(|&op| bed.apply(op)).map_err(history_failure)?;
    bed.damage(fault);
    bed.model.is_lost = !is_tolerated;
    bed.apply(Op::Scrub).map_err(failed)?;
    if is_tolerated {
        bed.inspect(Strictness::Strict).map_err(|violation| failed(Stop::Violation(violation)))?;
    }
    bed.read_all().map_err(failed)?;
    match [Op::WriteTwo, Op::Remount].into_iter().try_for_each(|op| bed.apply(op)) {
        // What nothing describes is not rewritten.
        Err(Stop::Refused(VolumeError::UnidentifiedLosses { .. })) if !is_tolerated => return Ok(()),
        ended => ended.map_err(failed)?,
    }
    let blocks = bed.read_all().map_err(failed)?;
    let is_lost = |lba: &usize| blocks[*lba] == BlockRead::Error && (is_tolerated || *lba < WRITTEN_BLOCKS);
    match (0..blocks.len()).find(is_lost) {
        None => Ok(()),
        Some(lba) => {
            let message = format!("block {lba}");
            Err(Failure { what: What::ReadError, stage: Stage::Scrubbed, is_tolerated, message })
        }
    }
}
