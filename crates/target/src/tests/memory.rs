//! Memory that all connections share.

use bytes::Bytes;
use zonda_nvme::tcp::{Digests, FatalStatus};
use zonda_nvme::{AdminOpcode, IoOpcode, SglDescriptor, StatusCode, SubmissionEntry};

use super::world::{World, config, pattern, read, write, zoned};
use crate::limits::{STALL_INTERVAL, STALL_MAX};
use crate::{Budget, CloseReason, ConnectionId, Flow, HostAccess};

const KIB: usize = 1 << 10;

/// Transfers of at most 16 KiB, shares of 2 KiB, and a pool of 80 KiB: one connection gets 42 KiB.
pub(super) fn world() -> World {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.limits.transfer_bytes = 16 << 10;
    config.limits.in_capsule_bytes = 4096;
    config.budget = Budget::with_share(112 * KIB, 16, 0, 2 * KIB);
    World::of(config)
}

/// Sends reads of 16 KiB that the devices do not answer.
pub(super) fn start_reads(world: &mut World, io: ConnectionId, count: usize) -> Vec<u16> {
    let reads = (0..count).map(|_| {
        let (entry, _) = world.encoded(1, &read(0, 32));
        world.start(io, entry, &Bytes::new())
    });
    reads.collect()
}

fn held_bytes(world: &mut World) -> usize {
    world.target.budget_mut().held_bytes()
}

fn get_log_page(bytes: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 0);
    entry.data_pointer = SglDescriptor::transport(bytes);
    entry.cdw10 = (0x02 | (bytes / 4 - 1) << 16).into();
    entry
}

#[test]
fn a_read_is_given_to_the_device_only_when_there_is_room_for_its_data() {
    let mut world = world();
    let io = world.io();
    world.hold = true;
    let reads = start_reads(&mut world, io, 4);
    assert_eq!((world.held.len(), held_bytes(&mut world)), (2, 32 * KIB), "of 42 KiB");
    assert_eq!(world.target.budget_mut().waits(), 1);
    assert!(!world.wire(io).paused, "a read that waits holds nothing, and the connection is read on");
    world.release();
    for read in reads {
        assert_eq!(world.finish(io, read, Bytes::new()).status, StatusCode::SUCCESS);
    }
    assert_eq!(held_bytes(&mut world), 0);
}

#[test]
fn a_host_that_does_not_read_its_answers_leaves_room_for_others() {
    let mut world = world();
    let (greedy, small) = (world.io(), world.io());
    world.wire(greedy).frozen = true;
    start_reads(&mut world, greedy, 20);
    assert!(world.wire(greedy).unread_bytes <= 42 * KIB);
    for _ in 0..100 {
        assert_eq!(world.operate(small, 1, &read(0, 32)).status, StatusCode::SUCCESS);
        assert_eq!(world.operate(small, 1, &read(0, 4)).status, StatusCode::SUCCESS);
    }
    world.thaw(greedy);
    world.target.assert_nothing_waits();
}

#[test]
fn data_of_writes_are_asked_for_only_when_there_is_room_for_them() {
    let mut world = world();
    let io = world.io();
    let writes: Vec<u16> = (0..4).map(|zone| world.start_write(io, zone * 64, 32)).collect();
    assert_eq!(world.asked_for(io), 2);
    for write in writes {
        assert_eq!(world.finish(io, write, pattern(32, 512, 1)).data.len(), 0);
    }
    assert_eq!(world.submitted.len(), 4);
}

#[test]
fn a_command_that_is_answered_at_once_waits_with_all_that_is_behind_it() {
    let mut world = world();
    let (admin, _) = world.admin();
    world.wire(admin).frozen = true;
    while !world.wire(admin).paused {
        world.start(admin, get_log_page(8192), &Bytes::new());
    }
    assert!(world.wire(admin).unread_bytes <= 42 * KIB + KIB, "{}", world.wire(admin).unread_bytes);
    world.wire(admin).pdus.clear();
    let last = world.start(admin, get_log_page(8192), &Bytes::new());
    world.thaw(admin);
    assert!(!world.wire(admin).paused);
    assert_eq!(world.finish(admin, last, Bytes::new()).data.len(), 8192);
}

#[test]
fn a_connection_whose_command_finds_memory_as_more_of_it_comes_is_read_again() {
    let mut world = world();
    let (admin, _) = world.admin();
    // Others of the same server hold the pool, and release it without a word to the target.
    world.target.budget_mut().set_outside(80 * KIB);
    let first = world.start(admin, get_log_page(8192), &Bytes::new());
    assert!(world.wire(admin).paused);
    world.target.budget_mut().set_outside(0);
    let second = world.start(admin, get_log_page(4096), &Bytes::new());
    assert_eq!(world.finish(admin, first, Bytes::new()).data.len(), 8192);
    assert_eq!(world.finish(admin, second, Bytes::new()).data.len(), 4096);
    world.target.resume(world.now);
    world.settle();
    assert!(!world.wire(admin).paused);
    world.target.assert_nothing_waits();
}

