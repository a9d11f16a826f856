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
    /// NBD_ENOMEM: the protocol asks servers not to say this.
    NoMemory = 12,
    /// NBD_EINVAL: the request makes no sense.
    Invalid = 22,
    /// NBD_ENOSPC: the device is full, or the range of a write ends behind the export.
    NoSpace = 28,
    /// NBD_EOVERFLOW: only of a READ that must not be fragmented. Said of another, clients are told NBD_EINVAL.
    TooLarge = 75,
    /// NBD_ENOTSUP: only of a WRITE_ZEROES that must be fast. Said of another, clients are told NBD_EINVAL.
    NotSupported = 95,
    /// NBD_ESHUTDOWN: the server ends.
    Shutdown = 108,
}

impl NbdError {
    /// All of them.
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

    /// What clients that use structured replies are told with it.
    pub(crate) fn message(self) -> &'static str {
        match self {
            NbdError::NotPermitted => "not permitted",
            NbdError::Io => "the device failed; see the server's log",
            NbdError::NoMemory => "the server has no memory for this now; try again",
            NbdError::Invalid => "the request makes no sense to the server",
            NbdError::NoSpace => "no space is left on the device",
            NbdError::TooLarge => "too long for one chunk; read in smaller requests",
            NbdError::NotSupported => "not faster than writing zeros; write them",
            NbdError::Shutdown => "the server ends; connect again later",
        }
    }
}

impl fmt::Display for NbdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.message())
    }
}

impl std::error::Error for NbdError {}

/// A request that the server refuses by itself, and why.
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
    /// [`crate::Connection::shutdown`]: no request is under way any more.
    Shutdown,
    /// EXPORT_NAME, which cannot be refused otherwise, asked for an export that is not here.
    UnknownExport {
        /// The name, as far as it is text.
        name: String,
    },
    /// EXPORT_NAME, which cannot be refused otherwise, came without TLS where TLS is required.
    TlsRequired,
    /// The client's bytes make no sense.
    Fault(Fault),
}

/// Bytes of a client that cannot be followed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Client flags that the server has not offered.
    ClientFlags {
        /// All flags, as received.
        flags: u32,
    },
    /// No option where one has to be.
    OptionMagic {
        /// What was there.
        found: u64,
    },
    /// No request where one has to be.
    RequestMagic {
        /// What was there.
        found: u32,
    },
    /// A client that has not agreed on fixed newstyle sent another option than EXPORT_NAME, to which it could not read
    /// the reply.
    NotFixedNewstyle {
        /// The option.
        option: u32,
    },
    /// The name in an EXPORT_NAME is longer than names may be.
    NameTooLong {
        /// Its bytes.
        length_bytes: u32,
    },
    /// More options than a handshake may have.
    TooManyOptions,
    /// Bytes behind STARTTLS that came before TLS. Taken as they are, they would be a stranger's words in a client's mouth.
    PlaintextBehindStartTls,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::ClientFlags { flags } => {
                write!(f, "client flags {flags:#x} were not offered; use a client of NBD's fixed newstyle")
            }
            Fault::OptionMagic { found } => {
                write!(f, "{found:#018x} is no option; the client does not speak NBD newstyle")
            }
            Fault::RequestMagic { found } => {
                write!(f, "{found:#010x} is no request; client and server are out of step")
            }
            Fault::NotFixedNewstyle { option } => {
                write!(
                    f,
                    "option {option} needs fixed newstyle, which the client has not agreed on; use a newer client"
                )
            }
            Fault::NameTooLong { length_bytes } => {
                write!(f, "an export's name of {length_bytes} bytes; names have at most {STRING_BYTES_MAX}")
            }
            Fault::TooManyOptions => {
                write!(f, "more than {OPTIONS_MAX} options in one handshake; the client must choose")
            }
            Fault::PlaintextBehindStartTls => {
                f.write_str("bytes that were not encrypted came behind STARTTLS; look for somebody on the way")
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
            CloseReason::Shutdown => f.write_str("the server ends"),
            CloseReason::UnknownExport { name } => {
                write!(f, "there is no export {name:?}; the client can list those that there are")
            }
            CloseReason::TlsRequired => {
                f.write_str("the client did not start TLS, which is required; use a client that does")
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
