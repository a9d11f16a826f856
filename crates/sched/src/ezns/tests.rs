//! The scheduler before devices that take a fixed time for each command.

mod model;

use std::collections::BTreeMap;

use zonda_layers::{Delay, DelayRule, Matcher, Null, When};
use zonda_zoned::{
    Blocks, Class, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation,
    Origin, Payload, Prng, StreamId, TenantId, ZonedDevice,
};

use super::{Ezns, EznsConfig};
use crate::limits::{EZNS_IDLE_STREAMS_MAX, WAITING_MAX};
use crate::tests::Narrow;
use crate::{Accepts, Outcome, Request, Scheduled, Scheduler, TenantLoad};

const ZONE_BLOCKS: u64 = 4096;
const LATENCY: Duration = Duration::from_micros(100);

/// Conventional zones with blocks of 4 KiB, so that writes need no order.
fn geometry() -> Geometry {
    Geometry {
        block_size_bytes: 4096,
        zone_size_blocks: Blocks(ZONE_BLOCKS),
        zone_capacity_blocks: Blocks(ZONE_BLOCKS),
        zone_count: 64,
        conventional_zone_count: 64,
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks: Blocks(1024),
        ..Geometry::tiny()
    }
}

type Device = Scheduled<Delay<Null>>;

fn device(config: EznsConfig) -> Device {
    Scheduled::new(slow(), Box::new(Ezns::new(config))).recording_releases()
}

/// Each command takes 100 us.
fn slow() -> Delay<Null> {
    let rule = DelayRule { matches: Matcher::default(), when: When::Always, fixed: LATENCY, spread: Duration::ZERO };
    Delay::new(Null::new(geometry()), vec![rule], Prng::new(1))
}

fn stream(number: u32, width: u8) -> Origin {
    Origin { stream: StreamId(number), stream_width: width, ..Origin::default() }
}

fn tenant(number: u16) -> Origin {
    Origin { tenant: TenantId(number), ..stream(0, 64) }
}

fn read(id: u64, zone: u64, origin: Origin) -> Command {
    let operation = Operation::Read { start: Lba(zone * ZONE_BLOCKS), blocks: Blocks(1) };
    Command::new(CommandId(id), NamespaceId::FIRST, operation).with_origin(origin)
}

fn write(id: u64, start: u64, blocks: u64, origin: Origin) -> Command {
    let operation = Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload: Payload::None };
    Command::new(CommandId(id), NamespaceId::FIRST, operation).with_origin(origin)
}

fn submit(device: &mut Device, at: Instant, commands: impl IntoIterator<Item = Command>) {
    commands.into_iter().for_each(|command| device.submit(at, command).expect("its queue is long"));
}

/// What is released until `at`.
fn released(device: &mut Device, at: Instant) -> Vec<u64> {
    let mut completions = CompletionQueue::new();
    while let Some(next) = device.next_timeout().filter(|next| *next <= at) {
        device.poll(next, &mut completions);
        device.check_invariants();
    }
    std::iter::from_fn(|| device.take_release()).map(|id| id.0).collect()
}

#[test]
fn a_stream_has_a_read_in_flight_for_each_of_its_zones_and_other_streams_have_their_own() {
    let mut device = device(EznsConfig::default());
    let narrow = (1..=9).map(|id| read(id, 0, stream(1, 2)));
    let wide = (11..=19).map(|id| read(id, 0, stream(2, 4)));
    submit(&mut device, Instant::ZERO, narrow.chain(wide));
    assert_eq!(released(&mut device, Instant::ZERO), [1, 2, 11, 12, 13, 14]);
    assert_eq!(released(&mut device, Instant::ZERO + LATENCY), [3, 15, 4, 16, 17, 18]);
}

#[test]
fn the_reads_of_a_zone_without_a_stream_have_a_window_of_their_own() {
    let mut device = device(EznsConfig::default());
    let zones = [(1, 7), (2, 7), (3, 8), (4, 8)];
    submit(&mut device, Instant::ZERO, zones.map(|(id, zone)| read(id, zone, Origin::default())));
    assert_eq!(released(&mut device, Instant::ZERO), [1, 3]);
    let mut wide = self::device(EznsConfig { zone_width: Some(2), ..EznsConfig::default() });
    submit(&mut wide, Instant::ZERO, zones.map(|(id, zone)| read(id, zone, Origin::default())));
    assert_eq!(released(&mut wide, Instant::ZERO), [1, 2, 3, 4]);
}

