//! The initiator against zonda's target, checked against the oracle.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;

use crate::testbed::{HOST, Testbed, host_config, nqn, target_config};
use zonda_chap::Secret;
use zonda_initiator::{InitiatorConfig, Order, State};
use zonda_nvme::tcp::Digests;
use zonda_target::{HostAccess, HostEntry, TargetConfig};
use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{Blocks, CommandId, Completion, Geometry, NamespaceId, PayloadKind, Prng, ZrwaGeometry};

/// Twelve zones of 40 blocks, with all optional features.
fn rich() -> Geometry {
    Geometry {
        block_size_bytes: 512,
        metadata_bytes: 8,
        zone_size_blocks: Blocks(64),
        zone_capacity_blocks: Blocks(60),
        zone_count: 12,
        conventional_zone_count: 0,
        max_active_zones: Some(5),
        max_open_zones: Some(3),
        max_transfer_blocks: Blocks(32),
        max_append_blocks: Blocks(16),
        zrwa: Some(ZrwaGeometry {
            size_blocks: Blocks(12),
            flush_granularity_blocks: Blocks(4),
            resources: 2,
            explicit_flush: true,
        }),
        read_across_zones: true,
        descriptor_extension_bytes: 128,
    }
}

/// Runs random commands with a queue depth of `depth`, each checked against the oracle's result at
/// its submission.
fn compare(testbed: &mut Testbed, commands: u64, depth: usize, seed: u64) {
    let geometry = testbed.initiator.geometry().unwrap().clone();
    let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
    let mut expected: BTreeMap<CommandId, (zonda_zoned::Command, Completion)> = BTreeMap::new();
    let mut left = commands;
    let mut ended = 0;
    while left > 0 || !expected.is_empty() {
        while left > 0 && expected.len() < depth && (depth == 1 || testbed.prng.chance(2, 3)) {
            let command = source.next(&oracle);
            expected.insert(command.id, (command.clone(), oracle.execute(&command)));
            testbed.submit(command);
            left -= 1;
        }
        if !testbed.step()
            && testbed.completions.is_empty()
            && expected.len() == depth.min(expected.len())
            && !expected.is_empty()
        {
            // Only a timeout can continue; a stuck testbed would end with a lost connection.
            assert_eq!(*testbed.initiator.state(), State::Ready);
            testbed.pass_time();
        }
        while let Some(completion) = testbed.completions.pop() {
            let (command, expected) = expected.remove(&completion.id).expect("the command was in flight");
            ended += 1;
            if completion == expected {
                continue;
            }
            let id = completion.id;
            let operation = format!("{:?}", command.operation);
            panic!(
                "command {id}, {:.200}: {:?}, not {:?}\n{:.100?}\n{:.100?}",
                operation,
                completion.status,
                expected.status,
                format!("{:?}", completion.outcome),
                format!("{:?}", expected.outcome)
            );
        }
    }
    assert_eq!(ended, commands);
    testbed.run_until_idle();
    testbed.initiator.check_invariants();
}

fn run(host: InitiatorConfig, target: TargetConfig, commands: u64, depth: usize, seed: u64) -> Testbed {
    let mut testbed = Testbed::connected(host, target, seed);
    compare(&mut testbed, commands, depth, seed);
    testbed
}

#[test]
fn commands_one_at_a_time_complete_as_the_oracle_predicts() {
    for seed in 0..4 {
        run(host_config(), target_config(&[rich()], HostAccess::Any), 1_500, 1, seed);
    }
}

#[test]
fn sixteen_commands_in_flight_take_effect_in_the_order_of_submission() {
    for seed in 0..8 {
        let testbed = run(host_config(), target_config(&[rich()], HostAccess::Any), 1_500, 16, seed);
        assert!(testbed.initiator.statistics().held < 1_000);
    }
}

#[test]
fn writes_with_solicited_and_with_in_capsule_data_stay_in_order() {
    for (seed, in_capsule_bytes) in [(0, 0), (1, 1024), (2, 2048), (3, 4096), (4, 8192)] {
        let mut target = target_config(&[rich()], HostAccess::Any);
        target.limits.in_capsule_bytes = in_capsule_bytes;
        let testbed = run(host_config(), target, 1_500, 16, seed);
        assert!(in_capsule_bytes == 8192 || testbed.initiator.statistics().held > 0);
    }
}

#[test]
fn a_target_with_little_memory_still_receives_data_in_order() {
    let mut target = target_config(&[rich()], HostAccess::Any);
    target.limits.in_capsule_bytes = 512;
    target.limits.transfer_bytes = 16 << 10;
    target.limits.receive_bytes = 32 << 10;
    target.limits.outgoing_bytes = 32 << 10;
    run(host_config(), target, 2_000, 32, 1);
}

