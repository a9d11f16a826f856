//! The signal of file size limits.

use std::io;

use rustix::process::Signal;
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
