//! Limits of the process: the signal of file size limits, and the number of open files.

use std::io;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Makes a write beyond the limit on the size of files (`RLIMIT_FSIZE`) fail with `EFBIG`, like one
/// on a full file system. Without a handler `SIGXFSZ` ends the program. The handler stays after the
/// runtime that installed it has ended.
///
/// # Errors
/// If it cannot be installed.
pub(crate) fn survive_file_size_limits() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

/// Raises the soft limit on open files, often 1024, to the hard limit: each drive has several, and each
/// connection of a server is one.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, fewer drives can be opened, and a server has fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
