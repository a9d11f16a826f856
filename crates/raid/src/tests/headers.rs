//! Damaged or temporarily unreadable headers of segments.

use zonda_zoned::{BlockBuffer, Blocks, Command, CommandId, Lba, NamespaceId, Operation, Payload, ZoneState};

use super::sides::{RAID1, refusal, written};
use crate::format::{HEADER_COPIES, SegmentHeader, crc};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Simulation};
use crate::{Level, MemberIndex, Scheme, VolumeError};

const RAID0: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
/// Offset of a header's checksum, and of its version, where the checksummed bytes begin.
const CRC_AT: usize = 4;
const VERSION_AT: usize = 8;

const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

fn mount(simulation: &mut Simulation, without: u32) {
    simulation.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

fn read_all(simulation: &mut Simulation) {
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

/// The first block of each zone of a segment that holds stripes, by sequence number.
pub(super) fn zones(drive: &mut Drive) -> Vec<(u64, Lba)> {
    let size = drive.geometry().zone_size_blocks.0;
    let mut found: Vec<(u64, Lba)> = (METADATA_ZONES..drive.geometry().zone_count)
        .filter_map(|zone| {
            let is_empty = drive.zone_state(zone) == ZoneState::Empty;
            if is_empty || drive.count_written(zone) <= u64::from(HEADER_COPIES) {
                return None;
            }
            let start = Lba(u64::from(zone) * size);
            let header = SegmentHeader::read(&drive.block(start)?).ok()?;
            Some((header.segment, start))
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn one_damaged_block_of_a_header_costs_nothing_on_one_drive() {
    for metadata_bytes in [64, 0] {
        for copy in 0..u64::from(HEADER_COPIES) {
            let mut simulation = written(RAID0, metadata_bytes, 1);
            simulation.crash();
            for (_, start) in zones(&mut simulation.drives[0]) {
                simulation.drives[0].flip(Lba(start.0 + copy));
            }
            mount(&mut simulation, 0);
            read_all(&mut simulation);
        }
    }
}

#[test]
fn a_volume_has_another_version_if_a_first_header_says_so_and_not_if_a_second_one_does() {
    for copy in 0..u64::from(HEADER_COPIES) {
        let mut simulation = written(RAID5, 64, 1);
        simulation.crash();
        let (_, start) = zones(&mut simulation.drives[0])[0];
        if copy > 0 {
            simulation.drives[0].flip(start);
        }
        simulation.drives[0].rewrite(Lba(start.0 + copy), |block| {
            block[VERSION_AT..VERSION_AT + 2].fill(0x7f);
            let sum = crc(&block[VERSION_AT..]);
            block[CRC_AT..VERSION_AT].copy_from_slice(&sum.to_le_bytes());
        });
        if copy == 0 {
            let error = refusal(&mut simulation, 0);
            assert!(matches!(error, VolumeError::Version { found: 0x7f7f, .. }), "{error}");
        } else {
            mount(&mut simulation, 0);
            read_all(&mut simulation);
        }
    }
}

#[test]
fn temporarily_unreadable_headers_lose_nothing_once_they_can_be_read() {
    for times in [1, 5, 12] {
        let mut simulation = written(RAID0, 64, 2);
        simulation.crash();
        simulation.drives[0].fail_next(times, |geometry, operation| {
            matches!(operation, Operation::Read { start, .. } if geometry.zone_of(*start).is_some_and(|zone| {
                let offset = start.0 - geometry.zone_start(zone).0;
                zone.0 == METADATA_ZONES + 1 && offset < u64::from(HEADER_COPIES)
            }))
        });
        if times == 12 {
            let error = refusal(&mut simulation, 0);
            assert!(matches!(error, VolumeError::UnidentifiedLosses { .. }), "{error}");
        }
        simulation.drives[0].complete_orphaned();
        mount(&mut simulation, 0);
        read_all(&mut simulation);
    }
}

#[test]
fn without_any_header_of_a_zone_a_drive_alone_is_refused_and_nothing_is_reset() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID0, metadata_bytes, 3);
        simulation.crash();
        let (_, start) = zones(&mut simulation.drives[0])[1];
        let copies: Vec<Lba> = (0..u64::from(HEADER_COPIES)).map(|copy| Lba(start.0 + copy)).collect();
        copies.iter().for_each(|&lba| simulation.drives[0].flip(lba));
        for _ in 0..2 {
            let error = refusal(&mut simulation, 0);
            assert!(matches!(error, VolumeError::UnidentifiedLosses { .. }), "{error}");
        }
        copies.iter().for_each(|&lba| simulation.drives[0].flip(lba));
        mount(&mut simulation, 0);
        read_all(&mut simulation);
    }
}

#[test]
fn a_header_that_was_written_over_that_of_another_zone_is_damage() {
    for (from, to) in [(0, 1), (1, 0), (2, 0)] {
        for without in [0, 0b10] {
            let mut simulation = written(RAID1, 64, 2);
            simulation.crash();
            let zones = zones(&mut simulation.drives[0]);
            let ((_, from), (sequence, to)) = (zones[from], zones[to]);
            let header = simulation.drives[0].block(from).expect("it can be read");
            simulation.drives[0].overwrite(to, &header);
            mount(&mut simulation, without);
            read_all(&mut simulation);
            let damaged = simulation.volume.counters().repaired_blocks;
            assert!(damaged > 0, "segment {sequence}: the block that was overwritten is counted");
        }
    }
}

#[test]
fn a_mirror_that_is_alone_with_a_damaged_header_waits_for_the_other_member() {
    let count = zones(&mut written(RAID1, 64, 4).drives[0]).len();
    for (scrubs, at) in [0, 2].into_iter().flat_map(|scrubs| (0..count).map(move |at| (scrubs, at))) {
        let mut simulation = written(RAID1, 64, 4);
        let (_, start) = zones(&mut simulation.drives[0])[at];
        for copy in 0..u64::from(HEADER_COPIES) {
            simulation.drives[0].flip(Lba(start.0 + copy));
        }
        for _ in 0..scrubs {
            simulation.volume.start_scrub(simulation.now());
            simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        }
        simulation.crash();
        if scrubs == 0 {
            let error = refusal(&mut simulation, 0b10);
            assert!(matches!(error, VolumeError::UnidentifiedLosses { .. }), "{error}");
            mount(&mut simulation, 0);
            read_all(&mut simulation);
        }
        // Whether a scrub or a mount found it: segments with damaged headers were moved, and each
        // member is sufficient alone.
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.crash();
        mount(&mut simulation, 0b10);
        read_all(&mut simulation);
    }
}

#[test]
fn two_damaged_headers_of_three_are_refused_without_the_third_member_and_known_with_it() {
    let mut simulation = written(RAID5, 64, 5);
    simulation.crash();
    let segments = zones(&mut simulation.drives[0]);
    for at in 1..3 {
        let (_, start) = *zones(&mut simulation.drives[at])
            .iter()
            .find(|(sequence, _)| *sequence == segments[1].0)
            .expect("each member has a zone of each segment");
        for copy in 0..u64::from(HEADER_COPIES) {
            simulation.drives[at].flip(Lba(start.0 + copy));
        }
    }
    let error = refusal(&mut simulation, 0b001);
    assert!(matches!(error, VolumeError::UnidentifiedLosses { .. }), "{error}");
    mount(&mut simulation, 0);
    read_all(&mut simulation);
}

#[test]
fn a_zone_that_a_rebuild_wrote_is_known_by_its_blocks() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID1, metadata_bytes, 6);
        simulation.replace(0).unwrap_or_else(|violation| panic!("{violation}"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.crash();
        let (_, start) = zones(&mut simulation.drives[0])[1];
        for copy in 0..u64::from(HEADER_COPIES) {
            simulation.drives[0].flip(Lba(start.0 + copy));
        }
        mount(&mut simulation, 0);
        read_all(&mut simulation);
        simulation.crash();
        mount(&mut simulation, 0b10);
        read_all(&mut simulation);
    }
}

#[test]
fn a_zone_that_its_blocks_alone_identify_serves_reads_of_blocks_that_are_damaged_elsewhere() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID1, metadata_bytes, 6);
        simulation.replace(0).unwrap_or_else(|violation| panic!("{violation}"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.crash();
        let (sequence, start) = zones(&mut simulation.drives[0])[1];
        for copy in 0..u64::from(HEADER_COPIES) {
            simulation.drives[0].flip(Lba(start.0 + copy));
        }
        let size = simulation.drives[1].geometry().zone_size_blocks.0;
        let (_, other) =
            *zones(&mut simulation.drives[1]).iter().find(|(at, _)| *at == sequence).expect("a mirror has it");
        for lba in simulation.drives[1].written_blocks((other.0 / size) as u32) {
            if lba.0 >= other.0 + u64::from(HEADER_COPIES) {
                simulation.drives[1].lose_block(lba);
            }
        }
        mount(&mut simulation, 0);
        read_all(&mut simulation);
    }
}

