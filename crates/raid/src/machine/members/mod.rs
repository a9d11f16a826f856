//! Members: commands, states, and failures.
//!
//! ```text
//! member.rs       one member: state, errors
//! commands.rs     its commands in flight
//! zones.rs        its zones that no segment holds
//! superblocks.rs  superblocks, and epochs
//! log.rs          where a member's superblocks are
//! flapping.rs     members that repeatedly fail and return
//! caches.rs       flushes of volatile caches
//! suspension.rs   needed members that do not answer, fail, or are out of space
//! ```

mod caches;
mod commands;
mod flapping;
mod log;
mod member;
mod superblocks;
mod suspension;
mod zones;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use bytes::Bytes;
use zonda_zoned::{
    BlockBuffer, Blocks, Class, Command, CommandId, Completion, Duration, Instant, Operation, Outcome, Payload, Status,
};

use super::pieces::PieceKey;
use super::reads::{FetchKey, RepairKey};
use super::rebuild::RebuildStep;
use super::scrub::ScrubReport;
use super::spec::Spec;
use super::start::StartStep;
use super::stripes::StripeKey;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::event::FailReason;
use crate::format::{MemberState, Superblock};
use crate::limits::STALL_MIN;
use crate::shape::bits;
use crate::tables::{Segment, SegmentIndex};

use caches::Caches;
pub(super) use caches::Waiter;
pub(super) use log::{MetadataLog, is_mirrored};
pub(super) use member::{Member, is_dead};
use superblocks::Epochs;
pub(super) use suspension::RETRY_AFTER;
use suspension::Suspensions;

/// Owns the members: their states, zones and commands, the epochs of their superblocks, and the
/// flushes of their caches.
///
/// Operations: [`send`](Members::send) and [`write`](Members::write),
/// [`poll_command`](Members::poll_command), [`ended`](Members::ended);
/// [`when_durable`](Members::when_durable), [`begin_flushes`](Members::begin_flushes),
/// [`end_flushes`](Members::end_flushes); [`fail`](Members::fail), then
/// [`next_aborted`](Members::next_aborted) until it returns none. Handlers report the state of a
/// member as a [`Verdict`]: the volume evicts a member that has failed, or
/// [suspends](Members::suspend) I/O if it needs the member.
#[derive(Debug)]
pub(super) struct Members {
    members: Vec<Member>,
    epochs: Epochs,
    caches: Caches,
    suspensions: Suspensions,
    /// The purposes of aborted commands of members that have failed.
    aborted: VecDeque<(MemberIndex, Work)>,
    /// Blocks written since the mount, superblocks not counted.
    written_blocks: u64,
    /// See [`accepted_segment`](Members::accepted_segment).
    accepted_segment: u64,
    /// When members were last checked for stalls.
    checked_at: Instant,
    /// Those that stalled then, a bit each.
    stalled: u32,
}

/// The purpose of a command in flight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Chunk {
        stripe: StripeKey,
    },
    Header {
        segment: SegmentIndex,
    },
    Footer {
        segment: SegmentIndex,
        blocks: u32,
    },
    FinishZone {
        segment: SegmentIndex,
    },
    ResetZone {
        segment: SegmentIndex,
    },
    /// A report on a zone in which a write failed.
    Inspect {
        segment: SegmentIndex,
    },
    Fetch {
        fetch: FetchKey,
    },
    /// One block of a fetch that cannot be read as a whole.
    FetchBlock {
        fetch: FetchKey,
        at: u32,
    },
    /// A block that another one is computed from.
    Source {
        repair: RepairKey,
        source: u8,
    },
    /// Its metadata (0) or its contents (1), where they cannot be read together.
    SourceBlock {
        repair: RepairKey,
        source: u8,
        at: u32,
    },
    Flush,
    Superblock,
    SuperblockFlush,
    /// The reset of a zone of superblocks, or its finish.
    MetadataReset,
    Start(StartStep),
    /// Slots of a zone, for a rebuild or a scrub.
    Slots {
        piece: PieceKey,
        slot: u32,
        count: u32,
    },
    /// One block of a slot that cannot be read as a whole.
    SlotBlock {
        piece: PieceKey,
        slot: u32,
        at: u32,
    },
    Rebuild(RebuildStep),
    ScrubReport(ScrubReport),
    /// Blocks of the header or the footer of a zone of the segment with this sequence number, for a
    /// scrub.
    Described {
        sequence: u64,
        offset: u32,
        blocks: u32,
    },
}

