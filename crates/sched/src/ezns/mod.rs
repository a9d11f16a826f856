//! [`Ezns`]: the I/O scheduler of eZNS (Min et al., ACM Transactions on Storage 2024, Section 4.5 and
//! Algorithm 1).
//!
//! Tenants share the device by weighted round robin. Below that each stream, the zones of a stripe
//! group, has a congestion window for its reads, and tokens for its writes. The window shrinks where
//! reads take longer than a threshold: streams that share dies come to have the same number of reads
//! outstanding there, whatever their queue depth. Tokens are generated at the rate at which the write
//! buffer admits blocks on average, the same for all zones: a stream that writes faster than its dies
//! program does not fill the buffer, which all zones share.
//!
//! A stream has at most one write in flight for each zone, as hosts of eZNS have: otherwise its own
//! writes would wait for each other, and the measured latency would be that of its queue. Where the
//! paper is silent, the modules state what they do.
//!
//! Requests in the background are released while none in the foreground is in progress, and one in
//! each [`background_period`](EznsConfig::background_period) in any case. Zone management, flushes and
//! reports are released as soon as they may take effect.
//!
//! Each request is released within a bounded time while the device completes requests: a window admits
//! at least one read, tokens for a block are generated in at most
//! [`EZNS_BLOCK_LATENCY_MAX`](crate::limits::EZNS_BLOCK_LATENCY_MAX), and each tenant has its turn.

mod config;
mod dispatch;
mod in_flight;
mod monitor;
mod queue;
mod streams;
mod tenants;
#[cfg(test)]
mod tests;
mod tokens;
mod window;

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{Class, Duration, Instant, Key, TenantId};

pub use self::config::EznsConfig;
use self::monitor::WriteMonitor;
use self::queue::{Entries, Entry, QueueState};
use self::streams::{Stream, Streams};
use self::tenants::{Tenants, Turn};
use crate::direction::Direction;
use crate::limits::EZNS_REQUEST_BYTES_MAX;
use crate::{Accepts, Outcome, Request, RequestId, Scheduler, TenantLoad};

/// The scheduler.
#[derive(Debug)]
pub struct Ezns {
    config: EznsConfig,
    entries: Entries,
    streams: Streams,
    /// By [`Class`].
    tenants: [Tenants; 2],
    /// Flushes, management and reports.
    direct: VecDeque<RequestId>,
    monitor: WriteMonitor,
    /// Streams whose first write waits for tokens.
    waits_for_tokens: Vec<Key<Stream>>,
    /// When they receive the next tokens.
    next_refill: Instant,
    /// By [`Class`]: reads and writes that were pushed and have not ended.
    in_progress: [usize; 2],
    /// Requests in the background that wait, in the order of their arrival.
    background: BTreeMap<u64, RequestId>,
    /// When the next one is released even if requests in the foreground are in progress.
    background_due: Instant,
    arrivals: u64,
    waiting: usize,
}

impl Ezns {
    /// An idle scheduler.
    #[must_use]
    pub fn new(config: EznsConfig) -> Ezns {
        // A period that does not advance the time would be one without end.
        let at_least_1_ns = |period: Duration| period.max(Duration(1));
        let config = EznsConfig {
            token_period: at_least_1_ns(config.token_period),
            monitor_period: at_least_1_ns(config.monitor_period),
            ..config
        };
        Ezns {
            monitor: WriteMonitor::new(&config),
            config,
            entries: Entries::default(),
            streams: Streams::default(),
            tenants: Default::default(),
            direct: VecDeque::new(),
            waits_for_tokens: Vec::new(),
            next_refill: Instant::ZERO,
            in_progress: [0; 2],
            background: BTreeMap::new(),
            background_due: Instant::ZERO,
            arrivals: 0,
            waiting: 0,
        }
    }
}

