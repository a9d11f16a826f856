//! The rules, one sentence each, on tables small enough that every edge is near.

mod manage;
mod power;
mod random;
mod read;
mod report;
mod resources;
mod write;
mod zrwa;

use std::fmt::Debug;

use super::*;
use crate::{Status, ZoneAction, ZoneTarget, ZrwaGeometry};

const OPEN: ZoneAction = ZoneAction::Open { zrwa: false };
const OPEN_WITH_ZRWA: ZoneAction = ZoneAction::Open { zrwa: true };

/// Zones of 16 blocks, 12 of them writable; three active, two open.
fn tiny() -> ZoneTable {
    ZoneTable::new(Geometry::tiny())
}

fn table(change: impl FnOnce(&mut Geometry)) -> ZoneTable {
    let mut geometry = Geometry::tiny();
    change(&mut geometry);
    ZoneTable::new(geometry)
}

/// As `tiny`, with two ZRWAs of four blocks that are committed two by two.
fn with_zrwa() -> ZoneTable {
    table(|geometry| geometry.zrwa = Some(zrwa()))
}

fn zrwa() -> ZrwaGeometry {
    ZrwaGeometry { size_blocks: Blocks(4), flush_granularity_blocks: Blocks(2), resources: 2, explicit_flush: true }
}

/// Two conventional zones and six sequential ones, all of 16 blocks.
fn with_conventional() -> ZoneTable {
    table(|geometry| {
        geometry.conventional_zone_count = 2;
        geometry.zone_capacity_blocks = Blocks(16);
    })
}

/// A block of a zone.
fn at(zone: u32, offset: u64) -> Lba {
    Lba(u64::from(zone) * 16 + offset)
}

fn state(table: &ZoneTable, zone: u32) -> ZoneState {
    table.zone(ZoneIndex(zone)).state
}

fn write_pointer(table: &ZoneTable, zone: u32) -> u64 {
    table.zone(ZoneIndex(zone)).write_pointer_blocks.0
}

fn written(table: &ZoneTable, zone: u32) -> u64 {
    table.zone(ZoneIndex(zone)).written_blocks.0
}

#[track_caller]
fn write(table: &mut ZoneTable, zone: u32, offset: u64, blocks: u64) -> WriteGrant {
    table.write(at(zone, offset), Blocks(blocks), true).unwrap()
}

/// Writes a zone full, in two writes.
#[track_caller]
fn fill(table: &mut ZoneTable, zone: u32) {
    write(table, zone, 0, 8);
    assert!(write(table, zone, 8, 4).filled);
}

fn set_extension(byte: u8, zrwa: bool) -> ZoneAction {
    ZoneAction::SetDescriptorExtension { extension: vec![byte; 64].into(), zrwa }
}

fn attempt(table: &mut ZoneTable, action: &ZoneAction, target: ZoneTarget) -> Result<Vec<ZoneEffect>, Status> {
    let mut effects = Vec::new();
    let result = table.manage(action, target, &mut effects);
    assert!(result.is_ok() || effects.is_empty(), "a refused action has effects");
    table.check_invariants();
    result.map(|()| effects)
}

/// Applies an action to the zone of this number; it must succeed.
#[track_caller]
fn manage(table: &mut ZoneTable, action: &ZoneAction, zone: u32) -> Vec<ZoneEffect> {
    attempt(table, action, ZoneTarget::Zone(at(zone, 0))).unwrap()
}

#[track_caller]
fn manage_all(table: &mut ZoneTable, action: &ZoneAction) -> Vec<ZoneEffect> {
    attempt(table, action, ZoneTarget::All).unwrap()
}

/// The status with which an action is refused; nothing may change.
#[track_caller]
fn refused(table: &mut ZoneTable, action: &ZoneAction, zone: u32) -> Status {
    refusal(table, |table| attempt(table, action, ZoneTarget::Zone(at(zone, 0))))
}

/// The status with which something is refused; nothing may change.
#[track_caller]
fn refusal<T: Debug>(table: &mut ZoneTable, act: impl FnOnce(&mut ZoneTable) -> Result<T, Status>) -> Status {
    let before = table.clone();
    let status = act(table).unwrap_err();
    assert_eq!(*table, before, "a refused command changed something");
    status
}

/// Brings an empty zone into a state. Of the active states and full, four blocks are written.
fn bring(table: &mut ZoneTable, zone: u32, to: ZoneState) {
    match to {
        ZoneState::Empty | ZoneState::NotWritePointer => {}
        ZoneState::ImplicitlyOpened => {
            write(table, zone, 0, 4);
        }
        ZoneState::ExplicitlyOpened => {
            manage(table, &OPEN, zone);
            write(table, zone, 0, 4);
        }
        ZoneState::Closed => {
            write(table, zone, 0, 4);
            manage(table, &ZoneAction::Close, zone);
        }
        ZoneState::Full => {
            write(table, zone, 0, 4);
            manage(table, &ZoneAction::Finish, zone);
        }
        ZoneState::ReadOnly | ZoneState::Offline => table.degrade(ZoneIndex(zone), to),
    }
    assert_eq!(state(table, zone), to);
}

/// Zones 0 to 6 each in one of the states, in the order of `SEQUENTIAL`, and zone 7 empty.
fn one_zone_in_each_state() -> ZoneTable {
    let mut table = tiny();
    // Backwards, so that the open zones come last and the controller closes none.
    for (zone, to) in (0..).zip(ZoneState::SEQUENTIAL).collect::<Vec<_>>().into_iter().rev() {
        bring(&mut table, zone, to);
    }
    table
}

#[test]
fn a_new_table_has_empty_zones_behind_conventional_ones_and_holds_nothing() {
    let table = with_conventional();
    table.check_invariants();
    assert_eq!(state(&table, 1), ZoneState::NotWritePointer);
    assert_eq!(table.zone(ZoneIndex(1)).zone_type, ZoneType::Conventional);
    assert_eq!(state(&table, 2), ZoneState::Empty);
    assert_eq!((table.active_zones(), table.open_zones(), table.zrwa_in_use()), (0, 0, 0));
    assert_eq!(table.geometry().conventional_zone_count, 2);
}

#[test]
#[should_panic(expected = "zone_count")]
fn an_invalid_geometry_is_refused() {
    table(|geometry| geometry.zone_count = 0);
}

#[test]
fn a_block_is_found_in_its_zone_whatever_the_zone_size() {
    for size in [12, 13, 16, 64] {
        let table = table(|geometry| geometry.zone_size_blocks = Blocks(size));
        for lba in 0..8 * size {
            assert_eq!(table.locate(lba), (ZoneIndex((lba / size) as u32), lba % size), "block {lba} of {size}");
        }
    }
}

#[test]
fn readable_blocks_end_at_the_last_written_block_and_an_offline_zone_has_none() {
    let mut table = tiny();
    bring(&mut table, 0, ZoneState::Full);
    assert_eq!(table.readable_blocks(ZoneIndex(0)), Blocks(4), "a finished zone reads as zeros behind its data");
    table.degrade(ZoneIndex(0), ZoneState::ReadOnly);
    assert_eq!(table.readable_blocks(ZoneIndex(0)), Blocks(4));
    manage(&mut table, &ZoneAction::Offline, 0);
    assert_eq!(table.readable_blocks(ZoneIndex(0)), Blocks(0));
    assert_eq!(written(&table, 0), 4);
}
