//! Reads, writes and what is like them: by every way the data can take.

use bytes::Bytes;
use zonda_nvme::fabrics::ConnectCommand;
use zonda_nvme::io::interleave;
use zonda_nvme::tcp::{Digests, Pdu};
use zonda_nvme::{IoOpcode, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{BlockBuffer, Blocks, Geometry, Lba, LbaRange, Operation, Payload};

use super::world::{HOST, SUBSYSTEM, World, config, conventional, pattern, read, write, zoned};
use crate::{HostAccess, Limits};

#[test]
fn what_was_written_in_the_capsule_is_read_back() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let mut world = World::new();
        let (_, controller) = world.admin_with(digests);
        let io = world.io_with(controller, 1, digests, 0);
        let (entry, data) = world.encoded(1, &write(0, 16, 3));
        assert_eq!(world.execute_in_capsule(io, entry, data).status, StatusCode::SUCCESS);
        let answer = world.operate(io, 1, &read(0, 16));
        assert_eq!((answer.status, &answer.data[..]), (StatusCode::SUCCESS, &pattern(16, 512, 3)[..]));
        assert!(!answer.without_capsule, "SQ flow control is on");
    }
}

#[test]
fn what_was_asked_for_with_an_r2t_is_read_back() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let mut world = World::new();
        let (_, controller) = world.admin_with(digests);
        let io = world.io_with(controller, 1, digests, 0);
        assert_eq!(world.operate(io, 1, &write(0, 32, 4)).status, StatusCode::SUCCESS);
        assert_eq!(world.operate(io, 1, &read(0, 32)).data, pattern(32, 512, 4));
        assert_eq!(world.target.statistics().bytes_received, 32 * 512);
    }
}

#[test]
fn unwritten_blocks_read_as_zeros() {
    let mut world = World::new();
    let io = world.io();
    assert_eq!(world.operate(io, 1, &read(5, 3)).data, vec![0; 3 * 512]);
}

#[test]
fn a_read_is_not_copied() {
    let mut world = World::new();
    let (_, controller) = world.admin();
    let io = world.io_with(controller, 1, Digests::NONE, 0);
    world.hold = true;
    let (entry, _) = world.encoded(1, &read(0, 32));
    world.start(io, entry, &Bytes::new());
    let (device, command) = world.held.pop_front().unwrap();
    let data = pattern(32, 512, 1);
    let payload = Payload::Bytes(Box::new(BlockBuffer { data: data.clone(), metadata: Bytes::new() }));
    let completion = zonda_zoned::Completion {
        id: command.id,
        status: zonda_zoned::Status::Success,
        outcome: zonda_zoned::Outcome::Data(payload),
    };
    world.target.completed(world.now, device, completion);
    let Some(crate::Effect::Send { pieces, .. }) = world.target.poll_effect() else { panic!("an answer") };
    assert_eq!(pieces.len(), 3, "header, data, response");
    assert_eq!(pieces[1].as_ptr(), data.as_ptr());
}

#[test]
fn without_flow_control_read_data_stands_for_the_response() {
    let mut world = World::new();
    let (_, controller) = world.admin();
    let io = world.io_with(controller, 1, Digests::BOTH, ConnectCommand::DISABLE_FLOW_CONTROL);
    let answer = world.operate(io, 1, &read(0, 8));
    assert!(answer.without_capsule && answer.data.len() == 8 * 512);
    assert!(!world.operate(io, 1, &write(0, 8, 1)).without_capsule);
}

#[test]
fn many_commands_at_once_end_each_with_its_own_answer() {
    let mut world = World::new();
    let io = world.io();
    world.hold = true;
    let commands: Vec<u16> = (0..31)
        .map(|i| {
            let (entry, _) = world.encoded(1, &read(i, 1 + i % 4));
            world.start(io, entry, &Bytes::new())
        })
        .collect();
    assert_eq!(world.held.len(), 31);
    world.held.make_contiguous().reverse();
    world.release();
    for (i, command) in commands.into_iter().enumerate() {
        let answer = world.finish(io, command, Bytes::new());
        assert_eq!((answer.status, answer.data.len()), (StatusCode::SUCCESS, (1 + i % 4) * 512));
    }
}

#[test]
fn what_is_written_with_fua_is_flushed_before_it_is_acknowledged_and_what_is_read_before_it_is_looked_at() {
    let mut world = World::new();
    let io = world.io();
    let fua = 1u32 << 30;
    let (mut entry, data) = world.encoded(1, &write(0, 2, 1));
    entry.cdw12 = (entry.cdw12.get() | fua).into();
    assert_eq!(world.execute(io, entry, data).status, StatusCode::SUCCESS);
    let (mut entry, _) = world.encoded(1, &read(0, 2));
    entry.cdw12 = (entry.cdw12.get() | fua).into();
    assert_eq!(world.execute(io, entry, Bytes::new()).data, pattern(2, 512, 1));
    let (mut entry, data) = world.encoded(1, &write(0, 2, 1));
    entry.opcode = IoOpcode::Compare.code();
    entry.cdw12 = (entry.cdw12.get() | fua).into();
    assert_eq!(world.execute(io, entry, data).status, StatusCode::SUCCESS);
    assert_eq!(world.submitted, ["write", "flush", "flush", "read", "flush", "read"]);
}

