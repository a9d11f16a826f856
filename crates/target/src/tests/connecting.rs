//! The handshake, properties, access control, and how connections end.

use bytes::Bytes;
use zonda_nvme::fabrics::{
    Capabilities, Configuration, ConnectCommand, ConnectData, ConnectResult, Property, connect_offsets as at,
    disconnect_command,
};
use zonda_nvme::tcp::{Digests, FatalStatus, InitializeRequest, Pdu};
use zonda_nvme::{HostId, IoOpcode, StatusCode, SubmissionEntry};
use zonda_zoned::Duration;

use super::testbed::{HOST, SUBSYSTEM, Testbed, config, conventional, nqn, read, write, zoned};
use crate::{CloseReason, Event, HostAccess, HostEntry, Target};

#[test]
fn a_host_connects_enables_and_shuts_down() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let capabilities = Capabilities::from_value(testbed.get(admin, Property::Capabilities));
    assert!(capabilities.all_command_sets && capabilities.nvm_command_set);
    assert_eq!(testbed.get(admin, Property::Version), 0x2_0000);
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    assert_eq!(testbed.operate(io, 1, &write(0, 4, 1)).status, StatusCode::SUCCESS);
    let normal = Configuration::enabled(Configuration::CSS_ALL).0 | 1 << 14;
    testbed.set(admin, Property::Configuration, normal.into());
    assert_eq!(testbed.get(admin, Property::Status) >> 2 & 0b11, 0b10, "shut down");
    assert_eq!(testbed.submitted, ["write", "flush"], "the shutdown flushes volatile data");
    testbed.close_socket(admin);
    assert_eq!(testbed.closed[&io], CloseReason::ControllerRemoved);
    let statistics = testbed.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers, statistics.commands_at_devices), (0, 0, 0));
}

#[test]
fn a_shutdown_is_complete_only_when_the_flush_is() {
    let mut testbed = Testbed::new();
    let (admin, _) = testbed.admin();
    testbed.hold = true;
    let normal = Configuration::enabled(Configuration::CSS_ALL).0 | 1 << 14;
    testbed.set(admin, Property::Configuration, normal.into());
    assert_eq!(testbed.get(admin, Property::Status) >> 2 & 0b11, 0b01, "shutdown in progress");
    testbed.release();
    assert_eq!(testbed.get(admin, Property::Status) >> 2 & 0b11, 0b10, "shut down");
}

#[test]
fn digests_are_used_only_if_both_sides_enable_them() {
    let mut testbed = Testbed::new();
    for digests in [Digests::NONE, Digests::BOTH, Digests { header: true, data: false }] {
        let (_, controller) = testbed.admin_with(digests);
        let io = testbed.io_with(controller, 1, digests, 0);
        let zone = 64 * u64::from(controller);
        assert_eq!(testbed.operate(io, 1, &write(zone, 8, 5)).status, StatusCode::SUCCESS);
        assert_eq!(testbed.operate(io, 1, &read(zone, 8)).data, super::testbed::pattern(8, 512, 5));
    }
    let mut none = config(&[zoned()], HostAccess::Any);
    none.digests = Digests::NONE;
    let mut testbed = Testbed::of(none);
    let id = testbed.open();
    testbed.wire(id).writer.initialize_request(&InitializeRequest::new(0, Digests::BOTH, 1));
    testbed.push(id);
    let Some(Pdu::InitializeResponse(response)) = testbed.wire(id).pdus.pop_front() else { panic!("an ICResp") };
    assert_eq!(response.digests, 0);
}

#[test]
fn data_for_the_host_has_the_requested_alignment() {
    let mut testbed = Testbed::new();
    let (_, controller) = testbed.admin();
    let io = testbed.open();
    testbed.initialize(io, Digests::BOTH, 31);
    assert_eq!(testbed.connect_as(io, HOST, SUBSYSTEM, 1, Some(controller), 0).status, StatusCode::SUCCESS);
    testbed.operate(io, 1, &write(0, 8, 5));
    let (entry, _) = testbed.encoded(1, &read(0, 8));
    testbed.start(io, entry, &Bytes::new());
    let Some(Pdu::ControllerData { header, .. }) = testbed.wire(io).pdus.pop_front() else { panic!("data") };
    assert_eq!(header.common.data_offset, 128);
}

