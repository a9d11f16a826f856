//! Members are damaged, a scrub completes, and as many others are lost as the volume tolerates: the
//! scrub has repaired everything.

use zonda_zoned::{Prng, ZoneState};

use super::super::{SwarmRun, Violation};
use super::places;
use crate::limits::METADATA_ZONES;

/// Maximum steps of load while members are corrupted.
const LOAD_STEPS: u64 = 300;
/// Maximum corrupted blocks of each.
const BLOCKS: u64 = 20;

impl SwarmRun {
    pub(super) fn loss_after_scrub(&mut self, prng: &mut Prng, has_mounts: bool) -> Result<(), Violation> {
        if self.tolerates() == 0 {
            return Ok(());
        }
        self.repair_members()?;
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let damaged = self.some_members(prng, self.all_members(), count);
        self.simulation.suspects = damaged;
        self.simulation.trace(|| format!("members {:?} are corrupted", places(damaged)));
        let first = if self.swarm.is_rough { 0 } else { METADATA_ZONES };
        for _ in 0..1 + prng.below(BLOCKS) {
            for at in places(damaged) {
                let drive = &mut self.simulation.drives[at];
                let Some(lba) = drive.aimed_block(prng, first) else { continue };
                if prng.chance(1, 3) { drive.lose_block(lba) } else { drive.rot(lba) }
            }
            self.load(prng.below(LOAD_STEPS / BLOCKS))?;
        }
        if self.swarm.injected_faults.zones && prng.chance(1, 4) {
            let at = *prng.pick(&places(damaged)).expect("some are damaged");
            let drive = &mut self.simulation.drives[at];
            let zone = METADATA_ZONES + prng.below(u64::from(drive.geometry().zone_count - METADATA_ZONES)) as u32;
            let to = if prng.chance(1, 2) { ZoneState::ReadOnly } else { ZoneState::Offline };
            drive.degrade(zone, to);
            self.simulation.trace(|| format!("zone {zone} of member {at} becomes {to}"));
        }
        if has_mounts && prng.chance(1, 3) {
            self.stop(prng);
            self.mount(0)?;
        }
        if !self.scrub_twice()? {
            return Ok(());
        }
        self.load(prng.below(LOAD_STEPS))?;
        self.lose_others(prng, has_mounts)
    }

    /// As many members are lost as the volume tolerates. Everything must be readable.
    fn lose_others(&mut self, prng: &mut Prng, is_absence: bool) -> Result<(), Violation> {
        let inactive = self.inactive();
        let count = self.tolerates() - (inactive.count_ones() as usize).min(self.tolerates());
        let lost = inactive | self.some_members(prng, self.all_members() & !inactive, count);
        self.simulation.trace(|| format!("members {:?} are lost", places(lost)));
        self.set_suspects(lost);
        if is_absence {
            self.stop(prng);
            self.mount(lost)?;
            return self.simulation.read_all();
        }
        for at in places(lost & !inactive) {
            self.simulation.fail(at)?;
        }
        self.simulation.read_all()?;
        self.replace_suspects()?;
        self.finish_replacements()?;
        self.simulation.read_all()
    }
}
