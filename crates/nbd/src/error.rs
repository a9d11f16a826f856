//! Errors of requests, and why a connection ends.

use std::fmt;

use crate::limits::{OPTIONS_MAX, STRING_BYTES_MAX};

/// An error value of the protocol (section "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum NbdError {
    /// NBD_EPERM: the export is read-only.
    NotPermitted = 1,
    /// NBD_EIO: the device failed.
    Io = 5,
    /// NBD_ENOMEM: the protocol discourages servers from using it.
    NoMemory = 12,
    /// NBD_EINVAL: the request is invalid.
    Invalid = 22,
    /// NBD_ENOSPC: the device is full, or the range of a write ends beyond the end of the export.
    NoSpace = 28,
    /// NBD_EOVERFLOW: only for a READ with DF. For other requests NBD_EINVAL is sent instead.
    TooLarge = 75,
    /// NBD_ENOTSUP: only for a WRITE_ZEROES with FAST_ZERO. For other requests NBD_EINVAL is sent
    /// instead.
    NotSupported = 95,
    /// NBD_ESHUTDOWN: the server is shutting down.
    Shutdown = 108,
}

impl NbdError {
    /// All errors.
    pub const ALL: [NbdError; 8] = [
        NbdError::NotPermitted,
        NbdError::Io,
        NbdError::NoMemory,
        NbdError::Invalid,
        NbdError::NoSpace,
        NbdError::TooLarge,
        NbdError::NotSupported,
        NbdError::Shutdown,
    ];

    /// The error with a value.
    #[must_use]
    pub fn from_code(code: u32) -> Option<NbdError> {
        NbdError::ALL.into_iter().find(|error| error.code() == code)
    }

    /// Its value.
    #[must_use]
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The error message in structured replies.
    pub(crate) fn message(self) -> &'static str {
        match self {
            NbdError::NotPermitted => "not permitted",
            NbdError::Io => "the device failed; see the server's log",
            NbdError::NoMemory => "the server is out of memory; try again",
            NbdError::Invalid => "invalid request",
            NbdError::NoSpace => "no space is left on the device",
            NbdError::TooLarge => "the read does not fit into one chunk; use smaller requests",
            NbdError::NotSupported => "fast zeroing is not supported here; write zeros",
            NbdError::Shutdown => "the server is shutting down; reconnect later",
        }
    }
}

impl fmt::Display for NbdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.message())
    }
}

impl std::error::Error for NbdError {}

/// An error with which the server refuses a request by itself, and its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) error: NbdError,
    pub(crate) message: &'static str,
}

impl From<NbdError> for Refusal {
    fn from(error: NbdError) -> Refusal {
        Refusal { error, message: error.message() }
    }
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client ended the handshake with ABORT.
    Aborted,
    /// The client ended transmission with DISC, and all its requests have been answered.
    Disconnected,
    /// [`crate::Connection::shutdown`] was called, and no request is in flight any more.
    Shutdown,
    /// EXPORT_NAME, which can only be refused by closing, named an unknown export; or the client
    /// ended the handshake with ABORT after its GO did.
    UnknownExport {
        /// The name, with invalid UTF-8 replaced.
        name: String,
    },
    /// EXPORT_NAME, which can only be refused by closing, was sent without TLS where TLS is
    /// required.
    TlsRequired,
    /// The client violated the protocol.
    Fault(Fault),
}

/// A protocol violation after which the connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Client flags that the server did not offer.
    ClientFlags {
        /// All flags, as received.
        flags: u32,
    },
    /// The magic of an option was expected.
    OptionMagic {
        /// The value received.
        found: u64,
    },
    /// The magic of a request was expected.
    RequestMagic {
        /// The value received.
        found: u32,
    },
    /// A client that did not negotiate fixed newstyle sent another option than EXPORT_NAME, whose
    /// reply it could not parse.
    NotFixedNewstyle {
        /// The option.
        option: u32,
    },
    /// The name in an EXPORT_NAME is too long.
    NameTooLong {
        /// Its bytes.
        length_bytes: u32,
    },
    /// Too many options in one handshake.
    TooManyOptions,
    /// Unencrypted bytes after STARTTLS. A man in the middle could inject options that way.
    PlaintextBehindStartTls,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::ClientFlags { flags } => {
                write!(f, "client flags {flags:#x} were not offered; use a client that supports NBD fixed newstyle")
            }
            Fault::OptionMagic { found } => {
                write!(f, "invalid option magic {found:#018x}: the client does not use NBD newstyle negotiation")
            }
            Fault::RequestMagic { found } => {
                write!(f, "invalid request magic {found:#010x}: client and server are out of sync")
            }
            Fault::NotFixedNewstyle { option } => {
                write!(
                    f,
                    "option {option} requires fixed newstyle, which the client did not negotiate; use a newer client"
                )
            }
            Fault::NameTooLong { length_bytes } => {
                write!(f, "an export name of {length_bytes} bytes is too long; the maximum is {STRING_BYTES_MAX}")
            }
            Fault::TooManyOptions => {
                write!(f, "more than {OPTIONS_MAX} options in one handshake")
            }
            Fault::PlaintextBehindStartTls => {
                f.write_str("unencrypted bytes received after STARTTLS: a man in the middle may have injected them")
            }
        }
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Aborted => f.write_str("the client ended the handshake"),
            CloseReason::Disconnected => f.write_str("the client disconnected"),
            CloseReason::Shutdown => f.write_str("the server is shutting down"),
            CloseReason::UnknownExport { name } => {
                write!(f, "no export {name:?}; the client can list the exports")
            }
            CloseReason::TlsRequired => {
                f.write_str("the client did not start TLS, which is required; use a client with TLS support")
            }
            CloseReason::Fault(fault) => fault.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MESSAGE_BYTES_MAX;

    #[test]
    fn every_error_has_its_value_and_a_message_that_fits() {
        for error in NbdError::ALL {
            assert_eq!(NbdError::from_code(error.code()), Some(error));
            assert!((1..=MESSAGE_BYTES_MAX).contains(&error.message().len()), "{error:?}");
        }
        assert_eq!(NbdError::from_code(0), None);
        assert_eq!(NbdError::NotSupported.code(), 95);
    }
}
