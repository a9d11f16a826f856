//! Connections that break, servers that die and come back, and bytes that change on the way.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;

use crate::world::{World, host_config, target_config};
use zonda_initiator::{Event, InitiatorConfig, Reason, State, Step};
use zonda_nvme::tcp::Digests;
use zonda_target::HostAccess;
use zonda_zoned::reference::CommandSource;
use zonda_zoned::{Blocks, CommandId, Completion, Duration, Geometry, PayloadKind, Prng, Status};

fn geometry() -> Geometry {
    Geometry {
        zone_size_blocks: Blocks(32),
        zone_capacity_blocks: Blocks(30),
        max_transfer_blocks: Blocks(16),
        max_append_blocks: Blocks(16),
        ..Geometry::tiny()
    }
}

const RECONNECT: Duration = Duration::from_secs(1);

/// Commands with `depth` under way, and something bad after a random number of turns; then all is compared again with what
/// the device has become. Says how many commands ended with which status because of the loss.
fn rounds(world: &mut World, rounds: u64, depth: usize, bad: impl Fn(&mut World)) -> BTreeMap<Status, u64> {
    let mut source = CommandSource::new(&geometry(), PayloadKind::Bytes, Prng::new(1));
    let mut lost = BTreeMap::new();
    for round in 0..rounds {
        assert_eq!(*world.initiator.state(), State::Ready, "round {round}");
        let mut oracle = world.devices[0].clone();
        let mut expected: BTreeMap<CommandId, Completion> = BTreeMap::new();
        for _ in 0..world.prng.below(400) {
            if *world.initiator.state() != State::Ready {
                break;
            }
            if expected.len() < depth {
                let command = source.next(&oracle);
                expected.insert(command.id, oracle.execute(&command));
                world.submit(command);
            }
            world.turn();
            while let Some(completion) = world.completions.pop() {
                let expected = expected.remove(&completion.id).unwrap();
                if completion != expected {
                    assert!(world.damage_one_in.is_some(), "{:?}, not {:?}", completion.status, expected.status);
                    *lost.entry(completion.status).or_default() += 1;
                }
            }
        }
        bad(world);
        world.run_until(|world| *world.initiator.state() == State::Ready);
        world.settle();
        while let Some(completion) = world.completions.pop() {
            let expected = expected.remove(&completion.id).unwrap();
            if completion != expected {
                *lost.entry(completion.status).or_default() += 1;
            }
        }
        assert!(expected.is_empty(), "every command ends once: {expected:?}");
    }
    lost
}

fn is_loss(status: Status) -> bool {
    matches!(status, Status::AbortedPowerLoss | Status::NamespaceNotReady)
}

#[test]
fn a_connection_cut_at_any_point_loses_what_is_under_way_and_nothing_else() {
    for io_queues in [1, 3] {
        let host = InitiatorConfig { io_queues, reconnect: Some(RECONNECT), ..host_config() };
        let mut target = target_config(&[geometry()], HostAccess::Any);
        target.limits.in_capsule_bytes = 1024;
        let mut world = World::connected(host, target, 2);
        let depth = if io_queues == 1 { 16 } else { 1 };
        let lost = rounds(&mut world, 60, depth, |world| {
            let queues = world.queues();
            let queue = *world.prng.pick(&queues).unwrap();
            world.cut(queue);
        });
        assert!(lost.keys().all(|&status| is_loss(status)), "{lost:?}");
        assert!(lost.values().sum::<u64>() > 20, "{lost:?}");
        assert_eq!(world.initiator.statistics().losses, 60);
    }
}

#[test]
fn a_host_reconnects_by_itself_after_the_server_restarts() {
    let host = InitiatorConfig { reconnect: Some(RECONNECT), ..host_config() };
    let mut world = World::connected(host, target_config(&[geometry()], HostAccess::Any), 3);
    let lost = rounds(&mut world, 30, 8, |world| {
        world.crash();
        let away = world.prng.below(5_000);
        world.wait(Duration::from_millis(away));
        assert!(matches!(world.initiator.state(), State::Connecting(_)));
        world.restart();
    });
    assert!(lost.keys().all(|&status| is_loss(status)), "{lost:?}");
    assert!(
        world.events.iter().any(|event| matches!(event, Event::Lost(error)
        if matches!(error.step, Step::OpenConnection(_)))),
        "a try met a closed port"
    );
}

