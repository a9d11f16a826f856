//! Hosts that flood, stall, disconnect, or violate the protocol.

use bytes::Bytes;
use proptest::prelude::*;
use zonda_nvme::tcp::{Digests, FatalStatus, InitializeRequest, Pdu, PduError};
use zonda_nvme::{IoOpcode, StatusCode, SubmissionEntry};
use zonda_zoned::{Duration, Operation};

use super::testbed::{Testbed, pattern, read, write};
use crate::{CloseReason, Limits};

#[test]
fn ten_thousand_half_open_connections_do_not_hurt_the_others() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    for i in 0..10_000 {
        let peer = format!("198.51.100.{}:1", i % 7);
        let id = testbed.target.on_connect(testbed.now, 0, &peer).expect("the newest is accepted");
        if i % 2 == 0 {
            let request = InitializeRequest::new(0, Digests::NONE, 1);
            testbed.target.on_bytes(testbed.now, id, Bytes::copy_from_slice(&request.bytes()[..60]));
        }
        while let Some(effect) = testbed.target.poll_effect() {
            assert!(matches!(effect, crate::Effect::Close { reason: CloseReason::Evicted, .. }), "{effect:?}");
        }
    }
    testbed.target.check_invariants();
    assert_eq!(testbed.target.statistics().half_open, Limits::default().half_open);
    assert_eq!(testbed.operate(io, 1, &write(0, 4, 1)).status, StatusCode::SUCCESS);
    testbed.admin();
    assert_eq!(testbed.operate(io, 1, &read(0, 4)).data, pattern(4, 512, 1));
    testbed.now += Duration::from_secs(4);
    testbed.operate(io, 1, &read(0, 4));
    testbed.pass(Duration::from_secs(1));
    assert_eq!(testbed.operate(io, 1, &read(0, 4)).data, pattern(4, 512, 1));
}

#[test]
fn an_address_with_many_connections_evicts_its_own() {
    let limits = Limits::default();
    let mut testbed = Testbed::new();
    let honest = testbed.target.on_connect(testbed.now, 0, "192.0.2.77:1").expect("a slot is free");
    let mut closed = Vec::new();
    // One address up to its limit, then several that fill the table together.
    for i in 0..4 * limits.half_open {
        let peer = format!("198.51.100.{}:{i}", if i < limits.half_open { 1 } else { i % 5 });
        testbed.target.on_connect(testbed.now, 0, &peer).expect("the newest is accepted");
        testbed.target.check_invariants();
        if i == limits.half_open - 1 {
            assert_eq!(testbed.target.statistics().half_open, limits.half_open_per_address + 1);
        }
        while let Some(effect) = testbed.target.poll_effect() {
            let crate::Effect::Close { connection, reason: CloseReason::Evicted } = effect else {
                panic!("{effect:?}")
            };
            closed.push(connection);
        }
    }
    assert_eq!(testbed.target.statistics().half_open, limits.half_open);
    assert!(!closed.contains(&honest), "the oldest of all, of an address that has one");
}

#[test]
fn a_host_whose_bytes_wait_to_be_read_is_not_evicted_until_they_are() {
    let mut testbed = Testbed::with_limits(|limits| (limits.half_open, limits.half_open_per_address) = (4, 4));
    let first = testbed.open();
    testbed.target.on_arrival(first);
    let others: Vec<_> = (0..4).map(|number| testbed.open_from(&format!("198.51.100.{number}:1"))).collect();
    assert_eq!(testbed.closed.keys().collect::<Vec<_>>(), [&others[0]], "the longest silent of the others");
    // Half of a PDU is not a step.
    let request = InitializeRequest::new(0, Digests::NONE, 1);
    testbed.send(first, Bytes::copy_from_slice(&request.bytes()[..60]));
    testbed.open_from("198.51.100.9:1");
    assert_eq!(testbed.closed.get(&first), Some(&CloseReason::Evicted));
}

#[test]
fn a_handshake_times_out() {
    let mut testbed = Testbed::new();
    let silent = testbed.open();
    let started = testbed.open();
    testbed.initialize(started, Digests::NONE, 0);
    testbed.pass(Duration::from_secs(20));
    assert_eq!(testbed.closed[&silent], CloseReason::HandshakeTimeout);
    assert_eq!(testbed.closed[&started], CloseReason::HandshakeTimeout);
    assert_eq!(testbed.target.next_timeout(), None);
}

#[test]
fn exactly_the_handshakes_that_time_out_are_counted() {
    let mut testbed = Testbed::new();
    testbed.admin();
    testbed.open();
    let started = testbed.open();
    testbed.initialize(started, Digests::NONE, 0);
    assert_eq!(testbed.target.statistics().handshake_timeouts, 0);
    testbed.pass(Limits::default().handshake);
    assert_eq!(testbed.target.statistics().handshake_timeouts, 2);
}

