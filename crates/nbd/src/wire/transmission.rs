//! Messages of transmission (sections "Transmission", "Request types", "Structured reply types",
//! "Error values").

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// NBD_REQUEST_MAGIC.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// NBD_SIMPLE_REPLY_MAGIC.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// NBD_STRUCTURED_REPLY_MAGIC.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Transmission flags: features of an export.
pub mod flags {
    /// The other flags are valid.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// [`super::command_flags::FUA`].
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES and [`super::command_flags::NO_HOLE`].
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// [`super::command_flags::DF`].
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection applies to all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// [`super::command_flags::FAST_ZERO`].
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of requests, NBD_CMD_*.
pub mod command {
    /// Data for the client.
    pub const READ: u16 = 0;
    /// Data from the client.
    pub const WRITE: u16 = 1;
    /// End the session when all requests have been answered.
    pub const DISC: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// The data of the range are no longer needed.
    pub const TRIM: u16 = 4;
    /// Prefetch; refused.
    pub const CACHE: u16 = 5;
    /// Write zeros, without transferring them.
    pub const WRITE_ZEROES: u16 = 6;
    /// The allocation status of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Command flags, NBD_CMD_FLAG_*.
pub mod command_flags {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Of WRITE_ZEROES: the range stays allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Of READ: one content chunk.
    pub const DF: u16 = 1 << 2;
    /// Of BLOCK_STATUS: one descriptor.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Of WRITE_ZEROES: fail where it would take as long as a write.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The flag of a chunk, NBD_REPLY_FLAG_DONE: the last of its reply.
pub const CHUNK_DONE: u16 = 1 << 0;

/// Types of chunks, NBD_REPLY_TYPE_*.
pub mod chunk {
    /// Nothing; the last.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeros at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Descriptors.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error of the whole request.
    pub const ERROR: u16 = (1 << 15) + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// Flags of a descriptor of `base:allocation`.
pub mod state {
    /// NBD_STATE_HOLE: not allocated.
    pub const HOLE: u32 = 1 << 0;
    /// NBD_STATE_ZERO: reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}

/// A request; that of a WRITE is followed by `length` bytes of data.
///
/// ```text
/// 0..4 25609513h   4..6 command flags   6..8 type   8..16 cookie   16..24 offset   24..28 length
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    /// [`REQUEST_MAGIC`].
    pub magic: U32,
    /// See [`command_flags`].
    pub flags: U16,
    /// See [`command`].
    pub command: U16,
    /// The client's identifier of the request, repeated in the reply.
    pub cookie: U64,
    /// Bytes from the export's start.
    pub offset: U64,
    /// Bytes.
    pub length: U32,
}

const _: () = assert!(size_of::<RequestHeader>() == 28);

/// A simple reply; that of a READ without error is followed by the data.
///
/// ```text
/// 0..4 67446698h   4..8 error   8..16 cookie
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SimpleReply {
    /// [`SIMPLE_REPLY_MAGIC`].
    pub magic: U32,
    /// An error value, or zero.
    pub error: U32,
    /// That of the request.
    pub cookie: U64,
}

const _: () = assert!(size_of::<SimpleReply>() == 16);

/// Before a chunk of a structured reply.
///
/// ```text
/// 0..4 668e33efh   4..6 flags   6..8 type   8..16 cookie   16..20 length of the payload
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChunkHeader {
    /// [`CHUNK_MAGIC`].
    pub magic: U32,
    /// [`CHUNK_DONE`] or zero.
    pub flags: U16,
    /// See [`chunk`].
    pub kind: U16,
    /// That of the request.
    pub cookie: U64,
    /// Bytes after this header.
    pub length: U32,
}

const _: () = assert!(size_of::<ChunkHeader>() == 20);

/// Payload of OFFSET_HOLE. That of OFFSET_DATA is an offset of 64 bits, then the data.
///
/// ```text
/// 0..8 offset   8..12 bytes of zeros
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HolePayload {
    /// Bytes from the export's start.
    pub offset: U64,
    /// Bytes, not zero.
    pub length: U32,
}

const _: () = assert!(size_of::<HolePayload>() == 12);

/// Front of the payload of ERROR and of ERROR_OFFSET. The message follows; after that, of
/// ERROR_OFFSET, an offset of 64 bits.
///
/// ```text
/// 0..4 error   4..6 bytes of the message
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorPayload {
    /// An error value, not zero.
    pub error: U32,
    /// Bytes of the message that follows.
    pub message_length: U16,
}

const _: () = assert!(size_of::<ErrorPayload>() == 6);

/// A descriptor. The payload of BLOCK_STATUS is a context's id of 32 bits, then these.
///
/// ```text
/// 0..4 bytes of the extent   4..8 its state
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtentDescriptor {
    /// Bytes, not zero.
    pub length: U32,
    /// See [`state`].
    pub flags: U32,
}

const _: () = assert!(size_of::<ExtentDescriptor>() == 8);
