//! [`ByNumber`]: the namespaces of a pool.

use std::ops::Index;

/// Values by number, in ascending order. A command looks its namespace up several times: numbers
/// that follow each other from 1 on, as those of namespaces do, are found without a search.
#[derive(Debug)]
pub(super) struct ByNumber<T> {
    entries: Vec<(u32, T)>,
}

impl<T> ByNumber<T> {
    pub(super) fn new() -> ByNumber<T> {
        ByNumber { entries: Vec::new() }
    }

    #[inline]
    fn place_of(&self, number: u32) -> Result<usize, usize> {
        let likely = number.wrapping_sub(1) as usize;
        match self.entries.get(likely) {
            Some((found, _)) if *found == number => Ok(likely),
            _ => self.entries.binary_search_by_key(&number, |(other, _)| *other),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: &u32) -> Option<&T> {
        let place = self.place_of(*number).ok()?;
        Some(&self.entries[place].1)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: &u32) -> Option<&mut T> {
        let place = self.place_of(*number).ok()?;
        Some(&mut self.entries[place].1)
    }

    pub(super) fn contains_key(&self, number: &u32) -> bool {
        self.place_of(*number).is_ok()
    }

    pub(super) fn insert(&mut self, number: u32, value: T) {
        match self.place_of(number) {
            Ok(place) => self.entries[place].1 = value,
            Err(place) => self.entries.insert(place, (number, value)),
        }
    }

    pub(super) fn remove(&mut self, number: &u32) -> Option<T> {
        let place = self.place_of(*number).ok()?;
        Some(self.entries.remove(place).1)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u32, &T)> {
        self.entries.iter().map(|(number, value)| (number, value))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&u32, &mut T)> {
        self.entries.iter_mut().map(|(number, value)| (&*number, value))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, value)| value)
    }
}

impl<T> Index<&u32> for ByNumber<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: &u32) -> &T {
        self.get(number).expect("a namespace stays while it is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use zonda_zoned::Prng;

    #[test]
    fn values_are_found_as_in_a_map_whatever_their_numbers_are() {
        let mut prng = Prng::new(1);
        let (mut values, mut map) = (ByNumber::new(), BTreeMap::new());
        for step in 0..20_000_u32 {
            let number = if prng.chance(1, 8) { u32::MAX - prng.below(3) as u32 } else { prng.below(20) as u32 };
            match prng.below(3) {
                0 => {
                    values.insert(number, step);
                    map.insert(number, step);
                }
                1 => assert_eq!(values.remove(&number), map.remove(&number)),
                _ => assert_eq!(values.get_mut(&number), map.get_mut(&number)),
            }
            assert_eq!(values.contains_key(&number), map.contains_key(&number));
            assert!(values.iter().eq(map.iter()) && values.len() == map.len());
        }
    }
}
