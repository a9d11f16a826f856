//! Split brain: members are used independently of each other, one side after the other. Sides that
//! do not know of each other are refused together; a chosen side has everything that its hosts were
//! promised.

use zonda_zoned::Prng;

use super::super::lifecycle::Absent;
use super::super::{Model, Promise, SwarmRun, Violation};
use super::places;
use crate::VolumeError;

/// Maximum steps of load on each side.
const LOAD_STEPS: u64 = 300;

/// The guarantees to the hosts of one side.
struct Side {
    model: Model,
    absent: Absent,
    epoch: u64,
    /// The members that it lacks, as bits.
    without: u32,
}

impl SwarmRun {
    pub(super) fn split_brain(&mut self, prng: &mut Prng) -> Result<(), Violation> {
        if self.tolerates() == 0 {
            return Ok(());
        }
        self.repair_members()?;
        let keeps_epochs = std::mem::replace(&mut self.simulation.keeps_epochs, false);
        self.simulation.options.newest_epoch = None;
        if prng.chance(1, 2) {
            self.simulation.quiesce()?;
        }
        self.stop(prng);
        let before = self.side(0);
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let away = self.some_members(prng, self.all_members(), count);
        let first = self.run_without(prng, away)?;
        let is_enough = away.count_ones() as usize >= self.data_chunks() && self.tolerates() > 0;
        let is_mirror_of_stripes = self.swarm.config.scheme.level == crate::Level::Raid01;
        if is_enough && !is_mirror_of_stripes && prng.chance(2, 3) {
            self.run_others(prng, before, first)?;
        } else {
            self.mount_some_of_both(prng, away)?;
        }
        self.simulation.read_all()?;
        self.set_suspects(self.inactive());
        self.simulation.keeps_epochs = keeps_epochs;
        self.simulation.options.newest_epoch = keeps_epochs.then(|| self.simulation.volume.epoch());
        Ok(())
    }

    fn side(&self, without: u32) -> Side {
        let mut model = self.simulation.model.clone();
        // Its members may lose power while the other side is in use.
        model.crash();
        Side { model, absent: self.simulation.absent.clone(), epoch: self.simulation.volume.epoch(), without }
    }

    /// The volume is used without these members, and stopped.
    fn run_without(&mut self, prng: &mut Prng, away: u32) -> Result<Side, Violation> {
        self.simulation.trace(|| format!("members {:?} are absent", places(away)));
        self.simulation.suspects = away;
        self.mount(away)?;
        if prng.chance(1, 2) {
            self.simulation.read_all()?;
        }
        self.load(prng.below(LOAD_STEPS))?;
        if prng.chance(1, 2) {
            self.simulation.quiesce()?;
        }
        self.stop(prng);
        Ok(self.side(away))
    }

    /// The absent members are used alone, unless the caller knows better.
    fn run_others(&mut self, prng: &mut Prng, before: Side, first: Side) -> Result<(), Violation> {
        let others = self.all_members() & !first.without;
        if prng.chance(1, 2) {
            self.simulation.options.newest_epoch = Some(first.epoch);
            self.simulation.suspects = self.all_members();
            match self.try_mount(others)? {
                Some(VolumeError::OlderThanKnown { .. }) => {}
                other => return Err(refused_otherwise("members older than the known epoch", other)),
            }
        }
        self.simulation.options.newest_epoch = None;
        if prng.chance(1, 4) {
            // Mounted together, before anything else has happened.
            self.simulation.suspects = first.without;
            return self.mount(0);
        }
        (self.simulation.model, self.simulation.absent) = (before.model.of_other_side(), before.absent);
        let second = self.run_without(prng, others)?;
        self.simulation.options.newest_epoch = prng.chance(1, 2).then_some(first.epoch);
        self.simulation.suspects = self.all_members();
        match self.try_mount(0)? {
            Some(VolumeError::SplitBrain { .. }) => {}
            other => return Err(refused_otherwise("two diverged sides", other)),
        }
        let chosen = if prng.chance(1, 2) { first } else { second };
        self.simulation.options.newest_epoch = prng.chance(1, 2).then_some(chosen.epoch);
        (self.simulation.model, self.simulation.absent) = (chosen.model, chosen.absent);
        self.simulation.suspects = chosen.without;
        self.mount(chosen.without)?;
        self.simulation.read_all()?;
        // The contents of the other side are discarded, as the message says.
        self.replace_suspects()?;
        self.finish_replacements()
    }

    /// Some absent members return while others are absent: that is refused, or everything is
    /// readable.
    fn mount_some_of_both(&mut self, prng: &mut Prng, away: u32) -> Result<(), Violation> {
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let other = self.some_members(prng, self.all_members() & !away, count);
        self.simulation.suspects = away | other;
        if other != self.all_members() & !away && self.try_mount(other)?.is_none() {
            return Ok(());
        }
        self.simulation.suspects = away;
        self.mount(0)
    }
}

fn refused_otherwise(what: &str, error: Option<VolumeError>) -> Violation {
    let how = error.map_or("accepted".to_owned(), |error| format!("refused for another reason: {error}"));
    Violation::new(Promise::Mounts, format!("{what} are {how}"))
}
