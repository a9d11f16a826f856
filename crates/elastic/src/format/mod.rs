//! What a pool writes on its drive, byte for byte: `docs/internals/pool-format.md`.

mod block;
mod codec;
mod log_block;
mod record;
mod zone_header;

pub use block::BlockError;
#[cfg(any(test, feature = "testing"))]
pub use block::fit_checksum;
pub use log_block::pool_of_log_block;
pub(crate) use log_block::{Body, LogBlock, capacity_of};
pub(crate) use record::{GroupRecord, NamespaceRecord, PoolRecord, Record, VZONE_BYTES, VZoneRecord};
pub(crate) use zone_header::{Owner, Reservation};

/// The first bytes of each kind of block of metadata.
pub const MAGICS: [[u8; 4]; 3] = [log_block::MAGIC, zone_header::RESERVED, zone_header::OWNED];

/// The identity of a pool: chosen when it is created, in every block of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub [u8; 16]);

/// Blocks of zeros, for what a test forges.
#[cfg(test)]
pub(crate) const SMALL_BLOCK_BYTES: usize = 512;
