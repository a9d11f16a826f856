//! Zones written by a rebuild: mounts where nothing else is left of their segments, and reads that
//! waited.

use zonda_zoned::Instant;

use super::failures::geometry;
use super::script::{Kind, Script, plain_config};
use crate::{Event, Level, MemberIndex, Scheme};

const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };

#[test]
fn a_slot_that_a_rebuild_left_blank_refuses_no_mount_without_the_member_that_it_was_rebuilt_from() {
    let mut config = plain_config(RAID1);
    config.small.group_stripes = 8;
    let mut script = Script::create(config);
    let write = script.write(0, 1, 1);
    assert!(script.has_ended(write));
    // Of the second stripe one member has the chunk, and the other one fails the write; a third
    // stripe follows on both.
    script.fail(|sent| sent.kind == Kind::Chunk && sent.member == 1);
    script.hold(|sent| sent.kind == Kind::Chunk && sent.member == 1);
    script.write(1, 1, 1);
    script.hold(|sent| sent.kind == Kind::Chunk && sent.member == 1 || sent.kind == Kind::Report);
    script.write(2, 1, 1);
    assert!(script.release_first(|_| true));
    script.fail(|_| false);
    script.release();
    for lba in 0..3 {
        assert_eq!(script.version(lba), 1);
    }
    script.replace(0);
    assert!(script.events.contains(&Event::Rebuilt { member: MemberIndex(0) }), "{:?}", script.events);
    script.crash(&[]);
    script.mount(&[1]);
    assert!(script.volume.is_ready(), "{:?}", script.events);
    for lba in 0..3 {
        assert_eq!(script.version(lba), 1);
    }
}

#[test]
fn a_read_that_waits_for_a_member_that_fails_finds_its_block_on_the_member_that_was_rebuilt_meanwhile() {
    for metadata_bytes in [64, 0] {
        let scheme = Scheme::raid5(3);
        let mut script = Script::on(plain_config(scheme), geometry(metadata_bytes));
        let write = script.write(0, 3, 1);
        assert!(script.has_ended(write));
        // Block 0 is on member 0, which is rebuilt later: it is computed from the others, of which
        // one does not answer.
        script.hold(|sent| sent.member == 0 && sent.kind == Kind::Header);
        script.replace(0);
        script.hold(|sent| sent.member == 1 && sent.kind == Kind::Read);
        let read = script.read(0);
        assert!(!script.has_ended(read), "it needs member 1");
        script.hold(|_| false);
        script.release_those(|sent| sent.kind == Kind::Header);
        assert!(script.events.contains(&Event::Rebuilt { member: MemberIndex(0) }), "{:?}", script.events);
        script.volume.fail_member(Instant::ZERO, MemberIndex(1));
        script.run();
        assert_eq!(script.version_of(read, 0), 1);
    }
}
