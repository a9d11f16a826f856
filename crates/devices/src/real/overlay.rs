//! [`Overlay`]: a drive of this machine or a namespace of a server that is read only, and on which zones
//! and blocks change in memory.

use std::collections::{BTreeMap, VecDeque};

use bytes::BytesMut;
use zonda_zoned::{
    BlockBuffer, Blocks, Geometry, Lba, Operation, Outcome, Payload, Status, ZoneDescriptor, ZoneState, ZonedDevice,
};

use super::{
    Abilities, Answer, FoundZone, Opened, Queue, RawAction, RawError, RawOperation, RealDrive, Request, RequestId,
    table_of,
};
use crate::copy_on_write::CHANGED_BYTES_MAX;
use crate::probe::{self, written_blocks};
use crate::{Connection, DriveError, Location, NamespaceOptions};

/// Requests that read what was on the drive when it was opened, and what was written here since.
pub(crate) struct Overlay {
    connection: Connection,
    geometry: Geometry,
    /// Of each zone: how many of its first blocks are read from the drive.
    on_drive: Vec<u64>,
    /// Blocks that were written here.
    written: BTreeMap<u64, BlockBuffer>,
    answers: VecDeque<(RequestId, Result<Answer, RawError>)>,
}

impl RealDrive<Overlay> {
    /// Opens a device file read-only, or connects to a server and reserves nothing. Commands complete at
    /// once, and block meanwhile.
    pub(crate) fn open_overlay(
        location: &Location,
        options: &NamespaceOptions,
    ) -> Result<RealDrive<Overlay>, DriveError> {
        let options = NamespaceOptions { read_only: true, claim: None, ..options.clone() };
        RealDrive::overlay_of(Connection::open(location, &options)?)
    }

    /// Why the drive cannot be read any more, as in "the connection to it is lost".
    pub(crate) fn unusable(&self) -> Option<&'static str> {
        self.queue().connection.unusable()
    }

    fn overlay_of(mut connection: Connection) -> Result<RealDrive<Overlay>, DriveError> {
        let geometry = connection.geometry().clone();
        let zones = report(&mut connection, &geometry)?;
        let found: Vec<FoundZone> = zones.iter().map(found).collect();
        let table = table_of(&geometry, &found).map_err(|zone| {
            let message = format!("zone {zone} is active beyond the limits of the drive");
            DriveError::new(message, "reset or finish zones")
        })?;
        let conventional = geometry.conventional_zone_count as usize;
        let on_drive = zones.iter().enumerate().map(|(zone, found)| match zone < conventional {
            true => found.capacity_blocks.0,
            false => written_blocks(found),
        });
        let on_drive = on_drive.collect();
        let overlay = Overlay { connection, geometry, on_drive, written: BTreeMap::new(), answers: VecDeque::new() };
        let opened = Opened { table, abilities: Abilities::default(), identity: None, notes: Vec::new() };
        Ok(RealDrive::new(opened, overlay))
    }

    /// Whether every request has its answer, and the machine has it.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.queue().answers.is_empty() && self.next_timeout().is_none()
    }
}

fn found(zone: &ZoneDescriptor) -> FoundZone {
    FoundZone::new(zone.state, Blocks(written_blocks(zone)))
}

fn report(connection: &mut Connection, geometry: &Geometry) -> Result<Vec<ZoneDescriptor>, DriveError> {
    let mut zones: Vec<ZoneDescriptor> = Vec::new();
    while (zones.len() as u32) < geometry.zone_count {
        let known = zones.len() as u32;
        match connection.execute(probe::report(geometry, known, geometry.zone_count - known))?.outcome {
            Outcome::Report(report) if !report.zones.is_empty() => zones.extend(report.zones),
            _ => return Err(DriveError::new("cannot report its zones", "check whether the drive works")),
        }
    }
    Ok(zones)
}

