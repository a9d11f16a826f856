//! Several hosts that send many commands at once, in any order, and connect and disconnect;
//! invariants are checked after each event.

use bytes::Bytes;
use zonda_nvme::tcp::{Digests, Pdu};
use zonda_nvme::{AdminOpcode, IoOpcode, SglDescriptor, SubmissionEntry};
use zonda_zoned::{Blocks, Duration, Lba, Operation, Prng, ReportFilter};

use super::random_changes::{Changes, reserve};
use super::testbed::{Testbed, config, pattern, read, write, zoned};
use crate::{Budget, ConnectionId, DeviceKey, HostAccess};

/// A host's controller and its I/O queues.
struct Host {
    admin: ConnectionId,
    queues: Vec<ConnectionId>,
}

fn appear(testbed: &mut Testbed, prng: &mut Prng) -> Host {
    let held = std::mem::replace(&mut testbed.hold, false);
    let digests = Digests::from_code(prng.below(4) as u8);
    let (admin, controller) = testbed.admin_with(digests);
    let queues = (1..=1 + prng.below(3) as u16)
        .map(|queue| testbed.io_with(controller, queue, digests, 4 * prng.below(2) as u8))
        .collect();
    testbed.hold = held;
    Host { admin, queues }
}

fn operation(prng: &mut Prng) -> Operation {
    let lba = prng.below(520);
    let blocks = 1 + prng.below(33);
    match prng.below(7) {
        0 | 1 => read(lba, blocks),
        2 | 3 => write(lba / 8 * 8, blocks, lba as u8),
        4 => Operation::Flush,
        5 => Operation::WriteZeroes { start: Lba(lba), blocks: Blocks(blocks) },
        _ => Operation::ReportZones {
            start: Lba(lba),
            filter: ReportFilter::All,
            extended: false,
            partial: prng.chance(1, 2),
            descriptors_max: prng.below(9) as u32,
        },
    }
}

/// Answers one of the R2Ts that a host has received, completely or in part.
fn answer(testbed: &mut Testbed, id: ConnectionId) {
    let wire = testbed.wire(id);
    let Some(place) = wire.pdus.iter().position(|pdu| matches!(pdu, Pdu::ReadyToTransfer(_))) else {
        wire.pdus.clear();
        return;
    };
    let Some(Pdu::ReadyToTransfer(r2t)) = wire.pdus.remove(place) else { unreachable!() };
    let data = pattern(1, r2t.length.get() as usize, 3);
    let half = data.len() / 2;
    let (command, tag) = (r2t.command_id.get(), r2t.tag.get());
    wire.writer.host_data(command, tag, 0, &[data.slice(..half)], false);
    wire.writer.host_data(command, tag, half as u32, &[data.slice(half..)], true);
    testbed.push(id);
}

fn run(seed: u64) -> (u64, u64) {
    run_within(seed, Budget::unlimited(), None).0
}

