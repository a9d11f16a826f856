//! In-band authentication through the Fabrics commands.

use bytes::Bytes;
use zonda_chap::{HostAuth, HostAuthConfig, Random, Secret};
use zonda_nvme::fabrics::{AuthenticationCommand, ConnectResult, Property, PropertyCommand};
use zonda_nvme::tcp::Digests;
use zonda_nvme::{FabricsType, StatusCode};
use zonda_zoned::Duration;

use super::world::{HOST, SUBSYSTEM, World, config, nqn, read, zoned};
use crate::{CloseReason, ConnectionId, Event, HostAccess, HostEntry};

fn secret(seed: u8) -> Secret {
    Secret::generate(None, [seed; 64])
}

fn world() -> World {
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: Some(secret(2)) };
    World::of(config(&[zoned()], HostAccess::Hosts(vec![entry])))
}

fn connect(world: &mut World, queue: u16, controller: Option<u16>) -> (ConnectionId, u16) {
    connect_from(world, "192.0.2.9:5000", queue, controller)
}

fn connect_from(world: &mut World, peer: &str, queue: u16, controller: Option<u16>) -> (ConnectionId, u16) {
    let id = world.open_from(peer);
    world.initialize(id, Digests::NONE, 0);
    let answer = world.connect_as(id, HOST, SUBSYSTEM, queue, controller, 0);
    assert_eq!(answer.status, StatusCode::SUCCESS);
    let ConnectResult::Connected { controller_id, authentication_required } = ConnectResult::of_success(answer.result)
    else {
        panic!("connected")
    };
    assert!(authentication_required);
    (id, controller_id)
}

/// Plays the host's part of the exchange; whether the host is content in the end.
fn authenticate(world: &mut World, id: ConnectionId, host_secret: Secret, controller_secret: Option<Secret>) -> bool {
    authenticate_beside(world, id, host_secret, controller_secret, |_| ())
}

/// The same; something else happens before each command.
fn authenticate_beside(
    world: &mut World,
    id: ConnectionId,
    host_secret: Secret,
    controller_secret: Option<Secret>,
    mut beside: impl FnMut(&mut World),
) -> bool {
    let mut host_config = HostAuthConfig::new(HOST, SUBSYSTEM, host_secret);
    host_config.controller_secret = controller_secret;
    let mut host = HostAuth::new(host_config, Random::new([9; 32]));
    loop {
        let Some(message) = host.message() else { return host.is_authenticated() };
        let send = AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32);
        beside(world);
        let answer = world.execute_in_capsule(id, send.into(), message.into());
        assert_eq!(answer.status, StatusCode::SUCCESS);
        if world.closed.contains_key(&id) || host.is_authenticated() {
            return host.is_authenticated();
        }
        let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
        beside(world);
        let answer = world.execute(id, receive.into(), Bytes::new());
        assert_eq!((answer.status, answer.data.len()), (StatusCode::SUCCESS, 4096));
        if host.receive(&answer.data).is_err() {
            if let Some(failure) = host.message() {
                let send = AuthenticationCommand::new(FabricsType::AuthenticationSend, failure.len() as u32);
                world.execute_in_capsule(id, send.into(), failure.into());
            }
            return false;
        }
    }
}

#[test]
fn a_host_that_knows_the_secret_may_use_its_queues() {
    let mut world = world();
    let (admin, controller) = connect(&mut world, 0, None);
    let answer = world.execute(admin, PropertyCommand::get(Property::Capabilities).into(), Bytes::new());
    assert_eq!(answer.status, StatusCode::AUTHENTICATION_REQUIRED);
    assert!(authenticate(&mut world, admin, secret(1), Some(secret(2))));
    world.enable(admin);
    let (io, _) = connect(&mut world, 1, Some(controller));
    let refused = world.operate(io, 1, &read(0, 1));
    assert_eq!(refused.status, StatusCode::AUTHENTICATION_REQUIRED);
    assert!(authenticate(&mut world, io, secret(1), None));
    assert_eq!(world.operate(io, 1, &read(0, 1)).status, StatusCode::SUCCESS);
    world.pass(Duration::from_millis(4000));
    world.operate(io, 1, &read(0, 1));
    let passed = world.events.iter().filter(|event| matches!(event, Event::Authenticated { .. })).count();
    assert_eq!((passed, world.target.statistics().half_open), (2, 0));
}

