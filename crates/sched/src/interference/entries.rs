//! [`Entries`]: what waits, linked in the order of its arrival.

use zonda_zoned::{Class, NamespaceId, TenantId};

use super::buckets::LaneIndex;
use crate::limits::INTERFERENCE_REQUEST_BYTES_MAX;
use crate::{Request, RequestId, RequestKind};

/// The waiting requests. Entries are reused with the number of their request, so that the tables are as
/// long as the most requests that have waited at a time.
///
/// Links are in a table of their own: requests before and behind one that leaves are linked in a few cache
/// lines, whatever else is kept of them.
#[derive(Debug, Default)]
pub(super) struct Entries {
    table: Vec<Entry>,
    links: Vec<Links>,
    /// The requests of groups that were pushed first and last.
    ends: Option<(RequestId, RequestId)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// [`Request::number`].
    pub(super) number: u64,
    pub(super) owner: Owner,
    pub(super) lane: LaneIndex,
    /// The first zone.
    pub(super) zone: u32,
    pub(super) bytes: u32,
    pub(super) class: Class,
    pub(super) is_read: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Links {
    /// The next request of the same queue.
    next: Option<RequestId>,
    /// Requests of groups, in the order in which they were pushed.
    before: Option<RequestId>,
    after: Option<RequestId>,
}

const _: () = assert!(size_of::<Entry>() <= 32 && size_of::<Links>() <= 12, "thousands of requests may wait");
const _: () = assert!(INTERFERENCE_REQUEST_BYTES_MAX <= u32::MAX as u64, "the size of a request fits");

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
            bytes: request.bytes.clamp(4096, INTERFERENCE_REQUEST_BYTES_MAX) as u32,
            number: request.number,
        }
    }
}

impl Entries {
    pub(super) fn get(&self, id: RequestId) -> &Entry {
        &self.table[id.0.index() as usize]
    }

    /// The next request of the same queue.
    pub(super) fn next(&self, id: RequestId) -> Option<RequestId> {
        self.links[id.0.index() as usize].next
    }

    pub(super) fn set_next(&mut self, id: RequestId, next: Option<RequestId>) {
        self.of(id).next = next;
    }

    fn of(&mut self, id: RequestId) -> &mut Links {
        &mut self.links[id.0.index() as usize]
    }

    /// The request of a group that was pushed first.
    pub(super) fn oldest(&self) -> Option<RequestId> {
        self.ends.map(|(first, _)| first)
    }

    /// All requests of groups, in the order in which they were pushed.
    pub(super) fn iter(&self) -> impl Iterator<Item = RequestId> {
        std::iter::successors(self.oldest(), |id| self.links[id.0.index() as usize].after)
    }

    /// Adds a request that waits in no group.
    pub(super) fn set(&mut self, id: RequestId, entry: Entry) {
        let index = id.0.index() as usize;
        if index >= self.table.len() {
            self.table.resize(index + 1, entry);
            self.links.resize(index + 1, Links::default());
        }
        self.table[index] = entry;
    }

    /// Adds a request, which was [set](Entries::set), behind all others of groups, or before them.
    pub(super) fn link(&mut self, id: RequestId, is_first: bool) {
        let (before, after) = match (self.ends, is_first) {
            (None, _) => (None, None),
            (Some((first, _)), true) => (None, Some(first)),
            (Some((_, last)), false) => (Some(last), None),
        };
        *self.of(id) = Links { next: None, before, after };
        self.ends = Some(match self.ends {
            None => (id, id),
            Some((first, last)) if is_first => {
                self.of(first).before = Some(id);
                (id, last)
            }
            Some((first, last)) => {
                self.of(last).after = Some(id);
                (first, id)
            }
        });
    }

    /// Removes a request of a group.
    pub(super) fn unlink(&mut self, id: RequestId) {
        let Links { before, after, .. } = *self.of(id);
        if let Some(before) = before {
            self.of(before).after = after;
        }
        if let Some(after) = after {
            self.of(after).before = before;
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
