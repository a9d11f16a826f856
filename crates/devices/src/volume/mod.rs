//! Redundant volumes whose members are images and remote namespaces.
//!
//! ```text
//!   directory.rs  where the members are: volume.toml, and the lock     open.rs    created, mounted
//!   place.rs      where one device is
//!   held.rs       that directory, held open
//!   drive.rs      VolumeDrive: the machine of zonda_raid on its members, what a failure sets off
//!   spares.rs     devices that take the place of members that have failed
//!   returns.rs    members that have failed and come back
//!   reconnect.rs  members whose connection is lost, and made again
//!   manage.rs     what an operator asks for                             report.rs  what he is told
//!   reservations.rs  what hosts have reserved of the volume, in a file of its directory
//!   found.rs      the devices before a mount, and what their superblocks say
//!   outdated.rs   members that are older than volume.toml knows the volume to be
//!   check.rs      a volume that is read and compared without being written
//!   import.rs     a volume.toml written from what superblocks say
//!   look.rs       what superblocks say of a volume that is not mounted  identities.rs  how they are read
//!   adopt.rs      a device on its way to become a member or a spare: opened and looked at without stopping the loop
//!   seat.rs       a member's device, and the commands in flight on it
//!   owner.rs      who uses a volume, to the servers of its members      lease.rs   what ends when another owner does
//!   takeover.rs   a volume taken from an owner that cannot be reached    targets.rs  its drives
//!   overtaken.rs  another takeover at the same time
//!   left_behind.rs  members that a takeover did not reach
//!   contest.rs    an owner whose member was taken, and may be given back
//!   link.rs       what of these goes on over another connection
//! ```
//!
//! What is redundant, and since when, the members say themselves (`docs/internals/volume-format.md`); `volume.toml` says where they
//! are and how they last were, so losing it loses no data.

mod adopt;
mod bugs;
mod check;
mod contest;
mod directory;
mod drive;
mod found;
mod gathering;
mod held;
mod identities;
mod import;
mod import_takeover;
mod lease;
mod leaving;
mod left_behind;
mod link;
mod look;
mod manage;
#[cfg(test)]
mod mount_tests;
mod open;
mod outdated;
mod overtaken;
mod owner;
#[cfg(test)]
mod owner_tests;
mod place;
mod quorum;
mod ranges;
mod reconnect;
mod report;
mod reservations;
mod returns;
#[cfg(test)]
mod scenarios;
mod seat;
#[cfg(test)]
mod sides_tests;
mod spare_watch;
mod spares;
mod takeover;
#[cfg(test)]
mod takeover_tests;
mod targets;

pub use adopt::RequestId;
pub use check::{CheckReport, CheckedMember};
pub use directory::{CONTROL_SOCKET, VOLUME_FILE, VolumeRates, is_volume};
pub use drive::{Notice, VolumeDrive};
pub use import::{IgnoredDrive, ImportOptions, ImportReport, ImportedMember};
pub use manage::{Asked, RateLimit, VolumeRequest};
pub use open::{NewVolume, VolumeOpenOptions};
pub use report::{LostRange, MemberSummary, Progress, ScrubSummary, VolumeReport, VolumeState};
pub use takeover::{TakenDrive, TakeoverOptions, TakeoverReport};
