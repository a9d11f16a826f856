//! Reads and verifies all blocks: each with its metadata, and parity with the data; headers and
//! footers too.
//!
//! ```text
//! compare.rs    the blocks of a run of stripes
//! described.rs  headers and footers
//! finish.rs     the end of a scrub
//! zones.rs      zones without contents that have failed
//! ```
//!
//! A live block that is damaged is rewritten at once; one that cannot be computed is handled by
//! [`losses`](super::losses). Other damage would only be noticed when another member fails, and
//! cannot be rewritten in place: its segment is suspect, receives no more stripes, and is
//! collected. A scrub ends when all that is done, and the superblocks are rewritten: then its
//! results are final, and another scrub finds nothing.

mod compare;
mod described;
mod finish;
mod invariants;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::Instant;

use super::Volume;
use super::damage::DamageCounts;
use super::pieces::{Owner, Pace, PieceKey};
use super::stripes::Mover;
use crate::bug::SeededBug;
use crate::limits::SCRUBBED_STRIPES_MAX;
use crate::shape::Stream;
use crate::tables::{Physical, Segment, SegmentIndex, SegmentState};

use compare::Found;
pub(super) use zones::ScrubReport;

/// A scrub in progress.
#[derive(Debug)]
pub(super) struct Scrub {
    /// Remaining sequence numbers: segments that existed when it began.
    next: u64,
    end: u64,
    current: Option<Current>,
    done: u32,
    all: u32,
    pace: Pace,
    /// Blocks that were read.
    blocks: u64,
    /// Counts when it began.
    before: DamageCounts,
    /// Blocks that were lost when it began.
    lost_before: u64,
    /// Live blocks that are being rewritten.
    repairing: BTreeSet<Physical>,
    /// Segments that are to be emptied, by their sequences.
    damaged: BTreeMap<u64, SegmentIndex>,
    /// Whether zone reports were requested, and those in flight.
    has_reports: bool,
    reports: u32,
    /// Whether the superblocks were rewritten.
    has_superblocks: bool,
}

/// The segment that is being read.
#[derive(Debug)]
struct Current {
    segment: SegmentIndex,
    sequence: u64,
    /// It was pinned before.
    was_pinned: bool,
    /// Reads of headers and footers in flight.
    describing: u32,
    next_stripe: u32,
    /// Stripes behind this one were added later.
    end: u32,
    piece: Option<PieceKey>,
}

impl Volume {
    /// Reads all blocks of all segments, open ones too, and repairs damaged ones, until
    /// [`Event::Scrubbed`](crate::Event::Scrubbed). It waits while a member is rebuilt. No effect
    /// if a scrub is in progress, or the volume is not ready.
    pub fn start_scrub(&mut self, now: Instant) {
        self.advance_to(now);
        if self.scrub.is_some() || !self.is_ready() {
            return;
        }
        let all = self.segments.iter().filter(|(_, segment)| is_readable(segment)).count() as u32;
        self.damage.forget_unreadable();
        self.scrub = Some(Scrub {
            next: 0,
            end: self.segments.next_sequence(),
            current: None,
            done: 0,
            all,
            pace: Pace::from(now),
            blocks: 0,
            before: self.damage(),
            lost_before: self.lost_blocks(),
            repairing: BTreeSet::new(),
            damaged: BTreeMap::new(),
            has_reports: false,
            reports: 0,
            has_superblocks: false,
        });
        // A segment that is being emptied is not read again: it is reset when the scrub ends.
        for index in self.collector.expedite().into_iter().chain(self.collector.emptied()) {
            self.scrub_waits_for(index);
        }
        self.make_progress();
    }

    /// Stops a scrub.
    pub fn stop_scrub(&mut self) {
        let Some(scrub) = self.scrub.take() else { return };
        if let Some(current) = scrub.current {
            self.segments.unpin(current.segment, current.was_pinned);
            if let Some(piece) = current.piece {
                self.abandon_piece(piece);
            }
        }
        self.make_progress();
    }

    /// Segments that were read, and the total.
    pub(super) fn scrub_progress(&self) -> Option<(u32, u32)> {
        self.scrub.as_ref().map(|scrub| (scrub.done.min(scrub.all), scrub.all))
    }

    /// Whether a scrub is running that has not reached the segment with this sequence number.
    pub(super) fn is_still_to_be_scrubbed(&self, sequence: u64) -> bool {
        self.scrub.as_ref().is_some_and(|scrub| (scrub.next..scrub.end).contains(&sequence))
    }

    /// The segment that is being read.
    pub(super) fn scrubbed_segment(&self) -> Option<SegmentIndex> {
        self.scrub.as_ref()?.current.as_ref().map(|current| current.segment)
    }

    pub(super) fn pump_scrub(&mut self) {
        while let Some(scrub) = &self.scrub {
            match &scrub.current {
                None if self.is_rebuilding() => return,
                None => {
                    if !self.scrub_next_segment() {
                        return self.finish_scrub();
                    }
                }
                Some(current) if current.piece.is_some() || current.describing > 0 => return,
                Some(current) if current.next_stripe >= current.end => {
                    self.end_scrubbed();
                }
                Some(_) if !self.may_scrub() || scrub.pace.next_at > self.now => return,
                Some(_) => self.scrub_run(),
            }
        }
    }

    /// Repaired blocks are written before more are found; where none can be written any more the
    /// rest is only read.
    fn may_scrub(&self) -> bool {
        (self.may_repair() || self.is_collection_stopped()) && self.losses.has_space()
    }

    fn may_repair(&self) -> bool {
        self.stripes.ready(Stream::Relocation).len() < SCRUBBED_STRIPES_MAX
    }

