//! Running a seed: twice, and with a story if somebody wants to read it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zonda_zoned::Instant;

use crate::files::{FilesRun, FilesWorld, describe as describe_files};
use crate::images::{ImagesRun, ImagesWorld, describe as describe_image};
use crate::network::{Network, NetworkRun, describe as describe_network};
use crate::options::{Options, WorldKind};
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::run::Run;
use crate::story::{Teller, compose, describe};
use crate::survey::Trouble;
use crate::volumes::{VolumesRun, VolumesWorld, describe as describe_volume};
use crate::world::World;

/// Runs a seed's world, twice, and says how it ended.
///
/// A failed assertion below is a failure of the run; what it prints on its way is the caller's to silence.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Outcome {
    run_twice(seed, &AnyWorld::new(seed, options), options)
}

/// Runs a world twice, and says how it ended.
pub(crate) fn run_twice(seed: u64, world: &AnyWorld, options: &Options) -> Outcome {
    let (first, _) = run_once(seed, world, options, Teller::default());
    let (second, _) = run_once(seed, world, options, Teller::default());
    if first == second {
        return first;
    }
    let message = format!(
        "two runs differ: hashes {:016x} and {:016x}, {} and {} events, {} and {}",
        first.hash,
        second.hash,
        first.events,
        second.events,
        ended(&first),
        ended(&second)
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

/// Tells the run of a seed: its world, the events of note, and how it ended.
#[must_use]
pub fn story(seed: u64, options: &Options) -> String {
    story_of(seed, &AnyWorld::new(seed, options), options, &options.replay_command(seed))
}

/// Tells the run of a world, which this command replays.
pub(crate) fn story_of(seed: u64, world: &AnyWorld, options: &Options, replay: &str) -> String {
    let teller = match world {
        // What became of a block that is lost is told from the start.
        AnyWorld::Volumes(_) => {
            let (outcome, _) = run_once(seed, world, options, Teller::default());
            Teller::watching(outcome.failure.and_then(|failure| failure.block))
        }
        _ => Teller::listening(),
    };
    let (outcome, lines) = run_once(seed, world, options, teller);
    let description = match world {
        AnyWorld::Drive(world) => describe(world),
        AnyWorld::Network(world) => describe_network(world),
        AnyWorld::Files(world) => describe_files(world),
        AnyWorld::Volumes(world) => describe_volume(world),
        AnyWorld::Images(world) => describe_image(world),
    };
    compose(&description, replay, &outcome, &lines)
}

/// The drive of a seed's world, as the text of a profile; of a network, that of the drive which the seed makes alone.
#[must_use]
pub fn drive_profile(seed: u64, options: &Options) -> String {
    match options.world_of(seed) {
        WorldKind::Files => FilesWorld::new(seed, options).profile_text,
        _ => World::new(seed, options).profile_text,
    }
}

/// The world of a seed, of any kind.
#[derive(Debug)]
pub(crate) enum AnyWorld {
    Drive(Box<World>),
    Network(Box<Network>),
    Files(Box<FilesWorld>),
    Volumes(Box<VolumesWorld>),
    Images(Box<ImagesWorld>),
}

impl AnyWorld {
    pub(crate) fn new(seed: u64, options: &Options) -> AnyWorld {
        match options.world_of(seed) {
            WorldKind::Network => AnyWorld::Network(Box::new(Network::new(seed, options))),
            WorldKind::Files => AnyWorld::Files(Box::new(FilesWorld::new(seed, options))),
            WorldKind::Volumes => AnyWorld::Volumes(Box::new(VolumesWorld::new(seed, options))),
            WorldKind::Images => AnyWorld::Images(Box::new(ImagesWorld::new(seed, options))),
            _ => AnyWorld::Drive(Box::new(World::new(seed, options))),
        }
    }
}

/// Runs a world once; shrinking needs no more.
pub(crate) fn run_once(seed: u64, world: &AnyWorld, options: &Options, teller: Teller) -> (Outcome, Vec<String>) {
    match world {
        AnyWorld::Drive(world) => {
            let mut run = Run::new(world, options, teller);
            let trouble = caught(|| run.run());
            finish(run.outcome(seed), trouble, run.now, &mut run.teller)
        }
        AnyWorld::Network(world) => {
            let mut run = NetworkRun::new(world, options, teller);
            let trouble = caught(|| run.run());
            finish(run.outcome(seed), trouble, run.now, &mut run.teller)
        }
        AnyWorld::Files(world) => {
            let mut run = FilesRun::new(world, options, teller);
            let trouble = caught(|| run.run());
            finish(run.outcome(seed), trouble, run.now, &mut run.teller)
        }
        AnyWorld::Volumes(world) => {
            let mut run = VolumesRun::new(world, options, teller);
            let trouble = caught(|| run.run());
            run.tell(trouble.as_ref());
            finish(run.outcome(seed), trouble, run.now(), &mut run.teller)
        }
        AnyWorld::Images(world) => {
            let mut run = ImagesRun::new(world, options, teller);
            let trouble = caught(|| run.run());
            finish(run.outcome(seed), trouble, run.now, &mut run.teller)
        }
    }
}

/// What goes wrong in a run; a failed assertion is one such thing.
fn caught(run: impl FnOnce() -> Result<(), Trouble>) -> Option<Trouble> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Some(Trouble::new(FailureKind::Panic, None, text.unwrap_or("without a word").to_owned()))
        }
    }
}

fn finish(mut outcome: Outcome, trouble: Option<Trouble>, at: Instant, teller: &mut Teller) -> (Outcome, Vec<String>) {
    outcome.failure = trouble.map(|trouble| {
        let tail = teller.tail(&trouble);
        let Trouble { kind, message, zone, file, block, host: _ } = trouble;
        Failure { kind, message, at, zone, file, block, tail }
    });
    (outcome, std::mem::take(&mut teller.lines))
}

fn ended(outcome: &Outcome) -> &'static str {
    outcome.failure.as_ref().map_or("good", |failure| failure.kind.name())
}
