//! The messages on the wire (NVMe Base Specification 2.0, section 8.13; TP 8006). All numbers are
//! little endian, all reserved bytes are sent as zero and ignored when received.
//!
//! Messages to the controller (Authentication Send) have exactly the length that follows from their
//! fields. Messages to the host (Authentication Receive) may be followed by anything: a controller
//! may fill the whole allocation length.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::failure::{AuthFailure, Explanation};
use crate::group::{Group, PUBLIC_BYTES_MAX};
use crate::hash::{HASH_BYTES_MAX, Hash};

/// Bytes of the longest message that is made or accepted here: a reply with SHA-512 and ffdhe8192.
pub const MESSAGE_BYTES_MAX: usize = size_of::<Reply>() + 2 * HASH_BYTES_MAX + PUBLIC_BYTES_MAX;
/// Identifiers that each list of a [`ProtocolDescriptor`] can hold.
pub const IDENTIFIERS_MAX: usize = 30;
/// AUTH_TYPE of the messages that all protocols share.
pub const TYPE_COMMON: u8 = 0x00;
/// AUTH_TYPE of the messages of DH-HMAC-CHAP; also AUTHID of its descriptor.
pub const TYPE_DH_HMAC_CHAP: u8 = 0x01;
/// The reason code of AUTH_Failure1 and AUTH_Failure2: authentication failure.
pub const REASON_FAILED: u8 = 0x01;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// AUTH_Negotiate, host to controller.
    Negotiate,
    /// DH-HMAC-CHAP_Challenge, controller to host.
    Challenge,
    /// DH-HMAC-CHAP_Reply, host to controller.
    Reply,
    /// DH-HMAC-CHAP_Success1, controller to host.
    Success1,
    /// DH-HMAC-CHAP_Success2, host to controller.
    Success2,
    /// AUTH_Failure2, host to controller.
    Failure2,
    /// AUTH_Failure1, controller to host.
    Failure1,
}

/// The header of every message.
///
/// ```text
/// byte 0      AUTH_TYPE
/// byte 1      AUTH_ID
/// byte 2-3    reserved
/// byte 4-5    T_ID    transaction identifier, chosen by the host
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// AUTH_TYPE: [`TYPE_COMMON`] or [`TYPE_DH_HMAC_CHAP`].
    pub auth_type: u8,
    /// AUTH_ID: which message of that type.
    pub auth_id: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// T_ID.
    pub transaction: U16,
}

/// AUTH_Negotiate, followed by [`ProtocolDescriptor`]s.
///
/// ```text
/// byte 0-5    header
/// byte 6      SC_C    secure channel concatenation: 0 none
/// byte 7      NAPD    number of descriptors
/// byte 8-     descriptors, 64 bytes each
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Negotiate {
    /// The header.
    pub header: Header,
    /// SC_C.
    pub concatenation: u8,
    /// NAPD.
    pub descriptors: u8,
}

/// A host's offer for one protocol.
///
/// ```text
/// byte 0      AUTHID   01h: DH-HMAC-CHAP
/// byte 1      reserved
/// byte 2      HALEN    number of hash identifiers
/// byte 3      DHLEN    number of group identifiers
/// byte 4-33   hash identifiers, the host's favourite first
/// byte 34-63  group identifiers, the host's favourite first
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ProtocolDescriptor {
    /// AUTHID.
    pub protocol: u8,
    /// Reserved.
    pub reserved: u8,
    /// HALEN.
    pub hash_count: u8,
    /// DHLEN.
    pub group_count: u8,
    /// HashIDList.
    pub hashes: [u8; IDENTIFIERS_MAX],
    /// DHgIDList.
    pub groups: [u8; IDENTIFIERS_MAX],
}

/// DH-HMAC-CHAP_Challenge, followed by the challenge and the public value.
///
/// ```text
/// byte 0-5    header
/// byte 6      HL       bytes of the hash
/// byte 7      reserved
/// byte 8      HashID   the chosen hash
/// byte 9      DHgID    the chosen group
/// byte 10-11  DHVLEN   bytes of the public value; 0 without an exchange
/// byte 12-15  SEQNUM   S1
/// byte 16-    C1, HL bytes
///             g^x mod p, DHVLEN bytes, big endian
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Challenge {
    /// The header.
    pub header: Header,
    /// HL.
    pub hash_length: u8,
    /// Reserved.
    pub reserved: u8,
    /// HashID.
    pub hash: u8,
    /// DHgID.
    pub group: u8,
    /// DHVLEN.
    pub public_length: U16,
    /// SEQNUM.
    pub sequence: U32,
}

