//! `zonda drive create`: a new image.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use zonda_config::{ByteSize, unplaced};
use zonda_devices::{DriveError, create_image, is_vacant, sized};
use zonda_ssd::description::{DrivePlan, ErrorSource, SpecError};

use crate::errors::Failure;
use crate::output::{print, print_json};
use crate::{files, units};

pub(crate) const LONG_ABOUT: &str = "Makes an image: a drive that keeps its data in the files of a directory.

The files are sparse: they take room on the disk only for what is written. docs/internals/image-format.md describes them.";

const EXAMPLES: &str = "Examples:
  zonda drive create drives/a --profile zn540 --zones 64 --zone-capacity 64MiB
  zonda drive create drives/b --profile conventional --zones 16
  zonda drive create drives/c --profile silent-custom --zones 16 --allocation block
  zonda drive show drives/a
  zonda serve drives/a";

/// The drive that is made when nobody says which.
const PROFILE_DEFAULT: &str = "zn540";
const ZONES_DEFAULT: u32 = 64;
const ZONE_CAPACITY_DEFAULT: ByteSize = ByteSize(64 << 20);

const NUMBERS_HELP: &str = "change --zones or --zone-capacity; zonda drive show PROFILE has the numbers of the profile";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateArgs {
    /// The directory, which must be empty or not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// A built-in profile, or the path of a file that ends in .toml
    #[arg(long, default_value = PROFILE_DEFAULT)]
    profile: String,
    /// How many zones, instead of the profile's
    #[arg(long, value_name = "N")]
    zones: Option<u32>,
    /// What can be written to each zone, instead of the profile's; the zone size is the next power of two
    #[arg(long, value_name = "SIZE")]
    zone_capacity: Option<ByteSize>,
    /// What zones are built of, instead of the profile's: fixed, superblock, block, vchunk-N or hchunk-N
    #[arg(long, value_name = "KIND")]
    allocation: Option<String>,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Made<'a> {
    directory: String,
    profile: &'a str,
    zones: u32,
    zone_capacity_bytes: u64,
}

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    let drive = drive(&args.profile, args.zones, args.zone_capacity, args.allocation.as_deref())?;
    create(&args.directory, &drive)?;
    let geometry = drive.profile().geometry();
    let made = Made {
        directory: args.directory.display().to_string(),
        profile: &drive.profile().name,
        zones: geometry.zone_count,
        zone_capacity_bytes: geometry.zone_capacity_bytes(),
    };
    if args.json {
        return print_json(&made);
    }
    let Made { directory, profile, zones, zone_capacity_bytes } = made;
    let (zones, capacity) = (units::counted(u64::from(zones), "zone"), units::bytes(zone_capacity_bytes));
    print(&format!(
        "made {directory}: {zones} of {capacity}, as {profile}\nzonda serve {directory} lets hosts use it\n"
    ))
}

/// The image that is served when nobody says what to serve; false: there is something already.
pub(crate) fn default_image(directory: &Path) -> Result<bool, Failure> {
    sized_image(directory, PROFILE_DEFAULT, ZONES_DEFAULT, ZONE_CAPACITY_DEFAULT)
}

/// An image of a profile with so many zones of such a capacity; false: there is something already.
pub(crate) fn sized_image(
    directory: &Path,
    profile: &str,
    zones: u32,
    zone_capacity: ByteSize,
) -> Result<bool, Failure> {
    if !is_vacant(directory) {
        return Ok(false);
    }
    let drive = drive(profile, Some(zones), Some(zone_capacity), None)?;
    match create(directory, &drive) {
        // Another program was faster.
        Err(_) if !is_vacant(directory) => Ok(false),
        made => made.map(|()| true),
    }
}

fn create(directory: &Path, drive: &DrivePlan) -> Result<(), Failure> {
    create_image(directory, drive).map_err(|DriveError { message, help, .. }| Failure::input(message, help))
}

fn drive(
    name: &str,
    zones: Option<u32>,
    zone_capacity: Option<ByteSize>,
    allocation: Option<&str>,
) -> Result<DrivePlan, Failure> {
    let mut spec = sized(name, zones, zone_capacity, &files::PROFILES).map_err(|error| in_words(&error))?;
    if let Some(kind) = allocation {
        spec.set.insert(unplaced("zones.allocation".to_owned()), unplaced(kind.to_owned().into()));
    }
    spec.plan(&files::PROFILES).map_err(|error| in_words(&error))
}

/// A mistake in numbers that stand on the command line, and so in no file.
pub(crate) fn in_words(error: &SpecError) -> Failure {
    match &error.source {
        ErrorSource::JobFile => {
            let help = error.error.help.clone().unwrap_or_else(|| NUMBERS_HELP.to_owned());
            Failure::input(error.error.message.clone(), help)
        }
        ErrorSource::Profile { path, text } => Failure::in_experiment(error, path, text),
    }
}
