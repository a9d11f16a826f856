//! Write stalls: writes are slowed down or stopped when flushes and compactions are behind.

use zonda_zoned::{Duration, Instant};

use super::effect::Outbox;
use super::plan::TreeOptions;

/// The rate of writes while they are slowed down (RocksDB, `delayed_write_rate`). RocksDB adapts
/// it; here it is constant.
const SLOWED_BYTES_PER_SECOND: u64 = 16 << 20;
/// Memtables from which on the last but one slows writes down.
const SLOWING_MEMTABLES_FROM: usize = 4;

/// Why a write waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Too many memtables wait to be flushed, or level 0 has too many tables.
    Stopped,
    /// Close to that: writes continue at a limited rate, the next at this time.
    Slowed(Instant),
}

/// The state of waiting writes.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// The next write at the lower rate.
    paced_until: Instant,
    /// The latest time for which a wake was requested.
    wake_at: Instant,
    /// Since when the first write waits, and why.
    waiting: Option<(Instant, Obstacle)>,
}

impl Stall {
    /// Whether a write may proceed at `now`, with so many memtables to flush and tables on level 0.
    pub(super) fn obstacle(
        &self,
        now: Instant,
        memtables: usize,
        level0_tables: usize,
        options: &TreeOptions,
    ) -> Option<Obstacle> {
        if memtables >= options.memtables_max || level0_tables >= options.level0_stop {
            return Some(Obstacle::Stopped);
        }
        let is_slowed = Stall::slows(memtables, level0_tables, options) && now < self.paced_until;
        is_slowed.then_some(Obstacle::Slowed(self.paced_until))
    }

    /// Notes a write of so many bytes.
    pub(super) fn on_write(
        &mut self,
        now: Instant,
        bytes: u32,
        memtables: usize,
        level0_tables: usize,
        options: &TreeOptions,
    ) {
        if Stall::slows(memtables, level0_tables, options) {
            let time = Duration::of_transfer(u64::from(bytes), SLOWED_BYTES_PER_SECOND);
            self.paced_until = now.max(self.paced_until) + time;
        }
    }

    /// Whether a wake must be requested for this time.
    pub(super) fn must_wake(&mut self, at: Instant) -> bool {
        let is_new = at > self.wake_at;
        self.wake_at = at.max(self.wake_at);
        is_new
    }

    /// Notes what the first write waits for; `None` if no write waits.
    pub(super) fn note(&mut self, now: Instant, obstacle: Option<Obstacle>, out: &mut Outbox) {
        if self.waiting.map(|(_, obstacle)| obstacle) == obstacle {
            return;
        }
        let counters = &mut out.counters;
        match self.waiting {
            Some((since, Obstacle::Stopped)) => counters.stopped_ns += now.since(since).0,
            Some((since, Obstacle::Slowed(_))) => counters.slowed_ns += now.since(since).0,
            None => {}
        }
        match obstacle {
            Some(Obstacle::Stopped) => counters.stops += 1,
            Some(Obstacle::Slowed(_)) => counters.slowed_writes += 1,
            None => {}
        }
        self.waiting = obstacle.map(|obstacle| (now, obstacle));
    }

    fn slows(memtables: usize, level0_tables: usize, options: &TreeOptions) -> bool {
        let by_memtables = options.memtables_max >= SLOWING_MEMTABLES_FROM && memtables + 1 >= options.memtables_max;
        by_memtables || level0_tables >= options.level0_slowdown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::tests::tree_options;

    fn options() -> TreeOptions {
        TreeOptions { memtables_max: 4, level0_slowdown: 20, level0_stop: 36, ..tree_options() }
    }

    #[test]
    fn writes_stop_and_slow_down_at_rocksdb_s_thresholds() {
        let options = options();
        let mut stall = Stall::default();
        stall.on_write(Instant::ZERO, 16 << 20, 3, 0, &options);
        let obstacle = |memtables, tables| stall.obstacle(Instant::ZERO, memtables, tables, &options);
        let slowed = Some(Obstacle::Slowed(Instant::ZERO + Duration::from_secs(1)));
        assert_eq!([obstacle(2, 19), obstacle(3, 0), obstacle(0, 20)], [None, slowed, slowed]);
        assert_eq!([obstacle(4, 0), obstacle(0, 36)], [Some(Obstacle::Stopped); 2]);
        assert_eq!(stall.obstacle(Instant(1_000_000_000), 3, 0, &options), None);
    }

    #[test]
    fn waiting_is_counted_by_its_reason() {
        let (mut stall, mut out) = (Stall::default(), Outbox::default());
        stall.note(Instant(10), Some(Obstacle::Stopped), &mut out);
        stall.note(Instant(20), Some(Obstacle::Stopped), &mut out);
        stall.note(Instant(35), Some(Obstacle::Slowed(Instant(50))), &mut out);
        stall.note(Instant(50), None, &mut out);
        stall.note(Instant(90), None, &mut out);
        let counters = &out.counters;
        assert_eq!((counters.stops, counters.stopped_ns, counters.slowed_writes, counters.slowed_ns), (1, 25, 1, 15));
    }
}
