//! An owner one of whose members another host has reserved.
//!
//! A takeover preempts the reservations of so many members that the owner cannot continue. If the
//! superblock of the first member shows that it cannot reach as many, it restores the reservation
//! of that member for its owner ([`Targets`](super::targets::Targets)). So an owner that still has
//! other members waits for a while before it stops serving the volume. Meanwhile the
//! [`Lease`](super::lease::Lease) decides as before which commands it may complete: a lost member
//! confirms nothing, and commands to it do not complete. Commands that failed with Reservation
//! Conflict had no effect: they are resubmitted over the next connection, in the same order, and
//! the member has not failed.
//!
//! A takeover that is paused, or waits for a server that does not respond, restores a member later
//! than that. While no host can use the volume with the lost members, and enough of the others
//! confirm that they are this owner's, no takeover has succeeded: the owner waits longer, and
//! commands that need the member wait, too. A takeover that accepts the other half as missing can
//! use half of a mirror. Failed members that another server of the volume holds count as well
//! ([`LostMembers`](super::lost_members::LostMembers)).

use zonda_raid::{MemberIndex, MemberState};
use zonda_zoned::{Duration, Instant};

use super::VolumeDrive;
use super::lease::LEASE;
use super::member_device::MemberDevice;

/// How long to wait: a takeover reserves, reads and restores one member within that time.
pub(super) const CONTEST_MAX: Duration = Duration(LEASE.0 + LEASE.0 / 2);
/// How long to wait while no other owner can have the volume: less than the I/O timeout of hosts
/// (Linux: 30 s), and than the timeout of members.
const CONTEST_LONG_MAX: Duration = Duration(LEASE.0 * 10);
/// How long to wait for a restored member to complete the commands that were sent before.
const ANSWERED_MAX: Duration = LEASE;
/// How often to reconnect to a member that was lost a second time.
pub(super) const RETRY_INTERVAL: Duration = Duration(LEASE.0 / 4);

impl VolumeDrive {
    /// Waits for members that another host has reserved to be restored, and reconnects to them.
    /// Returns whether there was progress; `None` if there is nothing to wait for: the timeout has
    /// expired, or several members are lost and the others are too few, as after a successful
    /// takeover.
    pub(super) fn wait_for_takeover(&mut self, now: Instant) -> Option<bool> {
        let is_taken = |member: &MemberIndex| self.on.member(*member).is_some_and(MemberDevice::is_refused);
        let taken: Vec<MemberIndex> = self.members().filter(is_taken).collect();
        if taken.is_empty() && !self.is_held_elsewhere() {
            self.lease.contested_since = None;
            return Some(false);
        }
        let begins = self.lease.contested_since.is_none();
        let since = *self.lease.contested_since.get_or_insert(now);
        let data = usize::from(self.on.volume().scheme().data);
        let is_safe = !self.is_held_elsewhere() && taken.len() < data && self.lease.is_known(now);
        let until = since + if is_safe { CONTEST_LONG_MAX } else { CONTEST_MAX };
        if begins {
            // All other members are asked at once whether they are lost, too.
            self.lease.ask_at = now;
        }
        // Earlier commands complete or fail, which determines those to resubmit.
        let is_long = now >= since + ANSWERED_MAX;
        let is_back = |member: &MemberIndex| {
            self.on.member(*member).is_some_and(|device| device.is_restored() && (device.is_answered() || is_long))
        };
        let back: Vec<MemberIndex> = taken.iter().copied().filter(is_back).collect();
        let is_left = |member: &MemberIndex| {
            self.state(*member) == MemberState::Active && self.on.member(*member).is_some() && !is_taken(member)
        };
        let left = self.members().filter(is_left).count();
        let is_whole = taken.len() > 1 && left < data;
        if now >= until || left == 0 || is_whole {
            return None;
        }
        for member in &back {
            let shown = self.shown(*member);
            if let Some(device) = self.on.member_mut(*member) {
                device.sever();
                // The volume is not notified: the member has not failed.
                device.set_awaited();
            }
            self.look_soon(*member, now);
            self.notify(
                true,
                format!(
                    "{shown} was briefly reserved by another host, and its reservation is restored, as after a \
                     refused takeover of the volume: reconnecting"
                ),
            );
        }
        Some(begins || !back.is_empty())
    }
}
