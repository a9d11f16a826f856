//! [`Queue`]: requests in the order of their arrival, linked through one table.

use zonda_zoned::{Class, Key};

use super::streams::Stream;
use crate::RequestId;
use crate::direction::Direction;

/// What the scheduler keeps of each waiting request. Entries are reused with the number of their
/// request, so that the table is as long as the most requests that have waited at a time.
#[derive(Debug, Default)]
pub(super) struct Entries(Vec<Entry>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: RequestId,
    pub(super) stream: Key<Stream>,
    pub(super) class: Class,
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    /// Counts arrivals at the scheduler.
    pub(super) sequence: u64,
    /// Whether the stream and the tenant have paid for its release.
    pub(super) is_charged: bool,
    next: Option<RequestId>,
}

/// The requests of a stream in one class and direction.
#[derive(Debug, Default)]
pub(super) struct Queue {
    first: Option<RequestId>,
    last: Option<RequestId>,
    pub(super) state: QueueState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum QueueState {
    /// Its tenant does not consider it; it is empty.
    #[default]
    Idle,
    /// Its tenant considers it.
    Ready,
    /// Its first request waits for the window or for tokens.
    Blocked,
}

impl Entry {
    pub(super) fn new(
        id: RequestId,
        stream: Key<Stream>,
        class: Class,
        direction: Direction,
        bytes: u64,
        sequence: u64,
    ) -> Entry {
        Entry { id, stream, class, direction, bytes, sequence, is_charged: false, next: None }
    }
}

impl Entries {
    pub(super) fn set(&mut self, entry: Entry) {
        let index = entry.id.0.index() as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, entry);
        }
        self.0[index] = entry;
    }

    pub(super) fn get(&self, id: RequestId) -> &Entry {
        &self.0[id.0.index() as usize]
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> &mut Entry {
        &mut self.0[id.0.index() as usize]
    }
}

impl Queue {
    pub(super) fn first(&self) -> Option<RequestId> {
        self.first
    }

    pub(super) fn push(&mut self, entries: &mut Entries, id: RequestId) {
        entries.get_mut(id).next = None;
        match self.last.replace(id) {
            Some(last) => entries.get_mut(last).next = Some(id),
            None => self.first = Some(id),
        }
    }

    pub(super) fn push_first(&mut self, entries: &mut Entries, id: RequestId) {
        entries.get_mut(id).next = self.first.replace(id);
        self.last.get_or_insert(id);
    }

    pub(super) fn pop(&mut self, entries: &Entries) -> Option<RequestId> {
        let id = self.first?;
        self.first = entries.get(id).next;
        if self.first.is_none() {
            self.last = None;
        }
        Some(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}
