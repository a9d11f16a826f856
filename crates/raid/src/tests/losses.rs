//! Lost blocks: reads of them fail, also after a mount, until they are written or trimmed.

use zonda_zoned::{Blocks, Lba, LbaRange, Status};

use super::basics::config;
use super::bench::Bench;
use super::failures::geometry;
use super::script::{Kind, Script, plain_config};
use crate::format::HEADER_COPIES;
use crate::{Event, Level, MountOptions, Scheme, StreamShape, VolumeError};

const BAD: Status = Status::UnrecoveredReadError;

/// A volume whose first three blocks were written twice, each time as one stripe of the first
/// segment, which is followed by another one.
fn written_twice() -> Script {
    let mut script = Script::create(plain_config(Scheme::raid5(3)));
    for (start, version) in [(0, 1), (0, 2), (3, 1)] {
        let write = script.write(start, 3, version);
        assert!(script.has_ended(write));
    }
    script
}

/// The chunks of a stripe on these members become unreadable.
fn make_unreadable(script: &mut Script, members: &[usize], segment: u64, stripe: u64) {
    for &member in members {
        let lba = script.zone_start(member, segment) + u64::from(HEADER_COPIES) + stripe;
        script.unreadable.insert((member, lba));
    }
}

/// Fills the newest segment for host requests with other blocks.
fn fill_segment(script: &mut Script) {
    let segment = script.host_segment();
    while script.count(Kind::Footer, segment) == 0 {
        script.write(90, 3, 1);
    }
}

/// The results of reads of the first three blocks: the version, or an error.
fn read_three(script: &mut Script) -> [Result<u64, Status>; 3] {
    [0, 1, 2].map(|lba| {
        let id = script.read(lba);
        match script.status(id) {
            Some(Status::Success) => Ok(script.version_of(id, lba)),
            status => Err(status.expect("a read ends")),
        }
    })
}

fn lost(script: &Script) -> Vec<(u64, u64)> {
    script.volume.lost(Lba(0)).map(|range| (range.start.0, range.blocks.0)).collect()
}

/// Two damaged chunks of the newest versions, where one can be computed.
fn with_losses() -> (Script, Vec<u64>) {
    let mut script = written_twice();
    make_unreadable(&mut script, &[0, 1], 1, 1);
    let found = read_three(&mut script);
    let lost: Vec<u64> = (0..).zip(found).filter(|(_, found)| *found == Err(BAD)).map(|(lba, _)| lba).collect();
    assert!(!lost.is_empty() && found.iter().all(|found| matches!(found, Ok(2) | Err(_))), "{found:?}");
    (script, lost)
}

#[test]
fn a_block_that_was_found_lost_is_neither_an_older_version_nor_zeros_after_a_mount() {
    let (mut script, lost_blocks) = with_losses();
    let before = read_three(&mut script);
    for _ in 0..3 {
        script.crash(&[]);
        script.mount(&[]);
        assert_eq!(script.events, [Event::Ready]);
        assert_eq!(read_three(&mut script), before);
        assert_eq!(script.volume.status().lost_blocks, lost_blocks.len() as u64);
        assert_eq!(script.volume.counters().lost_blocks, lost_blocks.len() as u64);
    }
}

#[test]
fn a_place_that_a_marker_names_excuses_no_other_place_of_its_segment() {
    let (mut script, lost_blocks) = with_losses();
    script.crash(&[]);
    // Nothing was read of this stripe: no marker names it.
    make_unreadable(&mut script, &[0, 1], 1, 2);
    script.mount(&[]);
    match script.events[..] {
        [Event::Failed(VolumeError::UnidentifiedLosses { segment: 1, blocks, .. })] => {
            assert!((1..=2).contains(&blocks), "the blocks of one stripe alone: {blocks}");
        }
        ref events => panic!("{events:?}"),
    }
    // Only the other stripe is excused.
    script.unreadable.clear();
    make_unreadable(&mut script, &[0, 1], 1, 1);
    script.crash(&[]);
    script.mount(&[]);
    assert_eq!(script.events, [Event::Ready]);
    assert_eq!(script.volume.status().lost_blocks, lost_blocks.len() as u64);
}

