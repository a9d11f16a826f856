//! A drive without space for some time, as an image on a full file system: errors while there is none,
//! and everything as before once there is.

use zonda_zoned::{
    Blocks, CompletionQueue, Lba, Operation, Outcome, Payload, Status, ZoneAction, ZoneState, ZonedDevice,
};

use super::drive::Fault;
use super::rig::{Rig, TENANT, manage, write};
use crate::PoolEvent;
use crate::limits::{LOG_ZONES, NO_SPACE_PAUSE, REOPEN_PAUSE_MAX};

/// Writes to these zones of the drive find no space.
fn fill_up(rig: &mut Rig, is_of: impl Fn(u32) -> bool + 'static) {
    let matches = move |operation: &Operation| match operation {
        Operation::Write { start, .. } | Operation::WriteZeroes { start, .. } => is_of((start.0 / 32) as u32),
        _ => false,
    };
    rig.drive().faults.push(Fault { matches: Box::new(matches), times: u32::MAX, status: Status::CapacityExceeded });
}

/// There is space again, and the longest pause passes.
fn make_space(rig: &mut Rig) {
    rig.drive().faults.clear();
    for _ in 0..8 {
        rig.now += REOPEN_PAUSE_MAX;
        (0..3).for_each(|_| assert!(rig.quiesce().is_empty()));
    }
    rig.check();
}

fn holds(rig: &mut Rig, start: u64, blocks: u64) -> bool {
    let read = Operation::Read { start: Lba(start), blocks: Blocks(blocks) };
    match rig.execute(TENANT, read).outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data.iter().all(|byte| *byte == 7),
        _ => false,
    }
}

#[test]
fn a_v_zone_can_be_written_again_once_there_is_space_for_its_data() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 8, 7)).status, Status::Success);
    fill_up(&mut rig, |zone| zone >= LOG_ZONES);
    assert_eq!(rig.execute(TENANT, write(8, 8, 7)).status, Status::CapacityExceeded);
    assert_eq!(rig.state(0), ZoneState::ImplicitlyOpened);
    assert_eq!(rig.execute(TENANT, write(8, 8, 7)).status, Status::CapacityExceeded);
    make_space(&mut rig);
    assert_eq!(rig.state(0), ZoneState::Closed);
    assert!(holds(&mut rig, 0, 8));
    assert_eq!(rig.execute(TENANT, write(8, 8, 7)).status, Status::Success);
    rig.mount_again();
    assert!(holds(&mut rig, 0, 8) && holds(&mut rig, 8, 8));
}

#[test]
fn an_empty_v_zone_stays_empty_when_no_zone_can_be_reserved_for_it() {
    let mut rig = Rig::tenant();
    let size = rig.zone_size(TENANT);
    fill_up(&mut rig, |zone| zone >= LOG_ZONES);
    // Zones that were reserved before are used up first.
    let mut statuses = Vec::new();
    for zone in 0..10 {
        statuses.push(rig.execute(TENANT, write(zone * size, 4, 7)).status);
        assert_eq!(rig.state(zone as u32), ZoneState::Empty, "zone {zone}");
        if zone > 4 {
            rig.now += NO_SPACE_PAUSE;
        }
    }
    assert!(statuses.iter().all(|status| *status == Status::CapacityExceeded), "{statuses:?}");
    make_space(&mut rig);
    assert!((0..10).all(|zone| rig.state(zone) == ZoneState::Empty));
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::Success);
    assert_eq!(rig.device().pool().unwrap().zone_counts().retired, 0);
}

