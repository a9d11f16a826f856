//! The workload: a trace, and the weights of criteria.

use serde::Serialize;
use zonda_workload::filetrace::{OperationKind, Preset, ReplayResult, Trace, TraceEntry};

use crate::base::Base;
use crate::score::Weights;

/// FINISH thresholds of a host, that of the first runs first.
pub const FINISH_THRESHOLDS_PERCENT: [u8; 3] = [50, 10, 90];

/// A workload and its criteria.
#[derive(Debug)]
pub struct Load<'a> {
    /// Name: that of a preset, or of a file.
    pub name: String,
    /// Description, in a line.
    pub title: String,
    /// The criteria.
    pub goal: Goal,
    entries: LoadEntries<'a>,
}

#[derive(Debug)]
enum LoadEntries<'a> {
    Generated(Vec<TraceEntry>),
    Read(Trace<'a>),
}

/// The criteria of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The preset, if it is one of the five.
    pub preset: Option<Preset>,
    /// Weight of each criterion.
    pub weights: Weights,
    /// FINISH thresholds of the host, that of the first runs first.
    #[serde(skip)]
    pub thresholds_percent: &'static [u8],
}

impl Goal {
    /// The criteria of a preset, or of any other workload.
    #[must_use]
    pub fn of(preset: Option<Preset>) -> Goal {
        let thresholds_percent: &[u8] = match preset {
            // Early: data of a log is short-lived, and its zone must free an active resource.
            Some(Preset::Wal) => &[1],
            // Few zones are finished before they are full.
            Some(Preset::Read) => &[90],
            _ => &FINISH_THRESHOLDS_PERCENT,
        };
        Goal { preset, weights: Weights::of(preset), thresholds_percent }
    }
}

impl<'a> Load<'a> {
    /// A preset for this drive, generated from a seed.
    #[must_use]
    pub fn preset(preset: Preset, base: &Base, seed: u64) -> Load<'a> {
        Load {
            name: preset.name().to_owned(),
            title: preset.title().to_owned(),
            goal: Goal::of(Some(preset)),
            entries: LoadEntries::Generated(preset.entries(base.preset_size(), seed)),
        }
    }

    /// A trace from a file with this name, ranked with the weights of this preset.
    #[must_use]
    pub fn trace(name: &str, trace: Trace<'a>, judged_as: Option<Preset>) -> Load<'a> {
        let title = match judged_as {
            Some(preset) => format!("a file trace, ranked as {}", preset.title()),
            None => "a file trace".to_owned(),
        };
        Load { name: name.to_owned(), title, goal: Goal::of(judged_as), entries: LoadEntries::Read(trace) }
    }

    /// Its entries in order.
    pub fn entries(&self) -> Box<dyn Iterator<Item = TraceEntry> + '_> {
        match &self.entries {
            LoadEntries::Generated(entries) => Box::new(entries.iter().cloned()),
            LoadEntries::Read(trace) => Box::new(trace.entries()),
        }
    }

    /// Whether it is a preset.
    #[must_use]
    pub fn is_made(&self) -> bool {
        matches!(self.entries, LoadEntries::Generated(_))
    }

    /// Bytes appended, and the maximum live data, if known.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        match &self.entries {
            LoadEntries::Generated(entries) => {
                let appended = entries.iter().filter(|entry| entry.operation.kind() == OperationKind::Append);
                let bytes = appended.map(|entry| entry.operation.bytes()).sum();
                (bytes, bytes)
            }
            LoadEntries::Read(trace) => (trace.facts().append_bytes, trace.facts().live_bytes_max),
        }
    }
}

/// The operation that an application waits for, whose latency counts.
#[must_use]
pub(crate) fn waited_for(preset: Option<Preset>, result: &ReplayResult) -> Option<OperationKind> {
    let kinds: &[OperationKind] = match preset {
        Some(Preset::Wal | Preset::Mixed) => &[OperationKind::Sync],
        Some(Preset::Flush) => &[OperationKind::Close],
        Some(Preset::Compaction) => &[OperationKind::Append],
        Some(Preset::Read) => &[OperationKind::Read],
        None => &[OperationKind::Sync, OperationKind::Read, OperationKind::Close, OperationKind::Append],
    };
    kinds.iter().copied().find(|kind| result.kind(*kind).is_some())
}

/// Throughput in bytes per second: for the read preset, of reads while there are reads; else of all
/// appends and reads, over the whole time.
#[must_use]
pub(crate) fn throughput(preset: Option<Preset>, result: &ReplayResult) -> f64 {
    let rate = |bytes: u64, time_ns: u64| bytes as f64 * 1e9 / time_ns.max(1) as f64;
    if preset == Some(Preset::Read)
        && let Some(reads) = result.kind(OperationKind::Read)
    {
        return rate(reads.bytes, reads.end_ns - reads.start_ns);
    }
    rate(result.kinds.iter().map(|figures| figures.bytes).sum(), result.elapsed_ns)
}
