//! `zonda pool takeover`: preempts the reservation of a server that cannot be reached.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{Location, LostPool, PoolDrive, TakeoverOptions};

use super::reach;
use crate::commands::connect::{self, CredentialArgs};
use crate::commands::volume::takeover::text;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::remedies;

pub(super) const LONG_ABOUT: &str = "Preempt the reservation of the server that uses a pool, if that server cannot be stopped because its \
machine has failed or cannot be reached, or if the directory that it used is lost.

A server reserves the drive of its pool (NVMe reservations, Exclusive Access) before it reads or writes it, if the drive is a \
namespace of another server. This command preempts that reservation and aborts outstanding commands of the other server. Its later \
reads and writes fail, and it stops serving the pool; acknowledged data is kept. The drive stays reserved for this directory, also \
while no server uses it, so that a paused server is refused when it resumes. zonda serve DIR serves the pool; from another directory, \
take it over again. The owner epoch counts these acquisitions: of two owners, the one with the higher epoch is the newer. --release \
releases the reservation when the other server has stopped permanently.

The exit code is 0 if zonda serve DIR can serve the pool, or with --release the drive was released; 1 if it was interrupted when the other server may already have lost the pool (repeat it); 2 if the takeover was refused, and nothing was taken over.

A takeover is refused, and the previous reservation restored, if the drive does not have this pool, or has an older copy of it. A \
server that was killed needs no takeover: when restarted from the same directory, it acquires its drive again. A server that uses a \
copy of the directory does need one.

If the directory is lost, too, --drive names the drive: pool.toml is written again in DIR, which must be empty or not exist. The \
drive itself records everything else. The server that has reserved the drive is preempted as above; the UUID of its pool must begin \
as its reservation key does. If the drive is an image, which no other program may have open, only pool.toml is written. Reservations \
of hosts that were to persist (Persist Through Power Loss) are lost with the directory.";

const EXAMPLES: &str = "Examples:
  zonda pool takeover pool && zonda serve pool
  zonda pool takeover pool --force     another program holds the reservation
  zonda pool takeover pool --release   any server of the pool can acquire the drive
  zonda pool takeover pool --drive nvme-tcp://10.0.0.7/nqn.2026-01.io.zonda:a
                                       the directory of the pool is lost
  zonda pool takeover pool --drive drives/a";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TakeoverArgs {
    /// Directory of the pool
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Drive of a pool whose directory is lost: directory of an image, or nvme-tcp:// URL
    #[arg(long, value_name = "DIR|DEVICE|URL", conflicts_with = "release")]
    drive: Option<String>,
    /// Also preempt a host that is not a server of this pool
    #[arg(long)]
    force: bool,
    /// Release the reservation for this directory, so that any server of the pool can acquire the
    /// drive. Only after the preempted server has stopped permanently; a reservation of another host
    /// is not released
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

impl TakeoverArgs {
    fn lost(&self, drive: &str) -> Result<LostPool, Failure> {
        let credentials = self.credentials.credentials()?;
        Ok(LostPool { drive: connect::location(drive)?, credentials, force: self.force })
    }

    /// Without --drive, `pool.toml` has the credentials.
    fn refuse_credentials(&self) -> Result<(), Failure> {
        if self.credentials.credentials()?.is_empty() {
            return Ok(());
        }
        Err(Failure::input(
            "the credentials of a pool are those of its pool.toml",
            "change them there, or name the drive with --drive if the directory is lost",
        ))
    }
}

pub(super) fn run(args: &TakeoverArgs) -> Result<(), Failure> {
    let ring = reach::ring()?;
    let lost = args.drive.as_deref().map(|drive| args.lost(drive)).transpose()?;
    let taken = match &lost {
        Some(lost) => {
            reach::must_be_new(&args.directory)?;
            PoolDrive::restore(&args.directory, lost, &ring)
        }
        None => {
            args.refuse_credentials()?;
            reach::refuse_others(&args.directory)?;
            let options = TakeoverOptions { force: args.force, accepts_missing: false, releases: args.release };
            PoolDrive::take_over(&args.directory, options, &ring)
        }
    };
    let given: &[&str] = if args.force { &["--force"] } else { &[] };
    let report = taken
        .map_err(|mut error| {
            error.help = remedies::in_directory(&error.help, &args.directory);
            error
        })
        .map_err(|error| match error.has_effect {
            true => Failure::broken(error.message, error.help),
            false => connect::failure_without(error, given, "make the drive reachable from here"),
        })?;
    if args.json {
        return print_json(&report);
    }
    let directory = args.directory.display();
    if lost.is_some_and(|lost| !matches!(lost.drive, Location::NvmeTcp(_))) {
        return print(&format!("wrote {directory}/pool.toml\nto serve the pool: zonda serve {directory}\n"));
    }
    let next = if args.release {
        "\nthe reservation was released\n".to_owned()
    } else {
        format!("\nto serve the pool: zonda serve {directory}\n")
    };
    print(&(text(&report, args.release, Screen::of_stdout()) + &next))
}
