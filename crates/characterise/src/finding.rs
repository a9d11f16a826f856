//! What was measured: one [`Finding`] for each load.

use serde::{Deserialize, Serialize};
use zonda_workload::{KindResult, RequestKind};

use crate::{Kind, Load, SchedulerName};

/// A part of the characterisation, with its share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Conflict groups of zones.
    Groups,
    /// Reads over size, depth and number of zones.
    Reads,
    /// Writes over size and number of zones.
    Writes,
    /// Appends over size, depth and number of zones.
    Appends,
    /// Latencies of reset, finish, open and close.
    Zones,
    /// Operations beside each other.
    Interference,
    /// Readers beside writers, behind each I/O scheduler.
    Schedulers,
}

impl Part {
    /// All parts, in the order in which they are measured.
    pub const ALL: [Part; 7] =
        [Part::Groups, Part::Reads, Part::Writes, Part::Appends, Part::Zones, Part::Interference, Part::Schedulers];

    /// The name of the part.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Groups => "conflict groups",
            Part::Reads => "reads",
            Part::Writes => "writes",
            Part::Appends => "appends",
            Part::Zones => "zone management",
            Part::Interference => "interference",
            Part::Schedulers => "schedulers",
        }
    }

    /// The share of the time, relative to that of other parts.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Part::Groups => 10,
            Part::Reads => 12,
            Part::Writes | Part::Appends => 8,
            Part::Zones => 12,
            // A finish may take a second, and beside others several.
            Part::Interference => 60,
            Part::Schedulers => 6,
        }
    }

    /// Whether the part writes to zones and resets them.
    #[must_use]
    pub fn is_destructive(self) -> bool {
        !matches!(self, Part::Groups | Part::Reads)
    }
}

/// Why something has no figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason", content = "status")]
pub enum Missing {
    /// The drive refuses the operation, with this status.
    NotSupported(String),
    /// Only reads are allowed.
    ReadOnly,
    /// No zone has data to read.
    NoData,
    /// The time was over.
    NoTime,
    /// The user has ended the measurement.
    Interrupted,
    /// The drive has too few zones.
    TooFewZones,
    /// The scheduler needs conflict groups, and none are known.
    NoGroups,
    /// No command completed in the measured part of the run.
    NoneCompleted,
    /// No command completed in the measured part of the run, which ends with the zones of its loads.
    ZonesUsedUp,
    /// A command failed with this status.
    Failed(String),
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::NotSupported(status) => write!(f, "not supported by the drive: {status}"),
            Missing::ReadOnly => f.write_str("not measured: it writes to zones, which needs --destructive"),
            Missing::NoData => f.write_str("not measured: no zone has data to read"),
            Missing::NoTime => f.write_str("not measured: the budget was used up"),
            Missing::Interrupted => f.write_str("not measured: interrupted"),
            Missing::TooFewZones => f.write_str("not measured: too few zones"),
            Missing::NoGroups => f.write_str("not measured: no conflict groups of zones are known"),
            Missing::NoneCompleted => {
                f.write_str("no command completed in the measured part of the run; a longer budget has longer runs")
            }
            Missing::ZonesUsedUp => f.write_str(
                "no command completed in the measured part of the run, which is short: the drive has too few zones to write, reset or \
                 finish",
            ),
            Missing::Failed(status) => write!(f, "failed: {status}"),
        }
    }
}

/// Throughput and latency of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Requests that completed.
    pub operations: u64,
    /// Requests in a second.
    pub per_second: f64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// Mean latency.
    pub mean_ns: u64,
    /// Half of the requests took at most this.
    pub p50_ns: u64,
    /// 99% took at most this.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The standard error of the throughput, as a share of it.
    pub uncertainty: f64,
}

