//! Names: create, delete, rename.

use crate::extents::Run;
use crate::format::record::{EXTENT_COST_BYTES, FILE_COST_BYTES, Record};
use crate::limits::{FILES_MAX, NAME_BYTES_MAX};
use crate::{FileError, FileId, FileStore, Lifetime, RequestId};

use super::Phase;
use super::file::{ChunkStage, File};
use super::log::Waiter;

impl FileStore {
    /// Creates an empty file that accepts data. It exists immediately, and is durable with its
    /// first sync or close.
    ///
    /// # Errors
    /// [`FileError::Exists`], [`FileError::NameTooLong`] (also for a name without bytes),
    /// [`FileError::TooManyFiles`], [`FileError::NotReady`], and the error that ended the store.
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
        if !self.has_metadata_space(cost + EXTENT_COST_BYTES)
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

    /// The file with a name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// All files, in the order of their names.
    pub fn names(&self) -> impl Iterator<Item = (&str, FileId)> {
        self.names.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Bytes of acknowledged appends; `None` if the file does not exist. A part of a failed append
    /// may be included.
    #[must_use]
    pub fn len_bytes(&self, file: FileId) -> Option<u64> {
        self.files.get(&file).map(File::len_bytes)
    }

    /// Deletes a file. The name is free immediately; the request ends when that is durable.
    /// Outstanding requests for the file end with [`FileError::NoSuchFile`]; reads in flight
    /// continue.
    pub fn delete(&mut self, request: RequestId, name: &str) {
        if !self.admit_change(request) {
            return;
        }
        let Some(id) = self.names.remove(name) else { return self.end(request, Err(FileError::NoSuchFile)) };
        let (runs, is_recorded) = self.drop_file(id);
        if is_recorded {
            self.names_lsn = self.log.push(&Record::Deleted { file: id });
            self.when_durable(self.names_lsn, Waiter::Release(runs));
        } else {
            self.release(&runs);
        }
        // If the file is not recorded, an earlier file of this name may still be.
        self.when_durable(self.names_lsn, Waiter::Request(request));
        self.make_progress();
    }

    /// Renames a file, and deletes an existing file of the new name, in one step. The names change
    /// immediately; the request ends when that is durable. It does not make unsynced data durable.
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
        let lsn = self.log.push(&Record::Renamed { file: id, name: to });
        file.lsn = lsn;
        self.names_lsn = lsn;
        if let Some((runs, _)) = released {
            // Also if the file is not recorded: a rename to its name is one step.
            self.when_durable(lsn, Waiter::Release(runs));
        }
        self.when_durable(lsn, Waiter::Request(request));
        self.make_progress();
    }

    fn check_rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        if !self.names.contains_key(from) {
            return Err(FileError::NoSuchFile);
        }
        check_name(to)?;
        let is_replacing = from != to && self.names.contains_key(to);
        let grows = to.len().saturating_sub(from.len()) as u64;
        if !is_replacing && !self.has_metadata_space(grows) {
            return Err(FileError::TooManyFiles);
        }
        Ok(())
    }

    /// Removes a file, and ends its requests. Returns its runs on the media, and whether it is
    /// recorded. The caller removes its name.
    fn drop_file(&mut self, id: FileId) -> (Vec<Run>, bool) {
        let mut file = self.files.remove(&id).expect("a name belongs to a file");
        self.snapshot_bytes -= cost(&file.meta.name) + EXTENT_COST_BYTES * file.meta.extents.count() as u64;
        let mut runs: Vec<Run> = file.meta.extents.iter().map(|extent| extent.run).collect();
        if let Some(mut writer) = file.writer.take() {
            self.snapshot_bytes -= EXTENT_COST_BYTES * writer.chunks.len() as u64;
            runs.extend(writer.chunks.iter().filter_map(|chunk| match chunk.stage {
                ChunkStage::Done(run) => Some(run),
                // Writes in flight are released when they end.
                ChunkStage::Waiting | ChunkStage::InFlight(_) => None,
            }));
            if let Some(zone) = writer.zone.take() {
                self.zones.clear_holder(zone);
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

    /// Frees runs that no file uses any more.
    pub(super) fn release(&mut self, runs: &[Run]) {
        for run in runs {
            self.zones.release(run);
        }
    }
}

/// Bytes of a file with this name in a snapshot, without its extents.
pub(super) fn cost(name: &str) -> u64 {
    FILE_COST_BYTES + name.len() as u64
}

fn check_name(name: &str) -> Result<(), FileError> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) { Ok(()) } else { Err(FileError::NameTooLong) }
}
