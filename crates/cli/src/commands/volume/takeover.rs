//! `zonda volume takeover`: the reservations of a server that cannot be reached, preempted.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{TakenDrive, TakeoverOptions, TakeoverReport, VolumeDrive};

use super::reach;
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;

pub(super) const LONG_ABOUT: &str = "Preempts the reservations of the server that owns a volume, for when that server cannot be stopped: its \
machine has failed, or cannot be reached.

A server reserves the members and spares of its volume that are namespaces of other servers (NVMe reservations, Exclusive Access) before it \
reads or writes them. This command preempts these reservations and aborts outstanding commands of the other server. From then on its \
reads and writes fail, and it stops serving the volume; acknowledged data is kept. The members stay reserved for this directory, also while no \
server uses them: a server that was only paused would not be refused otherwise when it goes on. zonda serve DIR continues; from another directory \
the volume has to be taken over again. --release ends that, when the other server has stopped for good.

Exit code 0 says that zonda serve DIR can continue, also without members that were not taken; 1 that too few were.

Members that cannot be reached are not taken. Where another server could go on with these alone (with half of a mirror, or with more members of \
a RAID 5 or 6 volume than it can lose), nothing is taken over unless you say --accept-missing: then make sure that no other server uses the volume, \
since two that do would each acknowledge writes that the other never sees.

A server that was killed needs no takeover: restarted from the same directory, it acquires its members again. A copy of the directory does.";

const EXAMPLES: &str = "Examples:
  zonda volume takeover vol && zonda serve vol
  zonda volume takeover vol --accept-missing  the other server is switched off, and so is one half of the mirror
  zonda volume takeover vol --force           members are reserved by something other than zonda";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TakeoverArgs {
    /// The directory of the volume
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Preempts hosts that are no servers of this volume, too
    #[arg(long)]
    force: bool,
    /// Goes on although members cannot be reached that another server might use the volume with: no other server does
    #[arg(long)]
    accept_missing: bool,
    /// Releases what is reserved for this directory, so that any server of the volume may have it. Only when the server that it was taken from
    /// has stopped for good; what others have reserved is refused
    #[arg(long)]
    release: bool,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TakeoverArgs) -> Result<(), Failure> {
    let ring = reach::ring()?;
    let options = TakeoverOptions { force: args.force, accepts_missing: args.accept_missing, releases: args.release };
    let report = VolumeDrive::take_over(&args.directory, options, &ring).map_err(connect::failure)?;
    if args.json {
        print_json(&report)?;
    } else {
        let directory = args.directory.display();
        let lacks = report.drives.iter().any(|drive| drive.error.is_some());
        let next = match (args.release, report.is_enough) {
            (true, _) if lacks => "\nthose that were taken are released; the others are not\n".to_owned(),
            (true, _) => "\nno server has reserved them any more\n".to_owned(),
            (false, true) if lacks => format!(
                "\nzonda serve {directory} serves the volume, without those that were not taken. A start takes them when they can be reached \
                 again\n"
            ),
            (false, true) => format!("\nzonda serve {directory} serves the volume\n"),
            (false, false) => format!("\ntoo few members were taken: repeat zonda volume takeover {directory}\n"),
        };
        print(&(text(&report, Screen::of_stdout()) + &next))?;
    }
    if report.is_enough { Ok(()) } else { Err(Failure::Run) }
}

fn text(report: &TakeoverReport, screen: Screen) -> String {
    let mut table = Table::new(&["drive", "preempted"]);
    for TakenDrive { at, taken_from, error } in &report.drives {
        let what = match (error, taken_from) {
            (Some(error), _) => format!("not taken: {error}"),
            (None, Some(from)) => from.clone(),
            (None, None) => "not reserved before".to_owned(),
        };
        table.row(&[at.clone(), what]);
    }
    format!("owner epoch {}\n\n{}", report.owner_epoch, table.render(screen, 2))
}
