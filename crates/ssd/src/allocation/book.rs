//! The elements of a drive whose media are elsewhere: the allocator of a profile, driven by what happens to zones.
//!
//! A drive on files has zones and contents, and no flash. Its book says what flash it would have used: which elements each
//! zone has, how often each was erased, what FINISH padded. It knows no time and no buffer: what is written counts as
//! programmed, and a FINISH has ended when it is told. All else is the allocator's, so that the model of a drive that gets
//! one command after the other, without a write buffer, comes to the same table.

use zonda_zoned::ZoneIndex;
use zonda_zoned::zones::ZoneTable;

use super::{
    AllocationFacts, AllocationKind, ElementGrid, ElementRecord, ElementState, ElementTable, ElementTableError,
    UnitOfZone, ZoneAllocator, ZoneFate, ZoneStanding, allocator_of,
};
use crate::counters::Wear;
use crate::layout::Layout;
use crate::profile::Profile;

/// The elements of a drive, kept by what happens to its zones. Conventional zones have none, and are passed over.
///
/// ```
/// use zonda_ssd::allocation::ElementBook;
/// use zonda_profiles::builtin_text;
/// use zonda_ssd::profile::{AllocationKind, Profile};
/// use zonda_zoned::ZoneIndex;
///
/// let mut profile = Profile::parse(builtin_text("tiny").expect("a built-in profile")).expect("which is valid");
/// profile.zones.allocation = AllocationKind::Block;
/// let mut book = ElementBook::new(&profile);
/// book.written(ZoneIndex(3), 32 << 10);
/// book.finished(ZoneIndex(3));
/// // 16 KiB lie on each of two dies: the other two dies of the zone have nothing to pad, and are given back.
/// assert_eq!(book.padding_bytes(), 2 * (384 - 16) << 10);
/// assert_eq!((book.facts().written, book.facts().allocated), (2, 0));
/// ```
#[derive(Debug)]
pub struct ElementBook {
    allocator: Box<dyn ZoneAllocator>,
    grid: ElementGrid,
    layout: Layout,
    read_unit_bytes: u64,
    erase_unit_bytes: u64,
    zone_capacity_bytes: u64,
    first_zone: u32,
    pages: Vec<Page>,
    padding_bytes: u64,
    changes: u64,
    /// Where each slot of a zone that is finished ends; kept for its memory.
    ends_bytes: Vec<u64>,
}

/// One zone.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    standing: ZoneStanding,
    place: Place,
}

/// What a zone has of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    None,
    /// Those that it needed when it was finished.
    Part,
    Whole,
}

impl ElementBook {
    /// The book of a new drive: all elements empty.
    #[must_use]
    pub fn new(profile: &Profile) -> ElementBook {
        let grid = ElementGrid::new(profile);
        ElementBook {
            allocator: allocator_of(profile),
            grid,
            layout: Layout::new(profile),
            read_unit_bytes: profile.flash.read_unit.0,
            erase_unit_bytes: profile.flash.erase_unit.0,
            zone_capacity_bytes: profile.geometry.zone_capacity.0,
            first_zone: profile.geometry.conventional_zones,
            pages: vec![Page::default(); grid.zones as usize],
            padding_bytes: 0,
            changes: 0,
            ends_bytes: Vec::new(),
        }
    }

    /// The book of a drive of which no record is left: new elements, and zones as they stand.
    ///
    /// # Panics
    /// When the zones are those of a drive with another number of them.
    #[must_use]
    pub fn standing_as(profile: &Profile, zones: &ZoneTable) -> ElementBook {
        let mut book = ElementBook::new(profile);
        book.bring_all(zones);
        book
    }

