//! [`Entries`]: what waits, linked in the order of its arrival.

use zonda_zoned::{Class, NamespaceId, TenantId};

use super::buckets::LaneIndex;
use crate::limits::INTERFERENCE_REQUEST_BYTES_MAX;
use crate::{Request, RequestId, RequestKind};

/// The waiting requests. Entries are reused with the number of their request, so that the table is as
/// long as the most requests that have waited at a time.
#[derive(Debug, Default)]
pub(super) struct Entries {
    table: Vec<Entry>,
    /// The requests that were pushed first and last.
    ends: Option<(RequestId, RequestId)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) lane: LaneIndex,
    /// The first zone.
    pub(super) zone: u32,
    pub(super) owner: Owner,
    pub(super) class: Class,
    pub(super) is_read: bool,
    pub(super) bytes: u64,
    /// [`Request::number`].
    pub(super) number: u64,
    /// The next request of the same queue.
    pub(super) next: Option<RequestId>,
    before: Option<RequestId>,
    after: Option<RequestId>,
}

/// Requests of one owner share its part of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) tenant: TenantId,
    pub(super) namespace: NamespaceId,
}

impl Entry {
    pub(super) fn of(request: &Request, lane: LaneIndex) -> Entry {
        Entry {
            lane,
            zone: request.zones.start,
            owner: Owner { tenant: request.origin.tenant, namespace: request.namespace },
            class: request.origin.class,
            is_read: request.kind == RequestKind::Read,
            // A request without data takes its time, too.
            bytes: request.bytes.clamp(4096, INTERFERENCE_REQUEST_BYTES_MAX),
            number: request.number,
            next: None,
            before: None,
            after: None,
        }
    }
}

impl Entries {
    pub(super) fn get(&self, id: RequestId) -> &Entry {
        &self.table[id.0.index() as usize]
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> &mut Entry {
        &mut self.table[id.0.index() as usize]
    }

    /// The request that was pushed first.
    pub(super) fn oldest(&self) -> Option<RequestId> {
        self.ends.map(|(first, _)| first)
    }

    /// All requests, in the order in which they were pushed.
    pub(super) fn iter(&self) -> impl Iterator<Item = RequestId> {
        std::iter::successors(self.oldest(), |id| self.get(*id).after)
    }

    /// Adds a request behind all others, or before them.
    pub(super) fn insert(&mut self, id: RequestId, mut entry: Entry, is_first: bool) {
        (entry.before, entry.after) = match (self.ends, is_first) {
            (None, _) => (None, None),
            (Some((first, _)), true) => (None, Some(first)),
            (Some((_, last)), false) => (Some(last), None),
        };
        let index = id.0.index() as usize;
        if index >= self.table.len() {
            self.table.resize(index + 1, entry);
        }
        self.table[index] = entry;
        self.ends = Some(match self.ends {
            None => (id, id),
            Some((first, last)) if is_first => {
                self.get_mut(first).before = Some(id);
                (id, last)
            }
            Some((first, last)) => {
                self.get_mut(last).after = Some(id);
                (first, id)
            }
        });
    }

    pub(super) fn remove(&mut self, id: RequestId) {
        let Entry { before, after, .. } = *self.get(id);
        if let Some(before) = before {
            self.get_mut(before).after = after;
        }
        if let Some(after) = after {
            self.get_mut(after).before = before;
        }
        let (first, last) = self.ends.expect("what is removed is in the list");
        self.ends = match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some((after, last)),
            (Some(before), None) => Some((first, before)),
            (Some(_), Some(_)) => Some((first, last)),
        };
    }
}
