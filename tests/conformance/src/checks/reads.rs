//! Read (3.3.5).

use zonda_zoned::{Blocks, Lba, Operation, Status};

use super::{Check, checks, marks};
use crate::rig::{Rig, Verdict};

pub(super) fn checks() -> Vec<Check> {
    let full = checks![Full:
        an_unwritten_zone_reads_as_zeros,
        a_read_from_any_block_returns_what_was_written,
        blocks_beyond_the_write_pointer_read_as_zeros,
        blocks_between_capacity_and_size_read_as_zeros,
        a_read_may_cross_the_end_of_a_zone_if_the_namespace_allows_it,
        a_read_of_no_blocks_is_refused,
        a_read_longer_than_a_transfer_is_refused,
        a_read_past_the_namespace_is_out_of_range,
    ];
    full.into_iter()
        .chain(checks![Bare: a_read_across_the_end_of_a_zone_is_refused_if_the_namespace_forbids_it])
        .collect()
}

fn read(start: Lba, blocks: u64) -> Operation {
    Operation::Read { start, blocks: Blocks(blocks) }
}

fn an_unwritten_zone_reads_as_zeros(rig: &mut Rig) -> Verdict {
    rig.expect_blocks(0, 0, &vec![0; rig.capacity() as usize])?;
    rig.expect_blocks(5, 1, &[0, 0])
}

fn a_read_from_any_block_returns_what_was_written(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(1, 0, capacity, 100)?;
    rig.fill(2, 0, 3, 5000)?;
    rig.expect_blocks(1, 0, &marks(100, capacity))?;
    for from in [1, 2, 5, capacity - 1] {
        rig.expect_blocks(1, from, &marks(100 + from, capacity - from))?;
    }
    rig.expect_blocks(2, 0, &marks(5000, 3))
}

fn blocks_beyond_the_write_pointer_read_as_zeros(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 2, 9)?;
    rig.expect_blocks(0, 0, &[9, 10, 0, 0])?;
    rig.expect_blocks(0, 2, &[0])
}

fn blocks_between_capacity_and_size_read_as_zeros(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity, 9)?;
    rig.expect_blocks(0, capacity - 1, &[9 + capacity - 1, 0, 0])
}

fn a_read_may_cross_the_end_of_a_zone_if_the_namespace_allows_it(rig: &mut Rig) -> Verdict {
    rig.fill(1, 0, 2, 9)?;
    let size = rig.geometry.zone_size_blocks.0;
    rig.expect_blocks(0, size - 2, &[0, 0, 9, 10, 0])
}

fn a_read_across_the_end_of_a_zone_is_refused_if_the_namespace_forbids_it(rig: &mut Rig) -> Verdict {
    rig.forbids_reads_across_zones()?;
    let size = rig.geometry.zone_size_blocks.0;
    rig.expect(read(rig.lba(0, size - 1), 2), Status::ZoneBoundaryError)?;
    rig.expect(read(rig.lba(0, size - 1), 1), Status::Success)
}

pub(super) fn a_read_of_no_blocks_is_refused(rig: &mut Rig) -> Verdict {
    rig.expect(read(rig.lba(0, 0), 0), Status::InvalidField)
}

pub(super) fn a_read_longer_than_a_transfer_is_refused(rig: &mut Rig) -> Verdict {
    let most = rig.geometry.max_transfer_blocks.0;
    rig.expect(read(rig.lba(0, 0), most), Status::Success)?;
    rig.expect(read(rig.lba(0, 0), most + 1), Status::InvalidField)
}

pub(super) fn a_read_past_the_namespace_is_out_of_range(rig: &mut Rig) -> Verdict {
    let end = rig.geometry.namespace_blocks().0;
    rig.expect(read(Lba(end - 1), 1), Status::Success)?;
    for (start, blocks) in [(end - 1, 2), (end, 1), (u64::MAX, 1), (u64::MAX - 1, 2)] {
        rig.expect(read(Lba(start), blocks), Status::LbaOutOfRange)?;
    }
    Ok(())
}