#[test]
fn a_zone_of_a_drive_with_few_active_ones_counts_for_as_many_as_the_drive_lacks() {
    let width = |active: Option<u32>, given: Option<u8>| {
        let drive = Geometry {
            max_active_zones: active,
            max_open_zones: active,
            ..slow().geometry(NamespaceId::FIRST).clone()
        };
        EznsConfig { zone_width: given, ..EznsConfig::default() }.scaled_to(&drive).width_of(2)
    };
    let none = [(Some(256), 2), (Some(14), 36), (Some(100), 4), (Some(4096), 2), (None, 2), (Some(1), 510)];
    for (active, expected) in none {
        assert_eq!(width(active, None), expected, "{active:?} active zones");
        assert_eq!(width(active, Some(3)), 6, "a width that is given applies");
    }
}

#[test]
fn a_stream_has_one_write_in_flight_for_each_of_its_zones() {
    let mut device = device(EznsConfig::default());
    submit(&mut device, Instant::ZERO, (1..=5).map(|id| write(id, id, 1, stream(1, 2))));
    assert_eq!(released(&mut device, Instant::ZERO), [1, 2]);
    assert_eq!(released(&mut device, Instant::ZERO + LATENCY), [3, 4]);
}

#[test]
fn writes_beyond_the_capacity_wait_for_tokens_which_come_each_millisecond() {
    let mut device = device(EznsConfig::default());
    // 128 KiB are 32 blocks; 100 us for a block are 10 blocks in 1 ms.
    submit(&mut device, Instant::ZERO, (1..=7).map(|id| write(id, 32 * id, 16, stream(1, 1))));
    let at = |micros| Instant::ZERO + Duration::from_micros(micros);
    assert_eq!(released(&mut device, at(200)), [1, 2]);
    assert_eq!(released(&mut device, at(1199)), [], "at 1.2 ms there are 12 tokens");
    assert_eq!(device.next_timeout(), Some(at(1200)));
    assert_eq!(released(&mut device, at(2200)), [3], "16 tokens at 1.6 ms");
}

#[test]
fn a_submission_adds_the_tokens_since_the_last_refill() {
    let mut device = device(EznsConfig::default());
    submit(&mut device, Instant::ZERO, [write(1, 0, 32, stream(1, 1)), write(2, 32, 5, stream(1, 1))]);
    let at = |micros| Instant::ZERO + Duration::from_micros(micros);
    assert_eq!(released(&mut device, at(550)), [1]);
    submit(&mut device, at(550), [write(3, 64, 1, stream(1, 1))]);
    assert_eq!(released(&mut device, at(550)), [2], "5 blocks of 100 us");
}

#[test]
fn management_flushes_and_reads_pass_writes_that_wait_for_tokens() {
    let mut device = device(EznsConfig::default());
    submit(&mut device, Instant::ZERO, [write(1, 0, 32, stream(1, 1)), write(2, 32, 32, stream(1, 1))]);
    released(&mut device, Instant::ZERO + LATENCY);
    let log = Command::new(CommandId(3), NamespaceId::FIRST, Operation::ReadChangedZones);
    let other = write(5, 8 * ZONE_BLOCKS, 32, stream(2, 1));
    let now = Instant::ZERO + LATENCY;
    submit(&mut device, now, [read(4, 9, stream(1, 1)), other, log]);
    assert_eq!(released(&mut device, now), [4, 5], "the log waits for the writes of its zones");
    let order = released(&mut device, now + Duration::from_millis(9));
    assert_eq!(order, [2, 3]);
}

#[test]
fn tenants_share_a_device_with_few_slots_by_their_weights() {
    let config = EznsConfig { weights: vec![(TenantId(2), 3)], ..EznsConfig::default() };
    let mut device = Scheduled::new(slow(), Box::new(Ezns::new(config))).with_in_flight_max(2).recording_releases();
    // Requests of 4 KiB: a quantum of 128 KiB has 32 of them.
    let commands = (0..1600).map(|id| read(id, 0, tenant(1 + (id % 2) as u16)));
    submit(&mut device, Instant::ZERO, commands);
    let order = released(&mut device, Instant::ZERO + LATENCY * 512);
    let of_first = order.iter().filter(|id| *id % 2 == 0).count();
    assert_eq!((of_first, order.len() - of_first), (257, 769));
}

#[test]
fn the_background_waits_for_the_foreground_but_one_request_is_released_in_each_period() {
    let period = Duration::from_micros(500);
    let mut device = device(EznsConfig { background_period: period, ..EznsConfig::default() });
    let one = stream(1, 1);
    let foreground = (100..200).map(|id| read(id, 0, one));
    let background = (1..=9).map(|id| read(id, 1, stream(2, 1)).in_background());
    submit(&mut device, Instant::ZERO, [read(0, 0, one)].into_iter().chain(background).chain(foreground));
    let order = released(&mut device, Instant::ZERO + period * 4);
    let places: Vec<usize> =
        order.iter().enumerate().filter(|(_, id)| **id < 10 && **id > 0).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 1 + 4, "one at once, and one in each period: {order:?}");
    assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 5), "{places:?}");
    let rest = released(&mut device, Instant::ZERO + period * 20);
    assert_eq!(order.len() + rest.len(), 110);
    assert_eq!(rest.last(), Some(&9), "what is left follows the foreground");
}