#[test]
fn another_pdu_format_and_an_invalid_alignment_are_unsupported_parameters() {
    for (change, offset) in [
        (Box::new(|it: &mut InitializeRequest| it.format_version = 1.into()) as Box<dyn Fn(&mut InitializeRequest)>, 8),
        (Box::new(|it: &mut InitializeRequest| it.data_alignment = 32), 10),
    ] {
        let mut testbed = Testbed::new();
        let id = testbed.open();
        let mut request = InitializeRequest::new(0, Digests::NONE, 1);
        change(&mut request);
        testbed.send(id, Bytes::copy_from_slice(request.bytes()));
        let CloseReason::Protocol(error) = &testbed.closed[&id] else { panic!("{:?}", testbed.closed) };
        assert_eq!((error.status, error.information), (FatalStatus::UnsupportedParameter, offset));
        let Some(Pdu::ControllerTermination(termination)) = testbed.wire(id).pdus.pop_front() else {
            panic!("the host gets a C2HTermReq")
        };
        assert_eq!((termination.status, termination.information), (6, offset));
        assert_eq!(&termination.header[..], request.bytes());
    }
}

#[test]
fn a_host_that_is_not_allowed_is_refused() {
    let entry = HostEntry { nqn: nqn(HOST), secret: None, controller_secret: None };
    let mut testbed = Testbed::of(config(&[zoned()], HostAccess::Hosts(vec![entry])));
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    let answer = testbed.connect_as(id, "nqn.2024-01.org.example:unlisted", SUBSYSTEM, 0, None, 0);
    assert_eq!(answer.status, StatusCode::CONNECT_INVALID_HOST);
    assert_eq!(answer.result, ConnectResult::InvalidDataField(at::HOST_NQN).value());
    assert!(testbed.closed.is_empty(), "the host is expected to close the connection");
    testbed.pass(Duration::from_secs(5));
    assert_eq!(testbed.closed[&id], CloseReason::ConnectRefused(StatusCode::CONNECT_INVALID_HOST));
    let [event @ Event::HostRefused { .. }] = &testbed.events[..] else { panic!("{:?}", testbed.events) };
    let message = event.to_string();
    assert!(message.ends_with("connect refused: connect invalid host, in the host NQN (HOSTNQN)"), "{message}");
    testbed.admin();
}

#[test]
fn each_fault_in_a_connect_names_its_field() {
    type Spoil = fn(&mut ConnectCommand, &mut ConnectData);
    let invalid = StatusCode::CONNECT_INVALID_PARAMETERS;
    let data = |offset| (invalid, ConnectResult::InvalidDataField(offset).value());
    let command = |offset| (invalid, ConnectResult::InvalidCommandField(offset).value());
    let faults: [(Spoil, (StatusCode, u64)); 7] = [
        (|it, _| it.queue_size = 0.into(), command(at::QUEUE_SIZE)),
        (|it, _| it.queue_size = 0xffff.into(), command(at::QUEUE_SIZE)),
        (|it, _| it.record_format = 1.into(), (StatusCode::CONNECT_INCOMPATIBLE_FORMAT, 0)),
        (|_, it| it.host_id = [0; 16], data(at::HOST_ID)),
        (|_, it| it.host_nqn = [b'n'; 256], data(at::HOST_NQN)),
        (|_, it| it.subsystem_nqn = nqn("nqn.2024-01.org.example:other").to_field(), data(at::SUBSYSTEM_NQN)),
        (|_, it| it.controller_id = 1.into(), data(at::CONTROLLER_ID)),
    ];
    for (i, (spoil, expected)) in faults.into_iter().enumerate() {
        let mut testbed = Testbed::new();
        let id = testbed.open();
        testbed.initialize(id, Digests::NONE, 0);
        let mut connect = ConnectCommand::new(0, 32, 0, 0);
        let mut data = ConnectData::new(HostId([1; 16]), 0xffff, &nqn(SUBSYSTEM), &nqn(HOST));
        spoil(&mut connect, &mut data);
        let answer = testbed.execute_in_capsule(id, connect.into(), Bytes::copy_from_slice(data.bytes()));
        assert_eq!((answer.status, answer.result), expected, "fault {i}");
        let answer = testbed.connect_as(id, HOST, SUBSYSTEM, 0, None, 0);
        assert_eq!(answer.status, StatusCode::SUCCESS, "and without the fault it connects");
    }
}

