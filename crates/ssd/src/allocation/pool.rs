//! The elements of a drive: their wear and state, the free ones by wear, and the exact choice of
//! the least worn.
//!
//! Memory of the tables: a word of 32 bits for wear and state of each element, and one for a link,
//! which leads to the next free element of the same wear, or to the next element of the same zone.
//! Free elements of each LUN group are in buckets, one for each wear and state that occurs there,
//! in a small sorted vector; taking the least worn is constant time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::state::{Element, ElementState};

/// No element.
pub(super) const NONE: u32 = u32::MAX;

/// Bits of a word that hold the state; wear has the rest.
const STATE_BITS: u32 = 3;

const _: () = assert!(ElementState::ALL.len() <= 1 << STATE_BITS);
const _: () = assert!(crate::limits::ELEMENT_ERASES_MAX == u32::MAX >> STATE_BITS);
const _: () = assert!(crate::limits::ELEMENTS_MAX < NONE as u64);

/// All elements of a drive.
#[derive(Debug)]
pub(super) struct Pool {
    words: Vec<u32>,
    links: Vec<u32>,
    groups: Vec<FreeElements>,
    elements_per_group: u32,
    /// Groups of an allocation by their cheapest element; kept to reuse its memory.
    candidates: Vec<Reverse<(u32, u32)>>,
    /// Elements taken of each group of an allocation; kept to reuse its memory.
    taken: Vec<u32>,
}

/// Free elements of one LUN group.
#[derive(Debug, Default)]
struct FreeElements {
    /// From the most to the least expensive.
    buckets: Vec<Bucket>,
    count: u32,
}

/// Free elements of the same wear and state, linked.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    cost: u32,
    first: u32,
}

/// The demand of an allocation: constraints 2, 3, 5 and 6 of SilentZNS, Section 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// LUN groups to choose from.
    pub(super) groups: Range<u32>,
    pub(super) elements: u32,
    pub(super) groups_min: u32,
    pub(super) per_group_max: u32,
}

impl Demand {
    /// The same number of elements of each group: the least worn ones are chosen.
    fn is_even(&self) -> bool {
        let groups = self.groups.end - self.groups.start;
        self.groups_min == groups && u64::from(groups) * u64::from(self.per_group_max) == u64::from(self.elements)
    }
}

impl Pool {
    /// New elements: empty, never erased.
    pub(super) fn new(groups: u32, elements_per_group: u32) -> Pool {
        let count = groups as usize * elements_per_group as usize;
        let mut pool = Pool {
            words: vec![0; count],
            links: vec![NONE; count],
            groups: (0..groups).map(|_| FreeElements::default()).collect(),
            elements_per_group,
            candidates: Vec::new(),
            taken: Vec::new(),
        };
        pool.hang_free_elements();
        pool
    }

    /// Elements with this wear, in these states; none are linked to zones yet.
    pub(super) fn set(&mut self, elements: impl Iterator<Item = Element>) {
        for (word, element) in self.words.iter_mut().zip(elements) {
            *word = word_of(element);
        }
        self.links.fill(NONE);
        for group in &mut self.groups {
            *group = FreeElements::default();
        }
        self.hang_free_elements();
    }

