//! Persist Through Power Loss: what a host was promised is there after a restart, and nothing is promised that is not durable.

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
use super::world::{SUBSYSTEM, World, config, conventional, read, write, zoned};
use crate::limits::{REGISTRANTS_MAX, RESERVATION_ASKS_MAX};
use crate::{DeviceKey, HostAccess, Target, TargetConfig};

const DEVICE: DeviceKey = DeviceKey(0);
const SUCCESS: StatusCode = StatusCode::SUCCESS;
const PERSISTENCE: Feature = Feature::ReservationPersistence;

/// Two namespaces; the first keeps reservations, and the second cannot.
fn keeping(kept: Bytes) -> TargetConfig {
    let mut config = config(&[zoned(), conventional()], HostAccess::Any);
    config.kept_reservations.insert(DEVICE, kept);
    config
}

impl World {
    fn that_keeps() -> World {
        World::of(keeping(Bytes::new()))
    }

    /// A server that starts after this one has lost its power. What devices were asked to keep is there if they said so.
    fn restarted(&self) -> World {
        let kept = self.kept.get(&DEVICE).cloned().unwrap_or_default();
        let mut world = World::of(keeping(kept.clone()));
        world.kept.insert(DEVICE, kept);
        world
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

    /// Sends a command about reservations; its identifier.
    fn ask(&mut self, host: Host, command: &ReservationCommand, current: u64, other: u64) -> u16 {
        let keys = ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) }.to_bytes();
        let mut entry = World::entry_of(command);
        entry.data_pointer = SglDescriptor::in_capsule(0, 16);
        self.start(host.io, entry, &Bytes::copy_from_slice(&keys))
    }

    fn ended(&mut self, host: Host, command: u16) -> StatusCode {
        self.finish(host.io, command, Bytes::new()).status
    }

    fn is_silent(&mut self, host: Host) -> bool {
        self.wire(host.io).pdus.is_empty()
    }

    /// RESCAP of both Identify pages.
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

/// Two registrants of a namespace that keeps its reservations; the first one holds it.
fn held(kind: ReservationType) -> (World, Host, Host) {
    let mut world = World::that_keeps();
    let (owner, other) = (world.host(1), world.host(2));
    assert_eq!(world.register_persistently(owner), SUCCESS);
    world.register(other);
    assert_eq!(world.acquire(owner, kind), SUCCESS);
    (world, owner, other)
}

#[test]
fn a_namespace_says_whether_it_can_keep_reservations_and_whether_it_does() {
    let mut world = World::that_keeps();
    let host = world.host(1);
    assert_eq!((world.capabilities(host, 1), world.capabilities(host, 2)), ([0xff; 2], [0xfe; 2]));
    assert_eq!(world.get_persistence(host, 1, 0), Ok(0));
    assert_eq!(world.get_persistence(host, 1, 3), Ok(0b110), "changeable, one of each namespace");
    assert_eq!(world.get_persistence(host, 2, 0), Err(StatusCode::INVALID_FIELD));
    assert_eq!(world.get_persistence(host, u32::MAX, 0), Err(StatusCode::INVALID_NAMESPACE));
    assert_eq!(world.set_feature(host, PERSISTENCE, 0, 1), StatusCode::INVALID_NAMESPACE);
    assert_eq!(world.set_feature(host, PERSISTENCE, 7, 1), StatusCode::INVALID_NAMESPACE);
    assert_eq!(world.set_feature(host, PERSISTENCE, 2, 1), StatusCode::INVALID_FIELD);
    for (namespace, value) in [(1, 1), (1, 0), (u32::MAX, 1)] {
        assert_eq!(world.set_feature(host, PERSISTENCE, namespace, value), SUCCESS);
        assert_eq!(world.get_persistence(host, 1, 0), Ok(value.into()));
        assert_eq!(world.get_persistence(host, 1, 1), Ok(0), "the default");
        assert_eq!(world.report(host, 4096).persists, value == 1);
    }
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 1);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, select: 0, save: true }.encode().into();
    assert_eq!(world.execute(host.admin, entry, Bytes::new()).status, StatusCode::FEATURE_NOT_SAVEABLE);
}

