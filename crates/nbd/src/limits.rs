//! Bounds of the server's tables.

use crate::wire::handshake::{INFO_REQUEST_BYTES, OptionReplyHeader};
use crate::wire::transmission::{ChunkHeader, ExtentDescriptor};

/// Bytes of a string of the protocol: a name, a description, a message (section "Conventions").
pub const STRING_BYTES_MAX: usize = 4096;
/// Exports of one server.
pub const EXPORTS_MAX: usize = 256;
/// Options of one handshake. A client that lists all exports and requests the details and metadata
/// contexts of each stays below.
pub const OPTIONS_MAX: u32 = 1024;
/// Bytes of the data of an option. Longer data is skipped, and answered with NBD_REP_ERR_TOO_BIG.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Bytes that one READ or WRITE may transfer: the greatest maximum block size of an export. The
/// protocol asks servers to support as much (section "Block size constraints").
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The greatest minimum block size (section "Block size constraints").
pub const MINIMUM_BLOCK_BYTES_MAX: u32 = 64 << 10;
/// The least preferred block size (section "Block size constraints").
pub const PREFERRED_BLOCK_BYTES_MIN: u32 = 512;
/// The greatest size of an export: clients use signed 64-bit offsets.
pub const EXPORT_BYTES_MAX: u64 = i64::MAX as u64;
/// Requests in flight on one connection.
pub const REQUESTS_MAX: usize = 1024;
/// The minimum of the limit on data in flight on one connection, in bytes.
pub const DATA_BYTES_MIN: usize = REQUEST_BYTES_MAX as usize;
/// The maximum of that limit, in bytes.
pub const DATA_BYTES_MAX: usize = 1 << 30;
/// Chunks of the structured reply to one READ. A reply that would need more is sent as one chunk,
/// zeros included.
pub const READ_CHUNKS_MAX: usize = 128;
/// Data of a WRITE of at least this many bytes share the memory of the receive buffer. Less is
/// copied, so that a few bytes never keep a large buffer of the caller alive.
pub const SHARED_DATA_BYTES_MIN: usize = 64 << 10;
/// Descriptors in the reply to one BLOCK_STATUS. The client sends another request for the rest.
pub const EXTENTS_MAX: usize = 1024;
/// Bytes of an error message.
pub const MESSAGE_BYTES_MAX: usize = 128;
/// Bytes of the reply to one BLOCK_STATUS, at most.
pub const STATUS_REPLY_BYTES_MAX: usize = size_of::<ChunkHeader>() + 4 + EXTENTS_MAX * size_of::<ExtentDescriptor>();
/// Bytes of a reply beside the data that was read, at most.
pub const REPLY_BYTES_MAX: usize = {
    let chunks = READ_CHUNKS_MAX * (size_of::<ChunkHeader>() + 14 + MESSAGE_BYTES_MAX);
    if chunks > STATUS_REPLY_BYTES_MAX { chunks } else { STATUS_REPLY_BYTES_MAX }
};
/// Bytes of the replies to one option, at most: to LIST.
pub const OPTION_REPLY_BYTES_MAX: usize =
    (EXPORTS_MAX + 1) * (size_of::<OptionReplyHeader>() + 4 + 2 * STRING_BYTES_MAX);

const _: () = assert!(OPTION_BYTES_MAX as usize >= STRING_BYTES_MAX + 6 + INFO_REQUEST_BYTES * 64, "a GO fits");
const _: () = assert!(OPTIONS_MAX as usize > 3 * EXPORTS_MAX, "LIST, and for each export INFO and its contexts");
const _: () = assert!(DATA_BYTES_MIN >= REQUEST_BYTES_MAX as usize, "any request fits when no other is in flight");
const _: () = assert!(DATA_BYTES_MIN <= DATA_BYTES_MAX);
const _: () = assert!(DATA_BYTES_MIN >= OPTION_REPLY_BYTES_MAX, "the handshake needs less than transmission");
const _: () = assert!(REQUEST_BYTES_MAX.is_multiple_of(MINIMUM_BLOCK_BYTES_MAX), "a maximum for every minimum");
const _: () = assert!(READ_CHUNKS_MAX >= 2, "an unfragmented reply is content and an error");
const _: () = assert!(MESSAGE_BYTES_MAX <= STRING_BYTES_MAX);
const _: () = assert!(REQUESTS_MAX <= 1 << 16, "a slot is 16 bits of a request's id");

/// The bounds of each connection of a server. The defaults suit a server of some clients on a
/// machine with some GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests in flight: from 1 to [`REQUESTS_MAX`].
    pub requests: usize,
    /// Bytes of data of requests in flight, and of replies that were not sent: from
    /// [`DATA_BYTES_MIN`] to [`DATA_BYTES_MAX`].
    pub data_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests: 128, data_bytes: 64 << 20 }
    }
}

impl Limits {
    /// The maximum of bytes that a connection buffers, whatever its client does: data of requests,
    /// replies that were not sent, and an option. Bytes passed together with those that reached the
    /// limit, or after them, are not included.
    #[must_use]
    pub fn buffered_bytes_max(&self) -> usize {
        self.data_bytes + (self.requests + 1) * REPLY_BYTES_MAX + OPTION_REPLY_BYTES_MAX + OPTION_BYTES_MAX as usize
    }

    /// The first limit that is out of bounds, by name, and its permitted values.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let rules = [
            ((1..=REQUESTS_MAX).contains(&self.requests), "requests", "must be 1 to 1024"),
            ((DATA_BYTES_MIN..=DATA_BYTES_MAX).contains(&self.data_bytes), "data_bytes", "must be 32 MiB to 1 GiB"),
        ];
        rules.into_iter().find(|(holds, ..)| !holds).map(|(_, field, remedy)| (field, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_their_bounds_and_each_fault_names_its_field() {
        assert_eq!(Limits::default().fault(), None);
        type Spoil = fn(&mut Limits);
        let spoil: [(&str, Spoil); 4] = [
            ("requests", |limits| limits.requests = 0),
            ("requests", |limits| limits.requests = REQUESTS_MAX + 1),
            ("data_bytes", |limits| limits.data_bytes = DATA_BYTES_MIN - 1),
            ("data_bytes", |limits| limits.data_bytes = DATA_BYTES_MAX + 1),
        ];
        for (field, spoil) in spoil {
            let mut limits = Limits::default();
            spoil(&mut limits);
            assert_eq!(limits.fault().map(|(field, _)| field), Some(field));
        }
    }

    #[test]
    fn the_longest_reply_is_a_read_whose_every_chunk_is_an_error_with_its_message() {
        // Section "Structured replies": a chunk has 20 bytes before its payload; an error at an
        // offset has its code (4), the length of its message (2) and the offset (8); an extent is 8
        // bytes, behind the context's number (4).
        let errors = 128 * (20 + 4 + 2 + 8 + 128);
        let extents = 20 + 4 + 1024 * 8;
        assert_eq!((REPLY_BYTES_MAX, errors), (20_736, 20_736));
        assert!(REPLY_BYTES_MAX >= extents);
    }
}