    /// The lowest numbers are taken first.
    fn hang_free_elements(&mut self) {
        for element in (0..self.len()).rev() {
            if self.state(element).is_free() {
                self.hang(element);
            }
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.words.len() as u32
    }

    pub(super) fn group_of(&self, element: u32) -> u32 {
        element / self.elements_per_group
    }

    pub(super) fn state(&self, element: u32) -> ElementState {
        state_of(self.words[element as usize])
    }

    pub(super) fn get(&self, element: u32) -> Element {
        let word = self.words[element as usize];
        Element { erases: word >> STATE_BITS, state: state_of(word) }
    }

    pub(super) fn elements(&self) -> impl Iterator<Item = Element> {
        (0..self.len()).map(|element| self.get(element))
    }

    /// Elements of a group that can be allocated.
    pub(super) fn free_in(&self, group: u32) -> u32 {
        self.groups[group as usize].count
    }

    /// An element's successor in its zone.
    pub(super) fn next(&self, element: u32) -> u32 {
        self.links[element as usize]
    }

    /// Links an element that is not free to its successor in its zone.
    pub(super) fn set_next(&mut self, element: u32, next: u32) {
        self.links[element as usize] = next;
    }

    pub(super) fn set_state(&mut self, element: u32, state: ElementState) {
        let word = &mut self.words[element as usize];
        *word = *word >> STATE_BITS << STATE_BITS | state as u32;
    }

    pub(super) fn count_erase(&mut self, element: u32) {
        let word = &mut self.words[element as usize];
        *word = word.checked_add(1 << STATE_BITS).expect("an element is not erased half a billion times");
    }

    /// An element that no zone owns any more can be allocated again: as it was, if it was not
    /// written.
    pub(super) fn release(&mut self, element: u32) {
        let state = match self.state(element) {
            ElementState::Allocated => ElementState::Empty,
            ElementState::AllocatedInvalid | ElementState::Written => ElementState::Invalid,
            state => unreachable!("an element of a zone is allocated or written, not {state:?}"),
        };
        self.set_state(element, state);
        self.hang(element);
    }

    /// Chooses elements with the least total wear, and takes them: LUN group by LUN group, within a
    /// group the least worn first. Among elements of the same wear, empty ones come before those
    /// that have to be erased. False, and nothing is taken, where the demand cannot be met.
    ///
    /// The proof that this is optimal is in `docs/internals/zone-allocation.md`.
    pub(super) fn choose(&mut self, demand: &Demand, chosen: &mut Vec<u32>) -> bool {
        chosen.clear();
        if !self.can_serve(demand) {
            return false;
        }
        if demand.is_even() {
            for group in demand.groups.clone() {
                for _ in 0..demand.per_group_max {
                    chosen.push(self.take_cheapest(group).expect("enough are free"));
                }
            }
        } else {
            self.choose_unevenly(demand, chosen);
            let elements_per_group = self.elements_per_group;
            chosen.sort_by_key(|element| *element / elements_per_group);
        }
        true
    }

    fn can_serve(&self, demand: &Demand) -> bool {
        let free =
            self.groups[demand.groups.start as usize..demand.groups.end as usize].iter().map(|group| group.count);
        let groups = free.clone().filter(|count| *count > 0).count() as u64;
        let elements: u64 = free.map(|count| u64::from(count.min(demand.per_group_max))).sum();
        let least = demand.groups_min.max(1);
        groups >= u64::from(least) && elements >= u64::from(demand.elements) && least <= demand.elements
    }

    /// The cheapest element of each of the groups with the cheapest elements, as many as are
    /// needed; then the cheapest remaining ones.
    fn choose_unevenly(&mut self, demand: &Demand, chosen: &mut Vec<u32>) {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend(demand.groups.clone().filter_map(|group| Some(Reverse((self.least_cost(group)?, group)))));
        let mut candidates = BinaryHeap::from(candidates);
        self.taken.clear();
        self.taken.resize(demand.groups.len(), 0);
        let first = demand.groups.start;
        for _ in 0..demand.groups_min {
            let Reverse((_, group)) = candidates.pop().expect("enough groups have free elements");
            chosen.push(self.take_cheapest(group).expect("its cheapest was seen"));
            self.taken[(group - first) as usize] = 1;
        }
        if demand.per_group_max > 1 {
            for group in demand.groups.clone().filter(|group| self.taken[(*group - first) as usize] == 1) {
                candidates.extend(self.least_cost(group).map(|cost| Reverse((cost, group))));
            }
        }
        while chosen.len() < demand.elements as usize {
            let Reverse((_, group)) = candidates.pop().expect("enough elements are free");
            chosen.push(self.take_cheapest(group).expect("its cheapest was seen"));
            let taken = &mut self.taken[(group - first) as usize];
            *taken += 1;
            if *taken < demand.per_group_max {
                candidates.extend(self.least_cost(group).map(|cost| Reverse((cost, group))));
            }
        }
        self.candidates = candidates.into_vec();
    }

    /// What the cheapest free element of a group costs.
    pub(super) fn least_cost(&self, group: u32) -> Option<u32> {
        self.groups[group as usize].buckets.last().map(|bucket| bucket.cost)
    }

    /// Takes the cheapest free element of a group.
    #[inline]
    pub(super) fn take_cheapest(&mut self, group: u32) -> Option<u32> {
        let free = &mut self.groups[group as usize];
        let bucket = free.buckets.last_mut()?;
        let element = bucket.first;
        bucket.first = self.links[element as usize];
        if bucket.first == NONE {
            free.buckets.pop();
        }
        free.count -= 1;
        let is_empty = self.state(element) == ElementState::Empty;
        self.set_state(element, if is_empty { ElementState::Allocated } else { ElementState::AllocatedInvalid });
        Some(element)
    }

    /// Adds a free element to its bucket.
    fn hang(&mut self, element: u32) {
        let cost = cost_of(self.words[element as usize]);
        let group = self.group_of(element);
        let free = &mut self.groups[group as usize];
        free.count += 1;
        match free.buckets.binary_search_by(|bucket| cost.cmp(&bucket.cost)) {
            Ok(place) => {
                let bucket = &mut free.buckets[place];
                self.links[element as usize] = bucket.first;
                bucket.first = element;
            }
            Err(place) => {
                self.links[element as usize] = NONE;
                free.buckets.insert(place, Bucket { cost, first: element });
            }
        }
    }

    /// Memory of the tables.
    pub(super) fn table_bytes(&self) -> usize {
        let buckets: usize = self.groups.iter().map(|free| free.buckets.capacity() * size_of::<Bucket>()).sum();
        size_of_val(&self.words[..]) + size_of_val(&self.links[..]) + size_of_val(&self.groups[..]) + buckets
    }

    /// Asserts that each free element is in one bucket, that of its cost; returns their number.
    pub(super) fn check_invariants(&self) -> u32 {
        let mut hung = vec![false; self.words.len()];
        for (group, free) in self.groups.iter().enumerate() {
            let mut count = 0;
            assert!(free.buckets.is_sorted_by(|a, b| a.cost > b.cost), "the cheapest comes last");
            for bucket in &free.buckets {
                let mut element = bucket.first;
                assert!(element != NONE, "an empty bucket is removed");
                while element != NONE {
                    assert!(
                        !std::mem::replace(&mut hung[element as usize], true),
                        "element {element} is in one bucket"
                    );
                    assert!(self.group_of(element) as usize == group && self.state(element).is_free());
                    assert!(
                        cost_of(self.words[element as usize]) == bucket.cost,
                        "element {element} is in the bucket of its cost"
                    );
                    (element, count) = (self.links[element as usize], count + 1);
                }
            }
            assert!(count == free.count, "group {group} has {count} free elements, not {}", free.count);
        }
        let free = self.words.iter().filter(|word| state_of(**word).is_free()).count();
        assert!(free == hung.iter().filter(|hangs| **hangs).count(), "every free element is in a bucket");
        free as u32
    }
}

fn word_of(element: Element) -> u32 {
    element.erases << STATE_BITS | element.state as u32
}

fn state_of(word: u32) -> ElementState {
    ElementState::ALL[(word & ((1 << STATE_BITS) - 1)) as usize]
}

/// Wear first; then an element that must be erased costs more than an empty one.
fn cost_of(word: u32) -> u32 {
    word >> STATE_BITS << 1 | u32::from(state_of(word) == ElementState::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_cost_their_wear_first_and_their_erase_second_up_to_the_last_erase_that_is_counted() {
        let cost = |erases, state| cost_of(word_of(Element { erases, state }));
        let most = crate::limits::ELEMENT_ERASES_MAX;
        for erases in (0..most.count_ones()).map(|bit| (1 << bit) - 1).chain([1000, most - 1]) {
            assert!(cost(erases, ElementState::Empty) < cost(erases, ElementState::Invalid), "{erases} erases");
            assert!(cost(erases, ElementState::Invalid) < cost(erases + 1, ElementState::Empty), "{erases} erases");
        }
    }

    #[test]
    fn tables_count_a_bucket_for_each_cost_of_free_elements() {
        const ELEMENTS: u32 = 64;
        let mut pool = Pool::new(1, ELEMENTS);
        pool.set((0..ELEMENTS).map(|erases| Element { erases, state: ElementState::Empty }));
        assert_eq!(pool.check_invariants(), ELEMENTS);
        let numbers = 2 * size_of::<u32>() + size_of::<Bucket>();
        assert!(pool.table_bytes() >= ELEMENTS as usize * numbers + size_of::<FreeElements>());
    }
}
