//! Reads blocks and tags with blocking calls, as they will be once the journaled contents are
//! rewritten.

use zonda_zoned::ZoneIndex;

use crate::format::Generation;
use crate::format::layout::Layout;
use crate::format::tag::{TagCodec, Verdict, is_zero};
use crate::load::{Loaded, read};
use crate::logged::Logged;
use crate::{Files, ImageError, ImageFile};

/// Blocks of one chunk.
pub(crate) const CHUNK_BLOCKS: u64 = 1024;

/// The blocks of an image, read a chunk at a time.
pub(crate) struct Media<'a> {
    files: &'a mut dyn Files,
    layout: Layout,
    codec: TagCodec,
    zone_size: u64,
    logged: &'a Logged,
    /// The tags before this offset and from `hole_from` on are a hole.
    hole_from: u64,
    hole_to: u64,
}

/// The blocks whose data are read with the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// None.
    Nowhere,
    /// Blocks whose tags are of data.
    AtData,
    /// Also blocks that were never written, or written as zeros, where data can contradict the tag.
    AtEverything,
}

/// Consecutive blocks of a zone and their tags.
pub(crate) struct Chunk {
    pub(crate) first: u64,
    pub(crate) blocks: u64,
    tags: Vec<u8>,
    /// From the first block whose data were read to the last one; zeros for blocks in between that
    /// were not read.
    data: Vec<u8>,
    data_from: u64,
    /// Blocks whose data could not be read, counted from `first`.
    lost: Vec<u64>,
}

