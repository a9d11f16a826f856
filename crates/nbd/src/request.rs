//! Requests as the caller gets them, and what it answers.

use bytes::Bytes;

use crate::error::CloseReason;
use crate::export::ExportIndex;

/// A request of one connection, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Something to do, until [`crate::Connection::reply`]. In any order, but see [`Operation::Flush`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// What is to be done with the connection's export.
    pub operation: Operation,
}

/// What is to be done. Offsets and lengths are bytes, within the export, multiples of its minimum block size unless it
/// takes unaligned requests; lengths are not zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Answered with [`Reply::Read`].
    Read {
        /// From here.
        offset: u64,
        /// At most the export's maximum block size.
        length: u32,
    },
    /// Answered with [`Reply::Done`].
    Write {
        /// To here.
        offset: u64,
        /// At most the export's maximum block size.
        data: Bytes,
        /// Durable before the reply.
        fua: bool,
    },
    /// Whatever has been answered before this came is to be durable. Answered with [`Reply::Done`].
    Flush,
    /// What is there may be forgotten; or not. Answered with [`Reply::Done`].
    Trim {
        /// From here.
        offset: u64,
        /// Up to 4 GiB: no data goes with it, so that the maximum block size does not hold.
        length: u32,
        /// Durable before the reply.
        fua: bool,
    },
    /// What is there is to be zeros. Answered with [`Reply::Done`].
    WriteZeroes {
        /// From here.
        offset: u64,
        /// Up to 4 GiB: no data goes with it, so that the maximum block size does not hold.
        length: u32,
        /// Durable before the reply.
        fua: bool,
        /// Whether the range may be released, so that writing it again can find the device full.
        may_trim: bool,
        /// Whether [`crate::NbdError::NotSupported`] is the answer where this would take as long as writing the zeros.
        /// Only of exports with `fast_zero`.
        fast: bool,
    },
    /// Answered with [`Reply::Status`].
    BlockStatus {
        /// From here.
        offset: u64,
        /// So far as the client is interested.
        length: u32,
        /// Whether it wants one extent.
        one: bool,
    },
}

/// A request that succeeded, all of it or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It has been done.
    Done,
    /// What was read, from front to back, all of the length asked for.
    Read(Vec<ReadPiece>),
    /// What is allocated, from the offset on: at least one extent. They may cover less than was asked for, or more; lengths
    /// are multiples of the export's minimum block size, unless it takes unaligned requests.
    Status(Vec<Extent>),
}

/// A part of what was read; not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPiece {
    /// Data, which is sent without being copied.
    Data(Bytes),
    /// Zeros that need not be sent.
    Hole {
        /// Bytes.
        length: u32,
    },
    /// Nothing: this part could not be read. A client that does not use structured replies learns of the error alone.
    Failed {
        /// Bytes.
        length: u32,
        /// Why.
        error: crate::NbdError,
    },
}

/// A stretch of an export in one state (section "base:allocation metadata context").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, not zero.
    pub length: u64,
    /// Not allocated: writing it can find the device full.
    pub is_hole: bool,
    /// Reads as zeros.
    pub is_zero: bool,
}

/// Something the caller has to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send these bytes behind those sent before; bytes that have left are told with [`crate::Connection::sent`].
    Send(Vec<Bytes>),
    /// Send what is still to be sent, then go on in TLS, as its server. The next bytes that the connection is given are
    /// decrypted, and what it sends is to be encrypted.
    StartTls,
    /// The client has chosen this export; its requests follow.
    Open(ExportIndex),
    /// Do this.
    Request(Request),
    /// Send what is still to be sent, then close the socket. Nothing more comes of this connection, and nothing that it
    /// is told has an effect. Requests that have no reply yet need none.
    Close(CloseReason),
}

impl Reply {
    /// What was read, all of it data.
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
