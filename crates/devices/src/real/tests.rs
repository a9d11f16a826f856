//! The machine on a simulated drive, which decides every request by zone rules of its own, and carries
//! requests out in another order than that of their submission.

use bytes::Bytes;
use zonda_conformance::{TestBackend, Virtual, conformance_of_drive};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, LbaRange,
    NamespaceId, Namespaces, Operation, Outcome, Payload, PayloadKind, Prng, QueueFull, ReportFilter, Status,
    ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use super::{
    Abilities, Answer, FoundZone, Opened, Queue, RawAction, RawError, RawOperation, RealDrive, Request, RequestId,
    table_of,
};
use crate::Drive;

/// A simulated drive.
struct Simulated {
    drive: ReferenceDevice,
    pending: Vec<Request>,
    prng: Prng,
    /// Requests end in the order of their submission.
    is_in_order: bool,
    /// Appends of one zone do.
    appends_in_order: bool,
    /// The next write or reset fails: before it has an effect, or after.
    fails: Option<Fails>,
    is_removed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fails {
    Before,
    After,
}

impl Simulated {
    fn new(geometry: &Geometry) -> Simulated {
        let drive = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
        let prng = Prng::new(1).fork("simulated drive");
        Simulated {
            drive,
            pending: Vec::new(),
            prng,
            is_in_order: false,
            appends_in_order: false,
            fails: None,
            is_removed: false,
        }
    }

    fn run(&mut self, operation: Operation) -> Completion {
        self.drive.execute(&Command::new(CommandId(0), NamespaceId::FIRST, operation))
    }

    fn carry_out(&mut self, operation: RawOperation) -> Result<Answer, RawError> {
        let geometry = self.drive.geometry(NamespaceId::FIRST).clone();
        let blocks_of = |data: &Bytes| Blocks(data.len() as u64 / u64::from(geometry.block_size_bytes));
        let payload = |buffer: BlockBuffer| Payload::Bytes(Box::new(buffer));
        if self.is_removed {
            return Err(error(Status::InternalError, true));
        }
        let is_write = matches!(operation, RawOperation::Write { .. });
        let is_reset = matches!(operation, RawOperation::Manage { action: RawAction::Reset, .. });
        let is_set = matches!(operation, RawOperation::SetExtension { .. });
        let fails = if is_write || is_reset || is_set { self.fails.take() } else { None };
        if fails == Some(Fails::Before) {
            return Err(error(Status::WriteFault, false));
        }
        let operation = match operation {
            RawOperation::Read { start, blocks } => Operation::Read { start, blocks },
            RawOperation::Write { start, buffer } => {
                Operation::Write { start, blocks: blocks_of(&buffer.data), payload: payload(buffer) }
            }
            RawOperation::Append { zone_start, buffer } => {
                Operation::Append { zone_start, blocks: blocks_of(&buffer.data), payload: payload(buffer) }
            }
            RawOperation::Deallocate { start, blocks } => {
                Operation::Deallocate { ranges: [LbaRange { start, blocks }].into() }
            }
            RawOperation::Flush => Operation::Flush,
            RawOperation::Manage { action, zone } => {
                let target = ZoneTarget::Zone(geometry.zone_start(zone));
                Operation::ManageZones { action: action.zone_action(), target }
            }
            RawOperation::SetExtension { zone, extension } => {
                let target = ZoneTarget::Zone(geometry.zone_start(zone));
                let action = ZoneAction::SetDescriptorExtension { extension: extension[..].into(), zrwa: false };
                Operation::ManageZones { action, target }
            }
            RawOperation::Report { zone } => return Ok(Answer::Zone(self.zone(zone))),
        };
        let completion = self.run(operation);
        if !completion.status.is_success() {
            return Err(error(completion.status, false));
        }
        if fails == Some(Fails::After) {
            return Err(error(Status::WriteFault, false));
        }
        Ok(match completion.outcome {
            Outcome::Data(Payload::Bytes(buffer)) => Answer::Data(*buffer),
            Outcome::Appended(lba) => Answer::Placed(lba),
            _ => Answer::Done,
        })
    }

    fn zone(&mut self, zone: ZoneIndex) -> FoundZone {
        let geometry = self.drive.geometry(NamespaceId::FIRST);
        let (start, extended) = (geometry.zone_start(zone), geometry.descriptor_extension_bytes > 0);
        let report =
            Operation::ReportZones { start, filter: ReportFilter::All, extended, partial: true, descriptors_max: 1 };
        let Outcome::Report(report) = self.run(report).outcome else { panic!("a report is a report") };
        FoundZone::of(&report.zones[0])
    }
}

fn error(status: Status, is_removed: bool) -> RawError {
    RawError { status, why: "simulated".to_owned(), is_removed }
}

impl Queue for Simulated {
    fn submit(&mut self, request: Request) {
        self.pending.push(request);
    }

