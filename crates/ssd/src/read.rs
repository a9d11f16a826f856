//! Read path: pages are sensed on their dies, transferred over their channels and sent to the host.

use std::ops::Range;

use zonda_zoned::{Duration, Key, ZoneIndex};

use crate::ahead::Ahead;
use crate::command::pieces_by_zone;
use crate::events::Event;
use crate::pending::{CommandKey, PageId, ReadChain, Reader};
use crate::ssd::{ChannelJob, LinkJob, Ssd};
use crate::station::serve;

impl Ssd {
    /// The firmware work of a read is done: its pages are queued at their dies, data in the buffer
    /// at the link.
    pub(crate) fn start_read(&mut self, index: CommandKey) {
        let command = &self.commands[index];
        let block_bytes = self.timing.block_bytes;
        let (zone, offset, bytes) = (command.zone, command.offset_bytes, command.bytes);
        let mut buffered_bytes = 0;
        if offset + bytes <= self.geometry.zone_size_blocks.0 * block_bytes {
            buffered_bytes = self.start_read_in_zone(index, zone, offset, bytes);
        } else {
            let start = self.geometry.zone_start(zone) + zonda_zoned::Blocks(offset / block_bytes);
            let blocks = zonda_zoned::Blocks(bytes / block_bytes);
            for (zone, first, count) in pieces_by_zone(self.geometry.zone_size_blocks, start, blocks) {
                buffered_bytes += self.start_read_in_zone(index, zone, first * block_bytes, count * block_bytes);
            }
        }
        if buffered_bytes > 0 {
            self.commands[index].parts += 1;
            self.send_to_host(index, buffered_bytes);
        }
    }

    /// Starts the part of a read that is in one zone; returns the bytes that need no die: buffered
    /// or never written.
    fn start_read_in_zone(&mut self, index: CommandKey, zone: ZoneIndex, offset: u64, bytes: u64) -> u64 {
        if zone.0 < self.geometry.conventional_zone_count {
            return self.start_conventional_read(index, zone, offset, bytes);
        }
        let Some(arrived_bytes) = self.zone_map.arrived_bytes(zone) else { return bytes };
        let read_unit = self.timing.read_unit_bytes;
        let (mut at, end) = (offset, (offset + bytes).min(arrived_bytes));
        let mut without_die = (offset + bytes).saturating_sub(end.max(offset));
        let (first_page, last_page) = (offset / read_unit, end.saturating_sub(1) / read_unit);
        if at < end && first_page == last_page {
            // One page: no list of dies is needed.
            if !self.zone_map.is_on_flash(zone, first_page) {
                return bytes;
            }
            let die = self.zone_map.die_of_page(zone, first_page);
            let page = PageId { zone, generation: self.zone_map.generation(zone), page: first_page };
            if self.ahead.is_on() {
                match self.ahead.ask(page, index, (end - at) as u32) {
                    Ahead::No => self.add_chain(index, die, (end - at) as u32, page),
                    Ahead::Waits => self.commands[index].parts += 1,
                    Ahead::Present => without_die += end - at,
                }
                self.follow_reader(zone, offset..end);
            } else {
                self.add_chain(index, die, (end - at) as u32, page);
            }
            return without_die;
        }
        let mut chains_used: Vec<u16> = Vec::new();
        while at < end {
            let page = at / read_unit;
            let here = ((page + 1) * read_unit).min(end) - at;
            at += here;
            if !self.zone_map.is_on_flash(zone, page) {
                without_die += here;
                continue;
            }
            let die = self.zone_map.die_of_page(zone, page);
            if self.ahead.is_on() {
                let id = PageId { zone, generation: self.zone_map.generation(zone), page };
                match self.ahead.ask(id, index, here as u32) {
                    Ahead::No => {}
                    Ahead::Waits => {
                        self.commands[index].parts += 1;
                        continue;
                    }
                    Ahead::Present => {
                        without_die += here;
                        continue;
                    }
                }
            }
            let page_of_slot = self.timing.layout.page_of_slot(page);
            self.extend_chain_from(index, die, here as u32, page_of_slot, &mut chains_used);
        }
        self.start_chains(&chains_used);
        if self.ahead.is_on() {
            self.follow_reader(zone, offset..end);
        }
        without_die
    }

    /// Reads ahead of a sequential reader.
    fn follow_reader(&mut self, zone: ZoneIndex, bytes: Range<u64>) {
        let generation = self.zone_map.generation(zone);
        let pages = self.ahead.follow(zone, generation, bytes);
        self.read_ahead(zone, generation, pages);
    }

    /// A read of one page on a die starts.
    fn add_chain(&mut self, command: CommandKey, die: u16, bytes: u32, page: PageId) {
        self.commands[command].parts += 1;
        let reader = Reader::Host { command, page_of_slot: self.timing.layout.page_of_slot(page.page) };
        let chain = self.chains.insert(ReadChain::of_one_page(reader, die, bytes, Some(page)));
        self.add_die_read(usize::from(die), chain);
    }

