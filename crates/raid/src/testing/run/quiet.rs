//! Quiet moments of a run: the members' media are looked at, also after a scrub of what was damaged a moment ago.

use super::SwarmRun;
use crate::testing::{Strictness, Violation};
use crate::{Level, MemberState};

/// Blocks that are damaged before a scrub, at most.
const DAMAGED_BLOCKS_MAX: u64 = 8;

impl SwarmRun {
    /// Looks at the media; now and then after a scrub.
    pub(super) fn look_at_media(&mut self) -> Result<(), Violation> {
        self.world.check_order()?;
        self.world.inspect(Strictness::Excusing)?;
        if self.swarm.has_scrubs && self.prngs.quiet.chance(self.swarm.quiet_scrubs_percent, 100) {
            self.scrub_damage()?;
        }
        Ok(())
    }

    /// Damages some blocks of victims, and has them scrubbed while nobody asks for anything: afterwards nothing that is needed is damaged, and
    /// every block has its contents.
    fn scrub_damage(&mut self) -> Result<(), Violation> {
        let is_redundant = self.swarm.config.scheme.level != Level::Raid0;
        self.calm_down();
        self.world.rest()?;
        let members = self.world.volume.status().members;
        let is_whole = members.iter().all(|member| member.state == MemberState::Active);
        if self.is_healing || !is_redundant || !is_whole {
            return Ok(());
        }
        let victims: Vec<usize> = (0..members.len()).filter(|at| self.world.suspects >> at & 1 == 1).collect();
        if self.swarm.blows.rot && !victims.is_empty() {
            for _ in 0..=self.prngs.quiet.below(DAMAGED_BLOCKS_MAX) {
                let Some(&victim) = self.prngs.quiet.pick(&victims) else { break };
                let drive = &mut self.world.drives[victim];
                let Some(lba) = drive.some_block(0) else { continue };
                if self.prngs.quiet.chance(1, 2) {
                    drive.rot(lba);
                } else {
                    drive.lose_block(lba);
                }
                self.outcome.blows += 1;
                self.world.tell(|| format!("block {lba} of member {victim} is damaged"));
            }
        }
        self.outcome.scrubs += 1;
        self.world.tell(|| "a scrub begins, and nobody asks for anything".to_owned());
        self.world.volume.start_scrub(self.world.now());
        self.world.rest()?;
        self.world.inspect(Strictness::Strict)?;
        self.world.read_all()
    }
}
