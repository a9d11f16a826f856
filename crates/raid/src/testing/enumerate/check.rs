//! Mounts a crashed volume, reads it, and compares it with the model.

use super::fault::places;
use super::media::Media;
use super::sides::WRITTEN_BLOCKS;
use super::testbed::{BlockRead, Mounted, Point, Stop, Testbed};
use super::{Fault, Op, Setup};
use crate::VolumeError;
use crate::testing::{Model, Promise, Strictness, Violation};

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The guarantee.
    pub what: What,
    /// The mount at which it was violated.
    pub stage: Stage,
    /// Whether the volume tolerates what is missing and damaged.
    pub is_tolerated: bool,
    /// A human-readable description.
    pub message: String,
}

/// The mounts of a case, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Before any mount.
    Before,
    /// The first one.
    First,
    /// The same again; what is written then must be present at the next mount.
    Again,
    /// What was written at the previous mount must be present.
    Written,
    /// Members that were absent are present again.
    Back,
    /// Unreadable blocks are readable again.
    Readable,
    /// Losses are accepted.
    Accepting,
    /// After the mount that accepted losses.
    Accepted,
    /// After a scrub.
    Scrubbed,
    /// The sides of a split brain are mounted together.
    Together,
}

/// How a guarantee was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The operations themselves did not end as they must.
    History,
    /// A mount is refused that must succeed.
    Refused,
    /// A mount succeeds that must be refused.
    NotRefused,
    /// A failed member takes part again.
    Believed,
    /// A member lacks data that the volume assumes it to have.
    Redundancy,
    /// A read fails that must succeed.
    ReadError,
    /// A read returns zeros where a write was acknowledged, and not trimmed.
    Zeros,
    /// A read returns a version older than the acknowledged one, or trimmed contents.
    Older,
    /// A read returns another version than at an earlier mount.
    Changed,
    /// A read failed, and succeeds at the next mount without anything having been repaired.
    ErrorForgotten,
    /// A read succeeded, and fails at the next mount.
    ValueLost,
    /// The volume does not quiesce, or a request does not end.
    Hangs,
    /// The volume panicked.
    Panics,
}

/// A crashed volume, and the model of its contents.
#[derive(Debug)]
pub(super) struct CrashedVolume {
    pub(super) setup: Setup,
    pub(super) media: Vec<Media>,
    pub(super) model: Model,
    /// Members that were not active, as bits.
    pub(super) inactive: u32,
    /// Those of them that were being rebuilt.
    rebuilding: u32,
    /// Nothing was in flight.
    was_quiescent: bool,
}

/// A case in progress.
pub(super) struct Check {
    pub(super) setup: Setup,
    pub(super) media: Vec<Media>,
    pub(super) model: Model,
    mounts: u32,
    pub(super) stage: Stage,
    pub(super) is_tolerated: bool,
    /// Members that are certainly not active, as bits, and those of them that have failed.
    inactive: (u32, u32),
    /// The first blocks were written after the last event of the members.
    has_written: bool,
    /// The last mount was refused because losses were not accepted.
    is_refused_for_losses: bool,
    /// The blocks read at the previous mount.
    before: Option<Vec<BlockRead>>,
}

impl CrashedVolume {
    pub(super) fn of(point: &Point, media: Vec<Media>) -> CrashedVolume {
        let mut model = point.model.clone();
        model.crash();
        CrashedVolume {
            setup: point.setup,
            media,
            model,
            inactive: point.inactive,
            rebuilding: point.rebuilding,
            was_quiescent: point.in_flight.is_empty(),
        }
    }

    /// Members that are certainly not active, as bits, and those that have failed: a crash may come
    /// before that is recorded.
    fn known_inactive(&self) -> (u32, u32) {
        if self.was_quiescent { (self.inactive, self.inactive & !self.rebuilding) } else { (self.rebuilding, 0) }
    }

    /// Whether a fault is harmless at any level: a header or a superblock that has another copy.
    fn is_covered(&self, fault: &Fault, media: &mut [Media]) -> bool {
        let Fault::Block { member, lba, .. } = *fault else { return false };
        self.was_quiescent && media[member].is_described_twice(lba)
    }

    /// The state before the first mount.
    pub(super) fn begin(&self, setup: Setup, stage: Stage) -> Check {
        Check {
            setup,
            media: self.media.clone(),
            model: self.model.clone(),
            mounts: 0,
            stage,
            is_tolerated: true,
            inactive: self.known_inactive(),
            has_written: false,
            is_refused_for_losses: false,
            before: None,
        }
    }

