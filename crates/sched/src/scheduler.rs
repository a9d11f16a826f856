//! [`Scheduler`]: a policy.

use zonda_zoned::{Duration, Instant, Key, TenantId};

use crate::order::Waiting;
use crate::{ConflictGroup, GroupLoad, Request, TableReport, TenantLoad};

/// The number of a request; it is reused once the request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) Key<Waiting>);

/// What the device accepts at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Any request, as far as is known.
    All,
    /// Reads: it has refused another request since the last completion, or other requests have the
    /// slots that they may have ([`Scheduler::slots_of_writes`]).
    Reads,
}

/// How a released request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// From its release to its completion.
    pub latency: Duration,
    /// Whether the device has executed it. The latency of a command that it rejects says nothing about
    /// the device.
    pub is_success: bool,
}

/// A policy: which request is released next.
///
/// It is offered requests that may take effect now ([`push`](Scheduler::push)), each once. It
/// returns them in any order ([`pop`](Scheduler::pop)), and is told when they end. A request that
/// the device refuses comes back ([`put_back`](Scheduler::put_back)).
///
/// A policy is work-conserving unless it says otherwise by
/// [`next_timeout`](Scheduler::next_timeout): if it returns nothing although requests wait and none
/// is in flight, it has to name the instant at which it will.
pub trait Scheduler {
    /// Its name in configuration files and reports.
    fn name(&self) -> &'static str;

    /// The conflict group of a new request, with which it is tagged until it ends; `None` if it is
    /// unknown, or for a policy without groups.
    fn group(&self, request: &Request) -> Option<ConflictGroup> {
        let _ = request;
        None
    }

    /// How many of the device's slots requests other than reads may have. Writes take long, and with all
    /// slots of a device a read waits for the end of one, whatever the order in which they are released.
    /// All of them unless the policy keeps some for reads.
    fn slots_of_writes(&self, slots: usize) -> usize {
        slots
    }

    /// Adds a request.
    fn push(&mut self, id: RequestId, request: &Request);

    /// Removes the request to release at `now`; `None` if none may be.
    fn pop(&mut self, now: Instant, accepts: Accepts) -> Option<RequestId>;

    /// Adds the request that was just popped again, in its old place: the device has refused it.
    fn put_back(&mut self, id: RequestId, request: &Request);

    /// Whether a new request can be released at once while no other waits: then it counts as pushed
    /// and popped, and if `is_last`, as followed by a [`pop`](Scheduler::pop) that returns nothing. It is a
    /// shorter way to the same result: if this returns false, nothing has changed, and the request is pushed.
    fn pass(&mut self, now: Instant, request: &Request, is_last: bool) -> bool {
        let _ = (now, request, is_last);
        false
    }

    /// Adds the request that has just [passed](Scheduler::pass): the device has refused it, so that it is not
    /// followed by a pop.
    fn put_back_passed(&mut self, id: RequestId, request: &Request) {
        self.put_back(id, request);
    }

    /// A released request has ended.
    fn on_completion(&mut self, now: Instant, request: &Request, outcome: Outcome);

    /// When [`pop`](Scheduler::pop) may return something without another event. Once `pop` has been
    /// called at that time, it is a later one.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// From now on a tenant has this share of the device, relative to that of others. A policy without
    /// shares ignores it.
    fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        let _ = (tenant, weight);
    }

    /// The number of requests that were pushed and not popped.
    fn waiting(&self) -> usize;

    /// The tenants with requests in progress, in the order of their numbers; none for a policy that
    /// does not distinguish tenants. For reports: the time is proportional to the streams.
    fn loads(&self) -> Vec<TenantLoad> {
        Vec::new()
    }

    /// The conflict groups with requests in progress, in the order of their numbers; none for a policy
    /// without groups. For reports: the time is proportional to the groups.
    fn group_loads(&self) -> Vec<GroupLoad> {
        Vec::new()
    }

    /// What it has found about its table of conflict groups; `None` for a policy without.
    fn table(&self) -> Option<TableReport> {
        None
    }

    /// Checks that its queues agree.
    ///
    /// # Panics
    /// If they do not.
    fn check_invariants(&self) {}
}
