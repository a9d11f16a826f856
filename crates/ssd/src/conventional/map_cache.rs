//! The part of the map that is in memory, for a drive whose map does not fit.
//!
//! The map is on flash, in pages of one read unit with four bytes for each block. A page that is
//! needed and not in memory is read first; of several that are in memory, CLOCK (second chance)
//! chooses the one to evict. An evicted page that has changed is programmed, together with others
//! that fill its program unit. Where map pages lie, and collecting their garbage, is not modelled.

use std::collections::BTreeMap;

use crate::pending::CommandKey;

/// Bytes of the map for one block.
const ENTRY_BYTES: u64 = 4;

/// What to do for a map page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// It is in memory, or was never written.
    Present,
    /// It must be read; the caller starts that.
    Read,
    /// It is being read.
    InFlight,
}

/// Map pages in memory.
#[derive(Debug)]
pub(crate) struct MapCache {
    slots: Vec<Slot>,
    slots_max: usize,
    hand: usize,
    slot_of_page: BTreeMap<u32, usize>,
    /// Map pages that are being read, and who waits for each.
    reading: BTreeMap<u32, Reading>,
    /// Reads of the host that wait, with the number of map pages that each waits for.
    waiting: BTreeMap<u32, (CommandKey, u32)>,
    /// Map pages that were ever written: there is nothing to read of others.
    written: Vec<bool>,
    blocks_per_page: u64,
    /// Changed map pages that were evicted, and wait for others that fill their program unit.
    evicted_pages: u32,
    pages_per_program: u32,
}

#[derive(Debug)]
struct Slot {
    page: u32,
    was_used: bool,
    has_changed: bool,
}

#[derive(Debug, Default)]
struct Reading {
    commands: Vec<CommandKey>,
    has_changed: bool,
}

impl MapCache {
    pub(crate) fn new(capacity_bytes: u64, page_bytes: u64, program_bytes: u64) -> MapCache {
        MapCache {
            slots: Vec::new(),
            slots_max: (capacity_bytes / page_bytes).max(1) as usize,
            hand: 0,
            slot_of_page: BTreeMap::new(),
            reading: BTreeMap::new(),
            waiting: BTreeMap::new(),
            written: Vec::new(),
            blocks_per_page: page_bytes / ENTRY_BYTES,
            evicted_pages: 0,
            pages_per_program: (program_bytes / page_bytes) as u32,
        }
    }

    /// The map page of a block.
    pub(crate) fn page_of(&self, lba: u64) -> u32 {
        (lba / self.blocks_per_page) as u32
    }

    /// A read of the host needs a map page. It waits if the answer is not [`Lookup::Present`].
    pub(crate) fn ask(&mut self, page: u32, command: CommandKey) -> Lookup {
        let lookup = self.look_up(page);
        if lookup != Lookup::Present {
            self.reading.entry(page).or_default().commands.push(command);
            self.waiting.entry(command.index()).or_insert((command, 0)).1 += 1;
        }
        lookup
    }

    /// An entry of a map page changes.
    pub(crate) fn change(&mut self, page: u32) -> Lookup {
        let is_new = !std::mem::replace(self.written_at(page), true);
        if is_new {
            self.insert(page, true);
            return Lookup::Present;
        }
        let lookup = self.look_up(page);
        match self.slot_of_page.get(&page) {
            Some(slot) => self.slots[*slot].has_changed = true,
            None => self.reading.entry(page).or_default().has_changed = true,
        }
        lookup
    }

    /// Marks a map page as written without caching it, for contents that were there before.
    pub(crate) fn set_written(&mut self, page: u32) {
        *self.written_at(page) = true;
    }

    /// A map page was read: returns the reads of the host that wait for nothing else.
    pub(crate) fn on_read(&mut self, page: u32) -> Vec<CommandKey> {
        let reading = self.reading.remove(&page).expect("a map page that arrives was asked for");
        self.insert(page, reading.has_changed);
        let mut ready = Vec::new();
        for command in reading.commands {
            let left = &mut self.waiting.get_mut(&command.index()).expect("the command waits").1;
            *left -= 1;
            if *left == 0 {
                self.waiting.remove(&command.index());
                ready.push(command);
            }
        }
        ready
    }

    /// Whether a program unit of changed map pages is to be programmed now.
    pub(crate) fn take_program(&mut self) -> bool {
        let is_full = self.evicted_pages >= self.pages_per_program;
        if is_full {
            self.evicted_pages -= self.pages_per_program;
        }
        is_full
    }

