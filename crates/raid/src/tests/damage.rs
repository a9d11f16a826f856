//! Damage in the last blocks written, where no footer describes them: reads return the right
//! version or an error, or the mount is refused; never an older version.

use zonda_zoned::{Lba, Prng, ZoneState};

use super::failures::{config, geometry};
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Request, Simulation};
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
    /// It cannot be read at all.
    Unreadable,
    /// It reads as zeros, and so do its metadata. For the last chunk this is indistinguishable from
    /// an interrupted write.
    Blank,
}

/// The result of a mount.
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
    /// After the program has been stopped with nothing in flight.
    Stop,
    /// After a mount has closed open segments, and was interrupted.
    Closed,
}

/// A volume in which the first blocks were written twice, and some of them trimmed last.
fn volume(scheme: Scheme, metadata_bytes: u16, has_trim: bool) -> Simulation {
    let prng = Prng::new(7);
    let mut config = config(scheme);
    config.tuning.large_segments = 0;
    let drives =
        (0..scheme.members()).map(|at| Drive::new(geometry(metadata_bytes), prng.fork(&format!("drive/{at}"))));
    let mut simulation =
        Simulation::create(config, drives.collect(), prng.fork("world")).expect("a valid configuration");
    simulation.model.is_lost = true;
    simulation.suspects = u32::MAX;
    for version in 0..3 {
        for start in (0..6).filter(|start| version < 2 || *start > 2 && !has_trim) {
            assert!(simulation.submit(&Request::Write { start, blocks: 1 }).expect("the volume is right"));
            simulation.quiesce().expect("the volume quiesces");
        }
    }
    if has_trim {
        assert!(simulation.submit(&Request::Trim(vec![(1, 3)])).expect("the volume is right"));
        simulation.quiesce().expect("the volume quiesces");
    }
    let zones = METADATA_ZONES..simulation.drives[0].geometry().zone_count;
    assert!(
        zones.into_iter().all(|zone| simulation.drives[0].zone_state(zone) != ZoneState::Full),
        "there is no footer yet"
    );
    simulation
}

/// The last blocks written to the zone of a member that holds the newest of them.
fn last_blocks(drive: &Drive) -> Vec<Lba> {
    let zones = METADATA_ZONES..drive.geometry().zone_count;
    let held = zones.filter(|&zone| !matches!(drive.zone_state(zone), ZoneState::Empty | ZoneState::Offline));
    let blocks = held.map(|zone| drive.written_blocks(zone)).max_by_key(Vec::len).unwrap_or_default();
    // Headers are not tested here.
    let count = blocks.len().saturating_sub(1);
    blocks.into_iter().take(count).collect()
}

fn apply_damage(drive: &mut Drive, lba: Lba, damage: Damage) {
    match damage {
        Damage::Data => drive.rot_data(lba),
        Damage::Unreadable => drive.lose_block(lba),
        Damage::Blank => drive.blank(lba),
    }
}

