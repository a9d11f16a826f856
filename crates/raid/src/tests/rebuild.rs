//! Failed members are replaced, and completely rebuilt.

use std::collections::BTreeSet;

use zonda_zoned::{Blocks, Geometry};

use super::basics::{config, geometry};
use super::bench::Bench;
use super::script::{Kind, Script, plain_config};
use crate::event::FailReason;
use crate::format::HEADER_COPIES;
use crate::{Event, Level, MemberIndex, MemberState, Scheme, StreamShape, VolumeConfig, VolumeError};

const RAID6: Scheme = Scheme { level: Level::Raid6, data: 3, parity: 2 };
const MIRRORED_STRIPE: Scheme = Scheme { level: Level::Raid01, data: 2, parity: 2 };

fn grouped(scheme: Scheme, group_stripes: u32) -> VolumeConfig {
    let mut config = config(scheme);
    config.small = StreamShape { unit_blocks: 1, group_stripes };
    config
}

/// Zones whose groups may be larger than a piece.
pub(super) fn long_zones(metadata_bytes: u16) -> Geometry {
    let blocks = Blocks(if metadata_bytes == 0 { 3200 } else { 1600 });
    let geometry = geometry(metadata_bytes);
    Geometry { zone_size_blocks: blocks, zone_capacity_blocks: blocks, zone_count: 15, ..geometry }
}

fn rebuilt(member: u8) -> Event {
    Event::Rebuilt { member: MemberIndex(member) }
}

/// Members of a volume fail, are replaced while it is in use, and then others fail.
fn lose_and_replace(scheme: Scheme, group_stripes: u32, metadata_bytes: u16, first: &[u8], second: &[u8]) {
    let mut bench = Bench::new(grouped(scheme, group_stripes), metadata_bytes, u64::from(group_stripes));
    bench.fill();
    bench.churn(400);
    for &member in first {
        bench.fail(member);
        bench.churn(200);
    }
    for &member in first {
        bench.replace(member);
        bench.churn(20);
    }
    for &member in first {
        while !bench.events.contains(&rebuilt(member)) {
            bench.churn(5);
        }
    }
    bench.run_out();
    let status = bench.volume.volume().status();
    assert!(!bench.volume.volume().is_degraded(), "{status:?}");
    assert_eq!((status.degraded_segments, status.rebuild), (0, None));
    for &member in second {
        bench.fail(member);
    }
    bench.read_all();
    bench.churn(200);
    bench.read_all();
    assert_eq!(bench.volume.volume().counters().lost_blocks, 0);
    assert_eq!(bench.volume.volume().counters().repaired_blocks, 0, "rebuilt blocks are intact");
}

#[test]
fn a_replaced_member_of_raid_5_holds_its_part_whatever_the_group() {
    for group_stripes in [1, 8, 64] {
        for metadata_bytes in [64, 0] {
            lose_and_replace(Scheme::raid5(3), group_stripes, metadata_bytes, &[1], &[2]);
            lose_and_replace(Scheme::raid5(2), group_stripes, metadata_bytes, &[2], &[0]);
        }
    }
}

#[test]
fn two_members_of_raid_6_are_rebuilt_in_turn() {
    for group_stripes in [1, 8, 64] {
        for metadata_bytes in [64, 0] {
            lose_and_replace(RAID6, group_stripes, metadata_bytes, &[0, 3], &[1, 4]);
        }
    }
}

#[test]
fn mirrors_and_wide_codes_are_rebuilt() {
    for metadata_bytes in [64, 0] {
        for group_stripes in [1, 8] {
            lose_and_replace(
                Scheme { level: Level::Raid1, data: 1, parity: 1 },
                group_stripes,
                metadata_bytes,
                &[0],
                &[1],
            );
            lose_and_replace(
                Scheme { level: Level::Raid1, data: 1, parity: 2 },
                group_stripes,
                metadata_bytes,
                &[0, 1],
                &[2],
            );
            lose_and_replace(
                Scheme { level: Level::Raid4, data: 2, parity: 1 },
                group_stripes,
                metadata_bytes,
                &[2],
                &[0],
            );
            lose_and_replace(MIRRORED_STRIPE, group_stripes, metadata_bytes, &[0, 3], &[2, 1]);
            let wide = Scheme { level: Level::ReedSolomon, data: 4, parity: 3 };
            lose_and_replace(wide, group_stripes, metadata_bytes, &[0, 5, 6], &[1, 2, 3]);
        }
    }
}

