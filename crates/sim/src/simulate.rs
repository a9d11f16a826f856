//! Runs the simulation of a seed: twice for the verdict, once more for an event trace.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zonda_zoned::Instant;

use crate::elastic::{ElasticRun, ElasticSimulation, describe as describe_pool};
use crate::event_trace::{EventTrace, compose, describe};
use crate::files::{FilesRun, FilesSimulation, describe as describe_files};
use crate::groups::{GroupsRun, GroupsSimulation, describe as describe_groups};
use crate::images::{ImagesRun, ImagesSimulation, describe as describe_image};
use crate::network::{Network, NetworkRun, describe as describe_network};
use crate::observe::CheckError;
use crate::options::{Options, ScenarioKind};
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::run::Run;
use crate::simulation::Simulation;
use crate::volumes::{VolumesRun, VolumesSimulation, describe as describe_volume};

/// Runs the simulation of a seed twice, and returns the outcome.
///
/// A failed assertion anywhere is a failure of the run. To suppress the message that the panic
/// prints, set a panic hook.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Outcome {
    run_twice(seed, &AnySimulation::new(seed, options), options)
}

/// Runs a simulation twice, and returns the outcome.
pub(crate) fn run_twice(seed: u64, simulation: &AnySimulation, options: &Options) -> Outcome {
    let (first, _) = run_once(seed, simulation, options, EventTrace::default());
    let (second, _) = run_once(seed, simulation, options, EventTrace::default());
    if first == second {
        return first;
    }
    let message = format!(
        "two runs of the same seed differ: hashes {:016x} and {:016x}, {} and {} events, {} and {}",
        first.hash,
        second.hash,
        first.events,
        second.events,
        verdict(&first),
        verdict(&second)
    );
    let at = Instant(first.virtual_time.0);
    let failure = Failure {
        kind: FailureKind::NotRepeatable,
        message,
        at,
        zone: None,
        file: None,
        block: None,
        tail: Vec::new(),
    };
    Outcome { failure: Some(failure), ..first }
}

/// The event trace of the run of a seed: the scenario, the main events, and the result.
#[must_use]
pub fn event_trace(seed: u64, options: &Options) -> String {
    event_trace_of(seed, &AnySimulation::new(seed, options), options, &options.replay_command(seed))
}

/// The event trace of a simulation; `replay` is the command that replays it.
pub(crate) fn event_trace_of(seed: u64, simulation: &AnySimulation, options: &Options, replay: &str) -> String {
    let trace = match simulation {
        // A first run finds the block that is lost, so that the trace has every event of it.
        AnySimulation::Volumes(_) => {
            let (outcome, _) = run_once(seed, simulation, options, EventTrace::default());
            EventTrace::watching_block(outcome.failure.and_then(|failure| failure.block))
        }
        _ => EventTrace::enabled(),
    };
    let (outcome, lines) = run_once(seed, simulation, options, trace);
    let description = match simulation {
        AnySimulation::Drive(simulation) => describe(simulation),
        AnySimulation::Network(simulation) => describe_network(simulation),
        AnySimulation::Files(simulation) => describe_files(simulation),
        AnySimulation::Volumes(simulation) => describe_volume(simulation),
        AnySimulation::Images(simulation) => describe_image(simulation),
        AnySimulation::Elastic(simulation) => describe_pool(simulation),
        AnySimulation::Groups(simulation) => describe_groups(simulation),
    };
    compose(&description, replay, &outcome, &lines)
}

/// The profile text of a seed's drive. For a network, the profile of the drive scenario of the same
/// seed.
#[must_use]
pub fn drive_profile(seed: u64, options: &Options) -> String {
    match options.scenario_of(seed) {
        ScenarioKind::Files => FilesSimulation::new(seed, options).profile_text,
        ScenarioKind::Elastic => ElasticSimulation::new(seed, options).profile_text,
        _ => Simulation::new(seed, options).profile_text,
    }
}

