//! Read-ahead: pages that follow those of a sequential reader are read before it asks for them.
//!
//! A read that begins in its zone where the last one ended is sequential. The second of them makes
//! the drive read a distance ahead, page by page; reads of these pages are served from the
//! controller's memory, or wait for the page if it is still on its way.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use zonda_zoned::ZoneIndex;

use crate::limits::READ_AHEAD_PAGES_MAX;
use crate::pending::{CommandKey, PageId, ReadChain, Reader};
use crate::ssd::Ssd;

/// The sequential reader of a zone.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    generation: u32,
    /// Where a read is sequential.
    next_bytes: u64,
    is_sequential: bool,
    /// Pages before this one have been read ahead.
    ahead_page: u64,
}

/// A page that is read ahead.
#[derive(Debug, Default)]
struct Page {
    is_present: bool,
    /// Reads that wait for it, with the bytes each wants.
    waiting: Vec<(CommandKey, u32)>,
    /// Bytes that reads have asked for.
    asked_bytes: u64,
}

/// Whether a page that a read needs was read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    No,
    /// The read waits for it.
    Waits,
    Present,
}

/// The sequential readers, and the pages read for them.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    page_bytes: u64,
    /// Zero: nothing is read ahead.
    distance_pages: u64,
    streams: BTreeMap<ZoneIndex, Stream>,
    pages: BTreeMap<PageId, Page>,
    /// The pages in order of their reads.
    order: VecDeque<PageId>,
}

impl ReadAhead {
    pub(crate) fn new(distance_bytes: u64, page_bytes: u64) -> ReadAhead {
        ReadAhead {
            page_bytes,
            distance_pages: distance_bytes.div_ceil(page_bytes),
            streams: BTreeMap::new(),
            pages: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.distance_pages > 0
    }

    /// A read needs bytes of a page.
    pub(crate) fn ask(&mut self, id: PageId, command: CommandKey, bytes: u32) -> Ahead {
        let Some(page) = self.pages.get_mut(&id) else { return Ahead::No };
        page.asked_bytes += u64::from(bytes);
        if !page.is_present {
            page.waiting.push((command, bytes));
            return Ahead::Waits;
        }
        if page.asked_bytes >= self.page_bytes {
            self.pages.remove(&id);
        }
        Ahead::Present
    }

    /// A read of a zone has been served or has begun; returns the pages to read ahead now.
    pub(crate) fn follow(&mut self, zone: ZoneIndex, generation: u32, bytes: Range<u64>) -> Range<u64> {
        let stream = self.streams.entry(zone).or_default();
        let is_sequential = stream.generation == generation && stream.next_bytes == bytes.start;
        let follows = is_sequential && stream.is_sequential;
        if !is_sequential {
            stream.ahead_page = 0;
        }
        stream.generation = generation;
        stream.next_bytes = bytes.end;
        stream.is_sequential = is_sequential;
        if !follows {
            return 0..0;
        }
        let next_page = bytes.end.div_ceil(self.page_bytes);
        let pages = stream.ahead_page.max(next_page)..next_page + self.distance_pages;
        stream.ahead_page = pages.end.max(stream.ahead_page);
        pages
    }

    /// Whether a page was read ahead, or is on its way.
    fn keeps(&self, id: PageId) -> bool {
        self.pages.contains_key(&id)
    }

    /// A page is being read ahead. Returns whether there is space to keep it.
    fn begin(&mut self, id: PageId) -> bool {
        while self.order.len() >= READ_AHEAD_PAGES_MAX {
            match self.pages.get(&self.order[0]) {
                Some(oldest) if !oldest.is_present => return false,
                _ => self.pages.remove(&self.order[0]),
            };
            self.order.pop_front();
        }
        self.order.push_back(id);
        let known = self.pages.insert(id, Page::default());
        assert!(known.is_none(), "a page is on its way once: reads wait for the entry that would be replaced");
        true
    }

    /// A page has been read; returns the reads that wait for it.
    fn arrive(&mut self, id: PageId) -> Vec<(CommandKey, u32)> {
        let page = self.pages.get_mut(&id).expect("a page is kept until it was read");
        page.is_present = true;
        let waiting = std::mem::take(&mut page.waiting);
        if page.asked_bytes >= self.page_bytes {
            self.pages.remove(&id);
        }
        waiting
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.order.len() <= READ_AHEAD_PAGES_MAX, "pages read ahead are bounded");
        for (id, page) in &self.pages {
            assert!(!page.is_present || page.waiting.is_empty(), "no read waits for {id:?}, which is present");
        }
    }
}

impl Ssd {
    /// Reads pages of a zone ahead, as far as they are on flash.
    pub(crate) fn read_ahead(&mut self, zone: ZoneIndex, generation: u32, pages: Range<u64>) {
        for page in pages {
            let arrived_bytes = self.zone_map.arrived_bytes(zone).expect("a zone that is read ahead is not empty");
            let is_whole = (page + 1) * self.timing.read_unit_bytes <= arrived_bytes;
            if !is_whole || !self.zone_map.is_on_flash(zone, page) {
                continue;
            }
            let die = self.zone_map.die_of_page(zone, page);
            let id = PageId { zone, generation, page };
            // A reader that starts again comes to pages that it asked for before.
            if self.ahead.keeps(id) {
                continue;
            }
            if !self.ahead.begin(id) {
                return;
            }
            let bytes = self.timing.read_unit_bytes as u32;
            let chain = ReadChain::of_one_page(Reader::Ahead(id), die, bytes, Some(id));
            let chain = self.chains.insert(chain);
            self.add_die_read(usize::from(die), chain);
        }
    }

    /// A page read ahead is in the controller.
    pub(crate) fn on_page_ahead(&mut self, id: PageId) {
        for (command, bytes) in self.ahead.arrive(id) {
            self.send_to_host(command, u64::from(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: ZoneIndex = ZoneIndex(3);

    #[test]
    fn the_third_sequential_read_makes_the_drive_read_ahead_and_later_ones_extend_it() {
        let mut ahead = ReadAhead::new(64, 16);
        assert_eq!(ahead.follow(ZONE, 0, 100..104), 0..0);
        assert_eq!(ahead.follow(ZONE, 0, 104..108), 0..0);
        assert_eq!(ahead.follow(ZONE, 0, 108..112), 7..11);
        assert_eq!(ahead.follow(ZONE, 0, 112..116), 11..12);
        assert_eq!(ahead.follow(ZONE, 0, 0..4), 0..0, "not sequential");
        assert_eq!(ahead.follow(ZONE, 1, 4..8), 0..0, "the zone was reset");
    }

    #[test]
    fn a_page_is_kept_until_all_of_it_was_asked_for() {
        let mut ahead = ReadAhead::new(64, 16);
        let id = PageId { zone: ZONE, generation: 0, page: 5 };
        let command = zonda_zoned::Key::of_command(zonda_zoned::CommandId(1)).expect("it is small");
        assert_eq!(ahead.ask(id, command, 4), Ahead::No);
        assert!(ahead.begin(id));
        assert_eq!(ahead.ask(id, command, 4), Ahead::Waits);
        assert_eq!(ahead.arrive(id), [(command, 4)]);
        assert_eq!([4, 8, 4].map(|bytes| ahead.ask(id, command, bytes)), [Ahead::Present, Ahead::Present, Ahead::No]);
    }
}
