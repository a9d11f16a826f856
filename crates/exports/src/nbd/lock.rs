//! The lock file of a Unix socket. It distinguishes a running server from a killed one.
//!
//! The socket itself cannot: the kernel closes the sockets that a killed server's io_uring used
//! only after the process has been reaped, and until then connections to them succeed. The lock's
//! file is never given to a ring, so the kernel releases the lock before the process has ended.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The suffix added to the name of a socket.
const SUFFIX: &str = ".lock";

/// The exclusive lock of one socket. Dropped, it is released, and its file removed.
#[derive(Debug)]
pub(crate) struct SocketLock {
    path: PathBuf,
    file: File,
}

impl SocketLock {
    /// The file of a socket's lock.
    pub(crate) fn path_for(socket: &Path) -> PathBuf {
        let mut name = socket.as_os_str().to_owned();
        name.push(SUFFIX);
        name.into()
    }

    /// Acquires the lock; `None` while another server holds it.
    ///
    /// # Errors
    /// When the file cannot be created or locked.
    pub(crate) fn acquire(socket: &Path) -> io::Result<Option<SocketLock>> {
        let path = SocketLock::path_for(socket);
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            // In a world-writable directory, a symbolic link must not cause a file to be created
            // elsewhere.
            let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let lock = SocketLock { path: path.clone(), file };
            // An owner removes the file when it stops: a lock of a removed file excludes no other
            // server.
            if lock.is_in_place() {
                return Ok(Some(lock));
            }
        }
    }

    /// Whether the path still names the file that is locked.
    fn is_in_place(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(ours), Ok(found)) => identity(ours) == identity(found),
            _ => false,
        }
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        if self.is_in_place() {
            // A file that is left is locked by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_lock_has_one_owner_and_is_free_once_that_has_released_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("nbd.sock");
        let first = SocketLock::acquire(&socket).expect("it can be created").expect("it is free");
        assert!(SocketLock::acquire(&socket).expect("it can be opened").is_none(), "the first owner still holds it");
        drop(first);
        assert!(!SocketLock::path_for(&socket).exists(), "the file is removed with its owner");
        assert!(SocketLock::acquire(&socket).expect("it can be created").is_some());
    }

    #[test]
    fn the_file_that_a_killed_owner_left_is_locked_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("nbd.sock");
        fs::write(SocketLock::path_for(&socket), "").expect("it can be written");
        let lock = SocketLock::acquire(&socket).expect("it can be opened").expect("it is free");
        assert!(SocketLock::acquire(&socket).expect("it can be opened").is_none());
        drop(lock);
    }

    #[test]
    fn an_owner_whose_file_was_removed_leaves_the_next_owners_file_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("nbd.sock");
        let first = SocketLock::acquire(&socket).expect("it can be created").expect("it is free");
        fs::remove_file(SocketLock::path_for(&socket)).expect("a user removes it");
        let second = SocketLock::acquire(&socket).expect("it can be created").expect("this one is free");
        drop(first);
        assert!(second.is_in_place());
        assert!(SocketLock::acquire(&socket).expect("it can be opened").is_none());
    }

    #[test]
    fn concurrent_owners_exclude_each_other() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("nbd.sock");
        let (owners, acquired) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Some(lock) = SocketLock::acquire(&socket).expect("it can be created") else { continue };
                        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0, "another owner");
                        acquired.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        owners.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(acquired.load(Ordering::SeqCst) > 0);
    }

    #[test]
    fn a_symbolic_link_in_place_of_the_lock_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (socket, elsewhere) = (directory.path().join("nbd.sock"), directory.path().join("elsewhere"));
        symlink(&elsewhere, SocketLock::path_for(&socket)).expect("it can be made");
        assert!(SocketLock::acquire(&socket).is_err());
        assert!(!elsewhere.exists());
    }
}