#[test]
fn a_place_stays_named_while_its_segment_exists_whatever_becomes_of_its_block_and_its_marker() {
    for is_written in [false, true] {
        let (mut script, lost_blocks) = with_losses();
        if is_written {
            for &lba in &lost_blocks {
                let write = script.write(lba, 1, 3);
                assert!(script.has_ended(write));
            }
        }
        let mut expected = [Ok(2); 3];
        for &lba in &lost_blocks {
            expected[lba as usize] = if is_written { Ok(3) } else { Err(BAD) };
        }
        // The segment is emptied, and never reset; those that hold the marker are.
        script.hold(|sent| sent.kind == Kind::Reset && sent.segment == 1);
        for _ in 0..4 {
            script.crash(&[]);
            script.mount(&[]);
            assert_eq!((&script.events[..], script.held()), (&[Event::Ready][..], 4), "the resets of four zones");
            assert!(script.sent.iter().any(|sent| sent.kind == Kind::Reset && sent.segment > 1), "markers were moved");
            assert_eq!(read_three(&mut script), expected);
        }
    }
}

#[test]
fn a_place_is_named_even_if_its_block_is_written_before_the_marker_is_durable() {
    let mut script = written_twice();
    make_unreadable(&mut script, &[0, 1], 1, 1);
    script.hold(|sent| sent.is_relocation && sent.kind == Kind::Chunk);
    assert!(read_three(&mut script).contains(&Err(BAD)) && script.held() > 0, "a marker is in flight");
    let write = script.write(0, 3, 3);
    assert!(script.has_ended(write));
    script.hold(|_| false);
    script.release();
    // The segment of the marker is collected, the one of the place is not reset, and lacks blocks
    // that its footers list.
    let marker =
        script.sent.iter().rfind(|sent| sent.is_relocation && sent.kind == Kind::Chunk).expect("it is durable");
    let marker = marker.segment;
    script.hold(|sent| sent.kind == Kind::Reset && sent.segment == 1);
    let mut rounds = 0;
    while script.count(Kind::Reset, marker) == 0 {
        script.write(6 + rounds * 37 % 390, 3, rounds);
        rounds += 1;
        assert!(rounds < 5000, "the segment is emptied: {:?}", script.volume.status());
    }
    for sent in script.sent.clone() {
        if (sent.kind, sent.segment) == (Kind::Footer, 1) && sent.member < 2 {
            script.unreadable.insert((sent.member, script.zone_start(sent.member, 1) + u64::from(sent.offset)));
        }
    }
    for _ in 0..3 {
        script.crash(&[]);
        script.mount(&[]);
        assert_eq!(script.events, [Event::Ready]);
        assert_eq!((read_three(&mut script), lost(&script)), ([Ok(3); 3], Vec::new()));
    }
}

#[test]
fn each_lost_block_is_reported_once_counted_once_and_listed() {
    let (mut script, lost_blocks) = with_losses();
    for _ in 0..3 {
        assert!(read_three(&mut script).contains(&Err(BAD)));
    }
    let reported: Vec<u64> = script
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Lost { lba, blocks } => Some(lba.0..lba.0 + blocks.0),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(reported, lost_blocks);
    let listed: Vec<u64> = lost(&script).into_iter().flat_map(|(start, blocks)| start..start + blocks).collect();
    assert_eq!(listed, lost_blocks);
    assert_eq!(script.volume.counters().lost_blocks, lost_blocks.len() as u64);
    let after_the_first = LbaRange { start: Lba(0), blocks: Blocks(1) };
    assert!(script.volume.lost(Lba(1)).all(|range| range != after_the_first));
}

#[test]
fn a_lost_block_is_no_hole_and_is_lost_until_it_is_written_or_trimmed() {
    let (mut script, lost_blocks) = with_losses();
    let lba = lost_blocks[0];
    assert!(!script.volume.extent(Lba(lba), Blocks(1)).is_hole);
    let write = script.write(lba, 1, 3);
    assert!(script.has_ended(write));
    assert_eq!(script.version(lba), 3);
    for _ in 0..2 {
        assert_eq!(script.volume.status().lost_blocks, lost_blocks.len() as u64 - 1, "{lost_blocks:?}");
        script.crash(&[]);
        script.mount(&[]);
        assert_eq!(script.version(lba), 3);
    }
    let (mut script, lost_blocks) = with_losses();
    let trim = script.trim(0, 3);
    assert!(script.has_ended(trim) && !lost_blocks.is_empty());
    for _ in 0..2 {
        assert_eq!(read_three(&mut script), [Ok(0); 3]);
        assert_eq!((script.volume.status().lost_blocks, lost(&script)), (0, Vec::new()));
        assert!(script.volume.extent(Lba(0), Blocks(3)).is_hole);
        script.crash(&[]);
        script.mount(&[]);
    }
}

