//! Why an image cannot be made, opened or checked, and what to do about it.

use std::fmt;

use zonda_zoned::GeometryError;

use crate::{FileError, ImageFile};

/// Why an image was refused. `Display` says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The geometry to create cannot exist.
    Geometry(GeometryError),
    /// Another part of the specification to create cannot be; what it must be.
    Spec(String),
    /// The files are there already.
    Exists,
    /// The superblock is not that of an image.
    NotAnImage,
    /// The image is of a version that this program does not know.
    OtherVersion {
        /// The version in the superblock.
        found: u32,
    },
    /// Both copies of something are damaged, or the only one.
    Damaged {
        /// In which file.
        file: ImageFile,
        /// What is damaged.
        what: String,
    },
    /// A file is shorter or longer than the superblock says.
    Length {
        /// Which file.
        file: ImageFile,
        /// Its length in bytes.
        found: u64,
        /// What it must be.
        expected: u64,
    },
    /// A file belongs to another image.
    OtherImage {
        /// Which file.
        file: ImageFile,
    },
    /// The system could not do what was asked.
    File {
        /// Which file.
        file: ImageFile,
        /// What was asked.
        doing: &'static str,
        /// What the system said.
        error: FileError,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Geometry(error) => write!(f, "the geometry is not possible: {error}"),
            ImageError::Spec(words) => f.write_str(words),
            ImageError::Exists => write!(
                f,
                "{} is there already: remove the image's files, or choose another directory",
                ImageFile::Superblock
            ),
            ImageError::NotAnImage => write!(
                f,
                "{} is not the superblock of a zonda image, or its creation was not finished: restore the file if the drive \
                 was in use; else remove the directory and create the drive again",
                ImageFile::Superblock
            ),
            ImageError::OtherVersion { found } => write!(
                f,
                "the image is of format version {found}, and this program knows version {}: use the zonda that made it",
                crate::format::VERSION
            ),
            ImageError::Damaged { file, what } => write!(
                f,
                "{file}: {what}: bring the whole image directory back from a copy; a check of it tells what else is lost"
            ),
            ImageError::Length { file, found, expected } => write!(
                f,
                "{file} is {found} bytes long and must be {expected}: the file was cut or is of another image; \
                 bring the whole image directory back from a copy"
            ),
            ImageError::OtherImage { file } => write!(
                f,
                "{file} belongs to another image than {}: bring the files of one image together again",
                ImageFile::Superblock
            ),
            ImageError::File { file, doing, error } => write!(f, "{file}: {doing}: {error}"),
        }
    }
}

impl std::error::Error for ImageError {}

impl From<GeometryError> for ImageError {
    fn from(error: GeometryError) -> ImageError {
        ImageError::Geometry(error)
    }
}
