//! The NVMe/TCP transport (NVMe/TCP Transport 1.0): PDUs, digests, and the two ends of a byte
//! stream.
//!
//! [`PduReader`] splits a stream into PDUs; [`PduWriter`] writes PDUs to an [`Output`], a queue of
//! pieces in which large data is not copied. The user checks the order of PDUs, with one exception:
//! a stream begins with the exchange of ICReq and ICResp, and no other PDU is accepted until
//! [`PduReader::set_digests`] is called.

mod digest;
mod error;
mod header;
#[cfg(test)]
mod length_tests;
mod output;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use digest::{DigestCheck, Digests, crc32c};
pub use error::{FatalStatus, PduError};
pub use header::{
    CommandHeader, CommonHeader, DataHeader, InitializeRequest, InitializeResponse, PduType, R2t, ResponseHeader,
    TerminationHeader, flags,
};
pub use output::{Output, ZERO_COPY_BYTES_MIN, zeros};
pub use reader::{Pdu, PduReader, ReaderLimits, Side, Termination};
pub use writer::PduWriter;

/// Bytes of the longest copy of a faulty header in a TermReq (NVMe/TCP 1.0, section 3.6.2.3: PLEN
/// is at most 152).
pub const TERMINATION_DATA_BYTES_MAX: usize = 128;

/// Bytes of command data that an admin or Fabrics capsule may carry (NVMe/TCP 1.0, section 3.4.2:
/// 8,192).
pub const ADMIN_CAPSULE_DATA_BYTES: u32 = 8192;

/// PDU format version of NVMe/TCP 1.0.
pub const PDU_FORMAT_VERSION: u16 = 0;

/// The greatest HPDA and CPDA: data at a multiple of 128 bytes (NVMe/TCP 1.0, sections 3.6.2.1 and
/// 3.6.2.2).
pub const DATA_ALIGNMENT_MAX: u8 = 31;

/// The least MAXH2CDATA a controller may offer (NVMe/TCP 1.0, section 3.6.2.2).
pub const HOST_DATA_BYTES_MIN: u32 = 4096;
