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

impl ImageError {
    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> String {
        let superblock = ImageFile::Superblock;
        match self {
            ImageError::Geometry(error) => format!("the geometry is not possible: {error}"),
            ImageError::Spec(words) => words.clone(),
            ImageError::Exists => format!("{superblock} is there already"),
            ImageError::NotAnImage => {
                format!("{superblock} is not the superblock of a zonda image, or its creation was not finished")
            }
            ImageError::OtherVersion { found } => format!(
                "the image is of format version {found}, and this program reads versions up to {}",
                crate::format::VERSION
            ),
            ImageError::Damaged { file, what } => format!("{file}: {what}"),
            ImageError::Length { file, found: 0, .. } => format!("{file} is missing or empty"),
            ImageError::Length { file, found, expected } => {
                format!("{file} is {found} bytes long and must be {expected}: it was cut, or is of another image")
            }
            ImageError::OtherImage { file } => format!("{file} belongs to another image than {superblock}"),
            ImageError::File { file, doing, error } => format!("{file}: {doing}: {error}"),
        }
    }

    /// What to do about it, where there is more to say than the message does.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            ImageError::Geometry(_) | ImageError::Spec(_) | ImageError::File { .. } => None,
            ImageError::Exists => Some("remove the image's files, or choose another directory"),
            ImageError::NotAnImage => {
                Some("restore the file if the drive was in use; else remove the directory and create the drive again")
            }
            ImageError::OtherVersion { .. } => Some("use the zonda that made it"),
            // Without it nobody knows what the other files hold.
            ImageError::Damaged { file: ImageFile::Superblock, .. }
            | ImageError::Length { file: ImageFile::Superblock, .. } => {
                Some("bring the whole image directory back from a copy")
            }
            ImageError::Damaged { .. } | ImageError::Length { .. } => {
                Some("bring the image back from a copy, or save what can be read: zonda drive repair DIR --to OTHER")
            }
            ImageError::OtherImage { .. } => Some("bring the files of one image together again"),
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
