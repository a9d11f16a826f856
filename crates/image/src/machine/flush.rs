//! Flush: data and tags are synced; then the journal records, without a sync, up to where each zone
//! is on the media.

use zonda_zoned::{CommandId, Key, Outcome, Status, ZoneIndex};

use crate::bugs::SeededBug;
use crate::format::record::{FlushedPointer, Kind, POINTER_BYTES};
use crate::{FileOperation, ImageFile};

use super::Image;
use super::commands::CommandRun;
use super::journal::OwnRecord;
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

/// Pointers in one flush record.
const POINTERS_MAX: usize = 56;

/// Flushes run in rounds: commands that arrive during a round wait for the next one.
#[derive(Debug, Default)]
pub(super) struct FlushRound {
    /// Commands for the next round, and those of the current one.
    waiting: Vec<Key<CommandRun>>,
    current: Vec<Key<CommandRun>>,
    running: bool,
    out: u8,
    failed: bool,
    /// A command was acknowledged since the last round began.
    dirty: bool,
    pub(super) dirty_zones: Vec<ZoneIndex>,
    pointers: Vec<FlushedPointer>,
    /// Zones with a ZRWA in which this round persists blocks.
    persisting_zones: Vec<ZoneIndex>,
    /// Blocks written in conventional zones and ZRWAs that no record has counted; of these, the
    /// ones that this round counts.
    pub(super) overwritten_blocks: u64,
    overwritten_counted: u64,
    /// Blocks read that a record has counted; the count at the start of this round.
    read_noted: u64,
    read_counted: u64,
    /// A sync has failed: earlier writes may be lost, and no later sync can guarantee them.
    broken: bool,
}