    /// Adds a page to those that a read needs of a die, without starting it yet.
    pub(crate) fn extend_chain(&mut self, command: CommandKey, die: u16, bytes: u32, used: &mut Vec<u16>) {
        self.extend_chain_from(command, die, bytes, 0, used);
    }

    /// The same of a page of a slot; those that follow it in the chain follow it on the die.
    fn extend_chain_from(&mut self, command: CommandKey, die: u16, bytes: u32, page_of_slot: u32, used: &mut Vec<u16>) {
        self.commands[command].parts += 1;
        match &mut self.chain_on_die[usize::from(die)] {
            Some(chain) => self.chains[*chain].add_page(bytes),
            first => {
                let chain = ReadChain::of_one_page(Reader::Host { command, page_of_slot }, die, bytes, None);
                *first = Some(self.chains.insert(chain));
                used.push(die);
            }
        }
    }

    pub(crate) fn start_chains(&mut self, used: &[u16]) {
        for die in used {
            let chain = self.chain_on_die[usize::from(*die)].take();
            let chain = chain.expect("each die is named once, when its chain begins");
            self.add_die_read(usize::from(*die), chain);
        }
    }

    /// A page of a read is being sent to the host.
    pub(crate) fn send_to_host(&mut self, command: CommandKey, bytes: u64) {
        if let Some(job) = self.link_out.arrive(LinkJob { command, bytes }) {
            self.serve_link_out(job);
        }
    }

    fn serve_link_out(&mut self, job: LinkJob) {
        let flags = &mut self.commands[job.command].flags;
        let overhead = if flags.link_paid { Duration::ZERO } else { self.timing.link_read_overhead };
        flags.link_paid = true;
        let end = serve(&mut self.link_out, self.now, self.timing.link_out.time(job.bytes) + overhead);
        self.events.schedule(end, Event::LinkOutEnd);
    }

    pub(crate) fn on_link_out_end(&mut self) {
        let job = self.link_out.current();
        if let Some(next) = self.link_out.depart() {
            self.serve_link_out(next);
        }
        self.end_part(job.command);
    }

    pub(crate) fn serve_channel(&mut self, channel: usize, job: ChannelJob) {
        let timing = &self.timing;
        let time = match job {
            ChannelJob::Page { bytes, .. } => {
                let bytes = u64::from(bytes);
                timing.channel.time(bytes) + timing.channel_read_overhead.draw(bytes, &mut self.prngs.channels)
            }
            ChannelJob::Ask { .. } => timing.channel_read_command,
            ChannelJob::Load { .. } => timing.channel.time(timing.read_unit_bytes) + timing.channel_write_overhead,
        };
        let end = serve(&mut self.channels[channel], self.now, time);
        self.events.schedule(end, Event::ChannelEnd(channel as u32));
    }

    pub(crate) fn on_channel_end(&mut self, channel: usize) {
        let job = self.channels[channel].current();
        if let Some(next) = self.channels[channel].depart() {
            self.serve_channel(channel, next);
        }
        match job {
            ChannelJob::Page { chain, bytes } => self.on_page_sent(chain, bytes),
            ChannelJob::Ask { chain } => self.sense(usize::from(self.chains[chain].die), chain),
            ChannelJob::Load { work } => self.on_page_loaded(work),
        }
    }

    pub(crate) fn add_channel_job(&mut self, die: usize, job: ChannelJob) {
        let channel = die % self.timing.channels as usize;
        if let Some(job) = self.channels[channel].arrive(job) {
            self.serve_channel(channel, job);
        }
    }

    /// A page has left its die.
    fn on_page_sent(&mut self, index: Key<ReadChain>, bytes: u32) {
        let chain = &mut self.chains[index];
        chain.pages_to_send -= 1;
        let chain = *chain;
        match chain.reader {
            Reader::Host { command, .. } => {
                self.counters.flash_read_bytes += u64::from(bytes);
                self.send_to_host(command, u64::from(bytes));
            }
            Reader::Ahead(page) => {
                self.counters.flash_read_bytes += u64::from(bytes);
                self.on_page_ahead(page);
            }
            Reader::Collection { .. } | Reader::Map { .. } => {}
        }
        if !self.timing.cache_read {
            self.release_die(usize::from(chain.die));
        } else if chain.pages_to_sense > 0 {
            self.add_die_read(usize::from(chain.die), index);
        }
        if chain.pages_to_send == 0 {
            self.chains.remove(index);
            match chain.reader {
                Reader::Collection { unit } => self.on_collection_read(usize::from(chain.die), unit),
                Reader::Map { page } => self.on_map_page_read(page),
                Reader::Host { .. } | Reader::Ahead(_) => {}
            }
        }
    }
}
