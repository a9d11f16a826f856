//! Host reads and writes of blocks that garbage collection moves.

use zonda_zoned::Duration;

use super::script::{Kind, Script, plain_config};
use crate::{Level, Scheme, Victim, VolumeConfig};

/// A block that is rewritten many times, so that few other blocks are left in each segment.
const FILLER: u64 = 100;

/// One member, and stripes of one block.
fn config() -> VolumeConfig {
    let mut config = plain_config(Scheme { level: Level::Raid0, data: 1, parity: 0 });
    config.volume_blocks = Some(132);
    config
}

fn one_member() -> Script {
    Script::create(config())
}

/// Writes the filler until the next block will be the first of a new segment.
fn fill_segment(script: &mut Script) {
    let segment = script.host_segment();
    while script.count(Kind::Footer, segment) == 0 {
        script.write(FILLER, 1, 1);
    }
}

/// Segments with one needed block each, block 0 in the first of them, until collection has begun to
/// move one.
fn until_collection(script: &mut Script) -> u64 {
    for lba in 0..16 {
        script.write(lba, 1, 1);
        fill_segment(script);
        let moved = script.sent.iter().find(|sent| sent.is_relocation && sent.kind == Kind::Chunk);
        if moved.is_some() {
            return lba + 1;
        }
    }
    panic!("collection begins before the volume is full");
}

#[test]
fn a_moved_block_does_not_replace_what_was_written_since_to_its_old_address() {
    let mut script = one_member();
    script.hold(|sent| sent.is_relocation && sent.kind == Kind::Chunk);
    until_collection(&mut script);
    // The write of the moved block takes long: meanwhile block 0 is rewritten, and its first
    // segment is free.
    let is_moved = script.sent.iter().any(|sent| sent.kind == Kind::Read && sent.segment == 1);
    assert!(is_moved && script.held() == 1, "block 0 is being moved");
    assert_eq!(script.count(Kind::Reset, 1), 0);
    let rewritten = script.write(0, 1, 2);
    assert!(script.has_ended(rewritten));
    assert!(script.count(Kind::Reset, 1) > 0, "nothing in the first segment is needed");
    // The next segment reuses its index in the table, and its first block is block 0 again: at the
    // address that it is moved from.
    fill_segment(&mut script);
    let newest = script.write(0, 1, 3);
    assert!(script.has_ended(newest));
    assert_eq!(script.version(0), 3);
    assert_eq!(script.held(), 1, "the moved block is still being written");
    script.release();
    assert_eq!(script.version(0), 3, "the moved block is older than the later write");
    script.crash(&[]);
    script.mount(&[]);
    assert_eq!(script.version(0), 3, "after a mount, too");
}

#[test]
fn a_moved_block_takes_the_place_of_the_version_before_a_write_that_is_in_flight() {
    let mut script = one_member();
    script.hold(|sent| sent.is_relocation && sent.kind == Kind::Chunk);
    until_collection(&mut script);
    let moved_to = script.sent.iter().find(|sent| sent.is_relocation).map(|sent| sent.segment).expect("one is open");
    script.hold(|sent| sent.kind == Kind::Chunk);
    let write = script.write(0, 1, 2);
    script.hold(|sent| !sent.is_relocation && sent.kind == Kind::Chunk);
    script.release_those(|sent| sent.segment == moved_to);
    assert!(!script.has_ended(write) && script.held() > 0);
    assert!(script.count(Kind::Reset, 1) > 0, "the version that was acknowledged is where it was moved to");
    assert_eq!(script.version(0), 2, "reads see the write from the moment it is accepted");
    script.crash(&[]);
    script.hold(|_| false);
    script.mount(&[]);
    assert_eq!(script.version(0), 1, "the write was never acknowledged, and the moved block is present");
}

#[test]
fn by_cost_and_benefit_an_old_segment_is_collected_before_a_new_one_of_which_less_is_needed() {
    let mut config = config();
    config.tuning.victim = Victim::CostBenefit;
    let mut script = Script::create(config);
    script.write(20, 3, 1);
    fill_segment(&mut script);
    script.pass(Duration::from_secs(1000));
    until_collection(&mut script);
    let first = script.sent.iter().find(|sent| sent.kind == Kind::Read).map(|sent| sent.segment);
    assert_eq!(first, Some(1), "three blocks of the oldest segment are moved before one of the next");
}

#[test]
fn a_segment_that_is_being_read_is_neither_collected_nor_reset() {
    let mut script = one_member();
    script.write(0, 1, 1);
    fill_segment(&mut script);
    script.hold(|sent| sent.kind == Kind::Read && sent.segment == 1);
    let read = script.read(0);
    assert_eq!(script.held(), 1);
    // Collection can choose among segments with one block each; the one that is being read is the
    // first.
    for lba in 1..40 {
        let write = script.write(lba % 16 + 1, 1, lba);
        assert!(script.has_ended(write), "writes continue while a segment is read: collection empties others");
        for _ in 0..40 {
            let write = script.write(FILLER, 1, lba);
            assert!(script.has_ended(write), "writes continue while a segment is read: collection empties others");
        }
    }
    assert!(script.volume.counters().relocated_blocks > 0, "segments were collected");
    assert_eq!(script.count(Kind::Read, 1), 1, "of the segment that is being read collection reads nothing");
    // Nothing in it is needed any more, except for the read.
    let overwritten = script.write(0, 1, 2);
    assert!(script.has_ended(overwritten));
    assert_eq!(script.count(Kind::Reset, 1), 0, "a segment is not reset under its readers");
    script.release();
    assert_eq!(script.version_of(read, 0), 1, "a read returns the version at its submission");
    assert!(script.count(Kind::Reset, 1) > 0, "without readers the segment is reset");
    assert_eq!(script.version(0), 2);
}
