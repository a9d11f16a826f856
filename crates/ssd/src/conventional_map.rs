//! Timing of a map that does not fit into memory: reads and programs of map pages.

use zonda_zoned::ZoneIndex;

use crate::conventional::Lookup;
use crate::pending::{CommandKey, ReadChain, Reader};
use crate::ssd::Ssd;

impl Ssd {
    /// Whether a read must wait for parts of the map, which are being read from then on.
    pub(crate) fn waits_for_map(&mut self, index: CommandKey) -> bool {
        let command = &self.commands[index];
        let block_bytes = self.timing.block_bytes;
        let first = self.geometry.zone_start(command.zone).0 + command.offset_bytes / block_bytes;
        let conventional_blocks = u64::from(self.geometry.conventional_zone_count) * self.geometry.zone_size_blocks.0;
        let end = (first + command.bytes / block_bytes).min(conventional_blocks);
        let Some(cache) = self.conventional.as_mut().and_then(|conventional| conventional.map_cache.as_mut()) else {
            return false;
        };
        if first >= end {
            return false;
        }
        let pages = cache.page_of(first)..=cache.page_of(end - 1);
        let lookups: Vec<(u32, Lookup)> = pages.map(|page| (page, cache.ask(page, index))).collect();
        for (page, lookup) in &lookups {
            if *lookup == Lookup::Read {
                self.read_map_page(*page);
            }
        }
        lookups.iter().any(|(_, lookup)| *lookup != Lookup::Present)
    }

    /// Blocks have new places: their map pages change, and are read first where they are not in
    /// memory.
    pub(crate) fn update_map(&mut self) {
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        for page in conventional.take_changed_pages() {
            let conventional = self.conventional.as_mut().expect("conventional zones have their map");
            let Some(cache) = &mut conventional.map_cache else { return };
            if cache.change(page) == Lookup::Read {
                self.read_map_page(page);
            }
        }
        self.program_evicted_map();
    }

    fn read_map_page(&mut self, page: u32) {
        // Where map pages lie is not modelled: they are spread over all dies.
        let die = page as usize % self.dies.len();
        let bytes = self.timing.read_unit_bytes as u32;
        let chain = ReadChain::of_one_page(Reader::Map { page }, die as u16, bytes, None);
        let chain = self.chains.insert(chain);
        self.add_die_read(die, chain);
    }

    /// A map page is in memory: reads that waited for it continue.
    pub(crate) fn on_map_page_read(&mut self, page: u32) {
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        let cache = conventional.map_cache.as_mut().expect("map pages are read where not all are in memory");
        for command in cache.on_read(page) {
            self.start_read(command);
        }
        self.program_evicted_map();
    }

    fn program_evicted_map(&mut self) {
        loop {
            let conventional = self.conventional.as_mut().expect("conventional zones have their map");
            let Some(die) = conventional.take_map_program() else { return };
            self.program_mapping_on(die as u16, ZoneIndex(0));
        }
    }
}
