//! A member that the volume needs pauses, or fails every command, for longer than the timeout:
//! requests wait, and nothing is lost.

use zonda_zoned::{Duration, Prng};

use super::super::{Presence, SwarmRun, Violation};
use super::places;
use crate::{Level, MemberState};

/// Maximum steps of load before, during and after the pause.
const LOAD_STEPS: u64 = 200;
/// Maximum length of the pause.
const SECONDS: u64 = 120;

impl SwarmRun {
    pub(super) fn needed_member_pauses(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.repair_members()?;
        let failed = self.some_members(prng, self.all_members(), self.tolerates());
        self.simulation.suspects = failed;
        for at in places(failed) {
            if prng.chance(1, 3) {
                self.is_replacing = true;
                self.simulation.replace(at)?;
            } else {
                self.simulation.fail(at)?;
            }
        }
        self.load(prng.below(LOAD_STEPS))?;
        // A member that is rebuilt by then can replace the failed one.
        let active = self.all_members() & !self.inactive();
        let is_needed = active.count_ones() as usize == self.data_chunks() && !self.is_rebuilding();
        let needed = self.some_members(prng, active, 1);
        if !is_needed || self.swarm.config.scheme.level == Level::Raid01 {
            self.simulation.suspects |= needed;
        }
        let fails = prng.chance(1, 4);
        self.simulation.model.is_lost = fails;
        let presence = if fails { Presence::Failing } else { Presence::Paused };
        self.simulation.trace(|| format!("members {:?} become {presence}", places(needed)));
        for at in places(needed) {
            self.simulation.drives[at].set_presence(presence);
        }
        self.load(LOAD_STEPS)?;
        self.simulation.wait(Duration::from_secs(1 + prng.below(SECONDS)))?;
        self.load(prng.below(LOAD_STEPS))?;
        self.simulation.trace(|| "members answer again".to_owned());
        self.make_present_of(needed);
        if prng.chance(1, 3) {
            self.stop(prng);
            self.mount(0)?;
        }
        self.simulation.quiesce()?;
        self.simulation.wait(Duration::from_secs(2))?;
        self.simulation.quiesce()?;
        self.simulation.model.is_lost = false;
        self.simulation.read_all()?;
        self.is_replacing = false;
        self.set_suspects(self.inactive());
        self.load(prng.below(LOAD_STEPS))
    }

    /// Whether a member is being rebuilt, or will be.
    fn is_rebuilding(&self) -> bool {
        self.is_replacing
            || self.simulation.volume.status().members.iter().any(|member| member.state == MemberState::Rebuilding)
    }

    pub(super) fn make_present_of(&mut self, members: u32) {
        places(members).into_iter().for_each(|at| self.simulation.drives[at].set_presence(Presence::Present));
    }
}
