//! Writes the zone of a rebuilt segment: header, slots in their order, footer; and handles
//! failures.

use bytes::Bytes;
use zonda_zoned::{Status, ZoneAction};

use super::super::Volume;
use super::super::members::Work;
use super::super::segments::footer;
use super::super::space::Space;
use super::job::{Part, Stage};
use super::{RebuildFlush, RebuildStep};
use crate::MemberIndex;
use crate::event::FailReason;
use crate::limits::REBUILD_FAILURES_MAX;

impl Volume {
    /// Writes the next part, if it is ready.
    pub(super) fn write_next(&mut self, member: MemberIndex) {
        let transfer = self.spec.shape.transfer_blocks;
        let block_bytes = self.spec.shape.block_bytes;
        let metadata_bytes = usize::from(self.members[member].geometry().metadata_bytes);
        let job = self.job();
        match job.parts.front() {
            Some(Part::Piece(_)) => {}
            Some(Part::Ready(ready)) => {
                let first = job.part_written;
                let blocks = (ready.blocks - first).min(transfer);
                let range = |bytes: &Bytes, each: usize| {
                    if bytes.is_empty() {
                        Bytes::new()
                    } else {
                        bytes.slice(first as usize * each..(first + blocks) as usize * each)
                    }
                };
                let (data, metadata) = (range(&ready.data, block_bytes), range(&ready.metadata, metadata_bytes));
                self.write_rebuilt(member, blocks, data, metadata);
            }
            None if job.next_slot < job.end_slot => {}
            None => self.write_end(member),
        }
    }

    /// All slots are written: writes the footer, and then fills the zone.
    fn write_end(&mut self, member: MemberIndex) {
        let transfer = self.spec.shape.transfer_blocks;
        let job = self.job();
        let (index, zone, is_complete) = (job.segment, job.zone, job.is_complete);
        let first = job.footer_written;
        let written = job.written;
        let layout = self.segments[index].layout;
        if is_complete && first < layout.footer_blocks {
            let blocks = (layout.footer_blocks - first).min(transfer);
            self.job().footer_written += blocks;
            let footer = self.rebuilt_footer(member, first, blocks);
            let metadata = self.spec.no_metadata(self.members[member].geometry(), blocks);
            return self.write_rebuilt(member, blocks, footer, metadata);
        }
        let geometry = &self.members[member].geometry();
        if u64::from(written) == geometry.zone_capacity_blocks.0 {
            return self.end_segment(member);
        }
        self.job().stage = Stage::Finishing;
        let finish = self.members[member].manage(zone, ZoneAction::Finish);
        self.members.send(member, Work::Rebuild(RebuildStep::Finish), finish);
    }

    fn rebuilt_footer(&self, member: MemberIndex, first: u32, blocks: u32) -> Bytes {
        if !self.spec.has_contents() {
            return Bytes::new();
        }
        let job = self.rebuild.job.as_ref().expect("a segment is being rebuilt");
        footer(&self.spec, self.segments[job.segment].sequence, member, &job.entries, first, blocks)
    }

    fn write_rebuilt(&mut self, member: MemberIndex, blocks: u32, data: Bytes, metadata: Bytes) {
        let job = self.job();
        job.is_writing = true;
        let place = (job.zone, job.written);
        self.members.count_written(u64::from(blocks));
        let work = Work::Rebuild(RebuildStep::Write { blocks });
        self.members.write(&self.spec, member, work, place, blocks, (data, metadata));
    }

    pub(super) fn on_rebuild_write(&mut self, member: MemberIndex, blocks: u32, status: Status) {
        if !status.is_success() {
            return self.zone_failed(member);
        }
        let job = self.job();
        job.is_writing = false;
        job.written += blocks;
        if let Some(Part::Ready(ready)) = job.parts.front() {
            job.part_written += blocks;
            if job.part_written == ready.blocks {
                job.part_written = 0;
                if let Some(Part::Ready(ready)) = job.parts.pop_front() {
                    self.rebuild.spare = ready.data.try_into_mut().ok();
                }
            }
        }
    }

    pub(super) fn on_rebuild_finish(&mut self, member: MemberIndex, status: Status) {
        if status.is_success() {
            self.end_segment(member);
        } else {
            self.zone_failed(member);
        }
    }

    /// The member holds its part of the segment.
    fn end_segment(&mut self, member: MemberIndex) {
        let job = self.rebuild.job.take().expect("a segment is being rebuilt");
        assert!(job.parts.is_empty() && !job.is_writing, "a zone is finished after its last part");
        self.segments.rebuilt(job.segment, member, job.zone, job.footer_written, &job.entries);
        self.segments.unpin(job.segment, job.was_pinned);
        self.members[member].close_one_zone();
        self.rebuild.done += 1;
        self.rebuild.flush = RebuildFlush::Wanted;
        self.rebuild.failures = 0;
        self.rebuild.yielded_at = self.segments.next_sequence();
    }

    /// The zone cannot be written: it is reset, and another one is used.
    fn zone_failed(&mut self, member: MemberIndex) {
        if !self.members[member].lacks_space() {
            self.members[member].count_error();
            self.rebuild.failures += u32::from(!self.members.is_full(self.now));
        }
        if self.rebuild.failures >= REBUILD_FAILURES_MAX {
            return self.evict(member, FailReason::Errors);
        }
        let job = self.job();
        job.stage = Stage::Resetting;
        let zone = job.zone;
        for part in std::mem::take(&mut job.parts) {
            if let Part::Piece(piece) = part {
                self.abandon_piece(piece);
            }
        }
        let reset = self.members[member].manage(zone, ZoneAction::Reset);
        self.members.send(member, Work::Rebuild(RebuildStep::Reset), reset);
    }

    pub(super) fn on_rebuild_reset(&mut self, member: MemberIndex, status: Status) {
        let zone = self.job().zone;
        let entry = &mut self.members[member];
        if !status.is_success() {
            entry.count_write_error(status);
        }
        // A zone that could not be reset for lack of space has not failed: the first write to it
        // fails, and it is reset again.
        let status = if status == Status::CapacityExceeded { Status::Success } else { status };
        entry.zone_reset_ended(zone, true, status);
        self.drop_job();
        // A zone that stays active may be one too many for segments to be opened.
        let verdict = Space::is_out_of_zones(&self.spec, &self.members, member);
        self.apply_verdict(member, verdict);
    }

    /// The segment stays as it was.
    pub(super) fn drop_job(&mut self) {
        let Some(job) = self.rebuild.job.take() else { return };
        self.segments.unpin(job.segment, job.was_pinned);
        for part in job.parts {
            if let Part::Piece(piece) = part {
                self.abandon_piece(piece);
            }
        }
    }
}
