//! [`Fair`]: the requests of a group, in turns of their owners.

use std::collections::VecDeque;

use zonda_zoned::{Class, TenantId};

use super::entries::{Entries, Owner};
use crate::limits::INTERFERENCE_QUANTUM_BYTES;
use crate::{Accepts, RequestId};

/// The requests of a group: deficit round robin over their owners, by bytes. Requests of an owner are
/// released in the order of their arrival; those in the background when none in the foreground waits.
#[derive(Debug, Default)]
pub(super) struct Fair {
    /// By [`Class`]: owners with requests, or with a debt; the first one is in turn.
    rings: [VecDeque<Flow>; 2],
}

/// The requests of an owner and class.
#[derive(Debug)]
struct Flow {
    owner: Owner,
    quantum: i64,
    /// Bytes that it may still release in this turn; negative if it has released more.
    balance: i64,
    reads: List,
    others: List,
}

/// Requests in the order of their arrival.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    ends: Option<(RequestId, RequestId)>,
}

impl Fair {
    /// Adds a request behind those of its owner, or before them.
    pub(super) fn push(&mut self, entries: &mut Entries, id: RequestId, is_first: bool, weight: u32) {
        let entry = *entries.get(id);
        let ring = &mut self.rings[entry.class as usize];
        let place = ring.iter().position(|flow| flow.owner == entry.owner).unwrap_or_else(|| {
            let quantum = INTERFERENCE_QUANTUM_BYTES as i64 * i64::from(weight);
            let (reads, others) = (List::default(), List::default());
            ring.push_back(Flow { owner: entry.owner, quantum, balance: 0, reads, others });
            ring.len() - 1
        });
        let flow = &mut ring[place];
        if is_first {
            flow.balance += i64::from(entry.bytes);
        }
        flow.list(entry.is_read).push(entries, id, is_first);
    }

    /// The next request.
    pub(super) fn pop(&mut self, entries: &Entries, accepts: Accepts) -> Option<RequestId> {
        let [foreground, background] = &mut self.rings;
        pop_from(foreground, entries, accepts).or_else(|| pop_from(background, entries, accepts))
    }

    /// Removes a request that is the oldest of all.
    pub(super) fn take(&mut self, entries: &Entries, id: RequestId) {
        let entry = entries.get(id);
        let ring = &mut self.rings[entry.class as usize];
        let flow = ring.iter_mut().find(|flow| flow.owner == entry.owner);
        let flow = flow.expect("the owner of a waiting request has its turns");
        flow.balance -= i64::from(entry.bytes);
        flow.list(entry.is_read).remove(entries, id);
    }

    /// What a tenant may release in its next turns.
    pub(super) fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        let flows = self.rings.iter_mut().flatten().filter(|flow| flow.owner.tenant == tenant);
        flows.for_each(|flow| flow.quantum = INTERFERENCE_QUANTUM_BYTES as i64 * i64::from(weight));
    }

    /// The number of requests, by walking all lists.
    pub(super) fn len(&self, entries: &Entries) -> usize {
        let flows = self.rings.iter().flatten();
        flows.map(|flow| flow.reads.iter(entries).count() + flow.others.iter(entries).count()).sum()
    }
}

fn pop_from(ring: &mut VecDeque<Flow>, entries: &Entries, accepts: Accepts) -> Option<RequestId> {
    let mut skipped = 0;
    let is_alone = ring.len() == 1;
    while skipped < ring.len() {
        let flow = ring.front_mut().expect("the ring is longer than what was skipped");
        let Some(id) = flow.first(entries, accepts) else {
            if flow.is_empty() && (flow.balance >= 0 || is_alone) {
                ring.pop_front();
            } else {
                // Debts are paid in turns, also by an owner without requests.
                flow.balance = (flow.balance + flow.quantum).min(0);
                skipped += 1;
                ring.rotate_left(1);
            }
            continue;
        };
        // An owner alone in a group does not wait for turns.
        if flow.balance > 0 || is_alone {
            let entry = entries.get(id);
            flow.balance = if is_alone { 0 } else { flow.balance - i64::from(entry.bytes) };
            flow.list(entry.is_read).remove(entries, id);
            if flow.is_empty() && flow.balance >= 0 {
                ring.pop_front();
            } else if flow.balance <= 0 {
                ring.rotate_left(1);
            }
            return Some(id);
        }
        flow.balance += flow.quantum;
        if flow.balance <= 0 {
            ring.rotate_left(1);
        }
        skipped = 0;
    }
    None
}

impl Flow {
    fn list(&mut self, is_read: bool) -> &mut List {
        if is_read { &mut self.reads } else { &mut self.others }
    }

    fn is_empty(&self) -> bool {
        self.reads.ends.is_none() && self.others.ends.is_none()
    }

    /// The oldest request of those that the device accepts.
    fn first(&self, entries: &Entries, accepts: Accepts) -> Option<RequestId> {
        let read = self.reads.first();
        match (read, self.others.first().filter(|_| accepts == Accepts::All)) {
            (Some(read), Some(other)) if entries.get(other).number < entries.get(read).number => Some(other),
            (Some(read), _) => Some(read),
            (None, other) => other,
        }
    }
}

impl List {
    fn first(&self) -> Option<RequestId> {
        self.ends.map(|(first, _)| first)
    }

    fn iter<'a>(&self, entries: &'a Entries) -> impl Iterator<Item = RequestId> + 'a {
        std::iter::successors(self.first(), |id| entries.next(*id))
    }

    fn push(&mut self, entries: &mut Entries, id: RequestId, is_first: bool) {
        self.ends = Some(match self.ends {
            None => (id, id),
            Some((first, last)) if is_first => {
                entries.set_next(id, Some(first));
                (id, last)
            }
            Some((first, last)) => {
                entries.set_next(last, Some(id));
                (first, id)
            }
        });
    }

    /// Removes the first request.
    fn remove(&mut self, entries: &Entries, id: RequestId) {
        let (first, last) = self.ends.expect("a request is removed from its list");
        assert_eq!(first, id, "requests of an owner are released in the order of their arrival");
        self.ends = entries.next(id).map(|next| (next, last));
    }
}

const _: () = assert!(Class::Foreground as usize == 0 && Class::Background as usize == 1, "the rings are by class");
