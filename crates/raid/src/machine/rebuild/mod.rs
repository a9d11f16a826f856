//! A member is given its part again.
//!
//! ```text
//! replace.rs    another device takes a member's place: it is emptied, and takes part in what is written from then on
//! returning.rs  a member that has failed comes back with what it held
//! catch_up.rs   what it held is taken over where it counts, and reset where it does not
//! job.rs        one segment after the other is given to it, run by run
//! compute.rs    chunks out of the others of their stripes
//! zone.rs       a zone is written, slot by slot, as if it had always been there
//! ```
//!
//! One member is rebuilt at a time. Addresses do not change: each chunk goes to the slot that it has in the segment's table.

mod catch_up;
mod compute;
mod invariants;
mod job;
mod replace;
mod returning;
mod zone;

use bytes::BytesMut;
use zonda_zoned::{Outcome, Status};

use super::Volume;
use super::members::Waiter;
use super::pieces::Pace;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::event::Event;
use crate::limits::RELOCATION_SEGMENTS;
use crate::tables::{Segment, SegmentIndex, SegmentState};

pub(super) use catch_up::{Aside, AsideStep};
pub(super) use compute::Recoveries;
use job::Job;
use replace::Replacement;
pub(super) use returning::ReturnStep;
use returning::Returning;

/// Members that are being given their parts again.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    /// Devices that are being emptied.
    replacements: Vec<Replacement>,
    /// Members that come back, and are looked at.
    returning: Vec<Returning>,
    /// Zones that members held which came back.
    aside: Vec<Aside>,
    /// Which member is rebuilt.
    member: Option<MemberIndex>,
    job: Option<Box<Job>>,
    /// Segments done.
    done: u32,
    /// How far what was written to it is on its way out of its cache, once nothing is left to be done.
    flush: RebuildFlush,
    /// Zones in a row that could not be written.
    failures: u32,
    /// A buffer of slots that were written, for the next ones.
    spare: Option<BytesMut>,
    /// When the next run of stripes may begin.
    pace: Pace,
    /// The sequence that the next segment had when the last one was done: where zones that may be active are few, a stream that
    /// waits for one comes first.
    yielded_at: u64,
}

/// A member is whole once what it was given is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RebuildFlush {
    #[default]
    Wanted,
    UnderWay,
    Done,
}

/// What a command of a rebuild is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum RebuildStep {
    Report,
    Wipe,
    Return(ReturnStep),
    Verify { zone: u32 },
    ResetAside { zone: u32 },
    Write { blocks: u32 },
    Finish,
    Reset,
}

impl Volume {
    /// Goes on with members that were being rebuilt.
    pub(super) fn resume_rebuild(&mut self) {
        self.next_rebuild();
        self.pump_rebuild();
    }

    /// The next member to be rebuilt.
    fn next_rebuild(&mut self) {
        self.rebuild.member = self.members.first_rebuilding();
        self.rebuild.done = 0;
        self.rebuild.flush = RebuildFlush::Wanted;
        self.rebuild.failures = 0;
        self.rebuild.pace = Pace::from(self.now);
    }

    pub(super) fn pump_rebuild(&mut self) {
        self.pump_catch_up();
        while let Some(member) = self.rebuild.member {
            if self.rebuild.job.is_some() {
                self.work_on_segment(member);
                if self.rebuild.job.is_some() {
                    return;
                }
            }
            if !self.is_ready() || !self.members.is_epoch_durable() || !self.members.may_write(self.now) {
                return;
            }
            // What it holds need not be rebuilt.
            if self.is_catching_up(member) {
                return;
            }
            if !self.begin_segment(member) && !self.end_if_rebuilt(member) {
                return;
            }
        }
    }

    pub(super) fn on_rebuild(&mut self, member: MemberIndex, step: RebuildStep, status: Status, outcome: Outcome) {
        match step {
            RebuildStep::Report | RebuildStep::Wipe => self.on_replacement(member, step, status, outcome),
            RebuildStep::Return(step) => self.on_returning(member, step, status, outcome),
            RebuildStep::Verify { zone } => self.on_verify(member, zone, status, outcome),
            RebuildStep::ResetAside { zone } => self.on_aside_reset(member, zone, status),
            _ if self.rebuild.member != Some(member) || self.rebuild.job.is_none() => {}
            RebuildStep::Write { blocks } => self.on_rebuild_write(member, blocks, status),
            RebuildStep::Finish => self.on_rebuild_finish(member, status),
            RebuildStep::Reset => self.on_rebuild_reset(member, status),
        }
    }

