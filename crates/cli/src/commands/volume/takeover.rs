//! `zonda volume takeover`: the reservations of a server that cannot be reached, preempted.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{TakenDrive, TakeoverReport, VolumeDrive};

use super::reach;
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;

pub(super) const LONG_ABOUT: &str = "Preempts the reservations of the server that owns a volume, for when that server cannot be stopped: its \
machine has failed, or cannot be reached.

A server reserves the members and spares of its volume that are namespaces of other servers (NVMe reservations, Exclusive Access) before it \
reads or writes them. This command preempts these reservations and aborts outstanding commands of the other server. From then on its \
reads and writes fail, and it stops serving the volume; acknowledged data is kept. The members stay reserved for this directory: zonda serve \
DIR continues.

A server that was killed needs no takeover: restarted from the same directory, it acquires its members again. A copy of the directory does.";

const EXAMPLES: &str = "Examples:
  zonda volume takeover vol && zonda serve vol
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
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TakeoverArgs) -> Result<(), Failure> {
    let ring = reach::ring()?;
    let report = VolumeDrive::take_over(&args.directory, args.force, &ring).map_err(connect::failure)?;
    if args.json {
        print_json(&report)?;
    } else {
        let next = format!("\nzonda serve {} has the volume for hosts\n", args.directory.display());
        print(&(text(&report, Screen::of_stdout()) + &next))?;
    }
    if report.drives.iter().any(|drive| drive.error.is_some()) { Err(Failure::Run) } else { Ok(()) }
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
