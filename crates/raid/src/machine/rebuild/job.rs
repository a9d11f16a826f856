//! The rebuild of one segment: its choice, its start, and reads of its runs of slots.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::Instant;

use super::super::Volume;
use super::super::pieces::{Owner, PieceKey};
use super::super::segments::header;
use crate::MemberIndex;
use crate::format::BlockMeta;
use crate::limits::{REBUILD_PIECES_MAX, RELOCATION_SEGMENTS};
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

/// A segment that is being written to a member.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) segment: SegmentIndex,
    pub(super) zone: u32,
    /// It was pinned before.
    pub(super) was_pinned: bool,
    pub(super) stage: Stage,
    /// The first slot of the next run, and the end of the used slots.
    pub(super) next_slot: u32,
    pub(super) end_slot: u32,
    /// Every group was complete: the zone gets a footer, which implies that. It is not enough that
    /// every slot holds a chunk: the last stripes may never have been complete.
    pub(super) is_complete: bool,
    /// Parts of the zone, in their order: those that are ready, and pieces in progress.
    pub(super) parts: VecDeque<Part>,
    /// Written blocks of the first part, and of the zone.
    pub(super) part_written: u32,
    pub(super) written: u32,
    pub(super) is_writing: bool,
    pub(super) footer_written: u32,
    /// Contents of the footer, and of the read tables for metadata in band.
    pub(super) entries: Vec<BlockMeta>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Filling,
    Finishing,
    /// Something failed: the zone is reset.
    Resetting,
}

/// A part of the zone.
#[derive(Debug)]
pub(super) enum Part {
    Piece(PieceKey),
    Ready(Ready),
}

/// Blocks to be written. Without contents there are no bytes.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) blocks: u32,
    pub(super) data: Bytes,
    pub(super) metadata: Bytes,
}

impl Volume {
    /// Starts with the next segment. Returns whether there is one, and space for it.
    pub(super) fn begin_segment(&mut self, member: MemberIndex) -> bool {
        let may_take_zone = self.may_take_zone(member);
        let mut found = None;
        let mut empty = Vec::new();
        for (index, segment) in self.segments.iter().filter(|(_, segment)| Self::lacks(segment, member)) {
            if segment.state != SegmentState::Sealed || self.is_worked_on(index) {
                continue;
            }
            if segment.live_blocks == 0 && segment.tombstones.is_empty() && !segment.is_pinned {
                empty.push(index);
                continue;
            }
            found = Some(index);
            break;
        }
        for index in empty {
            // It will be reset rather than rebuilt.
            self.segments.add_candidate(index);
        }
        let Some(index) = found else {
            self.pump_collector();
            return false;
        };
        if !may_take_zone {
            self.free_active_zone(member);
            return false;
        }
        let entry = &mut self.members[member];
        let zone = entry.take_zone().expect("there is a free zone");
        let was_pinned = self.segments.pin(index);
        let segment = &self.segments[index];
        let holds = |&slot: &u32| segment.slots.stripe_at(member, slot).is_some();
        let end_slot = (0..segment.layout.stripes).rev().find(holds).map_or(0, |slot| slot + 1);
        let mut zones = segment.zones.clone();
        zones[member.as_usize()] = Some(zone);
        // Its epoch is later than that of the headers that opened the segment, which name its
        // original zones.
        let data = header(&self.spec, (self.members.epoch(), self.map.next_timestamp()), segment, member, zones, true);
        let blocks = segment.layout.header_blocks;
        let metadata = self.spec.no_metadata(self.members[member].geometry(), blocks);
        let header = Ready { blocks, data, metadata };
        let entries = if self.spec.has_contents() { segment.layout.entries() as usize } else { 0 };
        assert!(self.rebuild.job.is_none(), "the zone of the previous job would stay active");
        self.rebuild.job = Some(Box::new(Job {
            segment: index,
            zone,
            was_pinned,
            stage: Stage::Filling,
            next_slot: 0,
            end_slot,
            is_complete: segment.slots.are_all_packed(),
            parts: VecDeque::from([Part::Ready(header)]),
            part_written: 0,
            written: 0,
            is_writing: false,
            footer_written: 0,
            entries: vec![BlockMeta::BLANK; entries],
        }));
        true
    }