#[test]
fn a_copy_that_can_be_read_again_counts_over_its_marker_only_if_it_is_the_version_that_was_lost() {
    let (mut script, lost_blocks) = with_losses();
    // The blocks' own metadata could not be read either: the versions of the copies are unknown.
    script.unreadable.clear();
    script.crash(&[]);
    script.mount(&[]);
    let found = read_three(&mut script);
    for lba in lost_blocks {
        assert!(matches!(found[lba as usize], Ok(2) | Err(BAD)), "never an older one: {found:?}");
    }
}

#[test]
fn a_block_is_not_lost_while_a_member_is_away_that_may_hold_what_is_missing() {
    let mut script = written_twice();
    script.volume.fail_member(zonda_zoned::Instant::ZERO, crate::MemberIndex(0));
    script.run();
    make_unreadable(&mut script, &[1], 1, 1);
    let found = read_three(&mut script);
    assert!(found.contains(&Err(BAD)), "{found:?}");
    assert_eq!((script.volume.status().lost_blocks, lost(&script)), (0, Vec::new()));
    assert!(script.volume.counters().unreadable_blocks > 0);
    assert!(!script.events.iter().any(|event| matches!(event, Event::Lost { .. })));
}

#[test]
fn a_transient_error_is_no_loss() {
    let mut script = written_twice();
    script.fail(|sent| sent.kind == Kind::Read);
    let read = script.read(0);
    assert!(script.status(read).is_some_and(|status| status != Status::Success));
    script.fail(|_| false);
    script.run();
    assert_eq!((script.volume.status().lost_blocks, read_three(&mut script)), (0, [Ok(2); 3]));
}

#[test]
fn collection_leaves_markers_of_lost_blocks_and_their_segment_is_reset() {
    let mut script = written_twice();
    // A tombstone is moved out of the segment, too.
    script.trim(5, 1);
    fill_segment(&mut script);
    make_unreadable(&mut script, &[0, 1], 1, 1);
    let mut rounds = 0;
    while script.count(Kind::Reset, 1) == 0 {
        // Other blocks are written, until the first segment is the next to be emptied.
        for start in (6..400).step_by(3).filter(|start| (start + rounds) % 5 < 3) {
            script.write(start, 3, rounds);
        }
        rounds += 1;
        assert!(rounds < 200, "the segment is emptied: {:?}", script.volume.status());
    }
    script.unreadable.clear();
    let lost_blocks = lost(&script);
    assert!(!lost_blocks.is_empty());
    for _ in 0..2 {
        let found = read_three(&mut script);
        assert!(found.contains(&Err(BAD)) && found.iter().all(|found| matches!(found, Ok(2) | Err(_))), "{found:?}");
        assert_eq!(lost(&script), lost_blocks);
        script.crash(&[]);
        script.mount(&[]);
    }
    // The markers are moved as well.
    let first = script.host_segment();
    for round in 0..2000 {
        script.write(6 + round * 37 % 390, 3, round);
    }
    assert!(script.host_segment() > first + 20 && script.volume.counters().collected_segments > 20);
    for _ in 0..2 {
        assert_eq!(lost(&script), lost_blocks);
        assert!(read_three(&mut script).contains(&Err(BAD)));
        script.crash(&[]);
        script.mount(&[]);
    }
}

/// A volume with a stripe that lacks two members' blocks: one that is rebuilt, and unreadable
/// blocks on another.
fn rebuilt_with_losses(metadata_bytes: u16, seed: u64) -> (Bench, Vec<u64>) {
    let mut config = config(Scheme { level: Level::Raid6, data: 3, parity: 2 });
    config.small = StreamShape { unit_blocks: 2, group_stripes: 4 };
    let mut bench = Bench::new(config, metadata_bytes, seed);
    bench.fill();
    bench.overwrite();
    bench.run_out();
    for member in [1, 2] {
        let blocks = bench.device(member).full_blocks();
        bench.device(member).latent = blocks.into_iter().filter(|lba| lba % 64 > 0 && lba % 64 < 40).collect();
    }
    bench.fail(0);
    bench.replace(0);
    bench.may_lose = true;
    bench.run_until(&Event::Rebuilt { member: crate::MemberIndex(0) });
    bench.run_out();
    bench.read_all();
    let lost = bench.failed.iter().copied().collect();
    (bench, lost)
}

