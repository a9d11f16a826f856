//! Members that a volume cannot do without: I/O waits for them, and nothing is lost.

use zonda_zoned::Duration;

use super::failures::{expect_all, go_on, world};
use crate::limits::METADATA_ZONES;
use crate::testing::{Presence, Request, World};
use crate::{Event, FailReason, Level, MemberIndex, MemberState, Scheme};

const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };
const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
const NEEDED: usize = 1;

/// A volume in which something was written, and which needs all of its members.
fn needy(scheme: Scheme) -> World {
    let mut world = world(scheme, 64, 5);
    world.suspects = 1;
    go_on(&mut world, 1500);
    world.rest().unwrap();
    if scheme.parity > 0 {
        world.volume.fail_member(world.now(), MemberIndex(0));
        go_on(&mut world, 500);
    }
    world.events.clear();
    world
}

/// The member that a scheme needs in these tests.
fn needed(scheme: Scheme) -> MemberIndex {
    MemberIndex(if scheme.parity > 0 { NEEDED as u8 } else { 0 })
}

fn suspended(world: &World) -> Vec<(MemberIndex, FailReason)> {
    let of = |event: &Event| match event {
        Event::Suspended { member, reason } => Some((*member, *reason)),
        _ => None,
    };
    world.events.iter().filter_map(of).collect()
}

/// Whether a request of a host has ended since.
fn asks_in_vain(world: &mut World) {
    let before = world.model.under_way();
    assert!(world.ask(&Request::Write { start: 0, blocks: 8 }).unwrap());
    go_on(world, 300);
    assert!(world.model.under_way() > before, "a write waits");
    assert!(!world.events.iter().any(|event| matches!(event, Event::Failed(_) | Event::MemberFailed { .. })));
}

fn expect_unharmed(world: &mut World, member: MemberIndex) {
    expect_all(world);
    let report = world.volume.status().members[member.as_usize()].clone();
    assert_eq!((report.state, report.retired_zones, report.suspended), (MemberState::Active, 0, None));
    world.crash();
    world.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
    expect_all(world);
}

#[test]
fn a_member_that_is_needed_and_pauses_is_waited_for() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let (mut world, member) = (needy(scheme), needed(scheme));
        world.drives[member.as_usize()].set_presence(Presence::Paused);
        asks_in_vain(&mut world);
        world.wait(Duration::from_secs(300)).unwrap();
        assert_eq!(suspended(&world), [(member, FailReason::Silence)], "it is told once");
        assert_eq!(world.volume.status().members[member.as_usize()].suspended, Some(FailReason::Silence));
        world.drives[member.as_usize()].set_presence(Presence::There);
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        assert!(world.events.contains(&Event::Resumed { member }));
        expect_unharmed(&mut world, member);
    }
}

#[test]
fn a_member_that_is_needed_and_fails_everything_for_a_while_is_tried_again_and_keeps_its_zones() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let (mut world, member) = (needy(scheme), needed(scheme));
        // A command in flight would end well after the suspension and resume I/O: then it would be suspended once more.
        world.rest().unwrap();
        world.model.is_lost = true; // reads may fail meanwhile
        world.drives[member.as_usize()].set_presence(Presence::Failing);
        asks_in_vain(&mut world);
        world.wait(Duration::from_secs(40)).unwrap();
        assert_eq!(suspended(&world), [(member, FailReason::Errors)], "it is told once");
        world.model.is_lost = false;
        world.drives[member.as_usize()].set_presence(Presence::There);
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        assert!(world.events.contains(&Event::Resumed { member }));
        expect_unharmed(&mut world, member);
    }
}

