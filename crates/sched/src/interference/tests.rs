//! The scheduler before devices that take a fixed time for each command.

use std::collections::BTreeMap;

use zonda_layers::{Delay, DelayRule, Matcher, Null, When};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Origin,
    Payload, Prng, TenantId, ZonedDevice,
};

use super::{Interference, InterferenceConfig, Within};
use crate::limits::INTERFERENCE_OVERTAKES_MAX;
use crate::tests::Narrow;
use crate::{ConflictGroup, EznsConfig, GroupLoad, Scheduled, ZoneGroups};

const ZONE_BLOCKS: u64 = 4096;
const GROUPS: u32 = 4;

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

/// Zone z belongs to group z modulo 4; the last 16 zones to none that is known.
fn config() -> InterferenceConfig {
    let groups = (0..64).map(|zone| (zone < 48).then_some(ConflictGroup(zone % GROUPS)));
    InterferenceConfig { learns: false, ..InterferenceConfig::new(ZoneGroups::new(groups)) }
}

type Device = Scheduled<Delay<Null>>;

/// Each command takes 100 ns.
fn slow() -> Delay<Null> {
    let fixed = Duration(100);
    let rule = DelayRule { matches: Matcher::default(), when: When::Always, fixed, spread: Duration::ZERO };
    Delay::new(Null::new(geometry()), vec![rule], Prng::new(1))
}

fn device(config: InterferenceConfig, in_flight_max: usize) -> Device {
    Scheduled::new(slow(), Box::new(Interference::new(config))).with_in_flight_max(in_flight_max).recording_releases()
}

fn read(id: u64, zone: u64, blocks: u64) -> Command {
    let operation = Operation::Read { start: Lba(zone * ZONE_BLOCKS), blocks: Blocks(blocks) };
    Command::new(CommandId(id), NamespaceId::FIRST, operation)
}

fn write(id: u64, zone: u64, block: u64) -> Command {
    let start = Lba(zone * ZONE_BLOCKS + block);
    let operation = Operation::Write { start, blocks: Blocks(1), payload: Payload::None };
    Command::new(CommandId(id), NamespaceId::FIRST, operation)
}

fn tenant(number: u16, command: Command) -> Command {
    command.with_origin(Origin { tenant: TenantId(number), ..Origin::default() })
}

fn submit(device: &mut impl ZonedDevice, commands: impl IntoIterator<Item = Command>) {
    for command in commands {
        device.submit(Instant::ZERO, command).expect("the queue has slots");
    }
}

fn released<D: ZonedDevice>(device: &mut Scheduled<D>) -> Vec<u64> {
    std::iter::from_fn(|| device.take_release()).map(|id| id.0).collect()
}

/// Runs until all commands have ended; the order of all releases.
fn all_releases<D: ZonedDevice>(device: &mut Scheduled<D>) -> Vec<u64> {
    let mut completions = CompletionQueue::new();
    while let Some(at) = device.next_timeout() {
        device.poll(at, &mut completions);
        device.check_invariants();
    }
    assert_eq!(device.waiting(), 0, "nothing waits for ever");
    released(device)
}

/// A drive whose zones share hardware in its own way.
mod hidden;

#[test]
fn the_group_with_the_fewest_outstanding_requests_is_served_first() {
    let mut device = device(config(), 6);
    // Six requests of group 0, and then two of each other group: the first six are released.
    submit(&mut device, (0..12).map(|id| read(id, 0, 1)));
    submit(&mut device, (1..4).flat_map(|zone| [read(100 + zone, zone, 1), read(200 + zone, zone, 1)]));
    assert_eq!(released(&mut device), [0, 1, 2, 3, 4, 5]);
    for at in [0, 100].map(Instant) {
        device.poll(at, &mut CompletionQueue::new());
    }
    assert_eq!(released(&mut device), [101, 102, 103, 6, 201, 202], "one of each group before the second of any");
    device.check_invariants();
    assert_eq!(all_releases(&mut device), [203, 7, 8, 9, 10, 11]);
}

