//! Five traces generated from a seed and a size: the kinds of load for which the SilentZNS paper
//! recommends a drive (Section 8 and Table 5). Sizes and rates are ours, since the paper gives
//! none; each module describes its trace.

mod compaction;
mod flush;
mod mixed;
mod read;
mod script;
#[cfg(test)]
mod tests;
mod wal;

use std::fmt;

use serde::{Serialize, Serializer};
use zonda_zoned::Prng;

use super::entry::TraceEntry;
use super::limits::PRESET_BYTES_MIN;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preset {
    /// Logs, and a bulk writer.
    Wal,
    /// Memtables and partial compactions.
    Flush,
    /// Large files written and merged.
    Compaction,
    /// A log-structured store with files of all lifetimes.
    Mixed,
    /// Files written once and then read.
    Read,
}

/// How much a preset writes, which determines the sizes of its files; and the write rate of the
/// drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetSize {
    bytes: u64,
    write_rate_bytes_per_s: Option<u64>,
}

impl PresetSize {
    /// About this many bytes; at least [`PRESET_BYTES_MIN`].
    #[must_use]
    pub fn new(bytes: u64) -> PresetSize {
        PresetSize { bytes: bytes.max(PRESET_BYTES_MIN), write_rate_bytes_per_s: None }
    }

    /// For a drive with this write rate: background writers use a part of it.
    #[must_use]
    pub fn with_write_rate(self, bytes_per_s: u64) -> PresetSize {
        PresetSize { write_rate_bytes_per_s: Some(bytes_per_s.max(1)), ..self }
    }

    /// The approximate number of bytes written.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// A part of them, at most `most`, in whole units of 4 KiB.
    fn part(self, of: u64, most: u64) -> u64 {
        (self.bytes / of).min(most) >> 12 << 12
    }
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 5] = [Preset::Wal, Preset::Flush, Preset::Compaction, Preset::Mixed, Preset::Read];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Wal => "wal",
            Preset::Flush => "flush",
            Preset::Compaction => "compaction",
            Preset::Mixed => "mixed",
            Preset::Read => "read",
        }
    }

    /// A description of one line.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Preset::Wal => "write-ahead logs of small synced commits, and a bulk writer",
            Preset::Flush => "memtable flushes and partial compactions, four at a time",
            Preset::Compaction => "bulk ingest and major compactions of large files",
            Preset::Mixed => "a log-structured store with data of all lifetimes",
            Preset::Read => "data written once and then read, mostly at random",
        }
    }

    /// The trace. The same size and seed give the same entries.
    #[must_use]
    pub fn entries(self, size: PresetSize, seed: u64) -> Vec<TraceEntry> {
        let prng = Prng::new(seed).fork("file-trace").fork(self.name());
        match self {
            Preset::Wal => wal::entries(size, &prng),
            Preset::Flush => flush::entries(size, &prng),
            Preset::Compaction => compaction::entries(size),
            Preset::Mixed => mixed::entries(size, &prng),
            Preset::Read => read::entries(size, &prng),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Preset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
