//! Redundant volumes whose members are images and remote namespaces.
//!
//! ```text
//!   directory.rs  where the members are: volume.toml, and the lock     open.rs    created, mounted
//!   drive.rs      VolumeDrive: the machine of zonda_raid on its members, spares, what a failure sets off
//!   manage.rs     what an operator asks for                             report.rs  what he is told
//!   seat.rs       a member's device, and what is under way on it
//! ```
//!
//! What is redundant, and since when, the members say themselves (`docs/internals/volume-format.md`); `volume.toml` says only where
//! they are, so losing it loses no data.

mod directory;
mod drive;
mod manage;
mod open;
mod report;
mod seat;

pub use directory::{CONTROL_SOCKET, VOLUME_FILE, VolumeRates, is_volume};
pub use drive::{Notice, VolumeDrive};
pub use manage::VolumeRequest;
pub use open::NewVolume;
pub use report::{MemberSummary, Progress, ScrubSummary, VolumeReport, VolumeState};
