//! Named bounds of volumes, and how they relate.

use zonda_zoned::Duration;

/// Members of a volume: data, parity and mirrors.
pub const MEMBERS_MAX: usize = 16;
/// Zones at the start of each member that hold the log of superblocks.
pub const METADATA_ZONES: u32 = 2;
/// Zones that a member may have active, at least, for its superblocks to go to both metadata zones: two for these, one for hosts, one
/// for relocation, and two that could not be reset.
pub const MIRRORED_LOG_ACTIVE_ZONES_MIN: u32 = 6;
/// Stripes of a group: more than any segment has.
pub const GROUP_STRIPES_MAX: u32 = 1 << 24;
/// Blocks of a chunk, the part of a stripe on one member.
pub const UNIT_BLOCKS_MAX: u32 = 256;
/// Segments that take writes of one kind at a time.
pub const OPEN_SEGMENTS_MAX: usize = 8;
/// Segments in the table: 24 bits of an address.
pub const SEGMENTS_MAX: usize = 1 << 24;
/// Blocks that one request of a host may name.
pub const REQUEST_BLOCKS_MAX: u64 = 256;
/// Requests of the host under way at once.
pub const REQUESTS_MAX: usize = 4096;
/// Blocks that wait in memory for their stripes, relocated ones not counted.
pub const BUFFERED_BLOCKS_MAX: usize = 16_384;
/// Blocks that a tombstone block trims at most, so that a long trim lets others in between.
pub const TOMBSTONE_BLOCKS_MAX: u64 = 65_536;
/// Commands that a member is given at once; the rest waits in the volume.
pub const MEMBER_COMMANDS_MAX: usize = 1024;
/// Times that blocks are written anew, each time to another segment, before their request fails.
pub const WRITE_ATTEMPTS_MAX: u8 = 8;
/// Times that a mount is begun anew because the last stripes could not be read.
pub const MOUNT_ATTEMPTS_MAX: u32 = 8;
/// Times that a mount reads a block before it counts as lost: an error that passes would make this mount and the next one decide
/// differently.
pub const READ_ATTEMPTS_MAX: u8 = 4;
/// Segments in a row in which a member fails until it is given up.
pub const MEMBER_FAILURES_MAX: u32 = 16;
/// Stripes of moved blocks that may wait while a scrub goes on.
pub const SCRUBBED_STRIPES_MAX: usize = 4;
/// Stripes of moved blocks that may wait while damaged blocks are rewritten one by one.
pub const REPAIRED_STRIPES_MAX: usize = 64;
/// Blocks that could not be read and wait to be read once more; more of them are found again.
pub const UNREADABLE_BLOCKS_MAX: usize = 16_384;
/// Blocks that a mount cannot identify and of which it keeps the places, to see whether markers name them; more of them only count.
pub const UNIDENTIFIED_PLACES_MAX: usize = 65_536;
/// Damaged blocks whose places are remembered until their segments are reset, so that none is counted twice; more of them count as repaired.
pub const DAMAGED_PLACES_MAX: usize = 1 << 20;
/// Blocks that are read once more at a time, to find out whether they are lost.
pub const CONFIRMED_BLOCKS_MAX: usize = 256;
/// Blocks that garbage collection holds in memory at once, or as many as three stripes have.
pub const RELOCATED_BLOCKS_MAX: usize = 512;
/// Stripes of moved blocks by which hosts may be ahead of garbage collection before they wait for it.
pub const HOST_LEAD_STRIPES: u32 = 4;
/// Blocks that are moved for each block of hosts, at most, however little that wins.
pub const MOVES_PER_BLOCK_MAX: i64 = 64;
/// Blocks of all members that a run of stripes has, which a rebuild or a scrub holds in memory.
pub const PIECE_BLOCKS_MAX: u32 = 4096;
/// Runs of stripes that a rebuild holds in memory at once: one is read while the one before it is written.
pub const REBUILD_PIECES_MAX: usize = 2;
/// Zones in a row that a rebuild fails to write before their member is given up.
pub const REBUILD_FAILURES_MAX: u32 = 8;
/// Times that a member that failed may be taken back within [`RETURNS_WINDOW`]; if it fails after that, it has failed for flapping.
pub const RETURNS_MAX: usize = 3;
/// See [`RETURNS_MAX`].
pub const RETURNS_WINDOW: Duration = Duration::from_secs(600);
/// A member stalls while it has commands in flight and has answered none of them for so long.
pub const STALL_MIN: Duration = Duration::from_secs(1);
/// Seconds over which stalls of a member are counted.
pub const STALL_WINDOW_SECONDS: u32 = 60;
/// A member that stalled in more of the last [`STALL_WINDOW_SECONDS`] has failed for flapping.
pub const STALLED_SECONDS_MAX: u32 = 30;
/// Zones of a member that comes back of which something is read at once.
pub const RETURNED_ZONES_IN_FLIGHT_MAX: usize = 32;
/// Zone descriptors that one command of a mount asks for.
pub const REPORT_ZONES_MAX: u32 = 1024;
/// Segments that only relocation may take, so that space can always be won back.
pub const RELOCATION_SEGMENTS: u32 = 2;
/// Stripes that have ended, and buffers of each use, that wait to be used again.
pub const SPARES_MAX: usize = 64;
/// Blocks of trims on their way at once, unless a volume is told otherwise; the rest of a longer one waits.
pub const TRIM_BLOCKS_MAX: u64 = 16 * TOMBSTONE_BLOCKS_MAX;
/// Turns in which as many blocks are looked at as may be on their way: others are not held up by a trim of blocks that hold nothing.
pub const TRIM_TURNS: u64 = 16;
/// Blocks of tombstones on their way at once, but for those that go before a write.
pub const TOMBSTONES_UNDER_WAY_MAX: usize = 256;
/// Ranges that are left of trims.
pub const TRIM_RANGES_MAX: usize = 65_536;
/// Blocks that are looked at to tell how far a hole goes.
pub const EXTENT_BLOCKS_MAX: u64 = 65_536;
/// Free segments that are left to the next mount: it moves what a crash has torn before it can win anything back, the blocks of one
/// segment at a time, which may take two; and a mount that a crash cuts short may have begun one already.
pub const MOUNT_SEGMENTS: u32 = 3;

const _: () = assert!(BUFFERED_BLOCKS_MAX as u64 >= 4 * REQUEST_BLOCKS_MAX, "a request always fits an empty buffer");
const _: () = assert!(MEMBERS_MAX <= 16, "a member has 4 bits of an address");
const _: () = assert!(RELOCATION_SEGMENTS >= 2, "one to write to while another one is being reset");
const _: () = assert!(
    2 * REQUEST_BLOCKS_MAX as usize + TOMBSTONES_UNDER_WAY_MAX <= BUFFERED_BLOCKS_MAX,
    "trims leave room for writes"
);
const _: () =
    assert!(4 * zonda_zoned::limits::DEALLOCATE_RANGES_MAX < TRIM_RANGES_MAX, "a trim fits when little else is left");
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
