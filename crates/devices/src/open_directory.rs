//! [`OpenDirectory`]: an open directory, whose lock and writes follow it when it is renamed; and
//! [`DirectoryLock`], the lock of a volume or a pool.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fsync, open, openat, renameat, unlinkat};
use rustix::io::{Errno, retry_on_intr};
use zonda_ring::FileOptions;

/// The lock file of a volume or a pool.
pub(crate) const LOCK_FILE: &str = "lock";

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

    /// Removes a file that is not needed. If this fails, it remains.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.fd, name, AtFlags::empty());
    }
}

/// The exclusive lock of the directory of a volume or a pool: that of a file, and that of the directory
/// itself, which remains if a user removes the file.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    /// Files are saved there, even if the path names another directory by then.
    pub(crate) directory: OpenDirectory,
    /// Absent if the directory is open read-only and has no lock file.
    _file: Option<zonda_ring::File>,
}

impl DirectoryLock {
    /// Acquires the lock of a directory, in which it creates the lock file; `None` if another program
    /// holds it.
    pub(crate) fn acquire(path: &Path) -> io::Result<Option<DirectoryLock>> {
        let options = FileOptions { create: true, ..FileOptions::read_write() };
        DirectoryLock::of(path, Some(zonda_ring::File::open(&path.join(LOCK_FILE), options)?))
    }

    /// The same without writing anything, not even a missing lock file.
    pub(crate) fn acquire_read_only(path: &Path) -> io::Result<Option<DirectoryLock>> {
        match zonda_ring::File::open(&path.join(LOCK_FILE), FileOptions::read_only()) {
            Ok(file) => DirectoryLock::of(path, Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => DirectoryLock::of(path, None),
            Err(error) => Err(error),
        }
    }

    fn of(path: &Path, file: Option<zonda_ring::File>) -> io::Result<Option<DirectoryLock>> {
        let directory = OpenDirectory::open(path)?;
        let is_file_locked = file.as_ref().map_or(Ok(true), zonda_ring::File::lock)?;
        Ok((is_file_locked && directory.lock()).then_some(DirectoryLock { directory, _file: file }))
    }
}
