//! In-band authentication through the Fabrics commands.

use bytes::Bytes;
use zonda_chap::{HostAuth, HostAuthConfig, Random, Secret};
use zonda_nvme::fabrics::{AuthenticationCommand, ConnectResult, Property, PropertyCommand};
use zonda_nvme::tcp::Digests;
use zonda_nvme::{FabricsType, StatusCode};
use zonda_zoned::Duration;

use super::testbed::{HOST, SUBSYSTEM, Testbed, config, nqn, read, zoned};
use crate::{CloseReason, ConnectionId, Event, HostAccess, HostEntry};

fn secret(seed: u8) -> Secret {
    Secret::generate(None, [seed; 64])
}

fn testbed() -> Testbed {
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: Some(secret(2)) };
    Testbed::of(config(&[zoned()], HostAccess::Hosts(vec![entry])))
}

fn connect(testbed: &mut Testbed, queue: u16, controller: Option<u16>) -> (ConnectionId, u16) {
    connect_from(testbed, "192.0.2.9:5000", queue, controller)
}

fn connect_from(testbed: &mut Testbed, peer: &str, queue: u16, controller: Option<u16>) -> (ConnectionId, u16) {
    let id = testbed.open_from(peer);
    testbed.initialize(id, Digests::NONE, 0);
    let answer = testbed.connect_as(id, HOST, SUBSYSTEM, queue, controller, 0);
    assert_eq!(answer.status, StatusCode::SUCCESS);
    let ConnectResult::Connected { controller_id, authentication_required } = ConnectResult::of_success(answer.result)
    else {
        panic!("connected")
    };
    assert!(authentication_required);
    (id, controller_id)
}

/// Runs the host's side of the exchange; returns whether it succeeds for the host.
fn authenticate(
    testbed: &mut Testbed,
    id: ConnectionId,
    host_secret: Secret,
    controller_secret: Option<Secret>,
) -> bool {
    authenticate_with_interference(testbed, id, host_secret, controller_secret, |_| ())
}

/// The same, with `before` called before each command.
fn authenticate_with_interference(
    testbed: &mut Testbed,
    id: ConnectionId,
    host_secret: Secret,
    controller_secret: Option<Secret>,
    mut before: impl FnMut(&mut Testbed),
) -> bool {
    let mut host_config = HostAuthConfig::new(HOST, SUBSYSTEM, host_secret);
    host_config.controller_secret = controller_secret;
    let mut host = HostAuth::new(host_config, Random::new([9; 32]));
    loop {
        let Some(message) = host.message() else { return host.is_authenticated() };
        let send = AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32);
        before(testbed);
        let answer = testbed.execute_in_capsule(id, send.into(), message.into());
        assert_eq!(answer.status, StatusCode::SUCCESS);
        if testbed.closed.contains_key(&id) || host.is_authenticated() {
            return host.is_authenticated();
        }
        let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
        before(testbed);
        let answer = testbed.execute(id, receive.into(), Bytes::new());
        assert_eq!((answer.status, answer.data.len()), (StatusCode::SUCCESS, 4096));
        if host.receive(&answer.data).is_err() {
            if let Some(failure) = host.message() {
                let send = AuthenticationCommand::new(FabricsType::AuthenticationSend, failure.len() as u32);
                testbed.execute_in_capsule(id, send.into(), failure.into());
            }
            return false;
        }
    }
}

