//! Members that a volume needs: I/O waits for them, and nothing is lost.

use zonda_zoned::Duration;

use super::failures::{expect_all, run_steps, simulation};
use crate::limits::METADATA_ZONES;
use crate::testing::{Presence, Request, Simulation};
use crate::{Event, FailReason, Level, MemberIndex, MemberState, Scheme};

const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };
const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
const NEEDED: usize = 1;

/// A volume with written blocks that needs all of its members.
fn needy(scheme: Scheme) -> Simulation {
    let mut simulation = simulation(scheme, 64, 5);
    simulation.suspects = 1;
    run_steps(&mut simulation, 1500);
    simulation.quiesce().unwrap();
    if scheme.parity > 0 {
        simulation.volume.fail_member(simulation.now(), MemberIndex(0));
        run_steps(&mut simulation, 500);
    }
    simulation.events.clear();
    simulation
}

/// The member that a scheme needs in these tests.
fn needed(scheme: Scheme) -> MemberIndex {
    MemberIndex(if scheme.parity > 0 { NEEDED as u8 } else { 0 })
}

fn suspended(simulation: &Simulation) -> Vec<(MemberIndex, FailReason)> {
    let of = |event: &Event| match event {
        Event::Suspended { member, reason } => Some((*member, *reason)),
        _ => None,
    };
    simulation.events.iter().filter_map(of).collect()
}

/// Submits requests that must wait.
fn expect_write_to_wait(simulation: &mut Simulation) {
    let before = simulation.model.in_flight();
    assert!(simulation.submit(&Request::Write { start: 0, blocks: 8 }).unwrap());
    run_steps(simulation, 300);
    assert!(simulation.model.in_flight() > before, "a write waits");
    assert!(!simulation.events.iter().any(|event| matches!(event, Event::Failed(_) | Event::MemberFailed { .. })));
}

fn expect_intact(simulation: &mut Simulation, member: MemberIndex) {
    expect_all(simulation);
    let report = simulation.volume.status().members[member.as_usize()].clone();
    assert_eq!((report.state, report.retired_zones, report.suspended), (MemberState::Active, 0, None));
    simulation.crash();
    simulation.mount(0).unwrap_or_else(|violation| panic!("{violation}"));
    expect_all(simulation);
}

#[test]
fn io_waits_for_a_needed_member_that_pauses() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let (mut simulation, member) = (needy(scheme), needed(scheme));
        simulation.drives[member.as_usize()].set_presence(Presence::Paused);
        expect_write_to_wait(&mut simulation);
        simulation.wait(Duration::from_secs(300)).unwrap();
        assert_eq!(suspended(&simulation), [(member, FailReason::Timeout)], "it is reported once");
        assert_eq!(simulation.volume.status().members[member.as_usize()].suspended, Some(FailReason::Timeout));
        simulation.drives[member.as_usize()].set_presence(Presence::Present);
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        assert!(simulation.events.contains(&Event::Resumed { member }));
        expect_intact(&mut simulation, member);
    }
}

#[test]
fn a_needed_member_that_fails_every_command_for_a_while_is_retried_and_keeps_its_zones() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let (mut simulation, member) = (needy(scheme), needed(scheme));
        // A command in flight would complete after the suspension and resume I/O: then it would be
        // suspended again.
        simulation.quiesce().unwrap();
        simulation.model.is_lost = true; // reads may fail meanwhile
        simulation.drives[member.as_usize()].set_presence(Presence::Failing);
        expect_write_to_wait(&mut simulation);
        simulation.wait(Duration::from_secs(40)).unwrap();
        assert_eq!(suspended(&simulation), [(member, FailReason::Errors)], "it is reported once");
        simulation.model.is_lost = false;
        simulation.drives[member.as_usize()].set_presence(Presence::Present);
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        assert!(simulation.events.contains(&Event::Resumed { member }));
        expect_intact(&mut simulation, member);
    }
}

#[test]
fn segments_unreadable_while_a_member_failed_every_command_are_emptied_by_a_later_scrub() {
    for seed in 0..8 {
        let mut simulation = simulation(RAID1, 64, seed);
        simulation.suspects = 1;
        run_steps(&mut simulation, 1500);
        simulation.volume.fail_member(simulation.now(), MemberIndex(0));
        for _ in 0..6 {
            run_steps(&mut simulation, 150);
            simulation.model.is_lost = true; // reads may fail meanwhile
            simulation.drives[NEEDED].set_presence(Presence::Failing);
            run_steps(&mut simulation, 300);
            simulation.wait(Duration::from_secs(40)).unwrap();
            simulation.drives[NEEDED].set_presence(Presence::Present);
            simulation.model.is_lost = false;
            simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        }
        simulation.replace(0).unwrap_or_else(|violation| panic!("{violation}"));
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        let drive = &mut simulation.drives[NEEDED];
        for zone in METADATA_ZONES..drive.geometry().zone_count {
            let written = drive.written_blocks(zone);
            written.get(4).into_iter().for_each(|&lba| drive.flip(lba));
        }
        let now = simulation.now();
        simulation.volume.start_scrub(now);
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        let damage = simulation.volume.damage();
        assert!(damage.repaired > 0 && (damage.damaged, damage.unreadable, damage.lost) == (0, 0, 0), "{damage:?}");
        expect_all(&mut simulation);
    }
}

