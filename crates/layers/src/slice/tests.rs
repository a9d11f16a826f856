//! Single operations of a slice.

use zonda_zoned::Geometry;
use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{Duration, Payload, Prng, ReportFilter, ZoneState, ZrwaGeometry};

use super::*;
use crate::testing::{Narrow, command, poll_ids, read, reference, run_one, run_until_idle, write};
use crate::{
    Delay, DelayRule, Fault, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, Shared, Trace, TraceEvent,
    When,
};

/// Zones 2 to 5 of the tiny device, with a share of two active zones and one open zone.
fn middle() -> SliceConfig {
    SliceConfig {
        namespace: NamespaceId::FIRST,
        first: ZoneIndex(2),
        count: 4,
        max_active_zones: Some(2),
        max_open_zones: Some(1),
        zrwa_resources: 0,
        keeps: PayloadKind::Fingerprints,
    }
}

fn slice_of<D: ZonedDevice>(inner: D) -> Slice<D> {
    let mut slice = Slice::new(inner, middle()).unwrap();
    assert_eq!(run_until_idle(&mut slice, Instant::ZERO), [], "a resync has no completion for the host");
    slice
}

fn manage(id: u64, action: ZoneAction, zone: u64) -> Command {
    command(id, Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(zone * 16)) })
}

fn manage_all(id: u64, action: ZoneAction) -> Command {
    command(id, Operation::ManageZones { action, target: ZoneTarget::All })
}

fn status(device: &mut impl ZonedDevice, command: Command) -> Status {
    run_one(device, command).status
}

fn states<D: ZonedDevice>(slice: &Slice<D>) -> Vec<ZoneState> {
    (0..4).map(|zone| slice.zones().zone(ZoneIndex(zone)).state).collect()
}

fn device_states(device: &ReferenceDevice) -> Vec<ZoneState> {
    (2..6).map(|zone| device.image(ZoneIndex(zone)).state).collect()
}

fn faulty(operations: OperationSet, when: When, effect: FaultEffect) -> Fault<ReferenceDevice> {
    Fault::new(reference(), vec![FaultRule { matches: Matcher::operations(operations), when, effect }], Prng::new(1))
}

fn only(kind: OperationKind) -> OperationSet {
    OperationSet::of(&[kind])
}

#[test]
fn a_zone_closed_to_free_a_resource_is_closed_on_the_device_before_the_write() {
    let mut slice = slice_of(Trace::new(reference()));
    let resynced = slice.inner().events().len();
    assert_eq!(status(&mut slice, write(1, 0, 1)), Status::Success);
    assert_eq!(status(&mut slice, write(2, 16, 1)), Status::Success);
    assert_eq!(status(&mut slice, write(3, 32, 1)), Status::TooManyActiveZones);
    let submitted: Vec<String> = slice
        .inner()
        .events()
        .skip(resynced)
        .filter(|event| matches!(event.kind, crate::TraceKind::Submitted { .. }))
        .map(|event: &TraceEvent| event.to_string().split_once(' ').unwrap().1.split_once(' ').unwrap().1.to_owned())
        .map(|line| line.split_once(' ').unwrap().1.to_owned())
        .collect();
    assert_eq!(submitted, ["write lba 32 blocks 1", "close lba 32", "write lba 48 blocks 1"]);
}

#[test]
fn a_write_refused_by_the_device_is_returned_without_effect() {
    let mut slice = slice_of(Narrow::new(reference(), 1));
    slice.submit(Instant::ZERO, write(1, 0, 4)).unwrap();
    let before = slice.zones().clone();
    for refused in [write(2, 4, 4), read(3, 1, 2), command(4, Operation::Flush)] {
        assert_eq!(slice.submit(Instant::ZERO, refused.clone()), Err(QueueFull(refused)));
        assert_eq!(*slice.zones(), before);
    }
    assert_eq!(poll_ids(&mut slice, Instant::ZERO), [1]);
    assert_eq!(status(&mut slice, write(2, 4, 4)), Status::Success);
}

#[test]
fn a_command_with_a_close_waits_for_a_slot_and_the_next_is_refused() {
    let mut slice = slice_of(Narrow::new(reference(), 1));
    slice.submit(Instant::ZERO, write(1, 0, 1)).unwrap();
    slice.submit(Instant::ZERO, write(2, 16, 1)).unwrap();
    for next in [read(3, 0, 1), read(3, 9_999, 1)] {
        assert_eq!(slice.submit(Instant::ZERO, next.clone()), Err(QueueFull(next)), "no command overtakes");
    }
    let ended: Vec<u64> =
        run_until_idle(&mut slice, Instant::ZERO).iter().map(|(_, completion)| completion.id.0).collect();
    assert_eq!(ended, [1, 2]);
    assert_eq!(device_states(&slice.inner().inner)[..2], [ZoneState::Closed, ZoneState::ImplicitlyOpened]);
}

