//! The drive of a pool, damaged in any way: a mount is refused or gives a pool that works and can be
//! mounted again, and with wrong checksums no read returns data of another namespace.
//!
//! ```text
//! 0 mode: 0 wrong checksums, 1 corrected ones   1 which drive   2 number of changes
//! 3.. changes: zone, block, kind, offset, value; then commands
//! ```

use std::cell::Cell;
use std::sync::OnceLock;

use zonda_elastic::limits::{GROUP_WAIT_MAX, HEADER_BLOCKS, LOG_ZONES};
use zonda_elastic::testing::{BlockTag, Content, fit_checksum};
use zonda_elastic::{ElasticDevice, Goal, NamespaceConfig, PoolId, PoolOptions};
use zonda_layers::Memory;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, Lba,
    NamespaceId, Operation, Outcome, Payload, PayloadKind, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::Seed;
use crate::feed::Feed;

const ID: PoolId = PoolId([5; 16]);
const BLOCK_BYTES: usize = 512;
const ZONES: u32 = 20;
const ZONE_BLOCKS: u64 = 24;
/// Drives to damage.
const BASES: usize = 2;
/// Changes of one input, at most.
const CHANGES_MAX: usize = 8;

type Device = ElasticDevice<Memory>;

/// The blocks of each zone, and whether it is finished.
type Contents = Vec<(Vec<Vec<u8>>, bool)>;

fn geometry() -> Geometry {
    Geometry {
        metadata_bytes: 0,
        zone_size_blocks: Blocks(ZONE_BLOCKS),
        zone_capacity_blocks: Blocks(ZONE_BLOCKS),
        zone_count: ZONES,
        max_active_zones: Some(10),
        max_open_zones: Some(10),
        descriptor_extension_bytes: 0,
        ..Geometry::tiny()
    }
}

pub(crate) fn run(input: &[u8]) {
    NOW.set(Instant(1));
    let mut feed = Feed::new(input);
    let (is_corrected, which) = (feed.below(2) == 1, feed.below(BASES));
    let mut contents = bases()[which].clone();
    for _ in 0..feed.below(CHANGES_MAX + 1) {
        change(&mut contents, &mut feed, is_corrected);
    }
    let Some(mut device) = mount(drive_of(&contents)) else { return };
    check(&mut device, is_corrected);
    let mut number = 0;
    while !feed.is_empty() {
        number += 1;
        command(&mut device, &mut feed, number);
        device.pool().expect("it is open").check_invariants();
    }
    let mut device = mount(device.into_drive()).expect("a pool that was mounted can be mounted again");
    check(&mut device, is_corrected);
}

/// Changes a block of a zone that holds something, or the zone.
fn change(contents: &mut Contents, feed: &mut Feed<'_>, is_corrected: bool) {
    let zone = feed.below(ZONES as usize);
    let (block, kind, offset, value) = (feed.below(ZONE_BLOCKS as usize), feed.below(5), feed.u16(), feed.u8());
    let other = usize::from(offset) % ZONES as usize;
    match kind {
        0 | 1 => {
            // A pool has no checksums of its users' blocks: what is wrong there is another tenant's by chance.
            let is_of_users = zone >= LOG_ZONES as usize && block as u64 >= HEADER_BLOCKS;
            let Some(bytes) = contents[zone].0.get_mut(block).filter(|_| is_corrected || !is_of_users) else { return };
            let at = usize::from(offset) % BLOCK_BYTES;
            bytes[at] = if kind == 0 { value } else { bytes[at].wrapping_add(value) };
            if is_corrected {
                fit_checksum(bytes);
            }
        }
        2 => contents[zone] = (Vec::new(), false),
        3 => contents.swap(zone, other),
        _ => contents[zone].0.truncate(block),
    }
}

fn drive_of(contents: &Contents) -> Memory {
    let mut drive = Memory::new(geometry(), 1 << 22);
    for (zone, (blocks, is_finished)) in contents.iter().enumerate() {
        let start = geometry().zone_start(ZoneIndex(zone as u32));
        for (at, bytes) in blocks.iter().enumerate() {
            let buffer = BlockBuffer { data: bytes.clone().into(), metadata: Default::default() };
            let payload = Payload::Bytes(Box::new(buffer));
            // More zones may be active than the drive allows, if some of them were truncated.
            let _ =
                execute(&mut drive, Operation::Write { start: start + Blocks(at as u64), blocks: Blocks(1), payload });
        }
        if *is_finished && !blocks.is_empty() {
            let target = ZoneTarget::Zone(start);
            let _ = execute(&mut drive, Operation::ManageZones { action: ZoneAction::Finish, target });
        }
    }
    drive.power_cycle();
    drive
}

