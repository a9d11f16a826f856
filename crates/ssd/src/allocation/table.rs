//! The element table: wear, state and owner of each element, as plain data and serialized.
//!
//! All numbers are little-endian.
//!
//! ```text
//! byte  bytes  what
//!    0      4  "ZELM"
//!    4      4  version, 1
//!    8      4  CRC-32C of everything from byte 12 on
//!   12      4  policy: 0 fixed, 1 superblock, 2 block, 3 vchunk, 4 hchunk
//!   16      4  N of a vchunk or hchunk, else 0
//!   20      4  elements per zone
//!   24      4  next set of eligible LUNs
//!   28      4  E, elements
//!   32      4  Z, sequential zones
//!   36    4 E  of each element: erases x 8 + state
//!    +    4 Z  of each zone: number of its elements
//!    +    4 x  of each zone, one after the other: its elements' numbers, x in all
//! ```

use std::fmt;

use super::element::ElementGrid;
use super::{AllocationKind, Element, ElementState};
use crate::limits::{ELEMENT_ERASES_MAX, ELEMENTS_MAX};

const MAGIC: &[u8; 4] = b"ZELM";
const VERSION: u32 = 1;
/// Where what the checksum covers begins.
const SUM_FROM: usize = 12;
const HEADER_BYTES: usize = 36;
/// States of an element in its word.
const STATES: u32 = 8;

/// Wear, state and owner of the elements of a drive: its persistent state besides its zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementTable {
    /// The policy of the drive.
    pub policy: AllocationKind,
    /// Elements of a zone.
    pub elements_per_zone: u32,
    /// The next set of eligible LUNs.
    pub next_set: u32,
    /// Each element, LUN group by LUN group. Of `fixed`: each erase unit, zone by zone.
    pub elements: Vec<Element>,
    /// The elements of each zone that is not conventional, segment by segment. Of `fixed`, where
    /// they never change, none are listed.
    pub zones: Vec<Vec<u32>>,
}

/// Why a table of elements cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementTableError {
    /// The bytes are not an element table.
    NotATable,
    /// The bytes are of another version.
    Version {
        /// The version found.
        found: u32,
    },
    /// There are more or fewer bytes than the header of the table states.
    Length {
        /// The length by the header.
        expected: u64,
        /// The actual length.
        found: u64,
    },
    /// The checksum does not match.
    Checksum,
    /// The table is inconsistent.
    Inconsistent(String),
    /// The table is of a drive with another shape or policy.
    OtherDrive(String),
}

impl fmt::Display for ElementTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElementTableError::NotATable => {
                f.write_str("not an element table: expected the bytes written by ElementTable::to_bytes")
            }
            ElementTableError::Version { found } => write!(
                f,
                "the element table has version {found}, and this program supports version {VERSION}: use the program that \
                 wrote it, or start with new elements"
            ),
            ElementTableError::Length { expected, found } => write!(
                f,
                "the element table has {found} bytes, but its header states {expected}: it was truncated or extended; \
                 restore an earlier copy, or start with new elements"
            ),
            ElementTableError::Checksum => f.write_str(
                "the checksum of the element table does not match: it was modified after it was written; restore an earlier \
                 copy, or start with new elements",
            ),
            ElementTableError::Inconsistent(what) => write!(
                f,
                "the element table is inconsistent: {what}; restore an earlier copy, or start with new elements"
            ),
            ElementTableError::OtherDrive(what) => write!(
                f,
                "the element table belongs to another drive: {what}; use the profile that it was written with, or start \
                 with new elements"
            ),
        }
    }
}

impl std::error::Error for ElementTableError {}

