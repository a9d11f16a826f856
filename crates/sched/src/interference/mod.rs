//! [`Interference`]: scheduling by conflict groups (Bae et al., HotStorage 2022, Section 4.2).
//!
//! Each request is tagged with the conflict group of its zone, and the group with the fewest
//! outstanding requests is served first; of several, the one that has waited longest for its turn. So
//! the slots of the device are spread over the hardware that works in parallel. Requests whose group
//! is unknown are a group of their own.
//!
//! Inside a group tenants take turns ([`Within::Fair`]), or the scheduler of eZNS has its windows and
//! tokens ([`Within::Ezns`]): it controls by latency what shares hardware, the table chooses between
//! what does not.
//!
//! Each request is released within a bounded number of releases while the device accepts requests of
//! its kind: after [`INTERFERENCE_OVERTAKES_MAX`] others have been released before the oldest request,
//! this one is next, whatever its group.
//!
//! Zone management, flushes and reports are released as soon as they may take effect.
//!
//! ```text
//!   push ──► group of the zone ──► lane ──► fair.rs or Ezns
//!            zone_groups.rs         │
//!   pop  ◄── buckets.rs: the lane with the fewest outstanding requests
//! ```

mod buckets;
mod config;
mod entries;
mod fair;
mod lane;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use zonda_zoned::{Instant, TenantId};

use self::buckets::{Buckets, LaneIndex};
pub use self::config::{InterferenceConfig, Within};
use self::entries::{Entries, Entry};
use self::lane::Lane;
use crate::direction::Direction;
use crate::limits::{INTERFERENCE_OVERTAKES_MAX, INTERFERENCE_WEIGHT_MAX};
use crate::{Accepts, ConflictGroup, GroupLoad, Outcome, Request, RequestId, Scheduler, TenantLoad};

/// The scheduler.
#[derive(Debug)]
pub struct Interference {
    config: InterferenceConfig,
    /// By group; the last one is for requests whose group is unknown.
    lanes: Vec<Lane>,
    /// Lanes with requests that may be released, and those with reads among them.
    ready: Buckets,
    ready_reads: Buckets,
    /// Lanes whose requests wait for windows or tokens.
    stalled: Vec<LaneIndex>,
    /// Whether one is stalled because the device accepted reads alone.
    is_stalled_by_refusal: bool,
    entries: Entries,
    /// Flushes, management and reports.
    direct: VecDeque<RequestId>,
    /// Releases since the oldest request became the oldest.
    overtakes: u32,
    /// The shares of tenants other than 1.
    weights: Vec<(TenantId, u32)>,
    waiting: usize,
}

impl Interference {
    /// An idle scheduler.
    #[must_use]
    pub fn new(config: InterferenceConfig) -> Interference {
        let lanes = config.groups.groups() as usize + 1;
        Interference {
            lanes: (0..lanes).map(|_| Lane::new(&config.within)).collect(),
            ready: Buckets::new(lanes),
            ready_reads: Buckets::new(lanes),
            stalled: Vec::new(),
            is_stalled_by_refusal: false,
            entries: Entries::default(),
            direct: VecDeque::new(),
            overtakes: 0,
            weights: Vec::new(),
            waiting: 0,
            config,
        }
    }

    fn lane_of(&self, request: &Request) -> LaneIndex {
        let unknown = self.lanes.len() as LaneIndex - 1;
        request.group.map_or(unknown, |group| group.0.min(unknown))
    }

    fn weight(&self, tenant: TenantId) -> u32 {
        let listed = self.weights.iter().find(|(listed, _)| *listed == tenant);
        listed.map_or(1, |(_, weight)| *weight)
    }

    /// Lists a lane where it belongs after a change.
    fn list(&mut self, index: LaneIndex) {
        let lane = &self.lanes[index as usize];
        let count = |has_requests: bool| (has_requests && !lane.is_stalled).then_some(lane.outstanding);
        self.ready.set(index, count(lane.waiting > 0));
        self.ready_reads.set(index, count(lane.reads > 0));
    }

    /// Requests of a lane wait for windows or tokens no more, as far as is known.
    fn wake(&mut self, index: LaneIndex) {
        if std::mem::take(&mut self.lanes[index as usize].is_stalled) {
            self.stalled.retain(|stalled| *stalled != index);
        }
    }

    /// Considers the lanes again whose requests may be released by now.
    fn wake_due(&mut self, now: Instant, accepts: Accepts) {
        if self.stalled.is_empty() {
            return;
        }
        let is_accepted_again = accepts == Accepts::All && std::mem::take(&mut self.is_stalled_by_refusal);
        let mut stalled = std::mem::take(&mut self.stalled);
        stalled.retain(|index| {
            let lane = &mut self.lanes[*index as usize];
            lane.is_stalled = !is_accepted_again && lane.next_timeout().is_none_or(|at| at > now);
            let is_stalled = lane.is_stalled;
            self.list(*index);
            is_stalled
        });
        self.stalled = stalled;
    }

    /// The next request of a lane; a lane that releases none is stalled.
    fn pop_from(&mut self, index: LaneIndex, now: Instant, accepts: Accepts) -> Option<RequestId> {
        let id = self.lanes[index as usize].pop(&self.entries, now, accepts);
        match id {
            Some(id) => self.on_popped(index, id),
            None => {
                self.lanes[index as usize].is_stalled = true;
                self.stalled.push(index);
                self.is_stalled_by_refusal |= accepts == Accepts::Reads;
                self.list(index);
            }
        }
        id
    }

