//! Failing members, and durability of member caches.

use zonda_zoned::{Command, Duration, Instant};

use super::members::{Verdict, Waiter};
use super::{Phase, Volume};
use crate::bug::SeededBug;
use crate::event::{Event, FailReason};
use crate::tables::SegmentIndex;
use crate::{MemberIndex, VolumeError};

/// A timeout that is handled this much later than it was due means that the program was paused:
/// completions since then were not processed.
const LATE_MAX: Duration = Duration::from_millis(100);
/// While a command is in flight, the volume wakes at this interval: otherwise it would not notice a
/// pause of the program.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Volume {
    /// The next command for a member; to be submitted before the next one is requested.
    pub fn poll_command(&mut self, now: Instant, member: MemberIndex) -> Option<Command> {
        if self.is_lost() { None } else { self.members.poll_command(now, member) }
    }

    /// Whether commands wait for members.
    pub(crate) fn has_commands(&self) -> bool {
        self.members.has_commands()
    }

    /// A member's queue was full: the command is returned again by
    /// [`poll_command`](Volume::poll_command) after the next completion.
    pub fn on_queue_full(&mut self, member: MemberIndex, command: Command) {
        self.members.on_queue_full(self.now, member, command);
    }

    /// Whether a member with a full queue has commands in flight, whose completion will trigger a
    /// retry.
    pub(crate) fn waits_for_completion(&self, member: MemberIndex) -> bool {
        self.members.is_blocked(member)
    }

    /// The number of members.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.spec.members()
    }

    /// Fails a member, as if it had been removed. Its commands in flight count as failed.
    pub fn fail_member(&mut self, now: Instant, member: MemberIndex) {
        self.advance_to(now);
        if self.is_lost() {
            return;
        }
        self.evict(member, FailReason::Command);
        self.make_progress();
    }

    /// The caller does not own the volume any more: members receive no more commands, and all host
    /// requests end with an error.
    pub fn fail_volume(&mut self, now: Instant, error: VolumeError) {
        self.advance_to(now);
        self.fail(error);
        self.make_progress();
    }

    /// Evicts a member that has failed according to an event.
    pub(super) fn apply_verdict(&mut self, member: MemberIndex, verdict: Verdict) {
        if verdict == Verdict::Failed {
            self.evict(member, FailReason::Errors);
        }
    }

    /// A command to a zone of a segment has failed: determines whether it is the zone, or the
    /// member.
    pub(super) fn suspect(&mut self, member: MemberIndex, segment: SegmentIndex) {
        let verdict = self.segments.suspect(&mut self.members, member, segment);
        self.apply_verdict(member, verdict);
    }

    /// A write to a zone of a segment has failed: for lack of space, or as a consequence of that, or
    /// the zone or the member has failed.
    pub(super) fn write_failed(&mut self, member: MemberIndex, segment: SegmentIndex) {
        if self.members[member].lacks_space() {
            self.suspend_for_space(member);
        } else {
            self.suspect(member, segment);
        }
    }

    /// A member has no space for a write: host writes fail until there is space.
    pub(super) fn suspend_for_space(&mut self, member: MemberIndex) {
        self.wake();
        if self.members.suspend_for_space(self.now) {
            self.events.push_back(Event::OutOfSpace { member });
        }
    }

    /// Resumes suspended I/O. Members that are not needed any more are failed if they are
    /// unresponsive or have just failed. One that has not failed since its last retry may be
    /// working: a rebuild only reads its sources, and only a write shows that the member accepts
    /// writes again. Its next command does.
    pub(super) fn check_suspended(&mut self) {
        if self.members.is_suspended() {
            for (member, reason) in self.members.suspended() {
                if !self.members.can_spare(&self.spec, member) {
                    continue;
                }
                if self.members.release(self.now, member) {
                    self.resumed(member);
                } else {
                    self.evict(member, reason);
                }
            }
        }
        if self.segments.has_retries() && self.members.may_write(self.now) {
            self.segments.retry(&mut self.members);
        }
    }

    /// Evicts a member that cannot be used any more.
    ///
    /// Members that the volume needs are not failed, except by command: I/O waits for them.
    pub(super) fn evict(&mut self, member: MemberIndex, reason: FailReason) {
        self.wake();
        let is_needed = self.members[member].is_present() && !self.members.can_spare(&self.spec, member);
        let is_kept = is_needed && !self.spec.has(SeededBug::NeededMemberFailed);
        if is_kept && reason != FailReason::Command && self.is_ready() {
            if reason == FailReason::Errors && self.members[member].lacks_space() {
                // What it fails, it fails for that: it would be suspended and resumed in turn.
                return self.suspend_for_space(member);
            }
            if self.members.suspend(self.now, member, reason) {
                self.events.push_back(Event::Suspended { member, reason });
            }
            return;
        }
        let returns_too_often = self.members[member].has_returned_too_often(self.now);
        let reason = match reason {
            FailReason::Errors | FailReason::Timeout if returns_too_often => FailReason::Flapping,
            reason => reason,
        };
        if !self.members.fail(member) {
            return;
        }
        self.members[member].failed_for(reason);
        self.events.push_back(Event::MemberFailed { member, reason });
        self.segments.forget_member(&self.spec, &mut self.members, member);
        if !self.knows_its_scheme() {
            // A mount that has not read the superblocks decides later.
        } else if !self.members.are_enough(&self.spec) {
            let (missing, rebuilding) = (self.members.missing(), self.members.rebuilding());
            self.fail(VolumeError::TooManyMissing { tolerates: self.spec.code.tolerates(), missing, rebuilding });
        } else if self.writes_epochs() {
            self.members.begin_epoch(&self.spec);
        }
        self.stop_rebuild_of(member);
    }

    /// The volume is lost: every command ends with an error, once the current handler has returned.
    pub(super) fn fail(&mut self, error: VolumeError) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        self.phase = Phase::Failed(error.clone());
        self.events.push_back(Event::Failed(error));
    }

    /// Ends the commands of members that have failed. If the volume is lost, nothing is computed or
    /// counted as lost.
    pub(super) fn end_aborted(&mut self) {
        while !self.is_lost() {
            let Some((member, work, completion)) = self.members.next_aborted() else { return };
            self.dispatch(member, work, completion);
        }
    }

    /// An event occurs at this time. If it comes after a check of commands in flight was due, the
    /// program was paused: this may be the first event that it handles afterwards.
    #[inline]
    pub(super) fn advance_to(&mut self, now: Instant) {
        if now > self.now + LATE_MAX
            && let Some(due) = self.timeout_check_due().filter(|&due| now > due + LATE_MAX)
        {
            self.members.excuse_timeouts(now, now - due);
        }
        self.now = now;
    }

    /// When commands in flight are checked for timeouts.
    pub(super) fn timeout_check_due(&self) -> Option<Instant> {
        let timeout = self.spec.config.tuning.member_timeout;
        let due = self.members.answer_due(timeout)?;
        self.members.check_due(timeout, CHECK_INTERVAL).map(|check| check.min(due))
    }

    /// The requested time, `due`, has come, or passed a while ago.
    pub(super) fn check_timeouts(&mut self, due: Option<Instant>) {
        let excuses = !self.spec.has(SeededBug::PauseCounts);
        match due.filter(|&due| excuses && self.now > due + LATE_MAX) {
            Some(due) => self.members.excuse_timeouts(self.now, self.now - due),
            None => {
                self.fail_unresponsive_members();
                self.fail_flapping_members();
            }
        }
    }

    /// Members that repeatedly stop answering for a while delay all I/O, and never long enough to
    /// time out. Those that the volume needs stay.
    fn fail_flapping_members(&mut self) {
        let timeout = self.spec.config.tuning.member_timeout;
        if self.members.check_due(timeout, CHECK_INTERVAL).is_none_or(|due| due > self.now) {
            return;
        }
        for member in self.members.check_stalls(&self.spec, self.now) {
            if self.is_ready() && self.members.can_spare(&self.spec, member) {
                self.evict(member, FailReason::Flapping);
            }
        }
    }

    fn fail_unresponsive_members(&mut self) {
        let timeout = self.spec.config.tuning.member_timeout;
        for member in self.members.present() {
            if self.members.suspension_of(member).is_some() {
                continue;
            }
            if self.members[member].answer_due(timeout).is_some_and(|due| due <= self.now) {
                self.evict(member, FailReason::Timeout);
            }
        }
        self.fail_silent_replacements();
    }

    /// Writes superblocks of an epoch that is not written; stripes that waited for it count, or are
    /// rewritten.
    pub(super) fn pump_superblocks(&mut self) {
        // A member that cannot record the epoch begins another one, and nothing else may be in
        // flight that would return to it.
        while self.members.may_write(self.now) && !self.is_lost() {
            let failed = self.members.write_superblocks(&self.spec);
            if failed.is_empty() {
                break;
            }
            for member in failed {
                self.apply_verdict(member, Verdict::Failed);
            }
        }
        self.events.extend(self.members.take_epoch_event());
        for stripe in self.members.decided(&self.spec) {
            // A member may have failed since: the stripe is checked again.
            self.stripe_ended(stripe);
        }
    }

    /// Resumes the waiter when all writes that members have acknowledged so far are durable.
    pub(super) fn when_durable(&mut self, waiter: Waiter) {
        if self.members.when_durable(&self.spec, waiter) {
            self.is_durable_for(waiter);
        }
    }

    /// Ends a round of flushes that all members have completed.
    pub(super) fn end_flushes(&mut self) {
        if self.is_lost() {
            return;
        }
        for waiter in self.members.end_flushes() {
            self.is_durable_for(waiter);
        }
    }

    fn is_durable_for(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Request(request) => self.end_part(request, 1, zonda_zoned::Status::Success),
            Waiter::Barrier(index, sequence) => {
                self.segments.on_barrier(&self.spec, &mut self.members, index, sequence);
            }
            Waiter::Reset(index) => self.segments.on_replacement_durable(&mut self.members, index),
            Waiter::Rebuilt(member) => self.rebuild_flushed(member),
            Waiter::Mount => self.flushed_at_mount(),
        }
    }
}
