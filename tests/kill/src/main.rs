//! `kill-rounds`: kill -9 under verified load, again and again.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use serde::Serialize;
use zonda_kill::{
    Launcher, Level, Loss, OwnersRun, OwnersSummary, PoolsRun, PoolsSummary, Run, RunError, Summary, VolumesRun,
    VolumesSummary, program,
};

const LONG_ABOUT: &str = "Kill `zonda serve` under a verified load, restart it, and check that all acknowledged writes are \
present.

Each round: hosts write, append, read, reset and finish over NVMe/TCP until SIGKILL; after the next start every block and \
every write pointer is checked against the submitted and the acknowledged commands. The same seed generates the same commands and \
times; the exact moment of a kill depends on real time, and the state it leaves is the start of the next round.";

const EXAMPLES: &str = "Examples:
  kill-rounds                              100 rounds
  kill-rounds --rounds 3 --seed 7          fewer, with another seed
  kill-rounds --epoll                      a server without io_uring
  kill-rounds --volumes --level raid6      many kinds of faults of a volume
  kill-rounds --owners                     two servers that take a volume over from each other
  kill-rounds --pools                      namespaces of a pool for several tenants
  kill-rounds --directory work             keep the images in work/

Exit code 1: acknowledged data was lost; the images are kept, inspect them with zonda drive show. Exit code 2: the run \
could not be carried out.";

/// Kill zonda under load, and check that nothing acknowledged is lost
#[derive(Debug, Parser)]
#[command(long_about = LONG_ABOUT, after_long_help = EXAMPLES)]
struct Arguments {
    /// Number of kills under load
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Seed of commands and times [default: the current time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Directory for the images, empty or missing [default: a temporary one, removed on success]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The zonda program [default: the one next to this program, which cargo run builds]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Use epoll even if io_uring is available
    #[arg(long)]
    epoll: bool,
    /// Inject faults into a volume: kills, pauses, members that are moved away, fail, are damaged,
    /// or are behind a server and a network with faults; a full file system. Hosts connect over
    /// NVMe/TCP or NBD
    #[arg(long)]
    volumes: bool,
    /// The volume's level: single, raid0, raid1, raid1-3 (three copies), raid01, raid4, raid5 or
    /// raid6
    #[arg(long, value_name = "LEVEL", default_value = "raid5", requires = "volumes")]
    level: String,
    /// Run two servers with copies of one volume's directory, whose members are exported by other
    /// servers; pause and kill them, and let them take the volume over from each other; also two
    /// volumes with the same spare
    #[arg(long, conflicts_with = "volumes")]
    owners: bool,
    /// Kill a server of a pool with several tenants: in the middle of an overdrive, a recall, a
    /// reclaim, and of the creation, the resize and the deletion of a namespace; and while the
    /// file system of its drive is full
    #[arg(long, conflicts_with_all = ["volumes", "owners"])]
    pools: bool,
    /// Print one JSON object, and no progress
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    seed: u64,
    #[serde(flatten)]
    summary: &'a Done,
    seconds: u64,
    lost: usize,
    losses: &'a [Loss],
    /// The directory of the images, if they were kept.
    kept: Option<&'a Path>,
}

/// The summary, by kind of run.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Done {
    Images(Summary),
    Volumes(VolumesSummary),
    Owners(OwnersSummary),
    Pools(PoolsSummary),
}

/// A run of either kind.
enum AnyRun {
    Images(Box<Run>),
    Volumes(Box<VolumesRun>),
    Owners(Box<OwnersRun>),
    Pools(Box<PoolsRun>),
}

impl AnyRun {
    fn round(&mut self, round: u32, print: &mut dyn FnMut(&str)) -> Result<(), RunError> {
        match self {
            AnyRun::Images(run) => run.round(round, print),
            AnyRun::Volumes(run) => run.round(round, print),
            AnyRun::Owners(run) => run.round(round, print),
            AnyRun::Pools(run) => run.round(round, print),
        }
    }

