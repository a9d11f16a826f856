//! [`MqDeadline`]: the scheduler `mq-deadline` of Linux 6.12 (`block/mq-deadline.c`), with its
//! default parameters.
//!
//! Requests are dispatched in batches of one direction, in the order of their blocks, so that
//! neighbours follow each other. Reads go before writes, which may be passed over
//! [`writes_starved`](MqDeadlineConfig::writes_starved) times. A request that has waited for its
//! deadline begins the next batch. Requests in the background are dispatched when none in the
//! foreground waits or is in flight, or when they have waited for
//! [`aging`](MqDeadlineConfig::aging).
//!
//! Of each sequential zone at most one write is in flight. (Linux does this in its block layer since
//! 6.10, with zone write plugs, and in the scheduler before.) Zone Append needs no such lock. Other
//! commands bypass the scheduler. Requests are not merged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_zoned::{Class, Duration, Instant, NamespaceId};

use crate::direction::Direction;
use crate::{Accepts, Outcome, Request, RequestId, Scheduler};

/// The parameters of [`MqDeadline`], named as in `/sys/block/*/queue/iosched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MqDeadlineConfig {
    /// How long a read waits before it is preferred (`read_expire`).
    pub read_expire: Duration,
    /// How long a write waits before it is preferred (`write_expire`).
    pub write_expire: Duration,
    /// Batches of reads that may be preferred to waiting writes (`writes_starved`).
    pub writes_starved: u32,
    /// Requests of one batch (`fifo_batch`).
    pub fifo_batch: u32,
    /// How long requests in the background wait while others are processed (`prio_aging_expire`).
    pub aging: Duration,
}

impl Default for MqDeadlineConfig {
    fn default() -> MqDeadlineConfig {
        MqDeadlineConfig {
            read_expire: Duration::from_millis(500),
            write_expire: Duration::from_millis(5000),
            writes_starved: 2,
            fifo_batch: 16,
            aging: Duration::from_millis(10_000),
        }
    }
}

/// The scheduler.
#[derive(Debug)]
pub struct MqDeadline {
    config: MqDeadlineConfig,
    /// By [`Class`].
    classes: [Queues; 2],
    /// Flushes, management and reports.
    direct: VecDeque<RequestId>,
    /// Sequential zones with a write in flight.
    locked: BTreeSet<(NamespaceId, u32)>,
    /// The direction of the current batch, and its length so far.
    direction: Direction,
    batch: u32,
    /// Batches of reads since writes began to wait.
    starved: u32,
}

/// The requests of a class.
#[derive(Debug, Default)]
struct Queues {
    reads: Queue,
    writes: Queue,
    /// Pushed, and not ended.
    in_progress: usize,
}

/// The requests of a class and direction.
#[derive(Debug, Default)]
struct Queue {
    /// By arrival: the order of deadlines.
    fifo: BTreeMap<(Instant, u64), Queued>,
    /// By first block.
    sorted: BTreeMap<(NamespaceId, u64, u64), (Instant, u64)>,
    /// The end of the request dispatched last.
    position: (NamespaceId, u64),
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    id: RequestId,
    namespace: NamespaceId,
    start: u64,
    end: u64,
    zone: Option<(NamespaceId, u32)>,
}

impl MqDeadline {
    /// An idle scheduler.
    #[must_use]
    pub fn new(config: MqDeadlineConfig) -> MqDeadline {
        MqDeadline {
            config,
            classes: Default::default(),
            direct: VecDeque::new(),
            locked: BTreeSet::new(),
            direction: Direction::Read,
            batch: 0,
            starved: 0,
        }
    }

    fn class_of(&mut self, request: &Request) -> &mut Queues {
        &mut self.classes[request.origin.class as usize]
    }

    /// The next request of a class.
    fn dispatch(&mut self, class: usize, now: Instant, accepts: Accepts) -> Option<RequestId> {
        let queues = &self.classes[class];
        let may_write = accepts == Accepts::All;
        let has_reads = !queues.reads.fifo.is_empty();
        let has_writes = may_write && queues.writes.first_unlocked(&self.locked).is_some();
        // Continue the batch.
        let next = match self.direction {
            Direction::Read => queues.reads.next(&self.locked),
            Direction::Write if may_write => queues.writes.next(&self.locked),
            Direction::Write => None,
        };
        let (direction, key) = match next {
            Some(key) if self.batch < self.config.fifo_batch => (self.direction, key),
            _ => {
                let direction = if has_reads && !(has_writes && self.starved >= self.config.writes_starved) {
                    self.starved += u32::from(has_writes);
                    Direction::Read
                } else if has_writes {
                    self.starved = 0;
                    Direction::Write
                } else {
                    return None;
                };
                self.batch = 0;
                self.direction = direction;
                (direction, self.first_of_batch(class, direction, now)?)
            }
        };
        self.batch += 1;
        let queue = self.classes[class].of(direction);
        let queued = queue.remove(key);
        queue.position = (queued.namespace, queued.end);
        self.locked.extend(queued.zone);
        Some(queued.id)
    }

