//! The elements of a drive without simulated flash: the allocator of a profile, driven by zone
//! events.
//!
//! A drive on files has zones and contents, and no flash. Its tracker records what flash it would
//! have used: which elements each zone has, how often each was erased, what FINISH padded. It has
//! no time and no buffer: what is written counts as programmed, and a FINISH is complete when it is
//! reported. All else is the allocator's, so that the model of a drive that gets one command after
//! the other, without a write buffer, has the same table.

use zonda_zoned::ZoneIndex;
use zonda_zoned::zones::ZoneTable;

use super::{
    AllocationFacts, AllocationKind, ElementGrid, ElementRecord, ElementState, ElementTable, ElementTableError,
    UnitOfZone, ZoneAllocator, ZoneDisposition, ZoneUsage, allocator_of,
};
use crate::counters::Wear;
use crate::layout::Layout;
use crate::profile::Profile;

/// The elements of a drive, derived from its zone events. Conventional zones have none, and are
/// skipped.
///
/// ```
/// use zonda_ssd::allocation::ElementTracker;
/// use zonda_profiles::builtin_text;
/// use zonda_ssd::profile::{AllocationKind, Profile};
/// use zonda_zoned::ZoneIndex;
///
/// let mut profile = Profile::parse(builtin_text("tiny").expect("a built-in profile")).expect("which is valid");
/// profile.zones.allocation = AllocationKind::Block;
/// let mut tracker = ElementTracker::new(&profile);
/// tracker.written(ZoneIndex(3), 32 << 10);
/// tracker.finished(ZoneIndex(3));
/// // 16 KiB lie on each of two dies: the other two dies of the zone have nothing to pad, and are released.
/// assert_eq!(tracker.padding_bytes(), 2 * (384 - 16) << 10);
/// assert_eq!((tracker.facts().written, tracker.facts().allocated), (2, 0));
/// ```
#[derive(Debug)]
pub struct ElementTracker {
    allocator: Box<dyn ZoneAllocator>,
    grid: ElementGrid,
    layout: Layout,
    read_unit_bytes: u64,
    erase_unit_bytes: u64,
    zone_capacity_bytes: u64,
    first_zone: u32,
    entries: Vec<Entry>,
    padding_bytes: u64,
    changes: u64,
    /// Where each slot of a zone that is finished ends; kept to reuse its memory.
    ends_bytes: Vec<u64>,
}

/// One zone.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    usage: ZoneUsage,
    place: Place,
}

/// Which of its elements a zone has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    None,
    /// Those that it needed when it was finished.
    Part,
    Whole,
}

impl ElementTracker {
    /// The tracker of a new drive: all elements empty.
    #[must_use]
    pub fn new(profile: &Profile) -> ElementTracker {
        let grid = ElementGrid::new(profile);
        ElementTracker {
            allocator: allocator_of(profile),
            grid,
            layout: Layout::new(profile),
            read_unit_bytes: profile.flash.read_unit.0,
            erase_unit_bytes: profile.flash.erase_unit.0,
            zone_capacity_bytes: profile.geometry.zone_capacity.0,
            first_zone: profile.geometry.conventional_zones,
            entries: vec![Entry::default(); grid.zones as usize],
            padding_bytes: 0,
            changes: 0,
            ends_bytes: Vec::new(),
        }
    }

    /// The tracker of a drive whose record was lost: new elements, and zones in their present
    /// state.
    ///
    /// # Panics
    /// When the zones are those of a drive with another number of them.
    #[must_use]
    pub fn from_zones(profile: &Profile, zones: &ZoneTable) -> ElementTracker {
        let mut tracker = ElementTracker::new(profile);
        tracker.update_all(zones);
        tracker
    }

    /// The tracker as it was recorded, updated to the present state of the zones. A zone that the
    /// record maps keeps its elements; one that is empty releases them, those that were written as
    /// invalid; one that was written further, finished or went offline since is updated in the
    /// tracker.
    ///
    /// # Errors
    /// A record of another drive, or an inconsistent one.
    ///
    /// # Panics
    /// When the zones are those of a drive with another number of them.
    pub fn restore(
        profile: &Profile,
        record: &ElementRecord,
        zones: &ZoneTable,
    ) -> Result<ElementTracker, ElementTableError> {
        let mut tracker = ElementTracker::new(profile);
        let (found, expected) = (record.zones.len(), tracker.entries.len());
        if found != expected {
            return Err(ElementTableError::OtherDrive(format!("it has {found} zones, not {expected}")));
        }
        let mut table = record.table.clone();
        let offline: Vec<bool> = tracker.usages(zones).map(|(_, usage)| usage.is_offline()).collect();
        for (elements, _) in table.zones.iter().zip(&offline).filter(|(_, is_offline)| !**is_offline) {
            // The record may be ahead of a zone that was about to go offline.
            for element in elements {
                match table.elements.get_mut(*element as usize) {
                    Some(element) if element.state == ElementState::Retired => element.state = ElementState::Written,
                    _ => {}
                }
            }
        }
        tracker.allocator.restore(&table)?;
        tracker.padding_bytes = record.padding_bytes;
        for (index, entry) in tracker.entries.iter_mut().enumerate() {
            let known = record.zones[index];
            entry.usage = ZoneUsage {
                written_bytes: known.written_bytes.min(tracker.zone_capacity_bytes),
                disposition: if known.is_offline() && !offline[index] {
                    ZoneDisposition::Writable
                } else {
                    known.disposition
                },
            };
            entry.place = match table.zones[index].len() {
                _ if table.policy == AllocationKind::Fixed && !known.is_empty() => Place::Whole,
                0 => Place::None,
                count if count == tracker.grid.elements_per_zone() as usize => Place::Whole,
                _ => Place::Part,
            };
        }
        tracker.update_all(zones);
        Ok(tracker)
    }

