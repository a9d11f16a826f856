//! Overwrites in place, their intents, and damage found by reads.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use zonda_zoned::{Key, Status};

use crate::bugs::SeededBug;
use crate::format::tag::{LOST, TAG_BYTES, Verdict, is_zero};
use crate::{FileOperation, ImageFile};

use super::Image;
use super::intents::{Intent, Need, Pairs, tag_at};
use super::journal::{OwnRecord, Waiter};
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

impl Image {
    /// Starts an overwrite in place, with its intent if it needs one.
    pub(super) fn start_in_place(&mut self, key: Key<Part>) {
        let blocks = self.named_by_intent(key);
        let Work::Overwrite { data, .. } = &self.parts[key].work else { unreachable!("an overwrite") };
        match self.intents.begin_overwrite(&blocks, data.is_some()) {
            Need::Nothing => self.write_data_and_tags(key),
            _ if self.bug.has(SeededBug::MissingIntent) => self.write_data_and_tags(key),
            Need::Zeros => self.record_intent(key, Intent::zeros(blocks)),
            Need::Anything if self.bug.has(SeededBug::UnrecordedRepeat) => self.write_data_and_tags(key),
            Need::Anything => self.record_intent(key, Intent::anything(blocks)),
            Need::Tags => self.read_tags_before(key, &blocks),
        }
    }

    /// The blocks of an overwrite, by LBA, that a recovery would verify against their tags without
    /// an intent.
    pub(super) fn named_by_intent(&self, key: Key<Part>) -> Range<u64> {
        let Part { zone, first, end, .. } = self.parts[key];
        let end = if self.layout.is_conventional(zone) {
            end
        } else {
            let persisted = self.ledger.entries[zone.as_usize()].persisted.max(self.flush.persisting(zone));
            end.min(persisted).max(first)
        };
        self.lba(zone, first)..self.lba(zone, end)
    }

    fn read_tags_before(&mut self, key: Key<Part>, blocks: &Range<u64>) {
        let length = ((blocks.end - blocks.start) * self.layout.tag_bytes) as usize;
        let part = &mut self.parts[key];
        let Work::Overwrite { found, .. } = &mut part.work else { unreachable!("an overwrite") };
        *found = Some(Box::default());
        part.stage = Stage::Before;
        part.out = 1;
        let offset = self.layout.tag_offset(part.zone, part.first);
        self.operations.issue(Purpose::Tags(key), FileOperation::Read { file: ImageFile::Tags, offset, length });
    }

    /// Called when the previous tags were read. If that fails, the new tags cannot be written
    /// either: the write fails. Where a tag stands for zeros, the data is read, too.
    pub(super) fn on_tags_before(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let Work::Overwrite { found, .. } = &mut part.work else { unreachable!("an overwrite") };
        let Some(before) = found.as_ref().and_then(|found| found.1.clone()) else {
            self.fail_overwrite(key);
            return;
        };
        let named = self.named_by_intent(key);
        let has_zeros = (named.clone().zip(before.chunks_exact(TAG_BYTES)))
            .any(|(lba, tag)| !self.intents.is_written(lba) && self.must_be_zeros(key, lba, tag));
        if !has_zeros || self.bug.has(SeededBug::TrustedUnwritten) {
            self.on_data_before(key);
            return;
        }
        let part = &mut self.parts[key];
        part.stage = Stage::DataBefore;
        part.out = 1;
        let offset = self.layout.data_offset(part.zone, part.first);
        let length = ((named.end - named.start) * self.layout.block_bytes) as usize;
        self.operations.issue(Purpose::Data(key), FileOperation::Read { file: ImageFile::Data, offset, length });
    }

    /// Whether the data of a block with this tag are zeros, if they are not damaged.
    fn must_be_zeros(&self, key: Key<Part>, lba: u64, tag: &[u8]) -> bool {
        let part = &self.parts[key];
        match self.codec.verify(tag, lba, part.generation, &[]) {
            Verdict::Unwritten => true,
            Verdict::Zeros => self.layout.zeros_are_holes(part.zone),
            Verdict::Data | Verdict::Mismatch | Verdict::Foreign => false,
        }
    }