#[test]
fn writes_leave_a_quarter_of_the_slots_to_reads() {
    let mut device = device(config(), 8);
    submit(&mut device, (0..20).map(|id| write(id, 16 + id % 4, id / 4)));
    assert_eq!(released(&mut device), [0, 1, 2, 3, 4, 5], "six of eight slots");
    submit(&mut device, [read(100, 0, 1), read(101, 1, 1), read(102, 2, 1)]);
    assert_eq!(released(&mut device), [100, 101], "at once, although writes wait");
    device.check_invariants();
    let mut rest = all_releases(&mut device);
    rest.sort_unstable();
    assert_eq!(rest, (6..20).chain([102]).collect::<Vec<_>>());
}

#[test]
fn a_flush_waits_for_a_slot_that_a_write_leaves() {
    let mut device = device(config(), 4);
    submit(&mut device, (0..3).map(|id| write(id, id, 0)));
    submit(&mut device, [Command::new(CommandId(50), NamespaceId::FIRST, Operation::Flush)]);
    assert_eq!(released(&mut device), [0, 1, 2]);
    assert_eq!(all_releases(&mut device), [50]);
}

#[test]
fn the_scheduler_reports_the_requests_of_each_group() {
    let mut device = device(config(), 3);
    submit(&mut device, [read(0, 0, 1), read(1, 5, 1), read(2, 4, 1), read(3, 8, 1), read(4, 63, 1)]);
    let load =
        |group: Option<u32>, waiting, in_flight| GroupLoad { group: group.map(ConflictGroup), waiting, in_flight };
    assert_eq!(device.group_loads(), [load(Some(0), 1, 2), load(Some(1), 0, 1), load(None, 1, 0)]);
}

#[test]
fn zones_without_a_group_have_turns_as_one_group() {
    let mut device = device(config(), 1);
    submit(&mut device, [read(0, 0, 1), read(1, 60, 1), read(2, 61, 1), read(3, 4, 1), read(4, 1, 1)]);
    // None is outstanding when the next is chosen, so that groups have turns.
    assert_eq!(all_releases(&mut device), [0, 1, 4, 3, 2]);
}

