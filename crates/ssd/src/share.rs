//! Which of the units that wait at a die is programmed next.
//!
//! In fair order, zones that have work get equal shares of the program bandwidth, whatever each has
//! in the write buffer: start-time fair queueing (Goyal, Vin, Cheng 1996) over all dies, by bytes.
//! A zone that is finished is one of them.

use zonda_zoned::ZoneIndex;

use crate::profile::ProgramOrder;

/// The place of a unit in the order: lower first, equal ones in order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StartTag(u64);

/// What the zones have had of the program bandwidth.
#[derive(Debug)]
pub(crate) struct ProgramShares {
    /// The tag of the unit that was started last.
    served: StartTag,
    /// The tag of each zone's next unit if it follows its last; empty in order of arrival.
    next_of_zone: Vec<StartTag>,
}

impl ProgramShares {
    pub(crate) fn new(order: ProgramOrder, zones: u32) -> ProgramShares {
        let zones = if order == ProgramOrder::Fair { zones as usize } else { 0 };
        ProgramShares { served: StartTag::default(), next_of_zone: vec![StartTag::default(); zones] }
    }

    /// The place of a unit of a zone that arrives now.
    pub(crate) fn tag(&mut self, zone: ZoneIndex, bytes: u64) -> StartTag {
        let Some(next) = self.next_of_zone.get_mut(zone.as_usize()) else { return StartTag::default() };
        // A zone that had nothing to program has not saved up a share.
        let tag = self.served.max(*next);
        *next = StartTag(tag.0 + bytes);
        tag
    }

    /// A die starts a unit.
    #[inline]
    pub(crate) fn start(&mut self, tag: StartTag) {
        self.served = self.served.max(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_with_much_waiting_does_not_delay_one_with_little() {
        let mut shares = ProgramShares::new(ProgramOrder::Fair, 2);
        let (much, little) = (ZoneIndex(0), ZoneIndex(1));
        let tags: Vec<StartTag> = (0..4).map(|_| shares.tag(much, 10)).collect();
        assert_eq!(tags, [0, 10, 20, 30].map(StartTag));
        shares.start(tags[1]);
        assert_eq!([shares.tag(little, 10), shares.tag(little, 10)], [10, 20].map(StartTag), "no share was saved up");
        shares.start(tags[3]);
        assert_eq!(shares.tag(much, 10), StartTag(40));
    }

    #[test]
    fn in_order_of_arrival_all_units_are_equal() {
        let mut shares = ProgramShares::new(ProgramOrder::Arrival, 2);
        let first = shares.tag(ZoneIndex(0), 10);
        shares.start(first);
        assert_eq!([shares.tag(ZoneIndex(0), 10), shares.tag(ZoneIndex(1), 10)], [first, first]);
    }
}