impl<'a> Media<'a> {
    pub(crate) fn new(files: &'a mut dyn Files, loaded: &'a Loaded) -> Media<'a> {
        Media::with(files, loaded, &loaded.logged)
    }

    /// As they will be once these contents are rewritten, instead of the journal's.
    pub(crate) fn with(files: &'a mut dyn Files, loaded: &Loaded, logged: &'a Logged) -> Media<'a> {
        Media {
            files,
            layout: loaded.layout,
            codec: loaded.codec,
            zone_size: loaded.spec.geometry.zone_size_blocks.0,
            logged,
            hole_from: 0,
            hole_to: 0,
        }
    }

    /// The first block of a zone from `from` on, and before `end`, that may have a tag.
    pub(crate) fn next_tagged(&mut self, zone: ZoneIndex, from: u64, end: u64) -> Result<Option<u64>, ImageError> {
        let unit = self.layout.tag_bytes;
        let offset = self.layout.tag_offset(zone, from);
        if !(self.hole_from..self.hole_to).contains(&offset) {
            let failed = |error| ImageError::File { file: ImageFile::Tags, operation: "find data in", error };
            self.hole_from = offset;
            self.hole_to = self.files.next_data(ImageFile::Tags, offset).map_err(failed)?.unwrap_or(u64::MAX);
        }
        let tagged = from + self.hole_to.saturating_sub(offset) / unit;
        let next = self.logged.next(zone, from).map_or(tagged, |logged| logged.min(tagged));
        Ok((next < end).then_some(next))
    }

    /// Reads blocks from `first` up to `end`, at most [`CHUNK_BLOCKS`] of them.
    pub(crate) fn chunk(
        &mut self,
        (zone, generation): (ZoneIndex, Generation),
        first: u64,
        end: u64,
        look: Look,
    ) -> Result<Chunk, ImageError> {
        let blocks = (end - first).min(CHUNK_BLOCKS);
        let length = (blocks * self.layout.tag_bytes) as usize;
        let mut tags = read(self.files, ImageFile::Tags, self.layout.tag_offset(zone, first), length)?;
        let zone_start = self.lba(zone, 0);
        self.logged.overlay_tags(&self.layout, &self.codec, zone_start, (zone, first), &mut tags);
        let mut chunk = Chunk { first, blocks, tags, data: Vec::new(), data_from: first, lost: Vec::new() };
        let mut at = 0;
        while at < blocks {
            let lba = zone_start + first;
            let zeros_are_holes = self.layout.zeros_are_holes(zone);
            let wants = |index| {
                let tag = chunk.tag(first + index, self.layout.tag_bytes);
                self.wants(tag, lba + index, generation, look, zeros_are_holes)
            };
            let wanted = wants(at);
            let run = (at..blocks).take_while(|&index| wants(index) == wanted).count() as u64;
            match wanted {
                Wants::Nothing => {}
                Wants::Data => self.read_data(&mut chunk, zone, at, at + run),
                Wants::Contradiction => self.read_unwritten(&mut chunk, zone, at, at + run)?,
            }
            at += run;
        }
        Ok(chunk)
    }

    fn wants(&self, tag: &[u8], lba: u64, generation: Generation, look: Look, zeros_are_holes: bool) -> Wants {
        if look == Look::Nowhere {
            return Wants::Nothing;
        }
        match self.codec.verify(tag, lba, generation, &[]) {
            Verdict::Unwritten if look == Look::AtEverything => Wants::Contradiction,
            Verdict::Zeros if look == Look::AtEverything && zeros_are_holes => Wants::Contradiction,
            Verdict::Unwritten | Verdict::Zeros | Verdict::Foreign => Wants::Nothing,
            Verdict::Data | Verdict::Mismatch => Wants::Data,
        }
    }

    /// Reads the data of blocks from `from` up to `to`, counted from the chunk's first.
    fn read_data(&mut self, chunk: &mut Chunk, zone: ZoneIndex, from: u64, to: u64) {
        let unit = self.layout.block_bytes;
        let first = chunk.first;
        if chunk.data.is_empty() {
            chunk.data_from = first + from;
        }
        let skipped = chunk.data_from - first;
        chunk.data.resize(((to - skipped) * unit) as usize, 0);
        let place = &mut chunk.data[((from - skipped) * unit) as usize..];
        if !self.read_exactly(zone, first + from, place) {
            // Find the blocks that cannot be read.
            for (block, place) in (from..to).zip(place.chunks_exact_mut(unit as usize)) {
                if !self.read_exactly(zone, first + block, place) {
                    chunk.lost.push(block);
                }
            }
        }
    }

    /// Reads the data of blocks that should have none, and mostly are a hole.
    fn read_unwritten(&mut self, chunk: &mut Chunk, zone: ZoneIndex, from: u64, to: u64) -> Result<(), ImageError> {
        let hole = self.next_filled(zone, chunk.first + from)? - (chunk.first + from);
        if hole < to - from {
            self.read_data(chunk, zone, from + hole, to);
        }
        Ok(())
    }

    fn read_exactly(&mut self, zone: ZoneIndex, block: u64, place: &mut [u8]) -> bool {
        let offset = self.layout.data_offset(zone, block);
        let end = block + place.len() as u64 / self.layout.block_bytes;
        let is_read = self.files.read_at(ImageFile::Data, offset, place) == Ok(place.len());
        self.logged.overlay_data(&self.layout, zone, block, place);
        // Blocks whose contents are in the journal need not be readable: they are rewritten.
        is_read || self.logged.covers(zone, block..end)
    }

    /// Verifies a block in a chunk. A tag that the data contradict does not match.
    pub(crate) fn verdict(&self, chunk: &Chunk, zone: ZoneIndex, generation: Generation, block: u64) -> Verdict {
        let tag = chunk.tag(block, self.layout.tag_bytes);
        let data = chunk.data(block, self.layout.block_bytes);
        match self.codec.verify(tag, self.lba(zone, block), generation, data) {
            Verdict::Data | Verdict::Unwritten if chunk.is_lost(block) => Verdict::Mismatch,
            Verdict::Unwritten if !is_zero(data) => Verdict::Mismatch,
            Verdict::Zeros if self.layout.zeros_are_holes(zone) && (chunk.is_lost(block) || !is_zero(data)) => {
                Verdict::Mismatch
            }
            verdict => verdict,
        }
    }

    pub(crate) fn tag<'c>(&self, chunk: &'c Chunk, block: u64) -> &'c [u8] {
        chunk.tag(block, self.layout.tag_bytes)
    }

    /// The data of a block; `None` where they could not be read.
    pub(crate) fn contents<'c>(&self, chunk: &'c Chunk, block: u64) -> Option<&'c [u8]> {
        (!chunk.is_lost(block)).then(|| chunk.data(block, self.layout.block_bytes))
    }

    /// A tag that matches a block as it is.
    pub(crate) fn accepted(&self, chunk: &Chunk, zone: ZoneIndex, generation: Generation, block: u64) -> Vec<u8> {
        let mut tag = chunk.tag(block, self.layout.tag_bytes).to_vec();
        let data = chunk.data(block, self.layout.block_bytes);
        self.codec.accept(&mut tag, self.lba(zone, block), generation, data);
        tag
    }

    /// The first block of a zone from `from` on that may hold data other than zeros, whatever its
    /// tag is.
    pub(crate) fn next_filled(&mut self, zone: ZoneIndex, from: u64) -> Result<u64, ImageError> {
        let failed = |error| ImageError::File { file: ImageFile::Data, operation: "find data in", error };
        let offset = self.layout.data_offset(zone, from);
        let next = self.files.next_data(ImageFile::Data, offset).map_err(failed)?;
        Ok(next.map_or(u64::MAX, |next| from + next.saturating_sub(offset) / self.layout.block_bytes))
    }

    /// Whether a block can be read and is zeros, whatever its tag is.
    pub(crate) fn is_blank(&mut self, zone: ZoneIndex, block: u64) -> bool {
        let mut data = vec![0; self.layout.block_bytes as usize];
        self.read_exactly(zone, block, &mut data) && is_zero(&data)
    }

    pub(crate) fn lba(&self, zone: ZoneIndex, block: u64) -> u64 {
        u64::from(zone.0) * self.zone_size + block
    }
}

/// What to read of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Nothing,
    Data,
    Contradiction,
}

impl Chunk {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.blocks
    }

    pub(crate) fn tag(&self, block: u64, tag_bytes: u64) -> &[u8] {
        &self.tags[((block - self.first) * tag_bytes) as usize..][..tag_bytes as usize]
    }

    /// A block's data; empty if they were not read.
    pub(crate) fn data(&self, block: u64, block_bytes: u64) -> &[u8] {
        self.run(block..block + 1, block_bytes)
    }

    /// The data of consecutive blocks; empty if they were not read.
    pub(crate) fn run(&self, blocks: std::ops::Range<u64>, block_bytes: u64) -> &[u8] {
        let at = |block: u64| Some((block.checked_sub(self.data_from)? * block_bytes) as usize);
        let range = at(blocks.start).zip(at(blocks.end)).map(|(start, end)| start..end);
        range.and_then(|range| self.data.get(range)).unwrap_or_default()
    }

    /// Whether the data of a block could not be read.
    pub(crate) fn is_lost(&self, block: u64) -> bool {
        self.lost.binary_search(&(block - self.first)).is_ok()
    }
}
