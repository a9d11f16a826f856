//! Removal of namespaces, subsystems and hosts while commands are in flight.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_chap::Secret;
use zonda_nvme::fabrics::AuthenticationCommand;
use zonda_nvme::features::Feature;
use zonda_nvme::reservation::{AcquireAction, PersistChange, RegisterAction, ReservationCommand};
use zonda_nvme::tcp::Digests;
use zonda_nvme::{FabricsType, IoOpcode, SglDescriptor, StatusCode};
use zonda_zoned::{Duration, NamespaceId};

use super::changes::{OTHER, namespace, only, subsystem};
use super::reservations::{EXCLUSIVE, Host, preempt};
use super::testbed::{HOST, SUBSYSTEM, Testbed, config, conventional, nqn, pattern, read, write, zoned};
use crate::{
    CloseReason, ConnectionId, DeviceKey, HostAccess, HostEntry, NamespaceOptions, TargetConfig, UnregisteredAccess,
};

const SUCCESS: StatusCode = StatusCode::SUCCESS;
const GONE: StatusCode = StatusCode::INVALID_NAMESPACE;
const REMOVED: (DeviceKey, NamespaceId) = (DeviceKey(0), NamespaceId::FIRST);

/// A device that can save reservations, and has saved these.
fn persistent(saved: Bytes) -> TargetConfig {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.saved_reservations.insert(DeviceKey(0), saved);
    config
}

fn register(persist: PersistChange) -> ReservationCommand {
    ReservationCommand::Register { action: RegisterAction::Register, ignores_key: false, persist }
}

fn status(testbed: &mut Testbed, id: ConnectionId, command: u16) -> StatusCode {
    testbed.finish(id, command, Bytes::new()).status
}

#[test]
fn commands_at_the_device_are_answered_and_later_ones_find_no_namespace() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.operate(io, 1, &write(0, 8, 1));
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    testbed.hold = true;
    let before = testbed.start(io, entry, &Bytes::new());
    testbed.remove(1);
    assert_eq!(testbed.execute(io, entry, Bytes::new()).status, GONE);
    assert!(testbed.removed.is_empty(), "the device has a command");
    testbed.release();
    assert_eq!(testbed.finish(io, before, Bytes::new()).data, pattern(8, 512, 1));
    assert_eq!(testbed.removed, [REMOVED]);
}

#[test]
fn the_identifier_can_be_used_again_while_the_old_device_has_commands() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.operate(io, 1, &write(0, 8, 1));
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    testbed.hold = true;
    let old = testbed.start(io, entry, &Bytes::new());
    testbed.remove(1);
    let now = testbed.now;
    let same = namespace(1, DeviceKey(0), &zoned());
    let error = testbed.change(|target| target.add_namespace(now, &nqn(SUBSYSTEM), same, NamespaceOptions::default()));
    assert!(error.unwrap_err().to_string().contains("removed namespace"));
    let device = testbed.add(1, &conventional());
    testbed.assert_view(admin);
    let new = testbed.start(io, entry, &Bytes::new());
    assert_eq!(testbed.held.iter().map(|(device, _)| *device).collect::<Vec<_>>(), [DeviceKey(0), device]);
    testbed.release();
    assert_eq!(testbed.finish(io, old, Bytes::new()).data, pattern(8, 512, 1));
    assert_eq!(testbed.finish(io, new, Bytes::new()).data, [0; 8 * 512]);
    assert_eq!(testbed.removed, [REMOVED]);
    let counts = testbed.target.namespace_statistics(0, NamespaceId(1)).unwrap();
    assert_eq!((counts.reads, counts.writes), (1, 0), "those of the new namespace only");
    let now = testbed.now;
    let same = namespace(2, DeviceKey(0), &zoned());
    testbed.change(|target| target.add_namespace(now, &nqn(SUBSYSTEM), same, NamespaceOptions::default())).unwrap();
}

#[test]
fn a_write_whose_data_is_on_the_way_is_not_submitted_to_any_namespace() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    let command = testbed.start_write(io, 0, 8);
    assert_eq!(testbed.r2ts_received(io), 1);
    testbed.remove(1);
    assert_eq!(testbed.removed, [REMOVED], "the device will get nothing");
    testbed.add(1, &zoned());
    testbed.submitted.clear();
    assert_eq!(testbed.finish(io, command, pattern(8, 512, 1)).status, GONE);
    assert!(testbed.submitted.is_empty());
    assert_eq!(testbed.operate(io, 1, &write(0, 8, 1)).status, SUCCESS);
}

