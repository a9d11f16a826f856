//! Intents: records for blocks that are being written in place, so that a recovery accepts only old
//! or new contents.
//!
//! The first overwrite of a block since the last flush records the block's tag before and after.
//! Once it has succeeded, another overwrite would have to record its own tag. Instead the second
//! one records that any contents are accepted, and later ones record nothing until the next flush.
//! Zeros need no tags. A flush ends the intents that were recorded before it began, except for
//! blocks being written then: it repeats their intents, with the tags before and after, since it
//! covers the earlier overwrites.
//!
//! A read that finds damage while there are intents records it once, so that no recovery accepts
//! the damage.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use zonda_zoned::{Key, Status};

use crate::bugs::SeededBug;
use crate::format::record::{Kind, OVERWRITE_ANYTHING, OVERWRITE_TAGS, OVERWRITE_ZEROS};
use crate::format::tag::{ANYTHING, LOST, LOST_BYTE, TAG_BYTES, Verdict, is_zero};
use crate::ranges::RangeSet;
use crate::{FileOperation, ImageFile};

use super::Image;
use super::journal::{OwnRecord, Waiter};
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

/// Maximum number of intents that a flush repeats. With more, all stay until a flush finds fewer.
const INTENTS_MAX: usize = 256;

/// The intent of one write.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    /// By LBA.
    blocks: Range<u64>,
    /// One of the three forms in format/record.rs.
    way: u64,
    /// The tag of each block before and after.
    tags: Bytes,
    /// Blocks of which any contents are accepted.
    open: RangeSet,
    /// A flush that began while the write was in progress repeats it.
    is_carried: bool,
}

/// The intents in the journal, by LBA.
#[derive(Debug, Default)]
pub(super) struct Intents {
    /// Blocks of which, since the last flush began, a synced intent accepts any contents.
    open: RangeSet,
    /// Blocks that were written since, successfully, under an intent: those with data by their
    /// tags, of which there are as many as in the journal, and zeros.
    written: BTreeMap<u64, [u8; TAG_BYTES]>,
    zeroed: RangeSet,
    /// Blocks whose damage was recorded since, and which were not overwritten after that.
    damaged: RangeSet,
    /// Intents of writes in progress when the last flush began.
    carried: Vec<Intent>,
    /// Records of the journal when that flush began.
    records_before: u64,
    /// Some intents have not ended.
    is_any_left: bool,
}

impl Intents {
    /// Drops the blocks of a zone that is reset.
    pub(super) fn forget(&mut self, blocks: Range<u64>) {
        self.carried.retain(|intent| !blocks.contains(&intent.blocks.start));
        self.open.remove(blocks.clone());
        self.damaged.remove(blocks.clone());
        self.forget_written(blocks);
    }

    fn forget_written(&mut self, blocks: Range<u64>) {
        self.zeroed.remove(blocks.clone());
        let written: Vec<u64> = self.written.range(blocks).map(|(lba, _)| *lba).collect();
        for lba in written {
            self.written.remove(&lba);
        }
    }

    fn is_written(&self, lba: u64) -> bool {
        self.written.contains_key(&lba) || self.zeroed.covers(&(lba..lba + 1))
    }

    fn note_data(&mut self, lba: u64, tag: [u8; TAG_BYTES]) {
        self.zeroed.remove(lba..lba + 1);
        self.written.insert(lba, tag);
    }
}

impl Intent {
    /// An intent that accepts any contents of these blocks.
    fn anything(blocks: Range<u64>) -> Intent {
        let mut open = RangeSet::default();
        open.insert(blocks.clone());
        Intent { blocks, way: OVERWRITE_ANYTHING, tags: Bytes::new(), open, is_carried: false }
    }

    fn record(&self) -> OwnRecord {
        let mut record = OwnRecord::new(Kind::Overwrite);
        (record.a, record.b, record.c) = (self.blocks.start, self.blocks.end - self.blocks.start, self.way);
        record.head = self.tags.clone();
        record
    }

    /// The tag that a block had before; `None` if unknown.
    pub(super) fn before(&self, lba: u64) -> Option<&[u8]> {
        let at = usize::try_from(lba.checked_sub(self.blocks.start)?).ok()? * 2 * TAG_BYTES;
        self.tags.get(at..at + TAG_BYTES)
    }
}

impl Image {
    /// Starts an overwrite in place, with its intent if it needs one.
    pub(super) fn start_in_place(&mut self, key: Key<Part>) {
        let blocks = self.named_by_intent(key);
        self.intents.damaged.remove(blocks.clone());
        if self.intents.open.covers(&blocks) || self.bug.has(SeededBug::MissingIntent) {
            self.write_data_and_tags(key);
            return;
        }
        let Work::Overwrite { data, .. } = &self.parts[key].work else { unreachable!("an overwrite") };
        if data.is_none() {
            let (tags, open) = (Bytes::new(), RangeSet::default());
            self.record_intent(key, Intent { blocks, way: OVERWRITE_ZEROS, tags, open, is_carried: false });
        } else if blocks.clone().all(|lba| self.intents.is_written(lba)) {
            if self.bug.has(SeededBug::UnrecordedRepeat) {
                self.write_data_and_tags(key);
                return;
            }
            self.record_intent(key, Intent::anything(blocks));
        } else {
            self.read_tags_before(key, &blocks);
        }
    }

