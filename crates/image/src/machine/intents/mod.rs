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
//!
//! Operations on a block, in their order: [`begin_overwrite`](Intents::begin_overwrite),
//! [`begin_record`](Intents::begin_record) and [`end_record`](Intents::end_record) of the intent that
//! it needs, [`note_data`](Intents::note_data) or [`note_zeros`](Intents::note_zeros) when it is
//! written; [`begin_flush`](Intents::begin_flush) and [`end_flush`](Intents::end_flush).

mod intent;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bugs::{Seeded, SeededBug};
use crate::format::tag::TAG_BYTES;
use crate::ranges::RangeSet;

pub(super) use intent::{Intent, Pairs, tag_at};

/// Maximum number of intents that a flush repeats. With more, all stay until a flush finds fewer.
const REPEATED_MAX: usize = 256;

/// Owns what is known of the intents in the journal, by LBA.
#[derive(Debug)]
pub(super) struct Intents {
    bug: Seeded,
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

/// The intent that an overwrite needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// None: one in the journal accepts any contents.
    Nothing,
    Zeros,
    /// That any contents are accepted: all blocks were overwritten before.
    Anything,
    /// The tags of the blocks before it, to be read, and after it.
    Tags,
}

impl Intents {
    /// Of an empty journal.
    pub(super) fn new(bug: Seeded) -> Intents {
        Intents {
            bug,
            open: RangeSet::default(),
            written: BTreeMap::new(),
            zeroed: RangeSet::default(),
            damaged: RangeSet::default(),
            carried: Vec::new(),
            records_before: 0,
            is_any_left: false,
        }
    }

    /// A checkpoint has ended all of them.
    pub(super) fn restart(&mut self) {
        *self = Intents::new(self.bug);
    }

    /// An overwrite of these blocks begins. Returns the intent that it needs.
    pub(super) fn begin_overwrite(&mut self, blocks: &Range<u64>, is_data: bool) -> Need {
        self.damaged.remove(blocks.clone());
        if self.open.covers(blocks) {
            Need::Nothing
        } else if !is_data {
            Need::Zeros
        } else if blocks.clone().all(|lba| self.is_written(lba)) {
            Need::Anything
        } else {
            Need::Tags
        }
    }

    /// Whether a block was written since the last flush began, under an intent.
    pub(super) fn is_written(&self, lba: u64) -> bool {
        self.written.contains_key(&lba) || self.zeroed.covers(&(lba..lba + 1))
    }

    /// Whether a synced intent accepts any contents of all these blocks.
    pub(super) fn accept_anything(&self, blocks: &Range<u64>) -> bool {
        self.open.covers(blocks)
    }

    /// An intent will be in the journal.
    pub(super) fn begin_record(&mut self) {
        self.is_any_left = true;
    }

    /// An intent is synced.
    pub(super) fn end_record(&mut self, intent: &Intent) {
        assert!(self.is_any_left, "no flush ends an intent while it is recorded");
        self.open.union(intent.open());
    }

    /// A block was written under an intent, and has this tag now.
    pub(super) fn note_data(&mut self, lba: u64, tag: [u8; TAG_BYTES]) {
        self.zeroed.remove(lba..lba + 1);
        self.written.insert(lba, tag);
    }

    /// Zeros were written under an intent.
    pub(super) fn note_zeros(&mut self, blocks: Range<u64>) {
        self.forget_written(blocks.clone());
        self.zeroed.insert(blocks);
    }

    /// A flush begins: intents of writes in progress survive it, and later writes record their own.
    /// `records_before` are in the journal.
    pub(super) fn begin_flush(&mut self, carried: Vec<Intent>, records_before: u64) {
        let is_any_left = self.is_any_left;
        *self = Intents { carried, records_before, is_any_left, ..Intents::new(self.bug) };
    }

    /// The intent of a write in progress after a flush that covers all earlier writes: its tags
    /// before and after. `own` is the one that it has recorded, if it needed one; `after` are its
    /// tags, and `None` for zeros; `zeros` is the tag of a block of zeros.
    pub(super) fn to_carry(
        &self,
        own: Option<&Intent>,
        blocks: Range<u64>,
        after: Option<&[u8]>,
        zeros: impl Fn(u64) -> [u8; TAG_BYTES],
    ) -> Option<Intent> {
        if let Some(own) = own.filter(|own| own.open().ranges_count() == 0) {
            return Some(own.as_carried());
        }
        if blocks.is_empty() || (own.is_none() && !self.open.covers(&blocks)) {
            return None;
        }
        let Some(after) = after else { return Some(Intent::zeros(blocks).as_carried()) };
        let mut pairs = Pairs::new(blocks.clone());
        for (i, lba) in (0..).zip(blocks) {
            let itself = lba..lba + 1;
            let before = match own.filter(|own| !own.open().covers(&itself)) {
                Some(own) => own.before(lba).map(|tag| tag_at(tag, 0)),
                None if self.zeroed.covers(&itself) => Some(zeros(lba)),
                None => self.written.get(&lba).copied(),
            };
            match before.filter(|_| !self.bug.has(SeededBug::CarriedAnything)) {
                Some(before) => pairs.push(&before, &tag_at(after, i)),
                None => pairs.push_anything(),
            }
        }
        Some(pairs.into_intent().as_carried())
    }

    /// The intents that the flush which ends has to repeat; `None` if there are none to end, or too
    /// many to repeat.
    pub(super) fn take_carried(&mut self) -> Option<Vec<Intent>> {
        if !self.is_any_left {
            return None;
        }
        Some(std::mem::take(&mut self.carried)).filter(|carried| carried.len() <= REPEATED_MAX)
    }

    /// A flush has succeeded, and the journal has so many records, among them the intents that it
    /// repeats. Returns how many of them have intents that remain.
    pub(super) fn end_flush(&mut self, records: u64) -> u64 {
        let left = records.checked_sub(self.records_before).expect("the journal did not restart during the flush");
        self.is_any_left = left > 0;
        left
    }

    /// Whether a recovery may accept damage.
    pub(super) fn are_any_left(&self) -> bool {
        self.is_any_left
    }

    /// Whether the damage of these blocks was recorded.
    pub(super) fn have_damage(&self, blocks: &[u64]) -> bool {
        blocks.iter().all(|&lba| self.damaged.covers(&(lba..lba + 1)))
    }

    /// Damage of these blocks will be in the journal, so that no intent applies to them.
    pub(super) fn begin_damage(&mut self, blocks: &[u64]) {
        for &lba in blocks {
            self.open.remove(lba..lba + 1);
            self.forget_written(lba..lba + 1);
        }
    }

    /// The record of damage is synced.
    pub(super) fn end_damage(&mut self, blocks: &RangeSet) {
        self.damaged.union(blocks);
    }

    /// Drops the blocks of a zone that is reset.
    pub(super) fn forget(&mut self, blocks: Range<u64>) {
        self.carried.retain(|intent| !blocks.contains(&intent.blocks().start));
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

    pub(super) fn check_invariants(&self) {
        for &lba in self.written.keys() {
            assert!(!self.zeroed.covers(&(lba..lba + 1)), "block {lba} was last written as data or as zeros");
        }
        let knows_any = self.open.ranges_count() + self.written.len() + self.zeroed.ranges_count() > 0;
        // A flush may end while blocks written after it began are known.
        assert!(!knows_any || self.is_any_left, "blocks are known by intents in the journal");
    }
}
