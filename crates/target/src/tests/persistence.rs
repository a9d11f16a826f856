//! Persist Through Power Loss: what a host has seen is restored after a restart, and nothing is
//! reported before it is durable.

use bytes::Bytes;
use proptest::prelude::*;
use zonda_nvme::fabrics::Property;
use zonda_nvme::features::{Feature, FeatureRequest};
use zonda_nvme::identify::{IdentifyRequest, Structure};
use zonda_nvme::reservation::{
    AcquireAction, CONTROLLER_ID_NONE, PersistChange, RegisterAction, ReleaseAction, ReservationCommand,
    ReservationKey, ReservationKeys, ReservationStatus, ReservationType, SavedReservations,
};
use zonda_nvme::tcp::Digests;
use zonda_nvme::{AdminOpcode, HostId, SglDescriptor, StatusCode, SubmissionEntry};

use super::reservations::{CONFLICT, EXCLUSIVE, Host, preempt};
use super::testbed::{SUBSYSTEM, Testbed, config, conventional, read, write, zoned};
use crate::limits::{REGISTRANTS_MAX, RESERVATION_REQUESTS_MAX};
use crate::{DeviceKey, HostAccess, Target, TargetConfig};

const DEVICE: DeviceKey = DeviceKey(0);
const SUCCESS: StatusCode = StatusCode::SUCCESS;
const PERSISTENCE: Feature = Feature::ReservationPersistence;

/// Two namespaces; the first can persist reservations, and the second cannot.
fn persistent_config(saved: Bytes) -> TargetConfig {
    let mut config = config(&[zoned(), conventional()], HostAccess::Any);
    config.saved_reservations.insert(DEVICE, saved);
    config
}

impl Testbed {
    fn persistent() -> Testbed {
        Testbed::of(persistent_config(Bytes::new()))
    }

    /// A server that starts after power loss. Saves that devices have completed are restored.
    fn restarted(&self) -> Testbed {
        let saved = self.saved.get(&DEVICE).cloned().unwrap_or_default();
        let mut testbed = Testbed::of(persistent_config(saved.clone()));
        testbed.saved.insert(DEVICE, saved);
        testbed
    }

    fn register_persistently(&mut self, host: Host) -> StatusCode {
        self.reserve(host, &register(PersistChange::Set), 0, host.key)
    }

    fn get_persistence(&mut self, host: Host, namespace: u32, select: u8) -> Result<u64, StatusCode> {
        let mut entry = SubmissionEntry::new(AdminOpcode::GetFeatures.code(), namespace);
        entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, select, save: false }.encode().into();
        let answer = self.execute(host.admin, entry, Bytes::new());
        if answer.status == SUCCESS { Ok(answer.result) } else { Err(answer.status) }
    }

    /// Sends a reservation command; returns its identifier.
    fn start_reserve(&mut self, host: Host, command: &ReservationCommand, current: u64, other: u64) -> u16 {
        let keys = ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) }.to_bytes();
        let mut entry = Testbed::entry_of(command);
        entry.data_pointer = SglDescriptor::in_capsule(0, 16);
        self.start(host.io, entry, &Bytes::copy_from_slice(&keys))
    }

    fn finish_reserve(&mut self, host: Host, command: u16) -> StatusCode {
        self.finish(host.io, command, Bytes::new()).status
    }

    fn has_no_response(&mut self, host: Host) -> bool {
        self.wire(host.io).pdus.is_empty()
    }

    /// RESCAP of both Identify structures.
    fn capabilities(&mut self, host: Host, namespace: u32) -> [u8; 2] {
        [(Structure::Namespace, 31), (Structure::IndependentNamespace, 2)].map(|(structure, byte)| {
            let mut entry = SubmissionEntry::new(AdminOpcode::Identify.code(), namespace);
            let request = IdentifyRequest { structure: structure as u8, ..IdentifyRequest::default() };
            let (dword10, dword11, dword14) = request.encode();
            (entry.cdw10, entry.cdw11, entry.cdw14) = (dword10.into(), dword11.into(), dword14.into());
            entry.data_pointer = SglDescriptor::transport(4096);
            self.execute(host.admin, entry, Bytes::new()).data[byte]
        })
    }
}

fn register(persist: PersistChange) -> ReservationCommand {
    ReservationCommand::Register { action: RegisterAction::Register, ignores_key: false, persist }
}

