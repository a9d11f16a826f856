//! Damaged blocks are counted individually, whatever finds them, and a block is lost only if it is
//! damaged itself.

use std::collections::BTreeSet;

use zonda_zoned::{Geometry, Instant, Lba, Prng};

use super::failures::{config, geometry};
use super::script::{Kind, Script, plain_config};
use crate::format::HEADER_COPIES;
use crate::limits::METADATA_ZONES;
use crate::testing::{Drive, Request, Simulation};
use crate::{DamageCounts, Event, Level, Scheme, StreamShape};

const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

/// Blocks that one command may read in vain because of a damaged one.
const APART: u64 = 9;

/// A volume in which every block was written, and some twice.
fn written(scheme: Scheme, metadata_bytes: u16, seed: u64) -> Simulation {
    let geometry = Geometry { max_active_zones: Some(8), max_open_zones: Some(8), ..geometry(metadata_bytes) };
    let prng = Prng::new(seed);
    let drives = (0..scheme.members()).map(|at| Drive::new(geometry.clone(), prng.fork(&format!("drive/{at}"))));
    let mut config = config(scheme);
    config.tuning.scrub_blocks_per_second = None;
    config.tuning.reads_unneeded = true;
    let mut simulation =
        Simulation::create(config, drives.collect(), prng.fork("world")).expect("a valid configuration");
    simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
    for start in (0..simulation.model.volume_blocks() - 3).step_by(11) {
        assert!(simulation.submit(&Request::Write { start, blocks: 3 }).expect("the volume is right"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    }
    simulation
}

/// Blocks of segments that are written, no two of them near each other: headers, data, parity,
/// metadata of chunks, footers.
fn some_blocks(drive: &mut Drive) -> Vec<Lba> {
    let size = drive.geometry().zone_size_blocks.0;
    let mut blocks: Vec<Lba> = Vec::new();
    for (number, zone) in (METADATA_ZONES..drive.geometry().zone_count).enumerate() {
        let first = u64::from(zone) * size + number as u64 % APART;
        let written = drive.written_blocks(zone);
        for lba in (first..first + size).step_by(APART as usize).map(Lba).filter(|lba| written.contains(lba)) {
            if drive.block(lba).is_some_and(|block| block.iter().any(|&byte| byte != 0)) {
                blocks.push(lba);
            }
        }
    }
    assert!(blocks.len() > 10, "{}", blocks.len());
    blocks
}

/// Damages blocks alternately: their contents are wrong, or they cannot be read.
fn damage(drive: &mut Drive, blocks: &[Lba]) {
    for (number, &lba) in blocks.iter().enumerate() {
        if number % 2 == 0 { drive.rot_data(lba) } else { drive.lose_block(lba) }
    }
}

fn scrub(simulation: &mut Simulation) -> (u64, u64, u64) {
    simulation.events.clear();
    simulation.volume.start_scrub(simulation.now());
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    let scrubbed = simulation.events.iter().find_map(|event| match event {
        Event::Scrubbed { repaired, unreadable, lost, .. } => Some((*repaired, *unreadable, *lost)),
        _ => None,
    });
    scrubbed.expect("a scrub ends")
}

/// The number of lost blocks that were known before the last scrub.
fn known_lost(simulation: &Simulation) -> u64 {
    let known = simulation.events.iter().find_map(|event| match event {
        Event::Scrubbed { known_lost, .. } => Some(*known_lost),
        _ => None,
    });
    known.expect("a scrub has ended")
}

#[test]
fn as_many_blocks_are_reported_as_are_damaged_whether_a_scrub_a_mount_or_a_read_finds_them() {
    for (scheme, metadata_bytes) in [(RAID1, 64), (RAID1, 0), (RAID5, 64), (RAID5, 0)] {
        for finder in ["scrub", "mount", "read"] {
            let mut simulation = written(scheme, metadata_bytes, 3);
            // Reads of a mirror are sent to its first member.
            let blocks = some_blocks(&mut simulation.drives[0]);
            damage(&mut simulation.drives[0], &blocks);
            let what = format!("{scheme:?}, {metadata_bytes} bytes, {finder}");
            let before = match finder {
                "mount" => {
                    simulation.crash();
                    simulation.mount(0).unwrap_or_else(|violation| panic!("{what}: {violation}"));
                    simulation.volume.damage()
                }
                "read" => {
                    simulation.read_all().unwrap_or_else(|violation| panic!("{what}: {violation}"));
                    simulation.volume.damage()
                }
                _ => DamageCounts::default(),
            };
            assert_eq!(before.repaired + before.damaged > 0, finder != "scrub", "{what}: {before:?}");
            let (repaired, unreadable, lost) = scrub(&mut simulation);
            assert_eq!((repaired + before.repaired, unreadable, lost), (blocks.len() as u64, 0, 0), "{what}");
            let all = DamageCounts { repaired: blocks.len() as u64, ..DamageCounts::default() };
            assert_eq!(simulation.volume.damage(), all, "{what}");
            assert_eq!(simulation.volume.counters().repaired_blocks, all.repaired, "{what}");
            assert_eq!(scrub(&mut simulation), (0, 0, 0), "{what}: nothing is counted twice");
            simulation.read_all().unwrap_or_else(|violation| panic!("{what}: {violation}"));
        }
    }
}

#[test]
fn blocks_unreadable_while_a_member_is_missing_are_counted_by_a_scrub_and_fail_reads() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(RAID5, metadata_bytes, 4);
        simulation.suspects = u32::MAX;
        simulation.volume.fail_member(simulation.now(), crate::MemberIndex(0));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        // Its zones are intact, so that only the blocks themselves are checked.
        let blocks = some_blocks(&mut simulation.drives[1]);
        damage(&mut simulation.drives[1], &blocks[..7]);
        simulation.model.is_lost = true;
        let (repaired, unreadable, lost) = scrub(&mut simulation);
        assert_eq!(lost, 0, "the missing member may hold it");
        assert!(unreadable > 0 && repaired < 7, "{repaired} repaired, {unreadable} unreadable");
        let unreadable = simulation.volume.damage().unreadable;
        let before = simulation.volume.counters().unreadable_blocks;
        for start in 0..simulation.model.volume_blocks() {
            while !simulation.submit(&Request::Read { start, blocks: 1 }).expect("the volume is right") {
                simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
            }
        }
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        let failed = simulation.volume.counters().unreadable_blocks - before;
        assert_eq!(failed, unreadable, "{metadata_bytes} bytes");
        scrub(&mut simulation);
        assert_eq!(simulation.volume.damage().unreadable, unreadable, "they are counted once");
    }
}

