//! [`Lease`]: a volume completes commands only while it is known that it still owns its members.
//!
//! Most commands of hosts go to a member, where they fail with Reservation Conflict once another
//! owner has the volume. Some do not: reads of blocks that were never written are completed from
//! the map. A program that was paused for a minute must not do that. So at least one of the members
//! that any other owner needs ([`confirmations_needed`]) must have confirmed within the last
//! [`LEASE`] that it is reserved for this owner; until then commands wait. A member that is locked
//! on this machine has no other owner. A takeover waits for the same time before the volume is
//! used. This relies on a clock that advances while a program is stopped, as that of Linux does;
//! where it does not (a virtual machine that is paused as a whole), such a completion may be stale
//! by the time of the pause, and nothing else.
//!
//! Where another owner may have a half of the volume that this one has lost, more is asked
//! ([`LostMembers`]).

use std::collections::VecDeque;

use zonda_raid::{MemberIndex, MemberState, VolumeError};
use zonda_zoned::{Command, Completion, Duration, Instant, QueueFull, Status, ZonedDevice};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_seeded};
use super::drive::Phase;
use super::lost_members::LostMembers;
use super::member_device::MemberDevice;
use super::quorum::confirmations_needed;

/// How long a confirmation of a member is valid, from when it was requested.
pub(crate) const LEASE: Duration = Duration(2_000_000_000);
/// Interval of the requests to confirm.
pub(crate) const ASK_INTERVAL: Duration = Duration(LEASE.0 / 4);
/// If a poll comes this much later than the one before, the program was paused.
const PAUSE_MIN: Duration = Duration(LEASE.0 / 2);
/// Timeout for a server to report the owner that has taken a volume over.
pub(crate) const NAME_MAX: Duration = Duration(1_000_000_000);

/// Whether a volume may complete commands.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// `false` if no member is reserved.
    is_needed: bool,
    /// The number of members that have to confirm.
    confirmations: Option<usize>,
    pub(super) until: Instant,
    pub(super) ask_at: Instant,
    /// Since when the volume waits for members that another owner has reserved to be restored.
    pub(super) contested_since: Option<Instant>,
    /// When it was found last that the program had been paused.
    pub(super) woke_at: Instant,
    polled_at: Option<Instant>,
    pub(super) lost: LostMembers,
    /// Commands that wait for confirmations.
    held: VecDeque<Command>,
}

impl Lease {
    /// Whether commands may be submitted to the volume.
    #[inline]
    pub(super) fn holds(&self, now: Instant) -> bool {
        is_seeded(OwnerBug::NoLease) || self.is_known(now) && self.held.is_empty()
    }

    /// Whether it is known that the volume has no other owner.
    pub(super) fn is_known(&self, now: Instant) -> bool {
        !self.is_needed || now < self.until
    }

    pub(super) fn hold(&mut self, command: Command) {
        self.held.push_back(command);
    }

    /// When to request confirmations next.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.is_needed.then_some(self.ask_at)
    }

    /// Fails the held commands.
    pub(super) fn refuse_held(&mut self, status: Status) -> impl Iterator<Item = Completion> + '_ {
        self.held.drain(..).map(move |command| Completion::of(command.id, status))
    }
}

