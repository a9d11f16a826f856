//! Reads, writes and trims of a volume without faults.

use bytes::Bytes;
use zonda_layers::Memory;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, LbaRange, NamespaceId, Operation,
    Outcome, Payload, Prng, Status, ZonedDevice,
};

use crate::{Event, Level, MountOptions, Scheme, StreamShape, Volume, VolumeConfig, VolumeDevice};

pub(super) fn geometry(metadata_bytes: u16) -> Geometry {
    Geometry {
        metadata_bytes,
        zone_size_blocks: Blocks(68),
        zone_capacity_blocks: Blocks(65),
        zone_count: 24,
        max_active_zones: Some(5),
        max_open_zones: Some(5),
        max_transfer_blocks: Blocks(16),
        max_append_blocks: Blocks(8),
        descriptor_extension_bytes: 0,
        ..Geometry::tiny()
    }
}

pub(super) fn config(scheme: Scheme) -> VolumeConfig {
    let mut config = VolumeConfig::new("test", scheme);
    config.small = StreamShape { unit_blocks: 1, group_stripes: 8 };
    config.large = StreamShape { unit_blocks: 4, group_stripes: 1 };
    config.tuning.large_from_blocks = 8;
    config.tuning.reserve_percent = 30;
    config
}

fn volume(scheme: Scheme, metadata_bytes: u16) -> VolumeDevice<Memory> {
    let members = scheme.members();
    let ids: Vec<[u8; 16]> = (0..members as u8).map(|at| [at + 1; 16]).collect();
    let geometries = vec![geometry(metadata_bytes); members];
    let volume = Volume::create(config(scheme), geometries, [9; 16], &ids, false).expect("a valid configuration");
    let devices = (0..members).map(|_| Some(Memory::new(geometry(metadata_bytes), u64::MAX))).collect();
    let mut volume = VolumeDevice::new(volume, devices);
    volume.process(Instant::ZERO);
    assert_eq!(volume.volume_mut().poll_event(), Some(Event::Ready));
    let status = volume.volume().status();
    assert_eq!(status.writable_blocks, status.volume_blocks, "{scheme:?}: a new volume has space for all its blocks");
    volume
}

pub(super) fn contents(lba: u64, version: u64) -> Vec<u8> {
    let mut block = vec![version as u8; 512];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block[8..16].copy_from_slice(&version.to_le_bytes());
    block
}

#[test]
fn what_was_written_last_is_read_through_many_rounds_of_collection() {
    let schemes = [
        Scheme::raid5(3),
        Scheme { level: Level::Raid0, data: 1, parity: 0 },
        Scheme { level: Level::Raid0, data: 3, parity: 0 },
        Scheme { level: Level::Raid1, data: 1, parity: 2 },
        Scheme { level: Level::Raid01, data: 2, parity: 2 },
        Scheme { level: Level::Raid4, data: 2, parity: 1 },
        Scheme { level: Level::Raid6, data: 3, parity: 2 },
        Scheme { level: Level::ReedSolomon, data: 4, parity: 3 },
    ];
    for scheme in schemes {
        for metadata_bytes in [64, 0] {
            churn(scheme, metadata_bytes);
        }
    }
}

