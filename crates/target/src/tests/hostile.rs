//! Hosts that flood, stall, vanish, or speak nonsense.

use bytes::Bytes;
use proptest::prelude::*;
use zonda_nvme::tcp::{Digests, FatalStatus, InitializeRequest, Pdu, PduError};
use zonda_nvme::{IoOpcode, StatusCode, SubmissionEntry};
use zonda_zoned::{Duration, Operation};

use super::world::{World, pattern, read, write};
use crate::{CloseReason, Limits};

#[test]
fn ten_thousand_half_open_connections_do_not_hurt_the_others() {
    let mut world = World::new();
    let io = world.io();
    for i in 0..10_000 {
        let peer = format!("198.51.100.{}:1", i % 7);
        let id = world.target.connected(world.now, 0, &peer).expect("the newest has room");
        if i % 2 == 0 {
            let request = InitializeRequest::new(0, Digests::NONE, 1);
            world.target.received(world.now, id, Bytes::copy_from_slice(&request.bytes()[..60]));
        }
        while let Some(effect) = world.target.poll_effect() {
            assert!(matches!(effect, crate::Effect::Close { reason: CloseReason::Crowded, .. }), "{effect:?}");
        }
    }
    world.target.check_invariants();
    assert_eq!(world.target.statistics().half_open, Limits::default().half_open);
    assert_eq!(world.operate(io, 1, &write(0, 4, 1)).status, StatusCode::SUCCESS);
    world.admin();
    assert_eq!(world.operate(io, 1, &read(0, 4)).data, pattern(4, 512, 1));
    world.now += Duration::from_secs(4);
    world.operate(io, 1, &read(0, 4));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.operate(io, 1, &read(0, 4)).data, pattern(4, 512, 1));
}

#[test]
fn who_opens_many_connections_crowds_out_its_own() {
    let limits = Limits::default();
    let mut world = World::new();
    let honest = world.target.connected(world.now, 0, "192.0.2.77:1").expect("there is room");
    let mut closed = Vec::new();
    // One address up to its limit, then several that fill the table together.
    for i in 0..4 * limits.half_open {
        let peer = format!("198.51.100.{}:{i}", if i < limits.half_open { 1 } else { i % 5 });
        world.target.connected(world.now, 0, &peer).expect("the newest has room");
        world.target.check_invariants();
        if i == limits.half_open - 1 {
            assert_eq!(world.target.statistics().half_open, limits.half_open_per_address + 1);
        }
        while let Some(effect) = world.target.poll_effect() {
            let crate::Effect::Close { connection, reason: CloseReason::Crowded } = effect else {
                panic!("{effect:?}")
            };
            closed.push(connection);
        }
    }
    assert_eq!(world.target.statistics().half_open, limits.half_open);
    assert!(!closed.contains(&honest), "the oldest of all, of an address that has one");
}

#[test]
fn a_host_whose_bytes_wait_to_be_read_does_not_give_way_until_they_are() {
    let mut world = World::with_limits(|limits| (limits.half_open, limits.half_open_per_address) = (4, 4));
    let first = world.open();
    world.target.arrived(first);
    let others: Vec<_> = (0..4).map(|number| world.open_from(&format!("198.51.100.{number}:1"))).collect();
    assert_eq!(world.closed.keys().collect::<Vec<_>>(), [&others[0]], "the longest silent of the others");
    // Half of a PDU is no step.
    let request = InitializeRequest::new(0, Digests::NONE, 1);
    world.send(first, Bytes::copy_from_slice(&request.bytes()[..60]));
    world.open_from("198.51.100.9:1");
    assert_eq!(world.closed.get(&first), Some(&CloseReason::Crowded));
}

#[test]
fn a_handshake_that_takes_too_long_ends() {
    let mut world = World::new();
    let silent = world.open();
    let started = world.open();
    world.initialize(started, Digests::NONE, 0);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.closed[&silent], CloseReason::HandshakeTimeout);
    assert_eq!(world.closed[&started], CloseReason::HandshakeTimeout);
    assert_eq!(world.target.next_timeout(), None);
}

#[test]
fn every_handshake_that_takes_too_long_is_counted_and_no_other() {
    let mut world = World::new();
    world.admin();
    world.open();
    let started = world.open();
    world.initialize(started, Digests::NONE, 0);
    assert_eq!(world.target.statistics().handshake_timeouts, 0);
    world.pass(Limits::default().handshake);
    assert_eq!(world.target.statistics().handshake_timeouts, 2);
}