#[test]
fn an_idle_volume_is_rebuilt_too() {
    let mut bench = Bench::new(config(Scheme::raid5(3)), 64, 1);
    bench.fill();
    bench.churn(50);
    bench.fail(0);
    bench.run_out();
    bench.replace(0);
    bench.run_out();
    assert_eq!(bench.state(0), MemberState::Active);
    bench.fail(3);
    bench.read_all();
}

#[test]
fn with_few_active_zones_hosts_and_a_rebuild_alternate() {
    let geometry = Geometry { max_active_zones: Some(3), max_open_zones: Some(3), ..geometry(64) };
    let mut bench = Bench::on(config(Scheme::raid5(3)), geometry, 14);
    bench.fill();
    bench.churn(300);
    bench.fail(1);
    bench.churn(100);
    bench.replace(1);
    while !bench.events.contains(&rebuilt(1)) {
        bench.churn(5);
    }
    bench.fail(0);
    bench.replace(0);
    bench.run_until(&rebuilt(0));
    bench.survives(2);
}

#[test]
fn a_rebuild_keeps_to_its_rate_and_reports_its_progress() {
    let mut config = config(Scheme::raid5(3));
    config.tuning.rebuild_blocks_per_second = Some(1000);
    let mut bench = Bench::on(config, Geometry { zone_count: 27, ..geometry(64) }, 2);
    bench.fill();
    bench.fail(1);
    bench.run_out();
    let since = bench.now;
    bench.replace(1);
    let mut last = 0;
    let mut most = (0, 0);
    while !bench.events.contains(&rebuilt(1)) {
        assert!(bench.step());
        if let Some((done, all)) = bench.volume.volume().status().rebuild {
            assert!(done >= last && all >= done);
            (last, most) = (done, most.max((done, all)));
        }
    }
    let blocks = bench.device(1).written.0;
    let took = bench.now.since(since).as_secs_f64();
    assert!(blocks as f64 / took < 1400.0, "{blocks} blocks in {took} s");
    assert!(most.0 + 1 >= most.1 && most.1 >= 10, "{most:?}");
}

#[test]
fn sources_are_read_in_large_reads() {
    for group_stripes in [1, 8] {
        let mut bench = Bench::new(grouped(Scheme::raid5(3), group_stripes), 64, 3);
        bench.fill();
        bench.fail(1);
        bench.run_out();
        let before: Vec<(u64, u64)> = [0, 2, 3].map(|member| bench.device(member).read).to_vec();
        bench.replace(1);
        bench.run_until(&rebuilt(1));
        for (member, before) in [0, 2, 3].into_iter().zip(before) {
            let after = bench.device(member).read;
            let (blocks, commands) = (after.0 - before.0, after.1 - before.1);
            assert!(blocks >= commands * 8, "{blocks} blocks in {commands} commands");
        }
    }
}

#[test]
fn a_rebuild_resumes_after_a_mount() {
    for group_stripes in [1, 8, 64] {
        for metadata_bytes in [64, 0] {
            let mut config = grouped(Scheme::raid5(3), group_stripes);
            config.tuning.rebuild_blocks_per_second = Some(10_000);
            let mut bench = Bench::new(config, metadata_bytes, 4);
            bench.fill();
            bench.churn(300);
            bench.run_out();
            bench.fail(2);
            bench.churn(100);
            bench.run_out();
            bench.replace(2);
            for crash in 0..3 {
                while bench.volume.volume().status().rebuild.is_none_or(|(done, _)| done < 3) {
                    assert!(bench.step());
                }
                bench.steps(7 * crash);
                bench.remount();
                assert_eq!(bench.state(2), MemberState::Rebuilding);
            }
            bench.events.clear();
            bench.run_until(&rebuilt(2));
            bench.remount();
            bench.run_out();
            bench.read_all();
            assert_eq!(bench.volume.volume().counters().reconstructed_blocks, 0, "the member holds all of its part");
            bench.survives(0);
            bench.remount();
            bench.read_all();
        }
    }
}