#[test]
fn a_connection_cut_while_connecting_fails_in_its_step_and_never_panics() {
    let mut steps = std::collections::BTreeSet::new();
    for turns in 0..120 {
        let mut world = World::new(
            InitiatorConfig { io_queues: 2, ..host_config() },
            target_config(&[geometry()], HostAccess::Any),
            4,
        );
        world.initiator.start(world.now);
        for _ in 0..turns {
            world.turn();
        }
        let queues = world.queues();
        let Some(&queue) = world.prng.pick(&queues) else { continue };
        world.cut(queue);
        world.settle();
        let State::Failed(error) = world.initiator.state() else { panic!("{:?}", world.initiator.state()) };
        assert!(matches!(error.reason, Reason::Connection { .. }));
        steps.insert(error.step.to_string());
        assert_eq!(world.queues(), []);
    }
    assert!(steps.len() > 10, "{steps:?}");
}

#[test]
fn a_server_with_another_drive_under_the_same_name_is_not_used() {
    let host = InitiatorConfig { reconnect: Some(RECONNECT), ..host_config() };
    let mut world = World::connected(host.clone(), target_config(&[geometry()], HostAccess::Any), 3);
    world.crash();
    let mut other = target_config(&[geometry()], HostAccess::Any);
    other.subsystems[0].namespaces[0].identity.uuid = Some([77; 16]);
    world.target = Some(zonda_target::Target::new(other).unwrap());
    world.run_until(|world| !matches!(world.initiator.state(), State::Connecting(_)));
    let State::Failed(error) = world.initiator.state() else { panic!("{:?}", world.initiator.state()) };
    assert_eq!(error.reason, Reason::NamespaceChanged);
}

#[test]
fn a_silent_server_is_given_up_after_the_command_timeout() {
    let host = InitiatorConfig { keep_alive: None, command_timeout: Duration::from_secs(3), ..host_config() };
    let mut world = World::connected(host, target_config(&[geometry()], HostAccess::Any), 3);
    world.settle();
    let operation = zonda_zoned::Operation::Flush;
    let begun = world.now;
    world.submit(zonda_zoned::Command { id: CommandId(1), namespace: zonda_zoned::NamespaceId::FIRST, operation });
    while world.initiator.poll_effect().is_some() {}
    let at = world.initiator.next_timeout().unwrap();
    assert_eq!(at, begun + Duration::from_secs(3));
    world.initiator.timeout(at);
    let State::Failed(error) = world.initiator.state() else { panic!("{:?}", world.initiator.state()) };
    assert_eq!((error.step, &error.reason), (Step::Serve, &Reason::Timeout));
    world.turn();
    assert_eq!(world.completions.pop().unwrap().status, Status::AbortedPowerLoss);
}

#[test]
fn bytes_that_change_on_the_way_never_panic_and_every_command_ends() {
    let mut failures = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let host = InitiatorConfig {
            io_queues: 1 + seed as u16 % 2,
            command_timeout: Duration::from_secs(3),
            ..host_config()
        };
        let mut target = target_config(&[geometry()], HostAccess::Any);
        target.limits.in_capsule_bytes = 1024;
        let mut world = World::new(host, target, seed);
        world.damage_one_in = Some(if seed % 2 == 0 { 10 } else { 60 });
        world.initiator.start(world.now);
        world.run_until(|world| !matches!(world.initiator.state(), State::Connecting(_)));
        // An oracle of what a changed byte makes of the namespace may not fit in memory.
        let is_small =
            world.initiator.geometry().is_some_and(|it| it.zone_count <= 8 && it.zone_size_blocks <= Blocks(32));
        if *world.initiator.state() == State::Ready && is_small {
            let geometry = world.initiator.geometry().unwrap().clone();
            let oracle = zonda_zoned::reference::ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
            let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
            let mut taken = 0;
            for _ in 0..300 {
                if world.initiator.outstanding() < 16 && world.initiator.submit(world.now, source.next(&oracle)).is_ok()
                {
                    taken += 1;
                }
                world.turn();
            }
            world.run_until(|world| world.initiator.outstanding() == 0);
            world.settle();
            assert_eq!(world.completions.len(), taken);
        }
        if let State::Failed(error) = world.initiator.state() {
            failures.insert(format!("{}", error.step));
        }
    }
    assert!(failures.len() > 12, "{failures:?}");
}

#[test]
fn with_digests_no_changed_byte_gets_through() {
    for seed in 0..60 {
        let host = InitiatorConfig { digests: Digests::BOTH, reconnect: Some(RECONNECT), ..host_config() };
        let target = target_config(&[geometry()], HostAccess::Any);
        let mut world = World::connected(host, target, seed);
        world.damage_one_in = Some(40);
        let lost = rounds(&mut world, 1, 4, |world| world.damage_one_in = None);
        let known = |status: &Status| is_loss(*status) || *status == Status::DataTransferError;
        assert!(lost.keys().all(known), "{lost:?}");
    }
}