fn unregister(persist: PersistChange) -> ReservationCommand {
    ReservationCommand::Register { action: RegisterAction::Unregister, ignores_key: false, persist }
}

/// Registrants and holders of a report.
fn hosts_of(status: &ReservationStatus) -> Vec<(HostId, u64, bool)> {
    status.controllers.iter().map(|it| (it.host, it.key.0, it.is_holder)).collect()
}

/// Two registrants of a namespace that can persist reservations; the first one holds the
/// reservation.
fn reserved(kind: ReservationType) -> (Testbed, Host, Host) {
    let mut testbed = Testbed::persistent();
    let (owner, other) = (testbed.host(1), testbed.host(2));
    assert_eq!(testbed.register_persistently(owner), SUCCESS);
    testbed.register(other);
    assert_eq!(testbed.acquire(owner, kind), SUCCESS);
    (testbed, owner, other)
}

#[test]
fn a_namespace_reports_whether_it_can_persist_reservations_and_whether_it_does() {
    let mut testbed = Testbed::persistent();
    let host = testbed.host(1);
    assert_eq!((testbed.capabilities(host, 1), testbed.capabilities(host, 2)), ([0xff; 2], [0xfe; 2]));
    assert_eq!(testbed.get_persistence(host, 1, 0), Ok(0));
    assert_eq!(testbed.get_persistence(host, 1, 3), Ok(0b110), "changeable, with namespace scope");
    assert_eq!(testbed.get_persistence(host, 2, 0), Err(StatusCode::INVALID_FIELD));
    assert_eq!(testbed.get_persistence(host, u32::MAX, 0), Err(StatusCode::INVALID_NAMESPACE));
    assert_eq!(testbed.set_feature(host, PERSISTENCE, 0, 1), StatusCode::INVALID_NAMESPACE);
    assert_eq!(testbed.set_feature(host, PERSISTENCE, 7, 1), StatusCode::INVALID_NAMESPACE);
    assert_eq!(testbed.set_feature(host, PERSISTENCE, 2, 1), StatusCode::INVALID_FIELD);
    for (namespace, value) in [(1, 1), (1, 0), (u32::MAX, 1)] {
        assert_eq!(testbed.set_feature(host, PERSISTENCE, namespace, value), SUCCESS);
        assert_eq!(testbed.get_persistence(host, 1, 0), Ok(value.into()));
        assert_eq!(testbed.get_persistence(host, 1, 1), Ok(0), "the default");
        assert_eq!(testbed.report(host, 4096).persists, value == 1);
    }
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 1);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, select: 0, save: true }.encode().into();
    assert_eq!(testbed.execute(host.admin, entry, Bytes::new()).status, StatusCode::FEATURE_NOT_SAVEABLE);
}

#[test]
fn a_restart_restores_registrants_and_holder_and_others_stay_excluded() {
    for kind in ReservationType::ALL {
        let (mut testbed, owner, other) = reserved(kind);
        let before = testbed.report(owner, 4096);
        let mut testbed = testbed.restarted();
        let unregistered = testbed.host(3);
        let after = testbed.report(unregistered, 4096);
        assert_eq!(hosts_of(&after), hosts_of(&before), "{kind:?}");
        assert_eq!((after.kind, after.persists, after.generation), (Some(kind), true, before.generation));
        assert!(
            after.controllers.iter().all(|it| it.controller_id == CONTROLLER_ID_NONE),
            "no host has reconnected yet"
        );
        assert_eq!(testbed.operate(unregistered.io, 1, &write(0, 2, 1)).status, CONFLICT);
        let reads = if kind.excludes_reads() { CONFLICT } else { SUCCESS };
        assert_eq!(testbed.operate(unregistered.io, 1, &read(0, 1)).status, reads, "{kind:?}");
        let (owner, other) = (testbed.host(owner.id.0[0]), testbed.host(other.id.0[0]));
        let of_registrant = if kind.admits_registrants() { SUCCESS } else { CONFLICT };
        assert_eq!(testbed.operate(owner.io, 1, &write(0, 2, 1)).status, SUCCESS, "{kind:?}");
        assert_eq!(testbed.operate(other.io, 1, &write(2, 2, 1)).status, of_registrant, "{kind:?}");
        // The keys are restored.
        assert_eq!(testbed.reserve(other, &preempt(AcquireAction::Preempt), 9, 1), CONFLICT);
        let release = ReservationCommand::Release { action: ReleaseAction::Release, kind_code: kind.code() };
        assert_eq!(testbed.reserve(owner, &release, owner.key, 0), SUCCESS);
        assert_eq!(testbed.restarted().target.first_namespace().reservations().kind(), None, "the release persists");
    }
}

