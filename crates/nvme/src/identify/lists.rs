//! The lists of Identify: namespaces, the identifiers of one namespace, and command sets (NVMe Base
//! 2.0, sections 5.17.2.2, 5.17.2.3 and 5.17.2.21).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::NamespaceId;

use super::{CommandSet, IDENTIFY_BYTES};
use crate::page::{Page, PageError};

/// Namespace List (NVMe Base 2.0, section 5.17.2.2): identifiers in ascending order, ended by zero
/// unless it is full.
///
/// ```text
/// 0 identifier 0 | 4 identifier 1 | ... | 4092 identifier 1023
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NamespaceList {
    /// The identifiers.
    pub identifiers: [U32; 1024],
}

/// I/O Command Set data structure (CNS 1Ch, NVMe Base 2.0, section 5.17.2.21): combinations of
/// command sets that can be on together. A host chooses one by its index.
///
/// ```text
/// 0 combination 0 | 8 combination 1 | ... | 4088 combination 511
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandSetVector {
    /// Each combination has a bit for each command set, numbered by its identifier (CSI).
    pub combinations: [U64; 512],
}

const _: () = assert!(size_of::<NamespaceList>() == IDENTIFY_BYTES);
const _: () = assert!(size_of::<CommandSetVector>() == IDENTIFY_BYTES);

/// The identifiers of a namespace. All zeros mean that it has no such identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceIdentity {
    /// UUID, in the byte order of RFC 4122.
    pub uuid: Option<[u8; 16]>,
    /// Namespace Globally Unique Identifier (NGUID), most significant byte first.
    pub nguid: Option<[u8; 16]>,
    /// IEEE Extended Unique Identifier (EUI64), most significant byte first.
    pub eui64: Option<[u8; 8]>,
}

impl Page for NamespaceList {
    const NAME: &'static str = "Namespace List";
}

impl Page for CommandSetVector {
    const NAME: &'static str = "I/O Command Set Vector";
}

impl NamespaceList {
    /// The active namespaces above `after`: as many as fit, in ascending order.
    #[must_use]
    pub fn above(after: NamespaceId, active: &[NamespaceId]) -> NamespaceList {
        let mut above: Vec<u32> = active.iter().filter(|id| id.0 > after.0).map(|id| id.0).collect();
        above.sort_unstable();
        above.dedup();
        let mut page = NamespaceList::empty();
        for (slot, id) in page.identifiers.iter_mut().zip(above) {
            *slot = id.into();
        }
        page
    }

    /// The identifiers up to the zero that ends them. A full list may have a continuation.
    pub fn iter(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        self.identifiers.iter().map(|id| NamespaceId(id.get())).take_while(|id| id.0 != 0)
    }
}

impl CommandSetVector {
    /// One combination: all of `sets` together.
    #[must_use]
    pub fn of(sets: &[CommandSet]) -> CommandSetVector {
        let mut page = CommandSetVector::empty();
        page.combinations[0] = sets.iter().fold(0, |bits, &set| bits | 1u64 << set as u8).into();
        page
    }

    /// The place of the first combination with all of `sets`.
    #[must_use]
    pub fn combination_with(&self, sets: &[CommandSet]) -> Option<usize> {
        let wanted = sets.iter().fold(0, |bits, &set| bits | 1u64 << set as u8);
        self.combinations.iter().position(|combination| wanted != 0 && combination.get() & wanted == wanted)
    }
}

/// Namespace Identification Descriptor list (CNS 03h, NVMe Base 2.0, section 5.17.2.3), the command
/// set last.
///
/// ```text
/// 0 type (NIDT) | 1 length (NIDL) | 2 reserved | 4 identifier, NIDL bytes; then the next descriptor without a gap
/// ```
#[must_use]
pub fn write_descriptors(identity: &NamespaceIdentity, command_set: CommandSet) -> Vec<u8> {
    let mut list = Vec::with_capacity(IDENTIFY_BYTES);
    let mut add = |identifier_type: u8, identifier: &[u8]| {
        list.extend_from_slice(&[identifier_type, identifier.len() as u8, 0, 0]);
        list.extend_from_slice(identifier);
    };
    if let Some(eui64) = &identity.eui64 {
        add(EUI64, eui64);
    }
    if let Some(nguid) = &identity.nguid {
        add(NGUID, nguid);
    }
    if let Some(uuid) = &identity.uuid {
        add(UUID, uuid);
    }
    add(COMMAND_SET, &[command_set as u8]);
    list.resize(IDENTIFY_BYTES, 0);
    list
}

