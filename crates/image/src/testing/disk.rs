//! Five files in memory that remember what was synced, page by page.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use zonda_zoned::Prng;

use crate::limits::PAGE_BYTES;
use crate::{FileError, FileOperation, Files, ImageFile};

const PAGE: usize = PAGE_BYTES as usize;

/// What to do to writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The nth write to this file or hole in it from now on fails, counted from 0, after some of it is done.
    Write(ImageFile, u64),
    /// The nth sync of this file fails.
    Sync(ImageFile, u64),
    /// The file system is full, and copies what it writes: no write finds space. Holes and syncs need none.
    Full,
    /// The file system is full for this file, or for all: writes find no space for pages that have none.
    NoSpace(Option<ImageFile>),
    /// Each operation but reads fails once in so many.
    Often(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<ImageFile, SimFile>,
    /// Counts changes; a sync covers those before the tick at which it was handed out.
    pub(crate) tick: u64,
    pub(crate) fault: Option<Fault>,
    pub(crate) prng: Option<Prng>,
    /// Blocking operations that change something, until the program is killed.
    pub(crate) changes_left: Option<u64>,
    /// Bytes that blocking reads cannot have.
    pub(crate) unreadable: Option<(ImageFile, Range<u64>)>,
    /// Bytes of each file that were read with blocking calls.
    pub(crate) bytes_read: BTreeMap<ImageFile, u64>,
}

#[derive(Clone, Debug, Default)]
struct SimFile {
    bytes: Vec<u8>,
    dirty: BTreeMap<usize, Page>,
    /// Pages that have space on the medium.
    allocated: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
struct Page {
    durable: Vec<u8>,
    versions: Vec<(u64, Vec<u8>)>,
}

impl SimFile {
    fn page(&self, page: usize) -> Vec<u8> {
        let end = self.bytes.len().min((page + 1) * PAGE);
        self.bytes[page * PAGE..end].to_vec()
    }

    /// Writing to this range takes space that the file does not have yet.
    fn lacks_space(&self, range: Range<usize>) -> bool {
        pages(&range).any(|page| !self.allocated.contains(&page))
    }

    fn allocate(&mut self, range: Range<usize>) {
        self.allocated.extend(pages(&range));
    }

    /// Pages that lie in the range whole give their space back.
    fn free(&mut self, range: &Range<usize>) {
        self.allocated.retain(|page| page * PAGE < range.start || (page + 1) * PAGE > range.end);
    }

    fn change(&mut self, tick: u64, offset: usize, length: usize, change: impl FnOnce(&mut [u8])) {
        if length == 0 {
            return;
        }
        if self.bytes.len() < offset + length {
            self.bytes.resize(offset + length, 0);
        }
        let pages = offset / PAGE..(offset + length).div_ceil(PAGE);
        for page in pages.clone() {
            let durable = self.page(page);
            self.dirty.entry(page).or_insert(Page { durable, versions: Vec::new() });
        }
        change(&mut self.bytes[offset..offset + length]);
        for page in pages {
            let now = self.page(page);
            self.dirty.get_mut(&page).unwrap().versions.push((tick, now));
        }
    }

    fn sync(&mut self, until: u64) {
        self.dirty.retain(|_, page| {
            if let Some(last) = page.versions.iter().rposition(|(tick, _)| *tick <= until) {
                page.durable = page.versions.remove(last).1;
                page.versions.retain(|(tick, _)| *tick > until);
            }
            !page.versions.is_empty()
        });
    }

