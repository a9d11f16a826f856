//! `zonda pool takeover`: preempts the reservation of a server that cannot be reached.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{PoolDrive, TakeoverOptions};

use super::reach;
use crate::commands::connect;
use crate::commands::volume::takeover::text;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};

pub(super) const LONG_ABOUT: &str = "Preempt the reservation of the server that uses a pool, if that server cannot be stopped because its \
machine has failed or cannot be reached, or if the directory that it used is lost.

A server reserves the drive of its pool (NVMe reservations, Exclusive Access) before it reads or writes it, if the drive is a \
namespace of another server. This command preempts that reservation and aborts outstanding commands of the other server. Its later \
reads and writes fail, and it stops serving the pool; acknowledged data is kept. The drive stays reserved for this directory, also \
while no server uses it, so that a paused server is refused when it resumes. zonda serve DIR serves the pool; from another directory, \
take it over again. The owner epoch counts these acquisitions: of two owners, the one with the higher epoch is the newer. --release \
releases the reservation when the other server has stopped permanently.

The exit code is 0 if zonda serve DIR can serve the pool, or with --release the drive was released; 2 if the takeover was refused.

A takeover is refused, and the previous reservation restored, if the drive does not have this pool, or has an older copy of it. A \
server that was killed needs no takeover: when restarted from the same directory, it acquires its drive again. A server that uses a \
copy of the directory, or a directory that was written again, does need one.";

const EXAMPLES: &str = "Examples:
  zonda pool takeover pool && zonda serve pool
  zonda pool takeover pool --force     another program holds the reservation
  zonda pool takeover pool --release   any server of the pool can acquire the drive";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TakeoverArgs {
    /// Directory of the pool
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Also preempt a host that is not a server of this pool
    #[arg(long)]
    force: bool,
    /// Release the reservation for this directory, so that any server of the pool can acquire the
    /// drive. Only after the preempted server has stopped permanently; a reservation of another host
    /// is not released
    #[arg(long)]
    release: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TakeoverArgs) -> Result<(), Failure> {
    reach::refuse_others(&args.directory)?;
    let ring = reach::ring()?;
    let options = TakeoverOptions { force: args.force, accepts_missing: false, releases: args.release };
    let given: &[&str] = if args.force { &["--force"] } else { &[] };
    let report = PoolDrive::take_over(&args.directory, options, &ring)
        .map_err(|error| connect::failure_without(error, given, "make the drive reachable from here"))?;
    if args.json {
        return print_json(&report);
    }
    let next = if args.release {
        "\nthe reservation was released\n".to_owned()
    } else {
        format!("\nto serve the pool: zonda serve {}\n", args.directory.display())
    };
    print(&(text(&report, args.release, Screen::of_stdout()) + &next))
}
