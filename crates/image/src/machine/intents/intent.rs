//! The intent of one write.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::format::record::{Kind, OVERWRITE_ANYTHING, OVERWRITE_TAGS, OVERWRITE_ZEROS};
use crate::format::tag::{ANYTHING, LOST_BYTE, TAG_BYTES};
use crate::machine::journal::OwnRecord;
use crate::ranges::RangeSet;

/// The intent of one write.
#[derive(Clone, Debug)]
pub(in crate::machine) struct Intent {
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

/// The tags of consecutive blocks before and after a write, for its intent.
#[derive(Debug)]
pub(in crate::machine) struct Pairs {
    blocks: Range<u64>,
    tags: BytesMut,
    open: RangeSet,
}

impl Intent {
    /// An intent that accepts any contents of these blocks.
    pub(in crate::machine) fn anything(blocks: Range<u64>) -> Intent {
        let mut open = RangeSet::default();
        open.insert(blocks.clone());
        Intent { blocks, way: OVERWRITE_ANYTHING, tags: Bytes::new(), open, is_carried: false }
    }

    pub(in crate::machine) fn zeros(blocks: Range<u64>) -> Intent {
        let (tags, open) = (Bytes::new(), RangeSet::default());
        Intent { blocks, way: OVERWRITE_ZEROS, tags, open, is_carried: false }
    }

    pub(in crate::machine) fn record(&self) -> OwnRecord {
        let mut record = OwnRecord::new(Kind::Overwrite);
        (record.a, record.b, record.c) = (self.blocks.start, self.blocks.end - self.blocks.start, self.way);
        record.head = self.tags.clone();
        record
    }

    pub(in crate::machine) fn blocks(&self) -> Range<u64> {
        self.blocks.clone()
    }

    /// The blocks of which any contents are accepted.
    pub(in crate::machine) fn open(&self) -> &RangeSet {
        &self.open
    }

    /// The tag that a block had before; `None` if unknown.
    pub(in crate::machine) fn before(&self, lba: u64) -> Option<&[u8]> {
        let at = usize::try_from(lba.checked_sub(self.blocks.start)?).ok()? * 2 * TAG_BYTES;
        self.tags.get(at..at + TAG_BYTES)
    }

    pub(super) fn as_carried(&self) -> Intent {
        Intent { is_carried: true, ..self.clone() }
    }

    /// Whether a flush repeats it with all tags, so that the next write of its blocks is the first
    /// one since this flush. One of zeros has no tags: after another write nothing would record the
    /// data before the zeros.
    pub(in crate::machine) fn is_carried_with_tags(&self) -> bool {
        self.is_carried && self.way != OVERWRITE_ZEROS
    }
}

impl Pairs {
    pub(in crate::machine) fn new(blocks: Range<u64>) -> Pairs {
        let bytes = (blocks.end - blocks.start) as usize * 2 * TAG_BYTES;
        Pairs { blocks, tags: BytesMut::with_capacity(bytes), open: RangeSet::default() }
    }

    /// Adds the tags of the next block.
    pub(in crate::machine) fn push(&mut self, before: &[u8], after: &[u8]) {
        assert!(before.len() == TAG_BYTES && after.len() == TAG_BYTES, "blocks in place have no metadata");
        self.tags.put_slice(before);
        self.tags.put_slice(after);
    }

    /// The next block has no earlier contents that may be accepted.
    pub(in crate::machine) fn push_without_before(&mut self, after: &[u8]) {
        self.push(&[LOST_BYTE; TAG_BYTES], after);
    }

    /// Any contents of the next block are accepted.
    pub(in crate::machine) fn push_anything(&mut self) {
        let lba = self.blocks.start + (self.tags.len() / ANYTHING.len()) as u64;
        self.open.insert(lba..lba + 1);
        self.tags.put_slice(&ANYTHING);
    }

    /// The intent, once all blocks are added.
    pub(in crate::machine) fn into_intent(self) -> Intent {
        let Pairs { blocks, tags, open } = self;
        assert_eq!(tags.len() as u64, (blocks.end - blocks.start) * ANYTHING.len() as u64, "each block has a pair");
        Intent { blocks, way: OVERWRITE_TAGS, tags: tags.freeze(), open, is_carried: false }
    }
}

/// The tag of the block at this place of a part.
pub(in crate::machine) fn tag_at(tags: &[u8], at: u64) -> [u8; TAG_BYTES] {
    let at = at as usize * TAG_BYTES;
    tags[at..at + TAG_BYTES].try_into().expect("a block has a tag of this length: blocks in place have no metadata")
}
