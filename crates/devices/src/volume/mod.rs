//! Redundant volumes whose members are images and remote namespaces.
//!
//! ```text
//! directory.rs            volume.toml, which lists the members, and the lock
//! foreign.rs              files of the same names that belong to no volume or pool
//! place.rs                the entry of one device in volume.toml
//! open_files.rs           whether this process may open as many files as members need
//! names.rs                errors with the locations of members, and remedies
//! create.rs               creates volumes
//! open.rs                 mounts volumes
//! start.rs                starts the state machine, and waits until it is ready
//! vacant.rs               refuses drives that must not be wiped
//! assembly.rs             opens the devices before a mount, and reads their superblocks
//! gathering.rs            opens devices in parallel
//! outdated.rs             refuses members that are older than volume.toml
//! drive.rs                VolumeDrive: runs the volume of zonda_raid on its members
//! held.rs                 completions that hosts must not see yet
//! member_device.rs        the device of a member or spare, and its commands in flight
//! closing.rs              devices that are being closed
//! spares.rs               devices that replace failed members
//! spare_watch.rs          keeps the connections of spares alive
//! returns.rs              re-adds failed members
//! reconnect.rs            reconnects members whose connection is lost
//! link.rs                 what is resubmitted over the new connection
//! adopt.rs                opens and probes a device that is added, without blocking the event loop
//! manage.rs               requests of operators
//! report.rs               the state of a mounted volume
//! invariants.rs           what is always true of a mounted volume
//! look.rs                 the state of an unmounted volume, from its superblocks
//! identities.rs           reads superblocks for commands that do not write
//! check.rs                reads and verifies an unmounted volume without writing
//! reservations.rs         saves the reservations of hosts in the directory of the volume
//! import.rs               recreates volume.toml from superblocks
//! import_search.rs        searches directories for images
//! import_takeover.rs      acquires members for an import that another server left reserved
//! new_directory.rs        the directory of a new volume
//! check_superblocks.rs    verifies the superblocks of a member
//! refusals.rs            refuses requests before the volume is assembled for them
//! owner.rs                the host that reserves the members of a volume
//! lease.rs                stops I/O when another owner may have the volume
//! quorum.rs               how many members an owner needs
//! lost_members.rs         asks who holds members that are lost, where another owner could use them
//! contest.rs              waits for a member that another host has reserved briefly
//! takeover.rs             takes a volume over from an owner that cannot be reached
//! targets.rs              the drives of a takeover
//! concurrent_takeover.rs  takeovers of one volume at the same time
//! stale_reservations.rs   members that are still reserved by an owner that lost the volume
//! ```
//!
//! The superblocks of the members record which of them are active, and since which epoch
//! (`docs/internals/volume-format.md`). `volume.toml` only records where the members are and their
//! last state, so losing it loses no data.

mod adopt;
#[cfg(test)]
mod adopt_tests;
mod assembly;
mod bugs;
mod check;
mod check_superblocks;
mod closing;
mod concurrent_takeover;
#[cfg(test)]
mod concurrent_takeover_tests;
mod contest;
#[cfg(test)]
mod contest_tests;
mod create;
pub(crate) mod directory;
mod drive;
pub(crate) mod foreign;
mod gathering;
mod held;
pub(crate) mod identities;
mod import;
mod import_search;
mod import_takeover;
mod invariants;
#[cfg(test)]
mod lacking_space_tests;
pub(crate) mod lease;
mod link;
mod look;
mod lost_members;
#[cfg(test)]
mod lost_members_tests;
mod manage;
pub(crate) mod member_device;
#[cfg(test)]
mod mount_tests;
mod names;
pub(crate) mod new_directory;
mod open;
mod open_files;
mod outdated;
pub(crate) mod owner;
#[cfg(test)]
mod owner_tests;
pub(crate) mod place;
mod quorum;
mod ranges;
mod reconnect;
mod refusals;
mod report;
mod reservations;
mod returns;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod sides_tests;
mod spare_watch;
mod spares;
mod stale_reservations;
mod start;
pub(crate) mod takeover;
#[cfg(test)]
mod takeover_tests;
pub(crate) mod targets;
pub(crate) mod vacant;

pub use adopt::RequestId;
pub use check::{CheckReport, CheckedMember};
pub use create::NewVolume;
pub use directory::{CONTROL_SOCKET, VOLUME_FILE, VolumeRates, is_volume};
pub use drive::{Notice, VolumeDrive};
pub use import::{IgnoredDrive, ImportOptions, ImportReport, ImportedMember};
pub use import_takeover::is_import_interrupted;
pub use manage::{RateLimit, VolumeReply, VolumeRequest};
pub(crate) use new_directory::is_left_of_volume;
pub use open::VolumeOpenOptions;
pub use place::shown_place;
pub use report::{LostRange, MemberSummary, Progress, ScrubSummary, VolumeReport, VolumeState};
pub use takeover::{TakenDrive, TakeoverOptions, TakeoverReport};