    fn done(&self) -> Done {
        match self {
            AnyRun::Images(run) => Done::Images(run.summary().clone()),
            AnyRun::Volumes(run) => Done::Volumes(run.summary().clone()),
            AnyRun::Owners(run) => Done::Owners(run.summary().clone()),
            AnyRun::Pools(run) => Done::Pools(run.summary().clone()),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = arguments.seed.unwrap_or(since_1970.as_secs());
    match run(&arguments, seed) {
        Ok(code) => code,
        Err(RunError::Failed(what)) => {
            eprintln!("error: {what}");
            ExitCode::from(2)
        }
        Err(RunError::Lost(_)) => unreachable!("losses are reported"),
    }
}

fn run(arguments: &Arguments, seed: u64) -> Result<ExitCode, RunError> {
    let begin = std::time::Instant::now();
    let program = program(arguments.program.as_deref())?;
    let mut temporary = None;
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => {
            let made = tempfile::Builder::new().prefix("zonda-kill-").tempdir();
            let made =
                made.map_err(|error| RunError::Failed(format!("cannot create a temporary directory: {error}")))?;
            temporary.insert(made).path().to_owned()
        }
    };
    let failed = |error| RunError::Failed(format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let directory = directory.canonicalize().map_err(failed)?;
    let launcher = Launcher { program, directory: directory.clone(), epoll: arguments.epoll };
    let log = launcher.clone();
    let mut run = if arguments.volumes {
        let level: Level = arguments.level.parse().map_err(RunError::Failed)?;
        AnyRun::Volumes(Box::new(VolumesRun::new(launcher, level, seed)?))
    } else if arguments.owners {
        AnyRun::Owners(Box::new(OwnersRun::new(launcher, seed)?))
    } else if arguments.pools {
        AnyRun::Pools(Box::new(PoolsRun::new(launcher, seed)?))
    } else {
        AnyRun::Images(Box::new(Run::new(launcher, seed)?))
    };
    let mut print = |line: &str| {
        if !arguments.json {
            eprintln!("{line}");
        }
    };
    print(&format!("seed {seed}, images in {}", directory.display()));
    let mut failure = None;
    for round in 0..arguments.rounds {
        if let Err(found) = run.round(round, &mut print) {
            // The images are kept for debugging.
            temporary.take().map(tempfile::TempDir::keep);
            failure = Some((round, found));
            break;
        }
    }
    let losses = match &failure {
        Some((_, RunError::Lost(losses))) => &losses[..],
        _ => &[],
    };
    let summary = &run.done();
    let kept = (failure.is_some() || arguments.directory.is_some()).then_some(directory.as_path());
    if arguments.json {
        let seconds = begin.elapsed().as_secs();
        let report = Report { seed, summary, seconds, lost: losses.len(), losses, kept };
        println!("{}", serde_json::to_string(&report).expect("a report has only text and numbers"));
    } else {
        match summary {
            Done::Images(summary) => print!("{}", words(summary, losses.len())),
            Done::Volumes(summary) => print!("{}", volume_words(summary, losses.len())),
            Done::Owners(summary) => print!("{}", owner_words(summary, losses.len())),
            Done::Pools(summary) => print!("{}", pool_words(summary, losses.len())),
        }
    }
    let Some((round, found)) = &failure else { return Ok(ExitCode::SUCCESS) };
    match found {
        RunError::Lost(losses) => losses.iter().for_each(|loss| eprintln!("round {round}: {loss}")),
        RunError::Failed(what) => eprintln!("round {round}: {what}"),
    }
    let mut options = format!("--rounds {} --seed {seed}", round + 1);
    if arguments.volumes {
        options += &format!(" --volumes --level {}", arguments.level);
    }
    if arguments.owners {
        options += " --owners";
    }
    if arguments.pools {
        options += " --pools";
    }
    if arguments.epoll {
        options += " --epoll";
    }
    if let Some(program) = &arguments.program {
        options += &format!(" --program {}", program.display());
    }
    eprintln!("the images are kept in {}\n{}", directory.display(), log.last_of_log());
    eprintln!("to repeat: cargo run --release -p zonda-kill -- {options}");
    Ok(ExitCode::from(if losses.is_empty() { 2 } else { 1 }))
}

fn words(summary: &Summary, lost: usize) -> String {
    let Summary { rounds, kills, kills_at_start, stops, checks, backend, tally } = summary;
    let gib = tally.written_bytes as f64 / f64::from(1 << 30);
    format!(
        "{} resets, {} finishes, {} verified reads, {} commands in flight at the end; {kills_at_start} kills while \
         starting, {stops} stops, {checks} checks ({backend})\n\
         {rounds} rounds, {kills} kills, {} acknowledged writes ({gib:.2} GiB), {lost} lost\n",
        tally.resets, tally.finishes, tally.reads, tally.in_flight, tally.writes,
    )
}

fn volume_words(summary: &VolumesSummary, lost: usize) -> String {
    let mut text = format!(
        "faults: {}\nrefused starts: {}; {} starts after members returned, {} repairs, {} volumes\n",
        list(&summary.attacks),
        list(&summary.refusals),
        summary.starts_after_return,
        summary.repairs,
        summary.volumes,
    );
    if let Some(why) = &summary.skipped {
        text += &format!("skipped: full file system ({why})\n");
    }
    if summary.errors_injected > 0 {
        text += &format!("{} errors injected\n", summary.errors_injected);
    }
    text += &format!(
        "{} rounds, {} acknowledged writes, {} blocks verified, {} errors allowed, {lost} lost\n",
        summary.rounds, summary.tally.writes, summary.blocks_verified, summary.errors_allowed,
    );
    text
}

fn owner_words(summary: &OwnersSummary, lost: usize) -> String {
    let OwnersSummary { rounds, events, takeovers, fenced, late, refusals, blocks_verified, tally } = summary;
    format!(
        "events: {}\n{takeovers} takeovers, {fenced} commands refused by old owners, {late} acknowledged late, {refusals} servers refused\n\
         {rounds} rounds, {} acknowledged writes, {} verified reads, {blocks_verified} blocks verified, {lost} lost\n",
        list(events),
        tally.writes,
        tally.reads,
    )
}

fn pool_words(summary: &PoolsSummary, lost: usize) -> String {
    let PoolsSummary { rounds, kills_at_start, idle_kills, stops, changes_found, checks, tally, full, .. } = summary;
    let skipped =
        summary.skipped.as_ref().map_or_else(String::new, |why| format!("skipped: full file system ({why})\n"));
    format!(
        "{skipped}kills interrupted: {}; {} only hosts\n\
         answered: {}; {changes_found} changes without an answer had happened\n\
         {kills_at_start} kills while starting, {idle_kills} kills without hosts, {stops} stops, {checks} checks\n\
         {full} rounds with a full file system, {} errors of commands in them\n\
         {} resets, {} finishes, {} verified reads, {} commands in flight at the end\n\
         {rounds} rounds, {} acknowledged writes, {} blocks verified, {lost} lost\n",
        list(&summary.interrupted),
        summary.plain_kills,
        list(&summary.changes),
        tally.errors,
        tally.resets,
        tally.finishes,
        tally.reads,
        tally.in_flight,
        tally.writes,
        summary.blocks_verified,
    )
}

fn list(counts: &BTreeMap<&str, u32>) -> String {
    let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}
