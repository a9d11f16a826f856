//! The location of a logical block's contents, in 8 bytes.
//!
//! ```text
//! bits 62..64  0 nowhere: the block was never written   1 on media   2 in memory, in flight   3 trimmed
//! on media     bits 0..32 block from the start of the zone, 32..36 member, 36..60 segment
//! in memory    bits 0..28 block of the stripe, 28..60 stripe
//! trimmed      bits 36..60 segment that holds the tombstone, bits 60..62 0; 1 for a block that is lost
//! ```

use zonda_zoned::{CommandId, Key};

use super::stripes::StripeKey;
use crate::MemberIndex;
use crate::tables::{Physical, SegmentIndex};

/// The packed form. Zero is nowhere, so that a zeroed table is that of an empty volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Address(u64);

/// The decoded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Nowhere,
    Media(Physical),
    /// A block of a stripe in memory.
    Buffered {
        stripe: StripeKey,
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

const MEMBER_BITS: u32 = 4;
const SEGMENT_BITS: u32 = 24;
const BLOCK_BITS: u32 = 28;
const _: () = assert!(crate::limits::SEGMENTS_MAX == 1 << SEGMENT_BITS);
const _: () = assert!(crate::limits::MEMBERS_MAX == 1 << MEMBER_BITS);

impl Address {
    pub(super) const NOWHERE: Address = Address(0);
    /// Replaces the old location of a trimmed block when a newer write is already durable. Decodes
    /// to an invalid segment.
    pub(super) const SUPERSEDED: Address = Address(u64::MAX);

    pub(super) fn media(place: Physical) -> Address {
        assert!(
            place.segment.0 >> SEGMENT_BITS == 0 && place.member.0 >> MEMBER_BITS == 0,
            "tables have fewer segments and members than an address can number"
        );
        Address(1 << 62 | u64::from(place.segment.0) << 36 | u64::from(place.member.0) << 32 | u64::from(place.offset))
    }

    pub(super) fn buffered(stripe: StripeKey, block: u32) -> Address {
        assert!(block >> BLOCK_BITS == 0, "a stripe has fewer blocks than an address can number");
        Address(2 << 62 | u64::from(stripe.index()) << BLOCK_BITS | u64::from(block))
    }

    pub(super) fn trimmed(segment: SegmentIndex) -> Address {
        Address(3 << 62 | u64::from(segment.0) << 36)
    }

    pub(super) fn lost(segment: SegmentIndex) -> Address {
        Address(3 << 62 | 1 << 60 | u64::from(segment.0) << 36)
    }

    pub(super) fn location(self) -> Location {
        let segment = SegmentIndex((self.0 >> 36) as u32 & ((1 << SEGMENT_BITS) - 1));
        match self.0 >> 62 {
            0 => Location::Nowhere,
            1 => Location::Media(Physical {
                segment,
                member: MemberIndex((self.0 >> 32) as u8 & ((1 << MEMBER_BITS) - 1)),
                offset: self.0 as u32,
            }),
            2 => Location::Buffered {
                stripe: Key::of_command(CommandId(self.0 >> BLOCK_BITS & u64::from(u32::MAX)))
                    .expect("an address in memory was made of the key of a stripe"),
                block: self.0 as u32 & ((1 << BLOCK_BITS) - 1),
            },
            _ if self.0 >> 60 & 3 == 1 => Location::Lost { segment },
            _ => Location::Trimmed { segment },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::key;
    use super::*;

    #[test]
    fn an_address_decodes_to_what_was_encoded() {
        let place = Physical { segment: SegmentIndex((1 << 24) - 1), member: MemberIndex(15), offset: u32::MAX };
        assert_eq!(Address::media(place).location(), Location::Media(place));
        let stripe = key(u32::MAX - 1);
        let buffered = Location::Buffered { stripe, block: (1 << 28) - 1 };
        assert_eq!(Address::buffered(stripe, (1 << 28) - 1).location(), buffered);
        let trimmed = Location::Trimmed { segment: SegmentIndex(7) };
        assert_eq!(Address::trimmed(SegmentIndex(7)).location(), trimmed);
        let lost = Location::Lost { segment: SegmentIndex((1 << 24) - 1) };
        assert_eq!(Address::lost(SegmentIndex((1 << 24) - 1)).location(), lost);
        assert!(!matches!(Address::SUPERSEDED.location(), Location::Lost { .. }), "a superseded version is not lost");
        assert_eq!(Address::default().location(), Location::Nowhere);
    }
}
