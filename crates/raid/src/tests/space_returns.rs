//! Blocks are corrupted on the only copy that is left of a mirror under load: however many are,
//! garbage can be collected, and once the other member is present it is rebuilt.

use zonda_zoned::{Blocks, Lba, Prng};

use super::failures::{config, geometry, run_steps};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Request, Simulation};
use crate::{Event, Level, MemberState, Scheme, VolumeError};

/// Steps of load before blocks are corrupted, how many are, and steps after each.
type Rot = (u64, u64, u64);

/// Most is rewritten while the member is missing: corrupted blocks are on no other member.
const AFTER_MUCH_LOAD: Rot = (6000, 35, 200);
/// Corrupted blocks were written before the member failed, and may be on it.
const AT_ONCE: Rot = (0, 100, 60);

/// A mirror with little free space, in which all blocks were written, and whose first member has
/// failed.
fn half_a_mirror(seed: u64) -> Simulation {
    let scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
    let prng = Prng::new(seed);
    let mut geometry = geometry(64);
    geometry.zone_count = 26;
    let mut config = config(scheme);
    config.tuning.reserve_percent = 6;
    let drives = (0..2).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}"))));
    let mut simulation =
        Simulation::create(config, drives.collect(), prng.fork("world")).expect("a valid configuration");
    simulation.model.may_be_full = true;
    simulation.fill().unwrap();
    simulation.suspects = 0b01;
    simulation.fail(0).unwrap();
    simulation
}

/// Crashes, and mounts without the first member. Returns whether it was mounted: if tombstones are
/// lost as well it is refused.
fn crashes_and_mounts(simulation: &mut Simulation) -> bool {
    simulation.crash();
    match simulation.try_mount(0b01).unwrap_or_else(|violation| panic!("{violation}")) {
        None => true,
        Some(VolumeError::UnidentifiedLosses { .. }) => false,
        Some(error) => panic!("{error}"),
    }
}

