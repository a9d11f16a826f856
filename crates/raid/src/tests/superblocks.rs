//! Damaged superblocks, failing metadata zones, and volumes of version 1.

use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Geometry, Lba, NamespaceId, Operation, Payload, Prng, ZoneAction,
    ZoneState, ZoneTarget,
};

use super::failures::{config, geometry};
use super::sides::{RAID1, refusal, written};
use crate::format::{MemberState, Superblock};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Request, Simulation};
use crate::{Event, Level, MemberIndex, Scheme, VolumeError};

/// The last superblock of a zone, and its address.
fn last_superblock(drive: &mut Drive, zone: u32) -> (Lba, Superblock) {
    let start = u64::from(zone) * drive.geometry().zone_size_blocks.0;
    let lba = Lba(start + drive.count_written(zone) - 1);
    let block = drive.block(lba).expect("it was written");
    (lba, Superblock::read(&block).expect("a superblock"))
}

fn simulation_on(max_active_zones: u32, seed: u64) -> Simulation {
    volume_on(RAID1, max_active_zones, seed)
}

fn volume_on(scheme: Scheme, max_active_zones: u32, seed: u64) -> Simulation {
    let active = Some(max_active_zones);
    let geometry = Geometry { max_active_zones: active, max_open_zones: active, ..geometry(64) };
    let prng = Prng::new(seed);
    let drives = (0..scheme.members()).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}"))));
    Simulation::create(config(scheme), drives.collect(), prng.fork("world")).expect("a valid configuration")
}

/// Writes damaged blocks behind the last superblock of a zone.
fn write_damaged(drive: &mut Drive, zone: u32, blocks: u64) {
    let start = Lba(u64::from(zone) * drive.geometry().zone_size_blocks.0 + drive.count_written(zone));
    let buffer = BlockBuffer {
        data: vec![0x5A; 512 * blocks as usize].into(),
        metadata: vec![0x5A; usize::from(drive.geometry().metadata_bytes) * blocks as usize].into(),
    };
    let operation = Operation::Write { start, blocks: Blocks(blocks), payload: Payload::Bytes(Box::new(buffer)) };
    let before = drive.count_written(zone);
    drive.submit(Command::new(CommandId(0), NamespaceId::FIRST, operation)).expect("it is accepted");
    drive.complete_orphaned();
    assert_eq!(drive.count_written(zone), before + blocks);
}