#[test]
fn after_a_restart_registrants_and_holder_are_as_they_were_and_others_are_still_shut_out() {
    for kind in ReservationType::ALL {
        let (mut world, owner, other) = held(kind);
        let before = world.report(owner, 4096);
        let mut world = world.restarted();
        let stranger = world.host(3);
        let after = world.report(stranger, 4096);
        assert_eq!(hosts_of(&after), hosts_of(&before), "{kind:?}");
        assert_eq!((after.kind, after.persists, after.generation), (Some(kind), true, before.generation));
        assert!(after.controllers.iter().all(|it| it.controller_id == CONTROLLER_ID_NONE), "no host is back yet");
        assert_eq!(world.operate(stranger.io, 1, &write(0, 2, 1)).status, CONFLICT);
        let reads = if kind.excludes_reads() { CONFLICT } else { SUCCESS };
        assert_eq!(world.operate(stranger.io, 1, &read(0, 1)).status, reads, "{kind:?}");
        let (owner, other) = (world.host(owner.id.0[0]), world.host(other.id.0[0]));
        let of_registrant = if kind.admits_registrants() { SUCCESS } else { CONFLICT };
        assert_eq!(world.operate(owner.io, 1, &write(0, 2, 1)).status, SUCCESS, "{kind:?}");
        assert_eq!(world.operate(other.io, 1, &write(2, 2, 1)).status, of_registrant, "{kind:?}");
        // Keys are those that hosts know.
        assert_eq!(world.reserve(other, &preempt(AcquireAction::Preempt), 9, 1), CONFLICT);
        let release = ReservationCommand::Release { action: ReleaseAction::Release, kind_code: kind.code() };
        assert_eq!(world.reserve(owner, &release, owner.key, 0), SUCCESS);
        assert_eq!(world.restarted().target.namespaces[0].reservations.kind(), None, "released for good");
    }
}

#[test]
fn without_persistence_everything_ends_with_the_server_and_no_device_is_asked() {
    let mut world = World::that_keeps();
    let host = world.host(1);
    world.hold_keeping = true;
    world.register(host);
    assert_eq!(world.acquire(host, EXCLUSIVE), SUCCESS);
    assert!(world.keeping.is_empty());
    let mut world = world.restarted();
    let host = world.host(1);
    assert_eq!(hosts_of(&world.report(host, 4096)), []);
}

#[test]
fn persistence_that_is_switched_off_drops_what_was_kept_and_changes_nothing_now() {
    let by_feature = |world: &mut World, host: Host| world.set_feature(host, PERSISTENCE, 1, 0);
    // A registrant says its key again, and with it what it wants changed.
    let by_register = |world: &mut World, host: Host| world.reserve(host, &register(PersistChange::Clear), 0, host.key);
    let ways: [fn(&mut World, Host) -> StatusCode; 2] = [by_feature, by_register];
    for switch_off in ways {
        let (mut world, owner, other) = held(EXCLUSIVE);
        let before = world.report(owner, 4096);
        // The state is the namespace's, whoever relies on it.
        assert_eq!(switch_off(&mut world, other), SUCCESS);
        let now = world.report(owner, 4096);
        assert_eq!(now, ReservationStatus { persists: false, generation: now.generation, ..before });
        assert_eq!(world.kept[&DEVICE], Bytes::new());
        assert_eq!(world.operate(other.io, 1, &write(0, 2, 1)).status, CONFLICT);
        let mut world = world.restarted();
        let other = world.host(2);
        let found = world.report(other, 4096);
        assert_eq!((hosts_of(&found), found.kind, found.persists), (vec![], None, false));
        assert_eq!(world.operate(other.io, 1, &write(0, 2, 1)).status, SUCCESS);
    }
}

#[test]
fn the_state_survives_without_any_registrant() {
    let mut world = World::that_keeps();
    let host = world.host(1);
    assert_eq!(world.register_persistently(host), SUCCESS);
    assert_eq!(world.reserve(host, &unregister(PersistChange::Keep), host.key, 0), SUCCESS);
    let mut world = world.restarted();
    let host = world.host(1);
    let found = world.report(host, 4096);
    assert_eq!((hosts_of(&found), found.persists, found.generation), (vec![], true, 2));
}

