//! Intents: records for blocks that are being written in place, so that a recovery accepts only old
//! or new contents.
//!
//! The first overwrite of a block since the last flush records the block's tag before and after.
//! Once it has succeeded, another overwrite would have to record its own tag. Instead the second
//! one records that any contents are accepted, and later ones record nothing until the next flush.
//! Zeros need no tags. A flush ends the intents that were recorded before it began, except for
//! blocks being written then: it repeats their intents.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::bugs::SeededBug;
use crate::format::record::{Kind, OVERWRITE_ANYTHING, OVERWRITE_TAGS, OVERWRITE_ZEROS};
use crate::format::tag::{ANYTHING, LOST_BYTE, TAG_BYTES};
use crate::ranges::RangeSet;
use crate::{FileOperation, ImageFile};

use super::journal::OwnRecord;
use super::part::{NONE, Part, Stage, Work};
use super::{Image, Role};

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
}

/// The intents in the journal, by LBA.
#[derive(Debug, Default)]
pub(super) struct Intents {
    /// Blocks of which, since the last flush began, a synced intent accepts any contents.
    open: RangeSet,
    /// Blocks that were written since, successfully, under an intent with tags.
    written: RangeSet,
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
        for set in [&mut self.open, &mut self.written] {
            set.remove(blocks.clone());
        }
    }
}

impl Intent {
    /// An intent that accepts any contents of these blocks.
    fn anything(blocks: Range<u64>) -> Intent {
        let mut open = RangeSet::default();
        open.insert(blocks.clone());
        Intent { blocks, way: OVERWRITE_ANYTHING, tags: Bytes::new(), open }
    }

