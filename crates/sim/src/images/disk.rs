//! The files of an image on a simulated disk: a page cache over a medium, page by page.
//!
//! A write goes to the cache; a sync writes the pages that were dirtied before it to the medium; a
//! power loss leaves each page that was written since in the state of the medium or in any later
//! state of the cache. If a sync fails, its pages are marked clean, and may or may not be on the
//! medium (as Linux does): no later sync writes them until they are dirtied again.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_image::testing::SimFile;
use zonda_image::{FileError, FileOperation, Files, ImageFile};
use zonda_zoned::Prng;

/// The faults that are injected currently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Only operations on this file fail; `None`: on any file.
    pub(super) file: Option<ImageFile>,
    /// On average one of this many writes and holes fails; 0: none.
    pub(super) writes: u64,
    /// On average one of this many syncs fails; 0: none.
    pub(super) syncs: u64,
    /// On average one of this many reads fails; 0: none.
    pub(super) reads: u64,
    /// Only one operation fails.
    pub(super) once: bool,
    /// The file system has no free page: only writes to allocated pages, holes and syncs succeed.
    pub(crate) is_full: bool,
}

/// A failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(super) operation: FileOperation,
    pub(crate) error: FileError,
}

/// Five files, a cache and a medium.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    files: BTreeMap<ImageFile, SimFile>,
    /// Counts changes; a sync covers those before the tick at which it was submitted.
    pub(super) tick: u64,
    pub(crate) faults: Faults,
    /// Pages that a full file system still has, to which holes add; `None`: it stays full.
    pub(crate) free_pages: Option<u64>,
    prng: Prng,
    /// Number of blocking changes until the process is killed during one.
    pub(super) changes_left: Option<u64>,
    /// Failed operations since the last check.
    pub(crate) failed: Vec<Failed>,
}

impl Disk {
    pub(crate) fn new(prng: Prng) -> Disk {
        Disk {
            files: BTreeMap::new(),
            tick: 0,
            faults: Faults::default(),
            free_pages: None,
            prng,
            changes_left: None,
            failed: Vec::new(),
        }
    }

    pub(super) fn bytes(&mut self, file: ImageFile) -> &mut Vec<u8> {
        &mut self.files.entry(file).or_default().bytes
    }

