//! [`Buckets`]: groups by the number of their outstanding requests.

/// A group, by its index among the groups of a scheduler.
pub(super) type LaneIndex = u32;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Groups in lists by a count. Of groups with the same count, the one that was inserted first is the
/// first: a group that has been served goes behind those that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    /// By group.
    links: Vec<Link>,
    /// By count: the first and the last group.
    lists: Vec<(u32, u32)>,
    /// A bit for each count whose list is not empty.
    used: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    /// The list that it is in.
    count: Option<u32>,
}

impl Buckets {
    pub(super) fn new(lanes: usize) -> Buckets {
        Buckets {
            links: vec![Link { before: NONE, after: NONE, count: None }; lanes],
            lists: Vec::new(),
            used: Vec::new(),
        }
    }

    /// The group with the smallest count.
    pub(super) fn first(&self) -> Option<LaneIndex> {
        let word = self.used.iter().position(|word| *word != 0)?;
        let count = word * 64 + self.used[word].trailing_zeros() as usize;
        Some(self.lists[count].0)
    }

    /// A group with the greatest count, for a seeded bug.
    pub(super) fn last(&self) -> Option<LaneIndex> {
        let word = self.used.iter().rposition(|word| *word != 0)?;
        let count = word * 64 + 63 - self.used[word].leading_zeros() as usize;
        Some(self.lists[count].0)
    }

    /// The count under which a group is listed; `None` if it is not.
    pub(super) fn count(&self, lane: LaneIndex) -> Option<u32> {
        self.links[lane as usize].count
    }

    /// Lists a group under this count, or not at all.
    pub(super) fn set(&mut self, lane: LaneIndex, count: Option<u32>) {
        if self.links[lane as usize].count != count {
            self.remove(lane);
            if let Some(count) = count {
                self.insert(lane, count);
            }
        }
    }

    fn insert(&mut self, lane: LaneIndex, count: u32) {
        let place = count as usize;
        if place >= self.lists.len() {
            self.lists.resize(place + 1, (NONE, NONE));
            self.used.resize(place / 64 + 1, 0);
        }
        let (first, last) = self.lists[place];
        self.links[lane as usize] = Link { before: last, after: NONE, count: Some(count) };
        if last == NONE {
            self.lists[place] = (lane, lane);
            self.used[place / 64] |= 1 << (place % 64);
        } else {
            self.links[last as usize].after = lane;
            self.lists[place] = (first, lane);
        }
    }

    fn remove(&mut self, lane: LaneIndex) {
        let Link { before, after, count } = self.links[lane as usize];
        let Some(count) = count else { return };
        let place = count as usize;
        match before {
            NONE => self.lists[place].0 = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.lists[place].1 = before,
            after => self.links[after as usize].before = before,
        }
        if self.lists[place].0 == NONE {
            self.used[place / 64] &= !(1 << (place % 64));
        }
        self.links[lane as usize].count = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;

    #[test]
    fn the_first_group_is_the_one_with_the_smallest_count_that_was_inserted_first() {
        let mut buckets = Buckets::new(4);
        assert_eq!(buckets.first(), None);
        for (lane, count) in [(2, 70), (1, 3), (0, 3)] {
            buckets.set(lane, Some(count));
        }
        assert_eq!(buckets.first(), Some(1));
        buckets.set(1, Some(3));
        assert_eq!(buckets.first(), Some(1), "its count is the same, and so is its place");
        buckets.set(1, Some(4));
        assert_eq!(buckets.first(), Some(0));
        buckets.set(0, None);
        buckets.set(1, None);
        assert_eq!((buckets.first(), buckets.count(2), buckets.count(0)), (Some(2), Some(70), None));
    }

    #[test]
    fn random_changes_leave_the_same_order_as_a_sorted_list() {
        let mut prng = Prng::new(1);
        let mut buckets = Buckets::new(10);
        let mut sorted: Vec<(u32, u32, u32)> = Vec::new();
        for step in 0..10_000 {
            let lane = prng.below(10) as u32;
            let count = prng.chance(2, 3).then(|| prng.below(130) as u32);
            buckets.set(lane, count);
            if sorted.iter().find(|(_, _, listed)| *listed == lane).map(|(count, _, _)| *count) != count {
                sorted.retain(|(_, _, listed)| *listed != lane);
                sorted.extend(count.map(|count| (count, step, lane)));
                sorted.sort_unstable();
            }
            assert_eq!(buckets.first(), sorted.first().map(|(_, _, lane)| *lane));
        }
    }
}
