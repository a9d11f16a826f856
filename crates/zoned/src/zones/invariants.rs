//! The invariants of a table, recomputed from scratch.

use crate::{ZoneIndex, ZoneState};

use super::resources::is_degraded;
use super::{Zone, ZoneTable};

impl ZoneTable {
    /// Recomputes all counts of the table, and checks each zone. Takes time in proportion to the
    /// number of zones.
    ///
    /// # Panics
    /// If an invariant is violated, with a message that names the zone if there is one.
    pub fn check_invariants(&self) {
        let count = |holds: fn(&Zone) -> bool| self.zones.iter().filter(|zone| holds(zone)).count();
        assert_eq!(self.active as usize, count(|zone| zone.state.is_active()), "active zones");
        assert_eq!(self.open as usize, count(|zone| zone.state.is_open()), "open zones");
        assert_eq!(self.zrwa_in_use as usize, count(|zone| zone.has_zrwa), "zones with a ZRWA");
        assert_eq!(self.degraded as usize, count(|zone| is_degraded(zone.state)), "degraded zones");
        assert_eq!(self.extensions.len(), count(|zone| zone.has_extension), "zones with a descriptor extension");
        assert!(self.active <= self.max_active, "{} zones are active", self.active);
        assert!(self.open <= self.max_open, "{} zones are open", self.open);
        assert!(self.zrwa_in_use <= self.zrwa_resources, "{} zones have a ZRWA", self.zrwa_in_use);
        for (index, zone) in (0..).map(ZoneIndex).zip(&self.zones) {
            self.check_zone(index, zone);
        }
        self.check_opening_order();
    }

    fn check_zone(&self, index: ZoneIndex, zone: &Zone) {
        let capacity = self.geometry.zone_capacity_blocks.0;
        let Zone { write_pointer, written, state, .. } = *zone;
        assert_eq!(state == ZoneState::NotWritePointer, self.is_conventional(index), "type of zone {index}: {state}");
        assert!(write_pointer <= capacity, "zone {index}: write pointer {write_pointer}, past the capacity");
        assert!(written <= capacity, "zone {index}: written up to {written}, past the capacity");
        assert_eq!(
            zone.has_extension,
            self.extensions.contains_key(&index),
            "zone {index}: descriptor extension in the zone and in the table of extensions"
        );
        assert!(!zone.has_zrwa || (state.is_active() && zone.had_zrwa), "zone {index} has a ZRWA and is {state}");
        let is_finished = zone.finished_by_host || zone.finished_by_controller;
        assert!(!(zone.finished_by_host && zone.finished_by_controller), "zone {index} was finished once");
        assert!(!is_finished || state == ZoneState::Full || is_degraded(state), "zone {index} not finished");
        match state {
            ZoneState::NotWritePointer => {
                let unwritten = Zone { written, ..Zone::new(crate::ZoneType::Conventional) };
                assert_eq!(*zone, unwritten, "zone {index} is conventional");
            }
            ZoneState::Empty => {
                assert_eq!(*zone, Zone::new(crate::ZoneType::SequentialWriteRequired), "zone {index} is empty");
            }
            ZoneState::Full => {
                let by_writing = write_pointer == capacity;
                assert_ne!(by_writing, is_finished, "zone {index} is full, write pointer {write_pointer}");
            }
            ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed => {
                assert!(write_pointer < capacity, "zone {index} is {state} with the write pointer at its capacity");
                assert_eq!(zone.has_zrwa, zone.had_zrwa, "zone {index} is active and lost its ZRWA");
            }
            ZoneState::ReadOnly => {}
            ZoneState::Offline => assert!(!zone.has_extension, "zone {index} is offline with an extension"),
        }
        if state != ZoneState::NotWritePointer && !zone.had_zrwa {
            assert_eq!(
                written, write_pointer,
                "zone {index}: written up to here, and the write pointer, without a ZRWA"
            );
        }
        if zone.had_zrwa {
            let reach = write_pointer + self.zrwa_size();
            assert!(written <= reach, "zone {index}: written up to {written}, and the ZRWA ends at {reach}");
        }
    }

    fn check_opening_order(&self) {
        let mut implicitly_opened = vec![false; self.zones.len()];
        for zone in self.opening_order() {
            assert_eq!(self.entry(zone).state, ZoneState::ImplicitlyOpened, "zone {zone} is in the order of opening");
            let seen = std::mem::replace(&mut implicitly_opened[zone.as_usize()], true);
            assert!(!seen, "zone {zone} is twice in the order of opening");
        }
        for (index, zone) in (0..).map(ZoneIndex).zip(&self.zones) {
            let listed = implicitly_opened[index.as_usize()];
            assert!(
                listed || zone.state != ZoneState::ImplicitlyOpened,
                "zone {index} is implicitly opened and missing from the order of opening"
            );
        }
    }
}
