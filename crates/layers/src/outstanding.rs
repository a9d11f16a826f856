//! A bounded table of commands in flight, with ids of its own.

use zonda_zoned::{CommandId, Instant};

/// Commands in flight. An id has the slot and the number of uses of the slot, so that a duplicate
/// completion is detected and cannot end another command.
#[derive(Debug)]
pub(crate) struct Outstanding<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    capacity: usize,
}

#[derive(Debug)]
struct Slot<T> {
    uses: u32,
    entry: Option<T>,
}

impl<T> Outstanding<T> {
    pub(crate) fn new(capacity: usize) -> Outstanding<T> {
        Outstanding { slots: Vec::new(), free: Vec::new(), capacity }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == self.capacity
    }

    /// # Panics
    /// When the table is full, which the caller checks before.
    pub(crate) fn insert(&mut self, entry: T) -> CommandId {
        assert!(!self.is_full(), "all {} slots are in use", self.capacity);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, entry: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.uses = slot.uses.wrapping_add(1);
        slot.entry = Some(entry);
        CommandId(u64::from(slot.uses) << 32 | u64::from(index))
    }

    /// # Panics
    /// As [`remove`](Outstanding::remove).
    pub(crate) fn get_mut(&mut self, id: CommandId) -> &mut T {
        let slot = self.slots.get_mut(id.0 as u32 as usize).filter(|slot| u64::from(slot.uses) == id.0 >> 32);
        let entry = slot.and_then(|slot| slot.entry.as_mut());
        entry.unwrap_or_else(|| panic!("command {} is not in flight", id.0))
    }

    /// # Panics
    /// When no command in flight has this id: the device below sent a duplicate or invalid
    /// completion.
    pub(crate) fn remove(&mut self, id: CommandId) -> T {
        let index = id.0 as u32;
        let slot = self.slots.get_mut(index as usize).filter(|slot| u64::from(slot.uses) == id.0 >> 32);
        let entry = slot.and_then(|slot| slot.entry.take());
        let entry = entry.unwrap_or_else(|| panic!("command {} is not in flight", id.0));
        self.free.push(index);
        entry
    }
}

/// The earlier of two optional instants.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_its_capacity_and_returns_each_entry_once() {
        let mut table = Outstanding::new(2);
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert!(table.is_full());
        assert_eq!(table.remove(a), 'a');
        let c = table.insert('c');
        assert_ne!(a, c, "the same slot gets a new id");
        assert_eq!((table.remove(b), table.remove(c)), ('b', 'c'));
    }

    #[test]
    #[should_panic(expected = "is not in flight")]
    fn a_command_cannot_end_twice() {
        let mut table = Outstanding::new(2);
        let id = table.insert('a');
        table.remove(id);
        table.insert('b');
        table.remove(id);
    }
}