impl Overlay {
    fn read(&mut self, start: Lba, blocks: Blocks) -> Result<Answer, RawError> {
        let block_bytes = self.geometry.block_size_bytes;
        let metadata_bytes = usize::from(self.geometry.metadata_bytes);
        let mut data = BytesMut::with_capacity(blocks.bytes(block_bytes) as usize);
        let mut metadata = BytesMut::new();
        let (mut lba, end) = (start.0, start.0 + blocks.0);
        while lba < end {
            let (zone, offset) = (lba / self.geometry.zone_size_blocks.0, lba % self.geometry.zone_size_blocks.0);
            let left = self.on_drive[zone as usize].saturating_sub(offset).min(end - lba);
            let changed = self.written.range(lba..end).next().map_or(end, |(at, _)| *at);
            match self.written.get(&lba) {
                Some(block) => {
                    data.extend_from_slice(&block.data);
                    metadata.extend_from_slice(&block.metadata);
                    lba += 1;
                }
                None if left > 0 => {
                    let unchanged = left.min(changed - lba);
                    let found = self.read_drive(Lba(lba), Blocks(unchanged))?;
                    data.extend_from_slice(&found.data);
                    metadata.extend_from_slice(&found.metadata);
                    lba += unchanged;
                }
                None => {
                    data.resize(data.len() + block_bytes as usize, 0);
                    metadata.resize(metadata.len() + metadata_bytes, 0);
                    lba += 1;
                }
            }
        }
        Ok(Answer::Data(BlockBuffer { data: data.freeze(), metadata: metadata.freeze() }))
    }

    fn read_drive(&mut self, start: Lba, blocks: Blocks) -> Result<BlockBuffer, RawError> {
        let failed = |status: Status, why: String| RawError { status, why, is_removed: false };
        let completion = self
            .connection
            .execute(Operation::Read { start, blocks })
            .map_err(|error| failed(Status::InternalError, error.to_string()))?;
        match completion.outcome {
            Outcome::Data(Payload::Bytes(buffer)) => Ok(*buffer),
            _ => Err(failed(completion.status, completion.status.to_string())),
        }
    }

    fn carry_out(&mut self, operation: RawOperation) -> Result<Answer, RawError> {
        match operation {
            RawOperation::Read { start, blocks } => return self.read(start, blocks),
            RawOperation::Write { start, buffer: BlockBuffer { mut data, mut metadata } } => {
                let block_bytes = self.geometry.block_size_bytes as usize;
                let metadata_bytes = usize::from(self.geometry.metadata_bytes);
                let kept = self.written.len() as u64 * (block_bytes + metadata_bytes) as u64;
                if kept + (data.len() + metadata.len()) as u64 > CHANGED_BYTES_MAX {
                    let why = format!("the changes of zones do not fit in {CHANGED_BYTES_MAX} bytes of memory");
                    return Err(RawError { status: Status::WriteFault, why, is_removed: false });
                }
                for lba in start.0.. {
                    if data.is_empty() {
                        break;
                    }
                    let (data, metadata) = (data.split_to(block_bytes), metadata.split_to(metadata_bytes));
                    self.written.insert(lba, BlockBuffer { data, metadata });
                }
            }
            RawOperation::Manage { action: RawAction::Reset, zone } => {
                let start = self.geometry.zone_start(zone).0;
                let end = start + self.geometry.zone_size_blocks.0;
                self.written.retain(|lba, _| !(start..end).contains(lba));
                self.on_drive[zone.as_usize()] = 0;
            }
            RawOperation::Manage { .. } | RawOperation::SetExtension { .. } | RawOperation::Flush => {}
            // A write has failed, for lack of memory: the zone takes no others.
            RawOperation::Report { .. } => {
                return Ok(Answer::Zone(FoundZone::new(ZoneState::ReadOnly, Blocks::ZERO)));
            }
            RawOperation::Append { .. } | RawOperation::Deallocate { .. } => {
                unreachable!("the machine was told that the drive has neither")
            }
        }
        Ok(Answer::Done)
    }
}

impl Queue for Overlay {
    fn submit(&mut self, Request { id, operation }: Request) {
        let answer = self.carry_out(operation);
        self.answers.push_back((id, answer));
    }

