//! The number of segments: possible, free, and the low threshold.

use super::members::{Members, Verdict};
use super::spec::Spec;
use crate::MemberIndex;
use crate::limits::{MOUNT_SEGMENTS, RELOCATION_SEGMENTS};

/// A view of the members' zones as segments, without state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space<'a> {
    spec: &'a Spec,
    members: &'a Members,
    /// The volume is ready: the reserve of the next mount does not count as free.
    is_ready: bool,
}

impl<'a> Space<'a> {
    pub(super) fn new(spec: &'a Spec, members: &'a Members, is_ready: bool) -> Space<'a> {
        Space { spec, members, is_ready }
    }

    pub(super) fn spec(self) -> &'a Spec {
        self.spec
    }

    pub(super) fn members(self) -> &'a Members {
        self.members
    }

    /// Segments that could be opened, as far as zones go: without the reserve of the next mount.
    pub(super) fn free_segments(self) -> u32 {
        let free = self.all_free_segments();
        if self.is_ready { free.saturating_sub(self.mount_segments()) } else { free }
    }

    /// The same with the reserve of the next mount.
    pub(super) fn all_free_segments(self) -> u32 {
        self.members.present().map(|member| self.members[member].free_zones()).min().unwrap_or(0)
    }

    /// Whether free space is low, so that segments are collected.
    pub(super) fn is_low(self) -> bool {
        self.free_segments() < self.low_segments()
    }

    /// Free segments below which collection begins.
    pub(super) fn low_segments(self) -> u32 {
        let reserve = self.spare_segments() - self.mount_segments();
        // Less than can be free while segments are open, or collection would never end.
        let most = reserve.saturating_sub(self.host_segments() + 1).max(RELOCATION_SEGMENTS + 1);
        (RELOCATION_SEGMENTS + 2 + reserve / 4).min(most)
    }

    /// Free segments reserved for the next mount: fewer than required where members are too small,
    /// or have become so.
    pub(super) fn mount_segments(self) -> u32 {
        let spare = self.spare_segments().saturating_sub(self.working_segments());
        if self.spec.has_contents() { spare.min(MOUNT_SEGMENTS) } else { 0 }
    }

    /// Blocks that fit the members: those of the volume, or fewer once too many zones are retired.
    pub(super) fn writable_blocks(self) -> u64 {
        let for_contents = self.all_segments().saturating_sub(self.working_segments());
        (u64::from(for_contents) * self.spec.shape.segment_blocks()).min(self.spec.volume_blocks())
    }

    /// Segments that are open for hosts.
    pub(super) fn host_segments(self) -> u32 {
        let tuning = &self.spec.config.tuning;
        u32::from(tuning.small_segments) + u32::from(tuning.large_segments)
    }

    /// A member with too few zones left delays all others: it has failed, if the volume tolerates
    /// its loss.
    pub(super) fn is_out_of_zones(spec: &Spec, members: &Members, member: MemberIndex) -> Verdict {
        let needed = needed_segments(spec) + RELOCATION_SEGMENTS + 1;
        let entry = &members[member];
        let is_out = entry.zones_for_segments() < needed || !entry.has_active_to_spare();
        if is_out && members.can_spare(spec, member) { Verdict::Failed } else { Verdict::Usable }
    }

    /// Segments beyond those that all host blocks take.
    fn spare_segments(self) -> u32 {
        self.all_segments().saturating_sub(needed_segments(self.spec))
    }

    /// The maximum number of segments.
    fn all_segments(self) -> u32 {
        self.members.present().map(|member| self.members[member].zones_for_segments()).min().unwrap_or(0)
    }

    /// Those of hosts, one that is being written and those of relocation, and one that is being
    /// emptied.
    fn working_segments(self) -> u32 {
        self.host_segments() + 1 + RELOCATION_SEGMENTS + 1
    }
}

/// Segments that all host blocks take if these hold nothing else.
fn needed_segments(spec: &Spec) -> u32 {
    spec.volume_blocks().div_ceil(spec.shape.segment_blocks()) as u32
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{ZONES, members, spec};
    use super::*;
    use crate::limits::METADATA_ZONES;

    #[test]
    fn a_volume_has_space_for_what_segments_in_use_leave_of_the_zones_that_can_be_written() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        // One is open for hosts and one is about to be, one is being emptied; the rest are for
        // moved blocks.
        let in_use = 3 + RELOCATION_SEGMENTS;
        let writable = |members: &Members| Space::new(&spec, members, true).writable_blocks();
        assert_eq!(writable(&members), spec.volume_blocks(), "at first there is space for all blocks");
        for zone in METADATA_ZONES..ZONES {
            members[MemberIndex(1)].retire_zone(zone);
            let left = u64::from((ZONES - 1 - zone).saturating_sub(in_use));
            assert_eq!(writable(&members), spec.volume_blocks().min(left * spec.shape.segment_blocks()), "zone {zone}");
        }
        assert_eq!(writable(&members), 0);
    }

    #[test]
    fn a_member_is_out_of_zones_without_one_to_write_beside_those_for_contents_and_for_what_is_moved() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        let needed = needed_segments(&spec) + RELOCATION_SEGMENTS;
        for zone in METADATA_ZONES..ZONES {
            let left = ZONES - zone;
            let expected = if left > needed { Verdict::Usable } else { Verdict::Failed };
            let verdict = Space::is_out_of_zones(&spec, &members, MemberIndex(1));
            assert_eq!(verdict, expected, "{left} zones are left, contents and moved blocks need {needed}");
            members[MemberIndex(1)].retire_zone(zone);
        }
    }
}
