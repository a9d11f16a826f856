//! Opens the drive that is measured: an image without writing a byte to it, unless zones are to be
//! written.

use zonda_devices::random::uuid_text;
use zonda_devices::{
    Connection, DriveUser, Location, NamespaceOptions, ReadOnlyImage, RingClock, device_location, user_of_image,
    uuid_of_identity,
};
use zonda_profiler::DriveIdentity;
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{LiveClock, NamespaceId, ZonedDevice};

use super::ProbeArgs;
use crate::commands::connect;
use crate::errors::Failure;
use crate::remedies;

/// What the user can do with a drive that a volume or pool uses.
const OF_MEMBER: &str = "measure it without --destructive, or name another drive";

/// A drive that is open.
pub(super) struct Opened<'a> {
    pub(super) device: &'a mut dyn ZonedDevice,
    pub(super) clock: &'a mut dyn LiveClock,
    /// What identifies the drive.
    pub(super) drive: DriveIdentity,
}

/// How a drive is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing is written. Other programs may read an image at the same time.
    ReadOnly,
    /// Zones may be written; an image is locked.
    Writable,
}

/// Opens the drive, calls `work`, and closes it. Refuses drives that must not be written to if the
/// measurement is destructive, in each mode.
pub(super) fn with<T>(
    args: &ProbeArgs,
    location: &Location,
    mode: Mode,
    work: impl FnOnce(Opened<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Location::Image(path) = location {
        // A volume is assembled to be opened, which writes to its members.
        remedies::refuse_volume(path, "measure its drives one by one: zonda volume status DIR names them")?;
        if args.destructive {
            refuse_user(user_of_image(path), location)?;
        }
    }
    match location {
        Location::Image(path) if mode == Mode::ReadOnly => {
            let ring = Ring::new(RingOptions::default()).map_err(|error| {
                Failure::input(
                    format!("cannot create the event loop: {error}"),
                    "check the limit on open files (ulimit -n)",
                )
            })?;
            let (mut image, _) = ReadOnlyImage::open(path, &ring).map_err(|error| match error {
                error if error.is_missing => remedies::no_image(path, error),
                error => connect::failure(error),
            })?;
            connect::warn_if_exposed(path);
            let uuid = uuid_text(&image.image().spec().uuid);
            let drive = DriveIdentity::new(uuid, image.geometry(NamespaceId::FIRST));
            work(Opened { device: &mut image, clock: &mut RingClock(&ring), drive })
        }
        _ => connect::with(location, &options(args, mode)?, |connection| {
            if args.destructive {
                refuse_user(connection.user().map_err(connect::failure)?, location)?;
            }
            let drive = identity(connection, location);
            let (device, ring) = connection.parts();
            work(Opened { device, clock: &mut RingClock(ring), drive })
        }),
    }
}

/// How to connect to a drive that is no image.
fn options(args: &ProbeArgs, mode: Mode) -> Result<NamespaceOptions, Failure> {
    Ok(NamespaceOptions { read_only: mode == Mode::ReadOnly, ..args.connect.options()? })
}

/// What identifies a drive: its own identifier, or its location if it reports none.
fn identity(connection: &Connection, location: &Location) -> DriveIdentity {
    let geometry = connection.geometry();
    match (connection.identity().and_then(uuid_of_identity), location) {
        (Some(uuid), _) => DriveIdentity::new(uuid_text(&uuid), geometry),
        (None, Location::Device(path)) => DriveIdentity::at_location(device_location(path), geometry),
        (None, _) => DriveIdentity::at_location(location.to_string(), geometry),
    }
}

/// Refuses to write to a drive that a volume or pool uses. There is no option that overrides this.
fn refuse_user(user: Option<DriveUser>, location: &Location) -> Result<(), Failure> {
    match user {
        Some(user) => Err(Failure::input(format!("{location} is {user}"), OF_MEMBER)),
        None => Ok(()),
    }
}