#[test]
fn commands_that_wait_for_memory_end_and_free_it() {
    let mut testbed = Testbed::with_limits(|limits| {
        (limits.transfer_bytes, limits.in_capsule_bytes, limits.receive_bytes) = (16 << 10, 4096, 32 << 10);
    });
    let io = testbed.io();
    let commands: Vec<u16> = (0..5).map(|i| testbed.start_write(io, i * 32, 32)).collect();
    assert_eq!(testbed.r2ts_received(io), 2, "the others wait");
    testbed.remove(1);
    for &command in &commands[2..] {
        assert_eq!(status(&mut testbed, io, command), GONE);
    }
    for &command in &commands[..2] {
        assert_eq!(testbed.finish(io, command, pattern(32, 512, 1)).status, GONE);
    }
    testbed.target.assert_nothing_waits();
    testbed.add(1, &zoned());
    assert_eq!(testbed.operate(io, 1, &write(0, 32, 1)).status, SUCCESS);
}

#[test]
fn a_compare_completes_its_steps_after_the_removal() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.operate(io, 1, &write(0, 8, 1));
    let (mut entry, data) = testbed.encoded(1, &write(0, 8, 1));
    entry.opcode = IoOpcode::Compare.code();
    entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
    entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
    testbed.hold = true;
    testbed.submitted.clear();
    let compare = testbed.start(io, entry, &data);
    testbed.remove(1);
    assert_eq!(testbed.submitted, ["flush"]);
    testbed.release();
    assert_eq!(testbed.submitted, ["flush", "read"]);
    assert_eq!(status(&mut testbed, io, compare), SUCCESS);
    assert_eq!(testbed.removed, [REMOVED]);
}

#[test]
fn reservations_end_with_their_namespace_and_so_do_their_notifications_and_masks() {
    let mut testbed = Testbed::new();
    let (old, new) = (testbed.host(1), testbed.host(2));
    testbed.register(old);
    testbed.register(new);
    assert_eq!(testbed.acquire(old, EXCLUSIVE), SUCCESS);
    assert_eq!(testbed.set_feature(new, Feature::ReservationNotificationMask, 1, 0b1110), SUCCESS);
    assert_eq!(testbed.reserve(new, &preempt(AcquireAction::Preempt), new.key, old.key), SUCCESS);
    assert_eq!(testbed.target.unregistered_access(DeviceKey(0)), UnregisteredAccess::NONE);
    let changes = testbed.target.reservation_changes();
    testbed.remove(1);
    assert_eq!(testbed.target.unregistered_access(DeviceKey(0)), UnregisteredAccess::ALL);
    assert_ne!(testbed.target.reservation_changes(), changes);
    testbed.add(1, &zoned());
    let report = testbed.report(new, 4096);
    assert_eq!((report.kind, report.controllers.len(), report.generation), (None, 0, 0));
    assert_eq!(testbed.operate(old.io, 1, &write(0, 8, 1)).status, SUCCESS);
    assert_eq!(testbed.notification(old).data[8], 0, "it was about the removed namespace");
    // The new host has masked no notification of the new namespace.
    testbed.register(old);
    testbed.register(new);
    assert_eq!(testbed.acquire(new, EXCLUSIVE), SUCCESS);
    assert_eq!(testbed.reserve(old, &preempt(AcquireAction::Preempt), old.key, new.key), SUCCESS);
    assert_ne!(testbed.notification(new).data[8], 0);
}

#[test]
fn saved_reservations_are_not_deleted_and_restored_when_the_device_is_added_again() {
    let mut testbed = Testbed::of(persistent(Bytes::new()));
    let host = testbed.host(1);
    assert_eq!(testbed.reserve(host, &register(PersistChange::Set), 0, host.key), SUCCESS);
    assert_eq!(testbed.acquire(host, EXCLUSIVE), SUCCESS);
    let saved = testbed.saved[&DeviceKey(0)].clone();
    assert_eq!(testbed.target.config().saved_reservations[&DeviceKey(0)], saved);
    testbed.saved.clear();
    testbed.remove(1);
    assert!(testbed.saved.is_empty() && testbed.saving.is_empty(), "a removed device saves nothing");
    assert!(testbed.target.config().saved_reservations.is_empty());
    let now = testbed.now;
    let same = namespace(4, DeviceKey(0), &zoned());
    let options = NamespaceOptions { saved_reservations: Some(saved), ..NamespaceOptions::default() };
    testbed.change(|target| target.add_namespace(now, &nqn(SUBSYSTEM), same, options)).unwrap();
    assert_eq!(testbed.target.unregistered_access(DeviceKey(0)), UnregisteredAccess::NONE);
    assert!(testbed.target.first_namespace().reservations().is_holder(host.id));
}

