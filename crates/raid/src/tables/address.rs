//! The location of a logical block's contents, in 8 bytes.
//!
//! ```text
//! bits 62..64  0 nowhere: the block was never written   1 on media   2 in memory, in flight   3 trimmed
//! on media     bits 0..32 block from the start of the zone, 32..36 member, 36..60 segment
//! in memory    bits 0..28 block of the stripe, 28..60 stripe
//! trimmed      bits 36..60 segment that holds the tombstone, bits 60..62 0; 1 for a block that is lost
//! ```

use crate::MemberIndex;

/// The packed form. Zero is nowhere, so that a zeroed table is that of an empty volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address(u64);

/// The decoded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Nowhere,
    Media(Physical),
    /// Block `block` of the in-flight stripe `stripe`.
    Buffered {
        stripe: u32,
        block: u32,
    },
    /// Trimmed: reads as zeros; the tombstone is in this segment.
    Trimmed {
        segment: SegmentIndex,
    },
    /// Lost: cannot be read; the marker is in this segment.
    Lost {
        segment: SegmentIndex,
    },
}

/// An index in the table of segments; reused when a segment was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentIndex(pub(crate) u32);

/// A block on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Physical {
    pub(crate) segment: SegmentIndex,
    pub(crate) member: MemberIndex,
    /// From the start of the zone.
    pub(crate) offset: u32,
}

const SEGMENT_BITS: u32 = 24;
const BLOCK_BITS: u32 = 28;
const _: () = assert!(crate::limits::SEGMENTS_MAX == 1 << SEGMENT_BITS);
const _: () = assert!(crate::limits::MEMBERS_MAX == 1 << 4);

impl SegmentIndex {
    pub(crate) fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl Address {
    pub(crate) const NOWHERE: Address = Address(0);
    /// Replaces the old location of a trimmed block when a newer write is already durable. Decodes
    /// to an invalid segment.
    pub(crate) const SUPERSEDED: Address = Address(u64::MAX);

    pub(crate) fn media(place: Physical) -> Address {
        debug_assert!(place.segment.0 >> SEGMENT_BITS == 0 && place.member.0 < 16);
        Address(1 << 62 | u64::from(place.segment.0) << 36 | u64::from(place.member.0) << 32 | u64::from(place.offset))
    }

    pub(crate) fn buffered(stripe: u32, block: u32) -> Address {
        assert!(block >> BLOCK_BITS == 0, "a stripe has fewer blocks than an address can number");
        Address(2 << 62 | u64::from(stripe) << BLOCK_BITS | u64::from(block))
    }

    pub(crate) fn trimmed(segment: SegmentIndex) -> Address {
        Address(3 << 62 | u64::from(segment.0) << 36)
    }

    pub(crate) fn lost(segment: SegmentIndex) -> Address {
        Address(3 << 62 | 1 << 60 | u64::from(segment.0) << 36)
    }

    pub(crate) fn location(self) -> Location {
        let segment = SegmentIndex((self.0 >> 36) as u32 & ((1 << SEGMENT_BITS) - 1));
        match self.0 >> 62 {
            0 => Location::Nowhere,
            1 => Location::Media(Physical {
                segment,
                member: MemberIndex((self.0 >> 32) as u8 & 15),
                offset: self.0 as u32,
            }),
            2 => Location::Buffered {
                stripe: (self.0 >> BLOCK_BITS) as u32,
                block: self.0 as u32 & ((1 << BLOCK_BITS) - 1),
            },
            _ if self.0 >> 60 & 3 == 1 => Location::Lost { segment },
            _ => Location::Trimmed { segment },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_decodes_to_what_was_encoded() {
        let place = Physical { segment: SegmentIndex((1 << 24) - 1), member: MemberIndex(15), offset: u32::MAX };
        assert_eq!(Address::media(place).location(), Location::Media(place));
        let buffered = Location::Buffered { stripe: u32::MAX, block: (1 << 28) - 1 };
        assert_eq!(Address::buffered(u32::MAX, (1 << 28) - 1).location(), buffered);
        let trimmed = Location::Trimmed { segment: SegmentIndex(7) };
        assert_eq!(Address::trimmed(SegmentIndex(7)).location(), trimmed);
        let lost = Location::Lost { segment: SegmentIndex((1 << 24) - 1) };
        assert_eq!(Address::lost(SegmentIndex((1 << 24) - 1)).location(), lost);
        assert!(!matches!(Address::SUPERSEDED.location(), Location::Lost { .. }), "a superseded version is not lost");
        assert_eq!(Address::default().location(), Location::Nowhere);
    }
}