#[test]
fn a_host_that_never_reads_is_not_read_from() {
    let mut testbed = Testbed::with_limits(|limits| {
        limits.transfer_bytes = 16 << 10;
        limits.outgoing_bytes = 64 << 10;
        limits.receive_bytes = 64 << 10;
    });
    let io = testbed.io();
    testbed.wire(io).frozen = true;
    for _ in 0..1000 {
        let (mut entry, _) = testbed.encoded(1, &read(0, 32));
        entry.command_id = 1.into();
        testbed.wire(io).writer.command(&entry, &Bytes::new());
        for piece in testbed.wire(io).writer.take() {
            testbed.send(io, piece);
        }
        if testbed.wire(io).paused {
            break;
        }
    }
    assert!(testbed.wire(io).paused);
    assert!(testbed.wire(io).unread_bytes <= (64 << 10) + (17 << 10), "{}", testbed.wire(io).unread_bytes);
    // Commands that had been received before wait, and are not submitted to the device.
    let submitted = testbed.submitted.len();
    let (entry, _) = testbed.encoded(1, &Operation::Flush);
    let flush = testbed.start(io, entry, &Bytes::new());
    assert_eq!(testbed.submitted.len(), submitted);
    testbed.thaw(io);
    assert!(!testbed.wire(io).paused);
    assert_eq!(testbed.finish(io, flush, Bytes::new()).status, StatusCode::SUCCESS);
}

#[test]
fn unsolicited_data_is_not_accepted() {
    for (tag, command, offset, length, status) in [
        (9, 1, 0, 1024, FatalStatus::InvalidHeaderField),
        (0, 77, 0, 1024, FatalStatus::InvalidHeaderField),
        (0, 1, 512, 512, FatalStatus::DataOutOfRange),
        (0, 1, 0, 2048, FatalStatus::DataOutOfRange),
    ] {
        let mut testbed = Testbed::new();
        let io = testbed.io();
        let (mut entry, _) = testbed.encoded(1, &write(0, 2, 1));
        entry.command_id = 1.into();
        testbed.wire(io).writer.command(&entry, &Bytes::new());
        testbed.push(io);
        let Some(Pdu::ReadyToTransfer(r2t)) = testbed.wire(io).pdus.pop_back() else { panic!("an R2T") };
        assert_eq!((r2t.tag.get(), r2t.length.get()), (0, 1024));
        testbed.wire(io).writer.host_data(command, tag, offset, &[vec![0; length].into()], false);
        testbed.push(io);
        let CloseReason::Protocol(error) = &testbed.closed[&io] else { panic!("{:?}", testbed.closed) };
        assert_eq!(error.status, status, "tag {tag}, command {command}, offset {offset}");
        assert!(testbed.submitted.is_empty());
    }
}

#[test]
fn an_unauthenticated_client_cannot_make_the_target_buffer_more_than_a_connect() {
    let mut testbed = Testbed::new();
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    testbed.wire(id).writer.host_data(1, 0, 0, &[vec![0; 100_000].into()], true);
    let head = testbed.wire(id).writer.take().concat();
    testbed.send(id, Bytes::copy_from_slice(&head[..24]));
    assert!(
        matches!(&testbed.closed[&id], CloseReason::Protocol(error) if error.status == FatalStatus::DataLimitExceeded)
    );
}

#[test]
fn the_last_pdu_flag_is_accepted_only_on_the_last_data_of_a_transfer() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    let (mut entry, _) = testbed.encoded(1, &write(0, 2, 1));
    entry.command_id = 1.into();
    testbed.wire(io).writer.command(&entry, &Bytes::new());
    testbed.push(io);
    testbed.wire(io).writer.host_data(1, 0, 0, &[vec![0; 512].into()], true);
    testbed.push(io);
    assert!(matches!(&testbed.closed[&io], CloseReason::Protocol(error) if error.information == 1));
}

#[test]
fn pdus_that_are_not_allowed_in_the_state_are_sequence_errors() {
    let mut testbed = Testbed::new();
    let early = testbed.open();
    let wire = testbed.wire(early);
    wire.writer.command(&SubmissionEntry::new(IoOpcode::Flush.code(), 1), &Bytes::new());
    testbed.push(early);
    let late = testbed.io();
    testbed.wire(late).writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
    testbed.push(late);
    for id in [early, late] {
        assert!(
            matches!(&testbed.closed[&id], CloseReason::Protocol(error) if error.status == FatalStatus::SequenceError)
        );
    }
}

#[test]
fn more_commands_than_the_queue_holds_end_the_connection() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.hold = true;
    for _ in 0..32 {
        let (entry, _) = testbed.encoded(1, &read(0, 1));
        testbed.start(io, entry, &Bytes::new());
    }
    assert!(testbed.closed.is_empty());
    let (entry, _) = testbed.encoded(1, &read(0, 1));
    testbed.start(io, entry, &Bytes::new());
    assert!(matches!(testbed.closed[&io], CloseReason::Protocol(_)));
    testbed.release();
    assert_eq!(testbed.target.statistics().commands_at_devices, 0);
}