    fn next(&mut self) -> Option<(RequestId, Result<Answer, RawError>)> {
        if self.pending.is_empty() || (!self.is_in_order && self.prng.chance(1, 3)) {
            return None;
        }
        let mut place = if self.is_in_order { 0 } else { self.prng.below(self.pending.len() as u64) as usize };
        if let (RawOperation::Append { zone_start, .. }, true) = (&self.pending[place].operation, self.appends_in_order)
        {
            let first = self.pending.iter().position(
                |request| matches!(&request.operation, RawOperation::Append { zone_start: of, .. } if of == zone_start),
            );
            place = first.expect("the one that was chosen is among them");
        }
        let Request { id, operation } = self.pending.remove(place);
        Some((id, self.carry_out(operation)))
    }
}

type Tested = RealDrive<Simulated>;

fn open(geometry: &Geometry, abilities: Abilities) -> Tested {
    let mut simulated = Simulated::new(geometry);
    let zones: Vec<_> = (0..geometry.zone_count).map(|zone| simulated.zone(ZoneIndex(zone))).collect();
    let table = table_of(geometry, &zones).expect("a new drive has empty zones");
    RealDrive::new(Opened { table, abilities, identity: None, notes: Vec::new() }, simulated)
}

/// As real drives have them.
fn limited() -> Geometry {
    Geometry { metadata_bytes: 0, descriptor_extension_bytes: 0, ..Geometry::tiny() }
}

fn with_metadata() -> Geometry {
    Geometry { metadata_bytes: 8, ..limited() }
}

fn with_extensions() -> Geometry {
    Geometry { descriptor_extension_bytes: 64, ..limited() }
}

fn unlimited() -> Geometry {
    Geometry { max_active_zones: None, max_open_zones: None, ..limited() }
}

fn with_conventional_zones() -> Geometry {
    let geometry = limited();
    Geometry { conventional_zone_count: 3, zone_capacity_blocks: geometry.zone_size_blocks, zone_count: 16, ..geometry }
}

/// In virtual time, and without deallocation unless the drive has it.
struct Backend {
    on: Virtual<Tested>,
    deallocates: bool,
    depth: usize,
}

impl ZonedDevice for Backend {
    fn namespaces(&self) -> &Namespaces {
        self.on.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.on.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.on.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.on.next_timeout()
    }
}

impl TestBackend for Backend {
    fn now(&mut self) -> Instant {
        self.on.now()
    }

    fn wait(&mut self) {
        self.on.wait();
    }

    fn queue_depth_max(&self) -> usize {
        self.depth
    }

    fn deallocates(&self) -> bool {
        self.deallocates
    }

    fn carries(&self, command: &Command) -> bool {
        self.deallocates || !matches!(command.operation, Operation::Deallocate { .. })
    }

