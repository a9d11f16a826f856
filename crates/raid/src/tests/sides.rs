//! Members that were used without each other, and members that are out of date.

use zonda_zoned::{Geometry, Prng};

use super::failures::{config, geometry};
use crate::testing::{Drive, Request, World};
use crate::{Event, MemberIndex, MountOptions, Scheme, VolumeError};

pub(super) const RAID1: Scheme = Scheme { level: crate::Level::Raid1, data: 1, parity: 1 };
pub(super) const RAID6: Scheme = Scheme { level: crate::Level::Raid6, data: 2, parity: 2 };

/// A world whose superblocks go to both metadata zones of each member, and in which every block was written.
pub(super) fn written(scheme: Scheme, metadata_bytes: u16, seed: u64) -> World {
    let geometry = Geometry { max_active_zones: Some(8), max_open_zones: Some(8), ..geometry(metadata_bytes) };
    let prng = Prng::new(seed);
    let drives = (0..scheme.members()).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}"))));
    let mut world = World::create(config(scheme), drives.collect(), prng.fork("world")).expect("they suit");
    world.fill().unwrap_or_else(|violation| panic!("{violation}"));
    world.suspects = u32::MAX;
    world
}

/// Why the volume cannot be mounted. Members are then as they are after a crash.
pub(super) fn refusal(world: &mut World, without: u32) -> VolumeError {
    world.model.is_lost = true;
    world.mount(without).expect_err("the mount is refused");
    world.model.is_lost = false;
    let error = world.events.iter().find_map(|event| match event {
        Event::Failed(error) => Some(error.clone()),
        _ => None,
    });
    world.crash();
    error.expect("an event says why")
}

fn mount(world: &mut World, without: u32) {
    world.mount(without).unwrap_or_else(|violation| panic!("{violation}"));
}

fn write_and_crash(world: &mut World) {
    for start in [0, 5, 20] {
        assert!(world.ask(&Request::Write { start, blocks: 3 }).expect("it is taken"));
    }
    world.rest().unwrap_or_else(|violation| panic!("{violation}"));
    world.crash();
}

fn indices(members: &[u8]) -> Vec<MemberIndex> {
    members.iter().copied().map(MemberIndex).collect()
}

#[test]
fn members_that_went_on_without_each_other_are_refused_together_and_each_side_keeps_what_it_has() {
    for (scheme, first, second) in [(RAID1, &[0][..], &[1][..]), (RAID6, &[0, 1], &[2, 3])] {
        for first_is_newer in [false, true] {
            let mut world = written(scheme, 64, 1);
            world.crash();
            let bits = |members: &[u8]| members.iter().fold(0, |bits, member| bits | 1 << member);
            if first_is_newer {
                // One more epoch.
                world.mount_and_crash(bits(second), 10_000).expect("it begins");
            }
            mount(&mut world, bits(second));
            write_and_crash(&mut world);
            // The model does not know of two sides: what the second one does is wrong by what the first one was promised.
            world.mount(bits(first)).expect_err("members are believed that have missed something");
            assert!(world.volume.is_ready(), "nobody can know that the others went on: {:?}", world.events);
            let epoch = world.volume.epoch();
            world.crash();
            world.options.newest_epoch = Some(epoch);
            let error = refusal(&mut world, 0);
            let VolumeError::SplitBrain { newest, other } = error else { panic!("{error}") };
            let mut sides = [newest, other];
            sides.sort();
            assert_eq!(sides, [indices(first), indices(second)]);
            world.options = MountOptions::default();
            mount(&mut world, bits(second));
            world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

#[test]
fn members_that_are_older_than_the_caller_knows_are_refused() {
    let mut world = written(RAID1, 64, 2);
    assert_eq!(world.volume.epoch(), 2);
    world.crash();
    mount(&mut world, 0b10);
    let newest = world.volume.epoch();
    assert!(newest > 2);
    write_and_crash(&mut world);
    world.options.newest_epoch = Some(newest);
    assert_eq!(refusal(&mut world, 0b01), VolumeError::OlderThanKnown { found: 2, known: newest });
    mount(&mut world, 0);
    world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_change_of_members_that_only_one_of_them_knows_is_no_side_of_its_own() {
    let mut world = written(RAID6, 64, 3);
    world.crash();
    // Member 3 is missing, and one of the others alone is told.
    let mut has_one = false;
    for steps in 0..2000 {
        let before: Vec<u64> = world.drives.iter().map(|drive| drive.count_written(1)).collect();
        let mut attempt = world.drives.clone();
        world.mount_and_crash(0b1000, steps).expect("it begins");
        let told: Vec<usize> = (0..3).filter(|&at| world.drives[at].count_written(1) > before[at]).collect();
        if told == [0] {
            has_one = true;
            break;
        }
        std::mem::swap(&mut world.drives, &mut attempt);
    }
    assert!(has_one, "a mount is cut short between two superblocks");
    mount(&mut world, 0b0001);
    write_and_crash(&mut world);
    mount(&mut world, 0);
    world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}
