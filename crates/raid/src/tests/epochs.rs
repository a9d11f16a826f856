//! Each mount is an epoch, if members can record it.

use zonda_zoned::ZoneState;

use super::sides::{RAID1, written};
use crate::format::Superblock;
use crate::limits::METADATA_ZONES;
use crate::testing::Simulation;
use crate::{Level, Scheme};

const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

fn mount(simulation: &mut Simulation) {
    simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
}

/// The epoch of the newest superblock on each member.
fn epochs(simulation: &mut Simulation) -> Vec<u64> {
    let newest = |drive: &mut crate::testing::Drive| {
        let blocks: Vec<_> = (0..METADATA_ZONES).flat_map(|zone| drive.written_blocks(zone)).collect();
        let found = blocks.into_iter().filter_map(|lba| Superblock::read(&drive.block(lba)?).ok());
        found.map(|superblock| superblock.epoch).max().expect("it is a member")
    };
    simulation.drives.iter_mut().map(newest).collect()
}

#[test]
fn each_mount_is_an_epoch_that_all_members_have_before_hosts_come() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut simulation = written(scheme, 64, 6);
        let changed = simulation.volume.changed_epoch();
        for _ in 0..3 {
            let before = simulation.volume.epoch();
            simulation.crash();
            mount(&mut simulation);
            assert_eq!(simulation.volume.epoch(), before + 1);
            assert_eq!(simulation.volume.changed_epoch(), changed, "no member's state has changed");
            assert!(epochs(&mut simulation).iter().all(|&epoch| epoch == before + 1), "{:?}", epochs(&mut simulation));
        }
    }
}

#[test]
fn a_drive_with_read_only_metadata_zones_is_mounted_without_a_new_epoch() {
    let mut simulation = written(SINGLE, 64, 6);
    for _ in 0..2 {
        simulation.crash();
        (0..METADATA_ZONES).for_each(|zone| simulation.drives[0].degrade(zone, ZoneState::ReadOnly));
        mount(&mut simulation);
        simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
}
