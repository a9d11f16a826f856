//! Files, with what a program does to them before its loop runs.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::work::{FileStep, FileWork};

/// A regular file or a block device, read and written at offsets. Dropping it closes it, once no operation uses it any more.
///
/// Its own methods block. They are for the time before and after the loop; inside, [`crate::Operation`] does the same.
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
    /// Make it when it is missing; only its owner may open it (mode 0600).
    pub create: bool,
    /// Refuse one that exists (with `create`), or a block device that is mounted or otherwise in use.
    pub exclusive: bool,
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

    /// For reading and writing; the file must not exist, and is made.
    #[must_use]
    pub fn create_new() -> FileOptions {
        FileOptions { create: true, exclusive: true, ..FileOptions::read_write() }
    }
}

impl File {
    /// Opens or makes a file.
    ///
    /// # Errors
    /// `InvalidInput` when the options ask for neither reading nor writing, or the path is a pipe, which has no offsets and for whose
    /// other end an open would wait; otherwise what the system says: `NotFound`, `AlreadyExists`, `PermissionDenied`, ...
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
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
        if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) == FileType::Fifo {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is a pipe, and not a file"));
        }
        // The flag was for the open alone: with it, io_uring would end operations that have to wait with EAGAIN.
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? - OFlags::NONBLOCK)?;
        Ok(File { fd: Arc::new(fd) })
    }

    /// Tries for the exclusive advisory lock on the whole file (`flock`); `false` when somebody else has it. The lock goes with the
    /// last use of this `File`, at the latest with the process.
    ///
    /// # Errors
    /// What the system says, such as file systems without locks.
    pub fn lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&*self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Length in bytes, of a file as of a block device.
    ///
    /// # Errors
    /// What the system says, such as `NotSeekable`.
    pub fn length(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&*self.fd, SeekFrom::End(0))?)
    }

    /// Cuts the file, or makes it longer with zeros that take no space. Blocks.
    ///
    /// # Errors
    /// What the system says: `FileTooLarge`, `StorageFull`, ...
    pub fn set_length(&self, length: u64) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&*self.fd, length))?)
    }

    /// Fills `buffer` from `offset`, and says how many bytes there were: fewer only at the end of the file. Blocks.
    ///
    /// # Errors
    /// What the system says.
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
    /// What the system says, after an unknown part was written; a full disk is `StorageFull`.
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

    /// Makes a range read as zeros and gives its space back where the file system can; the length stays. Blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        FileWork::new(self.share(), FileStep::Punch { offset, length }).run().map(|_| ())
    }

    /// The first offset from `offset` on that is not in a hole; `None`: there is none. Where the file system does not say, `offset`
    /// itself, as long as the file reaches so far. Blocks.
    ///
    /// # Errors
    /// What the system says.
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
    /// What the system says. What was written before may be lost then: do not try again and believe the answer.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&*self.fd))?)
    }

    /// Makes the names in a directory durable, such as that of a file just made. Blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync_directory(path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&directory))?)
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
