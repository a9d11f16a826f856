//! [`LostMembers`]: whose the lost members are, of a volume that another owner could use with these
//! members alone.
//!
//! Reservations do not separate the owners of two halves of a mirror
//! ([`quorum`](super::quorum)). An operator who takes over one half with `--accept-missing` asserts
//! that no server uses the other one; but the previous owner may only be paused, and reach that
//! half when it wakes. Its own loss of the first half looks like a failure of that member. So it
//! asks before it acknowledges anything without the member:
//!
//! - A member whose connection is lost does not fail, and its aborted commands do not complete,
//!   before its server has confirmed over another connection that this host holds the reservation,
//!   or has not answered within [`ASK_MAX`].
//! - A member that fails for another reason is asked about afterwards, as are failed members after
//!   a pause of the program; active members confirm their reservation ([`Lease`](super::lease)).
//! - Meanwhile, and while other hosts hold so many members that one could use the volume, no
//!   command is completed. If that does not end, the volume is taken over, as after a reservation
//!   conflict ([`contest`](super::contest)).
//!
//! An owner that reaches none of the members that were taken over cannot detect the takeover.

use zonda_initiator::Holder;
use zonda_raid::{MemberIndex, MemberState};
use zonda_zoned::{Duration, Instant};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_seeded};
use super::contest::RETRY_INTERVAL;
use super::directory::{MISSING, VolumeDirectory};
use super::drive::Phase;
use super::lease::LEASE;
use super::member_device::{Inquiry, MemberDevice, is_behind_server};
use super::owner::Owner;
use super::targets::epoch_of;
use crate::DriveError;

/// Timeout for the server of a lost member to report the holder.
pub(super) const ASK_MAX: Duration = LEASE;

/// Sets of members, as bits.
#[derive(Debug, Default)]
pub(super) struct LostMembers {
    /// Members that this program has reserved.
    reserved: u32,
    /// Failed members whose holder is to be determined.
    unasked: u32,
    /// Failed members whose holder has been determined since they failed.
    asked: u32,
    /// Failed members that another server of the volume holds.
    elsewhere: u32,
    /// The holder of one of them.
    holder: Option<(MemberIndex, Holder)>,
}

impl LostMembers {
    /// A failed member that another server of the volume holds, and that server.
    pub(super) fn holder(&self) -> Option<(MemberIndex, Holder)> {
        self.holder.filter(|_| self.elsewhere != 0)
    }

    /// A member has another device, or has not failed.
    fn forget(&mut self, bit: u32) {
        self.unasked &= !bit;
        self.asked &= !bit;
        self.elsewhere &= !bit;
    }

    fn is_unknown(&self, bit: u32) -> bool {
        (self.asked | self.unasked) & bit == 0
    }

    fn begin(&mut self, bit: u32) {
        self.unasked |= bit;
        self.asked &= !bit;
    }

    /// The holder of a failed member is known.
    fn resolve(&mut self, bit: u32) {
        self.unasked &= !bit;
        self.asked |= bit;
    }
}

/// Whether the holder of a member is a server of the volume that may own it now, as far as this
/// directory shows.
fn is_later_owner(directory: &VolumeDirectory, array: &[u8; 16], holder: &Holder) -> bool {
    let own = directory.owner().map_or(0, Owner::epoch);
    epoch_of(holder, array).is_some_and(|epoch| !directory.file.stays_reserved || epoch >= own)
}

/// Whether another server may use the volume with a member that this directory counts as failed,
/// and which that server holds: the volume must not be mounted with the others alone.
pub(super) fn is_half_elsewhere(directory: &VolumeDirectory, array: &[u8; 16], error: &DriveError) -> bool {
    let members = directory.file.member.len();
    let has_halves = directory.file.enough.is_some_and(|enough| members >= 2 * enough);
    let is_later = |holder| is_later_owner(directory, array, &holder);
    has_halves && error.holder.is_some_and(is_later) && !is_seeded(OwnerBug::LostFailsUnasked)
}

fn bit(member: MemberIndex) -> u32 {
    1 << member.0
}

impl VolumeDrive {
    /// Whether two servers could use the volume with different members, so that lost members are
    /// asked about.
    pub(super) fn has_halves(&self) -> bool {
        let scheme = self.on.volume().scheme();
        scheme.members() >= 2 * usize::from(scheme.data) && !is_seeded(OwnerBug::LostFailsUnasked)
    }

