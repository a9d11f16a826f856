//! Members behind a connection that is lost, and made again while the volume is in use.
//!
//! A member that the volume can do without has failed. For one that it needs I/O is suspended: whoever has the device keeps the
//! commands that it has not answered, and submits them once the connection is made again.

use zonda_zoned::{Instant, ZoneIndex};

use super::Volume;
use crate::event::{Event, FailReason};
use crate::tables::SegmentState;
use crate::{MemberIndex, Membership, VolumeError};

impl Volume {
    /// The connection to a member is lost: it fails, or I/O is suspended until [`on_reconnect`](Volume::on_reconnect).
    pub fn on_disconnect(&mut self, now: Instant, member: MemberIndex) {
        self.advance_to(now);
        if self.is_lost() || !self.members[member].is_present() {
            return;
        }
        let is_spared = self.members.can_spare(&self.spec, member);
        // Any answer resumes I/O that is suspended for silence.
        self.evict(member, if is_spared { FailReason::Errors } else { FailReason::Silence });
        self.make_progress();
    }

    /// The connection to a member is made again, and its device is the member as it was left.
    pub fn on_reconnect(&mut self, now: Instant, member: MemberIndex) {
        self.advance_to(now);
        if self.is_lost() {
            return;
        }
        if self.members.answered(now, member, false) {
            self.resumed(member);
        }
        self.make_progress();
    }

    /// I/O of a member is no longer suspended.
    pub(super) fn resumed(&mut self, member: MemberIndex) {
        self.events.push_back(Event::Resumed { member });
        self.segments.forget_all_lost();
    }

    /// Why I/O waits for a member, if it does.
    #[must_use]
    pub fn suspended(&self, member: MemberIndex) -> Option<FailReason> {
        self.members.suspension_of(member)
    }

    /// Whether a device with this superblock is a member that takes part, as it was left: neither an older copy of it nor one that went on
    /// without the others.
    ///
    /// # Errors
    /// What it is instead.
    pub fn check_reconnected(&self, member: MemberIndex, found: &Membership) -> Result<(), VolumeError> {
        let refuse = |what: String| Err(VolumeError::Member { member, what });
        if found.array != self.spec.array {
            return Err(VolumeError::Foreign { member, volume: found.name.clone() });
        }
        if found.member != member.0 {
            return refuse(format!("it is member {} of this volume", found.member));
        }
        let known = Membership::of(&self.members.superblock_of(&self.spec, member));
        if found.id() != known.id() {
            return refuse("another device is in its place".to_owned());
        }
        if found.epoch > known.epoch || found.epoch == known.epoch && found.members != known.members {
            return refuse(format!(
                "it was used without the others since: its epoch is {}, the volume has reached {}",
                found.epoch, known.epoch
            ));
        }
        let reached = self.members.durable_epoch();
        if found.epoch < reached {
            return refuse(format!("it is an older copy: its epoch is {}, and it had reached {reached}", found.epoch));
        }
        Ok(())
    }

    /// Zones of a member that are full: a copy of it that was made before they were is older than the volume.
    pub fn full_zones(&self, member: MemberIndex) -> impl Iterator<Item = ZoneIndex> + '_ {
        let is_full = move |segment: &crate::tables::Segment| {
            segment.state == SegmentState::Sealed && segment.active >> member.0 & 1 == 0
        };
        let sealed = self.segments.iter().filter(move |(_, segment)| is_full(segment));
        sealed.filter_map(move |(_, segment)| segment.zones[member.as_usize()]).map(ZoneIndex)
    }
}
