//! Damage in what was written last, where no footer says what it was: what is read is right, or an error, or the volume is not
//! mounted; never an older version.

use zonda_zoned::{Lba, Prng, ZoneState};

use super::failures::{config, geometry};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Request, World};
use crate::{Level, MountOptions, Scheme, VolumeError};

const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
const RAID0: Scheme = Scheme { level: Level::Raid0, data: 2, parity: 0 };
const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

/// Blocks from the end of a zone that are damaged, one after the other.
const BLOCKS_BACK: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// The contents are wrong, and metadata are right.
    Data,
    /// Nothing of it can be read.
    Unreadable,
    /// It reads as zeros, and so do its metadata. Of the last chunk nothing tells that from a write that was cut short.
    Blank,
}

/// What came of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mounted {
    /// Reads that failed.
    With(u64),
    Refused,
}

/// When the damage happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// After a crash.
    Crash,
    /// After the program has ended with nothing in flight.
    Stop,
    /// After a mount has closed what was open, and was cut short.
    Closed,
}

/// A volume in which the first blocks were written twice, and some of them trimmed last.
fn volume(scheme: Scheme, metadata_bytes: u16, has_trim: bool) -> World {
    let prng = Prng::new(7);
    let mut config = config(scheme);
    config.tuning.large_segments = 0;
    let drives =
        (0..scheme.members()).map(|at| Drive::new(geometry(metadata_bytes), prng.fork(&format!("drive/{at}"))));
    let mut world = World::create(config, drives.collect(), prng.fork("world")).expect("they suit");
    world.model.is_lost = true;
    world.suspects = u32::MAX;
    for version in 0..3 {
        for start in (0..6).filter(|start| version < 2 || *start > 2 && !has_trim) {
            assert!(world.ask(&Request::Write { start, blocks: 1 }).expect("the volume is right"));
            world.rest().expect("the volume comes to rest");
        }
    }
    if has_trim {
        assert!(world.ask(&Request::Trim(vec![(1, 3)])).expect("the volume is right"));
        world.rest().expect("the volume comes to rest");
    }
    let zones = METADATA_ZONES..world.drives[0].geometry().zone_count;
    assert!(
        zones.into_iter().all(|zone| world.drives[0].zone_state(zone) != ZoneState::Full),
        "there is no footer yet"
    );
    world
}

/// The blocks that were written last to the zone of a member that holds the newest of them.
fn last_blocks(drive: &Drive) -> Vec<Lba> {
    let zones = METADATA_ZONES..drive.geometry().zone_count;
    let held = zones.filter(|&zone| !matches!(drive.zone_state(zone), ZoneState::Empty | ZoneState::Offline));
    let blocks = held.map(|zone| drive.written_blocks(zone)).max_by_key(Vec::len).unwrap_or_default();
    // The header is not what this is about.
    let count = blocks.len().saturating_sub(1);
    blocks.into_iter().take(count).collect()
}

fn hurt(drive: &mut Drive, lba: Lba, damage: Damage) {
    match damage {
        Damage::Data => drive.rot_data(lba),
        Damage::Unreadable => drive.lose_block(lba),
        Damage::Blank => drive.blank(lba),
    }
}

/// Mounts, and reads each block: what is read is right, or an error.
fn mount(world: &mut World, without: u32) -> Mounted {
    let mounted = world.mount(without);
    match world.volume.failure() {
        Some(VolumeError::UnidentifiedLosses { blocks, .. }) => {
            assert!(*blocks > 0);
            return Mounted::Refused;
        }
        Some(error) => panic!("{error}"),
        None => mounted.expect("it is mounted"),
    }
    // Reads of blocks that are known to be lost fail without a look at a member.
    let known = world.volume.lost(Lba(0)).flat_map(|range| range.start.0..range.start.0 + range.blocks.0);
    let lost = known.filter(|&lba| lba < 8).count() as u64;
    let before = world.volume.counters().unreadable_blocks;
    for start in 0..8 {
        assert!(world.ask(&Request::Read { start, blocks: 1 }).expect("the volume is right"));
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
    }
    Mounted::With(lost + world.volume.counters().unreadable_blocks - before)
}

/// Names the case of a run that panics.
struct Here(String);

