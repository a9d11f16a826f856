//! [`Lease`]: a volume answers hosts only while it is known that its members are still its own.
//!
//! Most of what hosts ask for goes to a member, which refuses it once another owner has the volume. Some does not: blocks that were never
//! written are answered out of the map. A program that was paused for a minute must not do that. So as many members as another owner cannot
//! do without ([`confirmations_needed`]) have to have said, no longer ago than [`LEASE`], that the volume owns them; till then
//! commands wait. A member that is locked here has no other owner. A takeover waits as long before the volume is used. That rests on
//! clocks that go on while a program is stopped, as Linux's does; where they do not (a virtual machine that is paused as a whole), such an
//! answer may be so much out of date, and nothing else.

use std::collections::VecDeque;

use zonda_raid::{MemberIndex, MemberState, VolumeError};
use zonda_zoned::{Command, Completion, Duration, Instant, QueueFull, Status, ZonedDevice};

use super::VolumeDrive;
use super::bugs::{OwnerBug, is_planted};
use super::drive::Phase;
use super::quorum::confirmations_needed;
use super::seat::Seat;

/// So long is what a member has said believed, from when it was asked.
pub(super) const LEASE: Duration = Duration(2_000_000_000);
/// Members are asked this often.
const ASK_INTERVAL: Duration = Duration(LEASE.0 / 4);
/// So long is waited for a server to say who has taken a volume over.
const NAME_MAX: Duration = Duration(1_000_000_000);

/// Whether a volume may answer.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// `false` where no member is reserved.
    is_needed: bool,
    /// How many members have to confirm.
    confirmations: Option<usize>,
    until: Instant,
    pub(super) ask_at: Instant,
    /// Since when it is waited for members that another owner has taken to be given back.
    pub(super) contested_since: Option<Instant>,
    /// Commands that wait until it is known.
    held: VecDeque<Command>,
}

impl Lease {
    /// Whether commands may go to the volume.
    #[inline]
    pub(super) fn holds(&self, now: Instant) -> bool {
        is_planted(OwnerBug::NoLease) || self.is_known(now) && self.held.is_empty()
    }

    /// Whether it is known that the volume has no other owner.
    pub(super) fn is_known(&self, now: Instant) -> bool {
        !self.is_needed || now < self.until
    }

    pub(super) fn hold(&mut self, command: Command) {
        self.held.push_back(command);
    }

    /// When members are to be asked.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.is_needed.then_some(self.ask_at)
    }

    /// Commands that will not be taken any more.
    pub(super) fn refuse_held(&mut self, status: Status) -> impl Iterator<Item = Completion> + '_ {
        self.held.drain(..).map(move |command| Completion::of(command.id, status))
    }
}

impl VolumeDrive {
    /// Asks members whose they are, when it is time to; hands on what has waited for that. Says whether there was any.
    pub(super) fn keep_lease(&mut self, now: Instant) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let seats = || self.members().filter_map(|member| self.on.member(member));
        self.lease.is_needed = seats().any(|seat| seat.is_remote() && seat.is_claimed());
        if !self.lease.is_needed || (now < self.lease.until && now < self.lease.ask_at) {
            return self.submit_held(now);
        }
        let active = self.members().filter(|member| self.state(*member) == MemberState::Active).count();
        let needed = confirmations_needed(active, usize::from(self.on.volume().scheme().data));
        // Till all members know who is left, another owner may find it as it was before.
        let before = self.lease.confirmations.unwrap_or(usize::MAX);
        let is_known = self.on.volume().is_epoch_durable();
        self.lease.confirmations = Some(if is_known { needed } else { needed.max(before) });
        self.lease.until = self.confirmed_until(now);
        if self.lease.ask_at <= now {
            self.lease.ask_at = now + ASK_INTERVAL;
            for member in self.members() {
                self.on.member_mut(member).into_iter().for_each(|seat| seat.confirm(now));
            }
        }
        now < self.lease.until && self.submit_held(now)
    }

    /// Till when it is known that the volume has no other owner.
    fn confirmed_until(&self, now: Instant) -> Instant {
        let needed = self.lease.confirmations.unwrap_or(usize::MAX);
        let needed = if is_planted(OwnerBug::OneConfirms) { 1 } else { needed };
        let confirmed_at = |member: MemberIndex| {
            let seat = self.on.member(member).filter(|_| self.state(member) == MemberState::Active)?;
            // The others are locked, or cannot be reserved by anybody.
            if seat.is_remote() && seat.is_claimed() { seat.confirmed_at() } else { Some(now) }
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

    /// A member that refuses what this program sends belongs to another owner, and with it the volume, unless it is
    /// [given back](VolumeDrive::wait_for_takeover): no member is written to any more, and every command ends with an error. Says whether
    /// anything has happened now.
    pub(super) fn look_for_conflicts(&mut self, now: Instant) -> bool {
        if !matches!(self.phase, Phase::Open | Phase::Settling(_)) {
            return false;
        }
        if self.phase == Phase::Open
            && let Some(moved) = self.wait_for_takeover(now)
        {
            return moved;
        }
        if !self.members().any(|member| self.on.member(member).is_some_and(Seat::is_refused)) {
            return false;
        }
        self.phase = Phase::TakenOver(now + NAME_MAX);
        self.on.volume_mut().give_up(now, VolumeError::TakenOver);
        self.abandon_adoptions(now);
        self.abandon_returns();
        self.abandon_failures();
        let refused: Vec<Completion> = self.lease.refuse_held(Status::InternalError).collect();
        refused.into_iter().for_each(|completion| self.refuse(completion));
        true
    }

    /// Tells who has the volume, once that is known, and lets go of what is left of it.
    pub(super) fn end_ownership(&mut self, now: Instant) {
        let Phase::TakenOver(until) = self.phase else { return };
        let mut ignored = zonda_zoned::CompletionQueue::new();
        let mut taken = None;
        for member in self.members() {
            let Some(seat) = self.on.member_mut(member).filter(|seat| seat.is_refused()) else { continue };
            seat.poll(now, &mut ignored);
            if let Some(holder) = seat.refused_by().or((now >= until).then_some(None)) {
                taken = Some((member, holder));
            }
        }
        // The device that was refused may have been given up meanwhile.
        let taken = taken.or((now >= until).then_some((MemberIndex(0), None)));
        let Some((member, holder)) = taken else { return };
        let by = match (holder, self.directory.owner()) {
            (Some(holder), Some(owner)) => format!("has been taken over by {}", owner.shown(&holder)),
            _ => "is not reserved for this volume any more".to_owned(),
        };
        let text = format!(
            "the volume is not served any more: {} {by}; what was acknowledged until then is safe. To take it back, stop the other server and \
             this one, and take the volume over from here: zonda volume takeover {}",
            self.shown(member),
            self.directory.path().display()
        );
        self.tell(true, text);
        for member in self.members() {
            // What it still has of members goes with its reservation, not before: nobody else writes to them meanwhile.
            drop(self.on.replace(member, None));
        }
        self.spares.clear();
        self.leaving.clear();
        self.phase = Phase::Closing;
    }
}
