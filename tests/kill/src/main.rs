//! `kill-rounds`: kill -9 under verified load, again and again.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use serde::Serialize;
use zonda_kill::{
    Launcher, Level, Loss, OwnersRun, OwnersSummary, Run, Summary, Trouble, VolumesRun, VolumesSummary, program,
};

const LONG_ABOUT: &str = "Kills `zonda serve` under a verified load, starts it again, and looks whether anything that it \
acknowledged is gone.

Each round: hosts write, append, read, reset and finish over NVMe/TCP until SIGKILL; after the next start every block and \
every write pointer is held against what was asked and what was acknowledged. The same seed draws the same commands and \
moments; when a kill really comes is a matter of real time, and what it leaves decides how the next round begins.";

const EXAMPLES: &str = "Examples:
  kill-rounds                              100 rounds
  kill-rounds --rounds 3 --seed 7          fewer, with another seed
  kill-rounds --epoll                      a server without io_uring
  kill-rounds --volumes --level raid6      attacks a volume in many ways
  kill-rounds --owners                     two servers that take a volume over from each other
  kill-rounds --directory work             keeps the images in work/

Exit code 1 says that something was lost: the images are kept then, and zonda drive show looks at them. Exit code 2 says \
that nothing could be found out.";

/// Kills zonda under load, and looks whether anything is lost
#[derive(Debug, Parser)]
#[command(long_about = LONG_ABOUT, after_long_help = EXAMPLES)]
struct Arguments {
    /// How many kills under load
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Draws commands and moments; default the time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where the images are made, an empty directory or none; default a temporary one, which goes if all is well
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The program zonda; default the one beside this program, which cargo run builds
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Has the server use epoll even where io_uring is to be had
    #[arg(long)]
    epoll: bool,
    /// Attacks a volume: kills, pauses, members that are moved away, fail, are damaged, or are behind a server and a network with
    /// faults; a full file system. Hosts are connected over NVMe/TCP or NBD
    #[arg(long)]
    volumes: bool,
    /// The volume's level: single, raid0, raid1, raid1-3 (three copies), raid01, raid4, raid5 or raid6
    #[arg(long, value_name = "LEVEL", default_value = "raid5", requires = "volumes")]
    level: String,
    /// Two servers with copies of one volume's directory, whose members other servers have, are paused, killed, and take the volume
    /// over from each other; two volumes name the same spare
    #[arg(long, conflicts_with = "volumes")]
    owners: bool,
    /// Prints one JSON object, and no progress
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    seed: u64,
    #[serde(flatten)]
    summary: &'a Done,
    seconds: u64,
    lost: usize,
    losses: &'a [Loss],
    /// Where the images are, if they were kept.
    kept: Option<&'a Path>,
}

/// What was done, by kind of run.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Done {
    Images(Summary),
    Volumes(VolumesSummary),
    Owners(OwnersSummary),
}

/// A run of either kind.
enum AnyRun {
    Images(Box<Run>),
    Volumes(Box<VolumesRun>),
    Owners(Box<OwnersRun>),
}

impl AnyRun {
    fn round(&mut self, round: u32, tell: &mut dyn FnMut(&str)) -> Result<(), Trouble> {
        match self {
            AnyRun::Images(run) => run.round(round, tell),
            AnyRun::Volumes(run) => run.round(round, tell),
            AnyRun::Owners(run) => run.round(round, tell),
        }
    }

    fn done(&self) -> Done {
        match self {
            AnyRun::Images(run) => Done::Images(run.summary().clone()),
            AnyRun::Volumes(run) => Done::Volumes(run.summary().clone()),
            AnyRun::Owners(run) => Done::Owners(run.summary().clone()),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = arguments.seed.unwrap_or(since_1970.as_secs());
    match run(&arguments, seed) {
        Ok(code) => code,
        Err(Trouble::Stuck(what)) => {
            eprintln!("error: {what}");
            ExitCode::from(2)
        }
        Err(Trouble::Lost(_)) => unreachable!("losses are reported"),
    }
}

fn run(arguments: &Arguments, seed: u64) -> Result<ExitCode, Trouble> {
    let begin = std::time::Instant::now();
    let program = program(arguments.program.as_deref())?;
    let mut temporary = None;
    let directory = match &arguments.directory {
        Some(directory) => directory.clone(),
        None => {
            let made = tempfile::Builder::new().prefix("zonda-kill-").tempdir();
            let made = made.map_err(|error| Trouble::Stuck(format!("no temporary directory: {error}")))?;
            temporary.insert(made).path().to_owned()
        }
    };
    let stuck = |error| Trouble::Stuck(format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(&directory).map_err(stuck)?;
    let directory = directory.canonicalize().map_err(stuck)?;
    let launcher = Launcher { program, directory: directory.clone(), epoll: arguments.epoll };
    let log = launcher.clone();
    let mut run = if arguments.volumes {
        let level: Level = arguments.level.parse().map_err(Trouble::Stuck)?;
        AnyRun::Volumes(Box::new(VolumesRun::new(launcher, level, seed)?))
    } else if arguments.owners {
        AnyRun::Owners(Box::new(OwnersRun::new(launcher, seed)?))
    } else {
        AnyRun::Images(Box::new(Run::new(launcher, seed)?))
    };
    let mut tell = |line: &str| {
        if !arguments.json {
            eprintln!("{line}");
        }
    };
    tell(&format!("seed {seed}, images in {}", directory.display()));
    let mut trouble = None;
    for round in 0..arguments.rounds {
        if let Err(found) = run.round(round, &mut tell) {
            // Whoever looks for the reason needs the images as they are.
            temporary.take().map(tempfile::TempDir::keep);
            trouble = Some((round, found));
            break;
        }
    }
    let losses = match &trouble {
        Some((_, Trouble::Lost(losses))) => &losses[..],
        _ => &[],
    };
    let summary = &run.done();
    let kept = (trouble.is_some() || arguments.directory.is_some()).then_some(directory.as_path());
    if arguments.json {
        let seconds = begin.elapsed().as_secs();
        let report = Report { seed, summary, seconds, lost: losses.len(), losses, kept };
        println!("{}", serde_json::to_string(&report).expect("a report has only text and numbers"));
    } else {
        match summary {
            Done::Images(summary) => print!("{}", words(summary, losses.len())),
            Done::Volumes(summary) => print!("{}", volume_words(summary, losses.len())),
            Done::Owners(summary) => print!("{}", owner_words(summary, losses.len())),
        }
    }
    let Some((round, found)) = &trouble else { return Ok(ExitCode::SUCCESS) };
    match found {
        Trouble::Lost(losses) => losses.iter().for_each(|loss| eprintln!("round {round}: {loss}")),
        Trouble::Stuck(what) => eprintln!("round {round}: {what}"),
    }
    let mut options = format!("--rounds {} --seed {seed}", round + 1);
    if arguments.volumes {
        options += &format!(" --volumes --level {}", arguments.level);
    }
    if arguments.owners {
        options += " --owners";
    }
    if arguments.epoll {
        options += " --epoll";
    }
    if let Some(program) = &arguments.program {
        options += &format!(" --program {}", program.display());
    }
    eprintln!("the images are kept in {}\n{}", directory.display(), log.last_of_log());
    eprintln!("again: cargo run --release -p zonda-kill -- {options}");
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
        "attacks: {}\nrefused starts: {}; {} starts once members were back, {} repairs, {} volumes\n",
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

fn list(counts: &BTreeMap<&str, u32>) -> String {
    let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}
