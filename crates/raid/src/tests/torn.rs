//! A version that a possibly incomplete version replaces stays until a mount has rewritten the
//! latter.

use std::collections::BTreeSet;

use super::failures::geometry;
use super::script::{Kind, Script, plain_config};
use crate::format::HEADER_COPIES;
use crate::limits::METADATA_ZONES;
use crate::{Level, Scheme};

/// The segment in which only block 0 is left, with version 1; other blocks were written to later
/// segments.
const OLD: u64 = 1;

fn with_one_block_left(small_segments: u8) -> Script {
    let mut config = plain_config(Scheme::raid5(3));
    config.tuning.small_segments = small_segments;
    let mut script = Script::create(config);
    script.write(0, 3, 1);
    let mut version = 1;
    while script.count(Kind::Footer, OLD) == 0 {
        version += 1;
        script.write(1, 3, version);
    }
    script.write(1, 3, version + 1);
    assert_eq!(script.version(0), 1);
    assert_eq!(script.count(Kind::Reset, OLD), 0, "block 0 is left");
    script.sent.clear();
    script
}

/// The member that holds the first block of a stripe of four members.
fn first_holder(stripe: u32) -> usize {
    stripe as usize % 4
}

/// Holds back one chunk of each stripe: that of the member behind the holder of its first block.
fn tear_stripes(script: &mut Script) {
    script.hold(|sent| sent.kind == Kind::Chunk && sent.member == (first_holder(sent.stripe()) + 1) % 4);
}

/// The holder of the first block of the last stripe.
fn last_holder(script: &Script) -> usize {
    let last = script.sent.iter().rev().find(|sent| sent.kind == Kind::Chunk).expect("a stripe was written");
    first_holder(last.stripe())
}

/// After a crash, runs a mount as far as possible without writing stripes. The segment that holds
/// the older version stays.
fn expect_old_to_stay(script: &mut Script, old: u64) {
    script.crash(&[]);
    script.hold(|sent| sent.kind == Kind::Chunk);
    script.mount(&[]);
    assert!(script.held() > 0, "the mount writes the torn blocks again");
    assert_eq!(
        script.count(Kind::Reset, old),
        0,
        "the segment of the older version stays until the torn version is written again"
    );
}

/// The torn version is lost with a member, and the older one counts.
fn expect_old_without(script: &mut Script, member: usize) {
    script.crash(&[]);
    script.hold(|_| false);
    script.mount(&[member]);
    assert!(script.volume.is_ready(), "{:?}", script.events);
    assert_eq!(script.version(0), 1, "the version that was acknowledged");
}

/// The torn version is rewritten: the segment of the older one is free.
fn expect_old_to_go(script: &mut Script, old: u64, version: u64) {
    script.release();
    assert!(script.volume.is_ready(), "{:?}", script.events);
    assert_eq!(script.version(0), version, "a torn version that can be decoded counts");
    assert!(script.count(Kind::Reset, old) > 0, "nothing needs the older version any more");
}

#[test]
fn a_torn_write_keeps_the_segment_of_the_version_before_it() {
    for is_lost in [false, true] {
        let mut script = with_one_block_left(1);
        tear_stripes(&mut script);
        let torn = script.write(0, 3, 9);
        assert!(!script.has_ended(torn));
        let holder = last_holder(&script);
        expect_old_to_stay(&mut script, OLD);
        if is_lost {
            expect_old_without(&mut script, holder);
        } else {
            expect_old_to_go(&mut script, OLD, 9);
        }
    }
}

#[test]
fn a_torn_trim_keeps_the_segment_of_the_version_before_it() {
    for is_lost in [false, true] {
        let mut script = with_one_block_left(1);
        tear_stripes(&mut script);
        let torn = script.trim(0, 1);
        assert!(!script.has_ended(torn));
        let holder = last_holder(&script);
        expect_old_to_stay(&mut script, OLD);
        if is_lost {
            expect_old_without(&mut script, holder);
        } else {
            expect_old_to_go(&mut script, OLD, 0);
        }
    }
}