/// DH-HMAC-CHAP_Reply, followed by the response, the host's challenge and the public value.
///
/// ```text
/// byte 0-5    header
/// byte 6      HL       bytes of the hash
/// byte 7      reserved
/// byte 8      CVALID   1: C2 is a challenge
/// byte 9      reserved
/// byte 10-11  DHVLEN   bytes of the public value; 0 without an exchange
/// byte 12-15  SEQNUM   S2; 0 without a challenge
/// byte 16-    R1, HL bytes
///             C2, HL bytes; zeros without a challenge
///             g^y mod p, DHVLEN bytes, big endian
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Reply {
    /// The header.
    pub header: Header,
    /// HL.
    pub hash_length: u8,
    /// Reserved.
    pub reserved: u8,
    /// CVALID.
    pub challenge_valid: u8,
    /// Reserved.
    pub reserved_too: u8,
    /// DHVLEN.
    pub public_length: U16,
    /// SEQNUM.
    pub sequence: U32,
}

/// The parts of a DH-HMAC-CHAP_Reply.
pub(crate) struct ReplyParts<'a> {
    pub(crate) head: &'a Reply,
    /// R1.
    pub(crate) response: &'a [u8],
    /// C2.
    pub(crate) challenge: &'a [u8],
    /// g^y mod p.
    pub(crate) public: &'a [u8],
}

/// DH-HMAC-CHAP_Success1, followed by the controller's response if the host sent a challenge.
///
/// ```text
/// byte 0-5    header
/// byte 6      HL       bytes of the hash
/// byte 7      reserved
/// byte 8      RVALID   1: R2 follows
/// byte 9-15   reserved
/// byte 16-    R2, HL bytes
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Success1 {
    /// The header.
    pub header: Header,
    /// HL. Set even if no response follows: Linux requires it.
    pub hash_length: u8,
    /// Reserved.
    pub reserved: u8,
    /// RVALID.
    pub response_valid: u8,
    /// Reserved.
    pub reserved_too: [u8; 7],
}

/// DH-HMAC-CHAP_Success2.
///
/// ```text
/// byte 0-5    header
/// byte 6-15   reserved
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Success2 {
    /// The header.
    pub header: Header,
    /// Reserved.
    pub reserved: [u8; 10],
}

/// AUTH_Failure1 and AUTH_Failure2.
///
/// ```text
/// byte 0-5    header
/// byte 6      reason code: 01h
/// byte 7      reason code explanation
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Failure {
    /// The header.
    pub header: Header,
    /// The reason code.
    pub reason: u8,
    /// The reason code explanation, see [`Explanation`].
    pub explanation: u8,
}

const _: () = assert!(size_of::<Header>() == 6);
const _: () = assert!(size_of::<Negotiate>() == 8);
const _: () = assert!(size_of::<ProtocolDescriptor>() == 64);
const _: () = assert!(size_of::<Challenge>() == 16);
const _: () = assert!(size_of::<Reply>() == 16);
const _: () = assert!(size_of::<Success1>() == 16);
const _: () = assert!(size_of::<Success2>() == 16);
const _: () = assert!(size_of::<Failure>() == 8);
const _: () = assert!(MESSAGE_BYTES_MAX == 1168);

impl MessageKind {
    /// AUTH_TYPE and AUTH_ID of each kind.
    const TABLE: [(MessageKind, u8, u8); 7] = [
        (MessageKind::Negotiate, TYPE_COMMON, 0x00),
        (MessageKind::Challenge, TYPE_DH_HMAC_CHAP, 0x01),
        (MessageKind::Reply, TYPE_DH_HMAC_CHAP, 0x02),
        (MessageKind::Success1, TYPE_DH_HMAC_CHAP, 0x03),
        (MessageKind::Success2, TYPE_DH_HMAC_CHAP, 0x04),
        (MessageKind::Failure2, TYPE_COMMON, 0xf0),
        (MessageKind::Failure1, TYPE_COMMON, 0xf1),
    ];

    /// The header of a message of this kind.
    #[must_use]
    pub fn header(self, transaction: u16) -> Header {
        let (_, auth_type, auth_id) =
            MessageKind::TABLE.into_iter().find(|row| row.0 == self).expect("the table has every kind");
        Header { auth_type, auth_id, reserved: [0; 2], transaction: transaction.into() }
    }
}

impl Header {
    /// The header of a message.
    ///
    /// # Errors
    /// [`AuthFailure::WrongLength`] if the message is shorter than that.
    pub fn of(message: &[u8]) -> Result<&Header, AuthFailure> {
        prefix::<Header>(message).map(|(header, _)| header)
    }

