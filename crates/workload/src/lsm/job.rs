//! A running flush or compaction: inputs are read and merged, outputs written, one step after
//! another.
//!
//! ```text
//!   Merging ──► Computing ──► Reading ──────────────────────────────► Merging     an input must be read
//!                        ├──► Appending ────────────────────────────► Merging     a write unit is full
//!                        └──► Finishing ──► Closing ──► Opening ────► Merging     an output is complete
//!                                                               └───► Recording   the last one; then the edit is made
//! ```

use std::sync::Arc;

use zonda_zoned::{Duration, Instant};

use super::compaction::Compaction;
use super::effect::{Effect, FileKind, Outbox, Owner, Waker};
use super::entry::FileNumber;
use super::memtable::Memtable;
use super::merge::{Merge, NextRead, Stop};
use super::plan::TreeOptions;
use super::table::{Table, TableBuilder};

/// A flush or a compaction.
#[derive(Debug)]
pub(super) struct Job {
    index: u32,
    pub(super) kind: JobKind,
    merge: Merge,
    output_level: usize,
    /// Size at which an output is complete.
    output_bytes_max: u64,
    output: TableBuilder,
    /// The output's file, from its first append on.
    file: Option<FileNumber>,
    /// Bytes of the output that were appended to its file.
    appended_bytes: u64,
    /// An output while its file is finished, closed and opened.
    complete: Option<Table>,
    pub(super) outputs: Vec<Arc<Table>>,
    stage: Stage,
}

/// The kind of a job.
#[derive(Debug)]
pub(super) enum JobKind {
    /// Memtables become a table of level 0; the newest first.
    Flush(Vec<Arc<Memtable>>),
    /// Tables are merged into the next level.
    Compaction(Compaction),
    /// A table is moved to the next level unchanged.
    Move(Compaction),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Merging,
    /// The CPU merges entries that are already counted, until a time.
    Computing(Stop),
    Reading {
        run: usize,
        bytes: u32,
    },
    Appending,
    /// The rest of the output is appended to its file.
    Finishing(Stop),
    Closing(Stop),
    /// Filter and index are read, as when a reader opens the table.
    Opening(Stop),
    /// All outputs are complete; the edit waits for the manifest.
    Recording,
}

impl Job {
    /// A job that merges.
    pub(super) fn new(index: u32, kind: JobKind, merge: Merge, options: &TreeOptions) -> Job {
        let (output_level, output_bytes_max) = match &kind {
            JobKind::Flush(_) => (0, u64::MAX),
            JobKind::Compaction(compaction) | JobKind::Move(compaction) => {
                (compaction.output_level(), options.target_file_bytes)
            }
        };
        Job {
            index,
            kind,
            merge,
            output_level,
            output_bytes_max,
            output: TableBuilder::new(options.table),
            file: None,
            appended_bytes: 0,
            complete: None,
            outputs: Vec::new(),
            stage: Stage::Merging,
        }
    }

    /// A job that moves its only table to the next level unchanged.
    pub(super) fn of_move(index: u32, compaction: Compaction, options: &TreeOptions) -> Job {
        let outputs = compaction.upper.clone();
        let job = Job::new(index, JobKind::Move(compaction), Merge::of_nothing(), options);
        Job { outputs, stage: Stage::Recording, ..job }
    }

    /// Whether only the edit is left.
    pub(super) fn is_merged(&self) -> bool {
        self.stage == Stage::Recording
    }

