//! `zonda sim`: tests with random scenarios.

mod batch;
mod parts;
mod replay;

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{ArgGroup, Args};
use serde::Serialize;
use zonda_sim::{BugbaseEntry, FailureKind, Mode, Options, Outcome, Part, ScenarioKind, bug_by_name, bugs};

use self::replay::Replay;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::{files, units};

pub(crate) const LONG_ABOUT: &str = "Test the drive model, the NVMe/TCP target, the initiator, the file store, volumes, images and pools with random scenarios.

Each seed generates a scenario, of one of these kinds:

  drive    a host on a small random drive, with layers around it (faults, delays, traces) and power losses
  network  hosts that reach such drives over NVMe/TCP, with slow, reset and silent connections, and kills of hosts and servers
  files    clients that write, rename and delete files in a store of files on zones (crate files)
  volumes  a host on a redundant volume over drives that fail, corrupt data, and are removed and added again
  images   a file-backed drive on a disk that fails, fills up, corrupts data and loses power
  elastic  tenants of a pool on a drive that fails and loses power, with namespaces that come, grow and go
  groups   tenants of a scheduler by conflict groups, over a drive whose groups are hidden and change

Every completion is compared with a simple reference model, and every acknowledged write must survive all faults. The same \
seed generates the same scenario on every machine.

By default, a run of many seeds uses all kinds but groups, each for a sixth of the seeds, and a run of a single seed uses the kind drive. \
--scenario selects another kind.

FILE.toml is a stored failure, such as those in sim/bugbase, which --shrink writes. It contains the whole scenario, and \
therefore replays identically after a change of the generator, when its seed would generate a different scenario.";

const EXAMPLES: &str = "Examples:
  zonda sim                                     run 200 seeds on all cores
  zonda sim --seeds 10000 --first 1000          run 10,000 seeds from seed 1000
  zonda sim 42                                  print the event trace of seed 42, a drive scenario
  zonda sim 42 --scenario network               generate a network scenario from seed 42
  zonda sim --scenario volumes --seeds 10000    run volume scenarios only
  zonda sim --bug lost-wakeup                   seed a bug, to test that it is found
  zonda sim 42 --bug lost-wakeup --shrink       reduce the failure to a minimal scenario
  zonda sim sim/bugbase/torn-block-0.toml       replay a stored failure

The exit code is 1 if a seed fails.";

/// Maximum number of seeds of a batch: their outcomes are kept in memory until its end.
const SEEDS_MAX: u64 = 100_000_000;
/// Maximum number of failures of a batch that are printed.
const FAILURES_SHOWN_MAX: usize = 10;

#[derive(Debug, Args)]
#[command(after_long_help = format!("{}\n\n{EXAMPLES}", parts::in_help()))]
#[command(group = ArgGroup::new("mode").args(["lite", "swarm", "performance"]))]
pub(crate) struct SimArgs {
    /// Replay this seed, or the stored failure in this file, and print its events
    #[arg(value_name = "SEED|FILE.toml")]
    seed: Option<Replay>,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with = "seed",
          value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1, conflicts_with = "seed", value_parser = units::whole_number)]
    first: u64,
    /// Simulate a bare drive with queue depth 1 and without faults
    #[arg(long)]
    lite: bool,
    /// Simulate everything: layers, queues, faults, power losses (default)
    #[arg(long)]
    swarm: bool,
    /// Simulate a bare drive without faults, and check the latency of every command
    #[arg(long)]
    performance: bool,
    /// Kind of scenario [default: all, or drive for a single seed]
    #[arg(long, alias = "world", value_name = "KIND", conflicts_with_all = ["lite", "performance"],
          value_parser = PossibleValuesParser::new(ScenarioKind::ALL.map(kind_value)))]
    scenario: Option<String>,
    /// Inject a bug into the drive, the network, the file store, the volume, the image or the
    /// pool, to test that it is found. An unknown name lists all names
    #[arg(long, value_name = "NAME", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(bugs().into_iter().map(|(name, _)| name)))]
    bug: Option<String>,
    /// Maximum number of commands
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    commands: Option<u64>,
    /// Maximum queue depth
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    queue_depth: Option<u32>,
    /// Multiply the generated number of commands
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    scale: u64,
    /// Leave out these parts of the scenario, such as power-loss; zonda sim --help lists them
    #[arg(long, value_name = "PARTS", value_delimiter = ',', hide_possible_values = true,
          value_parser = PossibleValuesParser::new(Part::ALL.map(part_value)))]
    without: Vec<String>,
    /// Number of seeds to run in parallel [default: one per core]
    #[arg(long, value_name = "N", conflicts_with = "seed", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Reduce a failure to a minimal scenario and store it; of many seeds, the first failure of
    /// each kind
    #[arg(long)]
    shrink: bool,
    /// Directory for the failures that --shrink stores
    #[arg(long, value_name = "DIR", default_value = "sim/bugbase", requires = "shrink")]
    out: PathBuf,
    /// Print one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    let options = args.options();
    // A panic in a simulation is an outcome, which is reported with its seed: suppress the message
    // of the panic.
    std::panic::set_hook(Box::new(|_| {}));
    match &args.seed {
        Some(Replay::Seed(seed)) => one(*seed, &options, args),
        Some(Replay::Entry(path)) => replay::entry(path, args),
        None => many(&options, args),
    }
}

