//! `zonda probe`: measures a drive that the user knows nothing about.

mod changes;
mod groups;
mod interrupt;
mod open;
mod picture;
mod text;
mod whole;
mod words;

use std::path::{Path, PathBuf};

use clap::Args;
use zonda_config::TimeSpan;

use crate::commands::connect::ConnectArgs;
use crate::errors::Failure;

pub(crate) const LONG_ABOUT: &str = "Measure what a drive can do, and which of its zones disturb each other.

One run measures reads over size, depth and number of zones, and the conflict groups: zones that share a die or a channel \
delay each other, and NVMe does not report which do. It only reads, unless --destructive allows writes: then also writes, \
appends, resets, finishes, and each pair of operations beside each other. The result is a report with guidelines and a \
configuration. docs/guide/probe.md describes the measurement.

    model:PROFILE         a simulated drive, filled with data, in virtual time
    DIR                   an image that no program writes to
    nvme-tcp://HOST:PORT/NQN  a namespace of a server
    FILE                  a stored report.json, to compare it or to print it again";

const EXAMPLES: &str = "Examples:
  zonda probe drives/a --budget 30s --out report
  zonda probe model:zn540 --destructive --out zn540
  zonda probe nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:a --destructive --yes --json > new.json
  zonda probe drives/a --compare report/report.json
  zonda probe --groups-only model:ezns-small --json --quiet | jq .groups";

/// What stands before the name of a profile.
const MODEL: &str = "model:";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// Drive: model:PROFILE, the directory of an image, or nvme-tcp://HOST:PORT/NQN; or a report.json
    drive: String,
    /// Measure only the conflict groups of zones
    #[arg(long, conflicts_with_all = ["destructive", "compare"])]
    groups_only: bool,
    /// Stop after this time with the results so far; of a simulated drive, its own time
    #[arg(long, value_name = "TIME", default_value = "60s")]
    budget: TimeSpan,
    /// Also write to zones and reset them; their data are lost
    #[arg(long)]
    destructive: bool,
    /// Confirm the loss of data of --destructive
    #[arg(long, requires = "destructive")]
    yes: bool,
    /// Print what has changed since this report.json
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Measure N zones once the order of allocation is known, and infer the groups of the others
    #[arg(long, value_name = "N", requires = "groups_only")]
    sample: Option<u32>,
    /// Use the algorithm of Bae et al., which compares each zone with each group
    #[arg(long, conflicts_with = "sample", requires = "groups_only")]
    pairwise: bool,
    /// Print the report as JSON and nothing else; with --compare, the changes; with --groups-only,
    /// the table
    #[arg(long)]
    json: bool,
    /// Directory for report.html, report.json, groups.json and zonda.toml; with --groups-only, file
    /// for the table
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Replace an older report, or table, of --out
    #[arg(long, requires = "out")]
    force: bool,
    /// Seed from which zones and blocks are chosen
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Refuses to replace an older result.
fn exists(path: &Path, other: &str) -> Failure {
    Failure::input(
        format!("{} exists: an older result would be lost", path.display()),
        format!("{other}, or replace it with --force"),
    )
}

pub(crate) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    if args.groups_only { groups::run(args) } else { whole::run(args) }
}