#[test]
fn a_write_that_fills_an_open_zone_waits_for_a_slot_because_it_cannot_be_undone() {
    let mut slice = slice_of(Narrow::new(reference(), 1));
    slice.submit(Instant::ZERO, write(1, 0, 8)).unwrap();
    slice.submit(Instant::ZERO, write(2, 8, 4)).unwrap();
    assert_eq!(slice.zones().zone(ZoneIndex(0)).state, ZoneState::Full);
    assert_eq!(run_until_idle(&mut slice, Instant::ZERO).len(), 2);
    assert_eq!(device_states(&slice.inner().inner)[0], ZoneState::Full);
}

#[test]
fn select_all_has_one_completion_and_does_not_affect_other_zones() {
    let mut device = reference();
    assert_eq!(status(&mut device, manage(1, ZoneAction::Finish, 0)), Status::Success);
    let mut slice = slice_of(Narrow::new(device, 1));
    for zone in 0..4 {
        assert_eq!(status(&mut slice, write(zone, zone * 16, 8)), Status::Success);
        assert_eq!(status(&mut slice, manage(9, ZoneAction::Finish, zone)), Status::Success);
    }
    assert_eq!(device_states(&slice.inner().inner), [ZoneState::Full; 4]);
    assert_eq!(status(&mut slice, manage_all(5, ZoneAction::Reset)), Status::Success);
    assert_eq!(device_states(&slice.inner().inner), [ZoneState::Empty; 4]);
    assert_eq!(slice.inner().inner.image(ZoneIndex(0)).state, ZoneState::Full);
    assert_eq!(
        status(&mut slice, manage_all(6, ZoneAction::Reset)),
        Status::Success,
        "a Select All without effect succeeds"
    );
}

#[test]
fn a_failed_part_fails_a_select_all_and_the_table_stays_correct() {
    let mut slice =
        slice_of(faulty(only(OperationKind::Reset), When::EveryNth(2), FaultEffect::Fail(Status::InternalError)));
    for zone in 0..3 {
        status(&mut slice, manage(zone, ZoneAction::Finish, zone));
    }
    assert_eq!(status(&mut slice, manage_all(5, ZoneAction::Reset)), Status::InternalError);
    assert_eq!(states(&slice), [ZoneState::Empty, ZoneState::Full, ZoneState::Empty, ZoneState::Empty]);
}

#[test]
fn after_a_failed_write_the_write_pointer_is_that_of_the_device() {
    for (effect, pointer) in
        [(FaultEffect::Fail(Status::WriteFault), 0), (FaultEffect::FailAfter(Status::WriteFault), 4)]
    {
        let mut slice = slice_of(faulty(only(OperationKind::Write), When::Once, effect));
        assert_eq!(status(&mut slice, write(1, 0, 4)), Status::WriteFault);
        assert_eq!(slice.zones().zone(ZoneIndex(0)).write_pointer_blocks, Blocks(pointer));
        assert_eq!(status(&mut slice, write(2, pointer, 4)), Status::Success);
    }
}

#[test]
fn a_failed_write_releases_the_resource_it_did_not_use() {
    let mut slice = slice_of(faulty(only(OperationKind::Write), When::Once, FaultEffect::Fail(Status::WriteFault)));
    assert_eq!(status(&mut slice, write(1, 0, 1)), Status::WriteFault);
    assert_eq!(slice.zones().active_zones(), 0);
    assert_eq!(status(&mut slice, write(2, 16, 1)), Status::Success);
    assert_eq!(status(&mut slice, write(3, 32, 1)), Status::Success);
}

#[test]
fn commands_after_a_failure_are_processed_with_the_reported_state() {
    let mut slice = slice_of(faulty(only(OperationKind::Write), When::Once, FaultEffect::Fail(Status::WriteFault)));
    slice.submit(Instant::ZERO, write(1, 0, 4)).unwrap();
    // The failure is detected here: a report is requested, and further commands wait for it.
    assert_eq!(poll_ids(&mut slice, Instant::ZERO), [1]);
    slice.submit(Instant::ZERO, write(2, 4, 4)).unwrap();
    slice.submit(Instant::ZERO, write(3, 0, 4)).unwrap();
    let ended: Vec<(u64, Status)> =
        run_until_idle(&mut slice, Instant::ZERO).iter().map(|(_, end)| (end.id.0, end.status)).collect();
    assert_eq!(ended, [(2, Status::ZoneInvalidWrite), (3, Status::Success)]);
}

