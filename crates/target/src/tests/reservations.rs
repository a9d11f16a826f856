//! Reservations over the wire: conflicts, notifications, and the wait of preemptions.

use bytes::Bytes;
use zonda_nvme::features::{AsyncEvent, Feature, FeatureRequest};
use zonda_nvme::log::{GetLogPage, LogPage};
use zonda_nvme::reservation::{
    AcquireAction, CONTROLLER_ID_NONE, PersistChange, RegisterAction, ReleaseAction, ReservationCommand,
    ReservationKey, ReservationKeys, ReservationStatus, ReservationType,
};
use zonda_nvme::tcp::Digests;
use zonda_nvme::{AdminOpcode, HostId, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{Lba, Operation, ReportFilter, ZoneAction, ZoneTarget};

use super::testbed::{Answer, SUBSYSTEM, Testbed, config, conventional, read, write, zoned};
use crate::{ConnectionId, HostAccess};

/// A host with a controller and one I/O queue.
#[derive(Clone, Copy)]
pub(super) struct Host {
    pub(super) id: HostId,
    pub(super) key: u64,
    pub(super) controller: u16,
    pub(super) admin: ConnectionId,
    pub(super) io: ConnectionId,
}

impl Testbed {
    pub(super) fn host(&mut self, number: u8) -> Host {
        let id = HostId([number; 16]);
        let name = format!("nqn.2024-01.org.example:host-{number}");
        let admin = self.open();
        self.initialize(admin, Digests::NONE, 0);
        let answer = self.connect_with_id(admin, id, &name, SUBSYSTEM, 0, None, 0);
        assert_eq!(answer.status, StatusCode::SUCCESS);
        let controller = answer.result as u16;
        self.enable(admin);
        let io = self.queue(number, controller, 1);
        Host { id, key: u64::from(number), controller, admin, io }
    }

    /// An I/O queue of a host's controller.
    pub(super) fn queue(&mut self, host: u8, controller: u16, queue: u16) -> ConnectionId {
        let io = self.open();
        self.initialize(io, Digests::NONE, 0);
        let name = format!("nqn.2024-01.org.example:host-{host}");
        let answer = self.connect_with_id(io, HostId([host; 16]), &name, SUBSYSTEM, queue, Some(controller), 0);
        assert_eq!(answer.status, StatusCode::SUCCESS);
        io
    }

    pub(super) fn entry_of(command: &ReservationCommand) -> SubmissionEntry {
        let (opcode, [dword10, dword11]) = command.encode();
        let mut entry = SubmissionEntry::new(opcode.code(), 1);
        (entry.cdw10, entry.cdw11) = (dword10.into(), dword11.into());
        entry
    }

    pub(super) fn reserve(&mut self, host: Host, command: &ReservationCommand, current: u64, other: u64) -> StatusCode {
        let keys = ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) }.to_bytes();
        let data = match command {
            ReservationCommand::Release { .. } => &keys[..8],
            _ => &keys[..],
        };
        self.execute_in_capsule(host.io, Testbed::entry_of(command), Bytes::copy_from_slice(data)).status
    }

    pub(super) fn register(&mut self, host: Host) {
        let command = ReservationCommand::Register {
            action: RegisterAction::Register,
            ignores_key: false,
            persist: PersistChange::Keep,
        };
        assert_eq!(self.reserve(host, &command, 0, host.key), StatusCode::SUCCESS);
    }

    pub(super) fn acquire(&mut self, host: Host, kind: ReservationType) -> StatusCode {
        let command = ReservationCommand::Acquire { action: AcquireAction::Acquire, kind };
        self.reserve(host, &command, host.key, 0)
    }

    /// Sends a preempt and abort; returns its identifier.
    pub(super) fn start_preempting(&mut self, host: Host, victim: Host) -> u16 {
        let keys = ReservationKeys { current: ReservationKey(host.key), other: ReservationKey(victim.key) }.to_bytes();
        let mut entry = Testbed::entry_of(&preempt(AcquireAction::PreemptAndAbort));
        entry.data_pointer = SglDescriptor::in_capsule(0, 16);
        self.start(host.io, entry, &Bytes::copy_from_slice(&keys))
    }

    pub(super) fn report(&mut self, host: Host, bytes: u64) -> ReservationStatus {
        let mut entry = Testbed::entry_of(&ReservationCommand::Report { bytes, extended: true });
        entry.data_pointer = SglDescriptor::transport(bytes as u32);
        let answer = self.execute(host.io, entry, Bytes::new());
        assert_eq!((answer.status, answer.data.len() as u64), (StatusCode::SUCCESS, bytes));
        ReservationStatus::read(&answer.data, true).expect("the report is valid")
    }

    pub(super) fn notification(&mut self, host: Host) -> Answer {
        let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 0);
        let dwords = GetLogPage::of(LogPage::ReservationNotification, 64).encode();
        (entry.cdw10, entry.cdw11) = (dwords[0].into(), dwords[1].into());
        entry.data_pointer = SglDescriptor::transport(64);
        self.execute(host.admin, entry, Bytes::new())
    }

    pub(super) fn set_feature(&mut self, host: Host, feature: Feature, namespace: u32, value: u32) -> StatusCode {
        let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), namespace);
        entry.cdw10 = FeatureRequest { feature: feature as u8, ..FeatureRequest::default() }.encode().into();
        entry.cdw11 = value.into();
        self.execute(host.admin, entry, Bytes::new()).status
    }
}