/// A kind of scenario as a value of `--scenario`.
fn kind_value((name, kind): (&'static str, ScenarioKind)) -> PossibleValue {
    let value = PossibleValue::new(name);
    if kind == ScenarioKind::All { value.alias(ScenarioKind::ALL_FORMER_NAME) } else { value }
}

/// A part as a value of `--without`.
fn part_value((name, part): (&'static str, Part)) -> PossibleValue {
    let former = Part::FORMER_NAMES.iter().filter(|(_, known)| *known == part).map(|(former, _)| *former);
    PossibleValue::new(name).aliases(former)
}

impl SimArgs {
    fn options(&self) -> Options {
        let mode = match (self.lite, self.performance) {
            (true, _) => Mode::Lite,
            (_, true) => Mode::Performance,
            _ => Mode::Swarm,
        };
        let scenario = match (&self.scenario, &self.seed) {
            (Some(name), _) => name.parse().expect("clap has validated the name"),
            (None, Some(_)) => ScenarioKind::Drive,
            (None, None) => ScenarioKind::All,
        };
        Options {
            scenario,
            bug: self.bug.as_ref().map(|name| bug_by_name(name).expect("clap has validated the name")),
            commands_max: self.commands,
            queue_depth_max: self.queue_depth,
            scale: self.scale,
            without: self.without.iter().map(|name| name.parse().expect("clap has validated the name")).collect(),
            ..Options::of(mode)
        }
    }

    /// The given options that affect the generation of a scenario, or shrink it.
    fn generator_options(&self) -> Vec<&'static str> {
        let given = [
            ("--lite", self.lite),
            ("--swarm", self.swarm),
            ("--performance", self.performance),
            ("--scenario", self.scenario.is_some()),
            ("--bug", self.bug.is_some()),
            ("--commands", self.commands.is_some()),
            ("--queue-depth", self.queue_depth.is_some()),
            ("--scale", self.scale != 1),
            ("--without", !self.without.is_empty()),
            ("--shrink", self.shrink),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
    }
}

/// Runs a single seed.
fn one(seed: u64, options: &Options, args: &SimArgs) -> Result<(), Failure> {
    let outcome = zonda_sim::run(seed, options);
    let kind = outcome.failure.as_ref().map(|failure| failure.kind);
    let smaller = match kind {
        Some(kind) if args.shrink => Smaller::of(seed, options, kind, &args.out)?,
        _ => None,
    };
    if args.json {
        print_json(&Verdict { smaller, ..Verdict::of(&outcome, options) })?;
        return if outcome.is_good() { Ok(()) } else { Err(Failure::Run) };
    }
    print(&format!("{}\n", zonda_sim::event_trace(seed, options).trim_end()))?;
    match smaller {
        Some(smaller) => print(&smaller.text())?,
        None if args.shrink && outcome.is_good() => print("\nNothing to shrink: the seed passed.\n")?,
        None => {}
    }
    if outcome.is_good() { Ok(()) } else { Err(Failure::Run) }
}

/// Runs many seeds.
fn many(options: &Options, args: &SimArgs) -> Result<(), Failure> {
    if args.first.checked_add(args.seeds).is_none() {
        let message = format!("{} seeds from seed {} exceed the largest seed", args.seeds, args.first);
        return Err(Failure::input(message, "choose a smaller --first"));
    }
    let threads = args.threads.map_or_else(batch::cores, |threads| threads as usize);
    let outcomes = batch::run(args.first..args.first + args.seeds, options, threads, args.quiet);
    let mut summary = Summary::of(&outcomes, options, args.first);
    if args.shrink {
        summary.shrink_first_of_each_kind(&outcomes, options, &args.out)?;
    }
    if args.json {
        print_json(&summary)?;
    } else {
        print(&summary.text(Screen::of_stdout()))?;
        for smaller in summary.failures.iter().filter_map(|verdict| verdict.smaller.as_ref()) {
            print(&smaller.text())?;
        }
    }
    if summary.failures.is_empty() { Ok(()) } else { Err(Failure::Run) }
}

/// The results of a batch.
#[derive(Debug, Serialize)]
struct Summary {
    mode: &'static str,
    first: u64,
    seeds: u64,
    good: u64,
    commands: u64,
    events: u64,
    power_losses: u64,
    faults: u64,
    virtual_time_ns: u64,
    /// Hash of the hashes of all seeds, in order.
    hash: String,
    failures: Vec<Verdict>,
}

/// The result of a seed.
#[derive(Debug, Serialize)]
struct Verdict {
    seed: u64,
    mode: &'static str,
    #[serde(rename = "world")]
    scenario: &'static str,
    is_good: bool,
    commands: u64,
    events: u64,
    power_losses: u64,
    faults: u64,
    virtual_time_ns: u64,
    hash: String,
    failure: Option<FailureOf>,
    replay: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    smaller: Option<Smaller>,
}

/// The same failure in a smaller scenario.
#[derive(Debug, Serialize)]
struct Smaller {
    commands: u64,
    /// Number of runs of the search.
    runs: u32,
    message: String,
    replay: String,
    /// The file of the entry.
    file: String,
}

/// The failure of a seed.
#[derive(Debug, Serialize)]
struct FailureOf {
    kind: &'static str,
    message: String,
    at_ns: u64,
    zone: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    tail: Vec<String>,
}

impl Verdict {
    fn of(outcome: &Outcome, options: &Options) -> Verdict {
        Verdict {
            seed: outcome.seed,
            mode: outcome.mode.name(),
            scenario: outcome.scenario.name(),
            is_good: outcome.is_good(),
            commands: outcome.commands,
            events: outcome.events,
            power_losses: outcome.power_losses,
            faults: outcome.faults,
            virtual_time_ns: outcome.virtual_time.0,
            hash: format!("{:016x}", outcome.hash),
            failure: outcome.failure.as_ref().map(|failure| FailureOf {
                kind: failure.kind.name(),
                message: failure.message.clone(),
                at_ns: failure.at.0,
                zone: failure.zone.map(|zone| zone.0),
                file: failure.file.clone(),
                block: failure.block,
                tail: failure.tail.clone(),
            }),
            replay: options.replay_command(outcome.seed),
            smaller: None,
        }
    }
}

impl Summary {
    /// Shrinks one failure of each kind: others likely have the same cause, and shrinking takes
    /// hundreds of runs.
    fn shrink_first_of_each_kind(
        &mut self,
        outcomes: &[Outcome],
        options: &Options,
        directory: &Path,
    ) -> Result<(), Failure> {
        let mut seen: Vec<FailureKind> = Vec::new();
        for outcome in outcomes {
            let Some(kind) = outcome.failure.as_ref().map(|failure| failure.kind) else { continue };
            if seen.contains(&kind) {
                continue;
            }
            seen.push(kind);
            let smaller = Smaller::of(outcome.seed, options, kind, directory)?;
            if let Some(verdict) = self.failures.iter_mut().find(|verdict| verdict.seed == outcome.seed) {
                verdict.smaller = smaller;
            }
        }
        Ok(())
    }
}

impl Smaller {
    /// Shrinks a failure and stores it. `None` if the failure cannot be reproduced.
    fn of(seed: u64, options: &Options, kind: FailureKind, directory: &Path) -> Result<Option<Smaller>, Failure> {
        files::make_directory(directory)?;
        let Some(shrunk) = zonda_sim::shrink(seed, options, kind) else { return Ok(None) };
        let entry = BugbaseEntry::new(seed, &shrunk);
        files::write(directory, &entry.file_name(), &entry.to_toml())?;
        Ok(Some(Smaller {
            commands: shrunk.commands,
            runs: shrunk.runs,
            replay: shrunk.options.replay_command(seed),
            message: shrunk.failure.message,
            file: directory.join(entry.file_name()).display().to_string(),
        }))
    }

    fn text(&self) -> String {
        format!(
            "\nThe same failure with {}, found in {}: {}\n  replay with: {}\n  stored in: {}\n",
            units::counted(self.commands, "command"),
            units::counted(u64::from(self.runs), "run"),
            self.message,
            self.replay,
            self.file
        )
    }
}

impl Summary {
    fn of(outcomes: &[Outcome], options: &Options, first: u64) -> Summary {
        let sum = |figure: fn(&Outcome) -> u64| outcomes.iter().map(figure).fold(0, u64::saturating_add);
        let mix =
            |hash: u64, outcome: &Outcome| (hash ^ outcome.hash).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.is_good()).collect();
        Summary {
            mode: options.mode.name(),
            first,
            seeds: outcomes.len() as u64,
            good: (outcomes.len() - failed.len()) as u64,
            commands: sum(|outcome| outcome.commands),
            events: sum(|outcome| outcome.events),
            power_losses: sum(|outcome| outcome.power_losses),
            faults: sum(|outcome| outcome.faults),
            virtual_time_ns: sum(|outcome| outcome.virtual_time.0),
            hash: format!("{:016x}", outcomes.iter().fold(0xcbf2_9ce4_8422_2325, mix)),
            failures: failed.into_iter().map(|outcome| Verdict::of(outcome, options)).collect(),
        }
    }

    fn text(&self, screen: Screen) -> String {
        let mut text = String::new();
        for verdict in self.failures.iter().take(FAILURES_SHOWN_MAX) {
            let Some(failure) = &verdict.failure else { continue };
            let head = screen.styled("31", &format!("seed {} failed", verdict.seed));
            text += &format!("{head}, {}: {}\n  replay with: {}\n", failure.kind, failure.message, verdict.replay);
        }
        if let Some(more) = self.failures.len().checked_sub(FAILURES_SHOWN_MAX).filter(|more| *more > 0) {
            text += &format!("and {}\n", units::counted(more as u64, "more failure"));
        }
        if !self.failures.is_empty() {
            text += "\n";
        }
        let last = self.first + self.seeds - 1;
        let verdict = match self.failures.len() {
            0 => screen.styled("32", "all passed"),
            failed => screen.styled("31", &format!("{} failed", units::count(failed as u64))),
        };
        text +=
            &format!("{} ({} to {last}, {}): {verdict}\n", units::counted(self.seeds, "seed"), self.first, self.mode);
        text + &format!(
            "{}, {}, {} in {} of virtual time; hash {}\n",
            units::counted(self.commands, "command"),
            units::counted(self.power_losses, "power cut"),
            units::counted(self.faults, "fault"),
            units::time(self.virtual_time_ns),
            self.hash
        )
    }
}
