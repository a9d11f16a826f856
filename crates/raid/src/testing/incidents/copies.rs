//! Members revert to an older state: a snapshot of a whole drive was restored. What has changed
//! since is missing on them, as if it were damaged, and their contents are older than those of
//! other members.

use zonda_zoned::Prng;

use super::super::{Drive, SwarmRun, Violation};
use super::places;

/// Maximum steps of load between the copy and its restoration.
const LOAD_STEPS: u64 = 500;

impl SwarmRun {
    pub(super) fn old_copies(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        let mut of_start = prng.fork("before a start");
        if self.simulation.keeps_epochs && of_start.chance(1, 2) {
            return self.copies_from_before_a_start(&mut of_start);
        }
        if self.tolerates() == 0 {
            return Ok(());
        }
        self.repair_members()?;
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let members = self.some_members(prng, self.all_members(), count);
        let copies: Vec<(usize, Drive)> =
            places(members).into_iter().map(|at| (at, self.simulation.drives[at].clone())).collect();
        self.simulation.trace(|| format!("members {:?} are copied", places(members)));
        self.load(prng.below(LOAD_STEPS))?;
        if prng.chance(1, 3) {
            // Epochs in which the copied members stay active.
            let others = self.all_members() & !members;
            self.simulation.suspects = self.some_members(prng, others, 1);
            self.replace_suspects()?;
            self.finish_replacements()?;
            self.load(prng.below(LOAD_STEPS))?;
        }
        if prng.chance(1, 2) {
            self.simulation.quiesce()?;
        }
        self.stop(prng);
        self.simulation.trace(|| format!("members {:?} are restored from the copy", places(members)));
        for (at, mut copy) in copies {
            copy.crash();
            copy.is_unreliable = true;
            self.simulation.drives[at] = copy;
        }
        self.set_suspects(members);
        self.mount(0)?;
        self.simulation.read_all()?;
        if prng.chance(1, 2) {
            self.load(prng.below(LOAD_STEPS))?;
            self.stop(prng);
            self.mount(0)?;
            self.simulation.read_all()?;
        }
        Ok(())
    }

    /// Members that are needed are restored to their state before the last start: the mount is
    /// refused until the current ones are present.
    fn copies_from_before_a_start(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        self.repair_members()?;
        if prng.chance(1, 2) {
            self.simulation.quiesce()?;
        }
        self.stop(prng);
        let mut copies = self.simulation.drives.clone();
        self.mount(0)?;
        if prng.chance(1, 3) {
            self.load(prng.below(LOAD_STEPS))?;
        }
        self.stop(prng);
        let away = prng.below(self.tolerates() as u64 + 1) as usize;
        let away = self.some_members(prng, self.all_members(), away);
        let count = 1 + self.tolerates() - away.count_ones() as usize;
        let older = self.some_members(prng, self.all_members() & !away, count);
        self.simulation.trace(|| format!("members {:?} are restored to their state before the start", places(older)));
        let current = self.simulation.drives.clone();
        for at in places(older) {
            copies[at].crash();
            copies[at].is_unreliable = true;
            self.simulation.drives[at] = copies[at].clone();
        }
        self.simulation.suspects = self.all_members();
        if self.try_mount(away)?.is_some() {
            self.simulation.drives = current;
            self.simulation.suspects = 0;
            self.mount(0)?;
        }
        self.simulation.read_all()?;
        self.set_suspects(self.inactive());
        Ok(())
    }
}
