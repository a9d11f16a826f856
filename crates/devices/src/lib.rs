//! Devices that do I/O, each a [`ZonedDevice`](zonda_zoned::ZonedDevice).
//!
//! - [`FileBacked`]: an image on a file system, durable as [`zonda_image`] specifies, with wear ([`LoadedElements`]).
//! - [`ReadOnlyImage`]: an image that is never written: crash recovery is done in memory.
//! - [`MemoryDrive`]: a volatile drive; its contents are lost with the process.
//! - [`Remote`]: a namespace of a server, over NVMe/TCP.
//! - Zoned drives of this machine, such as /dev/nvme0n1, /dev/sdb and /dev/ng0n1 ([`open_device`]).
//! - [`SequentialZones`]: the sequential zones of a drive that also has conventional ones.
//! - [`PacedDrive`]: one of the first three, with the latencies of a [`Model`] of the real drive.
//! - [`VolumeDrive`]: images and remote namespaces as one redundant volume of conventional zones.
//! - [`PoolNamespace`]: one of the namespaces into which a pool ([`PoolDrive`]) divides a drive.
//!
//! A [`Connection`] is one of these with its own ring, for a program that waits for completions; a
//! [`SharedConnection`] is a connection in a thread of its own, which any number of threads use.
//! All but the last need a [`Ring`](zonda_ring::Ring) whose owner runs it. [`Drive`] is the management
//! interface beside the commands. [`Location`] parses and prints the path or URL of a namespace.
//!
//! What is absent: the rules of zones, the format of images and every protocol. Those are state
//! machines without I/O in crates of their own.
#![forbid(unsafe_code)]

mod access;
mod connection;
mod copy_on_write;
mod create;
mod creation;
mod directory;
mod drive;
mod elements;
mod error;
mod file_backed;
mod first_zones;
mod identifier;
mod live;
mod look;
mod memory;
#[cfg_attr(not(test), path = "mock/absent.rs")]
mod mock;
mod model;
mod open_directory;
mod opening;
mod pool;
mod probe;
pub mod random;
mod read_only;
mod real;
mod remote;
mod repair;
mod saved_reservations;
mod scheduled;
mod sequential_zones;
mod shared;
mod space;
mod url;
mod volume;

pub(crate) use access::Access;
pub use access::{Credentials, TextError, TextSource, read_key, read_secret, read_text, text_of};
pub use connection::{Connection, NamespaceOptions};
pub use create::{create_image, create_image_of, sized};
pub use creation::is_vacant;
pub use directory::{ImageDirectory, exposed_files};
pub use drive::{Drive, DriveFacts, LifeCounters};
pub use elements::{ELEMENTS_FILE, LoadedElements};
pub use error::DriveError;
pub use file_backed::{FileBacked, life_of, unusable_image};
pub use first_zones::FirstZones;
pub use identifier::{device_location, uuid_of_identity, uuid_of_name};
pub use live::RingClock;
pub use look::user_of_image;
pub use memory::{MemoryDrive, PacedDrive};
pub use model::Model;
pub use pool::{
    LostPool, NamespaceSize, NewNamespace, NewPool, POOL_FILE, PoolDrive, PoolGroupCount, PoolNamespace,
    PoolNamespaceReport, PoolOpenOptions, PoolReport, PoolRequest, PoolRequestId, PoolZone, ReclaimReport,
    SchedulerOfDrive, ZonesInState, is_pool,
};
pub use probe::{DriveUser, user_of_drive};
pub use read_only::ReadOnlyImage;
#[cfg(feature = "testing")]
pub use real::device_without_zones;
pub use real::{DeviceMode, SIGNATURE_BYTES, open_device, signature_of};
pub use remote::Remote;
pub use repair::repair_image;
pub use scheduled::{ScheduledDrive, SchedulerFacts};
pub use sequential_zones::{SequentialZones, conventional_zones_before};
pub use shared::SharedConnection;
pub use space::SpaceFacts;
pub use url::{Location, NvmeTcpUrl, PORT_DEFAULT};
pub use volume::{
    CONTROL_SOCKET, CheckReport, CheckedMember, IgnoredDrive, ImportOptions, ImportReport, ImportedMember, LostRange,
    MemberSummary, NewVolume, Notice, Progress, RateLimit, RequestId, ScrubSummary, TakenDrive, TakeoverOptions,
    TakeoverReport, VOLUME_FILE, VolumeDrive, VolumeOpenOptions, VolumeRates, VolumeReply, VolumeReport, VolumeRequest,
    VolumeState, is_import_interrupted, is_volume, shown_place,
};
pub use zonda_elastic::limits::{NAME_BYTES_MAX, NAMESPACES_MAX, WEIGHT_MAX};
pub use zonda_elastic::{PoolOptions, ZoneRole};
pub use zonda_initiator::limits::{IO_QUEUES_MAX, QUEUE_DEPTH_MAX};
pub use zonda_raid::Extent;
pub use zonda_sched::TenantLoad;