#[test]
fn a_zone_beyond_the_share_is_shown_full_until_it_is_reset() {
    let mut device = reference();
    for zone in 2..5 {
        assert_eq!(status(&mut device, write(zone, zone * 16, 4)), Status::Success);
    }
    let mut slice = slice_of(device);
    assert_eq!(states(&slice), [ZoneState::Closed, ZoneState::ImplicitlyOpened, ZoneState::Full, ZoneState::Empty]);
    assert_eq!(slice.shown_full(), 1);
    assert!(matches!(run_one(&mut slice, read(1, 32, 4)).outcome, Outcome::Data(Payload::Fingerprints(_))));
    assert_eq!(slice.inner().image(ZoneIndex(4)).state, ZoneState::Closed, "the third zone is unchanged on the device");
    assert_eq!(status(&mut slice, manage(2, ZoneAction::Reset, 2)), Status::Success);
    assert_eq!(states(&slice)[2], ZoneState::Empty);
    assert_eq!(slice.inner().image(ZoneIndex(4)).state, ZoneState::Empty);
}

#[test]
fn open_zones_beyond_the_share_are_closed() {
    let mut device = reference();
    for zone in 2..4 {
        assert_eq!(status(&mut device, manage(1, ZoneAction::Open { zrwa: false }, zone)), Status::Success);
    }
    let slice = slice_of(device);
    let expected = [ZoneState::ExplicitlyOpened, ZoneState::Closed, ZoneState::Empty, ZoneState::Empty];
    assert_eq!(states(&slice), expected);
    assert_eq!(device_states(slice.inner()), expected);
}

#[test]
fn a_degraded_zone_is_detected_by_the_first_failure_or_by_the_changed_zone_list() {
    let mut slice = slice_of(reference());
    assert_eq!(status(&mut slice, write(1, 0, 4)), Status::Success);
    slice.inner_mut().degrade(ZoneIndex(2), ZoneState::ReadOnly);
    slice.inner_mut().degrade(ZoneIndex(4), ZoneState::Offline);
    slice.inner_mut().degrade(ZoneIndex(7), ZoneState::Offline);
    assert_eq!(status(&mut slice, write(2, 4, 4)), Status::ZoneIsReadOnly);
    assert_eq!(states(&slice)[..3], [ZoneState::ReadOnly, ZoneState::Empty, ZoneState::Empty]);
    let changed =
        |device: &mut dyn FnMut(Command) -> Completion| match device(command(3, Operation::ReadChangedZones)).outcome {
            Outcome::ChangedZones(list) => list.zones,
            other => panic!("not a list: {other:?}"),
        };
    assert_eq!(changed(&mut |command| run_one(&mut slice, command)), [ZoneIndex(0), ZoneIndex(2)]);
    assert_eq!(changed(&mut |command| run_one(&mut slice, command)), []);
    assert_eq!(states(&slice)[2], ZoneState::Offline);
    let mut device = slice.into_inner();
    let all = changed(&mut |command| run_one(&mut device, command));
    assert_eq!(all, [ZoneIndex(2), ZoneIndex(4), ZoneIndex(7)], "the device's own list is not consumed");
}

#[test]
fn a_slice_is_not_ready_until_a_report_succeeds() {
    let rule = FaultRule {
        matches: Matcher::operations(only(OperationKind::ReportZones)),
        when: When::Always,
        effect: FaultEffect::Fail(Status::InternalError),
    };
    let shared = Shared::new(Fault::new(reference(), vec![rule], Prng::new(1)));
    let mut slice = slice_of(shared);
    assert_eq!(status(&mut slice, write(1, 0, 1)), Status::NamespaceNotReady);
    assert_eq!(status(&mut slice, write(1, 0, 1)), Status::NamespaceNotReady);
    let attempts = slice.inner().with_inner(|fault| fault.counters()[0].struck);
    assert_eq!(attempts, 3 * u64::from(crate::limits::RESYNC_ATTEMPTS_MAX));

    let rule = FaultRule {
        matches: Matcher::operations(only(OperationKind::ReportZones)),
        when: When::Once,
        effect: FaultEffect::Fail(Status::InternalError),
    };
    let mut slice = slice_of(Fault::new(reference(), vec![rule], Prng::new(1)));
    assert_eq!(status(&mut slice, write(1, 0, 1)), Status::Success, "one failure is tolerated");
}