#[test]
fn blocks_that_a_rebuild_cannot_compute_never_read_as_older_versions_after_a_mount() {
    for (metadata_bytes, seed) in [(64, 1), (0, 2), (64, 3)] {
        let (mut bench, lost) = rebuilt_with_losses(metadata_bytes, seed);
        assert!(lost.len() > 3, "{} blocks are lost", lost.len());
        for _ in 0..3 {
            bench.remount();
            bench.failed.clear();
            bench.read_all();
            let found: Vec<u64> = bench.failed.iter().copied().collect();
            assert_eq!(found, lost, "an error that was reported once stays");
            bench.run_out();
            assert_eq!(bench.volume.volume().status().lost_blocks, lost.len() as u64);
        }
        bench.fill();
        assert_eq!(bench.volume.volume().status().lost_blocks, 0, "all blocks were written again");
    }
}

#[test]
fn blocks_that_a_rebuild_cannot_compute_never_read_as_older_versions_even_if_no_marker_was_durable() {
    for member in 0..4 {
        let mut script = written_twice();
        // The segment is open: it has no footers with the metadata of its blocks.
        let other = (member + 1) % 4;
        let holders = [0, 1, 2].map(|lba| {
            let from = script.sent.len();
            script.read(lba);
            script.sent[from].member
        });
        make_unreadable(&mut script, &[other], 1, 1);
        // Markers are written where moved blocks go, and never arrive.
        script.hold(|sent| sent.is_relocation && sent.kind == Kind::Chunk);
        script.replace(member);
        assert!(script.events.contains(&Event::Rebuilt { member: crate::MemberIndex(member as u8) }));
        script.crash(&[]);
        script.hold(|_| false);
        script.mount(&[]);
        if let Some(failure) = script.volume.failure() {
            // Nothing identifies the block of the other member.
            assert!(matches!(failure, VolumeError::UnidentifiedLosses { .. }), "{member}: {failure:?}");
            script.crash(&[]);
            script.mount_with(&[], MountOptions { accepts_losses: true, ..MountOptions::default() });
        }
        let found = read_three(&mut script);
        for (holder, found) in holders.into_iter().zip(found) {
            let is_right = match holder {
                _ if holder == member => found == Err(BAD),
                // Its own record cannot be read, and is in no footer.
                _ if holder == other => true,
                _ => found == Ok(2),
            };
            assert!(is_right, "without member {member}, a block of member {holder}: {found:?}");
        }
    }
}

#[test]
fn a_row_that_a_rebuild_cannot_compute_is_lost_and_the_stripe_is_not_taken_for_one_that_was_cut_short() {
    for metadata_bytes in [0, 64] {
        for (member, other) in (0..4).flat_map(|member| (0..4).map(move |other| (member, other))) {
            if member == other {
                continue;
            }
            let mut config = plain_config(Scheme::raid5(3));
            config.small = StreamShape { unit_blocks: 2, group_stripes: 4 };
            let mut script = Script::on(config, geometry(metadata_bytes));
            let rows = if metadata_bytes == 0 { 1 } else { 2 };
            // The one stripe of a segment without a footer; the last row of one member cannot be
            // read.
            let write = script.write(0, 3 * rows, 1);
            assert!(script.has_ended(write));
            let last = script.zone_start(other, 1) + u64::from(HEADER_COPIES) + 1;
            script.unreadable.insert((other, last));
            // Blocks that are moved out of the damaged segment never arrive.
            script.hold(|sent| sent.is_relocation && sent.kind == Kind::Chunk);
            script.replace(member);
            script.crash(&[]);
            script.hold(|_| false);
            script.mount(&[]);
            if let Some(failure) = script.volume.failure() {
                assert!(matches!(failure, VolumeError::UnidentifiedLosses { .. }), "{member}, {other}: {failure:?}");
                continue;
            }
            for lba in 0..3 * rows {
                let id = script.read(lba);
                let found = script
                    .status(id)
                    .map(|status| (status, (status == Status::Success).then(|| script.version_of(id, lba))));
                let is_right = matches!(found, Some((Status::Success, Some(1)) | (BAD, None)));
                assert!(is_right, "without {member}, damaged {other}, block {lba}: {found:?}");
            }
        }
    }
}