impl FlushRound {
    /// Whether a command was acknowledged that the last round does not cover.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn media_is_dirty(&mut self) {
        self.dirty = true;
    }

    pub(super) fn sync_failed(&mut self) {
        self.broken = true;
    }

    /// Whether a sync has failed, so that later ones guarantee nothing.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// Sets the number of counted reads to at most `blocks`.
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
            self.commands.refuse(id, Status::WriteFault);
            return;
        }
        let command = self.commands.begin(id, Outcome::None);
        if !self.flush.dirty && !self.flush.running {
            // The note of the last one may be in flight.
            self.end_flushes_when_noted(vec![command]);
            return;
        }
        // The current round covers everything that was acknowledged.
        if !self.flush.dirty {
            self.flush.current.push(command);
            return;
        }
        self.flush.waiting.push(command);
        self.begin_waiting_flushes();
    }

    /// Begins a round if commands wait for one, unless a checkpoint will begin one.
    pub(super) fn begin_waiting_flushes(&mut self) {
        if !self.flush.waiting.is_empty() && !self.flush.running && self.checkpointing.is_idle() {
            self.begin_round();
        }
    }

    pub(super) fn begin_round(&mut self) {
        self.note_pointers();
        self.carry_intents();
        let flush = &mut self.flush;
        flush.current.append(&mut flush.waiting);
        (flush.running, flush.failed, flush.dirty, flush.out) = (true, false, false, 2);
        flush.overwritten_counted = flush.overwritten_blocks;
        flush.read_counted = self.commands.read_blocks();
        self.operations.issue(Purpose::Flush, FileOperation::Sync { file: ImageFile::Data });
        let file = if self.bug.has(SeededBug::HalfFlush) { ImageFile::Data } else { ImageFile::Tags };
        self.operations.issue(Purpose::Flush, FileOperation::Sync { file });
    }

    /// Notes up to where each zone is acknowledged, and so will be on the media.
    fn note_pointers(&mut self) {
        self.flush.pointers.clear();
        for zone in std::mem::take(&mut self.flush.dirty_zones) {
            let persisted = self.persisted_by_flush(zone);
            let run = &mut self.zones[zone.as_usize()];
            let entry = &self.ledger.entries[zone.as_usize()];
            if persisted > entry.persisted {
                run.persisting = persisted;
                self.flush.persisting_zones.push(zone);
            }
            run.dirty = false;
            if self.layout.is_conventional(zone) {
                continue;
            }
            let pointer = if run.generation == entry.generation && !entry.had_zrwa {
                run.on_file
            } else if run.generation == entry.generation && !self.parts.has_any(zone) {
                self.table.zone(zone).write_pointer_blocks.0
            } else {
                // In a ZRWA writes in flight may be before the write pointer, and a reset may yet
                // fail: the next round checks again.
                run.dirty = true;
                self.flush.dirty_zones.push(zone);
                continue;
            };
            if pointer > entry.durable {
                self.flush.pointers.push(FlushedPointer { zone, generation: entry.generation, pointer });
            }
        }
    }

    /// Up to where a ZRWA is acknowledged, and so will be on the media. 0: nothing to persist.
    fn persisted_by_flush(&self, zone: ZoneIndex) -> u64 {
        let (run, entry) = (&self.zones[zone.as_usize()], &self.ledger.entries[zone.as_usize()]);
        if !entry.has_zrwa || run.generation != entry.generation {
            return 0;
        }
        let written = self.table.zone(zone).written_blocks.0;
        // Overwrites that have not begun will record an intent, or their contents, when they do.
        let has_begun = |part: &&Part| !matches!(part.stage, Stage::Waiting | Stage::Held);
        let overwrites = self.parts.of_zone(zone).filter(|part| matches!(part.work, Work::Overwrite { .. }));
        let first = overwrites.filter(has_begun).map(|part| part.first).min();
        first.map_or(written, |first| written.min(first))
    }

    pub(super) fn on_flush_file(&mut self, done: bool) {
        self.flush.failed |= !done;
        self.flush.broken |= !done && !self.bug.has(SeededBug::ForgottenFailure);
        self.flush.out -= 1;
        if self.flush.out > 0 {
            return;
        }
        self.flush.running = false;
        let failed = self.flush.broken || self.flush.failed;
        let persisting = std::mem::take(&mut self.flush.persisting_zones);
        if failed {
            for &zone in &persisting {
                self.zones[zone.as_usize()].persisting = 0;
                self.note_dirty(zone);
            }
            let zones: Vec<ZoneIndex> = self.flush.pointers.drain(..).map(|pointer| pointer.zone).collect();
            zones.into_iter().for_each(|zone| self.note_dirty(zone));
        } else {
            self.record_persisted(persisting);
            self.record_flush();
        }
        let commands = std::mem::take(&mut self.flush.current);
        if failed {
            commands.into_iter().for_each(|command| self.commands.end_part(command, Status::WriteFault));
        } else {
            self.end_flushes_when_noted(commands);
        }
        self.on_round_ended(!failed);
        self.begin_waiting_flushes();
    }

    fn record_persisted(&mut self, zones: Vec<ZoneIndex>) {
        for zone in zones {
            let run = &mut self.zones[zone.as_usize()];
            let mut record = OwnRecord::of_zone(Kind::Persisted, zone, run.generation);
            record.a = std::mem::take(&mut run.persisting);
            self.push_note(record);
        }
    }

    fn record_flush(&mut self) {
        let pointers = std::mem::take(&mut self.flush.pointers);
        let mut chunks = pointers.chunks(POINTERS_MAX).peekable();
        while let Some(chunk) = chunks.next() {
            if chunks.peek().is_some() {
                let mut record = OwnRecord::new(Kind::Flush);
                record.c = u64::MAX;
                record.head = encode_pointers(chunk);
                self.push_note(record);
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

    /// Writes the last record of a round: the counters, and which intents have ended.
    fn record_round(&mut self, pointers: &[FlushedPointer]) {
        let flush = &mut self.flush;
        let mut record = OwnRecord::new(Kind::Flush);
        record.a = std::mem::take(&mut flush.overwritten_counted);
        flush.overwritten_blocks -= record.a;
        record.b = flush.read_counted - flush.read_noted;
        flush.read_noted = flush.read_counted;
        record.head = encode_pointers(pointers);
        let intents_left = self.end_intents(record.length());
        record.c = intents_left.unwrap_or(u64::MAX);
        if intents_left.is_some() || record.a > 0 || record.b > 0 || !pointers.is_empty() {
            self.push_note(record);
        }
    }
}

fn encode_pointers(pointers: &[FlushedPointer]) -> bytes::Bytes {
    let mut bytes = Vec::with_capacity(pointers.len() * POINTER_BYTES);
    pointers.iter().for_each(|pointer| pointer.encode(&mut bytes));
    bytes.into()
}
