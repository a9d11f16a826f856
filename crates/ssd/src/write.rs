//! Write path: space in the buffer, transfer from the host, waiting for the program unit to fill.

use zonda_zoned::{Duration, Key, ZoneIndex};

use crate::allocation::{ElementErase, UnitOfZone};
use crate::buffer::{Stall, Waiting};
use crate::bug::SeededBug;
use crate::conventional::CONVENTIONAL_GROUP;
use crate::events::Event;
use crate::pending::{Cause, CommandKey, Kind, Padding, PendingCommand, Place, Work};
use crate::profile::CapScope;
use crate::ssd::{LinkJob, Ssd};
use crate::station::serve;
use crate::zone_run::{SlotRun, ZoneRun};

impl Ssd {
    /// Allocates a zone at its first write.
    pub(crate) fn ensure_run(&mut self, zone: ZoneIndex) {
        if self.zone_map.get(zone).is_none() {
            let stripe = self.allocator.allocate(zone);
            self.zone_map.insert(zone, ZoneRun::new(stripe));
        }
    }

    /// The write requests space in the buffer; a write to a ZRWA has its space already.
    pub(crate) fn request_space(&mut self, index: CommandKey) {
        let group = self.buffer_group(&self.commands[index]);
        let command = &mut self.commands[index];
        command.buffer_group = group;
        // One part is held until all data have arrived, so that no program ends the command too
        // early.
        command.parts = 1;
        let (bytes, is_zrwa) = (command.bytes, command.flags.is_zrwa);
        if is_zrwa {
            return self.start_transfer(index, bytes);
        }
        self.buffer.ask(Waiting { command: index, group, left_bytes: bytes });
        self.admit();
        self.counters.buffer_waits += u64::from(self.buffer.keeps_waiting(index, group));
    }

    /// Admits writes for which there is space; if space is never released otherwise, frees some.
    pub(crate) fn admit(&mut self) {
        loop {
            while let Some(admitted) = self.buffer.next_admitted() {
                self.start_transfer(admitted.command, admitted.bytes);
            }
            let spilled = match self.buffer.stall() {
                Stall::None => false,
                Stall::All => self.spill(None),
                Stall::Group(group) => self.spill(Some(group)),
            };
            if !spilled {
                return;
            }
        }
    }

    /// The group under which the buffer's cap counts this write.
    fn buffer_group(&self, command: &PendingCommand) -> u32 {
        if command.flags.is_conventional { CONVENTIONAL_GROUP } else { self.group_of_zone(command.zone) }
    }

    fn start_transfer(&mut self, command: CommandKey, bytes: u64) {
        if self.commands[command].kind == Kind::WriteZeroes {
            return self.on_arrival(command, bytes);
        }
        if let Some(job) = self.link_in.arrive(LinkJob { command, bytes }) {
            self.serve_link_in(job);
        }
    }

    fn serve_link_in(&mut self, job: LinkJob) {
        let flags = &mut self.commands[job.command].flags;
        let overhead = if flags.link_paid { Duration::ZERO } else { self.timing.link_write_overhead };
        flags.link_paid = true;
        let end = serve(&mut self.link_in, self.now, self.timing.link_in.time(job.bytes) + overhead);
        self.events.schedule(end, Event::LinkInEnd);
    }

    pub(crate) fn on_link_in_end(&mut self) {
        let job = self.link_in.current();
        if let Some(next) = self.link_in.depart() {
            self.serve_link_in(next);
        }
        self.on_arrival(job.command, job.bytes);
    }

    /// Data are in the buffer.
    fn on_arrival(&mut self, index: CommandKey, bytes: u64) {
        let early_completion = self.timing.early_completion;
        let waiter = (!early_completion).then_some(index);
        let command = &mut self.commands[index];
        command.arrived_bytes += bytes;
        let is_whole = command.arrived_bytes == command.bytes;
        let (zone, generation, flags) = (command.zone, command.generation, command.flags);
        if flags.is_conventional {
            self.arrive_conventional(index, bytes, waiter);
            if is_whole && !early_completion {
                self.flush_conventional(waiter);
            }
        } else if flags.is_zrwa {
            if is_whole && self.commands[index].committed_bytes > 0 {
                self.commit(index);
            }
        } else if self.zone_map.generation(zone) == generation {
            self.arrive_in_zone(zone, bytes, waiter);
            if is_whole && !early_completion {
                self.flush_held(zone, Cause::Host, waiter);
            }
        } else {
            let group = self.commands[index].buffer_group;
            self.buffer.release(group, bytes);
        }
        if is_whole {
            self.end_part(index);
        }
        if self.buffer.is_waited_for() {
            self.admit();
        }
    }

