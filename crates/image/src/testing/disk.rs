//! Five files in memory that track synced contents, page by page.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use zonda_zoned::Prng;

use super::SimFile;
use crate::{FileError, FileOperation, Files, ImageFile};

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The nth write to this file or hole in it from now on fails, counted from 0, after some of it
    /// is done.
    Write(ImageFile, u64),
    /// Every write to this file fails, and none of it is done.
    File(ImageFile),
    /// The nth sync of this file fails.
    Sync(ImageFile, u64),
    /// The file system is full, and copies on write: every write fails. Holes and syncs need no
    /// space.
    Full,
    /// The file system is full for this file, or for all: writes to unallocated pages fail.
    NoSpace(Option<ImageFile>),
    /// Each operation except reads fails once in so many.
    Often(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<ImageFile, SimFile>,
    /// Counts changes; a sync covers those before the tick at which it was issued.
    pub(crate) tick: u64,
    pub(crate) fault: Option<Fault>,
    pub(crate) prng: Option<Prng>,
    /// Blocking operations that change something, until the program is killed.
    pub(crate) changes_left: Option<u64>,
    /// Bytes that blocking reads cannot read.
    pub(crate) unreadable: Option<(ImageFile, Range<u64>)>,
    /// Bytes of each file that were read with blocking calls.
    pub(crate) bytes_read: BTreeMap<ImageFile, u64>,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk::default()
    }

    pub(crate) fn bytes(&mut self, file: ImageFile) -> &mut Vec<u8> {
        &mut self.files.entry(file).or_default().bytes
    }

    /// All of a file becomes a hole.
    pub(crate) fn lose_file(&mut self, file: ImageFile) {
        let held = self.files.entry(file).or_default();
        let length = held.bytes.len();
        *held = SimFile::default();
        held.set_length(length);
    }

    /// Carries out an operation that was issued at `tick`.
    pub(crate) fn carry_out(&mut self, operation: &FileOperation, tick: u64) -> Result<Bytes, FileError> {
        let failing = self.is_to_fail(operation);
        if let Some(error) = failing {
            // Where there is no space for a page, none of it is written.
            if !matches!(self.fault, Some(Fault::NoSpace(_) | Fault::File(_))) {
                let mut prng = self.prng.take().unwrap_or_else(|| Prng::new(1));
                self.carry_out_in_part(operation, &mut prng);
                self.prng = Some(prng);
            }
            return Err(error);
        }
        self.tick += 1;
        self.files.entry(operation.file()).or_default().carry_out(operation, self.tick, tick)
    }

    fn is_to_fail(&mut self, operation: &FileOperation) -> Option<FileError> {
        let fails = match (self.fault?, operation) {
            (_, FileOperation::Read { .. }) => false,
            (Fault::Write(wanted, left), FileOperation::Write { file, .. } | FileOperation::PunchHole { file, .. })
                if *file == wanted =>
            {
                self.fault = left.checked_sub(1).map(|left| Fault::Write(wanted, left));
                left == 0
            }
            (Fault::File(wanted), FileOperation::Write { file, .. }) => *file == wanted,
            (Fault::Sync(wanted, left), FileOperation::Sync { file }) if *file == wanted => {
                self.fault = left.checked_sub(1).map(|left| Fault::Sync(wanted, left));
                left == 0
            }
            (Fault::Full, FileOperation::Write { .. } | FileOperation::Allocate { .. }) => {
                return Some(FileError::StorageFull);
            }
            (Fault::NoSpace(Some(wanted)), operation) if operation.file() != wanted => false,
            (Fault::NoSpace(_), operation) => {
                let lacks_space = self.files.entry(operation.file()).or_default().lacks_space(operation, 0);
                return lacks_space.then_some(FileError::StorageFull);
            }
            (Fault::Often(one_in), _) => self.prng.get_or_insert_with(|| Prng::new(1)).chance(1, one_in),
            _ => false,
        };
        if !fails {
            return None;
        }
        let is_full = matches!(self.fault, Some(Fault::Often(_)));
        Some(if is_full { FileError::StorageFull } else { FileError::Other("an injected error".to_owned()) })
    }

    /// Carries out a part of an operation, as a kill does.
    pub(crate) fn carry_out_in_part(&mut self, operation: &FileOperation, prng: &mut Prng) {
        self.tick += 1;
        self.files.entry(operation.file()).or_default().carry_out_in_part(operation, self.tick, prng);
    }

    pub(crate) fn lose_power(&mut self, prng: &mut Prng) {
        self.files.values_mut().for_each(|file| file.lose_power(prng));
    }

    /// A loss of power that loses all unsynced changes.
    pub(crate) fn forget_unsynced(&mut self) {
        self.files.values_mut().for_each(SimFile::forget_unsynced);
    }

    fn change_blocking(&mut self, operation: &FileOperation) -> Result<(), FileError> {
        if let Some(left) = self.changes_left {
            let Some(left) = left.checked_sub(1) else { return Err(FileError::Other("killed".into())) };
            self.changes_left = Some(left);
            if left == 0 {
                let mut prng = self.prng.take().unwrap_or_else(|| Prng::new(1));
                self.carry_out_in_part(operation, &mut prng);
                self.prng = Some(prng);
                return Err(FileError::Other("killed".into()));
            }
        }
        self.carry_out(operation, self.tick).map(|_| ())
    }
}

impl Files for Disk {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let end = offset + buffer.len() as u64;
        if self.unreadable.as_ref().is_some_and(|(of, range)| *of == file && offset < range.end && range.start < end) {
            return Err(FileError::Other("input/output error".to_owned()));
        }
        let held = self.files.get(&file).ok_or(FileError::Missing)?;
        let found = held.read_at(offset, buffer);
        *self.bytes_read.entry(file).or_default() += found as u64;
        Ok(found)
    }

    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        let held = self.files.get(&file).ok_or(FileError::Missing)?;
        Ok(held.next_data(offset as usize).map(|found| found as u64))
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let pieces = vec![Bytes::copy_from_slice(bytes)];
        self.change_blocking(&FileOperation::Write { file, offset, pieces })
    }

    fn sync(&mut self, file: ImageFile) -> Result<(), FileError> {
        self.change_blocking(&FileOperation::Sync { file })
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        self.files.entry(file).or_default().set_length(length as usize);
        Ok(())
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        self.files.get(&file).map(|held| held.bytes.len() as u64).ok_or(FileError::Missing)
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.change_blocking(&FileOperation::PunchHole { file, offset, length })
    }
}
