//! What a mount finds that looks like damage, and costs nothing: zones that were finished without contents, damage where nothing is needed.

use zonda_zoned::Status;

use super::failures::geometry;
use super::script::{Kind, Script, plain_config};
use crate::format::HEADER_COPIES;
use crate::{Event, Level, MemberState, Scheme};

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
        // Segments whose headers cannot be written are closed; the power goes before their zones are reset.
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
    // The rebuild of what was there waits for its first zone; what is written from now on both members have.
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
    // The zone of the active member is reset, and that of the other one is not, and is damaged all over.
    let start = script.zone_start(0, segment);
    let size = geometry(64).zone_size_blocks.0;
    script.unreadable.extend((start + u64::from(HEADER_COPIES)..start + size).map(|lba| (0, lba)));
    expect_ready(&mut script, &[]);
    for lba in 0..6 {
        assert_eq!(script.version(lba), 1);
    }
}