    /// One of the parts a command waits for is complete.
    pub(crate) fn end_part(&mut self, index: CommandKey) {
        let command = &mut self.commands[index];
        command.parts -= 1;
        if command.parts > 0 {
            return;
        }
        if command.kind.is_write() {
            let time = self.parallel_time(index);
            self.events.schedule(self.now + time, Event::CommandTimer(index));
        } else {
            self.complete(index);
        }
    }

    /// Data have left a zone's ZRWA for the write buffer.
    pub(crate) fn commit(&mut self, index: CommandKey) {
        let command = &self.commands[index];
        let (zone, bytes, generation) = (command.zone, command.committed_bytes, command.generation);
        // A finish that has overtaken the commit has included these data.
        let is_sealed = self.zone_map.get(zone).is_some_and(|run| run.is_sealed);
        if self.zone_map.generation(zone) == generation && !is_sealed {
            let group = self.group_of_zone(zone);
            self.buffer.take(group, bytes);
            self.buffer.will_return(group, bytes);
            self.arrive_in_zone(zone, bytes, None);
        }
    }

    pub(crate) fn group_of_zone(&self, zone: ZoneIndex) -> u32 {
        match self.timing.cap_scope {
            CapScope::Zone => zone.0,
            CapScope::Die => self.zone_map.get(zone).map_or(0, |run| u32::from(run.first_die().0)),
        }
    }

    /// Data of a zone are held until their program unit is full, then programmed. `waiter`
    /// completes no earlier than that.
    pub(crate) fn arrive_in_zone(&mut self, zone: ZoneIndex, bytes: u64, waiter: Option<CommandKey>) {
        self.buffer.hold(self.group_of_zone(zone), bytes);
        let read_unit = self.timing.read_unit_bytes;
        let units_per_row = self.timing.program_unit_bytes / read_unit;
        let run = self.zone_map.run_mut(zone);
        let mut at = run.arrived_bytes;
        let end = at + bytes;
        run.arrived_bytes = end;
        let layout = self.timing.layout;
        while at < end {
            let page = at / read_unit;
            let page_end = (page + 1) * read_unit;
            let here = page_end.min(end) - at;
            at += here;
            let (slot, row) = layout.place_of_page(page);
            let run = self.zone_map.run_mut(zone);
            run.slots[usize::from(slot)].held_bytes += here as u32;
            let is_last_of_row = (page / layout.slots + 1).is_multiple_of(units_per_row);
            if at == page_end && is_last_of_row {
                self.program_held(zone, slot, row, Cause::Host, waiter);
            }
        }
        if end == self.timing.zone_capacity_bytes || self.zone_map.run(zone).is_sealed {
            // The last rows of a zone may be shorter than a program unit, and a read-only zone's
            // never fill.
            self.flush_held(zone, Cause::Host, waiter);
        }
    }

    /// Sends the held data of a slot to its die.
    pub(crate) fn program_held(
        &mut self,
        zone: ZoneIndex,
        slot: u16,
        row: u32,
        cause: Cause,
        waiter: Option<CommandKey>,
    ) {
        let run = self.zone_map.run_mut(zone);
        let host_bytes = u64::from(std::mem::take(&mut run.slots[usize::from(slot)].held_bytes));
        self.buffer.will_return(self.group_of_zone(zone), host_bytes);
        self.program_zone(zone, slot, row, cause, host_bytes, 0, waiter, None);
    }

    /// Sends all held data of a zone to its dies, full units or not.
    pub(crate) fn flush_held(&mut self, zone: ZoneIndex, cause: Cause, waiter: Option<CommandKey>) {
        for slot in 0..self.zone_map.run(zone).stripe.slots() {
            let run = self.zone_map.run(zone);
            let SlotRun { held_bytes, spilled_bytes, .. } = run.slots[usize::from(slot)];
            if held_bytes > 0 || (spilled_bytes > 0 && cause != Cause::Spill) {
                let bytes_on_slot = self.timing.layout.bytes_on_slot(run.arrived_bytes, slot);
                let row = ((bytes_on_slot - 1) / self.timing.program_unit_bytes) as u32;
                self.program_held(zone, slot, row, cause, waiter);
            }
        }
    }

