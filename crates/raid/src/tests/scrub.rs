//! Damaged blocks are found and repaired before they are needed.

use super::basics::config;
use super::bench::Bench;
use super::rebuild::long_zones;
use crate::{Event, Level, Scheme, StreamShape};

/// Distance between the starts of two zones of these members.
const ZONE_BLOCKS: u64 = 68;

fn scrub(bench: &mut Bench) -> (u64, u64, u64) {
    let now = bench.now;
    bench.volume.volume_mut().start_scrub(now);
    loop {
        assert!(bench.step(), "a scrub ends");
        let scrubbed = |event: &Event| match event {
            Event::Scrubbed { blocks, repaired, lost, .. } => Some((*blocks, *repaired, *lost)),
            _ => None,
        };
        if let Some(found) = bench.events.iter().find_map(scrubbed) {
            bench.events.clear();
            bench.run_out();
            return found;
        }
    }
}

fn bench(scheme: Scheme, group_stripes: u32, metadata_bytes: u16, seed: u64) -> Bench {
    let mut config = config(scheme);
    config.small = StreamShape { unit_blocks: 1, group_stripes };
    config.tuning.scrub_blocks_per_second = None;
    let mut bench = Bench::new(config, metadata_bytes, seed);
    bench.fill();
    bench.churn(400);
    bench.run_out();
    bench
}

const SCHEMES: [Scheme; 5] = [
    Scheme { level: Level::Raid5, data: 3, parity: 1 },
    Scheme { level: Level::Raid1, data: 1, parity: 2 },
    Scheme { level: Level::Raid01, data: 2, parity: 2 },
    Scheme { level: Level::Raid6, data: 3, parity: 2 },
    Scheme { level: Level::ReedSolomon, data: 4, parity: 3 },
];

#[test]
fn a_scrub_of_an_undamaged_volume_changes_nothing() {
    for scheme in SCHEMES {
        for (group_stripes, metadata_bytes) in [(1, 64), (8, 64), (64, 64), (8, 0)] {
            let mut bench = bench(scheme, group_stripes, metadata_bytes, 1);
            let before = bench.volume.volume().counters();
            let (blocks, repaired, lost) = scrub(&mut bench);
            assert!(blocks > bench.volume.volume().status().live_blocks, "{blocks} blocks");
            assert_eq!((repaired, lost), (0, 0), "{scheme:?}");
            assert_eq!(bench.volume.volume().counters(), before);
        }
    }
}

#[test]
fn corrupt_and_unreadable_blocks_are_repaired() {
    for scheme in SCHEMES {
        for (group_stripes, metadata_bytes) in [(1, 64), (8, 64), (64, 64), (8, 0)] {
            let mut bench = bench(scheme, group_stripes, metadata_bytes, 2);
            let blocks = bench.device(1).full_blocks();
            let data = blocks.into_iter().filter(|lba| lba % ZONE_BLOCKS > 1);
            bench.device(1).rotten = data.clone().filter(|lba| lba % 31 == 0).collect();
            bench.device(1).latent = data.filter(|lba| lba % 97 == 0).collect();
            let (_, repaired, lost) = scrub(&mut bench);
            assert!(repaired > 5, "{scheme:?}: {repaired}");
            assert_eq!(lost, 0, "{scheme:?}");
            let before = bench.volume.volume().counters();
            let is_copy = scheme.level == Level::Raid1;
            assert!(before.repaired_blocks > 0 || is_copy, "{scheme:?}: member 1 holds data");
            bench.read_all();
            let after = bench.volume.volume().counters();
            assert_eq!(after.reconstructed_blocks, before.reconstructed_blocks, "nothing is left to be found");
            bench.fail(0);
            bench.read_all();
            assert_eq!(bench.volume.volume().counters().lost_blocks, 0, "{scheme:?}");
        }
    }
}

#[test]
fn groups_that_are_larger_than_memory_is_spent_on_are_scrubbed_in_parts() {
    let mut config = config(Scheme::raid5(3));
    config.small = StreamShape { unit_blocks: 1, group_stripes: 1100 };
    config.tuning.large_segments = 0;
    config.tuning.scrub_blocks_per_second = None;
    let mut bench = Bench::on(config, long_zones(64), 8);
    bench.fill();
    assert_eq!((scrub(&mut bench).1, scrub(&mut bench).2), (0, 0));
    let blocks = bench.device(1).full_blocks();
    let rotten: Vec<u64> = blocks.into_iter().filter(|lba| lba % 1600 > 0 && lba % 800 == 77).collect();
    bench.device(1).rotten = rotten.into_iter().collect();
    assert!(scrub(&mut bench).1 > 3);
    bench.survives(0);
}

