//! The manifest, the list of tables: a record for each edit, on the media before the edit takes
//! effect.

use std::collections::VecDeque;

use super::effect::{Effect, FileKind, Outbox, Owner};
use super::entry::FileNumber;
use super::plan::TreeOptions;

/// A record besides its tables: header, log number, next file number, last sequence number.
const RECORD_BYTES: u64 = 7 + 24;
/// A removed table: level and number.
const REMOVED_BYTES: u64 = 6;
/// An added table, without its smallest and largest key: level, number, size, sequence numbers,
/// times, checksum.
const ADDED_BYTES: u64 = 60;

/// Records that are written one after another.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) file: FileNumber,
    pub(super) file_bytes: u64,
    /// Jobs and the bytes of their records; the first is in flight unless the manifest is idle.
    queue: VecDeque<(RecordOwner, u64)>,
    stage: Stage,
}

/// The owner of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordOwner {
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
        manifest.add(RecordOwner::Store, RECORD_BYTES, out);
        manifest
    }

    /// The bytes of a record of an edit.
    pub(super) fn record_bytes(removed: usize, added: usize, key_bytes: u32) -> u64 {
        let added_bytes = ADDED_BYTES + 2 * u64::from(key_bytes);
        RECORD_BYTES + removed as u64 * REMOVED_BYTES + added as u64 * added_bytes
    }

    pub(super) fn add(&mut self, owner: RecordOwner, bytes: u64, out: &mut Outbox) {
        self.queue.push_back((owner, bytes));
        self.write_next(out);
    }

    /// Called when the operation in flight has ended. Returns the owner of a record that is now on
    /// the media.
    pub(super) fn on_done(&mut self, out: &mut Outbox) -> Option<RecordOwner> {
        match self.stage {
            Stage::Appending => {
                self.stage = Stage::Syncing;
                out.push(Effect::Sync { owner: Owner::Manifest, file: self.file });
                None
            }
            Stage::Syncing => {
                self.stage = Stage::Idle;
                let (owner, _) = self.queue.pop_front().expect("the record in flight is the first");
                self.write_next(out);
                Some(owner)
            }
            Stage::Closing => {
                self.stage = Stage::Closed;
                None
            }
            Stage::Idle | Stage::Closed => unreachable!("no operation is in flight"),
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
    /// When a record is in flight.
    pub(super) fn close(&mut self, out: &mut Outbox) {
        assert!(self.is_idle(), "a manifest is closed when idle");
        self.stage = Stage::Closing;
        out.push(Effect::Close { owner: Owner::Manifest, file: self.file });
    }

    fn write_next(&mut self, out: &mut Outbox) {
        if let (Stage::Idle, Some(&(_, bytes))) = (self.stage, self.queue.front()) {
            self.stage = Stage::Appending;
            self.file_bytes += bytes;
            out.counters.manifest_bytes += bytes;
            out.push(Effect::Append { owner: Owner::Manifest, file: self.file, bytes });
        }
    }
}