#[test]
fn a_save_in_flight_completes_its_command_and_commands_that_wait_for_it_end() {
    let mut testbed = Testbed::of(persistent(Bytes::new()));
    let (first, second) = (testbed.host(1), testbed.host(2));
    testbed.hold_saves = true;
    let start = |testbed: &mut Testbed, host: Host| {
        let keys = [[0; 8], u64::to_le_bytes(host.key)].concat();
        let mut entry = Testbed::entry_of(&register(PersistChange::Set));
        entry.data_pointer = SglDescriptor::in_capsule(0, 16);
        testbed.start(host.io, entry, &keys.into())
    };
    let saving = start(&mut testbed, first);
    let waiting = start(&mut testbed, second);
    testbed.remove(1);
    assert_eq!(status(&mut testbed, second.io, waiting), GONE);
    assert!(!testbed.answered(first.io, saving) && testbed.removed.is_empty());
    let now = testbed.now;
    let options = NamespaceOptions { saved_reservations: Some(Bytes::new()), ..NamespaceOptions::default() };
    let mut shared = namespace(1, DeviceKey(0), &zoned());
    shared.device_namespace = NamespaceId(2);
    let again = testbed.change(|target| target.add_namespace(now, &nqn(SUBSYSTEM), shared, options));
    assert!(again.unwrap_err().to_string().contains("removed namespace"), "a device has one save in flight");
    testbed.add(1, &zoned());
    testbed.complete_save(true);
    assert_eq!(status(&mut testbed, first.io, saving), SUCCESS);
    assert_eq!(testbed.removed, [REMOVED]);
    assert!(testbed.report(first, 4096).controllers.is_empty(), "the new namespace has no registrant");
}

#[test]
fn a_preemption_that_waits_for_commands_completes_after_them() {
    let mut testbed = Testbed::new();
    let (old, new) = (testbed.host(1), testbed.host(2));
    testbed.register(old);
    testbed.register(new);
    assert_eq!(testbed.acquire(old, EXCLUSIVE), SUCCESS);
    testbed.hold = true;
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    let in_flight = testbed.start(old.io, entry, &Bytes::new());
    let preempting = testbed.start_preempting(new, old);
    testbed.remove(1);
    testbed.add(1, &zoned());
    assert!(!testbed.answered(new.io, preempting), "a command of another host is at the device");
    testbed.release();
    assert_eq!(status(&mut testbed, new.io, preempting), SUCCESS);
    assert_eq!(status(&mut testbed, old.io, in_flight), SUCCESS);
    assert_eq!(testbed.removed, [REMOVED]);
}

#[test]
fn a_reservation_command_whose_keys_are_on_the_way_does_not_reach_the_next_namespace() {
    let mut testbed = Testbed::new();
    let host = testbed.host(1);
    let mut entry = Testbed::entry_of(&register(PersistChange::Keep));
    entry.data_pointer = SglDescriptor::transport(16);
    let command = testbed.start(host.io, entry, &Bytes::new());
    testbed.remove(1);
    testbed.add(1, &zoned());
    let keys = [[0; 8], u64::to_le_bytes(host.key)].concat();
    assert_eq!(testbed.finish(host.io, command, keys.into()).status, GONE);
    assert!(testbed.report(host, 4096).controllers.is_empty());
}

#[test]
fn a_removed_subsystem_answers_commands_at_devices_and_closes_its_connections() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let [busy, idle] = [1, 2].map(|queue| testbed.io_with(controller, queue, Digests::NONE, 0));
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    testbed.hold = true;
    let command = testbed.start(busy, entry, &Bytes::new());
    testbed.remove_subsystem(SUBSYSTEM);
    assert_eq!(testbed.closed.get(&idle), Some(&CloseReason::SubsystemRemoved));
    assert!(!testbed.closed.contains_key(&busy) && !testbed.closed.contains_key(&admin));
    let late = testbed.start(busy, entry, &Bytes::new());
    // Its name can be used again at once, and is another subsystem.
    let (now, device) = (testbed.now, testbed.device(&zoned()));
    let again = subsystem(SUBSYSTEM, vec![namespace(1, device, &zoned())], HostAccess::Any);
    testbed.change(|target| target.add_subsystem(now, again, BTreeMap::new())).unwrap();
    let other = testbed.open();
    testbed.initialize(other, Digests::NONE, 0);
    let refused = testbed.connect_as(other, HOST, SUBSYSTEM, 3, Some(controller), 0).status;
    assert_eq!(refused, StatusCode::CONNECT_INVALID_PARAMETERS);
    testbed.release();
    assert_eq!(status(&mut testbed, busy, command), SUCCESS);
    assert!(!testbed.answered(busy, late), "no command is accepted any more");
    for id in [busy, admin] {
        assert_eq!(testbed.closed.get(&id), Some(&CloseReason::SubsystemRemoved));
    }
    assert_eq!(testbed.removed, [REMOVED]);
    let io = testbed.io();
    assert_eq!(testbed.operate(io, 1, &write(0, 8, 1)).status, SUCCESS);
}

