//! What a repair has done, and what it could not know.

use std::fmt;
use std::ops::Range;

use zonda_zoned::{Lba, ZoneIndex};

use crate::limits::UNREADABLE_RANGES_MAX;

/// What a repair copied, and what is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What is damaged in superblock, checkpoint and journal, or of the files' lengths, and what follows from it. Empty where the
    /// image can be opened.
    pub damage: Vec<String>,
    /// Records of the journal that were applied.
    pub journal_records: u64,
    /// Blocks copied, those among them that were accepted.
    pub copied_blocks: u64,
    /// Blocks that may have been overwritten when the drive stopped, and disagree with their checksums: they are taken as they are, as
    /// opening the drive would.
    pub accepted_blocks: u64,
    /// Blocks that cannot be read, in the new image either: reads of them end with UnrecoveredReadError.
    pub unreadable_blocks: u64,
    /// Runs of unreadable blocks, in the order of the zones; at most
    /// [`limits::UNREADABLE_RANGES_MAX`](crate::limits::UNREADABLE_RANGES_MAX).
    pub unreadable: Vec<Range<Lba>>,
    /// Unreadable blocks that lie in none of these runs.
    pub more_unreadable_blocks: u64,
    /// Zones in which there is something.
    pub zones: Vec<RepairedZone>,
    /// Zones that became full because no active resource was left for them.
    pub finished_zones: Vec<ZoneIndex>,
}

/// A zone that was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedZone {
    /// Which.
    pub zone: ZoneIndex,
    /// Blocks copied.
    pub copied_blocks: u64,
    /// Blocks that cannot be read.
    pub unreadable_blocks: u64,
    /// What was uncertain.
    pub doubt: Option<ZoneDoubt>,
}

/// What a damaged image does not tell of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneDoubt {
    /// Its resets are not known: it has the newest generation of which a block verifies.
    Generation,
    /// It was written, and no block is left.
    NothingLeft,
    /// How far it was written.
    Extent,
    /// Its entry in the checkpoint is one that no drive writes.
    Entry,
}

impl fmt::Display for ZoneDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ZoneDoubt::Generation => {
                "its resets are not recorded: it has the blocks of the newest round that verify, and how it was managed \
                 since is not known"
            }
            ZoneDoubt::NothingLeft => "no block of it is left: it was reset since, or all of it is lost",
            ZoneDoubt::Extent => "its last blocks cannot be read, and how far it was written is not known",
            ZoneDoubt::Entry => "its state was one that no drive leaves: it has the blocks that verify",
        })
    }
}

impl RepairReport {
    /// A block cannot be read. They come in ascending order.
    pub(super) fn add_unreadable(&mut self, lba: u64) {
        self.unreadable_blocks += 1;
        let may_be_listed = self.unreadable.len() < UNREADABLE_RANGES_MAX;
        match self.unreadable.last_mut() {
            Some(last) if last.end == Lba(lba) => last.end = Lba(lba + 1),
            _ if may_be_listed => self.unreadable.push(Lba(lba)..Lba(lba + 1)),
            _ => self.more_unreadable_blocks += 1,
        }
    }
}