#[test]
fn a_command_is_answered_and_takes_effect_when_it_is_durable_and_not_before() {
    let (mut world, owner, other) = held(EXCLUSIVE);
    let before = world.report(owner, 4096);
    world.hold_keeping = true;
    let preempts = world.ask(other, &preempt(AcquireAction::Preempt), 2, 1);
    assert_eq!(world.keeping.len(), 1);
    assert!(world.is_silent(other), "the answer waits");
    assert_eq!(world.report(owner, 4096), before, "and so does the change");
    assert_eq!(world.operate(owner.io, 1, &write(0, 2, 1)).status, SUCCESS);
    assert_eq!(world.operate(other.io, 1, &write(2, 2, 1)).status, CONFLICT);
    assert_eq!(world.notification(owner).data, [0; 64], "nobody has heard of it");
    // The power is lost now: it may be kept already, or not.
    let mut after = world.restarted();
    assert_eq!(after.target.namespaces[0].reservations.to_kept(), world.kept[&DEVICE]);
    let asked = world.keeping[0].1.clone();
    after = World::of(keeping(asked.clone()));
    assert_eq!(after.target.namespaces[0].reservations.to_kept(), asked);
    assert!(after.target.namespaces[0].reservations.is_holder(other.id), "all of it");

    world.end_keeping(true);
    assert_eq!(world.ended(other, preempts), SUCCESS);
    assert_eq!(world.operate(owner.io, 1, &write(2, 2, 1)).status, CONFLICT);
    assert_eq!(world.operate(other.io, 1, &write(2, 2, 1)).status, SUCCESS);
    assert_eq!(world.notification(owner).data[8], 1, "registration preempted");
    assert_eq!(world.kept[&DEVICE], asked);
}

#[test]
fn a_preemption_that_aborts_begins_to_wait_for_others_when_it_is_durable() {
    let (mut world, owner, other) = held(EXCLUSIVE);
    (world.hold, world.hold_keeping) = (true, true);
    let taking = world.ask(other, &preempt(AcquireAction::PreemptAndAbort), 2, 1);
    // It is permitted still, and the preemption must wait for it.
    let (entry, _) = world.encoded(1, &read(0, 1));
    let late = world.start(owner.io, entry, &Bytes::new());
    world.end_keeping(true);
    assert!(world.is_silent(other), "a read of the old owner is at the device");
    world.release();
    assert_eq!((world.ended(other, taking), world.ended(owner, late)), (SUCCESS, SUCCESS));
}

#[test]
fn what_could_not_be_made_durable_has_changed_nothing() {
    let (mut world, owner, other) = held(EXCLUSIVE);
    let before = world.report(owner, 4096);
    let kept = world.kept[&DEVICE].clone();
    world.hold_keeping = true;
    let release = ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 };
    for (host, command, current, other_key) in [
        (other, preempt(AcquireAction::PreemptAndAbort), 2, 1),
        (owner, release, 1, 0),
        (owner, unregister(PersistChange::Keep), 1, 0),
        (other, register(PersistChange::Clear), 0, 2),
    ] {
        let asked = world.ask(host, &command, current, other_key);
        world.end_keeping(false);
        assert_eq!(world.ended(host, asked), StatusCode::WRITE_FAULT, "{command:?}");
        assert_eq!(world.report(owner, 4096), before, "{command:?}");
    }
    assert_eq!(world.operate(other.io, 1, &write(0, 2, 1)).status, CONFLICT);
    assert_eq!(world.notification(owner).data, [0; 64]);
    // Nobody knows what of that the device would bring up: a command that changes nothing is kept as well, once.
    let acquires = ReservationCommand::Acquire { action: AcquireAction::Acquire, kind: EXCLUSIVE };
    let again = world.ask(owner, &acquires, 1, 0);
    assert!(world.is_silent(owner));
    assert_eq!(world.keeping[0].1, kept);
    world.end_keeping(true);
    assert_eq!(world.ended(owner, again), SUCCESS);
    assert_eq!(world.reserve(owner, &acquires, 1, 0), SUCCESS, "there is no doubt any more");
}

