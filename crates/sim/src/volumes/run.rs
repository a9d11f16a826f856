//! One run of a world with a volume.

use zonda_raid::testing::{Promise, SwarmRun, Violation};
use zonda_zoned::{Duration, Instant};

use super::world::VolumesWorld;
use crate::options::{Bug, Options, WorldKind};
use crate::outcome::{FailureKind, Outcome};
use crate::story::{TAIL_MAX, Teller};
use crate::survey::Trouble;

/// One run of a world.
pub(crate) struct VolumesRun<'w> {
    options: &'w Options,
    run: SwarmRun,
    pub(crate) teller: Teller,
}

impl<'w> VolumesRun<'w> {
    pub(crate) fn new(world: &VolumesWorld, options: &'w Options, teller: Teller) -> VolumesRun<'w> {
        let mut run = world.swarm.begin();
        if let Some(Bug::Volumes(bug)) = options.bug {
            run.world_mut().plant(bug);
        }
        if teller.listens() {
            run.listen(teller.watched_block());
        }
        VolumesRun { options, run, teller }
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub(crate) fn run(&mut self) -> Result<(), Trouble> {
        self.run.run().map_err(broken)
    }

    /// The time in the world.
    pub(crate) fn now(&self) -> Instant {
        self.run.world().time()
    }

    /// Tells what the world has written down.
    pub(crate) fn tell(&mut self, trouble: Option<&Trouble>) {
        let journal = &self.run.world().journal;
        for (at, line) in journal.lines() {
            self.teller.tell(*at, || line.clone());
        }
        if let Some(trouble) = trouble {
            self.teller.tail_is(journal.tail(trouble.block, TAIL_MAX));
        }
    }

    /// The verdict on what was run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        let outcome = self.run.outcome();
        Outcome {
            seed,
            mode: self.options.mode,
            world: WorldKind::Volumes,
            commands: self.run.world().drawn,
            events: self.run.steps() + outcome.completions,
            power_losses: outcome.crashes,
            faults: outcome.failed_commands + outcome.blows,
            virtual_time: Duration(self.now().0),
            hash: outcome.hash,
            failure: None,
        }
    }
}

/// A promise that was not kept as what went wrong.
fn broken(violation: Violation) -> Trouble {
    let kind = match violation.promise {
        Promise::Answers => FailureKind::WrongAnswer,
        Promise::Ends => FailureKind::Starved,
        Promise::Contents => FailureKind::WrongContents,
        Promise::Durability => FailureKind::LostWrite,
        Promise::Mounts => FailureKind::MountFailed,
        Promise::Members => FailureKind::WrongMember,
        Promise::Redundancy => FailureKind::LostRedundancy,
        Promise::Order => FailureKind::WrongOrder,
    };
    Trouble::new(kind, None, violation.message).of_block(violation.lba)
}
