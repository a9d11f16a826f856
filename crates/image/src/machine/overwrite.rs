//! Writes in conventional zones and ZRWAs, in place: data and tags on file may not match after a
//! crash.
//!
//! The format determines one of two methods:
//!
//! - Blocks of at most a page without metadata: the page alone is old or new. Before the first
//!   overwrite of a block since the last flush, an intent with its tags before and after is written
//!   to the journal and synced: see `intents`. In a ZRWA only blocks that were flushed need one:
//!   the others are known to be uncertain.
//! - Otherwise contents and tags of the blocks are journaled first, and synced; a recovery rewrites
//!   them. The tags are written after the data, so that after a failed write either the old or the
//!   new tags match. Before that, space for the blocks is allocated in the files, so that a
//!   recovery needs none.

use std::ops::Range;

use bytes::BytesMut;
use zonda_zoned::{Key, Status};

use crate::bugs::SeededBug;
use crate::format::entry::add;
use crate::format::record::Kind;
use crate::format::tag::{Verdict, is_zero};
use crate::ranges::RangeSet;
use crate::{FileOperation, ImageFile};

use super::Image;
use super::journal::{OwnRecord, Waiter};
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

impl Image {
    pub(super) fn start_overwrite(&mut self, key: Key<Part>) {
        if self.layout.logs_contents && self.bug.has(SeededBug::MissingSpace) {
            self.log_contents(key);
            return;
        }
        if self.layout.logs_contents {
            self.allocate_space(key);
            return;
        }
        self.start_in_place(key);
    }

    /// Allocates space, so that journaled contents can be rewritten on a full file system.
    fn allocate_space(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let Work::Overwrite { data, .. } = &part.work else { unreachable!("an overwrite") };
        let has_data = data.is_some();
        let (zone, first, blocks) = (part.zone, part.first, part.blocks());
        part.stage = Stage::Space;
        part.out = 1 + u32::from(has_data);
        let (offset, length) = (self.layout.tag_offset(zone, first), blocks * self.layout.tag_bytes);
        self.operations.issue(Purpose::Tags(key), FileOperation::Allocate { file: ImageFile::Tags, offset, length });
        if has_data {
            let (offset, length) = (self.layout.data_offset(zone, first), blocks * self.layout.block_bytes);
            self.operations
                .issue(Purpose::Data(key), FileOperation::Allocate { file: ImageFile::Data, offset, length });
        }
    }

    fn log_contents(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let Work::Overwrite { data, tags, .. } = &part.work else { unreachable!("an overwrite") };
        let kind = if data.is_some() { Kind::Contents } else { Kind::Zeros };
        let mut record = OwnRecord::of_zone(kind, part.zone, part.generation);
        (record.a, record.b) = (part.first, part.blocks());
        if let Some(data) = data {
            (record.head, record.data) = (tags.clone(), data.clone());
        }
        part.stage = Stage::Journal;
        self.push_record(record, Waiter::Part(key));
    }

    /// Called when the journal record of an overwrite is synced, or was not written.
    pub(super) fn on_overwrite_recorded(&mut self, key: Key<Part>, recorded: bool) {
        if !recorded {
            self.fail_overwrite(key);
            return;
        }
        if !self.layout.logs_contents {
            self.on_intent_recorded(key);
        }
        self.write_data_and_tags(key);
    }

    pub(super) fn on_overwrite_files(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let Work::Overwrite { counts, found, .. } = &mut part.work else { unreachable!("an overwrite") };
        match part.stage {
            Stage::Before => self.on_tags_before(key),
            Stage::DataBefore => self.on_data_before(key),
            Stage::Space if part.failed => self.fail_overwrite(key),
            Stage::Space => self.log_contents(key),
            Stage::Data if !part.failed => self.write_tags(key),
            Stage::ZeroTags if !part.failed => self.punch_data(key),
            Stage::Data | Stage::ZeroTags | Stage::Files if part.failed => {
                *found = Some(Box::default());
                self.look_at_failed(key);
            }
            Stage::Files => {
                let (zone, counts, blocks) = (part.zone, *counts, part.end - part.first);
                if counts {
                    add(&mut self.written_blocks, blocks);
                    self.flush.count_overwritten(blocks);
                }
                self.flush.note_dirty(zone);
                self.note_written_in_place(key);
                self.end_overwrite(key, Status::Success);
            }
            Stage::RepairRead => self.repair_overwrite(key),
            _ => self.end_repaired_overwrite(key),
        }
    }

    pub(super) fn fail_overwrite(&mut self, key: Key<Part>) {
        self.end_overwrite(key, self.parts[key].failure());
    }