impl Scheduler for Ezns {
    fn name(&self) -> &'static str {
        "ezns"
    }

    fn push(&mut self, id: RequestId, request: &Request) {
        let Some(direction) = Direction::of(request) else { return self.direct.push_back(id) };
        let class = request.origin.class;
        let (key, is_width_changed) = self.streams.enter(request, &self.config);
        self.arrivals += 1;
        let bytes = request.bytes.min(EZNS_REQUEST_BYTES_MAX);
        self.entries.set(Entry::new(id, key, class, direction, bytes, self.arrivals));
        self.in_progress[class as usize] += 1;
        self.waiting += 1;
        if class == Class::Background {
            self.background.insert(self.arrivals, id);
        }
        if is_width_changed {
            self.consider_blocked(key, Direction::Read);
            self.consider_blocked(key, Direction::Write);
        }
        let stream = self.streams.get_mut(key);
        stream.queue(class, direction).push(&mut self.entries, id);
        let turn = Turn { tenant: stream.tenant, direction, stream: key };
        match (stream.state(class, direction), direction) {
            (QueueState::Idle, _) => self.consider(class, turn, false),
            // Upon a submission tokens for the time since the last refill are added.
            (QueueState::Blocked, Direction::Write) => {
                self.wake_writes(key, request.arrival);
                self.stop_waiting_for_tokens(key);
            }
            (QueueState::Blocked, Direction::Read) | (QueueState::Ready, _) => {}
        }
    }

    fn pop(&mut self, now: Instant, accepts: Accepts) -> Option<RequestId> {
        if self.waiting() == 0 {
            self.end_turns();
            return None;
        }
        if accepts == Accepts::All
            && let Some(id) = self.direct.pop_front()
        {
            return Some(id);
        }
        self.refill(now);
        let is_foreground_in_progress = self.in_progress[Class::Foreground as usize] > 0;
        if is_foreground_in_progress
            && accepts == Accepts::All
            && now >= self.background_due
            && let Some(id) = self.dispatch_due(now)
        {
            return Some(id);
        }
        let id = self.dispatch(Class::Foreground, now, accepts);
        if id.is_some() || is_foreground_in_progress {
            return id;
        }
        self.dispatch(Class::Background, now, accepts)
    }

    fn put_back(&mut self, id: RequestId, request: &Request) {
        let Some(direction) = Direction::of(request) else { return self.direct.push_front(id) };
        let Entry { stream: key, class, bytes, sequence, is_charged, .. } = *self.entries.get(id);
        let stream = self.streams.get_mut(key);
        stream.waiting += 1;
        stream.in_flight(direction).remove(class);
        if direction == Direction::Write {
            self.monitor.on_refused();
        }
        if is_charged {
            self.tenants[class as usize].put_back(stream.tenant, bytes);
            if direction == Direction::Write {
                stream.tokens.put_back(bytes);
            }
        }
        if class == Class::Background {
            self.background.insert(sequence, id);
            self.background_due = Instant::ZERO;
        }
        self.waiting += 1;
        stream.queue(class, direction).push_first(&mut self.entries, id);
        if stream.state(class, direction) == QueueState::Idle {
            let turn = Turn { tenant: stream.tenant, direction, stream: key };
            self.consider(class, turn, true);
        }
        self.consider_blocked(key, direction);
    }

    fn pass(&mut self, now: Instant, request: &Request, is_last: bool) -> bool {
        Direction::of(request).is_some_and(|direction| self.pass_in(direction, now, request, is_last))
    }

    fn put_back_passed(&mut self, id: RequestId, request: &Request) {
        let direction = Direction::of(request).expect("only reads and writes pass");
        let key = self.streams.of_released(request);
        let bytes = request.bytes.min(EZNS_REQUEST_BYTES_MAX);
        self.entries.set(Entry::new(id, key, request.origin.class, direction, bytes, self.arrivals));
        self.entries.get_mut(id).is_charged = true;
        self.tenants[request.origin.class as usize].resume(request.origin.tenant);
        self.put_back(id, request);
    }

    fn on_completion(&mut self, now: Instant, request: &Request, outcome: Outcome) {
        let Some(direction) = Direction::of(request) else { return };
        let class = request.origin.class;
        self.in_progress[class as usize] -= 1;
        let key = self.streams.of_released(request);
        let stream = self.streams.get_mut(key);
        stream.in_flight(direction).remove(class);
        if direction == Direction::Write {
            self.monitor.on_ended(now, &self.config);
        }
        if outcome.is_success {
            match direction {
                Direction::Read => stream.window.on_latency(outcome.latency, stream.width, &self.config),
                Direction::Write => {
                    self.monitor.on_latency(outcome.latency, request.bytes.min(EZNS_REQUEST_BYTES_MAX));
                }
            }
        }
        // What does not wait is not blocked.
        if self.waiting > 0 {
            self.consider_blocked(key, direction);
        }
        self.streams.leave(key);
    }

    fn next_timeout(&self) -> Option<Instant> {
        (!self.waits_for_tokens.is_empty()).then_some(self.next_refill)
    }

    fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        self.config.weights.retain(|(listed, _)| *listed != tenant);
        self.config.weights.push((tenant, weight));
        self.tenants.iter_mut().for_each(|tenants| tenants.set_weight(tenant, weight));
    }

    fn waiting(&self) -> usize {
        self.direct.len() + self.waiting
    }

    fn loads(&self) -> Vec<TenantLoad> {
        self.streams.loads()
    }

    fn check_invariants(&self) {
        self.streams.check_invariants(&self.config);
        self.tenants.iter().for_each(Tenants::check_invariants);
        let is_waiting = |key: &Key<Stream>| self.streams.get(*key).waits_for_tokens;
        assert!(self.waits_for_tokens.iter().all(is_waiting), "streams that receive tokens wait for them");
        for class in [Class::Foreground, Class::Background] {
            let ready = self.tenants[class as usize].ready();
            assert_eq!(ready, self.streams.ready(class), "tenants consider the queues that are ready");
        }
        assert!(self.background.len() <= self.waiting, "requests in the background wait, too");
        let in_progress: usize = self.in_progress.iter().sum();
        assert!(self.waiting <= in_progress, "what waits is in progress");
    }
}