    fn check_invariants(&mut self) {
        self.on.check_invariants();
    }
}

fn check(name: &str, geometry: &Geometry, abilities: Abilities, depth: usize) -> usize {
    let summary = conformance_of_drive(name, geometry, &mut || {
        let invariants = |drive: &Tested| drive.machine.check_invariants();
        let mut drive = open(geometry, abilities);
        drive.queue_mut().appends_in_order = depth > 1;
        let on = Virtual::new(drive).with_invariants(invariants);
        Box::new(Backend { on, deallocates: abilities.deallocate, depth })
    });
    summary.passed
}

#[test]
fn a_drive_that_reorders_requests_conforms() {
    let plain = Abilities::default();
    assert!(check("limited", &limited(), plain, 16) > 50);
    assert!(check("unlimited", &unlimited(), plain, 16) > 2);
    assert!(check("extensions", &with_extensions(), plain, 16) > 50);
    assert!(check("metadata", &with_metadata(), plain, 16) > 50);
    assert!(check("conventional", &with_conventional_zones(), plain, 16) > 6);
}

#[test]
fn a_drive_with_appends_and_deallocation_conforms() {
    let able = Abilities { append: true, deallocate: true, offline: true };
    // The checks expect appends to be placed in the order of submission. A drive that does not may do so
    // only with those that are outstanding together.
    for depth in [1, 16] {
        assert!(check("limited, able", &limited(), able, depth) > 55);
        assert!(check("unlimited, able", &unlimited(), able, depth) > 2);
        assert!(check("extensions, able", &with_extensions(), able, depth) > 55);
        assert!(check("metadata, able", &with_metadata(), able, depth) > 55);
        assert!(check("conventional, able", &with_conventional_zones(), able, depth) > 7);
    }
}

fn append(zone: u64, blocks: u64, byte: u8) -> Operation {
    let Operation::Write { start: zone_start, blocks, payload } = write(zone * 16, blocks, byte) else {
        unreachable!("a write is a write")
    };
    Operation::Append { zone_start, blocks, payload }
}

/// A drive that places appends in the order in which it receives them.
fn with_appends() -> Tested {
    let mut drive = open(&limited(), Abilities { append: true, deallocate: true, offline: true });
    drive.queue_mut().appends_in_order = true;
    drive
}

#[test]
fn an_append_does_not_overtake_one_of_its_zone_that_waits_for_an_active_resource() {
    let geometry = limited();
    assert_eq!((geometry.max_active_zones, geometry.zone_size_blocks), (Some(3), Blocks(16)));
    let finish = |zone: u64| {
        let target = ZoneTarget::Zone(Lba(zone * 16));
        Operation::ManageZones { action: ZoneAction::Finish, target }
    };
    for seed in 0..50 {
        let mut drive = with_appends();
        drive.queue_mut().prng = Prng::new(seed);
        assert_eq!(statuses(&mut drive, (0..3).map(|zone| append(zone, 1, 1)).collect()), [Status::Success; 3]);
        // The first append to zone 3 needs the resource of zone 0; the others would open the zone before.
        let together = vec![finish(0), append(3, 2, 7), append(3, 1, 8), append(3, 1, 9)];
        assert_eq!(statuses(&mut drive, together), [Status::Success; 4], "seed {seed}");
        for (block, byte) in [(48, 7), (49, 7), (50, 8), (51, 9)] {
            let found = drive.queue_mut().run(read(block, 1)).outcome;
            let Outcome::Data(Payload::Bytes(found)) = found else { panic!("{found:?}") };
            assert_eq!(found.data[0], byte, "block {block}, seed {seed}");
        }
    }
}

#[test]
fn an_append_behind_a_reset_and_an_append_to_the_end_of_the_zone_is_placed_at_its_start() {
    let mut drive = with_appends();
    assert_eq!(statuses(&mut drive, vec![append(0, 4, 1), append(0, 2, 1)]), [Status::Success; 2]);
    let together = vec![append(0, 1, 2), RESET, append(0, 2, 3), append(0, 1, 4), read(0, 3)];
    assert_eq!(statuses(&mut drive, together), [Status::Success; 5]);
    for (block, byte) in [(0, 3), (1, 3), (2, 4)] {
        let found = drive.queue_mut().run(read(block, 1)).outcome;
        let Outcome::Data(Payload::Bytes(found)) = found else { panic!("{found:?}") };
        assert_eq!(found.data[0], byte, "block {block}");
    }
}

#[test]
fn resources_of_a_zone_are_free_once_all_appends_that_fill_it_have_ended() {
    let geometry = limited();
    assert_eq!(geometry.zone_capacity_blocks, Blocks(12));
    for seed in 0..50 {
        let mut drive = open(&geometry, Abilities { append: true, deallocate: true, offline: true });
        drive.queue_mut().prng = Prng::new(seed);
        assert_eq!(statuses(&mut drive, (0..3).map(|zone| append(zone, 1, 1)).collect()), [Status::Success; 3]);
        // They fill zone 0, and end in any order. Then zone 3 may be active.
        let together = vec![append(0, 4, 2), append(0, 4, 3), append(0, 3, 4), append(3, 1, 5)];
        assert_eq!(statuses(&mut drive, together), [Status::Success; 4], "seed {seed}");
        assert_eq!(drive.queue_mut().zone(ZoneIndex(0)).state, ZoneState::Full);
    }
}

fn write(lba: u64, blocks: u64, byte: u8) -> Operation {
    let data = Bytes::from(vec![byte; blocks as usize * 512]);
    let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() }));
    Operation::Write { start: Lba(lba), blocks: Blocks(blocks), payload }
}

fn read(lba: u64, blocks: u64) -> Operation {
    Operation::Read { start: Lba(lba), blocks: Blocks(blocks) }
}

const RESET: Operation = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(0)) };