#[test]
fn a_second_scrub_finds_nothing() {
    let mut bench = bench(Scheme::raid5(3), 8, 64, 3);
    let blocks = bench.device(2).full_blocks();
    bench.device(2).rotten = blocks.into_iter().filter(|lba| lba % ZONE_BLOCKS > 1 && lba % 50 == 7).collect();
    assert!(scrub(&mut bench).1 > 0);
    let (_, repaired, lost) = scrub(&mut bench);
    assert_eq!((repaired, lost), (0, 0));
}

#[test]
fn blocks_of_a_member_that_has_failed_are_computed_by_a_scrub_and_none_of_them_is_lost() {
    for scheme in [Scheme::raid5(3), Scheme { level: Level::Raid6, data: 3, parity: 2 }] {
        for (unit_blocks, metadata_bytes) in [(1, 64), (4, 64), (4, 0)] {
            let mut config = config(scheme);
            config.small = StreamShape { unit_blocks, group_stripes: 8 };
            config.tuning.scrub_blocks_per_second = None;
            let mut bench = Bench::new(config, metadata_bytes, 5);
            bench.fill();
            bench.run_out();
            bench.fail(0);
            bench.run_out();
            let before = bench.volume.volume().counters();
            let (blocks, repaired, lost) = scrub(&mut bench);
            assert!(blocks > 0);
            assert_eq!((repaired, lost), (0, 0), "{scheme:?}, units of {unit_blocks}");
            assert_eq!(bench.volume.volume().counters(), before, "{scheme:?}, units of {unit_blocks}");
        }
    }
}

#[test]
fn unrepairable_blocks_are_reported() {
    let mut bench = bench(Scheme::raid5(3), 1, 64, 4);
    // The same stripes on all members: groups of one.
    for member in 0..4 {
        bench.device(member).rotten =
            (ZONE_BLOCKS * 2..ZONE_BLOCKS * 24).filter(|lba| lba % ZONE_BLOCKS == 6).collect();
    }
    let (_, _, lost) = scrub(&mut bench);
    assert!(lost > 0);
    assert!(bench.volume.volume().counters().lost_blocks >= lost);
}

#[test]
fn host_io_continues_during_a_scrub() {
    let mut bench = bench(Scheme::raid5(3), 8, 0, 5);
    for round in 0..5 {
        let blocks = bench.device(round % 4).full_blocks();
        bench.device(round % 4).rotten =
            blocks.into_iter().filter(|lba| lba % ZONE_BLOCKS > 1 && lba % 41 == 0).collect();
        let now = bench.now;
        bench.volume.volume_mut().start_scrub(now);
        while bench.volume.volume().status().scrub.is_some() {
            bench.churn(3);
        }
        bench.run_out();
        // New blocks are not on corrupt ones, but reads and collection of old ones may have caused
        // repairs.
        bench.device(round % 4).rotten.clear();
    }
    bench.read_all();
    assert_eq!(bench.volume.volume().counters().lost_blocks, 0);
}

#[test]
fn a_scrub_keeps_to_its_rate_and_can_be_stopped() {
    let mut config = config(Scheme::raid5(3));
    config.tuning.scrub_blocks_per_second = Some(1000);
    let mut bench = Bench::new(config, 64, 6);
    bench.fill();
    let since = bench.now;
    let (blocks, ..) = scrub(&mut bench);
    let took = bench.now.since(since).as_secs_f64();
    assert!(blocks as f64 / took < 1100.0, "{blocks} blocks in {took} s");
    let now = bench.now;
    bench.volume.volume_mut().start_scrub(now);
    bench.steps(30);
    assert!(bench.volume.volume().status().scrub.is_some());
    bench.volume.volume_mut().stop_scrub();
    assert_eq!(bench.volume.volume().status().scrub, None);
    bench.run_out();
    bench.churn(500);
    bench.run_out();
    bench.read_all();
}

/// Rewrites every block: nothing is needed in the segments that were full before, so all of them
/// are reset.
fn expect_all_segments_to_be_reset(bench: &mut Bench) {
    let full = bench.device(0).full_zones();
    assert!(full.len() > 4, "segments are full");
    bench.device(0).reset.clear();
    bench.fill();
    let left: Vec<u32> = full.difference(&bench.device(0).reset).copied().collect();
    assert_eq!(left, [], "zones of segments in which nothing is needed are reset, whatever has read them");
}