/// A mirror on whose first member no header of the first segment can be read, and whose other
/// member has no zone of it; `is_superseded`: its newest versions are elsewhere.
fn mirror_with_an_unclaimed_zone(metadata_bytes: u16, is_superseded: bool) -> Script {
    let mut config = plain_config(Scheme { level: Level::Raid1, data: 1, parity: 1 });
    config.small.unit_blocks = 2;
    let mut script = Script::on(config, geometry(metadata_bytes));
    let mut written = 0;
    while script.count(Kind::Footer, 1) == 0 {
        script.write(written, 1, 1);
        written += 1;
    }
    let zones = [0, 1].map(|member| script.zone_start(member, 1));
    if is_superseded {
        script.hold(|sent| sent.kind == Kind::Reset && sent.segment == 1 && sent.member == 0);
        for lba in 0..written {
            script.write(lba, 1, 2);
        }
        while script.count(Kind::Reset, 1) < 2 {
            script.write(90, 1, 1);
        }
    }
    script.crash(&[]);
    script.hold(|_| false);
    if !is_superseded {
        let zone_blocks = geometry(metadata_bytes).zone_size_blocks.0;
        script.erase(1, (zones[1] / zone_blocks) as u32);
    }
    script.unreadable.extend((0..u64::from(HEADER_COPIES)).map(|copy| (0, zones[0] + copy)));
    script
}

#[test]
fn a_zone_that_no_header_names_is_no_leftover_if_it_holds_the_newest_version_of_a_block() {
    for metadata_bytes in [0, 64] {
        let mut script = mirror_with_an_unclaimed_zone(metadata_bytes, false);
        script.mount(&[]);
        let refused = |event: &Event| {
            matches!(
                event,
                Event::Failed(VolumeError::UnidentifiedLosses { member: crate::MemberIndex(0), segment: 0, .. })
            )
        };
        assert!(matches!(&script.events[..], [event] if refused(event)), "{:?}", script.events);
        // Nothing was reset.
        script.unreadable.clear();
        script.crash(&[]);
        script.mount(&[]);
        assert_eq!(script.events, [Event::Ready]);
        assert_eq!((script.version(1), script.version(2)), (1, 1));
    }
}

#[test]
fn a_zone_that_no_header_names_and_of_which_all_is_elsewhere_is_reset() {
    for metadata_bytes in [0, 64] {
        let mut script = mirror_with_an_unclaimed_zone(metadata_bytes, true);
        script.mount(&[]);
        assert_eq!(script.events, [Event::Ready]);
        assert_eq!((script.version(0), script.version(1)), (2, 2));
    }
}

#[test]
fn accepting_losses_accepts_none_of_segments_that_are_opened_afterwards() {
    let mut script = written_twice();
    script.crash(&[]);
    make_unreadable(&mut script, &[0, 1], 1, 1);
    let accepting = MountOptions { accepts_losses: true, ..MountOptions::default() };
    script.mount_with(&[], accepting);
    assert_eq!(script.events[..2], [Event::LossesAccepted { blocks: 1 }, Event::Ready]);
    // The remaining blocks of the segment are moved to a new one.
    let headers = script.sent.iter().filter(|sent| sent.kind == Kind::Header);
    let opened = headers.map(|sent| sent.segment).min().expect("a segment is opened");
    script.crash(&[]);
    make_unreadable(&mut script, &[0, 1], opened, 0);
    script.mount(&[]);
    match script.events[..] {
        [Event::Failed(VolumeError::UnidentifiedLosses { segment, .. })] => assert_eq!(segment, opened),
        ref events => panic!("segment {opened}: {events:?}"),
    }
}