#[test]
fn the_background_is_not_held_up_by_a_foreground_that_uses_all_tokens_and_windows() {
    let mut device = device(EznsConfig::default());
    let (mut now, mut id, mut found) = (Instant::ZERO, 10, Vec::new());
    let of_stream = stream(1, 1);
    let background = [read(1, 0, of_stream), write(2, 1, 256, of_stream)].map(Command::in_background);
    submit(&mut device, now, [read(4, 9, of_stream), write(5, 512, 8, of_stream)].into_iter().chain(background));
    let mut waiting = [1, 1];
    while now < Instant::ZERO + Duration::from_millis(30) {
        while let Some(kind) = waiting.iter().position(|count| *count < 6) {
            waiting[kind] += 1;
            id += 2;
            let command = [read(id, 0, of_stream), write(id + 1, 1024 + id % 2048, 8, of_stream)];
            submit(&mut device, now, command.into_iter().skip(kind).take(1));
        }
        now = device.next_timeout().expect("commands are outstanding");
        let order = released(&mut device, now);
        order.iter().filter(|id| **id > 2).for_each(|id| waiting[(id % 2) as usize] -= 1);
        found.extend(order);
    }
    assert!(found.contains(&1) && found.contains(&2), "two requests in three periods");
    let of_foreground = |kind| found.iter().filter(|id| **id > 2 && **id % 2 == kind).count();
    assert!(of_foreground(0) > 500 && of_foreground(1) > 100, "{} {}", of_foreground(0), of_foreground(1));
}

#[test]
fn a_device_that_refuses_a_request_has_not_used_up_its_window_its_tokens_or_its_turn() {
    let device = Narrow::new(slow(), 1, 3);
    let mut device = Scheduled::new(device, Box::new(Ezns::new(EznsConfig::default()))).recording_releases();
    let commands = [write(1, 0, 32, stream(1, 8)), write(2, 64, 32, stream(1, 8)), read(3, 9, stream(1, 8))];
    for command in commands.into_iter().chain((4..7).map(|id| read(id, 9, stream(1, 8)))) {
        device.submit(Instant::ZERO, command).expect("its queue is long");
        device.check_invariants();
    }
    let mut completions = CompletionQueue::new();
    while let Some(at) = device.next_timeout() {
        device.poll(at, &mut completions);
        device.check_invariants();
    }
    let order: Vec<u64> = std::iter::from_fn(|| device.take_release()).map(|id| id.0).collect();
    assert_eq!(order, [1, 3, 4, 2, 5, 6]);
}

#[test]
fn rejected_commands_change_neither_windows_nor_the_measured_latency() {
    let mut scheduler = Ezns::new(EznsConfig::default());
    let mut device = device(EznsConfig::default());
    let request = Request::of(&write(1, 0, 1, stream(1, 1)), &geometry(), Instant::ZERO);
    submit(&mut device, Instant::ZERO, [write(1, 0, 1, stream(1, 1)), write(2, 8, 1, stream(1, 1))]);
    let id = waiting_id();
    scheduler.push(id, &request);
    assert_eq!(scheduler.pop(Instant::ZERO, Accepts::All), Some(id));
    scheduler.on_completion(Instant(9), &request, Outcome { latency: Duration(9), is_success: false });
    let after_a_period = Instant::ZERO + Duration::from_millis(10);
    assert_eq!(scheduler.monitor.block_latency(after_a_period, &scheduler.config), Duration::from_micros(100));
    scheduler.check_invariants();
}

/// A number of a request.
fn waiting_id() -> crate::RequestId {
    let mut order = crate::order::Order::default();
    let command = write(1, 0, 1, Origin::default());
    let request = Request::of(&command, &geometry(), Instant::ZERO);
    order.insert(command, request).0
}