/// The device may have the state that it could not keep for sure: what then ends without persistence must not come back.
#[test]
fn after_a_failure_to_begin_to_keep_that_nothing_is_kept_is_made_durable_too() {
    let mut world = World::that_keeps();
    let owner = world.host(1);
    world.hold_keeping = true;
    world.register(owner);
    assert_eq!(world.acquire(owner, EXCLUSIVE), SUCCESS, "nothing persists");
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 1);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, ..FeatureRequest::default() }.encode().into();
    entry.cdw11 = 1.into();
    let persists = world.start(owner.admin, entry, &Bytes::new());
    world.end_keeping(false);
    assert_eq!(world.finish(owner.admin, persists, Bytes::new()).status, StatusCode::WRITE_FAULT);
    let release = ReservationCommand::Release { action: ReleaseAction::Release, kind_code: EXCLUSIVE.code() };
    let released = world.ask(owner, &release, 1, 0);
    assert!(world.is_silent(owner), "after a crash the device might bring the reservation up");
    assert_eq!(world.keeping[0].1, Bytes::new());
    world.end_keeping(true);
    assert_eq!(world.ended(owner, released), SUCCESS);
}

#[test]
fn a_reset_of_the_controller_ends_what_waits_on_its_admin_queue_without_an_answer() {
    let mut world = World::that_keeps();
    let (host, other) = (world.host(1), world.host(2));
    world.hold_keeping = true;
    let registers = world.ask(other, &register(PersistChange::Set), 0, 2);
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 1);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, ..FeatureRequest::default() }.encode().into();
    world.start(host.admin, entry, &Bytes::new());
    world.set(host.admin, Property::Configuration, 0);
    world.end_keeping(true);
    assert_eq!(world.ended(other, registers), SUCCESS);
    assert!(world.keeping.is_empty() && world.wire(host.admin).pdus.is_empty());
    assert!(world.report(other, 4096).persists, "it had not begun");
}

#[test]
fn commands_about_one_namespace_wait_their_turn_and_those_about_others_do_not() {
    let mut config = keeping(Bytes::new());
    config.kept_reservations.insert(DeviceKey(1), Bytes::new());
    let mut world = World::of(config);
    let (first, second, third) = (world.host(1), world.host(2), world.host(3));
    world.hold_keeping = true;
    let registers = world.ask(first, &register(PersistChange::Set), 0, 1);
    let acquires = ReservationCommand::Acquire { action: AcquireAction::Acquire, kind: EXCLUSIVE };
    let takes = world.ask(first, &acquires, 1, 0);
    let joins = world.ask(second, &register(PersistChange::Keep), 0, 2);
    let fails = world.ask(third, &acquires, 3, 0);
    assert_eq!(world.keeping.len(), 1, "one after the other");
    // Both namespaces, of which the first has others before.
    let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), u32::MAX);
    entry.cdw10 = FeatureRequest { feature: PERSISTENCE as u8, ..FeatureRequest::default() }.encode().into();
    entry.cdw11 = 1.into();
    let persists = world.start(third.admin, entry, &Bytes::new());
    assert_eq!(world.keeping.iter().map(|(device, _)| device.0).collect::<Vec<_>>(), [0, 1]);
    world.keeping.swap(0, 1);
    world.end_keeping(true);
    assert!(world.wire(third.admin).pdus.is_empty(), "the first namespace is missing");
    world.end_keeping(true);
    assert_eq!(world.ended(first, registers), SUCCESS);
    assert!(world.is_silent(first));
    world.end_keeping(true);
    assert_eq!(world.ended(first, takes), SUCCESS);
    assert!(world.is_silent(second) && world.is_silent(third));
    world.end_keeping(true);
    assert_eq!(
        (world.ended(second, joins), world.ended(third, fails)),
        (SUCCESS, CONFLICT),
        "the last asks for nothing"
    );
    assert_eq!(world.finish(third.admin, persists, Bytes::new()).status, SUCCESS, "it was so already");
    assert!(world.keeping.is_empty());
}

