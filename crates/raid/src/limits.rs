//! Named limits of volumes, and how they relate.

use zonda_zoned::Duration;

/// Members of a volume: data, parity and mirrors.
pub const MEMBERS_MAX: usize = 16;
/// Zones at the start of each member that hold the log of superblocks.
pub const METADATA_ZONES: u32 = 2;
/// Minimum of active zones of a member for its superblocks to go to both metadata zones: two for
/// these, one for hosts, one for relocation, and two that could not be reset.
pub const MIRRORED_LOG_ACTIVE_ZONES_MIN: u32 = 6;
/// Stripes of a group; no segment has more.
pub const GROUP_STRIPES_MAX: u32 = 1 << 24;
/// Blocks of a chunk, the part of a stripe on one member.
pub const UNIT_BLOCKS_MAX: u32 = 256;
/// Segments of one stream that are open at a time.
pub const OPEN_SEGMENTS_MAX: usize = 8;
/// Segments in the table: 24 bits of an address.
pub const SEGMENTS_MAX: usize = 1 << 24;
/// Blocks per host request.
pub const REQUEST_BLOCKS_MAX: u64 = 256;
/// Host requests in flight at once.
pub const REQUESTS_MAX: usize = 4096;
/// Blocks buffered in memory for their stripes, relocated ones not counted.
pub const BUFFERED_BLOCKS_MAX: usize = 16_384;
/// Blocks that one tombstone block trims at most, so that a long trim does not delay other
/// requests.
pub const TOMBSTONE_BLOCKS_MAX: u64 = 65_536;
/// Commands outstanding on a member at once; more are queued in the volume.
pub const MEMBER_COMMANDS_MAX: usize = 1024;
/// Attempts to rewrite blocks, each to another segment, before their request fails.
pub const WRITE_ATTEMPTS_MAX: u8 = 8;
/// Attempts to mount when the last stripes cannot be read.
pub const MOUNT_ATTEMPTS_MAX: u32 = 8;
/// Attempts of a mount to read a block before it counts as lost: after a transient error this mount
/// and the next one would decide differently.
pub const READ_ATTEMPTS_MAX: u8 = 4;
/// Consecutive segments in which a member may fail before it is evicted.
pub const MEMBER_FAILURES_MAX: u32 = 16;
/// Stripes of moved blocks that may be queued while a scrub continues.
pub const SCRUBBED_STRIPES_MAX: usize = 4;
/// Stripes of moved blocks that may be queued while damaged blocks are rewritten one by one.
pub const REPAIRED_STRIPES_MAX: usize = 64;
/// Unreadable blocks that are tracked until they are read again; more of them are found again
/// later.
pub const UNREADABLE_BLOCKS_MAX: usize = 16_384;
/// Places of unidentified blocks that a mount tracks, to check whether markers name them; more are
/// only counted.
pub const UNIDENTIFIED_PLACES_MAX: usize = 65_536;
/// Places of damaged blocks that are tracked until their segments are reset, so that none is
/// counted twice; more count as repaired.
pub const DAMAGED_PLACES_MAX: usize = 1 << 20;
/// Blocks that are read again at a time, to determine whether they are lost.
pub const CONFIRMED_BLOCKS_MAX: usize = 256;
/// Blocks that garbage collection buffers in memory at once, unless three stripes have more.
pub const RELOCATED_BLOCKS_MAX: usize = 512;
/// Stripes of moved blocks by which hosts may be ahead of garbage collection before they are
/// throttled.
pub const HOST_LEAD_STRIPES: u32 = 4;
/// Maximum blocks moved for each host block, however little space that reclaims.
pub const MOVES_PER_BLOCK_MAX: i64 = 64;
/// Blocks of all members in one run of stripes that a rebuild or a scrub buffers in memory.
pub const PIECE_BLOCKS_MAX: u32 = 4096;
/// Runs of stripes that a rebuild buffers at once: one is read while the previous one is written.
pub const REBUILD_PIECES_MAX: usize = 2;
/// Consecutive zones that a rebuild fails to write before their member is evicted.
pub const REBUILD_FAILURES_MAX: u32 = 8;
/// Re-adds of a member within [`RETURNS_WINDOW`]; if it then fails again, it is failed for
/// flapping.
pub const RETURNS_MAX: usize = 3;
/// See [`RETURNS_MAX`].
pub const RETURNS_WINDOW: Duration = Duration::from_secs(600);
/// A member stalls if it has completed none of its outstanding commands for this long.
pub const STALL_MIN: Duration = Duration::from_secs(1);
/// Seconds over which stalls of a member are counted.
pub const STALL_WINDOW_SECONDS: u32 = 60;
/// A member that stalled in more of the last [`STALL_WINDOW_SECONDS`] is failed for flapping.
pub const STALLED_SECONDS_MAX: u32 = 30;
/// Zones of a re-added member that are verified or reset at once.
pub const RETURNED_ZONES_IN_FLIGHT_MAX: usize = 32;
/// Zone descriptors per report command of a mount.
pub const REPORT_ZONES_MAX: u32 = 1024;
/// Segments reserved for relocation, so that space can always be reclaimed.
pub const RELOCATION_SEGMENTS: u32 = 2;
/// Completed stripes, and buffers of each use, that are cached for reuse.
pub const SPARES_MAX: usize = 64;
/// Default of blocks of trims in flight at once; the remainder of a longer trim waits.
pub const TRIM_BLOCKS_MAX: u64 = 16 * TOMBSTONE_BLOCKS_MAX;
/// Iterations that a portion of trims is divided into, so that a trim of unwritten blocks does not
/// delay other requests.
pub const TRIM_ITERATIONS: u64 = 16;
/// Blocks of tombstones in flight at once, except those that precede a write.
pub const TOMBSTONES_IN_FLIGHT_MAX: usize = 256;
/// Pending ranges of trims.
pub const TRIM_RANGES_MAX: usize = 65_536;
/// Blocks that are examined to determine the length of an extent.
pub const EXTENT_BLOCKS_MAX: u64 = 65_536;
/// Free segments reserved for the next mount: before it can reclaim any it moves what a crash has
/// torn, the blocks of one segment at a time, which may take two; and an interrupted mount may have
/// used one already.
pub const MOUNT_SEGMENTS: u32 = 3;

