//! Rebuilds the zones of a [`ZoneTable`] from their state on the media.

use zonda_zoned::zones::{ZoneSnapshot, ZoneTable, ZoneView};
use zonda_zoned::{Blocks, Geometry, Lba, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use crate::format::entry::{Entry, RecordedState};

const ZONE: ZoneIndex = ZoneIndex(0);
const START: ZoneTarget = ZoneTarget::Zone(Lba(0));

/// Builds zones in a scratch table of one zone without limits, where every transition is allowed.
#[derive(Debug)]
pub(crate) struct Builder {
    scratch: ZoneTable,
}

impl Builder {
    pub(crate) fn new(geometry: &Geometry) -> Builder {
        let mut geometry = Geometry {
            zone_count: 1,
            conventional_zone_count: 0,
            max_active_zones: None,
            max_open_zones: None,
            ..geometry.clone()
        };
        if let Some(zrwa) = &mut geometry.zrwa {
            zrwa.explicit_flush = true;
        }
        Builder { scratch: ZoneTable::new(geometry) }
    }

    /// A sequential zone with this write pointer and high-water mark: closed if it is active.
    pub(crate) fn zone(&self, entry: &Entry, extension: Option<&[u8]>, pointer: u64, written: u64) -> ZoneSnapshot {
        let mut table = self.scratch.clone();
        if let Some(extension) = extension {
            let action = ZoneAction::SetDescriptorExtension { extension: extension.into(), zrwa: entry.had_zrwa };
            manage(&mut table, &action, START);
        } else if entry.had_zrwa {
            manage(&mut table, &ZoneAction::Open { zrwa: true }, START);
        }
        if entry.had_zrwa {
            self.fill_zrwa(&mut table, pointer, written);
        } else if pointer > 0 {
            table.write_zeroes(Lba(0), Blocks(pointer)).expect("the zone accepts a write up to its pointer");
        }
        if entry.state == RecordedState::Finished {
            manage(&mut table, &ZoneAction::Finish, START);
        }
        if table.zone(ZONE).state.is_open() {
            manage(&mut table, &ZoneAction::Close, START);
        }
        match entry.state {
            RecordedState::ReadOnly => table.degrade(ZONE, ZoneState::ReadOnly),
            RecordedState::Offline => table.degrade(ZONE, ZoneState::Offline),
            RecordedState::Writable | RecordedState::Finished => {}
        }
        table.snapshot(ZONE)
    }

    /// The zone in a snapshot.
    pub(crate) fn view(&self, snapshot: &ZoneSnapshot) -> ZoneView {
        let mut table = self.scratch.clone();
        assert!(table.restore(ZONE, snapshot), "the scratch table has no limits, and one zone needs one ZRWA");
        table.zone(ZONE)
    }

    /// Commits up to `pointer` and writes the last block before `written`.
    fn fill_zrwa(&self, table: &mut ZoneTable, pointer: u64, written: u64) {
        let zrwa = self.scratch.geometry().zrwa.expect("a zone had a ZRWA, so the namespace has some");
        let (size, granularity) = (zrwa.size_blocks.0, zrwa.flush_granularity_blocks.0);
        assert!(pointer.is_multiple_of(granularity), "a ZRWA is committed in whole granules");
        let commit = |table: &mut ZoneTable, mut at: u64, to: u64| {
            while at < to {
                let step = (to - at).min(size);
                manage(table, &ZoneAction::FlushZrwa, ZoneTarget::Zone(Lba(at + step - 1)));
                at += step;
            }
        };
        let mut at = 0;
        if let Some(last) = written.checked_sub(1) {
            let before = pointer.min(last - last % granularity);
            commit(table, 0, before);
            table.write_zeroes(Lba(last), Blocks(1)).expect("the last block written lies in the ZRWA");
            at = before;
        }
        commit(table, at, pointer);
    }
}

/// The lowest possible write pointer of a zone with ZRWA whose last written block is the one before
/// `end` (implicit commit, docs/internals/zone-semantics.md, Write 9).
pub(crate) fn implicit_commit(geometry: &Geometry, end: u64) -> u64 {
    let Some(zrwa) = geometry.zrwa else { return 0 };
    let beyond = end.saturating_sub(zrwa.size_blocks.0);
    beyond.next_multiple_of(zrwa.flush_granularity_blocks.0).min(geometry.zone_capacity_blocks.0)
}

fn manage(table: &mut ZoneTable, action: &ZoneAction, target: ZoneTarget) {
    table.manage(action, target, &mut Vec::new()).expect("the scratch table allows every step that leads to a zone");
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::ZrwaGeometry;

    fn geometry() -> Geometry {
        let zrwa = ZrwaGeometry {
            size_blocks: Blocks(4),
            flush_granularity_blocks: Blocks(2),
            resources: 1,
            explicit_flush: false,
        };
        Geometry { zrwa: Some(zrwa), ..Geometry::tiny() }
    }

    fn restored(entry: &Entry, extension: Option<&[u8]>, pointer: u64, written: u64) -> ZoneTable {
        let mut table = ZoneTable::new(geometry());
        let snapshot = Builder::new(&geometry()).zone(entry, extension, pointer, written);
        assert!(table.restore(ZoneIndex(2), &snapshot));
        table.check_invariants();
        table
    }

    #[test]
    fn every_pair_of_pointer_and_mark_that_a_zrwa_can_have_is_rebuilt() {
        let entry = Entry { has_zrwa: true, had_zrwa: true, ..Entry::default() };
        for pointer in (0..=12).step_by(2) {
            for written in 0..=12.min(pointer + 4) {
                let zone = restored(&entry, None, pointer, written).zone(ZoneIndex(2));
                assert_eq!((zone.write_pointer_blocks.0, zone.written_blocks.0), (pointer, written));
                assert_eq!(zone.state, if pointer == 12 { ZoneState::Full } else { ZoneState::Closed });
                let entry = Entry { state: RecordedState::Finished, has_zrwa: false, ..entry };
                let zone = restored(&entry, None, pointer, written).zone(ZoneIndex(2));
                assert_eq!((zone.state, zone.write_pointer_blocks.0), (ZoneState::Full, pointer));
            }
        }
    }

    #[test]
    fn a_zone_without_zrwa_comes_back_with_pointer_extension_and_state() {
        let extension = [7; 64];
        let states = [
            (RecordedState::Writable, 0, false, ZoneState::Empty),
            (RecordedState::Writable, 0, true, ZoneState::Closed),
            (RecordedState::Writable, 5, true, ZoneState::Closed),
            (RecordedState::Writable, 12, false, ZoneState::Full),
            (RecordedState::Finished, 0, false, ZoneState::Full),
            (RecordedState::Finished, 7, true, ZoneState::Full),
            (RecordedState::ReadOnly, 3, true, ZoneState::ReadOnly),
            (RecordedState::Offline, 0, false, ZoneState::Offline),
        ];
        for (recorded, pointer, has_extension, state) in states {
            let entry = Entry { state: recorded, has_extension, ..Entry::default() };
            let table = restored(&entry, has_extension.then_some(&extension[..]), pointer, pointer);
            let zone = table.zone(ZoneIndex(2));
            assert_eq!((zone.state, zone.write_pointer_blocks.0), (state, pointer));
            assert_eq!(zone.attributes.extension_valid, has_extension);
        }
    }

    #[test]
    fn the_implicit_commit_is_that_of_the_zone_table() {
        let mut table = ZoneTable::new(geometry());
        table.manage(&ZoneAction::Open { zrwa: true }, START, &mut Vec::new()).unwrap();
        for end in 1..=12 {
            table.write(Lba(end - 1), Blocks(1), true).unwrap();
            assert_eq!(table.zone(ZONE).write_pointer_blocks.0, implicit_commit(&geometry(), end), "{end}");
        }
    }
}