#[test]
fn a_mount_moves_the_blocks_of_a_segment_of_which_one_header_is_damaged() {
    for damaged in [None, Some((0, 0)), Some((0, 1)), Some((1, 0)), Some((1, 1))] {
        let mut simulation = written(RAID1, 64, 4);
        simulation.crash();
        let (sequence, _) = zones(&mut simulation.drives[0])[0];
        if let Some((member, copy)) = damaged {
            let drive: &mut Drive = &mut simulation.drives[member];
            let (_, start) = *zones(drive).iter().find(|(at, _)| *at == sequence).expect("a mirror has it");
            drive.flip(Lba(start.0 + copy));
        }
        mount(&mut simulation, 0);
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        for drive in &mut simulation.drives {
            let is_present = zones(drive).iter().any(|(at, _)| *at == sequence);
            assert_eq!(is_present, damaged.is_none(), "segment {sequence}: {damaged:?}");
        }
        read_all(&mut simulation);
    }
}

#[test]
fn zones_that_went_offline_on_both_members_of_a_mirror_cost_nothing_where_each_names_that_of_the_other() {
    let mut simulation = written(RAID1, 64, 4);
    simulation.crash();
    for member in 0..2 {
        let size = simulation.drives[member].geometry().zone_size_blocks.0;
        let (_, start) = zones(&mut simulation.drives[member])[member];
        simulation.drives[member].degrade((start.0 / size) as u32, ZoneState::Offline);
    }
    mount(&mut simulation, 0);
    read_all(&mut simulation);
}

