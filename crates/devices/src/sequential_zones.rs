//! [`SequentialZones`]: the sequential zones of a drive that also has conventional ones, as a drive
//! of their own.

use zonda_initiator::{Claimed, Conflict};
use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces, Operation, Outcome,
    QueueFull, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::drive::as_the_drive_below;
use crate::{Drive, DriveFacts, Extent, SchedulerFacts};

/// The conventional zones that precede the sequential ones of a drive; 0 for a drive whose zones are
/// all of one kind.
#[must_use]
pub fn conventional_zones_before(geometry: &Geometry) -> u32 {
    if geometry.conventional_zone_count < geometry.zone_count { geometry.conventional_zone_count } else { 0 }
}

/// Translates zones and addresses of the sequential part of a drive to those of the drive, and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SequentialPart {
    /// The zone of the drive that the part shows as zone 0.
    first: ZoneIndex,
    /// Where that zone starts.
    start_blocks: u64,
}

impl SequentialPart {
    /// The part of a drive with this geometry: all of it if its zones are of one kind.
    pub(crate) fn of(whole: &Geometry) -> SequentialPart {
        let first = conventional_zones_before(whole);
        SequentialPart { first: ZoneIndex(first), start_blocks: u64::from(first) * whole.zone_size_blocks.0 }
    }

    /// The geometry of the part.
    pub(crate) fn geometry(self, whole: &Geometry) -> Geometry {
        match self.first.0 {
            0 => whole.clone(),
            first => Geometry { zone_count: whole.zone_count - first, conventional_zone_count: 0, ..whole.clone() },
        }
    }

    /// An address beyond the end of the part stays beyond the end of the drive.
    fn on_drive(self, lba: Lba) -> Lba {
        Lba(lba.0.saturating_add(self.start_blocks))
    }

    fn in_part(self, lba: Lba) -> Lba {
        let offset_blocks = lba.0.checked_sub(self.start_blocks);
        // A command of the part cannot reach the conventional zones.
        Lba(offset_blocks.expect("a drive places data of the part behind the conventional zones"))
    }

    /// The command of the drive for a command of the part.
    pub(crate) fn command_on_drive(self, mut command: Command) -> Command {
        self.shift(&mut command.operation, |lba| self.on_drive(lba));
        command
    }

    /// A command that the drive has refused, as it was submitted to the part.
    pub(crate) fn refused(self, QueueFull(mut command): QueueFull) -> QueueFull {
        // Addresses that were cut at the end of the address space do not come back. They are as
        // invalid as before.
        self.shift(&mut command.operation, |lba| self.in_part(lba));
        QueueFull(command)
    }

    fn shift(self, operation: &mut Operation, shifted: impl Fn(Lba) -> Lba) {
        match operation {
            Operation::Read { start, .. }
            | Operation::Write { start, .. }
            | Operation::Append { zone_start: start, .. }
            | Operation::WriteZeroes { start, .. }
            | Operation::ManageZones { target: ZoneTarget::Zone(start), .. }
            | Operation::ReportZones { start, .. } => *start = shifted(*start),
            Operation::Deallocate { ranges } => ranges.iter_mut().for_each(|range| range.start = shifted(range.start)),
            // Select All does not affect conventional zones.
            Operation::ManageZones { target: ZoneTarget::All, .. } | Operation::Flush | Operation::ReadChangedZones => {
            }
        }
    }

    /// The completion of a command of the part.
    pub(crate) fn completion_in_part(self, mut completion: Completion) -> Completion {
        match &mut completion.outcome {
            Outcome::Appended(lba) => *lba = self.in_part(*lba),
            Outcome::Report(report) => {
                for zone in &mut report.zones {
                    zone.start = self.in_part(zone.start);
                    zone.write_pointer = zone.write_pointer.map(|lba| self.in_part(lba));
                }
            }
            Outcome::ChangedZones(list) => {
                list.zones.retain(|zone| *zone >= self.first);
                list.zones.iter_mut().for_each(|zone| zone.0 -= self.first.0);
            }
            Outcome::None | Outcome::Data(_) => {}
        }
        completion
    }
}

/// The sequential zones of a drive, numbered from 0; its conventional zones, which precede them, are
/// not used.
///
/// NVMe has no namespace with both kinds of zones, and volumes and pools write sequential zones only.
/// Host-managed SMR disks have both. Limits of open and active zones, identifiers and saved
/// reservations are those of the drive.
pub struct SequentialZones {
    drive: Box<dyn Drive>,
    part: SequentialPart,
    namespaces: Namespaces,
    /// That conventional zones are not used, until the owner of the drive has taken it for the log.
    note: Option<String>,
}

