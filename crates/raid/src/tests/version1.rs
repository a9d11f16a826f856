//! Volumes with on-media format version 1.

use std::collections::BTreeSet;

use zonda_zoned::{Blocks, Geometry, Lba, Prng, ZoneState};

use super::failures::{config, geometry, run_steps};
use crate::format::{SegmentHeader, Superblock};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Simulation};
use crate::{Event, Level, Scheme, Volume, VolumeConfig};

const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

fn with_active(max_active_zones: u32, metadata_bytes: u16) -> Geometry {
    let active = Some(max_active_zones);
    Geometry { max_active_zones: active, max_open_zones: active, ..geometry(metadata_bytes) }
}

/// A volume as written by version 1, after a crash: one header in each zone, superblocks of version
/// 1 in one metadata zone.
fn of_version_1(config: &VolumeConfig, geometry: Geometry, seed: u64) -> Simulation {
    let prng = Prng::new(seed);
    let members = config.scheme.members();
    let drives: Vec<Drive> =
        (0..members).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}")))).collect();
    let ids: Vec<[u8; 16]> = (0..members as u8).map(|at| [at + 1; 16]).collect();
    let volume =
        Volume::create_with_single_headers(config.clone(), vec![geometry; members], *b"world of volumes", &ids);
    let mut simulation =
        Simulation::of(volume.expect("a valid configuration"), config.clone(), drives, prng.fork("world"));
    simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
    run_steps(&mut simulation, 1000);
    simulation.crash();
    for drive in &mut simulation.drives {
        for (lba, superblock) in superblocks(drive) {
            let mut block = vec![0; drive.geometry().block_size_bytes as usize];
            let first = Superblock { has_single_headers: false, ..superblock.into_version_1() };
            first.write(&mut block);
            drive.overwrite(lba, &block);
        }
        drive.erase(1);
        assert!(superblocks(drive).iter().all(|(_, superblock)| superblock.version == 1));
    }
    assert_eq!(copies(&mut simulation), [1].into());
    simulation
}

fn superblocks(drive: &mut Drive) -> Vec<(Lba, Superblock)> {
    let size = drive.geometry().zone_size_blocks.0;
    let blocks = |zone: u32| (0..drive.count_written(zone)).map(move |at| Lba(u64::from(zone) * size + at));
    let lbas: Vec<Lba> = (0..METADATA_ZONES).flat_map(blocks).collect();
    lbas.into_iter().filter_map(|lba| Some((lba, Superblock::read(&drive.block(lba)?).ok()?))).collect()
}

/// The numbers of header copies in zones.
fn copies(simulation: &mut Simulation) -> BTreeSet<u32> {
    let mut copies = BTreeSet::new();
    for drive in &mut simulation.drives {
        for zone in METADATA_ZONES..drive.geometry().zone_count {
            if drive.zone_state(zone) != ZoneState::Empty {
                let start = Lba(u64::from(zone) * drive.geometry().zone_size_blocks.0);
                let header = SegmentHeader::read(&drive.block(start).expect("it is present")).expect("a header");
                copies.insert(header.copies);
            }
        }
    }
    copies
}

fn mount(simulation: &mut Simulation) {
    simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(simulation.events, [Event::Ready]);
}

fn read_all(simulation: &mut Simulation) {
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_volume_of_version_1_mounts_and_what_is_written_from_then_on_is_version_2() {
    for max_active_zones in [3, 8] {
        for metadata_bytes in [64, 0] {
            let mut simulation = of_version_1(&config(RAID5), with_active(max_active_zones, metadata_bytes), 1);
            mount(&mut simulation);
            read_all(&mut simulation);
            for drive in &mut simulation.drives {
                let newest = superblocks(drive).into_iter().map(|(_, block)| block).max_by_key(|one| one.sequence);
                assert_eq!(newest.expect("there are some").version, 2);
            }
            for _ in 0..6 {
                simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
            }
            run_steps(&mut simulation, 1000);
            simulation.crash();
            assert!(copies(&mut simulation).contains(&2), "new segments have two headers");
            mount(&mut simulation);
            read_all(&mut simulation);
        }
    }
}

#[test]
fn members_of_version_1_of_which_all_zones_are_active_that_may_be_take_their_second_log_once_they_can() {
    let mut simulation = of_version_1(&config(RAID5), with_active(6, 64), 2);
    for drive in &mut simulation.drives {
        let zones = METADATA_ZONES..drive.geometry().zone_count;
        let empty: Vec<u32> = zones.filter(|&zone| drive.zone_state(zone) == ZoneState::Empty).collect();
        empty.into_iter().for_each(|zone| drive.open(zone));
        let active = (0..drive.geometry().zone_count).filter(|&zone| drive.zone_state(zone).is_active()).count();
        assert_eq!(active, 6);
    }
    mount(&mut simulation);
    simulation.crash();
    for drive in &mut simulation.drives {
        let newest = |blocks: &[(Lba, Superblock)], zone: u32, size: u64| {
            blocks.iter().filter(|(lba, _)| lba.0 / size == u64::from(zone)).map(|(_, block)| block.sequence).max()
        };
        let (size, blocks) = (drive.geometry().zone_size_blocks.0, superblocks(drive));
        assert_eq!(newest(&blocks, 0, size), newest(&blocks, 1, size), "both zones have it");
    }
}

#[test]
fn a_volume_of_version_1_without_space_for_second_headers_keeps_single_headers() {
    let mut config = config(RAID5);
    config.tuning.reserve_percent = 1;
    // Another block at the start of such zones costs a stripe at their end.
    for (metadata_bytes, capacity) in [(64, 35), (0, 37)] {
        let geometry = Geometry { zone_capacity_blocks: Blocks(capacity), ..with_active(8, metadata_bytes) };
        let mut simulation = of_version_1(&config, geometry, 3);
        for _ in 0..2 {
            mount(&mut simulation);
            read_all(&mut simulation);
            for _ in 0..4 {
                simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
            }
            read_all(&mut simulation);
            simulation.crash();
            assert_eq!(copies(&mut simulation), [1].into(), "they would take blocks that the volume needs");
        }
    }
}