    /// The blocks of an overwrite, by LBA, that a recovery would verify against their tags without
    /// an intent.
    pub(super) fn named_by_intent(&self, key: Key<Part>) -> Range<u64> {
        let Part { zone, first, end, .. } = self.parts[key];
        let end = if self.layout.is_conventional(zone) {
            end
        } else {
            let persisted = self.ledger.entries[zone.as_usize()].persisted.max(self.zones[zone.as_usize()].persisting);
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
        let mut tags = BytesMut::with_capacity((blocks.end - blocks.start) as usize * 2 * TAG_BYTES);
        let mut open = RangeSet::default();
        for (i, lba) in blocks.clone().enumerate() {
            if self.intents.is_written(lba) {
                open.insert(lba..lba + 1);
                tags.put_slice(&ANYTHING);
                continue;
            }
            let place = i * TAG_BYTES..(i + 1) * TAG_BYTES;
            let is_contradicted = !holds_zeros(i) && self.must_be_zeros(key, lba, &before[place.clone()]);
            if self.bug.has(SeededBug::ForgottenBefore) || is_contradicted {
                tags.put_bytes(LOST_BYTE, TAG_BYTES);
            } else {
                tags.put_slice(&before[place.clone()]);
            }
            tags.put_slice(&after[place]);
        }
        self.record_intent(key, Intent { blocks, way: OVERWRITE_TAGS, tags: tags.freeze(), open, is_carried: false });
    }

    fn record_intent(&mut self, key: Key<Part>, new: Intent) {
        let record = new.record();
        let part = &mut self.parts[key];
        let Work::Overwrite { intent, .. } = &mut part.work else { unreachable!("an overwrite") };
        *intent = Some(Box::new(new));
        part.stage = Stage::Journal;
        self.intents.is_any_left = true;
        self.push_record(record, Waiter::Part(key));
    }

    /// Called when the intent of an overwrite is synced.
    pub(super) fn on_intent_recorded(&mut self, key: Key<Part>) {
        let Work::Overwrite { intent, .. } = &self.parts[key].work else { unreachable!("an overwrite") };
        let intent = intent.as_ref().expect("it was recorded");
        self.intents.open.union(&intent.open);
    }

    /// Notes a successful overwrite in place: the next one of these blocks must be distinguished
    /// from it. One that a flush carries is not counted, since its intent has the tags before and
    /// after, and the next overwrite is the first one since. An intent for zeros has no tags: after
    /// another overwrite, nothing would record the data before the zeros.
    pub(super) fn note_written_in_place(&mut self, key: Key<Part>) {
        let part = &self.parts[key];
        let Work::Overwrite { intent, data, tags, .. } = &part.work else { unreachable!("an overwrite") };
        let blocks = match intent {
            Some(intent) if intent.is_carried && intent.way != OVERWRITE_ZEROS => return,
            Some(intent) => intent.blocks.clone(),
            None => self.named_by_intent(key),
        };
        if blocks.is_empty() || (intent.is_none() && !self.intents.open.covers(&blocks)) {
            return;
        }
        let (is_data, tags, first) = (data.is_some(), tags.clone(), self.lba(part.zone, part.first));
        if is_data {
            blocks.for_each(|lba| self.intents.note_data(lba, tag_at(&tags, lba - first)));
        } else {
            self.intents.forget_written(blocks.clone());
            self.intents.zeroed.insert(blocks);
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
        let intents = &mut self.intents;
        intents.carried = carried;
        intents.open = RangeSet::default();
        intents.written.clear();
        intents.zeroed = RangeSet::default();
        intents.damaged = RangeSet::default();
        intents.records_before = self.journal.added_records();
    }

    /// The intent of a write in progress after a flush that covers all earlier writes: its tags
    /// before and after. `None` if it has none, or has yet to record it.
    fn intent_to_carry(&self, key: Key<Part>) -> Option<Intent> {
        let part = &self.parts[key];
        let Work::Overwrite { intent, data, tags: after, .. } = &part.work else { return None };
        if matches!(part.stage, Stage::Waiting | Stage::Held | Stage::Before | Stage::DataBefore) {
            return None;
        }
        let blocks = match intent {
            Some(intent) if intent.open.ranges_count() == 0 => {
                return Some(Intent { is_carried: true, ..(**intent).clone() });
            }
            Some(intent) => intent.blocks.clone(),
            None => self.named_by_intent(key),
        };
        if blocks.is_empty() || (intent.is_none() && !self.intents.open.covers(&blocks)) {
            return None;
        }
        let mut open = RangeSet::default();
        if data.is_none() {
            return Some(Intent { blocks, way: OVERWRITE_ZEROS, tags: Bytes::new(), open, is_carried: true });
        }
        let first = self.lba(part.zone, part.first);
        let mut tags = BytesMut::with_capacity((blocks.end - blocks.start) as usize * 2 * TAG_BYTES);
        let is_open = self.bug.has(SeededBug::CarriedAnything);
        for lba in blocks.clone() {
            let itself = lba..lba + 1;
            let own = intent.as_ref().filter(|intent| !intent.open.covers(&itself));
            let before = match own {
                Some(intent) => intent.before(lba).map(|tag| tag_at(tag, 0)),
                None if self.intents.zeroed.covers(&itself) => {
                    Some(tag_at(&self.codec.of_zeros(lba, part.generation, 1), 0))
                }
                None => self.intents.written.get(&lba).copied(),
            };
            let Some(before) = before.filter(|_| !is_open) else {
                open.insert(lba..lba + 1);
                tags.put_slice(&ANYTHING);
                continue;
            };
            tags.put_slice(&before);
            tags.put_slice(&tag_at(after, lba - first));
        }
        Some(Intent { blocks, way: OVERWRITE_TAGS, tags: tags.freeze(), open, is_carried: true })
    }

    /// A read has found damage. If an intent in the journal would accept it, it is recorded, and
    /// then the read ends. Returns whether it does.
    pub(super) fn keep_damage(&mut self, key: Key<Part>, data: &Bytes, tags: &Bytes) -> bool {
        let Part { zone, first, end, generation, .. } = self.parts[key];
        let (block_bytes, tag_bytes) = (self.layout.block_bytes as usize, self.codec.tag_bytes());
        let blocks = (end - first) as usize;
        if self.layout.logs_contents
            || !self.intents.is_any_left
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
        if damaged.iter().all(|&lba| self.intents.damaged.covers(&(lba..lba + 1))) {
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
        let mut pairs = BytesMut::with_capacity((last - start + 1) as usize * 2 * TAG_BYTES);
        for lba in start..=last {
            let tag = tag_at(tags, lba - from);
            pairs.put_slice(&tag);
            pairs.put_slice(if damaged.binary_search(&lba).is_ok() { &LOST } else { &tag });
        }
        let mut record = OwnRecord::new(Kind::Overwrite);
        (record.a, record.b, record.c) = (start, last - start + 1, OVERWRITE_TAGS);
        record.head = pairs.freeze();
        for lba in damaged {
            self.intents.open.remove(lba..lba + 1);
            self.intents.forget_written(lba..lba + 1);
        }
        self.parts[key].stage = Stage::Journal;
        self.push_record(record, Waiter::Part(key));
        true
    }

    /// Called when the damage that a read has found is recorded, or cannot be.
    pub(super) fn on_damage_recorded(&mut self, key: Key<Part>, recorded: bool) {
        let Work::Read { damage: Some(damage), .. } = &self.parts[key].work else { unreachable!("it found damage") };
        if recorded {
            self.intents.damaged.union(damage);
        }
        self.end_read_part(key, Status::UnrecoveredReadError);
    }

    /// A flush has succeeded: intents from before it end, and those of writes in progress are
    /// repeated. Returns how many of the records before that of the flush have intents that remain;
    /// `None`: all.
    pub(super) fn end_intents(&mut self, flush_record_bytes: u64) -> Option<u64> {
        if !self.intents.is_any_left {
            return None;
        }
        let records: Vec<OwnRecord> = std::mem::take(&mut self.intents.carried).iter().map(Intent::record).collect();
        let bytes = flush_record_bytes + records.iter().map(OwnRecord::length).sum::<u64>();
        // A recovery finds the record of the flush only if it finds these, too.
        if records.len() > INTENTS_MAX || !self.journal_admits(bytes) {
            return None;
        }
        records.into_iter().for_each(|record| self.push_note(record));
        let left = self.journal.added_records() - self.intents.records_before;
        self.intents.is_any_left = left > 0;
        Some(left)
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
        let is_open = self.intents.open.covers(&itself) || intent.as_ref().is_some_and(|own| own.open.covers(&itself));
        if !self.named_by_intent(key).contains(&place) || is_open {
            return Some(accept());
        }
        let before = intent.as_ref().and_then(|intent| intent.before(place))?;
        let fits = self.codec.fits(before, place, part.generation, block);
        fits.then(|| Bytes::copy_from_slice(before))
    }
}

/// The tag of the block at this place of a part.
fn tag_at(tags: &[u8], at: u64) -> [u8; TAG_BYTES] {
    let at = at as usize * TAG_BYTES;
    tags[at..at + TAG_BYTES].try_into().expect("a block has a tag of this length: blocks in place have no metadata")
}
