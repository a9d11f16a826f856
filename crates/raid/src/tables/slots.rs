//! The compact stripe table of a segment: which stripe each slot of each zone holds, in ceil(log2
//! G) bits (ZapRAID, section 3.2).
//!
//! Within a group drives choose the order of chunks; groups themselves stay in order. So a slot's
//! stripe is the first of its group plus a number below G, and a stripe's slot on another member is
//! found by searching the group there.
//!
//! A group that is being written, and one that was never completed, is stored separately, one word
//! per slot: there a slot may also be empty.

use crate::MemberIndex;
use crate::shape::Layout;

/// The stripe in each slot, for all members of one segment.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    layout: Layout,
    bits: u32,
    /// For each member, `bits` bits per slot; empty where a group is one stripe.
    packed: Vec<Box<[u64]>>,
    /// Slots of groups before this one are packed.
    packed_until: u32,
    /// The group that starts at `packed_until`: the stripe of each slot, for each member.
    open: Vec<Vec<u32>>,
}

/// Slots on either side of where a chunk would be if its member had kept the order.
const NEAR_SLOTS: u32 = 8;
/// An empty slot of an open group.
const EMPTY: u32 = u32::MAX;

impl Slots {
    pub(crate) fn new(layout: Layout, members: usize) -> Slots {
        let bits = layout.stripe_bits();
        let words = (u64::from(layout.stripes) * u64::from(bits)).div_ceil(64) as usize;
        let packed = (0..members).map(|_| vec![0; words].into_boxed_slice()).collect();
        let mut slots = Slots { layout, bits, packed, packed_until: 0, open: Vec::new() };
        slots.open_group(members);
        slots
    }

    fn open_group(&mut self, members: usize) {
        let length =
            if self.packed_until < self.layout.stripes { self.layout.group_range(self.packed_until).len() } else { 0 };
        self.open.resize(members, Vec::new());
        for member in &mut self.open {
            member.clear();
            member.resize(length, EMPTY);
        }
    }

