//! Reads, writes and similar commands, with every kind of data transfer.

use bytes::Bytes;
use zonda_nvme::fabrics::ConnectCommand;
use zonda_nvme::io::interleave;
use zonda_nvme::tcp::{Digests, Pdu};
use zonda_nvme::{IoOpcode, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{BlockBuffer, Blocks, Geometry, Lba, LbaRange, Operation, Payload};

use super::testbed::{HOST, SUBSYSTEM, Testbed, config, conventional, pattern, read, write, zoned};
use crate::{HostAccess, Limits};

#[test]
fn in_capsule_data_is_written_and_read_back() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let mut testbed = Testbed::new();
        let (_, controller) = testbed.admin_with(digests);
        let io = testbed.io_with(controller, 1, digests, 0);
        let (entry, data) = testbed.encoded(1, &write(0, 16, 3));
        assert_eq!(testbed.execute_in_capsule(io, entry, data).status, StatusCode::SUCCESS);
        let answer = testbed.operate(io, 1, &read(0, 16));
        assert_eq!((answer.status, &answer.data[..]), (StatusCode::SUCCESS, &pattern(16, 512, 3)[..]));
        assert!(!answer.without_capsule, "SQ flow control is enabled");
    }
}

#[test]
fn solicited_data_is_written_and_read_back() {
    for digests in [Digests::NONE, Digests::BOTH] {
        let mut testbed = Testbed::new();
        let (_, controller) = testbed.admin_with(digests);
        let io = testbed.io_with(controller, 1, digests, 0);
        assert_eq!(testbed.operate(io, 1, &write(0, 32, 4)).status, StatusCode::SUCCESS);
        assert_eq!(testbed.operate(io, 1, &read(0, 32)).data, pattern(32, 512, 4));
        assert_eq!(testbed.target.statistics().bytes_received, 32 * 512);
    }
}

#[test]
fn unwritten_blocks_read_as_zeros() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    assert_eq!(testbed.operate(io, 1, &read(5, 3)).data, vec![0; 3 * 512]);
}

#[test]
fn a_read_is_not_copied() {
    let mut testbed = Testbed::new();
    let (_, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.hold = true;
    let (entry, _) = testbed.encoded(1, &read(0, 32));
    testbed.start(io, entry, &Bytes::new());
    let (device, command) = testbed.held.pop_front().unwrap();
    let data = pattern(32, 512, 1);
    let payload = Payload::Bytes(Box::new(BlockBuffer { data: data.clone(), metadata: Bytes::new() }));
    let completion = zonda_zoned::Completion {
        id: command.id,
        status: zonda_zoned::Status::Success,
        outcome: zonda_zoned::Outcome::Data(payload),
    };
    testbed.target.on_completion(testbed.now, device, completion);
    let Some(crate::Effect::Send { pieces, .. }) = testbed.target.poll_effect() else { panic!("a Send") };
    assert_eq!(pieces.len(), 3, "header, data, response");
    assert_eq!(pieces[1].as_ptr(), data.as_ptr());
}

#[test]
fn without_flow_control_read_data_replaces_the_response() {
    let mut testbed = Testbed::new();
    let (_, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::BOTH, ConnectCommand::DISABLE_FLOW_CONTROL);
    let answer = testbed.operate(io, 1, &read(0, 8));
    assert!(answer.without_capsule && answer.data.len() == 8 * 512);
    assert!(!testbed.operate(io, 1, &write(0, 8, 1)).without_capsule);
}

#[test]
fn concurrent_commands_complete_each_with_its_own_response() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.hold = true;
    let commands: Vec<u16> = (0..31)
        .map(|i| {
            let (entry, _) = testbed.encoded(1, &read(i, 1 + i % 4));
            testbed.start(io, entry, &Bytes::new())
        })
        .collect();
    assert_eq!(testbed.held.len(), 31);
    testbed.held.make_contiguous().reverse();
    testbed.release();
    for (i, command) in commands.into_iter().enumerate() {
        let answer = testbed.finish(io, command, Bytes::new());
        assert_eq!((answer.status, answer.data.len()), (StatusCode::SUCCESS, (1 + i % 4) * 512));
    }
}