fn churn(scheme: Scheme, metadata_bytes: u16) {
    let mut volume = volume(scheme, metadata_bytes);
    let blocks = volume.volume().geometry().namespace_blocks().0;
    let mut model: Vec<u64> = vec![0; blocks as usize];
    let mut expected: Vec<(CommandId, Vec<u64>, u64)> = Vec::new();
    let mut prng = Prng::new(u64::from(metadata_bytes) + scheme.members() as u64);
    let mut now = Instant::ZERO;
    let mut completions = CompletionQueue::new();
    let mut version = 0;
    let mut ended = 0;
    for id in 1..=6000u64 {
        let count = if prng.chance(1, 8) { 1 + prng.below(16) } else { 1 + prng.below(3) }.min(blocks);
        let start = prng.below(blocks - count + 1);
        let range = start as usize..(start + count) as usize;
        let operation = match prng.below(10) {
            0..=4 => {
                version += 1;
                model[range].fill(version);
                let data: Vec<u8> = (start..start + count).flat_map(|lba| contents(lba, version)).collect();
                let buffer = BlockBuffer { data: data.into(), metadata: Bytes::new() };
                Operation::Write { start: Lba(start), blocks: Blocks(count), payload: Payload::Bytes(Box::new(buffer)) }
            }
            5 => {
                model[range].fill(0);
                Operation::Deallocate { ranges: [LbaRange { start: Lba(start), blocks: Blocks(count) }].into() }
            }
            6 if prng.chance(1, 4) => Operation::Flush,
            _ => {
                expected.push((CommandId(id), model[range].to_vec(), start));
                Operation::Read { start: Lba(start), blocks: Blocks(count) }
            }
        };
        let mut command = Command::new(CommandId(id), NamespaceId::FIRST, operation);
        while let Err(full) = volume.submit(now, command) {
            command = full.0;
            now = volume.next_timeout().expect("a full volume has commands in flight");
            volume.poll(now, &mut completions);
        }
        if prng.chance(1, 3) {
            volume.poll(now, &mut completions);
        }
        if id % 64 == 0 {
            volume.volume().check_invariants();
        }
        if id % 512 == 0 {
            while let Some(next) = volume.next_timeout() {
                now = next.max(now);
                volume.poll(now, &mut completions);
            }
        }
        while let Some(completion) = completions.pop() {
            ended += 1;
            assert_eq!(completion.status, Status::Success, "{scheme:?} {}", completion.id.0);
            let Outcome::Data(Payload::Bytes(found)) = completion.outcome else { continue };
            let at = expected.iter().position(|(id, ..)| *id == completion.id).expect("a read was submitted");
            let (_, versions, start) = expected.swap_remove(at);
            for (at, (block, &version)) in found.data.chunks(512).zip(&versions).enumerate() {
                let lba = start + at as u64;
                let right = if version == 0 { vec![0; 512] } else { contents(lba, version) };
                assert!(
                    block == right,
                    "{scheme:?}: block {lba} of read {} should have version {version}",
                    completion.id.0
                );
            }
        }
    }
    while let Some(next) = volume.next_timeout() {
        now = next.max(now);
        volume.poll(now, &mut completions);
    }
    volume.volume().check_invariants();
    assert_eq!(ended + completions.len(), 6000, "every command ends");
    let counters = volume.volume().counters();
    let tolerated = volume.volume().code_tolerates();
    let mut volume = remounted(volume, &[]);
    compare_all(&mut volume, &model);
    volume.volume().check_invariants();
    if tolerated > 0 {
        let volume = &mut remounted(volume, &[1]);
        compare_all(volume, &model);
        assert_eq!(volume.volume().counters().lost_blocks, 0);
    }
    assert!(counters.collected_segments > 20, "{scheme:?}: {counters:?}");
}

/// The volume after a crash, without some of its members.
fn remounted(volume: VolumeDevice<Memory>, without: &[usize]) -> VolumeDevice<Memory> {
    let geometry = volume.geometry(NamespaceId::FIRST).clone();
    let (volume, mut members) = volume.into_parts();
    let tuning = volume.tuning().clone();
    drop(volume);
    for &at in without {
        members[at] = None;
    }
    members.iter_mut().flatten().for_each(Memory::power_cycle);
    let geometries = members.iter().map(|member| Some(member.as_ref()?.geometry(NamespaceId::FIRST).clone())).collect();
    let volume = Volume::mount(geometries, tuning, MountOptions::of([9; 16])).expect("it is a volume");
    let mut volume = VolumeDevice::new(volume, members);
    volume.process(Instant::ZERO);
    let events: Vec<Event> = std::iter::from_fn(|| volume.volume_mut().poll_event()).collect();
    assert_eq!(events.last(), Some(&Event::Ready), "{events:?}");
    assert_eq!(volume.geometry(NamespaceId::FIRST), &geometry, "the volume has the same size as before");
    volume
}