#[test]
fn a_host_that_never_reads_stops_being_read() {
    let mut world = World::with_limits(|limits| {
        limits.transfer_bytes = 16 << 10;
        limits.outgoing_bytes = 64 << 10;
        limits.receive_bytes = 64 << 10;
    });
    let io = world.io();
    world.wire(io).frozen = true;
    for _ in 0..1000 {
        let (mut entry, _) = world.encoded(1, &read(0, 32));
        entry.command_id = 1.into();
        world.wire(io).writer.command(&entry, &Bytes::new());
        for piece in world.wire(io).writer.take() {
            world.send(io, piece);
        }
        if world.wire(io).paused {
            break;
        }
    }
    assert!(world.wire(io).paused);
    assert!(world.wire(io).unread_bytes <= (64 << 10) + (17 << 10), "{}", world.wire(io).unread_bytes);
    // What had been read from the socket before waits, and takes no memory of the device.
    let submitted = world.submitted.len();
    let (entry, _) = world.encoded(1, &Operation::Flush);
    let flush = world.start(io, entry, &Bytes::new());
    assert_eq!(world.submitted.len(), submitted);
    world.thaw(io);
    assert!(!world.wire(io).paused);
    assert_eq!(world.finish(io, flush, Bytes::new()).status, StatusCode::SUCCESS);
}

#[test]
fn data_is_not_accepted_for_a_transfer_that_was_not_asked_for() {
    for (tag, command, offset, length, status) in [
        (9, 1, 0, 1024, FatalStatus::InvalidHeaderField),
        (0, 77, 0, 1024, FatalStatus::InvalidHeaderField),
        (0, 1, 512, 512, FatalStatus::DataOutOfRange),
        (0, 1, 0, 2048, FatalStatus::DataOutOfRange),
    ] {
        let mut world = World::new();
        let io = world.io();
        let (mut entry, _) = world.encoded(1, &write(0, 2, 1));
        entry.command_id = 1.into();
        world.wire(io).writer.command(&entry, &Bytes::new());
        world.push(io);
        let Some(Pdu::ReadyToTransfer(r2t)) = world.wire(io).pdus.pop_back() else { panic!("an R2T") };
        assert_eq!((r2t.tag.get(), r2t.length.get()), (0, 1024));
        world.wire(io).writer.host_data(command, tag, offset, &[vec![0; length].into()], false);
        world.push(io);
        let CloseReason::Protocol(error) = &world.closed[&io] else { panic!("{:?}", world.closed) };
        assert_eq!(error.status, status, "tag {tag}, command {command}, offset {offset}");
        assert!(world.submitted.is_empty());
    }
}

#[test]
fn a_stranger_cannot_make_the_target_keep_more_than_a_connect() {
    let mut world = World::new();
    let id = world.open();
    world.initialize(id, Digests::NONE, 0);
    world.wire(id).writer.host_data(1, 0, 0, &[vec![0; 100_000].into()], true);
    let head = world.wire(id).writer.take().concat();
    world.send(id, Bytes::copy_from_slice(&head[..24]));
    assert!(
        matches!(&world.closed[&id], CloseReason::Protocol(error) if error.status == FatalStatus::DataLimitExceeded)
    );
}

#[test]
fn the_last_data_of_a_transfer_says_so_only_when_it_is() {
    let mut world = World::new();
    let io = world.io();
    let (mut entry, _) = world.encoded(1, &write(0, 2, 1));
    entry.command_id = 1.into();
    world.wire(io).writer.command(&entry, &Bytes::new());
    world.push(io);
    world.wire(io).writer.host_data(1, 0, 0, &[vec![0; 512].into()], true);
    world.push(io);
    assert!(matches!(&world.closed[&io], CloseReason::Protocol(error) if error.information == 1));
}

#[test]
fn pdus_of_another_state_are_sequence_errors() {
    let mut world = World::new();
    let early = world.open();
    let wire = world.wire(early);
    wire.writer.command(&SubmissionEntry::new(IoOpcode::Flush.code(), 1), &Bytes::new());
    world.push(early);
    let late = world.io();
    world.wire(late).writer.initialize_request(&InitializeRequest::new(0, Digests::NONE, 1));
    world.push(late);
    for id in [early, late] {
        assert!(
            matches!(&world.closed[&id], CloseReason::Protocol(error) if error.status == FatalStatus::SequenceError)
        );
    }
}

#[test]
fn more_commands_than_the_queue_holds_end_the_connection() {
    let mut world = World::new();
    let io = world.io();
    world.hold = true;
    for _ in 0..32 {
        let (entry, _) = world.encoded(1, &read(0, 1));
        world.start(io, entry, &Bytes::new());
    }
    assert!(world.closed.is_empty());
    let (entry, _) = world.encoded(1, &read(0, 1));
    world.start(io, entry, &Bytes::new());
    assert!(matches!(world.closed[&io], CloseReason::Protocol(_)));
    world.release();
    assert_eq!(world.target.statistics().commands_at_devices, 0);
}

