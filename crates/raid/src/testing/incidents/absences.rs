//! More members are absent than the volume tolerates: the mount is refused, and nothing is changed.

use zonda_zoned::{Duration, Prng};

use super::super::{Presence, SwarmRun, Violation};
use super::places;
use crate::Level;

/// Maximum steps of a mount before members are lost.
const STEPS_OF_MOUNT: u64 = 600;
/// How long to wait for a volume that has lost members during its mount.
const WAIT: Duration = Duration::from_secs(120);

impl SwarmRun {
    pub(super) fn too_many_absent(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        let (members, tolerates) = (self.members(), self.tolerates());
        let is_mirrored = self.data_chunks() == 1;
        if self.swarm.config.scheme.level == Level::Raid01 || prng.chance(1, 3) {
            self.repair_members()?;
        }
        let is_whole = self.fault_budget.is_none() && self.inactive() == 0;
        if prng.chance(1, 2) {
            self.simulation.quiesce()?;
        }
        self.stop(prng);
        // A RAID 01 may be mounted with half of its members, and with the other half after an
        // interrupted mount.
        let may_lose = is_whole && self.swarm.config.scheme.level != Level::Raid01;
        if may_lose && prng.chance(1, 3) {
            // Not twice: the members of a second mount may have recorded others as failed than
            // those of the first.
            self.lose_members_of_mount(prng)?;
        }
        for _ in 0..=prng.below(2) {
            // A mirror could be mounted with the one that is left, even if that is out of date.
            if is_mirrored {
                continue;
            }
            let count = tolerates + 1 + prng.below((members - tolerates - 1).max(1) as u64) as usize;
            let without = self.some_members(prng, self.all_members(), count.min(members - 1));
            if without.count_ones() as usize <= tolerates {
                continue;
            }
            let suspects = self.simulation.suspects;
            self.simulation.suspects = self.all_members();
            let refused = self.try_mount(without)?;
            if refused.is_none() {
                // The other copies are enough.
                self.simulation.read_all()?;
                self.set_suspects(self.inactive());
                return Ok(());
            }
            self.simulation.suspects = suspects;
        }
        self.make_present();
        self.mount(0)?;
        self.simulation.read_all()?;
        if is_whole {
            // Some may have been failed before the others were lost.
            self.set_suspects(self.inactive());
        }
        Ok(())
    }

    /// Loses more members during a mount than the volume tolerates.
    fn lose_members_of_mount(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.simulation.suspects = self.all_members();
        let count = self.tolerates() + 1 + prng.below(self.members() as u64) as usize;
        let lost = self.some_members(prng, self.all_members(), count);
        let presence =
            *prng.pick(&[Presence::Unresponsive, Presence::Failing, Presence::Paused]).expect("there are some");
        self.simulation.begin_lossy_mount(prng.below(STEPS_OF_MOUNT))?;
        self.simulation.trace(|| format!("members {:?} become {presence}", places(lost)));
        for at in places(lost) {
            self.simulation.drives[at].set_presence(presence);
        }
        self.simulation.finish_lossy_mount(WAIT)?;
        self.make_present();
        self.stop(prng);
        Ok(())
    }
}
