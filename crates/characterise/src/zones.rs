//! Which zones loads use.

use zonda_zoned::{Blocks, Duration, ZoneIndex};

use crate::Subject;
use crate::limits::{READ_ZONE_ONE_IN, READ_ZONES_MAX};

/// Zones with their purpose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones {
    /// Zones that are read, and their blocks with data.
    pub(crate) read: Vec<(ZoneIndex, Blocks)>,
    /// Zones that must be filled before they are read: they are among those that may be reset.
    pub(crate) fills: Vec<(ZoneIndex, Blocks)>,
    /// Zones that loads reset and write.
    pub(crate) write: Vec<ZoneIndex>,
}

impl Zones {
    /// Chooses zones that have data; if there are none, as many that may be written as can be
    /// filled within this time.
    pub(crate) fn choose(subject: &dyn Subject, time: Duration) -> Zones {
        let scratch = subject.scratch();
        let is_scratch = |zone: &ZoneIndex| scratch.binary_search(zone).is_ok();
        let mut kept: Vec<(ZoneIndex, Blocks)> =
            subject.readable().into_iter().filter(|(zone, _)| !is_scratch(zone)).collect();
        let most = kept.iter().map(|(_, blocks)| blocks.0).max().unwrap_or(0);
        kept.retain(|(_, blocks)| blocks.0 * READ_ZONE_ONE_IN >= most);
        if !kept.is_empty() {
            return Zones { read: spread(&kept, READ_ZONES_MAX), fills: Vec::new(), write: scratch.to_vec() };
        }
        let capacity = subject.geometry().zone_capacity_blocks;
        let most = READ_ZONES_MAX.min(scratch.len() / 4);
        let full: Vec<(ZoneIndex, Blocks)> = scratch.iter().take(most).map(|zone| (*zone, capacity)).collect();
        // Few full zones are better than many that stay active because they are partly written.
        let affordable = (1..=full.len()).rev().find(|count| subject.preparation(&full[..*count]) <= time);
        let fills = match affordable {
            Some(count) => full[..count].to_vec(),
            None => full.first().map(|(zone, _)| vec![(*zone, part_of(subject, *zone, time))]).unwrap_or_default(),
        };
        Zones { read: fills.clone(), write: scratch[fills.len()..].to_vec(), fills }
    }
}

/// The blocks of a zone that can be written within a time.
fn part_of(subject: &dyn Subject, zone: ZoneIndex, time: Duration) -> Blocks {
    let capacity = subject.geometry().zone_capacity_blocks;
    let whole = subject.preparation(&[(zone, capacity)]).0.max(1);
    let share = (u128::from(capacity.0) * u128::from(time.0) / u128::from(whole)) as u64;
    Blocks(share.clamp(1, capacity.0))
}

/// At most this many, from all parts of the list.
fn spread(zones: &[(ZoneIndex, Blocks)], most: usize) -> Vec<(ZoneIndex, Blocks)> {
    if zones.len() <= most {
        return zones.to_vec();
    }
    (0..most).map(|place| zones[place * zones.len() / most]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_taken_from_all_parts_of_the_drive() {
        let zones: Vec<(ZoneIndex, Blocks)> = (0..10).map(|zone| (ZoneIndex(zone), Blocks(1))).collect();
        let chosen: Vec<u32> = spread(&zones, 4).into_iter().map(|(zone, _)| zone.0).collect();
        assert_eq!(chosen, [0, 2, 5, 7]);
        assert_eq!(spread(&zones, 20).len(), 10);
    }
}
