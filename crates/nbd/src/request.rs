//! Requests passed to the caller, and its replies.

use bytes::Bytes;

use crate::error::CloseReason;
use crate::export::ExportIndex;

/// The id of a request of one connection. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request, to be answered with [`crate::Connection::reply`]. In any order, but see
/// [`Operation::Flush`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// The operation on the connection's export.
    pub operation: Operation,
}

/// An operation. Offsets and lengths are in bytes, within the export, multiples of its minimum
/// block size unless it accepts unaligned requests; lengths are not zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Answered with [`Reply::Read`].
    Read {
        /// The offset.
        offset: u64,
        /// At most the export's maximum block size.
        length: u32,
    },
    /// Answered with [`Reply::Done`].
    Write {
        /// The offset.
        offset: u64,
        /// At most the export's maximum block size.
        data: Bytes,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make everything durable that was answered before this was received. Answered with
    /// [`Reply::Done`].
    Flush,
    /// The range may be discarded, or left alone. Answered with [`Reply::Done`].
    Trim {
        /// The offset.
        offset: u64,
        /// Up to 4 GiB: it carries no data, so the maximum block size does not apply.
        length: u32,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make the range read as zeros. Answered with [`Reply::Done`].
    WriteZeroes {
        /// The offset.
        offset: u64,
        /// Up to 4 GiB: it carries no data, so the maximum block size does not apply.
        length: u32,
        /// Durable before the reply.
        fua: bool,
        /// Whether the range may be released, so that writing it again can find the device full.
        may_trim: bool,
        /// Fail with [`crate::NbdError::NotSupported`] where this would take as long as writing
        /// zeros. Only of exports with `fast_zero`.
        fast: bool,
    },
    /// Answered with [`Reply::Status`].
    BlockStatus {
        /// The offset.
        offset: u64,
        /// The length in which the client is interested.
        length: u32,
        /// Whether the client wants only one extent.
        one: bool,
    },
}

/// The reply to a request that succeeded, as a whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request is complete.
    Done,
    /// The result of a READ, in order, for the whole length.
    Read(Vec<ReadPiece>),
    /// The allocation status from the offset on: at least one extent. They may cover less than
    /// requested, or more; lengths are multiples of the export's minimum block size, unless it
    /// accepts unaligned requests.
    Status(Vec<Extent>),
}

/// A part of the result of a READ; not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPiece {
    /// Data, which is sent without being copied.
    Data(Bytes),
    /// Zeros that need not be sent.
    Hole {
        /// Bytes.
        length: u32,
    },
    /// This part could not be read. A client that does not use structured replies receives only the
    /// error.
    Failed {
        /// Bytes.
        length: u32,
        /// The error.
        error: crate::NbdError,
    },
}

/// A range of an export in one state (section "base:allocation metadata context").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, not zero.
    pub length: u64,
    /// Not allocated: a write to it can fail because the device is full.
    pub is_hole: bool,
    /// Reads as zeros.
    pub is_zero: bool,
}

/// An action for the caller, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send these bytes after those sent before; report sent bytes with
    /// [`crate::Connection::on_sent`].
    Send(Vec<Bytes>),
    /// Send all queued bytes, then start TLS as the server. Bytes passed to the connection after
    /// that are decrypted, and bytes it sends are to be encrypted.
    StartTls,
    /// The client has chosen this export; its requests follow.
    Open(ExportIndex),
    /// Execute this request.
    Request(Request),
    /// Send all queued bytes, then close the socket. The connection emits no more effects, and
    /// ignores further events. Requests that have no reply yet need none.
    Close(CloseReason),
}

impl Reply {
    /// The reply to a READ with one piece of data.
    #[must_use]
    pub fn data(data: Bytes) -> Reply {
        Reply::Read(vec![ReadPiece::Data(data)])
    }
}

impl ReadPiece {
    /// Its bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            ReadPiece::Data(data) => data.len(),
            ReadPiece::Hole { length } | ReadPiece::Failed { length, .. } => *length as usize,
        }
    }
}