const _: () = assert!(BUFFERED_BLOCKS_MAX as u64 >= 4 * REQUEST_BLOCKS_MAX, "a request always fits an empty buffer");
const _: () = assert!(MEMBERS_MAX <= 16, "a member has 4 bits of an address");
const _: () = assert!(RELOCATION_SEGMENTS >= 2, "one to write to while another one is reset");
const _: () = assert!(
    2 * REQUEST_BLOCKS_MAX as usize + TOMBSTONES_IN_FLIGHT_MAX <= BUFFERED_BLOCKS_MAX,
    "trims leave space for writes"
);
const _: () =
    assert!(4 * zonda_zoned::limits::DEALLOCATE_RANGES_MAX < TRIM_RANGES_MAX, "a trim fits when few ranges are left");
const _: () =
    assert!(MOUNT_SEGMENTS > RELOCATION_SEGMENTS, "a mount relocates, and so did one before that was cut short");
const _: () = assert!(STALL_WINDOW_SECONDS < u64::BITS, "a bit is kept for each second of the window");
const _: () = assert!(STALLED_SECONDS_MAX < STALL_WINDOW_SECONDS && STALL_MIN.0 <= 1_000_000_000);
const _: () = assert!(
    RETURNS_WINDOW.0 / 1_000_000_000 >= RETURNS_MAX as u64 * 2 * STALL_WINDOW_SECONDS as u64,
    "a member that fails as often as stalls can show it is known to flap"
);
const _: () = assert!(GROUP_STRIPES_MAX.is_power_of_two());
const _: () = assert!(PIECE_BLOCKS_MAX >= UNIT_BLOCKS_MAX * MEMBERS_MAX as u32, "a run has one stripe at least");