    /// When the next run may begin, if a scrub waits for that.
    pub(super) fn scrub_due(&self) -> Option<Instant> {
        let scrub = self.scrub.as_ref()?;
        let current = scrub.current.as_ref()?;
        let waits = current.piece.is_none() && current.describing == 0 && self.may_scrub();
        waits.then_some(scrub.pace.next_at).filter(|&at| at > self.now)
    }

    /// Returns whether one is left.
    fn scrub_next_segment(&mut self) -> bool {
        let Some(scrub) = self.scrub.as_ref() else { return false };
        let rebuilt = self.rebuilt_segment();
        let left = self.segments.iter().filter(|&(index, segment)| {
            (scrub.next..scrub.end).contains(&segment.sequence)
                && is_readable(segment)
                && !(segment.state == SegmentState::Open && self.spec.has(SeededBug::UnscrubbedOpen))
                // That one is read completely.
                && !self.collector.has(index)
                && Some(index) != rebuilt
        });
        let Some((index, sequence)) =
            left.map(|(index, segment)| (index, segment.sequence)).min_by_key(|&(_, sequence)| sequence)
        else {
            return false;
        };
        if self.segments[index].has_lost {
            // Unreadable blocks are found again.
            self.segments.forget_lost(index);
        }
        let was_pinned = self.segments.pin(index);
        let end = self.segments[index].next_stripe;
        if let Some(scrub) = &mut self.scrub {
            scrub.next = sequence + 1;
            scrub.current =
                Some(Current { segment: index, sequence, was_pinned, describing: 0, next_stripe: 0, end, piece: None });
        }
        self.scrub_described(index);
        true
    }

    fn end_scrubbed(&mut self) {
        let Some(scrub) = &mut self.scrub else { return };
        scrub.done += 1;
        let Some(current) = scrub.current.take() else { return };
        self.segments.unpin(current.segment, current.was_pinned);
        self.pump_collector();
    }

    fn scrub_run(&mut self) {
        let Some(current) = self.scrub.as_ref().and_then(|scrub| scrub.current.as_ref()) else { return };
        let (index, first) = (current.segment, current.next_stripe);
        let segment = &self.segments[index];
        let complete = segment.slots.complete_stripes();
        let is_complete = first < complete && first.is_multiple_of(segment.layout.group_stripes);
        let run = if is_complete {
            self.run_from(segment, first).until(complete)
        } else {
            self.run_of_stripes(segment, first, current.end)
        };
        let members = self.readable(index);
        let blocks = u64::from(run.count * segment.layout.unit_blocks) * u64::from(members.count_ones());
        let piece = self.start_piece(Owner::Scrub, index, run, members);
        self.spend_on_scrub(blocks);
        if let Some(current) = self.scrub.as_mut().and_then(|scrub| scrub.current.as_mut()) {
            current.next_stripe = run.end();
            current.piece = Some(piece);
        }
        self.piece_step(piece);
    }

    /// Accounts for blocks that are being read.
    fn spend_on_scrub(&mut self, blocks: u64) {
        let (now, rate) = (self.now, self.spec.config.tuning.scrub_blocks_per_second);
        if let Some(scrub) = &mut self.scrub {
            scrub.pace.spend(now, blocks, rate);
        }
    }

    /// The chunks of a run have arrived.
    pub(super) fn on_scrub_piece(&mut self, key: PieceKey) {
        let piece = self.end_piece(key);
        let mut found = Found::default();
        for &stripe in piece.stripes() {
            self.compare(&piece, stripe, &mut found);
        }
        found.damaged.iter().for_each(|&place| self.found_damaged(place));
        if found.is_damaged {
            self.scrub_damaged(piece.segment);
        }
        let mut repairing = Vec::new();
        let may_repair = self.may_repair() || !self.is_collection_stopped();
        for (place, record, data) in found.repairs {
            if may_repair && self.move_block(place, record, data, Mover::Repair) {
                repairing.push(place);
            }
        }
        for &place in &found.unreadable {
            self.found_unreadable(place, None);
        }
        let Some(scrub) = &mut self.scrub else { return };
        scrub.blocks += found.blocks;
        scrub.repairing.extend(repairing);
        if let Some(current) = &mut scrub.current {
            current.piece = None;
        }
    }

    /// A segment that is being emptied is not read again: it is reset when a scrub ends, and
    /// collection reads all of it.
    pub(super) fn scrub_waits_for(&mut self, index: SegmentIndex) {
        let segment = &self.segments[index];
        let sequence = segment.sequence;
        let chunks = u64::from(segment.next_stripe) * u64::from(self.readable(index).count_ones());
        let blocks = chunks * u64::from(segment.layout.unit_blocks);
        if let Some(scrub) = &mut self.scrub
            && scrub.damaged.insert(sequence, index).is_none()
        {
            scrub.blocks += blocks;
        }
    }

    /// Damage was found in a segment: it is emptied.
    fn scrub_damaged(&mut self, index: SegmentIndex) {
        self.segments.set_damaged(index);
        let segment = &self.segments[index];
        let sequence = segment.sequence;
        if segment.state == SegmentState::Open && !segment.is_broken {
            // Segments that receive stripes are not collected.
            self.segments.break_off(&self.spec, &mut self.members, index);
        }
        if let Some(scrub) = &mut self.scrub {
            scrub.damaged.insert(sequence, index);
        }
    }

    /// A damaged block is durable elsewhere.
    pub(super) fn scrub_repaired(&mut self, place: Physical) {
        if let Some(scrub) = &mut self.scrub {
            scrub.repairing.remove(&place);
        }
    }
}

/// Whether stripes of a segment are complete, and can be read.
fn is_readable(segment: &Segment) -> bool {
    matches!(segment.state, SegmentState::Open | SegmentState::Closing | SegmentState::Sealed)
}