#[test]
fn a_write_with_fua_is_flushed_before_it_completes_and_a_read_with_fua_is_preceded_by_a_flush() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    let fua = 1u32 << 30;
    let (mut entry, data) = testbed.encoded(1, &write(0, 2, 1));
    entry.cdw12 = (entry.cdw12.get() | fua).into();
    assert_eq!(testbed.execute(io, entry, data).status, StatusCode::SUCCESS);
    let (mut entry, _) = testbed.encoded(1, &read(0, 2));
    entry.cdw12 = (entry.cdw12.get() | fua).into();
    assert_eq!(testbed.execute(io, entry, Bytes::new()).data, pattern(2, 512, 1));
    let (mut entry, data) = testbed.encoded(1, &write(0, 2, 1));
    entry.opcode = IoOpcode::Compare.code();
    entry.cdw12 = (entry.cdw12.get() | fua).into();
    assert_eq!(testbed.execute(io, entry, data).status, StatusCode::SUCCESS);
    assert_eq!(testbed.submitted, ["write", "flush", "flush", "read", "flush", "read"]);
}

#[test]
fn an_append_with_fua_returns_its_lba_after_the_flush() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    for expected in [64, 68] {
        let buffer = BlockBuffer { data: pattern(4, 512, 1), metadata: Bytes::new() };
        let payload = Payload::Bytes(Box::new(buffer));
        let append = Operation::Append { zone_start: Lba(64), blocks: Blocks(4), payload };
        let (mut entry, data) = testbed.encoded(1, &append);
        entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
        let answer = testbed.execute(io, entry, data);
        assert_eq!((answer.status, answer.result), (StatusCode::SUCCESS, expected));
    }
    assert_eq!(testbed.submitted, ["append", "flush", "append", "flush"]);
}

#[test]
fn a_device_without_volatile_cache_needs_no_flush_for_fua() {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.subsystems[0].namespaces[0].volatile_write_cache = false;
    let mut testbed = Testbed::of(config);
    let io = testbed.io();
    let (mut entry, data) = testbed.encoded(1, &write(0, 2, 1));
    entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
    assert_eq!(testbed.execute(io, entry, data).status, StatusCode::SUCCESS);
    assert_eq!(testbed.submitted, ["write"]);
}

#[test]
fn compare_distinguishes_equal_from_different_data() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.operate(io, 1, &write(0, 4, 1));
    let (mut entry, data) = testbed.encoded(1, &write(0, 4, 1));
    entry.opcode = IoOpcode::Compare.code();
    assert_eq!(testbed.execute(io, entry, data.clone()).status, StatusCode::SUCCESS);
    let mut other = data.to_vec();
    other[2047] ^= 1;
    assert_eq!(testbed.execute(io, entry, other.into()).status, StatusCode::COMPARE_FAILURE);
    let (mut unwritten, _) = testbed.encoded(1, &write(8, 2, 1));
    unwritten.opcode = IoOpcode::Compare.code();
    assert_eq!(testbed.execute(io, unwritten, vec![0; 1024].into()).status, StatusCode::SUCCESS);
}

