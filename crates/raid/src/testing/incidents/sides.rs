//! Members are used without each other in turn. Sides that know nothing of each other are refused together; a side that is chosen has
//! all that was promised to its hosts.

use zonda_zoned::Prng;

use super::super::lives::Absent;
use super::super::{Model, Promise, SwarmRun, Violation};
use super::places;
use crate::VolumeError;

/// Steps of load on each side, at most.
const LOAD_STEPS: u64 = 300;

/// What was promised to the hosts of one side.
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
        self.make_whole()?;
        let keeps_epochs = std::mem::replace(&mut self.world.keeps_epochs, false);
        self.world.options.newest_epoch = None;
        if prng.chance(1, 2) {
            self.world.rest()?;
        }
        self.stop(prng);
        let before = self.side(0);
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let away = self.some_members(prng, self.all_members(), count);
        let first = self.go_on_without(prng, away)?;
        let is_enough = away.count_ones() as usize >= self.data_chunks() && self.tolerates() > 0;
        let is_mirror_of_stripes = self.swarm.config.scheme.level == crate::Level::Raid01;
        if is_enough && !is_mirror_of_stripes && prng.chance(2, 3) {
            self.use_the_others(prng, before, first)?;
        } else {
            self.use_some_of_both(prng, away)?;
        }
        self.world.read_all()?;
        self.hurt_are(self.inactive());
        self.world.keeps_epochs = keeps_epochs;
        self.world.options.newest_epoch = keeps_epochs.then(|| self.world.volume.epoch());
        Ok(())
    }

    fn side(&self, without: u32) -> Side {
        let mut model = self.world.model.clone();
        // Its members may lose power while the other side is in use.
        model.crash();
        Side { model, absent: self.world.absent.clone(), epoch: self.world.volume.epoch(), without }
    }

    /// The volume is used without these members, and stopped.
    fn go_on_without(&mut self, prng: &mut Prng, away: u32) -> Result<Side, Violation> {
        self.world.tell(|| format!("members {:?} are away", places(away)));
        self.world.suspects = away;
        self.mount(away)?;
        if prng.chance(1, 2) {
            self.world.read_all()?;
        }
        self.load(prng.below(LOAD_STEPS))?;
        if prng.chance(1, 2) {
            self.world.rest()?;
        }
        self.stop(prng);
        Ok(self.side(away))
    }

    /// The members that were away are used alone, if nobody knows better.
    fn use_the_others(&mut self, prng: &mut Prng, before: Side, first: Side) -> Result<(), Violation> {
        let others = self.all_members() & !first.without;
        if prng.chance(1, 2) {
            self.world.options.newest_epoch = Some(first.epoch);
            self.world.suspects = self.all_members();
            match self.try_mount(others)? {
                Some(VolumeError::OlderThanKnown { .. }) => {}
                other => return Err(refused_otherwise("members that are older than known", other)),
            }
        }
        self.world.options.newest_epoch = None;
        if prng.chance(1, 4) {
            // Back together, before anything else has happened.
            self.world.suspects = first.without;
            return self.mount(0);
        }
        (self.world.model, self.world.absent) = (before.model.of_other_side(), before.absent);
        let second = self.go_on_without(prng, others)?;
        self.world.options.newest_epoch = prng.chance(1, 2).then_some(first.epoch);
        self.world.suspects = self.all_members();
        match self.try_mount(0)? {
            Some(VolumeError::SplitBrain { .. }) => {}
            other => return Err(refused_otherwise("two sides that went on alone", other)),
        }
        let chosen = if prng.chance(1, 2) { first } else { second };
        self.world.options.newest_epoch = prng.chance(1, 2).then_some(chosen.epoch);
        (self.world.model, self.world.absent) = (chosen.model, chosen.absent);
        self.world.suspects = chosen.without;
        self.mount(chosen.without)?;
        self.world.read_all()?;
        // What the other side has is given up, as the message says.
        self.replace_suspects()?;
        self.finish_healing()
    }

    /// Some that were away come back while others are away: that is refused, or everything is there.
    fn use_some_of_both(&mut self, prng: &mut Prng, away: u32) -> Result<(), Violation> {
        let count = 1 + prng.below(self.tolerates() as u64) as usize;
        let other = self.some_members(prng, self.all_members() & !away, count);
        self.world.suspects = away | other;
        if other != self.all_members() & !away && self.try_mount(other)?.is_none() {
            return Ok(());
        }
        self.world.suspects = away;
        self.mount(0)
    }
}

fn refused_otherwise(what: &str, error: Option<VolumeError>) -> Violation {
    let how = error.map_or("accepted".to_owned(), |error| format!("refused otherwise: {error}"));
    Violation::new(Promise::Mounts, format!("{what} are {how}"))
}
