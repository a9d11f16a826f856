//! Write Zeroes (3.3.9), Deallocate (3.3.3), Flush, metadata.

use zonda_zoned::{Blocks, Lba, LbaRange, Operation, Status, ZoneState};

use super::{Check, checks, marks};
use crate::rig::{Rig, Verdict};

pub(super) fn checks() -> Vec<Check> {
    let full = checks![Full:
        write_zeroes_moves_the_write_pointer_and_reads_as_zeros,
        write_zeroes_may_be_longer_than_a_transfer,
        write_zeroes_follows_the_rules_of_writes,
        deallocated_blocks_read_as_zeros_and_the_write_pointer_stays,
        deallocation_accepts_ranges_over_zones_and_beyond_write_pointers,
        a_deallocation_without_ranges_or_with_too_many_is_refused,
        a_deallocation_past_the_namespace_is_out_of_range_and_changes_nothing,
        writes_to_a_deallocated_zone_continue_at_its_write_pointer,
        a_flush_succeeds_and_changes_nothing,
    ];
    full.into_iter().chain(checks![Metadata: metadata_is_read_back_with_its_block]).collect()
}

fn write_zeroes(rig: &Rig, zone: u32, block: u64, blocks: u64) -> Operation {
    Operation::WriteZeroes { start: rig.lba(zone, block), blocks: Blocks(blocks) }
}

fn deallocate(ranges: &[(Lba, u64)]) -> Operation {
    let range = |&(start, blocks): &(Lba, u64)| LbaRange { start, blocks: Blocks(blocks) };
    Operation::Deallocate { ranges: ranges.iter().map(range).collect() }
}

fn write_zeroes_moves_the_write_pointer_and_reads_as_zeros(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 1, 5)?;
    rig.expect(write_zeroes(rig, 0, 1, 2), Status::Success)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(3))?;
    rig.fill(0, 3, 4, 7)?;
    rig.expect_blocks(0, 0, &[5, 0, 0, 7, 0])
}

fn write_zeroes_may_be_longer_than_a_transfer(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.expect(write_zeroes(rig, 0, 0, capacity), Status::Success)?;
    rig.expect_zone(0, ZoneState::Full, None)
}

fn write_zeroes_follows_the_rules_of_writes(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.expect(write_zeroes(rig, 0, 1, 1), Status::ZoneInvalidWrite)?;
    rig.expect(write_zeroes(rig, 0, 0, capacity + 1), Status::ZoneBoundaryError)?;
    rig.manage(zonda_zoned::ZoneAction::Finish, 0, Status::Success)?;
    rig.expect(write_zeroes(rig, 0, 0, 1), Status::ZoneIsFull)
}

fn deallocated_blocks_read_as_zeros_and_the_write_pointer_stays(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 8, 20)?;
    rig.expect(deallocate(&[(rig.lba(0, 2), 3), (rig.lba(0, 7), 1)]), Status::Success)?;
    rig.expect_blocks(0, 0, &[20, 21, 0, 0, 0, 25, 26, 0])?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(8))
}

pub(super) fn deallocation_accepts_ranges_over_zones_and_beyond_write_pointers(rig: &mut Rig) -> Verdict {
    let size = rig.geometry.zone_size_blocks.0;
    rig.fill(0, 0, 4, 20)?;
    rig.fill(1, 0, 4, 40)?;
    rig.expect(deallocate(&[(rig.lba(0, 3), size - 1)]), Status::Success)?;
    rig.expect_blocks(0, 0, &[20, 21, 22, 0])?;
    rig.expect_blocks(1, 0, &[0, 0, 42, 43])
}

pub(super) fn a_deallocation_without_ranges_or_with_too_many_is_refused(rig: &mut Rig) -> Verdict {
    let one = (rig.lba(0, 0), 1);
    rig.expect(deallocate(&[one; 256]), Status::Success)?;
    rig.expect(deallocate(&[(rig.lba(0, 0), 0)]), Status::InvalidField)?;
    rig.expect(deallocate(&[]), Status::InvalidField)?;
    rig.expect(deallocate(&[one; 257]), Status::InvalidField)
}

pub(super) fn a_deallocation_past_the_namespace_is_out_of_range_and_changes_nothing(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 2, 20)?;
    let last = Lba(rig.geometry.namespace_blocks().0 - 1);
    rig.expect(deallocate(&[(rig.lba(0, 0), 1), (last, 2)]), Status::LbaOutOfRange)?;
    rig.expect_blocks(0, 0, &[20, 21])
}

fn writes_to_a_deallocated_zone_continue_at_its_write_pointer(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, 3, 20)?;
    rig.expect(deallocate(&[(rig.lba(0, 0), capacity)]), Status::Success)?;
    rig.write(0, 0, 1, 9, Status::ZoneInvalidWrite)?;
    rig.fill(0, 3, 5, 90)?;
    rig.expect_blocks(0, 0, &[0, 0, 0, 90, 91])
}

fn a_flush_succeeds_and_changes_nothing(rig: &mut Rig) -> Verdict {
    rig.expect(Operation::Flush, Status::Success)?;
    rig.fill(0, 0, 2, 20)?;
    rig.expect(Operation::Flush, Status::Success)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(2))?;
    rig.expect_blocks(0, 0, &marks(20, 2))
}

fn metadata_is_read_back_with_its_block(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity, 20)?;
    rig.expect_blocks(0, 0, &marks(20, capacity))?;
    rig.expect(deallocate(&[(rig.lba(0, 1), 1)]), Status::Success)?;
    rig.expect_blocks(0, 0, &[20, 0, 22])
}
