//! Writes at a write pointer: acknowledged in order, so that no hole precedes an acknowledged
//! block; and the rollback of failed ones.
//!
//! When a write fails, the writes behind it in the same generation of the zone fail too. Once none
//! of them is in flight, the tags behind the last good block are cleared and synced, so that no
//! recovery finds them; then the write pointer is rolled back, the writes end with WriteFault
//! (CapacityExceeded if the file system is full), and the zone can be written again.

use zonda_zoned::{Blocks, Key, Status, ZoneIndex, ZoneState};

use crate::bugs::SeededBug;
use crate::format::Generation;
use crate::format::entry::{Entry, RecordedState, add};
use crate::{FileOperation, ImageFile};

use super::Image;
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

/// The first write that failed in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) first: u64,
    pub(super) generation: Generation,
    /// The status of this write and of those behind it.
    status: Status,
    /// Tags are being cleared.
    rolling_back: bool,
}

impl Failed {
    /// Whether it fails this write: itself, or one behind it.
    pub(super) fn fails(&self, part: &Part) -> bool {
        part.generation == self.generation && part.first >= self.first
    }

    pub(super) fn status(&self) -> Status {
        self.status
    }
}

impl Image {
    pub(super) fn start_sequential(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let zone = part.zone;
        if self.zones[zone.as_usize()].failed.is_some_and(|failed| part.first >= failed.first) {
            part.failed = true;
            part.stage = Stage::Done;
            self.acknowledge_in_order(zone);
            return;
        }
        self.write_data_and_tags(key);
    }

    /// Writes data and tags of a part, in any order: a block is valid when both are on file. A
    /// journaled overwrite writes its tags later, so that an error of the data leaves the old tags.
    pub(super) fn write_data_and_tags(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let (Work::Sequential { data, .. } | Work::Overwrite { data, .. }) = &part.work else {
            unreachable!("a part without data");
        };
        let offset = self.layout.data_offset(part.zone, part.first);
        // Where blocks are accepted as they are after a crash, zeros must be zeros in the data too.
        // If the tags cannot be written, the data is still there.
        if data.is_none() && matches!(part.work, Work::Overwrite { .. }) && !self.layout.logs_contents {
            self.write_tags(key);
            self.parts[key].stage = Stage::ZeroTags;
            return;
        }
        let tags_wait = self.layout.logs_contents && matches!(part.work, Work::Overwrite { data: Some(_), .. });
        if let Some(data) = data {
            let operation = FileOperation::Write { file: ImageFile::Data, offset, pieces: vec![data.clone()] };
            part.stage = Stage::Data;
            part.out += 1;
            self.operations.issue(Purpose::Data(key), operation);
        }
        if !tags_wait {
            self.write_tags(key);
        }
    }

    /// Punches the holes of zeros whose tags are written.
    pub(super) fn punch_data(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let offset = self.layout.data_offset(part.zone, part.first);
        let length = part.blocks() * self.layout.block_bytes;
        part.stage = Stage::Files;
        part.out += 1;
        self.operations.issue(Purpose::Data(key), FileOperation::PunchHole { file: ImageFile::Data, offset, length });
    }

    pub(super) fn write_tags(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let (Work::Sequential { tags, .. } | Work::Overwrite { tags, .. } | Work::Zero { tags }) = &part.work else {
            unreachable!("a part without tags");
        };
        // A part may have become shorter since its tags were made.
        let pieces = vec![tags.slice(..((part.end - part.first) * self.layout.tag_bytes) as usize)];
        let offset = self.layout.tag_offset(part.zone, part.first);
        part.stage = Stage::Files;
        let write = FileOperation::Write { file: ImageFile::Tags, offset, pieces };
        if self.bug.has(SeededBug::EarlyWrite) && matches!(part.work, Work::Sequential { data: Some(_), .. }) {
            self.operations.issue(Purpose::Unheeded, write);
            return;
        }
        part.out += 1;
        self.operations.issue(Purpose::Tags(key), write);
    }

    pub(super) fn on_sequential_files(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let zone = part.zone;
        match part.stage {
            // Without its hole the zone becomes read only.
            Stage::RepairWrite if part.failed => self.end_rollback(zone),
            Stage::RepairWrite => self.sync_cleared_tags(key),
            Stage::RepairSync => self.end_rollback(zone),
            _ => {
                part.stage = Stage::Done;
                let (first, generation, failed, status) = (part.first, part.generation, part.failed, part.failure());
                if failed {
                    let own = Failed { first, generation, status, rolling_back: false };
                    let earlier = self.zones[zone.as_usize()].failed.filter(|earlier| earlier.first <= first);
                    self.zones[zone.as_usize()].failed =
                        Some(earlier.map_or(own, |earlier| Failed { generation, ..earlier }));
                } else if self.zones[zone.as_usize()].failed.is_none() {
                    self.parts.release(key);
                }
                self.acknowledge_in_order(zone);
            }
        }
    }