    /// The kind of the message; `None` for an unknown type or identifier.
    #[must_use]
    pub fn kind(&self) -> Option<MessageKind> {
        let row = MessageKind::TABLE.into_iter().find(|row| (row.1, row.2) == (self.auth_type, self.auth_id));
        row.map(|row| row.0)
    }

    /// The failure for this message, if it is not expected.
    pub(crate) fn unexpected(&self) -> AuthFailure {
        AuthFailure::UnexpectedMessage { auth_type: self.auth_type, auth_id: self.auth_id }
    }

    /// Whether the message belongs to `transaction`.
    pub(crate) fn check_transaction(&self, transaction: u16) -> Result<(), AuthFailure> {
        let actual = self.transaction.get();
        if actual == transaction {
            Ok(())
        } else {
            Err(AuthFailure::WrongTransaction { expected: transaction, actual })
        }
    }
}

impl ProtocolDescriptor {
    /// The descriptor that offers `hashes` and `groups`, at most [`IDENTIFIERS_MAX`] of each.
    pub(crate) fn offer(hashes: &[Hash], groups: &[Group]) -> ProtocolDescriptor {
        let mut descriptor = ProtocolDescriptor {
            protocol: TYPE_DH_HMAC_CHAP,
            reserved: 0,
            hash_count: hashes.len() as u8,
            group_count: groups.len() as u8,
            hashes: [0; IDENTIFIERS_MAX],
            groups: [0; IDENTIFIERS_MAX],
        };
        for (identifier, hash) in descriptor.hashes.iter_mut().zip(hashes) {
            *identifier = hash.id();
        }
        for (identifier, group) in descriptor.groups.iter_mut().zip(groups) {
            *identifier = group.id();
        }
        descriptor
    }

    /// The identifiers of the hashes.
    pub(crate) fn hash_ids(&self) -> Result<&[u8], AuthFailure> {
        self.hashes.get(..self.hash_count.into()).ok_or(AuthFailure::TooManyIdentifiers(self.hash_count))
    }

    /// The identifiers of the groups.
    pub(crate) fn group_ids(&self) -> Result<&[u8], AuthFailure> {
        self.groups.get(..self.group_count.into()).ok_or(AuthFailure::TooManyIdentifiers(self.group_count))
    }
}

impl Negotiate {
    /// The message and its descriptors.
    pub(crate) fn of(message: &[u8]) -> Result<(&Negotiate, &[ProtocolDescriptor]), AuthFailure> {
        let (negotiate, rest) = prefix::<Negotiate>(message)?;
        exact(message, size_of::<Negotiate>() + usize::from(negotiate.descriptors) * size_of::<ProtocolDescriptor>())?;
        let descriptors = <[ProtocolDescriptor]>::ref_from_bytes(rest).expect("the length was checked");
        Ok((negotiate, descriptors))
    }
}

impl Challenge {
    /// The message and what follows it.
    pub(crate) fn of(message: &[u8]) -> Result<(&Challenge, &[u8]), AuthFailure> {
        prefix(message)
    }
}

impl Reply {
    /// The parts of the message.
    pub(crate) fn of(message: &[u8], hash: Hash) -> Result<ReplyParts<'_>, AuthFailure> {
        let (head, rest) = prefix::<Reply>(message)?;
        let length = hash.length_bytes();
        check_hash_length(head.hash_length, hash)?;
        exact(message, size_of::<Reply>() + 2 * length + usize::from(head.public_length.get()))?;
        let (response, rest) = rest.split_at(length);
        let (challenge, public) = rest.split_at(length);
        Ok(ReplyParts { head, response, challenge, public })
    }
}

impl Success1 {
    /// The message and R2, if there is one.
    pub(crate) fn of(message: &[u8], hash: Hash) -> Result<(&Success1, Option<&[u8]>), AuthFailure> {
        let (success, rest) = prefix::<Success1>(message)?;
        check_hash_length(success.hash_length, hash)?;
        match success.response_valid {
            0 => Ok((success, None)),
            1 => Ok((success, Some(front(message, rest, hash.length_bytes())?))),
            other => Err(AuthFailure::WrongValidity(other)),
        }
    }
}

impl Failure {
    /// The bytes of AUTH_Failure1 or AUTH_Failure2.
    pub(crate) fn bytes(kind: MessageKind, transaction: u16, explanation: Explanation) -> Vec<u8> {
        let header = kind.header(transaction);
        Failure { header, reason: REASON_FAILED, explanation: explanation.code() }.as_bytes().to_vec()
    }

