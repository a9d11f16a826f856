//! The last free segments of a volume in which blocks may be unreadable.
//!
//! A segment of which one block cannot be read is not reset while a member that is away may hold the block. What was moved out of it has taken
//! space, and reclaimed none. So that this does not go on until no segment is free, markers of lost blocks could not be written, and no space
//! could ever be reclaimed, the last segments ([`kept_segments`](Space::kept_segments)) are opened only for what is certain to reclaim as much:
//!
//! - markers of lost blocks, which go first: they free what held these blocks;
//! - a segment of which every block was read once before the first one is moved ([`checks_first`](Volume::checks_first)).
//!
//! Trims of hosts free space, too, and may take all but one. No segment is emptied that would not fit what is free.
//!
//! That costs time only where little is free and blocks may be unreadable: where a block is known to be, or where no member can be spared.

use super::collector::victim;
use super::{Space, Volume};
use crate::limits::MOUNT_SEGMENTS;
use crate::shape::Stream;
use crate::tables::SegmentIndex;

/// More are never kept.
const KEPT_SEGMENTS_MAX: u32 = MOUNT_SEGMENTS;

impl Volume {
    /// Whether a segment that is being emptied may turn out to hold blocks that cannot be read.
    pub(super) fn may_be_unreadable(&self) -> bool {
        let has_redundancy = self.spec.code.tolerates() > 0;
        let can_spare_all = || self.members.present().all(|member| self.members.can_spare(&self.spec, member));
        has_redundancy && !can_spare_all()
            || !self.losses.is_idle()
            || self.segments.iter().any(|(_, segment)| segment.has_lost)
    }

    /// Keeps the last free segments, or lets them be opened for what waits now. Only a volume that is ready does: a mount reckons by itself.
    pub(super) fn keep_last_segments(&mut self) {
        self.segments.keep(0);
        let space = self.space();
        let free = space.all_free_segments();
        // This is asked with each event, and most often more is free than could be kept.
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
            // It is not reset anyway: what of it waits to be moved stays where it is.
            let withdrawn = self.stripes.withdraw_moves(index);
            self.collector.withdrawn(withdrawn);
        }
    }

    /// Blocks that a segment may hold which is emptied next; `None` if any may be chosen.
    pub(super) fn fitting_blocks(&self) -> Option<u64> {
        self.may_be_unreadable().then(|| self.room_in(self.space().all_free_segments()))
    }

    /// Whether all blocks of a segment are to be read before the first one is moved: it may take one of the last free segments.
    pub(super) fn checks_first(&self, index: SegmentIndex) -> bool {
        let space = self.space();
        let others = space.all_free_segments().saturating_sub(space.kept_segments());
        let moved = victim::moved_blocks(&self.spec, &self.segments[index]);
        self.spec.has_contents() && moved > self.room_in(others) && self.may_be_unreadable()
    }

    /// Moved blocks that fit what is open and so many free segments.
    fn room_in(&self, segments: u32) -> u64 {
        let blocks = self.spec.shape.data_blocks(self.spec.shape.layout(Stream::Relocation));
        self.room_for_moves() + u64::from(segments) * blocks
    }
}

impl Space<'_> {
    /// Free segments that only what is certain to reclaim space takes, where blocks may be unreadable: those that are left to the next
    /// mount, or one.
    fn kept_segments(self) -> u32 {
        self.mount_segments().max(1)
    }
}