    /// Bytes of the packed table.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.iter().map(|member| member.len() * 8).sum()
    }

    /// A chunk has arrived.
    ///
    /// # Panics
    /// If the slot is not in the open group or is occupied: callers check what drives report.
    pub(crate) fn set(&mut self, member: MemberIndex, slot: u32, stripe: u32) {
        let entry = &mut self.open[member.as_usize()][(slot - self.packed_until) as usize];
        assert_eq!(*entry, EMPTY, "a slot is filled once");
        *entry = stripe;
    }

    /// Whether a chunk may have arrived in this slot.
    pub(crate) fn is_free(&self, member: MemberIndex, slot: u32) -> bool {
        slot.checked_sub(self.packed_until)
            .and_then(|at| self.open[member.as_usize()].get(at as usize))
            .is_some_and(|&stripe| stripe == EMPTY)
    }

    /// Assigns a slot to a chunk that is on no medium: addresses name it, and a rebuild writes it
    /// there. The slot of the stripe's own number where that is free.
    pub(crate) fn set_virtual(&mut self, member: MemberIndex, stripe: u32) -> u32 {
        let open = &mut self.open[member.as_usize()];
        let wanted = (stripe - self.packed_until) as usize;
        let at = if open[wanted] == EMPTY {
            wanted
        } else {
            open.iter().position(|&entry| entry == EMPTY).expect("a group has a slot for each of its stripes")
        };
        open[at] = stripe;
        self.packed_until + at as u32
    }

    /// All chunks of the open group have their slots. Opens the next group.
    pub(crate) fn seal_group(&mut self) {
        let group = self.layout.group_range(self.packed_until);
        for member in 0..self.open.len() {
            for at in 0..group.len() {
                let stripe = self.open[member][at];
                assert!(group.contains(&stripe), "a complete group has no empty slot");
                self.pack(member, group.start + at as u32, stripe - group.start);
            }
        }
        self.packed_until = group.end;
        self.open_group(self.open.len());
    }

    /// Stripes of the groups that are complete.
    pub(crate) fn complete_stripes(&self) -> u32 {
        self.packed_until
    }

    /// Whether all groups are complete.
    pub(crate) fn are_all_packed(&self) -> bool {
        self.packed_until == self.layout.stripes
    }

    fn pack(&mut self, member: usize, slot: u32, value: u32) {
        if self.bits == 0 {
            return;
        }
        let at = u64::from(slot) * u64::from(self.bits);
        let (word, place) = ((at / 64) as usize, at % 64);
        let (mask, value) = ((1 << self.bits) - 1, u64::from(value));
        let words = &mut self.packed[member];
        words[word] = words[word] & !(mask << place) | value << place;
        if place + u64::from(self.bits) > 64 {
            words[word + 1] = words[word + 1] & !(mask >> (64 - place)) | value >> (64 - place);
        }
    }

    fn unpack(&self, member: usize, slot: u32) -> u32 {
        if self.bits == 0 {
            return 0;
        }
        let at = u64::from(slot) * u64::from(self.bits);
        let (word, place) = ((at / 64) as usize, at % 64);
        let words = &self.packed[member];
        let mut value = words[word] >> place;
        if place + u64::from(self.bits) > 64 {
            value |= words[word + 1] << (64 - place);
        }
        (value & ((1 << self.bits) - 1)) as u32
    }

    /// The stripe whose chunk a slot holds.
    pub(crate) fn stripe_at(&self, member: MemberIndex, slot: u32) -> Option<u32> {
        if slot < self.packed_until {
            let group = slot - slot % self.layout.group_stripes;
            return Some(group + self.unpack(member.as_usize(), slot));
        }
        let stripe = *self.open[member.as_usize()].get((slot - self.packed_until) as usize)?;
        (stripe != EMPTY).then_some(stripe)
    }

    /// The slot that holds a member's chunk of a stripe. Members seldom change the order by much:
    /// the search begins near the slot of the stripe's own number.
    pub(crate) fn slot_of(&self, member: MemberIndex, stripe: u32) -> Option<u32> {
        if stripe >= self.packed_until {
            return self.open_slot_of(member, stripe);
        }
        if self.bits == 0 {
            return Some(stripe);
        }
        let group = self.layout.group_range(stripe);
        let wanted = stripe - group.start;
        let is_it = |slot: &u32| self.unpack(member.as_usize(), *slot) == wanted;
        let near = stripe.saturating_sub(NEAR_SLOTS).max(group.start)..(stripe + NEAR_SLOTS).min(group.end);
        if let Some(slot) = near.into_iter().find(is_it) {
            return Some(slot);
        }
        if self.bits == 8 {
            return self.slot_of_bytes(member, group, wanted as u8);
        }
        group.into_iter().find(is_it)
    }

    /// Groups of 129 to 256 stripes: a byte a slot, eight at a time.
    fn slot_of_bytes(&self, member: MemberIndex, group: std::ops::Range<u32>, wanted: u8) -> Option<u32> {
        let words = &self.packed[member.as_usize()];
        let (first, last) = (group.start / 8, (group.end - 1) / 8);
        for word in first..=last {
            for (byte, &value) in words[word as usize].to_le_bytes().iter().enumerate() {
                let slot = word * 8 + byte as u32;
                if value == wanted && group.contains(&slot) {
                    return Some(slot);
                }
            }
        }
        None
    }

    /// The same in the group that is being written.
    fn open_slot_of(&self, member: MemberIndex, stripe: u32) -> Option<u32> {
        let open = &self.open[member.as_usize()];
        open.iter().position(|&other| other == stripe).map(|at| self.packed_until + at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;

    fn layout(group_stripes: u32, stripes: u32) -> Layout {
        Layout { header_blocks: 2, unit_blocks: 1, meta_blocks: 0, group_stripes, stripes, footer_blocks: 1 }
    }

    #[test]
    fn every_chunk_is_found_where_it_was_put_whatever_the_order_in_its_group() {
        for (group_stripes, stripes) in
            [(1, 9), (2, 9), (3, 20), (5, 5), (33, 100), (200, 777), (256, 1000), (1000, 999)]
        {
            let layout = layout(group_stripes.min(stripes), stripes);
            let mut slots = Slots::new(layout, 2);
            let mut expected = [vec![0; stripes as usize], vec![0; stripes as usize]];
            let mut prng = Prng::new(u64::from(group_stripes));
            let mut first = 0;
            while first < stripes {
                let group = layout.group_range(first);
                for member in 0..2u8 {
                    let mut order: Vec<u32> = group.clone().collect();
                    for at in (1..order.len()).rev() {
                        order.swap(at, prng.below(at as u64 + 1) as usize);
                    }
                    for (slot, stripe) in group.clone().zip(order) {
                        assert!(slots.is_free(MemberIndex(member), slot));
                        slots.set(MemberIndex(member), slot, stripe);
                        assert_eq!(slots.slot_of(MemberIndex(member), stripe), Some(slot), "while the group is open");
                        expected[usize::from(member)][slot as usize] = stripe;
                    }
                }
                slots.seal_group();
                first = group.end;
            }
            for member in 0..2u8 {
                for (slot, &stripe) in expected[usize::from(member)].iter().enumerate() {
                    assert_eq!(slots.stripe_at(MemberIndex(member), slot as u32), Some(stripe));
                    assert_eq!(slots.slot_of(MemberIndex(member), stripe), Some(slot as u32));
                }
                assert!(!slots.is_free(MemberIndex(member), stripes), "behind the last group there is no slot");
            }
        }
    }

    #[test]
    fn a_member_that_takes_no_part_has_its_stripes_in_order() {
        let mut slots = Slots::new(layout(4, 8), 2);
        for (slot, stripe) in [3, 1, 0, 2].into_iter().enumerate() {
            slots.set(MemberIndex(0), slot as u32, stripe);
            assert_eq!(slots.set_virtual(MemberIndex(1), stripe), stripe);
        }
        slots.seal_group();
        assert_eq!(slots.slot_of(MemberIndex(1), 3), Some(3));
        assert_eq!(slots.stripe_at(MemberIndex(1), 2), Some(2));
        assert_eq!(slots.stripe_at(MemberIndex(1), 4), None, "the next group is empty");
    }

    #[test]
    fn a_slot_takes_as_many_bits_as_the_group_needs() {
        for (group_stripes, bits) in [(1, 0), (2, 1), (3, 2), (256, 8), (257, 9), (65_536, 16)] {
            let slots = Slots::new(layout(group_stripes, 65_536), 1);
            assert_eq!(slots.bytes() * 8, 65_536 * bits, "G = {group_stripes}");
        }
    }
}