/// Mounts, and reads each block: it is right, or an error.
fn mount(simulation: &mut Simulation, without: u32) -> Mounted {
    let mounted = simulation.mount(without);
    match simulation.volume.failure() {
        Some(VolumeError::UnidentifiedLosses { blocks, .. }) => {
            assert!(*blocks > 0);
            return Mounted::Refused;
        }
        Some(error) => panic!("{error}"),
        None => mounted.expect("it is mounted"),
    }
    // Reads of blocks that are known to be lost fail without reading a member.
    let known = simulation.volume.lost(Lba(0)).flat_map(|range| range.start.0..range.start.0 + range.blocks.0);
    let lost = known.filter(|&lba| lba < 8).count() as u64;
    let before = simulation.volume.counters().unreadable_blocks;
    for start in 0..8 {
        assert!(simulation.submit(&Request::Read { start, blocks: 1 }).expect("the volume is right"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    }
    Mounted::With(lost + simulation.volume.counters().unreadable_blocks - before)
}

/// Reports the case of a run that panics.
struct PanicContext(String);

impl Drop for PanicContext {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

fn end(simulation: &mut Simulation, when: When) {
    match when {
        When::Crash => simulation.crash(),
        When::Stop => simulation.kill(),
        When::Closed => {
            simulation.crash();
            // Until zones are finished: open ones are neither read nor moved.
            simulation.mount_until_ready(0).expect("it is mounted");
            simulation.crash();
        }
    }
}

/// Damages each of the last blocks of a volume, the same for all `damaged_members`, and mounts
/// without some. Returns the result of each.
fn damage_each(
    scheme: Scheme,
    metadata_bytes: u16,
    damage: Damage,
    has_trim: bool,
    damaged_members: &[usize],
    without: u32,
) -> Vec<Mounted> {
    let mut all = Vec::new();
    for when in [When::Crash, When::Stop, When::Closed] {
        for back in 0..BLOCKS_BACK {
            let what = format!(
                "{scheme:?}, {metadata_bytes} bytes, {damage:?}, trim: {has_trim}, {damaged_members:?} without {without:b}"
            );
            if damage == Damage::Blank && back < 2 {
                continue;
            }
            let _context = PanicContext(format!("{what}, {when:?}, block {back} from the end"));
            let mut simulation = volume(scheme, metadata_bytes, has_trim);
            end(&mut simulation, when);
            for &at in damaged_members {
                let Some(&lba) = last_blocks(&simulation.drives[at]).get(back) else { continue };
                apply_damage(&mut simulation.drives[at], lba, damage);
            }
            let first = mount(&mut simulation, without);
            for _ in 0..3 {
                simulation.crash();
                let again = mount(&mut simulation, without);
                assert_eq!(again, first, "a later mount has the same result");
            }
            if first == Mounted::Refused {
                simulation.crash();
                simulation.options = MountOptions { accepts_losses: true, ..MountOptions::default() };
                let _ = simulation.mount(without);
                assert!(simulation.volume.is_ready(), "losses are accepted: {:?}", simulation.volume.failure());
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
            // If a block in front of the chunk describes it, only that one has the metadata of the
            // others.
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
fn segments_that_a_mount_closes_without_footers_are_emptied_once_and_their_zones_freed() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut simulation = volume(scheme, 64, true);
        simulation.model.is_lost = false;
        for _ in 0..3 {
            let drive = &simulation.drives[0];
            let is_held = |zone: &u32| drive.zone_state(*zone) != ZoneState::Empty;
            let held: Vec<u32> = (METADATA_ZONES..drive.geometry().zone_count).filter(is_held).collect();
            assert_eq!(held.len(), 1, "{scheme:?}: all of it fits one zone");
            simulation.crash();
            assert_eq!(mount(&mut simulation, 0), Mounted::With(0));
            assert_eq!(simulation.drives[0].zone_state(held[0]), ZoneState::Empty, "{scheme:?}: it was moved");
            let moved = simulation.volume.counters().relocated_blocks;
            assert!(moved <= simulation.volume.status().live_blocks, "{scheme:?}: {moved} blocks are moved");
            simulation.quiesce().expect("the volume quiesces");
            assert_eq!(simulation.volume.counters().relocated_blocks, moved, "nothing is moved back and forth");
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
            let mut simulation = volume(RAID1, metadata_bytes, false);
            simulation.crash();
            let Some(&lba) = last_blocks(&simulation.drives[0]).get(back) else { break };
            simulation.drives[0].flip(lba);
            simulation.mount_until_ready(0).expect("it is mounted");
            let found = simulation.volume.damage();
            assert_eq!(found.repaired + found.damaged, 1, "{metadata_bytes} bytes, {back} back: {found:?}");
        }
    }
}

#[test]
fn a_moved_copy_that_is_damaged_does_not_count_before_the_one_that_it_was_moved_from() {
    let mut simulation = volume(SINGLE, 64, false);
    let zones = METADATA_ZONES..simulation.drives[0].geometry().zone_count;
    let is_held = |simulation: &Simulation, zone: u32| simulation.drives[0].zone_state(zone) != ZoneState::Empty;
    let source = zones.clone().find(|&zone| is_held(&simulation, zone)).expect("blocks were written");
    simulation.crash();
    simulation.mount_until_ready(0).expect("it is mounted");
    // Open segments are moved; the power fails when a stripe of them has arrived.
    let has_stripe =
        |simulation: &Simulation, zone: u32| zone != source && simulation.drives[0].written_blocks(zone).len() > 1;
    let target = loop {
        simulation.step(u64::MAX).expect("the volume is right");
        if let Some(zone) = zones.clone().find(|&zone| has_stripe(&simulation, zone)) {
            break zone;
        }
    };
    simulation.crash();
    assert!(is_held(&simulation, source), "the moved block is still in its old place");
    let moved = simulation.drives[0].written_blocks(target);
    moved[..moved.len() - 1].iter().for_each(|&lba| simulation.drives[0].rot_data(lba));
    assert_eq!(mount(&mut simulation, 0), Mounted::With(0));
}

/// One drive writes one block in place of the next one: with redundancy nothing is lost, whichever
/// block it was.
#[test]
fn a_block_written_in_place_of_the_next_one_is_not_taken_for_it() {
    let raid6 = Scheme { level: Level::Raid6, data: 2, parity: 2 };
    for (scheme, metadata_bytes) in [(RAID1, 64), (RAID5, 64), (raid6, 64), (raid6, 0)] {
        let mut tried = 0;
        for at in 0..scheme.members() {
            let begin = || {
                let mut simulation = super::failures::simulation(scheme, metadata_bytes, 11);
                for start in [0, 8, 4, 16, 2] {
                    assert!(simulation.submit(&Request::Write { start, blocks: 8 }).expect("the volume is right"));
                    simulation.quiesce().expect("the volume quiesces");
                }
                simulation.crash();
                simulation
            };
            let zones = METADATA_ZONES..begin().drives[at].geometry().zone_count;
            let blocks: Vec<Lba> = zones.flat_map(|zone| begin().drives[at].written_blocks(zone)).collect();
            for lba in blocks {
                let mut simulation = begin();
                if !simulation.drives[at].shift(lba) {
                    continue;
                }
                tried += 1;
                simulation.suspects = 1 << at;
                simulation.mount(0).unwrap_or_else(|violation| panic!("{scheme:?}, block {lba} of {at}: {violation}"));
                simulation
                    .read_all()
                    .unwrap_or_else(|violation| panic!("{scheme:?}, block {lba} of {at}: {violation}"));
            }
        }
        assert!(tried > 20, "{tried} blocks of {scheme:?}");
    }
}