fn execute(drive: &mut Memory, operation: Operation) -> Completion {
    let command = Command::new(CommandId(u64::MAX), NamespaceId::FIRST, operation);
    drive.submit(Instant(0), command).expect("one at a time");
    let mut ended = CompletionQueue::new();
    drive.poll(Instant(0), &mut ended);
    ended.pop().expect("a drive in memory is fast")
}

/// The pool, once its epoch is recorded.
fn mount(mut drive: Memory) -> Option<Device> {
    drive.power_cycle();
    let mut device = ElasticDevice::new(drive, Goal::Mount { id: None, epoch_min: 0 }, PayloadKind::Bytes);
    let ended = quiesce(&mut device);
    assert!(ended.is_empty(), "no command was submitted");
    if let Some(error) = device.error() {
        assert!(!error.to_string().is_empty());
        return None;
    }
    let pool = device.pool().expect("it is open or refused");
    pool.check_invariants();
    assert!(pool.is_started(), "a drive without faults records the epoch");
    Some(device)
}

thread_local! {
    /// The time.
    static NOW: Cell<Instant> = const { Cell::new(Instant(1)) };
}

fn quiesce(device: &mut Device) -> Vec<Completion> {
    let mut ended = Vec::new();
    loop {
        let mut queue = CompletionQueue::new();
        device.poll(NOW.get(), &mut queue);
        if queue.is_empty() {
            return ended;
        }
        ended.extend(std::iter::from_fn(|| queue.pop()));
    }
}

fn submit(device: &mut Device, namespace: NamespaceId, operation: Operation) -> Option<Completion> {
    let command = Command::new(CommandId(1), namespace, operation);
    device.submit(NOW.get(), command).expect("one at a time");
    if let Some(ended) = quiesce(device).pop() {
        return Some(ended);
    }
    // With zones damaged, none may be left for a write, which fails after a while.
    NOW.set(NOW.get() + Duration::from_secs(1));
    assert!(quiesce(device).is_empty(), "the pool notices that");
    NOW.set(NOW.get() + GROUP_WAIT_MAX);
    quiesce(device).pop()
}

/// Reads everything. With wrong checksums, a block is of its namespace and place, or nothing.
fn check(device: &mut Device, is_corrected: bool) {
    let all: Vec<(NamespaceId, Geometry)> =
        device.namespaces().iter().map(|(id, geometry)| (id, geometry.clone())).collect();
    for (id, geometry) in all {
        for zone in (0..geometry.zone_count.min(64)).map(ZoneIndex) {
            let state = device.pool().expect("it is open").table(id).expect("it is listed").zone(zone).state;
            for block in (0..geometry.zone_capacity_blocks.0.min(128)).filter(|_| state != ZoneState::Offline) {
                let start = geometry.zone_start(zone) + Blocks(block);
                let ended = submit(device, id, Operation::Read { start, blocks: Blocks(1) });
                let ended = ended.expect("a read ends");
                let Outcome::Data(Payload::Bytes(buffer)) = ended.outcome else { continue };
                let found = BlockTag::of_block(&buffer.data, &[]);
                if let Content::Tag(tag) = found
                    && !is_corrected
                {
                    let place = (u64::from(id.0), u64::from(zone.0), block);
                    assert_eq!((tag.tenant, tag.zone, tag.block), place, "a block of another place");
                }
            }
        }
    }
}

fn command(device: &mut Device, feed: &mut Feed<'_>, number: u64) {
    let all: Vec<(NamespaceId, Geometry)> =
        device.namespaces().iter().map(|(id, geometry)| (id, geometry.clone())).collect();
    let (kind, which, zone) = (feed.below(7), feed.below(4), feed.below(16));
    let Some((id, geometry)) = all.get(which) else { return };
    let zone = ZoneIndex(zone as u32 % geometry.zone_count);
    let start = geometry.zone_start(zone);
    let target = ZoneTarget::Zone(start);
    let operation = match kind {
        0..=2 => {
            let found = device.pool().expect("it is open").table(*id).expect("it is listed").zone(zone);
            let block = found.write_pointer_blocks.0;
            let tag = BlockTag { tenant: id.0.into(), zone: zone.0.into(), block, write: number };
            let payload = Payload::Bytes(Box::new(tag.to_block(BLOCK_BYTES, 0)));
            Operation::Append { zone_start: start, blocks: Blocks(1), payload }
        }
        3 => Operation::ManageZones { action: ZoneAction::Finish, target },
        4 => Operation::ManageZones { action: ZoneAction::Reset, target },
        5 => Operation::Flush,
        _ => {
            // A namespace whose zones are damaged can be deleted, too.
            let _ = device.delete_namespace(NOW.get(), *id);
            assert!(quiesce(device).is_empty(), "a deletion is no command");
            return;
        }
    };
    let ended = submit(device, *id, operation);
    assert!(ended.is_some(), "every command ends");
}