#[test]
fn a_failed_write_retires_a_zone_and_many_fail_the_member() {
    let mut bench = Bench::new(config(Scheme::raid5(3)), 64, 5);
    bench.fill();
    bench.fail(1);
    bench.run_out();
    bench.replace(1);
    while bench.volume.volume().status().rebuild.is_none_or(|(done, _)| done < 2) {
        assert!(bench.step());
    }
    bench.device(1).failing_writes = 1;
    bench.run_until(&rebuilt(1));
    assert_eq!(bench.volume.volume().status().members[1].errors, 1);
    bench.fail(0);
    bench.read_all();

    let mut bench = Bench::new(config(Scheme::raid5(3)), 64, 6);
    bench.fill();
    bench.fail(1);
    bench.run_out();
    bench.replace(1);
    while bench.volume.volume().status().rebuild.is_none_or(|(done, _)| done < 2) {
        assert!(bench.step());
    }
    bench.device(1).failing_writes = u64::MAX;
    bench.events.clear();
    bench.run_until(&Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Errors });
    bench.run_out();
    assert_eq!(bench.volume.volume().status().rebuild, None);
    bench.read_all();
}

#[test]
fn a_member_that_fails_while_it_is_rebuilt_can_be_replaced_again() {
    let mut bench = Bench::new(config(Scheme::raid5(3)), 0, 7);
    bench.fill();
    bench.fail(1);
    for _ in 0..3 {
        bench.replace(1);
        bench.churn(30);
        bench.fail(1);
        bench.churn(30);
    }
    bench.replace(1);
    bench.run_until(&rebuilt(1));
    bench.fail(3);
    bench.read_all();
}

#[test]
fn another_member_of_raid_6_may_fail_while_one_is_rebuilt() {
    let mut config = config(RAID6);
    config.tuning.rebuild_blocks_per_second = Some(20_000);
    let mut bench = Bench::new(config, 64, 8);
    bench.fill();
    bench.fail(1);
    bench.churn(100);
    bench.replace(1);
    while bench.volume.volume().status().rebuild.is_none_or(|(done, _)| done < 3) {
        assert!(bench.step());
    }
    bench.fail(0);
    bench.churn(100);
    while bench.state(1) == MemberState::Rebuilding {
        assert!(bench.step());
    }
    bench.survives(2);
}

#[test]
fn sources_that_are_bad_are_replaced_by_others() {
    for metadata_bytes in [64, 0] {
        let mut bench = Bench::new(config(RAID6), metadata_bytes, 9);
        bench.fill();
        bench.churn(100);
        bench.run_out();
        bench.fail(1);
        bench.run_out();
        // At most one more chunk of each stripe.
        let blocks = bench.device(0).full_blocks();
        bench.device(0).rotten = blocks.iter().copied().filter(|lba| lba % 64 > 0 && lba % 3 == 0).collect();
        bench.device(0).latent = blocks.iter().copied().filter(|lba| lba % 64 > 0 && lba % 37 == 0).collect();
        bench.replace(1);
        bench.run_until(&rebuilt(1));
        assert_eq!(bench.volume.volume().counters().lost_blocks, 0);
        bench.fail(0);
        bench.survives(2);
    }
}

#[test]
fn a_device_that_does_not_answer_does_not_become_a_member() {
    let mut bench = Bench::new(config(Scheme::raid5(3)), 64, 10);
    bench.fill();
    bench.fail(1);
    bench.run_out();
    bench.replace(1);
    bench.device(1).is_unresponsive = true;
    bench.events.clear();
    bench.run_until(&Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Timeout });
    bench.read_all();
    bench.replace(1);
    bench.run_until(&rebuilt(1));
}

#[test]
fn groups_that_are_larger_than_memory_is_spent_on_are_rebuilt_in_parts() {
    for metadata_bytes in [64, 0] {
        let mut config = grouped(Scheme::raid5(3), 1100);
        config.tuning.large_segments = 0;
        let mut bench = Bench::on(config, long_zones(metadata_bytes), 13);
        bench.fill();
        bench.churn(500);
        bench.fail(1);
        bench.churn(100);
        bench.replace(1);
        bench.run_until(&rebuilt(1));
        bench.survives(2);
    }
}

