//! The compact stripe table on its own, for benchmarks of its queries.

use zonda_zoned::Prng;

use crate::MemberIndex;
use crate::shape::Layout;
use crate::tables::Slots;

/// A segment's stripe table, filled in an order that drives might choose for appends: any order
/// within a group. It has no clock: the benchmark measures the time.
///
/// ```
/// let mut trial = zonda_raid::StripeTrial::new(3, 1, 256, zonda_zoned::Prng::new(1));
/// assert!(trial.find_one() > 0, "a block's peers are somewhere");
/// ```
#[derive(Debug)]
pub struct StripeTrial {
    slots: Slots,
    members: usize,
    stripes: u32,
    prng: Prng,
}

/// Stripes of the segment: a hundred groups of 256.
const STRIPES: u32 = 25_600;

impl StripeTrial {
    /// Maximum of stripes of a group: the whole segment.
    pub const GROUP_STRIPES_MAX: u32 = STRIPES;

    /// Fills the table of a segment of `data` + `parity` members in groups of `group_stripes`.
    ///
    /// # Panics
    /// If `data` is 0, or `group_stripes` is 0 or more than 25,600.
    #[must_use]
    pub fn new(data: u8, parity: u8, group_stripes: u32, mut prng: Prng) -> StripeTrial {
        assert!(data > 0 && (1..=STRIPES).contains(&group_stripes), "a segment has groups, a stripe has data");
        let members = usize::from(data) + usize::from(parity);
        let layout = Layout {
            header_blocks: 2,
            unit_blocks: 1,
            meta_blocks: 0,
            group_stripes,
            stripes: STRIPES,
            footer_blocks: 1,
        };
        let mut slots = Slots::new(layout, members);
        let mut first = 0;
        while first < STRIPES {
            let group = layout.group_range(first);
            for member in (0..members as u8).map(MemberIndex) {
                let mut order: Vec<u32> = group.clone().collect();
                for at in (1..order.len()).rev() {
                    order.swap(at, prng.below(at as u64 + 1) as usize);
                }
                group.clone().zip(order).for_each(|(slot, stripe)| slots.set(member, slot, stripe));
            }
            slots.seal_group();
            first = group.end;
        }
        StripeTrial { slots, members, stripes: STRIPES, prng }
    }

    /// Finds the other chunks of the stripe of a random block, as a degraded read does: k + m - 1
    /// groups are searched.
    /// Returns the sum of their slots.
    pub fn find_one(&mut self) -> u64 {
        let slot = self.prng.below(u64::from(self.stripes)) as u32;
        let stripe = self.slots.stripe_at(MemberIndex(0), slot).expect("every slot is filled");
        let others = (1..self.members as u8).filter_map(|member| self.slots.slot_of(MemberIndex(member), stripe));
        others.map(u64::from).sum()
    }
}
