//! Writes at a write pointer: acknowledged in order, so that no hole precedes an acknowledged
//! block; and the rollback of failed ones.
//!
//! When a write fails, the writes behind it in the same generation of the zone fail too. Once none
//! of them is in flight, the tags behind the last good block are cleared and synced, so that no
//! recovery finds them; then the write pointer is rolled back, the writes end with WriteFault
//! (CapacityExceeded if the file system is full), and the zone can be written again.

use zonda_zoned::{Blocks, Status, ZoneIndex, ZoneState};

use crate::bugs::SeededBug;
use crate::format::entry::{Entry, RecordedState, add};
use crate::{FileOperation, ImageFile};

use super::part::{Stage, Work};
use super::{Image, Role};

/// The first write that failed in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) first: u64,
    pub(super) generation: u32,
    /// The status of this write and of those behind it.
    status: Status,
    /// Tags are being cleared.
    rolling_back: bool,
}

impl Image {
    pub(super) fn start_sequential(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let zone = part.zone;
        if self.zones[zone as usize].failed.is_some_and(|failed| part.first >= failed.first) {
            part.failed = true;
            part.stage = Stage::Done;
            self.acknowledge_in_order(zone);
            return;
        }
        self.write_data_and_tags(index);
    }

    /// Writes data and tags of a part, in any order: a block is valid when both are on file. A
    /// journaled overwrite writes its tags later, so that an error of the data leaves the old tags.
    pub(super) fn write_data_and_tags(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let (Work::Sequential { data, .. } | Work::Overwrite { data, .. }) = &part.work else {
            unreachable!("a part without data");
        };
        let offset = self.layout.data_offset(part.zone, part.first);
        // Where blocks are accepted as they are after a crash, zeros must be zeros in the data too.
        // If the tags cannot be written, the data is still there.
        if data.is_none() && matches!(part.work, Work::Overwrite { .. }) && !self.layout.logs_contents {
            self.write_tags(index);
            self.parts[index].stage = Stage::ZeroTags;
            return;
        }
        let tags_wait = self.layout.logs_contents && matches!(part.work, Work::Overwrite { data: Some(_), .. });
        if let Some(data) = data {
            let operation = FileOperation::Write { file: ImageFile::Data, offset, pieces: vec![data.clone()] };
            part.stage = Stage::Data;
            part.out += 1;
            self.emit(Role::Data, index, operation);
        }
        if !tags_wait {
            self.write_tags(index);
        }
    }

    /// Punches the holes of zeros whose tags are written.
    pub(super) fn punch_data(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let offset = self.layout.data_offset(part.zone, part.first);
        let length = part.blocks() * self.layout.block_bytes;
        part.stage = Stage::Files;
        part.out += 1;
        self.emit(Role::Data, index, FileOperation::PunchHole { file: ImageFile::Data, offset, length });
    }

    pub(super) fn write_tags(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let (Work::Sequential { tags, .. } | Work::Overwrite { tags, .. } | Work::Zero { tags }) = &part.work else {
            unreachable!("a part without tags");
        };
        // A part may have become shorter since its tags were made.
        let pieces = vec![tags.slice(..((part.end - part.first) * self.layout.tag_bytes) as usize)];
        let offset = self.layout.tag_offset(part.zone, part.first);
        part.stage = Stage::Files;
        let write = FileOperation::Write { file: ImageFile::Tags, offset, pieces };
        if self.bug.has(SeededBug::EarlyWrite) && matches!(part.work, Work::Sequential { data: Some(_), .. }) {
            self.emit(Role::Unheeded, index, write);
            return;
        }
        part.out += 1;
        self.emit(Role::Tags, index, write);
    }

    pub(super) fn on_sequential_files(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let zone = part.zone;
        match part.stage {
            // Without its hole the zone becomes read only.
            Stage::RepairWrite if part.failed => self.end_rollback(zone),
            Stage::RepairWrite => self.sync_cleared_tags(index),
            Stage::RepairSync => self.end_rollback(zone),
            _ => {
                part.stage = Stage::Done;
                let (first, generation, failed, status) = (part.first, part.generation, part.failed, part.failure());
                if failed {
                    let own = Failed { first, generation, status, rolling_back: false };
                    let earlier = self.zones[zone as usize].failed.filter(|earlier| earlier.first <= first);
                    self.zones[zone as usize].failed =
                        Some(earlier.map_or(own, |earlier| Failed { generation, ..earlier }));
                } else if self.zones[zone as usize].failed.is_none() {
                    self.release(index);
                }
                self.acknowledge_in_order(zone);
            }
        }
    }