/// Reads a Namespace Identification Descriptor list: the identifiers, and the code of the command
/// set if it is listed. Descriptors of an unknown type are skipped.
///
/// # Errors
/// [`PageError::Short`] where a descriptor reaches past the end of `bytes`; [`PageError::Value`]
/// for a known type with another length than its own.
pub fn parse_descriptors(bytes: &[u8]) -> Result<(NamespaceIdentity, Option<u8>), PageError> {
    let mut identity = NamespaceIdentity::default();
    let mut command_set = None;
    let mut rest = bytes;
    while let [identifier_type, length, _, _, tail @ ..] = rest {
        let length = usize::from(*length);
        if length == 0 {
            return Ok((identity, command_set));
        }
        let Some((identifier, next)) = tail.split_at_checked(length) else {
            let needed_bytes = bytes.len() - tail.len() + length;
            return Err(PageError::Short { page: DESCRIPTORS, needed_bytes, found_bytes: bytes.len() });
        };
        match *identifier_type {
            EUI64 => identity.eui64 = present(sized(identifier)?),
            NGUID => identity.nguid = present(sized(identifier)?),
            UUID => identity.uuid = present(sized(identifier)?),
            COMMAND_SET => command_set = Some(sized::<1>(identifier)?[0]),
            _ => {}
        }
        rest = next;
    }
    Ok((identity, command_set))
}

/// The structure's name in errors.
const DESCRIPTORS: &str = "Namespace Identification Descriptor";
/// NIDT 1h.
const EUI64: u8 = 1;
/// NIDT 2h.
const NGUID: u8 = 2;
/// NIDT 3h.
const UUID: u8 = 3;
/// NIDT 4h.
const COMMAND_SET: u8 = 4;

fn sized<const N: usize>(identifier: &[u8]) -> Result<[u8; N], PageError> {
    identifier.try_into().map_err(|_| PageError::Value {
        page: DESCRIPTORS,
        field: "NIDL",
        value: identifier.len() as u64,
        remedy: "must be the length of its type: 8, 16, 16 or 1",
    })
}

fn present<const N: usize>(identifier: [u8; N]) -> Option<[u8; N]> {
    (identifier != [0; N]).then_some(identifier)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(list: &NamespaceList) -> Vec<u32> {
        list.iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_namespace_list_continues_above_the_given_identifier() {
        let active = [3, 1, 9, 1].map(NamespaceId);
        assert_eq!(ids(&NamespaceList::above(NamespaceId(0), &active)), [1, 3, 9]);
        assert_eq!(ids(&NamespaceList::above(NamespaceId(3), &active)), [9]);
        assert_eq!(ids(&NamespaceList::above(NamespaceId(9), &active)), [0; 0]);
    }

    #[test]
    fn a_full_namespace_list_has_no_zero_at_its_end() {
        let active: Vec<NamespaceId> = (1..=2000).map(NamespaceId).collect();
        let first = NamespaceList::above(NamespaceId(0), &active);
        assert_eq!((ids(&first).len(), ids(&first)[1023]), (1024, 1024));
        assert_eq!(ids(&NamespaceList::above(NamespaceId(1024), &active)).len(), 976);
    }

    #[test]
    fn both_command_sets_are_one_combination() {
        let page = CommandSetVector::of(&[CommandSet::Nvm, CommandSet::Zoned]);
        assert_eq!(page.bytes()[0..9], [0b101, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page.combination_with(&[CommandSet::Zoned]), Some(0));
        assert_eq!(page.combination_with(&[CommandSet::KeyValue]), None);
        assert_eq!(page.combination_with(&[]), None);
    }

    #[test]
    fn identifiers_are_contiguous() {
        let identity = NamespaceIdentity { uuid: Some([0xaa; 16]), nguid: None, eui64: Some([0xbb; 8]) };
        let list = write_descriptors(&identity, CommandSet::Zoned);
        assert_eq!(list.len(), 4096);
        assert_eq!(list[0..5], [1, 8, 0, 0, 0xbb]);
        assert_eq!(list[12..17], [3, 16, 0, 0, 0xaa]);
        assert_eq!(list[32..38], [4, 1, 0, 0, 2, 0]);
        assert_eq!(parse_descriptors(&list), Ok((identity, Some(2))));
    }

    #[test]
    fn an_unknown_identifier_type_is_skipped() {
        let bytes = [9, 2, 0, 0, 1, 2, 4, 1, 0, 0, 0];
        assert_eq!(parse_descriptors(&bytes), Ok((NamespaceIdentity::default(), Some(0))));
    }

    #[test]
    fn an_identifier_cut_off_or_of_a_wrong_length_is_an_error() {
        assert_eq!(
            parse_descriptors(&[1, 8, 0, 0, 7]),
            Err(PageError::Short { page: DESCRIPTORS, needed_bytes: 12, found_bytes: 5 })
        );
        assert!(matches!(parse_descriptors(&[2, 1, 0, 0, 7]), Err(PageError::Value { field: "NIDL", value: 1, .. })));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_descriptors(&bytes);
        }

        #[test]
        fn every_identity_survives_its_list(
            uuid in proptest::option::of(any::<[u8; 16]>()),
            nguid in proptest::option::of(any::<[u8; 16]>()),
            eui64 in proptest::option::of(any::<[u8; 8]>()),
        ) {
            let identity = NamespaceIdentity {
                uuid: uuid.and_then(present),
                nguid: nguid.and_then(present),
                eui64: eui64.and_then(present),
            };
            let list = write_descriptors(&identity, CommandSet::Nvm);
            prop_assert_eq!(parse_descriptors(&list), Ok((identity, Some(0))));
        }
    }
}
