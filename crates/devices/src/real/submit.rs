//! Commands: the zone table accepts or refuses them, and they are split into parts.

use bytes::Bytes;
use zonda_zoned::zones::{WriteGrant, ZoneEffect};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, Key, Lba, LbaRange, NamespaceId, Operation, Outcome, Payload,
    Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
};

use zonda_zoned::limits::METADATA_BYTES_MAX;

use super::parts::{Part, Work};
use super::{Machine, RawAction, Run, Trust};

/// Zeros for writes of zeros, in pieces of at most this size.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

const _: () = assert!(METADATA_BYTES_MAX <= 512, "the metadata of a piece is not longer than its data");

impl Machine {
    /// Executes a command, or refuses it.
    pub(super) fn take(&mut self, command: Command) {
        let id = command.id;
        let taken = match () {
            () if command.namespace != NamespaceId::FIRST => Err(Status::InvalidNamespace),
            // What the table has accepted since may not have happened.
            () if self.is_removed => Err(Status::InternalError),
            () => self.take_operation(id, command.operation),
        };
        if let Err(status) = taken {
            self.completions.push_back(Completion::of(id, status));
        }
    }

    fn take_operation(&mut self, id: CommandId, operation: Operation) -> Result<(), Status> {
        match operation {
            Operation::Read { start, blocks } => self.take_read(id, start, blocks),
            Operation::Write { start, blocks, payload } => {
                self.refuse_suspect(start)?;
                let fits = self.fits(&payload, blocks);
                let grant = self.table.write(start, blocks, fits)?;
                self.add_write(id, grant, blocks, buffer_of(payload).as_ref(), Outcome::None);
                Ok(())
            }
            Operation::Append { zone_start, blocks, payload } => {
                self.refuse_suspect(zone_start)?;
                let fits = self.fits(&payload, blocks);
                let grant = self.table.append(zone_start, blocks, fits)?;
                let outcome = Outcome::Appended(grant.start);
                match buffer_of(payload) {
                    Some(buffer) if self.abilities.append => self.add_append(id, grant, blocks, buffer, outcome),
                    buffer => self.add_write(id, grant, blocks, buffer.as_ref(), outcome),
                }
                Ok(())
            }
            Operation::WriteZeroes { start, blocks } => {
                self.refuse_suspect(start)?;
                let grant = self.table.write_zeroes(start, blocks)?;
                self.add_write(id, grant, blocks, None, Outcome::None);
                Ok(())
            }
            Operation::Deallocate { ranges } => self.take_deallocate(id, &ranges),
            Operation::Flush => {
                let run = self.begin(id, Blocks::ZERO, Outcome::None);
                self.flush(Some(run));
                Ok(())
            }
            Operation::ManageZones { action, target } => self.take_management(id, &action, target),
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
                let report = self.table.report(start, filter, extended, partial, descriptors_max)?;
                self.complete_now(id, Outcome::Report(Box::new(report)));
                Ok(())
            }
            Operation::ReadChangedZones => {
                let changed = self.table.take_changed_zones();
                self.complete_now(id, Outcome::ChangedZones(Box::new(changed)));
                Ok(())
            }
        }
    }

    fn complete_now(&mut self, id: CommandId, outcome: Outcome) {
        self.completions.push_back(Completion { id, status: Status::Success, outcome });
    }

    fn begin(&mut self, id: CommandId, blocks: Blocks, outcome: Outcome) -> Key<Run> {
        // The submission itself counts as a part until all others are added.
        self.runs.insert(Run { id, parts_left: 1, status: Status::Success, outcome, blocks, read: Vec::new() })
    }

    fn add(&mut self, part: Part, takes: bool) {
        if let Some(run) = part.run {
            self.runs[run].parts_left += 1;
        }
        self.parts.add(part, takes);
    }

    /// Closes the zone that the table has closed to free an open resource. A drive would close one by
    /// itself, but not necessarily this one; and null_blk only while an active resource is free.
    fn close(&mut self, zone: ZoneIndex) {
        let mut part = Part::new(None, zone, 0, u64::MAX, Work::Manage(RawAction::Close));
        part.frees = true;
        self.parts.add(part, false);
    }

    /// Whether a payload has the size of its blocks. Only bytes are stored.
    fn fits(&self, payload: &Payload, blocks: Blocks) -> bool {
        let geometry = self.table.geometry();
        !matches!(payload, Payload::Fingerprints(_))
            && payload.fits(blocks.0, geometry.block_size_bytes, geometry.metadata_bytes)
    }

    /// Refuses a write while the write pointer is not known for certain.
    fn refuse_suspect(&mut self, start: Lba) -> Result<(), Status> {
        let Some(zone) = self.table.geometry().zone_of(start) else { return Ok(()) };
        if self.trust[zone.as_usize()] == Trust::Sure {
            return Ok(());
        }
        self.report_again(zone);
        self.start_ready();
        Err(Status::WriteFault)
    }

    /// The blocks from `lba` on that are in one zone, at most `blocks`: the zone and two offsets.
    fn piece(&self, lba: u64, blocks: u64) -> (ZoneIndex, u64, u64) {
        let size = self.table.geometry().zone_size_blocks.0;
        let first = lba % size;
        (ZoneIndex((lba / size) as u32), first, size.min(first + blocks))
    }

    /// The offset from which on blocks of a zone read as zeros.
    fn readable(&self, zone: ZoneIndex) -> u64 {
        let geometry = self.table.geometry();
        let is_conventional = zone.0 < geometry.conventional_zone_count;
        if is_conventional { geometry.zone_capacity_blocks.0 } else { self.table.readable_blocks(zone).0 }
    }

    fn take_read(&mut self, id: CommandId, start: Lba, blocks: Blocks) -> Result<(), Status> {
        self.table.check_read(start, blocks)?;
        self.refuse_unknown(start, blocks)?;
        let run = self.begin(id, blocks, Outcome::Data(Payload::None));
        let mut place = 0;
        while place < blocks.0 {
            let (zone, first, end) = self.piece(start.0 + place, blocks.0 - place);
            let written = end.min(self.readable(zone));
            // Zeros behind a reset are zeros once the reset has succeeded.
            if first < written || self.parts.of_zone(zone).any(Part::is_management) {
                let written = written.max(first);
                self.add(Part::new(Some(run), zone, first, written, Work::Read { place }), false);
            }
            place += end - first;
        }
        self.end_share(run, Status::Success);
        Ok(())
    }

    /// Refuses a read while the contents of a zone are not known.
    fn refuse_unknown(&mut self, start: Lba, blocks: Blocks) -> Result<(), Status> {
        let size = self.table.geometry().zone_size_blocks.0;
        let zones = start.0 / size..=(start.0 + blocks.0 - 1) / size;
        for zone in zones.map(|zone| ZoneIndex(zone as u32)) {
            if self.trust[zone.as_usize()] == Trust::Unknown {
                self.report_again(zone);
                self.start_ready();
                return Err(Status::InternalError);
            }
        }
        Ok(())
    }

    /// Writes in transfers; `None` writes zeros.
    fn add_write(
        &mut self,
        id: CommandId,
        grant: WriteGrant,
        blocks: Blocks,
        buffer: Option<&BlockBuffer>,
        outcome: Outcome,
    ) {
        let run = self.begin(id, Blocks::ZERO, outcome);
        grant.closed.into_iter().for_each(|zone| self.close(zone));
        let block_bytes = self.table.geometry().block_size_bytes as usize;
        let metadata_bytes = usize::from(self.table.geometry().metadata_bytes);
        let most = match buffer {
            Some(_) => blocks.0,
            None => self.table.geometry().max_transfer_blocks.0.min((ZEROS.len() / block_bytes) as u64),
        };
        let mut place = 0;
        while place < blocks.0 {
            let (zone, first, end) = self.piece(grant.start.0 + place, most.min(blocks.0 - place));
            let (from, count) = (place as usize, (end - first) as usize);
            let piece = |bytes: &Bytes, each: usize| bytes.slice(from * each..(from + count) * each);
            let zeros = |each: usize| Bytes::from_static(&ZEROS[..count * each]);
            let buffer = match buffer {
                Some(BlockBuffer { data, metadata }) => {
                    BlockBuffer { data: piece(data, block_bytes), metadata: piece(metadata, metadata_bytes) }
                }
                None => BlockBuffer { data: zeros(block_bytes), metadata: zeros(metadata_bytes) },
            };
            let mut part = Part::new(Some(run), zone, first, end, Work::Write { buffer });
            part.frees = grant.filled && place + (end - first) == blocks.0;
            self.add(part, grant.opened && place == 0);
            place += end - first;
        }
        self.end_share(run, Status::Success);
    }

    fn add_append(&mut self, id: CommandId, grant: WriteGrant, blocks: Blocks, buffer: BlockBuffer, outcome: Outcome) {
        let run = self.begin(id, Blocks::ZERO, outcome);
        grant.closed.into_iter().for_each(|zone| self.close(zone));
        let offset = grant.offset_blocks.0;
        // Where the drive places an append among those in flight is not known: it may touch the blocks
        // of all of them. Some may be from before a reset, and behind this one.
        let in_flight = self.parts.of_zone(grant.zone).filter(|part| matches!(part.work, Work::Append { .. }));
        let first = in_flight.map(|part| part.first).fold(offset, u64::min);
        let mut part = Part::new(Some(run), grant.zone, first, offset + blocks.0, Work::Append { buffer });
        part.frees = grant.filled;
        if grant.filled {
            self.parts.free_with_appends(grant.zone);
        }
        self.add(part, grant.opened);
        self.end_share(run, Status::Success);
    }

    /// Blocks that were written read as zeros afterwards. A drive that cannot guarantee that refuses,
    /// unless nothing has been written there.
    fn take_deallocate(&mut self, id: CommandId, ranges: &[LbaRange]) -> Result<(), Status> {
        self.table.check_deallocate(ranges)?;
        let mut pieces = Vec::new();
        for range in ranges {
            let mut done = 0;
            while done < range.blocks.0 {
                let (zone, first, end) = self.piece(range.start.0 + done, range.blocks.0 - done);
                let written = end.min(self.readable(zone));
                if first < written {
                    pieces.push((zone, first, written));
                }
                done += end - first;
            }
        }
        if !pieces.is_empty() && !self.abilities.deallocate {
            return Err(Status::InvalidField);
        }
        let run = self.begin(id, Blocks::ZERO, Outcome::None);
        for (zone, first, end) in pieces {
            self.add(Part::new(Some(run), zone, first, end, Work::Deallocate), false);
        }
        self.end_share(run, Status::Success);
        Ok(())
    }

    fn take_management(&mut self, id: CommandId, action: &ZoneAction, target: ZoneTarget) -> Result<(), Status> {
        let raw = match action {
            ZoneAction::Reset => RawAction::Reset,
            ZoneAction::Finish => RawAction::Finish,
            ZoneAction::Close => RawAction::Close,
            ZoneAction::Offline => RawAction::Offline,
            // It takes resources as Open does.
            ZoneAction::Open { .. } | ZoneAction::SetDescriptorExtension { .. } => RawAction::Open,
            // The table refuses it: the geometry has no ZRWAs.
            ZoneAction::FlushZrwa => RawAction::Open,
        };
        let work = || match action {
            ZoneAction::SetDescriptorExtension { extension, .. } => {
                Work::SetExtension { extension: Bytes::copy_from_slice(extension) }
            }
            _ => Work::Manage(raw),
        };
        if raw == RawAction::Offline && !self.abilities.offline && self.has_read_only(target) {
            return Err(Status::InvalidField);
        }
        if let (ZoneTarget::Zone(start), true) = (target, raw != RawAction::Reset) {
            self.refuse_suspect(start)?;
        }
        let mut effects = std::mem::take(&mut self.effects);
        let managed = self.table.manage(action, target, &mut effects);
        if managed.is_ok() {
            let run = self.begin(id, Blocks::ZERO, Outcome::None);
            for effect in &effects {
                let zone = effect.zone();
                if matches!(effect, ZoneEffect::Closed { .. }) && raw == RawAction::Open {
                    self.close(zone);
                    continue;
                }
                let mut part = Part::new(Some(run), zone, 0, u64::MAX, work());
                part.frees = raw != RawAction::Open;
                self.add(part, raw == RawAction::Open);
            }
            // What a zone was told before may still be in flight.
            let unchanged: Vec<ZoneIndex> = match target {
                ZoneTarget::Zone(_) if !effects.is_empty() => Vec::new(),
                ZoneTarget::Zone(start) => {
                    vec![self.table.geometry().zone_of(start).expect("the table has accepted the zone")]
                }
                ZoneTarget::All => {
                    let zones = (0..self.table.geometry().zone_count).map(ZoneIndex);
                    let is_managed = |zone: &ZoneIndex| self.parts.of_zone(*zone).any(Part::is_management);
                    let is_new = |zone: &ZoneIndex| effects.iter().all(|effect| effect.zone() != *zone);
                    zones.filter(|zone| is_managed(zone) && is_new(zone)).collect()
                }
            };
            for zone in unchanged {
                self.add(Part::new(Some(run), zone, 0, u64::MAX, Work::Nothing), false);
            }
            self.end_share(run, Status::Success);
        }
        effects.clear();
        self.effects = effects;
        managed
    }

    /// Whether the target is, or includes, a read only zone.
    fn has_read_only(&self, target: ZoneTarget) -> bool {
        let geometry = self.table.geometry();
        let is_read_only = |zone: ZoneIndex| self.table.zone(zone).state == ZoneState::ReadOnly;
        match target {
            ZoneTarget::Zone(start) => geometry.zone_of(start).is_some_and(is_read_only),
            ZoneTarget::All => (0..geometry.zone_count).map(ZoneIndex).any(is_read_only),
        }
    }
}

/// The contents of a payload; `None`: zeros.
fn buffer_of(payload: Payload) -> Option<BlockBuffer> {
    match payload {
        Payload::Bytes(buffer) => Some(*buffer),
        Payload::None | Payload::Fingerprints(_) => None,
    }
}
