//! Zone Management Send to one zone (3.4.3): every state and every transition that the host can
//! request.

use zonda_zoned::{Blocks, Lba, Operation, Status, ZoneAction, ZoneState, ZoneTarget};

use super::{Check, checks, marks};
use crate::rig::{Rig, Verdict};

pub(super) fn checks() -> Vec<Check> {
    checks![Full:
        a_zone_is_opened_explicitly_from_empty_closed_and_implicitly_opened,
        opening_an_explicitly_opened_zone_changes_nothing,
        a_full_zone_cannot_be_opened,
        a_write_to_an_explicitly_opened_zone_leaves_it_so,
        an_open_zone_is_closed_even_if_nothing_is_written,
        closing_a_closed_zone_changes_nothing,
        an_empty_or_full_zone_cannot_be_closed,
        a_write_opens_a_closed_zone_again,
        a_zone_is_finished_from_every_state_that_can_be_written,
        finishing_a_full_zone_changes_nothing,
        a_finished_zone_reads_as_zeros_after_the_written_blocks,
        a_zone_is_reset_from_every_state_that_was_written,
        resetting_an_empty_zone_changes_nothing,
        a_reset_zone_loses_its_contents_and_can_be_rewritten,
        only_a_read_only_zone_goes_offline,
        an_action_on_the_middle_of_a_zone_is_refused,
        an_action_past_the_namespace_is_out_of_range,
    ]
    .into()
}

const OPEN: ZoneAction = ZoneAction::Open { zrwa: false };

/// Brings zone 0 to a state, with two blocks written if the state allows it.
fn bring(rig: &mut Rig, state: ZoneState) -> Verdict {
    rig.manage(ZoneAction::Reset, 0, Status::Success)?;
    match state {
        ZoneState::Empty => {}
        ZoneState::ImplicitlyOpened => rig.fill(0, 0, 2, 9)?,
        ZoneState::ExplicitlyOpened => {
            rig.manage(OPEN, 0, Status::Success)?;
            rig.fill(0, 0, 2, 9)?;
        }
        ZoneState::Closed => {
            rig.fill(0, 0, 2, 9)?;
            rig.manage(ZoneAction::Close, 0, Status::Success)?;
        }
        ZoneState::Full => {
            rig.fill(0, 0, 2, 9)?;
            rig.manage(ZoneAction::Finish, 0, Status::Success)?;
        }
        _ => unreachable!("a host cannot bring a zone to {state}"),
    }
    let pointer = match state {
        ZoneState::Empty => Some(0),
        ZoneState::Full => None,
        _ => Some(2),
    };
    rig.expect_zone(0, state, pointer)
}

fn a_zone_is_opened_explicitly_from_empty_closed_and_implicitly_opened(rig: &mut Rig) -> Verdict {
    for (state, pointer) in [(ZoneState::Empty, 0), (ZoneState::Closed, 2), (ZoneState::ImplicitlyOpened, 2)] {
        bring(rig, state)?;
        rig.manage(OPEN, 0, Status::Success)?;
        rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(pointer))?;
    }
    Ok(())
}

fn opening_an_explicitly_opened_zone_changes_nothing(rig: &mut Rig) -> Verdict {
    bring(rig, ZoneState::ExplicitlyOpened)?;
    rig.manage(OPEN, 0, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(2))
}

fn a_full_zone_cannot_be_opened(rig: &mut Rig) -> Verdict {
    bring(rig, ZoneState::Full)?;
    rig.manage(OPEN, 0, Status::InvalidZoneStateTransition)?;
    rig.expect_zone(0, ZoneState::Full, None)
}

fn a_write_to_an_explicitly_opened_zone_leaves_it_so(rig: &mut Rig) -> Verdict {
    bring(rig, ZoneState::ExplicitlyOpened)?;
    rig.append(0, 1, 5, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(3))
}

fn an_open_zone_is_closed_even_if_nothing_is_written(rig: &mut Rig) -> Verdict {
    for state in [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened] {
        bring(rig, state)?;
        rig.manage(ZoneAction::Close, 0, Status::Success)?;
        rig.expect_zone(0, ZoneState::Closed, Some(2))?;
    }
    rig.manage(OPEN, 1, Status::Success)?;
    rig.manage(ZoneAction::Close, 1, Status::Success)?;
    rig.expect_zone(1, ZoneState::Closed, Some(0))
}

