//! Bounds of the server: every table has one.

use crate::wire::handshake::{INFO_REQUEST_BYTES, OptionReplyHeader};
use crate::wire::transmission::{ChunkHeader, ExtentDescriptor};

/// Bytes of a string of the protocol: a name, a description, a message (section "Conventions").
pub const STRING_BYTES_MAX: usize = 4096;
/// Exports of one server.
pub const EXPORTS_MAX: usize = 256;
/// Options of one handshake. A client that lists all exports and asks of each for its details and its metadata contexts
/// stays below.
pub const OPTIONS_MAX: u32 = 1024;
/// Bytes of the data of an option that are looked at. More of them is skipped, and answered with NBD_REP_ERR_TOO_BIG.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Bytes that one READ or WRITE may move: the greatest maximum block size of an export. The protocol asks servers to bear
/// with as much (section "Block size constraints").
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The greatest minimum block size (section "Block size constraints").
pub const MINIMUM_BLOCK_BYTES_MAX: u32 = 64 << 10;
/// The least preferred block size (section "Block size constraints").
pub const PREFERRED_BLOCK_BYTES_MIN: u32 = 512;
/// The greatest size of an export: clients keep offsets in 64 bits with a sign.
pub const EXPORT_BYTES_MAX: u64 = i64::MAX as u64;
/// Requests under way on one connection.
pub const REQUESTS_MAX: usize = 1024;
/// The least and the most bytes of data under way on one connection.
pub const DATA_BYTES_MIN: usize = REQUEST_BYTES_MAX as usize;
/// See [`DATA_BYTES_MIN`].
pub const DATA_BYTES_MAX: usize = 1 << 30;
/// Chunks of the structured reply to one READ. What would take more goes as one chunk, with its zeros.
pub const READ_CHUNKS_MAX: usize = 128;
/// Data of a WRITE from so many bytes on share the memory in which they came. Less is copied, so that a few bytes never hold a large
/// buffer of the caller.
pub const SHARED_DATA_BYTES_MIN: usize = 64 << 10;
/// Descriptors in the reply to one BLOCK_STATUS. The client asks again for what is behind the last.
pub const EXTENTS_MAX: usize = 1024;
/// Bytes of a message that goes with an error.
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
const _: () = assert!(DATA_BYTES_MIN >= REQUEST_BYTES_MAX as usize, "any request fits when nothing else is under way");
const _: () = assert!(DATA_BYTES_MIN <= DATA_BYTES_MAX);
const _: () = assert!(DATA_BYTES_MIN >= OPTION_REPLY_BYTES_MAX, "the handshake needs less than transmission");
const _: () = assert!(REQUEST_BYTES_MAX.is_multiple_of(MINIMUM_BLOCK_BYTES_MAX), "a maximum for every minimum");
const _: () = assert!(READ_CHUNKS_MAX >= 2, "an unfragmented reply is content and an error");
const _: () = assert!(MESSAGE_BYTES_MAX <= STRING_BYTES_MAX);
const _: () = assert!(REQUESTS_MAX <= 1 << 16, "a slot is 16 bits of a request's id");

/// The bounds of each connection of a server. The defaults suit a server of some clients on a machine with some GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests under way: from 1 to [`REQUESTS_MAX`].
    pub requests: usize,
    /// Bytes of data of requests under way, and of replies that have not been sent: from [`DATA_BYTES_MIN`] to
    /// [`DATA_BYTES_MAX`].
    pub data_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests: 128, data_bytes: 64 << 20 }
    }
}

impl Limits {
    /// Bytes that a connection holds at most, whatever its client does: data of requests, replies that have not been
    /// sent, and an option. Not in it is what was handed over together with the bytes that filled it, or after them.
    #[must_use]
    pub fn buffered_bytes_max(&self) -> usize {
        self.data_bytes + (self.requests + 1) * REPLY_BYTES_MAX + OPTION_REPLY_BYTES_MAX + OPTION_BYTES_MAX as usize
    }

    /// The first limit that is out of its bounds, by name, and what it must be.
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
        // Section "Structured replies": a chunk has 20 bytes before its payload; an error at an offset has its code (4),
        // the length of its message (2) and the offset (8); an extent is 8 bytes, behind the context's number (4).
        let errors = 128 * (20 + 4 + 2 + 8 + 128);
        let extents = 20 + 4 + 1024 * 8;
        assert_eq!((REPLY_BYTES_MAX, errors), (20_736, 20_736));
        assert!(REPLY_BYTES_MAX >= extents);
    }
}
