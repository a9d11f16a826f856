//! A member that has no active zone left for its superblocks.
//!
//! While the zone of its newest superblock is full none of its log is active, and what a loss of power takes back may leave as many
//! zones of segments active as may be: those that were finished or reset a moment ago, and those that were opened since. Segments are
//! closed once the epoch of the mount is written, and that cannot be written before one of them is. So one zone is finished first. That
//! changes no contents; a mount that is cut short then finds it like one that was cut short while it closed segments.

use zonda_zoned::{Status, ZoneAction};

use super::Volume;
use crate::MemberIndex;
use crate::machine::start::StartStep;
use crate::tables::SegmentIndex;

impl Volume {
    /// Finishes a zone of each member that lacks an active one for its superblocks. Says whether there is any.
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

    /// If it has failed there is no zone for superblocks, as before: whoever writes them finds out.
    pub(in crate::machine) fn on_finished_for_log(
        &mut self,
        member: MemberIndex,
        segment: SegmentIndex,
        status: Status,
    ) {
        if status.is_success() {
            self.segments.was_finished(&mut self.members, member, segment);
        } else {
            self.members[member].count_error();
        }
    }
}