#[test]
fn of_a_host_that_is_gone_what_has_begun_is_kept_and_the_rest_never_begins() {
    let mut world = World::that_keeps();
    let (gone, stays) = (world.host(1), world.host(2));
    world.hold_keeping = true;
    world.ask(gone, &register(PersistChange::Set), 0, 1);
    world.ask(gone, &ReservationCommand::Acquire { action: AcquireAction::Acquire, kind: EXCLUSIVE }, 1, 0);
    let joins = world.ask(stays, &register(PersistChange::Keep), 0, 2);
    world.vanish(gone.io);
    world.end_keeping(true);
    world.end_keeping(true);
    assert_eq!(world.ended(stays, joins), SUCCESS);
    let found = world.report(stays, 4096);
    assert_eq!((found.kind, hosts_of(&found)), (None, vec![(gone.id, 1, false), (stays.id, 2, false)]));
}

#[test]
fn a_target_that_drains_gives_its_answers_first() {
    let mut world = World::that_keeps();
    let (first, second) = (world.host(1), world.host(2));
    world.hold_keeping = true;
    let registers = world.ask(first, &register(PersistChange::Set), 0, 1);
    let joins = world.ask(second, &register(PersistChange::Keep), 0, 2);
    world.target.drain(world.now);
    world.settle();
    assert!(!world.closed.contains_key(&first.io) && !world.closed.contains_key(&second.io));
    world.end_keeping(true);
    assert_eq!(world.ended(first, registers), SUCCESS);
    assert!(world.closed.contains_key(&first.io) && !world.target.is_drained());
    world.end_keeping(true);
    assert_eq!(world.ended(second, joins), SUCCESS);
    assert!(world.target.is_drained());
}

#[test]
fn hosts_without_identifier_registration_or_key_get_nothing_kept() {
    let (mut world, owner, _) = held(EXCLUSIVE);
    let kept = world.kept[&DEVICE].clone();
    // A host over Fabrics has an identifier, or no connection.
    let nobody = world.open();
    world.initialize(nobody, Digests::NONE, 0);
    let answer = world.connect_with_id(nobody, HostId([0; 16]), "nqn.2024-01.org.example:0", SUBSYSTEM, 0, None, 0);
    assert_eq!(answer.status, StatusCode::CONNECT_INVALID_PARAMETERS);
    let stranger = world.host(3);
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
        assert_eq!(world.reserve(stranger, &command, current, other), CONFLICT, "{command:?}");
    }
    assert_eq!(world.reserve(stranger, &register(persist), 0, 0), StatusCode::INVALID_FIELD, "zero is no key");
    assert_eq!(world.reserve(owner, &preempt(AcquireAction::Preempt), 1, 99), CONFLICT, "a key that nobody has");
    // CPTPL 01b is reserved.
    let mut entry = World::entry_of(&register(PersistChange::Keep));
    entry.cdw10 = (entry.cdw10.get() | 1 << 30).into();
    assert_eq!(world.execute_in_capsule(owner.io, entry, vec![1; 16].into()).status, StatusCode::INVALID_FIELD);
    assert_eq!(world.kept[&DEVICE], kept);
    assert!(
        !world.restarted().target.namespaces[0]
            .reservations
            .permits(stranger.id, super::super::reservations::Access::Read)
    );
}

#[test]
fn a_refused_register_does_not_change_the_persistence_either() {
    let (mut world, owner, other) = held(EXCLUSIVE);
    assert_eq!(world.reserve(other, &register(PersistChange::Clear), 0, 77), CONFLICT, "it has another key");
    assert_eq!(world.reserve(other, &unregister(PersistChange::Clear), 77, 0), CONFLICT);
    assert!(world.report(owner, 4096).persists);
}

#[test]
fn a_full_table_refuses_one_more_and_survives_whole() {
    let mut world = World::that_keeps();
    let hosts: Vec<Host> = (1..=REGISTRANTS_MAX as u8 + 1).map(|number| world.host(number)).collect();
    let (last, others) = hosts.split_last().expect("there are hosts");
    for &host in others {
        assert_eq!(world.register_persistently(host), SUCCESS);
    }
    assert_eq!(world.register_persistently(*last), StatusCode::INTERNAL_ERROR);
    let mut world = world.restarted();
    let host = world.host(1);
    assert_eq!(world.report(host, 1 << 16).controllers.len(), REGISTRANTS_MAX);
}

