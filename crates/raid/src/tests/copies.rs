//! Members whose files were restored from an older copy of the same epoch: their superblocks are as new as those of others.

use super::sides::{refusal, written};
use crate::testing::{Request, World};
use crate::{Level, MemberIndex, Scheme, VolumeError};

const RAID0: Scheme = Scheme { level: Level::Raid0, data: 2, parity: 0 };
const MIRRORED_STRIPE: Scheme = Scheme { level: Level::Raid01, data: 2, parity: 2 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };
const RAID6: Scheme = Scheme { level: Level::Raid6, data: 2, parity: 2 };

fn request(world: &mut World, request: &Request) {
    assert!(world.ask(request).unwrap_or_else(|violation| panic!("{violation}")), "{request:?} is taken");
    world.rest().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Each block `from..` is written once more, and then so many of them are trimmed.
fn write_more(world: &mut World, from: u64, trimmed: u64) {
    let blocks = world.model.volume_blocks();
    for start in (from..blocks - 4).step_by(4) {
        request(world, &Request::Write { start, blocks: 4 });
    }
    if trimmed > 0 {
        request(world, &Request::Trim(vec![(0, trimmed)]));
    }
    request(world, &Request::Flush);
}

/// A world in which members `older`, as bits, are as they were before all blocks from `from` on were written and others trimmed.
fn with_older_copies(scheme: Scheme, older: u32, from: u64, trimmed: u64) -> World {
    // Some segments are open, and are filled up later.
    let begin = |world: &mut World| request(world, &Request::Write { start: 0, blocks: 4 });
    with_older_copies_of(written(scheme, 64, 6), older, begin, |world| write_more(world, from, trimmed))
}

/// The same of any world, with what is done before the copy is made and after that.
fn with_older_copies_of(mut world: World, older: u32, begin: impl Fn(&mut World), go_on: impl Fn(&mut World)) -> World {
    world.suspects = u32::MAX;
    world.crash();
    world.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
    world.rest().unwrap_or_else(|violation| panic!("{violation}"));
    begin(&mut world);
    let epoch = world.volume.epoch();
    let copies = world.drives.clone();
    go_on(&mut world);
    assert_eq!(world.volume.epoch(), epoch, "nothing but what segments hold tells the copy from the member");
    world.crash();
    for at in (0..copies.len()).filter(|at| older >> at & 1 == 1) {
        world.drives[at] = copies[at].clone();
        world.drives[at].is_unreliable = true;
    }
    world
}

/// Mounts what is there but for `without`: that is refused, naming these members, or all that was acknowledged is there.
fn expect_refused_or_right(world: &mut World, without: u32, missing: u32) -> bool {
    let before = world.drives.clone();
    world.model.is_lost = true;
    let is_mounted = world.mount(without).is_ok();
    world.model.is_lost = false;
    if is_mounted {
        world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
        return false;
    }
    world.crash();
    world.drives = before;
    let VolumeError::TooManyMissing { missing: named, .. } = refusal(world, without) else {
        panic!("{:?}", world.events)
    };
    let named = named.into_iter().fold(0, |bits, MemberIndex(at)| bits | 1 << at);
    assert_eq!(named, missing, "the error names the members that are missing and the older copies");
    true
}

#[test]
fn older_copies_that_others_contradict_are_missing_and_nothing_is_reset() {
    let cases = [
        (RAID0, 0b10, 0),
        (MIRRORED_STRIPE, 0b0001, 0b0100),
        (RAID5, 0b001, 0b100),
        (RAID5, 0b010, 0b001),
        (RAID6, 0b0011, 0b1000),
    ];
    for (scheme, older, without) in cases {
        let mut world = with_older_copies(scheme, older, 0, 0);
        let fresh = (0..world.drives.len()).filter(|at| older >> at & 1 == 0);
        let written: Vec<(usize, u64)> = fresh.map(|at| (at, written_blocks(&mut world, at))).collect();
        for _ in 0..2 {
            assert!(expect_refused_or_right(&mut world, without, older | without), "{scheme:?}");
        }
        for (at, blocks) in written {
            assert_eq!(written_blocks(&mut world, at), blocks, "nothing of member {at} was reset");
        }
        if scheme != RAID0 {
            world.mount(0).unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
            world.read_all().unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
        }
    }
}

#[test]
fn a_member_that_comes_back_as_it_was_before_a_mount_is_missing_though_nothing_was_written_since() {
    let cases = [(RAID0, 0b10_u32, 0), (RAID5, 0b010, 0b001), (RAID5, 0b010, 0), (RAID6, 0b0010, 0b1000)];
    for (scheme, older, without) in cases {
        let mut world = super::failures::world(scheme, 64, 6);
        (world.keeps_epochs, world.suspects) = (true, u32::MAX);
        request(&mut world, &Request::Write { start: 0, blocks: 40 });
        request(&mut world, &Request::Flush);
        world.crash();
        let copies = world.drives.clone();
        world.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        world.crash();
        for at in (0..copies.len()).filter(|at| older >> at & 1 == 1) {
            world.drives[at] = copies[at].clone();
            world.drives[at].is_unreliable = true;
        }
        let is_needed = (older | without).count_ones() > u32::from(scheme.parity);
        assert_eq!(expect_refused_or_right(&mut world, without, older | without), is_needed, "{scheme:?}");
        if is_needed {
            world.crash();
            world.options.accepts_older = true;
            world.model.accept_losses();
            world.mount(without).unwrap_or_else(|violation| panic!("{scheme:?}: {violation}"));
        }
    }
}

fn written_blocks(world: &mut World, at: usize) -> u64 {
    let zones = world.drives[at].geometry().zone_count;
    (0..zones).map(|zone| world.drives[at].count_written(zone)).sum()
}

#[test]
fn what_was_written_since_an_older_copy_never_reads_as_older_or_as_zeros_once_a_group_followed() {
    let mut refused = 0;
    for scheme in [RAID5, RAID0] {
        let without = if scheme == RAID5 { 0b100 } else { 0 };
        let blocks = written(scheme, 64, 6).model.volume_blocks();
        // More than a group: of the last one it is not known what was acknowledged.
        for last in [40, 55, 80, 100, 200] {
            for trimmed in [0, 3, 60] {
                let mut world = with_older_copies(scheme, 1, blocks.saturating_sub(last), trimmed);
                refused += u32::from(expect_refused_or_right(&mut world, without, 1 | without));
            }
        }
    }
    assert!(refused > 20, "{refused} mounts of 30 are refused");
}

#[test]
fn what_was_trimmed_since_an_older_copy_does_not_come_back() {
    let trim = |world: &mut World| {
        for start in 0..40 {
            request(world, &Request::Trim(vec![(start, 1)]));
        }
    };
    for without in [0b010, 0b100] {
        // Nothing is collected, and no segment is open when the copy is made: tombstones are all that is new.
        let mut world = super::failures::world(RAID5, 64, 6);
        request(&mut world, &Request::Write { start: 0, blocks: 40 });
        let mut world = with_older_copies_of(world, 0b001, |_| (), trim);
        assert!(expect_refused_or_right(&mut world, without, 0b001 | without));
    }
}

#[test]
fn members_that_were_resetting_and_opening_segments_at_a_crash_are_no_older_copies() {
    for steps in (0..3000).step_by(37) {
        let mut world = written(RAID5, 64, 8);
        for start in (0..world.model.volume_blocks() - 8).step_by(8) {
            let _ = world.ask(&Request::Write { start, blocks: 8 }).unwrap_or_else(|violation| panic!("{violation}"));
        }
        let _ = world.ask(&Request::Trim(vec![(0, world.model.volume_blocks())]));
        for _ in 0..steps {
            world.step(1_000_000).unwrap_or_else(|violation| panic!("{violation}"));
        }
        world.crash();
        for without in [0b001, 0] {
            world.mount(without).unwrap_or_else(|violation| panic!("after {steps} steps: {violation}"));
            world.read_all().unwrap_or_else(|violation| panic!("after {steps} steps: {violation}"));
            world.crash();
        }
    }
}
