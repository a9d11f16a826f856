//! A log-structured store on one file system, as RocksDB on ZenFS (Table 5, D: data of mixed
//! lifetimes).
//!
//! A thread writes a log for each memtable; a second one flushes it to a file of level 0 and
//! deletes the log; three more merge level 0 into level 1, level 1 into level 2, and level 2 into
//! level 3, one each. Lifetimes are RocksDB's: logs short, levels 0 and 1 medium, level 2 long,
//! level 3 extreme. The overlapping files of a merge in the next level are random. At most three
//! logs exist at one time; then the log writer waits for flushes, as RocksDB's writers do.

use zonda_files::Lifetime;
use zonda_zoned::Prng;

use super::PresetSize;
use super::script::{Outputs, Script, SizedFile};
use crate::filetrace::entry::TraceEntry;

/// Threads: of the log, of flushes, and of merges out of level 0; those of deeper levels come
/// after.
const LOG: u32 = 0;
const FLUSH: u32 = 1;
const MERGE: u32 = 2;
/// Logs at one time.
const LOGS: u64 = 3;
/// Appends of the log, and the bytes between its syncs; larger where memtables are larger than
/// [`SMALL_MEMTABLE_BYTES`], as of a group of commits.
const APPEND_BYTES_MIN: u64 = 4 << 10;
const APPEND_BYTES_MAX: u64 = 16 << 10;
const SYNC_BYTES: u64 = 64 << 10;
const SMALL_MEMTABLE_BYTES: u64 = 8 << 20;
const MEMTABLE_BYTES_MAX: u64 = 64 << 20;
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Files of level 0 that are merged together.
const LEVEL0_FILES: usize = 4;
/// Files of levels 1 and 2 from which on one is merged down; level 3 has the rest.
const LEVEL_FILES: [usize; 2] = [4, 10];
/// Files of the next level that a file overlaps.
const OVERLAP: u64 = 3;
/// Of eight bytes merged, the number still needed.
const KEPT_OF_EIGHT: u64 = 7;

struct Store<'a> {
    script: Script,
    prng: &'a mut Prng,
    memtable_bytes: u64,
    table_bytes: u64,
    levels: [Vec<SizedFile>; 4],
    tables: u64,
    written: u64,
}

pub(super) fn entries(size: PresetSize, prng: &Prng) -> Vec<TraceEntry> {
    let mut store = Store {
        script: Script::default(),
        prng: &mut prng.fork("store"),
        memtable_bytes: size.part(96, MEMTABLE_BYTES_MAX),
        table_bytes: size.part(128, TABLE_BYTES_MAX),
        levels: Default::default(),
        tables: 0,
        written: 0,
    };
    for memtable in 0.. {
        if store.written >= size.bytes() {
            break;
        }
        store.fill_memtable(memtable);
        if store.levels[0].len() >= LEVEL0_FILES {
            store.merge_level0();
        }
        for level in 1..=LEVEL_FILES.len() {
            while store.levels[level].len() > LEVEL_FILES[level - 1] {
                store.merge_down(level);
            }
        }
    }
    store.script.into_entries()
}

impl Store<'_> {
    /// Writes a log, and the flush that makes it obsolete.
    fn fill_memtable(&mut self, memtable: u64) {
        // Names are reused: a log is created when the flush of the previous log of this name has
        // deleted it.
        let log = self.script.create(LOG, &format!("log-{}", memtable % LOGS), Lifetime::Short);
        let (mut remaining, mut unsynced) = (self.memtable_bytes, 0);
        let group = self.memtable_bytes.div_ceil(SMALL_MEMTABLE_BYTES).max(1);
        while remaining > 0 {
            let random_bytes = group * (APPEND_BYTES_MIN + self.prng.below(APPEND_BYTES_MAX - APPEND_BYTES_MIN + 1));
            let bytes = random_bytes.min(remaining);
            self.script.append(LOG, &log, bytes);
            remaining -= bytes;
            unsynced += bytes;
            if unsynced >= group * SYNC_BYTES {
                self.script.sync(LOG, &log);
                unsynced = 0;
            }
        }
        self.script.close(FLUSH, &log);
        let name = self.next_table();
        let file = self.script.write_file(FLUSH, &name, lifetime_of(0), self.memtable_bytes);
        self.script.delete(FLUSH, log);
        self.levels[0].push(SizedFile { file, bytes: self.memtable_bytes });
        self.written += 2 * self.memtable_bytes;
    }

    /// Merges level 0, which overlaps all of level 1.
    fn merge_level0(&mut self) {
        let mut inputs = std::mem::take(&mut self.levels[0]);
        inputs.append(&mut self.levels[1]);
        self.merge(MERGE, inputs, 1);
    }

    /// Merges a file of this level with those of the next that it overlaps.
    fn merge_down(&mut self, level: usize) {
        let picked = self.prng.below(self.levels[level].len() as u64) as usize;
        let mut inputs = vec![self.levels[level].swap_remove(picked)];
        let next = &mut self.levels[level + 1];
        let first = self.prng.below(next.len() as u64 + 1) as usize;
        let end = next.len().min(first + OVERLAP as usize);
        inputs.extend(next.drain(first..end));
        self.merge(MERGE + level as u32, inputs, level + 1);
    }

    fn merge(&mut self, thread: u32, inputs: Vec<SizedFile>, into: usize) {
        let tables = &mut self.tables;
        let mut name = || table_name(tables);
        let mut outputs = Outputs {
            name: &mut name,
            lifetime: lifetime_of(into),
            bytes_max: self.table_bytes,
            kept: KEPT_OF_EIGHT,
            of: 8,
        };
        let made = self.script.merge(thread, inputs, &mut outputs);
        self.written += made.iter().map(|file| file.bytes).sum::<u64>();
        self.levels[into].extend(made);
    }

    fn next_table(&mut self) -> String {
        table_name(&mut self.tables)
    }
}

fn table_name(tables: &mut u64) -> String {
    *tables += 1;
    format!("table-{tables:06}")
}

/// RocksDB's hints by level.
fn lifetime_of(level: usize) -> Lifetime {
    match level {
        0 | 1 => Lifetime::Medium,
        2 => Lifetime::Long,
        _ => Lifetime::Extreme,
    }
}
