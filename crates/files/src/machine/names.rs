//! Names: create, delete, rename.

use crate::{FileError, FileId, FileStore, Lifetime, RequestId};

use super::Phase;
use super::files::{File, Removed};
use super::log::Waiter;
use crate::extents::Run;

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
        if let Some(error) = self.log.failed() {
            return Err(error.clone());
        }
        self.files.create(name, lifetime)
    }

    /// The file with a name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<FileId> {
        self.files.lookup(name)
    }

    /// All files, in the order of their names.
    pub fn names(&self) -> impl Iterator<Item = (&str, FileId)> {
        self.files.names()
    }

    /// Bytes of acknowledged appends; `None` if the file does not exist. A part of a failed append
    /// may be included.
    #[must_use]
    pub fn len_bytes(&self, file: FileId) -> Option<u64> {
        self.files.get(file).map(File::len_bytes)
    }

    /// Deletes a file. The name is free immediately; the request ends when that is durable.
    /// Outstanding requests for the file end with [`FileError::NoSuchFile`]; reads in flight
    /// continue.
    pub fn delete(&mut self, request: RequestId, name: &str) {
        if !self.admit_change(request) {
            return;
        }
        let Some((id, mut removed)) = self.files.delete(name) else {
            return self.end(request, Err(FileError::NoSuchFile));
        };
        self.on_removed(id, &mut removed);
        if removed.is_recorded {
            let lsn = self.files.record_delete(&mut self.log, id);
            self.when_durable(lsn, Waiter::Release(removed.runs));
        } else {
            self.release(&removed.runs);
        }
        // If the file is not recorded, an earlier file of this name may still be.
        self.when_durable(self.files.names_lsn(), Waiter::Request(request));
        self.make_progress();
    }

    /// Renames a file, and deletes an existing file of the new name, in one step. The names change
    /// immediately; the request ends when that is durable. It does not make unsynced data durable.
    pub fn rename(&mut self, request: RequestId, from: &str, to: &str) {
        if !self.admit_change(request) {
            return;
        }
        let replaced = self.files.lookup(to);
        let (id, mut removed) = match self.files.rename(from, to) {
            Ok(renamed) => renamed,
            Err(error) => return self.end(request, Err(error)),
        };
        if let Some((replaced, removed)) = replaced.zip(removed.as_mut()) {
            self.on_removed(replaced, removed);
        }
        let lsn = self.files.record_rename(&mut self.log, id, to);
        if let Some(removed) = removed {
            // Also if the file is not recorded: a rename to its name is one step.
            self.when_durable(lsn, Waiter::Release(removed.runs));
        }
        self.when_durable(lsn, Waiter::Request(request));
        self.make_progress();
    }

    /// A file was removed: it holds no zone, and its requests end.
    fn on_removed(&mut self, id: FileId, removed: &mut Removed) {
        if let Some(zone) = removed.zone {
            self.zones.clear_holder(zone);
        }
        if removed.is_waiting_for_zone {
            self.stop_waiting(id);
        }
        for request in removed.requests.drain(..) {
            self.end(request, Err(FileError::NoSuchFile));
        }
    }

    /// Frees runs that no file uses any more.
    pub(super) fn release(&mut self, runs: &[Run]) {
        for run in runs {
            self.zones.release(run);
        }
    }
}
