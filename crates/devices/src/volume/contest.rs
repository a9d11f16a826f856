//! An owner whose member another host has taken.
//!
//! A takeover takes all but so few members that the owner cannot go on. One that finds out, by the superblock of the first member, that it
//! cannot take as many reserves that member for its owner again ([`Targets`](super::targets::Targets)). So an owner that has other members
//! still waits for a while before it lets go of the volume. Meanwhile it knows as before what it may answer ([`Lease`](super::lease::Lease)): a
//! member that was taken confirms nothing, and what was sent to it does not end. What it has refused has had no effect: it is sent again over
//! the next connection, in the same order, and the member has not failed.
//!
//! A takeover that is paused, or meets a server that does not answer, gives a member back later than that. While nobody can use the volume
//! with what was taken, and enough of the others say that they are this owner's, no takeover was completed: it is waited longer, and what needs
//! the member waits, too. Half of a mirror may be used by a takeover that accepts the other half as missing.

use zonda_raid::{MemberIndex, MemberState};
use zonda_zoned::{Duration, Instant};

use super::VolumeDrive;
use super::lease::LEASE;
use super::seat::Seat;

/// So long it is waited: a takeover takes and reads one member, and gives it back, within that.
pub(super) const CONTEST_MAX: Duration = Duration(LEASE.0 + LEASE.0 / 2);
/// The same while no other owner can have the volume: less than hosts wait for an answer (Linux: 30 s), and than members may be silent.
const CONTEST_LONG_MAX: Duration = Duration(LEASE.0 * 10);
/// From then on a member that was given back is not waited for to answer what was sent before.
const ANSWERED_MAX: Duration = LEASE;
/// So often it is tried to connect to a member again that was taken a second time.
pub(super) const RETRY_INTERVAL: Duration = Duration(LEASE.0 / 4);

impl VolumeDrive {
    /// Waits for members that another host has taken to be given back, and goes on with them. Says whether anything has happened; `None`
    /// if it is not waited: it took too long, or several members are taken and those that are left are too few, as after a takeover that is not
    /// refused.
    pub(super) fn wait_for_takeover(&mut self, now: Instant) -> Option<bool> {
        let is_taken = |member: &MemberIndex| self.on.member(*member).is_some_and(Seat::is_refused);
        let taken: Vec<MemberIndex> = self.members().filter(is_taken).collect();
        if taken.is_empty() {
            self.lease.contested_since = None;
            return Some(false);
        }
        let begins = self.lease.contested_since.is_none();
        let since = *self.lease.contested_since.get_or_insert(now);
        let data = usize::from(self.on.volume().scheme().data);
        let is_safe = taken.len() < data && self.lease.is_known(now);
        let until = since + if is_safe { CONTEST_LONG_MAX } else { CONTEST_MAX };
        if begins {
            // All others say at once whether they are taken, too.
            self.lease.ask_at = now;
        }
        // What was sent before ends, or is refused, so that it is known what is to be sent again.
        let is_long = now >= since + ANSWERED_MAX;
        let is_back = |member: &MemberIndex| {
            self.on.member(*member).is_some_and(|seat| seat.is_given_back() && (seat.is_answered() || is_long))
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
            if let Some(seat) = self.on.member_mut(*member) {
                seat.sever();
                // The volume is told of nothing: the member has not failed.
                seat.set_awaited();
            }
            self.look_soon(*member, now);
            self.tell(
                true,
                format!(
                    "{shown} was reserved by another host for a moment, and has been given back, as a takeover of the volume does that is \
                     refused: it is connected to again"
                ),
            );
        }
        Some(begins || !back.is_empty())
    }
}