#[test]
fn an_append_with_fua_returns_its_place_after_the_flush() {
    let mut world = World::new();
    let io = world.io();
    for expected in [64, 68] {
        let buffer = BlockBuffer { data: pattern(4, 512, 1), metadata: Bytes::new() };
        let payload = Payload::Bytes(Box::new(buffer));
        let append = Operation::Append { zone_start: Lba(64), blocks: Blocks(4), payload };
        let (mut entry, data) = world.encoded(1, &append);
        entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
        let answer = world.execute(io, entry, data);
        assert_eq!((answer.status, answer.result), (StatusCode::SUCCESS, expected));
    }
    assert_eq!(world.submitted, ["append", "flush", "append", "flush"]);
}

#[test]
fn a_device_without_volatile_cache_needs_no_flush_for_fua() {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.subsystems[0].namespaces[0].volatile_write_cache = false;
    let mut world = World::of(config);
    let io = world.io();
    let (mut entry, data) = world.encoded(1, &write(0, 2, 1));
    entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
    assert_eq!(world.execute(io, entry, data).status, StatusCode::SUCCESS);
    assert_eq!(world.submitted, ["write"]);
}

#[test]
fn compare_tells_same_from_different() {
    let mut world = World::new();
    let io = world.io();
    world.operate(io, 1, &write(0, 4, 1));
    let (mut entry, data) = world.encoded(1, &write(0, 4, 1));
    entry.opcode = IoOpcode::Compare.code();
    assert_eq!(world.execute(io, entry, data.clone()).status, StatusCode::SUCCESS);
    let mut other = data.to_vec();
    other[2047] ^= 1;
    assert_eq!(world.execute(io, entry, other.into()).status, StatusCode::COMPARE_FAILURE);
    let (mut unwritten, _) = world.encoded(1, &write(8, 2, 1));
    unwritten.opcode = IoOpcode::Compare.code();
    assert_eq!(world.execute(io, unwritten, vec![0; 1024].into()).status, StatusCode::SUCCESS);
}

#[test]
fn write_zeroes_deallocate_and_flush_do_what_they_say() {
    let mut world = World::of(config(&[conventional()], HostAccess::Any));
    let io = world.io();
    world.operate(io, 1, &write(0, 8, 1));
    let zeroes = Operation::WriteZeroes { start: Lba(0), blocks: Blocks(2) };
    assert_eq!(world.operate(io, 1, &zeroes).status, StatusCode::SUCCESS);
    let range = LbaRange { start: Lba(4), blocks: Blocks(2) };
    // As Linux does it: one range, in a page of which the rest means nothing.
    let (mut entry, data) = world.encoded(1, &Operation::Deallocate { ranges: [range].into() });
    entry.data_pointer = SglDescriptor::transport(4096);
    let mut page = data.to_vec();
    page.resize(4096, 0xee);
    assert_eq!(world.execute(io, entry, page.into()).status, StatusCode::SUCCESS);
    assert_eq!(world.operate(io, 1, &Operation::Flush).status, StatusCode::SUCCESS);
    let expected = pattern(8, 512, 1);
    let found = world.operate(io, 1, &read(0, 8)).data;
    for block in 0..8 {
        let bytes = &found[block * 512..(block + 1) * 512];
        match block {
            0 | 1 | 4 | 5 => assert_eq!(bytes, [0; 512], "block {block}"),
            _ => assert_eq!(bytes, &expected[block * 512..(block + 1) * 512], "block {block}"),
        }
    }
}

#[test]
fn metadata_travels_behind_each_block() {
    let geometry = Geometry { metadata_bytes: 8, ..zoned() };
    let mut world = World::of(config(&[geometry], HostAccess::Any));
    let io = world.io();
    let buffer = BlockBuffer { data: pattern(32, 512, 1), metadata: pattern(32, 8, 2) };
    let format = zonda_nvme::io::NamespaceFormat::of(world.target.geometry(0), 1 << 20);
    let extended = interleave(&buffer, &format);
    let payload = Payload::Bytes(Box::new(buffer));
    let write = Operation::Write { start: Lba(0), blocks: Blocks(32), payload };
    assert_eq!(world.operate(io, 1, &write).status, StatusCode::SUCCESS);
    assert_eq!(world.operate(io, 1, &read(0, 32)).data, extended);
}