    /// The book as it was recorded, brought to where the zones stand. A zone that the record maps keeps its elements; one
    /// that is empty gives them back, those that were written as invalid; one that was written further, finished or went
    /// offline since is so in the book too.
    ///
    /// # Errors
    /// A record of another drive, or one that contradicts itself.
    ///
    /// # Panics
    /// When the zones are those of a drive with another number of them.
    pub fn restore(
        profile: &Profile,
        record: &ElementRecord,
        zones: &ZoneTable,
    ) -> Result<ElementBook, ElementTableError> {
        let mut book = ElementBook::new(profile);
        let (found, expected) = (record.zones.len(), book.pages.len());
        if found != expected {
            return Err(ElementTableError::OtherDrive(format!("it stands for {found} zones, not {expected}")));
        }
        let mut table = record.table.clone();
        let offline: Vec<bool> = book.standings(zones).map(|(_, standing)| standing.is_offline()).collect();
        for (elements, _) in table.zones.iter().zip(&offline).filter(|(_, is_offline)| !**is_offline) {
            // The record may be ahead of a zone that was about to go offline.
            for element in elements {
                match table.elements.get_mut(*element as usize) {
                    Some(element) if element.state == ElementState::Retired => element.state = ElementState::Written,
                    _ => {}
                }
            }
        }
        book.allocator.restore(&table)?;
        book.padding_bytes = record.padding_bytes;
        for (index, page) in book.pages.iter_mut().enumerate() {
            let known = record.zones[index];
            page.standing = ZoneStanding {
                written_bytes: known.written_bytes.min(book.zone_capacity_bytes),
                fate: if known.is_offline() && !offline[index] { ZoneFate::Writable } else { known.fate },
            };
            page.place = match table.zones[index].len() {
                _ if table.policy == AllocationKind::Fixed && !known.is_empty() => Place::Whole,
                0 => Place::None,
                count if count == book.grid.elements_per_zone() as usize => Place::Whole,
                _ => Place::Part,
            };
        }
        book.bring_all(zones);
        Ok(book)
    }

    /// The zone is written up to here, in bytes from its start. That may be less than before, when a write was not kept.
    pub fn written(&mut self, zone: ZoneIndex, bytes: u64) {
        let Some(index) = self.index_of(zone).filter(|index| !self.pages[*index].standing.is_offline()) else { return };
        let (before, bytes) = (self.pages[index].standing.written_bytes, bytes.min(self.zone_capacity_bytes));
        if bytes > before {
            self.complete(zone, index);
            self.program(zone, before, bytes);
            self.pages[index].standing.fate = ZoneFate::Writable;
        }
        self.pages[index].standing.written_bytes = bytes;
    }

    /// FINISH has made the zone full: elements that are partly written are padded, and those that hold nothing are free.
    pub fn finished(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        let ZoneStanding { written_bytes, fate } = self.pages[index].standing;
        if matches!(fate, ZoneFate::Finished | ZoneFate::Offline) {
            return;
        }
        self.complete(zone, index);
        self.pad(zone, written_bytes);
        self.allocator.release_untouched(zone, written_bytes);
        let page = &mut self.pages[index];
        page.standing.fate = ZoneFate::Finished;
        page.place = Place::Part;
        self.changes += 1;
    }

    /// The zone is empty: elements that were written are invalid, the others are free.
    pub fn reset(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        let page = &mut self.pages[index];
        if page.standing.is_offline() || (page.standing.is_empty() && page.place == Place::None) {
            return;
        }
        *page = Page::default();
        self.allocator.reset(zone);
        self.changes += 1;
    }

    /// The zone is offline for good: its elements are never used again.
    pub fn offline(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        if !self.pages[index].standing.is_offline() {
            self.pages[index].standing.fate = ZoneFate::Offline;
            self.allocator.retire(zone);
            self.changes += 1;
        }
    }

    /// Brings a zone to where it stands, whatever has led there. To do so again changes nothing.
    pub fn bring(&mut self, zone: ZoneIndex, standing: &ZoneStanding) {
        if standing.is_empty() {
            return self.reset(zone);
        }
        match standing.fate {
            ZoneFate::Writable => {
                self.written(zone, standing.written_bytes);
                self.reopen(zone);
            }
            ZoneFate::ReadOnly => self.written(zone, standing.written_bytes),
            ZoneFate::Finished => {
                self.written(zone, standing.written_bytes);
                self.finished(zone);
            }
            ZoneFate::Offline => self.offline(zone),
        }
    }