impl VolumeDrive {
    /// Requests confirmations when that is due, and submits the commands that waited for them.
    /// Returns whether there were any.
    pub(super) fn keep_lease(&mut self, now: Instant) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let devices = || self.members().filter_map(|member| self.on.member(member));
        let is_reserved = devices().any(|device| device.is_remote() && device.is_claimed());
        self.lease.is_needed = is_reserved || self.has_reserved_halves();
        let before = self.lease.polled_at.replace(now);
        let is_late = before.is_some_and(|before| now > before + PAUSE_MIN);
        if is_late {
            self.lease.woke_at = now;
        }
        self.ask_about_failed(now, before.is_none(), is_late);
        self.lease.until = self.lease.until.min(self.asked_until(now));
        if !self.lease.is_needed || (now < self.lease.until && now < self.lease.ask_at) {
            return self.submit_held(now);
        }
        let active = self.members().filter(|member| self.state(*member) == MemberState::Active).count();
        let data = usize::from(self.on.volume().scheme().data);
        // Until all members have recorded which ones are left, another owner may use any set that was
        // recorded before: at most all members. What was known at the last request says nothing about
        // that: a member that is rebuilt and lost between two requests is in such a set.
        let is_recorded = self.on.volume().is_epoch_durable();
        let others = if is_recorded { active } else { self.members().count() };
        if is_recorded || self.lease.confirmations.is_some() {
            self.lease.confirmations = Some(confirmations_needed(others, data));
        }
        self.lease.until = self.confirmed_until(now).min(self.asked_until(now));
        if self.lease.ask_at <= now {
            self.lease.ask_at = now + ASK_INTERVAL;
            for member in self.members() {
                self.on.member_mut(member).into_iter().for_each(|device| device.confirm(now));
            }
        }
        now < self.lease.until && self.submit_held(now)
    }

    /// Until when it is known that the volume has no other owner.
    fn confirmed_until(&self, now: Instant) -> Instant {
        let needed = self.lease.confirmations.unwrap_or(usize::MAX);
        let needed = if is_seeded(OwnerBug::OneConfirms) { 1 } else { needed };
        let confirmed_at = |member: MemberIndex| {
            let device = self.on.member(member).filter(|_| self.state(member) == MemberState::Active)?;
            // The others are locked, or their servers do not support reservations.
            if device.is_remote() && device.is_claimed() { device.confirmed_at() } else { Some(now) }
        };
        let mut confirmed: Vec<Instant> = self.members().filter_map(confirmed_at).collect();
        confirmed.sort_unstable_by(|one, other| other.cmp(one));
        confirmed.get(needed.saturating_sub(1)).map_or(Instant::ZERO, |at| *at + LEASE)
    }

    fn submit_held(&mut self, now: Instant) -> bool {
        let mut moved = false;
        while let Some(command) = self.lease.held.pop_front() {
            if let Err(QueueFull(command)) = self.on.submit(now, command) {
                self.lease.held.push_front(command);
                break;
            }
            moved = true;
        }
        moved
    }

    /// A member whose commands fail with Reservation Conflict belongs to another owner, and with it
    /// the volume, unless it is [restored](VolumeDrive::wait_for_takeover): no member is written
    /// any more, and every command fails. Returns whether there was a change.
    pub(super) fn look_for_conflicts(&mut self, now: Instant) -> bool {
        if !matches!(self.phase, Phase::Open | Phase::Quiescing(_)) {
            return false;
        }
        if self.phase == Phase::Open
            && let Some(moved) = self.wait_for_takeover(now)
        {
            return moved;
        }
        let is_refused = |member| self.on.member(member).is_some_and(MemberDevice::is_refused);
        if !self.members().any(is_refused) && !self.is_held_elsewhere() {
            return false;
        }
        self.phase = Phase::TakenOver(now + NAME_MAX);
        self.on.volume_mut().fail_volume(now, VolumeError::TakenOver);
        self.abandon_adoptions(now);
        self.abandon_returns();
        self.abandon_failures();
        let refused: Vec<Completion> = self.lease.refuse_held(Status::InternalError).collect();
        refused.into_iter().for_each(|completion| self.refuse(completion));
        true
    }

    /// Logs the new owner of the volume, once it is known, and closes the members.
    pub(super) fn end_ownership(&mut self, now: Instant) {
        let Phase::TakenOver(until) = self.phase else { return };
        let mut ignored = zonda_zoned::CompletionQueue::new();
        let mut taken = None;
        for member in self.members() {
            let Some(device) = self.on.member_mut(member).filter(|device| device.is_refused()) else { continue };
            device.poll(now, &mut ignored);
            if let Some(holder) = device.refused_by().or((now >= until).then_some(None)) {
                taken = Some((member, holder));
            }
        }
        let taken = taken.or(self.lease.lost.holder().map(|(member, holder)| (member, Some(holder))));
        // The member may have failed meanwhile.
        let taken = taken.or((now >= until).then_some((MemberIndex(0), None)));
        let Some((member, holder)) = taken else { return };
        let by = match (holder, self.directory.owner()) {
            (Some(holder), Some(owner)) => format!("has been taken over by {}", owner.shown(&holder)),
            _ => "is no longer reserved for this volume".to_owned(),
        };
        let text = format!(
            "the volume is no longer served: {} {by}; writes acknowledged before are safe. To serve it from here \
             again, stop both servers, and run: zonda volume takeover {}",
            self.shown(member),
            self.directory.path().display()
        );
        self.notify(true, text);
        for member in self.members() {
            // Its remaining reservations are not released, so that no other host writes to these
            // members.
            drop(self.on.replace(member, None));
        }
        self.spares.clear();
        self.closing.clear();
        self.phase = Phase::Closing;
    }
}
