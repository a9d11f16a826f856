//! The last free segments of a volume in which blocks may be unreadable.
//!
//! A segment with a block that cannot be read is not reset while a missing member may hold the
//! block. Its moved blocks have taken space, and reclaimed none. To prevent that this continues
//! until no segment is free, markers of lost blocks could not be written, and no space could ever
//! be reclaimed, the last segments ([`kept_segments`](Space::kept_segments)) are opened only for
//! what is certain to reclaim as much:
//!
//! - markers of lost blocks, which come first: they free the segments of these blocks;
//! - a segment whose blocks were all read before the first one is moved
//!   ([`checks_first`](Volume::checks_first)).
//!
//! Trims of hosts free space, too, and may use all but one. No segment is emptied that does not fit
//! the free space.
//!
//! This costs time only where little space is free and blocks may be unreadable: where a block is
//! known to be, or where no member can be spared.

use super::collector::victim;
use super::{Space, Volume};
use crate::limits::MOUNT_SEGMENTS;
use crate::shape::Stream;
use crate::tables::SegmentIndex;

/// The maximum.
const KEPT_SEGMENTS_MAX: u32 = MOUNT_SEGMENTS;

impl Volume {
    /// Whether a segment that is being emptied may contain unreadable blocks.
    pub(super) fn may_be_unreadable(&self) -> bool {
        let has_redundancy = self.spec.code.tolerates() > 0;
        let can_spare_all = || self.members.present().all(|member| self.members.can_spare(&self.spec, member));
        has_redundancy && !can_spare_all()
            || !self.losses.is_idle()
            || self.segments.iter().any(|(_, segment)| segment.has_lost)
    }

    /// Reserves the last free segments, or releases them for what waits now. Only when the volume
    /// is ready: a mount has its own estimate.
    pub(super) fn keep_last_segments(&mut self) {
        self.segments.keep(0);
        let space = self.space();
        let free = space.all_free_segments();
        // This is called with each event, and usually more segments are free than could be
        // reserved.
        if free > KEPT_SEGMENTS_MAX || !self.is_ready() || !self.spec.has_contents() {
            return;
        }
        let kept = space.kept_segments();
        if free > kept || !self.may_be_unreadable() {
            return;
        }
        if self.stripes.put_markers_first() || self.collector.is_certain_to_reclaim() {
            return;
        }
        let has_trims = self.stripes.ready(Stream::Relocation).any(|stripe| self.stripes.holds_trim(stripe));
        self.segments.keep(if has_trims { 1 } else { kept });
        if !has_trims && let Some(index) = self.collector.abandon() {
            // It is not reset anyway: its blocks that wait to be moved stay where they are.
            let withdrawn = self.stripes.withdraw_moves(index);
            self.collector.withdrawn(withdrawn);
        }
    }

    /// Maximum of live blocks of the segment that is emptied next; `None`: any.
    pub(super) fn fitting_blocks(&self) -> Option<u64> {
        self.may_be_unreadable().then(|| self.space_in(self.space().all_free_segments()))
    }

    /// Whether all blocks of a segment are to be read before the first one is moved: it may need
    /// one of the last free segments.
    pub(super) fn checks_first(&self, index: SegmentIndex) -> bool {
        let space = self.space();
        let others = space.all_free_segments().saturating_sub(space.kept_segments());
        let moved = victim::moved_blocks(&self.spec, &self.segments[index]);
        self.spec.has_contents() && moved > self.space_in(others) && self.may_be_unreadable()
    }

    /// Moved blocks that fit the open segments and this many free ones.
    fn space_in(&self, segments: u32) -> u64 {
        let blocks = self.spec.shape.data_blocks(self.spec.shape.layout(Stream::Relocation));
        self.space_for_moves() + u64::from(segments) * blocks
    }
}

impl Space<'_> {
    /// Free segments that are reserved for what is certain to reclaim space, where blocks may be
    /// unreadable: those of the next mount, or one.
    fn kept_segments(self) -> u32 {
        self.mount_segments().max(1)
    }
}