/// The statuses of commands that are submitted together, in their order.
fn statuses(drive: &mut Tested, operations: Vec<Operation>) -> Vec<Status> {
    let count = operations.len();
    for (number, operation) in (0..).zip(operations) {
        let command = Command::new(CommandId(number), NamespaceId::FIRST, operation);
        drive.submit(Instant::ZERO, command).expect("the queue is not full");
    }
    let (mut ended, mut completions) = (Vec::new(), CompletionQueue::new());
    for _ in 0..10_000 {
        drive.poll(Instant::ZERO, &mut completions);
        ended.extend(std::iter::from_fn(|| completions.pop()));
        drive.machine.check_invariants();
        if ended.len() == count && drive.machine.is_idle() {
            ended.sort_by_key(|completion| completion.id);
            return ended.iter().map(|completion| completion.status).collect();
        }
    }
    panic!("{} of {count} commands have completed", ended.len());
}

#[test]
fn after_a_failed_write_those_behind_it_fail_and_the_pointer_is_that_of_the_drive() {
    for (fails, pointer) in [(Fails::Before, 2), (Fails::After, 4)] {
        let mut drive = open(&limited(), Abilities::default());
        drive.queue_mut().is_in_order = true;
        assert_eq!(statuses(&mut drive, vec![write(0, 2, 1)]), [Status::Success]);
        drive.queue_mut().fails = Some(fails);
        let together = vec![write(2, 2, 2), write(4, 2, 3), write(6, 1, 4), write(16, 1, 5)];
        let [fault, success] = [Status::WriteFault, Status::Success];
        assert_eq!(statuses(&mut drive, together), [fault, fault, fault, success]);
        assert_eq!(drive.machine.table().zone(ZoneIndex(0)).write_pointer_blocks, Blocks(pointer));
        assert_eq!(statuses(&mut drive, vec![write(pointer, 2, 6)]), [success], "the zone can be written again");
        assert_eq!((drive.media_errors(), drive.take_warning().is_some()), (1, true));
    }
}

#[test]
fn writes_behind_a_reset_do_not_depend_on_a_failed_one_before_it() {
    let mut drive = open(&limited(), Abilities::default());
    drive.queue_mut().fails = Some(Fails::Before);
    let together = vec![write(0, 2, 1), write(2, 1, 1), RESET, write(0, 3, 2)];
    let [fault, success] = [Status::WriteFault, Status::Success];
    assert_eq!(statuses(&mut drive, together), [fault, fault, success, success]);
    assert_eq!(drive.machine.table().zone(ZoneIndex(0)).write_pointer_blocks, Blocks(3));
    assert_eq!(statuses(&mut drive, vec![write(3, 1, 2), read(0, 4)]), [success, success]);
}

#[test]
fn after_a_failed_reset_no_read_returns_zeros_in_place_of_data() {
    let [fault, success] = [Status::WriteFault, Status::Success];
    for fails in [Fails::Before, Fails::After] {
        let mut drive = open(&limited(), Abilities::default());
        assert_eq!(statuses(&mut drive, vec![write(0, 4, 7)]), [success]);
        drive.queue_mut().fails = Some(fails);
        assert_eq!(statuses(&mut drive, vec![RESET, read(0, 4)]), [fault, fault]);
        let kept = if fails == Fails::Before { Blocks(4) } else { Blocks(0) };
        assert_eq!(drive.machine.table().zone(ZoneIndex(0)).written_blocks, kept);
        assert_eq!(statuses(&mut drive, vec![read(0, 4), write(kept.0, 1, 8)]), [success; 2]);
    }
}

#[test]
fn a_full_zone_whose_last_write_failed_is_not_full() {
    let mut drive = open(&limited(), Abilities::default());
    assert_eq!(statuses(&mut drive, vec![write(0, 8, 1)]), [Status::Success]);
    drive.queue_mut().fails = Some(Fails::Before);
    assert_eq!(statuses(&mut drive, vec![write(8, 4, 1)]), [Status::WriteFault]);
    assert_eq!(drive.machine.table().zone(ZoneIndex(0)).write_pointer_blocks, Blocks(8));
    assert_eq!(statuses(&mut drive, vec![write(8, 4, 1)]), [Status::Success]);
    assert_eq!(drive.machine.table().zone(ZoneIndex(0)).state, ZoneState::Full);
}

