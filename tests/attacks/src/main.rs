//! `attacks`: measures the effect of unauthenticated clients on a server.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use zonda_attacks::{Attack, Figures, Outcome, Run, Times, Victim, burn};
use zonda_kill::program;

const LONG_ABOUT: &str = "Attack `zonda serve` while honest clients load it, one attack after another.

For each attack: the latencies of honest clients (p50 and p99) before and during it, and with busy processes that use as much \
CPU time as the attackers; whether one of their requests or connections failed; the resident memory of the server, and its \
budget. Latencies depend on the machine: the exit code does not depend on them.";

const EXAMPLES: &str = "Examples:
  attacks                              all attacks, several minutes
  attacks unread-nbd churn             two of them
  attacks --memory none --program old/zonda    a server without a budget

Exit code 1: an honest client was refused, the server exceeded its memory budget, or it exited. Exit code 2: the attacks could \
not be run.";

/// Latencies in microseconds (p50/p99), and the ratio of p99 during the attack to that alone or
/// with busy processes; CPUs used by the attackers; the longest new connection in ms, and
/// successful and attempted connections; MiB.
const HEADING: &str = "\
us, p50/p99     NVMe: alone      attack        busy    x  NBD: alone      attack        busy    x    CPUs connect     ok/tried refused    MiB  most  used    of";

/// Attack a server, and measure the effect on honest clients
#[derive(Debug, Parser)]
#[command(long_about = LONG_ABOUT, after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Attacks to run [default: all]
    #[arg(value_name = "ATTACK")]
    attacks: Vec<Attack>,
    /// Duration of each part of a round, in seconds
    #[arg(long, value_name = "N", default_value_t = 4)]
    seconds: u64,
    /// Rounds of each attack; medians are printed
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Memory budget of the server, or none; with less than 1 GiB it accepts fewer connections
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    memory: String,
    /// The zonda program [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print one JSON object for each attack
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Parts of a run that are separate processes.
#[derive(Debug, Subcommand)]
enum Part {
    /// Attack until killed
    #[command(hide = true)]
    Attack { attack: Attack, nvme: SocketAddr, nbd: SocketAddr, http: SocketAddr },
    /// Use a share of a CPU until killed
    #[command(hide = true)]
    Burn { share: f64 },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.part {
        Some(Part::Attack { attack, nvme, nbd, http }) => attack.run(Victim { nvme, nbd, http }),
        Some(Part::Burn { share }) => burn(share),
        None => run(&arguments).unwrap_or_else(|error| {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }),
    }
}

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let time = Duration::from_secs(arguments.seconds.max(1));
    let run = Run {
        zonda: program(arguments.program.as_deref()).map_err(|failure| io::Error::other(failure.to_string()))?,
        own: std::env::current_exe()?,
        memory: (arguments.memory != "none").then(|| arguments.memory.clone()),
        times: Times { before: Some(time), attack: time, rounds: arguments.rounds.max(1) },
    };
    let attacks = if arguments.attacks.is_empty() { &Attack::ALL[..] } else { &arguments.attacks[..] };
    if !arguments.json {
        println!("{HEADING}");
    }
    let mut code = ExitCode::SUCCESS;
    for &attack in attacks {
        let outcome = run.attack(attack)?;
        if arguments.json {
            println!("{}", serde_json::to_string(&outcome).expect("an outcome has only text and numbers"));
        } else {
            println!("{}", line(&outcome));
        }
        for failure in outcome.failures() {
            eprintln!("{attack}: {failure}");
            code = ExitCode::from(1);
        }
    }
    Ok(code)
}

fn line(outcome: &Outcome) -> String {
    let parts = [&outcome.before, &outcome.during, &outcome.busy];
    let three = |of: fn(&Figures) -> [u32; 2]| {
        parts.map(of).map(|[p50, p99]| format!("{:>11}", format!("{p50}/{p99}"))).join(" ")
    };
    let [nvme, nbd] = outcome.p99_ratio();
    format!(
        "{:<14} {} {nvme:>4.1}  {} {nbd:>4.1}  {:>5.1} {:>7} {:>12} {:>7}  {:>5} {:>5} {:>5} {:>5}",
        outcome.attack,
        three(|figures| figures.nvme),
        three(|figures| figures.nbd),
        outcome.attackers_processors,
        outcome.during.connect_max / 1000,
        format!("{}/{}", outcome.during.connects[0], outcome.during.connects[1]),
        outcome.refusals.len(),
        outcome.resident_before >> 20,
        outcome.resident_max >> 20,
        outcome.budget[1] >> 20,
        outcome.budget[0] >> 20,
    )
}