#[test]
fn write_zeroes_deallocate_and_flush_work() {
    let mut testbed = Testbed::of(config(&[conventional()], HostAccess::Any));
    let io = testbed.io();
    testbed.operate(io, 1, &write(0, 8, 1));
    let zeroes = Operation::WriteZeroes { start: Lba(0), blocks: Blocks(2) };
    assert_eq!(testbed.operate(io, 1, &zeroes).status, StatusCode::SUCCESS);
    let range = LbaRange { start: Lba(4), blocks: Blocks(2) };
    // As Linux does it: one range, in a page of which the rest is ignored.
    let (mut entry, data) = testbed.encoded(1, &Operation::Deallocate { ranges: [range].into() });
    entry.data_pointer = SglDescriptor::transport(4096);
    let mut page = data.to_vec();
    page.resize(4096, 0xee);
    assert_eq!(testbed.execute(io, entry, page.into()).status, StatusCode::SUCCESS);
    assert_eq!(testbed.operate(io, 1, &Operation::Flush).status, StatusCode::SUCCESS);
    let expected = pattern(8, 512, 1);
    let found = testbed.operate(io, 1, &read(0, 8)).data;
    for block in 0..8 {
        let bytes = &found[block * 512..(block + 1) * 512];
        match block {
            0 | 1 | 4 | 5 => assert_eq!(bytes, [0; 512], "block {block}"),
            _ => assert_eq!(bytes, &expected[block * 512..(block + 1) * 512], "block {block}"),
        }
    }
}

#[test]
fn metadata_is_transferred_after_each_block() {
    let geometry = Geometry { metadata_bytes: 8, ..zoned() };
    let mut testbed = Testbed::of(config(&[geometry], HostAccess::Any));
    let io = testbed.io();
    let buffer = BlockBuffer { data: pattern(32, 512, 1), metadata: pattern(32, 8, 2) };
    let format = zonda_nvme::io::NamespaceFormat::of(&testbed.geometry(1), 1 << 20);
    let extended = interleave(&buffer, &format);
    let payload = Payload::Bytes(Box::new(buffer));
    let write = Operation::Write { start: Lba(0), blocks: Blocks(32), payload };
    assert_eq!(testbed.operate(io, 1, &write).status, StatusCode::SUCCESS);
    assert_eq!(testbed.operate(io, 1, &read(0, 32)).data, extended);
}

#[test]
fn wrong_lengths_and_sgl_types_have_distinct_statuses() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    let status = |testbed: &mut Testbed, operation: &Operation, pointer: SglDescriptor, capsule: &[u8]| {
        let (mut entry, _) = testbed.encoded(1, operation);
        entry.data_pointer = pointer;
        let command = testbed.start(io, entry, &Bytes::copy_from_slice(capsule));
        testbed.finish(io, command, Bytes::new()).status
    };
    let short = StatusCode::DATA_SGL_LENGTH_INVALID;
    assert_eq!(status(&mut testbed, &write(0, 2, 1), SglDescriptor::transport(512), &[]), short);
    assert_eq!(status(&mut testbed, &write(0, 2, 1), SglDescriptor::in_capsule(0, 1024), &[0; 512]), short);
    let beyond = SglDescriptor::in_capsule(4096, 1024);
    assert_eq!(status(&mut testbed, &write(0, 2, 1), beyond, &[0; 1024]), StatusCode::SGL_OFFSET_INVALID);
    assert_eq!(status(&mut testbed, &read(0, 2), SglDescriptor::transport(512), &[]), short);
    let inside = SglDescriptor::in_capsule(0, 1024);
    assert_eq!(status(&mut testbed, &read(0, 2), inside, &[]), StatusCode::SGL_DESCRIPTOR_TYPE_INVALID);
    let offset = SglDescriptor::in_capsule(512, 1024);
    assert_eq!(status(&mut testbed, &write(0, 2, 1), offset, &[7; 2048]), StatusCode::SUCCESS);
    assert_eq!(testbed.submitted, ["write"], "no other command is submitted to a device");
}

#[test]
fn commands_with_an_invalid_namespace_or_opcode_are_refused() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    for (namespace, expected) in [(0, StatusCode::INVALID_NAMESPACE), (2, StatusCode::INVALID_NAMESPACE)] {
        let (mut entry, _) = testbed.encoded(1, &read(0, 1));
        entry.namespace = u32::into(namespace);
        assert_eq!(testbed.execute(io, entry, Bytes::new()).status, expected);
    }
    let unknown = SubmissionEntry::new(0x19, 1);
    assert_eq!(testbed.execute(io, unknown, Bytes::new()).status, StatusCode::INVALID_OPCODE);
    assert_eq!(testbed.operate(io, 1, &read(0, 33)).status, StatusCode::INVALID_FIELD, "beyond MDTS");
}

