//! Members whose file system is full: what waits for them is reported, and they are not blamed.

use std::cell::Cell;

use zonda_zoned::{Duration, Status};

use super::caches::volatile_simulation;
use super::failures::{expect_all, run_steps};
use super::script::{Kind, Script, plain_config};
use crate::testing::{Presence, Request};
use crate::{Event, Level, MemberIndex, MemberReport, MemberState, Scheme};

const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
const RAID5: Scheme = Scheme { level: Level::Raid5, data: 2, parity: 1 };

#[test]
fn a_failure_that_no_member_has_space_to_record_is_reported_until_it_is_recorded() {
    for scheme in [RAID1, RAID5] {
        let mut simulation = volatile_simulation(scheme, 64, 3);
        simulation.suspects = 1;
        run_steps(&mut simulation, 500);
        simulation.quiesce().unwrap();
        simulation.events.clear();
        simulation.model.may_be_full = true;
        simulation.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Full));
        simulation.volume.fail_member(simulation.now(), MemberIndex(0));
        assert!(simulation.submit(&Request::Flush).unwrap());
        simulation.wait(Duration::from_secs(30)).unwrap();
        assert_eq!(simulation.model.in_flight(), 1, "the flush waits");
        let waits = |report: &MemberReport| (report.is_awaited_for_space, report.lacks_space);
        let reports = simulation.volume.status().members;
        assert_eq!(waits(&reports[0]), (false, false), "it has failed");
        for report in &reports[1..] {
            assert_eq!((waits(report), report.suspended, report.errors), ((true, true), None, 0));
        }
        let count = |events: &[Event], meant: fn(&Event) -> bool| events.iter().filter(|event| meant(event)).count();
        assert_eq!(count(&simulation.events, |event| matches!(event, Event::EpochWaits { .. })), 1, "reported once");
        assert_eq!(count(&simulation.events, |event| matches!(event, Event::EpochRecorded)), 0);
        simulation.drives.iter_mut().for_each(|drive| drive.set_presence(Presence::Present));
        simulation.quiesce().unwrap();
        assert_eq!(simulation.model.in_flight(), 0);
        assert_eq!(count(&simulation.events, |event| matches!(event, Event::EpochRecorded)), 1);
        assert!(simulation.volume.status().members.iter().all(|report| !report.is_awaited_for_space));
        expect_all(&mut simulation);
    }
}

#[test]
fn a_member_out_of_space_that_fails_other_writes_for_that_reason_is_neither_suspended_nor_counts_errors() {
    let mut script = Script::create(plain_config(RAID1));
    script.fail_member(0);
    script.events.clear();
    let writes = Cell::new(0);
    // Behind a write that fails for lack of space another one fails at the wrong place.
    script.fill(move |sent| {
        let is_write = matches!(sent.kind, Kind::Chunk | Kind::Header) && sent.member == 1;
        writes.set(writes.get() + u32::from(is_write));
        is_write && writes.get() % 2 == 1
    });
    script.fail(|sent| matches!(sent.kind, Kind::Chunk | Kind::Header) && sent.member == 1);
    for version in 0..60 {
        let write = script.write(0, 1, version);
        script.pass(Duration::from_secs(1));
        script.run();
        assert_eq!(script.status(write), Some(Status::CapacityExceeded));
    }
    assert_eq!(script.events, [Event::OutOfSpace { member: MemberIndex(1) }]);
    let report = script.volume.status().members[1].clone();
    assert_eq!((report.state, report.suspended, report.errors), (MemberState::Active, None, 0));
    assert!(report.lacks_space && !report.is_awaited_for_space);
    script.fill(|_| false);
    script.fail(|_| false);
    script.pass(Duration::from_secs(1));
    let write = script.write(0, 1, 99);
    assert!(script.has_ended(write));
    assert!(!script.volume.status().members[1].lacks_space, "there is space");
}
