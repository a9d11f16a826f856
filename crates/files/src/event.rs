//! The events of a file store.

use bytes::Bytes;

use crate::FileError;

/// A file, for as long as the store is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// The caller's identifier of a request, returned with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Data to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileData {
    /// These bytes.
    Bytes(Bytes),
    /// A number of bytes without contents, for a store that keeps
    /// [`PayloadKind::None`](zonda_zoned::PayloadKind::None).
    Length(u64),
}

/// The result of a successful request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    #[default]
    None,
    /// The data of a read; shorter than requested at the end of the file.
    Data(Bytes),
    /// The number of bytes of a read, in a store that keeps no contents.
    Length(u64),
}

/// An event of a file store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The store is formatted or mounted, and accepts requests.
    Ready,
    /// Formatting or mounting failed, or the metadata can no longer be written. In the first case
    /// every request fails; in the second, every request that would change something.
    Failed(FileError),
    /// A request has ended.
    Done {
        /// The request.
        request: RequestId,
        /// Its result.
        result: Result<Outcome, FileError>,
    },
}

impl FileData {
    /// The number of bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self {
            FileData::Bytes(bytes) => bytes.len() as u64,
            FileData::Length(bytes) => *bytes,
        }
    }
}
