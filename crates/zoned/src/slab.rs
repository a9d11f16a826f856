//! [`Slab`]: values at reusable keys, which the type system does not confuse.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use crate::CommandId;

/// The key of a value in a [`Slab<T>`]; a slab of another type does not accept it. `Option<Key<T>>`
/// takes 4 bytes, too.
pub struct Key<T> {
    /// The index plus one.
    number: NonZeroU32,
    value: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    #[inline]
    fn of_index(index: u32) -> Key<T> {
        let number = NonZeroU32::MIN.saturating_add(index);
        Key { number, value: PhantomData }
    }

    /// The index of the entry: below the greatest number of values that the slab has had at once.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.number.get() - 1
    }

    /// The key for which [`CommandId::from`] returned `id`; `None` for an identifier that is not of
    /// any key.
    #[inline]
    #[must_use]
    pub fn of_command(id: CommandId) -> Option<Key<T>> {
        u32::try_from(id.0).ok().filter(|index| *index < u32::MAX).map(Key::of_index)
    }
}

/// The identifier of the command that stands for an entry below.
impl<T> From<Key<T>> for CommandId {
    #[inline]
    fn from(key: Key<T>) -> CommandId {
        CommandId(u64::from(key.index()))
    }
}

/// Values at keys that are reused once their value is removed. For the commands that a device has in
/// flight.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<Key<T>>,
}

impl<T> Slab<T> {
    /// An empty slab.
    #[must_use]
    pub fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    /// Inserts a value, and returns its key.
    ///
    /// # Panics
    /// With 2^32 - 1 values: the number of commands in flight is bounded.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key<T> {
        match self.free.pop() {
            Some(key) => {
                self.entries[key.index() as usize] = Some(value);
                key
            }
            None => {
                let index = u32::try_from(self.entries.len()).ok().filter(|index| *index < u32::MAX);
                self.entries.push(Some(value));
                Key::of_index(index.expect("a slab is bounded by what its users may have outstanding"))
            }
        }
    }

    /// Removes a value.
    ///
    /// # Panics
    /// If there is none: its user holds a key that was released.
    #[inline]
    pub fn remove(&mut self, key: Key<T>) -> T {
        self.take(key).expect("a slab entry is removed once")
    }

    /// Drops a value where it is.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn discard(&mut self, key: Key<T>) {
        let entry = &mut self.entries[key.index() as usize];
        assert!(entry.is_some(), "a slab entry is removed once");
        *entry = None;
        self.free.push(key);
    }

    /// Removes a value, if there is one at the key.
    #[inline]
    pub fn take(&mut self, key: Key<T>) -> Option<T> {
        let value = self.entries.get_mut(key.index() as usize)?.take()?;
        self.free.push(key);
        Some(value)
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether the slab is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, in the order of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    /// The values with their keys, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((Key::of_index(index as u32), entry.as_ref()?)))
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Index<Key<T>> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, key: Key<T>) -> &T {
        self.entries[key.index() as usize].as_ref().expect("a slab entry is used while it exists")
    }
}

impl<T> IndexMut<Key<T>> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, key: Key<T>) -> &mut T {
        self.entries[key.index() as usize].as_mut().expect("a slab entry is used while it exists")
    }
}

// A derived implementation would require `T` to implement the trait, which a key does not need.

impl<T> Clone for Key<T> {
    #[inline]
    fn clone(&self) -> Key<T> {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    #[inline]
    fn eq(&self, other: &Key<T>) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Key<T> {}

impl<T> PartialOrd for Key<T> {
    #[inline]
    fn partial_cmp(&self, other: &Key<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Key<T> {
    #[inline]
    fn cmp(&self, other: &Key<T>) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl<T> Hash for Key<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_unique_keys_and_those_of_removed_values_are_reused() {
        let mut slab = Slab::new();
        let keys = ["a", "b", "c"].map(|value| slab.insert(value));
        assert_eq!(keys.map(Key::index), [0, 1, 2]);
        assert_eq!((slab.remove(keys[1]), slab.len()), ("b", 2));
        let more = ["d", "e"].map(|value| slab.insert(value));
        assert_eq!(more.map(Key::index), [1, 3]);
        assert_eq!(slab.values_mut().map(|value| *value).collect::<String>(), "adce");
        assert_eq!([more[1], keys[0], keys[2], more[0]].map(|key| slab.remove(key)).concat(), "eacd");
        assert!(slab.is_empty());
        assert_eq!(slab.take(more[1]), None);
    }

    #[test]
    fn a_value_that_is_discarded_is_dropped_and_its_key_is_reused() {
        let value = std::rc::Rc::new(());
        let mut slab = Slab::new();
        let key = slab.insert(value.clone());
        slab.discard(key);
        assert_eq!((std::rc::Rc::strong_count(&value), slab.len()), (1, 0));
        assert_eq!(slab.insert(value), key);
    }

    #[test]
    #[should_panic(expected = "a slab entry is removed once")]
    fn a_value_is_discarded_once() {
        let mut slab = Slab::new();
        let key = slab.insert(1);
        slab.discard(key);
        slab.discard(key);
    }

    #[test]
    fn a_key_is_the_identifier_of_the_command_that_stands_for_its_value() {
        let mut slab = Slab::new();
        let [_, second] = ["a", "b"].map(|value| slab.insert(value));
        let id = CommandId::from(second);
        assert_eq!((id, Key::of_command(id)), (CommandId(1), Some(second)));
        assert_eq!(slab.remove(second), "b");
        assert_eq!(Key::<&str>::of_command(CommandId(u64::from(u32::MAX))), None);
        assert_eq!(Key::<&str>::of_command(CommandId(1 << 32)), None);
        assert_eq!(size_of::<Option<Key<&str>>>(), 4);
    }
}
