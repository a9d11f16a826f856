//! Commands: the zone table accepts or refuses them, and they are split into parts.

use std::ops::Range;

use bytes::Bytes;
use zonda_zoned::zones::WriteGrant;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Key, Lba, LbaRange, NamespaceId, Operation, Outcome, Payload, Status,
    ZoneIndex,
};

use crate::format::Generation;
use crate::limits::ZERO_CHUNK_BLOCKS;

use super::Image;
use super::commands::CommandRun;
use super::parts::{Part, Work};

/// Consecutive blocks of one zone.
struct Piece {
    zone: ZoneIndex,
    first: u64,
    end: u64,
}

impl Image {
    pub(super) fn take(&mut self, command: Command) {
        let id = command.id;
        if command.namespace != NamespaceId::FIRST {
            self.commands.refuse(id, Status::InvalidNamespace);
            return;
        }
        let taken = match command.operation {
            Operation::Read { start, blocks } => self.take_read(id, start, blocks),
            Operation::Write { start, blocks, payload } => {
                let fits = self.fits(&payload, blocks);
                let granted = self.table.write(start, blocks, fits);
                granted.map(|grant| self.take_write(id, grant, blocks, payload, Outcome::None))
            }
            Operation::Append { zone_start, blocks, payload } => {
                let fits = self.fits(&payload, blocks);
                let granted = self.table.append(zone_start, blocks, fits);
                granted.map(|grant| self.take_write(id, grant, blocks, payload, Outcome::Appended(grant.start)))
            }
            Operation::WriteZeroes { start, blocks } => {
                let granted = self.table.write_zeroes(start, blocks);
                granted.map(|grant| self.take_write(id, grant, blocks, Payload::None, Outcome::None))
            }
            Operation::Deallocate { ranges } => self.take_deallocate(id, &ranges),
            Operation::Flush => {
                self.take_flush(id);
                Ok(())
            }
            Operation::ManageZones { action, target } => self.take_management(id, &action, target),
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
                self.table.report(start, filter, extended, partial, descriptors_max).map(|report| {
                    self.commands.answer(id, Outcome::Report(Box::new(report)));
                })
            }
            Operation::ReadChangedZones => {
                self.commands.answer(id, Outcome::ChangedZones(Box::new(self.table.take_changed_zones())));
                Ok(())
            }
        };
        if let Err(status) = taken {
            self.commands.refuse(id, status);
        }
    }

    /// Whether a payload has the right size. A drive stores bytes, not fingerprints.
    fn fits(&self, payload: &Payload, blocks: Blocks) -> bool {
        let geometry = &self.spec.geometry;
        !matches!(payload, Payload::Fingerprints(_))
            && payload.fits(blocks.0, geometry.block_size_bytes, geometry.metadata_bytes)
    }

    fn take_read(&mut self, id: CommandId, start: Lba, blocks: Blocks) -> Result<(), Status> {
        self.table.check_read(start, blocks)?;
        let command = self.commands.begin_read(id, blocks.0);
        let mut place = 0;
        while place < blocks.0 {
            let Piece { zone, first, end } = self.piece(start.0 + place, blocks.0 - place);
            let readable = end.min(self.readable(zone));
            if first < readable {
                let work = Work::Read { place, data: None, tags: None, damage: None };
                self.add(Part::new(Some(command), zone, self.zones[zone.as_usize()].generation, first, readable, work));
            }
            place += end - first;
        }
        self.commands.end_part(command, Status::Success);
        Ok(())
    }

    fn take_write(&mut self, id: CommandId, grant: WriteGrant, blocks: Blocks, payload: Payload, outcome: Outcome) {
        let command = self.commands.begin(id, outcome);
        let buffer = match payload {
            Payload::Bytes(buffer) => Some(buffer),
            Payload::None | Payload::Fingerprints(_) => None,
        };
        let at_once = self.blocks_at_once(grant.overwrites, buffer.is_some());
        // A zone's first write waits for parts that free an active resource, so that a crash never
        // leaves too many active zones.
        let takes_resource = grant.offset_blocks == Blocks::ZERO && !grant.overwrites;
        let mut done = 0;
        let mut last = None;
        while done < blocks.0 {
            let Piece { zone, first, end } = self.piece(grant.start.0 + done, (blocks.0 - done).min(at_once));
            let length = end - first;
            let generation = self.zones[zone.as_usize()].generation;
            let blocks = done..done + length;
            let (data, tags) =
                self.contents(buffer.as_deref(), grant.start.0 + done, blocks, generation, grant.overwrites);
            let work = if grant.overwrites {
                Work::Overwrite { data, tags, counts: true, found: None, intent: None }
            } else {
                Work::Sequential { data, tags }
            };
            last = Some(self.add_waiting(Part::new(Some(command), zone, generation, first, end, work), takes_resource));
            done += length;
        }
        if grant.filled {
            self.parts.frees_resource(last.expect("a write that fills a zone has blocks"));
        }
        self.commands.end_part(command, Status::Success);
    }

    /// Data and tags of some blocks of a write, counted from its first.
    fn contents(
        &self,
        buffer: Option<&BlockBuffer>,
        lba: u64,
        blocks: Range<u64>,
        generation: Generation,
        overwrites: bool,
    ) -> (Option<Bytes>, Bytes) {
        let Some(buffer) = buffer else {
            return (None, self.codec.of_zeros(lba, generation, blocks.end - blocks.start));
        };
        let slice =
            |bytes: &Bytes, unit: u64| bytes.slice((blocks.start * unit) as usize..(blocks.end * unit) as usize);
        let data = slice(&buffer.data, self.layout.block_bytes);
        let metadata = slice(&buffer.metadata, self.codec.metadata_bytes() as u64);
        if overwrites && self.layout.logs_contents {
            let (data, tags) = self.codec.of_overwrite(lba, generation, data, &metadata);
            return (Some(data), tags);
        }
        let tags = self.codec.of_data(lba, generation, &data, &metadata);
        (Some(data), tags)
    }

    /// Maximum number of blocks of one part.
    fn blocks_at_once(&self, overwrites: bool, has_data: bool) -> u64 {
        match (overwrites && self.layout.logs_contents, has_data) {
            (true, true) => self.layout.logged_blocks(),
            (false, true) if overwrites => self.layout.intended_blocks(),
            (false, true) => u64::MAX,
            (_, false) => ZERO_CHUNK_BLOCKS,
        }
    }

    fn take_deallocate(&mut self, id: CommandId, ranges: &[LbaRange]) -> Result<(), Status> {
        self.table.check_deallocate(ranges)?;
        let command = self.commands.begin(id, Outcome::None);
        for range in ranges {
            let mut done = 0;
            while done < range.blocks.0 {
                let left = (range.blocks.0 - done).min(ZERO_CHUNK_BLOCKS);
                let Piece { zone, first, end } = self.piece(range.start.0 + done, left);
                let readable = end.min(self.readable(zone));
                if first < readable {
                    self.deallocate_piece(command, zone, first, readable);
                }
                // Blocks that a reset has emptied are durably zeros once the reset is synced.
                if end > readable && self.parts.has_management(zone) {
                    self.wait_for_management(command, zone);
                }
                done += end - first;
            }
        }
        self.commands.end_part(command, Status::Success);
        Ok(())
    }

    /// Deallocates blocks of a zone. If they may be overwritten again, their data become zeros too;
    /// else a tag is enough.
    fn deallocate_piece(&mut self, command: Key<CommandRun>, zone: ZoneIndex, first: u64, end: u64) {
        let had_zrwa = self.zones[zone.as_usize()].had_zrwa;
        let view = self.table.zone(zone);
        let overwritable_from = if self.layout.is_conventional(zone) || (had_zrwa && self.layout.logs_contents) {
            0
        } else if view.attributes.zrwa_valid {
            view.write_pointer_blocks.0
        } else {
            self.layout.capacity
        };
        let middle = overwritable_from.clamp(first, end);
        let generation = self.zones[zone.as_usize()].generation;
        for (first, end, overwrites) in [(first, middle, false), (middle, end, true)] {
            if first == end {
                continue;
            }
            let tags = self.codec.of_zeros(self.lba(zone, first), generation, end - first);
            let work = if overwrites {
                Work::Overwrite { data: None, tags, counts: false, found: None, intent: None }
            } else {
                Work::Zero { tags }
            };
            self.add(Part::new(Some(command), zone, generation, first, end, work));
        }
    }

    /// The blocks from `lba` on that lie in one zone, at most `blocks`.
    #[inline]
    fn piece(&self, lba: u64, blocks: u64) -> Piece {
        let size = self.spec.geometry.zone_size_blocks.0;
        let first = lba % size;
        Piece { zone: ZoneIndex((lba / size) as u32), first, end: size.min(first + blocks) }
    }

    /// The offset from which on blocks of a zone read as zeros without access to the files.
    #[inline]
    fn readable(&self, zone: ZoneIndex) -> u64 {
        if self.layout.is_conventional(zone) { self.layout.capacity } else { self.table.readable_blocks(zone).0 }
    }
}
