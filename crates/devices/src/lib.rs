//! Devices with an edge to the world, each a [`ZonedDevice`](zonda_zoned::ZonedDevice).
//!
//! - [`FileBacked`]: an image on this machine's disk; keeps what it acknowledged ([`zonda_image`]), and how worn its flash
//!   would be, where the profile builds zones of storage elements ([`FoundElements`]).
//! - [`ReadOnlyImage`]: the same, of which nothing is written: a crash's traces are repaired in memory.
//! - [`MemoryDrive`]: gone with the process.
//! - [`Remote`]: a namespace of a server, over NVMe/TCP.
//! - [`PacedDrive`]: one of the first three, as slow as a [`Model`] of the real drive.
//! - [`VolumeDrive`]: several of the first and fourth as one redundant volume of conventional zones.
//!
//! All but the last need a [`Ring`](zonda_ring::Ring) whose owner turns it. [`Drive`] is what they can be asked beside commands, by
//! metrics for instance. [`Location`] is how people write where a namespace is.
//!
//! What is absent: the rules of zones, the format of images and every protocol, which lie below as machines without an edge.
#![forbid(unsafe_code)]

mod access;
mod connection;
mod copy_on_write;
mod create;
mod directory;
mod drive;
mod elements;
mod error;
mod file_backed;
mod gather;
mod live;
mod look;
mod making;
mod memory;
mod model;
mod opening;
mod patches;
mod probe;
pub mod random;
mod read_only;
mod remote;
mod repair;
#[cfg(test)]
mod shelf;
mod space;
mod url;
mod volume;

pub(crate) use access::Access;
pub use access::{Credentials, read_key, read_secret};
pub use connection::{Connection, NamespaceOptions};
pub use create::{create_image, create_image_of, sized};
pub use directory::{ImageDirectory, exposed_files};
pub use drive::{Drive, DriveFacts, LifeCounters};
pub use elements::{ELEMENTS_FILE, FoundElements};
pub use error::DriveError;
pub use file_backed::{FileBacked, life_of, unusable_image};
pub use live::RingClock;
pub use look::volume_of_image;
pub use making::is_vacant;
pub use memory::{MemoryDrive, PacedDrive};
pub use model::Model;
pub use read_only::ReadOnlyImage;
pub use remote::Remote;
pub use repair::repair_image;
pub use space::SpaceFacts;
pub use url::{Location, NvmeTcpUrl, PORT_DEFAULT};
pub use volume::{
    Asked, CONTROL_SOCKET, CheckReport, CheckedMember, IgnoredDrive, ImportOptions, ImportReport, ImportedMember,
    LostRange, MemberSummary, NewVolume, Notice, Progress, RateLimit, RequestId, ScrubSummary, TakenDrive,
    TakeoverOptions, TakeoverReport, VOLUME_FILE, VolumeDrive, VolumeOpenOptions, VolumeRates, VolumeReport,
    VolumeRequest, VolumeState, is_volume,
};
pub use zonda_raid::Extent;
