//! Kinds of storage elements: their names in profiles, their shapes, and how zones and drives are
//! composed of them.
//!
//! A zone is a grid of erase units: a row is a segment, one erase unit on each of the zone's LUNs;
//! a slot is one of those LUNs. An element covers `width` neighbouring LUNs and `height` rows of
//! it, and is erased, written and invalid as a whole. The five kinds are those of SilentZNS,
//! Section 4 and Figure 5.

use std::fmt;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::profile::Profile;

/// The zone allocation policy: the elements a zone is built of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationKind {
    /// The erase units of a zone never change.
    Fixed,
    /// An erase unit of each LUN of the drive.
    Superblock,
    /// One erase unit.
    Block,
    /// An erase unit of each of so many neighbouring LUNs.
    Vchunk(u32),
    /// So many erase units of one LUN.
    Hchunk(u32),
}

/// The values a profile may have.
const NAMES: [&str; 5] = ["fixed", "superblock", "block", "vchunk-N", "hchunk-N"];

impl AllocationKind {
    /// Parses a kind, as profiles write it.
    #[must_use]
    pub fn from_text(text: &str) -> Option<AllocationKind> {
        match text {
            "fixed" => return Some(AllocationKind::Fixed),
            "superblock" => return Some(AllocationKind::Superblock),
            "block" => return Some(AllocationKind::Block),
            _ => {}
        }
        let (kind, count) = text.split_once('-')?;
        let is_plain = count.bytes().all(|byte| byte.is_ascii_digit()) && !count.starts_with('0');
        let count: u32 = count.parse().ok().filter(|_| is_plain)?;
        match kind {
            "vchunk" => Some(AllocationKind::Vchunk(count)),
            "hchunk" => Some(AllocationKind::Hchunk(count)),
            _ => None,
        }
    }
}

impl fmt::Display for AllocationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocationKind::Fixed => f.write_str("fixed"),
            AllocationKind::Superblock => f.write_str("superblock"),
            AllocationKind::Block => f.write_str("block"),
            AllocationKind::Vchunk(luns) => write!(f, "vchunk-{luns}"),
            AllocationKind::Hchunk(units) => write!(f, "hchunk-{units}"),
        }
    }
}

impl Serialize for AllocationKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AllocationKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AllocationKind, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = AllocationKind::from_text(&text);
        known.ok_or_else(|| match text.split_once('-') {
            Some(("vchunk" | "hchunk", _)) => D::Error::invalid_value(
                Unexpected::Str(&text),
                &"vchunk-N or hchunk-N with N of 1 or more, such as \"vchunk-2\"",
            ),
            _ => D::Error::unknown_variant(&text, &NAMES),
        })
    }
}

/// How a zone is made of elements, and a drive of them. Of a profile that has passed its checks,
/// all divisions here are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElementGrid {
    /// LUNs of the drive.
    pub(crate) luns: u32,
    /// Zones that are not conventional.
    pub(crate) zones: u32,
    /// LUNs of a zone.
    pub(crate) slots: u32,
    /// Erase units of a zone on each of its LUNs.
    pub(crate) rows: u32,
    /// Neighbouring LUNs of an element.
    pub(crate) width: u32,
    /// Erase units of an element on each of its LUNs.
    pub(crate) height: u32,
    /// LUN groups one allocation chooses from, takes at least, and how many elements it takes of
    /// each at most: Leligible, Lmin and K of SilentZNS, Table 2.
    pub(crate) groups_eligible: u32,
    pub(crate) groups_min: u32,
    pub(crate) per_group_max: u32,
}

impl ElementGrid {
    /// The grid of a profile's zones, with the erase unit as the element of `fixed`.
    pub(crate) fn new(profile: &Profile) -> ElementGrid {
        let (zones, luns) = (&profile.zones, profile.dies());
        let (width, height) = match zones.allocation {
            AllocationKind::Fixed | AllocationKind::Block => (1, 1),
            AllocationKind::Superblock => (luns, 1),
            AllocationKind::Vchunk(luns) => (luns, 1),
            AllocationKind::Hchunk(units) => (1, units),
        };
        let bytes_per_lun = profile.geometry.zone_capacity.0 / u64::from(zones.parallelism);
        let rows = u32::try_from(bytes_per_lun.div_ceil(profile.flash.erase_unit.0)).unwrap_or(u32::MAX);
        let eligible = zones.luns_eligible.unwrap_or(zones.parallelism);
        let groups_min = zones.luns_min.unwrap_or(zones.parallelism).div_ceil(width);
        let elements_per_zone = u64::from(zones.parallelism / width) * u64::from(rows / height);
        let even_share = u32::try_from(elements_per_zone.div_ceil(u64::from(groups_min.max(1)))).unwrap_or(u32::MAX);
        ElementGrid {
            luns,
            zones: profile.geometry.zones - profile.geometry.conventional_zones,
            slots: zones.parallelism,
            rows,
            width,
            height,
            groups_eligible: eligible / width,
            groups_min,
            per_group_max: zones.elements_per_lun_max.unwrap_or(even_share),
        }
    }

    /// Elements side by side in a zone.
    pub(crate) fn element_slots(&self) -> u32 {
        self.slots / self.width
    }

    /// Elements one after the other in a zone.
    pub(crate) fn element_rows(&self) -> u32 {
        self.rows / self.height
    }

    /// Z of SilentZNS, Table 2.
    pub(crate) fn elements_per_zone(&self) -> u32 {
        self.element_slots() * self.element_rows()
    }

    /// Groups of LUNs that an element lies across: each LUN is one, but for vertical chunks and
    /// superblocks.
    pub(crate) fn groups(&self) -> u32 {
        self.luns / self.width
    }

    /// Erase units of each LUN that zones have to share: enough for all zones at once.
    pub(crate) fn units_per_lun(&self) -> u64 {
        u64::from(self.zones.div_ceil(self.luns / self.slots)) * u64::from(self.rows)
    }

    /// Elements of each group of LUNs.
    pub(crate) fn elements_per_group(&self) -> u64 {
        self.units_per_lun() / u64::from(self.height)
    }

    /// N of SilentZNS, Table 2.
    pub(crate) fn elements(&self) -> u64 {
        u64::from(self.groups()) * self.elements_per_group()
    }

    /// Erase units of an element.
    pub(crate) fn units_per_element(&self) -> u32 {
        self.width * self.height
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written_and_nothing_else_is() {
        for text in ["fixed", "superblock", "block", "vchunk-4", "hchunk-12"] {
            assert_eq!(AllocationKind::from_text(text).map(|kind| kind.to_string()).as_deref(), Some(text));
        }
        for text in ["", "blocks", "vchunk", "vchunk-", "vchunk-0", "vchunk-02", "hchunk--1", "hchunk-5000000000"] {
            assert_eq!(AllocationKind::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn a_drive_has_elements_for_all_its_zones_at_once() {
        let mut profile = crate::profile::tests::tiny();
        profile.zones.parallelism = 2;
        profile.zones.allocation = AllocationKind::Vchunk(2);
        let grid = ElementGrid::new(&profile);
        // 1.5 MiB on two dies are 768 KiB on each: one erase unit; 16 zones on two pairs of dies.
        assert_eq!((grid.rows, grid.elements_per_zone(), grid.groups(), grid.elements()), (1, 1, 2, 16));
        profile.geometry.zones = 15;
        assert_eq!(ElementGrid::new(&profile).elements(), 16, "each LUN has as many as any other");
    }
}