    /// Whether a zone of a member may be filled now.
    fn may_take_zone(&self, member: MemberIndex) -> bool {
        let entry = &self.members[member];
        // A waiting stream comes first, but not for ever, nor if it cannot open a segment anyway.
        let may_open = |stream: &&Stream| self.segments.may_open(self.space(), **stream);
        let waiting = self.waiting_streams().filter(may_open).count() as u32;
        // Collection must always have a zone to write to, as far as the other members have any.
        let others = self.members.present().filter(|&other| other != member);
        let spare = others.map(|other| self.members[other].free_zones()).min().unwrap_or(0);
        entry.may_activate(waiting)
            && entry.free_zones() > spare.min(RELOCATION_SEGMENTS + self.space().mount_segments())
    }

    /// Streams that wait for a segment, and come before the next zone of a rebuild.
    fn waiting_streams(&self) -> impl Iterator<Item = &Stream> {
        let comes_first = self.segments.next_sequence() == self.rebuild.yielded_at;
        let waits = |stream: &Stream| self.stripes.has_ready(*stream) && self.segments.open(*stream).is_empty();
        Stream::ALL.iter().filter(move |stream| comes_first && waits(stream))
    }

    /// If all active zones are those of segments that nothing writes to, closes one of these.
    fn free_active_zone(&mut self, member: MemberIndex) {
        let entry = &self.members[member];
        let is_tight = !entry.may_activate(self.waiting_streams().count() as u32);
        let is_active = |segment: &Segment| segment.active >> member.0 & 1 == 1;
        let is_closing =
            self.segments.iter().any(|(_, segment)| segment.state == SegmentState::Closing && is_active(segment));
        if !is_tight || is_closing || self.space().free_segments() <= RELOCATION_SEGMENTS {
            return;
        }
        let is_idle =
            |stream: &&Stream| !self.stripes.has_ready(**stream) && self.stripes.is_filling(**stream).is_none();
        let idle = Stream::ALL.iter().filter(is_idle);
        let idle = idle.flat_map(|&stream| self.segments.open(stream)).copied().filter(|&index| {
            let segment = &self.segments[index];
            segment.state == SegmentState::Open && segment.in_flight == 0 && is_active(segment)
        });
        if let Some(index) = idle.max_by_key(|&index| self.segments[index].next_stripe) {
            self.segments.break_off(&self.spec, &mut self.members, index);
            let stream = self.segments[index].stream;
            self.segments.tidy(&self.spec, &mut self.members, stream);
        }
    }

    /// Whether another operation works on the whole of a segment.
    pub(super) fn is_worked_on(&self, index: SegmentIndex) -> bool {
        self.collector.has(index) || self.scrubbed_segment() == Some(index)
    }

    pub(super) fn job(&mut self) -> &mut Job {
        self.rebuild.job.as_mut().expect("a segment is being rebuilt")
    }

    /// Whether the next run of the segment is needed, and fits memory.
    fn wants_piece(&self) -> bool {
        self.rebuild.job.as_ref().is_some_and(|job| {
            job.stage == Stage::Filling && job.parts.len() < REBUILD_PIECES_MAX && job.next_slot < job.end_slot
        })
    }

    /// When the next run may begin, if a rebuild waits for that.
    pub(in super::super) fn rebuild_due(&self) -> Option<Instant> {
        self.wants_piece().then_some(self.rebuild.pace.next_at).filter(|&at| at > self.now)
    }

    pub(super) fn work_on_segment(&mut self, member: MemberIndex) {
        while self.wants_piece() && self.rebuild.pace.next_at <= self.now {
            self.begin_piece(member);
        }
        if self.rebuild.job.as_ref().is_some_and(|job| job.stage == Stage::Filling && !job.is_writing) {
            self.write_next(member);
        }
    }

    fn begin_piece(&mut self, member: MemberIndex) {
        let (index, first) = (self.job().segment, self.job().next_slot);
        let run = self.run_from(&self.segments[index], first);
        let blocks = u64::from(run.count) * u64::from(self.segments[index].layout.unit_blocks);
        self.rebuild.pace.spend(self.now, blocks, self.spec.config.tuning.rebuild_blocks_per_second);
        let sources = self.sources(index, member);
        let piece = self.start_piece(Owner::Rebuild(member), index, run, sources);
        let job = self.job();
        job.next_slot = run.end();
        job.parts.push_back(Part::Piece(piece));
        self.piece_step(piece);
    }
}