#[test]
fn a_pool_whose_log_lacked_space_can_be_changed_again() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 8, 7)).status, Status::Success);
    fill_up(&mut rig, |_| true);
    let size = rig.zone_size(TENANT);
    assert!(!rig.execute(TENANT, write(size, 8, 7)).status.is_success());
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status, Status::CapacityExceeded);
    assert!(rig.device().pool().unwrap().is_read_only());
    assert!(holds(&mut rig, 0, 8), "what was written can be read");
    // While there is none, it is tried in vain, and reads go on.
    for _ in 0..3 {
        rig.now += REOPEN_PAUSE_MAX;
        rig.quiesce();
        assert!(rig.device().pool().unwrap().is_read_only());
        assert!(holds(&mut rig, 0, 8));
    }
    make_space(&mut rig);
    let events: Vec<PoolEvent> = std::iter::from_fn(|| rig.device().poll_event()).collect();
    assert_eq!(events.last(), Some(&PoolEvent::Started { is_recorded: true }), "{events:?}");
    assert!(!rig.device().pool().unwrap().is_read_only());
    let version = rig.device().namespaces().version();
    assert_eq!(rig.execute(TENANT, write(8, 8, 7)).status, Status::Success);
    assert_eq!(rig.execute(TENANT, write(size, 8, 7)).status, Status::Success);
    rig.create("another", 2, 2);
    assert!(rig.device().namespaces().version() > version, "hosts see what changes after it was opened again");
}

#[test]
fn a_pool_is_opened_again_although_a_command_ended_when_it_was_due() {
    let mut rig = Rig::tenant();
    fill_up(&mut rig, |_| true);
    assert!(!rig.execute(TENANT, write(0, 8, 7)).status.is_success());
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status, Status::CapacityExceeded);
    rig.drive().faults.clear();
    rig.now += REOPEN_PAUSE_MAX;
    let size = rig.zone_size(TENANT);
    rig.submit(TENANT, write(4 * size, 1, 7));
    let (now, mut ended) = (rig.now, CompletionQueue::new());
    rig.device().poll(now, &mut ended);
    assert_eq!(ended.len(), 1);
    // As an event loop does: there may be no other event for long.
    let at = rig.device().next_timeout().expect("the pool waits to be opened again");
    assert!(at <= now);
    rig.device().poll(now, &mut ended);
    assert!(!rig.device().pool().unwrap().is_read_only());
}

/// The table of the host has one active v-zone at each moment.
#[test]
fn a_write_that_was_accepted_beside_a_full_v_zone_is_refused_once_that_lacks_space() {
    let mut rig = Rig::tiny();
    rig.create("tenant", 10, 2);
    let (size, capacity) = (rig.zone_size(TENANT), rig.device().geometry(TENANT).zone_capacity_blocks.0);
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::Success);
    assert_eq!(rig.execute(TENANT, write(2 * size, 4, 7)).status, Status::Success);
    rig.drive().completions_left = 0;
    fill_up(&mut rig, |zone| zone >= LOG_ZONES);
    rig.drive().faults[0].times = 1;
    for start in (4..capacity).step_by(8) {
        rig.submit(TENANT, write(start, 8.min(capacity - start), 7));
    }
    rig.submit(TENANT, write(size, 8, 7));
    rig.submit(TENANT, manage(size, ZoneAction::Finish));
    rig.drive().completions_left = usize::MAX;
    let ended = rig.quiesce();
    let refused = ended.iter().filter(|completion| completion.status == Status::CapacityExceeded).count();
    assert_eq!(refused + 1, ended.len(), "a crash before the finish is recorded would leave three active: {ended:?}");
    rig.drive().faults.clear();
    rig.mount_again();
    let active = (0..10).filter(|zone| rig.state(*zone).is_active()).count();
    assert_eq!(active, 2);
    assert!(rig.state(0) == ZoneState::Closed && holds(&mut rig, 0, 4));
}

#[test]
fn a_v_zone_whose_reset_cannot_be_recorded_returns_no_zeros() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 8, 7)).status, Status::Success);
    fill_up(&mut rig, |zone| zone < LOG_ZONES);
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Reset)).status, Status::CapacityExceeded);
    assert_eq!(rig.state(0), ZoneState::Offline);
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::ZoneIsOffline);
    make_space(&mut rig);
    assert_eq!(rig.state(0), ZoneState::Closed);
    assert!(holds(&mut rig, 0, 8), "the reset has not happened");
}

#[test]
fn a_write_behind_a_reset_that_cannot_be_recorded_finds_its_zone_offline() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 8, 7)).status, Status::Success);
    fill_up(&mut rig, |zone| zone < LOG_ZONES);
    rig.submit(TENANT, manage(0, ZoneAction::Reset));
    rig.submit(TENANT, write(0, 4, 7));
    let statuses: Vec<Status> = rig.quiesce().iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::CapacityExceeded, Status::ZoneIsOffline]);
    make_space(&mut rig);
    assert!(rig.state(0) == ZoneState::Closed && holds(&mut rig, 0, 8), "the reset has not happened");
}