impl ElementTable {
    /// The table as bytes; see the module's byte map.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (policy, count) = number_of(self.policy);
        let owned: usize = self.zones.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 4 * (self.elements.len() + self.zones.len() + owned));
        bytes.extend_from_slice(MAGIC);
        let (elements, zones) = (self.elements.len() as u32, self.zones.len() as u32);
        for number in [VERSION, 0, policy, count, self.elements_per_zone, self.next_set, elements, zones] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for element in &self.elements {
            bytes.extend_from_slice(&(element.erases * STATES + element.state as u32).to_le_bytes());
        }
        for elements in &self.zones {
            bytes.extend_from_slice(&(elements.len() as u32).to_le_bytes());
        }
        for element in self.zones.iter().flatten() {
            bytes.extend_from_slice(&element.to_le_bytes());
        }
        let sum = crc_fast::crc32_iscsi(&bytes[SUM_FROM..]);
        bytes[SUM_FROM - 4..SUM_FROM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses a table.
    ///
    /// # Errors
    /// Bytes that [`to_bytes`](Self::to_bytes) would not make.
    pub fn from_bytes(bytes: &[u8]) -> Result<ElementTable, ElementTableError> {
        if !bytes.starts_with(MAGIC) {
            return Err(ElementTableError::NotATable);
        }
        let mut numbers = Numbers { bytes, at: MAGIC.len() };
        let version = numbers.take()?;
        if version != VERSION {
            return Err(ElementTableError::Version { found: version });
        }
        let sum = numbers.take()?;
        let policy = (numbers.take()?, numbers.take()?);
        let (elements_per_zone, next_set) = (numbers.take()?, numbers.take()?);
        let (elements, zones) = (numbers.take()?, numbers.take()?);
        numbers.expect_more(u64::from(elements) + u64::from(zones))?;
        if crc_fast::crc32_iscsi(&bytes[SUM_FROM..]) != sum {
            return Err(ElementTableError::Checksum);
        }
        let elements = (0..elements).map(|_| element_of(numbers.take()?)).collect::<Result<_, _>>()?;
        let counts = (0..zones).map(|_| numbers.take()).collect::<Result<Vec<u32>, _>>()?;
        numbers.expect_exactly(counts.iter().map(|count| u64::from(*count)).sum())?;
        let mut of_zone = |count: u32| (0..count).map(|_| numbers.take()).collect::<Result<Vec<u32>, _>>();
        let table = ElementTable {
            policy: kind_of(policy)
                .ok_or_else(|| inconsistent(format!("unknown policy number {} with size {}", policy.0, policy.1)))?,
            elements_per_zone,
            next_set,
            elements,
            zones: counts.into_iter().map(&mut of_zone).collect::<Result<_, _>>()?,
        };
        table.check()?;
        Ok(table)
    }

    /// Checks the table for consistency.
    fn check(&self) -> Result<(), ElementTableError> {
        if let Some(element) = self.elements.iter().position(|element| element.erases > ELEMENT_ERASES_MAX) {
            return Err(inconsistent(format!("element {element} has too many erases")));
        }
        let mut is_owned = vec![false; self.elements.len()];
        for (zone, elements) in self.zones.iter().enumerate() {
            if elements.len() > self.elements_per_zone as usize {
                return Err(inconsistent(format!("zone {zone} has {} elements", elements.len())));
            }
            let is_retired = |element: &u32| {
                self.elements.get(*element as usize).is_some_and(|element| element.state == ElementState::Retired)
            };
            let retired = elements.iter().filter(|element| is_retired(element)).count();
            if retired > 0 && retired < elements.len() {
                return Err(inconsistent(format!("zone {zone} is offline, but not all of its elements are retired")));
            }
            for element in elements {
                let Some(is_owned) = is_owned.get_mut(*element as usize) else {
                    return Err(inconsistent(format!("zone {zone} has element {element}, which does not exist")));
                };
                if std::mem::replace(is_owned, true) {
                    return Err(inconsistent(format!("element {element} is listed twice")));
                }
            }
        }
        if self.policy == AllocationKind::Fixed {
            return Ok(());
        }
        let wrong =
            self.elements.iter().zip(&is_owned).position(|(element, is_owned)| element.state.is_free() == *is_owned);
        match wrong {
            Some(element) if is_owned[element] => {
                Err(inconsistent(format!("element {element} is free, but listed for a zone")))
            }
            Some(element) => Err(inconsistent(format!("element {element} is not free, but has no owner"))),
            None => Ok(()),
        }
    }

    /// Checks that the table is of a drive with this policy and grid.
    pub(super) fn check_for(&self, kind: AllocationKind, grid: &ElementGrid) -> Result<(), ElementTableError> {
        let elements = match kind {
            AllocationKind::Fixed => u64::from(grid.zones) * u64::from(grid.elements_per_zone()),
            _ => grid.elements(),
        };
        let other = |what: String| Err(ElementTableError::OtherDrive(what));
        if self.policy != kind {
            return other(format!("its zones are allocated by \"{}\", not by \"{kind}\"", self.policy));
        }
        if self.elements.len() as u64 != elements {
            return other(format!("its number of elements is {}, not {elements}", self.elements.len()));
        }
        if self.elements_per_zone != grid.elements_per_zone() {
            let expected = grid.elements_per_zone();
            return other(format!("its number of elements per zone is {}, not {expected}", self.elements_per_zone));
        }
        if self.zones.len() != grid.zones as usize {
            return other(format!("its number of zones is {}, not {}", self.zones.len(), grid.zones));
        }
        self.check()
    }
}

