//! `zonda drive create`: creates an image.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use zonda_config::{ByteSize, unplaced};
use zonda_devices::{DriveError, create_image, is_vacant, sized};
use zonda_ssd::description::{DrivePlan, ErrorSource, SpecError};

use crate::errors::Failure;
use crate::output::{print, print_json};
use crate::{files, remedies, units};

pub(crate) const LONG_ABOUT: &str = "Create an image: a persistent drive whose data is in the files of a directory.

The files are sparse: they take disk space only for written data. docs/internals/image-format.md describes the format.";

const EXAMPLES: &str = "Examples:
  zonda drive create drives/a --profile zn540 --zones 64 --zone-capacity 64MiB
  zonda drive create drives/b --profile conventional --zones 16
  zonda drive create drives/c --profile silent-custom --allocation block
  zonda drive show drives/a
  zonda serve drives/a";

/// The drive created by default.
const PROFILE_DEFAULT: &str = "zn540";
const ZONES_DEFAULT: u32 = 64;
const ZONE_CAPACITY_DEFAULT: ByteSize = ByteSize(64 << 20);

const NUMBERS_HELP: &str =
    "change --zones or --zone-capacity; zonda drive show PROFILE shows the values of the profile";

const ALLOCATION_HELP: &str = "choose another --allocation: fixed, superblock, block, vchunk-N (N divides zones.parallelism) or \
                               hchunk-N (N divides the number of erase blocks of a zone on each die); zonda drive show PROFILE \
                               shows these values";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CreateArgs {
    /// Directory of the image, which must be empty or not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Drive profile: a built-in name, or the path of a .toml file
    #[arg(long, default_value = PROFILE_DEFAULT)]
    profile: String,
    /// Number of zones, instead of the profile's
    #[arg(long, value_name = "N")]
    zones: Option<u32>,
    /// Zone capacity, instead of the profile's; the zone size is the next power of two
    #[arg(long, value_name = "SIZE")]
    zone_capacity: Option<ByteSize>,
    /// Zone allocation, instead of the profile's: fixed (each zone has its own erase blocks), or
    /// composed of storage elements: superblock, block, vchunk-N (one erase block on each of N dies)
    /// or hchunk-N (N erase blocks of one die); see docs/internals/zone-allocation.md
    #[arg(long, value_name = "KIND")]
    allocation: Option<String>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Created<'a> {
    directory: String,
    profile: &'a str,
    zones: u32,
    zone_capacity_bytes: u64,
}

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    remedies::refuse_url(&args.directory, "give the directory of the new image; zonda serve then prints its URL")?;
    if let Some(parent) = std::path::absolute(&args.directory).ok().as_deref().and_then(Path::parent) {
        remedies::refuse_inside_image(parent, "choose a directory outside of it")?;
    }
    let drive = drive(&args.profile, args.zones, args.zone_capacity, args.allocation.as_deref())?;
    create_image(&args.directory, &drive).map_err(failure)?;
    let geometry = drive.profile().geometry();
    let created = Created {
        directory: args.directory.display().to_string(),
        profile: &drive.profile().name,
        zones: geometry.zone_count,
        zone_capacity_bytes: geometry.zone_capacity_bytes(),
    };
    if args.json {
        return print_json(&created);
    }
    let Created { directory, profile, zones, zone_capacity_bytes } = created;
    let (zones, capacity) = (units::counted(u64::from(zones), "zone"), units::bytes(zone_capacity_bytes));
    print(&format!(
        "created {directory}: {zones} of {capacity}, profile {profile}\nto serve it: zonda serve {directory}\n"
    ))
}

/// The drive that zonda serve creates and serves by default.
pub(crate) fn default_drive() -> Result<DrivePlan, Failure> {
    drive(PROFILE_DEFAULT, Some(ZONES_DEFAULT), Some(ZONE_CAPACITY_DEFAULT), None)
}

/// Creates an image of a profile with this number of zones and zone capacity; false if it exists.
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
    create_unless_present(directory, &drive).map_err(failure)
}

/// Creates an image in a vacant directory; false if another process has created one meanwhile.
pub(crate) fn create_unless_present(directory: &Path, drive: &DrivePlan) -> Result<bool, DriveError> {
    match create_image(directory, drive) {
        Err(_) if !is_vacant(directory) => Ok(false),
        created => created.map(|()| true),
    }
}

fn failure(DriveError { message, help, .. }: DriveError) -> Failure {
    Failure::input(message, help)
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
    spec.plan(&files::PROFILES).map_err(|error| match &error.source {
        ErrorSource::JobFile if allocation.is_some() && error.error.message.contains("allocation") => {
            let help = error.error.help.clone().unwrap_or_else(|| ALLOCATION_HELP.to_owned());
            Failure::input(error.error.message.clone(), help)
        }
        _ => in_words(&error),
    })
}

/// Converts an error in values of the command line, which have no position in a file.
pub(crate) fn in_words(error: &SpecError) -> Failure {
    match &error.source {
        ErrorSource::JobFile => {
            let help = error.error.help.as_deref().map_or_else(|| NUMBERS_HELP.to_owned(), as_options);
            Failure::input(error.error.message.clone(), help)
        }
        ErrorSource::Profile { path, text } => Failure::in_experiment(error, path, text),
    }
}

/// Names the options that set keys of the profile instead of the keys.
fn as_options(text: &str) -> String {
    let options = [("geometry.zones", "--zones"), ("geometry.zone_capacity", "--zone-capacity")];
    options.iter().fold(text.to_owned(), |text, (key, option)| text.replace(key, option))
}