#[test]
fn a_zone_that_fails_is_found_to_be_so_by_the_first_error() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let mut drive = open(&limited(), Abilities::default());
        assert_eq!(statuses(&mut drive, vec![write(0, 4, 1)]), [Status::Success]);
        drive.queue_mut().drive.degrade(ZoneIndex(0), state);
        let refused = if state == ZoneState::Offline { Status::ZoneIsOffline } else { Status::ZoneIsReadOnly };
        assert_eq!(statuses(&mut drive, vec![write(4, 1, 1)]), [refused], "the drive refuses it");
        assert_eq!(drive.machine.table().zone(ZoneIndex(0)).state, state);
        assert_eq!(statuses(&mut drive, vec![write(4, 1, 1), RESET])[0], refused, "the table refuses it");
        let mut completions = CompletionQueue::new();
        let command = Command::new(CommandId(9), NamespaceId::FIRST, Operation::ReadChangedZones);
        drive.submit(Instant::ZERO, command).expect("the queue is not full");
        drive.poll(Instant::ZERO, &mut completions);
        let Some(Completion { outcome: Outcome::ChangedZones(list), .. }) = completions.pop() else {
            panic!("it completes at once")
        };
        assert_eq!(list.zones, [ZoneIndex(0)]);
    }
}

#[test]
fn when_the_drive_vanishes_every_command_ends_with_an_error_and_the_drive_can_be_closed() {
    let mut drive = open(&limited(), Abilities::default());
    assert_eq!(statuses(&mut drive, vec![write(0, 8, 1)]), [Status::Success]);
    drive.queue_mut().is_removed = true;
    let together = vec![write(8, 1, 1), write(9, 1, 1), read(0, 2), RESET, Operation::Flush, write(32, 1, 1)];
    assert!(statuses(&mut drive, together).iter().all(|status| *status == Status::InternalError));
    assert_eq!(statuses(&mut drive, vec![Operation::Flush, read(0, 1)]), [Status::InternalError; 2]);
    let warning = drive.take_warning().expect("it is logged");
    assert!(warning.contains("is missing"), "{warning}");
    assert!(drive.is_disconnected() && drive.can_vanish(), "it can be opened again");
    assert!(drive.has_no_queue(), "its device file is closed, which would prevent that");
    drive.close(Instant::ZERO);
    assert!(drive.is_closed() && drive.close_error().is_some());
}

#[test]
fn after_a_failed_set_of_a_descriptor_extension_the_drive_decides_whether_the_zone_has_it() {
    for (fails, is_set) in [(Fails::Before, false), (Fails::After, true)] {
        let mut drive = open(&with_extensions(), Abilities::default());
        drive.queue_mut().fails = Some(fails);
        let action = ZoneAction::SetDescriptorExtension { extension: [9; 64].into(), zrwa: false };
        let set = Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(0)) };
        assert_eq!(statuses(&mut drive, vec![set]), [Status::WriteFault]);
        let report = drive.machine.table().report(Lba(0), ReportFilter::All, true, true, 1).expect("there are zones");
        let zone = &report.zones[0];
        let state = if is_set { ZoneState::Closed } else { ZoneState::Empty };
        assert_eq!((zone.state, zone.attributes.extension_valid), (state, is_set));
        assert_eq!(zone.extension.as_deref().is_some_and(|bytes| bytes[0] == 9), is_set);
    }
}

#[test]
fn an_append_is_placed_where_the_drive_says() {
    let mut drive = open(&limited(), Abilities { append: true, ..Abilities::default() });
    let appends = (0..3).map(|number| Operation::Append {
        zone_start: Lba(0),
        blocks: Blocks(2),
        payload: Payload::Bytes(Box::new(BlockBuffer {
            data: Bytes::from(vec![number + 1; 1024]),
            metadata: Bytes::new(),
        })),
    });
    for (number, operation) in (0..).zip(appends) {
        drive.submit(Instant::ZERO, Command::new(CommandId(number), NamespaceId::FIRST, operation)).expect("not full");
    }
    let (mut places, mut completions) = (vec![Lba(u64::MAX); 3], CompletionQueue::new());
    while places.contains(&Lba(u64::MAX)) {
        drive.poll(Instant::ZERO, &mut completions);
        while let Some(Completion { id, outcome: Outcome::Appended(lba), .. }) = completions.pop() {
            places[id.0 as usize] = lba;
        }
    }
    for (number, place) in places.iter().enumerate() {
        let found = drive.queue_mut().run(read(place.0, 2)).outcome;
        let Outcome::Data(Payload::Bytes(buffer)) = found else { panic!("{found:?}") };
        assert!(buffer.data.iter().all(|byte| usize::from(*byte) == number + 1), "append {number} at {place}");
    }
}
