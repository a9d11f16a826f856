//! Files, with the blocking calls that a program makes before its loop runs.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::work::{FileStep, FileWork};

/// A regular file or a block device, read and written at offsets. Dropping it closes it, once no
/// operation uses it any more.
///
/// Its own methods block. They are for the time before and after the loop; inside,
/// [`crate::Operation`] does the same.
#[derive(Debug)]
pub struct File {
    fd: Arc<OwnedFd>,
}

/// How to open a file: `FileOptions::read_only()`, `FileOptions::read_write()`, and more by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Create it if it is missing, with mode 0600.
    pub create: bool,
    /// Fail if the file exists (with `create`), or if the block device is mounted or otherwise in
    /// use.
    pub exclusive: bool,
    /// Bypass the page cache (`O_DIRECT`): offsets, lengths and addresses of buffers are multiples of
    /// what the device requires.
    pub direct: bool,
}

impl FileOptions {
    /// For reading.
    #[must_use]
    pub fn read_only() -> FileOptions {
        FileOptions { read: true, ..FileOptions::default() }
    }

    /// For reading and writing; the file exists.
    #[must_use]
    pub fn read_write() -> FileOptions {
        FileOptions { read: true, write: true, ..FileOptions::default() }
    }

    /// For reading and writing; the file must not exist, and is created.
    #[must_use]
    pub fn create_new() -> FileOptions {
        FileOptions { create: true, exclusive: true, ..FileOptions::read_write() }
    }
}

impl File {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// `InvalidInput` when the options ask for neither reading nor writing, or the path is a pipe,
    /// which has no offsets and for whose other end an open would wait; otherwise the error of
    /// `open(2)`: `NotFound`, `AlreadyExists`, `PermissionDenied`, ...
    pub fn open(path: &Path, options: FileOptions) -> io::Result<File> {
        let mut flags = OFlags::CLOEXEC
            | OFlags::NONBLOCK
            | match (options.read, options.write) {
                (true, true) => OFlags::RDWR,
                (true, false) => OFlags::RDONLY,
                (false, true) => OFlags::WRONLY,
                (false, false) => return Err(ErrorKind::InvalidInput.into()),
            };
        flags.set(OFlags::CREATE, options.create);
        flags.set(OFlags::EXCL, options.exclusive);
        flags.set(OFlags::DIRECT, options.direct);
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) == FileType::Fifo {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is a pipe, not a file"));
        }
        // The flag was for the open alone: with it, io_uring would fail operations that have to
        // wait with EAGAIN.
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? - OFlags::NONBLOCK)?;
        Ok(File { fd: Arc::new(fd) })
    }

    /// Tries to take the exclusive advisory lock on the whole file (`flock`); `false` when another
    /// process holds it. The lock is released with the last use of this `File`, at the latest when
    /// the process exits.
    ///
    /// # Errors
    /// The error of `flock(2)`, for instance on a file system without locks.
    pub fn lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&*self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Length in bytes, of a file or a block device.
    ///
    /// # Errors
    /// The error of `lseek(2)`, such as `NotSeekable`.
    pub fn length(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&*self.fd, SeekFrom::End(0))?)
    }

    /// Truncates the file, or extends it with a hole. Blocks.
    ///
    /// # Errors
    /// The error of `ftruncate(2)`: `FileTooLarge`, `StorageFull`, ...
    pub fn set_length(&self, length: u64) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&*self.fd, length))?)
    }

    /// Fills `buffer` from `offset`, and returns the number of bytes: fewer only at the end of the
    /// file. Blocks.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::pread(&*self.fd, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    /// Writes all of `content` at `offset`. Blocks.
    ///
    /// # Errors
    /// The error of `pwrite(2)`, after an unknown part was written; a full disk is `StorageFull`.
    pub fn write_at(&self, content: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0;
        while written < content.len() {
            match rustix::io::pwrite(&*self.fd, &content[written..], offset + written as u64) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Makes a range read as zeros and frees its space where the file system can; the length stays.
    /// Blocks.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        FileWork::new(self.share(), FileStep::Punch { offset, length }).run().map(|_| ())
    }

    /// The first offset at or after `offset` that is not in a hole, or `None`. Where the file
    /// system does not support it, `offset` itself if it is within the file. Blocks.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&*self.fd, SeekFrom::Data(offset)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((offset < self.length()?).then_some(offset)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the file durable (`fsync`). Blocks.
    ///
    /// # Errors
    /// The error of `fsync(2)`. Earlier writes may then be lost: a retry that succeeds proves
    /// nothing.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&*self.fd))?)
    }

    /// Makes the names in a directory durable, such as that of a new file (`fsync`). Blocks.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn sync_directory(path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&directory))?)
    }

    /// Another handle of the same open file, for a thread that makes blocking calls.
    #[must_use]
    pub fn another(&self) -> File {
        File { fd: self.share() }
    }

    pub(crate) fn fd_number(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&*self.fd)
    }

    pub(crate) fn share(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