#[test]
fn a_host_with_the_right_secret_may_use_its_queues() {
    let mut testbed = testbed();
    let (admin, controller) = connect(&mut testbed, 0, None);
    let answer = testbed.execute(admin, PropertyCommand::get(Property::Capabilities).into(), Bytes::new());
    assert_eq!(answer.status, StatusCode::AUTHENTICATION_REQUIRED);
    assert!(authenticate(&mut testbed, admin, secret(1), Some(secret(2))));
    testbed.enable(admin);
    let (io, _) = connect(&mut testbed, 1, Some(controller));
    let refused = testbed.operate(io, 1, &read(0, 1));
    assert_eq!(refused.status, StatusCode::AUTHENTICATION_REQUIRED);
    assert!(authenticate(&mut testbed, io, secret(1), None));
    assert_eq!(testbed.operate(io, 1, &read(0, 1)).status, StatusCode::SUCCESS);
    testbed.pass(Duration::from_millis(4000));
    testbed.operate(io, 1, &read(0, 1));
    let passed = testbed.events.iter().filter(|event| matches!(event, Event::Authenticated { .. })).count();
    assert_eq!((passed, testbed.target.statistics().half_open), (2, 0));
}

#[test]
fn a_host_with_another_secret_gets_the_reason_and_its_connection_is_closed() {
    let mut testbed = testbed();
    let (admin, _) = connect(&mut testbed, 0, None);
    assert!(!authenticate(&mut testbed, admin, secret(3), None));
    assert!(testbed.closed.is_empty(), "the host is expected to close the connection");
    testbed.pass(Duration::from_millis(4900));
    testbed.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    testbed.pass(Duration::from_millis(100));
    assert_eq!(testbed.closed[&admin], CloseReason::AuthenticationFailed);
    assert_eq!(testbed.target.statistics().authentication_failures, 1);
    assert_eq!(testbed.target.statistics().controllers, 0);
    assert!(testbed.events.iter().any(|event| matches!(event, Event::AuthenticationFailed { .. })));
}

#[test]
fn a_host_disconnects_from_a_controller_with_another_secret() {
    let mut testbed = testbed();
    let (admin, _) = connect(&mut testbed, 0, None);
    assert!(!authenticate(&mut testbed, admin, secret(1), Some(secret(4))));
    testbed.pass(Duration::from_millis(4900));
    testbed.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    testbed.pass(Duration::from_millis(100));
    assert_eq!(testbed.closed[&admin], CloseReason::AuthenticationFailed);
}

#[test]
fn a_host_that_does_not_authenticate_in_time_is_disconnected() {
    let mut testbed = testbed();
    let (admin, _) = connect(&mut testbed, 0, None);
    for _ in 0..5 {
        testbed.pass(Duration::from_millis(4000));
        if testbed.closed.is_empty() {
            testbed.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
        }
    }
    assert_eq!(testbed.closed[&admin], CloseReason::HandshakeTimeout);
}

#[test]
fn a_queue_in_use_is_closed_if_reauthentication_fails() {
    let mut testbed = testbed();
    let (admin, _) = connect(&mut testbed, 0, None);
    assert!(authenticate(&mut testbed, admin, secret(1), None));
    testbed.enable(admin);
    assert!(authenticate(&mut testbed, admin, secret(1), None), "again, with the right secret");
    testbed.enable(admin);
    let nonsense = AuthenticationCommand::new(FabricsType::AuthenticationSend, 16);
    testbed.execute_in_capsule(admin, nonsense.into(), vec![0xee; 16].into());
    let answer = testbed.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    assert_eq!(answer.status, StatusCode::AUTHENTICATION_REQUIRED);
    testbed.pass(Duration::from_millis(100));
    testbed.execute(admin, PropertyCommand::get(Property::Status).into(), Bytes::new());
    testbed.pass(Duration::from_millis(4900));
    assert_eq!(testbed.closed[&admin], CloseReason::AuthenticationFailed);
}

#[test]
fn authentication_commands_without_required_authentication_are_sequence_errors() {
    let mut testbed = Testbed::new();
    let (admin, _) = testbed.admin();
    let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    assert_eq!(testbed.execute(admin, receive.into(), Bytes::new()).status, StatusCode::COMMAND_SEQUENCE_ERROR);
    let mut strange = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    strange.security_protocol = 1;
    assert_eq!(testbed.execute(admin, strange.into(), Bytes::new()).status, StatusCode::INVALID_FIELD);
}