    /// Acknowledges completed writes in order, and begins the rollback once all writes behind a
    /// failed one have ended.
    pub(super) fn acknowledge_in_order(&mut self, zone: u32) {
        while let Some(&index) = self.zones[zone as usize].order.front() {
            let part = &self.parts[index];
            if part.stage != Stage::Done {
                break;
            }
            let failed = self.zones[zone as usize].failed;
            if failed.is_some_and(|failed| failed.generation == part.generation && part.first >= failed.first) {
                break;
            }
            self.zones[zone as usize].order.pop_front();
            let (end, blocks, doomed, failure) = (part.end, part.blocks(), part.doomed, part.failure());
            self.release(index);
            if doomed {
                self.retire(index, failure);
                continue;
            }
            self.zones[zone as usize].on_file = end;
            add(&mut self.counters.host_written_blocks, blocks);
            self.note_dirty(zone);
            self.retire(index, Status::Success);
        }
        let Some(failed) = self.zones[zone as usize].failed.filter(|failed| !failed.rolling_back) else { return };
        let order = &self.zones[zone as usize].order;
        let first = order.front().map(|&index| &self.parts[index]).expect("the failed write is first in the order");
        if first.generation != failed.generation || first.first < failed.first {
            return;
        }
        let mut concerned = order.iter().map(|&index| &self.parts[index]);
        // Writes that wait for management in between are not in flight, and never will be.
        let written = concerned.all(|part| part.generation != failed.generation || part.out == 0);
        let mut others = self.zones[zone as usize].parts.iter().map(|&index| &self.parts[index]);
        let zeroed = others.all(|part| !matches!(part.work, Work::Zero { .. }) || part.out == 0);
        if written && zeroed {
            self.begin_rollback(zone, failed);
        }
    }

    fn begin_rollback(&mut self, zone: u32, failed: Failed) {
        let run = &self.zones[zone as usize];
        let first = *run.order.front().expect("the failed write is first in the order");
        assert_eq!(self.parts[first].first, failed.first, "all before the failed write are acknowledged");
        let concerned = run.order.iter().map(|&index| &self.parts[index]);
        let end = concerned.filter(|part| part.generation == failed.generation).map(|part| part.end).max();
        let blocks = end.expect("the failed write is one of them") - failed.first;
        self.zones[zone as usize].failed = Some(Failed { rolling_back: true, ..failed });
        let part = &mut self.parts[first];
        part.stage = Stage::RepairWrite;
        part.failed = false;
        part.out += 1;
        let (offset, length) = (self.layout.tag_offset(zone, failed.first), blocks * self.layout.tag_bytes);
        // Where the write failed because the file system is full, zeros could not be written
        // either; a hole needs no space.
        self.emit(Role::Tags, first, FileOperation::PunchHole { file: ImageFile::Tags, offset, length });
    }

    fn sync_cleared_tags(&mut self, index: u32) {
        let part = &mut self.parts[index];
        part.stage = Stage::RepairSync;
        part.out += 1;
        self.emit(Role::Tags, index, FileOperation::Sync { file: ImageFile::Tags });
    }

    fn end_rollback(&mut self, zone: u32) {
        let run = &mut self.zones[zone as usize];
        let failed = run.failed.take().expect("a zone in rollback has failed");
        let first = *run.order.front().expect("the failed write is first in the order");
        let cleared = !self.parts[first].failed;
        if self.zones[zone as usize].generation == failed.generation {
            if !self.bug.has(SeededBug::KeptPointer) {
                self.roll_back(zone, failed.first);
            }
            if !cleared {
                // A recovery may find tags that cannot be cleared: no write may reach them.
                self.degrade_zone(zone, ZoneState::ReadOnly);
            }
        } else {
            self.zones[zone as usize].uncleared |= !cleared;
        }
        for i in 0..self.zones[zone as usize].parts.len() {
            let part = &mut self.parts[self.zones[zone as usize].parts[i]];
            if part.generation == failed.generation && part.stage == Stage::Waiting {
                part.end = part.end.min(failed.first).max(part.first);
            }
        }
        let order = std::mem::take(&mut self.zones[zone as usize].order);
        for index in order {
            let part = &mut self.parts[index];
            if part.generation == failed.generation && part.stage != Stage::Waiting {
                self.release(index);
                self.retire(index, failed.status);
                continue;
            }
            if part.generation == failed.generation {
                part.doomed = true;
                part.lacks_space |= failed.status == Status::CapacityExceeded;
            }
            self.zones[zone as usize].order.push_back(index);
        }
    }

    /// Rolls the write pointer back to `to`. A zone that was full and gets no active resource stays
    /// full, as if finished.
    pub(super) fn roll_back(&mut self, zone: u32, to: u64) {
        let index = ZoneIndex(zone);
        let view = self.table.zone(index);
        if view.state == ZoneState::Offline || view.write_pointer_blocks.0 <= to {
            return;
        }
        let full_by_writing =
            view.state == ZoneState::Full && view.write_pointer_blocks == self.spec.geometry.zone_capacity_blocks;
        if (view.state.is_active() || full_by_writing) && self.table.truncate(index, Blocks(to)) {
            return;
        }
        let state = if view.state == ZoneState::ReadOnly { RecordedState::ReadOnly } else { RecordedState::Finished };
        let entry = Entry { state, ..Entry::default() };
        let descriptors = self.spec.geometry.descriptor_extension_bytes > 0 && view.attributes.extension_valid;
        let extension = if descriptors { self.extension_of(index) } else { None };
        let restored = self.table.restore(index, &self.builder.zone(&entry, extension.as_deref(), to, to));
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

    /// Marks a zone for the next flush.
    pub(super) fn note_dirty(&mut self, zone: u32) {
        self.flush.media_is_dirty();
        let run = &mut self.zones[zone as usize];
        if !run.dirty {
            run.dirty = true;
            self.flush.dirty_zones.push(zone);
        }
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
            drive.image.roll_back(0, to);
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
            drive.image.roll_back(0, to);
            assert_eq!(drive.image.table.zone(ZoneIndex(0)).state, ZoneState::Offline, "back to {to}");
        }
    }
}