/// Drives with pools of two namespaces: one whose zones are active, and one with finished and reset
/// ones, mounted a second time.
fn bases() -> &'static [Contents; BASES] {
    static ALL: OnceLock<[Contents; BASES]> = OnceLock::new();
    ALL.get_or_init(|| std::array::from_fn(make_base))
}

fn make_base(which: usize) -> Contents {
    let options = PoolOptions { zones_per_vzone: Some(2), width_max: Some(2), ..PoolOptions::default() };
    let drive = Memory::new(geometry(), 1 << 22);
    let mut device = ElasticDevice::new(drive, Goal::Create { id: ID, options }, PayloadKind::Bytes);
    quiesce(&mut device);
    for name in ["a", "b"] {
        let config = NamespaceConfig::new(name, [name.len() as u8; 16], 3, 2);
        device.create_namespace(NOW.get(), &config).expect("the drive has room");
        quiesce(&mut device);
    }
    let mut number = 0;
    for (namespace, zone, blocks) in [(1, 0, 20), (2, 0, 9), (1, 1, 5), (2, 1, 7)] {
        for _ in 0..blocks {
            number += 1;
            write_one(&mut device, NamespaceId(namespace), ZoneIndex(zone), number);
        }
    }
    if which == 1 {
        let size = device.geometry(NamespaceId(1)).zone_size_blocks.0;
        let manage = |zone: u64, action| Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(zone * size)) };
        for (namespace, zone, action) in [(1, 0, ZoneAction::Finish), (2, 1, ZoneAction::Reset)] {
            let ended = submit(&mut device, NamespaceId(namespace), manage(zone, action)).expect("it ends");
            assert!(ended.status.is_success());
        }
        device = mount(device.into_drive()).expect("it is whole");
    }
    contents_of(device.into_drive())
}

fn write_one(device: &mut Device, id: NamespaceId, zone: ZoneIndex, number: u64) {
    let start = device.geometry(id).zone_start(zone);
    let block = device.pool().expect("it is open").table(id).expect("it is listed").zone(zone).write_pointer_blocks.0;
    let tag = BlockTag { tenant: id.0.into(), zone: zone.0.into(), block, write: number };
    let payload = Payload::Bytes(Box::new(tag.to_block(BLOCK_BYTES, 0)));
    let ended = submit(device, id, Operation::Append { zone_start: start, blocks: Blocks(1), payload });
    assert!(ended.expect("a write ends").status.is_success());
}

fn contents_of(mut drive: Memory) -> Contents {
    let zones = (0..ZONES).map(ZoneIndex);
    zones
        .map(|zone| {
            let found = drive.zones().zone(zone);
            let (state, pointer) = (found.state, found.write_pointer_blocks.0);
            let start = geometry().zone_start(zone);
            let blocks = (0..pointer).map(|block| {
                let operation = Operation::Read { start: start + Blocks(block), blocks: Blocks(1) };
                match execute(&mut drive, operation).outcome {
                    Outcome::Data(Payload::Bytes(buffer)) => buffer.data.to_vec(),
                    other => panic!("a read returns bytes, not {other:?}"),
                }
            });
            (blocks.collect(), state == ZoneState::Full)
        })
        .collect()
}

pub(crate) fn seeds() -> Vec<Seed> {
    let commands: Vec<u8> = (0..60u8).map(|byte| byte.wrapping_mul(37)).collect();
    let mut seeds = vec![("nothing".to_owned(), Vec::new())];
    for which in 0..BASES as u8 {
        seeds.push((format!("untouched-{which}"), [&[0, which, 0], &commands[..]].concat()));
        for zone in 0..12u8 {
            for (kind, offset) in [(0, 40u8), (1, 50), (1, 70), (2, 0), (3, 9), (4, 0)] {
                let block = zone % 3;
                let change = [1, which, 1, zone, block, kind, offset, 0, 1];
                seeds.push((format!("{which}-{zone}-{kind}-{offset}"), [&change, &commands[..20]].concat()));
            }
        }
    }
    seeds
}
