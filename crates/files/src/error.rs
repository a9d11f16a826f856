//! Why a request or a store failed, and what to do about it.

use std::fmt;

use zonda_zoned::Status;

use crate::limits::{FILES_MAX, NAME_BYTES_MAX, REQUESTS_MAX};

/// Why something failed. `Display` says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// No file has this name or number, or it was deleted meanwhile.
    NoSuchFile,
    /// A file of this name is there.
    Exists,
    /// The file was closed and takes no more data.
    NotOpen,
    /// No zone can take more data.
    NoSpace,
    /// The metadata zones have no room for more files.
    TooManyFiles,
    /// Too many requests have not ended.
    TooManyRequests,
    /// A name is empty or too long.
    NameTooLong,
    /// A field of the configuration, or the drive, does not suit; what it must be.
    Config(String),
    /// The store is not mounted yet, or its mount failed.
    NotReady,
    /// The drive refused or failed a command.
    Media {
        /// How the command ended.
        status: Status,
        /// What the command was for.
        what: &'static str,
    },
    /// The metadata zones have no superblock.
    NotAFileStore,
    /// The store is of a version that this program does not know.
    OtherVersion {
        /// The version in the superblock.
        found: u32,
    },
    /// What the metadata say cannot be; what is wrong.
    Corrupt(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::NoSuchFile => f.write_str("there is no such file: look it up again, it may have been deleted"),
            FileError::Exists => f.write_str("there is a file of this name: delete it first, or choose another name"),
            FileError::NotOpen => f.write_str("the file is closed for writing: write a new file and rename it"),
            FileError::NoSpace => f.write_str("no zone has room for more data: delete files and try again"),
            FileError::TooManyFiles => write!(
                f,
                "the metadata zones have no room for another file or a longer name (at most {FILES_MAX} files): delete \
                 files"
            ),
            FileError::TooManyRequests => {
                write!(f, "{REQUESTS_MAX} requests are under way: wait for some to end and try again")
            }
            FileError::NameTooLong => write!(f, "a name has 1 to {NAME_BYTES_MAX} bytes: choose another one"),
            FileError::Config(words) => f.write_str(words),
            FileError::NotReady => {
                f.write_str("the store is not ready: wait for Event::Ready, or see to what Event::Failed said")
            }
            FileError::Media { status, what } => {
                write!(f, "{what}: the drive says: {status}: look at the drive's health, and copy the files off it")
            }
            FileError::NotAFileStore => {
                f.write_str("the drive holds no file store: format it, or check that it is the right drive")
            }
            FileError::OtherVersion { found } => write!(
                f,
                "the file store is of format version {found}, and this program knows version {}: use the program that \
                 made it",
                crate::VERSION
            ),
            FileError::Corrupt(words) => {
                write!(f, "the file store is damaged: {words}: bring the drive back from a copy, or format it")
            }
        }
    }
}

impl std::error::Error for FileError {}
