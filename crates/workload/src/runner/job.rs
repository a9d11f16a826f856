//! What the workers of a job have in common: its limits, its rate, and how it ended.

use std::ops::Range;

use zonda_config::Rate;
use zonda_zoned::Instant;

use crate::EndReason;
use crate::plan::JobPlan;

const NANOSECONDS_PER_SECOND: u128 = 1_000_000_000;

/// A job under way.
pub(super) struct Job {
    pub(super) plan: JobPlan,
    /// Indices of its workers.
    pub(super) workers: Range<u32>,
    pub(super) workers_issuing: u32,
    pub(super) starts: Instant,
    /// Nothing is issued or counted from here on; far away without a time limit.
    pub(super) until: Instant,
    pub(super) issued_operations: u64,
    pub(super) issued_bytes: u64,
    pub(super) errors_in_row: u32,
    pub(super) last_completion: Instant,
    /// Why it issues nothing more.
    pub(super) stopped: Option<EndReason>,
}

impl Job {
    pub(super) fn new(plan: JobPlan, started: Instant, workers: Range<u32>) -> Job {
        let starts = started + plan.start;
        Job {
            workers_issuing: workers.len() as u32,
            workers,
            starts,
            until: plan.end.map_or(Instant(u64::MAX), |end| started + end),
            issued_operations: 0,
            issued_bytes: 0,
            errors_in_row: 0,
            last_completion: starts,
            stopped: None,
            plan,
        }
    }

    #[inline]
    pub(super) fn limit_reached(&self) -> Option<EndReason> {
        if self.plan.operations.is_some_and(|limit| self.issued_operations >= limit) {
            return Some(EndReason::Operations);
        }
        self.plan.bytes.is_some_and(|limit| self.issued_bytes >= limit).then_some(EndReason::Bytes)
    }

    /// When the next request is due, where there is a rate. Requests are due at fixed times, each as long after the one
    /// before as that one takes at the rate, so that lateness is caught up with.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        let (issued, per_second) = match self.plan.rate? {
            Rate::BytesPerSecond(rate) => (self.issued_bytes, rate),
            Rate::OperationsPerSecond(rate) => (self.issued_operations, rate),
        };
        let nanoseconds = u128::from(issued) * NANOSECONDS_PER_SECOND / u128::from(per_second);
        Some(Instant(self.starts.0.saturating_add(u64::try_from(nanoseconds).unwrap_or(u64::MAX))))
    }

    /// The share of its counted limits that is issued; `None` without such a limit.
    pub(super) fn fraction(&self) -> Option<f64> {
        let of = |issued: u64, limit: Option<u64>| limit.map(|limit| issued as f64 / limit as f64);
        let shares = [of(self.issued_operations, self.plan.operations), of(self.issued_bytes, self.plan.bytes)];
        shares.into_iter().flatten().reduce(f64::max)
    }

    /// Why and when it ended: at its time limit, or with its last completion.
    pub(super) fn end(&self) -> (EndReason, Instant) {
        let reason = self.stopped.expect("a run is over when all its jobs have stopped");
        match reason {
            EndReason::Time => (reason, self.until),
            _ => (reason, self.last_completion.min(self.until)),
        }
    }
}