#[test]
fn a_command_never_keeps_data_from_coming_that_were_asked_for() {
    let mut world = world();
    let (other, io) = (world.io(), world.io());
    let (entry, _) = world.encoded(1, &write(0, 32, 1));
    let waiting = world.start(io, entry, &Bytes::new());
    world.wire(other).frozen = true;
    start_reads(&mut world, other, 20);
    // In the stream before the data: a report that finds no memory, and a write in a capsule.
    let mut report = SubmissionEntry::new(IoOpcode::ReservationReport.code(), 1);
    report.data_pointer = SglDescriptor::transport(16 << 10);
    (report.cdw10, report.cdw11) = (4095.into(), 1.into());
    assert_eq!(world.execute(io, report, Bytes::new()).status, StatusCode::COMMAND_INTERRUPTED);
    let (entry, data) = world.encoded(1, &write(64, 8, 1));
    assert_eq!(world.execute_in_capsule(io, entry, data).status, StatusCode::SUCCESS);
    assert_eq!(world.finish(io, waiting, pattern(32, 512, 1)).status, StatusCode::SUCCESS);
    assert_eq!(world.execute(io, report, Bytes::new()).status, StatusCode::SUCCESS, "now it can wait");
}

#[test]
fn what_a_device_does_for_a_connection_that_is_gone_counts_until_it_ends() {
    let mut world = world();
    let io = world.io();
    world.hold = true;
    start_reads(&mut world, io, 2);
    let (entry, data) = world.encoded(1, &write(0, 8, 1));
    let mut entry = entry;
    entry.data_pointer = SglDescriptor::in_capsule(0, 4096);
    world.start(io, entry, &data);
    world.vanish(io);
    // Those that a device has not been given are not to be given to it any more.
    assert_eq!(world.abandoned, [Flow { group: 0xc000_0209, queue: io.0 }]);
    assert_eq!(held_bytes(&mut world), 36 * KIB);
    world.release();
    assert_eq!(held_bytes(&mut world), 0);
}

#[test]
fn a_host_may_send_no_more_data_than_it_was_asked_for() {
    let mut world = world();
    let io = world.io();
    world.wire(io).writer.host_data(1, 0, 0, &[vec![0; 12 << 10].into()], true);
    let head = world.wire(io).writer.take().concat();
    world.send(io, Bytes::copy_from_slice(&head[..24]));
    let CloseReason::Protocol(error) = &world.closed[&io] else { panic!("{:?}", world.closed) };
    assert_eq!(error.status, FatalStatus::DataLimitExceeded, "before any of the data is kept");
}

#[test]
fn while_others_wait_a_connection_that_holds_memory_and_makes_no_progress_is_closed() {
    let mut world = world();
    let hosts = [0; 4].map(|_| {
        let (admin, controller) = world.admin();
        (admin, world.io_with(controller, 1, Digests::NONE, 0))
    });
    let [silent, mute, slow, busy] = hosts.map(|(_, io)| io);
    let pass = |world: &mut World| {
        for _ in 0..=STALL_MAX.as_nanos() / STALL_INTERVAL.as_nanos() {
            world.pass(STALL_INTERVAL);
            for (admin, _) in hosts {
                let keep_alive = SubmissionEntry::new(AdminOpcode::KeepAlive.code(), 0);
                world.execute(admin, keep_alive, Bytes::new());
            }
            // A host that reads, though little, and one that reads next to nothing.
            for (host, bytes) in [(busy, 500), (slow, 1)] {
                let Some(wire) = world.wires.get_mut(&host) else { continue };
                let read = wire.unread_bytes.min(bytes);
                wire.unread_bytes -= read;
                world.target.sent(world.now, host, read);
                world.settle();
            }
        }
    };
    for host in [silent, slow] {
        world.wire(host).frozen = true;
        start_reads(&mut world, host, 1);
    }
    let (entry, _) = world.encoded(1, &write(0, 32, 1));
    world.start(mute, entry, &Bytes::new());
    pass(&mut world);
    assert!(world.closed.is_empty(), "no connection waits");

    world.wire(busy).frozen = true;
    start_reads(&mut world, busy, 3);
    pass(&mut world);
    for host in [silent, mute, slow] {
        assert_eq!(world.closed.get(&host), Some(&CloseReason::Stalled));
    }
    assert!(!world.closed.contains_key(&busy));
}

#[test]
fn a_budget_without_room_for_the_longest_command_is_refused() {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.budget = Budget::with_share(4 << 20, 16, 0, 2 * KIB);
    let error = crate::Target::new(config).expect_err("a compare of 1 MiB with metadata takes 2.25 MiB");
    assert_eq!(error.subject, "budget");
}