#[test]
fn a_host_with_another_secret_is_told_and_its_connection_ends() {
    let mut world = world();
    let (admin, _) = connect(&mut world, 0, None);
    assert!(!authenticate(&mut world, admin, secret(3), None));
    assert!(world.closed.is_empty(), "the host is to close the connection");
    world.pass(Duration::from_millis(4900));
    world.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    world.pass(Duration::from_millis(100));
    assert_eq!(world.closed[&admin], CloseReason::AuthenticationFailed);
    assert_eq!(world.target.statistics().authentication_failures, 1);
    assert_eq!(world.target.statistics().controllers, 0);
    assert!(world.events.iter().any(|event| matches!(event, Event::AuthenticationFailed { .. })));
}

#[test]
fn a_controller_with_another_secret_is_left() {
    let mut world = world();
    let (admin, _) = connect(&mut world, 0, None);
    assert!(!authenticate(&mut world, admin, secret(1), Some(secret(4))));
    world.pass(Duration::from_millis(4900));
    world.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    world.pass(Duration::from_millis(100));
    assert_eq!(world.closed[&admin], CloseReason::AuthenticationFailed);
}

#[test]
fn a_host_that_does_not_authenticate_in_time_is_closed() {
    let mut world = world();
    let (admin, _) = connect(&mut world, 0, None);
    for _ in 0..5 {
        world.pass(Duration::from_millis(4000));
        if world.closed.is_empty() {
            world.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
        }
    }
    assert_eq!(world.closed[&admin], CloseReason::HandshakeTimeout);
}

#[test]
fn a_queue_in_use_whose_host_fails_to_authenticate_again_is_closed() {
    let mut world = world();
    let (admin, _) = connect(&mut world, 0, None);
    assert!(authenticate(&mut world, admin, secret(1), None));
    world.enable(admin);
    assert!(authenticate(&mut world, admin, secret(1), None), "again, with the right secret");
    world.enable(admin);
    let nonsense = AuthenticationCommand::new(FabricsType::AuthenticationSend, 16);
    world.execute_in_capsule(admin, nonsense.into(), vec![0xee; 16].into());
    let answer = world.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    assert_eq!(answer.status, StatusCode::AUTHENTICATION_REQUIRED);
    world.pass(Duration::from_millis(100));
    world.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    world.pass(Duration::from_millis(4900));
    assert_eq!(world.closed[&admin], CloseReason::AuthenticationFailed);
}

#[test]
fn authentication_commands_where_nothing_is_to_be_proved_are_sequence_errors() {
    let mut world = World::new();
    let (admin, _) = world.admin();
    let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    assert_eq!(world.execute(admin, receive.into(), Bytes::new()).status, StatusCode::COMMAND_SEQUENCE_ERROR);
    let mut strange = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    strange.security_protocol = 1;
    assert_eq!(world.execute(admin, strange.into(), Bytes::new()).status, StatusCode::INVALID_FIELD);
}

/// One subsystem for whoever knows a secret and one for anybody; a host that is asked for its secret and does not say it.
fn crowd() -> World {
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: None };
    let mut config = config(&[zoned()], HostAccess::Hosts(vec![entry]));
    let open = self::config(&[zoned()], HostAccess::Any).subsystems.remove(0);
    let mut open = crate::SubsystemConfig { nqn: nqn(OPEN), ..open };
    open.namespaces[0].device = crate::DeviceKey(1);
    config.subsystems.push(open);
    (config.limits.controllers, config.limits.discovery_controllers) = (8, 4);
    World::of(config)
}

const OPEN: &str = "nqn.2024-01.org.example:open";

/// Connects an admin queue; what came of it.
fn knock(world: &mut World, subsystem: &str) -> (ConnectionId, StatusCode) {
    let id = world.open();
    world.initialize(id, Digests::NONE, 0);
    (id, world.connect_as(id, HOST, subsystem, 0, None, 0).status)
}

/// A host authenticates, and strangers do something before each of its steps.
fn authenticates_beside(mut strangers: impl FnMut(&mut World)) {
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: None };
    let mut config = config(&[zoned()], HostAccess::Hosts(vec![entry]));
    let limits = &mut config.limits;
    (limits.half_open, limits.half_open_per_address, limits.controllers) = (32, 16, 32);
    let mut world = World::of(config);
    for _ in 0..2 * limits_of(&world).half_open {
        strangers(&mut world);
    }
    let mut controller = None;
    for queue in 0..2 {
        let id = world.open();
        strangers(&mut world);
        world.initialize(id, Digests::NONE, 0);
        strangers(&mut world);
        let answer = world.connect_as(id, HOST, SUBSYSTEM, queue, controller, 0);
        let ConnectResult::Connected { controller_id, .. } = ConnectResult::of_success(answer.result) else {
            panic!("connected")
        };
        controller = Some(controller_id);
        assert!(authenticate_beside(&mut world, id, secret(1), None, &mut strangers));
        strangers(&mut world);
        world.target.check_invariants();
        if queue == 0 {
            world.enable(id);
        }
    }
}