#[test]
fn so_many_commands_may_wait_and_one_more_is_asked_to_come_again() {
    let mut world = World::that_keeps();
    let hosts: Vec<Host> = (1..20).map(|number| world.host(number)).collect();
    world.hold_keeping = true;
    let asked: Vec<_> = (0..=RESERVATION_ASKS_MAX)
        .map(|i| {
            let host = hosts[i % hosts.len()];
            (host, world.ask(host, &register(PersistChange::Set), 0, host.key))
        })
        .collect();
    let (host, command) = asked[RESERVATION_ASKS_MAX];
    assert_eq!(world.ended(host, command), StatusCode::COMMAND_INTERRUPTED);
    while !world.keeping.is_empty() {
        world.end_keeping(true);
    }
    for &(host, command) in &asked[..RESERVATION_ASKS_MAX] {
        assert_eq!(world.ended(host, command), SUCCESS);
    }
}

#[test]
fn kept_bytes_that_cannot_be_read_and_a_device_of_two_namespaces_are_not_served() {
    let good = SavedReservations::default().to_bytes();
    assert!(Target::new(keeping(good.clone().into())).is_ok());
    let mut later = good.clone();
    later[8] = 2;
    for (bytes, words) in [(good[..20].to_vec(), "damaged"), (later, "format version 2")] {
        let error =
            Target::new(keeping(bytes.into())).expect_err("it would let in whom hosts have excluded").to_string();
        assert!(error.contains("namespace 1") && error.contains(words), "{error}");
    }
    let too_many = (1..=REGISTRANTS_MAX as u8 + 1).map(|host| (HostId([host; 16]), ReservationKey(1))).collect();
    let too_many = SavedReservations { registrants: too_many, ..SavedReservations::default() };
    assert!(Target::new(keeping(too_many.to_bytes().into())).is_err());
    for devices in [[0, 0], [1, 2]] {
        let mut config = keeping(Bytes::new());
        let namespaces = config.subsystems[0].namespaces.iter_mut();
        namespaces.zip(devices).for_each(|(namespace, device)| namespace.device = DeviceKey(device));
        let error = Target::new(config).expect_err("one namespace, one reservation").to_string();
        assert!(error.contains("device 0"), "{error}");
    }
}

/// What a host does next, or what happens to the device.
#[derive(Clone, Debug)]
enum Step {
    Ask { host: usize, command: u8, current: u64, other: u64 },
    Keep { succeeds: bool },
    LosePower { is_kept: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, 0..10_u8, 0..4_u64, 0..4_u64)
            .prop_map(|(host, command, current, other)| Step::Ask { host, command, current, other }),
        4 => (0..5_u8).prop_map(|dice| Step::Keep { succeeds: dice > 0 }),
        1 => any::<bool>().prop_map(|is_kept| Step::LosePower { is_kept }),
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
    /// Whenever the power is lost, a server comes back with exactly what hosts saw of the state that persists, or with that and
    /// the one change that no host has an answer to.
    #[test]
    fn a_restart_brings_back_what_hosts_saw(steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = World::that_keeps();
        let mut hosts = [1, 2, 3].map(|number| world.host(number));
        world.hold_keeping = true;
        for step in steps {
            match step {
                Step::Ask { host, command, current, other } => {
                    world.ask(hosts[host], &command_of(command), current, other);
                }
                Step::Keep { succeeds } if !world.keeping.is_empty() => world.end_keeping(succeeds),
                Step::Keep { .. } => {}
                Step::LosePower { is_kept } => {
                    let seen = world.target.namespaces[0].reservations.to_kept();
                    if let Some((_, bytes)) = world.keeping.front().filter(|_| is_kept) {
                        world.kept.insert(DEVICE, bytes.clone());
                    } else {
                        prop_assert_eq!(world.kept.get(&DEVICE).cloned().unwrap_or_default(), seen);
                    }
                    world = world.restarted();
                    world.hold_keeping = true;
                    world.target.check_invariants();
                    let reservations = &world.target.namespaces[0].reservations;
                    prop_assert_eq!(reservations.to_kept(), world.kept[&DEVICE].to_vec());
                    hosts = [1, 2, 3].map(|number| world.host(number));
                }
            }
        }
    }
}
