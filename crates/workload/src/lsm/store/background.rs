//! Flushes and compactions: their start, and the changes at their end.

use std::sync::Arc;

use zonda_zoned::Instant;

use super::Store;
use crate::limits::{STORE_LEVELS, STORE_TABLE_BYTES_MAX};
use crate::lsm::compaction::Compaction;
use crate::lsm::job::{Job, JobKind};
use crate::lsm::manifest::{Manifest, RecordOwner};
use crate::lsm::memtable::Memtable;
use crate::lsm::merge::{Grandparents, Merge, Run, Tombstones};
use crate::lsm::version::Edit;

/// The index of the flush among the jobs.
const FLUSH: u32 = 0;

impl Store {
    /// Starts due jobs that have a free slot.
    pub(super) fn start_jobs(&mut self, now: Instant) {
        if self.jobs[FLUSH as usize].is_none() && !self.immutables.is_empty() {
            let job = self.new_flush();
            self.start(now, FLUSH, job);
        }
        for index in FLUSH + 1..self.jobs.len() as u32 {
            if self.jobs[index as usize].is_some() {
                continue;
            }
            let Some(compaction) = self.picker.pick(&self.version) else { return };
            let job = self.new_compaction(index, compaction);
            self.start(now, index, job);
        }
    }

    /// Resumes a job after its wait.
    pub(super) fn resume_job(&mut self, now: Instant, index: u32) {
        let job = self.jobs[index as usize].as_mut().expect("a waiting job exists");
        job.resume(now, &self.options, &mut self.out);
        self.record_if_merged(index);
    }

    /// Applies the edit of a job, which is on the media.
    pub(super) fn install(&mut self, now: Instant, index: u32) {
        let job = self.jobs[index as usize].take().expect("a job exists until its edit is applied");
        let edit = edit_of(&job);
        match &job.kind {
            JobKind::Flush(memtables) => {
                self.out.counters.flushes += 1;
                for memtable in memtables.iter().rev() {
                    let oldest = self.immutables.pop_front();
                    assert!(
                        oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, memtable)),
                        "memtables are flushed in order"
                    );
                    let log = self.old_wals.iter_mut().find(|old| old.wal.file == memtable.log);
                    log.expect("a log exists until its memtable is flushed").is_flushed = true;
                }
                self.release_logs();
            }
            JobKind::Compaction(compaction) => {
                self.out.counters.compactions += 1;
                self.picker.release(compaction);
                self.obsolete.extend(compaction.tables().cloned());
            }
            JobKind::Move(compaction) => {
                self.out.counters.moves += 1;
                self.picker.release(compaction);
            }
        }
        self.version = Arc::new(self.version.after(&edit));
        // The job holds its inputs.
        drop(job);
        self.collect_obsolete();
        self.release_writes(now);
        self.start_jobs(now);
    }

    /// Deletes the files of tables that neither the version nor a reader uses.
    pub(super) fn collect_obsolete(&mut self) {
        if self.obsolete.is_empty() {
            return;
        }
        let (held, free): (Vec<_>, Vec<_>) = self.obsolete.drain(..).partition(|table| Arc::strong_count(table) > 1);
        self.obsolete = held;
        free.iter().for_each(|table| self.delete(table.file));
    }

    fn start(&mut self, now: Instant, index: u32, job: Job) {
        let is_merged = job.is_merged();
        self.jobs[index as usize] = Some(job);
        if is_merged {
            self.record_if_merged(index);
        } else {
            self.resume_job(now, index);
        }
    }

    fn record_if_merged(&mut self, index: u32) {
        let job = self.jobs[index as usize].as_ref().expect("a job that was just resumed");
        if job.is_merged() {
            let edit = edit_of(job);
            let key_bytes = self.options.table.entry.key_bytes;
            let bytes = Manifest::record_bytes(edit.removed.len(), edit.added.len(), key_bytes);
            self.manifest.add(RecordOwner::Job(index), bytes, &mut self.out);
        }
    }

    /// A flush of the oldest memtables, as many as fit in one table.
    fn new_flush(&self) -> Job {
        let mut bytes = 0;
        let fits = |memtable: &&Arc<Memtable>| {
            bytes += memtable.bytes;
            bytes <= STORE_TABLE_BYTES_MAX
        };
        let count = self.immutables.iter().take_while(fits).count().max(1);
        let memtables: Vec<Arc<Memtable>> = self.immutables.iter().take(count).rev().cloned().collect();
        let runs = memtables.iter().map(|memtable| Run::of_memory(memtable.sorted())).collect();
        let merge = Merge::new(runs, Tombstones::Keep, Grandparents::none());
        Job::new(FLUSH, JobKind::Flush(memtables), merge, &self.options)
    }

    fn new_compaction(&self, index: u32, compaction: Compaction) -> Job {
        let version = &self.version;
        if compaction.is_trivial_move(version, &self.options.sizes) {
            return Job::of_move(index, compaction, &self.options);
        }
        let upper = compaction.upper.iter().cloned();
        let mut runs: Vec<Run> = match compaction.level {
            0 => upper.map(|table| Run::of_tables(vec![table])).collect(),
            _ => vec![Run::of_tables(upper.collect())],
        };
        runs.push(Run::of_tables(compaction.lower.clone()));
        let (smallest, largest) = compaction.range();
        let deeper = (compaction.output_level() + 1..STORE_LEVELS)
            .map(|level| version.level(level)[version.overlapping(level, smallest, largest)].to_vec());
        let grandparents = compaction.grandparents(version).to_vec();
        let grandparents = Grandparents::new(grandparents, self.options.sizes.grandparent_bytes_max);
        let merge = Merge::new(runs, Tombstones::drop_at_bottom(deeper), grandparents);
        Job::new(index, JobKind::Compaction(compaction), merge, &self.options)
    }
}

/// The edit of a job that has merged everything.
fn edit_of(job: &Job) -> Edit {
    match &job.kind {
        JobKind::Flush(_) => {
            Edit { removed: Vec::new(), added: job.outputs.iter().map(|table| (0, Arc::clone(table))).collect() }
        }
        JobKind::Compaction(compaction) | JobKind::Move(compaction) => compaction.edit(job.outputs.clone()),
    }
}