#[test]
fn without_persistence_reservations_end_with_the_server_and_no_device_saves_them() {
    let mut testbed = Testbed::persistent();
    let host = testbed.host(1);
    testbed.hold_saves = true;
    testbed.register(host);
    assert_eq!(testbed.acquire(host, EXCLUSIVE), SUCCESS);
    assert!(testbed.saving.is_empty());
    let mut testbed = testbed.restarted();
    let host = testbed.host(1);
    assert_eq!(hosts_of(&testbed.report(host, 4096)), []);
}

#[test]
fn disabling_persistence_deletes_the_saved_reservations_and_keeps_the_current_ones() {
    let by_feature = |testbed: &mut Testbed, host: Host| testbed.set_feature(host, PERSISTENCE, 1, 0);
    // A registrant registers its key again to change the state.
    let by_register =
        |testbed: &mut Testbed, host: Host| testbed.reserve(host, &register(PersistChange::Clear), 0, host.key);
    let ways: [fn(&mut Testbed, Host) -> StatusCode; 2] = [by_feature, by_register];
    for switch_off in ways {
        let (mut testbed, owner, other) = reserved(EXCLUSIVE);
        let before = testbed.report(owner, 4096);
        // The state is the namespace's, and any registrant may change it.
        assert_eq!(switch_off(&mut testbed, other), SUCCESS);
        let now = testbed.report(owner, 4096);
        assert_eq!(now, ReservationStatus { persists: false, generation: now.generation, ..before });
        assert_eq!(testbed.saved[&DEVICE], Bytes::new());
        assert_eq!(testbed.operate(other.io, 1, &write(0, 2, 1)).status, CONFLICT);
        let mut testbed = testbed.restarted();
        let other = testbed.host(2);
        let found = testbed.report(other, 4096);
        assert_eq!((hosts_of(&found), found.kind, found.persists), (vec![], None, false));
        assert_eq!(testbed.operate(other.io, 1, &write(0, 2, 1)).status, SUCCESS);
    }
}

#[test]
fn the_persistence_state_survives_without_any_registrant() {
    let mut testbed = Testbed::persistent();
    let host = testbed.host(1);
    assert_eq!(testbed.register_persistently(host), SUCCESS);
    assert_eq!(testbed.reserve(host, &unregister(PersistChange::Keep), host.key, 0), SUCCESS);
    let mut testbed = testbed.restarted();
    let host = testbed.host(1);
    let found = testbed.report(host, 4096);
    assert_eq!((hosts_of(&found), found.persists, found.generation), (vec![], true, 2));
}

#[test]
fn a_command_completes_and_takes_effect_only_once_it_is_durable() {
    let (mut testbed, owner, other) = reserved(EXCLUSIVE);
    let before = testbed.report(owner, 4096);
    testbed.hold_saves = true;
    let preempts = testbed.start_reserve(other, &preempt(AcquireAction::Preempt), 2, 1);
    assert_eq!(testbed.saving.len(), 1);
    assert!(testbed.has_no_response(other), "there is no response yet");
    assert_eq!(testbed.report(owner, 4096), before, "the change is not visible yet");
    assert_eq!(testbed.operate(owner.io, 1, &write(0, 2, 1)).status, SUCCESS);
    assert_eq!(testbed.operate(other.io, 1, &write(2, 2, 1)).status, CONFLICT);
    assert_eq!(testbed.notification(owner).data, [0; 64], "no host is notified yet");
    // Power is lost now: the change may be saved already, or not.
    let mut after = testbed.restarted();
    assert_eq!(after.target.first_namespace().reservations().to_saved(), testbed.saved[&DEVICE]);
    let requested = testbed.saving[0].1.clone();
    after = Testbed::of(persistent_config(requested.clone()));
    assert_eq!(after.target.first_namespace().reservations().to_saved(), requested);
    assert!(after.target.first_namespace().reservations().is_holder(other.id), "the whole change is restored");

    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(other, preempts), SUCCESS);
    assert_eq!(testbed.operate(owner.io, 1, &write(2, 2, 1)).status, CONFLICT);
    assert_eq!(testbed.operate(other.io, 1, &write(2, 2, 1)).status, SUCCESS);
    assert_eq!(testbed.notification(owner).data[8], 1, "registration preempted");
    assert_eq!(testbed.saved[&DEVICE], requested);
}

