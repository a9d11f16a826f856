//! `zonda pool`: pools, which divide a zoned drive among namespaces; `zonda namespace`: the
//! namespaces of a pool.

mod create;
mod namespace;
mod reach;
pub(crate) mod show;
mod takeover;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::errors::Failure;
use crate::output::{Screen, print, print_json};

pub(crate) use namespace::{LONG_ABOUT as NAMESPACE_LONG_ABOUT, NamespaceCommand};

pub(crate) const LONG_ABOUT: &str = "Create, show and take over pools. A pool divides a zoned drive among namespaces, one for each tenant. To its host, \
each namespace is an ordinary zoned namespace with zones and limits of its own; its zones are striped over several zones of the drive.

A pool is a directory with the location of its drive: an image (zonda drive create) or a namespace of a server. Its namespaces are \
recorded on the drive: zonda namespace creates them, and zonda serve exports them over NVMe/TCP (docs/guide/pools.md).";

const EXAMPLES: &str = "Examples:
  zonda drive create drives/a --profile ezns-small --zones 2048
  zonda pool create pool --drive drives/a
  zonda namespace create pool db --size 16GiB --active 16
  zonda namespace create pool log --size 8GiB --active 16
  zonda serve pool                 export each namespace as a subsystem
  zonda pool show pool
  zonda pool takeover pool         acquire the drive of a server that is lost";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum PoolCommand {
    /// Create a pool on a zoned drive
    #[command(long_about = create::LONG_ABOUT)]
    Create(create::CreateArgs),
    /// Show a pool and its namespaces
    #[command(long_about = SHOW_LONG_ABOUT)]
    Show(ShowArgs),
    /// Preempt the server of a pool that cannot be reached
    #[command(long_about = takeover::LONG_ABOUT)]
    Takeover(takeover::TakeoverArgs),
}

const SHOW_LONG_ABOUT: &str =
    "Show a pool, the zones of its drive, and the share of each namespace in the active zones of the drive.

Of a pool that is not in use, nothing is written. If a server on this machine uses the pool, it reports the state.";

#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  zonda pool show pool\n  zonda pool show pool --json | jq '.namespaces[].written_bytes'"
)]
pub(crate) struct ShowArgs {
    /// Directory of the pool
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &PoolCommand) -> Result<(), Failure> {
    match command {
        PoolCommand::Create(args) => create::run(args),
        PoolCommand::Takeover(args) => takeover::run(args),
        PoolCommand::Show(ShowArgs { directory, json }) => {
            let report = reach::inspect(directory)?;
            if *json { print_json(&report) } else { print(&show::pool(&report, directory, Screen::of_stdout())) }
        }
    }
}

pub(crate) fn run_namespace(command: &NamespaceCommand) -> Result<(), Failure> {
    namespace::run(command)
}
