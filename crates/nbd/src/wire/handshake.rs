//! Messages of the handshake (sections "Handshake", "Option types", "Option reply types").

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `NBDMAGIC`, the first eight bytes that a server sends.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, in the newstyle greeting and before each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Zeros after the reply to EXPORT_NAME, unless both sides negotiated NO_ZEROES.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Bytes of one information request of INFO and GO.
pub const INFO_REQUEST_BYTES: usize = 2;
/// The only metadata context supported (section "base:allocation metadata context").
pub const BASE_ALLOCATION: &[u8] = b"base:allocation";

/// Handshake flags of the server, 16 bits, and of the client, 32 bits: the same two.
pub mod flags {
    /// NBD_FLAG_FIXED_NEWSTYLE, NBD_FLAG_C_FIXED_NEWSTYLE.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// NBD_FLAG_NO_ZEROES, NBD_FLAG_C_NO_ZEROES.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options, NBD_OPT_*.
pub mod option {
    /// Begin transmission; can only be refused by closing the connection.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Names of the exports.
    pub const LIST: u32 = 3;
    /// Start TLS.
    pub const STARTTLS: u32 = 5;
    /// Details of an export.
    pub const INFO: u32 = 6;
    /// Details of an export, and begin transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select the metadata contexts that BLOCK_STATUS reports.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Headers with 64-bit lengths; refused.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options, NBD_REP_*.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// Information about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in all errors.
    pub const ERROR: u32 = 1 << 31;
    /// The option is not supported.
    pub const ERR_UNSUP: u32 = ERROR + 1;
    /// The option is not permitted by the server's policy.
    pub const ERR_POLICY: u32 = ERROR + 2;
    /// The option's data are malformed, or it is not permitted now.
    pub const ERR_INVALID: u32 = ERROR + 3;
    /// TLS is required.
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    /// The export does not exist.
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    /// The option has more data than the server accepts.
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
}

/// Information types of INFO and GO, NBD_INFO_*.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name, as in LIST.
    pub const NAME: u16 = 1;
    /// A human-readable description.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// The greeting.
///
/// ```text
/// 0..8 NBDMAGIC   8..16 IHAVEOPT   16..18 handshake flags
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Greeting {
    /// [`NBD_MAGIC`].
    pub nbd_magic: U64,
    /// [`OPTION_MAGIC`].
    pub option_magic: U64,
    /// See [`flags`].
    pub flags: U16,
}

const _: () = assert!(size_of::<Greeting>() == 18);

/// Before the data of an option. The client's flags, 32 bits, come before the first.
///
/// ```text
/// 0..8 IHAVEOPT   8..12 option   12..16 length of the data
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionHeader {
    /// [`OPTION_MAGIC`].
    pub magic: U64,
    /// See [`option`].
    pub option: U32,
    /// Bytes of data after this header.
    pub length: U32,
}

const _: () = assert!(size_of::<OptionHeader>() == 16);

/// Before the data of a reply to an option.
///
/// ```text
/// 0..8 3e889045565a9h   8..12 option   12..16 type of the reply   16..20 length of the data
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionReplyHeader {
    /// [`OPTION_REPLY_MAGIC`].
    pub magic: U64,
    /// That of the option.
    pub option: U32,
    /// See [`reply`].
    pub kind: U32,
    /// Bytes of data after this header.
    pub length: U32,
}

const _: () = assert!(size_of::<OptionReplyHeader>() == 20);

/// The reply to EXPORT_NAME, with which transmission begins; 124 zeros may follow.
///
/// ```text
/// 0..8 size of the export   8..10 transmission flags
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExportNameReply {
    /// Bytes.
    pub size: U64,
    /// See [`super::transmission::flags`].
    pub flags: U16,
}

const _: () = assert!(size_of::<ExportNameReply>() == 10);

/// Data of NBD_REP_INFO: an export.
///
/// ```text
/// 0..2 NBD_INFO_EXPORT   2..10 size of the export   10..12 transmission flags
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InfoExport {
    /// [`info::EXPORT`].
    pub kind: U16,
    /// Bytes.
    pub size: U64,
    /// See [`super::transmission::flags`].
    pub flags: U16,
}

const _: () = assert!(size_of::<InfoExport>() == 12);

/// Data of NBD_REP_INFO: block sizes.
///
/// ```text
/// 0..2 NBD_INFO_BLOCK_SIZE   2..6 minimum   6..10 preferred   10..14 maximum
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InfoBlockSize {
    /// [`info::BLOCK_SIZE`].
    pub kind: U16,
    /// Bytes.
    pub minimum: U32,
    /// Bytes.
    pub preferred: U32,
    /// Bytes.
    pub maximum: U32,
}

const _: () = assert!(size_of::<InfoBlockSize>() == 14);