#[test]
fn an_unsuitable_device_is_refused() {
    let mut bench = Bench::new(config(Scheme::raid5(3)), 64, 11);
    let geometry = geometry(64);
    let now = bench.now;
    let volume = bench.volume.volume_mut();
    let mut try_with = |member: u8, geometry| volume.replace_member(now, MemberIndex(member), geometry, [7; 16]);
    let remedy = |result: Result<(), VolumeError>| result.expect_err("it is refused").to_string();
    assert!(remedy(try_with(1, geometry.clone())).contains("is in use"));
    assert!(remedy(try_with(4, geometry.clone())).contains("there is no member 4"));
    bench.fail(1);
    let volume = bench.volume.volume_mut();
    let mut try_with = |geometry| volume.replace_member(now, MemberIndex(1), geometry, [7; 16]);
    let smaller = Geometry { zone_capacity_blocks: Blocks(63), ..geometry.clone() };
    assert!(remedy(try_with(smaller)).contains("blocks per zone"));
    let bare = Geometry { metadata_bytes: 0, ..geometry.clone() };
    assert!(remedy(try_with(bare)).contains("bytes of metadata"));
    let fewer = Geometry { zone_count: 20, ..geometry.clone() };
    assert!(remedy(try_with(fewer)).contains("zones"));
    try_with(geometry.clone()).expect("a suitable device");
    assert!(remedy(try_with(geometry)).contains("being replaced already"));
}

#[test]
fn without_contents_the_same_is_written() {
    let mut config = config(Scheme::raid5(3));
    config.tuning.has_contents = false;
    let mut bench = Bench::new(config, 64, 12);
    for start in 0..bench.model.len() as u64 {
        bench.write(start, 1);
        bench.steps(3);
    }
    bench.run_out();
    bench.fail(1);
    bench.run_out();
    bench.replace(1);
    bench.run_until(&rebuilt(1));
    let live = bench.volume.volume().status().live_blocks;
    assert!(bench.device(1).written.0 > live / 3);
}

#[test]
fn without_contents_collection_moves_what_lies_in_chunks_of_several_blocks() {
    let mut config = config(Scheme::raid5(3));
    config.tuning.has_contents = false;
    config.small = StreamShape { unit_blocks: 2, group_stripes: 1 };
    let mut bench = Bench::new(config, 64, 13);
    let blocks = bench.model.len() as u64;
    for round in 0..8 {
        for start in (round % 3..blocks).step_by(if round == 0 { 1 } else { 3 }) {
            bench.write(start, 1);
            bench.steps(3);
        }
    }
    bench.run_out();
    let counters = bench.volume.volume().counters();
    assert!(counters.collected_segments > 10 && counters.relocated_blocks > 100, "{counters:?}");
    assert_eq!(bench.volume.volume().status().live_blocks, blocks);
}

#[test]
fn a_rebuild_reads_no_more_members_than_it_needs_while_all_is_well() {
    let scheme = Scheme { level: Level::Raid6, data: 2, parity: 2 };
    for member in 0..scheme.members() {
        let mut script = Script::create(plain_config(scheme));
        for stripe in 0..5 {
            let write = script.write(2 * stripe, 2, 1);
            assert!(script.has_ended(write));
        }
        let from = script.sent.len();
        script.replace(member);
        assert!(script.events.contains(&rebuilt(member as u8)));
        let chunks = script.sent[from..].iter().filter(|sent| sent.kind == Kind::Read && sent.offset >= HEADER_COPIES);
        let read: BTreeSet<usize> = chunks.map(|sent| sent.member).collect();
        assert_eq!(read.len(), usize::from(scheme.data), "member {member} is rebuilt of {read:?}");
    }
}

#[test]
fn a_mount_records_a_failed_member_on_all_others_before_any_write_without_it() {
    let mut bench = Bench::new(config(Scheme::raid5(3)), 64, 77);
    bench.fill();
    // The power fails when only one member has recorded it.
    for member in [2, 3] {
        bench.device(member).is_unresponsive = true;
    }
    bench.volume.volume_mut().fail_member(bench.now, MemberIndex(1));
    bench.steps(2);
    for member in [2, 3] {
        bench.device(member).is_unresponsive = false;
    }
    bench.remount();
    assert_eq!(bench.state(1), MemberState::Failed, "one member that has recorded it is enough");
    bench.churn(50);
    bench.run_out();
    // Now that member is missing, and the one that failed is present.
    bench.events.clear();
    bench.volume.replace(MemberIndex(0), None);
    bench.begin_remount();
    while !bench.events.iter().any(|event| matches!(event, Event::Ready | Event::Failed(_))) {
        assert!(bench.step(), "a mount ends");
    }
    let missing = vec![MemberIndex(0), MemberIndex(1)];
    let error = VolumeError::TooManyMissing { tolerates: 1, missing, rebuilding: Vec::new() };
    assert!(bench.events.contains(&Event::Failed(error)), "{:?}", bench.events);
}
