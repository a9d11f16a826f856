//! Named bounds of the model.

/// Outstanding commands; more are rejected with `QueueFull`.
pub const COMMANDS_MAX: usize = 65_536;
/// Dies of a drive.
pub const DIES_MAX: u32 = 4_096;
/// Maximum number of page types of a word line: bits of a cell.
pub const PAGE_TYPES_MAX: usize = 8;
/// Storage elements of a drive with flexible zone allocation, and erase units of a zone: half a
/// gigabyte of tables.
pub const ELEMENTS_MAX: u64 = 1 << 26;
/// Erases of one element, far beyond what flash endures.
pub const ELEMENT_ERASES_MAX: u32 = (1 << 29) - 1;
/// The longest time in a profile: an hour. More is taken for a typing error.
pub const SERVICE_TIME_MAX_NS: u64 = 3600 * 1_000_000_000;
/// The least bandwidth of a channel or link. Less is taken for a typing error, and would make a run
/// last years.
pub const BANDWIDTH_MIN: u64 = 1 << 10;
/// Erase units that each die of a drive with conventional zones may reserve.
pub const GC_LOW_UNITS_MAX: u32 = 1 << 10;
/// Channels of a drive.
pub const CHANNELS_MAX: u32 = 256;
/// Firmware servers of a drive.
pub const SERVERS_MAX: usize = 16;
/// Zones of a drive that a file describes: ten times those of the largest zoned drives.
pub const ZONES_MAX: u64 = 1 << 20;
/// Erase units in a zone of such a drive.
pub const ZONE_UNITS_MAX: u64 = 1 << 22;
/// Blocks of all conventional zones of such a drive: each has an entry in a map.
pub const MAPPED_BLOCKS_MAX: u64 = 1 << 28;
/// Pages that are read ahead and kept for reads to come.
pub const READ_AHEAD_PAGES_MAX: usize = 4_096;
/// Names in a dotted key of a profile.
pub const KEY_NAMES_MAX: usize = 8;

const _: () = assert!(CHANNELS_MAX <= DIES_MAX, "a channel has a die");
const _: () = assert!(DIES_MAX as u64 <= ELEMENTS_MAX, "a superblock of all dies is an element");
const _: () = assert!(DIES_MAX <= u16::MAX as u32, "a slot of a zone is a number of 16 bits");
