//! Write (3.3.7).

use zonda_zoned::{Blocks, Lba, Operation, Payload, Status, ZoneState};

use super::{Check, checks, marks};
use crate::rig::{Rig, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    checks![Full:
        a_write_opens_an_empty_zone_implicitly_and_moves_its_write_pointer,
        writes_in_flight_together_take_effect_in_the_order_of_their_submission,
        a_write_elsewhere_than_at_the_write_pointer_is_refused_and_changes_nothing,
        a_write_that_reaches_the_capacity_makes_the_zone_full,
        a_write_past_the_capacity_is_refused_and_changes_nothing,
        a_full_zone_refuses_a_write,
        a_write_without_contents_is_a_write_of_zeros,
        a_write_of_no_blocks_is_refused,
        a_write_longer_than_a_transfer_is_refused,
        a_write_past_the_namespace_is_out_of_range,
        a_payload_of_another_size_is_refused,
    ]
    .into()
}

fn a_write_opens_an_empty_zone_implicitly_and_moves_its_write_pointer(rig: &mut Rig) -> Verdict {
    rig.expect_zone(3, ZoneState::Empty, Some(0))?;
    rig.write(3, 0, 1, 7, Status::Success)?;
    rig.expect_zone(3, ZoneState::ImplicitlyOpened, Some(1))?;
    rig.write(3, 1, 4, 8, Status::Success)?;
    rig.expect_zone(3, ZoneState::ImplicitlyOpened, Some(5))?;
    rig.expect_zone(2, ZoneState::Empty, Some(0))
}

pub(super) fn writes_in_flight_together_take_effect_in_the_order_of_their_submission(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity().min(48);
    let writes = (0..capacity).map(|block| rig.write_at(rig.lba(1, block), 1, 40 + block)).collect();
    let ended = rig.run_all(writes, 16)?;
    for (block, completion) in ended.iter().enumerate() {
        ensure!(completion.status.is_success(), "the write of block {block} ended with \"{}\"", completion.status);
    }
    rig.expect_blocks(1, 0, &marks(40, capacity))
}

fn a_write_elsewhere_than_at_the_write_pointer_is_refused_and_changes_nothing(rig: &mut Rig) -> Verdict {
    rig.write(0, 1, 1, 3, Status::ZoneInvalidWrite)?;
    rig.expect_zone(0, ZoneState::Empty, Some(0))?;
    rig.fill(0, 0, 4, 9)?;
    for block in [0, 3, 5, 7] {
        rig.write(0, block, 1, 77, Status::ZoneInvalidWrite)?;
    }
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(4))?;
    rig.expect_blocks(0, 0, &[9, 10, 11, 12, 0, 0, 0, 0])
}

fn a_write_that_reaches_the_capacity_makes_the_zone_full(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity - 1, 1)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(capacity - 1))?;
    rig.write(0, capacity - 1, 1, 99, Status::Success)?;
    rig.expect_zone(0, ZoneState::Full, None)
}

fn a_write_past_the_capacity_is_refused_and_changes_nothing(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity - 2, 1)?;
    rig.write(0, capacity - 2, 3, 99, Status::ZoneBoundaryError)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(capacity - 2))?;
    rig.expect_blocks(0, capacity - 3, &[capacity - 3 + 1, 0, 0])
}

fn a_full_zone_refuses_a_write(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity, 1)?;
    rig.write(0, 0, 1, 99, Status::ZoneIsFull)?;
    rig.write(0, capacity, 1, 99, Status::ZoneIsFull)?;
    rig.expect_blocks(0, 0, &marks(1, capacity))
}

pub(super) fn a_write_without_contents_is_a_write_of_zeros(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 2, 5)?;
    let write = Operation::Write { start: rig.lba(0, 2), blocks: Blocks(2), payload: Payload::None };
    rig.expect(write, Status::Success)?;
    rig.fill(0, 4, 5, 8)?;
    rig.expect_blocks(0, 0, &[5, 6, 0, 0, 8])
}

pub(super) fn a_write_of_no_blocks_is_refused(rig: &mut Rig) -> Verdict {
    rig.write(0, 0, 0, 1, Status::InvalidField)
}

pub(super) fn a_write_longer_than_a_transfer_is_refused(rig: &mut Rig) -> Verdict {
    let most = rig.geometry.max_transfer_blocks.0;
    rig.write(0, 0, most + 1, 1, Status::InvalidField)?;
    rig.write(0, 0, most, 1, Status::Success)
}

pub(super) fn a_write_past_the_namespace_is_out_of_range(rig: &mut Rig) -> Verdict {
    let end = rig.geometry.namespace_blocks().0;
    for (start, blocks) in [(end - 1, 2), (end, 1), (u64::MAX, 1)] {
        rig.expect(rig.write_at(Lba(start), blocks, 1), Status::LbaOutOfRange)?;
    }
    Ok(())
}

fn a_payload_of_another_size_is_refused(rig: &mut Rig) -> Verdict {
    let payload = rig.payload(5, 2);
    if payload == Payload::None {
        return Ok(());
    }
    let write = Operation::Write { start: rig.lba(0, 0), blocks: Blocks(1), payload: payload.clone() };
    rig.expect(write, Status::InvalidField)?;
    let append = Operation::Append { zone_start: rig.lba(0, 0), blocks: Blocks(3), payload };
    rig.expect(append, Status::InvalidField)?;
    rig.expect_zone(0, ZoneState::Empty, Some(0))
}