    /// Allocated pages of a file.
    pub(super) fn allocated(&self, file: ImageFile) -> Vec<usize> {
        self.files.get(&file).map(|file| file.allocated.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether the cache and the medium have the same state of a file.
    pub(super) fn is_synced(&self, file: ImageFile) -> bool {
        self.files.get(&file).is_none_or(SimFile::is_synced)
    }

    /// Restores files from a copy, cache and medium alike.
    pub(super) fn restore(&mut self, files: &[ImageFile], copy: &Disk) {
        for file in files {
            if let Some(held) = copy.files.get(file) {
                let mut held = held.clone();
                held.sync_all();
                self.files.insert(*file, held);
            }
        }
    }

    /// Executes an operation that was submitted at `tick`.
    pub(crate) fn carry_out(&mut self, operation: &FileOperation, tick: u64) -> Result<Bytes, FileError> {
        let before = self.allocated_pages();
        let result = self.execute(operation, tick);
        if self.faults.is_full
            && let Some(free) = self.free_pages
        {
            let left = (free + before).checked_sub(self.allocated_pages());
            self.free_pages = Some(left.expect("a full file system gives no more than it has"));
        }
        result
    }

    fn allocated_pages(&self) -> u64 {
        self.files.values().map(|file| file.allocated.len() as u64).sum()
    }

    fn execute(&mut self, operation: &FileOperation, tick: u64) -> Result<Bytes, FileError> {
        if let Some(error) = self.failure_of(operation) {
            match operation {
                FileOperation::Sync { file } => {
                    self.files.entry(*file).or_default().fail_sync(tick, &mut self.prng);
                }
                FileOperation::Write { file, offset, pieces } if error == FileError::StorageFull => {
                    self.tick += 1;
                    let file = self.files.entry(*file).or_default();
                    let (offset, all) = (*offset as usize, pieces.concat());
                    let fits = file.space_at(offset, all.len(), self.free_pages.unwrap_or(0));
                    file.write(self.tick, offset, &all[..fits]);
                }
                _ => self.carry_out_in_part(operation),
            }
            self.failed.push(Failed { operation: operation.clone(), error: error.clone() });
            return Err(error);
        }
        self.tick += 1;
        self.files.entry(operation.file()).or_default().carry_out(operation, self.tick, tick)
    }

    /// The error of an operation, if it fails.
    fn failure_of(&mut self, operation: &FileOperation) -> Option<FileError> {
        let faults = self.faults;
        let free = self.free_pages.unwrap_or(0);
        if faults.is_full && self.files.entry(operation.file()).or_default().lacks_space(operation, free) {
            return Some(FileError::StorageFull);
        }
        if faults.file.is_some_and(|file| file != operation.file()) {
            return None;
        }
        let one_in = match operation {
            FileOperation::Read { .. } => faults.reads,
            FileOperation::Write { .. } | FileOperation::PunchHole { .. } | FileOperation::Allocate { .. } => {
                faults.writes
            }
            FileOperation::Sync { .. } => faults.syncs,
        };
        if one_in == 0 || !self.prng.chance(1, one_in) {
            return None;
        }
        if faults.once {
            self.faults = Faults { is_full: faults.is_full, ..Faults::default() };
        }
        Some(FileError::Other("an injected error".to_owned()))
    }

    /// Executes an operation in part, as a kill may leave it.
    pub(super) fn carry_out_in_part(&mut self, operation: &FileOperation) {
        self.tick += 1;
        let file = self.files.entry(operation.file()).or_default();
        file.carry_out_in_part(operation, self.tick, &mut self.prng);
    }

    /// Loses unsynced pages at random.
    pub(crate) fn lose_power(&mut self) {
        let Disk { files, prng, .. } = self;
        files.values_mut().for_each(|file| file.lose_power(prng));
    }

    /// Evicts pages whose sync failed from the cache, so that the state of the medium becomes
    /// visible. Returns whether there were any.
    pub(super) fn forget_failed_syncs(&mut self) -> bool {
        let Disk { files, prng, .. } = self;
        files.values_mut().map(|file| u32::from(file.forget_failed_syncs(prng))).sum::<u32>() > 0
    }

    fn change(&mut self, operation: &FileOperation) -> Result<(), FileError> {
        if let Some(left) = self.changes_left {
            let killed = FileError::Other("the process was killed".to_owned());
            let Some(left) = left.checked_sub(1) else { return Err(killed) };
            self.changes_left = Some(left);
            if left == 0 {
                self.carry_out_in_part(operation);
                return Err(killed);
            }
        }
        self.carry_out(operation, self.tick).map(|_| ())
    }
}

impl Files for Disk {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let operation = FileOperation::Read { file, offset, length: buffer.len() };
        if let Some(error) = self.failure_of(&operation) {
            self.failed.push(Failed { operation, error: error.clone() });
            return Err(error);
        }
        let held = self.files.get(&file).ok_or(FileError::Missing)?;
        Ok(held.read_at(offset, buffer))
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let pieces = vec![Bytes::copy_from_slice(bytes)];
        self.change(&FileOperation::Write { file, offset, pieces })
    }

    fn sync(&mut self, file: ImageFile) -> Result<(), FileError> {
        self.change(&FileOperation::Sync { file })
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        self.files.entry(file).or_default().set_length(length as usize);
        Ok(())
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        self.files.get(&file).map(|held| held.bytes.len() as u64).ok_or(FileError::Missing)
    }

    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        let held = self.files.get(&file).ok_or(FileError::Missing)?;
        Ok(held.next_data(offset as usize).map(|found| found as u64))
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.change(&FileOperation::PunchHole { file, offset, length })
    }
}