#[test]
fn a_zone_of_which_nothing_can_be_read_is_the_one_that_another_header_names() {
    let mut simulation = written(RAID1, 64, 7);
    simulation.crash();
    let (_, start) = zones(&mut simulation.drives[0])[1];
    let zone = (start.0 / simulation.drives[0].geometry().zone_size_blocks.0) as u32;
    for lba in simulation.drives[0].written_blocks(zone) {
        simulation.drives[0].lose_block(lba);
    }
    mount(&mut simulation, 0);
    read_all(&mut simulation);
    simulation.crash();
    mount(&mut simulation, 0b10);
    read_all(&mut simulation);
}

#[test]
fn a_header_that_was_cut_short_hides_nothing_beside_a_free_zone_that_went_offline() {
    let mut simulation = written(RAID1, 64, 4);
    simulation.crash();
    let free = |drive: &Drive| {
        let is_empty = |zone: &u32| drive.zone_state(*zone) == ZoneState::Empty;
        (METADATA_ZONES..drive.geometry().zone_count).find(is_empty).expect("a zone is free")
    };
    let zone = free(&simulation.drives[1]);
    simulation.drives[1].degrade(zone, ZoneState::Offline);
    // The other member was opening a segment: the first block of a header is damaged, and nothing
    // follows.
    let geometry = simulation.drives[0].geometry().clone();
    let start = Lba(u64::from(free(&simulation.drives[0])) * geometry.zone_size_blocks.0);
    let data = vec![0x5a; geometry.block_size_bytes as usize];
    let buffer = BlockBuffer { data: data.into(), metadata: vec![0x5a; 64].into() };
    let operation = Operation::Write { start, blocks: Blocks(1), payload: Payload::Bytes(Box::new(buffer)) };
    let command = Command::new(CommandId(7), NamespaceId::FIRST, operation);
    simulation.drives[0].submit(command).expect("one command fits");
    while simulation.drives[0].has_work() {
        simulation.drives[0].step();
    }
    assert_eq!(simulation.drives[0].count_written((start.0 / geometry.zone_size_blocks.0) as u32), 1);
    mount(&mut simulation, 0);
    read_all(&mut simulation);
}

#[test]
fn a_segment_with_too_few_zones_waits_for_the_member_that_has_another() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID5, metadata_bytes, 8);
        simulation.crash();
        let (_, start) = zones(&mut simulation.drives[1])[1];
        let zone = (start.0 / simulation.drives[1].geometry().zone_size_blocks.0) as u32;
        simulation.drives[1].degrade(zone, ZoneState::Offline);
        let error = refusal(&mut simulation, 0b001);
        let missing = vec![MemberIndex(0)];
        assert_eq!(error, VolumeError::TooManyMissing { tolerates: 1, missing, rebuilding: Vec::new() });
        mount(&mut simulation, 0);
        read_all(&mut simulation);
    }
}

#[test]
fn a_refusal_counts_all_blocks_but_the_first_of_each_zone_that_went_offline_unseen() {
    for count in [1, 2] {
        let mut simulation = written(RAID0, 64, 3);
        simulation.crash();
        let (size, capacity) = {
            let geometry = simulation.drives[0].geometry();
            (geometry.zone_size_blocks.0, geometry.zone_capacity_blocks.0)
        };
        for (_, start) in zones(&mut simulation.drives[0]).into_iter().skip(1).take(count) {
            simulation.drives[0].degrade((start.0 / size) as u32, ZoneState::Offline);
        }
        let blocks = count as u64 * (capacity - 1);
        let expected = VolumeError::UnidentifiedLosses { member: MemberIndex(0), segment: 0, blocks };
        assert_eq!(refusal(&mut simulation, 0), expected);
    }
}
