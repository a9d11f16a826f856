//! Named limits.

use zonda_zoned::Duration;

/// Physical zones of a v-zone, at most: the widest stripe group of the paper (eZNS, section 5,
/// default configuration).
pub const PHYSICAL_ZONES_MAX: u32 = 16;
/// Blocks at the start of each physical zone that hold no data: the reservation and the owner.
pub const HEADER_BLOCKS: u64 = 2;
/// Bytes of a stripe at the minimum width (eZNS, section 4.4.2).
pub const BASE_STRIPE_BYTES: u64 = 32 * 1024;
/// Part of a physical zone that is kept for what power losses tear: one in so many blocks.
pub const SLACK_DIVISOR: u64 = 64;
/// Losses of power, kills and lacks of space while one stripe group is being written; after more of them the
/// v-zone is read only.
pub const JUMPS_MAX: usize = 8;
/// Zones that hold the log, three for each of its two copies: one that is written, the one before
/// it, and one that may have failed.
pub const LOG_ZONES: u32 = 6;
/// Copies of the log.
pub const LOG_COPIES: usize = 2;
/// Zones that are reserved ahead, at most (the public prototype of eZNS).
pub const RESERVED_MAX: u32 = 32;
/// Namespaces of a pool.
pub const NAMESPACES_MAX: usize = 256;
/// Bytes of a namespace's name.
pub const NAME_BYTES_MAX: usize = 64;
/// The greatest weight of a namespace.
pub const WEIGHT_MAX: u32 = 1_000;
/// Commands of hosts in a pool at a time.
pub const COMMANDS_MAX: usize = 4_096;
/// One in so many physical zones is not promised to namespaces: zones may fail, and a group is
/// copied into new ones before its own are reset.
pub const RESERVE_DIVISOR: u32 = 64;
/// Zones of a pool: a record names a zone by 32 bits, and the table has an entry for each.
pub const ZONES_MAX: u32 = 1 << 24;
/// Bytes of the smallest block: a record of the largest v-zone fits.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// Redistributions of spares without a write of a namespace, after which its open groups are
/// reclaimed (eZNS, section 4.4.4: two cycles),
pub const FROZEN_CYCLES: u32 = 2;
/// and time without a write: on a busy drive redistributions follow each other within milliseconds.
pub const FROZEN_TIME: Duration = Duration::from_secs(2);
/// Bytes of a group that are copied at a time.
pub const RECLAIM_BYTES_MAX: u64 = 128 * 1024;
/// Times that a flush, a Finish, a Reset or a command of a mount is sent to the drive while it fails.
pub const COMMAND_TRIES_MAX: u8 = 3;
/// Time that a write waits for a group that no zone of the drive is left for.
pub const GROUP_WAIT_MAX: Duration = Duration::from_secs(20);
/// Time after which a drive that lacked space for a reservation is asked again.
pub const NO_SPACE_PAUSE: Duration = Duration::from_secs(1);
/// Time after which a pool that cannot record changes, or has lacked space, is opened again; each attempt
/// that fails doubles it,
pub const REOPEN_PAUSE_MIN: Duration = Duration::from_secs(1);
/// up to this.
pub const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(64);
/// Bytes of a zone's descriptor extension.
pub const EXTENSION_BYTES_MAX: usize = 64;

const _: () = assert!(PHYSICAL_ZONES_MAX.is_power_of_two(), "the width of a stripe group is a power of two");
const _: () = assert!(LOG_ZONES as usize >= 3 * LOG_COPIES, "each copy has a zone that it does not use");