    /// Resumes the job after its wait, until it waits again.
    pub(super) fn resume(&mut self, now: Instant, options: &TreeOptions, out: &mut Outbox) {
        match self.stage {
            Stage::Merging | Stage::Appending => self.merge(now, options, out),
            Stage::Computing(stop) => self.after_merging(stop, options, out),
            Stage::Reading { run, bytes } => {
                self.merge.on_read(run, bytes);
                self.merge(now, options, out);
            }
            Stage::Finishing(stop) => {
                self.stage = Stage::Closing(stop);
                let file = self.complete.as_ref().expect("the output that is finished").file;
                out.push(Effect::Close { owner: Owner::Job(self.index), file });
            }
            Stage::Closing(stop) => self.open(stop, out),
            Stage::Opening(stop) => {
                self.outputs.push(Arc::new(self.complete.take().expect("the output that was opened")));
                match stop {
                    Stop::End => self.stage = Stage::Recording,
                    _ => self.merge(now, options, out),
                }
            }
            Stage::Recording => unreachable!("the store applies the edit"),
        }
    }

    fn merge(&mut self, now: Instant, options: &TreeOptions, out: &mut Outbox) {
        let closed_bytes = self.appended_bytes + options.write_unit_bytes;
        let (taken, stop) = self.merge.advance(&mut self.output, closed_bytes, self.output_bytes_max);
        out.counters.entries_merged += taken;
        if taken == 0 || options.merge_cpu == Duration::ZERO {
            return self.after_merging(stop, options, out);
        }
        self.stage = Stage::Computing(stop);
        out.push(Effect::Wake { at: now + options.merge_cpu * taken, waker: Waker::Job(self.index) });
    }

    fn after_merging(&mut self, stop: Stop, options: &TreeOptions, out: &mut Outbox) {
        match stop {
            Stop::Starved(run) => {
                let NextRead { file, offset_bytes, bytes } = self.merge.next_read(run, options.readahead_bytes);
                self.stage = Stage::Reading { run, bytes };
                out.counters.compaction_read_bytes += u64::from(bytes);
                out.push(Effect::Read { owner: Owner::Job(self.index), file, offset_bytes, bytes });
            }
            Stop::Output => {
                self.stage = Stage::Appending;
                self.append(options.write_unit_bytes, options, out);
            }
            Stop::End if self.output.data_bytes() == 0 => self.stage = Stage::Recording,
            Stop::OutputFull | Stop::End => self.finish_output(stop, options, out),
        }
    }

    /// Appends the rest of the output to its file, with filter and index.
    fn finish_output(&mut self, stop: Stop, options: &TreeOptions, out: &mut Outbox) {
        self.stage = Stage::Finishing(stop);
        let output = std::mem::replace(&mut self.output, TableBuilder::new(options.table));
        let file = self.file_of_output(options, out);
        let table = output.finish(file);
        self.append(table.file_bytes - self.appended_bytes, options, out);
        self.complete = Some(table);
        self.file = None;
        self.appended_bytes = 0;
    }

    fn append(&mut self, bytes: u64, options: &TreeOptions, out: &mut Outbox) {
        let file = self.file_of_output(options, out);
        self.appended_bytes += bytes;
        match self.kind {
            JobKind::Flush(_) => out.counters.flush_bytes += bytes,
            JobKind::Compaction(_) | JobKind::Move(_) => out.counters.compaction_write_bytes += bytes,
        }
        out.push(Effect::Append { owner: Owner::Job(self.index), file, bytes });
    }

    fn file_of_output(&mut self, options: &TreeOptions, out: &mut Outbox) -> FileNumber {
        let lifetime = options.level_lifetimes[self.output_level];
        *self.file.get_or_insert_with(|| out.create(FileKind::Table, lifetime))
    }

    /// Reads filter and index, behind the data blocks.
    fn open(&mut self, stop: Stop, out: &mut Outbox) {
        self.stage = Stage::Opening(stop);
        let table = self.complete.as_ref().expect("the output that was closed");
        let bytes = u32::try_from(table.file_bytes - table.data_bytes).expect("files are below 4 GiB");
        out.counters.table_open_bytes += u64::from(bytes);
        let owner = Owner::Job(self.index);
        out.push(Effect::Read { owner, file: table.file, offset_bytes: table.data_bytes, bytes });
    }
}