impl Work {
    /// Rebuild and scrub are maintenance; a user may wait for everything else. Reads and writes of
    /// garbage collection have the same purposes as those of hosts: see `send_as`.
    fn class(self) -> Class {
        match self {
            Work::Slots { .. }
            | Work::SlotBlock { .. }
            | Work::Rebuild(_)
            | Work::ScrubReport(_)
            | Work::Described { .. } => Class::Background,
            _ => Class::Foreground,
        }
    }
}

/// What an event reveals about a member.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Usable,
    /// It cannot be used any more, and is to be evicted.
    Failed,
}

impl Members {
    pub(super) fn new(members: Vec<Member>) -> Members {
        Members {
            members,
            epochs: Epochs::new(1, 0),
            caches: Caches::default(),
            suspensions: Suspensions::default(),
            aborted: VecDeque::new(),
            written_blocks: 0,
            accepted_segment: 0,
            checked_at: Instant::ZERO,
            stalled: 0,
        }
    }

    /// The last segment up to which unidentified losses were accepted, by its sequence.
    pub(super) fn accepted_segment(&self) -> u64 {
        self.accepted_segment
    }

    /// The superblocks that are written from now on record that unidentified losses were accepted
    /// up to this segment.
    pub(super) fn set_accepted_segment(&mut self, sequence: u64) {
        self.accepted_segment = sequence;
    }

    /// A mount continues with the epoch of a superblock, and with what was aborted before it had
    /// read the members.
    pub(super) fn resume(&mut self, best: &Superblock, before: &mut Members) {
        self.epochs = Epochs::new(best.epoch, best.sequence);
        self.aborted = std::mem::take(&mut before.aborted);
    }

    /// Queues a command.
    #[inline]
    pub(super) fn send(&mut self, member: MemberIndex, work: Work, operation: Operation) {
        assert!(self[member].is_present(), "nothing is sent to a member that has failed");
        self[member].send(work, operation);
    }

    /// Queues a command of this class, where that does not follow from its purpose.
    #[inline]
    pub(super) fn send_as(&mut self, class: Class, member: MemberIndex, work: Work, operation: Operation) {
        assert!(self[member].is_present(), "nothing is sent to a member that has failed");
        self[member].send_as(class, work, operation);
    }

    /// Writes blocks to a zone. Without contents there are no bytes.
    pub(super) fn write(
        &mut self,
        spec: &Spec,
        member: MemberIndex,
        work: Work,
        (zone, offset): (u32, u32),
        blocks: u32,
        (data, metadata): (Bytes, Bytes),
    ) {
        let start = self[member].lba(zone, offset);
        let payload =
            if spec.has_contents() { Payload::Bytes(Box::new(BlockBuffer { data, metadata })) } else { Payload::None };
        self.send(member, work, Operation::Write { start, blocks: Blocks(u64::from(blocks)), payload });
    }

    /// Counts written blocks, except superblocks.
    pub(super) fn count_written(&mut self, blocks: u64) {
        self.written_blocks += blocks;
    }

    /// The next command of a member to submit.
    pub(super) fn poll_command(&mut self, now: Instant, member: MemberIndex) -> Option<Command> {
        self[member].poll(now)
    }

    /// A member's queue was full.
    pub(super) fn on_queue_full(&mut self, now: Instant, member: MemberIndex, command: Command) {
        self[member].queue_full(now, command);
    }

    /// The purpose of a completed command; `None` if it was abandoned.
    #[inline]
    pub(super) fn ended(&mut self, member: MemberIndex, completion: &Completion) -> Option<Work> {
        self[member].ended(completion)
    }

