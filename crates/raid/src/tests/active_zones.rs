//! Members with few active zones.

use zonda_zoned::{Geometry, ZoneState};

use super::failures::geometry;
use super::script::{Kind, Script, plain_config};
use crate::{Event, Scheme};

/// One of them is the superblock log's, and two are those of open segments.
const ACTIVE_ZONES: u32 = 3;
/// The member whose cache was lost.
const MEMBER_WITH_LOST_CACHE: usize = 1;

/// All zones of a member that may be active belong to segments: the one of its superblocks is full,
/// and two zones that had been filled lack their last block. Returns how many stripes were written.
fn without_an_active_zone_for_superblocks() -> (Script, u64) {
    let geometry =
        Geometry { max_active_zones: Some(ACTIVE_ZONES), max_open_zones: Some(ACTIVE_ZONES), ..geometry(64) };
    let mut script = Script::on(plain_config(Scheme::raid5(3)), geometry);
    let mut stripes = 0;
    while script.count(Kind::Header, 3) == 0 {
        script.write(3 * stripes, 3, 1);
        stripes += 1;
    }
    script.crash(&[]);
    script.degrade(MEMBER_WITH_LOST_CACHE, 0, ZoneState::Full);
    (1..=2).for_each(|segment| script.lose_end(MEMBER_WITH_LOST_CACHE, segment, 1));
    (script, stripes)
}

fn expect_all(script: &mut Script, stripes: u64) {
    assert_eq!(script.events.first(), Some(&Event::Ready), "no member has failed: {:?}", script.events);
    for lba in 0..3 * stripes {
        assert_eq!(script.version(lba), 1, "block {lba}");
    }
}

#[test]
fn a_member_whose_active_zones_are_all_of_segments_records_the_epoch_of_a_mount() {
    let (mut script, stripes) = without_an_active_zone_for_superblocks();
    script.mount(&[]);
    expect_all(&mut script, stripes);
}

#[test]
fn a_mount_that_is_cut_short_after_it_has_finished_a_zone_for_superblocks_is_repeated() {
    let (mut script, stripes) = without_an_active_zone_for_superblocks();
    script.hold(|sent| sent.kind == Kind::Superblock);
    script.mount(&[]);
    let finishes: Vec<usize> =
        script.sent.iter().filter(|sent| sent.kind == Kind::Finish).map(|sent| sent.member).collect();
    assert_eq!(finishes, [MEMBER_WITH_LOST_CACHE], "one zone, and only where that is necessary");
    script.crash(&[]);
    script.hold(|_| false);
    script.mount(&[]);
    expect_all(&mut script, stripes);
}

#[test]
fn a_member_that_fails_to_finish_a_zone_for_superblocks_is_done_without() {
    let (mut script, stripes) = without_an_active_zone_for_superblocks();
    script.fail(|sent| sent.kind == Kind::Finish && sent.member == MEMBER_WITH_LOST_CACHE);
    script.mount(&[]);
    script.fail(|_| false);
    assert!(script.volume.is_ready(), "{:?}", script.events);
    assert!(script.events.iter().any(
        |event| matches!(event, Event::MemberFailed { member, .. } if member.as_usize() == MEMBER_WITH_LOST_CACHE)
    ));
    script.events.retain(|event| *event == Event::Ready);
    expect_all(&mut script, stripes);
}