    /// The drive loses power: changed pages are programmed from its power reserve.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.slot_of_page.clear();
        self.reading.clear();
        self.waiting.clear();
        (self.hand, self.evicted_pages) = (0, 0);
    }

    fn look_up(&mut self, page: u32) -> Lookup {
        if let Some(slot) = self.slot_of_page.get(&page) {
            self.slots[*slot].was_used = true;
            return Lookup::Present;
        }
        if !*self.written_at(page) {
            return Lookup::Present;
        }
        if self.reading.contains_key(&page) { Lookup::InFlight } else { Lookup::Read }
    }

    fn written_at(&mut self, page: u32) -> &mut bool {
        let index = page as usize;
        if self.written.len() <= index {
            self.written.resize(index + 1, false);
        }
        &mut self.written[index]
    }

    fn insert(&mut self, page: u32, has_changed: bool) {
        let slot = Slot { page, was_used: true, has_changed };
        if self.slots.len() < self.slots_max {
            self.slot_of_page.insert(page, self.slots.len());
            self.slots.push(slot);
            return;
        }
        while std::mem::take(&mut self.slots[self.hand].was_used) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        let evicted = std::mem::replace(&mut self.slots[self.hand], slot);
        self.evicted_pages += u32::from(evicted.has_changed);
        self.slot_of_page.remove(&evicted.page);
        self.slot_of_page.insert(page, self.hand);
        self.hand = (self.hand + 1) % self.slots.len();
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.slots.len() <= self.slots_max, "the cache keeps to its size");
        assert_eq!(self.slot_of_page.len(), self.slots.len(), "each cached map page is found");
        let is_cached = |page: &u32| self.slot_of_page.contains_key(page);
        assert!(!self.reading.keys().any(is_cached), "no cached map page is read");
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{CommandId, Key};

    use super::*;

    fn command(index: u64) -> CommandKey {
        Key::of_command(CommandId(index)).expect("it is small")
    }

    /// A cache of map pages of 4 KiB, three of which are a program unit; pages 0 to 9 are on flash.
    fn cache(pages: u64) -> MapCache {
        let mut cache = MapCache::new(pages * (4 << 10), 4 << 10, 12 << 10);
        (0..10).for_each(|page| cache.set_written(page));
        cache
    }

    #[test]
    fn a_map_page_is_read_once_and_then_present_until_others_evict_it() {
        let mut cache = cache(2);
        assert_eq!(cache.page_of(1_023), 0);
        assert_eq!(cache.page_of(1_024), 1);
        assert_eq!(cache.ask(0, command(1)), Lookup::Read);
        assert_eq!(cache.ask(0, command(2)), Lookup::InFlight);
        assert_eq!(cache.on_read(0), [command(1), command(2)]);
        assert_eq!(cache.ask(0, command(3)), Lookup::Present);
        for page in [1, 2] {
            assert_eq!(cache.ask(page, command(4)), Lookup::Read);
            cache.on_read(page);
        }
        assert_eq!(cache.ask(0, command(5)), Lookup::Read, "it was the first to enter");
        cache.check_invariants();
    }

    #[test]
    fn a_page_that_is_used_again_gets_a_second_chance() {
        let mut cache = cache(3);
        for page in 0..4 {
            cache.ask(page, command(1));
            cache.on_read(page);
        }
        // Page 3 has evicted page 0, and cleared the marks of pages 1 and 2.
        assert_eq!(cache.ask(1, command(1)), Lookup::Present);
        cache.ask(4, command(1));
        cache.on_read(4);
        assert_eq!(cache.ask(1, command(1)), Lookup::Present);
        assert_eq!(cache.ask(2, command(1)), Lookup::Read);
    }

    #[test]
    fn a_read_of_two_map_pages_waits_for_both() {
        let mut cache = cache(2);
        cache.ask(4, command(1));
        cache.ask(5, command(1));
        assert_eq!(cache.on_read(5), []);
        assert_eq!(cache.on_read(4), [command(1)]);
    }

    #[test]
    fn only_changed_pages_that_are_evicted_are_programmed_and_in_whole_units() {
        let mut cache = cache(2);
        for page in 0..4 {
            assert_eq!(cache.change(page), Lookup::Read);
            cache.on_read(page);
        }
        assert!(!cache.take_program(), "two pages were evicted, and two are cached");
        cache.ask(4, command(1));
        cache.on_read(4);
        assert!(cache.take_program() && !cache.take_program());
    }

    #[test]
    fn there_is_nothing_to_read_of_a_map_page_that_was_never_written() {
        let mut cache = cache(2);
        assert_eq!(cache.ask(20, command(1)), Lookup::Present);
        assert_eq!(cache.change(20), Lookup::Present);
        cache.clear();
        assert_eq!(cache.ask(20, command(1)), Lookup::Read);
    }
}
