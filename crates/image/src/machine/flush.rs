//! Flush: data and tags are synced; then the journal notes, without a sync, up to where each zone is on the media.

use std::collections::BTreeSet;

use zonda_zoned::{CommandId, Outcome, Status, ZoneIndex};

use crate::format::record::{FlushedPointer, Kind, POINTER_BYTES};
use crate::{FileOperation, ImageFile};

use super::journal::OwnRecord;
use super::part::{NOBODY, Stage, Work};
use super::{Image, Role};

/// Pointers in one flush record.
const POINTERS_MAX: usize = 56;
/// Intents that a flush record takes over. With more, all stay until a flush finds fewer.
const INTENTS_MAX: usize = 16;

/// Flushes go in rounds: what comes while one is under way waits for the next.
#[derive(Debug, Default)]
pub(super) struct FlushRound {
    /// Commands for the next round, and those of the one under way.
    waiting: Vec<u32>,
    current: Vec<u32>,
    running: bool,
    out: u8,
    failed: bool,
    /// Something was acknowledged since the last round began.
    dirty: bool,
    pub(super) dirty_zones: Vec<u32>,
    pointers: Vec<FlushedPointer>,
    /// Blocks written in conventional zones and ZRWAs that no record has counted; those of them that the round counts.
    pub(super) overwritten_blocks: u64,
    overwritten_counted: u64,
    /// Blocks read that a record has counted; what the round counts up to.
    read_noted: u64,
    read_counted: u64,
    /// A sync has failed: what was written before it may be gone, and no later sync can promise it.
    broken: bool,
}

impl FlushRound {
    /// Whether something was acknowledged that the last round does not cover.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn media_is_dirty(&mut self) {
        self.dirty = true;
    }

    pub(super) fn sync_failed(&mut self) {
        self.broken = true;
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// No more blocks than these were read.
    pub(super) fn forget_reads_from(&mut self, blocks: u64) {
        (self.read_noted, self.read_counted) = (self.read_noted.min(blocks), self.read_counted.min(blocks));
    }

    pub(super) fn note_reads_up_to(&mut self, blocks: u64) {
        (self.read_noted, self.read_counted) = (blocks, blocks);
    }
}

impl Image {
    pub(super) fn take_flush(&mut self, id: CommandId) {
        if self.flush.broken {
            self.complete(id, Status::WriteFault);
            return;
        }
        if !self.flush.dirty && !self.flush.running {
            self.complete(id, Status::Success);
            return;
        }
        let command = self.begin_command(id, Outcome::None);
        // All that was acknowledged is in the round under way already.
        if !self.flush.dirty {
            self.flush.current.push(command);
            return;
        }
        self.flush.waiting.push(command);
        self.begin_waiting_flushes();
    }

    /// Begins a round if commands wait for one, unless a checkpoint is about to.
    pub(super) fn begin_waiting_flushes(&mut self) {
        if !self.flush.waiting.is_empty() && !self.flush.running && self.checkpointing.is_resting() {
            self.begin_round();
        }
    }

    pub(super) fn begin_round(&mut self) {
        self.note_pointers();
        self.note_touched_regions();
        let flush = &mut self.flush;
        flush.current.append(&mut flush.waiting);
        (flush.running, flush.failed, flush.dirty, flush.out) = (true, false, false, 2);
        flush.overwritten_counted = flush.overwritten_blocks;
        flush.read_counted = self.counters.host_read_blocks;
        self.emit(Role::FlushData, 0, FileOperation::Sync { file: ImageFile::Data });
        self.emit(Role::FlushTags, 0, FileOperation::Sync { file: ImageFile::Tags });
    }

    /// Up to where everything in each zone was acknowledged, and so will be on the media.
    fn note_pointers(&mut self) {
        self.flush.pointers.clear();
        for zone in std::mem::take(&mut self.flush.dirty_zones) {
            let run = &mut self.zones[zone as usize];
            let entry = &self.ledger.entries[zone as usize];
            run.dirty = false;
            if zone < self.layout.conventional {
                continue;
            }
            let pointer = if run.generation == entry.generation && !entry.had_zrwa {
                run.on_file
            } else if run.generation == entry.generation && run.parts.is_empty() {
                self.table.zone(ZoneIndex(zone)).write_pointer_blocks.0
            } else {
                // In a ZRWA blocks under way may lie before the write pointer, and a reset may yet fail: the next round
                // looks again.
                run.dirty = true;
                self.flush.dirty_zones.push(zone);
                continue;
            };
            if pointer > entry.durable {
                self.flush.pointers.push(FlushedPointer { zone, generation: entry.generation, pointer });
            }
        }
    }

