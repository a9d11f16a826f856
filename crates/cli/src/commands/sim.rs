//! `zonda sim`: the drive model, tested with random worlds.

mod batch;
mod replay;

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{ArgGroup, Args};
use serde::Serialize;
use zonda_sim::{BugbaseEntry, FailureKind, Mode, Options, Outcome, Part, WorldKind, bug_by_name, bugs};

use self::replay::Replay;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::{files, units};

pub(crate) const LONG_ABOUT: &str = "Tests the drive model, the NVMe/TCP target, the initiator, the file store, volumes and images with random worlds, one for each seed.

A seed makes a world: a small drive of a shape that no vendor sells, layers around it, a host with a mix of commands, faults \
and losses of power at any moment. Or some hosts reach such drives over a network that is slow, breaks, and falls silent, while \
hosts and servers die and come back. Or clients write, rename and delete files in a store of files on such a drive. Or a host \
has a redundant volume over several drives that fail, rot, go and come back. Or a drive is kept in an image on a disk that fails, \
fills up, rots and loses power. Every answer is held against a slow and obvious model \
of the specification, or of what files or volumes promise. What was acknowledged must be \
there after all of this. The same seed makes the same world on every machine.

Of many seeds, one in five makes a network, one in five a store of files, one in five a volume, one in five an image, and the others a drive alone; a \
seed given by itself makes a drive alone, unless --world says otherwise. --world all, the default for many seeds, was called both when there were two \
kinds; that is still understood.

A file is an entry that --shrink wrote, such as those in sim/bugbase. It holds its whole scenario, and replays the same \
after the generator of scenarios has changed, when its seed would generate another one.";

const EXAMPLES: &str = "Examples:
  zonda sim                                   200 seeds on all cores
  zonda sim --seeds 10000 --first 1000        other seeds, and more of them
  zonda sim 42                                the story of one seed
  zonda sim 42 --world network                and of its other worlds
  zonda sim --world files --seeds 2000        stores of files alone
  zonda sim --world volumes --seeds 10000     volumes alone
  zonda sim --world images --seeds 10000      images alone
  zonda sim --bug lost-wakeup                 plants a bug, to see that it is found
  zonda sim 42 --bug lost-wakeup --shrink     makes its failure as small as possible
  zonda sim sim/bugbase/torn-block-0.toml     replays a failure that was written down

Exit code 1 says that a seed failed.";

/// Seeds of one batch: their outcomes are kept until its end.
const SEEDS_MAX: u64 = 100_000_000;
/// Failures that are shown of a batch.
const FAILURES_SHOWN_MAX: usize = 10;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group = ArgGroup::new("mode").args(["lite", "swarm", "performance"]))]
pub(crate) struct SimArgs {
    /// Replay this seed, or the entry in this file, and print its events
    #[arg(value_name = "SEED|FILE.toml")]
    seed: Option<Replay>,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with = "seed",
          value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 1, conflicts_with = "seed")]
    first: u64,
    /// A bare drive, one command at a time, no faults
    #[arg(long)]
    lite: bool,
    /// Everything: layers, queues, faults, losses of power (the default)
    #[arg(long)]
    swarm: bool,
    /// A bare drive without faults, in which every command must end in time
    #[arg(long)]
    performance: bool,
    /// What is in the worlds; default all, and for a seed given by itself a drive
    #[arg(long, value_name = "KIND", conflicts_with_all = ["lite", "performance"],
          value_parser = PossibleValuesParser::new(WorldKind::ALL.map(kind_value)))]
    world: Option<String>,
    /// Plants a bug in the drive, the network, the file store, the volume or the image, to see whether it is found
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(bugs().into_iter().map(|(name, _)| name)))]
    bug: Option<String>,
    /// At most so many commands
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    commands: Option<u64>,
    /// At most so many commands at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    queue_depth: Option<u32>,
    /// So many times the seed's own number of commands
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    scale: u64,
    /// Leaves these parts out of the world
    #[arg(long, value_name = "PARTS", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Part::ALL.map(|(name, _)| name)))]
    without: Vec<String>,
    /// How many seeds at a time; default one for each core
    #[arg(long, value_name = "N", conflicts_with = "seed", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Makes a failure as small as possible, and writes it down; of many seeds, the first failure of each kind
    #[arg(long)]
    shrink: bool,
    /// Where --shrink writes its entry
    #[arg(long, value_name = "DIR", default_value = "sim/bugbase", requires = "shrink")]
    out: PathBuf,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Shows no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    let options = args.options();
    // A failed assertion in a world is an outcome, which is reported with its seed; what it prints on its way is noise.
    std::panic::set_hook(Box::new(|_| {}));
    match &args.seed {
        Some(Replay::Seed(seed)) => one(*seed, &options, args),
        Some(Replay::Entry(path)) => replay::entry(path, args),
        None => many(&options, args),
    }
}