    /// Mounts it with these faults. Returns the number of mounts.
    pub(super) fn check(&self, faults: &[Fault]) -> Result<u32, Failure> {
        if let [Fault::Split(first, second)] = *faults {
            return self.check_split(first, second);
        }
        let mut check = self.begin(self.setup, Stage::Before);
        let damaged = faults.iter().filter(|fault| matches!(fault, Fault::Block { .. } | Fault::Zone { .. }));
        let damaged = damaged.filter(|fault| faults.len() > 1 || !self.is_covered(fault, &mut check.media));
        let damaged = self.inactive | damaged.fold(0, |bits, fault| bits | fault.members());
        for fault in faults {
            match *fault {
                Fault::Block { member, lba, damage } => check.media[member].damage(lba, damage),
                Fault::Zone { member, zone } => check.media[member].offline(zone),
                Fault::Absent(_) | Fault::Swapped(..) | Fault::Split(..) => {}
            }
        }
        let absences = faults.iter().find_map(|fault| match *fault {
            Fault::Absent(members) => Some((members, 0)),
            Fault::Swapped(first, second) => Some((first, second)),
            Fault::Block { .. } | Fault::Zone { .. } | Fault::Split(..) => None,
        });
        let (first, second) = absences.unwrap_or((0, 0));
        let mut is_mounted = check.mount(Stage::First, damaged | first, first, absences.is_some())?;
        let is_unreadable = |fault: &Fault| matches!(fault, Fault::Block { damage: super::Damage::Unreadable, .. });
        let may_be_readable = faults.iter().any(is_unreadable);
        if is_mounted {
            // What is written now must be returned by the next mount, or fail.
            let writes = !may_be_readable && (absences.is_none() || check.is_tolerated);
            check.mount(Stage::Again, damaged | first, first, writes)?;
            if writes && absences.is_none() {
                check.mount(Stage::Written, damaged, 0, false)?;
            }
        } else if absences.is_none() && !may_be_readable && check.is_refused_for_losses {
            check.accept()?;
        }
        if absences.is_some() {
            // A member that was absent during writes counts as failed.
            let stale = if is_mounted { first } else { 0 };
            check.forget_errors();
            is_mounted |= check.mount(Stage::Back, damaged | stale | second, second, false)?;
        }
        if may_be_readable {
            check.media.iter_mut().for_each(Media::heal);
            check.forget_errors();
            // A refused mount has changed nothing.
            check.mount(
                Stage::Readable,
                if is_mounted { damaged | first | second } else { self.inactive },
                0,
                false,
            )?;
        }
        Ok(check.mounts)
    }
}

impl Check {
    /// Mounts the volume while these members are affected by a fault, reads it, and cuts the power.
    /// Returns whether it was mounted.
    fn mount(&mut self, stage: Stage, affected: u32, absent: u32, writes: bool) -> Result<bool, Failure> {
        self.mounts += 1;
        self.stage = stage;
        self.is_tolerated = affected.count_ones() <= self.setup.tolerates();
        self.model.is_lost = !self.is_tolerated;
        let (mut bed, mounted) = Testbed::mount(self.setup, self.media.clone(), self.model.clone(), absent)
            .map_err(|stop| self.stopped(stop))?;
        if let Mounted::Refused(error) = mounted {
            self.is_refused_for_losses = matches!(error, VolumeError::UnidentifiedLosses { .. });
            if self.is_tolerated {
                return Err(self.failure(What::Refused, error.to_string()));
            }
            (self.media, _) = bed.into_parts();
            self.before = None;
            return Ok(false);
        }
        self.check_members(&bed, absent)?;
        let blocks = bed.read_all().map_err(|stop| self.stopped(stop))?;
        self.compare(&blocks)?;
        if self.is_tolerated && matches!(self.stage, Stage::First | Stage::Back) {
            bed.inspect(Strictness::Excusing).map_err(|violation| self.stopped(violation.into()))?;
            bed.model.expect_idle().map_err(|violation| self.failure(What::Hangs, violation.message))?;
        }
        self.before = Some(blocks);
        if writes {
            self.write(&mut bed)?;
        }
        bed.power_cut();
        (self.media, self.model) = bed.into_parts();
        Ok(true)
    }

