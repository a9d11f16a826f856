//! Headers and footers: a mount needs them to find a segment, and a running volume does not read
//! them.

use zonda_zoned::{Blocks, Operation, Outcome, Payload, Status};

use super::super::Volume;
use super::super::members::Work;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{Place, SegmentHeader, read_footer_block};
use crate::tables::{SegmentIndex, SegmentState};

impl Volume {
    /// Reads the headers of a segment that is being scrubbed, and its footers, if any.
    pub(super) fn scrub_described(&mut self, index: SegmentIndex) {
        if !self.spec.has_contents() {
            return;
        }
        let segment = &self.segments[index];
        let lacks_zone = self.members.present_bits() & !self.readable(index) != 0;
        // The last blocks of a segment that was not filled may belong to no stripe: only the zone
        // has them.
        let is_unfilled =
            segment.state == SegmentState::Sealed && segment.slots.complete_stripes() < segment.layout.stripes;
        if self.spec.code.parity() > 0 && (lacks_zone || is_unfilled) {
            // Damage there could not be rewritten, nor distinguished from acknowledged blocks: the
            // contents of the segment are moved.
            self.scrub_damaged(index);
        }
        let segment = &self.segments[index];
        let (layout, sequence) = (segment.layout, segment.sequence);
        let readable = self.readable(index);
        let header = (0, layout.slot_offset(0));
        let footer = (layout.footer_offset(), layout.footer_blocks);
        let has_footers = segment.state == SegmentState::Sealed && !self.spec.has(SeededBug::UncheckedFooters);
        let mut blocks = 0;
        for member in self.spec.member_indices().filter(|member| readable >> member.0 & 1 == 1) {
            let Some(zone) = self.segments[index].zones[member.as_usize()] else { continue };
            for (offset, count) in [header, footer].into_iter().take(1 + usize::from(has_footers)) {
                blocks += u64::from(count);
                self.read_described(member, zone, sequence, (offset, count));
            }
        }
        self.spend_on_scrub(blocks);
        if let Some(scrub) = &mut self.scrub {
            scrub.blocks += blocks;
        }
    }

    fn read_described(&mut self, member: MemberIndex, zone: u32, sequence: u64, (offset, blocks): (u32, u32)) {
        let start = self.members[member].lba(zone, offset);
        let read = Operation::Read { start, blocks: Blocks(u64::from(blocks)) };
        self.members.send(member, Work::Described { sequence, offset, blocks }, read);
        if let Some(current) = self.scrub.as_mut().and_then(|scrub| scrub.current.as_mut()) {
            current.describing += 1;
        }
    }

    /// A read of blocks of a header or a footer has ended: unreadable ones are read one by one.
    pub(in super::super) fn on_described(
        &mut self,
        member: MemberIndex,
        sequence: u64,
        (offset, blocks): (u32, u32),
        status: Status,
        outcome: &Outcome,
    ) {
        let current = self.scrub.as_mut().and_then(|scrub| scrub.current.as_mut());
        let Some(current) = current.filter(|current| current.sequence == sequence && current.describing > 0) else {
            return;
        };
        current.describing -= 1;
        let index = current.segment;
        if !self.members[member].is_present() {
            return;
        }
        let segment = &self.segments[index];
        let is_footer = offset >= segment.layout.footer_offset();
        let damaged: Vec<u32> = match outcome {
            Outcome::Data(Payload::Bytes(buffer)) if status.is_success() => {
                let blocks = (offset..).zip(buffer.data.chunks(self.spec.shape.block_bytes));
                let wrong = blocks.filter(|(_, block)| !self.describes(sequence, member, is_footer, block));
                wrong.map(|(offset, _)| offset).collect()
            }
            // Other errors are not medium errors.
            _ if status != Status::UnrecoveredReadError => Vec::new(),
            _ => match segment.zones[member.as_usize()] {
                Some(zone) if blocks > 1 => {
                    return (offset..offset + blocks)
                        .for_each(|offset| self.read_described(member, zone, sequence, (offset, 1)));
                }
                _ => vec![offset],
            },
        };
        if !damaged.is_empty() {
            self.found_damaged_at(index, member, &damaged);
            self.scrub_damaged(index);
        }
    }

    /// Whether a block is a header or a footer block of a member's zone of a segment. A zone that
    /// was finished early has no footer.
    pub(in super::super) fn describes(
        &self,
        sequence: u64,
        member: MemberIndex,
        is_footer: bool,
        block: &[u8],
    ) -> bool {
        if is_footer {
            let place = Place { array: self.spec.array, segment: sequence, member: member.0 };
            return read_footer_block(&place, block).is_some() || block.iter().all(|&byte| byte == 0);
        }
        SegmentHeader::read(block)
            .is_ok_and(|header| (header.array, header.segment, header.member) == (self.spec.array, sequence, member.0))
    }
}
