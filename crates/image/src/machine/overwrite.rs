//! Writes in conventional zones and ZRWAs, which go over what is there: data and tags on file may disagree after a crash.
//!
//! Two ways, by the format:
//!
//! - Blocks of at most a page without metadata: the page is old or new by itself. Before the first overwrite in a region
//!   of a conventional zone since the last flush, an intent is written to the journal and synced; in a ZRWA the record of
//!   its allocation serves for that. After a crash, blocks there that disagree with their tags are accepted as they are.
//! - Else contents and tags of the blocks go to the journal first, and are synced; a crash writes them again. The tags are
//!   written when the data are, so that of a write that fails either the old tags or the new ones fit.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use zonda_zoned::Status;

use crate::format::entry::add;
use crate::format::record::Kind;
use crate::format::tag::Verdict;
use crate::limits::REGION_BLOCKS;
use crate::{FileOperation, ImageFile};

use super::journal::OwnRecord;
use super::part::{Part, Stage, Work};
use super::{Image, Role};

/// Regions of conventional zones in which blocks may disagree with their tags.
#[derive(Debug, Default)]
pub(super) struct Intents {
    /// Their intents are in the journal, synced, and not over.
    pub(super) durable: BTreeSet<u64>,
    /// Those written in since the last flush began.
    pub(super) touched: BTreeSet<u64>,
}

impl Image {
    pub(super) fn start_overwrite(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let Work::Overwrite { data, tags, .. } = &part.work else { unreachable!("an overwrite") };
        if self.layout.logs_contents {
            let kind = if data.is_some() { Kind::Contents } else { Kind::Zeros };
            let mut record = OwnRecord::new(kind, part.zone, part.generation);
            (record.a, record.b) = (part.first, part.blocks());
            if let Some(data) = data {
                (record.head, record.data) = (tags.clone(), data.clone());
            }
            part.stage = Stage::Journal;
            self.push_record(record, index);
            return;
        }
        if part.zone < self.layout.conventional {
            let regions = self.regions(index);
            let known = regions.clone().all(|region| self.intents.durable.contains(&region));
            self.intents.touched.extend(regions.clone());
            if !known {
                let mut record = OwnRecord::new(Kind::Intent, 0, 0);
                (record.a, record.b) = (regions.start, regions.end - regions.start);
                self.parts[index].stage = Stage::Journal;
                self.push_record(record, index);
                return;
            }
        }
        self.write_data_and_tags(index);
    }

    /// The regions that a part of a conventional zone touches.
    pub(super) fn regions(&self, index: u32) -> std::ops::Range<u64> {
        let Part { zone, first, end, .. } = self.parts[index];
        let lba = self.lba(zone, 0);
        (lba + first) / REGION_BLOCKS..(lba + end).div_ceil(REGION_BLOCKS)
    }

    /// The journal record of an overwrite is synced, or was not written.
    pub(super) fn on_overwrite_recorded(&mut self, index: u32, recorded: bool) {
        if !recorded {
            self.fail_overwrite(index);
            return;
        }
        if !self.layout.logs_contents {
            let regions = self.regions(index);
            self.intents.durable.extend(regions);
        }
        self.write_data_and_tags(index);
    }

    pub(super) fn on_overwrite_files(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let Work::Overwrite { counts, found, .. } = &mut part.work else { unreachable!("an overwrite") };
        match part.stage {
            Stage::Data if !part.failed => self.write_tags(index),
            Stage::Data | Stage::Files if part.failed => {
                *found = Some(Box::default());
                self.look_at_failed(index);
            }
            Stage::Files => {
                let (zone, counts, blocks) = (part.zone, *counts, part.end - part.first);
                if counts {
                    add(&mut self.counters.host_written_blocks, blocks);
                    self.flush.overwritten_blocks += blocks;
                }
                self.note_dirty(zone);
                self.end_overwrite(index, Status::Success);
            }
            Stage::MendRead => self.mend_overwrite(index),
            _ => {
                let zone = part.zone;
                self.note_dirty(zone);
                self.fail_overwrite(index);
            }
        }
    }

    fn fail_overwrite(&mut self, index: u32) {
        self.end_overwrite(index, self.parts[index].failure());
    }

    fn end_overwrite(&mut self, index: u32, status: Status) {
        self.leave_journal(index);
        self.end_part(index, status);
    }

    /// A write over blocks failed: what is on file now decides which tags they get.
    fn look_at_failed(&mut self, index: u32) {
        self.parts[index].stage = Stage::MendRead;
        self.read_part(index);
    }

    /// Blocks that fit their tags stay; those that are the new ones get the new tags; a block of a page is what it is.
    fn mend_overwrite(&mut self, index: u32) {
        let part = &mut self.parts[index];
        let Work::Overwrite { data: new, tags: new_tags, found, .. } = &mut part.work else {
            unreachable!("an overwrite");
        };
        let (data, tags) = found.as_deref_mut().map(std::mem::take).unwrap_or_default();
        let (Some(data), Some(tags)) = (data, tags) else {
            self.fail_overwrite(index);
            return;
        };
        let (block_bytes, tag_bytes) = (self.layout.block_bytes as usize, self.codec.tag_bytes());
        let lba = u64::from(part.zone) * self.spec.geometry.zone_size_blocks.0 + part.first;
        let mut mended = BytesMut::from(&tags[..]);
        let blocks = data.chunks_exact(block_bytes).zip(mended.chunks_exact_mut(tag_bytes)).enumerate();
        for (i, (block, tag)) in blocks {
            let place = lba + i as u64;
            let verdict = self.codec.verify(tag, place, part.generation, block);
            let is_new = match new {
                Some(new) => *block == new[i * block_bytes..][..block_bytes],
                None => verdict == Verdict::Mismatch && block.iter().all(|&byte| byte == 0),
            };
            match verdict {
                Verdict::Data => {}
                _ if is_new => tag.copy_from_slice(&new_tags[i * tag_bytes..][..tag_bytes]),
                Verdict::Mismatch if !self.layout.logs_contents => {
                    self.codec.accept(tag, place, part.generation, block);
                }
                Verdict::Zeros | Verdict::Unwritten | Verdict::Mismatch | Verdict::Foreign => {}
            }
        }
        part.stage = Stage::MendWrite;
        part.out = 1;
        let offset = self.layout.tag_offset(part.zone, part.first);
        let pieces = vec![Bytes::from(mended)];
        self.emit(Role::Tags, index, FileOperation::Write { file: ImageFile::Tags, offset, pieces });
    }
}