/// A kind of world as a value of `--world`.
fn kind_value((name, kind): (&'static str, WorldKind)) -> PossibleValue {
    let value = PossibleValue::new(name);
    if kind == WorldKind::All { value.alias(WorldKind::ALL_FORMER_NAME) } else { value }
}

impl SimArgs {
    fn options(&self) -> Options {
        let mode = match (self.lite, self.performance) {
            (true, _) => Mode::Lite,
            (_, true) => Mode::Performance,
            _ => Mode::Swarm,
        };
        let world = match (&self.world, &self.seed) {
            (Some(name), _) => name.parse().expect("clap knows the names"),
            (None, Some(_)) => WorldKind::Drive,
            (None, None) => WorldKind::All,
        };
        Options {
            world,
            bug: self.bug.as_ref().map(|name| bug_by_name(name).expect("clap knows the names")),
            commands_max: self.commands,
            queue_depth_max: self.queue_depth,
            scale: self.scale,
            without: self.without.iter().map(|name| name.parse().expect("clap knows the names")).collect(),
            ..Options::of(mode)
        }
    }

    /// Those that were given of the options that make a scenario, or a smaller one.
    fn options_that_make_a_scenario(&self) -> Vec<&'static str> {
        let given = [
            ("--lite", self.lite),
            ("--swarm", self.swarm),
            ("--performance", self.performance),
            ("--world", self.world.is_some()),
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

/// One seed.
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
    print(&format!("{}\n", zonda_sim::story(seed, options).trim_end()))?;
    match smaller {
        Some(smaller) => print(&smaller.text())?,
        None if args.shrink && outcome.is_good() => print("\nThere is nothing to shrink: the seed is good.\n")?,
        None => {}
    }
    if outcome.is_good() { Ok(()) } else { Err(Failure::Run) }
}

/// Many seeds.
fn many(options: &Options, args: &SimArgs) -> Result<(), Failure> {
    if args.first.checked_add(args.seeds).is_none() {
        let message = format!("{} seeds from {} on are more than there are", args.seeds, args.first);
        return Err(Failure::input(message, "write a smaller --first"));
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

/// What came of a batch.
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
    /// Of the hashes of all seeds, in their order.
    hash: String,
    failures: Vec<Verdict>,
}

/// What came of one seed.
#[derive(Debug, Serialize)]
struct Verdict {
    seed: u64,
    mode: &'static str,
    world: &'static str,
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

/// The same failure in a smaller world.
#[derive(Debug, Serialize)]
struct Smaller {
    commands: u64,
    /// Runs that it took to find.
    runs: u32,
    message: String,
    replay: String,
    /// Where it is written down.
    file: String,
}

/// What went wrong with one seed.
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
            world: outcome.world.name(),
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
    /// Shrinks one failure of each kind: the others are likely the same, and shrinking takes some hundred runs.
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
    /// Shrinks a failure and writes it down. `None` if the failure does not come again.
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
            "\nThe same failure with {}, found in {}: {}\n  replay with: {}\n  written to: {}\n",
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
            0 => screen.styled("32", "all good"),
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
