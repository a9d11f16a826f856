//! One simulated file: its bytes in the page cache, and the pages on the medium that differ.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zonda_zoned::Prng;

use crate::limits::PAGE_BYTES;
use crate::{FileError, FileOperation, ImageFile};

/// The unit in which files reach the medium.
pub const PAGE: usize = PAGE_BYTES as usize;

/// A file in the cache and on the medium.
#[derive(Clone, Debug, Default)]
pub struct SimFile {
    /// The bytes in the cache. A direct change also changes the medium.
    pub bytes: Vec<u8>,
    /// Pages that a sync will write.
    dirty: BTreeMap<usize, Page>,
    /// Pages on the medium that a failed sync did not write: they may be older than the cache.
    clean: BTreeMap<usize, Contents>,
    /// Allocated pages in the cache.
    pub allocated: BTreeSet<usize>,
}

/// A page that was written since it was last synced.
#[derive(Clone, Debug)]
struct Page {
    durable: Contents,
    /// Its versions since, with the tick of each.
    versions: Vec<(u64, Contents)>,
}

/// The contents of a page.
#[derive(Clone, Debug)]
struct Contents {
    bytes: Vec<u8>,
    is_allocated: bool,
}

impl SimFile {
    fn page(&self, page: usize) -> Contents {
        let end = self.bytes.len().min((page + 1) * PAGE);
        Contents { bytes: self.bytes[page * PAGE..end].to_vec(), is_allocated: self.allocated.contains(&page) }
    }

    fn put(&mut self, page: usize, contents: &Contents) {
        // The saved page may be from before the file was extended or truncated.
        let start = page * PAGE;
        let end = self.bytes.len().min(start + PAGE);
        if start < end {
            let kept = contents.bytes.len().min(end - start);
            self.bytes[start..start + kept].copy_from_slice(&contents.bytes[..kept]);
            self.bytes[start + kept..end].fill(0);
            if contents.is_allocated {
                self.allocated.insert(page);
            } else {
                self.allocated.remove(&page);
            }
        }
    }

    fn change(&mut self, tick: u64, offset: usize, length: usize, change: impl FnOnce(&mut SimFile)) {
        if length == 0 {
            return;
        }
        if self.bytes.len() < offset + length {
            self.bytes.resize(offset + length, 0);
        }
        let pages = offset / PAGE..(offset + length).div_ceil(PAGE);
        for page in pages.clone() {
            let durable = self.clean.remove(&page);
            if !self.dirty.contains_key(&page) {
                let durable = durable.unwrap_or_else(|| self.page(page));
                self.dirty.insert(page, Page { durable, versions: Vec::new() });
            }
        }
        change(self);
        for page in pages {
            let now = self.page(page);
            self.dirty.get_mut(&page).expect("it was just made dirty").versions.push((tick, now));
        }
    }

    /// Carries out an operation on this file that was issued at `issued`; a change happens at
    /// `now`.
    ///
    /// # Errors
    /// For a read past the end of the file.
    pub fn carry_out(&mut self, operation: &FileOperation, now: u64, issued: u64) -> Result<Bytes, FileError> {
        match operation {
            FileOperation::Read { offset, length, .. } => {
                let range = *offset as usize..*offset as usize + length;
                let found = self.bytes.get(range).map(Bytes::copy_from_slice);
                return found.ok_or_else(|| FileError::Other("unexpected end of file".to_owned()));
            }
            FileOperation::Write { offset, pieces, .. } => self.write(now, *offset as usize, &pieces.concat()),
            FileOperation::Sync { .. } => self.sync(issued),
            FileOperation::PunchHole { offset, length, .. } => {
                self.punch_hole(now, *offset as usize, *length as usize);
            }
            FileOperation::Allocate { offset, length, .. } => self.allocate(now, *offset as usize, *length as usize),
        }
        Ok(Bytes::new())
    }

    /// Carries out what a kill leaves of an operation: nothing, all, or the beginning of a write.
    /// Blocks and tags end at a page boundary, as the kernel copies them; journal and checkpoint
    /// anywhere.
    pub fn carry_out_in_part(&mut self, operation: &FileOperation, now: u64, prng: &mut Prng) {
        match operation {
            FileOperation::Write { file: name, offset, pieces } => {
                let (offset, all) = (*offset as usize, pieces.concat());
                let mut length = match prng.below(3) {
                    0 => 0,
                    1 => prng.below(all.len() as u64 + 1) as usize,
                    _ => all.len(),
                };
                if length < all.len() && matches!(name, ImageFile::Data | ImageFile::Tags) {
                    length = ((offset + length) / PAGE * PAGE).saturating_sub(offset);
                }
                self.write(now, offset, &all[..length]);
            }
            FileOperation::PunchHole { offset, length, .. } if prng.chance(1, 2) => {
                self.punch_hole(now, *offset as usize, *length as usize);
            }
            _ => {}
        }
    }

