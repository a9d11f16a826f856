//! `zonda volume create`: a new volume.

use std::path::PathBuf;

use clap::Args;
use zonda_config::{ByteSize, Rate};
use zonda_devices::{Location, NewVolume, VolumeRates};
use zonda_raid::{Level, Scheme, VolumeError};

use super::reach::Reached;
use super::show;
use crate::commands::connect::{self, CredentialArgs};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};

pub(crate) const LONG_ABOUT: &str = "Makes a volume of zoned drives. What is on them is lost, and so drives that hold something are refused \
without --force.

Levels: 0 spreads blocks and can lose no member; 1 keeps copies; 01 mirrors a stripe; 4 and 5 keep one parity, 6 two; k+m keeps as many \
as --parity says. Without --level: one drive is level 0, two are 1, more are 5.

Drives with metadata beside each block (profile zn540-zapraid: 64 bytes) waste no block on it. Without, a block of metadata goes with \
each chunk, and a volume holds a fifth less.";

const EXAMPLES: &str = "Examples:
  zonda volume create vol --members drives/a,drives/b,drives/c,drives/d --level 5 --spare drives/e
  zonda volume create safe --members a,b,c,d,e,f --parity 2
  zonda volume create disk --members drives/f";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateArgs {
    /// The directory of the volume, which must be empty or not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The drives, in their order: directories of images, or nvme-tcp:// URLs
    #[arg(long, value_name = "DIR|URL,...", value_delimiter = ',', required = true)]
    members: Vec<String>,
    /// A drive that takes the place of a member that fails; may be given more than once
    #[arg(long, value_name = "DIR|URL", value_delimiter = ',')]
    spare: Vec<String>,
    /// How blocks are made redundant: 0, 1, 01, 4, 5, 6 or k+m
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    level: Option<Level>,
    /// Members that hold data in each stripe, to be sure
    #[arg(long, value_name = "K")]
    data: Option<u8>,
    /// Members that hold parity or copies in each stripe
    #[arg(long, value_name = "M")]
    parity: Option<u8>,
    /// What hosts see; by default all but the reserve
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Space kept back for garbage collection: the more, the less it moves
    #[arg(long, value_name = "PERCENT", default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=90))]
    reserve: u8,
    /// Blocks of a chunk where small requests go; by default 1, or 4 for drives without metadata
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// What a rebuild writes at most, like 200MiB/s; by default as fast as it goes
    #[arg(long, value_name = "RATE")]
    rebuild_rate: Option<Rate>,
    /// What a scrub reads at most; by default 64MiB/s
    #[arg(long, value_name = "RATE")]
    scrub_rate: Option<Rate>,
    /// Wipes drives that hold something
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

fn level(text: &str) -> Result<Level, VolumeError> {
    text.to_lowercase().parse()
}

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    let locations = |texts: &[String]| texts.iter().map(|text| connect::location(text)).collect::<Result<Vec<_>, _>>();
    let (members, spares): (Vec<Location>, Vec<Location>) = (locations(&args.members)?, locations(&args.spare)?);
    let all: Vec<&String> = args.members.iter().chain(&args.spare).collect();
    if let Some(twice) = all.iter().enumerate().find(|(at, one)| all[..*at].contains(one)) {
        return Err(Failure::input(format!("{} is named twice", twice.1), "name each drive once"));
    }
    let scheme = Scheme::over(members.len(), args.level, args.parity)
        .map_err(|error| Failure::input("there is no such volume to be had", error.to_string()))?;
    if let Some(data) = args.data.filter(|data| *data != scheme.data) {
        let message = format!("{} members make {scheme}: {} hold data, not {data}", members.len(), scheme.data);
        return Err(Failure::input(message, "leave --data out, or name more or fewer members"));
    }
    let new = NewVolume {
        members,
        spares,
        scheme,
        size: args.size,
        reserve_percent: args.reserve,
        small_unit_blocks: args.chunk,
        rates: VolumeRates { rebuild: args.rebuild_rate, scrub: args.scrub_rate },
        may_wipe: args.force,
        credentials: args.credentials.credentials()?,
    };
    let reached = Reached::create(&args.directory, &new)?;
    let report = reached.finish()?;
    if args.json {
        return print_json(&report);
    }
    let next = format!("\nzonda serve {} has it for hosts\n", args.directory.display());
    print(&(show::text(&report, Screen::of_stdout()) + &next))
}
