//! The contents that the journal allows for blocks that were being overwritten in place when the
//! drive stopped.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bugs::{Seeded, SeededBug};
use crate::format::Generation;
use crate::format::record::{HEADER_BYTES, OVERWRITE_TAGS, OVERWRITE_ZEROS, Record};
use crate::format::tag::{ANYTHING, LOST, TAG_BYTES, TagCodec, TagPair, Verdict, is_zero};
use crate::ranges::RangeSet;

/// Blocks, by LBA, that may not match their tags because they were being overwritten. Takes as much
/// memory as the journal.
#[derive(Debug, Default)]
pub(crate) struct Intended {
    all: RangeSet,
    anything: RangeSet,
    zeros: RangeSet,
    /// In the order of the blocks. A block may have several.
    tags: Vec<(u64, TagPair)>,
}

/// How a block that does not match its tag is resolved. `or_unwritten`: it has no tag, and may be as
/// before its first write, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// It has the contents before or after the overwrite: this tag matches.
    Fits { tag: Vec<u8>, or_unwritten: bool },
    /// It was being written as zeros, and its tag is that of zeros: its data become zeros.
    Zeros,
    /// Its contents are unknown: it is accepted as it is.
    AsItIs { or_unwritten: bool },
    /// It has neither old nor new contents: unreadable.
    Neither,
}

impl Intended {
    /// Ranges of consecutive blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.all.iter()
    }

    /// Resolves a block, `lba`, whose data do not match the tag on file.
    pub(crate) fn resolve(
        &self,
        codec: &TagCodec,
        lba: u64,
        generation: Generation,
        on_file: &[u8],
        data: &[u8],
    ) -> Resolved {
        let from = self.tags.partition_point(|(other, _)| *other < lba);
        let pairs = self.tags[from..].iter().take_while(|(other, _)| *other == lba);
        let block = lba..lba + 1;
        let accepts_anything = self.anything.covers(&block);
        let mut before = pairs.clone().map(|(_, pair)| &pair[..TAG_BYTES]);
        // A block whose contents before were lost was unreadable then, and does not become zeros.
        let or_unwritten =
            is_zero(on_file) && !before.clone().any(|tag| tag == LOST) && (accepts_anything || before.any(is_zero));
        let tags = pairs.flat_map(|(_, pair)| pair.chunks_exact(TAG_BYTES));
        if let Some(tag) = tags.clone().find(|tag| codec.fits(tag, lba, generation, data)) {
            return Resolved::Fits { tag: tag.to_vec(), or_unwritten };
        }
        let become_zeros = self.zeros.covers(&block);
        if become_zeros && is_zero(data) {
            return Resolved::Fits { tag: codec.of_zeros(lba, generation, 1).to_vec(), or_unwritten };
        }
        // A hole that was not punched yet. Without such an intent the data contradicted the tag before.
        if become_zeros && codec.verify(on_file, lba, generation, data) == Verdict::Zeros {
            return Resolved::Zeros;
        }
        if accepts_anything { Resolved::AsItIs { or_unwritten } } else { Resolved::Neither }
    }
}

/// Intents, collected from records in their order.
#[derive(Debug, Default)]
pub(crate) struct Intents {
    /// Intents of the last flush's records and later, with the sequence of each; earlier ones have
    /// ended or were repeated.
    since: Vec<(u64, Intent)>,
}

#[derive(Clone, Debug)]
struct Intent {
    blocks: Range<u64>,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Anything,
    Zeros,
    /// Offset in the journal of the first block's pair of tags.
    Tags(usize),
}

impl Intents {
    /// Adds the record of an overwrite at offset `at` of the journal.
    pub(crate) fn add_overwrite(&mut self, sequence: u64, record: &Record<'_>, at: usize, bug: Seeded) {
        let what = match record.c {
            OVERWRITE_TAGS if !bug.has(SeededBug::BlindIntent) => What::Tags(at + HEADER_BYTES),
            OVERWRITE_ZEROS => What::Zeros,
            _ => What::Anything,
        };
        self.since.push((sequence, Intent { blocks: record.a..record.a + record.b, what }));
    }

    /// Adds an intent of format versions 1 and 2.
    pub(crate) fn add_region(&mut self, sequence: u64, blocks: Range<u64>) {
        self.since.push((sequence, Intent { blocks, what: What::Anything }));
    }

    /// Removes the blocks of a zone that was reset.
    pub(crate) fn remove(&mut self, blocks: &Range<u64>) {
        if !self.since.iter().any(|(_, intent)| intent.overlaps(blocks)) {
            return;
        }
        let cut = |(sequence, intent): (u64, Intent)| {
            let Range { start, end } = intent.blocks;
            let parts = [start..end.min(blocks.start), start.max(blocks.end)..end];
            parts.map(|part| (sequence, intent.part(part)))
        };
        self.since = std::mem::take(&mut self.since)
            .into_iter()
            .flat_map(cut)
            .filter(|(_, part)| !part.blocks.is_empty())
            .collect();
    }

    /// Ends the intents of records before this one.
    pub(crate) fn end_before(&mut self, sequence: u64) {
        self.since.retain(|(own, _)| *own >= sequence);
    }

    /// Completes the collection: all records were read.
    pub(crate) fn complete(self, journal: &[u8]) -> Intended {
        let mut intended = Intended::default();
        // Of a block that a read found damaged, only later pairs of tags count.
        let mut lost: BTreeMap<u64, usize> = BTreeMap::new();
        for (_, Intent { blocks, what }) in self.since {
            intended.all.insert(blocks.clone());
            match what {
                What::Anything => intended.anything.insert(blocks),
                What::Zeros => intended.zeros.insert(blocks),
                What::Tags(at) => {
                    let pairs = journal[at..].chunks_exact(2 * TAG_BYTES);
                    for (lba, pair) in blocks.zip(pairs) {
                        let pair = TagPair::try_from(pair).expect("it is cut to this length");
                        if pair == ANYTHING {
                            intended.anything.insert(lba..lba + 1);
                        } else if pair[TAG_BYTES..] == LOST {
                            intended.anything.remove(lba..lba + 1);
                            intended.zeros.remove(lba..lba + 1);
                            lost.insert(lba, intended.tags.len());
                        } else {
                            intended.tags.push((lba, pair));
                        }
                    }
                }
            }
        }
        let mut place = 0;
        intended.tags.retain(|(lba, _)| {
            place += 1;
            lost.get(lba).is_none_or(|first| place > *first)
        });
        intended.tags.sort_by_key(|(lba, _)| *lba);
        intended
    }
}

impl Intent {
    fn overlaps(&self, blocks: &Range<u64>) -> bool {
        self.blocks.start < blocks.end && blocks.start < self.blocks.end
    }

    /// The intent for some of its blocks, possibly none.
    fn part(&self, blocks: Range<u64>) -> Intent {
        let skipped = blocks.start.saturating_sub(self.blocks.start) as usize;
        let what = match self.what {
            What::Tags(at) => What::Tags(at + skipped * 2 * TAG_BYTES),
            what => what,
        };
        Intent { blocks, what }
    }
}
