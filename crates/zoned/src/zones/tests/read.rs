//! Read and Deallocate.

use super::*;
use crate::LbaRange;

fn read(table: &ZoneTable, start: Lba, blocks: u64) -> Result<(), Status> {
    table.check_read(start, Blocks(blocks))
}

fn deallocate(table: &ZoneTable, ranges: &[(Lba, u64)]) -> Result<(), Status> {
    let ranges: Vec<LbaRange> =
        ranges.iter().map(|&(start, blocks)| LbaRange { start, blocks: Blocks(blocks) }).collect();
    table.check_deallocate(&ranges)
}

#[test]
fn a_read_of_nothing_or_of_more_than_a_transfer_is_an_invalid_field_even_past_the_namespace() {
    let table = tiny();
    assert_eq!(read(&table, Lba(1000), 0), Err(Status::InvalidField));
    assert_eq!(read(&table, Lba(1000), 9), Err(Status::InvalidField));
    assert_eq!(read(&table, at(0, 0), 8), Ok(()));
}

#[test]
fn a_read_past_the_namespace_is_out_of_range_even_from_an_offline_zone() {
    let mut table = tiny();
    table.degrade(ZoneIndex(7), ZoneState::Offline);
    assert_eq!(read(&table, at(7, 9), 8), Err(Status::LbaOutOfRange));
    assert_eq!(read(&table, Lba(u64::MAX), 2), Err(Status::LbaOutOfRange), "the sum overflows");
    assert_eq!(read(&table, at(7, 8), 8), Err(Status::ZoneIsOffline));
}

#[test]
fn an_offline_zone_is_not_read_and_every_other_state_is() {
    for to in ZoneState::SEQUENTIAL {
        let mut table = tiny();
        bring(&mut table, 0, to);
        let expected = if to == ZoneState::Offline { Err(Status::ZoneIsOffline) } else { Ok(()) };
        assert_eq!(read(&table, at(0, 2), 8), expected, "{to}");
    }
}

#[test]
fn the_gap_behind_the_capacity_is_read() {
    assert_eq!(read(&tiny(), at(3, 12), 4), Ok(()));
}

#[test]
fn without_read_across_zones_a_read_ends_with_its_zone() {
    let mut table = table(|geometry| geometry.read_across_zones = false);
    assert_eq!(read(&table, at(0, 8), 8), Ok(()));
    assert_eq!(read(&table, at(0, 9), 8), Err(Status::ZoneBoundaryError));
    table.degrade(ZoneIndex(1), ZoneState::Offline);
    assert_eq!(read(&table, at(0, 9), 8), Err(Status::ZoneBoundaryError), "the other zone is not looked at");
    table.degrade(ZoneIndex(0), ZoneState::Offline);
    assert_eq!(read(&table, at(0, 9), 8), Err(Status::ZoneIsOffline), "the first zone comes before the boundary");
}

#[test]
fn a_read_across_zones_needs_all_of_them_online() {
    let mut table = table(|geometry| geometry.max_transfer_blocks = Blocks(40));
    assert_eq!(read(&table, at(0, 15), 40), Ok(()));
    table.degrade(ZoneIndex(3), ZoneState::Offline);
    assert_eq!(read(&table, at(0, 15), 33), Ok(()), "the third zone is not touched");
    assert_eq!(read(&table, at(0, 15), 34), Err(Status::ZoneIsOffline), "the last block lies in zone 3");
}

#[test]
fn conventional_zones_have_no_boundary_between_them() {
    let mut table = with_conventional();
    table.geometry.read_across_zones = false;
    assert_eq!(read(&table, at(0, 12), 8), Ok(()));
    assert_eq!(read(&table, at(1, 8), 8), Ok(()));
    assert_eq!(read(&table, at(1, 9), 8), Err(Status::ZoneBoundaryError), "into the first sequential zone");
}

#[test]
fn a_deallocation_has_1_to_256_ranges() {
    let table = tiny();
    assert_eq!(deallocate(&table, &[]), Err(Status::InvalidField));
    assert_eq!(deallocate(&table, &[(at(0, 0), 1); 256]), Ok(()));
    assert_eq!(deallocate(&table, &[(at(0, 0), 1); 257]), Err(Status::InvalidField));
}

#[test]
fn the_first_faulty_range_gives_the_status() {
    let table = tiny();
    assert_eq!(deallocate(&table, &[(at(0, 0), 0), (at(7, 15), 2)]), Err(Status::InvalidField));
    assert_eq!(deallocate(&table, &[(at(7, 15), 2), (at(0, 0), 0)]), Err(Status::LbaOutOfRange));
    assert_eq!(deallocate(&table, &[(Lba(1), u64::MAX)]), Err(Status::LbaOutOfRange));
    assert_eq!(deallocate(&table, &[(Lba(1000), 0)]), Err(Status::InvalidField));
    assert_eq!(deallocate(&table, &[(at(0, 0), 128)]), Ok(()), "a range may be all of the namespace");
}

#[test]
fn zones_of_a_deallocation_are_looked_at_after_all_ranges_and_in_order() {
    let mut table = tiny();
    table.degrade(ZoneIndex(2), ZoneState::Offline);
    table.degrade(ZoneIndex(4), ZoneState::ReadOnly);
    assert_eq!(deallocate(&table, &[(at(2, 0), 1), (at(0, 0), 0)]), Err(Status::InvalidField));
    assert_eq!(deallocate(&table, &[(at(1, 0), 64)]), Err(Status::ZoneIsOffline));
    assert_eq!(deallocate(&table, &[(at(3, 0), 17), (at(2, 0), 1)]), Err(Status::ZoneIsReadOnly));
    assert_eq!(deallocate(&table, &[(at(3, 0), 16), (at(1, 15), 1), (at(5, 0), 48)]), Ok(()));
}
