//! `zonda volume takeover`: preempts the reservations of a server that cannot be reached.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{DriveError, TakenDrive, TakeoverOptions, TakeoverReport, VolumeDrive};

use super::reach;
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::remedies;
use crate::table::Table;

pub(super) const LONG_ABOUT: &str = "Preempt the reservations of the server that owns a volume, if that server cannot be stopped because its \
machine has failed or cannot be reached.

A server reserves remote members and spares of its volume (NVMe reservations, Exclusive Access) before it reads or writes them. \
This command preempts these reservations and aborts outstanding commands of the other server. Its later reads and writes fail, and \
it stops serving the volume; acknowledged data is kept. The members stay reserved for this directory, also while no server uses \
them, so that a paused server is refused when it resumes. zonda serve DIR serves the volume; from another directory, take it over \
again. The owner epoch counts these acquisitions: of two owners, the one with the higher epoch is the newer. --release releases the reservations when the other server has stopped permanently.

The exit code is 0 if zonda serve DIR can serve the volume, possibly without some members; 1 if too few members were acquired, or with --release --accept-missing none; 2 if the takeover was refused.

Unreachable members are not acquired. If another server could serve the volume with these members alone (one half of a mirror, or \
more members of a RAID 5 or 6 volume than it can lose), nothing is taken over without --accept-missing. Make sure then that no other \
server uses the volume: two servers would each acknowledge writes that the other never sees (split brain).

A server that was killed needs no takeover: when restarted from the same directory, it acquires its members again. A server that uses \
a copy of the directory does need one.";

const EXAMPLES: &str = "Examples:
  zonda volume takeover vol && zonda serve vol
  zonda volume takeover vol --accept-missing  half of a mirror is unreachable
  zonda volume takeover vol --force           another program holds reservations";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TakeoverArgs {
    /// Directory of the volume
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Also preempt hosts that are not servers of this volume
    #[arg(long)]
    force: bool,
    /// Continue although another server could use the volume with the unreachable members; make
    /// sure that none does
    #[arg(long)]
    accept_missing: bool,
    /// Release the reservations for this directory, so that any server of the volume can acquire
    /// them. Only after the preempted server has stopped permanently; reservations of other hosts
    /// are not released
    #[arg(long)]
    release: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

impl TakeoverArgs {
    /// Why nothing was taken over. The remedy does not name options that were given, and keeps
    /// --release.
    fn failure(&self, mut error: DriveError) -> Failure {
        let given = [("--accept-missing", self.accept_missing), ("--force", self.force)];
        let given: Vec<&str> = given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect();
        if self.release {
            error.help = error.help.replace("--accept-missing", "--release --accept-missing");
        }
        connect::failure_without(error, &given, "make the members reachable from here")
    }
}

pub(super) fn run(args: &TakeoverArgs) -> Result<(), Failure> {
    remedies::refuse_image(&args.directory, reach::OF_IMAGE)?;
    let ring = reach::ring()?;
    let options = TakeoverOptions { force: args.force, accepts_missing: args.accept_missing, releases: args.release };
    let report = VolumeDrive::take_over(&args.directory, options, &ring).map_err(|error| args.failure(error))?;
    if args.json {
        print_json(&report)?;
    } else {
        let directory = args.directory.display();
        let lacks = report.drives.iter().any(|drive| drive.error.is_some());
        let next = match (args.release, report.is_enough) {
            (true, _) if report.drives.iter().all(|drive| drive.error.is_some()) => format!(
                "\nno drive was acquired, so nothing was released: make the drives reachable, then repeat zonda volume takeover \
                 --release {directory}\n"
            ),
            (true, _) if lacks => "\nacquired drives were released; the others were not\n".to_owned(),
            (true, _) => "\nall reservations were released\n".to_owned(),
            (false, true) if lacks => format!(
                "\nto serve the volume without the other drives: zonda serve {directory}\nthey are acquired by a later start \
                 that can reach them\n"
            ),
            (false, true) => format!("\nto serve the volume: zonda serve {directory}\n"),
            (false, false) => {
                let option = if args.accept_missing { " --accept-missing" } else { "" };
                format!(
                    "\ntoo few members were acquired to serve the volume: make more of them reachable, then repeat zonda volume \
                     takeover{option} {directory}\n"
                )
            }
        };
        print(&(text(&report, args.release, Screen::of_stdout()) + &next))?;
    }
    if report.is_enough { Ok(()) } else { Err(Failure::Run) }
}

/// The owner epoch, and the result for each drive.
pub(crate) fn text(report: &TakeoverReport, is_release: bool, screen: Screen) -> String {
    let mut table = Table::new(&["drive", if is_release { "released" } else { "preempted" }]);
    for TakenDrive { at, taken_from, error } in &report.drives {
        let what = match (error, taken_from) {
            (Some(error), _) => format!("not acquired: {error}"),
            (None, Some(from)) => from.clone(),
            (None, None) => "not reserved before".to_owned(),
        };
        table.row(&[at.clone(), what]);
    }
    format!("owner epoch {}\n\n{}", report.owner_epoch, table.render(screen, 2))
}
