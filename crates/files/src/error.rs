//! Errors of requests and stores, and their remedies.

use std::fmt;

use zonda_zoned::Status;

use crate::limits::{FILES_MAX, NAME_BYTES_MAX, REQUESTS_MAX};

/// Why a request or a store failed. `Display` prints the error and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// No file has this name or number, or it was deleted meanwhile.
    NoSuchFile,
    /// A file of this name exists.
    Exists,
    /// The file was closed and accepts no more data.
    NotOpen,
    /// No zone has space for more data.
    NoSpace,
    /// The metadata zones have no space for more files.
    TooManyFiles,
    /// Too many requests are outstanding.
    TooManyRequests,
    /// A name is empty or too long.
    NameTooLong,
    /// A field of the configuration, or the drive, is not suitable; what it must be.
    Config(String),
    /// The store is not mounted yet, or its mount failed.
    NotReady,
    /// The drive refused or failed a command.
    Media {
        /// The status of the command.
        status: Status,
        /// The purpose of the command.
        what: &'static str,
    },
    /// The metadata zones have no superblock.
    NotAFileStore,
    /// The store has a format version that this program does not support.
    OtherVersion {
        /// The version in the superblock.
        found: u32,
    },
    /// The metadata are inconsistent; how.
    Corrupt(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::NoSuchFile => f.write_str("no such file: look it up again, it may have been deleted"),
            FileError::Exists => {
                f.write_str("a file of this name already exists: delete it first, or choose another name")
            }
            FileError::NotOpen => f.write_str("the file is closed for writing: write a new file and rename it"),
            FileError::NoSpace => f.write_str("no space left in any zone: delete files and try again"),
            FileError::TooManyFiles => write!(
                f,
                "no space left in the metadata zones for another file or a longer name (at most {FILES_MAX} files): delete \
                 files"
            ),
            FileError::TooManyRequests => {
                write!(f, "{REQUESTS_MAX} requests are outstanding: wait for some to complete and try again")
            }
            FileError::NameTooLong => write!(f, "a name must have 1 to {NAME_BYTES_MAX} bytes: choose another name"),
            FileError::Config(words) => f.write_str(words),
            FileError::NotReady => {
                f.write_str("the store is not ready: wait for Event::Ready, or resolve the error in Event::Failed")
            }
            FileError::Media { status, what } => {
                write!(
                    f,
                    "{what} failed: the drive reports {status}: check the drive's health, and copy the files from it"
                )
            }
            FileError::NotAFileStore => {
                f.write_str("the drive has no file store: format it, or check that it is the right drive")
            }
            FileError::OtherVersion { found } => write!(
                f,
                "the file store has format version {found}, and this program supports version {}: use the program that \
                 made it",
                crate::VERSION
            ),
            FileError::Corrupt(words) => {
                write!(f, "the file store is damaged: {words}: restore the drive from a backup, or format it")
            }
        }
    }
}

impl std::error::Error for FileError {}