pub(super) const EXCLUSIVE: ReservationType = ReservationType::ExclusiveAccess;
pub(super) const CONFLICT: StatusCode = StatusCode::RESERVATION_CONFLICT;

/// Two registrants, of which the first holds the reservation; devices hold their commands.
fn contended() -> (Testbed, Host, Host) {
    let mut testbed = Testbed::new();
    let (old, new) = (testbed.host(1), testbed.host(2));
    testbed.register(old);
    testbed.register(new);
    assert_eq!(testbed.acquire(old, EXCLUSIVE), StatusCode::SUCCESS);
    testbed.hold = true;
    (testbed, old, new)
}

pub(super) fn preempt(action: AcquireAction) -> ReservationCommand {
    ReservationCommand::Acquire { action, kind: EXCLUSIVE }
}

#[test]
fn only_commands_that_a_reservation_excludes_conflict_with_it() {
    let mut testbed = Testbed::of(config(&[zoned(), conventional()], HostAccess::Any));
    let (owner, other) = (testbed.host(1), testbed.host(2));
    testbed.register(owner);
    assert_eq!(testbed.acquire(owner, ReservationType::WriteExclusive), StatusCode::SUCCESS);
    let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
    let report = Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: 2,
    };
    let zeroes = Operation::WriteZeroes { start: Lba(0), blocks: zonda_zoned::Blocks(1) };
    for denied in [write(0, 2, 1), reset, zeroes, Operation::Flush] {
        assert_eq!(testbed.operate(other.io, 1, &denied).status, CONFLICT, "{}", denied.name());
        assert_eq!(testbed.operate(other.io, 2, &write(0, 2, 1)).status, StatusCode::SUCCESS, "another namespace");
    }
    assert_eq!(
        testbed.submitted.iter().filter(|name| **name == "write").count(),
        4,
        "only those of the other namespace"
    );
    for allowed in [read(0, 1), report.clone()] {
        assert_eq!(testbed.operate(other.io, 1, &allowed).status, StatusCode::SUCCESS, "{}", allowed.name());
    }
    assert_eq!(testbed.operate(owner.io, 1, &write(0, 2, 1)).status, StatusCode::SUCCESS);
    let release = ReservationCommand::Release { action: ReleaseAction::Release, kind_code: 1 };
    assert_eq!(testbed.reserve(owner, &release, owner.key, 0), StatusCode::SUCCESS);
    assert_eq!(testbed.acquire(owner, EXCLUSIVE), StatusCode::SUCCESS);
    for denied in [read(0, 1), report] {
        assert_eq!(testbed.operate(other.io, 1, &denied).status, CONFLICT, "{}", denied.name());
    }
}

