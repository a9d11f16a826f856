//! [`IndexSlab`]: values at reusable indices of no type.

/// Values at small indices; an index is reused once its value is removed. For the commands that a
/// device has in flight.
#[derive(Debug)]
pub struct IndexSlab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> IndexSlab<T> {
    /// An empty slab.
    #[must_use]
    pub fn new() -> IndexSlab<T> {
        IndexSlab { entries: Vec::new(), free: Vec::new() }
    }

    /// Inserts a value, and returns its index.
    ///
    /// # Panics
    /// With more than 2^32 values: the number of commands in flight is bounded.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(value);
                index
            }
            None => {
                self.entries.push(Some(value));
                u32::try_from(self.entries.len() - 1).expect("a slab is bounded by what its users may have outstanding")
            }
        }
    }

    /// Removes a value.
    ///
    /// # Panics
    /// If the index is free: its user holds an index that was released.
    #[inline]
    pub fn remove(&mut self, index: u32) -> T {
        let value = self.entries[index as usize].take().expect("a slab entry is removed once");
        self.free.push(index);
        value
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

    /// The values, in the order of their indices.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    /// The values with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index as u32, entry.as_ref()?)))
    }
}

impl<T> Default for IndexSlab<T> {
    fn default() -> IndexSlab<T> {
        IndexSlab::new()
    }
}

impl<T> std::ops::Index<u32> for IndexSlab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        self.entries[index as usize].as_ref().expect("a slab entry is used while it exists")
    }
}

impl<T> std::ops::IndexMut<u32> for IndexSlab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.entries[index as usize].as_mut().expect("a slab entry is used while it exists")
    }
}