fn limits_of(world: &World) -> &crate::Limits {
    &world.target.config.limits
}

#[test]
fn a_flood_from_the_hosts_own_address_does_not_break_its_handshake() {
    // Of 16 places of the address, all but one are taken anew between two steps.
    authenticates_beside(|world| {
        for number in 0..15 {
            let silent = world.open();
            if number % 2 == 0 {
                world.initialize(silent, Digests::NONE, 0);
            }
        }
    });
}

#[test]
fn a_flood_from_many_addresses_in_the_hosts_name_does_not_break_its_handshake() {
    // Each is a controller until it gives way: 31 of 32 are new between two steps.
    let mut addresses = 0;
    authenticates_beside(|world| {
        for _ in 0..31 {
            addresses += 1;
            let id = world.open_from(&format!("10.51.{}.{}:1", addresses / 256 % 256, addresses % 256));
            world.initialize(id, Digests::NONE, 0);
            assert!(world.connect_as(id, HOST, SUBSYSTEM, 0, None, 0).status.is_success());
        }
    });
}

#[test]
fn strangers_never_keep_out_a_host_that_proves_who_it_is() {
    let mut world = crowd();
    // Who knows the host's name and no secret, who needs none, and who asks the discovery service: as many as they like.
    let silent: Vec<_> = (0..20).map(|_| knock(&mut world, SUBSYSTEM)).collect();
    assert!(silent.iter().all(|(_, status)| status.is_success()), "the longest silent gave way");
    let open: Vec<_> = (0..20).map(|_| knock(&mut world, OPEN).1).collect();
    let taken = open.iter().filter(|status| status.is_success()).count();
    assert_eq!((taken, open[19]), (6, StatusCode::CONNECT_CONTROLLER_BUSY), "a quarter is not theirs");
    let discovery: Vec<_> = (0..20).map(|_| knock(&mut world, zonda_nvme::Nqn::DISCOVERY)).collect();
    assert!(discovery.iter().all(|(_, status)| status.is_success()));
    let gone = discovery.iter().filter(|(id, _)| world.closed.get(id) == Some(&CloseReason::Crowded)).count();
    assert_eq!(gone, 16, "the longest idle gave way");
    // Twice: the places of the first are not taken by those who came before.
    let mut queues = Vec::new();
    for _ in 0..2 {
        let (admin, controller) = connect(&mut world, 0, None);
        assert!(authenticate(&mut world, admin, secret(1), None));
        world.enable(admin);
        let (io, _) = connect(&mut world, 1, Some(controller));
        assert!(authenticate(&mut world, io, secret(1), None));
        queues.push(io);
    }
    for _ in 0..20 {
        knock(&mut world, SUBSYSTEM);
        knock(&mut world, OPEN);
    }
    for io in queues {
        assert_eq!(world.operate(io, 1, &read(0, 1)).status, StatusCode::SUCCESS);
    }
}

#[test]
fn a_discovery_controller_lives_two_minutes_without_a_command_whatever_it_has_asked_for() {
    let mut world = crowd();
    let id = world.open();
    world.initialize(id, Digests::NONE, 0);
    let mut command = zonda_nvme::fabrics::ConnectCommand::new(0, 32, 0, 3_600_000);
    command.command_id = 1.into();
    let data = zonda_nvme::fabrics::ConnectData::new(
        zonda_nvme::HostId([7; 16]),
        zonda_nvme::fabrics::CONTROLLER_ID_DYNAMIC,
        &zonda_nvme::Nqn::discovery(),
        &nqn(HOST),
    );
    let answer = world.execute_in_capsule(id, command.into(), Bytes::copy_from_slice(data.bytes()));
    assert_eq!(answer.status, StatusCode::SUCCESS);
    world.pass(Duration::from_secs(119));
    assert!(!world.closed.contains_key(&id));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.closed[&id], CloseReason::KeepAliveExpired);
}

/// Begins an authentication: the connection, its command, and what was sent with it.
fn begin(world: &mut World, peer: &str) -> (ConnectionId, u16, zonda_nvme::SubmissionEntry, Bytes) {
    let (id, _) = connect_from(world, peer, 0, None);
    let mut host = HostAuth::new(HostAuthConfig::new(HOST, SUBSYSTEM, secret(1)), Random::new([9; 32]));
    let message = host.message().expect("the host begins");
    let mut send: zonda_nvme::SubmissionEntry =
        AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32).into();
    send.data_pointer = zonda_nvme::SglDescriptor::in_capsule(0, message.len() as u32);
    let message = Bytes::from(message);
    (id, world.start(id, send, &message), send, message)
}

