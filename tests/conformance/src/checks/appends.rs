//! Zone Append (3.4.1).

use zonda_zoned::{Blocks, Operation, Outcome, Payload, Status, ZoneState};

use super::{Check, checks, marks};
use crate::rig::{Rig, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    checks![Full:
        an_append_is_written_at_the_write_pointer_and_returns_its_lba,
        appends_in_flight_together_are_consecutive_in_the_order_of_their_submission,
        an_append_that_reaches_the_capacity_makes_the_zone_full,
        an_append_that_does_not_fit_is_refused_and_changes_nothing,
        an_append_to_the_middle_of_a_zone_is_refused,
        an_append_longer_than_its_limit_is_refused,
        an_append_of_no_blocks_is_refused,
        an_append_past_the_namespace_is_out_of_range,
    ]
    .into()
}

/// The block of its zone that an append was written to.
fn appended(rig: &mut Rig, zone: u32, blocks: u64, mark: u64) -> Result<u64, crate::rig::Stop> {
    let append = rig.append_to(zone, blocks, mark);
    let ended = rig.run(append)?;
    ensure!(ended.status.is_success(), "an append of {blocks} blocks ended with \"{}\"", ended.status);
    let Outcome::Appended(lba) = ended.outcome else {
        return Err(crate::rig::Stop::Failed("an append does not return its LBA".to_owned()));
    };
    Ok(lba.0.wrapping_sub(rig.lba(zone, 0).0))
}

fn an_append_is_written_at_the_write_pointer_and_returns_its_lba(rig: &mut Rig) -> Verdict {
    let first = appended(rig, 1, 2, 5)?;
    rig.write(1, 2, 1, 30, Status::Success)?;
    let second = appended(rig, 1, 3, 50)?;
    ensure!((first, second) == (0, 3), "appends were written to blocks {first} and {second}, not 0 and 3");
    rig.expect_zone(1, ZoneState::ImplicitlyOpened, Some(6))?;
    rig.expect_blocks(1, 0, &[5, 6, 30, 50, 51, 52, 0])
}

fn appends_in_flight_together_are_consecutive_in_the_order_of_their_submission(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity().min(48);
    let appends = (0..capacity).map(|block| rig.append_to(2, 1, 40 + block)).collect();
    let ended = rig.run_all(appends, 16)?;
    for (block, completion) in ended.iter().enumerate() {
        let expected = rig.lba(2, block as u64);
        ensure!(
            completion.outcome == Outcome::Appended(expected),
            "append {block} ended with \"{}\" and {:?}, not at {expected}",
            completion.status,
            completion.outcome
        );
    }
    rig.expect_blocks(2, 0, &marks(40, capacity))
}

fn an_append_that_reaches_the_capacity_makes_the_zone_full(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity - 2, 1)?;
    rig.append(0, 2, 90, Status::Success)?;
    rig.expect_zone(0, ZoneState::Full, None)?;
    rig.append(0, 1, 90, Status::ZoneIsFull)
}

fn an_append_that_does_not_fit_is_refused_and_changes_nothing(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity - 2, 1)?;
    rig.append(0, 3, 90, Status::ZoneBoundaryError)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(capacity - 2))?;
    rig.append(0, 1, 90, Status::Success)
}

fn an_append_to_the_middle_of_a_zone_is_refused(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 1, 1)?;
    let append = Operation::Append { zone_start: rig.lba(0, 1), blocks: Blocks(1), payload: rig.payload(1, 1) };
    rig.expect(append, Status::InvalidField)
}

fn an_append_longer_than_its_limit_is_refused(rig: &mut Rig) -> Verdict {
    let most = rig.geometry.max_append_blocks.0;
    rig.append(0, most + 1, 1, Status::InvalidField)?;
    rig.append(0, most, 1, Status::Success)
}

pub(super) fn an_append_of_no_blocks_is_refused(rig: &mut Rig) -> Verdict {
    rig.append(0, 0, 1, Status::InvalidField)
}

pub(super) fn an_append_past_the_namespace_is_out_of_range(rig: &mut Rig) -> Verdict {
    let zone_start = rig.geometry.zone_start(zonda_zoned::ZoneIndex(rig.geometry.zone_count));
    let append = Operation::Append { zone_start, blocks: Blocks(1), payload: Payload::None };
    rig.expect(append, Status::LbaOutOfRange)
}
