//! The effects of the store on files and timers, and its counters.

use std::collections::VecDeque;

use zonda_files::Lifetime;
use zonda_zoned::Instant;

use super::entry::FileNumber;
use super::result::StoreCounters;

/// An effect of the store. All except `Create` and `Wake` end with a call of `Store::on_done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Create a file, immediately.
    Create { file: FileNumber, kind: FileKind, lifetime: Lifetime },
    /// Append bytes to a file.
    Append { owner: Owner, file: FileNumber, bytes: u64 },
    /// Sync a file.
    Sync { owner: Owner, file: FileNumber },
    /// Sync a file, and close it for appends.
    Close { owner: Owner, file: FileNumber },
    /// Read from a file.
    Read { owner: Owner, file: FileNumber, offset_bytes: u64, bytes: u32 },
    /// Delete a file.
    Delete { owner: Owner, file: FileNumber },
    /// Call `Store::on_wake` at this time.
    Wake { at: Instant, waker: Waker },
}

/// The owner of a request. Each has at most one request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A client that reads.
    Client(u32),
    /// A log.
    Log(FileNumber),
    Manifest,
    /// A flush or a compaction.
    Job(u32),
    /// A file that is being deleted.
    Deleted(FileNumber),
}

/// What a timer wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waker {
    /// A flush or a compaction that uses CPU time.
    Job(u32),
    /// Writes that are slowed down.
    Writes,
}

/// The kind of a file, which determines its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Log,
    Table,
    Manifest,
}

/// Collects the effects of all parts of the store.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) effects: VecDeque<Effect>,
    pub(super) counters: StoreCounters,
    files_made: u32,
}

impl Outbox {
    #[inline]
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(super) fn create(&mut self, kind: FileKind, lifetime: Lifetime) -> FileNumber {
        self.files_made = self.files_made.checked_add(1).expect("a run creates fewer than 2^32 files");
        let file = FileNumber(self.files_made);
        self.push(Effect::Create { file, kind, lifetime });
        file
    }
}

impl FileKind {
    /// The name of a file, as in RocksDB.
    pub(super) fn name(self, file: FileNumber) -> String {
        match self {
            FileKind::Log => format!("{file}.log"),
            FileKind::Table => format!("{file}.sst"),
            FileKind::Manifest => format!("MANIFEST-{file}"),
        }
    }
}
