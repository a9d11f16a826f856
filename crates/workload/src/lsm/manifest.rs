//! The file that says which tables there are: a record for each edit, on the media before the edit takes effect.

use std::collections::VecDeque;

use super::effect::{Effect, FileKind, Outbox, Owner};
use super::entry::FileNumber;
use super::plan::TreeOptions;

/// A record besides its tables: header, log number, next file number, last sequence number.
const RECORD_BYTES: u64 = 7 + 24;
/// A table that is gone: level and number.
const REMOVED_BYTES: u64 = 6;
/// A table that is new, besides its smallest and largest key: level, number, size, sequence numbers, times, checksum.
const ADDED_BYTES: u64 = 60;

/// Records that are written one after another.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) file: FileNumber,
    pub(super) file_bytes: u64,
    /// Jobs and the bytes of their records; the first is under way unless the manifest is idle.
    queue: VecDeque<(Author, u64)>,
    stage: Stage,
}

/// Whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// The first record of a store.
    Store,
    Job(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Appending,
    Syncing,
    Closing,
    Closed,
}

impl Manifest {
    pub(super) fn new(options: &TreeOptions, out: &mut Outbox) -> Manifest {
        let file = out.create(FileKind::Manifest, options.manifest_lifetime);
        let mut manifest = Manifest { file, file_bytes: 0, queue: VecDeque::new(), stage: Stage::Idle };
        manifest.add(Author::Store, RECORD_BYTES, out);
        manifest
    }

    /// The bytes of a record of an edit.
    pub(super) fn record_bytes(removed: usize, added: usize, key_bytes: u32) -> u64 {
        let added_bytes = ADDED_BYTES + 2 * u64::from(key_bytes);
        RECORD_BYTES + removed as u64 * REMOVED_BYTES + added as u64 * added_bytes
    }

    pub(super) fn add(&mut self, author: Author, bytes: u64, out: &mut Outbox) {
        self.queue.push_back((author, bytes));
        self.go_on(out);
    }

    /// What was under way has ended. Returns the author of a record that is now on the media.
    pub(super) fn on_done(&mut self, out: &mut Outbox) -> Option<Author> {
        match self.stage {
            Stage::Appending => {
                self.stage = Stage::Syncing;
                out.push(Effect::Sync { owner: Owner::Manifest, file: self.file });
                None
            }
            Stage::Syncing => {
                self.stage = Stage::Idle;
                let (author, _) = self.queue.pop_front().expect("the record under way is the first");
                self.go_on(out);
                Some(author)
            }
            Stage::Closing => {
                self.stage = Stage::Closed;
                None
            }
            Stage::Idle | Stage::Closed => unreachable!("nothing is under way"),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Closes the file.
    ///
    /// # Panics
    /// When a record is under way.
    pub(super) fn close(&mut self, out: &mut Outbox) {
        assert!(self.is_idle(), "a manifest is closed at rest");
        self.stage = Stage::Closing;
        out.push(Effect::Close { owner: Owner::Manifest, file: self.file });
    }

    fn go_on(&mut self, out: &mut Outbox) {
        if let (Stage::Idle, Some(&(_, bytes))) = (self.stage, self.queue.front()) {
            self.stage = Stage::Appending;
            self.file_bytes += bytes;
            out.counters.manifest_bytes += bytes;
            out.push(Effect::Append { owner: Owner::Manifest, file: self.file, bytes });
        }
    }
}