    /// Called when everything before the overwrite that its intent needs was read. A block whose
    /// data contradict a tag that stands for zeros has no earlier contents: otherwise zeros in its
    /// place would be taken for them. Data that cannot be read contradict nothing.
    pub(super) fn on_data_before(&mut self, key: Key<Part>) {
        // Fewer than before, if the flush that was to persist them has failed.
        let blocks = self.named_by_intent(key);
        let part = &mut self.parts[key];
        // Data that cannot be read does not fail the write, which replaces it.
        (part.failed, part.lacks_space) = (false, false);
        let Work::Overwrite { tags: after, found, .. } = &mut part.work else { unreachable!("an overwrite") };
        let after = after.clone();
        let (data, before) = *found.take().expect("the tags before were read");
        let before = before.expect("the tags before were read");
        if blocks.is_empty() {
            self.write_data_and_tags(key);
            return;
        }
        let block_bytes = self.layout.block_bytes as usize;
        let holds_zeros = |i: usize| {
            let data = data.as_ref().and_then(|data| data.get(i * block_bytes..(i + 1) * block_bytes));
            data.is_none_or(is_zero)
        };
        let mut pairs = Pairs::new(blocks.clone());
        for (i, lba) in blocks.enumerate() {
            if self.intents.is_written(lba) {
                pairs.push_anything();
                continue;
            }
            let place = i * TAG_BYTES..(i + 1) * TAG_BYTES;
            let is_contradicted = !holds_zeros(i) && self.must_be_zeros(key, lba, &before[place.clone()]);
            if self.bug.has(SeededBug::ForgottenBefore) || is_contradicted {
                pairs.push_without_before(&after[place]);
            } else {
                pairs.push(&before[place.clone()], &after[place]);
            }
        }
        self.record_intent(key, pairs.into_intent());
    }

    fn record_intent(&mut self, key: Key<Part>, new: Intent) {
        let record = new.record();
        let part = &mut self.parts[key];
        let Work::Overwrite { intent, .. } = &mut part.work else { unreachable!("an overwrite") };
        *intent = Some(Box::new(new));
        part.stage = Stage::Journal;
        self.intents.begin_record();
        self.push_record(record, Waiter::Part(key));
    }

    /// Called when the intent of an overwrite is synced.
    pub(super) fn on_intent_recorded(&mut self, key: Key<Part>) {
        let Work::Overwrite { intent, .. } = &self.parts[key].work else { unreachable!("an overwrite") };
        let intent = intent.as_ref().expect("it was recorded");
        self.intents.end_record(intent);
    }

    /// Notes a successful overwrite in place: the next one of these blocks must be distinguished
    /// from it.
    pub(super) fn note_written_in_place(&mut self, key: Key<Part>) {
        let part = &self.parts[key];
        let Work::Overwrite { intent, data, tags, .. } = &part.work else { unreachable!("an overwrite") };
        let blocks = match intent {
            Some(intent) if intent.is_carried_with_tags() => return,
            Some(intent) => intent.blocks(),
            None => self.named_by_intent(key),
        };
        if blocks.is_empty() || (intent.is_none() && !self.intents.accept_anything(&blocks)) {
            return;
        }
        let (is_data, tags, first) = (data.is_some(), tags.clone(), self.lba(part.zone, part.first));
        if is_data {
            blocks.for_each(|lba| self.intents.note_data(lba, tag_at(&tags, lba - first)));
        } else {
            self.intents.note_zeros(blocks);
        }
    }

    /// Notes the tags on file after a failed overwrite.
    pub(super) fn note_repaired_in_place(&mut self, key: Key<Part>, tags: &[u8]) {
        if self.layout.logs_contents {
            return;
        }
        let part = &self.parts[key];
        let Work::Overwrite { data: Some(_), .. } = &part.work else { return };
        let first = self.lba(part.zone, part.first);
        for lba in self.named_by_intent(key) {
            if self.intents.is_written(lba) {
                self.intents.note_data(lba, tag_at(tags, lba - first));
            }
        }
    }

    /// A flush begins: intents of writes in progress survive it, and later writes record their own.
    pub(super) fn carry_intents(&mut self) {
        if self.layout.logs_contents {
            return;
        }
        let in_progress: Vec<Key<Part>> = self.parts.iter().map(|(key, _)| key).collect();
        let mut carried = Vec::new();
        for key in in_progress {
            let Some(intent) = self.intent_to_carry(key) else { continue };
            carried.push(intent.clone());
            let Work::Overwrite { intent: own, .. } = &mut self.parts[key].work else { unreachable!("an overwrite") };
            *own = Some(Box::new(intent));
        }
        self.intents.begin_flush(carried, self.journal.added_records());
    }

    /// The intent of a write in progress after a flush that covers all earlier writes: its tags
    /// before and after. `None` if it has none, or has yet to record it.
    fn intent_to_carry(&self, key: Key<Part>) -> Option<Intent> {
        let part = &self.parts[key];
        let Work::Overwrite { intent, data, tags: after, .. } = &part.work else { return None };
        if matches!(part.stage, Stage::Waiting | Stage::Held | Stage::Before | Stage::DataBefore) {
            return None;
        }
        let own = intent.as_deref();
        let blocks = own.map_or_else(|| self.named_by_intent(key), Intent::blocks);
        let zeros = |lba| tag_at(&self.codec.of_zeros(lba, part.generation, 1), 0);
        self.intents.to_carry(own, blocks, data.as_ref().map(|_| &after[..]), zeros)
    }

