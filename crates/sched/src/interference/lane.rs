//! [`Lane`]: the requests of a conflict group.

use std::collections::BTreeMap;

use zonda_zoned::{Instant, TenantId};

use super::Within;
use super::buckets::NONE;
use super::entries::Entries;
use super::fair::Fair;
use crate::{Accepts, Ezns, Outcome, Request, RequestId, Scheduler, TenantLoad};

/// A group: what waits, and how many requests are outstanding.
#[derive(Debug)]
pub(super) struct Lane {
    order: Order,
    /// Requests that were released and have not completed.
    pub(super) outstanding: u32,
    /// Requests that wait, and the reads among them.
    pub(super) waiting: u32,
    pub(super) reads: u32,
    /// Whether its requests wait for windows or tokens.
    pub(super) is_stalled: bool,
}

#[derive(Debug)]
enum Order {
    Fair(Fair),
    Ezns(Box<Ezns>),
}

impl Lane {
    pub(super) fn new(within: &Within) -> Lane {
        let order = match within {
            Within::Fair => Order::Fair(Fair::default()),
            Within::Ezns(config) => Order::Ezns(Box::new(Ezns::new(config.clone()))),
        };
        Lane { order, outstanding: 0, waiting: 0, reads: 0, is_stalled: false }
    }

    /// Under which numbers of outstanding requests it is listed: if it has requests that may be released, and
    /// if it has reads among them; [`NONE`] if it has not.
    #[inline]
    pub(super) fn listing(&self) -> (u32, u32) {
        let count = |requests: u32| if requests > 0 && !self.is_stalled { self.outstanding } else { NONE };
        (count(self.waiting), count(self.reads))
    }

    /// Adds a request, which is in `entries`.
    pub(super) fn push(&mut self, entries: &mut Entries, id: RequestId, request: &Request, weight: u32) {
        self.waiting += 1;
        self.reads += u32::from(entries.get(id).is_read);
        match &mut self.order {
            Order::Fair(fair) => fair.push(entries, id, false, weight),
            Order::Ezns(ezns) => ezns.push(id, request),
        }
    }

    /// Adds a request that has waited elsewhere, to a group whose tenants take turns.
    pub(super) fn push_fair(&mut self, entries: &mut Entries, id: RequestId, weight: u32) {
        self.waiting += 1;
        self.reads += u32::from(entries.get(id).is_read);
        match &mut self.order {
            Order::Fair(fair) => fair.push(entries, id, false, weight),
            Order::Ezns(_) => unreachable!("requests leave such a group when they are released"),
        }
    }

    /// Forgets what waits in a group whose tenants take turns.
    pub(super) fn clear(&mut self) {
        if let Order::Fair(fair) = &mut self.order {
            *fair = Fair::default();
            (self.waiting, self.reads) = (0, 0);
        }
    }

    /// Adds the request that was just removed again.
    pub(super) fn put_back(&mut self, entries: &mut Entries, id: RequestId, request: &Request, weight: u32) {
        self.waiting += 1;
        self.reads += u32::from(entries.get(id).is_read);
        match &mut self.order {
            Order::Fair(fair) => fair.push(entries, id, true, weight),
            Order::Ezns(ezns) => ezns.put_back(id, request),
        }
    }

    /// Chooses a request. The caller counts it as outstanding.
    pub(super) fn pop(&mut self, entries: &Entries, now: Instant, accepts: Accepts) -> Option<RequestId> {
        match &mut self.order {
            Order::Fair(fair) => fair.pop(entries, accepts),
            Order::Ezns(ezns) => ezns.pop(now, accepts),
        }
    }

    /// Removes a request that is the oldest of all; false if its order depends on latencies.
    pub(super) fn take(&mut self, entries: &Entries, id: RequestId) -> bool {
        match &mut self.order {
            Order::Fair(fair) => {
                fair.take(entries, id);
                true
            }
            Order::Ezns(_) => false,
        }
    }

    pub(super) fn on_completion(&mut self, now: Instant, request: &Request, outcome: Outcome) {
        match &mut self.order {
            Order::Fair(_) => {}
            Order::Ezns(ezns) => ezns.on_completion(now, request, outcome),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.order {
            Order::Fair(_) => None,
            Order::Ezns(ezns) => ezns.next_timeout(),
        }
    }

    pub(super) fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        match &mut self.order {
            Order::Fair(fair) => fair.set_weight(tenant, weight),
            Order::Ezns(ezns) => ezns.set_weight(tenant, weight),
        }
    }

    pub(super) fn check_invariants(&self, entries: &Entries) {
        let waiting = match &self.order {
            Order::Fair(fair) => fair.len(entries),
            Order::Ezns(ezns) => {
                ezns.check_invariants();
                ezns.waiting()
            }
        };
        assert_eq!(waiting, self.waiting as usize, "the order of a group has its requests");
        assert!(self.reads <= self.waiting, "reads wait, too");
        assert!(!self.is_stalled || self.waiting > 0, "only requests that wait can be stalled");
    }
}

/// What the schedulers of all groups grant each tenant together.
pub(super) fn loads(lanes: &[Lane]) -> Vec<TenantLoad> {
    let mut all: BTreeMap<TenantId, TenantLoad> = BTreeMap::new();
    for lane in lanes {
        let Order::Ezns(ezns) = &lane.order else { continue };
        for load in ezns.loads() {
            let sum = all.entry(load.tenant).or_insert_with(|| TenantLoad::none(load.tenant));
            sum.streams += load.streams;
            sum.waiting += load.waiting;
            sum.reads_in_flight += load.reads_in_flight;
            sum.read_window += load.read_window;
            sum.writes_in_flight += load.writes_in_flight;
            sum.write_tokens_bytes += load.write_tokens_bytes;
        }
    }
    all.into_values().collect()
}
