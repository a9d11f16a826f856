//! A table with unique keys: the index of a slot, and how often the slot has been used.

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

    pub(crate) fn keys(&self) -> Vec<u64> {
        self.iter().map(|(key, _)| key).collect()
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