    fn next(&mut self) -> Option<(RequestId, Result<Answer, RawError>)> {
        self.answers.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use zonda_image::ImageSpec;
    use zonda_zoned::reference::{CommandSource, ReferenceDevice};
    use zonda_zoned::{
        Command, CommandId, Completion, CompletionQueue, Instant, NamespaceId, PayloadKind, Prng, ZoneAction,
        ZoneTarget,
    };

    use super::*;
    use crate::create_image_of;

    fn geometry() -> Geometry {
        Geometry {
            metadata_bytes: 16,
            max_active_zones: None,
            max_open_zones: None,
            zrwa: None,
            descriptor_extension_bytes: 0,
            ..Geometry::tiny()
        }
    }

    fn execute(drive: &mut RealDrive<Overlay>, command: Command) -> Completion {
        let mut completions = CompletionQueue::new();
        drive.submit(Instant::ZERO, command).expect("the queue is empty");
        drive.poll(Instant::ZERO, &mut completions);
        while !drive.is_quiescent() {
            drive.poll(Instant::ZERO, &mut completions);
        }
        completions.pop().expect("it completes at once")
    }

    /// Random commands that a drive without deallocation takes.
    fn next(source: &mut CommandSource, oracle: &ReferenceDevice) -> Command {
        loop {
            let command = source.next(oracle);
            let is_possible = !matches!(command.operation, Operation::Deallocate { .. });
            if command.namespace == NamespaceId::FIRST && is_possible {
                return command;
            }
        }
    }

    #[test]
    fn changes_are_seen_here_and_are_not_on_the_drive() {
        let geometry = geometry();
        for seed in 0..4 {
            let directory = tempfile::tempdir().expect("there is space");
            create_image_of(directory.path(), &ImageSpec::new(geometry.clone(), String::new(), [7; 16]))
                .expect("there is space");
            let location = Location::Image(directory.path().to_owned());
            let mut drive = Connection::open(&location, &NamespaceOptions::default()).expect("it exists");
            let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
            let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
            for _ in 0..200 {
                let command = next(&mut source, &oracle);
                drive.execute(command.operation.clone()).expect("the event loop works");
                oracle.execute(&command);
            }
            drive.close().expect("it can be closed");
            oracle.power_cycle();
            let read_all = |command: &mut dyn FnMut(Operation) -> Outcome| {
                let blocks = 0..geometry.namespace_blocks().0;
                let report = probe::report(&geometry, 0, 99);
                let reads = blocks.map(|lba| Operation::Read { start: Lba(lba), blocks: Blocks(1) });
                [report].into_iter().chain(reads).map(command).collect::<Vec<Outcome>>()
            };
            let of_oracle = |oracle: &mut ReferenceDevice| {
                read_all(&mut |operation| {
                    oracle.execute(&Command::new(CommandId(1), NamespaceId::FIRST, operation)).outcome
                })
            };
            let options = NamespaceOptions { read_only: true, ..NamespaceOptions::default() };
            let mut connection = Connection::open(&location, &options).expect("it is closed");
            // An image does not keep that a zone without data was closed.
            for zone in report(&mut connection, &geometry).expect("it works") {
                if zone.state == ZoneState::Empty {
                    let (action, target) = (ZoneAction::Reset, ZoneTarget::Zone(zone.start));
                    let reset = Operation::ManageZones { action, target };
                    oracle.execute(&Command::new(CommandId(1), NamespaceId::FIRST, reset));
                }
            }
            let before = of_oracle(&mut oracle);
            let mut overlay = RealDrive::overlay_of(connection).expect("its zones are reported");
            for _ in 0..400 {
                let command = next(&mut source, &oracle);
                let shown = format!("{seed}: {:.200}", format!("{:?}", command.operation));
                let (found, expected) = (execute(&mut overlay, command.clone()), oracle.execute(&command));
                assert_eq!(found.status, expected.status, "{shown}");
                let is_zeros = |outcome: &Outcome| match outcome {
                    Outcome::Data(Payload::Bytes(buffer)) => buffer.data.iter().all(|byte| *byte == 0),
                    Outcome::Data(Payload::None) => true,
                    _ => false,
                };
                let is_same = found.outcome == expected.outcome;
                assert!(is_same || is_zeros(&found.outcome) && is_zeros(&expected.outcome), "{shown}");
            }
            assert!(of_oracle(&mut oracle) != before, "the commands have an effect");
            overlay.into_queue().connection.close().expect("nothing has to be written");
            let mut drive = Connection::open(&location, &NamespaceOptions::default()).expect("it is closed");
            let after = read_all(&mut |operation| drive.execute(operation).expect("the event loop works").outcome);
            for (at, (after, before)) in after.iter().zip(&before).enumerate() {
                assert!(after == before, "{seed}, {at}: {after:.300?}\n{before:.300?}");
            }
        }
    }
}