/// The numbers of a table, one after the other.
struct Numbers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Numbers<'_> {
    fn take(&mut self) -> Result<u32, ElementTableError> {
        let Some(number) = self.bytes[self.at..].first_chunk() else {
            let expected = HEADER_BYTES.max(self.at + 4) as u64;
            return Err(ElementTableError::Length { expected, found: self.bytes.len() as u64 });
        };
        self.at += 4;
        Ok(u32::from_le_bytes(*number))
    }

    /// Checks that so many numbers remain, before memory is allocated for them.
    fn expect_more(&self, numbers: u64) -> Result<(), ElementTableError> {
        let (expected, found) = (self.at as u64 + 4 * numbers, self.bytes.len() as u64);
        if found < expected { Err(ElementTableError::Length { expected, found }) } else { Ok(()) }
    }

    fn expect_exactly(&self, numbers: u64) -> Result<(), ElementTableError> {
        let (expected, found) = (self.at as u64 + 4 * numbers, self.bytes.len() as u64);
        if found == expected { Ok(()) } else { Err(ElementTableError::Length { expected, found }) }
    }
}

fn inconsistent(what: String) -> ElementTableError {
    ElementTableError::Inconsistent(what)
}

fn element_of(word: u32) -> Result<Element, ElementTableError> {
    let state = ElementState::from_number(word % STATES);
    let state = state.ok_or_else(|| inconsistent(format!("unknown state {}", word % STATES)))?;
    Ok(Element { erases: word / STATES, state })
}

fn number_of(kind: AllocationKind) -> (u32, u32) {
    match kind {
        AllocationKind::Fixed => (0, 0),
        AllocationKind::Superblock => (1, 0),
        AllocationKind::Block => (2, 0),
        AllocationKind::Vchunk(luns) => (3, luns),
        AllocationKind::Hchunk(units) => (4, units),
    }
}

fn kind_of(number: (u32, u32)) -> Option<AllocationKind> {
    match number {
        (0, 0) => Some(AllocationKind::Fixed),
        (1, 0) => Some(AllocationKind::Superblock),
        (2, 0) => Some(AllocationKind::Block),
        (3, luns @ 1..) => Some(AllocationKind::Vchunk(luns)),
        (4, units @ 1..) => Some(AllocationKind::Hchunk(units)),
        _ => None,
    }
}

const _: () = assert!(ELEMENT_ERASES_MAX as u64 * STATES as u64 + (STATES as u64 - 1) == u32::MAX as u64);
const _: () = assert!(ELEMENTS_MAX <= u32::MAX as u64);
