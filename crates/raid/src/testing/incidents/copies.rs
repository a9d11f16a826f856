//! Members come back as they were a while ago: a snapshot of a whole drive was restored. What has changed since is missing on them, as
//! if it were damaged, and what they hold instead is older than what others have.

use zonda_zoned::Prng;

use super::super::{Drive, SwarmRun, Violation};
use super::places;

/// Steps of load between the copy and its return, at most.
const LOAD_STEPS: u64 = 500;

impl SwarmRun {
    pub(super) fn old_copies(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        if self.tolerates() == 0 {
            return Ok(());
        }
        self.make_whole()?;
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let members = self.some_members(prng, self.all_members(), count);
        let copies: Vec<(usize, Drive)> =
            places(members).into_iter().map(|at| (at, self.world.drives[at].clone())).collect();
        self.world.tell(|| format!("members {:?} are copied", places(members)));
        self.load(prng.below(LOAD_STEPS))?;
        if prng.chance(1, 3) {
            // Epochs in which the members that are copied stay active.
            let others = self.all_members() & !members;
            self.world.suspects = self.some_members(prng, others, 1);
            self.replace_suspects()?;
            self.finish_healing()?;
            self.load(prng.below(LOAD_STEPS))?;
        }
        if prng.chance(1, 2) {
            self.world.rest()?;
        }
        self.stop(prng);
        self.world.tell(|| format!("members {:?} are as they were", places(members)));
        for (at, mut copy) in copies {
            copy.crash();
            copy.is_unreliable = true;
            self.world.drives[at] = copy;
        }
        self.hurt_are(members);
        self.mount(0)?;
        self.world.read_all()?;
        if prng.chance(1, 2) {
            self.load(prng.below(LOAD_STEPS))?;
            self.stop(prng);
            self.mount(0)?;
            self.world.read_all()?;
        }
        Ok(())
    }
}