    /// The oldest request, whatever its group.
    fn pop_oldest(&mut self, now: Instant, accepts: Accepts) -> Option<RequestId> {
        let id = self.entries.oldest()?;
        let Entry { lane, is_read, .. } = *self.entries.get(id);
        if accepts == Accepts::Reads && !is_read || self.lanes[lane as usize].is_stalled {
            return None;
        }
        if self.lanes[lane as usize].take(&self.entries, id) {
            self.on_popped(lane, id);
            return Some(id);
        }
        self.pop_from(lane, now, accepts)
    }

    fn on_popped(&mut self, index: LaneIndex, id: RequestId) {
        self.overtakes = if self.entries.oldest() == Some(id) { 0 } else { self.overtakes.saturating_add(1) };
        let is_read = self.entries.get(id).is_read;
        self.entries.remove(id);
        self.waiting -= 1;
        let lane = &mut self.lanes[index as usize];
        lane.waiting -= 1;
        lane.reads -= u32::from(is_read);
        lane.outstanding += 1;
        self.list(index);
    }
}

impl Scheduler for Interference {
    fn name(&self) -> &'static str {
        match self.config.within {
            Within::Fair => "interference",
            Within::Ezns(_) => "interference+ezns",
        }
    }

    fn group(&self, request: &Request) -> Option<ConflictGroup> {
        if request.namespace != self.config.namespace {
            return None;
        }
        self.config.groups.group_of_all(request.zones.clone())
    }

    fn push(&mut self, id: RequestId, request: &Request) {
        if Direction::of(request).is_none() {
            return self.direct.push_back(id);
        }
        let index = self.lane_of(request);
        let weight = self.weight(request.origin.tenant);
        self.entries.insert(id, Entry::of(request, index), false);
        self.lanes[index as usize].push(&mut self.entries, id, request, weight);
        self.waiting += 1;
        self.wake(index);
        self.list(index);
    }

    fn pop(&mut self, now: Instant, accepts: Accepts) -> Option<RequestId> {
        if accepts == Accepts::All
            && let Some(id) = self.direct.pop_front()
        {
            return Some(id);
        }
        self.wake_due(now, accepts);
        if self.overtakes >= INTERFERENCE_OVERTAKES_MAX
            && let Some(id) = self.pop_oldest(now, accepts)
        {
            return Some(id);
        }
        loop {
            let index = match accepts {
                Accepts::All => self.ready.first(),
                Accepts::Reads => self.ready_reads.first(),
            };
            if let Some(id) = self.pop_from(index?, now, accepts) {
                return Some(id);
            }
        }
    }

    fn put_back(&mut self, id: RequestId, request: &Request) {
        if Direction::of(request).is_none() {
            return self.direct.push_front(id);
        }
        let index = self.lane_of(request);
        let weight = self.weight(request.origin.tenant);
        self.entries.insert(id, Entry::of(request, index), true);
        let lane = &mut self.lanes[index as usize];
        lane.put_back(&mut self.entries, id, request, weight);
        lane.outstanding -= 1;
        self.waiting += 1;
        self.list(index);
    }

    fn on_completion(&mut self, now: Instant, request: &Request, outcome: Outcome) {
        if Direction::of(request).is_none() {
            return;
        }
        let index = self.lane_of(request);
        let lane = &mut self.lanes[index as usize];
        lane.outstanding = lane.outstanding.checked_sub(1).expect("a request that completes was outstanding");
        lane.on_completion(now, request, outcome);
        self.wake(index);
        self.list(index);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.stalled.iter().filter_map(|index| self.lanes[*index as usize].next_timeout()).min()
    }

    fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        let weight = weight.clamp(1, INTERFERENCE_WEIGHT_MAX);
        self.weights.retain(|(listed, _)| *listed != tenant);
        if weight != 1 {
            self.weights.push((tenant, weight));
        }
        self.lanes.iter_mut().for_each(|lane| lane.set_weight(tenant, weight));
    }

    fn waiting(&self) -> usize {
        self.direct.len() + self.waiting
    }

    fn loads(&self) -> Vec<TenantLoad> {
        lane::loads(&self.lanes)
    }

    fn group_loads(&self) -> Vec<GroupLoad> {
        let of = |(index, lane): (usize, &Lane)| GroupLoad {
            group: (index + 1 < self.lanes.len()).then_some(ConflictGroup(index as u32)),
            waiting: lane.waiting,
            in_flight: lane.outstanding,
        };
        self.lanes.iter().enumerate().filter(|(_, lane)| lane.waiting + lane.outstanding > 0).map(of).collect()
    }

    fn check_invariants(&self) {
        let mut waiting = 0;
        for (index, lane) in self.lanes.iter().enumerate() {
            lane.check_invariants(&self.entries);
            waiting += lane.waiting as usize;
            let index = index as LaneIndex;
            let expected = |requests: u32| (requests > 0 && !lane.is_stalled).then_some(lane.outstanding);
            assert_eq!(self.ready.count(index), expected(lane.waiting), "a group is listed by its outstanding requests");
            assert_eq!(self.ready_reads.count(index), expected(lane.reads), "so are groups with reads");
            assert_eq!(self.stalled.contains(&index), lane.is_stalled, "stalled groups are listed, others are not");
        }
        assert_eq!(waiting, self.waiting, "each waiting request is in a group");
        assert_eq!(self.entries.iter().count(), self.waiting, "each waiting request has a place in the order of arrival");
    }
}
