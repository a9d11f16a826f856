//! A table with unique keys: the index of a slot, and how often the slot has been used.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Items in slots that are reused; the key of a removed item finds nothing.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    item: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    /// The key that the next [`Slots::insert`] returns.
    pub(crate) fn next_key(&self) -> u64 {
        match self.free.last() {
            Some(&index) => key(self.slots[index as usize].generation, index),
            None => key(0, self.slots.len() as u32),
        }
    }

    pub(crate) fn insert(&mut self, item: T) -> u64 {
        let next = self.next_key();
        match self.free.pop() {
            Some(index) => self.slots[index as usize].item = Some(item),
            None => self.slots.push(Slot { generation: 0, item: Some(item) }),
        }
        next
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let slot = self.slots.get(key as u32 as usize)?;
        if slot.generation == (key >> 32) as u32 { slot.item.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(key as u32 as usize)?;
        if slot.generation == (key >> 32) as u32 { slot.item.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let index = key as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != (key >> 32) as u32 {
            return None;
        }
        let item = slot.item.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(item)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| slot.item.as_ref().map(|item| (key(slot.generation, index as u32), item)))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.item.as_mut())
    }

    pub(crate) fn keys(&self) -> Vec<u64> {
        self.iter().map(|(key, _)| key).collect()
    }
}

/// A typed key of a [`Table`].
pub(crate) trait TableIndex: Copy {
    /// The index with a key of the slots.
    fn of(key: u64) -> Self;
    /// Its key.
    fn key(self) -> u64;
}

/// Slots with keys of their own type, for items that exist as long as any other table has their
/// key. Access by the key of a removed item is a bug, and panics.
#[derive(Debug)]
pub(crate) struct Table<K, T> {
    slots: Slots<T>,
    keys: PhantomData<K>,
}

impl<K: TableIndex, T> Table<K, T> {
    pub(crate) fn new() -> Table<K, T> {
        Table { slots: Slots::new(), keys: PhantomData }
    }

    pub(crate) fn insert(&mut self, item: T) -> K {
        K::of(self.slots.insert(item))
    }

    pub(crate) fn get(&self, index: K) -> Option<&T> {
        self.slots.get(index.key())
    }

    pub(crate) fn remove(&mut self, index: K) -> Option<T> {
        self.slots.remove(index.key())
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slots.iter().map(|(key, item)| (K::of(key), item))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.values_mut()
    }
}

impl<K: TableIndex, T> Index<K> for Table<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: K) -> &T {
        self.slots.get(index.key()).expect("an item exists as long as its index is in use")
    }
}

impl<K: TableIndex, T> IndexMut<K> for Table<K, T> {
    #[inline]
    fn index_mut(&mut self, index: K) -> &mut T {
        self.slots.get_mut(index.key()).expect("an item exists as long as its index is in use")
    }
}

fn key(generation: u32, index: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_removed_item_finds_nothing() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!((slots.get(first), slots.get(second), slots.len()), (None, Some(&'b'), 1));
        assert_eq!((slots.remove(first), slots.keys()), (None, vec![second]));
    }
}