#[test]
fn a_preempt_and_abort_starts_to_wait_for_other_hosts_once_it_is_durable() {
    let (mut testbed, owner, other) = reserved(EXCLUSIVE);
    (testbed.hold, testbed.hold_saves) = (true, true);
    let taking = testbed.start_reserve(other, &preempt(AcquireAction::PreemptAndAbort), 2, 1);
    // It is still permitted, and the preemption must wait for it.
    let (entry, _) = testbed.encoded(1, &read(0, 1));
    let late = testbed.start(owner.io, entry, &Bytes::new());
    testbed.complete_save(true);
    assert!(testbed.has_no_response(other), "a read of the old owner is at the device");
    testbed.release();
    assert_eq!((testbed.finish_reserve(other, taking), testbed.finish_reserve(owner, late)), (SUCCESS, SUCCESS));
}

#[test]
fn a_failed_save_changes_nothing() {
    let (mut testbed, owner, other) = reserved(EXCLUSIVE);
    let before = testbed.report(owner, 4096);
    let saved = testbed.saved[&DEVICE].clone();
    testbed.hold_saves = true;
    let release = ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 };
    for (host, command, current, other_key) in [
        (other, preempt(AcquireAction::PreemptAndAbort), 2, 1),
        (owner, release, 1, 0),
        (owner, unregister(PersistChange::Keep), 1, 0),
        (other, register(PersistChange::Clear), 0, 2),
    ] {
        let started = testbed.start_reserve(host, &command, current, other_key);
        testbed.complete_save(false);
        assert_eq!(testbed.finish_reserve(host, started), StatusCode::WRITE_FAULT, "{command:?}");
        assert_eq!(testbed.report(owner, 4096), before, "{command:?}");
    }
    assert_eq!(testbed.operate(other.io, 1, &write(0, 2, 1)).status, CONFLICT);
    assert_eq!(testbed.notification(owner).data, [0; 64]);
    // It is unknown which state the device would restore: the next command is saved even if it
    // changes nothing.
    let acquires = ReservationCommand::Acquire { action: AcquireAction::Acquire, kind: EXCLUSIVE };
    let again = testbed.start_reserve(owner, &acquires, 1, 0);
    assert!(testbed.has_no_response(owner));
    assert_eq!(testbed.saving[0].1, saved);
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(owner, again), SUCCESS);
    assert_eq!(testbed.reserve(owner, &acquires, 1, 0), SUCCESS, "the saved state is known again");
}

/// The device may have saved the state in spite of the failure: a reservation that is released
/// later must not reappear.
#[test]
fn after_a_failed_save_the_empty_state_is_saved_too() {
    let mut testbed = Testbed::persistent();
    let owner = testbed.host(1);
    testbed.hold_saves = true;
    testbed.register(owner);
    assert_eq!(testbed.acquire(owner, EXCLUSIVE), SUCCESS, "nothing persists");
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 1);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, ..FeatureRequest::default() }.encode().into();
    entry.cdw11 = 1.into();
    let persists = testbed.start(owner.admin, entry, &Bytes::new());
    testbed.complete_save(false);
    assert_eq!(testbed.finish(owner.admin, persists, Bytes::new()).status, StatusCode::WRITE_FAULT);
    let release = ReservationCommand::Release { action: ReleaseAction::Release, kind_code: EXCLUSIVE.code() };
    let released = testbed.start_reserve(owner, &release, 1, 0);
    assert!(testbed.has_no_response(owner), "after a crash the device might restore the reservation");
    assert_eq!(testbed.saving[0].1, Bytes::new());
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(owner, released), SUCCESS);
}

