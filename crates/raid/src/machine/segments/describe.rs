//! Blocks that describe others: headers and footers.

use bytes::{Bytes, BytesMut};

use super::super::spec::Spec;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{BlockMeta, Place, SegmentHeader, footer_entries_per_block, write_footer_block};
use crate::tables::Segment;

/// The header of a member's zone of a segment with these zones, as many copies as the zone begins
/// with; empty without contents.
pub(in crate::machine) fn header(
    spec: &Spec,
    (epoch, timestamp): (u64, u64),
    segment: &Segment,
    member: MemberIndex,
    zones: Vec<Option<u32>>,
    is_rebuilt: bool,
) -> Bytes {
    if !spec.has_contents() {
        return Bytes::new();
    }
    let copies = segment.layout.header_blocks;
    let header = SegmentHeader {
        copies,
        array: spec.array,
        segment: segment.sequence,
        epoch,
        timestamp,
        member: member.0,
        stream: segment.stream as u8,
        is_in_band: spec.shape.is_in_band,
        is_rebuilt,
        unit_blocks: segment.layout.unit_blocks,
        group_stripes: segment.layout.group_stripes,
        stripes: segment.layout.stripes,
        data: spec.shape.scheme.data,
        parity: spec.shape.scheme.parity,
        zones,
    };
    let mut blocks = BytesMut::zeroed(copies as usize * spec.shape.block_bytes);
    let written = if spec.has(SeededBug::SingleHeader) { 1 } else { copies as usize };
    blocks.chunks_mut(spec.shape.block_bytes).take(written).for_each(|block| header.write(block));
    blocks.freeze()
}

/// Blocks of the footer of a member's zone of a segment, from the `first`.
pub(in crate::machine) fn footer(
    spec: &Spec,
    sequence: u64,
    member: MemberIndex,
    entries: &[BlockMeta],
    first: u32,
    blocks: u32,
) -> Bytes {
    let place = Place { array: spec.array, segment: sequence, member: member.0 };
    let per_block = footer_entries_per_block(spec.shape.block_bytes as u32);
    let mut out = BytesMut::zeroed(blocks as usize * spec.shape.block_bytes);
    for (at, block) in (first as usize..).zip(out.chunks_mut(spec.shape.block_bytes)) {
        let from = at * per_block;
        let some = &entries[from..(from + per_block).min(entries.len())];
        write_footer_block(&place, from as u32, some, block);
    }
    out.freeze()
}