/// Returns the numbers of commands and errors, and how often a request has waited for memory.
fn run_within(seed: u64, budget: Budget, mut changes: Option<Changes>) -> ((u64, u64), u64) {
    let mut prng = Prng::new(seed);
    let mut config = config(&[zoned()], HostAccess::Any);
    config.budget = budget;
    config.limits.transfer_bytes = 16 << 10;
    config.limits.receive_bytes = 40 << 10;
    config.limits.outgoing_bytes = 40 << 10;
    config.limits.in_capsule_bytes = 4096;
    let mut testbed = Testbed::of(config);
    let mut hosts: Vec<Host> = Vec::new();
    testbed.hold_saves = changes.is_some();
    for _ in 0..600 {
        if hosts.is_empty() || (hosts.len() < 4 && prng.chance(1, 20)) {
            hosts.push(appear(&mut testbed, &mut prng));
        }
        let which = prng.below(hosts.len() as u64) as usize;
        let queue = *prng.pick(&hosts[which].queues).expect("a host has queues");
        let gone = testbed.closed.contains_key(&hosts[which].admin) || testbed.closed.contains_key(&queue);
        match prng.below(40) {
            _ if gone => {
                let admin = hosts.remove(which).admin;
                testbed.close_socket(admin);
            }
            0 => {
                let host = hosts.remove(which);
                // Its queues are closed in any order.
                let first = if prng.chance(1, 2) { host.admin } else { queue };
                testbed.close_socket(first);
                testbed.close_socket(host.admin);
            }
            1 => testbed.wire(queue).frozen = true,
            2 if testbed.wire(queue).frozen => testbed.thaw(queue),
            3 => testbed.hold = !testbed.hold,
            4 => testbed.target.on_zones_changed(testbed.now, DeviceKey(0)),
            5 => {
                let request = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
                testbed.start(hosts[which].admin, request, &Bytes::new());
            }
            6..=12 => answer(&mut testbed, queue),
            13..=20 if !testbed.held.is_empty() => {
                let place = prng.below(testbed.held.len() as u64) as usize;
                let (device, command) = testbed.held.remove(place).expect("the index is valid");
                testbed.complete(device, &command);
                testbed.run_until_idle();
            }
            21 => testbed.pass(Duration::from_millis(prng.below(900))),
            // Other users of the budget hold memory, and release it.
            22 => testbed.target.budget_mut().set_outside(prng.below(80 << 10) as usize),
            23 => {
                testbed.target.resume(testbed.now);
                testbed.run_until_idle();
            }
            24..=26 if changes.is_some() => {
                let changes = changes.as_mut().expect("it was just checked");
                changes.step(&mut testbed, &mut prng);
                let admin = hosts[which].admin;
                if changes.checks_view && !testbed.closed.contains_key(&admin) && !testbed.target.is_draining(admin) {
                    testbed.assert_view_of(admin, changes.subsystem(&testbed));
                }
            }
            27 if changes.is_some() => reserve(&mut testbed, queue, &mut prng),
            _ => {
                let namespace = if changes.is_some() { 1 + prng.below(4) as u32 } else { 1 };
                let (mut entry, mut data) = testbed.encoded(namespace, &operation(&mut prng));
                if matches!(entry.opcode, 0x01 | 0x02) && prng.chance(1, 4) {
                    entry.cdw12 = (entry.cdw12.get() | 1 << 30).into();
                }
                if entry.opcode == IoOpcode::Write.code() && prng.chance(1, 8) {
                    entry.opcode = IoOpcode::Compare.code();
                }
                if !data.is_empty() && data.len() <= 4096 && prng.chance(1, 2) {
                    entry.data_pointer = SglDescriptor::in_capsule(0, data.len() as u32);
                } else {
                    data = Bytes::new();
                }
                testbed.start(queue, entry, &data);
            }
        }
    }
    testbed.target.budget_mut().set_outside(0);
    if changes.is_some() {
        Changes::finish(&mut testbed);
    }
    testbed.release();
    testbed.target.resume(testbed.now);
    testbed.run_until_idle();
    // Hosts that read, and send solicited data, get completions for all their commands.
    for queue in hosts.iter().flat_map(|host| &host.queues) {
        if !testbed.closed.contains_key(queue) {
            testbed.thaw(*queue);
        }
    }
    while let Some(&queue) = hosts.iter().flat_map(|host| &host.queues).find(|queue| {
        let asked = |pdu: &Pdu| matches!(pdu, Pdu::ReadyToTransfer(_));
        !testbed.closed.contains_key(queue) && testbed.wires[queue].pdus.iter().any(asked)
    }) {
        answer(&mut testbed, queue);
    }
    testbed.target.assert_nothing_waits();
    let commands = testbed.target.statistics().commands;
    let errors = testbed.target.statistics().errors;
    for host in hosts {
        testbed.close_socket(host.admin);
    }
    let statistics = testbed.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers, statistics.commands_at_devices), (0, 0, 0));
    assert!(testbed.target.next_timeout().is_none() && testbed.target.poll_effect().is_none());
    assert_eq!(testbed.target.budget_mut().held_bytes(), 0);
    ((commands, errors), testbed.target.budget_mut().waits())
}

#[test]
fn with_little_memory_every_request_of_many_hosts_still_completes() {
    let mut waits = 0;
    for seed in 0..60 {
        // A share of two small commands each, and one transfer of 16 KiB from the pool at a time.
        waits += run_within(seed, Budget::with_share(112 << 10, 16, 0, 2048), None).1;
    }
    assert!(waits > 1000, "{waits}");
}

#[test]
fn many_concurrent_hosts_leave_nothing_behind() {
    let (mut commands, mut errors) = (0, 0);
    for seed in 0..60 {
        let (more, failed) = run(seed);
        commands += more;
        errors += failed;
    }
    assert!(commands > 10_000 && errors > 1_000, "{commands} commands, {errors} errors");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(5), run(5));
}

#[test]
fn changes_of_the_configuration_under_load_leave_nothing_behind() {
    let (mut commands, mut errors) = (0, 0);
    for seed in 0..20 {
        let ((more, failed), _) = run_within(seed, Budget::unlimited(), Some(Changes::with_view()));
        commands += more;
        errors += failed;
    }
    assert!(commands > 3_000 && errors > 300, "{commands} commands, {errors} errors");
}

#[test]
fn with_little_memory_changes_of_the_configuration_leave_nothing_behind() {
    let mut waits = 0;
    for seed in 0..20 {
        waits += run_within(seed, Budget::with_share(112 << 10, 16, 0, 2048), Some(Changes::default())).1;
    }
    assert!(waits > 160, "{waits}");
}

#[test]
#[ignore = "soak"]
fn soak_changes_of_the_configuration_leave_nothing_behind() {
    for seed in 1000..3000 {
        run_within(seed, Budget::unlimited(), Some(Changes::with_view()));
        run_within(seed, Budget::with_share(112 << 10, 16, 0, 2048), Some(Changes::default()));
    }
}
