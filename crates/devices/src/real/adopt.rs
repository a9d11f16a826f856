//! The state of a zone as the drive reports it, when the drive is opened and after errors.

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, Geometry, Lba, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use super::{FoundZone, Machine};

impl Machine {
    /// Sets a zone to the state that the drive reports; `false` if that contradicts the limits.
    pub(super) fn adopt(&mut self, zone: ZoneIndex, found: &FoundZone) -> bool {
        adopt(&mut self.table, zone, found)
    }
}

/// A table of the zones that a drive reports, in their order; conventional ones are skipped.
///
/// # Errors
/// The first zone whose state contradicts the limits of the geometry.
pub(crate) fn table_of(geometry: &Geometry, zones: &[FoundZone]) -> Result<ZoneTable, ZoneIndex> {
    let mut table = ZoneTable::new(geometry.clone());
    for (index, found) in zones.iter().enumerate().skip(geometry.conventional_zone_count as usize) {
        let zone = ZoneIndex(index as u32);
        if !adopt(&mut table, zone, found) {
            return Err(zone);
        }
    }
    // They have not changed on their own.
    table.take_changed_zones();
    Ok(table)
}

fn adopt(table: &mut ZoneTable, zone: ZoneIndex, found: &FoundZone) -> bool {
    let geometry = table.geometry();
    let capacity = geometry.zone_capacity_blocks;
    let wanted = found.write_pointer_blocks.min(capacity);
    // A table with this zone alone, to bring it into the state.
    let mut alone = ZoneTable::new(Geometry {
        zone_count: 1,
        conventional_zone_count: 0,
        max_active_zones: None,
        max_open_zones: None,
        ..geometry.clone()
    });
    let (only, start) = (ZoneIndex(0), Lba(0));
    let unlimited = "a table without limits accepts it";
    let manage = |alone: &mut ZoneTable, action| {
        alone.manage(&action, ZoneTarget::Zone(start), &mut Vec::new()).expect(unlimited);
    };
    match found.state {
        ZoneState::NotWritePointer | ZoneState::Empty => {}
        // Where the data of these ends is not reported: all blocks are read from the drive.
        ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => {
            alone.set_written(only, capacity).expect(unlimited);
        }
        ZoneState::ImplicitlyOpened if wanted > Blocks::ZERO && wanted < capacity => {
            alone.set_written(only, Blocks(wanted.0 - 1)).expect(unlimited);
            alone.write(Lba(wanted.0 - 1), Blocks(1), true).expect(unlimited);
        }
        ZoneState::ExplicitlyOpened => {
            alone.set_written(only, wanted).expect(unlimited);
            manage(&mut alone, ZoneAction::Open { zrwa: false });
        }
        ZoneState::Closed | ZoneState::ImplicitlyOpened if wanted == Blocks::ZERO => {
            manage(&mut alone, ZoneAction::Open { zrwa: false });
            manage(&mut alone, ZoneAction::Close);
        }
        ZoneState::Closed | ZoneState::ImplicitlyOpened => {
            alone.set_written(only, wanted).expect(unlimited);
        }
    }
    let has_extension = found.state != ZoneState::Empty && found.state != ZoneState::Offline;
    if let Some(extension) = found.extension.clone().filter(|_| has_extension) {
        assert!(alone.restore_extension(only, extension), "{unlimited}");
    }
    let snapshot = alone.snapshot(only);
    let restored = table.restore(zone, &snapshot);
    if restored && matches!(found.state, ZoneState::ReadOnly | ZoneState::Offline) {
        table.degrade(zone, found.state);
    }
    restored
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(state: ZoneState, write_pointer_blocks: u64) -> FoundZone {
        FoundZone::new(state, Blocks(write_pointer_blocks))
    }

    #[test]
    fn a_table_has_the_states_and_write_pointers_of_the_report() {
        let geometry = Geometry { max_active_zones: None, max_open_zones: None, ..Geometry::tiny() };
        let states = [
            (ZoneState::Empty, 0, 0),
            (ZoneState::ImplicitlyOpened, 5, 5),
            (ZoneState::ExplicitlyOpened, 0, 0),
            (ZoneState::ExplicitlyOpened, 3, 3),
            (ZoneState::Closed, 0, 0),
            (ZoneState::Closed, 11, 11),
            (ZoneState::Full, 16, 12),
            (ZoneState::ReadOnly, 0, 12),
        ];
        let zones: Vec<_> = states.iter().map(|&(state, pointer, _)| found(state, pointer)).collect();
        let mut table = table_of(&geometry, &zones).expect("there are no limits");
        for (zone, (state, _, written)) in (0..).map(ZoneIndex).zip(states) {
            let view = table.zone(zone);
            assert_eq!((view.state, view.written_blocks), (state, Blocks(written)), "zone {zone}");
        }
        assert!(table.take_changed_zones().zones.is_empty(), "a zone that was read only before has not changed");
    }

    #[test]
    fn a_table_has_the_descriptor_extensions_of_the_report() {
        let geometry = Geometry { descriptor_extension_bytes: 64, ..Geometry::tiny() };
        let extension: Box<[u8]> = [7; 64].into();
        let with = |zone: FoundZone| FoundZone { extension: Some(extension.clone()), ..zone };
        let zones = [with(found(ZoneState::Closed, 0)), with(found(ZoneState::Full, 16)), found(ZoneState::Closed, 3)];
        let table = table_of(&geometry, &zones).expect("three may be active");
        let all = zonda_zoned::ReportFilter::All;
        let report = table.report(Lba(0), all, true, true, 3).expect("there are zones");
        let found = report.zones.iter().map(|zone| (zone.state, zone.attributes.extension_valid));
        let expected = [(ZoneState::Closed, true), (ZoneState::Full, true), (ZoneState::Closed, false)];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(report.zones[1].extension, Some(extension));
    }

    #[test]
    fn more_active_zones_than_the_limit_are_an_error_and_more_open_ones_become_closed() {
        let geometry = Geometry::tiny();
        let mut zones = vec![found(ZoneState::Empty, 0); 8];
        zones[..3].fill(found(ZoneState::ImplicitlyOpened, 4));
        let table = table_of(&geometry, &zones).expect("three may be active");
        assert_eq!(table.zone(ZoneIndex(2)).state, ZoneState::Closed, "two may be open");
        zones[5] = found(ZoneState::Closed, 1);
        assert_eq!(table_of(&geometry, &zones), Err(ZoneIndex(5)));
    }
}
