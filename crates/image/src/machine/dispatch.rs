//! Starts parts that are ready, and passes the results of their file operations on.

use bytes::Bytes;
use zonda_zoned::{Key, Status};

use crate::FileError;

use super::parts::{Part, Stage, Work};
use super::{FileKind, Image};

impl Image {
    /// Adds a part behind the existing ones of its zone.
    pub(super) fn add(&mut self, part: Part) -> Key<Part> {
        self.add_waiting(part, false)
    }

    /// Adds a part; with `takes_resource` it also waits for the parts that free active resources.
    pub(super) fn add_waiting(&mut self, part: Part, takes_resource: bool) -> Key<Part> {
        if let Some(command) = part.command {
            self.commands.add_part(command);
        }
        let run = &self.zones[part.zone.as_usize()];
        self.parts.add(part, run, takes_resource)
    }

    /// Starts a part that is ready.
    pub(super) fn start_part(&mut self, key: Key<Part>) {
        let part = &self.parts[key];
        if part.doomed {
            self.fail_doomed(key);
            return;
        }
        let failed = self.zones[part.zone.as_usize()].failed;
        if self.parts.wait_for_rollback(key, failed) {
            return;
        }
        if self.parts[key].uses_journal() && !self.enter_journal(key) {
            return;
        }
        match &self.parts[key].work {
            Work::Read { .. } => self.start_read(key),
            Work::Sequential { .. } => self.start_sequential(key),
            Work::Zero { .. } if self.parts[key].blocks() == 0 => self.end_part(key, Status::Success),
            Work::Zero { .. } => self.write_tags(key),
            Work::Overwrite { .. } => self.start_overwrite(key),
            Work::Manage(_) => self.next_step(key),
        }
    }

    /// Called when a file operation of a part has ended.
    pub(super) fn on_part_file(&mut self, key: Key<Part>, of: FileKind, result: Result<Bytes, FileError>) {
        let part = &mut self.parts[key];
        part.out -= 1;
        part.failed |= result.is_err();
        part.lacks_space |= result == Err(FileError::StorageFull);
        // A failed sync may lose more than the writes of this part.
        if result.is_err() && part.is_syncing() {
            self.flush.sync_failed();
        }
        let part = &mut self.parts[key];
        let bytes = result.ok();
        match &mut part.work {
            Work::Read { data, tags, .. } => {
                let place = if of == FileKind::Data { data } else { tags };
                *place = bytes;
            }
            Work::Overwrite { found: Some(found), .. } if part.stage.reads_blocks() => {
                let place = if of == FileKind::Data { &mut found.0 } else { &mut found.1 };
                *place = bytes;
            }
            _ => {}
        }
        if part.out > 0 {
            return;
        }
        match part.work {
            Work::Read { .. } => {
                let zone = part.zone;
                self.end_read(key);
                // A rollback may wait for it.
                self.acknowledge_in_order(zone);
            }
            Work::Sequential { .. } => self.on_sequential_files(key),
            Work::Zero { .. } => {
                let status = if part.failed { part.failure() } else { Status::Success };
                self.flush.media_is_dirty();
                let zone = part.zone;
                self.end_part(key, status);
                self.acknowledge_in_order(zone);
            }
            Work::Overwrite { .. } => self.on_overwrite_files(key),
            Work::Manage(_) => self.on_step_files(key),
        }
    }

    /// Fails a part that depends on a failed one.
    fn fail_doomed(&mut self, key: Key<Part>) {
        match self.parts[key].work {
            Work::Sequential { .. } => {
                self.parts[key].stage = Stage::Done;
                self.acknowledge_in_order(self.parts[key].zone);
            }
            Work::Read { .. } => self.end_part(key, Status::InternalError),
            Work::Manage(_) => self.fail_doomed_management(key),
            _ => self.end_part(key, self.parts[key].failure()),
        }
    }

    /// Ends a part that was released before.
    pub(super) fn retire(&mut self, key: Key<Part>, status: Status) {
        let part = self.parts.remove(key);
        if let Some(command) = part.command {
            self.commands.end_part(command, status);
        }
    }

    /// Releases and retires.
    pub(super) fn end_part(&mut self, key: Key<Part>, status: Status) {
        self.parts.release(key);
        self.retire(key, status);
    }
}