    /// Programs a unit of a zone, after an erase if the flash there needs one.
    #[expect(clippy::too_many_arguments, reason = "each is one fact about the program, named in `Work`")]
    pub(crate) fn program_zone(
        &mut self,
        zone: ZoneIndex,
        slot: u16,
        row: u32,
        cause: Cause,
        host_bytes: u64,
        pad_bytes: u64,
        waiter: Option<CommandKey>,
        padding: Option<Key<Padding>>,
    ) {
        let (generation, group) = (self.zone_map.generation(zone), self.group_of_zone(zone));
        let run = self.zone_map.run_mut(zone);
        run.unit_is_on_its_way(slot, row);
        let spilled = &mut run.slots[usize::from(slot)].spilled_bytes;
        let spilled_bytes = if cause == Cause::Spill {
            *spilled += host_bytes as u32;
            0
        } else {
            u64::from(std::mem::take(spilled))
        };
        let unit = UnitOfZone { slot, row: self.timing.layout.erase_unit_of_row(row) };
        let die = run.stripe.die(unit).0;
        if cause != Cause::Spill
            && run.begins(unit)
            && let Some(erase) = self.allocator.program(zone, unit)
        {
            self.erase_element(zone, unit.row, erase);
        }
        if let Some(waiter) = waiter {
            self.commands[waiter].parts += 1;
        }
        let padding_to_load = if self.timing.transfers_padding { pad_bytes } else { 0 };
        let bytes_to_load = host_bytes + spilled_bytes + padding_to_load;
        let work = Work {
            cause,
            die,
            place: Place::Zone { zone, generation, slot, row },
            host_bytes,
            spilled_bytes,
            pad_bytes,
            pages_to_load: bytes_to_load.div_ceil(self.timing.read_unit_bytes) as u32,
            group,
            command: waiter,
            padding,
        };
        if cause == Cause::Padding { self.add_work(work) } else { self.program_data(work) }
    }

    /// The dies of an element erase it before they are programmed.
    fn erase_element(&mut self, zone: ZoneIndex, row: u32, erase: ElementErase) {
        for slot in erase.first_slot..erase.first_slot + erase.slots {
            let die = self.zone_map.run(zone).stripe.die(UnitOfZone { slot, row }).0;
            for _ in 0..erase.units {
                self.add_erase(die, Place::ZoneErase { zone });
            }
        }
    }

    /// The buffer is full of partial units that cannot be completed: they are programmed to a
    /// backup area (single-level cells, as a rule), and will be programmed again with the rest of
    /// their unit. If only a group is at its cap, only its data. Returns whether there were any.
    fn spill(&mut self, group: Option<u32>) -> bool {
        let mut spilled = false;
        for zone in self.zone_map.zones_that_hold() {
            if group.is_none_or(|group| self.group_of_zone(zone) == group) {
                self.flush_held(zone, Cause::Spill, None);
                spilled = true;
            }
        }
        (group.is_none() && self.flush_conventional(None)) || spilled
    }

    /// A write has been acknowledged.
    pub(crate) fn on_write_completed(&mut self, command: &PendingCommand) {
        if !command.kind.is_write() || command.flags.is_conventional {
            return;
        }
        let zone = command.zone;
        if self.zone_map.generation(zone) != command.generation {
            return;
        }
        let block_bytes = self.timing.block_bytes;
        let Some(run) = self.zone_map.get_mut(zone) else { return };
        run.writes_in_flight -= 1;
        let end_blocks = (command.offset_bytes + command.bytes) / block_bytes;
        if !self.bug.has(SeededBug::EarlyAcknowledgement) {
            run.acknowledged_blocks = run.acknowledged_blocks.max(end_blocks);
        }
        if run.writes_in_flight == 0
            && let Some(finish) = run.waiting_finish.take()
        {
            self.pad(zone, finish);
        }
    }

    /// The zone was reset: its elements are free.
    pub(crate) fn reset_zone(&mut self, zone: ZoneIndex) {
        self.allocator.reset(zone);
        self.forget_zone(zone);
    }

    /// The zone went offline: its elements are never used again.
    pub(crate) fn retire_zone(&mut self, zone: ZoneIndex) {
        self.allocator.retire(zone);
        self.forget_zone(zone);
    }

    /// The contents of the zone are discarded, with all data of it in flight.
    fn forget_zone(&mut self, zone: ZoneIndex) {
        let group = self.group_of_zone(zone);
        self.zone_map.begin_generation(zone);
        let Some(run) = self.zone_map.remove(zone) else { return };
        let held = run.held_bytes();
        self.buffer.will_return(group, held);
        self.buffer.release(group, held);
        if let Some(finish) = run.waiting_finish {
            self.end_part(finish);
        }
        if self.buffer.is_waited_for() {
            self.admit();
        }
    }

    /// No more data will arrive for this zone: held data are programmed as they are.
    pub(crate) fn seal_zone(&mut self, zone: ZoneIndex) {
        if let Some(run) = self.zone_map.get_mut(zone) {
            run.is_sealed = true;
            self.flush_held(zone, Cause::Host, None);
        }
    }
}