    /// A member is gone.
    pub(super) fn stop_rebuild_of(&mut self, member: MemberIndex) {
        self.rebuild.aside.retain(|aside| aside.member != member);
        if self.rebuild.member == Some(member) {
            self.drop_job();
            // Later: whoever found the member out runs to its end first.
            self.next_rebuild();
        }
    }

    /// Whether a segment lacks a member that could hold its part.
    fn lacks(segment: &Segment, member: MemberIndex) -> bool {
        segment.state != SegmentState::Resetting && !segment.has(member)
    }

    /// Nothing is left to be done for a member. Says whether that is so.
    fn end_if_rebuilt(&mut self, member: MemberIndex) -> bool {
        let mut is_complete = true;
        let mut open = Vec::new();
        for (index, segment) in self.segments.iter().filter(|(_, segment)| Self::lacks(segment, member)) {
            if self.spec.has(SeededBug::UnfinishedRebuild) && segment.state == SegmentState::Closing {
                continue;
            }
            is_complete = false;
            if matches!(segment.state, SegmentState::Opening | SegmentState::Open) && !segment.is_broken {
                open.push(index);
            }
        }
        if is_complete && !self.is_rebuild_flushed(member) {
            return false;
        }
        if is_complete {
            self.members[member].end_rebuild();
            self.members.begin_epoch(&self.spec);
            self.events.push_back(Event::Rebuilt { member });
            self.segments.forget_all_lost();
            self.next_rebuild();
            self.pump_superblocks();
        } else {
            self.close_without(&open);
        }
        is_complete
    }

    /// Whether what a member was given is durable; sees to it if not.
    fn is_rebuild_flushed(&mut self, member: MemberIndex) -> bool {
        if self.rebuild.flush == RebuildFlush::Wanted {
            self.rebuild.flush = RebuildFlush::UnderWay;
            self.when_durable(Waiter::Rebuilt(member));
        }
        self.rebuild.flush == RebuildFlush::Done
    }

    pub(super) fn rebuild_flushed(&mut self, member: MemberIndex) {
        // More may have been written to it since, or it may be another one's turn.
        if self.rebuild.member == Some(member) && self.rebuild.flush == RebuildFlush::UnderWay {
            self.rebuild.flush = RebuildFlush::Done;
        }
    }

    /// Segments that were opened without a member take no more, so that they can be given to it; unless there is no room for others.
    fn close_without(&mut self, open: &[SegmentIndex]) {
        let room = self.space().free_segments().saturating_sub(RELOCATION_SEGMENTS);
        for (at, &index) in (0..).zip(open) {
            if at < room {
                self.segments.break_off(&self.spec, &mut self.members, index);
                let stream = self.segments[index].stream;
                self.segments.tidy(&self.spec, &mut self.members, stream);
            }
        }
    }

    /// Zones of a member that a rebuild holds active.
    pub(super) fn rebuild_active(&self, member: MemberIndex) -> u32 {
        u32::from(self.rebuild.member == Some(member) && self.rebuild.job.is_some())
    }

    /// Segments that are done, and all that are or were to be done.
    pub(super) fn rebuild_progress(&self) -> Option<(u32, u32)> {
        let member = self.rebuild.member?;
        let left = self.segments.iter().filter(|(_, segment)| Self::lacks(segment, member)).count() as u32;
        Some((self.rebuild.done, self.rebuild.done + left))
    }

    /// A mount puts aside a zone that a member held before it came back.
    pub(super) fn put_aside(&mut self, aside: Aside) {
        self.rebuild.aside.push(aside);
    }

    /// Takes some of them out again.
    pub(super) fn take_aside(&mut self, is_meant: impl Fn(&Aside) -> bool) -> Vec<(MemberIndex, u32)> {
        let taken: Vec<(MemberIndex, u32)> = self
            .rebuild
            .aside
            .iter()
            .filter(|&aside| is_meant(aside))
            .map(|aside| (aside.member, aside.zone))
            .collect();
        self.rebuild.aside.retain(|aside| !is_meant(aside));
        taken
    }

    /// The segment that is being written to a member.
    pub(super) fn rebuilt_segment(&self) -> Option<SegmentIndex> {
        self.rebuild.job.as_ref().map(|job| job.segment)
    }

    /// Whether a rebuild is in progress, or about to be.
    pub(super) fn is_rebuilding(&self) -> bool {
        self.rebuild.member.is_some()
    }
}
