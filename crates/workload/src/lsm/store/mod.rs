//! The store: operations and completions of requests in, effects and answers out.
//!
//! ```text
//! writes.rs      a write goes to log and memtable, or waits; a full memtable is replaced by a new one
//! reads.rs       a get searches from the newest to the oldest; a scan merges all
//! background.rs  flushes and compactions begin, end and change the version; obsolete files are deleted
//! ```

mod background;
mod reads;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use zonda_zoned::Instant;

use super::cache::BlockCache;
use super::compaction::Picker;
use super::effect::{Effect, Outbox, Owner, Waker};
use super::entry::{FileNumber, Key, Stamp};
use super::job::Job;
use super::manifest::{Manifest, RecordOwner};
use super::memtable::Memtable;
use super::plan::TreeOptions;
use super::result::{LevelResult, StoreCounters};
use super::stall::Stall;
use super::table::Table;
use super::version::Version;
use super::wal::Wal;
use crate::limits::STORE_LEVELS;

use reads::Reading;
use writes::Write;

/// One store. It has everything that a real one has in files or memory, except contents.
#[derive(Debug)]
pub(super) struct Store {
    options: TreeOptions,
    out: Outbox,
    answers: VecDeque<(u32, Answer)>,
    /// The sequence number of the last write.
    sequence: u64,
    memtable: Memtable,
    /// Full memtables, the oldest first.
    immutables: VecDeque<Arc<Memtable>>,
    wal: Wal,
    /// Logs of full memtables, the oldest first.
    old_wals: Vec<OldWal>,
    manifest: Manifest,
    version: Arc<Version>,
    picker: Picker,
    /// The flush, and then the compactions.
    jobs: Vec<Option<Job>>,
    cache: BlockCache,
    /// The current read of each client.
    readings: Vec<Option<Reading>>,
    /// Writes that wait for flushes and compactions.
    waiting: VecDeque<Write>,
    stall: Stall,
    /// Tables that only readers of older versions still use.
    obsolete: Vec<Arc<Table>>,
    /// Files that are being deleted.
    deleting: usize,
    /// Every key with its last write, if reads are checked.
    oracle: Option<BTreeMap<Key, Stamp>>,
    /// A buffer for clients, for reuse.
    clients: Vec<u32>,
}

#[derive(Debug)]
struct OldWal {
    wal: Wal,
    is_flushed: bool,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Written,
    Found,
    NotFound,
    /// This many keys.
    Scanned(u32),
}

impl Store {
    /// An empty store for so many clients. With `checks`, every read is compared with a plain map.
    pub(super) fn new(options: TreeOptions, clients: u32, checks: bool) -> Store {
        let mut out = Outbox::default();
        let manifest = Manifest::new(&options, &mut out);
        let wal = Wal::new(&options, &mut out);
        Store {
            out,
            answers: VecDeque::new(),
            sequence: 0,
            memtable: Memtable::new(wal.file),
            immutables: VecDeque::new(),
            wal,
            old_wals: Vec::new(),
            manifest,
            version: Arc::default(),
            picker: Picker::new(options.sizes),
            jobs: (0..=options.compactions_max).map(|_| None).collect(),
            cache: BlockCache::new(options.block_cache_bytes, u64::from(options.table.block_bytes)),
            readings: (0..clients).map(|_| None).collect(),
            waiting: VecDeque::new(),
            stall: Stall::default(),
            obsolete: Vec::new(),
            deleting: 0,
            oracle: checks.then(BTreeMap::new),
            clients: Vec::new(),
            options,
        }
    }

    /// Called when a request of `owner` has succeeded. (A failed request ends the run.)
    pub(super) fn on_done(&mut self, now: Instant, owner: Owner) {
        match owner {
            Owner::Client(client) => self.on_block(client),
            Owner::Log(file) => self.on_log(file),
            Owner::Manifest => match self.manifest.on_done(&mut self.out) {
                Some(RecordOwner::Job(job)) => self.install(now, job),
                Some(RecordOwner::Store) | None => {}
            },
            Owner::Job(job) => self.resume_job(now, job),
            Owner::Deleted(_) => self.deleting -= 1,
        }
    }