#[test]
fn header_and_data_digests_do_not_change_results() {
    for code in 0..4 {
        let host = InitiatorConfig { digests: Digests::from_code(code), ..host_config() };
        let mut target = target_config(&[rich()], HostAccess::Any);
        target.limits.in_capsule_bytes = 1024;
        run(host, target, 600, 8, code.into());
    }
}

#[test]
fn order_by_completion_keeps_the_order_of_each_zone() {
    // Without limits on resources, zones are independent; appends have in-capsule data, so that
    // their order, which this mode leaves to the target, is that of arrival.
    let geometry = Geometry { max_active_zones: None, max_open_zones: None, zrwa: None, ..rich() };
    for io_queues in [1, 4] {
        for depth in [1, 16] {
            let host = InitiatorConfig { order: Some(Order::Completion), io_queues, ..host_config() };
            let mut target = target_config(std::slice::from_ref(&geometry), HostAccess::Any);
            target.limits.in_capsule_bytes = 16 * 1024;
            let testbed = run(host, target, 800, depth, 3);
            assert_eq!(testbed.initiator.statistics().held > 0, depth > 1);
        }
    }
}

#[test]
fn several_queues_keep_the_order_of_each_zone() {
    let geometry = Geometry { max_active_zones: None, max_open_zones: None, zrwa: None, ..rich() };
    for (seed, in_capsule_bytes) in [(0, 0), (1, 2048), (2, 8192), (3, 1024)] {
        for io_queues in [2, 4] {
            let host = InitiatorConfig { io_queues, ..host_config() };
            let mut target = target_config(std::slice::from_ref(&geometry), HostAccess::Any);
            target.limits.in_capsule_bytes = in_capsule_bytes;
            let testbed = run(host, target, 1_500, 16, seed);
            assert!(testbed.initiator.statistics().held > 0, "reports wait for other queues");
        }
    }
}

#[test]
fn commands_on_random_geometries_complete_as_the_oracle_predicts() {
    let mut prng = Prng::new(5);
    for seed in 0..40 {
        let mut geometry = random_geometry(&mut prng);
        geometry.conventional_zone_count = 0;
        // NVMe cannot express a limit below 8 KiB, and only powers of two.
        geometry.max_transfer_blocks = Blocks((8192 << prng.below(4)) / u64::from(geometry.block_size_bytes));
        geometry.max_append_blocks = Blocks(8192 / u64::from(geometry.block_size_bytes));
        let mut target = target_config(&[geometry], HostAccess::Any);
        target.limits.in_capsule_bytes = [0, 1024, 4096, 8192][prng.below(4) as usize];
        let host = InitiatorConfig {
            digests: Digests::from_code(prng.below(4) as u8),
            queue_depth: 1 + prng.below(31) as u16,
            ..host_config()
        };
        let depth = usize::from(host.queue_depth).min(if seed % 2 == 0 { 1 } else { 16 });
        run(host, target, 400, depth, seed);
    }
}

#[test]
fn a_conventional_namespace_is_one_zone_that_accepts_writes_anywhere() {
    let geometry = Geometry {
        zone_capacity_blocks: Blocks(64),
        conventional_zone_count: 12,
        zrwa: None,
        descriptor_extension_bytes: 0,
        ..rich()
    };
    for (io_queues, depth) in [(1, 1), (1, 16), (4, 16)] {
        let host = InitiatorConfig { io_queues, namespace: NamespaceId(2), ..host_config() };
        let target = target_config(&[rich(), geometry.clone()], HostAccess::Any);
        let testbed = run(host, target, 1_000, depth, 1);
        let seen = testbed.initiator.geometry().unwrap();
        assert_eq!((seen.zone_count, seen.conventional_zone_count), (1, 1));
    }
}

#[test]
fn every_queue_authenticates_in_one_and_in_both_directions() {
    for both in [false, true] {
        let secret = Secret::generate(None, [1; 64]);
        let controller = both.then(|| Secret::generate(None, [2; 64]));
        let entry = HostEntry { nqn: nqn(HOST), secret: Some(secret.clone()), controller_secret: controller.clone() };
        let target = target_config(&[rich()], HostAccess::Hosts(vec![entry]));
        let host =
            InitiatorConfig { host_secret: Some(secret), controller_secret: controller, io_queues: 2, ..host_config() };
        run(host, target, 100, 1, 1);
    }
}