#[test]
fn flushes_that_fail_on_a_member_that_is_needed_are_repeated_until_they_succeed() {
    let mut simulation = super::caches::volatile_simulation(RAID1, 64, 3);
    simulation.suspects = 1;
    run_steps(&mut simulation, 500);
    simulation.volume.fail_member(simulation.now(), MemberIndex(0));
    run_steps(&mut simulation, 200);
    simulation.quiesce().unwrap();
    simulation.drives[NEEDED].faults.flushes = 1000;
    assert!(simulation.submit(&Request::Flush).unwrap());
    simulation.wait(Duration::from_secs(5)).unwrap();
    assert_eq!(simulation.model.in_flight(), 1, "the flush has not ended");
    simulation.drives[NEEDED].faults.flushes = 0;
    expect_all(&mut simulation);
    simulation.crash();
    simulation.mount(0).unwrap();
    expect_all(&mut simulation);
}

#[test]
fn members_out_of_space_fail_writes_and_nothing_else_changes() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut simulation = simulation(scheme, 64, 6);
        run_steps(&mut simulation, 1500);
        simulation.quiesce().unwrap();
        simulation.model.may_be_full = true;
        simulation.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Full));
        for start in (0..64).step_by(8) {
            simulation.submit(&Request::Write { start, blocks: 8 }).unwrap();
        }
        simulation.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(simulation.model.in_flight(), 0, "writes end");
        assert!(simulation.model.refused() > 0, "writes end with Capacity Exceeded");
        assert!(simulation.events.iter().any(|event| matches!(event, Event::OutOfSpace { .. })));
        for start in (0..64).step_by(8) {
            simulation.submit(&Request::Read { start, blocks: 8 }).unwrap();
        }
        simulation.wait(Duration::from_secs(30)).unwrap();
        assert_eq!(simulation.model.in_flight(), 0, "reads continue");
        simulation.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Present));
        simulation.quiesce().unwrap();
        simulation.wait(Duration::from_secs(2)).unwrap();
        let refused = simulation.model.refused();
        run_steps(&mut simulation, 1500);
        for member in 0..scheme.members() {
            expect_intact(&mut simulation, MemberIndex(member as u8));
        }
        assert_eq!(simulation.model.refused(), refused, "once there is space writes are accepted");
    }
}

#[test]
fn members_out_of_space_fail_trims_and_flushes_too() {
    for scheme in [SINGLE, RAID1, RAID5] {
        let mut simulation = simulation(scheme, 64, 9);
        run_steps(&mut simulation, 1500);
        simulation.quiesce().unwrap();
        simulation.model.may_be_full = true;
        simulation.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Full));
        // Like a host with several outstanding requests: all kinds mixed.
        for start in (0..64).step_by(8) {
            simulation.submit(&Request::Write { start, blocks: 2 }).unwrap();
            simulation.submit(&Request::Trim(vec![(start + 2, 4)])).unwrap();
            simulation.submit(&Request::Flush).unwrap();
            simulation.wait(Duration::from_millis(1)).unwrap();
        }
        simulation.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(simulation.model.in_flight(), 0, "{scheme:?}: everything ends");
        simulation.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Present));
        simulation.quiesce().unwrap();
        simulation.wait(Duration::from_secs(2)).unwrap();
        expect_all(&mut simulation);
        simulation.crash();
        simulation.mount(0).unwrap();
        expect_all(&mut simulation);
    }
}

#[test]
fn time_in_which_the_program_did_not_run_counts_against_no_member() {
    let mut simulation = simulation(RAID5, 64, 7);
    run_steps(&mut simulation, 500);
    simulation.drives[2].set_presence(Presence::Paused);
    run_steps(&mut simulation, 200);
    let due = simulation.volume.next_timeout().expect("commands are in flight");
    // The program is paused for half a minute beyond the time of its next check.
    let late = due + Duration::from_secs(30);
    while simulation.volume.next_timeout().is_some_and(|due| due <= late) {
        simulation.volume.on_timeout(late);
    }
    simulation.check_output().unwrap();
    simulation.drives[2].set_presence(Presence::Present);
    simulation.wait_until(late);
    expect_all(&mut simulation);
    assert!(
        !simulation.events.iter().any(|event| matches!(event, Event::MemberFailed { .. })),
        "{:?}",
        simulation.events
    );
}