#[test]
fn a_block_that_is_lost_is_counted_once_and_no_other_one_is() {
    for metadata_bytes in [64, 0] {
        let mut simulation = written(SINGLE, metadata_bytes, 5);
        simulation.model.is_lost = true;
        let blocks = some_blocks(&mut simulation.drives[0]);
        damage(&mut simulation.drives[0], &blocks);
        let (repaired, unreadable, lost) = scrub(&mut simulation);
        let found = simulation.volume.damage();
        assert!(lost > 0 && repaired > 0, "{found:?}");
        assert_eq!((repaired + lost, unreadable), (blocks.len() as u64, 0), "{metadata_bytes} bytes");
        assert_eq!(simulation.volume.status().lost_blocks, lost);
        assert_eq!(known_lost(&simulation), 0, "none was known before");
        assert_eq!(scrub(&mut simulation), (0, 0, 0), "nothing is counted twice");
        assert_eq!(known_lost(&simulation), lost, "and they are reported as known");
    }
}

/// Members without metadata, chunks of four blocks of which the first describes the others, groups
/// of one stripe.
fn in_band(scheme: Scheme) -> Script {
    let mut config = plain_config(scheme);
    config.small = StreamShape { unit_blocks: 4, group_stripes: 1 };
    config.large = config.small;
    config.tuning.scrub_blocks_per_second = None;
    let mut script = Script::on(config, geometry(0));
    let blocks = 3 * scheme.data as u64;
    for (start, version) in [(0, 1), (0, 2), (blocks, 1)] {
        let write = script.write(start, blocks, version);
        assert!(script.has_ended(write));
    }
    script
}