#[test]
fn a_torn_write_keeps_the_version_before_it_that_was_moved_to_a_later_segment() {
    for is_lost in [false, true] {
        let mut script = with_one_block_left(1);
        // A read of block 0 finds it damaged: it is rewritten in the stream of moved blocks.
        // Meanwhile it is overwritten.
        let zone = u64::from(METADATA_ZONES) * geometry(64).zone_size_blocks.0;
        script.unreadable.insert((first_holder(0), zone + u64::from(HEADER_COPIES)));
        script.hold(|sent| sent.kind == Kind::Read);
        let read = script.read(0);
        tear_stripes(&mut script);
        let torn = script.write(0, 3, 9);
        let (holder, host) = (last_holder(&script), script.host_segment());
        script.hold(|_| false);
        script.release_those(|sent| sent.kind == Kind::Read);
        assert_eq!(script.version_of(read, 0), 1);
        assert!(!script.has_ended(torn));
        let moved = script.sent.iter().filter(|sent| sent.kind == Kind::Chunk && sent.is_relocation);
        let moved_to = moved.map(|sent| sent.segment).max().expect("the damaged block is moved");
        assert!(moved_to > host, "a mount finds the torn version first");
        assert!(script.count(Kind::Reset, OLD) > 0, "the older version is only in its new place");
        expect_old_to_stay(&mut script, moved_to);
        if is_lost {
            expect_old_without(&mut script, holder);
        } else {
            expect_old_to_go(&mut script, moved_to, 9);
        }
    }
}

#[test]
fn of_two_torn_versions_the_newer_one_keeps_the_segment_of_the_last_one_that_was_not_torn() {
    for is_lost in [false, true] {
        let mut script = with_one_block_left(2);
        tear_stripes(&mut script);
        let torn = [script.write(0, 3, 8), script.write(0, 3, 9)];
        let written: Vec<_> = script.sent.iter().filter(|sent| sent.kind == Kind::Chunk).collect();
        let segments: BTreeSet<u64> = written.iter().map(|sent| sent.segment).collect();
        assert_eq!(segments.len(), 2, "each stripe is the last of its segment");
        let holders: BTreeSet<usize> = written.iter().map(|s| first_holder(s.stripe())).collect();
        assert!(!torn.iter().any(|&write| script.has_ended(write)));
        expect_old_to_stay(&mut script, OLD);
        if !is_lost {
            expect_old_to_go(&mut script, OLD, 9);
        } else if holders.len() == 1 {
            expect_old_without(&mut script, holders.into_iter().next().expect("one"));
        }
    }
}

#[test]
fn a_torn_trim_that_is_written_again_is_not_needed_where_it_was() {
    let mirror = Scheme { level: Level::Raid1, data: 1, parity: 1 };
    let mut script = Script::create(plain_config(mirror));
    script.write(0, 1, 1);
    let mut version = 1;
    while script.count(Kind::Footer, OLD) == 0 {
        version += 1;
        script.write(1, 1, version);
    }
    // The next segment has its header on one member when the other one fails, and no superblock
    // records that before the crash.
    script.hold(|sent| sent.kind == Kind::Superblock || sent.kind == Kind::Header && sent.member == 0);
    let torn = script.trim(0, 1);
    script.fail_member(0);
    assert!(!script.has_ended(torn), "it does not count before the failure of the first member is recorded");
    let segment = script.host_segment();
    assert_eq!(script.count(Kind::Chunk, segment), 1, "the tombstone is on the second member");
    script.release_those(|sent| sent.kind == Kind::Header);
    script.crash(&[]);
    script.lose_end(0, segment, 1);
    script.hold(|_| false);
    script.mount(&[]);
    assert!(script.volume.is_ready(), "{:?}", script.events);
    assert_eq!(script.inconsistencies_when_ready, [], "needed blocks are on both members");
    assert_eq!(script.version(0), 0, "a trim that can be read counts");
}
