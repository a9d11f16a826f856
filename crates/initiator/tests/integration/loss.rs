//! Connection losses, server crashes and restarts, and corrupted bytes.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;

use crate::testbed::{Testbed, host_config, target_config};
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

/// Runs commands with a queue depth of `depth`, and injects a fault after a random number of steps;
/// then checks results against the device again. Returns how many commands ended with which status
/// because of the loss.
fn rounds(testbed: &mut Testbed, rounds: u64, depth: usize, inject: impl Fn(&mut Testbed)) -> BTreeMap<Status, u64> {
    let mut source = CommandSource::new(&geometry(), PayloadKind::Bytes, Prng::new(1));
    let mut lost = BTreeMap::new();
    for round in 0..rounds {
        assert_eq!(*testbed.initiator.state(), State::Ready, "round {round}");
        let mut oracle = testbed.devices[0].clone();
        let mut expected: BTreeMap<CommandId, Completion> = BTreeMap::new();
        for _ in 0..testbed.prng.below(400) {
            if *testbed.initiator.state() != State::Ready {
                break;
            }
            if expected.len() < depth {
                let command = source.next(&oracle);
                expected.insert(command.id, oracle.execute(&command));
                testbed.submit(command);
            }
            testbed.step();
            while let Some(completion) = testbed.completions.pop() {
                let expected = expected.remove(&completion.id).unwrap();
                if completion != expected {
                    assert!(testbed.damage_one_in.is_some(), "{:?}, not {:?}", completion.status, expected.status);
                    *lost.entry(completion.status).or_default() += 1;
                }
            }
        }
        inject(testbed);
        testbed.run_until(|testbed| *testbed.initiator.state() == State::Ready);
        testbed.run_until_idle();
        while let Some(completion) = testbed.completions.pop() {
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
fn a_connection_cut_at_any_point_loses_only_commands_in_flight() {
    for io_queues in [1, 3] {
        let host = InitiatorConfig { io_queues, reconnect: Some(RECONNECT), ..host_config() };
        let mut target = target_config(&[geometry()], HostAccess::Any);
        target.limits.in_capsule_bytes = 1024;
        let mut testbed = Testbed::connected(host, target, 2);
        let depth = if io_queues == 1 { 16 } else { 1 };
        let lost = rounds(&mut testbed, 60, depth, |testbed| {
            let queues = testbed.queues();
            let queue = *testbed.prng.pick(&queues).unwrap();
            testbed.cut(queue);
        });
        assert!(lost.keys().all(|&status| is_loss(status)), "{lost:?}");
        assert!(lost.values().sum::<u64>() > 20, "{lost:?}");
        assert_eq!(testbed.initiator.statistics().losses, 60);
    }
}

#[test]
fn a_host_reconnects_by_itself_after_the_server_restarts() {
    let host = InitiatorConfig { reconnect: Some(RECONNECT), ..host_config() };
    let mut testbed = Testbed::connected(host, target_config(&[geometry()], HostAccess::Any), 3);
    let lost = rounds(&mut testbed, 30, 8, |testbed| {
        testbed.crash();
        let away = testbed.prng.below(5_000);
        testbed.wait(Duration::from_millis(away));
        assert!(matches!(testbed.initiator.state(), State::Connecting(_)));
        testbed.restart();
    });
    assert!(lost.keys().all(|&status| is_loss(status)), "{lost:?}");
    assert!(
        testbed.events.iter().any(|event| matches!(event, Event::Lost(error)
        if matches!(error.step, Step::OpenConnection(_)))),
        "an attempt found a closed port"
    );
}

#[test]
fn a_connection_cut_while_connecting_fails_in_its_step_and_never_panics() {
    let mut steps = std::collections::BTreeSet::new();
    for count in 0..120 {
        let mut testbed = Testbed::new(
            InitiatorConfig { io_queues: 2, ..host_config() },
            target_config(&[geometry()], HostAccess::Any),
            4,
        );
        testbed.initiator.start(testbed.now);
        for _ in 0..count {
            testbed.step();
        }
        let queues = testbed.queues();
        let Some(&queue) = testbed.prng.pick(&queues) else { continue };
        testbed.cut(queue);
        testbed.run_until_idle();
        let State::Failed(error) = testbed.initiator.state() else { panic!("{:?}", testbed.initiator.state()) };
        assert!(matches!(error.reason, Reason::Connection { .. }));
        steps.insert(error.step.to_string());
        assert_eq!(testbed.queues(), []);
    }
    assert!(steps.len() > 10, "{steps:?}");
}

#[test]
fn a_server_with_another_drive_under_the_same_nqn_is_not_used() {
    let host = InitiatorConfig { reconnect: Some(RECONNECT), ..host_config() };
    let mut testbed = Testbed::connected(host.clone(), target_config(&[geometry()], HostAccess::Any), 3);
    testbed.crash();
    let mut other = target_config(&[geometry()], HostAccess::Any);
    other.subsystems[0].namespaces[0].identity.uuid = Some([77; 16]);
    testbed.target = Some(zonda_target::Target::new(other).unwrap());
    testbed.run_until(|testbed| !matches!(testbed.initiator.state(), State::Connecting(_)));
    let State::Failed(error) = testbed.initiator.state() else { panic!("{:?}", testbed.initiator.state()) };
    assert_eq!(error.reason, Reason::NamespaceChanged);
}

#[test]
fn a_silent_server_is_disconnected_after_the_command_timeout() {
    let host = InitiatorConfig { keep_alive: None, command_timeout: Duration::from_secs(3), ..host_config() };
    let mut testbed = Testbed::connected(host, target_config(&[geometry()], HostAccess::Any), 3);
    testbed.run_until_idle();
    let operation = zonda_zoned::Operation::Flush;
    let begun = testbed.now;
    testbed.submit(zonda_zoned::Command::new(CommandId(1), zonda_zoned::NamespaceId::FIRST, operation));
    while testbed.initiator.poll_effect().is_some() {}
    let at = testbed.initiator.next_timeout().unwrap();
    assert_eq!(at, begun + Duration::from_secs(3));
    testbed.initiator.on_timeout(at);
    let State::Failed(error) = testbed.initiator.state() else { panic!("{:?}", testbed.initiator.state()) };
    assert_eq!((error.step, &error.reason), (Step::Serve, &Reason::Timeout));
    testbed.step();
    assert_eq!(testbed.completions.pop().unwrap().status, Status::AbortedPowerLoss);
}

#[test]
fn corrupted_bytes_never_cause_a_panic_and_every_command_completes() {
    let mut failures = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let host = InitiatorConfig {
            io_queues: 1 + seed as u16 % 2,
            command_timeout: Duration::from_secs(3),
            ..host_config()
        };
        let mut target = target_config(&[geometry()], HostAccess::Any);
        target.limits.in_capsule_bytes = 1024;
        let mut testbed = Testbed::new(host, target, seed);
        testbed.damage_one_in = Some(if seed % 2 == 0 { 10 } else { 60 });
        testbed.initiator.start(testbed.now);
        testbed.run_until(|testbed| !matches!(testbed.initiator.state(), State::Connecting(_)));
        // The oracle of a namespace with a corrupted geometry may not fit in memory.
        let is_small =
            testbed.initiator.geometry().is_some_and(|it| it.zone_count <= 8 && it.zone_size_blocks <= Blocks(32));
        if *testbed.initiator.state() == State::Ready && is_small {
            let geometry = testbed.initiator.geometry().unwrap().clone();
            let oracle = zonda_zoned::reference::ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
            let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
            let mut taken = 0;
            for _ in 0..300 {
                if testbed.initiator.outstanding() < 16
                    && testbed.initiator.submit(testbed.now, source.next(&oracle)).is_ok()
                {
                    taken += 1;
                }
                testbed.step();
            }
            testbed.run_until(|testbed| testbed.initiator.outstanding() == 0);
            testbed.run_until_idle();
            assert_eq!(testbed.completions.len(), taken);
        }
        if let State::Failed(error) = testbed.initiator.state() {
            failures.insert(format!("{}", error.step));
        }
    }
    assert!(failures.len() > 12, "{failures:?}");
}

#[test]
fn with_digests_no_corrupted_byte_is_accepted() {
    for seed in 0..60 {
        let host = InitiatorConfig { digests: Digests::BOTH, reconnect: Some(RECONNECT), ..host_config() };
        let target = target_config(&[geometry()], HostAccess::Any);
        let mut testbed = Testbed::connected(host, target, seed);
        testbed.damage_one_in = Some(40);
        let lost = rounds(&mut testbed, 1, 4, |testbed| testbed.damage_one_in = None);
        let known = |status: &Status| is_loss(*status) || *status == Status::DataTransferError;
        assert!(lost.keys().all(known), "{lost:?}");
    }
}
