//! One run of a volume scenario.

use zonda_raid::testing::{Promise, SwarmRun, Violation};
use zonda_zoned::{Duration, Instant};

use super::simulation::VolumesSimulation;
use crate::bug::Bug;
use crate::event_trace::{EventTrace, TAIL_MAX};
use crate::observe::CheckError;
use crate::options::{Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};

/// One run of a simulation.
pub(crate) struct VolumesRun<'s> {
    options: &'s Options,
    run: SwarmRun,
    pub(crate) trace: EventTrace,
}

impl<'s> VolumesRun<'s> {
    pub(crate) fn new(simulation: &VolumesSimulation, options: &'s Options, trace: EventTrace) -> VolumesRun<'s> {
        let mut run = simulation.swarm.begin();
        if let Some(Bug::Volumes(bug)) = options.bug {
            run.simulation_mut().seed_bug(bug);
        }
        if trace.is_enabled() {
            run.record_trace(trace.watched_block());
        }
        VolumesRun { options, run, trace }
    }

    /// Runs to the end, or to the first error.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        self.run.run().map_err(broken)
    }

    /// The virtual time.
    pub(crate) fn now(&self) -> Instant {
        self.run.simulation().time()
    }

    /// Copies the journal of the simulation to the trace.
    pub(crate) fn copy_journal(&mut self, error: Option<&CheckError>) {
        let journal = &self.run.simulation().journal;
        for (at, line) in journal.lines() {
            self.trace.log(*at, || line.clone());
        }
        if let Some(error) = error {
            self.trace.set_tail(journal.tail(error.block, TAIL_MAX));
        }
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        let outcome = self.run.outcome();
        Outcome {
            seed,
            mode: self.options.mode,
            scenario: ScenarioKind::Volumes,
            commands: self.run.simulation().generated,
            events: self.run.steps() + outcome.completions,
            power_losses: outcome.crashes,
            faults: outcome.failed_commands + outcome.injected_faults,
            virtual_time: Duration(self.now().0),
            hash: outcome.hash,
            failure: None,
        }
    }
}

/// The error of a violation.
fn broken(violation: Violation) -> CheckError {
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
    CheckError::new(kind, None, violation.message).of_block(violation.lba)
}
