//! One file: its bytes as the cache has them, and what the medium has where that differs.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::Prng;

use super::PAGE;

/// A file in the cache and on the medium.
#[derive(Clone, Debug, Default)]
pub(super) struct SimFile {
    pub(super) bytes: Vec<u8>,
    /// Pages that a sync will write.
    dirty: BTreeMap<usize, Page>,
    /// What the medium has of pages that a sync failed to write: it may be older than the cache.
    clean: BTreeMap<usize, Vec<u8>>,
    /// Pages that take space.
    pub(super) allocated: BTreeSet<usize>,
}

/// A page that was written since it was last synced.
#[derive(Clone, Debug)]
struct Page {
    durable: Vec<u8>,
    /// Its states since, with the tick of each.
    versions: Vec<(u64, Vec<u8>)>,
}

impl SimFile {
    fn page(&self, page: usize) -> Vec<u8> {
        let end = self.bytes.len().min((page + 1) * PAGE);
        self.bytes[page * PAGE..end].to_vec()
    }

    fn put(&mut self, page: usize, contents: &[u8]) {
        // What was kept may be from before the file was lengthened or cut.
        let start = page * PAGE;
        let end = self.bytes.len().min(start + PAGE);
        if start < end {
            let kept = contents.len().min(end - start);
            self.bytes[start..start + kept].copy_from_slice(&contents[..kept]);
            self.bytes[start + kept..end].fill(0);
        }
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
            let durable = self.clean.remove(&page);
            if !self.dirty.contains_key(&page) {
                let durable = durable.unwrap_or_else(|| self.page(page));
                self.dirty.insert(page, Page { durable, versions: Vec::new() });
            }
        }
        change(&mut self.bytes[offset..offset + length]);
        for page in pages {
            let now = self.page(page);
            self.dirty.get_mut(&page).expect("it was just made dirty").versions.push((tick, now));
        }
    }

    pub(super) fn write(&mut self, tick: u64, offset: usize, all: &[u8]) {
        if !all.is_empty() {
            self.allocated.extend(offset / PAGE..(offset + all.len()).div_ceil(PAGE));
        }
        self.change(tick, offset, all.len(), |bytes| bytes.copy_from_slice(all));
    }

    /// Pages of the range take space from now on, and read as before.
    pub(super) fn allocate(&mut self, offset: usize, length: usize) {
        self.allocated.extend(offset / PAGE..(offset + length).div_ceil(PAGE));
    }

    /// The first offset from `offset` on that lies in a page with space, or with bytes that somebody else put there.
    pub(super) fn next_data(&self, offset: usize) -> Option<usize> {
        let mut pages = offset / PAGE..self.bytes.len().div_ceil(PAGE);
        let is_hole = |page: usize| {
            let end = self.bytes.len().min((page + 1) * PAGE);
            !self.allocated.contains(&page) && self.bytes[page * PAGE..end].iter().all(|&byte| byte == 0)
        };
        pages.find(|&page| !is_hole(page)).map(|page| offset.max(page * PAGE))
    }

    pub(super) fn punch_hole(&mut self, tick: u64, offset: usize, length: usize) {
        let length = length.min(self.bytes.len().saturating_sub(offset));
        let end = offset + length;
        // Of a page that the hole covers in part, and of the last one of the file, the rest stays.
        let whole = offset.div_ceil(PAGE)..if end == self.bytes.len() { end.div_ceil(PAGE) } else { end / PAGE };
        self.allocated.retain(|page| !whole.contains(page));
        self.change(tick, offset, length, |bytes| bytes.fill(0));
    }

    /// How many bytes of a write find the pages that they need, up to the first that does not.
    pub(super) fn space_at(&self, offset: usize, length: usize) -> usize {
        let end = offset + length;
        let missing = (offset / PAGE..end.div_ceil(PAGE)).find(|page| !self.allocated.contains(page));
        missing.map_or(length, |page| (page * PAGE).saturating_sub(offset))
    }

    pub(super) fn set_length(&mut self, length: usize) {
        self.bytes.resize(length, 0);
        let pages = length.div_ceil(PAGE);
        self.dirty.retain(|page, _| *page < pages);
        self.clean.retain(|page, _| *page < pages);
        self.allocated.retain(|page| *page < pages);
    }

    pub(super) fn sync(&mut self, until: u64) {
        self.dirty.retain(|_, page| {
            if let Some(last) = page.versions.iter().rposition(|(tick, _)| *tick <= until) {
                page.durable = page.versions.remove(last).1;
                page.versions.retain(|(tick, _)| *tick > until);
            }
            !page.versions.is_empty()
        });
    }

    /// Pages that the sync was to write are clean, and each is on the medium or is not.
    pub(super) fn fail_sync(&mut self, until: u64, prng: &mut Prng) {
        for (page, Page { durable, versions }) in std::mem::take(&mut self.dirty) {
            let is_newer = versions.last().is_some_and(|(tick, _)| *tick > until);
            if is_newer {
                self.dirty.insert(page, Page { durable, versions });
            } else if prng.chance(1, 2) {
                self.clean.insert(page, durable);
            }
        }
    }

    pub(super) fn forget_failed_syncs(&mut self, prng: &mut Prng) -> bool {
        let clean = std::mem::take(&mut self.clean);
        let any = !clean.is_empty();
        for (page, durable) in clean {
            if prng.chance(1, 2) {
                self.put(page, &durable);
            }
        }
        any
    }

    pub(super) fn lose_power(&mut self, prng: &mut Prng) {
        for (page, durable) in std::mem::take(&mut self.clean) {
            self.put(page, &durable);
        }
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
            self.put(page, kept);
        }
    }

    /// Everything in the cache is on the medium.
    pub(super) fn settle(&mut self) {
        self.dirty.clear();
        self.clean.clear();
    }
}
