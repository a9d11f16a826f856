//! [`Rule`]: the order in which the drive allocates zones to groups, if it has one.
//!
//! Drives that take dies in turn give zones groups that repeat. The rule is learned from the first
//! zones, predicts the others, and is checked with each zone that is measured.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::GroupId;
use crate::limits::{INFERRED_CONFIDENCE_MAX, RULE_CHECKS_MIN, RULE_CHECKS_PER_MISS};

/// How far back a zone with a known group is searched for.
const LOOK_BACK: usize = 256;

/// Groups that repeat.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// One period of groups, from the place 0 on.
    cycle: Vec<GroupId>,
    /// Where a group stands in the cycle, if it does so once.
    place_of_group: Vec<Option<usize>>,
    hits: u32,
    misses: u32,
}

impl Rule {
    /// The shortest period in the groups of the first places, `None` where unknown. A period must
    /// be seen twice.
    pub(crate) fn find(known: &[Option<GroupId>], groups: u32) -> Option<Rule> {
        (1..=known.len() / 2).find_map(|period| {
            let pairs = known.iter().zip(&known[period..]).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
            let (mut equal, mut all) = (0, 0);
            for (a, b) in pairs {
                equal += usize::from(a == b);
                all += 1;
            }
            let is_period = all * 10 >= period * 9 && equal * 20 >= all * 19 && all > 1;
            is_period.then(|| Rule::of_cycle(known, period, groups)).flatten()
        })
    }

    fn of_cycle(known: &[Option<GroupId>], period: usize, groups: u32) -> Option<Rule> {
        let at = |place: usize| known.iter().skip(place).step_by(period).flatten().next_back().copied();
        let cycle: Option<Vec<GroupId>> = (0..period).map(at).collect();
        let cycle = cycle?;
        let mut place_of_group = vec![None; groups as usize];
        for (place, group) in cycle.iter().enumerate() {
            let entry = place_of_group.get_mut(group.0 as usize)?;
            // A group that stands in several places of the cycle does not show the place.
            *entry = if entry.is_none() { Some(place) } else { None };
        }
        Some(Rule { cycle, place_of_group, hits: 0, misses: 0 })
    }

    /// Groups whose zones stand where more zones of another group do: the same hardware was found
    /// twice.
    pub(crate) fn duplicates(&self, known: &[Option<GroupId>]) -> Vec<GroupId> {
        let mut places = BTreeMap::<GroupId, BTreeMap<usize, usize>>::new();
        for (place, group) in self.counted(known) {
            *places.entry(group).or_default().entry(place).or_default() += 1;
        }
        // The place of most of the zones of each group, and how many these are.
        let of_group: Vec<(GroupId, usize, usize)> = places
            .iter()
            .filter_map(|(group, places)| {
                let (place, count) = places.iter().max_by_key(|(place, count)| (**count, Reverse(**place)))?;
                Some((*group, *place, *count))
            })
            .collect();
        let is_duplicate = |(group, place, count): &&(GroupId, usize, usize)| {
            of_group.iter().any(|(other, at, zones)| other != group && at == place && (zones, other) > (count, group))
        };
        of_group.iter().filter(is_duplicate).map(|(group, ..)| *group).collect()
    }

    /// Takes the groups of most zones at each place, where zones are known.
    pub(crate) fn refresh(&mut self, known: &[Option<GroupId>]) {
        let mut groups = vec![BTreeMap::<GroupId, usize>::new(); self.cycle.len()];
        for (place, group) in self.counted(known) {
            *groups[place].entry(group).or_default() += 1;
        }
        for (entry, groups) in self.cycle.iter_mut().zip(&groups) {
            let most = groups.iter().max_by_key(|(group, count)| (**count, Reverse(**group)));
            *entry = most.map_or(*entry, |(group, _)| *group);
        }
        let most = self.cycle.iter().map(|group| group.0 as usize + 1).max().unwrap_or(0);
        self.place_of_group = vec![None; most.max(self.place_of_group.len())];
        for (place, group) in self.cycle.iter().enumerate() {
            let entry = &mut self.place_of_group[group.0 as usize];
            *entry = if entry.is_none() { Some(place) } else { None };
        }
    }

