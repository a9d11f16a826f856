//! Timing of reads, writes and garbage collection of conventional zones.

use zonda_zoned::ZoneIndex;

use crate::conventional::{BlockPlace, CONVENTIONAL_GROUP, Parked, Placed};
use crate::pending::{Cause, CommandKey, Place, ReadChain, Reader, Work};
use crate::ssd::Ssd;

impl Ssd {
    /// Blocks of a conventional write are in the buffer.
    pub(crate) fn arrive_conventional(&mut self, index: CommandKey, bytes: u64, waiter: Option<CommandKey>) {
        self.buffer.hold(CONVENTIONAL_GROUP, bytes);
        let block_bytes = self.timing.block_bytes;
        let command = &self.commands[index];
        let zone_start = self.geometry.zone_start(command.zone).0;
        let end = zone_start + (command.offset_bytes + command.arrived_bytes) / block_bytes;
        for lba in end - bytes / block_bytes..end {
            let conventional = self.conventional.as_mut().expect("conventional zones have their map");
            if let Some(blocks) = conventional.gather(lba) {
                self.program_conventional(blocks, waiter);
            }
        }
    }

    /// Programs gathered blocks, in whole units or not. Returns whether there were any.
    pub(crate) fn flush_conventional(&mut self, waiter: Option<CommandKey>) -> bool {
        let Some(conventional) = &mut self.conventional else { return false };
        let units = conventional.take_gathered();
        let is_any = !units.is_empty();
        for blocks in units {
            self.program_conventional(blocks, waiter);
        }
        is_any
    }

    fn program_conventional(&mut self, blocks: Vec<u32>, waiter: Option<CommandKey>) {
        self.buffer.will_return(CONVENTIONAL_GROUP, blocks.len() as u64 * self.timing.block_bytes);
        if let Some(waiter) = waiter {
            self.commands[waiter].parts += 1;
        }
        self.park(Parked { blocks, waiter });
    }

    /// A program unit of the host waits for space on the next die, if there is none.
    fn park(&mut self, parked: Parked) {
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        let die = conventional.next_die();
        conventional.dies[die].parked.push_back(parked);
        self.place_parked(die);
    }

    /// Places the program units that wait for a die as far as there is space; the others wait for
    /// collections, or go to other dies if this one has nothing to collect.
    fn place_parked(&mut self, die: usize) {
        loop {
            let conventional = self.conventional.as_mut().expect("conventional zones have their map");
            let Some(parked) = conventional.dies[die].parked.pop_front() else { break };
            let Some(placed) = conventional.place_for_host(die, &parked.blocks) else {
                conventional.dies[die].parked.push_front(parked);
                break;
            };
            let host_bytes = parked.blocks.len() as u64 * self.timing.block_bytes;
            let work = self.conventional_work(Cause::Host, placed, host_bytes, parked.waiter);
            self.program_data(work);
            self.update_map();
        }
        self.collect_if_needed(die);
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        let parked = std::mem::take(&mut conventional.dies[die].parked);
        if !parked.is_empty() && !conventional.is_stuck(die) {
            conventional.dies[die].parked = parked;
            return;
        }
        for parked in parked {
            self.park(parked);
        }
    }

    fn conventional_work(&self, cause: Cause, placed: Placed, host_bytes: u64, command: Option<CommandKey>) -> Work {
        let pages_to_load = (self.timing.program_unit_bytes / self.timing.read_unit_bytes) as u32;
        Work {
            cause,
            die: placed.die,
            place: Place::Conventional { unit: placed.unit, program: placed.program },
            host_bytes,
            spilled_bytes: 0,
            pad_bytes: if cause == Cause::Host { self.timing.program_unit_bytes - host_bytes } else { 0 },
            pages_to_load,
            group: CONVENTIONAL_GROUP,
            command,
            padding: None,
        }
    }

    pub(crate) fn on_conventional_programmed(&mut self, die: u16, unit: u32, program: u32) {
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        conventional.is_programmed(usize::from(die), unit, program);
        self.place_parked(usize::from(die));
    }

    /// Starts the part of a read that is in a conventional zone; returns the bytes that need no
    /// die.
    pub(crate) fn start_conventional_read(
        &mut self,
        index: CommandKey,
        zone: ZoneIndex,
        offset: u64,
        bytes: u64,
    ) -> u64 {
        let block_bytes = self.timing.block_bytes;
        let first = self.geometry.zone_start(zone).0 + offset / block_bytes;
        let mut without_die = 0;
        let mut chains_used: Vec<u16> = Vec::new();
        let mut at_hand: Option<(u16, u32, u32)> = None;
        for lba in first..first + bytes / block_bytes {
            let conventional = self.conventional.as_ref().expect("conventional zones have their map");
            match conventional.place(lba) {
                BlockPlace::Unmapped | BlockPlace::Buffered => without_die += block_bytes,
                BlockPlace::Flash { die, page } => match &mut at_hand {
                    // Adjacent blocks of one page are read together.
                    Some((same_die, same_page, bytes)) if (*same_die, *same_page) == (die, page) => {
                        *bytes += block_bytes as u32;
                    }
                    _ => {
                        if let Some((die, _, bytes)) = at_hand.replace((die, page, block_bytes as u32)) {
                            self.extend_chain(index, die, bytes, &mut chains_used);
                        }
                    }
                },
            }
        }
        if let Some((die, _, bytes)) = at_hand {
            self.extend_chain(index, die, bytes, &mut chains_used);
        }
        self.start_chains(&chains_used);
        without_die
    }

    fn collect_if_needed(&mut self, die: usize) {
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        if !conventional.wants_collection(die) {
            return;
        }
        let Some((victim, pages)) = conventional.choose_victim(die) else { return };
        conventional.dies[die].is_collecting = true;
        if pages == 0 {
            return self.add_erase(die as u16, Place::Conventional { unit: victim, program: 0 });
        }
        let read_unit = self.timing.read_unit_bytes as u32;
        let chain = ReadChain {
            reader: Reader::Collection { unit: victim },
            page: None,
            die: die as u16,
            pages_to_sense: pages,
            pages_to_send: pages,
            bytes: read_unit,
            between_bytes: pages.saturating_sub(2) * read_unit,
            last_bytes: read_unit,
        };
        let chain = self.chains.insert(chain);
        self.add_die_read(die, chain);
    }

    /// All valid pages of a victim are read: its blocks are moved, then it is erased.
    pub(crate) fn on_collection_read(&mut self, die: usize, victim: u32) {
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        for placed in conventional.move_valid(die, victim) {
            let work = self.conventional_work(Cause::Collection, placed, 0, None);
            self.add_work(work);
        }
        self.update_map();
        // Dies process work in order: the erase follows the programs.
        self.add_erase(die as u16, Place::Conventional { unit: victim, program: 0 });
    }

    pub(crate) fn on_collection_programmed(&mut self, work: &Work) {
        self.counters.programs += 1;
        self.counters.programmed_gc_bytes += self.timing.program_unit_bytes;
        if let Place::Conventional { unit, program } = work.place {
            self.on_conventional_programmed(work.die, unit, program);
        }
    }

    pub(crate) fn on_collection_erased(&mut self, die: usize, unit: u32) {
        let conventional = self.conventional.as_mut().expect("conventional zones have their map");
        conventional.free(die, unit);
        conventional.dies[die].is_collecting = false;
        self.place_parked(die);
    }
}