/// Small tables, and two subsystems: one that requires authentication, and one open to any host.
fn small_tables() -> Testbed {
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: None };
    let mut config = config(&[zoned()], HostAccess::Hosts(vec![entry]));
    let open = self::config(&[zoned()], HostAccess::Any).subsystems.remove(0);
    let mut open = crate::SubsystemConfig { nqn: nqn(OPEN), ..open };
    open.namespaces[0].device = crate::DeviceKey(1);
    config.subsystems.push(open);
    (config.limits.controllers, config.limits.discovery_controllers) = (8, 4);
    Testbed::of(config)
}

const OPEN: &str = "nqn.2024-01.org.example:open";

/// Tries to connect an admin queue; returns the status.
fn try_connect(testbed: &mut Testbed, subsystem: &str) -> (ConnectionId, StatusCode) {
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    (id, testbed.connect_as(id, HOST, subsystem, 0, None, 0).status)
}

/// Authenticates a host, with `flood` called before each of its steps.
fn authenticates_under_flood(mut flood: impl FnMut(&mut Testbed)) {
    let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret(1)), controller_secret: None };
    let mut config = config(&[zoned()], HostAccess::Hosts(vec![entry]));
    let limits = &mut config.limits;
    (limits.half_open, limits.half_open_per_address, limits.controllers) = (32, 16, 32);
    let mut testbed = Testbed::of(config);
    for _ in 0..2 * limits_of(&testbed).half_open {
        flood(&mut testbed);
    }
    let mut controller = None;
    for queue in 0..2 {
        let id = testbed.open();
        flood(&mut testbed);
        testbed.initialize(id, Digests::NONE, 0);
        flood(&mut testbed);
        let answer = testbed.connect_as(id, HOST, SUBSYSTEM, queue, controller, 0);
        let ConnectResult::Connected { controller_id, .. } = ConnectResult::of_success(answer.result) else {
            panic!("connected")
        };
        controller = Some(controller_id);
        assert!(authenticate_with_interference(&mut testbed, id, secret(1), None, &mut flood));
        flood(&mut testbed);
        testbed.target.check_invariants();
        if queue == 0 {
            testbed.enable(id);
        }
    }
}

fn limits_of(testbed: &Testbed) -> &crate::Limits {
    &testbed.target.limits
}

#[test]
fn a_flood_from_the_hosts_own_address_does_not_break_its_handshake() {
    // Of 16 slots of the address, all but one are taken by new connections between two steps.
    authenticates_under_flood(|testbed| {
        for number in 0..15 {
            let silent = testbed.open();
            if number % 2 == 0 {
                testbed.initialize(silent, Digests::NONE, 0);
            }
        }
    });
}

#[test]
fn a_flood_from_many_addresses_with_the_hosts_nqn_does_not_break_its_handshake() {
    // Each holds a controller until it is evicted: 31 of 32 are new between two steps.
    let mut addresses = 0;
    authenticates_under_flood(|testbed| {
        for _ in 0..31 {
            addresses += 1;
            let id = testbed.open_from(&format!("10.51.{}.{}:1", addresses / 256 % 256, addresses % 256));
            testbed.initialize(id, Digests::NONE, 0);
            assert!(testbed.connect_as(id, HOST, SUBSYSTEM, 0, None, 0).status.is_success());
        }
    });
}