    /// Whether that is so, and servers have reserved members.
    pub(super) fn has_reserved_halves(&self) -> bool {
        self.lease.lost.reserved | self.lease.lost.elsewhere != 0 && self.has_halves()
    }

    /// A member has this device from now on.
    pub(super) fn note_reserved(&mut self, member: MemberIndex, is_claimed: bool) {
        let lost = &mut self.lease.lost;
        lost.forget(bit(member));
        lost.reserved &= !bit(member);
        lost.reserved |= u32::from(is_claimed) << member.0;
    }

    /// Whether the holder of a lost member is to be determined.
    pub(super) fn must_ask_about(&self, member: MemberIndex) -> bool {
        let is_pending = |device: &MemberDevice| device.inquiry() == Some(Inquiry::Pending);
        self.lease.lost.unasked & bit(member) != 0 || self.on.member(member).is_some_and(is_pending)
    }

    /// Begins to ask about members that have failed since the last call; after a pause of the
    /// program, about all lost members.
    pub(super) fn ask_about_failed(&mut self, now: Instant, is_first: bool, is_late: bool) {
        if !self.has_reserved_halves() {
            return;
        }
        for member in self.members() {
            let is_failed = self.state(member) == MemberState::Failed;
            if !is_failed {
                self.lease.lost.forget(bit(member));
            }
            // The mount has just tried to open it.
            let is_missing = is_first && self.on.member(member).is_none();
            if is_failed && (is_missing || !self.is_sought_on_server(member)) {
                self.lease.lost.resolve(bit(member));
            } else if is_failed && (is_late || self.lease.lost.is_unknown(bit(member))) {
                self.lease.lost.begin(bit(member));
                self.look_soon(member, now);
            } else if let Some(device) = self.on.member_mut(member).filter(|_| is_late)
                && device.inquiry() == Some(Inquiry::Unreachable)
            {
                device.set_inquiry(Inquiry::Pending);
                self.look_soon(member, now);
            }
        }
    }

    /// Whether the volume tries to re-add a failed member that is a namespace of a server.
    fn is_sought_on_server(&self, member: MemberIndex) -> bool {
        let place = &self.directory.file.member[usize::from(member.0)];
        self.may_come_back(member)
            && place.at != MISSING
            && self.directory.location(place).is_ok_and(|location| is_behind_server(&location))
    }

    /// Begins to ask about members whose connections are `lost`. Returns those that fail, or are
    /// awaited, from now on; first those whose servers do not answer, since the volume may need the
    /// others.
    pub(super) fn ask_about_lost(&mut self, now: Instant, lost: Vec<MemberIndex>) -> Vec<MemberIndex> {
        let has_halves = self.has_halves();
        let is_asked = |member: &MemberIndex| {
            let device = self.on.member(*member);
            has_halves && self.state(*member) == MemberState::Active && device.is_some_and(MemberDevice::is_asked_about)
        };
        let (mut asked, mut ready): (Vec<MemberIndex>, Vec<MemberIndex>) = lost.into_iter().partition(is_asked);
        if asked.is_empty() || self.phase != Phase::Open {
            return ready;
        }
        for member in &asked {
            if let Some(device) = self.on.member_mut(*member).filter(|device| device.inquiry().is_none()) {
                device.set_inquiry(Inquiry::Pending);
                self.lease.until = Instant::ZERO;
                self.look_soon(*member, now);
            }
        }
        let inquiry = |member: &MemberIndex| self.on.member(*member).and_then(MemberDevice::inquiry);
        let is_pending = asked.iter().any(|member| inquiry(member) == Some(Inquiry::Pending));
        if !is_pending && self.lease.contested_since.is_none() {
            asked.sort_by_key(|member| inquiry(member) == Some(Inquiry::Own));
            ready.extend(asked);
        }
        ready
    }