    /// An expired request, or else the next one behind the last; the first one at the end.
    fn first_of_batch(&self, class: usize, direction: Direction, now: Instant) -> Option<(Instant, u64)> {
        let (queue, expire) = match direction {
            Direction::Read => (&self.classes[class].reads, self.config.read_expire),
            Direction::Write => (&self.classes[class].writes, self.config.write_expire),
        };
        let first = queue.first_unlocked(&self.locked)?;
        if first.0 + expire <= now {
            return Some(first);
        }
        queue.next(&self.locked).or(Some(first))
    }
}

impl Scheduler for MqDeadline {
    fn name(&self) -> &'static str {
        "mq-deadline"
    }

    fn push(&mut self, id: RequestId, request: &Request) {
        self.class_of(request).in_progress += 1;
        match Direction::of(request) {
            Some(direction) => self.class_of(request).of(direction).insert(id, request),
            None => self.direct.push_back(id),
        }
    }

    fn pop(&mut self, now: Instant, accepts: Accepts) -> Option<RequestId> {
        if accepts == Accepts::All
            && let Some(id) = self.direct.pop_front()
        {
            return Some(id);
        }
        let (foreground, background) = (Class::Foreground as usize, Class::Background as usize);
        let is_aged = |arrival: Instant| arrival + self.config.aging <= now;
        if self.classes[background].oldest().is_some_and(is_aged)
            && let Some(id) = self.dispatch(background, now, accepts)
        {
            return Some(id);
        }
        let id = self.dispatch(foreground, now, accepts);
        if id.is_some() || self.classes[foreground].in_progress > 0 {
            return id;
        }
        self.dispatch(background, now, accepts)
    }

    fn put_back(&mut self, id: RequestId, request: &Request) {
        self.locked.retain(|zone| Some(*zone) != request.written_zone());
        match Direction::of(request) {
            Some(direction) => self.class_of(request).of(direction).insert(id, request),
            None => self.direct.push_front(id),
        }
    }

    fn on_completion(&mut self, _now: Instant, request: &Request, _outcome: Outcome) {
        self.class_of(request).in_progress -= 1;
        if let Some(zone) = request.written_zone() {
            assert!(self.locked.remove(&zone), "a zone is locked while a write to it is in flight");
        }
    }

    fn waiting(&self) -> usize {
        let queued = self.classes.iter().map(|queues| queues.reads.fifo.len() + queues.writes.fifo.len());
        self.direct.len() + queued.sum::<usize>()
    }
}

impl Queues {
    /// The arrival of the oldest request that waits.
    fn oldest(&self) -> Option<Instant> {
        let first = |queue: &Queue| queue.fifo.first_key_value().map(|(key, _)| key.0);
        first(&self.reads).into_iter().chain(first(&self.writes)).min()
    }

    fn of(&mut self, direction: Direction) -> &mut Queue {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }
}

impl Queue {
    fn insert(&mut self, id: RequestId, request: &Request) {
        let (namespace, zone) = (request.namespace, request.written_zone());
        let (start, end) = (request.blocks.start, request.blocks.end);
        let key = (request.arrival, request.number);
        let before = self.fifo.insert(key, Queued { id, namespace, start, end, zone });
        assert!(before.is_none(), "two requests do not have one number");
        self.sorted.insert((namespace, start, request.number), key);
    }

    fn remove(&mut self, key: (Instant, u64)) -> Queued {
        let queued = self.fifo.remove(&key).expect("a request that is dispatched waits");
        self.sorted.remove(&(queued.namespace, queued.start, key.1));
        queued
    }

    /// The oldest request whose zone is not locked.
    fn first_unlocked(&self, locked: &BTreeSet<(NamespaceId, u32)>) -> Option<(Instant, u64)> {
        let is_free = |queued: &Queued| queued.zone.is_none_or(|zone| !locked.contains(&zone));
        self.fifo.iter().find(|(_, queued)| is_free(queued)).map(|(key, _)| *key)
    }

    /// The first request from the position on whose zone is not locked.
    fn next(&self, locked: &BTreeSet<(NamespaceId, u32)>) -> Option<(Instant, u64)> {
        let from = (self.position.0, self.position.1, 0);
        let is_free = |key: &(Instant, u64)| self.fifo[key].zone.is_none_or(|zone| !locked.contains(&zone));
        self.sorted.range(from..).map(|(_, key)| *key).find(is_free)
    }
}