#[test]
fn the_first_event_after_the_program_did_not_run_may_be_any_and_counts_against_no_member() {
    let mut simulation = simulation(RAID5, 64, 8);
    run_steps(&mut simulation, 500);
    simulation.quiesce().unwrap();
    simulation.drives[2].set_presence(Presence::Paused);
    assert!(simulation.submit(&Request::Write { start: 24, blocks: 8 }).unwrap());
    simulation.wait(Duration::from_millis(20)).unwrap();
    assert!(simulation.model.in_flight() > 0, "a command is in flight on the member that pauses");
    // A host submits a request before the volume checks the time.
    simulation.wait_until(simulation.now() + Duration::from_secs(100));
    assert!(simulation.submit(&Request::Read { start: 0, blocks: 1 }).unwrap());
    while simulation.volume.next_timeout().is_some_and(|due| due <= simulation.now()) {
        let now = simulation.now();
        simulation.volume.on_timeout(now);
    }
    simulation.check_output().unwrap();
    simulation.drives[2].set_presence(Presence::Present);
    expect_all(&mut simulation);
    assert!(
        !simulation.events.iter().any(|event| matches!(event, Event::MemberFailed { .. })),
        "{:?}",
        simulation.events
    );
}

#[test]
fn a_source_that_answers_again_is_kept_when_the_rebuild_from_it_ends_though_nothing_was_written_to_it() {
    for scheme in [RAID1, RAID5] {
        let mut simulation = needy(scheme);
        simulation.quiesce().unwrap();
        simulation.replace(0).unwrap();
        for _ in 0..100 {
            simulation.step(1_000_000).unwrap();
        }
        assert!(simulation.volume.status().rebuild.is_some(), "it reads its sources");
        simulation.model.is_lost = true; // reads may fail meanwhile
        simulation.drives[NEEDED].set_presence(Presence::Failing);
        simulation.wait(Duration::from_secs(40)).unwrap();
        assert_eq!(suspended(&simulation), [(needed(scheme), FailReason::Errors)]);
        simulation.drives[NEEDED].set_presence(Presence::Present);
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.model.is_lost = false;
        assert!(simulation.events.contains(&Event::Rebuilt { member: MemberIndex(0) }), "{:?}", simulation.events);
        assert!(simulation.events.contains(&Event::Resumed { member: needed(scheme) }));
        expect_intact(&mut simulation, needed(scheme));
        // It is an ordinary member: from now on the volume tolerates its loss.
        simulation.suspects = 1 << NEEDED;
        simulation.drives[NEEDED].set_presence(Presence::Failing);
        run_steps(&mut simulation, 300);
        let fails = Event::MemberFailed { member: needed(scheme), reason: FailReason::Errors };
        assert!(simulation.events.contains(&fails), "{:?}", simulation.events);
    }
}

#[test]
fn a_rebuild_waits_for_a_source_that_fails_every_command_for_a_while_and_loses_nothing() {
    let mut rebuilds = 0;
    for (scheme, steps) in [(RAID1, 100), (RAID1, 200), (RAID1, 400), (RAID5, 100), (RAID5, 200), (RAID5, 400)] {
        let mut simulation = needy(scheme);
        simulation.replace(0).unwrap();
        for _ in 0..steps {
            simulation.step(1_000_000).unwrap();
        }
        rebuilds += u32::from(simulation.volume.status().rebuild.is_some());
        simulation.model.is_lost = true; // reads may fail meanwhile
        simulation.drives[NEEDED].set_presence(Presence::Failing);
        simulation.wait(Duration::from_secs(40)).unwrap();
        simulation.drives[NEEDED].set_presence(Presence::Present);
        simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
        simulation.model.is_lost = false;
        expect_all(&mut simulation);
        let is_lost = |event: &Event| matches!(event, Event::Lost { .. });
        assert!(!simulation.events.iter().any(is_lost), "after {steps} steps: {:?}", simulation.events);
        assert!(!simulation.volume.is_degraded(), "after {steps} steps: {:?}", simulation.volume.status().members);
        // The rebuilt member has everything.
        simulation.suspects = u32::MAX;
        simulation.fail(NEEDED).unwrap();
        expect_all(&mut simulation);
    }
    assert!(rebuilds > 1, "{rebuilds} rebuilds had begun");
}
