//! More members are absent than the volume can do without: the mount is refused, and nothing is changed.

use zonda_zoned::{Duration, Prng};

use super::super::{Presence, SwarmRun, Violation};
use super::places;
use crate::Level;

/// Steps of a mount after which members are lost, at most.
const STEPS_OF_MOUNT: u64 = 600;
/// How long a volume is waited for that has lost members while it was mounted.
const WAIT: Duration = Duration::from_secs(120);

impl SwarmRun {
    pub(super) fn too_many_absent(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        let (members, tolerates) = (self.members(), self.tolerates());
        let is_mirrored = self.data_chunks() == 1;
        if self.swarm.config.scheme.level == Level::Raid01 || prng.chance(1, 3) {
            self.make_whole()?;
        }
        let is_whole = self.atlas.is_none() && self.inactive() == 0;
        if prng.chance(1, 2) {
            self.world.rest()?;
        }
        self.stop(prng);
        // Mirrors of stripes may be mounted with half of their members, and with the other half after a mount that was cut short.
        let may_lose = is_whole && self.swarm.config.scheme.level != Level::Raid01;
        if may_lose && prng.chance(1, 3) {
            // Not twice: those of a second mount may count others as failed than those of the first.
            self.lose_members_of_mount(prng)?;
        }
        for _ in 0..=prng.below(2) {
            // Of mirrors one that is left could be mounted, even if it is out of date.
            if is_mirrored {
                continue;
            }
            let count = tolerates + 1 + prng.below((members - tolerates - 1).max(1) as u64) as usize;
            let without = self.some_members(prng, self.all_members(), count.min(members - 1));
            if without.count_ones() as usize <= tolerates {
                continue;
            }
            let suspects = self.world.suspects;
            self.world.suspects = self.all_members();
            let refused = self.try_mount(without)?;
            if refused.is_none() {
                // The other copies are enough.
                self.world.read_all()?;
                self.hurt_are(self.inactive());
                return Ok(());
            }
            self.world.suspects = suspects;
        }
        self.make_present();
        self.mount(0)?;
        self.world.read_all()?;
        if is_whole {
            // Some may have been written off before the rest was lost.
            self.hurt_are(self.inactive());
        }
        Ok(())
    }

    /// Members are lost while the volume is mounted, more than it can do without.
    fn lose_members_of_mount(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.world.suspects = self.all_members();
        let count = self.tolerates() + 1 + prng.below(self.members() as u64) as usize;
        let lost = self.some_members(prng, self.all_members(), count);
        let presence = *prng.pick(&[Presence::Silent, Presence::Failing, Presence::Paused]).expect("there are some");
        self.world.begin_lossy_mount(prng.below(STEPS_OF_MOUNT))?;
        self.world.tell(|| format!("members {:?} become {presence:?}", places(lost)));
        for at in places(lost) {
            self.world.drives[at].set_presence(presence);
        }
        self.world.finish_lossy_mount(WAIT)?;
        self.make_present();
        self.stop(prng);
        Ok(())
    }
}
