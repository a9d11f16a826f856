//! FINISH: the rest of a zone is padded, at the program rate of its dies and interleaved with other
//! commands.

use zonda_zoned::{Key, PayloadKind, ZoneIndex};

use crate::pending::{Cause, CommandKey, Kind, Padding, PendingCommand};
use crate::ssd::Ssd;

impl Ssd {
    /// The firmware work of a finish is done: each of its zones is padded once its writes have
    /// arrived.
    pub(crate) fn start_finish(&mut self, index: CommandKey) {
        let zones = std::mem::take(&mut self.commands[index].finishing);
        self.commands[index].parts = zones.len() as u32 + 1;
        for (zone, generation) in zones {
            if self.zone_map.generation(zone) != generation {
                self.end_part(index); // It was reset since: nothing to pad.
                continue;
            }
            let run = self.zone_map.run_mut(zone);
            if run.writes_in_flight > 0 {
                run.waiting_finish = Some(index);
            } else {
                self.pad(zone, index);
            }
        }
        self.end_part(index);
    }

    /// Pads one zone.
    pub(crate) fn pad(&mut self, zone: ZoneIndex, command: CommandKey) {
        self.empty_zrwa(zone);
        let program_unit = self.timing.program_unit_bytes;
        let written_bytes = self.zone_map.run(zone).arrived_bytes;
        let generation = self.zone_map.generation(zone);
        let run = self.zone_map.run_mut(zone);
        run.is_sealed = true;
        let slots = 0..run.stripe.slots();
        let mut ends_bytes: Box<[u64]> = vec![0; usize::from(slots.end)].into();
        self.allocator.pad_ends(written_bytes, &mut ends_bytes);
        let next_row: Box<[u32]> = slots.clone().map(|slot| self.timing.layout.row_at(written_bytes, slot)).collect();
        let end_row = ends_bytes.iter().map(|end_bytes| end_bytes.div_ceil(program_unit) as u32).collect();
        let padding = Padding {
            command,
            zone,
            generation,
            from_bytes: written_bytes,
            ends_bytes,
            next_row,
            end_row,
            in_flight: 1,
        };
        let padding = self.paddings.insert(padding);
        for slot in slots {
            self.pad_next_row(padding, slot);
        }
        self.end_padding_piece(padding);
    }

    /// Blocks in the zone's ZRWA go to flash with it.
    fn empty_zrwa(&mut self, zone: ZoneIndex) {
        let view = self.zones.zone(zone);
        let run = self.zone_map.run_mut(zone);
        let block_bytes = self.timing.block_bytes;
        let left_bytes = (view.written_blocks.0 * block_bytes).saturating_sub(run.arrived_bytes);
        if left_bytes > 0 {
            run.committed_blocks = view.written_blocks.0;
            let group = self.group_of_zone(zone);
            self.buffer.take(group, left_bytes);
            self.buffer.will_return(group, left_bytes);
            self.arrive_in_zone(zone, left_bytes, None);
        }
    }

    fn pad_next_row(&mut self, index: Key<Padding>, slot: u16) {
        let program_unit = self.timing.program_unit_bytes;
        let padding = &mut self.paddings[index];
        let at = usize::from(slot);
        let row = padding.next_row[at];
        if row >= padding.end_row[at] {
            return;
        }
        padding.next_row[at] += 1;
        padding.in_flight += 1;
        let (zone, from_bytes, end_bytes) = (padding.zone, padding.from_bytes, padding.ends_bytes[at]);
        let run = self.zone_map.run_mut(zone);
        let (row_start, row_end) = (u64::from(row) * program_unit, (u64::from(row) + 1) * program_unit);
        let written = self.timing.layout.bytes_on_slot(from_bytes, slot).max(row_start);
        let pad_bytes = end_bytes.min(row_end).saturating_sub(written);
        let host_bytes = u64::from(std::mem::take(&mut run.slots[at].held_bytes));
        self.buffer.will_return(self.group_of_zone(zone), host_bytes);
        self.program_zone(zone, slot, row, Cause::Padding, host_bytes, pad_bytes, None, Some(index));
    }

    /// A die has programmed a unit of padding: the next one is queued.
    pub(crate) fn on_padded(&mut self, index: Key<Padding>, slot: u16) {
        let padding = &self.paddings[index];
        if self.zone_map.generation(padding.zone) == padding.generation {
            self.pad_next_row(index, slot);
        }
        self.end_padding_piece(index);
    }

    fn end_padding_piece(&mut self, index: Key<Padding>) {
        let padding = &mut self.paddings[index];
        padding.in_flight -= 1;
        if padding.in_flight == 0 {
            let command = padding.command;
            self.paddings.remove(index);
            self.end_part(command);
        }
    }

    /// A finish is complete, and is not undone by a power loss: elements that its zones do not need
    /// are free.
    pub(crate) fn on_finish_completed(&mut self, command: &PendingCommand) {
        if command.kind != Kind::Finish {
            return;
        }
        for entry in command.undo.iter().flat_map(|undo| &undo.zones) {
            if self.zone_map.generation(entry.zone) == entry.generation {
                let arrived_bytes = self.zone_map.run(entry.zone).arrived_bytes;
                self.allocator.release_untouched(entry.zone, arrived_bytes);
            }
        }
    }

    /// [`SeededBug::FinishForgetsTail`](crate::bug::SeededBug::FinishForgetsTail): the last block
    /// is missing in the padding's program.
    pub(crate) fn forget_tail(&mut self, zone: ZoneIndex) {
        let written = self.zones.zone(zone).written_blocks.0;
        if written > 0 && self.store.kind() != PayloadKind::None {
            self.store.zero(zone, written - 1);
        }
    }
}
