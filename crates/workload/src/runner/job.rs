//! The state that the workers of a job share: its limits, its rate, and its end.

use std::ops::Range;

use zonda_config::Rate;
use zonda_zoned::{Duration, Instant};

use crate::plan::JobPlan;
use crate::{EndReason, RequestKind};

const NANOSECONDS_PER_SECOND: u128 = 1_000_000_000;

/// A time after another, saturating. A run ends long before that, see
/// [`crate::limits::VIRTUAL_TIME_MAX_NS`].
#[inline]
pub(super) fn later(at: Instant, span: Duration) -> Instant {
    Instant(at.0.saturating_add(span.0))
}

/// A running job.
pub(super) struct Job {
    pub(super) plan: JobPlan,
    /// Indices of its workers.
    pub(super) workers: Range<u32>,
    pub(super) workers_issuing: u32,
    pub(super) starts: Instant,
    /// No command is issued or counted from here on; the end of virtual time without a time limit.
    pub(super) until: Instant,
    pub(super) issued_operations: u64,
    pub(super) issued_bytes: u64,
    /// Bytes of sequential writes and appends issued so far.
    pub(super) issued_forward_bytes: u64,
    /// By [`RequestKind`].
    pub(super) errors_in_row: [u32; RequestKind::ALL.len()],
    zone_work: Option<ZoneWork>,
    pub(super) last_completion: Instant,
    /// Why it has stopped.
    pub(super) stopped: Option<EndReason>,
}

/// The work of a job that ends when it has processed its zones, as far as known at the start.
#[derive(Clone, Copy, Debug)]
pub(super) enum ZoneWork {
    ReadBytes(u64),
    WriteBytes(u64),
    Commands(u64),
}

impl Job {
    /// A job without a time limit ends at `clock_end`.
    pub(super) fn new(
        plan: JobPlan,
        started: Instant,
        clock_end: Instant,
        workers: Range<u32>,
        zone_work: Option<ZoneWork>,
    ) -> Job {
        let starts = later(started, plan.start);
        Job {
            workers_issuing: workers.len() as u32,
            workers,
            starts,
            until: plan.end.map_or(clock_end, |end| later(started, end)),
            issued_operations: 0,
            issued_bytes: 0,
            issued_forward_bytes: 0,
            errors_in_row: [0; RequestKind::ALL.len()],
            zone_work,
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

    /// When the next request is due, if there is a rate. Requests are due at fixed times, each
    /// after the duration of the previous one at this rate, so that delays are caught up.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        let (issued, per_second) = match self.plan.rate? {
            Rate::BytesPerSecond(rate) => (self.issued_bytes, rate),
            Rate::OperationsPerSecond(rate) => (self.issued_operations, rate),
        };
        let nanoseconds = u128::from(issued) * NANOSECONDS_PER_SECOND / u128::from(per_second);
        Some(Instant(self.starts.0.saturating_add(u64::try_from(nanoseconds).unwrap_or(u64::MAX))))
    }

    /// Why it ends at `until`.
    pub(super) fn reason_at_until(&self) -> EndReason {
        if self.plan.end.is_some() { EndReason::Time } else { EndReason::ClockEnd }
    }

    /// The completed share of its limits at `now`, in time, in issued requests, and by estimate in
    /// its zones; `None` without limits.
    pub(super) fn fraction(&self, now: Instant) -> Option<f64> {
        if self.stopped.is_some() {
            return Some(1.0);
        }
        let of = |done: u64, limit: Option<u64>| limit.map(|limit| done as f64 / limit.max(1) as f64);
        let (done_in_zones, work_in_zones) = match self.zone_work {
            None => (0, None),
            Some(ZoneWork::ReadBytes(bytes)) => (self.issued_bytes, Some(bytes)),
            Some(ZoneWork::WriteBytes(bytes)) => (self.issued_forward_bytes, Some(bytes)),
            Some(ZoneWork::Commands(commands)) => (self.issued_operations, Some(commands)),
        };
        let shares = [
            of(now.since(self.starts).0, self.plan.end.map(|_| self.until.since(self.starts).0)),
            of(self.issued_operations, self.plan.operations),
            of(self.issued_bytes, self.plan.bytes),
            of(done_in_zones, work_in_zones),
        ];
        shares.into_iter().flatten().reduce(f64::max)
    }

    /// Why and when it ended: at its time limit or that of virtual time, or with its last
    /// completion.
    pub(super) fn end(&self) -> (EndReason, Instant) {
        let reason = self.stopped.expect("a run ends when all its jobs have stopped");
        match reason {
            EndReason::Time | EndReason::ClockEnd => (reason, self.until),
            _ => (reason, self.last_completion.min(self.until)),
        }
    }
}
