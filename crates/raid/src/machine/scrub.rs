//! All blocks are read and compared: with what their metadata says, and parity with the data.
//!
//! A live block that is wrong is rewritten at once. What else is wrong would be missed when another member fails: its segment is
//! suspect, and collected before more is found.

use bytes::{Bytes, BytesMut};
use zonda_zoned::Instant;

use super::Volume;
use super::pieces::{Chunk, Owner, Pace, Piece};
use super::rebuild::Recoveries;
use super::stripes::Mover;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::event::Event;
use crate::format::{RECORD_BYTES, Record, crc};
use crate::limits::SCRUBBED_STRIPES_MAX;
use crate::shape::Stream;
use crate::tables::{Physical, SegmentIndex, SegmentState};

/// A scrub in progress.
#[derive(Debug)]
pub(super) struct Scrub {
    /// Sequences that are left: segments sealed when it began.
    next: u64,
    end: u64,
    current: Option<Current>,
    done: u32,
    all: u32,
    pace: Pace,
    blocks: u64,
    mended: u64,
    lost: u64,
}

/// The segment that is being read.
#[derive(Debug)]
struct Current {
    segment: SegmentIndex,
    /// It was not to be collected before either.
    was_pinned: bool,
    next_stripe: u32,
    piece: Option<u32>,
}

impl Volume {
    /// Reads all blocks of all segments that are full, and repairs those that are wrong, until [`Event::Scrubbed`]. While a
    /// member is rebuilt it waits. Without effect when a scrub is in progress, or the volume is not ready.
    pub fn start_scrub(&mut self, now: Instant) {
        self.now = now;
        if self.scrub.is_some() || !self.is_ready() {
            return;
        }
        let all = self.segments.iter().filter(|(_, segment)| segment.state == SegmentState::Sealed).count() as u32;
        self.scrub = Some(Scrub {
            next: 0,
            end: self.segments.next_sequence(),
            current: None,
            done: 0,
            all,
            pace: Pace::from(now),
            blocks: 0,
            mended: 0,
            lost: 0,
        });
        self.make_progress();
    }

    /// Ends a scrub where it is.
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