#[test]
fn a_report_lists_each_controller_of_each_registrant_and_disconnected_registrants() {
    let mut testbed = Testbed::new();
    let (owner, other) = (testbed.host(1), testbed.host(2));
    let second = testbed.host(1);
    testbed.register(owner);
    testbed.register(other);
    assert_eq!(testbed.acquire(owner, EXCLUSIVE), StatusCode::SUCCESS);
    testbed.close_socket(other.admin);
    let status = testbed.report(owner, 4096);
    assert_eq!((status.generation, status.kind, status.persists), (2, Some(EXCLUSIVE), false));
    let found: Vec<_> =
        status.controllers.iter().map(|it| (it.controller_id, it.host, it.key.0, it.is_holder)).collect();
    assert_eq!(
        found,
        [
            (owner.controller, owner.id, 1, true),
            (second.controller, owner.id, 1, true),
            (CONTROLLER_ID_NONE, other.id, 2, false)
        ]
    );
    // A host with a short buffer gets what fits.
    assert_eq!(testbed.report(owner, 64).controllers.len(), 0);
    // A second controller of the owner has the same access.
    assert_eq!(testbed.operate(second.io, 1, &write(0, 2, 1)).status, StatusCode::SUCCESS);
}

#[test]
fn the_short_form_of_a_report_is_refused_and_so_is_persistence() {
    let mut testbed = Testbed::new();
    let host = testbed.host(1);
    let mut entry = Testbed::entry_of(&ReservationCommand::Report { bytes: 4096, extended: false });
    entry.data_pointer = SglDescriptor::transport(4096);
    assert_eq!(testbed.execute(host.io, entry, Bytes::new()).status, StatusCode::HOST_ID_INCONSISTENT_FORMAT);
    let persistent = ReservationCommand::Register {
        action: RegisterAction::Register,
        ignores_key: false,
        persist: PersistChange::Set,
    };
    assert_eq!(testbed.reserve(host, &persistent, 0, 1), StatusCode::INVALID_FIELD);
    assert_eq!(testbed.report(host, 4096).controllers.len(), 0, "no host was registered");
    assert_eq!(testbed.set_feature(host, Feature::ReservationPersistence, 1, 1), StatusCode::INVALID_FIELD);
    assert_eq!(testbed.set_feature(host, Feature::ReservationPersistence, u32::MAX, 1), StatusCode::INVALID_FIELD);
    let clears = ReservationCommand::Register {
        action: RegisterAction::Register,
        ignores_key: false,
        persist: PersistChange::Clear,
    };
    assert_eq!(testbed.reserve(host, &clears, 0, 1), StatusCode::SUCCESS, "the state is clear already");
    assert!(testbed.saving.is_empty(), "no device saves anything");
}