/// Blocks of the second member are corrupted, then the first one is re-added. `None` if a mount in
/// between was refused.
fn rots_and_is_rebuilt(seed: u64, (before, rotten, between): Rot, crashes: bool) -> Option<Simulation> {
    let mut simulation = half_a_mirror(seed);
    run_steps(&mut simulation, before);
    simulation.model.is_lost = true;
    for round in 0..rotten {
        if let Some(lba) = simulation.drives[1].some_block(METADATA_ZONES) {
            simulation.drives[1].rot_data(lba);
        }
        run_steps(&mut simulation, between);
        if crashes && round % 7 == 3 && !crashes_and_mounts(&mut simulation) {
            return None;
        }
    }
    simulation.readd(0).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    for _ in 0..4 {
        run_steps(&mut simulation, 500);
        simulation.quiesce().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    Some(simulation)
}

/// The member is rebuilt, and there is space for writes and trims.
fn expect_space(simulation: &mut Simulation, seed: u64) {
    let status = simulation.volume.status();
    assert_eq!(status.members[0].state, MemberState::Active, "seed {seed}: {status:?}");
    let refused = simulation.model.refused();
    let blocks = simulation.model.volume_blocks();
    for start in (0..blocks).step_by(8) {
        assert!(simulation.submit(&Request::Write { start, blocks: 8.min(blocks - start) }).unwrap());
        simulation.quiesce().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    assert!(simulation.submit(&Request::Trim(vec![(0, 9)])).unwrap());
    simulation.quiesce().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    assert_eq!(simulation.model.refused(), refused, "seed {seed}: no write and no trim ends for lack of space");
    let status = simulation.volume.status();
    assert_eq!(status.lost_blocks, 0, "seed {seed}: every block was written once more");
    simulation.read_all().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
}

/// Corrupts all versions of a logical block on a drive: contents begin with its number.
fn rot_each_version(drive: &mut Drive, logical: u64) {
    for zone in METADATA_ZONES..drive.geometry().zone_count {
        for lba in drive.written_blocks(zone) {
            if drive.block(lba).is_some_and(|data| data.starts_with(&logical.to_le_bytes())) {
                drive.rot_data(lba);
            }
        }
    }
}

#[test]
fn a_block_whose_only_copy_rots_is_lost_if_its_segment_was_opened_after_the_other_member_had_failed() {
    for (rewritten, expected) in [(0..0, 0), (100..261, 1)] {
        let mut simulation = half_a_mirror(1);
        simulation.model.is_lost = true;
        for start in rewritten.clone() {
            assert!(simulation.submit(&Request::Write { start: 360 - start, blocks: 1 }).unwrap());
            simulation.quiesce().unwrap();
        }
        rot_each_version(&mut simulation.drives[1], 100);
        assert!(simulation.submit(&Request::Read { start: 100, blocks: 1 }).unwrap());
        for _ in 0..300 {
            simulation.step(u64::MAX).unwrap();
            let listed: u64 = simulation.volume.lost(Lba(0)).map(|range| range.blocks.0).sum();
            assert_eq!(listed, simulation.volume.status().lost_blocks, "also while markers are in flight");
        }
        simulation.quiesce().unwrap();
        let status = simulation.volume.status();
        assert_eq!(
            status.lost_blocks, expected,
            "{rewritten:?} were rewritten; otherwise the other member may have it"
        );
        let is_lost = |event: &Event| *event == Event::Lost { lba: Lba(100), blocks: Blocks(1) };
        let events: Vec<_> = simulation.events.iter().filter(|event| matches!(event, Event::Lost { .. })).collect();
        assert_eq!(events.len() as u64, expected);
        assert!(events.into_iter().all(is_lost));
    }
}

#[test]
fn space_is_reclaimed_after_blocks_rotted_on_the_only_copy_left() {
    for (rot, seeds) in [(AFTER_MUCH_LOAD, [2000, 2006, 2021]), (AT_ONCE, [2044, 2045, 2060])] {
        for seed in seeds {
            let mut simulation = rots_and_is_rebuilt(seed, rot, false).expect("nothing is mounted");
            expect_space(&mut simulation, seed);
        }
    }
}

#[test]
fn a_mount_of_the_only_copy_in_which_blocks_have_rotted_has_space() {
    let mut mounted = 0;
    for seed in 2000..2020 {
        if let Some(mut simulation) = rots_and_is_rebuilt(seed, (0, 40, 60), true) {
            expect_space(&mut simulation, seed);
            mounted += 1;
        }
    }
    assert!(mounted >= 3, "{mounted} were not refused");
}

#[test]
#[ignore = "soak"]
fn soak_space_is_reclaimed_after_blocks_rotted_on_the_only_copy_left() {
    for (steps, crashes) in
        [(AFTER_MUCH_LOAD, false), (AT_ONCE, false), ((300, 35, 200), false), ((2000, 150, 100), true)]
    {
        for seed in 2000..2400 {
            if let Some(mut simulation) = rots_and_is_rebuilt(seed, steps, crashes) {
                expect_space(&mut simulation, seed);
            }
        }
    }
}

#[test]
fn segments_that_cannot_be_reclaimed_while_a_member_is_away_are_counted_until_it_is_back() {
    let mut simulation = half_a_mirror(2060);
    assert_eq!(simulation.volume.status().unreadable_segments, 0);
    simulation.model.is_lost = true;
    for _ in 0..60 {
        if let Some(lba) = simulation.drives[1].some_block(METADATA_ZONES) {
            simulation.drives[1].rot_data(lba);
        }
        run_steps(&mut simulation, 60);
    }
    simulation.quiesce().unwrap();
    let status = simulation.volume.status();
    assert!((1..status.segments).contains(&status.unreadable_segments), "{status:?}");
    simulation.readd(0).unwrap();
    simulation.quiesce().unwrap();
    let status = simulation.volume.status();
    assert_eq!((status.members[0].state, status.unreadable_segments), (MemberState::Active, 0));
}
