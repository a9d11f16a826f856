//! Numbered places that are used again.

/// Values under small numbers; a number is free again once its value is taken out.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(value);
            return index;
        }
        self.entries.push(Some(value));
        u32::try_from(self.entries.len() - 1).expect("what is under way is bounded")
    }

    /// # Panics
    /// When the place is free: its user holds a number that was given back.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let value = self.entries[index as usize].take().expect("an entry is removed once");
        self.free.push(index);
        value
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index as u32, entry.as_ref()?)))
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        self.entries[index as usize].as_ref().expect("an entry is used while it is there")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.entries[index as usize].as_mut().expect("an entry is used while it is there")
    }
}
