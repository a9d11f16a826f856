//! Findings of a mount that look like damage or absence, and lose nothing: zones that were finished
//! while empty, damage where nothing is needed, second logs that could not be active, rewritten
//! tombstones.

use zonda_zoned::{Geometry, Instant, Status};

use super::failures::geometry;
use super::script::{Kind, Script, plain_config};
use crate::format::HEADER_COPIES;
use crate::limits::METADATA_ZONES;
use crate::{DamageCounts, Event, Level, MemberState, Scheme, StreamShape};

const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };

fn expect_ready(script: &mut Script, without: &[usize]) {
    script.hold(|_| false);
    script.fail(|_| false);
    script.crash(&[]);
    script.mount(without);
    assert_eq!(script.events.first(), Some(&Event::Ready));
}

#[test]
fn zones_that_were_finished_before_anything_was_written_to_them_refuse_no_mount() {
    for scheme in [SINGLE, RAID1, Scheme::raid5(3)] {
        let mut script = Script::create(plain_config(scheme));
        let blocks = scheme.data as u64;
        let write = script.write(0, blocks, 1);
        assert!(script.has_ended(write));
        // Segments whose headers cannot be written are closed; the power fails before their zones
        // are reset.
        script.hold(|sent| sent.kind == Kind::Reset);
        script.fail(|sent| sent.kind == Kind::Header);
        let has_failed = (0..200).any(|_| {
            let write = script.write(blocks, blocks, 1);
            script.status(write) != Some(Status::Success)
        });
        assert!(has_failed, "{scheme:?}: no segment can be opened");
        assert!(script.full_blank_zones(0) > 0, "{scheme:?}: zones are finished");
        for _ in 0..2 {
            expect_ready(&mut script, &[]);
            assert_eq!(script.version(0), 1, "{scheme:?}");
        }
    }
}

/// Writes other blocks until a segment is emptied: its resets are in flight.
fn empty(script: &mut Script, segment: u64, resets: usize) {
    let mut rounds = 0;
    while script.count(Kind::Reset, segment) < resets {
        script.write(6 + rounds * 37 % 100, 1, rounds);
        rounds += 1;
        assert!(rounds < 5000, "the segment is emptied: {:?}", script.volume.status());
    }
}

#[test]
fn damage_on_a_member_that_is_being_rebuilt_refuses_no_mount_where_the_other_one_shows_that_nothing_is_needed() {
    let mut script = Script::create(plain_config(RAID1));
    for lba in 0..6 {
        let write = script.write(lba, 1, 1);
        assert!(script.has_ended(write));
    }
    // The rebuild of the old blocks waits for its first zone; both members have the blocks that are
    // written from now on.
    script.hold(|sent| sent.member == 0 && sent.kind == Kind::Header && sent.segment == 1);
    script.replace(0);
    let write = script.write(6, 1, 1);
    assert!(script.has_ended(write));
    assert_eq!(script.volume.status().members[0].state, MemberState::Rebuilding);
    let segment = script.host_segment();
    assert!(segment > 1, "another one was opened");
    script
        .hold(|sent| sent.member == 0 && (sent.kind == Kind::Header && sent.segment == 1 || sent.kind == Kind::Reset));
    empty(&mut script, segment, 2);
    // The zone of the active member is reset, and that of the other one is not, and is completely
    // damaged.
    let start = script.zone_start(0, segment);
    let size = geometry(64).zone_size_blocks.0;
    script.unreadable.extend((start + u64::from(HEADER_COPIES)..start + size).map(|lba| (0, lba)));
    expect_ready(&mut script, &[]);
    for lba in 0..6 {
        assert_eq!(script.version(lba), 1);
    }
}

