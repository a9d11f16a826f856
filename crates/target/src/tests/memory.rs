//! The memory budget that all connections share.

use bytes::Bytes;
use zonda_nvme::tcp::{Digests, FatalStatus};
use zonda_nvme::{AdminOpcode, IoOpcode, SglDescriptor, StatusCode, SubmissionEntry};

use super::testbed::{Testbed, config, pattern, read, write, zoned};
use crate::limits::{STALL_INTERVAL, STALL_MAX};
use crate::{Budget, CloseReason, ConnectionId, Flow, HostAccess};

const KIB: usize = 1 << 10;

/// Transfers of at most 16 KiB, shares of 2 KiB, and a pool of 80 KiB: one connection gets 42 KiB.
pub(super) fn testbed() -> Testbed {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.limits.transfer_bytes = 16 << 10;
    config.limits.in_capsule_bytes = 4096;
    config.budget = Budget::with_share(112 * KIB, 16, 0, 2 * KIB);
    Testbed::of(config)
}

/// Sends reads of 16 KiB that the devices do not complete.
pub(super) fn start_reads(testbed: &mut Testbed, io: ConnectionId, count: usize) -> Vec<u16> {
    let reads = (0..count).map(|_| {
        let (entry, _) = testbed.encoded(1, &read(0, 32));
        testbed.start(io, entry, &Bytes::new())
    });
    reads.collect()
}

fn held_bytes(testbed: &mut Testbed) -> usize {
    testbed.target.budget_mut().held_bytes()
}

fn get_log_page(bytes: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 0);
    entry.data_pointer = SglDescriptor::transport(bytes);
    entry.cdw10 = (0x02 | (bytes / 4 - 1) << 16).into();
    entry
}

#[test]
fn a_read_is_submitted_only_when_memory_for_its_data_is_free() {
    let mut testbed = testbed();
    let io = testbed.io();
    testbed.hold = true;
    let reads = start_reads(&mut testbed, io, 4);
    assert_eq!((testbed.held.len(), held_bytes(&mut testbed)), (2, 32 * KIB), "of 42 KiB");
    assert_eq!(testbed.target.budget_mut().waits(), 1);
    assert!(!testbed.wire(io).paused, "a waiting read holds no memory, and reception continues");
    testbed.release();
    for read in reads {
        assert_eq!(testbed.finish(io, read, Bytes::new()).status, StatusCode::SUCCESS);
    }
    assert_eq!(held_bytes(&mut testbed), 0);
}

#[test]
fn a_host_that_does_not_read_its_responses_leaves_memory_for_others() {
    let mut testbed = testbed();
    let (greedy, small) = (testbed.io(), testbed.io());
    testbed.wire(greedy).frozen = true;
    start_reads(&mut testbed, greedy, 20);
    assert!(testbed.wire(greedy).unread_bytes <= 42 * KIB);
    for _ in 0..100 {
        assert_eq!(testbed.operate(small, 1, &read(0, 32)).status, StatusCode::SUCCESS);
        assert_eq!(testbed.operate(small, 1, &read(0, 4)).status, StatusCode::SUCCESS);
    }
    testbed.thaw(greedy);
    testbed.target.assert_nothing_waits();
}

#[test]
fn data_of_writes_is_solicited_only_when_memory_is_free() {
    let mut testbed = testbed();
    let io = testbed.io();
    let writes: Vec<u16> = (0..4).map(|zone| testbed.start_write(io, zone * 64, 32)).collect();
    assert_eq!(testbed.r2ts_received(io), 2);
    for write in writes {
        assert_eq!(testbed.finish(io, write, pattern(32, 512, 1)).data.len(), 0);
    }
    assert_eq!(testbed.submitted.len(), 4);
}

#[test]
fn a_command_that_returns_data_at_once_waits_and_blocks_all_that_follow() {
    let mut testbed = testbed();
    let (admin, _) = testbed.admin();
    testbed.wire(admin).frozen = true;
    while !testbed.wire(admin).paused {
        testbed.start(admin, get_log_page(8192), &Bytes::new());
    }
    assert!(testbed.wire(admin).unread_bytes <= 42 * KIB + KIB, "{}", testbed.wire(admin).unread_bytes);
    testbed.wire(admin).pdus.clear();
    let last = testbed.start(admin, get_log_page(8192), &Bytes::new());
    testbed.thaw(admin);
    assert!(!testbed.wire(admin).paused);
    assert_eq!(testbed.finish(admin, last, Bytes::new()).data.len(), 8192);
}

#[test]
fn reception_resumes_when_a_waiting_command_gets_memory() {
    let mut testbed = testbed();
    let (admin, _) = testbed.admin();
    // Other users of the budget hold the pool, and release it without notifying the target.
    testbed.target.budget_mut().set_outside(80 * KIB);
    let first = testbed.start(admin, get_log_page(8192), &Bytes::new());
    assert!(testbed.wire(admin).paused);
    testbed.target.budget_mut().set_outside(0);
    let second = testbed.start(admin, get_log_page(4096), &Bytes::new());
    assert_eq!(testbed.finish(admin, first, Bytes::new()).data.len(), 8192);
    assert_eq!(testbed.finish(admin, second, Bytes::new()).data.len(), 4096);
    testbed.target.resume(testbed.now);
    testbed.run_until_idle();
    assert!(!testbed.wire(admin).paused);
    testbed.target.assert_nothing_waits();
}

