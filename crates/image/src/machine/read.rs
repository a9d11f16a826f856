//! Reads: every block is verified against its tag.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{BlockBuffer, Key, Status};

use crate::bugs::SeededBug;
use crate::format::tag::{Verdict, is_zero};
use crate::{FileOperation, ImageFile};

use super::Image;
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

impl Image {
    pub(super) fn start_read(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        if part.blocks() == 0 {
            // A failed write has rolled back all blocks of this part.
            self.end_part(key, Status::Success);
            return;
        }
        part.stage = Stage::Files;
        self.read_part(key);
    }

    /// Reads the data and tags of a part's blocks.
    pub(super) fn read_part(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        part.out = 2;
        let (zone, first, blocks) = (part.zone, part.first, part.blocks());
        let offset = self.layout.data_offset(zone, first);
        let length = (blocks * self.layout.block_bytes) as usize;
        self.operations.issue(Purpose::Data(key), FileOperation::Read { file: ImageFile::Data, offset, length });
        let offset = self.layout.tag_offset(zone, first);
        let length = (blocks * self.layout.tag_bytes) as usize;
        self.operations.issue(Purpose::Tags(key), FileOperation::Read { file: ImageFile::Tags, offset, length });
    }

    pub(super) fn end_read(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let Work::Read { place, data, tags, .. } = &mut part.work else { unreachable!("a read") };
        let (place, data, tags) = (*place, data.take(), tags.take());
        let status = match (data, tags) {
            (Some(data), Some(tags)) => match self.verify_read(key, place, data, &tags) {
                Ok(()) => Status::Success,
                Err(data) if self.keep_damage(key, &data, &tags) => return,
                Err(_) => Status::UnrecoveredReadError,
            },
            _ => Status::UnrecoveredReadError,
        };
        self.end_read_part(key, status);
    }

    /// Ends a read that may have used the journal.
    pub(super) fn end_read_part(&mut self, key: Key<Part>, status: Status) {
        if self.parts[key].uses_journal() {
            self.leave_journal(key);
        }
        self.end_part(key, status);
    }

    /// Keeps the data of a read for its command, or returns them if a block does not match its tag.
    fn verify_read(&mut self, key: Key<Part>, place: u64, data: Bytes, tags: &Bytes) -> Result<(), Bytes> {
        let part = &self.parts[key];
        let (command, blocks) = (part.command.expect("a read belongs to a command"), part.blocks());
        let (block_bytes, tag_bytes) = (self.layout.block_bytes as usize, self.codec.tag_bytes());
        if data.len() as u64 != blocks * self.layout.block_bytes || tags.len() as u64 != blocks * self.layout.tag_bytes
        {
            return Err(data);
        }
        let may_be_unwritten = self.may_be_unwritten(part.zone);
        let zeros_are_holes = self.layout.zeros_are_holes(part.zone);
        let lba = self.lba(part.zone, part.first);
        let mut zeros: Vec<usize> = Vec::new();
        for i in 0..blocks as usize {
            let (tag, block) = (&tags[i * tag_bytes..][..tag_bytes], &data[i * block_bytes..][..block_bytes]);
            match self.codec.verify(tag, lba + i as u64, part.generation, block) {
                Verdict::Data => {}
                // The data contradict a tag that is older than they are.
                Verdict::Zeros if zeros_are_holes && !is_zero(block) && !self.bug.has(SeededBug::BelievedZeros) => {
                    return Err(data);
                }
                Verdict::Zeros => zeros.push(i),
                Verdict::Mismatch if self.bug.has(SeededBug::BlindRead) => {}
                // The data contradict a tag that was lost.
                Verdict::Unwritten if may_be_unwritten && is_zero(block) => {}
                Verdict::Unwritten if may_be_unwritten && self.bug.has(SeededBug::BelievedZeros) => zeros.push(i),
                Verdict::Unwritten | Verdict::Mismatch | Verdict::Foreign => return Err(data),
            }
        }
        let metadata = self.metadata_of(tags);
        let data = if zeros.is_empty() { data } else { with_zeros(data, &zeros, block_bytes) };
        self.commands.add_data(command, place, BlockBuffer { data, metadata });
        Ok(())
    }

    /// The metadata of consecutive blocks, from their tags.
    fn metadata_of(&self, tags: &[u8]) -> Bytes {
        let metadata_bytes = self.codec.metadata_bytes();
        if metadata_bytes == 0 {
            return Bytes::new();
        }
        let tag_bytes = self.codec.tag_bytes();
        let mut metadata = BytesMut::with_capacity(tags.len() / tag_bytes * metadata_bytes);
        for tag in tags.chunks_exact(tag_bytes) {
            metadata.extend_from_slice(&tag[crate::format::tag::TAG_BYTES..][..metadata_bytes]);
        }
        metadata.freeze()
    }
}

/// The data with some blocks replaced by zeros; copied only if they are shared.
fn with_zeros(data: Bytes, zeros: &[usize], block_bytes: usize) -> Bytes {
    let mut data = data.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    for &block in zeros {
        data[block * block_bytes..][..block_bytes].fill(0);
    }
    data.freeze()
}