    fn lose_power(&mut self, prng: &mut Prng) {
        // Sometimes nearly all is there, sometimes nearly nothing.
        let survives = prng.below(5);
        for (page, Page { durable, versions }) in std::mem::take(&mut self.dirty) {
            let kept = if prng.below(4) < survives {
                let newest = prng.chance(3, 4);
                let choice = if newest { versions.len() - 1 } else { prng.below(versions.len() as u64) as usize };
                &versions[choice].1
            } else {
                &durable
            };
            // The durable state may be from before the file was lengthened.
            let mut kept = kept.clone();
            let end = self.bytes.len().min((page + 1) * PAGE);
            kept.resize(end - page * PAGE, 0);
            self.bytes[page * PAGE..end].copy_from_slice(&kept);
        }
    }
}

/// The pages that a range touches.
fn pages(range: &Range<usize>) -> Range<usize> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk::default()
    }

    pub(crate) fn bytes(&mut self, file: ImageFile) -> &mut Vec<u8> {
        &mut self.files.entry(file).or_default().bytes
    }

    /// Carries an operation out that was handed out at `tick`.
    pub(crate) fn carry_out(&mut self, operation: &FileOperation, tick: u64) -> Result<Bytes, FileError> {
        let failing = self.is_to_fail(operation);
        if let Some(error) = failing {
            // Where there is no space for a page, none of it is written.
            if !matches!(self.fault, Some(Fault::NoSpace(_))) {
                let mut prng = self.prng.take().unwrap_or_else(|| Prng::new(1));
                self.carry_out_in_part(operation, &mut prng);
                self.prng = Some(prng);
            }
            return Err(error);
        }
        self.tick += 1;
        let now = self.tick;
        let file = self.files.entry(operation.file()).or_default();
        match operation {
            FileOperation::Read { offset, length, .. } => {
                let range = *offset as usize..*offset as usize + length;
                return file.bytes.get(range).map(Bytes::copy_from_slice).ok_or(FileError::Other("short".into()));
            }
            FileOperation::Write { offset, pieces, .. } => {
                let all = pieces.concat();
                file.allocate(*offset as usize..*offset as usize + all.len());
                file.change(now, *offset as usize, all.len(), |bytes| bytes.copy_from_slice(&all));
            }
            FileOperation::Sync { .. } => file.sync(tick),
            FileOperation::PunchHole { offset, length, .. } => {
                file.change(now, *offset as usize, *length as usize, |bytes| bytes.fill(0));
                file.free(&(*offset as usize..(*offset + *length) as usize));
            }
            FileOperation::Allocate { offset, length, .. } => {
                file.allocate(*offset as usize..(*offset + *length) as usize);
            }
        }
        Ok(Bytes::new())
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
            (Fault::Sync(wanted, left), FileOperation::Sync { file }) if *file == wanted => {
                self.fault = left.checked_sub(1).map(|left| Fault::Sync(wanted, left));
                left == 0
            }
            (Fault::Full, FileOperation::Write { .. } | FileOperation::Allocate { .. }) => {
                return Some(FileError::StorageFull);
            }
            (Fault::NoSpace(Some(wanted)), operation) if operation.file() != wanted => false,
            (Fault::NoSpace(_), FileOperation::Write { file, offset, pieces }) => {
                let length: usize = pieces.iter().map(Bytes::len).sum();
                return self.lacks_space(*file, *offset, length as u64).then_some(FileError::StorageFull);
            }
            (Fault::NoSpace(_), FileOperation::Allocate { file, offset, length }) => {
                return self.lacks_space(*file, *offset, *length).then_some(FileError::StorageFull);
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

    fn lacks_space(&self, file: ImageFile, offset: u64, length: u64) -> bool {
        self.files.get(&file).is_none_or(|file| file.lacks_space(offset as usize..(offset + length) as usize))
    }

    /// What a kill leaves of an operation: nothing, all, or the beginning of a write. Blocks and tags end at a page, as
    /// the kernel copies them; journal and checkpoint anywhere.
    pub(crate) fn carry_out_in_part(&mut self, operation: &FileOperation, prng: &mut Prng) {
        self.tick += 1;
        let now = self.tick;
        let FileOperation::Write { file: name, offset, pieces } = operation else {
            if prng.chance(1, 2) && matches!(operation, FileOperation::PunchHole { .. }) {
                let fault = self.fault.take();
                self.carry_out(operation, now).unwrap();
                self.fault = fault;
            }
            return;
        };
        let all = pieces.concat();
        let mut length = match prng.below(3) {
            0 => 0,
            1 => prng.below(all.len() as u64 + 1) as usize,
            _ => all.len(),
        };
        if length < all.len() && matches!(name, ImageFile::Data | ImageFile::Tags) {
            let end = (*offset as usize + length) / PAGE * PAGE;
            length = end.saturating_sub(*offset as usize);
        }
        let file = self.files.entry(*name).or_default();
        file.allocate(*offset as usize..*offset as usize + length);
        file.change(now, *offset as usize, length, |bytes| bytes.copy_from_slice(&all[..length]));
    }

    pub(crate) fn lose_power(&mut self, prng: &mut Prng) {
        self.files.values_mut().for_each(|file| file.lose_power(prng));
    }

    /// A loss of power that takes everything that was not synced.
    pub(crate) fn forget_unsynced(&mut self) {
        for file in self.files.values_mut() {
            for (page, Page { durable, .. }) in std::mem::take(&mut file.dirty) {
                let end = file.bytes.len().min((page + 1) * PAGE);
                file.bytes[page * PAGE..end].copy_from_slice(&durable);
            }
        }
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
        let rest = held.bytes.get(offset as usize..).unwrap_or_default();
        let found = rest.len().min(buffer.len());
        buffer[..found].copy_from_slice(&rest[..found]);
        *self.bytes_read.entry(file).or_default() += found as u64;
        Ok(found)
    }

    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        let held = self.files.get(&file).ok_or(FileError::Missing)?;
        let mut pages = pages(&(offset as usize..held.bytes.len()));
        // Tests put bytes where nothing was written.
        let next = pages.find(|page| held.allocated.contains(page) || held.page(*page).iter().any(|&byte| byte != 0));
        Ok(next.map(|page| offset.max((page * PAGE) as u64)))
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let pieces = vec![Bytes::copy_from_slice(bytes)];
        self.change_blocking(&FileOperation::Write { file, offset, pieces })
    }

    fn sync(&mut self, file: ImageFile) -> Result<(), FileError> {
        self.change_blocking(&FileOperation::Sync { file })
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        self.files.entry(file).or_default().bytes.resize(length as usize, 0);
        Ok(())
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        self.files.get(&file).map(|held| held.bytes.len() as u64).ok_or(FileError::Missing)
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.change_blocking(&FileOperation::PunchHole { file, offset, length })
    }
}