    /// The server of a lost member has answered, or not.
    pub(super) fn asked(&mut self, now: Instant, member: MemberIndex, answer: &Result<(), DriveError>) {
        let holder = answer.as_ref().err().and_then(|error| error.holder);
        // Its holder changes at the moment.
        let is_unknown = holder.is_none() && answer.as_ref().is_err_and(|error| error.is_in_use);
        if self.state(member) != MemberState::Failed {
            let Some(device) = self.on.member_mut(member).filter(|device| device.inquiry().is_some()) else { return };
            match (answer, holder) {
                (Ok(()), _) => device.set_inquiry(Inquiry::Own),
                (_, Some(holder)) => device.set_refused(holder),
                _ if is_unknown || device.is_refused() => {}
                _ => device.set_inquiry(Inquiry::Unreachable),
            }
        } else if let Some(holder) = holder.filter(|holder| self.is_other_owner(member, holder)) {
            self.is_held_by(now, member, holder);
        } else if answer.is_ok() || holder.is_some() {
            self.lease.lost.elsewhere &= !bit(member);
            self.lease.lost.resolve(bit(member));
        } else if self.lease.lost.elsewhere & bit(member) == 0 && !is_unknown {
            self.lease.lost.resolve(bit(member));
        }
        self.forget_absent(member);
        if self.must_ask_about(member) {
            self.look_soon(member, now + RETRY_INTERVAL);
        }
        self.look_for_absent(now);
    }

    /// Another host holds a failed member.
    pub(super) fn is_held_by(&mut self, now: Instant, member: MemberIndex, holder: Holder) {
        let is_lost = self.has_halves() && self.state(member) == MemberState::Failed;
        if !is_lost || !self.is_other_owner(member, &holder) {
            return;
        }
        self.lease.lost.elsewhere |= bit(member);
        self.lease.lost.holder = Some((member, holder));
        if self.is_held_elsewhere() {
            self.lease.lost.unasked |= bit(member);
            self.look_soon(member, now + RETRY_INTERVAL);
        } else {
            self.lease.lost.resolve(bit(member));
        }
    }

    /// Whether the holder of a lost member is a server that may own the volume now: one that has
    /// reserved a drive after this program had it, or that is not older. Once this directory has
    /// taken the volume over, members that it did not reach stay reserved for the previous owner.
    fn is_other_owner(&self, member: MemberIndex, holder: &Holder) -> bool {
        let array = self.array();
        let was_reserved = self.lease.lost.reserved & bit(member) != 0;
        is_later_owner(&self.directory, &array, holder) || was_reserved && epoch_of(holder, &array).is_some()
    }

    /// Whether other servers hold failed members, and with those that are refused so many that one
    /// of them could use the volume.
    pub(super) fn is_held_elsewhere(&self) -> bool {
        self.lease.lost.elsewhere != 0 && self.has_halves() && self.others_have_enough()
    }

    /// Whether commands wait since another server holds this failed member.
    pub(super) fn is_lost_to_other(&self, member: MemberIndex) -> bool {
        self.lease.lost.elsewhere & bit(member) != 0 && self.is_held_elsewhere()
    }

    fn others_have_enough(&self) -> bool {
        let is_refused = |member: &MemberIndex| self.on.member(*member).is_some_and(MemberDevice::is_refused);
        let held = self.lease.lost.elsewhere.count_ones() as usize + self.members().filter(is_refused).count();
        held >= usize::from(self.on.volume().scheme().data)
    }

    /// Until when commands may be completed, as far as lost members and those that may be lost
    /// determine it: an active member that has not confirmed its reservation may be another
    /// owner's. Without a pause of the program, a server that has stopped answering is not awaited.
    pub(super) fn asked_until(&self, now: Instant) -> Instant {
        if !self.has_reserved_halves() {
            return Instant(u64::MAX);
        }
        if self.lease.lost.unasked != 0 || self.others_have_enough() {
            return Instant::ZERO;
        }
        let mut until = Instant(u64::MAX);
        for member in self.members().filter(|member| self.state(*member) == MemberState::Active) {
            let Some(device) = self.on.member(member).filter(|device| device.is_asked_about()) else { continue };
            if device.is_refused() || device.is_awaited() {
                continue;
            }
            if device.is_cut_off() {
                return Instant::ZERO;
            }
            let confirmed_at = device.confirmed_at();
            let has_confirmed = confirmed_at >= Some(self.lease.woke_at);
            if !has_confirmed || !device.is_silent(now, ASK_MAX) {
                until = until.min(confirmed_at.map_or(Instant::ZERO, |at| at + LEASE));
            }
        }
        until
    }

    /// Whether completions wait until it is known that the volume has no other owner.
    pub(super) fn awaits_holders(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Open => self.has_reserved_halves() && !self.lease.is_known(now),
            // Nothing is asked any more.
            Phase::Quiescing(_) => self.has_reserved_halves() && self.lease.until == Instant::ZERO,
            Phase::TakenOver(_) | Phase::Closing => self.is_taken_over() && self.has_reserved_halves(),
            Phase::New => false,
        }
    }
}
