//! State of one element, and statistics of all.

use serde::Serialize;

/// Wear and state of one element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// How often it was erased.
    pub erases: u32,
    /// What it holds.
    pub state: ElementState,
}

/// State of an element: the availability `a` of SilentZNS, Section 5, with two more states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElementState {
    /// Erased, owned by no zone.
    #[default]
    Empty = 0,
    /// Erased, owned by a zone.
    Allocated = 1,
    /// Owned by a zone, and programmed at least in part.
    Written = 2,
    /// Holds stale data of a zone that was reset, owned by no zone: must be erased before it is
    /// programmed again.
    Invalid = 3,
    /// As [`Invalid`](Self::Invalid), but owned by a zone: its first program erases it.
    AllocatedInvalid = 4,
    /// Of a zone that went offline: never used again.
    Retired = 5,
}

impl ElementState {
    /// All states, by their numbers; undefined numbers are `Retired`, which is never used.
    pub(super) const ALL: [ElementState; 8] = [
        ElementState::Empty,
        ElementState::Allocated,
        ElementState::Written,
        ElementState::Invalid,
        ElementState::AllocatedInvalid,
        ElementState::Retired,
        ElementState::Retired,
        ElementState::Retired,
    ];

    /// The state with this number.
    pub(super) fn from_number(number: u32) -> Option<ElementState> {
        ElementState::ALL.get(number as usize).copied().filter(|state| *state as u32 == number)
    }

    /// Whether an allocation may take it: constraint 1 of SilentZNS, Section 5.
    #[must_use]
    pub fn is_free(self) -> bool {
        matches!(self, ElementState::Empty | ElementState::Invalid)
    }
}

/// How a drive's zones are allocated, and where its elements stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocationFacts {
    /// The policy as profiles write it.
    pub policy: String,
    /// Elements of the drive, those of conventional zones apart. Of `fixed`, which has no smaller
    /// part of a zone, these are erase units; none of them is ever merely allocated.
    pub elements: u64,
    /// Of them, those that are erased and owned by no zone.
    pub empty: u64,
    /// Of them, those that are owned by a zone and hold none of its data yet.
    pub allocated: u64,
    /// Of them, those that hold a zone's data or padding.
    pub written: u64,
    /// Of them, those to be erased before they can be used again.
    pub invalid: u64,
    /// Of them, those that will never be used again.
    pub retired: u64,
    /// Elements of one zone.
    pub elements_per_zone: u32,
    /// Flash of one element, in bytes.
    pub element_bytes: u64,
    /// Memory for the mapping of zones to elements: for each element of a zone a number, in as many
    /// whole bytes as the number of elements takes; `fixed` has one number a zone, of a zone. In
    /// bytes.
    pub mapping_bytes: u64,
    /// Zones that were given their elements.
    pub allocations: u64,
    /// Of them, those that had to exceed the limits on LUNs.
    pub relaxed_allocations: u64,
}

impl AllocationFacts {
    /// Counts elements into the states' fields.
    pub(super) fn count(&mut self, elements: impl Iterator<Item = Element>) {
        for element in elements {
            self.elements += 1;
            *match element.state {
                ElementState::Empty => &mut self.empty,
                ElementState::Allocated | ElementState::AllocatedInvalid => &mut self.allocated,
                ElementState::Written => &mut self.written,
                ElementState::Invalid => &mut self.invalid,
                ElementState::Retired => &mut self.retired,
            } += 1;
        }
    }
}

/// Whole bytes that hold a number below `count`.
pub(super) fn bytes_of_number_below(count: u64) -> u64 {
    u64::from((u64::BITS - count.saturating_sub(1).leading_zeros()).div_ceil(8).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_takes_the_bytes_that_its_bits_need() {
        assert_eq!([1, 2, 256, 257, 65_536, 65_537, 1 << 24].map(bytes_of_number_below), [1, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn every_state_is_found_by_its_number_and_the_free_ones_are_those_of_the_paper() {
        let states: Vec<ElementState> = (0..8).filter_map(ElementState::from_number).collect();
        assert_eq!(states, ElementState::ALL[..6]);
        let free: Vec<u32> = states.iter().filter(|state| state.is_free()).map(|state| *state as u32).collect();
        assert_eq!(free, [0, 3], "a = 0 and a = 3 of constraint 1");
    }
}
