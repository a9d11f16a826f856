//! The files of an image, and their operations: blocking calls for the procedures, commands for the
//! machine.

use std::fmt;

use bytes::Bytes;

/// One of the five files of an image directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageFile {
    /// The superblock: written once, in two copies.
    Superblock,
    /// The checkpoint, in two copies.
    State,
    /// Records since the checkpoint.
    Journal,
    /// The blocks, sparse.
    Data,
    /// A checksum and the metadata of each block, sparse.
    Tags,
}

impl ImageFile {
    /// All of them.
    pub const ALL: [ImageFile; 5] =
        [ImageFile::Superblock, ImageFile::State, ImageFile::Journal, ImageFile::Data, ImageFile::Tags];

    /// The file's name in the image directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ImageFile::Superblock => "image.zonda",
            ImageFile::State => "state.zonda",
            ImageFile::Journal => "journal.zonda",
            ImageFile::Data => "data.zonda",
            ImageFile::Tags => "tags.zonda",
        }
    }
}

impl fmt::Display for ImageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a file operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// There is no such file.
    Missing,
    /// The file system is full, or a quota is used up (ENOSPC, EDQUOT).
    StorageFull,
    /// Any other error, as the operating system reports it.
    Other(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Missing => f.write_str("no such file"),
            FileError::StorageFull => f.write_str("the file system is full"),
            FileError::Other(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for FileError {}

/// Blocking access to the files of one image, for [`create`](crate::create), [`open`](crate::open),
/// [`inspect`](crate::inspect) and [`check`](crate::check).
///
/// A write creates a missing file. A read returns the data of every completed write.
pub trait Files {
    /// Fills `buffer` from `offset` on; returns the number of bytes read, fewer only at the end of
    /// the file.
    ///
    /// # Errors
    /// [`FileError::Missing`] without the file; else the error of the operating system.
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError>;
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// The error of the operating system; any part of the bytes may have been written then.
    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError>;
    /// Returns when everything written before would survive a loss of power.
    ///
    /// # Errors
    /// The error of the operating system.
    fn sync(&mut self, file: ImageFile) -> Result<(), FileError>;
    /// Truncates the file, or extends it with zeros that take no space.
    ///
    /// # Errors
    /// The error of the operating system.
    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError>;
    /// The file's length in bytes.
    ///
    /// # Errors
    /// [`FileError::Missing`] without the file; else the error of the operating system.
    fn length(&mut self, file: ImageFile) -> Result<u64, FileError>;
    /// Makes a range read as zeros, and frees its space where the file system can.
    ///
    /// # Errors
    /// The error of the operating system.
    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError>;
    /// The first offset from `offset` on at which the file may hold data other than zeros; `None`:
    /// nowhere. `offset` itself if this cannot be determined: it only saves reading holes.
    ///
    /// # Errors
    /// The error of the operating system.
    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        let _ = file;
        Ok(Some(offset))
    }
}

/// Identifies an outstanding [`FileCommand`] until
/// [`Image::on_completion`](crate::Image::on_completion).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileCommandId(pub u64);

/// A file operation that the machine issues. Outstanding operations may be carried out in any
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCommand {
    /// Returned with the result; unique among the outstanding commands.
    pub id: FileCommandId,
    /// The operation.
    pub operation: FileOperation,
}

/// An operation on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Read exactly so many bytes; fewer count as an error of the read.
    Read {
        /// Which file.
        file: ImageFile,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: usize,
    },
    /// Write all pieces, one after the other.
    Write {
        /// Which file.
        file: ImageFile,
        /// First byte.
        offset: u64,
        /// What to write.
        pieces: Vec<Bytes>,
    },
    /// Make all data written before this command was issued durable (fdatasync).
    Sync {
        /// Which file.
        file: ImageFile,
    },
    /// Make a range read as zeros, and free its space where the file system can.
    PunchHole {
        /// Which file.
        file: ImageFile,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Allocate space for later writes of a range, without changing its contents (fallocate). Where
    /// the file system cannot, this succeeds and does nothing.
    Allocate {
        /// Which file.
        file: ImageFile,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

impl FileOperation {
    /// The file that it touches.
    #[must_use]
    pub fn file(&self) -> ImageFile {
        match self {
            FileOperation::Read { file, .. }
            | FileOperation::Write { file, .. }
            | FileOperation::Sync { file }
            | FileOperation::PunchHole { file, .. }
            | FileOperation::Allocate { file, .. } => *file,
        }
    }
}