#[test]
fn unauthenticated_connections_never_lock_out_an_authenticated_host() {
    let mut testbed = small_tables();
    // Clients with the host's NQN but not its secret, hosts that need no secret, and discovery: as
    // many as they like.
    let silent: Vec<_> = (0..20).map(|_| try_connect(&mut testbed, SUBSYSTEM)).collect();
    assert!(silent.iter().all(|(_, status)| status.is_success()), "the longest silent was evicted");
    let open: Vec<_> = (0..20).map(|_| try_connect(&mut testbed, OPEN).1).collect();
    let taken = open.iter().filter(|status| status.is_success()).count();
    assert_eq!(
        (taken, open[19]),
        (6, StatusCode::CONNECT_CONTROLLER_BUSY),
        "a quarter is reserved for authenticated hosts"
    );
    let discovery: Vec<_> = (0..20).map(|_| try_connect(&mut testbed, zonda_nvme::Nqn::DISCOVERY)).collect();
    assert!(discovery.iter().all(|(_, status)| status.is_success()));
    let gone = discovery.iter().filter(|(id, _)| testbed.closed.get(id) == Some(&CloseReason::Evicted)).count();
    assert_eq!(gone, 16, "the longest idle were evicted");
    // Twice: the slots that the first has freed go to the second.
    let mut queues = Vec::new();
    for _ in 0..2 {
        let (admin, controller) = connect(&mut testbed, 0, None);
        assert!(authenticate(&mut testbed, admin, secret(1), None));
        testbed.enable(admin);
        let (io, _) = connect(&mut testbed, 1, Some(controller));
        assert!(authenticate(&mut testbed, io, secret(1), None));
        queues.push(io);
    }
    for _ in 0..20 {
        try_connect(&mut testbed, SUBSYSTEM);
        try_connect(&mut testbed, OPEN);
    }
    for io in queues {
        assert_eq!(testbed.operate(io, 1, &read(0, 1)).status, StatusCode::SUCCESS);
    }
}

#[test]
fn a_discovery_controller_lives_two_minutes_without_a_command_whatever_its_keep_alive_timeout() {
    let mut testbed = small_tables();
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    let mut command = zonda_nvme::fabrics::ConnectCommand::new(0, 32, 0, 3_600_000);
    command.command_id = 1.into();
    let data = zonda_nvme::fabrics::ConnectData::new(
        zonda_nvme::HostId([7; 16]),
        zonda_nvme::fabrics::CONTROLLER_ID_DYNAMIC,
        &zonda_nvme::Nqn::discovery(),
        &nqn(HOST),
    );
    let answer = testbed.execute_in_capsule(id, command.into(), Bytes::copy_from_slice(data.bytes()));
    assert_eq!(answer.status, StatusCode::SUCCESS);
    testbed.pass(Duration::from_secs(119));
    assert!(!testbed.closed.contains_key(&id));
    testbed.pass(Duration::from_secs(1));
    assert_eq!(testbed.closed[&id], CloseReason::KeepAliveExpired);
}

/// Begins an authentication; returns the connection, its command, and its message.
fn begin(testbed: &mut Testbed, peer: &str) -> (ConnectionId, u16, zonda_nvme::SubmissionEntry, Bytes) {
    let (id, _) = connect_from(testbed, peer, 0, None);
    let mut host = HostAuth::new(HostAuthConfig::new(HOST, SUBSYSTEM, secret(1)), Random::new([9; 32]));
    let message = host.message().expect("the host begins");
    let mut send: zonda_nvme::SubmissionEntry =
        AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32).into();
    send.data_pointer = zonda_nvme::SglDescriptor::in_capsule(0, message.len() as u32);
    let message = Bytes::from(message);
    (id, testbed.start(id, send, &message), send, message)
}

/// Computes the step that has waited the longest.
fn end_step(testbed: &mut Testbed) {
    let step = testbed.held_steps.remove(0);
    testbed.target.on_authenticated(testbed.now, step.run());
    testbed.target.check_invariants();
    testbed.run_until_idle();
}