    /// Known zones: their places in the cycle, and their groups.
    fn counted<'a>(&'a self, known: &'a [Option<GroupId>]) -> impl Iterator<Item = (usize, GroupId)> + 'a {
        known.iter().enumerate().filter_map(|(zone, group)| Some((zone % self.cycle.len(), (*group)?)))
    }

    pub(crate) fn period(&self) -> usize {
        self.cycle.len()
    }

    /// The likely groups of a place, most likely first: by the distance from the closest place
    /// before it whose group is known, and by its own number.
    pub(crate) fn predict(&self, place: usize, known: &[Option<GroupId>]) -> Vec<GroupId> {
        let from = place.saturating_sub(LOOK_BACK);
        let before = (from..place).rev().find_map(|at| known[at].map(|group| (at, group)));
        let by_neighbor = before.and_then(|(at, group)| {
            let of_neighbor = self.place_of_group.get(group.0 as usize).copied().flatten()?;
            Some(self.cycle[(of_neighbor + place - at) % self.cycle.len()])
        });
        let by_number = self.cycle[place % self.cycle.len()];
        let mut groups: Vec<GroupId> = by_neighbor.into_iter().collect();
        if by_neighbor != Some(by_number) {
            groups.push(by_number);
        }
        groups
    }

    /// A zone was measured whose group was predicted.
    pub(crate) fn check(&mut self, is_hit: bool) {
        self.hits += u32::from(is_hit);
        self.misses += u32::from(!is_hit);
    }

    /// The confidence in predictions, if enough of them were checked and nearly all were right.
    pub(crate) fn confidence(&self) -> Option<f64> {
        let is_reliable = self.hits >= RULE_CHECKS_MIN && self.misses * RULE_CHECKS_PER_MISS <= self.hits;
        let share = f64::from(self.hits + 1) / f64::from(self.hits + self.misses + 2);
        is_reliable.then_some(share.min(INFERRED_CONFIDENCE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(groups: &[u32]) -> Vec<Option<GroupId>> {
        groups.iter().map(|group| (*group < 90).then_some(GroupId(*group))).collect()
    }

    #[test]
    fn the_shortest_period_is_found_across_gaps() {
        let rule = Rule::find(&known(&[2, 0, 1, 2, 99, 1, 2, 0]), 3).expect("three groups repeat");
        assert_eq!(rule.cycle, [2, 0, 1].map(GroupId));
        assert!(Rule::find(&known(&[0, 1, 2, 3, 2, 0]), 4).is_none());
        assert!(Rule::find(&known(&[0, 1, 2, 0]), 3).is_none(), "seen once and a bit");
    }

    #[test]
    fn a_zone_out_of_order_shifts_what_its_neighbors_predict() {
        let rule = Rule::find(&known(&[0, 1, 2, 0, 1, 2, 0]), 3).unwrap();
        let shifted = known(&[0, 1, 2, 0, 1, 2, 2, 0, 99, 99]);
        assert_eq!(rule.predict(8, &shifted), [1, 2].map(GroupId));
        assert_eq!(rule.predict(2, &shifted), [2].map(GroupId), "both agree");
    }

    #[test]
    fn a_group_that_was_found_twice_is_the_smaller_one_at_its_place() {
        let zones = known(&[0, 1, 0, 1, 0, 2, 0, 2, 0, 1, 0, 1, 0, 1]);
        let mut rule = Rule::find(&known(&[0, 2, 0, 2, 0, 2]), 3).unwrap();
        assert_eq!(rule.duplicates(&zones), [GroupId(2)]);
        rule.refresh(&zones);
        assert_eq!(rule.predict(15, &[None; 16]), [GroupId(1)]);
    }

    #[test]
    fn predictions_stand_for_measurements_only_after_many_were_right() {
        let mut rule = Rule::find(&known(&[0, 1, 0, 1]), 2).unwrap();
        (1..RULE_CHECKS_MIN).for_each(|_| rule.check(true));
        assert_eq!(rule.confidence(), None);
        (0..20).for_each(|_| rule.check(true));
        assert!(rule.confidence().is_some_and(|share| (0.9..1.0).contains(&share)));
        rule.check(false);
        rule.check(false);
        assert_eq!(rule.confidence(), None, "two of 53 were wrong");
    }
}