#[test]
fn segments_that_could_not_be_read_while_a_member_failed_everything_are_emptied_by_a_later_scrub() {
    for seed in 0..8 {
        let mut world = world(RAID1, 64, seed);
        world.suspects = 1;
        go_on(&mut world, 1500);
        world.volume.fail_member(world.now(), MemberIndex(0));
        for _ in 0..6 {
            go_on(&mut world, 150);
            world.model.is_lost = true; // reads may fail meanwhile
            world.drives[NEEDED].set_presence(Presence::Failing);
            go_on(&mut world, 300);
            world.wait(Duration::from_secs(40)).unwrap();
            world.drives[NEEDED].set_presence(Presence::There);
            world.model.is_lost = false;
            world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        }
        world.replace(0).unwrap_or_else(|violation| panic!("{violation}"));
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        let drive = &mut world.drives[NEEDED];
        for zone in METADATA_ZONES..drive.geometry().zone_count {
            let written = drive.written_blocks(zone);
            written.get(4).into_iter().for_each(|&lba| drive.flip(lba));
        }
        let now = world.now();
        world.volume.start_scrub(now);
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        let damage = world.volume.damage();
        assert!(damage.repaired > 0 && (damage.damaged, damage.unreadable, damage.lost) == (0, 0, 0), "{damage:?}");
        expect_all(&mut world);
    }
}

#[test]
fn flushes_that_fail_on_a_member_that_is_needed_are_repeated_until_they_succeed() {
    let mut world = super::caches::volatile_world(RAID1, 64, 3);
    world.suspects = 1;
    go_on(&mut world, 500);
    world.volume.fail_member(world.now(), MemberIndex(0));
    go_on(&mut world, 200);
    world.rest().unwrap();
    world.drives[NEEDED].faults.flushes = 1000;
    assert!(world.ask(&Request::Flush).unwrap());
    world.wait(Duration::from_secs(5)).unwrap();
    assert_eq!(world.model.under_way(), 1, "the flush has not ended");
    world.drives[NEEDED].faults.flushes = 0;
    expect_all(&mut world);
    world.crash();
    world.mount(0).unwrap();
    expect_all(&mut world);
}

#[test]
fn members_without_room_end_writes_with_an_error_and_nothing_else_changes() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut world = world(scheme, 64, 6);
        go_on(&mut world, 1500);
        world.rest().unwrap();
        world.model.may_be_full = true;
        world.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Full));
        for start in (0..64).step_by(8) {
            world.ask(&Request::Write { start, blocks: 8 }).unwrap();
        }
        world.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(world.model.under_way(), 0, "writes end");
        assert!(world.model.refused() > 0, "writes end with Capacity Exceeded");
        assert!(world.events.iter().any(|event| matches!(event, Event::OutOfRoom { .. })));
        for start in (0..64).step_by(8) {
            world.ask(&Request::Read { start, blocks: 8 }).unwrap();
        }
        world.wait(Duration::from_secs(30)).unwrap();
        assert_eq!(world.model.under_way(), 0, "reads go on");
        world.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::There));
        world.rest().unwrap();
        world.wait(Duration::from_secs(2)).unwrap();
        let refused = world.model.refused();
        go_on(&mut world, 1500);
        for member in 0..scheme.members() {
            expect_unharmed(&mut world, MemberIndex(member as u8));
        }
        assert_eq!(world.model.refused(), refused, "once there is room writes are taken");
    }
}

#[test]
fn members_without_room_end_trims_and_flushes_too() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut world = world(scheme, 64, 9);
        go_on(&mut world, 1500);
        world.rest().unwrap();
        world.model.may_be_full = true;
        world.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Full));
        // As a host does that keeps several requests under way: each kind among the others.
        for start in (0..64).step_by(8) {
            world.ask(&Request::Write { start, blocks: 2 }).unwrap();
            world.ask(&Request::Trim(vec![(start + 2, 4)])).unwrap();
            world.ask(&Request::Flush).unwrap();
            world.wait(Duration::from_millis(1)).unwrap();
        }
        world.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(world.model.under_way(), 0, "{scheme:?}: everything ends");
        world.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::There));
        world.rest().unwrap();
        world.wait(Duration::from_secs(2)).unwrap();
        expect_all(&mut world);
        world.crash();
        world.mount(0).unwrap();
        expect_all(&mut world);
    }
}

#[test]
fn time_in_which_the_program_did_not_run_counts_against_no_member() {
    let mut world = world(RAID5, 64, 7);
    go_on(&mut world, 500);
    world.drives[2].set_presence(Presence::Paused);
    go_on(&mut world, 200);
    let due = world.volume.next_timeout().expect("commands are in flight");
    // The program is stopped for half a minute behind the time at which it wanted to look.
    let late = due + Duration::from_secs(30);
    while world.volume.next_timeout().is_some_and(|due| due <= late) {
        world.volume.on_timeout(late);
    }
    world.hear().unwrap();
    world.drives[2].set_presence(Presence::There);
    world.wait_until(late);
    expect_all(&mut world);
    assert!(!world.events.iter().any(|event| matches!(event, Event::MemberFailed { .. })), "{:?}", world.events);
}

