//! [`OpenDirectory`]: an open directory, whose lock and writes follow it when it is renamed.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fsync, open, openat, renameat};
use rustix::io::{Errno, retry_on_intr};

/// An open directory. Its lock is released when it is dropped, or with the process.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    fd: OwnedFd,
}

impl OpenDirectory {
    pub(crate) fn open(path: &Path) -> io::Result<OpenDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(OpenDirectory { fd: retry_on_intr(|| open(path, flags, Mode::empty()))? })
    }

    /// Tries to acquire an exclusive lock on the directory; `false` if another program holds it.
    /// Always `true` on file systems that do not support locks on directories (NFS).
    pub(crate) fn lock(&self) -> bool {
        !matches!(retry_on_intr(|| flock(&self.fd, FlockOperation::NonBlockingLockExclusive)), Err(Errno::WOULDBLOCK))
    }

    /// Replaces a file atomically: after a crash either the old or the new one exists. `new` is its
    /// name until it is durable.
    pub(crate) fn replace(&self, name: &str, new: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let mut file = File::from(retry_on_intr(|| openat(&self.fd, new, flags, Mode::from_raw_mode(0o666)))?);
        file.write_all(content)?;
        file.sync_all()?;
        renameat(&self.fd, new, &self.fd, name)?;
        Ok(retry_on_intr(|| fsync(&self.fd))?)
    }
}