impl SequentialZones {
    /// The sequential zones of a drive that has conventional ones, too; other drives as they are.
    #[must_use]
    pub fn of(drive: Box<dyn Drive>) -> Box<dyn Drive> {
        match SequentialZones::new(drive) {
            part if part.unused_zones() == 0 => part.drive,
            part => Box::new(part),
        }
    }

    fn new(drive: Box<dyn Drive>) -> SequentialZones {
        let whole = drive.geometry(NamespaceId::FIRST);
        let part = SequentialPart::of(whole);
        let namespaces = Namespaces::single(part.geometry(whole));
        SequentialZones { note: Some(not_used(part.first.0)), part, namespaces, drive }
    }

    fn drive(&self) -> &dyn Drive {
        &*self.drive
    }

    fn drive_mut(&mut self) -> &mut dyn Drive {
        &mut *self.drive
    }
}

/// What the log says about conventional zones.
fn not_used(zones: u32) -> String {
    match zones {
        1 => "the conventional zone of the drive is not used".to_owned(),
        zones => format!("the {zones} conventional zones of the drive are not used"),
    }
}

impl ZonedDevice for SequentialZones {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let command = self.part.command_on_drive(command);
        self.drive.submit(now, command).map_err(|refused| self.part.refused(refused))
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut ended = CompletionQueue::new();
        self.drive.poll(now, &mut ended);
        while let Some(completion) = ended.pop() {
            completions.push(self.part.completion_in_part(completion));
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.drive.next_timeout()
    }
}

impl Drive for SequentialZones {
    as_the_drive_below!(drive, drive_mut, with zones of its own);

    fn facts(&self) -> DriveFacts {
        let mut facts = self.drive.facts();
        facts.zones_by_state.retain(|(state, _)| *state != ZoneState::NotWritePointer);
        facts
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        let mut before = self.part.first.0;
        self.drive.visit_zones(&mut |state, written| match before {
            0 => visit(state, written),
            _ => before -= 1,
        });
    }

    fn unused_zones(&self) -> u32 {
        self.part.first.0
    }

    fn extent(&self, start: Lba, most: Blocks) -> Extent {
        self.drive.extent(self.part.on_drive(start), most)
    }

    fn take_warning(&mut self) -> Option<String> {
        self.note.take().or_else(|| self.drive.take_warning())
    }

    fn scheduler(&self) -> Option<SchedulerFacts> {
        self.drive.scheduler()
    }

    fn claimed(&self) -> Option<Claimed> {
        self.drive.claimed()
    }

    fn conflict(&self) -> Option<Conflict> {
        self.drive.conflict()
    }

    fn close(&mut self, now: Instant) {
        self.drive.close(now);
    }

    fn close_reserved(&mut self, now: Instant) {
        self.drive.close_reserved(now);
    }
}

#[cfg(test)]
mod tests {
    use zonda_conformance::{Virtual, conformance};
    use zonda_zoned::reference::{CommandSource, ReferenceDevice};
    use zonda_zoned::{BlockBuffer, CommandId, Payload, PayloadKind, Prng, Status, ZoneAction};

    use super::*;
    use crate::MemoryDrive;

    /// A drive of 12 zones, the first 4 of which are conventional.
    fn mixed() -> Geometry {
        Geometry { conventional_zone_count: 4, ..sequential(12) }
    }

    /// Conventional zones have no gap at their end.
    fn sequential(zone_count: u32) -> Geometry {
        let tiny = Geometry::tiny();
        Geometry { zone_count, zone_capacity_blocks: tiny.zone_size_blocks, ..tiny }
    }

    fn execute(drive: &mut dyn Drive, operation: Operation) -> Completion {
        execute_command(drive, Command::new(CommandId(7), NamespaceId::FIRST, operation))
    }

    fn execute_command(drive: &mut dyn Drive, command: Command) -> Completion {
        let mut completions = CompletionQueue::new();
        drive.submit(Instant::ZERO, command).expect("the queue is empty");
        drive.poll(Instant::ZERO, &mut completions);
        completions.pop().expect("it completes at once")
    }