    /// Segments that were read, and that are to be read in all.
    pub(super) fn scrub_progress(&self) -> Option<(u32, u32)> {
        self.scrub.as_ref().map(|scrub| (scrub.done.min(scrub.all), scrub.all))
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
                        return;
                    }
                }
                Some(current) if current.piece.is_some() => return,
                Some(current) if current.next_stripe >= self.segments[current.segment].next_stripe => {
                    self.end_scrubbed();
                }
                Some(_) if !self.may_scrub() || scrub.pace.next_at > self.now => return,
                Some(_) => self.scrub_run(),
            }
        }
    }

    /// Blocks that are repaired are written before more are found.
    fn may_scrub(&self) -> bool {
        self.stripes.ready(Stream::Relocation).len() < SCRUBBED_STRIPES_MAX && self.losses.has_room()
    }

    /// When the next run may begin, if that is what a scrub waits for.
    pub(super) fn scrub_due(&self) -> Option<Instant> {
        let scrub = self.scrub.as_ref()?;
        let current = scrub.current.as_ref()?;
        let waits = current.piece.is_none() && self.may_scrub();
        waits.then_some(scrub.pace.next_at).filter(|&at| at > self.now)
    }

    /// Says whether there is anything left.
    fn scrub_next_segment(&mut self) -> bool {
        let scrub = self.scrub.as_ref().expect("a scrub is under way");
        let rebuilt = self.rebuilt_segment();
        let left = self.segments.iter().filter(|&(index, segment)| {
            (scrub.next..scrub.end).contains(&segment.sequence)
                && segment.state == SegmentState::Sealed
                // What is moved is verified.
                && !self.collector.has(index)
                && Some(index) != rebuilt
        });
        let Some((index, sequence)) =
            left.map(|(index, segment)| (index, segment.sequence)).min_by_key(|&(_, sequence)| sequence)
        else {
            let Scrub { blocks, mended, lost, .. } = *scrub;
            self.scrub = None;
            self.events.push_back(Event::Scrubbed { blocks, mended, lost });
            return false;
        };
        let was_pinned = self.segments.pin(index);
        let scrub = self.scrub.as_mut().expect("a scrub is under way");
        scrub.next = sequence + 1;
        scrub.current = Some(Current { segment: index, was_pinned, next_stripe: 0, piece: None });
        true
    }

    fn end_scrubbed(&mut self) {
        let scrub = self.scrub.as_mut().expect("a scrub is under way");
        scrub.done += 1;
        let Some(current) = scrub.current.take() else { return };
        self.segments.unpin(current.segment, current.was_pinned);
        self.pump_collector();
    }

    fn scrub_run(&mut self) {
        let current = self.scrub.as_ref().and_then(|scrub| scrub.current.as_ref()).expect("a segment is being read");
        let (index, first) = (current.segment, current.next_stripe);
        let run = self.run_from(&self.segments[index], first);
        let members = self.readable(index);
        let blocks = u64::from(run.count * self.segments[index].layout.unit_blocks) * u64::from(members.count_ones());
        let piece = self.start_piece(Owner::Scrub, index, run, members);
        let rate = self.spec.config.tuning.scrub_blocks_per_second;
        let now = self.now;
        let scrub = self.scrub.as_mut().expect("a scrub is under way");
        scrub.pace.spend(now, blocks, rate);
        let current = scrub.current.as_mut().expect("a segment is being read");
        current.next_stripe = run.end();
        current.piece = Some(piece);
        self.piece_step(piece);
    }

    /// The chunks of a run have arrived.
    pub(super) fn on_scrub_piece(&mut self, index: u32) {
        let piece = self.end_piece(index);
        let mut found = Found::default();
        for &stripe in piece.stripes() {
            self.compare(&piece, stripe, &mut found);
        }
        let is_redundant = self.spec.code.parity() > 0;
        if is_redundant && (found.wrong > 0 || !found.unreadable.is_empty()) {
            self.segments.set_damaged(piece.segment);
        }
        let lost = found.unreadable.len() as u64;
        found.unreadable.into_iter().for_each(|place| self.found_unreadable(place, None));
        for (place, record, data) in found.repairs {
            self.move_block(place, record, data, Mover::Repair);
        }
        let scrub = self.scrub.as_mut().expect("a piece that nobody wants is abandoned");
        scrub.blocks += found.blocks;
        scrub.mended += if is_redundant { found.wrong } else { 0 };
        scrub.lost += lost;
        scrub.current.as_mut().expect("a segment is being read").piece = None;
    }

    fn compare(&self, piece: &Piece, stripe: u32, found: &mut Found) {
        let segment = &self.segments[piece.segment];
        let members = self.spec.member_indices();
        let unit = u64::from(segment.layout.unit_blocks);
        found.blocks += members.clone().filter(|&member| piece.chunk(stripe, member).is_some()).count() as u64 * unit;
        // A stripe that was never completed need not be right.
        let is_complete = members.clone().all(|member| segment.slots.slot_of(member, stripe).is_some());
        if !self.spec.has_contents() || !is_complete {
            return;
        }
        let mut recoveries = Recoveries::new();
        let wrong_parity = self.wrong_parity(piece, stripe);
        for member in members {
            let Some(chunk) = piece.chunk(stripe, member) else { continue };
            let slot = segment.slots.slot_of(member, stripe).expect("the stripe is complete");
            for (block, record) in chunk.records.iter().enumerate() {
                let is_wrong = record.is_none() || wrong_parity.contains(&(member, block));
                if !is_wrong {
                    continue;
                }
                let offset = segment.layout.offset_of(slot, block as u32);
                let place = Physical { segment: piece.segment, member, offset };
                if !segment.is_live(member, offset) {
                    found.wrong += 1;
                    continue;
                }
                let mut data = BytesMut::zeroed(self.spec.shape.block_bytes);
                let record = self.compute_block(piece, stripe, member, block, &mut data, &mut recoveries);
                let record = record.map(|record| Record::from_bytes(&record));
                let believes_rot = self.spec.has(SeededBug::ScrubBelievesRot);
                if believes_rot {
                    data.copy_from_slice(chunk.block(block, self.spec.shape.block_bytes));
                }
                match record.filter(|record| believes_rot || record.data_crc == crc(&data)) {
                    Some(record) => {
                        found.wrong += 1;
                        found.repairs.push((place, record, data.freeze()));
                    }
                    None => found.unreadable.push(place),
                }
            }
        }
    }

    /// Blocks of parity that are whole, and not that of the data.
    fn wrong_parity(&self, piece: &Piece, stripe: u32) -> Vec<(MemberIndex, usize)> {
        let (data, parity) = (self.spec.code.data(), self.spec.code.parity());
        let holder = |chunk: usize| self.spec.shape.member_of(chunk, stripe);
        let chunks: Option<Vec<&Chunk>> =
            (0..data).map(|chunk| piece.chunk(stripe, holder(chunk)).filter(|chunk| chunk.is_whole())).collect();
        let Some(chunks) = chunks.filter(|_| parity > 0) else { return Vec::new() };
        let payload = chunks[0].records.len();
        let contents: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk.data[..]).collect();
        let coded = self.coded(&contents, payload * self.spec.shape.block_bytes);
        let records: Vec<Vec<u8>> =
            chunks.iter().map(|chunk| chunk.records.iter().flatten().flatten().copied().collect()).collect();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let coded_records = self.coded(&records, payload * RECORD_BYTES);
        let mut wrong = Vec::new();
        for at in 0..parity {
            let member = holder(data + at);
            let Some(chunk) = piece.chunk(stripe, member) else { continue };
            let expected = coded[at].chunks(self.spec.shape.block_bytes).zip(coded_records[at].chunks(RECORD_BYTES));
            for (block, (contents, record)) in expected.enumerate() {
                let is_right = chunk.block(block, self.spec.shape.block_bytes) == contents
                    && chunk.records[block].is_some_and(|found| found[..] == *record);
                if chunk.records[block].is_some() && !is_right {
                    wrong.push((member, block));
                }
            }
        }
        wrong
    }

    fn coded(&self, data: &[&[u8]], bytes: usize) -> Vec<Vec<u8>> {
        let mut parity = vec![vec![0; bytes]; self.spec.code.parity()];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        self.spec.code.encode(&*self.spec.engine, data, &mut outputs);
        parity
    }
}

/// What the comparison of a run has brought.
#[derive(Debug, Default)]
struct Found {
    blocks: u64,
    /// Blocks that are wrong, and are or need not be known.
    wrong: u64,
    unreadable: Vec<Physical>,
    repairs: Vec<(Physical, Record, Bytes)>,
}
