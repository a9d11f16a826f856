//! Names: create, delete, rename.

use crate::extents::Run;
use crate::format::record::{EXTENT_COST_BYTES, FILE_COST_BYTES, Record};
use crate::limits::{FILES_MAX, NAME_BYTES_MAX};
use crate::{FileError, FileId, FileStore, Lifetime, RequestId};

use super::Phase;
use super::file::{ChunkStage, File};
use super::log::Waiter;

impl FileStore {
    /// Makes an empty file that takes data. It is there at once, and durable with its first sync or close.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::NameTooLong`] (also for a name without bytes), [`FileError::TooManyFiles`],
    /// [`FileError::NotReady`], and what ended the store.
    pub fn create(&mut self, name: &str, lifetime: Lifetime) -> Result<FileId, FileError> {
        match &self.phase {
            Phase::Ready => {}
            Phase::Starting => return Err(FileError::NotReady),
            Phase::Failed(error) => return Err(error.clone()),
        }
        if let Some(error) = &self.log.failed {
            return Err(error.clone());
        }
        check_name(name)?;
        if self.names.contains_key(name) {
            return Err(FileError::Exists);
        }
        let cost = cost(name);
        if !self.has_metadata_room(cost + EXTENT_COST_BYTES)
            || self.files.len() >= FILES_MAX
            || self.next_file == u64::MAX
        {
            return Err(FileError::TooManyFiles);
        }
        self.snapshot_bytes += cost;
        let id = FileId(self.next_file);
        self.next_file += 1;
        self.files.insert(id, File::new(name, lifetime));
        self.names.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The file of a name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// All files, in the order of their names.
    pub fn names(&self) -> impl Iterator<Item = (&str, FileId)> {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Bytes of acknowledged appends; `None` when there is no such file. Of an append that failed, a part may be there.
    #[must_use]
    pub fn len_bytes(&self, file: FileId) -> Option<u64> {
        self.files.get(&file).map(File::len_bytes)
    }

    /// Deletes a file. The name is free at once; the request ends when that is durable. Requests for the file that have
    /// not ended end with [`FileError::NoSuchFile`]; reads under way go on.
    pub fn delete(&mut self, request: RequestId, name: &str) {
        if !self.admit_change(request) {
            return;
        }
        let Some(id) = self.names.remove(name) else { return self.end(request, Err(FileError::NoSuchFile)) };
        let (runs, is_recorded) = self.drop_file(id);
        if is_recorded {
            self.names_ticket = self.log.push(&Record::Deleted { file: id });
            self.when_durable(self.names_ticket, Waiter::Release(runs));
        } else {
            self.release(&runs);
        }
        // Where the records do not have the file, they may still have one that had its name before.
        self.when_durable(self.names_ticket, Waiter::Request(request));
        self.settle();
    }

    /// Gives a file another name, and deletes the file that has it, in one step. The names change at once; the request
    /// ends when that is durable. What was not synced of the file is not made durable by it.
    pub fn rename(&mut self, request: RequestId, from: &str, to: &str) {
        if !self.admit_change(request) {
            return;
        }
        if let Err(error) = self.check_rename(from, to) {
            return self.end(request, Err(error));
        }
        let id = self.names.remove(from).expect("the file was looked up");
        let replaced = self.names.insert(to.to_owned(), id).filter(|&replaced| replaced != id);
        let released = replaced.map(|replaced| self.drop_file(replaced));
        let file = self.files.get_mut(&id).expect("a name belongs to a file");
        self.snapshot_bytes = self.snapshot_bytes + to.len() as u64 - from.len() as u64;
        to.clone_into(&mut file.meta.name);
        if !file.is_recorded {
            file.is_recorded = true;
            self.log.push(&Record::Created { file: id, lifetime: file.meta.lifetime, name: from });
        }
        let ticket = self.log.push(&Record::Renamed { file: id, name: to });
        file.ticket = ticket;
        self.names_ticket = ticket;
        if let Some((runs, _)) = released {
            // Also where the records do not have it: a rename to its name is one step.
            self.when_durable(ticket, Waiter::Release(runs));
        }
        self.when_durable(ticket, Waiter::Request(request));
        self.settle();
    }

    fn check_rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        if !self.names.contains_key(from) {
            return Err(FileError::NoSuchFile);
        }
        check_name(to)?;
        let is_replacing = from != to && self.names.contains_key(to);
        let grows = to.len().saturating_sub(from.len()) as u64;
        if !is_replacing && !self.has_metadata_room(grows) {
            return Err(FileError::TooManyFiles);
        }
        Ok(())
    }

    /// Forgets a file, and ends its requests. Returns what it has on the media, and whether the records have it. Its name
    /// is the caller's affair.
    fn drop_file(&mut self, id: FileId) -> (Vec<Run>, bool) {
        let mut file = self.files.remove(&id).expect("a name belongs to a file");
        self.snapshot_bytes -= cost(&file.meta.name) + EXTENT_COST_BYTES * file.meta.extents.count() as u64;
        let mut runs: Vec<Run> = file.meta.extents.iter().map(|extent| extent.run).collect();
        if let Some(mut writer) = file.writer.take() {
            self.snapshot_bytes -= EXTENT_COST_BYTES * writer.chunks.len() as u64;
            runs.extend(writer.chunks.iter().filter_map(|chunk| match chunk.stage {
                ChunkStage::Done(run) => Some(run),
                // What is under way is released when it ends.
                ChunkStage::Waiting | ChunkStage::UnderWay(_) => None,
            }));
            if let Some(zone) = writer.zone.take() {
                self.zones.let_go(zone);
            }
            if writer.is_waiting_for_zone {
                self.stop_waiting(id);
            }
            for append in writer.appends {
                self.end(append.request, Err(FileError::NoSuchFile));
            }
            for sync in writer.syncs {
                self.end(sync.request, Err(FileError::NoSuchFile));
            }
        }
        (runs, file.is_recorded)
    }

    /// Gives back what belongs to nobody any more.
    pub(super) fn release(&mut self, runs: &[Run]) {
        for run in runs {
            self.zones.release(run);
        }
    }
}

/// Bytes that a file of this name takes in a snapshot, its extents not counted.
pub(super) fn cost(name: &str) -> u64 {
    FILE_COST_BYTES + name.len() as u64
}

fn check_name(name: &str) -> Result<(), FileError> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) { Ok(()) } else { Err(FileError::NameTooLong) }
}
