//! Members that were used without each other, and members that are out of date.

use zonda_zoned::{Geometry, Prng};

use super::failures::{config, geometry};
use crate::testing::{Drive, Request, World};
use crate::{Event, MemberIndex, MemberState, MountOptions, Scheme, VolumeError};

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
            let VolumeError::SplitBrain { newest, other, .. } = error else { panic!("{error}") };
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
    world.options = MountOptions { seen_epoch: Some(newest), ..MountOptions::default() };
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

fn bits(members: &[u8]) -> u32 {
    members.iter().fold(0, |bits, member| bits | 1 << member)
}

/// The members that the volume does not use, as bits.
fn failed(world: &World) -> u32 {
    let members = world.volume.status().members;
    (0..)
        .zip(&members)
        .filter(|(_, member)| member.state == MemberState::Failed)
        .fold(0, |bits, (at, _)| bits | 1 << at)
}

/// Both sides went on alone; the model knows what was promised by the first one. Returns the epoch of each.
fn went_apart(scheme: Scheme, first: &[u8], second: &[u8], second_is_newer: bool) -> (World, [u64; 2]) {
    let mut world = written(scheme, 64, 4);
    world.crash();
    mount(&mut world, bits(second));
    write_and_crash(&mut world);
    let of_first = world.volume.epoch();
    if second_is_newer {
        world.options = MountOptions { newest_epoch: Some(of_first + 5), accepts_older: true, ..world.options };
    }
    world.mount(bits(first)).expect_err("members are believed that have missed something");
    let of_second = world.volume.epoch();
    world.crash();
    world.options = MountOptions::default();
    (world, [of_first, of_second])
}

const PARTED: [(Scheme, &[u8], &[u8]); 3] = [(RAID1, &[0], &[1]), (RAID1, &[1], &[0]), (RAID6, &[2, 3], &[0, 1])];

