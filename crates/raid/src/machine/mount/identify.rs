//! Identifies zones with unreadable headers by their blocks: by seals, chunk metadata or footers.

use std::collections::BTreeMap;

use zonda_zoned::BlockBuffer;

use super::headers::{FoundSegment, Owner};
use super::{Volume, block_of};
use crate::MemberIndex;
use crate::format::{BlockMeta, HEADER_COPIES, MemberState, Place, read_chunk_meta, read_footer_block};
use crate::machine::start::StartStep;
use crate::shape::Stream;

/// Blocks of such a zone that are examined, behind its headers.
const BLOCKS_MAX: u32 = 64;

impl Volume {
    /// All headers are read: reads blocks of zones with unreadable headers. Returns whether there
    /// are any, the first time.
    pub(super) fn identify_zones(&mut self) -> bool {
        if std::mem::replace(&mut self.found().is_identified, true) {
            return false;
        }
        let mut reads = Vec::new();
        for member in self.members.present() {
            for (&zone, &owner) in &self.found().owners[member.as_usize()] {
                if owner == Owner::Unknown {
                    reads.push((member, zone));
                }
            }
        }
        for &(member, zone) in &reads {
            let written = self.blocks_in(member, zone);
            // In version 1 there is one header.
            let first = HEADER_COPIES - 1;
            for offset in (first..written).take(BLOCKS_MAX as usize) {
                self.read_at_start(member, StartStep::Identify { zone, offset }, zone, offset, 1);
            }
        }
        self.start_mut().pending > 0
    }

    pub(super) fn on_identify_read(
        &mut self,
        member: MemberIndex,
        (zone, _): (u32, u32),
        buffer: Option<&BlockBuffer>,
    ) {
        let (array, block_bytes) = (self.spec.array, self.spec.shape.block_bytes);
        let rows = Stream::ALL.iter().map(|&stream| self.spec.shape.layout(stream).unit_blocks).max().unwrap_or(0);
        let since = self.members[member].since_epoch();
        let is_rebuilding = self.members[member].state() == MemberState::Rebuilding;
        let found = self.found();
        let at = member.as_usize();
        if found.owners[at].get(&zone) != Some(&Owner::Unknown) {
            return;
        }
        let is_zeros = |buffer: &BlockBuffer| buffer.data.iter().chain(&buffer.metadata).all(|&byte| byte == 0);
        if !buffer.is_some_and(is_zeros) {
            found.blank_headers.remove(&(member, zone));
        }
        let Some(buffer) = buffer else { return };
        let says = |sequence: u64| {
            let place = Place { array, segment: sequence, member: member.0 };
            let seed = place.seed();
            (0..rows).any(|row| BlockMeta::read_oob(seed, row, &buffer.metadata).is_some())
                || block_of(buffer, 0, block_bytes).is_some_and(|block| {
                    read_chunk_meta(&place, block).is_some() || read_footer_block(&place, block).is_some()
                })
        };
        let segments: &mut BTreeMap<u64, FoundSegment> = &mut found.segments;
        let Some((&sequence, segment)) = segments.iter_mut().rev().find(|&(&sequence, _)| says(sequence)) else {
            return;
        };
        let opened = segment.header.epoch;
        // A zone that was not named belongs to a rebuild; or it was held before the member
        // returned: then it is not known what it lacks.
        let is_named = segment.header.zones[at] == Some(zone) && since <= opened;
        if is_rebuilding && !is_named {
            return;
        }
        segment.has_damaged_header = true;
        let epoch = if is_named { opened } else { opened + 1 };
        found.owners[at].insert(zone, Owner::Segment { sequence, epoch, is_rebuilt: !is_named });
    }
}
