//! Blocks behind the end of what was written to a zone that a mount has finished since.

use zonda_zoned::{Blocks, Lba, ZoneIndex, ZoneState};

use super::failures::{run_steps, simulation};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Simulation};
use crate::{Level, Scheme, VolumeError};

/// A mirror that has crashed, and its second member's zone of a segment that was open and has space
/// behind what was written.
fn crashed_mirror() -> (Simulation, u32) {
    let mut simulation = simulation(Scheme { level: Level::Raid1, data: 1, parity: 1 }, 64, 5);
    run_steps(&mut simulation, 600);
    simulation.quiesce().unwrap();
    simulation.suspects = 0b01;
    simulation.crash();
    let drive = &simulation.drives[1];
    let capacity = drive.geometry().zone_capacity_blocks.0;
    let is_meant = |zone: &u32| (8..capacity - 8).contains(&drive.count_written(*zone));
    let zone = (METADATA_ZONES..drive.geometry().zone_count).find(is_meant).expect("one is open");
    (simulation, zone)
}

fn block_of(drive: &Drive, zone: u32, at: u64) -> Lba {
    drive.geometry().zone_start(ZoneIndex(zone)) + Blocks(at)
}

#[test]
fn a_block_behind_the_end_of_what_was_written_refuses_no_mount_after_the_zone_was_finished() {
    let (mut simulation, zone) = crashed_mirror();
    let end = simulation.drives[1].count_written(zone);
    let lba = block_of(&simulation.drives[1], zone, end + 4);
    simulation.drives[1].overwrite(lba, &[7; 512]);
    for mount in 0..2 {
        simulation.mount_until_ready(0b01).unwrap_or_else(|violation| panic!("mount {mount}: {violation}"));
        assert_eq!(simulation.volume.status().lost_blocks, 0, "mount {mount}");
        simulation.crash();
    }
    assert_eq!(simulation.drives[1].zone_state(zone), ZoneState::Full, "the first mount has finished it");
    simulation.mount(0b01).unwrap();
    simulation.read_all().unwrap();
}

#[test]
fn blocks_without_metadata_behind_a_blank_one_are_damaged_if_another_block_follows_them() {
    let (mut simulation, zone) = crashed_mirror();
    simulation.mount_until_ready(0b01).unwrap();
    simulation.crash();
    assert_eq!(simulation.drives[1].zone_state(zone), ZoneState::Full, "the mount has finished it");
    let end = simulation.drives[1].count_written(zone);
    let lbas: Vec<Lba> = (end - 6..end - 2).map(|at| block_of(&simulation.drives[1], zone, at)).collect();
    simulation.drives[1].blank(lbas[0]);
    simulation.drives[1].blank(lbas[1]);
    simulation.drives[1].overwrite(lbas[2], &[7; 512]);
    simulation.drives[1].overwrite(lbas[3], &[7; 512]);
    simulation.model.is_lost = true;
    match simulation.try_mount(0b01).unwrap() {
        Some(VolumeError::UnidentifiedLosses { blocks, .. }) => assert_eq!(blocks, 4),
        refused => panic!("{refused:?}"),
    }
}
