//! Errors of creating, opening and checking an image, and their remedies.

use std::fmt;

use zonda_zoned::GeometryError;

use crate::{FileError, ImageFile};

/// Why an image was refused. `Display` prints the error and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The geometry to create is invalid.
    Geometry(GeometryError),
    /// Another part of the specification to create is invalid; what it must be.
    Spec(String),
    /// The files already exist.
    Exists,
    /// The superblock is not a superblock of an image.
    NotAnImage,
    /// The image has a format version that this program does not support.
    OtherVersion {
        /// The version in the superblock.
        found: u32,
    },
    /// Both copies of a structure are damaged, or its only copy.
    Damaged {
        /// In which file.
        file: ImageFile,
        /// What is damaged.
        what: String,
    },
    /// A file is shorter or longer than the superblock requires.
    Length {
        /// Which file.
        file: ImageFile,
        /// Its length in bytes.
        found: u64,
        /// Its required length.
        expected: u64,
    },
    /// A file belongs to another image.
    OtherImage {
        /// Which file.
        file: ImageFile,
    },
    /// A file operation failed.
    File {
        /// Which file.
        file: ImageFile,
        /// The operation, as a verb: "read".
        operation: &'static str,
        /// The error of the operating system.
        error: FileError,
    },
}

impl ImageError {
    /// The error, without its remedy.
    #[must_use]
    pub fn message(&self) -> String {
        let superblock = ImageFile::Superblock;
        match self {
            ImageError::Geometry(error) => format!("invalid geometry: {error}"),
            ImageError::Spec(words) => words.clone(),
            ImageError::Exists => format!("{superblock} already exists"),
            ImageError::NotAnImage => {
                format!("{superblock} is not the superblock of a zonda image, or creating the image was interrupted")
            }
            ImageError::OtherVersion { found } => format!(
                "the image has format version {found}, and this program supports versions up to {}",
                crate::format::VERSION
            ),
            ImageError::Damaged { file, what } => format!("{file}: {what}"),
            ImageError::Length { file, found: 0, .. } => format!("{file} is missing or empty"),
            ImageError::Length { file, found, expected } => {
                format!(
                    "{file} is {found} bytes long and must be {expected}: it was truncated, or belongs to another image"
                )
            }
            ImageError::OtherImage { file } => format!("{file} does not belong to the same image as {superblock}"),
            ImageError::File { file, operation, error } => format!("cannot {operation} {file}: {error}"),
        }
    }

    /// The remedy, where there is one that the message does not imply.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            ImageError::Geometry(_) | ImageError::Spec(_) | ImageError::File { .. } => None,
            ImageError::Exists => Some("remove the image's files, or choose another directory"),
            ImageError::NotAnImage => Some(
                "check the path; restore the whole directory from a backup: without a superblock the image can be neither read nor \
                 repaired; if the drive held no data, remove the directory and create the drive again",
            ),
            ImageError::OtherVersion { .. } => Some("use the version of zonda that wrote it"),
            // Without it the contents of the other files cannot be interpreted.
            ImageError::Damaged { file: ImageFile::Superblock, .. }
            | ImageError::Length { file: ImageFile::Superblock, .. } => {
                Some("restore the whole image directory from a backup")
            }
            ImageError::Damaged { .. } | ImageError::Length { .. } => {
                Some("restore the image from a backup, or save what can be read: zonda drive repair DIR --to OTHER")
            }
            ImageError::OtherImage { .. } => Some("restore the files of one image to the directory"),
        }
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
    }
}

impl std::error::Error for ImageError {}

impl From<GeometryError> for ImageError {
    fn from(error: GeometryError) -> ImageError {
        ImageError::Geometry(error)
    }
}
