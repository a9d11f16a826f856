//! Orders parts: those that touch the same blocks are processed in the order of submission.

use bytes::Bytes;
use zonda_zoned::{Key, Status};

use crate::FileError;

use super::part::{Part, Stage, Work};
use super::{FileKind, Image};

impl Image {
    /// Adds a part behind the existing ones of its zone.
    pub(super) fn add(&mut self, part: Part) -> Key<Part> {
        self.add_waiting(part, false)
    }

    /// Adds a part; with `takes_resource` it also waits for the parts that free active resources.
    pub(super) fn add_waiting(&mut self, mut part: Part, takes_resource: bool) -> Key<Part> {
        let zone = part.zone.as_usize();
        let waits = self.may_wait(&part);
        if let Some(command) = part.command {
            self.commands.add_part(command);
        }
        let run = &mut self.zones[zone];
        run.exclusive += u32::from(part.is_exclusive());
        run.overwrites += u32::from(matches!(part.work, Work::Overwrite { .. } | Work::Zero { .. }));
        let sequential = matches!(part.work, Work::Sequential { .. });
        part.stage = Stage::Waiting;
        let key = self.parts.insert(part);
        if waits {
            for i in 0..self.zones[zone].parts.len() {
                let earlier = self.zones[zone].parts[i];
                if self.parts[key].conflicts_with(&self.parts[earlier]) {
                    self.wait_for(key, earlier);
                }
            }
        }
        if takes_resource {
            for i in 0..self.releasing.len() {
                self.wait_for_resource(key, self.releasing[i]);
            }
        }
        self.wait_for_rollback(key);
        let run = &mut self.zones[zone];
        run.parts.push(key);
        if sequential {
            run.order.push_back(key);
        }
        if self.parts[key].blockers == 0 {
            self.ready.push_back(key);
        }
        key
    }

    /// Whether an earlier part may conflict. A write at the write pointer conflicts only with
    /// management; parts before all writes in flight wait for no write.
    #[inline]
    fn may_wait(&self, part: &Part) -> bool {
        let zone = &self.zones[part.zone.as_usize()];
        if zone.parts.is_empty() {
            return false;
        }
        let only_writes_at_pointer = zone.exclusive == 0 && zone.overwrites == 0;
        match part.work {
            Work::Sequential { .. } => zone.exclusive > 0,
            Work::Read { .. } => !(only_writes_at_pointer && part.end <= zone.on_file),
            _ => true,
        }
    }

    /// A part that reads or deallocates blocks behind a failed write waits until they are rolled
    /// back. Returns whether it waits.
    fn wait_for_rollback(&mut self, key: Key<Part>) -> bool {
        let part = &self.parts[key];
        let run = &self.zones[part.zone.as_usize()];
        let Some(failed) = run.failed else { return false };
        let concerned = matches!(part.work, Work::Read { .. } | Work::Zero { .. });
        if !concerned || part.generation != failed.generation || part.end <= failed.first {
            return false;
        }
        let behind = |&&other: &&Key<Part>| {
            let part = &self.parts[other];
            part.generation == failed.generation && part.first >= failed.first && !part.released
        };
        let earlier =
            *run.order.iter().find(behind).expect("the failed write is not released before it is rolled back");
        self.wait_for(key, earlier);
        true
    }

    /// A write that fills its zone frees the resource once every write before it is on file.
    fn wait_for_resource(&mut self, key: Key<Part>, releasing: Key<Part>) {
        let part = &self.parts[releasing];
        if !matches!(part.work, Work::Sequential { .. }) {
            self.wait_for(key, releasing);
            return;
        }
        let zone = part.zone.as_usize();
        for i in 0..self.zones[zone].order.len() {
            let earlier = self.zones[zone].order[i];
            if !self.parts[earlier].released {
                self.wait_for(key, earlier);
            }
        }
    }

    fn wait_for(&mut self, key: Key<Part>, earlier: Key<Part>) {
        self.parts[earlier].waiters.push(key);
        self.parts[key].blockers += 1;
    }

    /// Starts a part that is ready.
    pub(super) fn start_part(&mut self, key: Key<Part>) {
        let part = &self.parts[key];
        if part.doomed {
            self.fail_doomed(key);
            return;
        }
        if part.uses_journal() && !self.enter_journal(key) {
            return;
        }
        if self.wait_for_rollback(key) {
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
            Work::Read { .. } => self.end_read(key),
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

    /// Unblocks the parts that wait for this one.
    pub(super) fn release(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        if std::mem::replace(&mut part.released, true) {
            return;
        }
        let waiters = std::mem::take(&mut part.waiters);
        let (exclusive, zone) = (part.is_exclusive(), part.zone.as_usize());
        let overwrites = matches!(part.work, Work::Overwrite { .. } | Work::Zero { .. });
        let run = &mut self.zones[zone];
        let place = run.parts.iter().position(|&other| other == key).expect("a part is in the list of its zone");
        run.parts.remove(place);
        run.exclusive -= u32::from(exclusive);
        run.overwrites -= u32::from(overwrites);
        for waiter in waiters {
            let part = &mut self.parts[waiter];
            part.blockers -= 1;
            if part.blockers == 0 {
                self.ready.push_back(waiter);
            }
        }
    }

    /// Ends a part that was released before.
    pub(super) fn retire(&mut self, key: Key<Part>, status: Status) {
        let part = self.parts.remove(key);
        if !self.releasing.is_empty() {
            self.releasing.retain(|&other| other != key);
        }
        if let Some(command) = part.command {
            self.commands.end_part(command, status);
        }
    }

    /// Releases and retires.
    pub(super) fn end_part(&mut self, key: Key<Part>, status: Status) {
        self.release(key);
        self.retire(key, status);
    }
}