#[test]
fn a_device_that_does_not_answer_delays_the_end_of_a_removed_subsystem_for_a_limited_time() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    testbed.hold = true;
    testbed.start(io, entry, &Bytes::new());
    testbed.remove_subsystem(SUBSYSTEM);
    testbed.pass(Duration::from_secs(4));
    assert!(!testbed.closed.contains_key(&io));
    testbed.pass(Duration::from_secs(6));
    assert!(testbed.closed.contains_key(&io));
    assert_eq!((testbed.abandoned.len(), testbed.removed.len()), (1, 0));
    assert_eq!(testbed.target.next_timeout(), None);
    testbed.release();
    assert_eq!(testbed.removed, [REMOVED]);
    assert_eq!(testbed.target.subsystems.len(), 0);
}

#[test]
fn a_subsystem_is_removed_while_a_host_authenticates() {
    let secret = |seed| Secret::generate(None, [seed; 64]);
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: None };
    let allow = HostAccess::Hosts(vec![entry]);
    let mut testbed = Testbed::of(config(&[zoned()], allow.clone()));
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    assert_eq!(testbed.connect_as(id, HOST, SUBSYSTEM, 0, None, 0).status, SUCCESS);
    let message = zonda_chap::HostAuth::new(
        zonda_chap::HostAuthConfig::new(HOST, SUBSYSTEM, secret(1)),
        zonda_chap::Random::new([9; 32]),
    )
    .message()
    .expect("a host begins");
    let mut send = AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32).into();
    let send: &mut zonda_nvme::SubmissionEntry = &mut send;
    send.data_pointer = SglDescriptor::in_capsule(0, message.len() as u32);
    testbed.hold_steps = true;
    testbed.start(id, *send, &message.into());
    let step = testbed.held_steps.pop().expect("a step is being computed");
    testbed.remove_subsystem(SUBSYSTEM);
    assert_eq!(testbed.closed.get(&id), Some(&CloseReason::SubsystemRemoved));
    let now = testbed.now;
    testbed.change(|target| target.on_authenticated(now, step.run()));
    assert_eq!((testbed.target.statistics().connections, testbed.target.statistics().controllers), (0, 0));
    let device = testbed.device(&zoned());
    let again = subsystem(OTHER, vec![namespace(1, device, &zoned())], allow);
    testbed.change(|target| target.add_subsystem(now, again, BTreeMap::new())).unwrap();
}

#[test]
fn a_host_that_may_not_connect_any_more_is_disconnected_at_once() {
    let mut testbed = Testbed::of(config(&[zoned()], HostAccess::Any));
    let (cut, kept) = (testbed.host(1), testbed.host(2));
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    testbed.hold = true;
    let commands = [cut, kept].map(|host| testbed.start(host.io, entry, &Bytes::new()));
    testbed.set_hosts(only(&["nqn.2024-01.org.example:host-2"]));
    assert_eq!(testbed.closed.get(&cut.admin), Some(&CloseReason::AccessRevoked));
    assert_eq!(testbed.closed.get(&cut.io), Some(&CloseReason::ControllerRemoved));
    assert_eq!(testbed.abandoned.len(), 1);
    testbed.release();
    assert!(!testbed.answered(cut.io, commands[0]));
    assert_eq!(status(&mut testbed, kept.io, commands[1]), SUCCESS);
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    let name = "nqn.2024-01.org.example:host-1";
    assert_eq!(testbed.connect_as(id, name, SUBSYSTEM, 0, None, 0).status, StatusCode::CONNECT_INVALID_HOST);
}

#[test]
fn a_changed_secret_counts_from_the_next_connection_on() {
    let mut testbed = Testbed::of(config(&[zoned()], only(&[HOST])));
    let io = testbed.io();
    let secret = Secret::generate(None, [1; 64]);
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret), controller_secret: None };
    testbed.set_hosts(HostAccess::Hosts(vec![entry]));
    assert_eq!(testbed.operate(io, 1, &write(0, 8, 1)).status, SUCCESS);
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    let answer = testbed.connect_as(id, HOST, SUBSYSTEM, 0, None, 0);
    assert_ne!(answer.result >> 16, 0, "authentication is required");
    let (entry, _) = testbed.encoded(1, &read(0, 1));
    assert_eq!(testbed.execute(id, entry, Bytes::new()).status, StatusCode::AUTHENTICATION_REQUIRED);
}
