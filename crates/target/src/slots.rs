//! A table whose keys have a generation: the key of a removed item finds nothing.
//!
//! A key is the index of a slot, and how often the slot has been used. Each table has a key type of
//! its own ([`slot_key`]), so that the key of a controller cannot be used as that of a command.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// Items in slots that are reused.
#[derive(Debug)]
pub(crate) struct Slots<K, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    keys: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    item: Option<T>,
}

/// A key of [`Slots`]: the generation in its upper half, the index in its lower half.
pub(crate) trait SlotKey: Copy + PartialEq {
    fn from_bits(bits: u64) -> Self;
    fn bits(self) -> u64;
}

/// A key that nothing has any more once its item is removed. Only tables with such keys can be
/// indexed; keys that others still have are looked up with [`Slots::get`].
pub(crate) trait OwnedKey: SlotKey {}

/// Declares a key type.
macro_rules! slot_key {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name(u64);

        impl $crate::slots::SlotKey for $name {
            #[inline]
            fn from_bits(bits: u64) -> $name {
                $name(bits)
            }

            #[inline]
            fn bits(self) -> u64 {
                self.0
            }
        }
    };
}
pub(crate) use slot_key;

impl<K: SlotKey, T> Slots<K, T> {
    pub(crate) fn new() -> Slots<K, T> {
        Slots { slots: Vec::new(), free: Vec::new(), keys: PhantomData }
    }

    pub(crate) fn insert(&mut self, item: T) -> K {
        match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                assert!(slot.item.is_none(), "a free slot is empty, or an item would be lost");
                slot.item = Some(item);
                key(slot.generation, index)
            }
            None => {
                let index = u32::try_from(self.slots.len()).expect("the tables of a target have limits below 2^32");
                self.slots.push(Slot { generation: 0, item: Some(item) });
                key(0, index)
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&T> {
        let slot = self.slots.get(index_of(key))?;
        if slot.generation == generation_of(key) { slot.item.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let slot = self.slots.get_mut(index_of(key))?;
        if slot.generation == generation_of(key) { slot.item.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        let index = index_of(key);
        let slot = self.slots.get_mut(index)?;
        if slot.generation != generation_of(key) {
            return None;
        }
        let item = slot.item.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index as u32);
        Some(item)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| slot.item.as_ref().map(|item| (key(slot.generation, index as u32), item)))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.item.as_ref())
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.item.as_mut())
    }

    /// The present keys, for callers that change the table on the way.
    pub(crate) fn keys(&self) -> Vec<K> {
        self.iter().map(|(key, _)| key).collect()
    }
}

impl<K: OwnedKey, T> Index<K> for Slots<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, key: K) -> &T {
        self.get(key).expect("an item exists as long as its key is in use")
    }
}

impl<K: OwnedKey, T> IndexMut<K> for Slots<K, T> {
    #[inline]
    fn index_mut(&mut self, key: K) -> &mut T {
        self.get_mut(key).expect("an item exists as long as its key is in use")
    }
}

fn key<K: SlotKey>(generation: u32, index: u32) -> K {
    K::from_bits(u64::from(generation) << 32 | u64::from(index))
}

#[inline]
fn index_of(key: impl SlotKey) -> usize {
    key.bits() as u32 as usize
}

#[inline]
fn generation_of(key: impl SlotKey) -> u32 {
    (key.bits() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    slot_key!(Letter);

    #[test]
    fn the_key_of_a_removed_item_finds_nothing() {
        let mut slots: Slots<Letter, char> = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!((slots.get(first), slots.get(second), slots.len()), (None, Some(&'b'), 1));
        assert_eq!((slots.remove(first), slots.keys()), (None, vec![second]));
    }

    #[test]
    fn bits_that_were_never_a_key_find_nothing() {
        let mut slots: Slots<Letter, char> = Slots::new();
        let only = slots.insert('a');
        for bits in [1, 1 << 32, u64::MAX] {
            let invented = Letter::from_bits(bits);
            assert_eq!(slots.get(invented), None, "{bits:#x}");
            assert_eq!(slots.remove(invented), None, "{bits:#x}");
        }
        assert_eq!((only.bits(), slots.remove(only)), (0, Some('a')));
    }
}
