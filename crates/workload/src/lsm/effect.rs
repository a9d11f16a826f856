//! What the store wants of its files and of time, and what it has counted.

use std::collections::VecDeque;

use zonda_files::Lifetime;
use zonda_zoned::Instant;

use super::entry::FileNumber;
use super::result::StoreCounters;

/// Something to be done for the store. All but `Create` and `Wake` end with a call of `Store::on_done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Make a file, at once.
    Create { file: FileNumber, kind: FileKind, lifetime: Lifetime },
    /// Add bytes to a file.
    Append { owner: Owner, file: FileNumber, bytes: u64 },
    /// Bring all of a file to the media.
    Sync { owner: Owner, file: FileNumber },
    /// The same, and the file takes no more.
    Close { owner: Owner, file: FileNumber },
    /// Read from a file.
    Read { owner: Owner, file: FileNumber, offset_bytes: u64, bytes: u32 },
    /// Delete a file.
    Delete { owner: Owner, file: FileNumber },
    /// Call `Store::on_wake` at this time.
    Wake { at: Instant, whom: Waker },
}

/// Whose request it is. Each has one request under way at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A client that reads.
    Client(u32),
    /// A log.
    Log(FileNumber),
    Manifest,
    /// A flush or a compaction.
    Job(u32),
    /// A file that is deleted.
    Deleted(FileNumber),
}

/// Who waits for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waker {
    /// A flush or a compaction that computes.
    Job(u32),
    /// Writes that are slowed down.
    Writes,
}

/// What a file is, for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Log,
    Table,
    Manifest,
}

/// Where all parts of the store put what they want done.
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
        self.files_made = self.files_made.checked_add(1).expect("a run makes fewer than 2^32 files");
        let file = FileNumber(self.files_made);
        self.push(Effect::Create { file, kind, lifetime });
        file
    }
}

impl FileKind {
    /// The name of a file, as RocksDB would have it.
    pub(super) fn name(self, file: FileNumber) -> String {
        match self {
            FileKind::Log => format!("{file}.log"),
            FileKind::Table => format!("{file}.sst"),
            FileKind::Manifest => format!("MANIFEST-{file}"),
        }
    }
}