    /// Called when the timer of `waker` fires.
    pub(super) fn on_wake(&mut self, now: Instant, waker: Waker) {
        match waker {
            Waker::Job(job) => self.resume_job(now, job),
            Waker::Writes => self.release_writes(now),
        }
    }

    /// The next effect.
    #[inline]
    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        self.out.effects.pop_front()
    }

    #[inline]
    pub(super) fn has_effects(&self) -> bool {
        !self.out.effects.is_empty()
    }

    /// The next completed operation, of those that did not complete immediately.
    #[inline]
    pub(super) fn poll_answer(&mut self) -> Option<(u32, Answer)> {
        self.answers.pop_front()
    }

    /// Whether the tree is quiescent: nothing to flush, to compact or to delete, and no client
    /// waits.
    pub(super) fn is_quiescent(&self) -> bool {
        self.jobs.iter().all(Option::is_none)
            && self.immutables.is_empty()
            && self.waiting.is_empty()
            && self.manifest.is_idle()
            && self.old_wals.is_empty()
            && self.obsolete.is_empty()
            && self.deleting == 0
    }

    /// Closes the files that are open for writing. The store must be quiescent, and accepts no more
    /// writes.
    pub(super) fn close(&mut self) {
        assert!(self.is_quiescent(), "a store is closed when quiescent");
        self.wal.end(&mut self.out);
        self.manifest.close(&mut self.out);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.wal.is_closed() && self.manifest.is_closed()
    }

    /// Deletes all files of a closed store.
    pub(super) fn delete_files(&mut self) {
        assert!(self.is_closed(), "a store is closed before its files are deleted");
        let tables: Vec<FileNumber> = self.version.tables().map(|table| table.file).collect();
        [self.wal.file, self.manifest.file].into_iter().chain(tables).for_each(|file| self.delete(file));
        self.version = Arc::default();
    }

    /// Whether all files have been deleted.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleting == 0
    }

    pub(super) fn level0_tables(&self) -> usize {
        self.version.level(0).len()
    }

    /// The counters since the last call.
    pub(super) fn take_counters(&mut self) -> StoreCounters {
        std::mem::take(&mut self.out.counters)
    }

    pub(super) fn levels(&self) -> Vec<LevelResult> {
        let result = |level| {
            let tables = self.version.level(level);
            LevelResult {
                tables: tables.len() as u64,
                bytes: self.version.bytes(level),
                entries: tables.iter().map(|table| table.entries.len() as u64).sum(),
            }
        };
        (0..STORE_LEVELS).map(result).collect()
    }

    /// Bytes of all files of the store.
    pub(super) fn file_bytes(&self) -> u64 {
        let tables: u64 = self.version.tables().map(|table| table.file_bytes).sum();
        let old_wals: u64 = self.old_wals.iter().map(|old| old.wal.file_bytes).sum();
        tables + self.wal.file_bytes + old_wals + self.manifest.file_bytes
    }

    fn on_log(&mut self, file: FileNumber) {
        let mut clients = std::mem::take(&mut self.clients);
        if self.wal.file == file {
            self.wal.on_done(&mut self.out, &mut clients);
        } else {
            let old = self.old_wals.iter_mut().find(|old| old.wal.file == file);
            old.expect("a log exists until it is closed").wal.on_done(&mut self.out, &mut clients);
            self.release_logs();
        }
        self.answers.extend(clients.drain(..).map(|client| (client, Answer::Written)));
        self.clients = clients;
    }

    fn delete(&mut self, file: FileNumber) {
        self.deleting += 1;
        self.out.push(Effect::Delete { owner: Owner::Deleted(file), file });
    }
}
