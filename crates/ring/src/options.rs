//! Options of a ring.

use zonda_zoned::Duration;

use crate::limits;

/// The kernel interface of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring for everything. Needs Linux 5.11 (`IORING_FEAT_EXT_ARG`); uses more where a later
    /// kernel has it.
    IoUring,
    /// epoll for sockets, a pool of threads for files. Runs wherever Linux runs.
    Epoll,
}

/// Options of a ring; `RingOptions::default()` suits a server.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Entries of the submission queue, 1 to [`limits::ENTRIES_MAX`]; more operations than this may
    /// be outstanding.
    pub entries: u32,
    /// The backend, or `None` for io_uring where it is allowed and epoll elsewhere.
    pub backend: Option<Backend>,
    /// How long an iteration polls for completions at most before it sleeps (io_uring only). It
    /// polls while waits are that short, and stops when they are not: completions arrive without a
    /// wake-up, and an idle ring costs no CPU time. Zero never polls; a machine with one CPU never
    /// does.
    pub spin: Duration,
    /// Threads for file operations of the epoll backend, 1 to [`limits::FILE_THREADS_MAX`];
    /// io_uring has none.
    pub file_threads: usize,
    /// Memory for [`RegisteredBuffer`](crate::RegisteredBuffer)s at most, in bytes (io_uring only): at
    /// most [`limits::REGISTERED_BYTES_MAX`]; none if it is less than
    /// [`limits::REGISTERED_BYTES_MIN`]. It is mapped and pinned when the first is requested.
    pub registered_bytes: usize,
}

impl Default for RingOptions {
    fn default() -> RingOptions {
        RingOptions {
            entries: limits::ENTRIES_DEFAULT,
            backend: None,
            spin: limits::SPIN_DEFAULT,
            file_threads: limits::FILE_THREADS_DEFAULT,
            registered_bytes: limits::REGISTERED_BYTES_DEFAULT,
        }
    }
}

impl RingOptions {
    /// The default options on `backend`.
    #[must_use]
    pub fn on(backend: Backend) -> RingOptions {
        RingOptions { backend: Some(backend), ..RingOptions::default() }
    }
}
