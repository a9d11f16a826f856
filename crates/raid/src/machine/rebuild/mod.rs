//! Rebuilds of members.
//!
//! ```text
//! replace.rs    replacement of a member: the device is reset, and receives new stripes from then on
//! returning.rs  re-add of a failed member with its contents
//! catch_up.rs   its zones are claimed where they are valid, and reset otherwise
//! job.rs        segments are rebuilt one after another, run by run
//! compute.rs    computation of chunks from the others of their stripes
//! zone.rs       writes of a zone, slot by slot
//! ```
//!
//! One member is rebuilt at a time. Addresses do not change: each chunk is written to its slot in
//! the segment's table.

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

/// Members that are being replaced, re-added or rebuilt.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    /// Devices that are being reset.
    replacements: Vec<Replacement>,
    /// Re-added members that are being checked.
    returning: Vec<Returning>,
    /// Zones that re-added members held.
    aside: Vec<Aside>,
    /// The member that is being rebuilt.
    member: Option<MemberIndex>,
    job: Option<Box<Job>>,
    /// Rebuilt segments.
    done: u32,
    /// Whether the rebuilt zones have left the member's cache, once nothing is left to be written.
    flush: RebuildFlush,
    /// Consecutive zones that could not be written.
    failures: u32,
    /// A buffer of slots that were written, for reuse.
    spare: Option<BytesMut>,
    /// When the next run of stripes may begin.
    pace: Pace,
    /// The next segment sequence when the last segment was rebuilt: where few zones may be active,
    /// a stream that waits for a segment comes first.
    yielded_at: u64,
}

/// A rebuild is complete once everything that was written is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RebuildFlush {
    #[default]
    Wanted,
    InFlight,
    Done,
}

/// The purpose of a command of a rebuild.
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
    /// Resumes rebuilds that were interrupted.
    pub(super) fn resume_rebuild(&mut self) {
        self.next_rebuild();
        self.pump_rebuild();
    }

    /// Chooses the next member to be rebuilt.
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
            // Claimed zones need not be rebuilt.
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

    /// A member has failed.
    pub(super) fn stop_rebuild_of(&mut self, member: MemberIndex) {
        self.rebuild.aside.retain(|aside| aside.member != member);
        if self.rebuild.member == Some(member) {
            self.drop_job();
            // Later: the handler that detected the failure returns first.
            self.next_rebuild();
        }
    }

    /// Whether a segment lacks a member that could hold its part.
    fn lacks(segment: &Segment, member: MemberIndex) -> bool {
        segment.state != SegmentState::Resetting && !segment.has(member)
    }

    /// Completes the rebuild of a member if nothing is left. Returns whether that is so.
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

    /// Whether everything that was written to a member is durable; starts a flush if not.
    fn is_rebuild_flushed(&mut self, member: MemberIndex) -> bool {
        if self.rebuild.flush == RebuildFlush::Wanted {
            self.rebuild.flush = RebuildFlush::InFlight;
            self.when_durable(Waiter::Rebuilt(member));
        }
        self.rebuild.flush == RebuildFlush::Done
    }

    pub(super) fn rebuild_flushed(&mut self, member: MemberIndex) {
        // More may have been written to it since, or another member may be in progress.
        if self.rebuild.member == Some(member) && self.rebuild.flush == RebuildFlush::InFlight {
            self.rebuild.flush = RebuildFlush::Done;
        }
    }

    /// Closes segments that were opened without a member, so that they can be rebuilt; unless there
    /// is no space for others.
    fn close_without(&mut self, open: &[SegmentIndex]) {
        let free = self.space().free_segments().saturating_sub(RELOCATION_SEGMENTS);
        for (at, &index) in (0..).zip(open) {
            if at < free {
                self.segments.break_off(&self.spec, &mut self.members, index);
                let stream = self.segments[index].stream;
                self.segments.tidy(&self.spec, &mut self.members, stream);
            }
        }
    }

    /// Active zones of a member that a rebuild holds.
    pub(super) fn rebuild_active(&self, member: MemberIndex) -> u32 {
        u32::from(self.rebuild.member == Some(member) && self.rebuild.job.is_some())
    }

    /// Rebuilt segments, and all that were or are to be rebuilt.
    pub(super) fn rebuild_progress(&self) -> Option<(u32, u32)> {
        let member = self.rebuild.member?;
        let left = self.segments.iter().filter(|(_, segment)| Self::lacks(segment, member)).count() as u32;
        Some((self.rebuild.done, self.rebuild.done + left))
    }

    /// A mount sets aside a zone that a member held before it returned.
    pub(super) fn put_aside(&mut self, aside: Aside) {
        self.rebuild.aside.push(aside);
    }

    /// Removes the matching zones from those that were set aside.
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

    /// The segment that is being rebuilt.
    pub(super) fn rebuilt_segment(&self) -> Option<SegmentIndex> {
        self.rebuild.job.as_ref().map(|job| job.segment)
    }

    /// Whether a rebuild is in progress, or about to begin.
    pub(super) fn is_rebuilding(&self) -> bool {
        self.rebuild.member.is_some()
    }
}
