//! Management commands that repeat one that is in progress: none is acknowledged before what it repeats is
//! durable.

use zonda_zoned::{Lba, Operation, Status, ZoneAction, ZoneState, ZoneTarget, ZonedDevice};

use super::drive::Fault;
use super::rig::{Rig, TENANT, manage, write};

/// Whether the second of two such commands on v-zone 0 ends behind the first, and the state of the zone after a
/// crash at the moment at which the first completion of either was seen.
fn repeat(action: &ZoneAction, target: impl Fn(u64) -> ZoneTarget) -> (bool, ZoneState) {
    let submit = |rig: &mut Rig| {
        let target = target(0);
        rig.submit(TENANT, Operation::ManageZones { action: action.clone(), target })
    };
    let mut rig = Rig::tenant();
    assert!(rig.execute(TENANT, write(0, 5, 7)).status.is_success());
    let (first, second) = (rig.submit(TENANT, manage(0, action.clone())), submit(&mut rig));
    let ended = rig.quiesce();
    assert!(ended.iter().all(|completion| completion.status.is_success()), "{ended:?}");
    let ids: Vec<_> = ended.iter().map(|completion| completion.id).collect();
    rig.check();

    for left in 0.. {
        let mut rig = Rig::tenant();
        assert!(rig.execute(TENANT, write(0, 5, 7)).status.is_success());
        rig.drive().completions_left = left;
        rig.submit(TENANT, manage(0, action.clone()));
        submit(&mut rig);
        let is_acknowledged = !rig.quiesce().is_empty();
        rig.drive().completions_left = usize::MAX;
        if is_acknowledged {
            rig.mount_again();
            return (ids == [first, second], rig.state(0));
        }
    }
    unreachable!("some number of completions is enough");
}

#[test]
fn a_finish_that_repeats_another_is_acknowledged_behind_it() {
    let one = |start| ZoneTarget::Zone(Lba(start));
    assert_eq!(repeat(&ZoneAction::Finish, one), (true, ZoneState::Full));
    assert_eq!(repeat(&ZoneAction::Finish, |_| ZoneTarget::All), (true, ZoneState::Full));
}

#[test]
fn a_reset_that_repeats_another_is_acknowledged_behind_it() {
    let one = |start| ZoneTarget::Zone(Lba(start));
    assert_eq!(repeat(&ZoneAction::Reset, one), (true, ZoneState::Empty));
    assert_eq!(repeat(&ZoneAction::Reset, |_| ZoneTarget::All), (true, ZoneState::Empty));
}

#[test]
fn a_finish_of_a_zone_that_is_being_filled_is_acknowledged_behind_the_last_write() {
    let mut rig = Rig::tenant();
    let capacity = rig.device().geometry(TENANT).zone_capacity_blocks.0;
    let mut at = 0;
    while at + 8 < capacity {
        assert!(rig.execute(TENANT, write(at, 8, 7)).status.is_success());
        at += 8;
    }
    let last = rig.submit(TENANT, write(at, capacity - at, 7));
    let finish = rig.submit(TENANT, manage(0, ZoneAction::Finish));
    let ids: Vec<_> = rig.quiesce().iter().map(|completion| completion.id).collect();
    assert_eq!(ids, [last, finish]);
    rig.mount_again();
    assert_eq!(rig.state(0), ZoneState::Full);
}

#[test]
fn a_finish_that_could_not_be_recorded_is_not_acknowledged_when_it_is_repeated() {
    let mut rig = Rig::tenant();
    assert!(rig.execute(TENANT, write(0, 5, 7)).status.is_success());
    let matches = Box::new(|operation: &Operation| matches!(operation, Operation::Write { .. }));
    rig.drive().faults.push(Fault { matches, times: u32::MAX, status: Status::CapacityExceeded });
    for _ in 0..2 {
        assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status, Status::CapacityExceeded);
    }
    rig.drive().faults.clear();
    rig.mount_again();
    assert_eq!(rig.state(0), ZoneState::Closed, "it has not happened");
    assert!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status.is_success());
    rig.mount_again();
    assert_eq!(rig.state(0), ZoneState::Full);
}