#[test]
fn a_waiting_command_never_blocks_solicited_data() {
    let mut testbed = testbed();
    let (other, io) = (testbed.io(), testbed.io());
    let (entry, _) = testbed.encoded(1, &write(0, 32, 1));
    let waiting = testbed.start(io, entry, &Bytes::new());
    testbed.wire(other).frozen = true;
    start_reads(&mut testbed, other, 20);
    // In the stream before the data: a report for which there is no memory, and a write with
    // in-capsule data.
    let mut report = SubmissionEntry::new(IoOpcode::ReservationReport.code(), 1);
    report.data_pointer = SglDescriptor::transport(16 << 10);
    (report.cdw10, report.cdw11) = (4095.into(), 1.into());
    assert_eq!(testbed.execute(io, report, Bytes::new()).status, StatusCode::COMMAND_INTERRUPTED);
    let (entry, data) = testbed.encoded(1, &write(64, 8, 1));
    assert_eq!(testbed.execute_in_capsule(io, entry, data).status, StatusCode::SUCCESS);
    assert_eq!(testbed.finish(io, waiting, pattern(32, 512, 1)).status, StatusCode::SUCCESS);
    assert_eq!(testbed.execute(io, report, Bytes::new()).status, StatusCode::SUCCESS, "now it can wait");
}

#[test]
fn device_commands_of_a_closed_connection_hold_memory_until_they_complete() {
    let mut testbed = testbed();
    let io = testbed.io();
    testbed.hold = true;
    start_reads(&mut testbed, io, 2);
    let (entry, data) = testbed.encoded(1, &write(0, 8, 1));
    let mut entry = entry;
    entry.data_pointer = SglDescriptor::in_capsule(0, 4096);
    testbed.start(io, entry, &data);
    testbed.close_socket(io);
    // Commands that have not been submitted must not be submitted any more.
    assert_eq!(testbed.abandoned, [Flow { group: 0xc000_0209, queue: io.0 }]);
    assert_eq!(held_bytes(&mut testbed), 36 * KIB);
    testbed.release();
    assert_eq!(held_bytes(&mut testbed), 0);
}

#[test]
fn a_host_may_send_no_more_than_the_solicited_data() {
    let mut testbed = testbed();
    let io = testbed.io();
    testbed.wire(io).writer.host_data(1, 0, 0, &[vec![0; 12 << 10].into()], true);
    let head = testbed.wire(io).writer.take().concat();
    testbed.send(io, Bytes::copy_from_slice(&head[..24]));
    let CloseReason::Protocol(error) = &testbed.closed[&io] else { panic!("{:?}", testbed.closed) };
    assert_eq!(error.status, FatalStatus::DataLimitExceeded, "before any of the data is buffered");
}

#[test]
fn while_others_wait_a_connection_that_holds_memory_and_makes_no_progress_is_closed() {
    let mut testbed = testbed();
    let hosts = [0; 4].map(|_| {
        let (admin, controller) = testbed.admin();
        (admin, testbed.io_with(controller, 1, Digests::NONE, 0))
    });
    let [silent, mute, slow, busy] = hosts.map(|(_, io)| io);
    let pass = |testbed: &mut Testbed| {
        for _ in 0..=STALL_MAX.as_nanos() / STALL_INTERVAL.as_nanos() {
            testbed.pass(STALL_INTERVAL);
            for (admin, _) in hosts {
                let keep_alive = SubmissionEntry::new(AdminOpcode::KeepAlive.code(), 0);
                testbed.execute(admin, keep_alive, Bytes::new());
            }
            // A host that reads little, and one that reads next to nothing.
            for (host, bytes) in [(busy, 500), (slow, 1)] {
                let Some(wire) = testbed.wires.get_mut(&host) else { continue };
                let read = wire.unread_bytes.min(bytes);
                wire.unread_bytes -= read;
                testbed.target.on_sent(testbed.now, host, read);
                testbed.run_until_idle();
            }
        }
    };
    for host in [silent, slow] {
        testbed.wire(host).frozen = true;
        start_reads(&mut testbed, host, 1);
    }
    let (entry, _) = testbed.encoded(1, &write(0, 32, 1));
    testbed.start(mute, entry, &Bytes::new());
    pass(&mut testbed);
    assert!(testbed.closed.is_empty(), "no connection waits");

    testbed.wire(busy).frozen = true;
    start_reads(&mut testbed, busy, 3);
    pass(&mut testbed);
    for host in [silent, mute, slow] {
        assert_eq!(testbed.closed.get(&host), Some(&CloseReason::Stalled));
    }
    assert!(!testbed.closed.contains_key(&busy));
}

#[test]
fn a_budget_too_small_for_the_longest_command_is_refused() {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.budget = Budget::with_share(4 << 20, 16, 0, 2 * KIB);
    let error = crate::Target::new(config).expect_err("a compare of 1 MiB with metadata takes 2.25 MiB");
    assert_eq!(error.subject, "budget");
}
