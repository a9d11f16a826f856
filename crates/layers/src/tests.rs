//! All layers in one stack.

use std::collections::BTreeMap;

use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{
    Command, Completion, CompletionQueue, Duration, Geometry, Instant, Operation, Outcome, Payload, PayloadKind, Prng,
    QueueFull, Status, ZoneIndex, ZonedDevice,
};

use crate::testing::{Narrow, reference, run_one, write};
use crate::{
    Delay, DelayRule, Fault, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, Shared, Slice, SliceConfig,
    Trace, When,
};

/// Trace over Delay over Fault over Slice over Shared over a narrow reference device.
type Stack = Trace<Delay<Fault<Slice<Shared<Narrow<ReferenceDevice>>>>>>;

const KEEPS: PayloadKind = PayloadKind::Fingerprints;

fn some(denominator: u64) -> When {
    When::Chance { numerator: 1, denominator }
}

/// A stack that behaves as a device of `geometry`, except for faults of some reads and flushes, on
/// which nothing depends.
fn stack(geometry: &Geometry, seed: u64) -> Stack {
    let device = Geometry {
        zone_count: geometry.zone_count + 3,
        max_active_zones: geometry.max_active_zones.map(|max| max + 1),
        max_open_zones: geometry.max_open_zones.map(|max| max + 1),
        ..geometry.clone()
    };
    let prng = Prng::new(seed);
    let shared = Shared::new(Narrow::new(ReferenceDevice::new(device, KEEPS), 3));
    let config = SliceConfig {
        namespace: zonda_zoned::NamespaceId::FIRST,
        first: ZoneIndex(0),
        count: geometry.zone_count,
        max_active_zones: geometry.max_active_zones,
        max_open_zones: geometry.max_open_zones,
        zrwa_resources: geometry.zrwa.map_or(0, |zrwa| zrwa.resources),
        keeps: KEEPS,
    };
    let slice = Slice::new(shared, config).unwrap();
    let flushes = Matcher::operations(OperationSet::of(&[OperationKind::Flush]));
    let fault = |matches, when, effect| FaultRule { matches, when, effect };
    let reads = Matcher::operations(OperationSet::READ);
    let faults = vec![
        fault(reads.clone(), some(10), FaultEffect::Fail(Status::UnrecoveredReadError)),
        fault(reads, some(10), FaultEffect::CorruptRead),
        fault(flushes.clone(), some(2), FaultEffect::Drop),
        fault(flushes, some(2), FaultEffect::DropAfter),
    ];
    let delay = |when, fixed, spread| DelayRule { matches: Matcher::default(), when, fixed, spread };
    let delays =
        vec![delay(When::Always, Duration(1_000), Duration(4_000)), delay(some(20), Duration(50_000), Duration::ZERO)];
    Trace::new(Delay::new(Fault::new(slice, faults, prng.fork("fault")), delays, prng.fork("delay")))
}

fn differs_in_one_bit(a: &Completion, b: &Completion) -> bool {
    match (&a.outcome, &b.outcome) {
        (Outcome::Data(Payload::Fingerprints(a)), Outcome::Data(Payload::Fingerprints(b))) => {
            a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>() == 1
        }
        _ => false,
    }
}

/// Submits random commands to a stack until all have completed, and checks each. Returns the hash
/// of the run.
fn run(geometry: &Geometry, seed: u64) -> u64 {
    let mut stack = stack(geometry, seed);
    let mut oracle = ReferenceDevice::new(geometry.clone(), KEEPS);
    let mut source = CommandSource::new(geometry, KEEPS, Prng::new(seed));
    let mut expected = BTreeMap::new();
    let mut waiting: Option<Command> = None;
    let mut now = Instant::ZERO;
    let (mut left, mut refusals, mut corrupted, mut unread) = (2_000, 0, 0, 0);
    let mut ended = CompletionQueue::new();
    loop {
        // In bursts: a single command would never find the queue full.
        let burst = if expected.len() <= 8 { 24 } else { 0 };
        while left > 0 && expected.len() < burst {
            let command = waiting.take().unwrap_or_else(|| source.next(&oracle));
            let copy = command.clone();
            match stack.submit(now, command) {
                Ok(()) => {
                    left -= 1;
                    expected.insert(copy.id, (oracle.execute(&copy), copy.operation));
                }
                Err(QueueFull(command)) => {
                    assert_eq!(command, copy, "returned unchanged");
                    refusals += 1;
                    waiting = Some(command);
                    break;
                }
            }
        }
        match stack.next_timeout() {
            Some(wakeup) => now = now.max(wakeup),
            None if expected.is_empty() => break,
            None => {
                let fault = stack.inner_mut().inner_mut();
                assert_eq!(fault.dropped().count(), expected.len(), "commands are stuck: {expected:?}");
                fault.abort_dropped(now);
            }
        }
        stack.poll(now, &mut ended);
        while let Some(completion) = ended.pop() {
            let (promised, operation) = expected.remove(&completion.id).expect("a command completes once");
            match (&operation, completion.status) {
                (Operation::Read { .. }, Status::UnrecoveredReadError) => unread += 1,
                (Operation::Flush, Status::AbortRequested) => {}
                (Operation::Read { .. }, _) if differs_in_one_bit(&completion, &promised) => corrupted += 1,
                _ => assert_eq!(completion, promised, "{operation:?}"),
            }
        }
    }
    assert!(refusals > 0, "the narrow device never refused");
    let faults = stack.inner().inner().counters();
    assert_eq!(faults[0].struck, unread);
    assert!(corrupted > 0 && corrupted <= faults[1].struck, "a failed read has no bits to flip");
    let completed: u64 = OperationKind::ALL.iter().map(|&kind| stack.counters(kind).completed).sum();
    assert_eq!(completed, 2_000);
    let hash = stack.hash();
    let shared = stack.into_inner().into_inner().into_inner().into_inner();
    let device = shared.take_inner().expect("the stack was dropped").inner;
    for lba in 0..geometry.namespace_blocks().0 {
        let lba = zonda_zoned::Lba(lba);
        assert_eq!(device.block(lba), oracle.block(lba), "block {lba}");
    }
    hash
}

#[test]
fn a_stack_of_all_layers_completes_every_command() {
    let mut prng = Prng::new(8);
    for seed in 0..20 {
        run(&random_geometry(&mut prng), seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = run(&Geometry::tiny(), 5);
    assert_eq!(run(&Geometry::tiny(), 5), hash);
    assert_ne!(run(&Geometry::tiny(), 6), hash);
}

#[test]
fn layers_wrap_a_boxed_device() {
    let boxed: Box<dyn ZonedDevice> = Box::new(Shared::new(reference()));
    let boxed: Box<dyn ZonedDevice> = Box::new(Fault::new(boxed, vec![], Prng::new(1)));
    let boxed: Box<dyn ZonedDevice> = Box::new(Delay::new(boxed, vec![], Prng::new(1)));
    let mut stack = Trace::new(boxed);
    assert_eq!(run_one(&mut stack, write(1, 0, 4)).status, Status::Success);
    assert_eq!(stack.events().len(), 2);
}
