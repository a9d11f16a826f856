//! The table of operations outstanding on a ring.

use std::io;
use std::rc::Rc;

use slab::Slab;

use crate::client::Inbox;
use crate::work::Work;
use crate::{Done, Outcome, limits};

/// An operation in the table.
pub(crate) struct Entry {
    /// The inbox for its completion; `None`: the client has been dropped.
    pub(crate) inbox: Option<Rc<Inbox>>,
    pub(crate) token: u64,
    pub(crate) work: Work,
    /// Bytes moved so far.
    pub(crate) moved: u64,
    /// Memory of this entry is lent to the kernel, or to a thread: the entry must stay until it is
    /// returned.
    pub(crate) is_lent: bool,
    /// It ends as soon as it is not lent.
    pub(crate) is_cancelled: bool,
}

/// All entries, by key. A key is not reused before its entry has ended.
#[derive(Default)]
pub(crate) struct Entries {
    slab: Slab<Entry>,
    /// An operation ended since the iteration began: do not sleep.
    pub(crate) has_news: bool,
}

impl Entries {
    pub(crate) fn insert(&mut self, inbox: &Rc<Inbox>, token: u64, work: Work) -> usize {
        assert!(self.slab.len() < limits::OPERATIONS_MAX, "callers bound what they have outstanding");
        let inbox = Some(Rc::clone(inbox));
        self.slab.insert(Entry { inbox, token, work, moved: 0, is_lent: false, is_cancelled: false })
    }

    pub(crate) fn get(&self, key: usize) -> &Entry {
        &self.slab[key]
    }

    pub(crate) fn get_mut(&mut self, key: usize) -> &mut Entry {
        &mut self.slab[key]
    }

    /// Removes the entry and queues its completion for the client.
    pub(crate) fn finish(&mut self, key: usize, result: io::Result<Outcome>) {
        let entry = self.slab.remove(key);
        assert!(!entry.is_lent, "memory lent to the kernel is not given away");
        if let Some(inbox) = entry.inbox {
            inbox.push(Done { token: entry.token, result, bytes: entry.moved });
            self.has_news = true;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    pub(crate) fn contains(&self, key: usize) -> bool {
        self.slab.contains(key)
    }

    /// Marks the outstanding operations of `inbox` (or all, with `None`) as cancelled, and returns
    /// their keys.
    pub(crate) fn abandon(&mut self, inbox: Option<&Rc<Inbox>>) -> Vec<usize> {
        let mut keys = Vec::new();
        for (key, entry) in &mut self.slab {
            match inbox {
                Some(inbox) if !entry.inbox.as_ref().is_some_and(|mine| Rc::ptr_eq(mine, inbox)) => continue,
                Some(_) => entry.inbox = None,
                None => {}
            }
            entry.is_cancelled = true;
            keys.push(key);
        }
        keys
    }

    /// Keys of the entries in the table.
    pub(crate) fn keys(&self) -> Vec<usize> {
        self.slab.iter().map(|(key, _)| key).collect()
    }

    /// Leaks the memory that the kernel did not return.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slab));
    }
}

impl Drop for Entries {
    /// A ring ends its entries before it is dropped. After a panic it may not have: the kernel may
    /// still write into them.
    fn drop(&mut self) {
        if self.slab.iter().any(|(_, entry)| entry.is_lent) {
            self.leak();
        }
    }
}
