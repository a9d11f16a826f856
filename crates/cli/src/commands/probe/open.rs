//! Opens the drive that is measured: an image without writing a byte to it, unless zones are to be
//! written.

use zonda_devices::{DriveUser, Location, ReadOnlyImage, RingClock, user_of_image};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{LiveClock, ZonedDevice};

use super::ProbeArgs;
use crate::commands::connect;
use crate::commands::drive::image::peek;
use crate::errors::Failure;
use crate::remedies;

/// What the user can do with a drive that a volume or pool uses.
const OF_MEMBER: &str = "measure it without --destructive, or name another drive";

/// A drive that is open.
pub(super) struct Opened<'a> {
    pub(super) device: &'a mut dyn ZonedDevice,
    pub(super) clock: &'a mut dyn LiveClock,
    /// What identifies the drive.
    pub(super) serial: String,
}

/// Opens the drive, calls `work`, and closes it.
pub(super) fn with<T>(
    args: &ProbeArgs,
    location: &Location,
    work: impl FnOnce(Opened<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Location::Image(path) = location {
        // A volume is assembled to be opened, which writes to its members.
        remedies::refuse_volume(path, "measure its drives one by one: zonda volume status DIR names them")?;
    }
    let serial = match location {
        Location::Image(path) => peek(path).map(|image| zonda_devices::random::uuid_text(&image.spec.uuid)),
        _ => None,
    };
    let serial = serial.unwrap_or_else(|| location.to_string());
    match location {
        Location::Image(path) if !args.destructive => {
            let ring = Ring::new(RingOptions::default()).map_err(|error| {
                Failure::input(
                    format!("cannot create the event loop: {error}"),
                    "check the limit on open files (ulimit -n)",
                )
            })?;
            let (mut drive, _) = ReadOnlyImage::open(path, &ring).map_err(|error| match error {
                error if error.is_missing => remedies::no_image(path, error),
                error => connect::failure(error),
            })?;
            connect::warn_if_exposed(path);
            work(Opened { device: &mut drive, clock: &mut RingClock(&ring), serial })
        }
        _ => {
            if let (Location::Image(path), true) = (location, args.destructive) {
                refuse_user(user_of_image(path), location)?;
            }
            connect::with(location, &args.connect.options()?, |connection| {
                if args.destructive {
                    refuse_user(connection.user().map_err(connect::failure)?, location)?;
                }
                let (device, ring) = connection.parts();
                work(Opened { device, clock: &mut RingClock(ring), serial })
            })
        }
    }
}

/// Refuses to write to a drive that a volume or pool uses. There is no option that overrides this.
fn refuse_user(user: Option<DriveUser>, location: &Location) -> Result<(), Failure> {
    match user {
        Some(user) => Err(Failure::input(format!("{location} is {user}"), OF_MEMBER)),
        None => Ok(()),
    }
}
