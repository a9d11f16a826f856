//! What comes out of a file store.

use bytes::Bytes;

use crate::FileError;

/// A file, for as long as the store is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// What the caller calls a request; comes back with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Data to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileData {
    /// These bytes.
    Bytes(Bytes),
    /// So many bytes that nobody will look at, for a store that keeps [`PayloadKind::None`](zonda_zoned::PayloadKind::None).
    Length(u64),
}

/// What a request brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    #[default]
    None,
    /// What a read found; shorter than was asked for at the end of the file.
    Data(Bytes),
    /// How many bytes a read found, in a store that keeps no contents.
    Length(u64),
}

/// News from a file store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The store is formatted or mounted, and takes requests.
    Ready,
    /// Formatting or mounting failed, or the metadata can no longer be written. In the first case every request ends with
    /// an error; in the second, every request that would change something.
    Failed(FileError),
    /// A request has ended.
    Done {
        /// Whose.
        request: RequestId,
        /// How.
        result: Result<Outcome, FileError>,
    },
}

impl FileData {
    /// How many bytes these are.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self {
            FileData::Bytes(bytes) => bytes.len() as u64,
            FileData::Length(bytes) => *bytes,
        }
    }
}