#[test]
fn a_termination_by_the_host_closes_the_connection() {
    let mut world = World::new();
    let io = world.io();
    world.wire(io).writer.host_termination(&PduError::new(FatalStatus::HeaderDigestError, 1, &[]));
    world.push(io);
    assert_eq!(world.closed[&io], CloseReason::HostTermination(3));
}

#[test]
fn a_host_that_vanishes_leaves_nothing_behind() {
    let mut world = World::new();
    let (admin, controller) = world.admin();
    let io = world.io_with(controller, 1, Digests::NONE, 0);
    world.hold = true;
    for zone in 0..3 {
        // One at the device, one half transferred, one waiting for its data.
        let (entry, data) = world.encoded(1, &write(zone * 64, 2, 1));
        let command = world.start(io, entry, &Bytes::new());
        let half = if zone == 0 { 1024 } else { 512 * (2 - zone as usize) };
        if half > 0 {
            world.wire(io).writer.host_data(command, zone as u16, 0, &[data.slice(..half)], half == 1024);
            world.push(io);
        }
    }
    assert_eq!(world.held.len(), 1);
    world.vanish(io);
    world.vanish(admin);
    let statistics = world.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers, statistics.commands_at_devices), (0, 0, 1));
    world.release();
    assert_eq!(world.target.statistics().commands_at_devices, 0);
    assert_eq!(world.target.next_timeout(), None);
    assert!(world.target.poll_effect().is_none());
}

#[test]
fn what_is_told_of_a_connection_that_is_gone_has_no_effect() {
    let mut world = World::new();
    let io = world.io();
    world.vanish(io);
    world.target.received(world.now, io, Bytes::from_static(b"anything"));
    world.target.sent(world.now, io, 1000);
    world.target.disconnected(world.now, io);
    assert!(world.target.poll_effect().is_none());
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
        let mut world = World::new();
        let id = match step {
            0 => world.open(),
            1 => { let id = world.open(); world.initialize(id, Digests::NONE, 0); id }
            2 => world.admin().0,
            _ => world.io(),
        };
        let mut bytes = garbage;
        if plausible && bytes.len() >= 8 {
            let header = match kind { 0 => 128, 4 => 72, _ => 24 };
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&[kind, 0, header, header]);
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
        }
        world.send(id, bytes.into());
        world.vanish(id);
        world.target.check_invariants();
    }

    #[test]
    fn commands_with_any_fields_are_answered(
        admin in any::<bool>(),
        entry in any::<[u8; 64]>(),
        opcode in prop_oneof![Just(0x7fu8), Just(0x06), Just(0x02), Just(0x09), Just(0x0a), Just(0x7a), Just(0x79),
            Just(0x01), Just(0x08), Just(0x0c), Just(0x05), 0..=255u8],
        sgl in prop_oneof![Just(0x01u8), Just(0x5a), Just(0x40)],
        namespace in 0..3u32,
        small in any::<bool>(),
        capsule in proptest::collection::vec(any::<u8>(), 0..1100),
    ) {
        let mut world = World::new();
        let (admin_id, controller) = world.admin();
        let io = world.io_with(controller, 1, Digests::NONE, 0);
        let id = if admin { admin_id } else { io };
        let mut bytes = entry;
        bytes[0] = opcode;
        bytes[1..4].copy_from_slice(&[0x40, 0xff, 0xff]);
        bytes[39] = sgl;
        bytes[4..8].copy_from_slice(&namespace.to_le_bytes());
        if small {
            // Lengths and blocks that are not refused for their size alone.
            bytes[24..39].fill(0);
            bytes[33] = bytes[48] & 0x1f;
            bytes[41..48].fill(0);
            bytes[49..52].fill(0);
        }
        let mut wire = vec![0x04, 0, 72, if capsule.is_empty() { 0 } else { 72 }];
        wire.extend_from_slice(&(72 + capsule.len() as u32).to_le_bytes());
        wire.extend_from_slice(&bytes);
        wire.extend_from_slice(&capsule);
        world.send(id, wire.into());
        // Whatever it was, the target goes on to serve.
        if !world.closed.contains_key(&io) && opcode != 0x7f && !admin {
            prop_assert_eq!(world.operate(io, 1, &Operation::Flush).status, StatusCode::SUCCESS);
        }
        world.vanish(io);
        world.vanish(admin_id);
        world.target.check_invariants();
        prop_assert_eq!(world.target.statistics().connections, 0);
    }
}
