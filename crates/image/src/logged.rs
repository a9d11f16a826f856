//! Journaled contents: the blocks that a recovery must rewrite, and their contents.
//!
//! A later record replaces an earlier one, so each block is written once, however often it was
//! overwritten; and zeros are a range until they are written. So the memory of a recovery is
//! bounded by the journal, and its time by the number of blocks.

use std::collections::BTreeMap;
use std::ops::Range;

use zonda_zoned::ZoneIndex;

use crate::create::write;
use crate::format::Generation;
use crate::format::layout::Layout;
use crate::format::tag::TagCodec;
use crate::limits::ZERO_CHUNK_BLOCKS;
use crate::{Files, ImageError, ImageFile};

/// Blocks to be rewritten.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// The journal, if it has contents.
    journal: Vec<u8>,
    /// By zone and first block; they do not overlap.
    runs: BTreeMap<(ZoneIndex, u64), Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    generation: Generation,
    source: Source,
}

/// The source of contents.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Zeros,
    /// Offsets in the journal of the first block's tag and data.
    Contents {
        tags_at: usize,
        data_at: usize,
    },
}

impl Source {
    /// The source of the blocks behind the first `blocks`.
    fn skip(self, blocks: u64, layout: &Layout) -> Source {
        match self {
            Source::Zeros => Source::Zeros,
            Source::Contents { tags_at, data_at } => Source::Contents {
                tags_at: tags_at + (blocks * layout.tag_bytes) as usize,
                data_at: data_at + (blocks * layout.block_bytes) as usize,
            },
        }
    }
}

impl Logged {
    /// Adds a record for blocks of a zone, which replaces earlier ones.
    pub(crate) fn add(
        &mut self,
        layout: &Layout,
        zone: ZoneIndex,
        generation: Generation,
        blocks: Range<u64>,
        source: Source,
    ) {
        if blocks.is_empty() {
            return;
        }
        self.remove(layout, zone, &blocks);
        self.runs.insert((zone, blocks.start), Run { end: blocks.end, generation, source });
    }

    fn remove(&mut self, layout: &Layout, zone: ZoneIndex, blocks: &Range<u64>) {
        let overlaps = |(key, run): &(&(ZoneIndex, u64), &Run)| key.0 == zone && run.end > blocks.start;
        while let Some((&key, &run)) = self.runs.range(..(zone, blocks.end)).next_back().filter(overlaps) {
            self.runs.remove(&key);
            if run.end > blocks.end {
                let source = run.source.skip(blocks.end - key.1, layout);
                self.runs.insert((zone, blocks.end), Run { source, ..run });
            }
            if key.1 < blocks.start {
                self.runs.insert(key, Run { end: blocks.start, ..run });
            }
        }
    }

    /// Completes the collection: all records were read. Contents from before the last reset of
    /// their zone are dropped.
    pub(crate) fn complete(&mut self, journal: Vec<u8>, is_current: impl Fn(ZoneIndex, Generation) -> bool) {
        self.runs.retain(|&(zone, _), run| is_current(zone, run.generation));
        let has_contents = self.runs.values().any(|run| matches!(run.source, Source::Contents { .. }));
        self.journal = if has_contents { journal } else { Vec::new() };
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(|(&(_, first), run)| run.end - first).sum()
    }

    /// The first block of a zone from `from` on whose contents are in the journal.
    pub(crate) fn next(&self, zone: ZoneIndex, from: u64) -> Option<u64> {
        self.overlapping(zone, from..u64::MAX).next().map(|(blocks, ..)| blocks.start)
    }

    /// Whether the journal holds all of these blocks.
    pub(crate) fn covers(&self, zone: ZoneIndex, blocks: Range<u64>) -> bool {
        let held: u64 = self.overlapping(zone, blocks.clone()).map(|(part, ..)| part.end - part.start).sum();
        held == blocks.end - blocks.start
    }

    /// The journaled parts of a range of blocks, each with its generation and source.
    fn overlapping(
        &self,
        zone: ZoneIndex,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, Range<u64>, Run)> + '_ {
        let before = self.runs.range(..(zone, range.start)).next_back();
        let within = self.runs.range((zone, range.start)..(zone, range.end));
        before
            .into_iter()
            .chain(within)
            .filter(move |(key, run)| key.0 == zone && run.end > range.start)
            .map(move |(&(_, first), &run)| (first.max(range.start)..run.end.min(range.end), first..run.end, run))
    }

    /// Replaces tags that were read from `first` on with those in the journal.
    pub(crate) fn overlay_tags(
        &self,
        layout: &Layout,
        codec: &TagCodec,
        zone_start: u64,
        (zone, first): (ZoneIndex, u64),
        tags: &mut [u8],
    ) {
        let unit = layout.tag_bytes;
        let end = first + tags.len() as u64 / unit;
        for (part, whole, run) in self.overlapping(zone, first..end) {
            let place = &mut tags[((part.start - first) * unit) as usize..((part.end - first) * unit) as usize];
            match run.source.skip(part.start - whole.start, layout) {
                Source::Zeros => {
                    let zeros = codec.of_zeros(zone_start + part.start, run.generation, part.end - part.start);
                    place.copy_from_slice(&zeros);
                }
                Source::Contents { tags_at, .. } => {
                    place.copy_from_slice(&self.journal[tags_at..tags_at + place.len()]);
                }
            }
        }
    }

    /// Replaces data that were read from `first` on with those in the journal. For zeros the data
    /// do not matter.
    pub(crate) fn overlay_data(&self, layout: &Layout, zone: ZoneIndex, first: u64, data: &mut [u8]) {
        let unit = layout.block_bytes;
        let end = first + data.len() as u64 / unit;
        for (part, whole, run) in self.overlapping(zone, first..end) {
            if let Source::Contents { data_at, .. } = run.source.skip(part.start - whole.start, layout) {
                let place = &mut data[((part.start - first) * unit) as usize..((part.end - first) * unit) as usize];
                place.copy_from_slice(&self.journal[data_at..data_at + place.len()]);
            }
        }
    }

    /// Writes all contents to their places in the files.
    pub(crate) fn write(
        &self,
        files: &mut dyn Files,
        layout: &Layout,
        codec: &TagCodec,
        zone_size: u64,
    ) -> Result<(), ImageError> {
        for (&(zone, first), run) in &self.runs {
            match run.source {
                Source::Contents { tags_at, data_at } => {
                    let blocks = (run.end - first) as usize;
                    let data = &self.journal[data_at..data_at + blocks * layout.block_bytes as usize];
                    write(files, ImageFile::Data, layout.data_offset(zone, first), data)?;
                    let tags = &self.journal[tags_at..tags_at + blocks * layout.tag_bytes as usize];
                    write(files, ImageFile::Tags, layout.tag_offset(zone, first), tags)?;
                }
                Source::Zeros => {
                    for at in (first..run.end).step_by(ZERO_CHUNK_BLOCKS as usize) {
                        let blocks = (run.end - at).min(ZERO_CHUNK_BLOCKS);
                        let tags = codec.of_zeros(u64::from(zone.0) * zone_size + at, run.generation, blocks);
                        write(files, ImageFile::Tags, layout.tag_offset(zone, at), &tags)?;
                    }
                }
            }
        }
        Ok(())
    }
}
