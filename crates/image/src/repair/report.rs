//! The result of a repair, and what it could not determine.

use std::fmt;
use std::ops::Range;

use zonda_zoned::{Lba, ZoneIndex};

use crate::limits::UNREADABLE_RANGES_MAX;

/// The blocks that a repair copied, and those that are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Damage to superblock, checkpoint, journal or the files' lengths, and its consequences. Empty
    /// if the image can be opened.
    pub damage: Vec<String>,
    /// Records of the journal that were applied.
    pub journal_records: u64,
    /// Blocks copied, including accepted ones.
    pub copied_blocks: u64,
    /// Blocks that may have been overwritten when the drive stopped, and do not match their
    /// checksums: they are accepted as they are, or as zeros if zeros were being written, as opening
    /// the drive would.
    pub accepted_blocks: u64,
    /// Blocks that cannot be read, in the new image either: reads of them end with
    /// UnrecoveredReadError.
    pub unreadable_blocks: u64,
    /// Runs of unreadable blocks, in the order of the zones; at most
    /// [`limits::UNREADABLE_RANGES_MAX`](crate::limits::UNREADABLE_RANGES_MAX).
    pub unreadable: Vec<Range<Lba>>,
    /// Unreadable blocks in none of these runs.
    pub more_unreadable_blocks: u64,
    /// Zones that have blocks.
    pub zones: Vec<RepairedZone>,
    /// Zones that became full because no active resource was left for them.
    pub finished_zones: Vec<ZoneIndex>,
}

/// A copied zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedZone {
    /// The zone.
    pub zone: ZoneIndex,
    /// Blocks copied.
    pub copied_blocks: u64,
    /// Blocks that cannot be read.
    pub unreadable_blocks: u64,
    /// What could not be determined.
    pub doubt: Option<ZoneDoubt>,
}

/// What cannot be determined about a zone of a damaged image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneDoubt {
    /// Its resets are unknown: it has the newest generation of which a block verifies.
    Generation,
    /// It was written, and no block is readable.
    NothingLeft,
    /// How far it was written.
    Extent,
    /// Its entry in the checkpoint is invalid.
    Entry,
}

impl fmt::Display for ZoneDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ZoneDoubt::Generation => {
                "the record of resets is damaged: the newest valid blocks were kept; a later reset or finish may be \
                 missing"
            }
            ZoneDoubt::NothingLeft => "none of its blocks is readable: it was reset since, or all its blocks are lost",
            ZoneDoubt::Extent => "its last blocks cannot be read, and its write pointer is unknown",
            ZoneDoubt::Entry => "its recorded state is invalid: the blocks that verify are kept",
        })
    }
}

impl RepairReport {
    /// Adds an unreadable block, in ascending order.
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