    /// Whether everything that members have acknowledged so far is durable; otherwise the waiter is
    /// returned by [`end_flushes`](Members::end_flushes) when it is.
    pub(super) fn when_durable(&mut self, spec: &Spec, waiter: Waiter) -> bool {
        let is_careless = matches!(waiter, Waiter::Barrier(..)) && spec.has(SeededBug::UnflushedBarrier);
        let has_to_wait = spec.is_cache_volatile() && !is_careless;
        if has_to_wait {
            self.caches.wait(waiter);
        }
        !has_to_wait
    }

    /// Begins a round of flushes, if a waiter is queued.
    pub(super) fn begin_flushes(&mut self) {
        if self.caches.begin_round() {
            for member in self.present() {
                self.caches.sent();
                self.send(member, Work::Flush, Operation::Flush);
            }
        }
    }

    /// A member whose flush fails may have lost everything that it acknowledged.
    pub(super) fn on_flush(&mut self, spec: &Spec, member: MemberIndex, status: Status) -> Verdict {
        self.caches.answered();
        if status.is_success() || !self[member].is_present() {
            return Verdict::Usable;
        }
        let is_ignored = spec.has(SeededBug::IgnoredFlushError);
        if !is_ignored && (status == Status::CapacityExceeded || !self.can_spare(spec, member)) {
            self.caches.fail_round();
        }
        self.verdict_of(status)
    }

    /// The verdict on a member after a failed command. An out-of-space member may recover.
    pub(super) fn verdict_of(&self, status: Status) -> Verdict {
        if status == Status::CapacityExceeded { Verdict::Usable } else { Verdict::Failed }
    }

    /// The waiters of a round that all members have completed; after a failure in the round, once
    /// the others have recorded it.
    pub(super) fn end_flushes(&mut self) -> Vec<Waiter> {
        if self.is_epoch_durable() { self.caches.end_round() } else { Vec::new() }
    }

    /// A member cannot be used any more. Returns whether it was usable before.
    pub(super) fn fail(&mut self, member: MemberIndex) -> bool {
        let Some(abandoned) = self[member].fail() else { return false };
        self.suspensions.forget(member);
        // Their handlers run after the current one.
        self.aborted.extend(abandoned.into_iter().map(|work| (member, work)));
        true
    }

    /// The next aborted command of a failed member: it ends with an error.
    pub(super) fn next_aborted(&mut self) -> Option<(MemberIndex, Work, Completion)> {
        let (member, work) = self.aborted.pop_front()?;
        Some((member, work, Completion { id: CommandId(0), status: Status::InternalError, outcome: Outcome::None }))
    }

    pub(super) fn has_aborted(&self) -> bool {
        !self.aborted.is_empty()
    }

    /// The volume is lost: nothing waits for commands any more.
    pub(super) fn forget_aborted(&mut self) {
        self.aborted.clear();
    }

    pub(super) fn get(&self, member: MemberIndex) -> Option<&Member> {
        self.members.get(member.as_usize())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// Blocks written since the mount, superblocks not counted.
    pub(super) fn written_blocks(&self) -> u64 {
        self.written_blocks
    }

    /// Whether commands wait to be handed over.
    pub(super) fn has_commands(&self) -> bool {
        self.members.iter().any(Member::has_waiting)
    }

    /// Whether all commands of all members have completed.
    pub(super) fn are_idle(&self) -> bool {
        self.aborted.is_empty() && self.members.iter().all(Member::is_idle)
    }

    /// The purposes of outstanding commands of all members.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = &Work> {
        let aborted = self.aborted.iter().map(|(_, work)| work);
        self.members.iter().flat_map(Member::in_flight).chain(aborted)
    }