#[test]
fn a_termination_by_the_host_closes_the_connection() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.wire(io).writer.host_termination(&PduError::new(FatalStatus::HeaderDigestError, 1, &[]));
    testbed.push(io);
    assert_eq!(testbed.closed[&io], CloseReason::HostTermination(3));
}

#[test]
fn a_host_that_disconnects_leaves_nothing_behind() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.hold = true;
    for zone in 0..3 {
        // One at the device, one half transferred, one that waits for its data.
        let (entry, data) = testbed.encoded(1, &write(zone * 64, 2, 1));
        let command = testbed.start(io, entry, &Bytes::new());
        let half = if zone == 0 { 1024 } else { 512 * (2 - zone as usize) };
        if half > 0 {
            testbed.wire(io).writer.host_data(command, zone as u16, 0, &[data.slice(..half)], half == 1024);
            testbed.push(io);
        }
    }
    assert_eq!(testbed.held.len(), 1);
    testbed.close_socket(io);
    testbed.close_socket(admin);
    let statistics = testbed.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers, statistics.commands_at_devices), (0, 0, 1));
    testbed.release();
    assert_eq!(testbed.target.statistics().commands_at_devices, 0);
    assert_eq!(testbed.target.next_timeout(), None);
    assert!(testbed.target.poll_effect().is_none());
}

#[test]
fn events_of_a_closed_connection_have_no_effect() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.close_socket(io);
    testbed.target.on_bytes(testbed.now, io, Bytes::from_static(b"anything"));
    testbed.target.on_sent(testbed.now, io, 1000);
    testbed.target.on_disconnect(testbed.now, io);
    assert!(testbed.target.poll_effect().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_at_any_point_neither_panics_nor_leaks(
        step in 0..4,
        garbage in proptest::collection::vec(any::<u8>(), 0..600),
        kind in prop_oneof![Just(0u8), Just(2), Just(4), Just(6)],
        plausible in any::<bool>(),
    ) {
        let mut testbed = Testbed::new();
        let id = match step {
            0 => testbed.open(),
            1 => { let id = testbed.open(); testbed.initialize(id, Digests::NONE, 0); id }
            2 => testbed.admin().0,
            _ => testbed.io(),
        };
        let mut bytes = garbage;
        if plausible && bytes.len() >= 8 {
            let header = match kind { 0 => 128, 4 => 72, _ => 24 };
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&[kind, 0, header, header]);
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
        }
        testbed.send(id, bytes.into());
        testbed.close_socket(id);
        testbed.target.check_invariants();
    }

    #[test]
    fn commands_with_any_fields_complete(
        admin in any::<bool>(),
        entry in any::<[u8; 64]>(),
        opcode in prop_oneof![Just(0x7fu8), Just(0x06), Just(0x02), Just(0x09), Just(0x0a), Just(0x7a), Just(0x79),
            Just(0x01), Just(0x08), Just(0x0c), Just(0x05), 0..=255u8],
        sgl in prop_oneof![Just(0x01u8), Just(0x5a), Just(0x40)],
        namespace in 0..3u32,
        small in any::<bool>(),
        capsule in proptest::collection::vec(any::<u8>(), 0..1100),
    ) {
        let mut testbed = Testbed::new();
        let (admin_id, controller) = testbed.admin();
        let io = testbed.io_with(controller, 1, Digests::NONE, 0);
        let id = if admin { admin_id } else { io };
        let mut bytes = entry;
        bytes[0] = opcode;
        bytes[1..4].copy_from_slice(&[0x40, 0xff, 0xff]);
        bytes[39] = sgl;
        bytes[4..8].copy_from_slice(&namespace.to_le_bytes());
        if small {
            // Lengths and blocks that are not refused for their size only.
            bytes[24..39].fill(0);
            bytes[33] = bytes[48] & 0x1f;
            bytes[41..48].fill(0);
            bytes[49..52].fill(0);
        }
        let mut wire = vec![0x04, 0, 72, if capsule.is_empty() { 0 } else { 72 }];
        wire.extend_from_slice(&(72 + capsule.len() as u32).to_le_bytes());
        wire.extend_from_slice(&bytes);
        wire.extend_from_slice(&capsule);
        testbed.send(id, wire.into());
        // Whatever it was, the target still serves other hosts.
        if !testbed.closed.contains_key(&io) && opcode != 0x7f && !admin {
            prop_assert_eq!(testbed.operate(io, 1, &Operation::Flush).status, StatusCode::SUCCESS);
        }
        testbed.close_socket(io);
        testbed.close_socket(admin_id);
        testbed.target.check_invariants();
        prop_assert_eq!(testbed.target.statistics().connections, 0);
    }
}
