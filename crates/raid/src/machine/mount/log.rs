//! Members without an active zone for their superblocks.
//!
//! While the zone of its newest superblock is full, no zone of a member's log is active, and a
//! power loss that discards a cache may leave the maximum of active zones to segments: those that
//! had just been finished or reset, and those that were opened since. Segments are closed once the
//! epoch of the mount is written, and that cannot be written before one of them is closed. So one
//! zone is finished first. That changes no contents; an interrupted mount leaves it as if it had
//! been interrupted while it closed segments.

use zonda_zoned::{Status, ZoneAction};

use super::Volume;
use crate::MemberIndex;
use crate::machine::start::StartStep;
use crate::tables::SegmentIndex;

impl Volume {
    /// Finishes a zone of each member that lacks an active one for its superblocks. Returns whether
    /// there is any.
    pub(super) fn finish_for_logs(&mut self) -> bool {
        let mut finishes = false;
        for member in self.members.present() {
            let is_tried = self.found().finished_for_log >> member.0 & 1 == 1;
            if is_tried || !self.members[member].lacks_zone_for_log() {
                continue;
            }
            self.found().finished_for_log |= 1 << member.0;
            let Some((segment, zone)) = self.segments.active_zone_of(member) else { continue };
            let finish = self.members[member].manage(zone, ZoneAction::Finish);
            self.send_start(member, StartStep::FinishForLog { segment }, finish);
            finishes = true;
        }
        finishes
    }

    /// If it failed, there is still no zone for superblocks: writing them fails later.
    pub(in crate::machine) fn on_finished_for_log(
        &mut self,
        member: MemberIndex,
        segment: SegmentIndex,
        status: Status,
    ) {
        if status.is_success() {
            self.segments.was_finished(&mut self.members, member, segment);
        } else {
            self.members[member].count_write_error(status);
        }
    }
}
