//! The result of a replay.

use std::fmt;

use serde::{Serialize, Serializer};
use zonda_files::{FileError, Usage};
use zonda_zoned::{Duration, Instant};

use crate::LatencySummary;
use crate::filetrace::OperationKind;
use crate::summary::LatencyRecord;

/// The result of a replay. Times are relative to the moment in which the store was ready.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayResult {
    /// Why it ended.
    pub end: TraceEnd,
    /// Entries that ended.
    pub entries: u64,
    /// Until the last entry ended.
    pub elapsed_ns: u64,
    /// Until the drive was idle.
    pub drained_ns: u64,
    /// Results of each kind of operation, in the order of [`OperationKind::ALL`], without those
    /// that did not occur.
    pub kinds: Vec<KindSummary>,
    /// The store at the end, and its counters since the format.
    pub usage: Usage,
    /// Live bytes of the store, averaged over the time until the last entry ended.
    pub live_bytes_mean: f64,
    /// Dead bytes of the store, averaged over the same time.
    pub dead_bytes_mean: f64,
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KindSummary {
    /// The kind.
    #[serde(serialize_with = "name_of")]
    pub kind: OperationKind,
    /// The number that ended.
    pub operations: u64,
    /// Bytes appended or read.
    pub bytes: u64,
    /// When the first one began.
    pub start_ns: u64,
    /// When the last one ended.
    pub end_ns: u64,
    /// Their latencies; none for creates, which take no time, and for think times.
    pub latency: LatencySummary,
}

/// Why a replay ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum TraceEnd {
    /// Every entry was executed.
    Complete,
    /// The store was out of space.
    OutOfSpace {
        /// Number of the entry, from 1.
        entry: u64,
    },
    /// Entries wait, and no request is in flight.
    Stalled {
        /// Number of the first entry that waits, from 1.
        entry: u64,
    },
    /// The store or the drive failed.
    Failed {
        /// Number of the entry, from 1.
        entry: u64,
        /// The error and its remedy.
        message: String,
    },
}

impl ReplayResult {
    /// Live and dead bytes for each live byte, on average over time; 1.0 without live data.
    #[must_use]
    pub fn space_amplification(&self) -> f64 {
        if self.live_bytes_mean > 0.0 { 1.0 + self.dead_bytes_mean / self.live_bytes_mean } else { 1.0 }
    }

    /// The figures of a kind, if it occurred.
    #[must_use]
    pub fn kind(&self, kind: OperationKind) -> Option<&KindSummary> {
        self.kinds.iter().find(|figures| figures.kind == kind)
    }
}

impl TraceEnd {
    /// Whether every entry was executed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        *self == TraceEnd::Complete
    }

    /// The end of a replay because of an error of the store.
    pub(super) fn of(entry: u64, error: &FileError) -> TraceEnd {
        match error {
            FileError::NoSpace => TraceEnd::OutOfSpace { entry },
            error => TraceEnd::Failed { entry, message: error.to_string() },
        }
    }
}

impl fmt::Display for TraceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceEnd::Complete => f.write_str("the trace was replayed completely"),
            TraceEnd::OutOfSpace { entry } => write!(f, "the store ran out of space at entry {entry}"),
            TraceEnd::Stalled { entry } => {
                write!(f, "entry {entry} waits forever: no request is in flight that could complete it")
            }
            TraceEnd::Failed { entry, message } => write!(f, "entry {entry} failed: {message}"),
        }
    }
}

fn name_of<S: Serializer>(kind: &OperationKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// Records results during a replay.
pub(super) struct Record {
    start: Instant,
    kinds: Vec<KindRecord>,
    pub(super) entries: u64,
    pub(super) last_end: Instant,
}

struct KindRecord {
    latencies: LatencyRecord,
    operations: u64,
    bytes: u64,
    first_start: Instant,
    last_end: Instant,
}

impl Record {
    pub(super) fn new(start: Instant) -> Record {
        let kind = |_| KindRecord {
            latencies: LatencyRecord::new(),
            operations: 0,
            bytes: 0,
            first_start: start,
            last_end: start,
        };
        Record { start, kinds: OperationKind::ALL.into_iter().map(kind).collect(), entries: 0, last_end: start }
    }

    /// Records an operation that has ended.
    pub(super) fn end(&mut self, kind: OperationKind, started: Instant, ended: Instant, bytes: u64) {
        let figures = &mut self.kinds[kind as usize];
        if figures.operations == 0 || started < figures.first_start {
            figures.first_start = started;
        }
        figures.operations += 1;
        figures.bytes += bytes;
        figures.last_end = ended;
        if !matches!(kind, OperationKind::Create | OperationKind::Think) {
            figures.latencies.record(ended.since(started).0);
        }
        self.entries += 1;
        self.last_end = ended;
    }

    pub(super) fn kinds(&self) -> Vec<KindSummary> {
        let since_start = |at: Instant| at.since(self.start).0;
        let pairs = OperationKind::ALL.into_iter().zip(&self.kinds);
        let summary = |(kind, figures): (OperationKind, &KindRecord)| KindSummary {
            kind,
            operations: figures.operations,
            bytes: figures.bytes,
            start_ns: since_start(figures.first_start),
            end_ns: since_start(figures.last_end),
            latency: figures.latencies.summary(),
        };
        pairs.filter(|(_, figures)| figures.operations > 0).map(summary).collect()
    }
}

/// The space that a store occupies, over time. It is sampled before each step in time that ends an
/// interval or more after the last sample.
pub(super) struct SpaceRecord {
    interval: Duration,
    looked: Instant,
    held: Usage,
    live_byte_ns: u128,
    dead_byte_ns: u128,
    whole: Duration,
}

impl SpaceRecord {
    pub(super) fn new(start: Instant, interval: Duration, usage: Usage) -> SpaceRecord {
        SpaceRecord { interval, looked: start, held: usage, live_byte_ns: 0, dead_byte_ns: 0, whole: Duration::ZERO }
    }

    /// Whether to sample before time advances to `next`.
    pub(super) fn is_due(&self, next: Instant) -> bool {
        next.since(self.looked) >= self.interval
    }

    /// Takes a sample. Until now the space was as in the last one.
    pub(super) fn look(&mut self, now: Instant, usage: Usage) {
        let span = now.since(self.looked);
        self.live_byte_ns += u128::from(self.held.live_bytes) * u128::from(span.0);
        self.dead_byte_ns += u128::from(self.held.dead_bytes) * u128::from(span.0);
        self.whole += span;
        self.looked = now;
        self.held = usage;
    }

    /// Live and dead bytes on average.
    pub(super) fn means(&self) -> (f64, f64) {
        if self.whole == Duration::ZERO {
            return (self.held.live_bytes as f64, self.held.dead_bytes as f64);
        }
        let whole = self.whole.0 as f64;
        (self.live_byte_ns as f64 / whole, self.dead_byte_ns as f64 / whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_averaged_over_time_and_not_over_samples() {
        let usage = |live_bytes, dead_bytes| Usage { live_bytes, dead_bytes, ..Usage::default() };
        let mut space = SpaceRecord::new(Instant(10), Duration(5), usage(100, 0));
        assert!(!space.is_due(Instant(14)) && space.is_due(Instant(15)));
        space.look(Instant(20), usage(100, 300));
        space.look(Instant(50), usage(0, 0));
        assert_eq!(space.means(), (100.0, 225.0));
    }
}
