//! Segments: one zone on each member, filled stripe by stripe.

use std::collections::BTreeSet;

use zonda_zoned::Instant;

use super::{Physical, SegmentIndex, Slots};
use crate::MemberIndex;
use crate::format::{ArrayId, BlockMeta, Place, PlaceSeed};
use crate::shape::{Layout, Shape, Stream, bits};

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Headers are being written.
    Opening,
    /// Takes stripes.
    Open,
    /// Receives no more stripes; footers are being written, or zones finished.
    Closing,
    /// Closed.
    Sealed,
    /// Its zones are being reset.
    Resetting,
}

/// One segment.
#[derive(Debug)]
pub(crate) struct Segment {
    /// From 1, never reused in the life of a volume, as far as present members show.
    pub(crate) sequence: u64,
    /// The epoch and the timestamp of its headers.
    pub(crate) opened: (u64, u64),
    pub(crate) stream: Stream,
    pub(crate) layout: Layout,
    pub(crate) state: SegmentState,
    /// The zone on each member; `None` where the member took no part, or its zone is lost.
    pub(crate) zones: Vec<Option<u32>>,
    pub(crate) slots: Slots,
    /// One bit per payload block of each member: whether the map, or a stripe in flight, still
    /// needs it.
    live: Box<[u64]>,
    pub(crate) live_blocks: u32,
    /// Tombstone blocks in it.
    pub(crate) tombstones: Vec<Physical>,
    /// Upper bound of their ranges.
    pub(crate) tombstone_ranges: u32,
    /// Some of it could not be read: it is not collected, and is reset when nothing in it is
    /// needed.
    pub(crate) has_lost: bool,
    /// Members of which a command to its zones has failed, as bits.
    pub(crate) suspected: u32,
    /// Fetches in flight: the zones must not change.
    pub(crate) readers: u32,
    /// The next stripe to be written.
    pub(crate) next_stripe: u32,
    /// Stripes in flight.
    pub(crate) in_flight: u32,
    /// Complete stripes of the open group.
    pub(crate) complete_in_group: u32,
    /// A flush of what was written last is in flight: nothing follows before it is durable.
    pub(crate) awaits_flush: bool,
    /// A write failed: its blocks stay until they are moved, nothing is added.
    pub(crate) is_broken: bool,
    /// Members whose chunks are lost, as bits.
    pub(crate) lost: u32,
    /// Those of them whose zone is offline, as bits.
    pub(crate) offline: u32,
    /// Damage was found in it: its live blocks are to be moved before more is damaged.
    pub(crate) is_suspect: bool,
    /// It has no footer that describes its blocks: damage would make more blocks unknown than those
    /// that are damaged.
    pub(crate) is_exposed: bool,
    /// In use as a whole (collected, scrubbed or rebuilt); it is not to be collected.
    pub(crate) is_pinned: bool,
    /// Commands in flight that open, close or reset it.
    pub(crate) pending: u32,
    /// Blocks of the footer that were written, on each member.
    pub(crate) footer_written: Vec<u32>,
    pub(crate) footers: Option<Box<Footers>>,
    /// With metadata in band: CRC-32C of each block of payload of each member.
    pub(crate) sums: Vec<Box<[u32]>>,
    /// Without contents: the logical block of each block of payload of each member.
    pub(crate) lbas: Vec<Box<[u64]>>,
    /// Seed of the seals of each member's metadata.
    pub(crate) seeds: Vec<PlaceSeed>,
    /// When the last stripe arrived.
    pub(crate) filled_at: Instant,
    /// Members whose zones hold an active resource, as bits.
    pub(crate) active: u32,
}

/// Contents of the footers, for each member.
#[derive(Debug)]
pub(crate) struct Footers {
    pub(crate) entries: Vec<Vec<BlockMeta>>,
}

impl Segment {
    pub(crate) fn new(
        sequence: u64,
        stream: Stream,
        shape: &Shape,
        zones: Vec<Option<u32>>,
        array: ArrayId,
        has_contents: bool,
    ) -> Segment {
        let layout = *shape.layout(stream);
        Segment::with_layout(sequence, stream, layout, shape, zones, array, has_contents)
    }

    pub(crate) fn with_layout(
        sequence: u64,
        stream: Stream,
        layout: Layout,
        shape: &Shape,
        zones: Vec<Option<u32>>,
        array: ArrayId,
        has_contents: bool,
    ) -> Segment {
        let members = shape.members();
        let entries = layout.entries() as usize;
        let sums = if shape.is_in_band && has_contents {
            (0..members).map(|_| vec![0; entries].into_boxed_slice()).collect()
        } else {
            Vec::new()
        };
        let lbas = if has_contents {
            Vec::new()
        } else {
            (0..members).map(|_| vec![u64::MAX; entries].into_boxed_slice()).collect()
        };
        let lost = bits((0..members).filter(|&member| zones[member].is_none()));
        let footers =
            has_contents.then(|| Box::new(Footers { entries: vec![vec![BlockMeta::BLANK; entries]; members] }));
        let seeds =
            (0..members).map(|member| Place { array, segment: sequence, member: member as u8 }.seed()).collect();
        Segment {
            sequence,
            opened: (0, 0),
            stream,
            layout,
            state: SegmentState::Opening,
            zones,
            slots: Slots::new(layout, members),
            live: vec![0; (members * entries).div_ceil(64)].into_boxed_slice(),
            live_blocks: 0,
            tombstones: Vec::new(),
            tombstone_ranges: 0,
            has_lost: false,
            suspected: 0,
            readers: 0,
            next_stripe: 0,
            in_flight: 0,
            complete_in_group: 0,
            awaits_flush: false,
            is_broken: false,
            lost,
            offline: 0,
            is_suspect: false,
            is_exposed: false,
            is_pinned: false,
            pending: 0,
            footer_written: vec![0; members],
            footers,
            sums,
            lbas,
            seeds,
            filled_at: Instant::ZERO,
            active: 0,
        }
    }

