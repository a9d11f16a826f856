//! Element statistics of a drive, and drives with elements of an earlier one.

use zonda_zoned::{PayloadKind, Prng, ZoneIndex};

use crate::allocation::{AllocationFacts, DieIndex, ElementTable, ElementTableError};
use crate::media::Media;
use crate::profile::Profile;
use crate::ssd::Ssd;

impl Ssd {
    /// A new drive whose elements have the wear and the states of an earlier one's. Its zones are
    /// empty. Zones that held data are filled by [`prefill`](Self::prefill), which gives a zone the
    /// same elements that it had; then
    /// [`forget_unclaimed_elements`](Self::forget_unclaimed_elements) releases the rest.
    ///
    /// # Errors
    /// A table of another drive, or an inconsistent one.
    pub fn with_elements(
        profile: &Profile,
        keeps: PayloadKind,
        prng: &Prng,
        table: &ElementTable,
    ) -> Result<Ssd, ElementTableError> {
        let mut media = Media::new(profile, keeps);
        media.allocator.restore(table)?;
        Ok(Ssd::power_on(profile, media, prng))
    }

    /// Elements of zones that are empty, though the table given to
    /// [`with_elements`](Self::with_elements) had them as written: the zones were reset since.
    /// Written elements become invalid, the others free.
    pub fn forget_unclaimed_elements(&mut self) {
        for zone in (self.geometry.conventional_zone_count..self.geometry.zone_count).map(ZoneIndex) {
            if self.zone_map.get(zone).is_none() {
                self.allocator.reset(zone);
            }
        }
    }

    /// Wear, state and owner of each element: what [`with_elements`](Self::with_elements) takes.
    #[must_use]
    pub fn elements(&self) -> ElementTable {
        self.allocator.elements()
    }

    /// Allocation policy and element statistics.
    #[must_use]
    pub fn allocation(&self) -> AllocationFacts {
        self.allocator.facts()
    }

    /// The erases of every erase unit that [`wear`](Self::wear) counts, LUN by LUN.
    #[must_use]
    pub fn erases_of_units(&self) -> Vec<u32> {
        let mut erases = Vec::new();
        for die in 0..self.dies.len() {
            erases.extend(self.allocator.erases_of_die(DieIndex(die as u16)));
            if let Some(conventional) = &self.conventional {
                erases.extend(conventional.erases_of_die(die));
            }
        }
        erases
    }
}
