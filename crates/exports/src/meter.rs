//! Counts and times the commands of one drive.

use std::collections::HashMap;

use zonda_layers::OperationKind;
use zonda_zoned::{Command, CommandId, Completion, Duration, Instant, Operation, Status};

use crate::served::Submitter;

/// Upper bounds of the latency buckets: 1, 2 and 5 of each decade from 1 us to 10 s. One more
/// bucket has the longer ones.
pub const LATENCY_BOUNDS_NS: [u64; 22] = bounds();

const fn bounds() -> [u64; 22] {
    let mut bounds = [0; 22];
    let (mut index, mut decade) = (0, 1_000);
    while index < 22 {
        bounds[index] = decade * [1, 2, 5][index % 3];
        if index % 3 == 2 {
            decade *= 10;
        }
        index += 1;
    }
    bounds
}

/// A latency histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    /// Commands in each bucket; the last one has no bound.
    pub(crate) counts: [u64; LATENCY_BOUNDS_NS.len() + 1],
    /// The sum of their latencies.
    pub(crate) sum_ns: u64,
}

/// Commands of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindMeter {
    /// Commands that succeeded.
    pub(crate) succeeded: u64,
    /// Bytes that they transferred.
    pub(crate) bytes: u64,
    /// Their latencies, from submission to completion.
    pub(crate) latencies: Latencies,
}

/// All commands of one drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    kinds: [KindMeter; OperationKind::ALL.len()],
    /// Commands that failed, by their status.
    errors: HashMap<Status, u64>,
    in_flight: HashMap<CommandId, InFlight>,
    /// Commands submitted to the drive so far; the id of the last one.
    given: u64,
}

/// A command outstanding at the drive.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    kind: OperationKind,
    bytes: u64,
    started: Instant,
    submitter: Submitter,
    /// The submitter's id.
    id: CommandId,
}

impl Latencies {
    fn record(&mut self, latency: Duration) {
        let class = LATENCY_BOUNDS_NS.partition_point(|bound| *bound < latency.0);
        self.counts[class] += 1;
        self.sum_ns = self.sum_ns.saturating_add(latency.0);
    }

    /// Commands recorded.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The upper bound of the bucket with this quantile, in nanoseconds; `None` if nothing was
    /// recorded, or it exceeds all bounds.
    #[must_use]
    pub(crate) fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        let class = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        LATENCY_BOUNDS_NS.get(class).copied()
    }
}

impl Meter {
    /// Records a submission, and returns the command's id at the drive: ids of two submitters may
    /// be the same.
    pub(crate) fn started(
        &mut self,
        now: Instant,
        submitter: Submitter,
        command: &Command,
        block_size_bytes: u32,
    ) -> CommandId {
        let kind = OperationKind::of(&command.operation);
        let bytes = match command.operation {
            // Zeros are not transferred.
            Operation::WriteZeroes { .. } => 0,
            _ => command.operation.blocks().bytes(block_size_bytes),
        };
        self.given += 1;
        let given = CommandId(self.given);
        self.in_flight.insert(given, InFlight { kind, bytes, started: now, submitter, id: command.id });
        given
    }

    /// The queue of the drive was full.
    pub(crate) fn refused(&mut self, given: CommandId) {
        self.in_flight.remove(&given);
    }

    /// Records a completion. Returns the submitter, and its id of the command.
    pub(crate) fn ended(&mut self, now: Instant, completion: &Completion) -> (Submitter, CommandId) {
        let command = self.in_flight.remove(&completion.id).expect("a drive completes each command once");
        let InFlight { kind, bytes, started, submitter, id } = command;
        if !completion.status.is_success() {
            *self.errors.entry(completion.status).or_default() += 1;
            return (submitter, id);
        }
        let meter = &mut self.kinds[kind as usize];
        meter.succeeded += 1;
        meter.bytes += bytes;
        meter.latencies.record(now.since(started));
        (submitter, id)
    }

    /// Every kind with a successful command.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (OperationKind, &KindMeter)> {
        OperationKind::ALL.into_iter().zip(&self.kinds).filter(|(_, meter)| meter.succeeded > 0)
    }

    /// Failed commands by status, in the order of the codes.
    pub(crate) fn errors(&self) -> Vec<(Status, u64)> {
        let mut errors: Vec<_> = self.errors.iter().map(|(status, count)| (*status, *count)).collect();
        errors.sort_unstable();
        errors
    }

    /// Commands submitted and not complete.
    pub(crate) fn outstanding(&self) -> usize {
        self.in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::{Blocks, Lba, NamespaceId};

    #[test]
    fn the_bounds_rise_from_a_microsecond_to_ten_seconds() {
        assert_eq!((LATENCY_BOUNDS_NS[0], LATENCY_BOUNDS_NS[21]), (1_000, 10_000_000_000));
        assert!(LATENCY_BOUNDS_NS.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn a_command_counts_when_it_has_succeeded_and_an_error_by_its_status() {
        let mut meter = Meter::default();
        let given = [Submitter::Target, Submitter::Nbd, Submitter::Target].map(|submitter| {
            let operation = Operation::Read { start: Lba(0), blocks: Blocks(2) };
            let command = Command::new(CommandId(7), NamespaceId::FIRST, operation);
            meter.started(Instant(0), submitter, &command, 4096)
        });
        let first = meter.ended(Instant(1_500), &Completion::of(given[0], Status::Success));
        let second = meter.ended(Instant(30_000), &Completion::of(given[1], Status::ZoneIsOffline));
        assert_eq!((first, second), ((Submitter::Target, CommandId(7)), (Submitter::Nbd, CommandId(7))));
        let kinds: Vec<_> = meter.kinds().collect();
        assert_eq!(kinds.len(), 1);
        assert_eq!((kinds[0].0, kinds[0].1.succeeded, kinds[0].1.bytes), (OperationKind::Read, 1, 8192));
        assert_eq!(kinds[0].1.latencies.quantile_ns(0.5), Some(2_000));
        assert_eq!(meter.errors(), [(Status::ZoneIsOffline, 1)]);
        assert_eq!(meter.outstanding(), 1);
        meter.refused(given[2]);
        assert_eq!(meter.outstanding(), 0);
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        assert_eq!(Latencies::default().quantile_ns(0.99), None);
    }
}