/// A block of a member's chunk of the second stripe becomes unreadable; the first one describes the
/// others.
fn make_block_unreadable(script: &mut Script, member: usize, block: u64) {
    let lba = script.zone_start(member, 1) + u64::from(HEADER_COPIES) + 4 + block;
    script.unreadable.insert((member, lba));
}

fn lost(script: &Script) -> BTreeSet<u64> {
    script.volume.lost(Lba(0)).flat_map(|range| range.start.0..range.start.0 + range.blocks.0).collect()
}

fn scrubbed(script: &mut Script) {
    script.volume.start_scrub(Instant::ZERO);
    script.run();
    assert!(script.events.iter().any(|event| matches!(event, Event::Scrubbed { .. })), "{:?}", script.events);
}

#[test]
fn behind_a_bad_block_of_a_chunk_that_describes_itself_no_good_one_is_lost() {
    for bad in 1..4 {
        let mut script = in_band(SINGLE);
        make_block_unreadable(&mut script, 0, bad);
        scrubbed(&mut script);
        for _ in 0..2 {
            assert_eq!(lost(&script), [bad - 1].into(), "it alone is lost");
            for lba in (0..3).filter(|lba| lba + 1 != bad) {
                assert_eq!(script.version(lba), 2);
            }
            script.crash(&[]);
            script.mount(&[]);
            assert_eq!(script.events, [Event::Ready]);
        }
    }
}

#[test]
fn a_block_of_which_only_the_description_is_lost_is_rewritten() {
    let mut script = in_band(SINGLE);
    make_block_unreadable(&mut script, 0, 0);
    scrubbed(&mut script);
    for _ in 0..2 {
        assert_eq!(lost(&script), BTreeSet::new(), "its checksum in memory proves each block intact");
        for lba in 0..3 {
            assert_eq!(script.version(lba), 2);
        }
        script.crash(&[]);
        script.mount(&[]);
        assert_eq!(script.events, [Event::Ready]);
    }
    // Hosts write in the meantime: the newer version counts.
    let mut script = in_band(SINGLE);
    make_block_unreadable(&mut script, 0, 0);
    script.hold(|sent| sent.is_relocation && sent.kind == Kind::Chunk);
    script.volume.start_scrub(Instant::ZERO);
    script.run();
    assert!(script.held() > 0, "blocks are in flight");
    let write = script.write(1, 1, 3);
    assert!(script.has_ended(write));
    script.release();
    for _ in 0..2 {
        assert_eq!([0, 1, 2].map(|lba| script.version(lba)), [2, 3, 2]);
        script.crash(&[]);
        script.mount(&[]);
    }
}

#[test]
fn bad_blocks_of_different_rows_of_a_stripe_are_computed_of_the_good_ones_behind_them() {
    for members in [[0, 1], [1, 2], [0, 2]] {
        let mut script = in_band(RAID5);
        make_block_unreadable(&mut script, members[0], 1);
        make_block_unreadable(&mut script, members[1], 3);
        for lba in 0..6 {
            assert_eq!(script.version(lba), 2);
        }
        scrubbed(&mut script);
        assert_eq!((lost(&script), script.volume.damage().lost), (BTreeSet::new(), 0));
        script.crash(&[]);
        script.mount(&[]);
        for lba in 0..6 {
            assert_eq!(script.version(lba), 2);
        }
    }
}