#[test]
fn a_controller_reset_ends_waiting_admin_commands_without_a_response() {
    let mut testbed = Testbed::persistent();
    let (host, other) = (testbed.host(1), testbed.host(2));
    testbed.hold_saves = true;
    let registers = testbed.start_reserve(other, &register(PersistChange::Set), 0, 2);
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 1);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, ..FeatureRequest::default() }.encode().into();
    testbed.start(host.admin, entry, &Bytes::new());
    testbed.set(host.admin, Property::Configuration, 0);
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(other, registers), SUCCESS);
    assert!(testbed.saving.is_empty() && testbed.wire(host.admin).pdus.is_empty());
    assert!(testbed.report(other, 4096).persists, "the change had not begun");
}

#[test]
fn commands_for_one_namespace_are_serialized_and_those_for_others_are_not() {
    let mut config = persistent_config(Bytes::new());
    config.saved_reservations.insert(DeviceKey(1), Bytes::new());
    let mut testbed = Testbed::of(config);
    let (first, second, third) = (testbed.host(1), testbed.host(2), testbed.host(3));
    testbed.hold_saves = true;
    let registers = testbed.start_reserve(first, &register(PersistChange::Set), 0, 1);
    let acquires = ReservationCommand::Acquire { action: AcquireAction::Acquire, kind: EXCLUSIVE };
    let takes = testbed.start_reserve(first, &acquires, 1, 0);
    let joins = testbed.start_reserve(second, &register(PersistChange::Keep), 0, 2);
    let fails = testbed.start_reserve(third, &acquires, 3, 0);
    assert_eq!(testbed.saving.len(), 1, "one after the other");
    // Both namespaces, of which the first has commands waiting.
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), u32::MAX);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, ..FeatureRequest::default() }.encode().into();
    entry.cdw11 = 1.into();
    let persists = testbed.start(third.admin, entry, &Bytes::new());
    assert_eq!(testbed.saving.iter().map(|(device, _)| device.0).collect::<Vec<_>>(), [0, 1]);
    testbed.saving.swap(0, 1);
    testbed.complete_save(true);
    assert!(testbed.wire(third.admin).pdus.is_empty(), "the command is outstanding on the first namespace");
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(first, registers), SUCCESS);
    assert!(testbed.has_no_response(first));
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(first, takes), SUCCESS);
    assert!(testbed.has_no_response(second) && testbed.has_no_response(third));
    testbed.complete_save(true);
    assert_eq!(
        (testbed.finish_reserve(second, joins), testbed.finish_reserve(third, fails)),
        (SUCCESS, CONFLICT),
        "the last command saves nothing"
    );
    assert_eq!(testbed.finish(third.admin, persists, Bytes::new()).status, SUCCESS, "the state was set already");
    assert!(testbed.saving.is_empty());
}

#[test]
fn after_a_disconnect_the_change_in_flight_is_saved_and_waiting_ones_are_dropped() {
    let mut testbed = Testbed::persistent();
    let (gone, stays) = (testbed.host(1), testbed.host(2));
    testbed.hold_saves = true;
    testbed.start_reserve(gone, &register(PersistChange::Set), 0, 1);
    testbed.start_reserve(gone, &ReservationCommand::Acquire { action: AcquireAction::Acquire, kind: EXCLUSIVE }, 1, 0);
    let joins = testbed.start_reserve(stays, &register(PersistChange::Keep), 0, 2);
    testbed.close_socket(gone.io);
    testbed.complete_save(true);
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(stays, joins), SUCCESS);
    let found = testbed.report(stays, 4096);
    assert_eq!((found.kind, hosts_of(&found)), (None, vec![(gone.id, 1, false), (stays.id, 2, false)]));
}

#[test]
fn a_draining_target_completes_reservation_commands_first() {
    let mut testbed = Testbed::persistent();
    let (first, second) = (testbed.host(1), testbed.host(2));
    testbed.hold_saves = true;
    let registers = testbed.start_reserve(first, &register(PersistChange::Set), 0, 1);
    let joins = testbed.start_reserve(second, &register(PersistChange::Keep), 0, 2);
    testbed.target.shutdown(testbed.now);
    testbed.run_until_idle();
    assert!(!testbed.closed.contains_key(&first.io) && !testbed.closed.contains_key(&second.io));
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(first, registers), SUCCESS);
    assert!(testbed.closed.contains_key(&first.io) && !testbed.target.is_drained());
    testbed.complete_save(true);
    assert_eq!(testbed.finish_reserve(second, joins), SUCCESS);
    assert!(testbed.target.is_drained());
}