    /// The segments of in-flight reports on zones with failed commands, for checks.
    pub(super) fn inspected(&self) -> impl Iterator<Item = SegmentIndex> + '_ {
        self.in_flight().filter_map(|work| match work {
            Work::Inspect { segment } => Some(*segment),
            _ => None,
        })
    }

    /// Whether a member's queue is full until its next completion.
    pub(super) fn is_blocked(&self, member: MemberIndex) -> bool {
        self[member].is_blocked()
    }

    /// Members that receive new stripes.
    pub(super) fn present(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        let present = self.present_bits();
        (0..self.members.len() as u8).filter(move |at| present >> at & 1 == 1).map(MemberIndex)
    }

    /// The same as bits.
    pub(super) fn present_bits(&self) -> u32 {
        bits((0..self.members.len()).filter(|&at| self.members[at].is_present()))
    }

    /// Members that have failed.
    pub(super) fn missing(&self) -> Vec<MemberIndex> {
        let is_missing = |at: &usize| !self.members[*at].is_present();
        (0..self.members.len()).filter(is_missing).map(|at| MemberIndex(at as u8)).collect()
    }

    /// Whether a missing member may hold a part of a segment: not if it had failed when the segment
    /// was opened.
    pub(super) fn may_hold(&self, member: MemberIndex, segment: &Segment) -> bool {
        !self[member].is_present() && !self[member].has_failed_by(segment.opened.0)
    }

    /// Members that are present and not rebuilt yet.
    pub(super) fn rebuilding(&self) -> Vec<MemberIndex> {
        self.present().filter(|&at| self[at].state() == MemberState::Rebuilding).collect()
    }

    /// The first member that is being rebuilt.
    pub(super) fn first_rebuilding(&self) -> Option<MemberIndex> {
        let is_rebuilding = |member: &Member| member.state() == MemberState::Rebuilding;
        self.members.iter().position(is_rebuilding).map(|at| MemberIndex(at as u8))
    }

    /// Whether a rebuild will write everything that a segment lacks.
    pub(super) fn will_rebuild(&self, segment: &Segment) -> bool {
        let mut lacking = self.present().filter(|&member| !segment.has(member));
        lacking.all(|member| self[member].state() == MemberState::Rebuilding)
    }

    /// Members that hold all of their data, as bits.
    fn active_bits(&self, spec: &Spec) -> u32 {
        let counts = |state| state == MemberState::Active || spec.has(SeededBug::RebuildingCounts);
        bits((0..self.members.len()).filter(|&at| self.members[at].is_present() && counts(self.members[at].state())))
    }

    /// Whether all stripes can be read. A member that is being rebuilt lacks some of its chunks,
    /// and it is not known which.
    pub(super) fn are_enough(&self, spec: &Spec) -> bool {
        spec.are_enough(self.active_bits(spec))
    }

    /// Whether the volume tolerates the loss of this member. One that is being rebuilt lacks chunks
    /// that only others have.
    pub(super) fn can_spare(&self, spec: &Spec, member: MemberIndex) -> bool {
        spec.are_enough(self.active_bits(spec) & !(1 << member.0))
    }

    /// When the oldest command of all members times out; suspended members do not count.
    pub(super) fn answer_due(&self, timeout: Duration) -> Option<Instant> {
        let awaited =
            (0..).map(MemberIndex).zip(&self.members).filter(|(at, _)| self.suspensions.reason(*at).is_none());
        awaited.filter_map(|(_, member)| member.answer_due(timeout)).min()
    }

    /// Completions were not processed for a while: this does not count against members.
    pub(super) fn excuse_timeouts(&mut self, now: Instant, by: Duration) {
        self.members.iter_mut().for_each(|member| member.excuse_timeouts(now, by));
    }

    /// When members are to be checked, if any of them has a command in flight.
    pub(super) fn check_due(&self, timeout: Duration, every: Duration) -> Option<Instant> {
        let oldest = Instant(self.answer_due(timeout)?.0.saturating_sub(timeout.0));
        Some(oldest.max(self.checked_at) + every)
    }

    /// Checks which members stall. Returns those that did so too often.
    pub(super) fn check_stalls(&mut self, spec: &Spec, now: Instant) -> Vec<MemberIndex> {
        self.checked_at = now;
        let timeout = spec.config.tuning.member_timeout;
        let is_stalled = |member: &MemberIndex| {
            let oldest = self[*member].answer_due(timeout).map(|due| Instant(due.0.saturating_sub(timeout.0)));
            oldest.is_some_and(|oldest| self[*member].unresponsive_since(oldest) + STALL_MIN <= now)
        };
        let stalled = bits(self.present().filter(is_stalled).map(MemberIndex::as_usize));
        self.stalled = stalled;
        // The cause is the network, or this machine.
        let stalled = if stalled.count_ones() as usize > spec.code.tolerates() { 0 } else { stalled };
        for member in self.present() {
            self[member].sample(now, stalled >> member.0 & 1 == 1);
        }
        self.present().filter(|&member| self[member].stalls()).collect()
    }

    /// Whether a member stalled when it was last checked, and has completed nothing since.
    pub(super) fn is_stalled(&self, member: MemberIndex) -> bool {
        let is_silent = self[member].unresponsive_since(Instant::ZERO) <= self.checked_at;
        self.stalled >> member.0 & 1 == 1 && is_silent && self[member].has_in_flight()
    }

    /// Suspends I/O for a member that the volume needs. Returns whether it was not suspended
    /// before.
    pub(super) fn suspend(&mut self, now: Instant, member: MemberIndex, reason: FailReason) -> bool {
        self[member].expect_failure();
        self.suspensions.suspend(now, member, reason)
    }

    /// A suspended member is not needed any more. Returns whether I/O to it is resumed, since it
    /// may be retried.
    pub(super) fn release(&mut self, now: Instant, member: MemberIndex) -> bool {
        self.suspensions.release(now, member)
    }

    /// Suspends writes, since a member has no space for them. Returns whether they were not
    /// suspended before.
    pub(super) fn suspend_for_space(&mut self, now: Instant) -> bool {
        self.suspensions.suspend_for_space(now)
    }

    /// A command of a member has failed for lack of space.
    pub(super) fn ran_out_of_space(&mut self, now: Instant, member: MemberIndex) {
        self[member].set_no_space(now);
    }

    /// A command has completed; `is_write`: it was a successful write. Returns whether I/O to the
    /// member is resumed.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant, member: MemberIndex, is_write: bool) -> bool {
        self[member].answered(now);
        self.suspensions.answered(member, is_write)
    }

    /// A stripe was written. Returns whether writes are resumed.
    #[inline]
    pub(super) fn space_found(&mut self, now: Instant) -> bool {
        let is_found = self.suspensions.space_found(now);
        if is_found {
            self.members.iter_mut().for_each(Member::forget_no_space);
        }
        is_found
    }

    /// Members that I/O is suspended for, and why.
    pub(super) fn suspended(&self) -> Vec<(MemberIndex, FailReason)> {
        self.suspensions.iter().collect()
    }

    pub(super) fn is_suspended(&self) -> bool {
        !self.suspensions.is_empty()
    }

    /// Why I/O waits for a member, if it does.
    pub(super) fn suspension_of(&self, member: MemberIndex) -> Option<FailReason> {
        self.suspensions.reason(member)
    }

    /// Whether writes end for lack of space.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.suspensions.is_full(now)
    }

    /// Whether members may be sent writes.
    #[inline]
    pub(super) fn may_write(&self, now: Instant) -> bool {
        self.suspensions.may_write(now)
    }

    /// When writes to members may be retried, if they are suspended.
    pub(super) fn retry_due(&self, now: Instant) -> Option<Instant> {
        self.suspensions.retry_due(now)
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self) {
        self.members.iter().for_each(Member::check_invariants);
        self.caches.check_invariants();
        self.suspensions.check_invariants();
    }
}

impl Index<MemberIndex> for Members {
    type Output = Member;

    fn index(&self, index: MemberIndex) -> &Member {
        &self.members[index.as_usize()]
    }
}

impl IndexMut<MemberIndex> for Members {
    fn index_mut(&mut self, index: MemberIndex) -> &mut Member {
        &mut self.members[index.as_usize()]
    }
}