    /// Brings all zones to where they stand, first those that give elements back.
    ///
    /// # Panics
    /// When the zones are those of a drive with another number of them.
    pub fn bring_all(&mut self, zones: &ZoneTable) {
        let gives_back = |standing: &ZoneStanding| standing.is_offline() || standing.is_empty();
        let standings: Vec<(ZoneIndex, ZoneStanding)> = self.standings(zones).collect();
        for (zone, standing) in standings.iter().filter(|(_, standing)| gives_back(standing)) {
            self.bring(*zone, standing);
        }
        for (zone, standing) in standings.iter().filter(|(_, standing)| !gives_back(standing)) {
            self.bring(*zone, standing);
        }
    }

    /// All that has to be remembered over a restart.
    #[must_use]
    pub fn record(&self) -> ElementRecord {
        let zones = self.pages.iter().map(|page| page.standing).collect();
        ElementRecord { table: self.table(), zones, padding_bytes: self.padding_bytes }
    }

    /// Wear, state and owner of each element: what [`Ssd::with_elements`](crate::Ssd::with_elements) takes.
    #[must_use]
    pub fn table(&self) -> ElementTable {
        self.allocator.elements()
    }

    /// The most bytes that the table of this drive ever has, as [`ElementTable::to_bytes`] makes them.
    #[must_use]
    pub fn table_bytes_max(&self) -> u64 {
        let table = self.table();
        let owned: usize = table.zones.iter().map(Vec::len).sum();
        // A number of an element is 4 bytes, and each element has one owner at most.
        (table.to_bytes().len() + 4 * (table.elements.len() - owned)) as u64
    }

    /// How the zones are allocated, and where their elements stand. What it counts of allocations began with this book.
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

    /// Counts what a record must not miss for long: zones that were written first, finished, reset or went offline.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Asserts what must always hold.
    ///
    /// # Panics
    /// When it does not: the book has a bug.
    pub fn check_invariants(&self) {
        self.allocator.check_invariants();
        for page in &self.pages {
            let needs_elements = page.standing.written_bytes > 0 && !page.standing.is_offline();
            assert!(!needs_elements || page.place != Place::None, "a zone that is written has elements");
        }
    }

    /// A zone's place among those that are not conventional.
    fn index_of(&self, zone: ZoneIndex) -> Option<usize> {
        zone.0.checked_sub(self.first_zone).map(|index| index as usize)
    }

    fn standings(&self, zones: &ZoneTable) -> impl Iterator<Item = (ZoneIndex, ZoneStanding)> {
        let geometry = zones.geometry();
        let count = (geometry.zone_count - geometry.conventional_zone_count) as usize;
        assert!(count == self.pages.len(), "the zones of a drive and its book are as many: {count}");
        let zones = (geometry.conventional_zone_count..geometry.zone_count).map(ZoneIndex).map(|zone| zones.zone(zone));
        let standings = zones.map(|zone| ZoneStanding::of(&zone, geometry)).collect::<Vec<_>>();
        (self.first_zone..).map(ZoneIndex).zip(standings)
    }

    /// A FINISH was not kept after all.
    fn reopen(&mut self, zone: ZoneIndex) {
        let Some(index) = self.index_of(zone) else { return };
        if self.pages[index].standing.fate == ZoneFate::Finished {
            self.complete(zone, index);
            self.pages[index].standing.fate = ZoneFate::Writable;
        }
    }

    /// Gives a zone the elements that it lacks.
    fn complete(&mut self, zone: ZoneIndex, index: usize) {
        if self.pages[index].place != Place::Whole {
            let _stripe = self.allocator.allocate(zone);
            self.pages[index].place = Place::Whole;
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
        let mut book = ElementBook::new(&crate::profile::tests::tiny());
        book.check_invariants();
        book.pages[0].standing.written_bytes = 1;
        book.check_invariants();
    }
}