#[test]
fn an_address_with_many_authentications_leaves_a_slot_to_others_and_alternates_with_them() {
    let mut testbed = testbed();
    testbed.hold_steps = true;
    let many: Vec<_> = (0..6).map(|port| begin(&mut testbed, &format!("192.0.2.1:{port}"))).collect();
    assert_eq!(testbed.held_steps.len(), 1, "of two slots, one address gets one");
    let first = begin(&mut testbed, "192.0.2.2:1");
    assert_eq!(testbed.held_steps.len(), 2, "the first of another address does not wait");
    let second = begin(&mut testbed, "192.0.2.3:1");
    // The third address waits for one more step of the first, though five were queued before it.
    (0..4).for_each(|_| end_step(&mut testbed));
    assert_eq!(testbed.finish(first.0, first.1, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.finish(second.0, second.1, Bytes::new()).status, StatusCode::SUCCESS);
    // Steps of closed connections are not computed.
    many[2..].iter().for_each(|(id, ..)| testbed.close_socket(*id));
    while !testbed.held_steps.is_empty() {
        end_step(&mut testbed);
    }
    assert_eq!(testbed.finish(many[1].0, many[1].1, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.target.auth_steps.len(), (0, 0));
}

#[test]
fn a_host_in_mid_exchange_does_not_wait_for_all_newer_exchanges_of_its_address() {
    let mut testbed = testbed();
    testbed.hold_steps = true;
    let (id, _) = connect(&mut testbed, 0, None);
    let mut host = HostAuth::new(HostAuthConfig::new(HOST, SUBSYSTEM, secret(1)), Random::new([9; 32]));
    let send = |testbed: &mut Testbed, host: &mut HostAuth| {
        let message = Bytes::from(host.message().expect("the host sends the next message"));
        let mut send: zonda_nvme::SubmissionEntry =
            AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32).into();
        send.data_pointer = zonda_nvme::SglDescriptor::in_capsule(0, message.len() as u32);
        testbed.start(id, send, &message)
    };
    let negotiate = send(&mut testbed, &mut host);
    (0..6).for_each(|port| drop(begin(&mut testbed, &format!("192.0.2.9:{port}"))));
    end_step(&mut testbed);
    assert_eq!(testbed.finish(id, negotiate, Bytes::new()).status, StatusCode::SUCCESS);
    let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    host.receive(&testbed.execute(id, receive.into(), Bytes::new()).data).expect("both know the secret");
    let reply = send(&mut testbed, &mut host);
    // The step in progress, and its own.
    (0..2).for_each(|_| end_step(&mut testbed));
    assert_eq!(testbed.finish(id, reply, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.target.auth_steps.len().0, 4);
}

#[test]
fn a_step_is_computed_elsewhere_and_its_queue_accepts_no_other_meanwhile() {
    let mut testbed = testbed();
    testbed.target.limits.auth_steps = 3;
    testbed.hold_steps = true;
    let [first, second, third] = [0; 3].map(|_| begin(&mut testbed, "192.0.2.9:5000"));
    assert_eq!(testbed.held_steps.len(), 2, "the third waits");
    assert!(testbed.wire(first.0).pdus.is_empty(), "there is no response yet");
    // While the first message is processed, neither Authentication Send nor Receive is accepted.
    assert_eq!(testbed.execute_in_capsule(first.0, first.2, first.3).status, StatusCode::COMMAND_SEQUENCE_ERROR);
    let receive = AuthenticationCommand::new(FabricsType::AuthenticationReceive, 4096);
    assert_eq!(testbed.execute(first.0, receive.into(), Bytes::new()).status, StatusCode::COMMAND_SEQUENCE_ERROR);
    // The second host disconnects; the result of its step is dropped.
    testbed.close_socket(second.0);
    for step in std::mem::take(&mut testbed.held_steps) {
        testbed.target.on_authenticated(testbed.now, step.run());
        testbed.target.check_invariants();
        testbed.run_until_idle();
    }
    assert_eq!(testbed.finish(first.0, first.1, Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.execute(first.0, receive.into(), Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.held_steps.len(), 1, "the third one's step starts");
    let step = testbed.held_steps.pop().expect("it was just found");
    testbed.target.on_authenticated(testbed.now, step.run());
    testbed.run_until_idle();
    assert_eq!(testbed.finish(third.0, third.1, Bytes::new()).status, StatusCode::SUCCESS);
}