/// Computes the step that is with the caller for the longest time.
fn end_step(world: &mut World) {
    let step = world.held_steps.remove(0);
    world.target.authenticated(world.now, step.run());
    world.target.check_invariants();
    world.settle();
}

#[test]
fn an_address_with_many_authentications_leaves_a_place_to_others_and_goes_in_turn_with_them() {
    let mut world = world();
    world.hold_steps = true;
    let crowd: Vec<_> = (0..6).map(|port| begin(&mut world, &format!("192.0.2.1:{port}"))).collect();
    assert_eq!(world.held_steps.len(), 1, "of two places, one address has one");
    let first = begin(&mut world, "192.0.2.2:1");
    assert_eq!(world.held_steps.len(), 2, "the first of another address waits for none");
    let second = begin(&mut world, "192.0.2.3:1");
    // The third address waits for one more of the crowd, though five came before it.
    (0..4).for_each(|_| end_step(&mut world));
    assert_eq!(world.finish(first.0, first.1, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(world.finish(second.0, second.1, Bytes::new()).status, StatusCode::SUCCESS);
    // Of connections that are gone nothing is computed.
    crowd[2..].iter().for_each(|(id, ..)| world.vanish(*id));
    while !world.held_steps.is_empty() {
        end_step(&mut world);
    }
    assert_eq!(world.finish(crowd[1].0, crowd[1].1, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!((world.target.auth_queue.len(), world.target.auth_steps_out.len()), (0, 0));
}

#[test]
fn a_host_that_answers_does_not_wait_for_all_that_have_come_to_its_address_since() {
    let mut world = world();
    world.hold_steps = true;
    let (id, _) = connect(&mut world, 0, None);
    let mut host = HostAuth::new(HostAuthConfig::new(HOST, SUBSYSTEM, secret(1)), Random::new([9; 32]));
    let send = |world: &mut World, host: &mut HostAuth| {
        let message = Bytes::from(host.message().expect("it is the host's turn"));
        let mut send: zonda_nvme::SubmissionEntry =
            AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32).into();
        send.data_pointer = zonda_nvme::SglDescriptor::in_capsule(0, message.len() as u32);
        world.start(id, send, &message)
    };
    let negotiate = send(&mut world, &mut host);
    (0..6).for_each(|port| drop(begin(&mut world, &format!("192.0.2.9:{port}"))));
    end_step(&mut world);
    assert_eq!(world.finish(id, negotiate, Bytes::new()).status, StatusCode::SUCCESS);
    let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    host.receive(&world.execute(id, receive.into(), Bytes::new()).data).expect("both know the secret");
    let reply = send(&mut world, &mut host);
    // The one that is computed, and its own.
    (0..2).for_each(|_| end_step(&mut world));
    assert_eq!(world.finish(id, reply, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(world.target.auth_queue.len(), 4);
}

#[test]
fn a_step_is_computed_elsewhere_and_its_queue_takes_no_other_meanwhile() {
    let mut world = world();
    world.target.config.limits.auth_steps = 3;
    world.hold_steps = true;
    let [first, second, third] = [0; 3].map(|_| begin(&mut world, "192.0.2.9:5000"));
    assert_eq!(world.held_steps.len(), 2, "the third waits");
    assert!(world.wire(first.0).pdus.is_empty(), "the answer waits");
    // Neither a second message nor a question for the next one, while the first is looked at.
    assert_eq!(world.execute_in_capsule(first.0, first.2, first.3).status, StatusCode::COMMAND_SEQUENCE_ERROR);
    let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    assert_eq!(world.execute(first.0, receive.into(), Bytes::new()).status, StatusCode::COMMAND_SEQUENCE_ERROR);
    // The second host goes; what its step comes to is nobody's.
    world.vanish(second.0);
    for step in std::mem::take(&mut world.held_steps) {
        world.target.authenticated(world.now, step.run());
        world.target.check_invariants();
        world.settle();
    }
    assert_eq!(world.finish(first.0, first.1, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(world.execute(first.0, receive.into(), Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(world.held_steps.len(), 1, "the third one's turn");
    let step = world.held_steps.pop().expect("it was just there");
    world.target.authenticated(world.now, step.run());
    world.settle();
    assert_eq!(world.finish(third.0, third.1, Bytes::new()).status, StatusCode::SUCCESS);
}