#[test]
fn an_operator_sees_that_a_pool_lacks_space() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 8, 7)).status, Status::Success);
    let lacks_space = |rig: &mut Rig| rig.device().activity().expect("it is open").lacks_space;
    assert!(!lacks_space(&mut rig));
    fill_up(&mut rig, |zone| zone >= LOG_ZONES);
    assert_eq!(rig.execute(TENANT, write(8, 8, 7)).status, Status::CapacityExceeded);
    assert!(lacks_space(&mut rig));
    make_space(&mut rig);
    assert!(!lacks_space(&mut rig));
    assert_eq!(rig.device().pool().expect("it is open").waiting_vzones(TENANT), 0);
}

#[test]
fn what_a_mount_without_space_has_shown_is_not_undone_by_a_power_loss() {
    let mut rig = Rig::tenant();
    let other = rig.create("another", 2, 2);
    // The deletion is written, and stays in the drive's cache.
    let is_flush = Box::new(|operation: &Operation| matches!(operation, Operation::Flush));
    rig.drive().faults.push(Fault { matches: is_flush, times: u32::MAX, status: Status::InternalError });
    let now = rig.now;
    rig.device().delete_namespace(now, other).expect("nothing is in flight");
    rig.quiesce();
    rig.drive().faults.clear();
    fill_up(&mut rig, |_| true);
    rig.mount_again();
    let events: Vec<PoolEvent> = std::iter::from_fn(|| rig.device().poll_event()).collect();
    assert_eq!(events.last(), Some(&PoolEvent::Started { is_recorded: false }), "{events:?}");
    assert!(rig.device().namespaces().geometry(other).is_none(), "the deletion was read from the cache");
    rig.mount_after(|drive| {
        drive.faults.clear();
        drive.lose_power(|_, flushed, _| flushed);
    });
    assert!(rig.device().namespaces().geometry(other).is_none(), "a namespace that was gone is back");
    rig.check();
}

#[test]
fn a_finish_of_a_zone_that_lacks_space_is_there_after_the_pool_was_opened_again() {
    for (full_from, blocks) in [0, 1, 2, 3].into_iter().flat_map(|from| [(from, 1), (from, 3), (from, 8)]) {
        for is_reset in [false, true] {
            let mut rig = Rig::tenant();
            assert_eq!(rig.execute(TENANT, write(0, 5, 7)).status, Status::Success);
            let full: Vec<u32> = rig.zones_of(TENANT, 0).iter().skip(full_from).map(|zone| zone.0).collect();
            fill_up(&mut rig, move |zone| full.contains(&zone));
            for at in [5, 5 + blocks] {
                rig.submit(TENANT, write(at, blocks, 7));
            }
            rig.quiesce();
            assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status, Status::Success);
            if is_reset {
                fill_up(&mut rig, |_| true);
                assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Reset)).status, Status::CapacityExceeded);
            }
            make_space(&mut rig);
            assert_eq!(rig.state(0), ZoneState::Full, "{full_from} {blocks} {is_reset}");
            assert!(holds(&mut rig, 0, 5), "what was written can be read");
        }
    }
}

#[test]
fn a_write_whose_error_arrives_before_that_of_the_block_before_it_has_found_no_space() {
    let mut rig = Rig::tenant();
    let is_owner = |operation: &Operation| matches!(operation, Operation::Write { start, .. } if start.0 % 32 == 1);
    rig.drive().late = Some(is_owner);
    let is_of_group = move |operation: &Operation| is_owner(operation) && !is_of_log(operation);
    let fault = Fault { matches: Box::new(is_of_group), times: u32::MAX, status: Status::CapacityExceeded };
    rig.drive().faults.push(fault);
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::CapacityExceeded);
    make_space(&mut rig);
    assert_eq!(rig.state(0), ZoneState::Empty, "nothing of it was written");
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::Success);
    rig.mount_again();
    assert!(holds(&mut rig, 0, 4));
}

fn is_of_log(operation: &Operation) -> bool {
    matches!(operation, Operation::Write { start, .. } if start.0 / 32 < u64::from(LOG_ZONES))
}