    fn bit(&self, member: MemberIndex, offset: u32) -> usize {
        member.as_usize() * self.layout.entries() as usize + self.layout.entry_of(offset) as usize
    }

    pub(crate) fn is_live(&self, member: MemberIndex, offset: u32) -> bool {
        let bit = self.bit(member, offset);
        self.live[bit / 64] >> (bit % 64) & 1 == 1
    }

    pub(crate) fn set_live(&mut self, member: MemberIndex, offset: u32) {
        let bit = self.bit(member, offset);
        let word = &mut self.live[bit / 64];
        assert!(*word >> (bit % 64) & 1 == 0, "a block becomes live once");
        *word |= 1 << (bit % 64);
        self.live_blocks += 1;
    }

    pub(crate) fn set_dead(&mut self, member: MemberIndex, offset: u32) {
        let bit = self.bit(member, offset);
        let word = &mut self.live[bit / 64];
        assert!(*word >> (bit % 64) & 1 == 1, "a block dies once");
        *word &= !(1 << (bit % 64));
        self.live_blocks -= 1;
    }

    /// The first live entry of a member at or behind `from`.
    pub(crate) fn next_live(&self, member: MemberIndex, from: u32) -> Option<u32> {
        let entries = self.layout.entries();
        let base = member.as_usize() * entries as usize;
        let mut entry = from;
        while entry < entries {
            let bit = base + entry as usize;
            let word = self.live[bit / 64] >> (bit % 64);
            if word != 0 {
                let found = entry + word.trailing_zeros();
                return (found < entries).then_some(found);
            }
            entry += 64 - (bit % 64) as u32;
        }
        None
    }

    /// Whether its zones are being reset.
    pub(crate) fn is_resetting(&self) -> bool {
        self.state == SegmentState::Resetting
    }

    /// Whether a member's chunks can be read.
    pub(crate) fn has(&self, member: MemberIndex) -> bool {
        self.lost >> member.0 & 1 == 0
    }

    /// Whether another stripe may be issued now: within a group at any time, at its start once the
    /// last one is complete.
    pub(crate) fn can_issue(&self) -> bool {
        let is_barrier = self.next_stripe.is_multiple_of(self.layout.group_stripes);
        self.takes_more() && !self.awaits_flush && (!is_barrier || self.in_flight == 0)
    }

    /// Whether there is space for another stripe.
    pub(crate) fn takes_more(&self) -> bool {
        self.state == SegmentState::Open && !self.is_broken && self.next_stripe < self.layout.stripes
    }

    /// Bytes of its tables.
    pub(crate) fn table_bytes(&self) -> usize {
        self.slots.bytes() + self.live.len() * 8 + self.sums.iter().map(|sums| sums.len() * 4).sum::<usize>()
    }
}

/// Segments by index; an index is reused when its segment was reset.
#[derive(Debug, Default)]
pub(crate) struct SegmentTable {
    entries: Vec<Option<Box<Segment>>>,
    free: Vec<u32>,
    /// Segments that may have to be emptied because they lack something, however much space is
    /// free.
    doubtful: BTreeSet<SegmentIndex>,
}

impl SegmentTable {
    pub(crate) fn insert(&mut self, segment: Segment) -> SegmentIndex {
        let segment = Some(Box::new(segment));
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = segment;
                SegmentIndex(index)
            }
            None => {
                self.entries.push(segment);
                assert!(self.entries.len() <= crate::limits::SEGMENTS_MAX, "members have fewer zones");
                SegmentIndex(self.entries.len() as u32 - 1)
            }
        }
    }

    /// A segment lacks chunks of a present member, or holds damaged ones.
    pub(crate) fn doubt(&mut self, index: SegmentIndex) {
        self.doubtful.insert(index);
    }

    pub(crate) fn doubtful(&self) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
        self.doubtful.iter().map(|&index| (index, &self[index]))
    }

    pub(crate) fn remove(&mut self, index: SegmentIndex) -> Segment {
        self.doubtful.remove(&index);
        self.free.push(index.0);
        *self.entries[index.as_usize()].take().expect("a segment is removed once")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| Some((SegmentIndex(index as u32), entry.as_deref()?)))
    }

    pub(crate) fn get(&self, index: SegmentIndex) -> Option<&Segment> {
        self.entries.get(index.as_usize())?.as_deref()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl std::ops::Index<SegmentIndex> for SegmentTable {
    type Output = Segment;
    fn index(&self, index: SegmentIndex) -> &Segment {
        self.entries[index.as_usize()].as_deref().expect("the segment exists")
    }
}

impl std::ops::IndexMut<SegmentIndex> for SegmentTable {
    fn index_mut(&mut self, index: SegmentIndex) -> &mut Segment {
        self.entries[index.as_usize()].as_deref_mut().expect("the segment exists")
    }
}
