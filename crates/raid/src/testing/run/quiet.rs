//! Idle moments of a run: the members' media are inspected, sometimes after a scrub of fresh
//! damage.

use super::SwarmRun;
use crate::testing::{Strictness, Violation};
use crate::{Level, MemberState};

/// Maximum damaged blocks before a scrub.
const DAMAGED_BLOCKS_MAX: u64 = 8;

impl SwarmRun {
    /// Inspects the media; sometimes after a scrub.
    pub(super) fn inspect_media(&mut self) -> Result<(), Violation> {
        self.simulation.check_order()?;
        self.simulation.inspect(Strictness::Excusing)?;
        if self.swarm.has_scrubs && self.prngs.quiet.chance(self.swarm.quiet_scrubs_percent, 100) {
            self.scrub_damage()?;
        }
        Ok(())
    }

    /// Damages some blocks of victims, and scrubs them without host I/O: afterwards nothing that is
    /// needed is damaged, and every block has its contents.
    fn scrub_damage(&mut self) -> Result<(), Violation> {
        let is_redundant = self.swarm.config.scheme.level != Level::Raid0;
        self.clear_faults();
        self.simulation.quiesce()?;
        let members = self.simulation.volume.status().members;
        let is_whole = members.iter().all(|member| member.state == MemberState::Active);
        if self.is_replacing || !is_redundant || !is_whole {
            return Ok(());
        }
        let victims: Vec<usize> = (0..members.len()).filter(|at| self.simulation.suspects >> at & 1 == 1).collect();
        if self.swarm.injected_faults.rot && !victims.is_empty() {
            for _ in 0..=self.prngs.quiet.below(DAMAGED_BLOCKS_MAX) {
                let Some(&victim) = self.prngs.quiet.pick(&victims) else { break };
                let drive = &mut self.simulation.drives[victim];
                let Some(lba) = drive.some_block(0) else { continue };
                if self.prngs.quiet.chance(1, 2) {
                    drive.rot(lba);
                } else {
                    drive.lose_block(lba);
                }
                self.outcome.injected_faults += 1;
                self.simulation.trace(|| format!("block {lba} of member {victim} is damaged"));
            }
        }
        self.outcome.scrubs += 1;
        self.simulation.trace(|| "start of a scrub without host I/O".to_owned());
        self.simulation.volume.start_scrub(self.simulation.now());
        self.simulation.quiesce()?;
        self.simulation.inspect(Strictness::Strict)?;
        self.simulation.read_all()
    }
}