#[test]
fn a_preempt_and_abort_completes_once_no_command_of_another_host_is_in_flight() {
    let (mut testbed, old, new) = contended();
    // One write of the old owner is at the device, and a second one waits for its data.
    let (entry, data) = testbed.encoded(1, &write(0, 2, 1));
    let first = testbed.start(old.io, entry, &Bytes::new());
    let pdu = testbed.wire(old.io).pdus.pop_front().expect("an R2T");
    let zonda_nvme::tcp::Pdu::ReadyToTransfer(r2t) = pdu else { panic!("an R2T") };
    testbed.wire(old.io).writer.host_data(first, r2t.tag.get(), 0, &[data], true);
    testbed.push(old.io);
    assert_eq!(testbed.held.len(), 1);
    let (entry, late) = testbed.encoded(1, &write(2, 2, 1));
    let second = testbed.start(old.io, entry, &Bytes::new());
    // The connection of a third host is closed, and its read is still at the device.
    let reader = testbed.queue(1, old.controller, 2);
    let (entry, _) = testbed.encoded(1, &read(0, 1));
    testbed.start(reader, entry, &Bytes::new());
    testbed.close_socket(reader);
    assert_eq!(testbed.held.len(), 2);

    let taking = testbed.start_preempting(new, old);
    assert!(testbed.wire(new.io).pdus.is_empty(), "there is no response yet");
    // The data of the second write comes too late.
    assert_eq!(testbed.finish(old.io, second, late).status, CONFLICT);
    let (device, command) = testbed.held.pop_front().expect("the write");
    testbed.complete(device, &command);
    testbed.run_until_idle();
    assert!(testbed.wire(new.io).pdus.is_empty(), "one command is still in flight");
    testbed.release();
    assert_eq!(testbed.finish(new.io, taking, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.finish(old.io, first, Bytes::new()).status, StatusCode::SUCCESS, "it completed before");
    assert_eq!(testbed.operate(old.io, 1, &read(0, 1)).status, CONFLICT);
    assert_eq!(
        testbed.operate(new.io, 1, &write(2, 2, 9)).status,
        StatusCode::SUCCESS,
        "where the late write would have been"
    );
}

/// A read with FUA is preceded by a flush, and the preemption completes when that has.
#[test]
fn a_read_that_is_not_at_the_device_when_its_host_is_preempted_is_not_submitted() {
    let (mut testbed, old, new) = contended();
    let (mut entry, _) = testbed.encoded(1, &read(0, 1));
    entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
    let reads = testbed.start(old.io, entry, &Bytes::new());
    assert_eq!(testbed.submitted, ["flush"]);
    let taking = testbed.start_preempting(new, old);
    testbed.release();
    assert_eq!(testbed.finish(new.io, taking, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.finish(old.io, reads, Bytes::new()).status, CONFLICT);
    assert_eq!(testbed.submitted, ["flush"]);
}

#[test]
fn a_read_that_waits_for_memory_when_its_host_is_preempted_conflicts() {
    let mut testbed = super::memory::testbed();
    let (old, new) = (testbed.host(1), testbed.host(2));
    testbed.register(old);
    testbed.register(new);
    assert_eq!(testbed.acquire(old, EXCLUSIVE), StatusCode::SUCCESS);
    testbed.hold = true;
    let reads = super::memory::start_reads(&mut testbed, old.io, 3);
    assert_eq!(testbed.held.len(), 2, "memory is too short for the third");
    let taking = testbed.start_preempting(new, old);
    testbed.release();
    assert_eq!(testbed.finish(new.io, taking, Bytes::new()).status, StatusCode::SUCCESS);
    let ended = reads.into_iter().map(|read| testbed.finish(old.io, read, Bytes::new()).status);
    assert_eq!(ended.collect::<Vec<_>>(), [StatusCode::SUCCESS, StatusCode::SUCCESS, CONFLICT]);
}

#[test]
fn a_preemption_outlives_its_connection() {
    let (mut testbed, old, new) = contended();
    let (entry, _) = testbed.encoded(1, &read(0, 1));
    testbed.start(old.io, entry, &Bytes::new());
    testbed.start_preempting(new, old);
    testbed.close_socket(new.io);
    testbed.release();
    let again = testbed.host(2);
    assert_eq!(testbed.operate(again.io, 1, &write(0, 2, 1)).status, StatusCode::SUCCESS);
    assert_eq!(testbed.operate(old.io, 1, &read(0, 1)).status, CONFLICT);
}

#[test]
fn a_host_is_notified_once_of_a_change_of_its_registration_and_reads_the_notification() {
    let mut testbed = Testbed::new();
    let (old, new) = (testbed.host(1), testbed.host(2));
    let third = testbed.host(3);
    for host in [old, new, third] {
        testbed.register(host);
    }
    assert_eq!(testbed.acquire(old, EXCLUSIVE), StatusCode::SUCCESS);
    let event = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
    let waiting = testbed.start(old.admin, event, &Bytes::new());
    assert_eq!(testbed.set_feature(third, Feature::ReservationNotificationMask, 1, 0b0100), StatusCode::SUCCESS);
    assert_eq!(testbed.reserve(new, &preempt(AcquireAction::Preempt), 2, 1), StatusCode::SUCCESS);
    let event = testbed.finish(old.admin, waiting, Bytes::new());
    assert_eq!(AsyncEvent::decode(event.result), AsyncEvent::reservation_notification());
    let page = testbed.notification(old);
    assert_eq!((page.data[0], page.data[8], page.data[9], page.data[12]), (1, 1, 0, 1), "registration preempted");
    assert_eq!(testbed.notification(old).data, [0; 64], "there are no more");
    assert_eq!(testbed.notification(third).data, [0; 64], "masked");
    // The next one is reported again.
    let clear = ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 };
    assert_eq!(testbed.reserve(new, &clear, 2, 0), StatusCode::SUCCESS);
    let page = testbed.notification(third);
    assert_eq!((page.data[0], page.data[8]), (1, 3), "reservation preempted");
}

#[test]
fn the_notification_mask_has_namespace_scope_and_other_features_do_not() {
    let mut testbed = Testbed::of(config(&[zoned(), conventional()], HostAccess::Any));
    let host = testbed.host(1);
    let mask = Feature::ReservationNotificationMask;
    assert_eq!(testbed.set_feature(host, mask, 2, 0xffff_ffff), StatusCode::SUCCESS);
    assert_eq!(testbed.set_feature(host, mask, 0, 0), StatusCode::INVALID_NAMESPACE);
    assert_eq!(testbed.set_feature(host, mask, 77, 0), StatusCode::INVALID_NAMESPACE);
    let mut get = |namespace: u32| {
        let mut entry = SubmissionEntry::new(AdminOpcode::GetFeatures.code(), namespace);
        entry.cdw10 = FeatureRequest { feature: mask as u8, ..FeatureRequest::default() }.encode().into();
        let answer = testbed.execute(host.admin, entry, Bytes::new());
        (answer.status, answer.result)
    };
    assert_eq!(get(1), (StatusCode::SUCCESS, 0));
    assert_eq!(get(2), (StatusCode::SUCCESS, 0b1110));
    assert_eq!(get(u32::MAX), (StatusCode::INVALID_NAMESPACE, 0));
    let threshold = Feature::TemperatureThreshold;
    assert_eq!(testbed.set_feature(host, threshold, 77, 300), StatusCode::INVALID_NAMESPACE);
    assert_eq!(testbed.set_feature(host, threshold, 1, 300), StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC);
    assert_eq!(testbed.set_feature(host, threshold, u32::MAX, 300), StatusCode::SUCCESS);
}

#[test]
fn a_controller_that_has_shut_down_accepts_no_io() {
    let mut testbed = Testbed::new();
    let host = testbed.host(1);
    let on = zonda_nvme::fabrics::Configuration::enabled(zonda_nvme::fabrics::Configuration::CSS_ALL).0;
    let normal_shutdown = on | 1 << 14;
    testbed.set(host.admin, zonda_nvme::fabrics::Property::Configuration, normal_shutdown.into());
    assert_eq!(testbed.operate(host.io, 1, &write(0, 2, 1)).status, StatusCode::COMMAND_SEQUENCE_ERROR);
    let register = ReservationCommand::Register {
        action: RegisterAction::Register,
        ignores_key: false,
        persist: PersistChange::Keep,
    };
    assert_eq!(testbed.reserve(host, &register, 0, 1), StatusCode::COMMAND_SEQUENCE_ERROR);
    assert!(!testbed.submitted.contains(&"write"));
}

#[test]
fn the_access_of_unregistered_hosts_follows_the_reservation() {
    let device = crate::DeviceKey(0);
    for kind in ReservationType::ALL {
        let mut testbed = Testbed::new();
        let host = testbed.host(1);
        let before = testbed.target.reservation_changes();
        assert_eq!(testbed.target.unregistered_access(device), crate::UnregisteredAccess::ALL);
        testbed.register(host);
        assert_eq!(testbed.target.unregistered_access(device), crate::UnregisteredAccess::ALL);
        assert_eq!(testbed.acquire(host, kind), StatusCode::SUCCESS);
        assert!(testbed.target.reservation_changes() > before);
        let left = crate::UnregisteredAccess { reads: !kind.excludes_reads(), writes: false };
        assert_eq!(testbed.target.unregistered_access(device), left, "{kind:?}");
    }
}
