//! What a mount makes of zones that a rebuild has written, where nothing else is left of their segments.

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
    // Of the second stripe one member has the chunk, and the other one fails the write; a third stripe is behind it on both.
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