#[test]
fn a_scrub_that_is_stopped_leaves_no_segment_pinned() {
    let mut stopped_while_reading = 0;
    for steps in 0..60 {
        let mut config = config(Scheme::raid5(3));
        config.tuning.scrub_blocks_per_second = None;
        let mut bench = Bench::new(config, 64, u64::from(steps));
        bench.fill();
        let now = bench.now;
        bench.volume.volume_mut().start_scrub(now);
        bench.steps(steps);
        stopped_while_reading += u32::from(bench.volume.volume().status().scrub.is_some());
        // A second one does not replace the first.
        bench.volume.volume_mut().start_scrub(now);
        bench.volume.volume_mut().stop_scrub();
        bench.volume.volume().check_invariants();
        assert_eq!(bench.volume.volume().status().scrub, None);
        expect_all_segments_to_be_reset(&mut bench);
        // And another scrub reads everything.
        let (blocks, ..) = scrub(&mut bench);
        assert!(blocks > bench.volume.volume().status().live_blocks);
    }
    assert!(stopped_while_reading > 10, "{stopped_while_reading} were stopped in the middle");
}

#[test]
fn a_segment_that_was_overwritten_while_it_was_scrubbed_is_reset_when_the_scrub_leaves_it() {
    for is_stopped in [false, true] {
        let mut config = config(Scheme::raid5(3));
        // So slow that the scrub waits in the first segment, with no read in flight.
        config.tuning.scrub_blocks_per_second = Some(100);
        let mut bench = Bench::new(config, 64, 9);
        bench.fill();
        let full = bench.device(0).full_zones();
        bench.device(0).reset.clear();
        let now = bench.now;
        bench.volume.volume_mut().start_scrub(now);
        bench.steps(30);
        bench.overwrite();
        let scrubbed: Vec<u32> = full.difference(&bench.device(0).reset).copied().collect();
        assert_eq!(scrubbed.len(), 1, "the segment that is scrubbed stays");
        if is_stopped {
            bench.volume.volume_mut().stop_scrub();
        }
        bench.run_out();
        assert!(bench.device(0).reset.contains(&scrubbed[0]), "nothing in it is needed any more: it is reset");
    }
}

#[test]
fn a_scrub_that_ends_or_loses_a_member_leaves_no_segment_pinned() {
    for steps in [0, 7, 19, 40] {
        let mut config = config(Scheme { level: Level::Raid6, data: 3, parity: 2 });
        config.tuning.scrub_blocks_per_second = None;
        let mut bench = Bench::new(config, 64, u64::from(steps));
        bench.fill();
        let now = bench.now;
        bench.volume.volume_mut().start_scrub(now);
        bench.steps(steps);
        bench.fail(4);
        bench.run_out();
        assert_eq!(bench.volume.volume().status().scrub, None, "it ends without the member");
        bench.fill();
        expect_all_segments_to_be_reset(&mut bench);
    }
}

#[test]
fn a_scrub_and_a_rebuild_both_end() {
    let mut bench = bench(Scheme { level: Level::Raid6, data: 3, parity: 2 }, 8, 64, 7);
    bench.fail(1);
    bench.run_out();
    let now = bench.now;
    bench.volume.volume_mut().start_scrub(now);
    bench.steps(20);
    bench.replace(1);
    bench.run_out();
    let status = bench.volume.volume().status();
    assert_eq!((status.scrub, status.rebuild, status.degraded_segments), (None, None, 0));
    bench.fail(0);
    bench.fail(2);
    bench.read_all();
}

/// A volume with few written blocks: all of them are in open segments.
fn with_open_segments(group_stripes: u32, metadata_bytes: u16) -> Bench {
    let mut config = config(Scheme { level: Level::Raid6, data: 3, parity: 2 });
    config.small = StreamShape { unit_blocks: 1, group_stripes };
    config.tuning.scrub_blocks_per_second = None;
    let mut bench = Bench::new(config, metadata_bytes, 11);
    bench.write(0, 60);
    bench.run_out();
    bench.write(20, 60);
    bench.run_out();
    assert!(bench.device(1).full_zones().is_empty(), "no segment is full");
    bench
}