fn closing_a_closed_zone_changes_nothing(rig: &mut Rig) -> Verdict {
    bring(rig, ZoneState::Closed)?;
    rig.manage(ZoneAction::Close, 0, Status::Success)?;
    rig.expect_zone(0, ZoneState::Closed, Some(2))
}

fn an_empty_or_full_zone_cannot_be_closed(rig: &mut Rig) -> Verdict {
    for (state, pointer) in [(ZoneState::Empty, Some(0)), (ZoneState::Full, None)] {
        bring(rig, state)?;
        rig.manage(ZoneAction::Close, 0, Status::InvalidZoneStateTransition)?;
        rig.expect_zone(0, state, pointer)?;
    }
    Ok(())
}

fn a_write_opens_a_closed_zone_again(rig: &mut Rig) -> Verdict {
    bring(rig, ZoneState::Closed)?;
    rig.write(0, 2, 1, 11, Status::Success)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(3))?;
    rig.expect_blocks(0, 0, &[9, 10, 11, 0])
}

fn a_zone_is_finished_from_every_state_that_can_be_written(rig: &mut Rig) -> Verdict {
    for state in [ZoneState::Empty, ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed] {
        bring(rig, state)?;
        rig.manage(ZoneAction::Finish, 0, Status::Success)?;
        rig.expect_zone(0, ZoneState::Full, None)?;
        rig.write(0, 2, 1, 1, Status::ZoneIsFull)?;
    }
    Ok(())
}

fn finishing_a_full_zone_changes_nothing(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(1, 0, capacity, 20)?;
    rig.manage(ZoneAction::Finish, 1, Status::Success)?;
    rig.expect_zone(1, ZoneState::Full, None)?;
    rig.expect_blocks(1, 0, &marks(20, capacity))
}

fn a_finished_zone_reads_as_zeros_after_the_written_blocks(rig: &mut Rig) -> Verdict {
    bring(rig, ZoneState::Full)?;
    let mut expected = vec![0; rig.capacity() as usize];
    (expected[0], expected[1]) = (9, 10);
    rig.expect_blocks(0, 0, &expected)
}

fn a_zone_is_reset_from_every_state_that_was_written(rig: &mut Rig) -> Verdict {
    for state in [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed, ZoneState::Full] {
        bring(rig, state)?;
        rig.manage(ZoneAction::Reset, 0, Status::Success)?;
        rig.expect_zone(0, ZoneState::Empty, Some(0))?;
    }
    Ok(())
}

fn resetting_an_empty_zone_changes_nothing(rig: &mut Rig) -> Verdict {
    rig.manage(ZoneAction::Reset, 4, Status::Success)?;
    rig.expect_zone(4, ZoneState::Empty, Some(0))
}

fn a_reset_zone_loses_its_contents_and_can_be_rewritten(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity, 9)?;
    rig.fill(1, 0, 2, 60)?;
    rig.manage(ZoneAction::Reset, 0, Status::Success)?;
    rig.expect_blocks(0, 0, &vec![0; capacity as usize])?;
    rig.fill(0, 0, 3, 500)?;
    rig.expect_blocks(0, 0, &[500, 501, 502, 0])?;
    rig.expect_blocks(1, 0, &[60, 61, 0])
}

fn only_a_read_only_zone_goes_offline(rig: &mut Rig) -> Verdict {
    for state in [ZoneState::Empty, ZoneState::ImplicitlyOpened, ZoneState::Closed, ZoneState::Full] {
        bring(rig, state)?;
        rig.manage(ZoneAction::Offline, 0, Status::InvalidZoneStateTransition)?;
    }
    rig.expect_zone(0, ZoneState::Full, None)
}

fn an_action_on_the_middle_of_a_zone_is_refused(rig: &mut Rig) -> Verdict {
    for action in [ZoneAction::Close, ZoneAction::Finish, OPEN, ZoneAction::Reset, ZoneAction::Offline] {
        let target = ZoneTarget::Zone(rig.lba(0, 1));
        rig.expect(Operation::ManageZones { action, target }, Status::InvalidField)?;
    }
    Ok(())
}

fn an_action_past_the_namespace_is_out_of_range(rig: &mut Rig) -> Verdict {
    let end = Lba(0) + rig.geometry.namespace_blocks();
    for start in [end, end + Blocks(1)] {
        let target = ZoneTarget::Zone(start);
        rig.expect(Operation::ManageZones { action: ZoneAction::Reset, target }, Status::LbaOutOfRange)?;
    }
    Ok(())
}