    /// The explanation in the message.
    pub(crate) fn explanation_of(message: &[u8]) -> Result<Explanation, AuthFailure> {
        prefix::<Failure>(message).map(|(failure, _)| Explanation::from_code(failure.explanation))
    }
}

/// HL must be the length of the hash.
pub(crate) fn check_hash_length(length: u8, hash: Hash) -> Result<(), AuthFailure> {
    if usize::from(length) == hash.length_bytes() { Ok(()) } else { Err(AuthFailure::WrongHashLength(length)) }
}

/// DHVLEN must match the group: 0 without an exchange, else at most the prime's length. Not
/// exactly: some implementations omit leading zeros.
pub(crate) fn check_public_length(length: u16, group: Group) -> Result<(), AuthFailure> {
    let suits = match group.length_bytes() {
        0 => length == 0,
        longest => (1..=longest).contains(&usize::from(length)),
    };
    if suits { Ok(()) } else { Err(AuthFailure::WrongPublicLength(length)) }
}

/// The message must have `expected` bytes.
pub(crate) fn exact(message: &[u8], expected: usize) -> Result<(), AuthFailure> {
    if message.len() == expected { Ok(()) } else { Err(AuthFailure::WrongLength { expected, actual: message.len() }) }
}

/// The first `length` bytes of `rest`, the end of `message`.
pub(crate) fn front<'a>(message: &[u8], rest: &'a [u8], length: usize) -> Result<&'a [u8], AuthFailure> {
    let expected = message.len() - rest.len() + length;
    rest.get(..length).ok_or(AuthFailure::WrongLength { expected, actual: message.len() })
}

fn prefix<T: FromBytes + KnownLayout + Immutable + Unaligned>(message: &[u8]) -> Result<(&T, &[u8]), AuthFailure> {
    T::ref_from_prefix(message)
        .map_err(|_| AuthFailure::WrongLength { expected: size_of::<T>(), actual: message.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_header() {
        for (kind, ..) in MessageKind::TABLE {
            let header = kind.header(0x1234);
            assert_eq!(header.kind(), Some(kind));
            assert_eq!(&header.as_bytes()[2..], [0, 0, 0x34, 0x12]);
        }
        let known = (0..=u16::MAX).filter(|&id| {
            let [auth_type, auth_id] = id.to_le_bytes();
            Header { auth_type, auth_id, reserved: [0; 2], transaction: 0.into() }.kind().is_some()
        });
        assert_eq!(known.count(), MessageKind::TABLE.len());
    }

    /// The bytes that a Linux 6.12 host sends: all hashes, all groups, transaction 1.
    #[test]
    fn the_offer_of_a_linux_host_is_parsed() {
        let mut message = vec![0; 72];
        message[4] = 1;
        message[7] = 1;
        message[8..12].copy_from_slice(&[1, 0, 3, 6]);
        message[12..15].copy_from_slice(&[1, 2, 3]);
        message[42..48].copy_from_slice(&[0, 1, 2, 3, 4, 5]);
        let (negotiate, descriptors) = Negotiate::of(&message).unwrap();
        assert_eq!((negotiate.header.transaction.get(), negotiate.concatenation), (1, 0));
        assert_eq!(descriptors[0].hash_ids().unwrap(), [1, 2, 3]);
        assert_eq!(descriptors[0].group_ids().unwrap(), [0, 1, 2, 3, 4, 5]);
        let groups: Vec<Group> = Group::ALL.into_iter().rev().collect();
        let hashes: Vec<Hash> = Hash::ALL.into_iter().rev().collect();
        assert_eq!(ProtocolDescriptor::offer(&hashes, &groups).as_bytes(), &message[8..]);
    }

    #[test]
    fn lists_longer_than_the_descriptor_are_refused() {
        let mut descriptor = ProtocolDescriptor::offer(&Hash::ALL, &Group::ALL);
        descriptor.hash_count = 30;
        descriptor.group_count = 31;
        assert_eq!(descriptor.hash_ids().unwrap().len(), 30);
        assert_eq!(descriptor.group_ids(), Err(AuthFailure::TooManyIdentifiers(31)));
    }

    #[test]
    fn the_length_of_a_negotiation_must_match_its_descriptors() {
        for (descriptors, length) in [(1, 71), (1, 73), (2, 72), (0, 72), (255, 72)] {
            let mut message = vec![0; length];
            message[7] = descriptors;
            let expected = 8 + 64 * usize::from(descriptors);
            assert_eq!(Negotiate::of(&message).unwrap_err(), AuthFailure::WrongLength { expected, actual: length });
        }
    }
}
