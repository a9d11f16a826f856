//! Flush: data and tags are synced; then the journal records, without a sync, up to where each zone
//! is on the media.

use zonda_zoned::{CommandId, Outcome, Status, ZoneIndex};

use crate::bugs::SeededBug;
use crate::format::record::{FlushedPointer, Kind, POINTER_BYTES};
use crate::{FileOperation, ImageFile};

use super::Image;
use super::flush::Joined;
use super::journal::OwnRecord;
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

/// Pointers in one flush record.
const POINTERS_MAX: usize = 56;

impl Image {
    pub(super) fn take_flush(&mut self, id: CommandId) {
        if self.flush.is_broken() {
            self.commands.refuse(id, Status::WriteFault);
            return;
        }
        let command = self.commands.begin(id, Outcome::None);
        match self.flush.join(command) {
            Joined::Note => self.end_flushes_when_noted(vec![command]),
            Joined::Round => self.begin_waiting_flushes(),
        }
    }

    /// Begins a round if commands wait for one, unless a checkpoint will begin one.
    pub(super) fn begin_waiting_flushes(&mut self) {
        if self.flush.has_waiting() && !self.flush.is_running() && self.checkpointing.is_idle() {
            self.begin_round();
        }
    }

    pub(super) fn begin_round(&mut self) {
        self.note_pointers();
        self.carry_intents();
        self.flush.begin(self.commands.read_blocks());
        self.operations.issue(Purpose::Flush, FileOperation::Sync { file: ImageFile::Data });
        let file = if self.bug.has(SeededBug::HalfFlush) { ImageFile::Data } else { ImageFile::Tags };
        self.operations.issue(Purpose::Flush, FileOperation::Sync { file });
    }

    /// Notes up to where each zone is acknowledged, and so will be on the media.
    fn note_pointers(&mut self) {
        for zone in self.flush.take_dirty_zones() {
            let persisted = self.persisted_by_flush(zone);
            let run = &self.zones[zone.as_usize()];
            let entry = &self.ledger.entries[zone.as_usize()];
            if persisted > entry.persisted {
                self.flush.persist(zone, persisted);
            }
            if self.layout.is_conventional(zone) {
                continue;
            }
            let pointer = if run.generation == entry.generation && !entry.had_zrwa {
                run.on_file
            } else if run.generation == entry.generation && !self.parts.has_any(zone) {
                self.table.zone(zone).write_pointer_blocks.0
            } else {
                // In a ZRWA writes in flight may be before the write pointer, and a reset may yet
                // fail.
                self.flush.check_again(zone);
                continue;
            };
            if pointer > entry.durable {
                self.flush.note_pointer(FlushedPointer { zone, generation: entry.generation, pointer });
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
        // Writes behind management fail with it.
        let manages = self.parts.of_zone(zone).filter_map(|part| match &part.work {
            Work::Manage(manage) if manage.kind.is_some() => Some(manage.written),
            _ => None,
        });
        let written = manages.fold(written, u64::min);
        // Overwrites that have not begun will record an intent, or their contents, when they do.
        let has_begun = |part: &&Part| !matches!(part.stage, Stage::Waiting | Stage::Held);
        let overwrites = self.parts.of_zone(zone).filter(|part| matches!(part.work, Work::Overwrite { .. }));
        let first = overwrites.filter(has_begun).map(|part| part.first).min();
        first.map_or(written, |first| written.min(first))
    }

    pub(super) fn on_flush_file(&mut self, done: bool) {
        let Some(succeeded) = self.flush.on_sync(done) else { return };
        if succeeded {
            self.record_persisted();
            self.record_flush();
        } else {
            self.flush.fail();
        }
        let commands = self.flush.take_commands();
        if succeeded {
            self.end_flushes_when_noted(commands);
        } else {
            commands.into_iter().for_each(|command| self.commands.end_part(command, Status::WriteFault));
        }
        self.on_round_ended(succeeded);
        self.begin_waiting_flushes();
    }

    fn record_persisted(&mut self) {
        for (zone, end) in self.flush.take_persisted() {
            let generation = self.zones[zone.as_usize()].generation;
            self.push_note(OwnRecord { a: end, ..OwnRecord::of_zone(Kind::Persisted, zone, generation) });
        }
    }

    fn record_flush(&mut self) {
        let pointers = self.flush.take_pointers();
        let mut chunks = pointers.chunks(POINTERS_MAX).peekable();
        while let Some(chunk) = chunks.next() {
            if chunks.peek().is_some() {
                let head = encode_pointers(chunk);
                self.push_note(OwnRecord { c: u64::MAX, head, ..OwnRecord::new(Kind::Flush) });
            } else {
                self.record_round(chunk);
            }
        }
        if pointers.is_empty() {
            self.record_round(&[]);
        }
    }

    /// Writes the last record of a round: the counters, and which intents have ended.
    fn record_round(&mut self, pointers: &[FlushedPointer]) {
        let counts = self.flush.take_counts();
        let mut record = OwnRecord::new(Kind::Flush);
        (record.a, record.b) = (counts.overwritten, counts.read);
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
