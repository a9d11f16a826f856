//! A member that the volume cannot do without pauses, or fails everything, for longer than the timeout: requests wait, and nothing is
//! lost.

use zonda_zoned::{Duration, Prng};

use super::super::{Presence, SwarmRun, Violation};
use super::places;
use crate::{Level, MemberState};

/// Steps of load before, during and after the pause, at most.
const LOAD_STEPS: u64 = 200;
/// How long the pause is, at most.
const SECONDS: u64 = 120;

impl SwarmRun {
    pub(super) fn needed_member_pauses(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.make_whole()?;
        let failed = self.some_members(prng, self.all_members(), self.tolerates());
        self.world.suspects = failed;
        for at in places(failed) {
            if prng.chance(1, 3) {
                self.is_healing = true;
                self.world.replace(at)?;
            } else {
                self.world.fail(at)?;
            }
        }
        self.load(prng.below(LOAD_STEPS))?;
        // One that is rebuilt by then can take the place of the one that fails.
        let active = self.all_members() & !self.inactive();
        let is_needed = active.count_ones() as usize == self.data_chunks() && !self.is_rebuilding();
        let needed = self.some_members(prng, active, 1);
        if !is_needed || self.swarm.config.scheme.level == Level::Raid01 {
            self.world.suspects |= needed;
        }
        let fails = prng.chance(1, 4);
        self.world.model.is_lost = fails;
        let presence = if fails { Presence::Failing } else { Presence::Paused };
        self.world.tell(|| format!("members {:?} become {presence:?}", places(needed)));
        for at in places(needed) {
            self.world.drives[at].set_presence(presence);
        }
        self.load(LOAD_STEPS)?;
        self.world.wait(Duration::from_secs(1 + prng.below(SECONDS)))?;
        self.load(prng.below(LOAD_STEPS))?;
        self.world.tell(|| "they answer again".to_owned());
        self.make_present_of(needed);
        if prng.chance(1, 3) {
            self.stop(prng);
            self.mount(0)?;
        }
        self.world.rest()?;
        self.world.wait(Duration::from_secs(2))?;
        self.world.rest()?;
        self.world.model.is_lost = false;
        self.world.read_all()?;
        self.is_healing = false;
        self.hurt_are(self.inactive());
        self.load(prng.below(LOAD_STEPS))
    }

    /// Whether a member is being rebuilt, or will be.
    fn is_rebuilding(&self) -> bool {
        self.is_healing
            || self.world.volume.status().members.iter().any(|member| member.state == MemberState::Rebuilding)
    }

    pub(super) fn make_present_of(&mut self, members: u32) {
        places(members).into_iter().for_each(|at| self.world.drives[at].set_presence(Presence::There));
    }
}