#[test]
fn blocks_in_open_segments_are_repaired() {
    // A group of 50 stripes is never complete.
    for (group_stripes, metadata_bytes) in [(1, 64), (4, 64), (4, 0), (50, 64)] {
        let mut bench = with_open_segments(group_stripes, metadata_bytes);
        for member in 1..3 {
            bench.device(member).rotten =
                (ZONE_BLOCKS * 2..ZONE_BLOCKS * 60).filter(|lba| lba % ZONE_BLOCKS > 1 && lba % 5 == 0).collect();
        }
        let (blocks, repaired, lost) = scrub(&mut bench);
        assert!(blocks > 100 && repaired > 10, "{blocks} blocks, {repaired} repaired");
        assert_eq!(lost, 0);
        // Corrupt blocks are not needed any more, and new ones are not corrupt.
        (1..3).for_each(|member| bench.device(member).rotten.clear());
        let before = bench.volume.volume().counters().reconstructed_blocks;
        bench.read_all();
        assert_eq!(bench.volume.volume().counters().reconstructed_blocks, before);
        let (_, repaired, lost) = scrub(&mut bench);
        assert_eq!((repaired, lost), (0, 0));
    }
}

#[test]
fn hosts_write_to_open_segments_while_these_are_scrubbed() {
    for steps in 0..40 {
        let mut bench = with_open_segments(4, 64);
        bench.device(1).rotten =
            (ZONE_BLOCKS * 2..ZONE_BLOCKS * 60).filter(|lba| lba % ZONE_BLOCKS > 1 && lba % 7 == 0).collect();
        let now = bench.now;
        bench.volume.volume_mut().start_scrub(now);
        bench.steps(steps);
        bench.churn(200);
        bench.volume.volume().check_invariants();
        bench.run_out();
        assert_eq!(bench.volume.volume().status().scrub, None);
        bench.device(1).rotten.clear();
        bench.read_all();
        bench.remount();
        bench.read_all();
    }
}

#[test]
fn a_scrub_reports_how_many_blocks_it_has_repaired_and_lost_and_a_second_one_finds_none() {
    for (group_stripes, metadata_bytes) in [(1, 64), (8, 64), (8, 0)] {
        let mut bench = bench(Scheme::raid5(3), group_stripes, metadata_bytes, 12);
        for member in 0..4 {
            let blocks = bench.device(member).full_blocks().into_iter().filter(|lba| lba % ZONE_BLOCKS > 1);
            bench.device(member).rotten = blocks.filter(|lba| lba % ZONE_BLOCKS % 10 < 2 && lba % 3 > 0).collect();
        }
        bench.may_lose = true;
        let (_, repaired, lost) = scrub(&mut bench);
        assert!(repaired > 5 && lost > 5, "{repaired} repaired, {lost} lost");
        let volume = bench.volume.volume();
        assert_eq!(volume.status().lost_blocks, lost);
        assert_eq!(volume.lost(zonda_zoned::Lba(0)).map(|range| range.blocks.0).sum::<u64>(), lost);
        for _ in 0..2 {
            let (_, repaired, more) = scrub(&mut bench);
            assert_eq!((repaired, more), (0, 0), "all was repaired, or recorded");
            bench.failed.clear();
            bench.read_all();
            assert_eq!(bench.failed.len() as u64, lost, "the lost blocks are those reported");
            bench.remount();
            assert_eq!(bench.volume.volume().status().lost_blocks, lost);
        }
    }
}

#[test]
fn segments_with_damaged_headers_and_footers_are_emptied() {
    for is_footer in [false, true] {
        let mut bench = bench(Scheme::raid5(3), 8, 64, 13);
        let zones: Vec<u32> = bench.device(2).full_zones().into_iter().take(3).collect();
        let blocks = bench.device(2).full_blocks();
        let last = |zone: u32| blocks.iter().copied().filter(|lba| lba / ZONE_BLOCKS == u64::from(zone)).max().unwrap();
        let at = |zone: u32| if is_footer { last(zone) } else { u64::from(zone) * ZONE_BLOCKS };
        let damaged: Vec<u64> = zones.iter().map(|&zone| at(zone)).collect();
        bench.device(2).latent = damaged[..2].iter().copied().collect();
        bench.device(2).rotten = damaged[2..].iter().copied().collect();
        bench.device(2).reset.clear();
        let (_, repaired, lost) = scrub(&mut bench);
        assert_eq!((repaired, lost), (3, 0), "footers: {is_footer}");
        assert!(zones.iter().all(|zone| bench.device(2).reset.contains(zone)), "footers: {is_footer}");
        assert_eq!(scrub(&mut bench).1, 0);
        bench.read_all();
    }
}

#[test]
fn a_scrub_ends_with_superblocks_on_all_members() {
    let mut bench = with_open_segments(1, 64);
    let before: Vec<u64> = (0..5).map(|member| bench.device(member).written.1).collect();
    assert_eq!((scrub(&mut bench).1, scrub(&mut bench).2), (0, 0));
    for (member, before) in (0..5).zip(before) {
        assert_eq!(bench.device(member).written.1, before + 2, "one for each scrub");
    }
    bench.remount();
    bench.read_all();
}
