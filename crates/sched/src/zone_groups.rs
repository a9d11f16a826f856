//! [`ZoneGroups`]: the conflict group of each zone, as a scheduler uses it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ConflictGroup;
use crate::limits::NARROW_ZONES_MAX;

/// No group is known.
const UNKNOWN: u32 = u32::MAX;

/// The conflict group of each zone of a namespace. It may be wrong: a table is a measurement, and a
/// drive may reallocate zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneGroups {
    of_zone: Vec<u32>,
    groups: u32,
}

impl ZoneGroups {
    /// The groups of zones 0, 1, 2, ...; `None` where it is unknown. Groups are renumbered without
    /// gaps, in the order of their first zones.
    #[must_use]
    pub fn new(zones: impl IntoIterator<Item = Option<ConflictGroup>>) -> ZoneGroups {
        let mut numbers = BTreeMap::new();
        let mut number = |group: ConflictGroup| {
            let next = numbers.len() as u32;
            *numbers.entry(group).or_insert(next)
        };
        let of_zone = zones.into_iter().map(|group| group.map_or(UNKNOWN, &mut number)).collect();
        ZoneGroups { of_zone, groups: numbers.len() as u32 }
    }

    /// The number of groups.
    #[must_use]
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// The number of zones.
    #[must_use]
    pub fn zones(&self) -> usize {
        self.of_zone.len()
    }

    /// The group of a zone; `None` for a zone that does not exist.
    #[must_use]
    pub fn group(&self, zone: u32) -> Option<ConflictGroup> {
        let group = self.of_zone.get(zone as usize).copied().filter(|group| *group != UNKNOWN);
        group.map(ConflictGroup)
    }

    /// The group that all of these zones have; `None` if they have several, or are many.
    #[must_use]
    pub fn group_of_all(&self, zones: Range<u32>) -> Option<ConflictGroup> {
        let group = self.group(zones.start)?;
        if zones.len() == 1 {
            return Some(group);
        }
        let is_narrow = (1..=NARROW_ZONES_MAX as usize).contains(&zones.len());
        let is_one = is_narrow && zones.clone().all(|zone| self.group(zone) == Some(group));
        is_one.then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_numbered_without_gaps_and_unknown_zones_have_none() {
        let groups = ZoneGroups::new([Some(7), None, Some(3), Some(7)].map(|group| group.map(ConflictGroup)));
        let of = |zone| groups.group(zone).map(|group| group.0);
        assert_eq!([of(0), of(1), of(2), of(3), of(4)], [Some(0), None, Some(1), Some(0), None]);
        assert_eq!((groups.groups(), groups.zones()), (2, 4));
    }

    #[test]
    fn several_zones_have_a_group_if_it_is_the_same() {
        let groups = ZoneGroups::new([0, 0, 1, 1, 1, 1, 1].map(|group| Some(ConflictGroup(group))));
        assert_eq!(groups.group_of_all(0..2), Some(ConflictGroup(0)));
        assert_eq!(groups.group_of_all(1..3), None);
        assert_eq!(groups.group_of_all(0..0), None, "no zone");
        assert_eq!(groups.group_of_all(2..7), None, "more than a narrow request has");
    }
}