#[test]
fn the_side_that_is_chosen_is_kept_and_later_mounts_do_not_refuse_for_the_other_one() {
    for (scheme, first, second) in PARTED {
        for second_is_newer in [false, true] {
            let (mut world, epochs) = went_apart(scheme, first, second, second_is_newer);
            let known = epochs[0].max(epochs[1]);
            let before: Vec<u64> = second.iter().map(|&at| world.drives[usize::from(at)].writes()).collect();
            world.options =
                MountOptions { newest_epoch: Some(known), accepts_side: Some(MemberIndex(first[0])), ..world.options };
            mount(&mut world, 0);
            let chosen = world.volume.epoch();
            assert!(chosen > known, "epoch {chosen} is newer than those of both sides, {epochs:?}");
            assert_eq!(failed(&world), bits(second));
            world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
            write_and_crash(&mut world);
            let after: Vec<u64> = second.iter().map(|&at| world.drives[usize::from(at)].writes()).collect();
            assert_eq!(before, after, "nothing is written to the other side");

            world.options = MountOptions { newest_epoch: Some(chosen), ..MountOptions::default() };
            for without in [0, bits(second), 1 << second[0], 0] {
                mount(&mut world, without);
                assert_eq!(failed(&world), bits(second));
                world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
                world.crash();
            }
            assert!(matches!(refusal(&mut world, bits(first)), VolumeError::OlderThanKnown { .. }));

            // Empty, they take their places again.
            mount(&mut world, 0);
            for &member in second {
                world.replace(usize::from(member)).unwrap_or_else(|violation| panic!("{violation}"));
            }
            world.rest().unwrap_or_else(|violation| panic!("{violation}"));
            assert_eq!(failed(&world), 0);
            write_and_crash(&mut world);
            mount(&mut world, bits(first));
            world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

#[test]
fn a_member_of_the_other_side_that_was_missing_when_a_side_was_chosen_is_rejected_with_it() {
    let (mut world, _) = went_apart(RAID6, &[0, 1], &[2, 3], true);
    world.options.accepts_side = Some(MemberIndex(1));
    mount(&mut world, 0b1000);
    write_and_crash(&mut world);
    world.options = MountOptions::default();
    mount(&mut world, 0);
    assert_eq!(failed(&world), 0b1100);
    world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_side_that_was_rejected_and_is_used_again_is_refused_again() {
    let (mut world, _) = went_apart(RAID1, &[0], &[1], true);
    world.options.accepts_side = Some(MemberIndex(0));
    mount(&mut world, 0);
    let chosen = world.volume.epoch();
    world.crash();
    world.options = MountOptions { newest_epoch: Some(chosen), accepts_older: true, ..MountOptions::default() };
    world.mount(0b01).expect_err("the model does not know of this side");
    let again = world.volume.epoch();
    assert!(world.volume.is_ready() && again > chosen, "{again} is newer than {chosen}: {:?}", world.events);
    world.crash();
    world.options = MountOptions { newest_epoch: Some(again), ..MountOptions::default() };
    let error = refusal(&mut world, 0);
    let expected = (indices(&[1]), again, indices(&[0]), chosen);
    let VolumeError::SplitBrain { newest, other, newest_epoch, other_epoch } = error else { panic!("{error}") };
    assert_eq!((newest, newest_epoch, other, other_epoch), expected);
    world.options.accepts_side = Some(MemberIndex(0));
    mount(&mut world, 0);
    world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_choice_that_a_crash_interrupts_is_made_or_not_and_can_be_repeated() {
    let (mut has_refused, mut has_mounted) = (false, false);
    for steps in (0..400).step_by(7) {
        let (mut world, _) = went_apart(RAID6, &[1, 2], &[0, 3], false);
        world.options.accepts_side = Some(MemberIndex(2));
        world.mount_and_crash(0, steps).expect("it begins");
        let left = world.drives.clone();
        world.options = MountOptions::default();
        world.model.is_lost = true;
        let is_made = world.mount(0).is_ok();
        world.model.is_lost = false;
        has_mounted |= is_made;
        has_refused |= !is_made;
        if is_made {
            assert_eq!(failed(&world), 0b1001);
        }
        world.crash();
        world.drives = left;
        world.options.accepts_side = Some(MemberIndex(2));
        mount(&mut world, 0);
        assert_eq!(failed(&world), 0b1001);
        world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
    }
    assert!(has_refused && has_mounted, "some crashes come before the choice is written, others after it");
}

#[test]
fn a_member_that_is_on_no_side_cannot_be_chosen() {
    let scheme = Scheme { level: crate::Level::Raid1, data: 1, parity: 2 };
    let mut world = written(scheme, 64, 5);
    world.crash();
    // Member 2 stays behind, then the others part.
    mount(&mut world, 0b100);
    world.crash();
    for without in [0b110, 0b101] {
        world.model.is_lost = true;
        world.mount(without).ok();
        world.crash();
    }
    world.model.is_lost = false;
    world.options.accepts_side = Some(MemberIndex(2));
    let VolumeError::Config(text) = refusal(&mut world, 0) else { panic!("it is a matter of what was asked for") };
    assert!(text.contains("no side can be kept by member 2"), "{text}");
    // Where nothing has parted the option changes nothing.
    world.mount(0b001).expect_err("the model knows of one side only");
    assert!(world.volume.is_ready(), "{:?}", world.events);
    assert_eq!(failed(&world), 0b101);
}

#[test]
fn a_member_that_is_being_replaced_when_the_power_fails_is_no_side_of_its_own() {
    for steps in (0..240).step_by(3) {
        let mut world = written(RAID1, 64, 4);
        world.suspects = 1;
        world.replace(0).expect("it is taken");
        for _ in 0..steps {
            world.step(1_000_000).unwrap_or_else(|violation| panic!("{violation}"));
        }
        world.crash();
        mount(&mut world, 0);
        world.read_all().unwrap_or_else(|violation| panic!("after {steps} steps: {violation}"));
    }
}

#[test]
fn a_member_that_is_an_older_copy_of_itself_is_missing_and_beyond_tolerance_the_mount_is_refused() {
    for (scheme, is_tolerated) in [(Scheme::raid5(3), false), (RAID6, true)] {
        let mut world = written(scheme, 64, 6);
        let older = world.drives[2].clone();
        world.fail(1).unwrap_or_else(|violation| panic!("{violation}"));
        write_and_crash(&mut world);
        world.options = MountOptions { newest_epoch: Some(world.volume.epoch()), ..MountOptions::default() };
        world.drives[2] = older;
        if is_tolerated {
            mount(&mut world, 0);
            assert_eq!(failed(&world), 0b0110);
            world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        } else {
            let error = refusal(&mut world, 0);
            assert!(matches!(error, VolumeError::TooManyMissing { .. }), "{error}");
        }
    }
}
