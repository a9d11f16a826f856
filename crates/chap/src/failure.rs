//! Why an authentication failed, and the explanation that is sent to the peer.

use std::fmt;

/// The reason code explanation of AUTH_Failure1 and AUTH_Failure2 (NVMe Base Specification 2.0,
/// section 8.13). The reason code itself has one value, 01h, authentication failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// 01h: a response is wrong.
    AuthenticationFailed,
    /// 02h: no protocol in common.
    ProtocolNotUsable,
    /// 03h: secure channel concatenation is requested and not offered, or the other way round.
    ConcatenationMismatch,
    /// 04h: no hash function in common.
    HashNotUsable,
    /// 05h: no Diffie-Hellman group in common.
    GroupNotUsable,
    /// 06h: a field of a message is wrong.
    IncorrectPayload,
    /// 07h: a message of this kind was not expected.
    IncorrectMessage,
    /// Another value, which the specification reserves.
    Other(u8),
}

/// Why an authentication failed. All except [`AuthFailure::Peer`] were detected on this side, and
/// the next message reports them to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFailure {
    /// The peer sent AUTH_Failure1 or AUTH_Failure2.
    Peer(Explanation),
    /// The message has `actual` bytes. Its header, or the lengths in it, require `expected`.
    WrongLength {
        /// Bytes that the message must have, or must have at least.
        expected: usize,
        /// Bytes that it has.
        actual: usize,
    },
    /// The message is not expected now, or does not exist.
    UnexpectedMessage {
        /// AUTH_TYPE of the message.
        auth_type: u8,
        /// AUTH_ID of the message.
        auth_id: u8,
    },
    /// T_ID is not that of the current transaction.
    WrongTransaction {
        /// The identifier of the current transaction.
        expected: u16,
        /// The identifier in the message.
        actual: u16,
    },
    /// SC_C requests secure channel concatenation, which is not supported.
    ConcatenationNotOffered(u8),
    /// No descriptor in AUTH_Negotiate is for DH-HMAC-CHAP.
    ProtocolNotOffered,
    /// The descriptor announces more hash or group identifiers than it can hold.
    TooManyIdentifiers(u8),
    /// The host offers no hash that the controller allows.
    NoCommonHash,
    /// The host offers no group that the controller allows.
    NoCommonGroup,
    /// The controller chose a hash that the host did not offer.
    HashNotOffered(u8),
    /// The controller chose a group that the host did not offer.
    GroupNotOffered(u8),
    /// HL is not the length of the hash.
    WrongHashLength(u8),
    /// DHVLEN does not match the group: 0 with a group, not 0 without one, or more than the length
    /// of the group's prime.
    WrongPublicLength(u16),
    /// The Diffie-Hellman public value is 0, 1, p-1, p, or more.
    PublicValueOutOfRange,
    /// CVALID or RVALID is neither 0 nor 1, or RVALID is 1 although there was no challenge.
    WrongValidity(u8),
    /// The host's challenge has sequence number 0, which means that there is no challenge.
    SequenceNumberZero,
    /// The host's challenge is the controller's own, sent back.
    ReflectedChallenge,
    /// The host requests authentication of the controller, and no controller secret is configured.
    NoControllerSecret,
    /// The host's response is wrong: it does not have the host secret.
    HostResponse,
    /// The controller's response is wrong: it does not have the controller secret.
    ControllerResponse,
    /// The controller was challenged, and did not respond.
    ControllerResponseMissing,
}

impl Explanation {
    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Explanation::AuthenticationFailed => 1,
            Explanation::ProtocolNotUsable => 2,
            Explanation::ConcatenationMismatch => 3,
            Explanation::HashNotUsable => 4,
            Explanation::GroupNotUsable => 5,
            Explanation::IncorrectPayload => 6,
            Explanation::IncorrectMessage => 7,
            Explanation::Other(code) => code,
        }
    }

    /// The explanation of a code.
    #[must_use]
    pub fn from_code(code: u8) -> Explanation {
        match code {
            1 => Explanation::AuthenticationFailed,
            2 => Explanation::ProtocolNotUsable,
            3 => Explanation::ConcatenationMismatch,
            4 => Explanation::HashNotUsable,
            5 => Explanation::GroupNotUsable,
            6 => Explanation::IncorrectPayload,
            7 => Explanation::IncorrectMessage,
            other => Explanation::Other(other),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Explanation::AuthenticationFailed => "authentication failed",
            Explanation::ProtocolNotUsable => "authentication protocol not usable",
            Explanation::ConcatenationMismatch => "secure channel concatenation mismatch",
            Explanation::HashNotUsable => "hash function not usable",
            Explanation::GroupNotUsable => "Diffie-Hellman group not usable",
            Explanation::IncorrectPayload => "incorrect payload",
            Explanation::IncorrectMessage => "incorrect protocol message",
            Explanation::Other(code) => return write!(f, "reason code explanation {code:02x}h"),
        })
    }
}

