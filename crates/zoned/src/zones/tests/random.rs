//! Random operations on small tables: the invariants hold after each, and a refused one changes
//! nothing.

use proptest::prelude::*;

use super::*;
use crate::{LbaRange, ReportFilter};

/// One thing done to a table; zones are counted modulo the table's.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64),
    WriteAtPointer(u32, u64),
    WriteZeroes(u64, u64),
    Append(u64, u64),
    Look(u64, u64),
    Manage(ZoneAction, ZoneTarget),
    Flush(u32, u64),
    Degrade(u32, bool),
    PowerCycle,
    TakeSnapshot(u32),
    Restore,
    Truncate(u32, u64),
    SetWritten(u32, u64),
    TakeChanged,
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (0u32..3, any::<bool>(), 0u32..5, 0u32..4, any::<bool>()).prop_map(|(conventional, zrwas, active, open, odd)| {
        let mut geometry = Geometry::tiny();
        geometry.zone_size_blocks = Blocks(if odd { 13 } else { 16 });
        geometry.conventional_zone_count = conventional;
        if conventional > 0 {
            geometry.zone_size_blocks = geometry.zone_capacity_blocks;
        }
        geometry.zrwa = zrwas.then(zrwa);
        geometry.max_active_zones = (active > 0).then_some(active);
        geometry.max_open_zones = match (active, open) {
            (0, 0) => None,
            (0, open) => Some(open),
            (active, open) => Some(open.clamp(1, active)),
        };
        geometry
    })
}

fn step() -> impl Strategy<Value = Step> {
    let zone = 0u32..8;
    let action = prop_oneof![
        3 => Just(ZoneAction::Close),
        2 => Just(ZoneAction::Finish),
        4 => Just(OPEN),
        4 => Just(OPEN_WITH_ZRWA),
        4 => Just(ZoneAction::Reset),
        1 => Just(ZoneAction::Offline),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(byte, zrwa)| set_extension(byte, zrwa)),
        1 => Just(ZoneAction::FlushZrwa),
    ];
    // Numbers of zones stand for their starts, to be multiplied by the zone size of the table at
    // hand.
    let target = prop_oneof![
        8 => (0u64..9).prop_map(|zone| ZoneTarget::Zone(Lba(zone))),
        1 => Just(ZoneTarget::All),
    ];
    prop_oneof![
        4 => (0u64..130, 0u64..10).prop_map(|(start, blocks)| Step::Write(start, blocks)),
        12 => (zone.clone(), 1u64..9).prop_map(|(zone, blocks)| Step::WriteAtPointer(zone, blocks)),
        1 => (0u64..130, prop_oneof![0u64..30, Just(u64::MAX)]).prop_map(|(start, blocks)| Step::WriteZeroes(start, blocks)),
        4 => (0u64..9, 0u64..6).prop_map(|(zone, blocks)| Step::Append(zone, blocks)),
        1 => (0u64..140, 0u64..10).prop_map(|(start, blocks)| Step::Look(start, blocks)),
        12 => (action, target).prop_map(|(action, target)| Step::Manage(action, target)),
        4 => (zone.clone(), 0u64..9).prop_map(|(zone, ahead)| Step::Flush(zone, ahead)),
        1 => (zone.clone(), any::<bool>()).prop_map(|(zone, offline)| Step::Degrade(zone, offline)),
        1 => Just(Step::PowerCycle),
        2 => zone.clone().prop_map(Step::TakeSnapshot),
        2 => Just(Step::Restore),
        2 => (zone.clone(), 0u64..12).prop_map(|(zone, back)| Step::Truncate(zone, back)),
        2 => (zone, 0u64..13).prop_map(|(zone, blocks)| Step::SetWritten(zone, blocks)),
        1 => Just(Step::TakeChanged),
    ]
}

/// Does one step. False if it was refused, and so must not have changed anything.
fn run(table: &mut ZoneTable, step: &Step, kept: &mut Option<(ZoneIndex, ZoneSnapshot)>) -> bool {
    let size = table.geometry().zone_size_blocks.0;
    let start = |zone: u32, offset: u64| Lba(u64::from(zone) * size + offset);
    match step.clone() {
        Step::Write(start, blocks) => table.write(Lba(start), Blocks(blocks), true).is_ok(),
        Step::WriteAtPointer(zone, blocks) => {
            table.write(start(zone, write_pointer(table, zone)), Blocks(blocks), true).is_ok_and(|grant| {
                assert_ne!(grant.closed, Some(grant.zone));
                true
            })
        }
        Step::WriteZeroes(start, blocks) => table.write_zeroes(Lba(start), Blocks(blocks)).is_ok(),
        Step::Append(zone, blocks) => table.append(start(zone as u32, 0), Blocks(blocks), true).is_ok(),
        Step::Look(start, blocks) => {
            let range = LbaRange { start: Lba(start), blocks: Blocks(blocks) };
            let _ = (table.check_read(range.start, range.blocks), table.check_deallocate(&[range]));
            let _ = table.report(range.start, ReportFilter::All, true, false, blocks as u32);
            false
        }
        Step::Manage(action, target) => {
            let target = match target {
                ZoneTarget::Zone(zone) => ZoneTarget::Zone(start(zone.0 as u32, 0)),
                ZoneTarget::All => ZoneTarget::All,
            };
            attempt(table, &action, target).is_ok_and(|effects| !effects.is_empty())
        }
        Step::Flush(zone, ahead) => {
            let offset = (write_pointer(table, zone) + ahead).min(size - 1);
            attempt(table, &ZoneAction::FlushZrwa, ZoneTarget::Zone(start(zone, offset))).is_ok()
        }
        Step::Degrade(zone, offline) => {
            if !table.is_conventional(ZoneIndex(zone)) {
                table.degrade(ZoneIndex(zone), if offline { ZoneState::Offline } else { ZoneState::ReadOnly });
            }
            true
        }
        Step::PowerCycle => {
            table.power_cycle();
            true
        }
        Step::TakeSnapshot(zone) => {
            *kept = Some((ZoneIndex(zone), table.snapshot(ZoneIndex(zone))));
            false
        }
        Step::Restore => kept.as_ref().is_some_and(|(zone, snapshot)| table.restore(*zone, snapshot)),
        Step::Truncate(zone, back) => {
            let entry = *table.entry(ZoneIndex(zone));
            let free = !table.is_conventional(ZoneIndex(zone)) && !entry.had_zrwa && !entry.finished_by_host;
            free && table.truncate(ZoneIndex(zone), Blocks(entry.write_pointer.saturating_sub(back)))
        }
        Step::SetWritten(zone, blocks) => {
            let free = matches!(state(table, zone), ZoneState::Empty | ZoneState::NotWritePointer);
            free && table.set_written(ZoneIndex(zone), Blocks(blocks.min(12))).is_ok()
        }
        Step::TakeChanged => {
            table.take_changed_zones();
            true
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_through_any_operations_and_refusals_change_nothing(
        geometry in geometry(),
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut table = ZoneTable::new(geometry);
        let mut kept = None;
        for step in &steps {
            let before = table.clone();
            let done = run(&mut table, step, &mut kept);
            table.check_invariants();
            prop_assert!(done || table == before, "{step:?} was refused and changed something");
        }
    }
}