    /// The zone is written up to here, in bytes from its start. That may be less than before, when
    /// a write was lost.
    pub fn written(&mut self, zone: ZoneIndex, bytes: u64) {
        let Some(index) = self.index_of(zone).filter(|index| !self.entries[*index].usage.is_offline()) else { return };
        let (before, bytes) = (self.entries[index].usage.written_bytes, bytes.min(self.zone_capacity_bytes));
        if bytes > before {
            self.complete(zone, index);
            self.program(zone, before, bytes);
            self.entries[index].usage.disposition = ZoneDisposition::Writable;
        }
        self.entries[index].usage.written_bytes = bytes;
    }

    /// FINISH has made the zone full: elements that are partly written are padded, and those that
    /// hold nothing are free.
    pub fn finished(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        let ZoneUsage { written_bytes, disposition } = self.entries[index].usage;
        if matches!(disposition, ZoneDisposition::Finished | ZoneDisposition::Offline) {
            return;
        }
        self.complete(zone, index);
        self.pad(zone, written_bytes);
        self.allocator.release_untouched(zone, written_bytes);
        let entry = &mut self.entries[index];
        entry.usage.disposition = ZoneDisposition::Finished;
        entry.place = Place::Part;
        self.changes += 1;
    }

    /// The zone is empty: elements that were written are invalid, the others are free.
    pub fn reset(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        let entry = &mut self.entries[index];
        if entry.usage.is_offline() || (entry.usage.is_empty() && entry.place == Place::None) {
            return;
        }
        *entry = Entry::default();
        self.allocator.reset(zone);
        self.changes += 1;
    }

    /// The zone is offline for good: its elements are never used again.
    pub fn offline(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        if !self.entries[index].usage.is_offline() {
            self.entries[index].usage.disposition = ZoneDisposition::Offline;
            self.allocator.retire(zone);
            self.changes += 1;
        }
    }

    /// Updates a zone to its present state, whatever events led to it. Idempotent.
    pub fn update(&mut self, zone: ZoneIndex, usage: &ZoneUsage) {
        if usage.is_empty() {
            return self.reset(zone);
        }
        match usage.disposition {
            ZoneDisposition::Writable => {
                self.written(zone, usage.written_bytes);
                self.reopen(zone);
            }
            ZoneDisposition::ReadOnly => self.written(zone, usage.written_bytes),
            ZoneDisposition::Finished => {
                self.written(zone, usage.written_bytes);
                self.finished(zone);
            }
            ZoneDisposition::Offline => self.offline(zone),
        }
    }

    /// Updates all zones to their present state, first those that release elements.
    ///
    /// # Panics
    /// When the zones are those of a drive with another number of them.
    pub fn update_all(&mut self, zones: &ZoneTable) {
        let releases = |usage: &ZoneUsage| usage.is_offline() || usage.is_empty();
        let usages: Vec<(ZoneIndex, ZoneUsage)> = self.usages(zones).collect();
        for (zone, usage) in usages.iter().filter(|(_, usage)| releases(usage)) {
            self.update(*zone, usage);
        }
        for (zone, usage) in usages.iter().filter(|(_, usage)| !releases(usage)) {
            self.update(*zone, usage);
        }
    }

    /// The persistent state.
    #[must_use]
    pub fn record(&self) -> ElementRecord {
        let zones = self.entries.iter().map(|entry| entry.usage).collect();
        ElementRecord { table: self.table(), zones, padding_bytes: self.padding_bytes }
    }

    /// Wear, state and owner of each element: what
    /// [`Ssd::with_elements`](crate::Ssd::with_elements) takes.
    #[must_use]
    pub fn table(&self) -> ElementTable {
        self.allocator.elements()
    }