    #[test]
    fn the_sequential_zones_are_as_a_drive_of_these_zones_only() {
        for seed in 0..20 {
            let mut drive = SequentialZones::of(Box::new(MemoryDrive::new(mixed(), u64::MAX)));
            let geometry = sequential(8);
            assert_eq!((drive.geometry(NamespaceId::FIRST), drive.unused_zones()), (&geometry, 4));
            let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
            let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
            for _ in 0..800 {
                let command = source.next(&oracle);
                let shown = format!("{:.200}", format!("{:?}", command.operation));
                let completion = execute_command(&mut *drive, command.clone());
                assert!(completion == oracle.execute(&command), "{seed}: {shown}: {}", completion.status);
            }
            let facts = drive.facts().zones_by_state.iter().map(|(_, zones)| *zones).sum::<u32>();
            let mut visited = 0;
            drive.visit_zones(&mut |state, _| {
                assert_ne!(state, ZoneState::NotWritePointer);
                visited += 1;
            });
            assert_eq!((facts, visited), (8, 8), "conventional zones are not counted");
        }
    }

    /// A drive whose conventional zones have a gap at their end does not exist, but most checks need a gap:
    /// empty sequential zones take the place of the conventional ones here.
    #[test]
    fn a_part_of_a_drive_conforms() {
        let summary = conformance("a part of a drive", &mut |geometry| {
            let before = 3;
            let whole = Geometry { zone_count: geometry.zone_count + before, ..geometry.clone() };
            if geometry.conventional_zone_count > 0 || whole.validate().is_err() {
                return None;
            }
            let part =
                SequentialPart { first: ZoneIndex(before), start_blocks: u64::from(before) * whole.zone_size_blocks.0 };
            let drive: Box<dyn Drive> = Box::new(MemoryDrive::new(whole, u64::MAX));
            let namespaces = Namespaces::single(geometry.clone());
            Some(Box::new(Virtual::new(SequentialZones { drive, part, namespaces, note: None })))
        });
        assert!(summary.passed > 80, "{} passed, {} skipped", summary.passed, summary.skipped);
    }

    #[test]
    fn the_conventional_zones_keep_their_data_and_the_log_names_them_once() {
        let whole = mixed();
        let before = SequentialPart::of(&whole).start_blocks;
        let contents = |byte: u8| {
            let buffer = BlockBuffer {
                data: vec![byte; whole.block_size_bytes as usize].into(),
                metadata: vec![byte; whole.metadata_bytes as usize].into(),
            };
            Payload::Bytes(Box::new(buffer))
        };
        let write = |start, byte| Operation::Write { start, blocks: Blocks(1), payload: contents(byte) };
        let mut memory = MemoryDrive::new(whole.clone(), u64::MAX);
        for lba in [0, before - 1] {
            assert_eq!(execute(&mut memory, write(Lba(lba), 9)).status, Status::Success);
        }
        let mut drive = SequentialZones::new(Box::new(memory));
        assert_eq!(drive.take_warning().as_deref(), Some("the 4 conventional zones of the drive are not used"));
        assert_eq!(drive.take_warning(), None);
        assert_eq!(execute(&mut drive, write(Lba(0), 1)).status, Status::Success);
        let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
        assert_eq!(execute(&mut drive, reset).status, Status::Success);
        let end = 8 * whole.zone_size_blocks.0;
        for start in [u64::MAX, u64::MAX - before, u64::MAX - before + 1, end].map(Lba) {
            assert_eq!(execute(&mut drive, write(start, 1)).status, Status::LbaOutOfRange);
            let zone = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) };
            assert_eq!(execute(&mut drive, zone).status, Status::LbaOutOfRange);
        }
        for lba in [0, before - 1] {
            let read = Operation::Read { start: Lba(lba), blocks: Blocks(1) };
            assert_eq!(execute(&mut *drive.drive, read).outcome, Outcome::Data(contents(9)));
        }
    }

    #[test]
    fn a_drive_of_one_kind_of_zones_is_used_as_it_is() {
        for conventional in [0, 12] {
            let whole = Geometry { conventional_zone_count: conventional, ..mixed() };
            let mut drive = SequentialZones::of(Box::new(MemoryDrive::new(whole.clone(), u64::MAX)));
            assert_eq!((drive.geometry(NamespaceId::FIRST), drive.unused_zones()), (&whole, 0));
            assert_eq!(drive.take_warning(), None);
        }
    }
}