impl Drop for Here {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

fn end(world: &mut World, when: When) {
    match when {
        When::Crash => world.crash(),
        When::Stop => world.die(),
        When::Closed => {
            world.crash();
            // Until zones are finished: what is open is neither read nor moved.
            world.mount_in_haste(0).expect("it is mounted");
            world.crash();
        }
    }
}

/// Damages each of the last blocks of a volume, the same of all members `hurt_members`, and mounts without some. Says what came of each.
fn damage_each(
    scheme: Scheme,
    metadata_bytes: u16,
    damage: Damage,
    has_trim: bool,
    hurt_members: &[usize],
    without: u32,
) -> Vec<Mounted> {
    let mut all = Vec::new();
    for when in [When::Crash, When::Stop, When::Closed] {
        for back in 0..BLOCKS_BACK {
            let what = format!(
                "{scheme:?}, {metadata_bytes} bytes, {damage:?}, trim: {has_trim}, {hurt_members:?} without {without:b}"
            );
            if damage == Damage::Blank && back < 2 {
                continue;
            }
            let _here = Here(format!("{what}, {when:?}, block {back} from the end"));
            let mut world = volume(scheme, metadata_bytes, has_trim);
            end(&mut world, when);
            for &at in hurt_members {
                let Some(&lba) = last_blocks(&world.drives[at]).get(back) else { continue };
                hurt(&mut world.drives[at], lba, damage);
            }
            let first = mount(&mut world, without);
            for _ in 0..3 {
                world.crash();
                let again = mount(&mut world, without);
                assert_eq!(again, first, "a later mount does not forget it");
            }
            if first == Mounted::Refused {
                world.crash();
                world.options = MountOptions { accepts_losses: true, ..MountOptions::default() };
                let _ = world.mount(without);
                assert!(world.volume.is_ready(), "losses are accepted: {:?}", world.volume.failure());
            }
            all.push(first);
        }
    }
    all
}

fn has_lost(mounted: &Mounted) -> bool {
    matches!(mounted, Mounted::With(1..))
}

#[test]
fn without_redundancy_a_damaged_block_whose_metadata_are_right_fails_its_reads() {
    for scheme in [SINGLE, RAID0] {
        let mounted = damage_each(scheme, 64, Damage::Data, false, &[0], 0);
        assert!(mounted.iter().all(|mounted| *mounted != Mounted::Refused), "{mounted:?}");
        assert!(mounted.iter().any(has_lost), "{mounted:?}");
        let mounted = damage_each(scheme, 0, Damage::Data, false, &[0], 0);
        assert!(mounted.iter().any(has_lost), "{mounted:?}");
    }
}

#[test]
fn without_redundancy_a_block_that_cannot_be_read_refuses_the_mount() {
    for scheme in [SINGLE, RAID0] {
        for metadata_bytes in [64, 0] {
            let mounted = damage_each(scheme, metadata_bytes, Damage::Unreadable, false, &[0], 0);
            // Where a block in front of the chunk describes it, that one alone says what the others were.
            let (last, before) = (mounted[0], mounted[1]);
            let is_described = metadata_bytes == 0;
            assert_eq!(last, if is_described { Mounted::With(1) } else { Mounted::Refused }, "{scheme:?}");
            assert_eq!(before, Mounted::Refused, "{scheme:?}: what describes the last chunk, or a part of it");
        }
    }
}

#[test]
fn a_damaged_tombstone_of_a_single_drive_never_brings_back_what_was_trimmed() {
    for metadata_bytes in [64, 0] {
        for damage in [Damage::Data, Damage::Unreadable] {
            let mounted = damage_each(SINGLE, metadata_bytes, damage, true, &[0], 0);
            assert!(mounted.contains(&Mounted::Refused), "{mounted:?}");
        }
    }
}

#[test]
fn one_damaged_block_of_a_volume_with_redundancy_costs_nothing() {
    for scheme in [RAID1, RAID5] {
        for metadata_bytes in [64, 0] {
            for damage in [Damage::Data, Damage::Unreadable] {
                for at in 0..scheme.members() {
                    let mounted = damage_each(scheme, metadata_bytes, damage, true, &[at], 0);
                    assert!(mounted.iter().all(|mounted| *mounted == Mounted::With(0)), "{mounted:?}");
                }
            }
        }
    }
}

#[test]
fn a_damaged_block_of_a_volume_without_one_of_its_members_never_brings_back_an_older_version() {
    for scheme in [RAID1, RAID5] {
        for metadata_bytes in [64, 0] {
            for at in 0..scheme.members() {
                for damage in [Damage::Data, Damage::Unreadable] {
                    let without = 1 << ((at + 1) % scheme.members());
                    let mounted = damage_each(scheme, metadata_bytes, damage, true, &[at], without);
                    assert!(mounted.iter().any(|mounted| *mounted != Mounted::With(0)), "{mounted:?}");
                }
            }
        }
    }
}

#[test]
fn both_copies_of_a_mirror_damaged_never_bring_back_an_older_version() {
    for metadata_bytes in [64, 0] {
        for damage in [Damage::Data, Damage::Unreadable] {
            let mounted = damage_each(RAID1, metadata_bytes, damage, true, &[0, 1], 0);
            assert!(mounted.iter().any(|mounted| *mounted != Mounted::With(0)), "{mounted:?}");
        }
    }
}

#[test]
fn what_a_mount_closes_without_a_footer_is_emptied_once_and_its_zones_are_free_again() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut world = volume(scheme, 64, true);
        world.model.is_lost = false;
        for _ in 0..3 {
            let drive = &world.drives[0];
            let is_held = |zone: &u32| drive.zone_state(*zone) != ZoneState::Empty;
            let held: Vec<u32> = (METADATA_ZONES..drive.geometry().zone_count).filter(is_held).collect();
            assert_eq!(held.len(), 1, "{scheme:?}: all of it fits one zone");
            world.crash();
            assert_eq!(mount(&mut world, 0), Mounted::With(0));
            assert_eq!(world.drives[0].zone_state(held[0]), ZoneState::Empty, "{scheme:?}: it was moved");
            let moved = world.volume.counters().relocated_blocks;
            assert!(moved <= world.volume.status().live_blocks, "{scheme:?}: {moved} blocks are moved");
            world.rest().expect("the volume comes to rest");
            assert_eq!(world.volume.counters().relocated_blocks, moved, "nothing is moved to and fro");
        }
    }
}

