//! What the drive is for: a trace, and what counts when it is replayed.

use serde::Serialize;
use zonda_workload::filetrace::{OperationKind, Preset, ReplayResult, Trace, TraceEntry};

use crate::base::Base;
use crate::score::Weights;

/// Occupancies at which a host may finish zones, that of the first runs first.
pub const FINISH_THRESHOLDS_PERCENT: [u8; 3] = [50, 10, 90];

/// A load and its aims.
#[derive(Debug)]
pub struct Load<'a> {
    /// What is asked for in the load's own words: a preset's name, or a file's.
    pub name: String,
    /// What it stands for, in a line.
    pub title: String,
    /// What counts.
    pub goal: Goal,
    entries: LoadEntries<'a>,
}

#[derive(Debug)]
enum LoadEntries<'a> {
    Made(Vec<TraceEntry>),
    Read(Trace<'a>),
}

/// What counts for a kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The kind, if it is one of the five.
    pub preset: Option<Preset>,
    /// How much each criterion counts.
    pub weights: Weights,
    /// Occupancies at which the host may finish zones; those of the first runs first.
    #[serde(skip)]
    pub thresholds_percent: &'static [u8],
}

impl Goal {
    /// That of a kind of load; of any load without a kind.
    #[must_use]
    pub fn of(preset: Option<Preset>) -> Goal {
        let thresholds_percent: &[u8] = match preset {
            // Early: what is in a log is needless soon, and its zone is to make room.
            Some(Preset::Wal) => &[1],
            // Few zones are ever finished before they are full.
            Some(Preset::Read) => &[90],
            _ => &FINISH_THRESHOLDS_PERCENT,
        };
        Goal { preset, weights: Weights::of(preset), thresholds_percent }
    }
}

impl<'a> Load<'a> {
    /// A preset for this drive, drawn from a seed.
    #[must_use]
    pub fn preset(preset: Preset, base: &Base, seed: u64) -> Load<'a> {
        Load {
            name: preset.name().to_owned(),
            title: preset.title().to_owned(),
            goal: Goal::of(Some(preset)),
            entries: LoadEntries::Made(preset.entries(base.preset_size(), seed)),
        }
    }

    /// A trace from a file with this name, to be judged as this kind of load.
    #[must_use]
    pub fn trace(name: &str, trace: Trace<'a>, judged_as: Option<Preset>) -> Load<'a> {
        let title = match judged_as {
            Some(preset) => format!("a trace of files, judged as {}", preset.title()),
            None => "a trace of files".to_owned(),
        };
        Load { name: name.to_owned(), title, goal: Goal::of(judged_as), entries: LoadEntries::Read(trace) }
    }

    /// Its entries, in their order.
    pub fn entries(&self) -> Box<dyn Iterator<Item = TraceEntry> + '_> {
        match &self.entries {
            LoadEntries::Made(entries) => Box::new(entries.iter().cloned()),
            LoadEntries::Read(trace) => Box::new(trace.entries()),
        }
    }

    /// Whether it is a preset.
    #[must_use]
    pub fn is_made(&self) -> bool {
        matches!(self.entries, LoadEntries::Made(_))
    }

    /// Bytes appended, and the most that are in files at one time as far as that is known.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        match &self.entries {
            LoadEntries::Made(entries) => {
                let appended = entries.iter().filter(|entry| entry.operation.kind() == OperationKind::Append);
                let bytes = appended.map(|entry| entry.operation.bytes()).sum();
                (bytes, bytes)
            }
            LoadEntries::Read(trace) => (trace.facts().append_bytes, trace.facts().live_bytes_max),
        }
    }
}

/// The operation whose tail counts: what somebody waits for.
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

/// Bytes in a second that count: of reads while there are reads, for a load that is about reading; else all that was
/// appended and read, over the whole time.
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
