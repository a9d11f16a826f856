//! Named bounds of the loop, each with its source.

use zonda_zoned::Duration;

/// Operations outstanding on one ring. Beyond it `submit` panics: every caller has a bounded table
/// of its own, so more than this is a leak of operations, not load.
pub const OPERATIONS_MAX: usize = 1 << 18;
/// Pieces handed to the kernel in one call (`UIO_MAXIOV` of Linux).
pub const PIECES_PER_CALL: usize = 1024;
/// Bytes read in one call. The kernel stops at 2^31 - 4096 by itself; the operation continues where
/// the call ended.
pub const BYTES_PER_CALL: usize = 1 << 30;
/// Default number of entries of the submission queue.
pub const ENTRIES_DEFAULT: u32 = 256;
/// Entries of the submission queue at most (`IORING_MAX_ENTRIES` of Linux).
pub const ENTRIES_MAX: u32 = 32_768;
/// Completions that the queue holds for each submission entry. When it is full the kernel keeps the
/// rest (`IORING_FEAT_NODROP`).
pub const COMPLETIONS_PER_ENTRY: u32 = 4;
/// Default time that a wait polls before it sleeps: twice what a wake-up costs on a virtual CPU.
pub const SPIN_DEFAULT: Duration = Duration::from_micros(50);
/// The longest time that it makes sense to poll.
pub const SPIN_MAX: Duration = Duration::from_micros(10_000);
/// Default number of threads for file operations of the epoll backend.
pub const FILE_THREADS_DEFAULT: usize = 4;
/// Threads for file operations of the epoll backend at most.
pub const FILE_THREADS_MAX: usize = 256;
/// Events taken from epoll in one call.
pub const EVENTS_PER_WAIT: usize = 256;
/// Connections that the kernel keeps ready for a listener (`SOMAXCONN` of Linux since 5.4 is 4096;
/// the smaller one counts).
pub const BACKLOG: i32 = 4096;
/// Bytes of the zeros that stand in for a hole, written piece by piece.
pub const ZEROS_BYTES: usize = 64 << 10;
/// Bytes of registered buffers of one ring, by default. They are pinned when the first is used, and a
/// server takes them from its memory budget. 64 reads of 128 KiB, and more of fewer bytes, have one.
pub const REGISTERED_BYTES_DEFAULT: usize = 32 << 20;
/// Bytes of registered buffers of one ring at most.
pub const REGISTERED_BYTES_MAX: usize = 64 << 20;
/// The least that is worth registering: half of what users other than root may lock by default
/// (`RLIMIT_MEMLOCK`, 8 MiB since Linux 5.16).
pub const REGISTERED_BYTES_MIN: usize = 4 << 20;
/// Sizes of registered buffers. Each has an equal part of them.
pub const REGISTERED_SLOT_BYTES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 128 << 10];
/// The longest single sleep. An iteration that waits longer sleeps again; this keeps sums of times
/// far from the kernel's limits.
pub const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long dropping a ring waits for cancelled operations before it leaks their memory.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

const _: () = assert!(BYTES_PER_CALL <= i32::MAX as usize, "results of the kernel are i32");
const _: () = assert!(REGISTERED_BYTES_MAX <= 1 << 30, "io_uring registers at most a GiB as one buffer");
const _: () = assert!(
    REGISTERED_BYTES_MIN.is_power_of_two()
        && REGISTERED_BYTES_MIN <= REGISTERED_BYTES_DEFAULT
        && REGISTERED_BYTES_DEFAULT <= REGISTERED_BYTES_MAX
);
const _: () = assert!(
    (REGISTERED_BYTES_MIN / REGISTERED_SLOT_BYTES.len()).is_multiple_of(REGISTERED_SLOT_BYTES[3]),
    "the part of each size consists of whole buffers"
);
const _: () = assert!(ENTRIES_DEFAULT <= ENTRIES_MAX && FILE_THREADS_DEFAULT <= FILE_THREADS_MAX);
