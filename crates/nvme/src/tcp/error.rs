//! Fatal errors of a connection, as in the TermReq PDUs.

use std::fmt;

/// Fatal Error Status, FES (NVMe/TCP 1.0, Figures 30 and 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum FatalStatus {
    /// 01h: a header field has a value that it must not have; FEI is its offset.
    InvalidHeaderField = 0x01,
    /// 02h: a PDU that is not allowed in this state.
    SequenceError = 0x02,
    /// 03h: FEI is the digest that was received.
    HeaderDigestError = 0x03,
    /// 04h: data outside the range of the command or the R2T.
    DataOutOfRange = 0x04,
    /// 05h: more data in one PDU, or more R2Ts, than the peer allows.
    DataLimitExceeded = 0x05,
    /// 06h: a parameter that is not supported; FEI is its offset.
    UnsupportedParameter = 0x06,
}

/// A fatal error of the stream: the connection is terminated with a TermReq that reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PduError {
    /// FES.
    pub status: FatalStatus,
    /// FEI: offset of the faulty field, or the faulty digest.
    pub information: u32,
    /// The received part of the faulty PDU's header, at most 128 bytes.
    pub header: Box<[u8]>,
}

impl FatalStatus {
    /// The status with a code, or `None` for a reserved one.
    #[must_use]
    pub fn from_code(code: u16) -> Option<FatalStatus> {
        Some(match code {
            0x01 => FatalStatus::InvalidHeaderField,
            0x02 => FatalStatus::SequenceError,
            0x03 => FatalStatus::HeaderDigestError,
            0x04 => FatalStatus::DataOutOfRange,
            0x05 => FatalStatus::DataLimitExceeded,
            0x06 => FatalStatus::UnsupportedParameter,
            _ => return None,
        })
    }

    /// FES.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }
}

impl PduError {
    /// An error with the header it is about.
    #[must_use]
    pub fn new(status: FatalStatus, information: u32, header: &[u8]) -> PduError {
        let kept = header.len().min(super::TERMINATION_DATA_BYTES_MAX);
        PduError { status, information, header: header[..kept].into() }
    }
}

impl fmt::Display for FatalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FatalStatus::InvalidHeaderField => "invalid PDU header field",
            FatalStatus::SequenceError => "PDU sequence error",
            FatalStatus::HeaderDigestError => "header digest error",
            FatalStatus::DataOutOfRange => "data transfer out of range",
            FatalStatus::DataLimitExceeded => "data transfer limit exceeded",
            FatalStatus::UnsupportedParameter => "unsupported parameter",
        })
    }
}

impl fmt::Display for PduError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            FatalStatus::InvalidHeaderField | FatalStatus::UnsupportedParameter => {
                write!(f, "{} at byte {}", self.status, self.information)?;
            }
            FatalStatus::HeaderDigestError => write!(f, "{} ({:08x}h)", self.status, self.information)?,
            _ => write!(f, "{}", self.status)?,
        }
        match self.header.first() {
            Some(pdu_type) => write!(f, " in a PDU of type {pdu_type:02x}h"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PduError {}