    /// A read has found damage. If an intent in the journal would accept it, it is recorded, and
    /// then the read ends. Returns whether it does.
    pub(super) fn keep_damage(&mut self, key: Key<Part>, data: &Bytes, tags: &Bytes) -> bool {
        let Part { zone, first, end, generation, .. } = self.parts[key];
        let (block_bytes, tag_bytes) = (self.layout.block_bytes as usize, self.codec.tag_bytes());
        let blocks = (end - first) as usize;
        if self.layout.logs_contents
            || !self.intents.are_any_left()
            || self.bug.has(SeededBug::ForgottenDamage)
            || data.len() != blocks * block_bytes
            || tags.len() != blocks * tag_bytes
        {
            return false;
        }
        let from = self.lba(zone, first);
        let is_damaged = |lba: &u64| {
            let at = (lba - from) as usize;
            let (tag, data) = (&tags[at * tag_bytes..][..tag_bytes], &data[at * block_bytes..][..block_bytes]);
            self.codec.verify(tag, *lba, generation, data) == Verdict::Mismatch
        };
        let damaged: Vec<u64> = (from..from + blocks as u64).filter(is_damaged).collect();
        let (Some(&start), Some(&last)) = (damaged.first(), damaged.last()) else { return false };
        if self.intents.have_damage(&damaged) {
            return false;
        }
        let Work::Read { damage, .. } = &mut self.parts[key].work else { unreachable!("a read") };
        let Some(recorded) = damage else {
            // It starts again once the journal has space for it.
            *damage = Some(Box::default());
            self.start_part(key);
            return true;
        };
        damaged.iter().for_each(|&lba| recorded.insert(lba..lba + 1));
        let mut pairs = Pairs::new(start..last + 1);
        for lba in start..=last {
            let tag = tag_at(tags, lba - from);
            pairs.push(&tag, if damaged.binary_search(&lba).is_ok() { &LOST } else { &tag });
        }
        self.intents.begin_damage(&damaged);
        self.parts[key].stage = Stage::Journal;
        self.push_record(pairs.into_intent().record(), Waiter::Part(key));
        true
    }

    /// Called when the damage that a read has found is recorded, or cannot be.
    pub(super) fn on_damage_recorded(&mut self, key: Key<Part>, recorded: bool) {
        let Work::Read { damage: Some(damage), .. } = &self.parts[key].work else { unreachable!("it found damage") };
        if recorded {
            self.intents.end_damage(damage);
        }
        self.end_read_part(key, Status::UnrecoveredReadError);
    }

    /// A flush has succeeded: intents from before it end, and those of writes in progress are
    /// repeated. Returns how many of the records before that of the flush have intents that remain;
    /// `None`: all.
    pub(super) fn end_intents(&mut self, flush_record_bytes: u64) -> Option<u64> {
        let records: Vec<OwnRecord> = self.intents.take_carried()?.iter().map(Intent::record).collect();
        let bytes = flush_record_bytes + records.iter().map(OwnRecord::length).sum::<u64>();
        // A recovery finds the record of the flush only if it finds these, too.
        if !self.journal_admits(bytes) {
            return None;
        }
        records.into_iter().for_each(|record| self.push_note(record));
        Some(self.intents.end_flush(self.journal.added_records()))
    }

    /// The tag for a block after its write has failed, if its data do not match the tag on file.
    /// Its data are those before, or unknown; `None` leaves the tag as it is.
    pub(super) fn tag_after_failure(&self, key: Key<Part>, i: u64, found: &[u8], block: &[u8]) -> Option<Bytes> {
        let part = &self.parts[key];
        let Work::Overwrite { intent, .. } = &part.work else { unreachable!("an overwrite") };
        let place = self.lba(part.zone, part.first + i);
        let accept = || {
            let mut tag = BytesMut::from(found);
            self.codec.accept(&mut tag, place, part.generation, block);
            tag.freeze()
        };
        let itself = place..place + 1;
        let is_open =
            self.intents.accept_anything(&itself) || intent.as_ref().is_some_and(|own| own.open().covers(&itself));
        if !self.named_by_intent(key).contains(&place) || is_open {
            return Some(accept());
        }
        let before = intent.as_ref().and_then(|intent| intent.before(place))?;
        let fits = self.codec.fits(before, place, part.generation, block);
        fits.then(|| Bytes::copy_from_slice(before))
    }
}
