//! Members fail, are damaged or absent during their rebuild; others fail meanwhile, or are absent
//! from a mount.

use zonda_zoned::{Duration, Prng};

use super::super::{Faults, Presence, Promise, SwarmRun, Violation};
use super::places;
use crate::MemberState;
use crate::limits::METADATA_ZONES;

/// Maximum steps of load between two failures.
const LOAD_STEPS: u64 = 250;
/// Maximum blocks of a member that are corrupted at once.
const BLOCKS: u64 = 12;

impl SwarmRun {
    pub(super) fn failed_rebuild(&mut self, prng: &mut Prng, is_damaged: bool) -> Result<(), Violation> {
        if self.tolerates() == 0 {
            return Ok(());
        }
        self.repair_members()?;
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let mut rebuilt = self.some_members(prng, self.all_members(), count);
        self.simulation.suspects = rebuilt;
        self.replace_suspects()?;
        self.load(prng.below(LOAD_STEPS))?;
        for _ in 0..=prng.below(3) {
            self.disturb_rebuild(prng, &mut rebuilt, is_damaged)?;
            self.load(prng.below(LOAD_STEPS))?;
            // Members that have failed are replaced again.
            for at in places(rebuilt) {
                if self.simulation.volume.status().members[at].state == MemberState::Failed && prng.chance(1, 2) {
                    self.make_present_of(1 << at);
                    // A member that is being replaced already is not.
                    drop(self.simulation.replace_failed(at)?);
                }
            }
        }
        self.clear_faults();
        self.make_present();
        self.simulation.suspects = rebuilt;
        self.finish_replacements()?;
        self.set_suspects(rebuilt);
        self.simulation.read_all()
    }

    /// One fault during a rebuild.
    fn disturb_rebuild(&mut self, prng: &mut Prng, rebuilt: &mut u32, is_damaged: bool) -> Result<(), Violation> {
        let at = *prng.pick(&places(*rebuilt)).expect("some are rebuilt");
        let drive = &mut self.simulation.drives[at];
        let kind = if is_damaged && prng.chance(1, 3) { 0 } else { 1 + prng.below(6) };
        match kind {
            0 => {
                self.simulation
                    .journal
                    .trace(self.simulation.before, || format!("member {at}, which is rebuilt, is corrupted"));
                for _ in 0..1 + prng.below(BLOCKS) {
                    let Some(lba) = drive.aimed_block(prng, METADATA_ZONES) else { break };
                    if prng.chance(1, 3) { drive.lose_block(lba) } else { drive.rot(lba) }
                }
            }
            1 => {
                let presence = if prng.chance(1, 2) { Presence::Unresponsive } else { Presence::Failing };
                drive.set_presence(presence);
                self.simulation.trace(|| format!("member {at}, which is rebuilt, becomes {presence}"));
            }
            2 => {
                let faults = Faults { writes: 100, resets: 100, reports: 100, superblocks: 50, ..Faults::default() };
                drive.faults = faults;
                self.simulation.trace(|| format!("commands of member {at}, which is rebuilt, fail"));
            }
            3 => {
                drive.set_presence(Presence::Paused);
                self.simulation.trace(|| format!("member {at}, which is rebuilt, pauses"));
                self.load(LOAD_STEPS / 4)?;
                self.simulation.wait(Duration::from_secs(1 + prng.below(60)))?;
                self.make_present_of(*rebuilt);
            }
            4 => {
                // The mount may lack members that are being rebuilt.
                self.make_present();
                self.stop(prng);
                let count = prng.below(3) as usize;
                let without = self.some_members(prng, *rebuilt, count);
                self.mount(without)?;
                self.simulation.read_all()?;
            }
            5 => self.mount_without_needed(prng, *rebuilt)?,
            _ => {
                let others = self.all_members() & !*rebuilt;
                if (rebuilt.count_ones() as usize) < self.tolerates() {
                    let other = self.some_members(prng, others, 1);
                    *rebuilt |= other;
                    self.simulation.suspects = *rebuilt;
                    let presence = if prng.chance(1, 2) { Presence::Unresponsive } else { Presence::Failing };
                    self.simulation.trace(|| format!("members {:?} become {presence}", places(other)));
                    for at in places(other) {
                        self.simulation.drives[at].set_presence(presence);
                    }
                }
            }
        }
        Ok(())
    }

    /// One more member is absent from a mount, which is refused. Then all are present again.
    fn mount_without_needed(&mut self, prng: &mut Prng, rebuilt: u32) -> Result<(), Violation> {
        let is_mirror_of_stripes = self.swarm.config.scheme.level == crate::Level::Raid01;
        // A member that has just failed, and missed nothing that counts, may be active after a
        // crash.
        let members = self.simulation.volume.status().members;
        let failed = |at: &usize| members[*at].state == MemberState::Failed;
        let is_certain = (0..members.len()).filter(failed).all(|at| self.simulation.known_absent() >> at & 1 == 1);
        let is_needed =
            is_certain && !is_mirror_of_stripes && self.inactive().count_ones() as usize == self.tolerates();
        self.make_present();
        self.stop(prng);
        if is_needed {
            let without = self.some_members(prng, self.all_members() & !rebuilt, 1);
            self.simulation.suspects = self.all_members();
            if self.try_mount(without)?.is_none() {
                let what = "the volume is mounted without a member that a rebuild needs".to_owned();
                return Err(Violation::new(Promise::Mounts, what));
            }
            self.simulation.suspects = rebuilt;
        }
        self.mount(0)?;
        self.simulation.read_all()
    }
}
