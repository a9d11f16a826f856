//! Several hosts that do many things at once, in any order, and come and go; what must hold is checked after each event.

use bytes::Bytes;
use zonda_nvme::tcp::{Digests, Pdu};
use zonda_nvme::{AdminOpcode, IoOpcode, SglDescriptor, SubmissionEntry};
use zonda_zoned::{Blocks, Duration, Lba, Operation, Prng, ReportFilter};

use super::world::{World, config, pattern, read, write, zoned};
use crate::{Budget, ConnectionId, DeviceKey, HostAccess};

/// A host's controller and its I/O queues.
struct Host {
    admin: ConnectionId,
    queues: Vec<ConnectionId>,
}

fn appear(world: &mut World, prng: &mut Prng) -> Host {
    let held = std::mem::replace(&mut world.hold, false);
    let digests = Digests::from_code(prng.below(4) as u8);
    let (admin, controller) = world.admin_with(digests);
    let queues = (1..=1 + prng.below(3) as u16)
        .map(|queue| world.io_with(controller, queue, digests, 4 * prng.below(2) as u8))
        .collect();
    world.hold = held;
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

/// Answers one of the R2Ts that a host has, or a part of it.
fn answer(world: &mut World, id: ConnectionId) {
    let wire = world.wire(id);
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
    world.push(id);
}

fn run(seed: u64) -> (u64, u64) {
    run_within(seed, Budget::unlimited()).0
}

/// Commands and errors; and how often a request has waited for memory.
fn run_within(seed: u64, budget: Budget) -> ((u64, u64), u64) {
    let mut prng = Prng::new(seed);
    let mut config = config(&[zoned()], HostAccess::Any);
    config.budget = budget;
    config.limits.transfer_bytes = 16 << 10;
    config.limits.receive_bytes = 40 << 10;
    config.limits.outgoing_bytes = 40 << 10;
    config.limits.in_capsule_bytes = 4096;
    let mut world = World::of(config);
    let mut hosts: Vec<Host> = Vec::new();
    for _ in 0..600 {
        if hosts.is_empty() || (hosts.len() < 4 && prng.chance(1, 20)) {
            hosts.push(appear(&mut world, &mut prng));
        }
        let which = prng.below(hosts.len() as u64) as usize;
        let queue = *prng.pick(&hosts[which].queues).expect("a host has queues");
        let gone = world.closed.contains_key(&hosts[which].admin) || world.closed.contains_key(&queue);
        match prng.below(40) {
            _ if gone => {
                let admin = hosts.remove(which).admin;
                world.vanish(admin);
            }
            0 => {
                let host = hosts.remove(which);
                // Its queues go in any order.
                let first = if prng.chance(1, 2) { host.admin } else { queue };
                world.vanish(first);
                world.vanish(host.admin);
            }
            1 => world.wire(queue).frozen = true,
            2 if world.wire(queue).frozen => world.thaw(queue),
            3 => world.hold = !world.hold,
            4 => world.target.zones_changed(world.now, DeviceKey(0)),
            5 => {
                let request = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
                world.start(hosts[which].admin, request, &Bytes::new());
            }
            6..=12 => answer(&mut world, queue),
            13..=20 if !world.held.is_empty() => {
                let place = prng.below(world.held.len() as u64) as usize;
                let (device, command) = world.held.remove(place).expect("a place within");
                world.complete(device, &command);
                world.settle();
            }
            21 => world.pass(Duration::from_millis(prng.below(900))),
            // Others of the same server hold memory, and release it.
            22 => world.target.budget_mut().set_outside(prng.below(80 << 10) as usize),
            23 => {
                world.target.resume(world.now);
                world.settle();
            }
            _ => {
                let (mut entry, mut data) = world.encoded(1, &operation(&mut prng));
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
                world.start(queue, entry, &data);
            }
        }
    }
    world.target.budget_mut().set_outside(0);
    world.release();
    world.target.resume(world.now);
    world.settle();
    // Hosts that read and send what they were asked for get an end for all that they have begun.
    for queue in hosts.iter().flat_map(|host| &host.queues) {
        if !world.closed.contains_key(queue) {
            world.thaw(*queue);
        }
    }
    while let Some(&queue) = hosts.iter().flat_map(|host| &host.queues).find(|queue| {
        let asked = |pdu: &Pdu| matches!(pdu, Pdu::ReadyToTransfer(_));
        !world.closed.contains_key(queue) && world.wires[queue].pdus.iter().any(asked)
    }) {
        answer(&mut world, queue);
    }
    world.target.assert_nothing_waits();
    let commands = world.target.statistics().commands;
    let errors = world.target.statistics().errors;
    for host in hosts {
        world.vanish(host.admin);
    }
    let statistics = world.target.statistics();
    assert_eq!((statistics.connections, statistics.controllers, statistics.commands_at_devices), (0, 0, 0));
    assert!(world.target.next_timeout().is_none() && world.target.poll_effect().is_none());
    assert_eq!(world.target.budget_mut().held_bytes(), 0);
    ((commands, errors), world.target.budget_mut().waits())
}

#[test]
fn with_little_memory_for_all_of_them_every_request_of_many_hosts_still_ends() {
    let mut waits = 0;
    for seed in 0..60 {
        // A share of two small commands each, and one transfer of 16 KiB from the pool at a time.
        waits += run_within(seed, Budget::with_share(112 << 10, 16, 0, 2048)).1;
    }
    assert!(waits > 1000, "{waits}");
}

#[test]
fn many_hosts_at_once_leave_nothing_behind() {
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
