//! Each mount is an epoch, where members can record it.

use zonda_zoned::ZoneState;

use super::sides::{RAID1, written};
use crate::format::Superblock;
use crate::limits::METADATA_ZONES;
use crate::testing::World;
use crate::{Level, Scheme};

const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

fn mount(world: &mut World) {
    world.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
}

/// The epoch of the newest superblock on each member.
fn epochs(world: &mut World) -> Vec<u64> {
    let newest = |drive: &mut crate::testing::Drive| {
        let blocks: Vec<_> = (0..METADATA_ZONES).flat_map(|zone| drive.written_blocks(zone)).collect();
        let found = blocks.into_iter().filter_map(|lba| Superblock::read(&drive.block(lba)?).ok());
        found.map(|superblock| superblock.epoch).max().expect("it is a member")
    };
    world.drives.iter_mut().map(newest).collect()
}

#[test]
fn each_mount_is_an_epoch_that_all_members_have_before_hosts_come() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut world = written(scheme, 64, 6);
        let changed = world.volume.changed_epoch();
        for _ in 0..3 {
            let before = world.volume.epoch();
            world.crash();
            mount(&mut world);
            assert_eq!(world.volume.epoch(), before + 1);
            assert_eq!(world.volume.changed_epoch(), changed, "no member's state has changed");
            assert!(epochs(&mut world).iter().all(|&epoch| epoch == before + 1), "{:?}", epochs(&mut world));
        }
    }
}

#[test]
fn a_drive_whose_metadata_zones_cannot_be_written_is_mounted_as_it_is() {
    let mut world = written(SINGLE, 64, 6);
    for _ in 0..2 {
        world.crash();
        (0..METADATA_ZONES).for_each(|zone| world.drives[0].degrade(zone, ZoneState::ReadOnly));
        mount(&mut world);
        world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
}
