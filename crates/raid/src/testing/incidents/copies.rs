//! Members come back as they were a while ago: a snapshot of a whole drive was restored. What has changed since is missing on them, as
//! if it were damaged, and what they hold instead is older than what others have.

use zonda_zoned::Prng;

use super::super::{Drive, SwarmRun, Violation};
use super::places;

/// Steps of load between the copy and its return, at most.
const LOAD_STEPS: u64 = 500;

impl SwarmRun {
    pub(super) fn old_copies(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        let mut of_start = prng.fork("before a start");
        if self.world.keeps_epochs && of_start.chance(1, 2) {
            return self.copies_from_before_a_start(&mut of_start);
        }
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

    /// Members that are needed come back as they were before the last start: the mount is refused, until those are there that went on.
    fn copies_from_before_a_start(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.make_whole()?;
        if prng.chance(1, 2) {
            self.world.rest()?;
        }
        self.stop(prng);
        let mut copies = self.world.drives.clone();
        self.mount(0)?;
        if prng.chance(1, 3) {
            self.load(prng.below(LOAD_STEPS))?;
        }
        self.stop(prng);
        let away = prng.below(self.tolerates() as u64 + 1) as usize;
        let away = self.some_members(prng, self.all_members(), away);
        let count = 1 + self.tolerates() - away.count_ones() as usize;
        let older = self.some_members(prng, self.all_members() & !away, count);
        self.world.tell(|| format!("members {:?} are as they were before the start", places(older)));
        let current = self.world.drives.clone();
        for at in places(older) {
            copies[at].crash();
            copies[at].is_unreliable = true;
            self.world.drives[at] = copies[at].clone();
        }
        self.world.suspects = self.all_members();
        if self.try_mount(away)?.is_some() {
            self.world.drives = current;
            self.world.suspects = 0;
            self.mount(0)?;
        }
        self.world.read_all()?;
        self.hurt_are(self.inactive());
        Ok(())
    }
}