#[test]
fn wrong_lengths_and_places_of_data_are_told_apart() {
    let mut world = World::new();
    let io = world.io();
    let status = |world: &mut World, operation: &Operation, pointer: SglDescriptor, capsule: &[u8]| {
        let (mut entry, _) = world.encoded(1, operation);
        entry.data_pointer = pointer;
        let command = world.start(io, entry, &Bytes::copy_from_slice(capsule));
        world.finish(io, command, Bytes::new()).status
    };
    let short = StatusCode::DATA_SGL_LENGTH_INVALID;
    assert_eq!(status(&mut world, &write(0, 2, 1), SglDescriptor::transport(512), &[]), short);
    assert_eq!(status(&mut world, &write(0, 2, 1), SglDescriptor::in_capsule(0, 1024), &[0; 512]), short);
    let beyond = SglDescriptor::in_capsule(4096, 1024);
    assert_eq!(status(&mut world, &write(0, 2, 1), beyond, &[0; 1024]), StatusCode::SGL_OFFSET_INVALID);
    assert_eq!(status(&mut world, &read(0, 2), SglDescriptor::transport(512), &[]), short);
    let inside = SglDescriptor::in_capsule(0, 1024);
    assert_eq!(status(&mut world, &read(0, 2), inside, &[]), StatusCode::SGL_DESCRIPTOR_TYPE_INVALID);
    let offset = SglDescriptor::in_capsule(512, 1024);
    assert_eq!(status(&mut world, &write(0, 2, 1), offset, &[7; 2048]), StatusCode::SUCCESS);
    assert_eq!(world.submitted, ["write"], "no device heard of the others");
}

#[test]
fn commands_to_no_namespace_and_without_a_meaning_are_refused() {
    let mut world = World::new();
    let io = world.io();
    for (namespace, expected) in [(0, StatusCode::INVALID_NAMESPACE), (2, StatusCode::INVALID_NAMESPACE)] {
        let (mut entry, _) = world.encoded(1, &read(0, 1));
        entry.namespace = u32::into(namespace);
        assert_eq!(world.execute(io, entry, Bytes::new()).status, expected);
    }
    let unknown = SubmissionEntry::new(0x19, 1);
    assert_eq!(world.execute(io, unknown, Bytes::new()).status, StatusCode::INVALID_OPCODE);
    assert_eq!(world.operate(io, 1, &read(0, 33)).status, StatusCode::INVALID_FIELD, "beyond MDTS");
}

#[test]
fn a_wrong_data_digest_fails_the_command_and_the_connection_stays() {
    let mut world = World::new();
    let (_, controller) = world.admin();
    let io = world.io_with(controller, 1, Digests { header: false, data: true }, 0);
    let (mut entry, data) = world.encoded(1, &write(0, 2, 1));
    entry.data_pointer = SglDescriptor::in_capsule(0, 1024);
    entry.command_id = 100.into();
    let wire = world.wire(io);
    wire.writer.command(&entry, &data);
    let mut bytes = wire.writer.take().concat();
    bytes[100] ^= 1;
    world.send(io, bytes.into());
    assert_eq!(world.finish(io, 100, Bytes::new()).status, StatusCode::TRANSIENT_TRANSPORT_ERROR);
    // And one whose data is asked for.
    entry.data_pointer = SglDescriptor::transport(1024);
    entry.command_id = 101.into();
    world.wire(io).writer.command(&entry, &Bytes::new());
    world.push(io);
    let Some(Pdu::ReadyToTransfer(r2t)) = world.wire(io).pdus.pop_front() else { panic!("an R2T") };
    let wire = world.wire(io);
    wire.writer.host_data(101, r2t.tag.get(), 0, &[data.slice(..512)], false);
    let mut bytes = wire.writer.take().concat();
    bytes[50] ^= 1;
    world.send(io, bytes.into());
    world.wire(io).writer.host_data(101, r2t.tag.get(), 512, &[data.slice(512..)], true);
    world.push(io);
    assert_eq!(world.finish(io, 101, Bytes::new()).status, StatusCode::TRANSIENT_TRANSPORT_ERROR);
    assert!(world.submitted.is_empty() && world.closed.is_empty());
    assert_eq!(world.operate(io, 1, &write(0, 2, 1)).status, StatusCode::SUCCESS);
    assert_eq!(world.target.statistics().data_digest_errors, 2);
}

#[test]
fn data_is_asked_for_only_as_far_as_there_is_room() {
    let change = |limits: &mut Limits| {
        limits.transfer_bytes = 16 << 10;
        limits.receive_bytes = 32 << 10;
        limits.outgoing_bytes = 32 << 10;
    };
    let mut world = World::with_limits(change);
    let io = world.io();
    world.hold = true;
    let commands: Vec<u16> = (0..4).map(|zone| world.start_write(io, zone * 64, 32)).collect();
    assert_eq!(world.asked_for(io), 2, "two transfers of 16 KiB fill 32 KiB");
    world.hold = false;
    for command in commands {
        assert!(world.finish(io, command, pattern(32, 512, 1)).status != StatusCode::INTERNAL_ERROR);
    }
    assert_eq!(world.submitted.len(), 4);
}

#[test]
fn the_head_pointer_counts_the_commands_of_the_queue() {
    let mut world = World::new();
    let (_, controller) = world.admin();
    let io = world.open();
    world.initialize(io, Digests::NONE, 0);
    world.connect_as(io, HOST, SUBSYSTEM, 1, Some(controller), 0);
    for i in 1..70u16 {
        let (entry, _) = world.encoded(1, &Operation::Flush);
        world.start(io, entry, &Bytes::new());
        let Some(Pdu::Response(entry)) = world.wire(io).pdus.pop_front() else { panic!("a response") };
        assert_eq!(entry.sq_head.get(), (1 + i) % 32);
    }
}