#[test]
fn streams_that_are_idle_are_forgotten_and_those_in_use_are_kept() {
    let mut scheduler = Ezns::new(EznsConfig::default());
    let id = waiting_id();
    let request = |number| Request::of(&read(1, 0, stream(number, 1)), &geometry(), Instant::ZERO);
    let slow = Outcome { latency: Duration::from_millis(2), is_success: true };
    for number in 0..20_000 {
        for used in [number, 1_000_000] {
            let request = request(used);
            scheduler.push(id, &request);
            assert_eq!(scheduler.pop(Instant::ZERO, Accepts::All), Some(id));
            scheduler.on_completion(Instant::ZERO, &request, slow);
        }
        if number % 1000 == 0 {
            scheduler.check_invariants();
        }
    }
    assert_eq!(scheduler.streams.len(), EZNS_IDLE_STREAMS_MAX);
    assert!(scheduler.streams.is_known(&request(1_000_000)) && scheduler.streams.is_known(&request(19_999)));
    assert!(!scheduler.streams.is_known(&request(0)));
}

#[test]
fn the_loads_of_tenants_have_windows_tokens_and_requests_of_streams_in_progress() {
    let mut device = device(EznsConfig::default());
    let other = Origin { tenant: TenantId(3), ..stream(9, 1) };
    let reads = (1..=6).map(|id| read(id, 0, stream(id as u32 % 2, 2)));
    submit(&mut device, Instant::ZERO, reads.chain([write(7, 64, 12, other), write(8, 96, 4, other)]));
    let [first, second] = device.loads()[..] else { panic!("{:?}", device.loads()) };
    let figures =
        |load: TenantLoad| (load.tenant.0, load.streams, load.waiting, load.reads_in_flight, load.read_window);
    assert_eq!(figures(first), (0, 2, 2, 4, 4), "two streams of a window of two, with three reads each");
    assert_eq!(figures(second), (3, 1, 1, 0, 1));
    assert_eq!((second.writes_in_flight, second.write_tokens_bytes), (1, (128 - 48) * 1024));
    assert_eq!((first.write_tokens_bytes, device.in_flight()), (2 * 2 * 128 * 1024, 5));
    released(&mut device, Instant::ZERO + LATENCY * 4);
    assert_eq!(device.loads(), [], "idle streams are left out");
}

/// Random commands of several tenants, streams, classes and sizes to a device that refuses some of
/// them. Returns the longest time that a command has waited for its release.
fn longest_wait(seed: u64) -> Duration {
    let mut prng = Prng::new(seed).fork("mix");
    let weights = (0..4).map(|number| (TenantId(number), 1 + prng.below(20) as u32)).collect();
    let device = Narrow::new(slow(), 1 + prng.below(3) as usize, 2 + prng.below(6) as usize);
    let scheduler = Ezns::new(EznsConfig { weights, ..EznsConfig::default() });
    let mut device = Scheduled::new(device, Box::new(scheduler)).with_in_flight_max(5).recording_releases();
    let mut submitted: BTreeMap<CommandId, Instant> = BTreeMap::new();
    let mut completions = CompletionQueue::new();
    let (mut now, mut longest, mut next_id) = (Instant::ZERO, Duration::ZERO, 0);
    let (streams, background) = (1 + prng.below(5), prng.below(9));
    while next_id < 1500 || !submitted.is_empty() {
        while next_id < 1500 && submitted.len() < 24 {
            next_id += 1;
            let origin = Origin {
                tenant: TenantId(prng.below(4) as u16),
                class: if prng.below(8) < background { Class::Background } else { Class::Foreground },
                stream_width: prng.below(3) as u8,
                stream: StreamId(prng.below(streams) as u32),
            };
            let start = prng.below(60) * ZONE_BLOCKS + prng.below(2000);
            let blocks = 1 << prng.below(10);
            let command = match prng.below(8) {
                0..4 => read(next_id, start / ZONE_BLOCKS, origin),
                4..7 => write(next_id, start, blocks, origin),
                _ => Command::new(CommandId(next_id), NamespaceId::FIRST, Operation::Flush).with_origin(origin),
            };
            submitted.insert(command.id, now);
            device.submit(now, command).expect("its queue is long");
        }
        now = device.next_timeout().expect("a command waits or is in flight").max(now);
        device.poll(now, &mut completions);
        device.check_invariants();
        while completions.pop().is_some() {}
        while let Some(id) = device.take_release() {
            let since = submitted.remove(&id).expect("a command is released once");
            longest = longest.max(now.since(since));
        }
    }
    longest
}

#[test]
fn no_command_of_a_random_mix_waits_for_more_than_half_a_second() {
    // Most of it: 24 requests in the background, one in each 10 ms, and a flush behind them.
    let waits: Vec<Duration> = (0..40).map(longest_wait).collect();
    let longest = waits.iter().max().expect("there are runs");
    assert!(*longest < Duration::from_millis(500), "{waits:?}");
    assert!(*longest > Duration::from_millis(50), "the runs do throttle: {waits:?}");
    const { assert!(WAITING_MAX > 24) };
}