    fn record(&self) -> OwnRecord {
        let mut record = OwnRecord::new(Kind::Overwrite, 0, 0);
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
    pub(super) fn start_in_place(&mut self, index: u32) {
        let blocks = self.named_by_intent(index);
        if self.intents.open.covers(&blocks) || self.has(SeededBug::MissingIntent) {
            self.write_data_and_tags(index);
            return;
        }
        let Work::Overwrite { data, .. } = &self.parts[index].work else { unreachable!("an overwrite") };
        if data.is_none() {
            let (tags, open) = (Bytes::new(), RangeSet::default());
            self.record_intent(index, Intent { blocks, way: OVERWRITE_ZEROS, tags, open });
        } else if self.intents.written.covers(&blocks) {
            if self.has(SeededBug::UnrecordedRepeat) {
                self.write_data_and_tags(index);
                return;
            }
            self.record_intent(index, Intent::anything(blocks));
        } else {
            self.read_tags_before(index, &blocks);
        }
    }

    /// The blocks of an overwrite, by LBA, that a recovery would verify against their tags without
    /// an intent.
    pub(super) fn named_by_intent(&self, index: u32) -> Range<u64> {
        let Part { zone, first, end, .. } = self.parts[index];
        let end = if zone < self.layout.conventional {
            end
        } else {
            let persisted = self.ledger.entries[zone as usize].persisted.max(self.zones[zone as usize].persisting);
            end.min(persisted).max(first)
        };
        self.lba(zone, first)..self.lba(zone, end)
    }

    fn read_tags_before(&mut self, index: u32, blocks: &Range<u64>) {
        let length = ((blocks.end - blocks.start) * self.layout.tag_bytes) as usize;
        let part = &mut self.parts[index];
        let Work::Overwrite { found, .. } = &mut part.work else { unreachable!("an overwrite") };
        *found = Some(Box::default());
        part.stage = Stage::Before;
        part.out = 1;
        let offset = self.layout.tag_offset(part.zone, part.first);
        self.emit(Role::Tags, index, FileOperation::Read { file: ImageFile::Tags, offset, length });
    }

    /// Called when the previous tags were read. If that fails, the new tags cannot be written
    /// either: the write fails.
    pub(super) fn on_tags_before(&mut self, index: u32) {
        // Fewer than before, if the flush that was to persist them has failed.
        let blocks = self.named_by_intent(index);
        let part = &mut self.parts[index];
        let Work::Overwrite { tags: after, found, .. } = &mut part.work else { unreachable!("an overwrite") };
        let after = after.clone();
        let Some(before) = found.take().and_then(|found| found.1) else {
            self.fail_overwrite(index);
            return;
        };
        if blocks.is_empty() {
            self.write_data_and_tags(index);
            return;
        }
        let mut tags = BytesMut::with_capacity((blocks.end - blocks.start) as usize * 2 * TAG_BYTES);
        let mut open = RangeSet::default();
        for (i, lba) in blocks.clone().enumerate() {
            if self.intents.written.covers(&(lba..lba + 1)) {
                open.insert(lba..lba + 1);
                tags.put_slice(&ANYTHING);
                continue;
            }
            let place = i * TAG_BYTES..(i + 1) * TAG_BYTES;
            if self.has(SeededBug::ForgottenBefore) {
                tags.put_bytes(LOST_BYTE, TAG_BYTES);
            } else {
                tags.put_slice(&before[place.clone()]);
            }
            tags.put_slice(&after[place]);
        }
        self.record_intent(index, Intent { blocks, way: OVERWRITE_TAGS, tags: tags.freeze(), open });
    }

    fn record_intent(&mut self, index: u32, new: Intent) {
        let record = new.record();
        let part = &mut self.parts[index];
        let Work::Overwrite { intent, .. } = &mut part.work else { unreachable!("an overwrite") };
        *intent = Some(Box::new(new));
        part.stage = Stage::Journal;
        self.intents.is_any_left = true;
        self.push_record(record, index);
    }

    /// Called when the intent of an overwrite is synced.
    pub(super) fn on_intent_recorded(&mut self, index: u32) {
        let Work::Overwrite { intent, .. } = &self.parts[index].work else { unreachable!("an overwrite") };
        let intent = intent.as_ref().expect("it was recorded");
        self.intents.open.union(&intent.open);
    }

    /// Notes a successful overwrite in place: the next one of these blocks must be distinguished
    /// from it.
    pub(super) fn note_written_in_place(&mut self, index: u32) {
        let Work::Overwrite { intent, .. } = &self.parts[index].work else { unreachable!("an overwrite") };
        if let Some(intent) = intent {
            self.intents.written.insert(intent.blocks.clone());
        }
    }

    /// A flush begins: intents of writes in progress survive it, and later writes record their own.
    pub(super) fn carry_intents(&mut self) {
        if self.layout.logs_contents {
            return;
        }
        let mut carried = Vec::new();
        let mut in_progress = RangeSet::default();
        for (index, part) in self.parts.iter() {
            let Work::Overwrite { intent, .. } = &part.work else { continue };
            if !matches!(part.stage, Stage::Waiting | Stage::Held) {
                in_progress.insert(self.named_by_intent(index));
                carried.extend(intent.as_deref().cloned());
            }
        }
        let intents = &mut self.intents;
        carried.extend(intents.open.intersection(&in_progress).iter().map(Intent::anything));
        intents.carried = carried;
        (intents.open, intents.written) = Default::default();
        intents.records_before = self.journal.added_records();
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
        records.into_iter().for_each(|record| self.push_record(record, NONE));
        let left = self.journal.added_records() - self.intents.records_before;
        self.intents.is_any_left = left > 0;
        Some(left)
    }

    /// The tag for a block after its write has failed, if its data do not match the tag on file.
    /// Its data are those before, or unknown; `None` leaves the tag as it is.
    pub(super) fn tag_after_failure(&self, index: u32, i: u64, found: &[u8], block: &[u8]) -> Option<Bytes> {
        let part = &self.parts[index];
        let Work::Overwrite { intent, .. } = &part.work else { unreachable!("an overwrite") };
        let place = self.lba(part.zone, part.first + i);
        let accept = || {
            let mut tag = BytesMut::from(found);
            self.codec.accept(&mut tag, place, part.generation, block);
            tag.freeze()
        };
        if !self.named_by_intent(index).contains(&place) || self.intents.open.covers(&(place..place + 1)) {
            return Some(accept());
        }
        let before = intent.as_ref().and_then(|intent| intent.before(place))?;
        let fits = self.codec.fits(before, place, part.generation, block);
        fits.then(|| Bytes::copy_from_slice(before))
    }
}
