//! Members whose connection is lost and restored while the volume is in use.
//!
//! A member whose loss the volume tolerates fails. For one that it needs, I/O is suspended: the
//! caller keeps the commands that it has not answered, and resubmits them once the connection is
//! restored.

use zonda_zoned::{Instant, ZoneIndex};

use super::Volume;
use crate::event::{Event, FailReason};
use crate::tables::SegmentState;
use crate::{MemberIndex, Membership, VolumeError};

impl Volume {
    /// The connection to a member is lost: it fails, or I/O is suspended until
    /// [`on_reconnect`](Volume::on_reconnect).
    pub fn on_disconnect(&mut self, now: Instant, member: MemberIndex) {
        self.advance_to(now);
        if self.is_lost() || !self.members[member].is_present() {
            return;
        }
        let is_spared = self.members.can_spare(&self.spec, member);
        // Any completion resumes I/O that is suspended because of a timeout.
        self.evict(member, if is_spared { FailReason::Errors } else { FailReason::Timeout });
        self.make_progress();
    }

    /// The connection to a member is restored, and its device is unchanged.
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

    /// Why I/O is suspended for a member, if it is.
    #[must_use]
    pub fn suspended(&self, member: MemberIndex) -> Option<FailReason> {
        self.members.suspension_of(member)
    }

    /// Checks that a device with this superblock is an unchanged active member: neither an older
    /// copy of it nor one that was used without the others.
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
            return refuse("it is another device".to_owned());
        }
        if found.epoch > known.epoch || found.epoch == known.epoch && found.members != known.members {
            return refuse(format!(
                "it was used without the others since: its epoch is {}, that of the volume {}",
                found.epoch, known.epoch
            ));
        }
        let reached = self.members.durable_epoch();
        if found.epoch < reached {
            return refuse(format!("it is an older copy: its epoch is {}, but it had reached {reached}", found.epoch));
        }
        Ok(())
    }

    /// Full zones of a member: an older copy of it may lack some.
    pub fn full_zones(&self, member: MemberIndex) -> impl Iterator<Item = ZoneIndex> + '_ {
        let is_full = move |segment: &crate::tables::Segment| {
            segment.state == SegmentState::Sealed && segment.active >> member.0 & 1 == 0
        };
        let sealed = self.segments.iter().filter(move |(_, segment)| is_full(segment));
        sealed.filter_map(move |(_, segment)| segment.zones[member.as_usize()]).map(ZoneIndex)
    }
}
