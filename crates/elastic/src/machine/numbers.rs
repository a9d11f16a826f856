//! [`Numbers`]: which writes have not ended.

use std::collections::VecDeque;

/// Numbers that are added in ascending order and removed in any order. Takes a byte for each number
/// from the oldest present one on, and no allocation for each.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    first: u64,
    /// Whether `first` and those after it are present; the first one is.
    present: VecDeque<bool>,
}

impl Numbers {
    /// # Panics
    /// If the number is not above those added before.
    pub(super) fn add(&mut self, number: u64) {
        if self.present.is_empty() {
            self.first = number;
        }
        let length = number.checked_sub(self.first).expect("numbers ascend") as usize;
        assert!(self.present.len() <= length, "numbers ascend");
        if self.present.len() < length {
            self.present.resize(length, false);
        }
        self.present.push_back(true);
    }

    /// # Panics
    /// If the number is not present.
    pub(super) fn remove(&mut self, number: u64) {
        let entry = number.checked_sub(self.first).and_then(|place| self.present.get_mut(place as usize));
        assert!(entry.is_some_and(std::mem::take), "a number is removed once");
        while self.present.front() == Some(&false) {
            self.present.pop_front();
            self.first += 1;
        }
    }

    /// The smallest one.
    pub(super) fn first(&self) -> Option<u64> {
        (!self.present.is_empty()).then_some(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;

    #[test]
    fn the_first_number_is_that_of_a_sorted_set() {
        let mut prng = Prng::new(1);
        let (mut numbers, mut set) = (Numbers::default(), std::collections::BTreeSet::new());
        let mut next = 3;
        for _ in 0..10_000 {
            if prng.chance(1, 2) {
                next += 1 + prng.below(3);
                numbers.add(next);
                set.insert(next);
            } else if let Some(number) = prng.pick(&set.iter().copied().collect::<Vec<u64>>()).copied() {
                numbers.remove(number);
                set.remove(&number);
            }
            assert_eq!(numbers.first(), set.first().copied());
        }
    }
}