#[test]
fn a_log_of_superblocks_takes_its_second_zone_at_the_end_of_the_mount_that_could_not_have_it_active_before() {
    let mut config = plain_config(RAID1);
    config.tuning.small_segments = 5;
    let many = Geometry { max_active_zones: Some(8), max_open_zones: Some(8), ..geometry(64) };
    let mut script = Script::on(config, many);
    for lba in 0..20 {
        let write = script.write(lba, 1, 1);
        assert!(script.has_ended(write));
    }
    assert_eq!(script.host_segment(), 5, "five segments are open");
    // As many as may be active on members of which one log was written, as in version 1.
    (0..2).for_each(|member| script.erase(member, 1));
    script.set_max_active_zones(6);
    expect_ready(&mut script, &[]);
    for member in 0..2 {
        let logs = (0..METADATA_ZONES).map(|zone| script.written(member, zone)).filter(|&blocks| blocks > 0).count();
        assert_eq!(logs as u32, METADATA_ZONES, "both zones of member {member} have it before the volume is ready");
    }
    for lba in 0..20 {
        assert_eq!(script.version(lba), 1);
    }
}

#[test]
fn tombstones_that_could_not_be_read_and_were_rewritten_refuse_no_mount() {
    for ranges in [2, 50] {
        let mut script = Script::create(plain_config(SINGLE));
        for lba in 0..120 {
            let write = script.write(lba, 1, 1);
            assert!(script.has_ended(write));
        }
        // One block of tombstones, or more than the ranges of one fit: no two of them are adjacent.
        let segment = script.host_segment();
        let from = script.sent.len();
        for range in 0..ranges {
            let trim = script.trim(2 * range, 1);
            assert!(script.has_ended(trim));
        }
        let chunks: Vec<_> = script.sent[from..].iter().filter(|sent| sent.kind == Kind::Chunk).cloned().collect();
        assert!(!chunks.is_empty() && segment > 0);
        for sent in &chunks {
            let lba = script.zone_start(0, sent.segment) + u64::from(sent.offset);
            script.unreadable.insert((0, lba));
        }
        let damaged: std::collections::BTreeSet<u64> = chunks.iter().map(|sent| sent.segment).collect();
        // They are emptied, and the power fails before their zones are reset.
        let held = damaged.clone();
        script.hold(move |sent| sent.kind == Kind::Reset && held.contains(&sent.segment));
        script.volume.start_scrub(Instant::ZERO);
        script.run();
        for &segment in &damaged {
            assert_eq!(script.count(Kind::Reset, segment), 1, "segment {segment} is emptied");
        }
        for _ in 0..2 {
            expect_ready(&mut script, &[]);
            for range in 0..ranges {
                assert_eq!((script.version(2 * range), script.version(2 * range + 1)), (0, 1), "{ranges} ranges");
            }
        }
    }
}

#[test]
fn chunks_that_never_arrived_are_no_damage() {
    for (metadata_bytes, before) in [(64, 0), (64, 1), (64, 4), (0, 0), (0, 1), (0, 4)] {
        for absent in 0..4 {
            let mut config = plain_config(Scheme::raid5(3));
            config.small = StreamShape { unit_blocks: 2, group_stripes: 4 };
            config.large = config.small;
            config.tuning.scrub_blocks_per_second = None;
            let mut script = Script::on(config, geometry(metadata_bytes));
            // A chunk without metadata beside its blocks begins with a block that describes the
            // other.
            let blocks = if metadata_bytes == 0 { 3 } else { 6 };
            for version in 1..=before {
                let write = script.write(0, blocks, version);
                assert!(script.has_ended(write));
            }
            script.hold(move |sent| sent.kind == Kind::Chunk && sent.member == absent);
            script.write(0, blocks, before + 1);
            assert_eq!(script.held(), 1, "a chunk of the last stripe is in flight");
            expect_ready(&mut script, &[]);
            script.volume.start_scrub(Instant::ZERO);
            script.run();
            let what = format!("{metadata_bytes} bytes, {before} stripes before, member {absent}");
            assert_eq!(script.volume.damage(), DamageCounts::default(), "{what}");
            for lba in 0..blocks {
                assert!((before..=before + 1).contains(&script.version(lba)), "{what}");
            }
        }
    }
}