#[test]
fn the_first_event_after_the_program_did_not_run_may_be_any_and_counts_against_no_member() {
    let mut world = world(RAID5, 64, 8);
    go_on(&mut world, 500);
    world.rest().unwrap();
    world.drives[2].set_presence(Presence::Paused);
    assert!(world.ask(&Request::Write { start: 24, blocks: 8 }).unwrap());
    world.wait(Duration::from_millis(20)).unwrap();
    assert!(world.model.under_way() > 0, "a command is in flight on the member that pauses");
    // A host asks for something before the volume looks at the time.
    world.wait_until(world.now() + Duration::from_secs(100));
    assert!(world.ask(&Request::Read { start: 0, blocks: 1 }).unwrap());
    while world.volume.next_timeout().is_some_and(|due| due <= world.now()) {
        let now = world.now();
        world.volume.on_timeout(now);
    }
    world.hear().unwrap();
    world.drives[2].set_presence(Presence::There);
    expect_all(&mut world);
    assert!(!world.events.iter().any(|event| matches!(event, Event::MemberFailed { .. })), "{:?}", world.events);
}

#[test]
fn a_source_that_answers_again_is_kept_when_the_rebuild_from_it_ends_though_nothing_was_written_to_it() {
    for scheme in [RAID1, RAID5] {
        let mut world = needy(scheme);
        world.rest().unwrap();
        world.replace(0).unwrap();
        for _ in 0..100 {
            world.step(1_000_000).unwrap();
        }
        assert!(world.volume.status().rebuild.is_some(), "it reads its sources");
        world.model.is_lost = true; // reads may fail meanwhile
        world.drives[NEEDED].set_presence(Presence::Failing);
        world.wait(Duration::from_secs(40)).unwrap();
        assert_eq!(suspended(&world), [(needed(scheme), FailReason::Errors)]);
        world.drives[NEEDED].set_presence(Presence::There);
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        world.model.is_lost = false;
        assert!(world.events.contains(&Event::Rebuilt { member: MemberIndex(0) }), "{:?}", world.events);
        assert!(world.events.contains(&Event::Resumed { member: needed(scheme) }));
        expect_unharmed(&mut world, needed(scheme));
        // It is one like any other: from now on the volume can do without it.
        world.suspects = 1 << NEEDED;
        world.drives[NEEDED].set_presence(Presence::Failing);
        go_on(&mut world, 300);
        let fails = Event::MemberFailed { member: needed(scheme), reason: FailReason::Errors };
        assert!(world.events.contains(&fails), "{:?}", world.events);
    }
}

#[test]
fn a_rebuild_waits_for_a_source_that_fails_everything_for_a_while_and_takes_nothing_for_lost() {
    let mut rebuilds = 0;
    for (scheme, steps) in [(RAID1, 100), (RAID1, 200), (RAID1, 400), (RAID5, 100), (RAID5, 200), (RAID5, 400)] {
        let mut world = needy(scheme);
        world.replace(0).unwrap();
        for _ in 0..steps {
            world.step(1_000_000).unwrap();
        }
        rebuilds += u32::from(world.volume.status().rebuild.is_some());
        world.model.is_lost = true; // reads may fail meanwhile
        world.drives[NEEDED].set_presence(Presence::Failing);
        world.wait(Duration::from_secs(40)).unwrap();
        world.drives[NEEDED].set_presence(Presence::There);
        world.rest().unwrap_or_else(|violation| panic!("{violation}"));
        world.model.is_lost = false;
        expect_all(&mut world);
        let is_lost = |event: &Event| matches!(event, Event::Lost { .. });
        assert!(!world.events.iter().any(is_lost), "after {steps} steps: {:?}", world.events);
        assert!(!world.volume.is_degraded(), "after {steps} steps: {:?}", world.volume.status().members);
        // The member that was rebuilt has everything.
        world.suspects = u32::MAX;
        world.fail(NEEDED).unwrap();
        expect_all(&mut world);
    }
    assert!(rebuilds > 1, "{rebuilds} rebuilds had begun");
}