    /// Intents of regions that are being written in do not end with this round.
    fn note_touched_regions(&mut self) {
        if self.layout.conventional == 0 || self.layout.logs_contents {
            return;
        }
        self.intents.touched = self.regions_of_overwrites(|stage| !matches!(stage, Stage::Waiting | Stage::Held));
    }

    /// The regions of overwrites in conventional zones that are at such a stage.
    fn regions_of_overwrites(&self, is_meant: impl Fn(Stage) -> bool) -> BTreeSet<u64> {
        let meant = self.parts.iter().filter(|(_, part)| {
            matches!(part.work, Work::Overwrite { .. }) && part.zone < self.layout.conventional && is_meant(part.stage)
        });
        meant.flat_map(|(index, _)| self.regions(index)).collect()
    }

    pub(super) fn on_flush_file(&mut self, done: bool) {
        self.flush.failed |= !done;
        self.flush.out -= 1;
        if self.flush.out > 0 {
            return;
        }
        self.flush.running = false;
        self.flush.broken |= self.flush.failed;
        let failed = self.flush.broken;
        if failed {
            let zones: Vec<u32> = self.flush.pointers.drain(..).map(|pointer| pointer.zone).collect();
            zones.into_iter().for_each(|zone| self.note_dirty(zone));
        } else {
            self.record_flush();
        }
        let status = if failed { Status::WriteFault } else { Status::Success };
        for command in std::mem::take(&mut self.flush.current) {
            self.end_one(command, status);
        }
        self.on_round_ended(!failed);
        self.begin_waiting_flushes();
    }

    fn record_flush(&mut self) {
        let pointers = std::mem::take(&mut self.flush.pointers);
        let mut chunks = pointers.chunks(POINTERS_MAX).peekable();
        while let Some(chunk) = chunks.next() {
            if chunks.peek().is_some() {
                let mut record = OwnRecord::new(Kind::Flush, 0, 0);
                record.c = u64::MAX;
                record.head = encode_pointers(chunk);
                self.push_record(record, NOBODY);
            } else {
                self.record_round(chunk);
            }
        }
        if pointers.is_empty() {
            self.record_round(&[]);
        }
        self.flush.pointers = pointers;
        self.flush.pointers.clear();
    }

    /// The last record of a round: the counters, and which intents are over.
    fn record_round(&mut self, pointers: &[FlushedPointer]) {
        let flush = &mut self.flush;
        let mut record = OwnRecord::new(Kind::Flush, 0, 0);
        record.a = std::mem::take(&mut flush.overwritten_counted);
        flush.overwritten_blocks -= record.a;
        record.b = flush.read_counted - flush.read_noted;
        flush.read_noted = flush.read_counted;
        record.c = u64::MAX;
        record.head = encode_pointers(pointers);
        let intended = !self.intents.durable.is_empty();
        if intended && self.intents.touched.len() <= INTENTS_MAX {
            self.intents.durable = self.intents.durable.intersection(&self.intents.touched).copied().collect();
            // An intent on its way to the journal lies before this record there, and is not over either.
            let mut regions = self.regions_of_overwrites(|stage| stage == Stage::Journal);
            regions.extend(&self.intents.durable);
            record.c = regions.len() as u64;
            // Either these and the flush record are found by a recovery, or neither the flush record is.
            for region in regions {
                let mut intent = OwnRecord::new(Kind::Intent, 0, 0);
                (intent.a, intent.b) = (region, 1);
                self.push_record(intent, NOBODY);
            }
        }
        if intended || record.a > 0 || record.b > 0 || !pointers.is_empty() {
            self.push_record(record, NOBODY);
        }
    }
}

fn encode_pointers(pointers: &[FlushedPointer]) -> bytes::Bytes {
    let mut bytes = Vec::with_capacity(pointers.len() * POINTER_BYTES);
    pointers.iter().for_each(|pointer| pointer.encode(&mut bytes));
    bytes.into()
}