    /// Acknowledges completed writes in order, and begins the rollback once all writes behind a
    /// failed one have ended.
    pub(super) fn acknowledge_in_order(&mut self, zone: ZoneIndex) {
        while let Some(key) = self.parts.first_write(zone) {
            let part = &self.parts[key];
            let run = &mut self.zones[zone.as_usize()];
            if part.stage != Stage::Done || run.failed.is_some_and(|failed| failed.fails(part)) {
                break;
            }
            let (end, blocks, doomed, failure) = (part.end, part.blocks(), part.doomed, part.failure());
            self.parts.acknowledge_first(zone);
            if doomed {
                self.retire(key, failure);
                continue;
            }
            run.on_file = end;
            add(&mut self.written_blocks, blocks);
            self.flush.note_dirty(zone);
            self.retire(key, Status::Success);
        }
        let Some(failed) = self.zones[zone.as_usize()].failed.filter(|failed| !failed.rolling_back) else { return };
        let first = self.parts.writes(zone).next().expect("the failed write is first in the order");
        if !failed.fails(first) {
            return;
        }
        // Writes that wait for management in between are not in flight, and never will be.
        let written = self.parts.writes(zone).all(|part| part.generation != failed.generation || part.out == 0);
        // A read that began before the failure would find the data of a block without its tag.
        let is_busy = |part: &Part| matches!(part.work, Work::Zero { .. } | Work::Read { .. }) && part.out > 0;
        if written && !self.parts.of_zone(zone).any(is_busy) {
            self.begin_rollback(zone, failed);
        }
    }

    fn begin_rollback(&mut self, zone: ZoneIndex, failed: Failed) {
        let first = self.parts.first_write(zone).expect("the failed write is first in the order");
        assert_eq!(self.parts[first].first, failed.first, "all before the failed write are acknowledged");
        let concerned = self.parts.writes(zone).filter(|part| part.generation == failed.generation);
        let end = concerned.map(|part| part.end).max();
        let blocks = end.expect("the failed write is one of them") - failed.first;
        self.zones[zone.as_usize()].failed = Some(Failed { rolling_back: true, ..failed });
        let part = &mut self.parts[first];
        part.stage = Stage::RepairWrite;
        part.failed = false;
        part.out += 1;
        let (offset, length) = (self.layout.tag_offset(zone, failed.first), blocks * self.layout.tag_bytes);
        // Where the write failed because the file system is full, zeros could not be written
        // either; a hole needs no space.
        self.operations.issue(Purpose::Tags(first), FileOperation::PunchHole { file: ImageFile::Tags, offset, length });
    }

    fn sync_cleared_tags(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        part.stage = Stage::RepairSync;
        part.out += 1;
        self.operations.issue(Purpose::Tags(key), FileOperation::Sync { file: ImageFile::Tags });
    }

    fn end_rollback(&mut self, zone: ZoneIndex) {
        let failed = self.zones[zone.as_usize()].failed.take().expect("a zone in rollback has failed");
        let first = self.parts.first_write(zone).expect("the failed write is first in the order");
        let cleared = !self.parts[first].failed;
        if self.zones[zone.as_usize()].generation == failed.generation {
            if !self.bug.has(SeededBug::KeptPointer) {
                self.roll_back(zone, failed.first);
            }
            if !cleared {
                // A recovery may find tags that cannot be cleared: no write may reach them.
                self.degrade_zone(zone, ZoneState::ReadOnly);
            }
        } else {
            self.zones[zone.as_usize()].uncleared |= !cleared;
        }
        for key in self.parts.roll_back(zone, &failed) {
            self.retire(key, failed.status);
        }
    }

    /// Rolls the write pointer back to `to`. A zone that was full and gets no active resource stays
    /// full, as if finished.
    pub(super) fn roll_back(&mut self, zone: ZoneIndex, to: u64) {
        let view = self.table.zone(zone);
        if view.state == ZoneState::Offline || view.write_pointer_blocks.0 <= to {
            return;
        }
        let full_by_writing =
            view.state == ZoneState::Full && view.write_pointer_blocks == self.spec.geometry.zone_capacity_blocks;
        if (view.state.is_active() || full_by_writing) && self.table.truncate(zone, Blocks(to)) {
            return;
        }
        let state = if view.state == ZoneState::ReadOnly { RecordedState::ReadOnly } else { RecordedState::Finished };
        let entry = Entry { state, ..Entry::default() };
        let descriptors = self.spec.geometry.descriptor_extension_bytes > 0 && view.attributes.extension_valid;
        let extension = if descriptors { self.extension_of(zone) } else { None };
        let restored = self.table.restore(zone, &self.builder.zone(&entry, extension.as_deref(), to, to));
        assert!(restored, "a zone that is not active holds no resources");
        if full_by_writing {
            self.note_finished(zone);
        }
    }

    fn extension_of(&self, zone: ZoneIndex) -> Option<Box<[u8]>> {
        let start = self.spec.geometry.zone_start(zone);
        let report = self.table.report(start, zonda_zoned::ReportFilter::All, true, true, 1).ok()?;
        report.zones.into_iter().next()?.extension
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Drive, spec};
    use zonda_zoned::Geometry;

    #[test]
    fn a_write_pointer_is_rolled_back_and_never_forward() {
        let geometry = Geometry { conventional_zone_count: 0, ..Geometry::tiny() };
        for (to, expected) in [(8, 6), (6, 6), (2, 2)] {
            let mut drive = Drive::create(&spec(geometry.clone()));
            assert!(drive.write(0, 6, 1).is_success());
            drive.image.roll_back(ZoneIndex(0), to);
            assert_eq!(drive.image.table.zone(ZoneIndex(0)).write_pointer_blocks, Blocks(expected), "back to {to}");
        }
    }

    #[test]
    fn an_offline_zone_stays_offline() {
        let geometry = Geometry { conventional_zone_count: 0, ..Geometry::tiny() };
        let mut drive = Drive::create(&spec(geometry));
        assert!(drive.write(0, 6, 1).is_success());
        drive.image.degrade(ZoneIndex(0), ZoneState::Offline);
        for to in [0, 2, 6] {
            drive.image.roll_back(ZoneIndex(0), to);
            assert_eq!(drive.image.table.zone(ZoneIndex(0)).state, ZoneState::Offline, "back to {to}");
        }
    }
}