    fn end_overwrite(&mut self, key: Key<Part>, status: Status) {
        self.leave_journal(key);
        self.end_part(key, status);
    }

    /// Reads the blocks of a failed overwrite: their contents on file determine their tags.
    fn look_at_failed(&mut self, key: Key<Part>) {
        self.parts[key].stage = Stage::RepairRead;
        self.read_part(key);
    }

    /// Blocks that match their tags stay; those with new contents get the new tags, those with old
    /// contents the old tags. Blocks that were never written stay so, and their data become zeros
    /// again. None of this needs space on a full file system.
    fn repair_overwrite(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let Work::Overwrite { found, .. } = &mut part.work else { unreachable!("an overwrite") };
        let (data, tags) = found.as_deref_mut().map(std::mem::take).unwrap_or_default();
        let (Some(data), Some(tags)) = (data, tags) else {
            self.fail_overwrite(key);
            return;
        };
        let part = &self.parts[key];
        let Work::Overwrite { data: new, tags: new_tags, .. } = &part.work else { unreachable!("an overwrite") };
        let (block_bytes, tag_bytes) = (self.layout.block_bytes as usize, self.codec.tag_bytes());
        let lba = self.lba(part.zone, part.first);
        let mut repaired = BytesMut::from(&tags[..]);
        let (mut new_tagged, mut emptied) = (RangeSet::default(), RangeSet::default());
        // Blocks without a tag read as zeros, so a write of zeros can succeed without space for
        // tags, but in a zone with a ZRWA, whose tags show how far it is written.
        let mut are_zeros =
            part.lacks_space && new.is_none() && !self.layout.logs_contents && self.layout.is_conventional(part.zone);
        let blocks = (0..).zip(data.chunks_exact(block_bytes).zip(repaired.chunks_exact_mut(tag_bytes)));
        for (i, (block, tag)) in blocks {
            let verdict = self.codec.verify(tag, lba + i, part.generation, block);
            let is_new = match new {
                Some(new) => *block == new[i as usize * block_bytes..][..block_bytes],
                None => verdict == Verdict::Mismatch && is_zero(block),
            };
            are_zeros &= verdict == Verdict::Zeros || is_zero(block);
            match verdict {
                Verdict::Data => continue,
                // A block that contradicted its tag before stays an error.
                Verdict::Unwritten => {
                    if !is_zero(block) && (is_new || self.layout.logs_contents) {
                        emptied.insert(i..i + 1);
                    }
                    continue;
                }
                // The tag of the write of zeros was written, and its hole was not punched.
                Verdict::Zeros if new.is_none() && !self.layout.logs_contents && !is_zero(block) => {
                    emptied.insert(i..i + 1);
                    continue;
                }
                _ if is_new => tag.copy_from_slice(&new_tags[i as usize * tag_bytes..][..tag_bytes]),
                Verdict::Mismatch if !self.layout.logs_contents => {
                    let Some(other) = self.tag_after_failure(key, i, tag, block) else { continue };
                    tag.copy_from_slice(&other);
                }
                Verdict::Zeros | Verdict::Mismatch | Verdict::Foreign => continue,
            }
            new_tagged.insert(i..i + 1);
        }
        let part = &mut self.parts[key];
        part.failed &= !are_zeros;
        part.stage = if are_zeros { Stage::Files } else { Stage::RepairWrite };
        part.out = (new_tagged.ranges_count() + emptied.ranges_count()) as u32;
        let (zone, first) = (part.zone, part.first);
        if part.out == 0 && are_zeros {
            self.on_overwrite_files(key);
            return;
        }
        if part.out == 0 {
            self.end_repaired_overwrite(key);
            return;
        }
        let repaired = repaired.freeze();
        self.note_repaired_in_place(key, &repaired);
        for Range { start, end } in new_tagged.iter() {
            let offset = self.layout.tag_offset(zone, first + start);
            let pieces = vec![repaired.slice(start as usize * tag_bytes..end as usize * tag_bytes)];
            self.operations.issue(Purpose::Tags(key), FileOperation::Write { file: ImageFile::Tags, offset, pieces });
        }
        for Range { start, end } in emptied.iter() {
            let (offset, length) =
                (self.layout.data_offset(zone, first + start), (end - start) * self.layout.block_bytes);
            self.operations
                .issue(Purpose::Data(key), FileOperation::PunchHole { file: ImageFile::Data, offset, length });
        }
    }

    fn end_repaired_overwrite(&mut self, key: Key<Part>) {
        self.flush.note_dirty(self.parts[key].zone);
        self.fail_overwrite(key);
    }
}
