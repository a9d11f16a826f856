//! `zonda volume takeover`: a volume whose server cannot be reached.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{TakenDrive, TakeoverReport, VolumeDrive};

use super::reach;
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;

pub(super) const LONG_ABOUT: &str = "Takes a volume whose members are namespaces of servers from the server that has it, when that one cannot be \
stopped: its machine is lost, or cannot be reached.

A server reserves the members and spares of its volume (NVMe reservations, Exclusive Access) before it reads or writes them. This command \
preempts these reservations and aborts what the other server has in flight. From then on its reads and writes are refused, and it ends \
serving the volume; nothing that it acknowledged is lost. The members stay reserved for this directory: zonda serve DIR continues.

A server that was killed needs no takeover: started again from the same directory, it has its volume at once. A copy of the directory \
does.";

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
    let mut table = Table::new(&["drive", "taken from"]);
    for TakenDrive { at, taken_from, error } in &report.drives {
        let what = match (error, taken_from) {
            (Some(error), _) => format!("not taken: {error}"),
            (None, Some(from)) => from.clone(),
            (None, None) => "nobody had it".to_owned(),
        };
        table.row(&[at.clone(), what]);
    }
    format!("owner epoch {}\n\n{}", report.owner_epoch, table.render(screen, 2))
}