#[test]
fn hosts_without_identifier_registration_or_key_cannot_change_saved_reservations() {
    let (mut testbed, owner, _) = reserved(EXCLUSIVE);
    let saved = testbed.saved[&DEVICE].clone();
    // A host over Fabrics must have a host identifier to connect.
    let anonymous = testbed.open();
    testbed.initialize(anonymous, Digests::NONE, 0);
    let answer =
        testbed.connect_with_id(anonymous, HostId([0; 16]), "nqn.2024-01.org.example:0", SUBSYSTEM, 0, None, 0);
    assert_eq!(answer.status, StatusCode::CONNECT_INVALID_PARAMETERS);
    let unregistered = testbed.host(3);
    let persist = PersistChange::Set;
    let replace = ReservationCommand::Register { action: RegisterAction::Replace, ignores_key: true, persist };
    let release = ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 };
    for (command, current, other) in [
        (preempt(AcquireAction::Preempt), 3, 1),
        (preempt(AcquireAction::PreemptAndAbort), 1, 1),
        (replace, 1, 3),
        (unregister(persist), 1, 0),
        (release, 1, 0),
    ] {
        assert_eq!(testbed.reserve(unregistered, &command, current, other), CONFLICT, "{command:?}");
    }
    assert_eq!(
        testbed.reserve(unregistered, &register(persist), 0, 0),
        StatusCode::INVALID_FIELD,
        "zero is not a valid key"
    );
    assert_eq!(
        testbed.reserve(owner, &preempt(AcquireAction::Preempt), 1, 99),
        CONFLICT,
        "a key that no registrant has"
    );
    // CPTPL 01b is reserved.
    let mut entry = Testbed::entry_of(&register(PersistChange::Keep));
    entry.cdw10 = (entry.cdw10.get() | 1 << 30).into();
    assert_eq!(testbed.execute_in_capsule(owner.io, entry, vec![1; 16].into()).status, StatusCode::INVALID_FIELD);
    assert_eq!(testbed.saved[&DEVICE], saved);
    assert!(
        !testbed
            .restarted()
            .target
            .first_namespace()
            .reservations()
            .permits(unregistered.id, super::super::reservations::Access::Read)
    );
}

#[test]
fn a_refused_register_does_not_change_the_persistence_state() {
    let (mut testbed, owner, other) = reserved(EXCLUSIVE);
    assert_eq!(testbed.reserve(other, &register(PersistChange::Clear), 0, 77), CONFLICT, "its key is different");
    assert_eq!(testbed.reserve(other, &unregister(PersistChange::Clear), 77, 0), CONFLICT);
    assert!(testbed.report(owner, 4096).persists);
}

#[test]
fn a_full_table_refuses_one_more_registrant_and_is_restored_completely() {
    let mut testbed = Testbed::persistent();
    let hosts: Vec<Host> = (1..=REGISTRANTS_MAX as u8 + 1).map(|number| testbed.host(number)).collect();
    let (last, others) = hosts.split_last().expect("there are hosts");
    for &host in others {
        assert_eq!(testbed.register_persistently(host), SUCCESS);
    }
    assert_eq!(testbed.register_persistently(*last), StatusCode::INTERNAL_ERROR);
    let mut testbed = testbed.restarted();
    let host = testbed.host(1);
    assert_eq!(testbed.report(host, 1 << 16).controllers.len(), REGISTRANTS_MAX);
}

#[test]
fn waiting_commands_are_limited_and_one_more_must_be_retried() {
    let mut testbed = Testbed::persistent();
    let hosts: Vec<Host> = (1..20).map(|number| testbed.host(number)).collect();
    testbed.hold_saves = true;
    let started: Vec<_> = (0..=RESERVATION_REQUESTS_MAX)
        .map(|i| {
            let host = hosts[i % hosts.len()];
            (host, testbed.start_reserve(host, &register(PersistChange::Set), 0, host.key))
        })
        .collect();
    let (host, command) = started[RESERVATION_REQUESTS_MAX];
    assert_eq!(testbed.finish_reserve(host, command), StatusCode::COMMAND_INTERRUPTED);
    while !testbed.saving.is_empty() {
        testbed.complete_save(true);
    }
    for &(host, command) in &started[..RESERVATION_REQUESTS_MAX] {
        assert_eq!(testbed.finish_reserve(host, command), SUCCESS);
    }
}

