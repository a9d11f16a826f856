//! [`Buckets`]: groups by the number of their outstanding requests.

/// A group, by its index among the groups of a scheduler.
pub(super) type LaneIndex = u32;

/// The end of a list, or no list.
pub(super) const NONE: u32 = u32::MAX;

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
    /// Groups in all lists.
    listed: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    /// The list that it is in, or [`NONE`].
    count: u32,
}

impl Buckets {
    pub(super) fn new(lanes: usize) -> Buckets {
        Buckets {
            links: vec![Link { before: NONE, after: NONE, count: NONE }; lanes],
            lists: Vec::new(),
            used: Vec::new(),
            listed: 0,
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

    /// The count under which a group is listed; [`NONE`] if it is not.
    pub(super) fn count(&self, lane: LaneIndex) -> u32 {
        self.links[lane as usize].count
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.listed == 0
    }

    /// Lists a group under this count, or not at all: [`NONE`].
    #[inline]
    pub(super) fn set(&mut self, lane: LaneIndex, count: u32) {
        let link = self.links[lane as usize];
        if link.count == count {
            return;
        }
        if link.count != NONE {
            self.remove(link);
        }
        if count == NONE {
            self.links[lane as usize].count = NONE;
        } else {
            self.insert(lane, count);
        }
    }

    /// Lists the groups of another one in the same order. Takes a time for each group that is listed there.
    ///
    /// # Panics
    /// If any is listed here.
    pub(super) fn copy(&mut self, other: &Buckets) {
        assert!(self.is_empty(), "the groups of one take the place of none");
        for (word, used) in other.used.iter().enumerate() {
            let mut used = *used;
            while used != 0 {
                let count = word as u32 * 64 + used.trailing_zeros();
                used &= used - 1;
                let mut lane = other.lists[count as usize].0;
                while lane != NONE {
                    self.insert(lane, count);
                    lane = other.links[lane as usize].after;
                }
            }
        }
    }

    fn insert(&mut self, lane: LaneIndex, count: u32) {
        let place = count as usize;
        if place >= self.lists.len() {
            self.lists.resize(place + 1, (NONE, NONE));
            self.used.resize(place / 64 + 1, 0);
        }
        let list = &mut self.lists[place];
        let last = std::mem::replace(&mut list.1, lane);
        if last == NONE {
            list.0 = lane;
            self.used[place / 64] |= 1 << (place % 64);
        } else {
            self.links[last as usize].after = lane;
        }
        self.links[lane as usize] = Link { before: last, after: NONE, count };
        self.listed += 1;
    }

    /// Removes a group that has this link from its list.
    fn remove(&mut self, Link { before, after, count }: Link) {
        let place = count as usize;
        let list = &mut self.lists[place];
        match before {
            NONE => list.0 = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => list.1 = before,
            after => self.links[after as usize].before = before,
        }
        if list.0 == NONE {
            self.used[place / 64] &= !(1 << (place % 64));
        }
        self.listed -= 1;
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
            buckets.set(lane, count);
        }
        assert_eq!(buckets.first(), Some(1));
        buckets.set(1, 3);
        assert_eq!(buckets.first(), Some(1), "its count is the same, and so is its place");
        buckets.set(1, 4);
        assert_eq!(buckets.first(), Some(0));
        buckets.set(0, NONE);
        buckets.set(1, NONE);
        assert_eq!((buckets.first(), buckets.count(2), buckets.count(0)), (Some(2), 70, NONE));
    }

    #[test]
    fn random_changes_leave_the_same_order_as_a_sorted_list() {
        let mut prng = Prng::new(1);
        let mut buckets = Buckets::new(10);
        let mut sorted: Vec<(u32, u32, u32)> = Vec::new();
        for step in 0..10_000 {
            let lane = prng.below(10) as u32;
            let count = prng.chance(2, 3).then(|| prng.below(130) as u32);
            buckets.set(lane, count.unwrap_or(NONE));
            if sorted.iter().find(|(_, _, listed)| *listed == lane).map(|(count, _, _)| *count) != count {
                sorted.retain(|(_, _, listed)| *listed != lane);
                sorted.extend(count.map(|count| (count, step, lane)));
                sorted.sort_unstable();
            }
            assert_eq!(buckets.first(), sorted.first().map(|(_, _, lane)| *lane));
            assert_eq!(buckets.is_empty(), sorted.is_empty());
        }
    }
}