    /// Whether an operation needs more pages that are not allocated than there are free ones.
    pub fn lacks_space(&self, operation: &FileOperation, free_pages: u64) -> bool {
        let (offset, length) = match operation {
            FileOperation::Write { offset, pieces, .. } => (*offset, pieces.iter().map(Bytes::len).sum()),
            FileOperation::Allocate { offset, length, .. } => (*offset, *length as usize),
            _ => return false,
        };
        self.space_at(offset as usize, length, free_pages) < length
    }

    /// Reads up to the end of the file.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let found = rest.len().min(buffer.len());
        buffer[..found].copy_from_slice(&rest[..found]);
        found
    }

    /// Writes to the cache at a tick.
    pub fn write(&mut self, tick: u64, offset: usize, all: &[u8]) {
        let end = offset + all.len();
        self.change(tick, offset, all.len(), |file| {
            file.allocated.extend(offset / PAGE..end.div_ceil(PAGE));
            file.bytes[offset..end].copy_from_slice(all);
        });
    }

    /// Allocates the pages of the range at a tick; they read as before.
    fn allocate(&mut self, tick: u64, offset: usize, length: usize) {
        let pages = offset / PAGE..(offset + length).div_ceil(PAGE);
        self.change(tick, offset, length, |file| file.allocated.extend(pages));
    }

    /// The first offset from `offset` on in an allocated page, or in a page that a test filled
    /// directly.
    pub fn next_data(&self, offset: usize) -> Option<usize> {
        let mut pages = offset / PAGE..self.bytes.len().div_ceil(PAGE);
        let is_hole = |page: usize| {
            let end = self.bytes.len().min((page + 1) * PAGE);
            !self.allocated.contains(&page) && self.bytes[page * PAGE..end].iter().all(|&byte| byte == 0)
        };
        pages.find(|&page| !is_hole(page)).map(|page| offset.max(page * PAGE))
    }

    fn punch_hole(&mut self, tick: u64, offset: usize, length: usize) {
        let length = length.min(self.bytes.len().saturating_sub(offset));
        let end = offset + length;
        // Pages that the hole covers in part, and the last one of the file, stay allocated.
        let whole = offset.div_ceil(PAGE)..if end == self.bytes.len() { end.div_ceil(PAGE) } else { end / PAGE };
        self.change(tick, offset, length, |file| {
            file.allocated.retain(|page| !whole.contains(page));
            file.bytes[offset..end].fill(0);
        });
    }

    /// How many bytes of a write fit in allocated pages and so many free ones.
    pub fn space_at(&self, offset: usize, length: usize, free_pages: u64) -> usize {
        let pages = offset / PAGE..(offset + length).div_ceil(PAGE);
        let missing = pages.filter(|page| !self.allocated.contains(page)).nth(free_pages as usize);
        missing.map_or(length, |page| (page * PAGE).saturating_sub(offset))
    }

    /// Truncates the file, or extends it with zeros that take no space.
    pub fn set_length(&mut self, length: usize) {
        self.bytes.resize(length, 0);
        let pages = length.div_ceil(PAGE);
        self.dirty.retain(|page, _| *page < pages);
        self.clean.retain(|page, _| *page < pages);
        self.allocated.retain(|page| *page < pages);
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

    /// Fails a sync: its pages become clean, and each is on the medium or not.
    pub fn fail_sync(&mut self, until: u64, prng: &mut Prng) {
        for (page, Page { durable, versions }) in std::mem::take(&mut self.dirty) {
            let is_newer = versions.last().is_some_and(|(tick, _)| *tick > until);
            if is_newer {
                self.dirty.insert(page, Page { durable, versions });
            } else if prng.chance(1, 2) {
                self.clean.insert(page, durable);
            }
        }
    }

    /// Evicts pages whose sync failed from the cache: some read as on the medium again. Returns
    /// whether there were any.
    pub fn forget_failed_syncs(&mut self, prng: &mut Prng) -> bool {
        let clean = std::mem::take(&mut self.clean);
        let any = !clean.is_empty();
        for (page, durable) in clean {
            if prng.chance(1, 2) {
                self.put(page, &durable);
            }
        }
        any
    }

    /// Replaces each unsynced page by its synced version, or by a later one.
    pub fn lose_power(&mut self, prng: &mut Prng) {
        for (page, durable) in std::mem::take(&mut self.clean) {
            self.put(page, &durable);
        }
        // Sometimes nearly all pages survive, sometimes nearly none.
        let survives = prng.below(5);
        for (page, Page { durable, versions }) in std::mem::take(&mut self.dirty) {
            let kept = if prng.below(4) < survives {
                let newest = prng.chance(3, 4);
                let choice = if newest { versions.len() - 1 } else { prng.below(versions.len() as u64) as usize };
                &versions[choice].1
            } else {
                &durable
            };
            self.put(page, kept);
        }
    }

    /// Whether everything in the cache is on the medium.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.dirty.is_empty() && self.clean.is_empty()
    }

    /// Writes all pages of the cache to the medium.
    pub fn sync_all(&mut self) {
        self.dirty.clear();
        self.clean.clear();
    }

    /// A loss of power that loses all unsynced changes.
    pub fn forget_unsynced(&mut self) {
        for (page, Page { durable, .. }) in std::mem::take(&mut self.dirty) {
            self.put(page, &durable);
        }
    }
}