    /// The most bytes that the table of this drive ever has, as [`ElementTable::to_bytes`] makes
    /// them.
    #[must_use]
    pub fn table_bytes_max(&self) -> u64 {
        let table = self.table();
        let owned: usize = table.zones.iter().map(Vec::len).sum();
        // A number of an element is 4 bytes, and each element has one owner at most.
        (table.to_bytes().len() + 4 * (table.elements.len() - owned)) as u64
    }

    /// Allocation policy and element statistics. Allocations are counted from the creation of this
    /// tracker.
    #[must_use]
    pub fn facts(&self) -> AllocationFacts {
        self.allocator.facts()
    }

    /// Wear of the erase units.
    #[must_use]
    pub fn wear(&self) -> Wear {
        self.allocator.wear()
    }

    /// What FINISH has padded since the drive was made, in bytes.
    #[must_use]
    pub fn padding_bytes(&self) -> u64 {
        self.padding_bytes
    }

    /// What FINISH would pad of a zone of which so many bytes are written, in bytes.
    #[must_use]
    pub fn padding_of(&self, written_bytes: u64) -> u64 {
        let mut ends_bytes = vec![0; self.grid.slots as usize];
        self.allocator.pad_ends(written_bytes, &mut ends_bytes);
        ends_bytes.iter().sum::<u64>() - written_bytes
    }

    /// Counts the events that must be recorded soon: zones that were written first, finished, reset
    /// or went offline.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Asserts the invariants.
    ///
    /// # Panics
    /// When one is violated: the tracker has a bug.
    pub fn check_invariants(&self) {
        self.allocator.check_invariants();
        for entry in &self.entries {
            let needs_elements = entry.usage.written_bytes > 0 && !entry.usage.is_offline();
            assert!(!needs_elements || entry.place != Place::None, "a zone that is written has elements");
        }
    }

    /// A zone's place among those that are not conventional.
    fn index_of(&self, zone: ZoneIndex) -> Option<usize> {
        zone.0.checked_sub(self.first_zone).map(|index| index as usize)
    }

    fn usages(&self, zones: &ZoneTable) -> impl Iterator<Item = (ZoneIndex, ZoneUsage)> {
        let geometry = zones.geometry();
        let count = (geometry.zone_count - geometry.conventional_zone_count) as usize;
        assert!(count == self.entries.len(), "a drive and its tracker have the same number of zones: {count}");
        let zones = (geometry.conventional_zone_count..geometry.zone_count).map(ZoneIndex).map(|zone| zones.zone(zone));
        let usages = zones.map(|zone| ZoneUsage::of(&zone, geometry)).collect::<Vec<_>>();
        (self.first_zone..).map(ZoneIndex).zip(usages)
    }

    /// A FINISH was lost.
    fn reopen(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        if self.entries[index].usage.disposition == ZoneDisposition::Finished {
            self.complete(zone, index);
            self.entries[index].usage.disposition = ZoneDisposition::Writable;
        }
    }

    /// Gives a zone the elements that it lacks.
    fn complete(&mut self, zone: ZoneIndex, index: usize) {
        if self.entries[index].place != Place::Whole {
            let _stripe = self.allocator.allocate(zone);
            self.entries[index].place = Place::Whole;
            self.changes += 1;
        }
    }

    /// Programs the erase units in which bytes from `before` on are the first.
    fn program(&mut self, zone: ZoneIndex, before: u64, bytes: u64) {
        let row_bytes = self.erase_unit_bytes * u64::from(self.grid.slots);
        for row in before / row_bytes..=(bytes - 1) / row_bytes {
            let begun = |bytes: u64| {
                let slots = bytes.saturating_sub(row * row_bytes).div_ceil(self.read_unit_bytes);
                slots.min(u64::from(self.grid.slots)) as u16
            };
            for slot in begun(before)..begun(bytes) {
                self.allocator.program(zone, UnitOfZone { slot, row: row as u32 });
            }
        }
    }

    fn pad(&mut self, zone: ZoneIndex, written_bytes: u64) {
        let mut ends_bytes = std::mem::take(&mut self.ends_bytes);
        ends_bytes.clear();
        ends_bytes.resize(self.grid.slots as usize, 0);
        self.allocator.pad_ends(written_bytes, &mut ends_bytes);
        for (slot, end_bytes) in (0..).zip(&ends_bytes) {
            let bytes = self.layout.bytes_on_slot(written_bytes, slot);
            self.padding_bytes += end_bytes - bytes;
            for row in bytes.div_ceil(self.erase_unit_bytes)..end_bytes.div_ceil(self.erase_unit_bytes) {
                self.allocator.program(zone, UnitOfZone { slot, row: row as u32 });
            }
        }
        self.ends_bytes = ends_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a zone that is written has elements")]
    fn a_written_zone_without_elements_breaks_an_invariant() {
        let mut tracker = ElementTracker::new(&crate::profile::tests::tiny());
        tracker.check_invariants();
        tracker.entries[0].usage.written_bytes = 1;
        tracker.check_invariants();
    }
}
