//! Blocks that describe others, headers and footers.

use bytes::{Bytes, BytesMut};

use super::Volume;
use crate::MemberIndex;
use crate::format::{BlockMeta, Place, SegmentHeader, footer_entries_per_block, write_footer_block};
use crate::tables::Segment;

impl Volume {
    /// The header of a member's zone of a segment, which is said to have these zones; empty without contents.
    pub(super) fn header(&self, segment: &Segment, member: MemberIndex, zones: Vec<Option<u32>>) -> Bytes {
        if !self.spec.has_contents() {
            return Bytes::new();
        }
        let header = SegmentHeader {
            array: self.spec.array,
            segment: segment.sequence,
            epoch: self.members.epoch(),
            timestamp: self.next_timestamp,
            member: member.0,
            stream: segment.stream as u8,
            is_in_band: self.spec.shape.is_in_band,
            unit_blocks: segment.layout.unit_blocks,
            group_stripes: segment.layout.group_stripes,
            stripes: segment.layout.stripes,
            data: self.spec.shape.scheme.data,
            parity: self.spec.shape.scheme.parity,
            zones,
        };
        let mut block = BytesMut::zeroed(self.spec.shape.block_bytes);
        header.write(&mut block);
        block.freeze()
    }

    /// Blocks of the footer of a member's zone of a segment, from the `first`.
    pub(super) fn footer(
        &self,
        sequence: u64,
        member: MemberIndex,
        entries: &[BlockMeta],
        first: u32,
        blocks: u32,
    ) -> Bytes {
        let place = Place { array: self.spec.array, segment: sequence, member: member.0 };
        let per_block = footer_entries_per_block(self.spec.shape.block_bytes as u32);
        let mut out = BytesMut::zeroed(blocks as usize * self.spec.shape.block_bytes);
        for (at, block) in (first as usize..).zip(out.chunks_mut(self.spec.shape.block_bytes)) {
            let from = at * per_block;
            let some = &entries[from..(from + per_block).min(entries.len())];
            write_footer_block(&place, from as u32, some, block);
        }
        out.freeze()
    }
}
