//! Opening of segments: a zone is taken on each member, and its header is written.

use zonda_zoned::Status;

use super::super::members::{Members, Waiter, Work};
use super::super::space::Space;
use super::super::spec::Spec;
use super::{Segments, describe};
use crate::MemberIndex;
use crate::limits::RELOCATION_SEGMENTS;
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

impl Segments {
    /// Opens the configured number of segments for streams with stripes, as far as there is space.
    /// Headers carry `timestamp`.
    pub(in crate::machine) fn open_wanted(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        is_ready: bool,
        stream: Stream,
        timestamp: u64,
    ) {
        let tuning = &spec.config.tuning;
        let wanted = match stream {
            Stream::Small => tuning.small_segments,
            Stream::Large => tuning.large_segments,
            Stream::Relocation => 1,
        };
        while self.open(stream).len() < usize::from(wanted)
            && self.may_open(Space::new(spec, members, is_ready), stream)
        {
            self.open_one(spec, members, stream, timestamp);
        }
    }

    /// Whether another segment may be opened for a stream.
    pub(in crate::machine) fn may_open(&self, space: Space<'_>, stream: Stream) -> bool {
        let members = space.members();
        if !members.is_epoch_durable() {
            return false;
        }
        let is_relocation = stream == Stream::Relocation;
        // Rather than stop for ever, collection uses the reserve of mounts: these undo its
        // incomplete moves.
        let has_free = if is_relocation {
            space.all_free_segments() > self.kept
        } else {
            space.free_segments() > RELOCATION_SEGMENTS
        };
        // Moved blocks need space to be written to, whatever hosts do.
        let spare_zones = u32::from(!is_relocation && self.open(Stream::Relocation).is_empty());
        has_free && members.present().all(|member| members[member].may_activate(spare_zones))
    }

    fn open_one(&mut self, spec: &Spec, members: &mut Members, stream: Stream, timestamp: u64) {
        let mut zones = vec![None; spec.members()];
        let mut active = 0;
        for member in members.present() {
            zones[member.as_usize()] = members[member].take_zone();
            active |= 1 << member.0;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let mut segment = Segment::new(sequence, stream, &spec.shape, zones.clone(), spec.array, spec.has_contents());
        segment.opened = (members.epoch(), timestamp);
        segment.active = active;
        segment.pending = active.count_ones();
        let blocks = segment.layout.header_blocks;
        let index = self.table.insert(segment);
        self.open[stream as usize].segments.push(index);
        for member in members.present() {
            let zone = zones[member.as_usize()].expect("every member that is present gave a zone");
            let newest = (members.epoch(), timestamp);
            let header = describe::header(spec, newest, &self[index], member, zones.clone(), false);
            let metadata = spec.no_metadata(members[member].geometry(), blocks);
            members.write(spec, member, Work::Header { segment: index }, (zone, 0), blocks, (header, metadata));
            members.count_written(u64::from(blocks));
        }
    }

    /// The write of a member's header has ended. A failed one has broken the segment before.
    pub(in crate::machine) fn on_header(&mut self, spec: &Spec, members: &mut Members, index: SegmentIndex) {
        let segment = &mut self.table[index];
        assert_eq!(segment.state, SegmentState::Opening, "headers are of a segment that opens");
        segment.pending -= 1;
        if segment.pending == 0 {
            segment.state = SegmentState::Open;
            // The contents of a zone imply its header, on all members.
            self.barrier(spec, members, index);
            self.close_if_done(spec, members, index);
        }
    }

    /// A header has failed: the contents of the segment stay until they are moved, nothing is
    /// added.
    pub(in crate::machine) fn header_failed(
        &mut self,
        members: &Members,
        member: MemberIndex,
        index: SegmentIndex,
        status: Status,
    ) -> bool {
        let has_failed = !status.is_success() && members[member].is_present();
        self.table[index].is_broken |= has_failed;
        has_failed
    }

    /// Nothing follows in a segment before its contents are durable.
    pub(super) fn barrier(&mut self, spec: &Spec, members: &mut Members, index: SegmentIndex) {
        let segment = &mut self.table[index];
        segment.awaits_flush = true;
        let sequence = segment.sequence;
        if members.when_durable(spec, Waiter::Barrier(index, sequence)) {
            self.on_barrier(spec, members, index, sequence);
        }
    }

    /// The contents of the segment with this sequence number are durable.
    pub(in crate::machine) fn on_barrier(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        index: SegmentIndex,
        sequence: u64,
    ) {
        if self.get(index).is_some_and(|segment| segment.sequence == sequence) {
            self.table[index].awaits_flush = false;
            self.close_if_done(spec, members, index);
        }
    }
}
