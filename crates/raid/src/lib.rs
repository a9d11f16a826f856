//! Redundant volumes over zoned members.
//!
//! Several zoned namespaces form one device of conventional zones with random reads and writes.
//! Blocks are written to a log of stripes of `k` data chunks and `m` parity chunks, each on another
//! member. Within a group of stripes the members choose the order (Zone Append); groups stay in
//! order, so that a stripe's number takes log2 of the group size in memory (Wang and Lee, "ZapRAID:
//! Toward High-Performance RAID for ZNS SSDs via Zone Append", APSys 2023). Every block carries a
//! checksum, and is reconstructed from the rest of its stripe where it is lost or wrong.
//!
//! [`Volume`] is the state machine: commands and completions in, commands and completions out.
//! [`VolumeDevice`] runs it on devices. The on-media format is in
//! `docs/internals/volume-format.md`; why nothing acknowledged is lost in
//! `docs/internals/volumes.md`.
//!
//! What is absent: clocks, threads, randomness, a read cache, and any assumption about members
//! beyond their geometries.
//!
//! The feature `testing` adds the guarantees as a model, simulations that check them, and seeded bugs.
#![forbid(unsafe_code)]

mod bug;
mod config;
mod error;
mod event;
mod format;
mod identify;
pub mod limits;
mod machine;
mod names;
mod shape;
mod sides;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod trial;
mod volume_device;

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use bug::SeededBug;
pub use config::{Level, MountOptions, Scheme, StreamShape, Tuning, Victim, VolumeConfig};
pub use error::VolumeError;
pub use event::{Event, FailReason};
pub use format::{ArrayId, METADATA_BYTES, MemberState, SEGMENT_MAGIC, SUPERBLOCK_MAGIC, VERSION};
pub use identify::{Identity, KnownMember, Membership, SUPERBLOCKS_BACK_MAX, identify};
pub use machine::{Counters, DamageCounts, Extent, MemberReport, Volume, VolumeStatus};
pub use sides::Agreement;
pub use trial::StripeTrial;
pub use volume_device::VolumeDevice;

/// A member, by its index in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u8);

impl MemberIndex {
    pub(crate) fn as_usize(self) -> usize {
        usize::from(self.0)
    }
}
