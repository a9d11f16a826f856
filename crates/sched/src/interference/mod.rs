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
//! A table can be wrong: it is a measurement, and a drive may reallocate zones. So the scheduler judges
//! it by the latencies of reads (`evidence.rs`). Now and then, in *trials*, it releases requests in the
//! order of their arrival, because an even load shows no differences. A table that the reads contradict
//! is not used: requests are released in the order of their arrival, as [`Fifo`](crate::Fifo) does,
//! until reads confirm it. [`TableReport`] counts both.
//!
//! Writes have at most three of four slots of the device, so that a read finds one at once.
//!
//! Zone management, flushes and reports are released as soon as they may take effect.
//!
//! ```text
//!   push ──► group of the zone ──► lane ──► fair.rs or Ezns
//!            zone_groups.rs         │
//!   pop  ◄── ready.rs, buckets.rs: the lane with the fewest outstanding requests
//! ```

mod buckets;
mod config;
mod entries;
mod evidence;
mod fair;
mod in_order;
mod lane;
mod ready;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use zonda_zoned::{Class, Instant, TenantId};

use self::buckets::LaneIndex;
pub use self::config::{InterferenceConfig, Within};
use self::entries::{Entries, Entry};
use self::evidence::{Evidence, Finding};
use self::in_order::InOrder;
use self::lane::Lane;
use self::ready::Ready;
use crate::bug::{Seeded, SeededBug};
use crate::direction::Direction;
use crate::limits::{
    INTERFERENCE_OVERTAKES_MAX, INTERFERENCE_TRIAL_MAX, INTERFERENCE_TRIAL_PERIOD, INTERFERENCE_WEIGHT_MAX,
};
use crate::{
    Accepts, ConflictGroup, GroupLoad, Outcome, Request, RequestId, RequestKind, Scheduler, TableReport, TenantLoad,
};

/// The scheduler.
#[derive(Debug)]
pub struct Interference {
    config: InterferenceConfig,
    /// By group; the last one is for requests whose group is unknown.
    lanes: Vec<Lane>,
    /// Lanes with requests that may be released.
    ready: Ready,
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
    /// While the table is not used, and inside groups is no other policy: all that waits.
    in_order: InOrder,
    evidence: Evidence,
    table: TableReport,
    /// Whether a trial is in progress, and the releases since the beginning of the last one.
    is_in_trial: bool,
    since_trial: u64,
    /// Requests in flight whose group is known, in all and by their first zone.
    known_in_flight: u32,
    in_flight_of_zone: Vec<u32>,
    seeded: Seeded,
}

impl Interference {
    /// An idle scheduler.
    #[must_use]
    pub fn new(config: InterferenceConfig) -> Interference {
        let lanes = config.groups.groups() as usize + 1;
        Interference {
            lanes: (0..lanes).map(|_| Lane::new(&config.within)).collect(),
            ready: Ready::new(lanes),
            stalled: Vec::new(),
            is_stalled_by_refusal: false,
            entries: Entries::default(),
            direct: VecDeque::new(),
            overtakes: 0,
            weights: Vec::new(),
            waiting: 0,
            in_order: InOrder::default(),
            evidence: Evidence::default(),
            table: TableReport { groups: config.groups.groups(), is_used: true, rejected: 0, restored: 0 },
            is_in_trial: config.learns && config.groups.groups() > 1,
            since_trial: 0,
            known_in_flight: 0,
            in_flight_of_zone: vec![0; config.groups.zones()],
            seeded: Seeded::NONE,
            config,
        }
    }