/// The simulation of a seed, of any kind.
#[derive(Debug)]
pub(crate) enum AnySimulation {
    Drive(Box<Simulation>),
    Network(Box<Network>),
    Files(Box<FilesSimulation>),
    Volumes(Box<VolumesSimulation>),
    Images(Box<ImagesSimulation>),
    Elastic(Box<ElasticSimulation>),
    Groups(Box<GroupsSimulation>),
}

impl AnySimulation {
    pub(crate) fn new(seed: u64, options: &Options) -> AnySimulation {
        match options.scenario_of(seed) {
            ScenarioKind::Network => AnySimulation::Network(Box::new(Network::new(seed, options))),
            ScenarioKind::Files => AnySimulation::Files(Box::new(FilesSimulation::new(seed, options))),
            ScenarioKind::Volumes => AnySimulation::Volumes(Box::new(VolumesSimulation::new(seed, options))),
            ScenarioKind::Images => AnySimulation::Images(Box::new(ImagesSimulation::new(seed, options))),
            ScenarioKind::Elastic => AnySimulation::Elastic(Box::new(ElasticSimulation::new(seed, options))),
            ScenarioKind::Groups => AnySimulation::Groups(Box::new(GroupsSimulation::new(seed, options))),
            _ => AnySimulation::Drive(Box::new(Simulation::new(seed, options))),
        }
    }
}

/// Runs a simulation once, which is enough to shrink it.
pub(crate) fn run_once(
    seed: u64,
    simulation: &AnySimulation,
    options: &Options,
    trace: EventTrace,
) -> (Outcome, Vec<String>) {
    match simulation {
        AnySimulation::Drive(simulation) => {
            let mut run = Run::new(simulation, options, trace);
            let error = caught(|| run.run());
            finish(run.outcome(seed), error, run.now, &mut run.trace)
        }
        AnySimulation::Network(simulation) => {
            let mut run = NetworkRun::new(simulation, options, trace);
            let error = caught(|| run.run());
            finish(run.outcome(seed), error, run.now, &mut run.trace)
        }
        AnySimulation::Files(simulation) => {
            let mut run = FilesRun::new(simulation, options, trace);
            let error = caught(|| run.run());
            finish(run.outcome(seed), error, run.now, &mut run.trace)
        }
        AnySimulation::Volumes(simulation) => {
            let mut run = VolumesRun::new(simulation, options, trace);
            let error = caught(|| run.run());
            run.copy_journal(error.as_ref());
            finish(run.outcome(seed), error, run.now(), &mut run.trace)
        }
        AnySimulation::Images(simulation) => {
            let mut run = ImagesRun::new(simulation, options, trace);
            let error = caught(|| run.run());
            finish(run.outcome(seed), error, run.now, &mut run.trace)
        }
        AnySimulation::Elastic(simulation) => {
            let mut run = ElasticRun::new(simulation, options, trace);
            let error = caught(|| run.run());
            finish(run.outcome(seed), error, run.now, &mut run.trace)
        }
        AnySimulation::Groups(simulation) => {
            let mut run = GroupsRun::new(simulation, options, trace);
            let error = caught(|| run.run());
            finish(run.outcome(seed), error, run.now, &mut run.trace)
        }
    }
}

/// The error of a run; a panic is one.
fn caught(run: impl FnOnce() -> Result<(), CheckError>) -> Option<CheckError> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Some(CheckError::new(FailureKind::Panic, None, text.unwrap_or("a panic without a message").to_owned()))
        }
    }
}

fn finish(
    mut outcome: Outcome,
    error: Option<CheckError>,
    at: Instant,
    trace: &mut EventTrace,
) -> (Outcome, Vec<String>) {
    outcome.failure = error.map(|error| {
        let tail = trace.tail(&error);
        let CheckError { kind, message, zone, file, block, host: _ } = error;
        Failure { kind, message, at, zone, file, block, tail }
    });
    (outcome, std::mem::take(&mut trace.lines))
}

fn verdict(outcome: &Outcome) -> &'static str {
    outcome.failure.as_ref().map_or("passed", |failure| failure.kind.name())
}