#[test]
fn a_stripe_that_was_cut_short_is_not_lost_after_a_mount_that_was_cut_short_while_it_reset_its_segment() {
    let mut config = plain_config(Scheme { level: Level::Raid1, data: 1, parity: 1 });
    config.small.unit_blocks = 2;
    let mut script = Script::on(config, geometry(0));
    script.write(0, 1, 1);
    let mut others = 0;
    while script.count(Kind::Footer, 1) == 0 {
        others += 1;
        script.write(others, 1, 1);
    }
    // The first stripe of the next segment arrives on one member, and its contents are corrupted
    // there.
    script.hold(|sent| sent.kind == Kind::Chunk && sent.member == 0);
    script.write(0, 1, 2);
    let segment = script.host_segment();
    script.crash(&[]);
    let payload = script.zone_start(1, segment) + u64::from(HEADER_COPIES) + 1;
    script.unreadable.insert((1, payload));
    script.hold(move |sent| sent.kind == Kind::Reset && sent.member == 1);
    script.mount(&[]);
    assert_eq!((script.count(Kind::Reset, segment), script.held()), (2, 1), "the segment holds nothing that counts");
    script.crash(&[]);
    script.hold(|_| false);
    script.mount(&[]);
    assert_eq!(script.events, [Event::Ready]);
    assert_eq!(script.version(0), 1, "the version that was acknowledged");
}

#[test]
fn accepting_an_unidentified_zone_accepts_other_losses_of_existing_segments() {
    for accepts in [false, true] {
        let mut config = plain_config(Scheme { level: Level::Raid0, data: 1, parity: 0 });
        config.small.group_stripes = 4;
        let mut script = Script::create(config);
        let mut written = 0;
        while script.count(Kind::Header, 3) == 0 {
            script.write(written, 1, 1);
            written += 1;
        }
        script.crash(&[]);
        if accepts {
            // Nothing of the first segment can be read, and no other member names it.
            let start = script.zone_start(0, 1);
            script.unreadable.extend((start..start + 64).map(|lba| (0, lba)));
            script.mount(&[]);
            assert!(matches!(script.events[..], [Event::Failed(VolumeError::UnidentifiedLosses { segment: 0, .. })]));
            script.crash(&[]);
            script.hold(|sent| sent.kind == Kind::Chunk);
            script.mount_with(&[], MountOptions { accepts_losses: true, ..MountOptions::default() });
            script.crash(&[]);
            script.hold(|_| false);
        }
        make_unreadable(&mut script, &[0], 3, 0);
        script.mount(&[]);
        let is_refused =
            matches!(script.events[..], [Event::Failed(VolumeError::UnidentifiedLosses { segment: 3, .. })]);
        assert_eq!(is_refused, !accepts, "{:?}", script.events);
    }
}

#[test]
fn a_copy_that_proves_good_after_a_mount_counts_over_the_marker_of_its_own_version() {
    for metadata_bytes in [64, 0] {
        let mut config = config(Scheme::raid5(3));
        config.small = StreamShape { unit_blocks: 2, group_stripes: 1 };
        let mut bench = Bench::new(config, metadata_bytes, 5);
        bench.fill();
        for member in [1, 2] {
            let blocks = bench.device(member).full_blocks();
            // Their data read wrong, their metadata do not.
            bench.device(member).rotten = blocks.into_iter().filter(|lba| lba % 64 == 8).collect();
        }
        bench.may_lose = true;
        bench.read_all();
        let lost = bench.failed.len() as u64;
        assert!(lost > 3, "{lost} blocks are lost");
        assert_eq!(bench.volume.volume().status().lost_blocks, lost);
        bench.remount();
        bench.run_out();
        assert_eq!(bench.volume.volume().status().lost_blocks, lost, "copies that are still damaged do not count");
        (1..3).for_each(|member| bench.device(member).rotten.clear());
        bench.remount();
        bench.may_lose = false;
        bench.read_all();
        assert_eq!(bench.volume.volume().status().lost_blocks, 0);
    }
}

#[test]
fn tombstones_that_a_rebuild_cannot_compute_are_written_once_more() {
    for member in 0..4 {
        let mut script = written_twice();
        // One stripe, with a tombstone on one of the members.
        let trim = script.trim(0, 2);
        assert!(script.has_ended(trim));
        script.write(6, 3, 1);
        make_unreadable(&mut script, &[(member + 1) % 4], 1, 3);
        script.replace(member);
        assert!(script.events.contains(&Event::Rebuilt { member: crate::MemberIndex(member as u8) }));
        for _ in 0..2 {
            script.crash(&[]);
            script.mount(&[]);
            assert_eq!(read_three(&mut script), [Ok(0), Ok(0), Ok(2)], "without member {member}");
        }
    }
}