#[test]
fn invalid_saved_reservations_and_a_device_of_two_namespaces_are_configuration_errors() {
    let good = SavedReservations::default().to_bytes();
    assert!(Target::new(persistent_config(good.clone().into())).is_ok());
    let mut later = good.clone();
    later[8] = 2;
    for (bytes, words) in [(good[..20].to_vec(), "damaged"), (later, "format version 2")] {
        let error = Target::new(persistent_config(bytes.into()))
            .expect_err("it would admit hosts that are excluded")
            .to_string();
        assert!(error.contains("namespace 1") && error.contains(words), "{error}");
    }
    let too_many = (1..=REGISTRANTS_MAX as u8 + 1).map(|host| (HostId([host; 16]), ReservationKey(1))).collect();
    let too_many = SavedReservations { registrants: too_many, ..SavedReservations::default() };
    assert!(Target::new(persistent_config(too_many.to_bytes().into())).is_err());
    for devices in [[0, 0], [1, 2]] {
        let mut config = persistent_config(Bytes::new());
        let namespaces = config.subsystems[0].namespaces.iter_mut();
        namespaces.zip(devices).for_each(|(namespace, device)| namespace.device = DeviceKey(device));
        let error = Target::new(config).expect_err("one namespace, one reservation").to_string();
        assert!(error.contains("device 0"), "{error}");
    }
}

/// The next step: an action of a host, or an event of the device.
#[derive(Clone, Debug)]
enum Step {
    Ask { host: usize, command: u8, current: u64, other: u64 },
    Keep { succeeds: bool },
    LosePower { is_saved: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 0..10_u8, 0..4_u64, 0..4_u64)
            .prop_map(|(host, command, current, other)| Step::Ask { host, command, current, other }),
        4 => (0..5_u8).prop_map(|dice| Step::Keep { succeeds: dice > 0 }),
        1 => any::<bool>().prop_map(|is_saved| Step::LosePower { is_saved }),
    ]
}

fn command_of(number: u8) -> ReservationCommand {
    match number {
        0 | 1 => register(PersistChange::Set),
        2 => register(PersistChange::Keep),
        3 => register(PersistChange::Clear),
        4 => unregister(PersistChange::Keep),
        5 => ReservationCommand::Register {
            action: RegisterAction::Replace,
            ignores_key: true,
            persist: PersistChange::Keep,
        },
        6 => ReservationCommand::Acquire { action: AcquireAction::Acquire, kind: EXCLUSIVE },
        7 => preempt(AcquireAction::PreemptAndAbort),
        8 => ReservationCommand::Release { action: ReleaseAction::Release, kind_code: EXCLUSIVE.code() },
        _ => ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whenever power is lost, a restarted server restores exactly the persistent state that hosts
    /// have seen, or that state with the one change whose response no host has received.
    #[test]
    fn a_restart_restores_what_hosts_have_seen(steps in proptest::collection::vec(step(), 1..40)) {
        let mut testbed = Testbed::persistent();
        let mut hosts = [1, 2, 3].map(|number| testbed.host(number));
        testbed.hold_saves = true;
        for step in steps {
            match step {
                Step::Ask { host, command, current, other } => {
                    testbed.start_reserve(hosts[host], &command_of(command), current, other);
                }
                Step::Keep { succeeds } if !testbed.saving.is_empty() => testbed.complete_save(succeeds),
                Step::Keep { .. } => {}
                Step::LosePower { is_saved } => {
                    let seen = testbed.target.first_namespace().reservations().to_saved();
                    if let Some((_, bytes)) = testbed.saving.front().filter(|_| is_saved) {
                        testbed.saved.insert(DEVICE, bytes.clone());
                    } else {
                        prop_assert_eq!(testbed.saved.get(&DEVICE).cloned().unwrap_or_default(), seen);
                    }
                    testbed = testbed.restarted();
                    testbed.hold_saves = true;
                    testbed.target.check_invariants();
                    let reservations = testbed.target.first_namespace().reservations();
                    prop_assert_eq!(reservations.to_saved(), testbed.saved[&DEVICE].to_vec());
                    hosts = [1, 2, 3].map(|number| testbed.host(number));
                }
            }
        }
    }
}