    /// The volume is mounted: with enough members, and without failed ones.
    fn check_members(&self, bed: &Testbed, absent: u32) -> Result<(), Failure> {
        let all = (1 << self.setup.scheme().members()) - 1;
        let (inactive, failed) = self.inactive;
        if self.stage == Stage::First && !self.setup.are_enough(all & !(inactive | absent)) {
            return Err(self.failure(What::NotRefused, "too few members are active".to_owned()));
        }
        let believed = failed & !bed.inactive();
        if believed != 0 {
            return Err(self.failure(What::Believed, format!("members {} had failed", places(believed))));
        }
        Ok(())
    }

    /// Accepts losses: this and later mounts succeed. Which contents are lost is unknown.
    fn accept(&mut self) -> Result<(), Failure> {
        for (stage, setup) in [(Stage::Accepting, self.setup.accepting_losses()), (Stage::Accepted, self.setup)] {
            self.mounts += 1;
            self.stage = stage;
            let (mut bed, mounted) =
                Testbed::mount(setup, self.media.clone(), self.model.clone(), 0).map_err(|stop| self.stopped(stop))?;
            if let Mounted::Refused(error) = mounted {
                return Err(self.failure(What::Refused, error.to_string()));
            }
            bed.power_cut();
            (self.media, self.model) = bed.into_parts();
        }
        Ok(())
    }

    /// Writes two blocks, and flushes.
    pub(super) fn write(&mut self, bed: &mut Testbed) -> Result<(), Failure> {
        for op in [Op::WriteTwo, Op::Flush] {
            let ended = op.requests().iter().try_for_each(|request| bed.request(request));
            ended.map_err(Stop::from).and_then(|()| bed.quiesce()).map_err(|stop| self.stopped(stop))?;
        }
        let before = self.before.iter_mut().flatten();
        let after = bed.read_all().map_err(|stop| stopped(stop, self.stage, self.is_tolerated))?;
        before.zip(after.iter().cloned()).for_each(|(before, after)| *before = after);
        self.has_written = true;
        self.compare(&after)
    }

    fn compare(&self, blocks: &[BlockRead]) -> Result<(), Failure> {
        for (lba, block) in blocks.iter().enumerate() {
            let before = self.before.as_ref().map(|before| &before[lba]);
            let what = match (before, block) {
                (_, BlockRead::Error) if self.is_tolerated || self.has_written && lba < WRITTEN_BLOCKS => {
                    What::ReadError
                }
                (Some(BlockRead::Data(_)), BlockRead::Error) => What::ValueLost,
                (Some(BlockRead::Error), BlockRead::Data(_)) => What::ErrorForgotten,
                (Some(BlockRead::Data(before)), BlockRead::Data(data)) if before != data => What::Changed,
                _ => continue,
            };
            return Err(self.failure(what, format!("block {lba}")));
        }
        Ok(())
    }

    /// A missing member is present again: reads that failed may succeed.
    fn forget_errors(&mut self) {
        self.has_written = false;
        // Contents that were read once are recorded in the model.
        self.before = None;
    }

    pub(super) fn failure(&self, what: What, message: String) -> Failure {
        Failure { what, stage: self.stage, is_tolerated: self.is_tolerated, message }
    }

    pub(super) fn stopped(&self, stop: Stop) -> Failure {
        stopped(stop, self.stage, self.is_tolerated)
    }
}

pub(super) fn stopped(stop: Stop, stage: Stage, is_tolerated: bool) -> Failure {
    let (what, message) = match stop {
        Stop::Hangs => (What::Hangs, "the volume does not quiesce".to_owned()),
        Stop::Refused(error) => (What::Refused, error.to_string()),
        Stop::Idle => (What::History, "an operation has nothing to do".to_owned()),
        Stop::Violation(violation) => (what_of(&violation), violation.message),
    };
    Failure { what, stage, is_tolerated, message }
}

fn what_of(violation: &Violation) -> What {
    match violation.promise {
        Promise::Ends => What::Hangs,
        Promise::Answers => What::ReadError,
        Promise::Redundancy | Promise::Order => What::Redundancy,
        _ if violation.message.contains("when it was read before") => What::Changed,
        _ if violation.message.ends_with("and has zeros") => What::Zeros,
        _ => What::Older,
    }
}

pub(super) fn history_failure(stop: Stop) -> Failure {
    Failure { what: What::History, ..stopped(stop, Stage::Before, true) }
}