fn mount(simulation: &mut Simulation, without: u32) {
    simulation.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_new_volume_survives_one_damaged_metadata_block_on_each_member() {
    for max_active_zones in [3, 8] {
        let blocks: Vec<Vec<Lba>> = {
            let mut simulation = simulation_on(max_active_zones, 1);
            simulation.drives.iter_mut().map(metadata_blocks).collect()
        };
        assert_eq!(blocks[0].len(), 2, "{blocks:?}");
        for at in 0..4 {
            let mut simulation = simulation_on(max_active_zones, 1);
            simulation.crash();
            simulation.drives[0].flip(blocks[0][at % 2]);
            simulation.drives[1].flip(blocks[1][at / 2]);
            mount(&mut simulation, 0);
            simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
            simulation.crash();
            // The mount has rewritten both.
            for drive in &mut simulation.drives {
                let copies: Vec<u64> = metadata_blocks(drive)
                    .into_iter()
                    .filter_map(|lba| Superblock::read(&drive.block(lba).expect("it was written")).ok())
                    .map(|superblock| superblock.epoch)
                    .collect();
                let newest = copies.iter().max().expect("there are some");
                assert_eq!(copies.iter().filter(|epoch| *epoch == newest).count(), 2, "{copies:?}");
            }
            mount(&mut simulation, 0);
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

/// Written blocks of the metadata zones.
fn metadata_blocks(drive: &mut Drive) -> Vec<Lba> {
    let size = drive.geometry().zone_size_blocks.0;
    let blocks = |zone: u32| (0..drive.count_written(zone)).map(move |at| Lba(u64::from(zone) * size + at));
    (0..METADATA_ZONES).flat_map(blocks).collect()
}

#[test]
fn what_the_newest_superblock_said_is_not_undone_where_it_cannot_be_read() {
    let mut simulation = written(RAID1, 64, 1);
    simulation.crash();
    mount(&mut simulation, 0b10);
    assert!(simulation.submit(&Request::Write { start: 0, blocks: 8 }).expect("it is accepted"));
    simulation.quiesce().expect("it completes");
    simulation.crash();
    let (first, newest) = last_superblock(&mut simulation.drives[0], 0);
    let (second, other) = last_superblock(&mut simulation.drives[0], 1);
    assert_eq!((newest.sequence, newest.members[1].state), (other.sequence, MemberState::Failed));
    simulation.drives[0].flip(first);
    simulation.drives[0].flip(second);
    let error = refusal(&mut simulation, 0);
    assert!(matches!(error, VolumeError::Member { member: MemberIndex(0), .. }), "{error}");
    assert!(error.to_string().contains("superblock"), "{error}");
    simulation.drives[0].flip(second);
    mount(&mut simulation, 0);
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

#[test]
fn a_superblock_that_was_cut_short_and_damaged_was_never_recorded() {
    // With few active zones the first of two copies, otherwise that of one zone of two.
    for max_active_zones in [3, 8] {
        for zone in if max_active_zones == 3 { 0..1 } else { 0..METADATA_ZONES } {
            let mut simulation = simulation_on(max_active_zones, 6);
            simulation.fill().expect("all is written");
            simulation.crash();
            write_damaged(&mut simulation.drives[0], zone, 1);
            mount(&mut simulation, 0);
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

#[test]
fn a_superblock_of_which_both_copies_are_damaged_may_have_counted_if_the_members_that_may_have_it_are_enough() {
    // Members with a damaged superblock, missing members, and whether the others show that it never
    // counted.
    let cases: [(Scheme, u32, u32, bool); 6] = [
        (RAID1, 0b01, 0, false),
        (RAID5, 0b001, 0, true),
        (RAID5, 0b100, 0, true),
        (RAID5, 0b011, 0, false),
        (RAID5, 0b001, 0b010, false),
        (RAID5, 0, 0b010, true),
    ];
    for max_active_zones in [3, 8] {
        for (scheme, damaged, without, never_counted) in cases {
            let mut simulation = volume_on(scheme, max_active_zones, 7);
            simulation.fill().expect("all is written");
            simulation.suspects = without;
            simulation.crash();
            for at in (0..scheme.members()).filter(|at| damaged >> at & 1 == 1) {
                if max_active_zones == 3 {
                    write_damaged(&mut simulation.drives[at], 0, 2);
                } else {
                    (0..METADATA_ZONES).for_each(|zone| write_damaged(&mut simulation.drives[at], zone, 1));
                }
            }
            if never_counted {
                mount(&mut simulation, without);
                simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
            } else {
                let error = refusal(&mut simulation, without);
                assert!(error.to_string().contains("its newest superblock cannot be read"), "{scheme:?}: {error}");
            }
        }
    }
}

#[test]
fn the_newest_superblock_of_a_zone_that_cannot_be_written_any_more_is_found() {
    for max_active_zones in [3, 8] {
        let mut simulation = simulation_on(max_active_zones, 8);
        simulation.suspects = 0b10;
        simulation.fill().expect("all is written");
        simulation.volume.fail_member(simulation.now(), MemberIndex(1));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        assert!(simulation.submit(&Request::Write { start: 0, blocks: 8 }).expect("it is accepted"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        let epoch = simulation.volume.epoch();
        simulation.crash();
        (0..METADATA_ZONES).for_each(|zone| {
            if simulation.drives[0].count_written(zone) > 0 && (max_active_zones == 3 || zone == 0) {
                simulation.drives[0].degrade(zone, ZoneState::ReadOnly);
            }
        });
        mount(&mut simulation, 0);
        assert!(simulation.volume.epoch() >= epoch, "an epoch that counts is not undone");
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn a_member_with_one_failed_metadata_zone_uses_the_other() {
    for zone in 0..METADATA_ZONES {
        let mut simulation = written(RAID1, 64, 3);
        simulation.suspects = 0b10;
        simulation.drives[0].degrade(zone, ZoneState::ReadOnly);
        simulation.volume.fail_member(simulation.now(), MemberIndex(1));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(simulation.events.len(), 1, "only member 1 has failed: {:?}", simulation.events);
        assert!(simulation.submit(&Request::Write { start: 0, blocks: 8 }).expect("it is accepted"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.crash();
        let (last, newest) = last_superblock(&mut simulation.drives[0], 1 - zone);
        assert_eq!(newest.members[1].state, MemberState::Failed);
        // There are two copies in the remaining zone.
        simulation.drives[0].flip(last);
        mount(&mut simulation, 0);
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn a_mount_retries_a_superblock_that_it_cannot_read() {
    let mut simulation = written(RAID1, 64, 4);
    simulation.crash();
    for drive in &mut simulation.drives {
        drive.fail_next(3, |geometry, operation| {
            matches!(operation, Operation::Read { start, .. } if geometry.zone_of(*start).is_some_and(|zone| zone.0 == 0))
        });
    }
    mount(&mut simulation, 0);
    assert_eq!(simulation.events, [Event::Ready]);
}

#[test]
fn superblock_logs_wrap_around_and_every_mount_finds_the_newest() {
    for max_active_zones in [3, 8] {
        let mut simulation = simulation_on(max_active_zones, 5);
        simulation.suspects = 0b11;
        simulation.fill().expect("all is written");
        let rounds = 3 * simulation.drives[0].geometry().zone_capacity_blocks.0;
        for round in 0..rounds {
            let failed = (round % 2) as usize;
            simulation.replace(failed).unwrap_or_else(|violation| panic!("{violation}"));
            simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
            let epoch = simulation.volume.epoch();
            if round % 5 == 0 {
                simulation.crash();
                mount(&mut simulation, 0);
                assert!(simulation.volume.epoch() >= epoch, "{} after {epoch}", simulation.volume.epoch());
            }
        }
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn zones_of_superblocks_that_were_finished_early_hide_nothing() {
    for max_active_zones in [3, 8] {
        for zones in [0..1, 1..2, 0..METADATA_ZONES] {
            let mut simulation = simulation_on(max_active_zones, 9);
            simulation.fill().expect("all is written");
            simulation.crash();
            for drive in &mut simulation.drives {
                for zone in zones.clone() {
                    finish(drive, zone);
                }
            }
            mount(&mut simulation, 0);
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
            // There is a zone for the next one.
            simulation.suspects = 0b10;
            simulation.volume.fail_member(simulation.now(), MemberIndex(1));
            simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
            assert!(simulation.submit(&Request::Write { start: 0, blocks: 8 }).expect("it is accepted"));
            simulation.crash();
            mount(&mut simulation, 0b10);
            simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

fn finish(drive: &mut Drive, zone: u32) {
    let start = Lba(u64::from(zone) * drive.geometry().zone_size_blocks.0);
    let operation = Operation::ManageZones { action: ZoneAction::Finish, target: ZoneTarget::Zone(start) };
    drive.submit(Command::new(CommandId(0), NamespaceId::FIRST, operation)).expect("it is accepted");
    drive.complete_orphaned();
    assert_eq!(drive.zone_state(zone), ZoneState::Full);
}