#[test]
fn an_io_queue_has_as_many_entries_as_the_capabilities_allow_and_no_more() {
    let mut testbed = Testbed::with_limits(|limits| limits.queue_entries = 40);
    let (admin, controller) = testbed.admin();
    let most = Capabilities::from_value(testbed.get(admin, Property::Capabilities)).queue_entries_max;
    assert_eq!(most, 39, "MQES counts from zero");
    for (queue, size, is_taken) in [(1, most, true), (2, most + 1, false)] {
        let id = testbed.open();
        testbed.initialize(id, Digests::NONE, 0);
        let mut connect = ConnectCommand::new(queue, 32, 0, 0);
        connect.queue_size = size.into();
        let data = ConnectData::new(HostId([7; 16]), controller, &nqn(SUBSYSTEM), &nqn(HOST));
        let answer = testbed.execute_in_capsule(id, connect.into(), Bytes::copy_from_slice(data.bytes()));
        assert_eq!(answer.status.is_success(), is_taken, "SQSIZE {size}: {:?}", answer.status);
        let refusal = ConnectResult::InvalidCommandField(at::QUEUE_SIZE).value();
        assert!(is_taken || answer.result == refusal, "SQSIZE {size}");
    }
}

#[test]
fn an_io_queue_belongs_to_the_host_that_made_its_controller() {
    let mut testbed = Testbed::new();
    let (_, controller) = testbed.admin();
    testbed.io_with(controller, 1, Digests::NONE, 0);
    let status = |testbed: &mut Testbed, host: &str, queue, controller| {
        let id = testbed.open();
        testbed.initialize(id, Digests::NONE, 0);
        let answer = testbed.connect_as(id, host, SUBSYSTEM, queue, Some(controller), 0);
        (answer.status, answer.result)
    };
    let invalid = StatusCode::CONNECT_INVALID_PARAMETERS;
    let data = |offset| ConnectResult::InvalidDataField(offset).value();
    let command = |offset| ConnectResult::InvalidCommandField(offset).value();
    let other = "nqn.2024-01.org.example:other";
    assert_eq!(status(&mut testbed, other, 2, controller), (invalid, data(at::HOST_NQN)));
    assert_eq!(status(&mut testbed, HOST, 2, controller + 1), (invalid, data(at::CONTROLLER_ID)));
    assert_eq!(status(&mut testbed, HOST, 1, controller), (invalid, command(at::QUEUE_ID)), "connected already");
    assert_eq!(status(&mut testbed, HOST, 999, controller), (invalid, command(at::QUEUE_ID)), "beyond the limit");
    assert_eq!(status(&mut testbed, HOST, 2, controller).0, StatusCode::SUCCESS);
}

