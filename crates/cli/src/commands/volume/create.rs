//! `zonda volume create`: creates a volume.

use std::path::PathBuf;

use clap::Args;
use zonda_config::{ByteSize, Rate};
use zonda_devices::{DriveUser, Location, NewVolume, VolumeRates, is_volume, user_of_image};
use zonda_raid::{Level, Scheme, VolumeError};

use super::reach::Reached;
use super::show;
use crate::commands::connect::{self, CredentialArgs};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::{remedies, units};

pub(crate) const LONG_ABOUT: &str = "Create a volume of zoned drives. All data on the drives is lost; drives that hold data are refused \
without --force.

Levels: 0 stripes blocks without redundancy; 1 keeps copies; 01 mirrors stripes; 4 and 5 keep one parity block per stripe, 6 keeps \
two; k+m (literally, or as numbers such as 4+2) keeps m parity blocks, which --parity or the numbers set. Default: level 0 for one drive, 1 for two, 5 for more.

Drives whose blocks have metadata (64 bytes in profile zn540-zapraid) store the metadata of the volume there. On other drives \
each chunk takes one more block for metadata, which reduces the capacity by a fifth.";

const EXAMPLES: &str = "Examples:
  zonda volume create vol --members a,b,c,d --level 5 --spare e
  zonda volume create safe --members a,b,c,d,e,f --parity 2
  zonda volume create disk --members drives/f";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateArgs {
    /// Directory of the volume, which must be empty or not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Members in order: directories of images, or nvme-tcp:// URLs
    #[arg(long, value_name = "DIR|DEVICE|URL,...", value_delimiter = ',', required = true)]
    members: Vec<String>,
    /// Spare drive, which replaces a failed member; can be repeated
    #[arg(long, value_name = "DIR|URL", value_delimiter = ',')]
    spare: Vec<String>,
    /// RAID level: 0, 1, 01, 4, 5, 6 or k+m (with --parity M, or as numbers such as 4+2)
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    level: Option<LevelArg>,
    /// Number of data chunks in each stripe; an error if it does not match the number of members
    #[arg(long, value_name = "K")]
    data: Option<u8>,
    /// Number of parity chunks or copies in each stripe
    #[arg(long, value_name = "M")]
    parity: Option<u8>,
    /// Size of the volume [default: everything except the reserve]
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Space reserved for garbage collection; more space reduces write amplification
    #[arg(long, value_name = "PERCENT", default_value_t = 12, value_parser = clap::value_parser!(u8).range(1..=90))]
    reserve: u8,
    /// Chunk size for writes of fewer than 16 blocks, in blocks; the chunks of larger writes always
    /// have 16 blocks [default: 1, or 4 for drives without metadata]
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// Maximum write rate of a rebuild, such as 200MiB/s [default: unlimited]
    #[arg(long, value_name = "RATE")]
    rebuild_rate: Option<Rate>,
    /// Maximum read rate of a scrub [default: 64MiB/s]
    #[arg(long, value_name = "RATE")]
    scrub_rate: Option<Rate>,
    /// Wipe drives that hold data
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The remedy for an image that is named as the directory of a new volume.
pub(super) const NEW_DIRECTORY: &str = "DIR is the new directory of the volume: choose one that is empty or does not exist, and \
                                        name the drives with --members";

/// A level, and the numbers of data and parity chunks if it was given as `4+2`.
#[derive(Clone, Copy, Debug)]
struct LevelArg {
    level: Level,
    numbers: Option<(u8, u8)>,
}

fn level(text: &str) -> Result<LevelArg, VolumeError> {
    let numbers = text.split_once('+').and_then(|(data, parity)| Some((data.parse().ok()?, parity.parse().ok()?)));
    match (text.to_lowercase().parse(), numbers) {
        // "0+1" is another name of RAID 01.
        (Ok(level), _) => Ok(LevelArg { level, numbers: None }),
        (Err(_), Some(_)) => Ok(LevelArg { level: Level::ReedSolomon, numbers }),
        (Err(_), None) if matches!(text, "10" | "1+0" | "raid10" | "RAID10") => Err(VolumeError::Config(
            "level 10 is not supported: 01, a mirrored stripe, also stripes blocks and keeps copies".to_owned(),
        )),
        (Err(error), None) => Err(error),
    }
}

/// Refuses images that are members of another volume before any image is opened for writing, which
/// rewrites its files.
fn refuse_members(members: &[Location], spares: &[Location]) -> Result<(), Failure> {
    for location in members.iter().chain(spares) {
        let Location::Image(directory) = location else { continue };
        if let Some(user) = user_of_image(directory) {
            let help = if let DriveUser::Volume(_) = user {
                "name another drive; if the directory of that volume is lost, recreate it with zonda volume import; if that \
                        volume is no longer needed, --force wipes the drive"
                    .to_owned()
            } else {
                format!("name another drive; if that {} is no longer needed, --force wipes the drive", user.kind())
            };
            return Err(Failure::input(format!("{location} is not empty: it is {user}"), help));
        }
    }
    Ok(())
}

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    remedies::refuse_image(&args.directory, NEW_DIRECTORY)?;
    let locations = |texts: &[String]| texts.iter().map(|text| connect::location(text)).collect::<Result<Vec<_>, _>>();
    let (members, spares): (Vec<Location>, Vec<Location>) = (locations(&args.members)?, locations(&args.spare)?);
    let all: Vec<&String> = args.members.iter().chain(&args.spare).collect();
    if let Some(twice) = all.iter().enumerate().find(|(at, one)| all[..*at].contains(one)) {
        return Err(Failure::input(format!("drive {} is given twice", twice.1), "name each drive once"));
    }
    let (data, parity) = match args.level.and_then(|level| level.numbers) {
        Some((data, parity)) => (args.data.or(Some(data)), args.parity.or(Some(parity))),
        None => (args.data, args.parity),
    };
    let scheme = Scheme::over(members.len(), args.level.map(|level| level.level), parity).map_err(|error| {
        Failure::input(
            format!("cannot create this volume: {error}"),
            "change --level or --parity, or the number of members",
        )
    })?;
    if let Some(data) = data.filter(|data| *data != scheme.data) {
        let message = format!(
            "the level does not match the members: over {} members, a stripe of {scheme} has {}, not {data}",
            members.len(),
            units::counted(u64::from(scheme.data), "data chunk")
        );
        return Err(Failure::input(message, "change --level, --data or --parity, or the number of members"));
    }
    if !args.force && !is_volume(&args.directory) {
        refuse_members(&members, &spares)?;
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
    let next = format!("\nto serve it: zonda serve {}\n", args.directory.display());
    print(&(show::text(&report, &args.directory, Screen::of_stdout()) + &next))
}
