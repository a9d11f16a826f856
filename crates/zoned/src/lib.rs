//! The types and rules of zoned storage, without I/O.
//!
//! The crate defines the common types of zonda: zone states and their limits ([`ZoneState`],
//! [`Geometry`]), commands and their outcomes ([`Command`], [`Completion`], [`Status`]), distinct
//! types for time and sizes ([`Instant`], [`Lba`], ...), reproducible random numbers ([`Prng`]),
//! and the trait that every drive, layer, volume and network client implements ([`ZonedDevice`]).
//!
//! It has two implementations of the zone rules of the NVMe Zoned Namespace Command Set 1.1.
//! Devices use [`zones::ZoneTable`]. [`reference::ReferenceDevice`] is slow and simple, and serves
//! as oracle: it shares no code with the first, and tests compare them. The rules themselves, with
//! the order of checks, are in `docs/internals/zone-semantics.md`.
//!
//! What is absent: clocks, threads, files, sockets, latency, and the placement of blocks on media.
//!
//! ```
//! use zonda_zoned::{Blocks, Geometry, Lba};
//! use zonda_zoned::zones::ZoneTable;
//!
//! let mut zones = ZoneTable::new(Geometry::tiny());
//! let first = zones.write(Lba(0), Blocks(4), true).expect("an empty zone accepts a write at its start");
//! assert_eq!(first.start, Lba(0));
//! assert!(zones.write(Lba(0), Blocks(4), true).is_err(), "the write pointer has moved");
//! ```
#![forbid(unsafe_code)]

mod command;
mod completion;
mod device;
mod geometry;
mod live;
mod namespaces;
mod payload;
mod prng;
pub mod reference;
mod report;
mod seeded;
mod size;
mod slab;
mod state;
mod status;
mod time;
pub mod zones;

pub use command::{Class, Command, LbaRange, Operation, Origin, StreamId, TenantId, ZoneAction, ZoneTarget};
pub use completion::{Completion, CompletionQueue, Outcome};
pub use device::{QueueFull, ZonedDevice};
pub use geometry::{Geometry, GeometryError, ZrwaGeometry};
pub use live::LiveClock;
pub use namespaces::Namespaces;
pub use payload::{BlockBuffer, Payload, PayloadKind, ZERO_FINGERPRINT, fingerprint};
pub use prng::Prng;
pub use report::{ChangedZoneList, ReportFilter, ZoneAttributes, ZoneDescriptor, ZoneReport};
pub use seeded::Seeded;
pub use size::{Blocks, CommandId, Lba, NamespaceId, ZoneIndex};
pub use slab::{Key, Slab};
pub use state::{ZoneState, ZoneType};
pub use status::Status;
pub use time::{Duration, Instant};

/// Named limits, each with its source.
pub mod limits {
    /// Ranges in one Dataset Management command (NVM Command Set 1.0, 3.2.3: NR is an 8-bit,
    /// zero-based field).
    pub const DEALLOCATE_RANGES_MAX: usize = 256;
    /// Zone identifiers in the Changed Zone List log page (Zoned Namespace Command Set 1.1, log
    /// page BFh).
    pub const CHANGED_ZONES_MAX: usize = 511;
    /// Blocks of one command (NVM Command Set 1.0: NLB is a 16-bit, zero-based field).
    pub const COMMAND_BLOCKS_MAX: u64 = 65_536;
    /// Bytes of metadata a block may carry in this implementation.
    pub const METADATA_BYTES_MAX: u16 = 64;
    /// Unit of the zone descriptor extension size (Zoned Namespace Command Set 1.1, LBA Format
    /// Extension, ZDES).
    pub const DESCRIPTOR_EXTENSION_UNIT_BYTES: u32 = 64;

    const _: () = assert!(CHANGED_ZONES_MAX * 8 + 8 <= 4096, "the log page is 4 KiB: a count and the identifiers");
    const _: () = assert!(DEALLOCATE_RANGES_MAX as u64 <= COMMAND_BLOCKS_MAX);
}