#[test]
fn blank_blocks_in_front_of_others_were_written_and_are_damaged() {
    for metadata_bytes in [64, 0] {
        for scheme in [SINGLE, RAID1] {
            let without = if scheme == RAID1 { 0b10 } else { 0 };
            let mounted = damage_each(scheme, metadata_bytes, Damage::Blank, true, &[0], without);
            assert!(mounted.contains(&Mounted::Refused), "{mounted:?}");
            let mounted = damage_each(scheme, metadata_bytes, Damage::Blank, false, &[0], without);
            assert!(mounted.contains(&Mounted::Refused), "{mounted:?}");
        }
        let mounted = damage_each(RAID5, metadata_bytes, Damage::Blank, true, &[1], 0);
        assert!(mounted.iter().all(|mounted| *mounted == Mounted::With(0)), "{mounted:?}");
    }
}

#[test]
fn each_block_of_those_that_were_written_last_is_counted_by_the_mount_that_finds_it_damaged() {
    for metadata_bytes in [64, 0] {
        for back in 0..BLOCKS_BACK {
            let mut world = volume(RAID1, metadata_bytes, false);
            world.crash();
            let Some(&lba) = last_blocks(&world.drives[0]).get(back) else { break };
            world.drives[0].flip(lba);
            world.mount_in_haste(0).expect("it is mounted");
            let found = world.volume.damage();
            assert_eq!(found.repaired + found.damaged, 1, "{metadata_bytes} bytes, {back} back: {found:?}");
        }
    }
}

#[test]
fn a_moved_copy_that_is_damaged_does_not_count_before_the_one_that_it_was_moved_from() {
    let mut world = volume(SINGLE, 64, false);
    let zones = METADATA_ZONES..world.drives[0].geometry().zone_count;
    let is_held = |world: &World, zone: u32| world.drives[0].zone_state(zone) != ZoneState::Empty;
    let source = zones.clone().find(|&zone| is_held(&world, zone)).expect("blocks were written");
    world.crash();
    world.mount_in_haste(0).expect("it is mounted");
    // What is open is moved; the power goes when a stripe of it has arrived.
    let has_stripe = |world: &World, zone: u32| zone != source && world.drives[0].written_blocks(zone).len() > 1;
    let target = loop {
        world.step(u64::MAX).expect("the volume is right");
        if let Some(zone) = zones.clone().find(|&zone| has_stripe(&world, zone)) {
            break zone;
        }
    };
    world.crash();
    assert!(is_held(&world, source), "what is moved is still where it was");
    let moved = world.drives[0].written_blocks(target);
    moved[..moved.len() - 1].iter().for_each(|&lba| world.drives[0].rot_data(lba));
    assert_eq!(mount(&mut world, 0), Mounted::With(0));
}

/// One drive puts one block down in the place of the one behind it: with redundancy nothing is lost, whichever block it was.
#[test]
fn a_block_in_the_place_of_the_one_behind_it_is_not_taken_for_that() {
    let raid6 = Scheme { level: Level::Raid6, data: 2, parity: 2 };
    for (scheme, metadata_bytes) in [(RAID1, 64), (RAID5, 64), (raid6, 64), (raid6, 0)] {
        let mut tried = 0;
        for at in 0..scheme.members() {
            let begin = || {
                let mut world = super::failures::world(scheme, metadata_bytes, 11);
                for start in [0, 8, 4, 16, 2] {
                    assert!(world.ask(&Request::Write { start, blocks: 8 }).expect("the volume is right"));
                    world.rest().expect("the volume comes to rest");
                }
                world.crash();
                world
            };
            let zones = METADATA_ZONES..begin().drives[at].geometry().zone_count;
            let blocks: Vec<Lba> = zones.flat_map(|zone| begin().drives[at].written_blocks(zone)).collect();
            for lba in blocks {
                let mut world = begin();
                if !world.drives[at].shift(lba) {
                    continue;
                }
                tried += 1;
                world.suspects = 1 << at;
                world.mount(0).unwrap_or_else(|violation| panic!("{scheme:?}, block {lba} of {at}: {violation}"));
                world.read_all().unwrap_or_else(|violation| panic!("{scheme:?}, block {lba} of {at}: {violation}"));
            }
        }
        assert!(tried > 20, "{tried} blocks of {scheme:?}");
    }
}