#[test]
fn a_wrong_data_digest_fails_the_command_and_the_connection_stays() {
    let mut testbed = Testbed::new();
    let (_, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests { header: false, data: true }, 0);
    let (mut entry, data) = testbed.encoded(1, &write(0, 2, 1));
    entry.data_pointer = SglDescriptor::in_capsule(0, 1024);
    entry.command_id = 100.into();
    let wire = testbed.wire(io);
    wire.writer.command(&entry, &data);
    let mut bytes = wire.writer.take().concat();
    bytes[100] ^= 1;
    testbed.send(io, bytes.into());
    assert_eq!(testbed.finish(io, 100, Bytes::new()).status, StatusCode::TRANSIENT_TRANSPORT_ERROR);
    // And one whose data is solicited.
    entry.data_pointer = SglDescriptor::transport(1024);
    entry.command_id = 101.into();
    testbed.wire(io).writer.command(&entry, &Bytes::new());
    testbed.push(io);
    let Some(Pdu::ReadyToTransfer(r2t)) = testbed.wire(io).pdus.pop_front() else { panic!("an R2T") };
    let wire = testbed.wire(io);
    wire.writer.host_data(101, r2t.tag.get(), 0, &[data.slice(..512)], false);
    let mut bytes = wire.writer.take().concat();
    bytes[50] ^= 1;
    testbed.send(io, bytes.into());
    testbed.wire(io).writer.host_data(101, r2t.tag.get(), 512, &[data.slice(512..)], true);
    testbed.push(io);
    assert_eq!(testbed.finish(io, 101, Bytes::new()).status, StatusCode::TRANSIENT_TRANSPORT_ERROR);
    assert!(testbed.submitted.is_empty() && testbed.closed.is_empty());
    assert_eq!(testbed.operate(io, 1, &write(0, 2, 1)).status, StatusCode::SUCCESS);
    assert_eq!(testbed.target.statistics().data_digest_errors, 2);
}

#[test]
fn data_is_solicited_only_as_far_as_memory_is_free() {
    let change = |limits: &mut Limits| {
        limits.transfer_bytes = 16 << 10;
        limits.receive_bytes = 32 << 10;
        limits.outgoing_bytes = 32 << 10;
    };
    let mut testbed = Testbed::with_limits(change);
    let io = testbed.io();
    testbed.hold = true;
    let commands: Vec<u16> = (0..4).map(|zone| testbed.start_write(io, zone * 64, 32)).collect();
    assert_eq!(testbed.r2ts_received(io), 2, "two transfers of 16 KiB fill 32 KiB");
    testbed.hold = false;
    for command in commands {
        assert!(testbed.finish(io, command, pattern(32, 512, 1)).status != StatusCode::INTERNAL_ERROR);
    }
    assert_eq!(testbed.submitted.len(), 4);
}

#[test]
fn the_head_pointer_counts_the_commands_of_the_queue() {
    let mut testbed = Testbed::new();
    let (_, controller) = testbed.admin();
    let io = testbed.open();
    testbed.initialize(io, Digests::NONE, 0);
    testbed.connect_as(io, HOST, SUBSYSTEM, 1, Some(controller), 0);
    for i in 1..70u16 {
        let (entry, _) = testbed.encoded(1, &Operation::Flush);
        testbed.start(io, entry, &Bytes::new());
        let Some(Pdu::Response(entry)) = testbed.wire(io).pdus.pop_front() else { panic!("a response") };
        assert_eq!(entry.sq_head.get(), (1 + i) % 32);
    }
}