    /// The same, with a mistake.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_bug(self, bug: Option<SeededBug>) -> Interference {
        Interference { seeded: bug.into(), ..self }
    }

    /// Whether requests wait in the order of arrival rather than in groups.
    fn uses_no_groups(&self) -> bool {
        !self.table.is_used && self.config.within == Within::Fair
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
        let (all, reads) = self.lanes[index as usize].listing();
        self.ready.set(index, all, reads);
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

    /// Whether the next release follows the order of arrival.
    fn is_in_order(&self) -> bool {
        !self.table.is_used || self.is_in_trial
    }

    /// The reads have shown something about the table.
    fn on_finding(&mut self, finding: Finding) {
        self.is_in_trial = false;
        match (finding, self.table.is_used) {
            (Finding::Confirmed, true) | (Finding::Contradicted, false) => {}
            (Finding::Contradicted, true) => {
                self.table = TableReport { is_used: false, rejected: self.table.rejected + 1, ..self.table };
                self.evidence.restart();
                self.leave_groups();
            }
            (Finding::Confirmed, false) => {
                self.table = TableReport { is_used: true, restored: self.table.restored + 1, ..self.table };
                self.since_trial = 0;
                self.evidence.restart();
                self.enter_groups();
            }
        }
    }

    /// Moves what waits in groups into the order of arrival.
    fn leave_groups(&mut self) {
        if self.config.within != Within::Fair {
            return;
        }
        let waiting: Vec<RequestId> = self.entries.iter().collect();
        for id in waiting {
            let entry = *self.entries.get(id);
            if !(self.seeded.has(SeededBug::LostAtRejection) && entry.class == Class::Background) {
                self.in_order.push(entry.number, id, entry.is_read);
            }
            self.entries.unlink(id);
        }
        for index in 0..self.lanes.len() as LaneIndex {
            self.lanes[index as usize].clear();
            self.list(index);
        }
    }

    /// Moves what waits in the order of arrival into its groups.
    fn enter_groups(&mut self) {
        for id in self.in_order.drain() {
            let entry = *self.entries.get(id);
            let weight = self.weight(entry.owner.tenant);
            self.entries.link(id, false);
            self.lanes[entry.lane as usize].push_fair(&mut self.entries, id, weight);
            self.list(entry.lane);
        }
        self.overtakes = 0;
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

    /// A trial ends with a finding, or without one after a time.
    fn advance_trial(&mut self) {
        self.since_trial += 1;
        if self.since_trial >= INTERFERENCE_TRIAL_PERIOD {
            self.since_trial = 0;
            self.is_in_trial = self.config.learns && self.table.is_used && self.table.groups > 1;
            if self.is_in_trial {
                // What was found before says nothing about a drive that has changed since.
                self.evidence.restart();
            }
        } else if self.since_trial >= INTERFERENCE_TRIAL_MAX {
            self.is_in_trial = false;
        }
    }

    /// Counts a request as outstanding.
    fn on_released(&mut self, entry: &Entry, is_in_order: bool) {
        self.waiting -= 1;
        self.advance_trial();
        let is_known = (entry.lane as usize) < self.lanes.len() - 1;
        let lane = &mut self.lanes[entry.lane as usize];
        // If nothing else waits, any order is that of arrival.
        if is_known {
            let of_zone = &mut self.in_flight_of_zone[entry.zone as usize];
            if self.config.learns && entry.is_read && (is_in_order || self.waiting == 0) {
                // Requests of one zone disturb each other whatever the table.
                let (own, all) = (lane.outstanding - *of_zone, self.known_in_flight - *of_zone);
                self.evidence.on_released(entry.number, u64::from(entry.bytes), own, all);
            }
            *of_zone += 1;
            self.known_in_flight += 1;
        }
        lane.outstanding += 1;
    }

    fn on_ended(&mut self, index: LaneIndex, request: &Request) {
        let lane = &mut self.lanes[index as usize];
        lane.outstanding = lane.outstanding.checked_sub(1).expect("a request that ends was outstanding");
        if (index as usize) < self.lanes.len() - 1 {
            self.known_in_flight -= 1;
            self.in_flight_of_zone[request.zones.start as usize] -= 1;
        }
    }

    fn on_popped(&mut self, index: LaneIndex, id: RequestId) {
        let is_oldest = self.entries.oldest() == Some(id);
        let is_in_order = is_oldest && self.is_in_order();
        self.overtakes = if is_oldest { 0 } else { self.overtakes.saturating_add(1) };
        let entry = *self.entries.get(id);
        self.entries.unlink(id);
        let lane = &mut self.lanes[index as usize];
        lane.waiting -= 1;
        lane.reads -= u32::from(entry.is_read);
        self.on_released(&entry, is_in_order);
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
        let shift = u32::from(self.seeded.has(SeededBug::WrongTag));
        self.config.groups.group_of_all(request.zones.start + shift..request.zones.end + shift)
    }

    /// Three of four, as Linux's mq-deadline has it (`async_depth`).
    fn slots_of_writes(&self, slots: usize) -> usize {
        slots - slots / 4
    }

    fn push(&mut self, id: RequestId, request: &Request) {
        if Direction::of(request).is_none() {
            return self.direct.push_back(id);
        }
        let index = self.lane_of(request);
        self.waiting += 1;
        self.entries.set(id, Entry::of(request, index));
        if self.uses_no_groups() {
            return self.in_order.push(request.number, id, request.kind == RequestKind::Read);
        }
        let weight = self.weight(request.origin.tenant);
        self.entries.link(id, false);
        let lane = &mut self.lanes[index as usize];
        let before = lane.listing();
        lane.push(&mut self.entries, id, request, weight);
        if lane.is_stalled || lane.listing() != before {
            self.wake(index);
            self.list(index);
        }
    }

    fn pop(&mut self, now: Instant, accepts: Accepts) -> Option<RequestId> {
        if accepts == Accepts::All
            && let Some(id) = self.direct.pop_front()
        {
            return Some(id);
        }
        if self.uses_no_groups() {
            let id = self.in_order.pop(accepts)?;
            let entry = *self.entries.get(id);
            self.on_released(&entry, true);
            return Some(id);
        }
        self.wake_due(now, accepts);
        if (self.overtakes >= INTERFERENCE_OVERTAKES_MAX || self.is_in_order())
            && let Some(id) = self.pop_oldest(now, accepts)
        {
            return Some(id);
        }
        loop {
            let is_greedy = self.seeded.has(SeededBug::GreedyGroup);
            let index = if is_greedy { self.ready.last() } else { self.ready.first(accepts) };
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
        self.waiting += 1;
        self.on_ended(index, request);
        self.evidence.on_refused(request.number);
        self.entries.set(id, Entry::of(request, index));
        if self.uses_no_groups() {
            return self.in_order.push(request.number, id, request.kind == RequestKind::Read);
        }
        let weight = self.weight(request.origin.tenant);
        self.entries.link(id, true);
        self.lanes[index as usize].put_back(&mut self.entries, id, request, weight);
        if !self.seeded.has(SeededBug::UnlistedGroup) {
            self.list(index);
        }
    }

    fn on_completion(&mut self, now: Instant, request: &Request, outcome: Outcome) {
        if Direction::of(request).is_none() {
            return;
        }
        let index = self.lane_of(request);
        if outcome.is_success || !self.seeded.has(SeededBug::ForgottenCompletion) {
            self.on_ended(index, request);
        }
        self.lanes[index as usize].on_completion(now, request, outcome);
        self.wake(index);
        self.list(index);
        let finding = self.evidence.on_completion(request, outcome.latency, outcome.is_success);
        if let Some(finding) = finding {
            self.on_finding(finding);
        }
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
        let unknown = self.lanes.len() - 1;
        let of = |(index, lane): (usize, &Lane)| GroupLoad {
            group: (index < unknown).then_some(ConflictGroup(index as u32)),
            // What waits in the order of arrival waits for no group.
            waiting: lane.waiting + if index == unknown { self.in_order.len() as u32 } else { 0 },
            in_flight: lane.outstanding,
        };
        let loads = self.lanes.iter().enumerate().map(of);
        loads.filter(|load| load.waiting + load.in_flight > 0).collect()
    }

    fn table(&self) -> Option<TableReport> {
        Some(self.table)
    }

    fn check_invariants(&self) {
        let mut waiting = 0;
        for (index, lane) in self.lanes.iter().enumerate() {
            lane.check_invariants(&self.entries);
            waiting += lane.waiting as usize;
            let index = index as LaneIndex;
            let counts = self.ready.counts(index);
            assert_eq!(counts, lane.listing(), "a group, and one with reads, is listed by what is outstanding");
            assert_eq!(self.stalled.contains(&index), lane.is_stalled, "stalled groups are listed, others are not");
        }
        assert_eq!(self.entries.iter().count(), waiting, "each request of a group has a place in the order of arrival");
        assert_eq!(waiting + self.in_order.len(), self.waiting, "each waiting request is in a group or in order");
        assert!(self.in_order.len() == 0 || self.uses_no_groups(), "without groups alone requests wait in order");
        let known = self.lanes.split_last().map_or(0, |(_, known)| known.iter().map(|lane| lane.outstanding).sum());
        assert_eq!(known, self.known_in_flight, "requests in flight are counted in their groups");
        let by_zone: u32 = self.in_flight_of_zone.iter().sum();
        assert_eq!(by_zone, self.known_in_flight, "and in their zones");
    }
}