impl Figures {
    /// Of a job; throughputs of the time series give the uncertainty.
    pub(crate) fn of_job(result: &KindResult, intervals: &[f64]) -> Figures {
        let is_management = !matches!(result.kind, RequestKind::Read | RequestKind::Write | RequestKind::Append);
        // Commands that manage zones run one after the other, and may be so few that the time of a
        // run is no whole number of them.
        let per_second = if is_management { 1e9 / result.latency.mean_ns.max(1) as f64 } else { result.iops };
        Figures {
            operations: result.operations,
            per_second,
            bytes_per_second: result.bandwidth_bytes_per_second,
            mean_ns: result.latency.mean_ns,
            p50_ns: result.latency.p50_ns,
            p99_ns: result.latency.p99_ns,
            max_ns: result.latency.max_ns,
            uncertainty: standard_error(intervals),
        }
    }

    /// Of commands that were carried out one after the other.
    pub(crate) fn of_latencies(latencies_ns: &mut [u64]) -> Option<Figures> {
        latencies_ns.sort_unstable();
        let (count, max_ns) = (latencies_ns.len() as u64, *latencies_ns.last()?);
        let sum: u64 = latencies_ns.iter().sum();
        let quantile = |percent: u64| latencies_ns[((count * percent).div_ceil(100).max(1) - 1) as usize];
        let rates: Vec<f64> = latencies_ns.iter().map(|latency| *latency as f64).collect();
        Some(Figures {
            operations: count,
            per_second: count as f64 * 1e9 / sum.max(1) as f64,
            bytes_per_second: 0.0,
            mean_ns: sum / count,
            p50_ns: quantile(50),
            p99_ns: quantile(99),
            max_ns,
            uncertainty: standard_error(&rates),
        })
    }
}

/// The standard error of the mean, as a share of the mean.
fn standard_error(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < 2 || mean <= 0.0 {
        return 0.0;
    }
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (count - 1.0);
    // Four digits: more would only show the arithmetic.
    ((variance / count).sqrt() / mean * 1e4).round() / 1e4
}

/// A load and its figures, or why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The part that it belongs to.
    pub part: Part,
    /// The load.
    pub load: Load,
    /// The load that ran beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Load>,
    /// The I/O scheduler before the drive; absent where none was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerName>,
    /// Throughput and latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

impl Finding {
    pub(crate) fn new(part: Part, load: Load, beside: Option<Load>, result: Result<Figures, Missing>) -> Finding {
        let (figures, missing) = match result {
            Ok(figures) => (Some(figures), None),
            Err(missing) => (None, Some(missing)),
        };
        Finding { part, load, beside, scheduler: None, figures, missing }
    }

    pub(crate) fn behind(self, scheduler: Option<SchedulerName>) -> Finding {
        Finding { scheduler, ..self }
    }

    /// What was run, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = self.load.words();
        if let Some(beside) = self.beside {
            words += &format!(", beside {}", beside.words());
        }
        if let Some(scheduler) = self.scheduler {
            words += &format!(", scheduler {scheduler}");
        }
        words
    }
}

/// The requests that count for a load: a finisher writes a block to each zone before.
pub(crate) fn counted(kind: Kind) -> RequestKind {
    match kind {
        Kind::Read => RequestKind::Read,
        Kind::Write => RequestKind::Write,
        Kind::Append => RequestKind::Append,
        Kind::Reset => RequestKind::Reset,
        Kind::Finish => RequestKind::Finish,
        Kind::Open => RequestKind::Open,
        Kind::Close => RequestKind::Close,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_latencies_are_among_them() {
        let figures = Figures::of_latencies(&mut [30, 10, 20, 60]).expect("there are some");
        assert_eq!((figures.p50_ns, figures.p99_ns, figures.max_ns, figures.mean_ns), (20, 60, 60, 30));
        assert!((figures.per_second - 4e9 / 120.0).abs() < 1.0);
        assert_eq!(Figures::of_latencies(&mut []), None);
    }

    #[test]
    fn the_uncertainty_shrinks_with_the_number_of_intervals() {
        assert_eq!(standard_error(&[5.0, 5.0, 5.0]), 0.0);
        let few = standard_error(&[4.0, 6.0]);
        let many = standard_error(&[4.0, 6.0, 4.0, 6.0, 4.0, 6.0, 4.0, 6.0]);
        assert!((few - 0.2).abs() < 1e-9 && many < few / 2.0 + 0.01, "{few} {many}");
    }
}