impl AuthFailure {
    /// The explanation that is sent to the peer, or was received from it.
    #[must_use]
    pub fn explanation(self) -> Explanation {
        match self {
            AuthFailure::Peer(explanation) => explanation,
            AuthFailure::HostResponse
            | AuthFailure::ControllerResponse
            | AuthFailure::ControllerResponseMissing
            | AuthFailure::ReflectedChallenge
            | AuthFailure::NoControllerSecret => Explanation::AuthenticationFailed,
            AuthFailure::ProtocolNotOffered => Explanation::ProtocolNotUsable,
            AuthFailure::ConcatenationNotOffered(_) => Explanation::ConcatenationMismatch,
            AuthFailure::NoCommonHash | AuthFailure::HashNotOffered(_) => Explanation::HashNotUsable,
            AuthFailure::NoCommonGroup | AuthFailure::GroupNotOffered(_) => Explanation::GroupNotUsable,
            AuthFailure::WrongLength { .. }
            | AuthFailure::WrongTransaction { .. }
            | AuthFailure::TooManyIdentifiers(_)
            | AuthFailure::WrongHashLength(_)
            | AuthFailure::WrongPublicLength(_)
            | AuthFailure::PublicValueOutOfRange
            | AuthFailure::WrongValidity(_)
            | AuthFailure::SequenceNumberZero => Explanation::IncorrectPayload,
            AuthFailure::UnexpectedMessage { .. } => Explanation::IncorrectMessage,
        }
    }
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthFailure::Peer(explanation) => write!(f, "the peer reports: {explanation}"),
            AuthFailure::WrongLength { expected, actual } => {
                write!(f, "wrong message length: {actual} bytes, expected {expected}")
            }
            AuthFailure::UnexpectedMessage { auth_type, auth_id } => {
                write!(f, "unexpected message, type {auth_type:02x}h, identifier {auth_id:02x}h")
            }
            AuthFailure::WrongTransaction { expected, actual } => {
                write!(f, "wrong transaction identifier {actual}, expected {expected}")
            }
            AuthFailure::ConcatenationNotOffered(value) => {
                write!(f, "secure channel concatenation ({value:02x}h) is not offered")
            }
            AuthFailure::ProtocolNotOffered => f.write_str("the host does not offer DH-HMAC-CHAP"),
            AuthFailure::TooManyIdentifiers(count) => {
                write!(f, "a list of {count} identifiers, at most 30 are allowed")
            }
            AuthFailure::NoCommonHash => f.write_str("the host offers no hash function that is allowed"),
            AuthFailure::NoCommonGroup => f.write_str("the host offers no Diffie-Hellman group that is allowed"),
            AuthFailure::HashNotOffered(id) => write!(f, "the controller chose hash {id}, which was not offered"),
            AuthFailure::GroupNotOffered(id) => {
                write!(f, "the controller chose Diffie-Hellman group {id}, which was not offered")
            }
            AuthFailure::WrongHashLength(bytes) => write!(f, "wrong hash length: {bytes} bytes"),
            AuthFailure::WrongPublicLength(bytes) => {
                write!(f, "wrong length of the Diffie-Hellman public value: {bytes} bytes")
            }
            AuthFailure::PublicValueOutOfRange => f.write_str("the Diffie-Hellman public value is out of range"),
            AuthFailure::WrongValidity(value) => write!(f, "invalid value {value:02x}h of CVALID or RVALID"),
            AuthFailure::SequenceNumberZero => f.write_str("the sequence number of a challenge is 0"),
            AuthFailure::ReflectedChallenge => f.write_str("the host's challenge is a copy of the controller's"),
            AuthFailure::NoControllerSecret => f.write_str(
                "the host requests authentication of the controller, but no controller secret is configured",
            ),
            AuthFailure::HostResponse => f.write_str("the host's response is wrong: its secret is different"),
            AuthFailure::ControllerResponse => {
                f.write_str("the controller's response is wrong: its secret is different")
            }
            AuthFailure::ControllerResponseMissing => f.write_str("the controller did not authenticate itself"),
        }
    }
}

impl std::error::Error for AuthFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_explanation_and_back() {
        for code in 0..=255 {
            assert_eq!(Explanation::from_code(code).code(), code);
        }
        assert_eq!(Explanation::from_code(0), Explanation::Other(0));
        assert_eq!(Explanation::from_code(8).to_string(), "reason code explanation 08h");
    }
}
