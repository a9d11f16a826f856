//! The files of an image, and what is asked of them: blocking for the procedures, as commands for the machine.

use std::fmt;

use bytes::Bytes;

/// One of the five files of an image directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageFile {
    /// What the drive is: written once, in two copies.
    Superblock,
    /// The checkpoint, in two copies.
    State,
    /// What happened since the checkpoint.
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
    /// Anything else, in the words of the system.
    Other(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Missing => f.write_str("there is no such file"),
            FileError::StorageFull => f.write_str("the file system is full"),
            FileError::Other(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for FileError {}

/// Blocking access to the files of one image, for [`create`](crate::create), [`open`](crate::open),
/// [`inspect`](crate::inspect) and [`check`](crate::check).
///
/// A file that is written and does not exist is made. What a completed write wrote, a later read returns.
pub trait Files {
    /// Fills `buffer` from `offset` on; returns how many bytes there were, fewer only at the end of the file.
    ///
    /// # Errors
    /// [`FileError::Missing`] without the file; else what the system said.
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError>;
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the system said; any part of the bytes may have been written then.
    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError>;
    /// Returns when everything written before would survive a loss of power.
    ///
    /// # Errors
    /// What the system said.
    fn sync(&mut self, file: ImageFile) -> Result<(), FileError>;
    /// Cuts the file, or lengthens it with zeros that take no space.
    ///
    /// # Errors
    /// What the system said.
    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError>;
    /// The file's length in bytes.
    ///
    /// # Errors
    /// [`FileError::Missing`] without the file; else what the system said.
    fn length(&mut self, file: ImageFile) -> Result<u64, FileError>;
    /// Makes a range read as zeros and gives its space back where the file system can.
    ///
    /// # Errors
    /// What the system said.
    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError>;
    /// The first offset from `offset` on at which the file may hold something other than zeros; `None`: nowhere. Without a way to
    /// find out that is `offset` itself: it saves reading holes.
    ///
    /// # Errors
    /// What the system said.
    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        let _ = file;
        Ok(Some(offset))
    }
}

/// Names a [`FileCommand`] until [`Image::on_file_done`](crate::Image::on_file_done).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A file operation that the machine asks for. Operations that are out at the same time may be done in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCommand {
    /// Comes back with the result; unique among the commands that are out.
    pub ticket: Ticket,
    /// What to do.
    pub operation: FileOperation,
}

/// What to do to a file.
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
    /// Write all pieces, one behind the other.
    Write {
        /// Which file.
        file: ImageFile,
        /// First byte.
        offset: u64,
        /// What to write.
        pieces: Vec<Bytes>,
    },
    /// Make everything that was written before this command was handed out survive a loss of power (fdatasync).
    Sync {
        /// Which file.
        file: ImageFile,
    },
    /// Make a range read as zeros, and give its space back where the file system can.
    PunchHole {
        /// Which file.
        file: ImageFile,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// See to it that later writes of a range find space, without changing what it reads as (fallocate). Where the file system cannot,
    /// this succeeds and does nothing.
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
