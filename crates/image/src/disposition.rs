//! How an opening treats each block of an image: for a check, and for a repair.

use std::collections::BTreeSet;

use crate::examine::BlockRepair;
use crate::format::tag::Verdict;
use crate::ranges::RangeSet;

/// Blocks that an opening would repair, by LBA.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// Accepted as they are.
    accepted: BTreeSet<u64>,
    /// With the contents before or after an overwrite that was in progress.
    known: BTreeSet<u64>,
    zeroed: RangeSet,
}

/// How an opening treats a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Its data match its tag, or the tag before or after an overwrite that was in progress.
    Data,
    /// It was being overwritten, and is accepted as it is.
    Accepted,
    /// It was written as zeros.
    Zeros,
    Unwritten,
    Unreadable,
}

impl Repairs {
    pub(crate) fn of(blocks: &[BlockRepair], zone_size: u64) -> Repairs {
        let mut repairs = Repairs::default();
        for repair in blocks {
            match *repair {
                BlockRepair::Accept { zone, block, as_it_is, .. } => {
                    let set = if as_it_is { &mut repairs.accepted } else { &mut repairs.known };
                    set.insert(u64::from(zone.0) * zone_size + block);
                }
                BlockRepair::Zero { zone, first, end } => {
                    let start = u64::from(zone.0) * zone_size;
                    repairs.zeroed.insert(start + first..start + end);
                }
                // Blocks behind a write pointer are not verified.
                BlockRepair::Clear { .. } => {}
            }
        }
        repairs
    }

    /// How many blocks are accepted as they are.
    pub(crate) fn accepted_blocks(&self) -> u64 {
        self.accepted.len() as u64
    }

    /// The disposition of a block before the end of its zone.
    pub(crate) fn disposition(&self, verdict: Verdict, lba: u64, may_be_unwritten: bool) -> Disposition {
        match verdict {
            Verdict::Data => Disposition::Data,
            Verdict::Zeros => Disposition::Zeros,
            Verdict::Unwritten if may_be_unwritten => Disposition::Unwritten,
            Verdict::Mismatch if self.known.contains(&lba) => Disposition::Data,
            Verdict::Mismatch if self.accepted.contains(&lba) => Disposition::Accepted,
            // It was never written, or only by a write that was in progress when the drive stopped.
            Verdict::Mismatch if self.zeroed.covers(&(lba..lba + 1)) => Disposition::Unwritten,
            Verdict::Unwritten | Verdict::Mismatch | Verdict::Foreign => Disposition::Unreadable,
        }
    }
}