#[test]
fn a_close_that_always_fails_does_not_block_commands() {
    let mut slice = slice_of(faulty(
        only(OperationKind::Close),
        When::Always,
        FaultEffect::Fail(Status::InvalidZoneStateTransition),
    ));
    for round in 0..4 {
        assert_eq!(status(&mut slice, write(round, round, 1)), Status::Success);
        assert_eq!(status(&mut slice, write(round, 16 + round, 1)), Status::Success);
    }
}

#[test]
fn a_failed_close_does_not_affect_another_slice() {
    let shared = Shared::new(reference());
    let rule = FaultRule {
        matches: Matcher::operations(only(OperationKind::Close)),
        when: When::Always,
        effect: FaultEffect::Fail(Status::InternalError),
    };
    let faulty = Fault::new(shared.clone(), vec![rule], Prng::new(1));
    let other = SliceConfig { first: ZoneIndex(6), count: 2, max_active_zones: Some(1), ..middle() };
    SliceConfig::check_together(&Geometry::tiny(), &[middle(), other]).unwrap();
    let mut slice = slice_of(faulty);
    let mut other = Slice::new(shared.clone(), other).unwrap();
    assert_eq!(status(&mut slice, write(1, 0, 1)), Status::Success);
    assert_eq!(status(&mut slice, write(2, 16, 1)), Status::Success);
    let open_on_device = |shared: &Shared<ReferenceDevice>| {
        shared.with_inner(|device| device_states(device).into_iter().filter(|state| state.is_open()).count())
    };
    assert_eq!(open_on_device(&shared), 2, "one more than the share");
    assert_eq!(status(&mut other, manage(3, ZoneAction::Open { zrwa: false }, 0)), Status::Success);
    assert_eq!(open_on_device(&shared), 1, "the excess zone is closed");
}

#[test]
fn commands_before_the_resync_is_complete_wait_in_order() {
    let rule = DelayRule {
        matches: Matcher::operations(only(OperationKind::ReportZones)),
        when: When::Always,
        fixed: Duration(100),
        spread: Duration::ZERO,
    };
    let mut slice = Slice::new(Delay::new(reference(), vec![rule], Prng::new(1)), middle()).unwrap();
    for id in 0..SLICE_PARKED_MAX as u64 {
        slice.submit(Instant(5), read(id, 0, 1)).unwrap();
    }
    assert_eq!(slice.submit(Instant(5), write(7, 0, 1)), Err(QueueFull(write(7, 0, 1))));
    let ended = run_until_idle(&mut slice, Instant(5));
    let ids: Vec<u64> = ended.iter().map(|(_, completion)| completion.id.0).collect();
    assert_eq!(ids, (0..SLICE_PARKED_MAX as u64).collect::<Vec<u64>>());
    assert!(ended.iter().all(|(at, _)| *at == Instant(105)));
}

#[test]
fn every_state_that_a_zone_can_have_is_read_from_the_device() {
    let geometry = Geometry {
        zone_count: 16,
        max_active_zones: None,
        max_open_zones: None,
        zrwa: Some(ZrwaGeometry {
            size_blocks: Blocks(4),
            flush_granularity_blocks: Blocks(2),
            resources: 16,
            explicit_flush: false,
        }),
        ..Geometry::tiny()
    };
    let active = [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed];
    let mut images = vec![];
    for state in active {
        for (pointer, zrwa, extension) in [(6, false, None), (6, true, Some(7)), (0, true, None), (10, true, None)] {
            images.push((state, pointer, zrwa, extension));
        }
    }
    images.extend([
        (ZoneState::Closed, 0, false, Some(9)),
        (ZoneState::Full, 12, false, Some(3)),
        (ZoneState::ReadOnly, 5, false, Some(4)),
        (ZoneState::Offline, 0, false, None),
    ]);
    let mut device = ReferenceDevice::new(geometry.clone(), PayloadKind::Fingerprints);
    for (zone, (state, pointer, zrwa, extension)) in (0..).map(ZoneIndex).zip(images) {
        let extension = extension.map(|byte| vec![byte; 64].into());
        device.set_zone(zone, ZoneImage { state, write_pointer_blocks: Blocks(pointer), zrwa, extension });
    }
    let config = SliceConfig {
        first: ZoneIndex(0),
        count: 16,
        max_active_zones: None,
        max_open_zones: None,
        zrwa_resources: 16,
        ..middle()
    };
    let mut slice = Slice::new(device, config).unwrap();
    let report = command(
        1,
        Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended: true,
            partial: false,
            descriptors_max: 99,
        },
    );
    let of_slice = run_one(&mut slice, report.clone());
    slice.zones().check_invariants();
    assert_eq!(slice.shown_full(), 0);
    assert_eq!(of_slice, run_one(slice.inner_mut(), report));
}