#[test]
fn an_io_queue_waits_for_its_controller_to_be_enabled() {
    let mut testbed = Testbed::new();
    let admin = testbed.open();
    testbed.initialize(admin, Digests::NONE, 0);
    let controller = testbed.connect_as(admin, HOST, SUBSYSTEM, 0, None, 0).result as u16;
    let io = testbed.open();
    testbed.initialize(io, Digests::NONE, 0);
    let answer = testbed.connect_as(io, HOST, SUBSYSTEM, 1, Some(controller), 0);
    assert_eq!(answer.status, StatusCode::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn connect_data_may_be_solicited() {
    let mut testbed = Testbed::new();
    let id = testbed.open();
    testbed.initialize(id, Digests::BOTH, 0);
    let data = ConnectData::new(HostId([1; 16]), 0xffff, &nqn(SUBSYSTEM), &nqn(HOST));
    let mut entry = SubmissionEntry::from(ConnectCommand::new(0, 32, 0, 0));
    entry.data_pointer = zonda_nvme::SglDescriptor::transport(1024);
    let answer = testbed.execute(id, entry, Bytes::copy_from_slice(data.bytes()));
    assert_eq!(answer.status, StatusCode::SUCCESS);
}

#[test]
fn any_other_first_command_is_a_sequence_error() {
    let mut testbed = Testbed::new();
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    let answer = testbed.execute(id, SubmissionEntry::new(IoOpcode::Flush.code(), 1), Bytes::new());
    assert_eq!(answer.status, StatusCode::COMMAND_SEQUENCE_ERROR);
    testbed.pass(Duration::from_secs(5));
    assert!(testbed.closed.contains_key(&id));
}

#[test]
fn a_reset_closes_the_io_queues_and_the_controller_can_be_enabled_again() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.set(admin, Property::Configuration, 0);
    assert_eq!(testbed.closed[&io], CloseReason::ControllerRemoved);
    assert_eq!(testbed.get(admin, Property::Status), 0);
    testbed.enable(admin);
    testbed.io_with(controller, 1, Digests::NONE, 0);
}

#[test]
fn an_invalid_configuration_is_a_fatal_status() {
    let mut testbed = Testbed::of(config(&[conventional()], HostAccess::Any));
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    testbed.connect_as(id, HOST, SUBSYSTEM, 0, None, 0);
    let capabilities = Capabilities::from_value(testbed.get(id, Property::Capabilities));
    assert!(!capabilities.all_command_sets, "no namespace has zones");
    testbed.set(id, Property::Configuration, Configuration::enabled(Configuration::CSS_ALL).0.into());
    assert_eq!(testbed.get(id, Property::Status), 0b10);
    testbed.set(id, Property::Configuration, 0);
    testbed.set(id, Property::Configuration, Configuration::enabled(Configuration::CSS_NVM).0.into());
    assert_eq!(testbed.get(id, Property::Status), 0b01);
}

#[test]
fn a_disconnected_queue_is_closed_and_can_be_connected_again() {
    let mut testbed = Testbed::new();
    let (_, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    assert_eq!(testbed.execute(io, disconnect_command(), Bytes::new()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.closed[&io], CloseReason::Disconnected);
    testbed.io_with(controller, 1, Digests::NONE, 0);
}

#[test]
fn a_silent_host_loses_its_controller_and_a_busy_one_does_not() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    for _ in 0..10 {
        testbed.pass(Duration::from_millis(4000));
        assert_eq!(testbed.operate(io, 1, &read(0, 1)).status, StatusCode::SUCCESS);
    }
    assert!(testbed.closed.is_empty());
    testbed.pass(Duration::from_millis(4999));
    assert!(testbed.closed.is_empty());
    testbed.pass(Duration::from_millis(1));
    assert_eq!(testbed.closed[&admin], CloseReason::KeepAliveExpired);
    assert_eq!(testbed.closed[&io], CloseReason::ControllerRemoved);
    assert_eq!(testbed.target.next_timeout(), None);
}

#[test]
fn controllers_are_independent() {
    let mut testbed = Testbed::new();
    let (one, first) = testbed.admin();
    let (_, second) = testbed.admin();
    assert_ne!(first, second);
    let io = testbed.io_with(second, 1, Digests::NONE, 0);
    testbed.close_socket(one);
    assert_eq!(testbed.operate(io, 1, &write(0, 2, 9)).status, StatusCode::SUCCESS);
    assert_eq!(testbed.target.statistics().controllers, 1);
}

#[test]
fn draining_completes_commands_in_flight_and_then_closes_every_connection() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    let idle = testbed.io_with(controller, 2, Digests::NONE, 0);
    testbed.hold = true;
    let (entry, data) = testbed.encoded(1, &write(0, 2, 1));
    let mut entry = entry;
    entry.data_pointer = zonda_nvme::SglDescriptor::in_capsule(0, 1024);
    let command = testbed.start(io, entry, &data);
    testbed.target.shutdown(testbed.now);
    testbed.target.check_invariants();
    testbed.run_until_idle();
    assert_eq!(testbed.closed.keys().copied().collect::<Vec<_>>(), [idle]);
    // A draining target reads no commands, so keep alive timers do not expire.
    testbed.pass(Duration::from_millis(60_000));
    assert!(!testbed.closed.contains_key(&io) && !testbed.closed.contains_key(&admin));
    assert!(testbed.target.on_connect(testbed.now, 0, "192.0.2.9:1").is_none());
    testbed.release();
    assert_eq!(testbed.finish(io, command, Bytes::new()).status, StatusCode::SUCCESS);
    assert!(testbed.closed.contains_key(&io) && testbed.closed.contains_key(&admin));
    assert!(testbed.target.is_drained());
}

#[test]
fn mixed_zones_and_other_faults_are_refused_with_a_remedy() {
    let fault = |change: fn(&mut crate::TargetConfig)| {
        let mut config = config(&[zoned(), conventional()], HostAccess::Any);
        change(&mut config);
        let error = Target::new(config).unwrap_err();
        assert!(!error.remedy.is_empty());
        error.to_string()
    };
    let mixed = fault(|it| {
        let geometry = &mut it.subsystems[0].namespaces[0].geometry;
        geometry.zone_capacity_blocks = geometry.zone_size_blocks;
        geometry.conventional_zone_count = 1;
    });
    assert!(mixed.contains("conventional_zone_count") && mixed.contains("two namespaces"), "{mixed}");
    assert!(fault(|it| it.subsystems[0].serial = "\u{e9}".to_owned()).contains("serial"));
    assert!(fault(|it| it.subsystems[0].namespaces[1].id = it.subsystems[0].namespaces[0].id).contains("twice"));
    assert!(fault(|it| it.limits.queue_entries = 1).contains("limits.queue_entries"));
}