fn compare_all(volume: &mut VolumeDevice<Memory>, model: &[u64]) {
    let mut completions = CompletionQueue::new();
    for (lba, &version) in (0..).zip(model) {
        let operation = Operation::Read { start: Lba(lba), blocks: Blocks(1) };
        let command = Command::new(CommandId(lba), NamespaceId::FIRST, operation);
        volume.submit(Instant::ZERO, command).expect("one command fits");
        volume.poll(Instant::ZERO, &mut completions);
        let completion = completions.pop().expect("memory answers at once");
        assert_eq!(completion.status, Status::Success, "block {lba}");
        let Outcome::Data(Payload::Bytes(found)) = completion.outcome else { panic!("a read brings data") };
        let right = if version == 0 { vec![0; 512] } else { contents(lba, version) };
        assert!(found.data == right, "block {lba} should have version {version}");
    }
}

/// The extents of the whole volume, block by block, each requested for at most `most` blocks.
fn holes(volume: &VolumeDevice<Memory>, most: u64) -> Vec<bool> {
    let mut holes = Vec::new();
    let blocks = volume.volume().geometry().namespace_blocks().0;
    while (holes.len() as u64) < blocks {
        let extent = volume.volume().extent(Lba(holes.len() as u64), Blocks(most));
        assert!((1..=most).contains(&extent.blocks.0), "{extent:?}");
        holes.extend((0..extent.blocks.0).map(|_| extent.is_hole));
    }
    assert_eq!(holes.len() as u64, blocks, "no extent goes beyond the end");
    holes
}

#[test]
fn blocks_are_holes_when_they_were_never_written_or_trimmed_since_and_then_they_read_as_zeros() {
    let mut volume = volume(Scheme::raid5(3), 64);
    let blocks = volume.volume().geometry().namespace_blocks().0;
    assert!(holes(&volume, u64::MAX).iter().all(|&is_hole| is_hole), "nothing was written");
    let (mut prng, mut completions) = (Prng::new(3), CompletionQueue::new());
    let mut model: Vec<u64> = vec![0; blocks as usize];
    let submit = |volume: &mut VolumeDevice<Memory>, id, operation| {
        volume
            .submit(Instant::ZERO, Command::new(CommandId(id), NamespaceId::FIRST, operation))
            .expect("few are in flight");
    };
    for round in 1..200 {
        let count = 1 + prng.below(24);
        let start = prng.below(blocks - count + 1);
        let range = start as usize..(start + count) as usize;
        let operation = if prng.chance(1, 2) {
            model[range].fill(0);
            Operation::Deallocate { ranges: [LbaRange { start: Lba(start), blocks: Blocks(count) }].into() }
        } else {
            model[range].fill(round);
            let data: Vec<u8> = (start..start + count).flat_map(|lba| contents(lba, round)).collect();
            let payload = Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: Bytes::new() }));
            Operation::Write { start: Lba(start), blocks: Blocks(count), payload }
        };
        submit(&mut volume, round, operation);
        // Before and after it is durable.
        if prng.chance(1, 4) {
            volume.poll(Instant(round * 1_000_000), &mut completions);
            while completions.pop().is_some() {}
        }
        let expected: Vec<bool> = model.iter().map(|&version| version == 0).collect();
        assert!(holes(&volume, 1 + prng.below(blocks)) == expected, "round {round}");
    }
    let end = Instant(1_000_000_000);
    volume.poll(end, &mut completions);
    while completions.pop().is_some() {}
    let found = holes(&volume, u64::MAX);
    for (lba, is_hole) in (0..).zip(found) {
        submit(&mut volume, lba, Operation::Read { start: Lba(lba), blocks: Blocks(1) });
        volume.poll(end, &mut completions);
        let Some(Outcome::Data(Payload::Bytes(block))) = completions.pop().map(|completion| completion.outcome) else {
            panic!("memory answers at once")
        };
        assert_eq!(is_hole, block.data.iter().all(|&byte| byte == 0), "block {lba}");
    }
    assert!(model.contains(&0) && model.iter().any(|&version| version > 0));
    let volume = remounted(volume, &[]);
    assert!(holes(&volume, u64::MAX) == model.iter().map(|&version| version == 0).collect::<Vec<_>>(), "after a mount");
}