#[test]
fn without_a_table_requests_are_released_in_the_order_of_their_arrival() {
    let mut device = device(InterferenceConfig::new(ZoneGroups::default()), 1);
    let zones = [5, 3, 3, 60, 1, 2, 2, 9];
    submit(&mut device, zones.into_iter().enumerate().map(|(id, zone)| read(id as u64, zone, 1)));
    assert_eq!(all_releases(&mut device), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn tenants_take_turns_in_a_group_by_bytes_and_weights() {
    for (weight, share) in [(1, 50), (3, 75)] {
        let mut device = device(config(), 1);
        device.set_weight(TenantId(2), weight);
        // The first has larger requests and arrives first.
        submit(&mut device, (0..200).map(|id| tenant(1, read(id, 0, 32))));
        submit(&mut device, (1000..2600).map(|id| tenant(2, read(id, 0, 4))));
        // Both have requests as long as this.
        let order = &all_releases(&mut device)[..500];
        let blocks = |of_second: bool| -> u64 {
            let ids = order.iter().filter(|id| (**id >= 1000) == of_second);
            ids.map(|id| if *id < 1000 { 32 } else { 4 }).sum()
        };
        let percent = blocks(true) * 100 / (blocks(true) + blocks(false));
        assert!(percent.abs_diff(share) <= 3, "weight {weight}: {percent}% of the blocks");
    }
}

#[test]
fn a_tenant_with_many_requests_does_not_delay_one_with_few() {
    let mut device = device(config(), 1);
    submit(&mut device, (0..1000).map(|id| tenant(1, read(id, 0, 8))));
    submit(&mut device, [tenant(2, read(5000, 0, 8))]);
    let place = all_releases(&mut device).iter().position(|id| *id == 5000).expect("it is released");
    assert!(place <= 6, "after a turn of the other tenant, not as number {place}");
}

#[test]
fn requests_in_the_background_wait_for_those_in_the_foreground_of_their_group_only() {
    let mut device = device(config(), 1);
    let commands = [read(0, 0, 1), read(1, 0, 1).in_background(), read(2, 0, 1), read(3, 1, 1).in_background()];
    submit(&mut device, commands);
    assert_eq!(all_releases(&mut device), [0, 3, 2, 1]);
}

#[test]
fn no_request_is_overtaken_by_more_than_the_bound() {
    let mut device = device(config(), 1);
    // A request in the background of a group whose foreground never ends, and tenants without end.
    submit(&mut device, [read(0, 0, 1), read(1, 0, 1).in_background()]);
    let mut completions = CompletionQueue::new();
    let mut id = 10;
    let mut place = None;
    let mut count = 0;
    while place.is_none() && count < 3 * INTERFERENCE_OVERTAKES_MAX {
        while device.waiting() < 12 {
            id += 1;
            submit(&mut device, [tenant(id as u16 % 3, read(id, id % 4, 8))]);
        }
        let at = device.next_timeout().expect("requests are in flight");
        device.poll(at, &mut completions);
        for released in released(&mut device) {
            count += 1;
            place = place.or((released == 1).then_some(count));
        }
    }
    let place = place.expect("it is released");
    assert!((INTERFERENCE_OVERTAKES_MAX - 2..=INTERFERENCE_OVERTAKES_MAX + 2).contains(&place), "{place}");
}

#[test]
fn a_group_that_is_always_busy_does_not_starve_another() {
    let mut device = device(config(), 4);
    let mut completions = CompletionQueue::new();
    let mut prng = Prng::new(3);
    let mut waited: BTreeMap<u64, u32> = BTreeMap::new();
    let mut longest = 0;
    for id in 0..20_000 {
        // Nine of ten requests are to one group.
        let zone = if prng.chance(9, 10) { 0 } else { prng.below(48) };
        submit(&mut device, [read(id, zone, 1)]);
        waited.insert(id, 0);
        while device.waiting() > 64 {
            let at = device.next_timeout().expect("requests are in flight");
            device.poll(at, &mut completions);
            for released in released(&mut device) {
                longest = longest.max(waited.remove(&released).expect("it waits"));
                waited.values_mut().for_each(|count| *count += 1);
            }
        }
    }
    assert!(longest < 200, "64 requests wait at a time: {longest}");
}

#[test]
fn reads_pass_writes_that_the_device_refuses() {
    let device = Narrow::new(slow(), 1, 8);
    let mut device = Scheduled::new(device, Box::new(Interference::new(config()))).recording_releases();
    submit(&mut device, [write(0, 0, 0), write(1, 0, 1), write(2, 1, 0), read(3, 0, 1), read(4, 2, 1)]);
    assert_eq!(released(&mut device), [0, 3, 4]);
    device.check_invariants();
    assert_eq!(all_releases(&mut device), [2, 1], "group 1 has none outstanding");
}

#[test]
fn the_order_inside_a_group_may_be_that_of_ezns() {
    let within = Within::Ezns(EznsConfig::default());
    let mut device = device(InterferenceConfig { within, ..config() }, 64);
    submit(&mut device, (0..20).map(|id| read(id, id % 2, 1)));
    // The window of each zone begins with one read.
    assert_eq!(released(&mut device), [0, 1]);
    device.check_invariants();
    let loads = device.loads();
    assert_eq!((loads.len(), loads[0].streams, loads[0].read_window), (1, 2, 2), "both groups together");
    let mut order = all_releases(&mut device);
    order.sort_unstable();
    assert_eq!(order, (2..20).collect::<Vec<_>>());
}

#[test]
fn writes_that_wait_for_tokens_are_released_when_they_come() {
    let config = EznsConfig { token_capacity_bytes: 4096, ..EznsConfig::default() };
    let mut device = device(InterferenceConfig { within: Within::Ezns(config), ..self::config() }, 64);
    submit(&mut device, (0..40).map(|id| write(id, id % 8, id)));
    let mut order = all_releases(&mut device);
    order.sort_unstable();
    assert_eq!(order, (0..40).collect::<Vec<_>>());
}
