//! Location of a zone's erase units.

use std::sync::Arc;

/// A die of the drive, which is also its LUN, counted channel first: die `d` is on channel
/// `d % channels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DieIndex(pub u16);

/// An erase unit of a zone: its place in the zone's stripe, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitOfZone {
    /// Index into the zone's stripe.
    pub slot: u16,
    /// Which of the zone's erase units on that die, from the start of the zone: its segment.
    pub row: u32,
}

/// The dies of a zone: its data are striped over them in read units.
///
/// Mostly a slot is one die from the zone's start to its end, and zones on the same dies share one
/// list. Where an allocation took more erase units of one die than of another, each segment has
/// dies of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    dies: Arc<[DieIndex]>,
    slots: u16,
    /// From one segment's dies to the next one's; 0 where all segments have the same.
    step: u16,
}

impl Stripe {
    /// The same dies for all segments.
    #[must_use]
    pub fn uniform(dies: impl Iterator<Item = DieIndex>) -> Stripe {
        let dies: Arc<[DieIndex]> = dies.collect();
        let slots = u16::try_from(dies.len()).expect("a zone has no more dies than the drive, which the limits bound");
        Stripe { dies, slots, step: 0 }
    }

    /// Segment after segment, `slots` dies each.
    ///
    /// # Panics
    /// When the dies are not whole segments.
    #[must_use]
    pub fn by_segment(slots: u16, dies: impl Iterator<Item = DieIndex>) -> Stripe {
        let dies: Arc<[DieIndex]> = dies.collect();
        assert!(slots > 0 && !dies.is_empty() && dies.len().is_multiple_of(usize::from(slots)), "segments are whole");
        Stripe { dies, slots, step: slots }
    }

    /// Dies side by side.
    #[must_use]
    #[inline]
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Whether a slot is the same die in all segments.
    #[must_use]
    #[inline]
    pub fn is_uniform(&self) -> bool {
        self.step == 0
    }

    /// Whether slot `s` is the `s`-th die from the first on, in all segments.
    #[must_use]
    pub fn is_of_neighbors(&self) -> bool {
        self.is_uniform() && self.dies.windows(2).all(|dies| dies[0].0 + 1 == dies[1].0)
    }

    /// The die of an erase unit.
    #[must_use]
    #[inline]
    pub fn die(&self, unit: UnitOfZone) -> DieIndex {
        self.dies[unit.row as usize * usize::from(self.step) + usize::from(unit.slot)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dies_of(stripe: &Stripe, rows: u32) -> Vec<Vec<u16>> {
        let row = |row| (0..stripe.slots()).map(|slot| stripe.die(UnitOfZone { slot, row }).0).collect();
        (0..rows).map(row).collect()
    }

    #[test]
    fn segments_share_their_dies_or_have_their_own() {
        let uniform = Stripe::uniform([4, 5].map(DieIndex).into_iter());
        assert_eq!((dies_of(&uniform, 3), uniform.is_uniform()), (vec![vec![4, 5]; 3], true));
        let uneven = Stripe::by_segment(2, [4, 5, 4, 7].map(DieIndex).into_iter());
        assert_eq!((dies_of(&uneven, 2), uneven.is_uniform()), (vec![vec![4, 5], vec![4, 7]], false));
    }

    #[test]
    fn only_dies_in_order_without_gaps_in_all_segments_are_neighbors() {
        let uniform = |dies: &[u16]| Stripe::uniform(dies.iter().copied().map(DieIndex)).is_of_neighbors();
        assert_eq!([&[7][..], &[4, 5, 6], &[4, 6], &[5, 4]].map(uniform), [true, true, false, false]);
        let by_segment = |dies: [u16; 2]| Stripe::by_segment(1, dies.into_iter().map(DieIndex)).is_of_neighbors();
        assert!(!by_segment([4, 5]), "the second segment is on another die");
    }
}
