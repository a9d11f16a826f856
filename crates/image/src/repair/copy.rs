//! Copies the blocks of a zone into another image.

use zonda_zoned::ZoneIndex;

use super::report::{RepairReport, RepairedZone};
use crate::create::write;
use crate::disposition::{Disposition, Repairs};
use crate::format::Generation;
use crate::format::entry::{Entry, RecordedState};
use crate::format::layout::Layout;
use crate::format::tag::{TAG_BYTES, TagCodec, Verdict, is_zero};
use crate::media::{Chunk, Look, Media};
use crate::{Files, ImageError, ImageFile};

/// Copies zones in order.
pub(super) struct Copier<'a> {
    pub(super) media: Media<'a>,
    pub(super) to: &'a mut dyn Files,
    pub(super) layout: Layout,
    /// Encodes the tags of the new image.
    pub(super) codec: TagCodec,
    pub(super) repairs: Repairs,
    pub(super) report: RepairReport,
}

impl Copier<'_> {
    /// Copies the blocks of a zone up to `written`.
    pub(super) fn zone(&mut self, zone: ZoneIndex, entry: &Entry, written: u64) -> Result<RepairedZone, ImageError> {
        let may_be_unwritten = entry.had_zrwa || self.layout.is_conventional(zone);
        let look = if may_be_unwritten { Look::AtEverything } else { Look::AtData };
        let (copied, unreadable) = (self.report.copied_blocks, self.report.unreadable_blocks);
        let mut at = if entry.state == RecordedState::Offline { written } else { 0 };
        while at < written {
            let chunk = self.media.chunk((zone, entry.generation), at, written, look)?;
            at = chunk.end();
            self.chunk(&chunk, zone, entry.generation, may_be_unwritten)?;
        }
        Ok(RepairedZone {
            zone,
            copied_blocks: self.report.copied_blocks - copied,
            unreadable_blocks: self.report.unreadable_blocks - unreadable,
            doubt: None,
        })
    }

    fn chunk(
        &mut self,
        chunk: &Chunk,
        zone: ZoneIndex,
        generation: Generation,
        may_be_unwritten: bool,
    ) -> Result<(), ImageError> {
        let unit = self.layout.tag_bytes;
        let mut tags = Vec::with_capacity((chunk.blocks * unit) as usize);
        let mut data_from: Option<u64> = None;
        for block in chunk.first..chunk.end() {
            let lba = self.media.lba(zone, block);
            let data = chunk.data(block, self.layout.block_bytes);
            let verdict = self.media.verdict(chunk, zone, generation, block);
            let disposition = self.repairs.disposition(verdict, lba, may_be_unwritten);
            let metadata = &chunk.tag(block, unit)[TAG_BYTES..][..self.codec.metadata_bytes()];
            match disposition {
                Disposition::Data | Disposition::Accepted => {
                    tags.extend_from_slice(&self.codec.of_data(lba, generation, data, metadata));
                }
                Disposition::Zeros if is_zero(metadata) => {
                    tags.extend_from_slice(&self.codec.of_zeros(lba, generation, 1));
                }
                Disposition::Zeros => {
                    let zeros = vec![0; self.layout.block_bytes as usize].into();
                    let (data, tag) = self.codec.of_overwrite(lba, generation, zeros, metadata);
                    tags.extend_from_slice(&tag);
                    write(self.to, ImageFile::Data, self.layout.data_offset(zone, block), &data)?;
                }
                Disposition::Unwritten => tags.resize(tags.len() + unit as usize, 0),
                Disposition::Unreadable => tags.extend_from_slice(&self.codec.of_lost(1)),
            }
            match disposition {
                Disposition::Data | Disposition::Accepted | Disposition::Zeros => self.report.copied_blocks += 1,
                Disposition::Unreadable => self.report.add_unreadable(lba),
                Disposition::Unwritten => {}
            }
            // Data of a block that was being written as zeros is discarded.
            let is_emptied = disposition == Disposition::Unwritten && verdict == Verdict::Mismatch;
            let is_accepted = disposition == Disposition::Accepted || is_emptied && self.layout.is_conventional(zone);
            self.report.accepted_blocks += u64::from(is_accepted);
            if matches!(disposition, Disposition::Data | Disposition::Accepted) {
                data_from.get_or_insert(block);
            } else if let Some(first) = data_from.take() {
                self.write_data(chunk, zone, first, block)?;
            }
        }
        if let Some(first) = data_from {
            self.write_data(chunk, zone, first, chunk.end())?;
        }
        if !is_zero(&tags) {
            write(self.to, ImageFile::Tags, self.layout.tag_offset(zone, chunk.first), &tags)?;
        }
        Ok(())
    }

    fn write_data(&mut self, chunk: &Chunk, zone: ZoneIndex, first: u64, end: u64) -> Result<(), ImageError> {
        let data = chunk.run(first..end, self.layout.block_bytes);
        write(self.to, ImageFile::Data, self.layout.data_offset(zone, first), data)
    }
}
