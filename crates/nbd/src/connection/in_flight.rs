//! Requests in flight, by their ids.

use crate::limits::REQUESTS_MAX;
use crate::request::RequestId;

/// Bits of an id that are its slot; the others count the requests of the connection, so that an id
/// is never reused although its slot is.
const SLOT_BITS: u32 = 16;

const _: () = assert!(REQUESTS_MAX <= 1 << SLOT_BITS);

/// The place of a request in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot(u16);

impl Slot {
    fn of(id: RequestId) -> Slot {
        Slot(id.0 as u16)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The id of the request in this slot that `before` requests of the connection precede.
    fn id(self, before: u64) -> RequestId {
        RequestId(before << SLOT_BITS | u64::from(self.0))
    }
}

/// A request that was passed to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The client's cookie.
    pub(crate) cookie: u64,
    pub(crate) kind: PendingKind,
    /// Bytes of its data, which are buffered until the reply.
    pub(crate) data_bytes: usize,
}

/// The kind of request, which determines its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingKind {
    Read {
        offset: u64,
        length: u32,
        unfragmented: bool,
    },
    Status {
        length: u32,
        one: bool,
    },
    FastZeroes,
    /// WRITE, FLUSH, TRIM, and WRITE_ZEROES that may be slow.
    Plain,
}

/// The table, and the bytes that its requests buffer or will have read.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    slots: Vec<Option<(RequestId, Pending)>>,
    free: Vec<Slot>,
    taken: usize,
    /// Requests so far.
    requests: u64,
    data_bytes: usize,
}

impl InFlight {
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Bytes of requests in the table, and bytes reserved for the next request.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Reserves the data of a request before it is inserted.
    pub(crate) fn reserve(&mut self, data_bytes: usize) {
        self.data_bytes += data_bytes;
    }

    /// Inserts a request whose data has been reserved.
    pub(crate) fn insert(&mut self, pending: Pending) -> RequestId {
        let slot = self.free.pop().unwrap_or(Slot(self.slots.len() as u16));
        let id = slot.id(self.requests);
        self.requests += 1;
        self.taken += 1;
        let entry = Some((id, pending));
        match self.slots.get_mut(slot.index()) {
            Some(place) => {
                let before = std::mem::replace(place, entry);
                assert_eq!(before, None, "a slot has one request at a time");
            }
            None => self.slots.push(entry),
        }
        id
    }

    /// Removes a request; `None` when no request has this id.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Pending> {
        let slot = Slot::of(id);
        let place = self.slots.get_mut(slot.index())?;
        let (_, pending) = place.take_if(|(known, _)| *known == id)?;
        self.free.push(slot);
        self.taken -= 1;
        self.data_bytes -= pending.data_bytes;
        Some(pending)
    }

    pub(crate) fn clear(&mut self) {
        *self = InFlight { requests: self.requests, ..InFlight::default() };
    }

    pub(crate) fn check_invariants(&self, most: usize) {
        let held: Vec<&Pending> = self.slots.iter().flatten().map(|(_, pending)| pending).collect();
        assert_eq!(held.len(), self.taken, "requests are counted");
        assert_eq!(self.slots.len(), self.taken + self.free.len(), "every slot is taken or free");
        assert!(self.slots.len() <= most, "the number of requests is bounded");
        let are_in_place = self.slots.iter().enumerate().all(|(index, entry)| {
            let Some((id, _)) = entry else { return true };
            Slot::of(*id).index() == index && *id < Slot(0).id(self.requests)
        });
        assert!(are_in_place, "a request is found by its id, and later ids are unused");
        let data: usize = held.iter().map(|pending| pending.data_bytes).sum();
        assert!(data <= self.data_bytes, "data of requests is counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(cookie: u64) -> Pending {
        Pending { cookie, kind: PendingKind::Plain, data_bytes: 10 }
    }

    #[test]
    fn an_id_is_never_reused_although_its_slot_is() {
        let mut table = InFlight::default();
        let enter = |table: &mut InFlight, cookie| {
            table.reserve(10);
            table.insert(pending(cookie))
        };
        let first = enter(&mut table, 1);
        let second = enter(&mut table, 2);
        assert_eq!(table.remove(first).map(|pending| pending.cookie), Some(1));
        let third = enter(&mut table, 3);
        assert!(third != first && third != second);
        assert_eq!((table.remove(first), table.len(), table.data_bytes()), (None, 2, 20));
        table.check_invariants(2);
        table.clear();
        assert_eq!((table.remove(second), table.is_empty(), table.data_bytes()), (None, true, 0));
        assert!(enter(&mut table, 4) > third);
    }
}
