//! Places on members: segments, and blocks of their zones.

use crate::MemberIndex;

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

impl SegmentIndex {
    pub(crate) fn as_usize(self) -> usize {
        self.0 as usize
    }
}
