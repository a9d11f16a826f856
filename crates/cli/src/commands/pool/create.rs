//! `zonda pool create`: creates a pool.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{NewPool, PoolDrive, PoolOptions};

use super::{reach, show};
use crate::commands::connect::{self, CredentialArgs};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};

pub(super) const LONG_ABOUT: &str = "Create a pool without namespaces on a zoned drive. All data on the drive is lost; a drive that holds data is \
refused without --force.

A zone of a namespace consists of --zones-per-vzone zones of the drive. It is written in stripe groups, each over as many zones as \
its tenant may have active at the moment, at most --width-max. The active zones of the drive are divided among the namespaces: the \
essential ones always, the others (spares) as long as no other namespace needs them. The defaults suit drives of many small zones, each on \
one or a few dies; where each zone is on all dies, the width is 1.";

const EXAMPLES: &str = "Examples:
  zonda pool create pool --drive drives/a
  zonda pool create pool --drive drives/a --zones-per-vzone 8 --width-max 8
  zonda pool create pool --drive nvme-tcp://10.0.0.7/nqn.2026-01.io.zonda:a";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateArgs {
    /// Directory of the pool, which must be empty or not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Zoned drive: directory of an image, device file, or nvme-tcp:// URL
    #[arg(long, value_name = "DIR|DEVICE|URL")]
    drive: String,
    /// Zones of the drive in a zone of a namespace, a power of two up to 16 [default: --width-max]
    #[arg(long, value_name = "N")]
    zones_per_vzone: Option<u32>,
    /// Active zones that suffice for the write bandwidth of the drive: at least 1, at most all but the
    /// 3 of the log [default: half of them, rounded to a power of two]
    #[arg(long, value_name = "N")]
    essential_zones: Option<u32>,
    /// The widest stripe group, a power of two up to --zones-per-vzone [default: a sixteenth of the active zones
    /// of the drive]
    #[arg(long, value_name = "N")]
    width_max: Option<u32>,
    /// Wipe a drive that holds data
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    reach::must_be_new(&args.directory)?;
    let new = NewPool {
        drive: connect::location(&args.drive)?,
        options: PoolOptions {
            zones_per_vzone: args.zones_per_vzone,
            essential_zones: args.essential_zones,
            width_max: args.width_max,
        },
        may_wipe: args.force,
        credentials: args.credentials.credentials()?,
    };
    let given: &[&str] = if args.force { &["--force"] } else { &[] };
    let ring = reach::ring()?;
    let pool = PoolDrive::create(&args.directory, &new, &ring)
        .map_err(|error| connect::failure_without(error, given, "name another drive"))?;
    std::iter::from_fn(|| pool.take_warning()).for_each(|warning| connect::warn(&warning));
    let report = pool.report();
    pool.close(&ring).map_err(connect::failure)?;
    if args.json {
        return print_json(&report);
    }
    let directory = args.directory.display();
    let next = format!("\nto create a namespace: zonda namespace create {directory} NAME --size SIZE --active N\n");
    print(&(show::pool(&report, &args.directory, Screen::of_stdout()) + &next))
}
