//! What becomes of each block when an image is opened: asked by a check, and by a repair.

use std::collections::BTreeSet;

use crate::examine::Mend;
use crate::format::tag::Verdict;
use crate::ranges::RangeSet;

/// Blocks that an opening would repair, by LBA.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// Taken as they are.
    accepted: BTreeSet<u64>,
    /// As before an overwrite that was in progress, or as it was to make them.
    known: BTreeSet<u64>,
    zeroed: RangeSet,
}

/// What becomes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Its data fit its tag, or the one before or after an overwrite that was in progress.
    Data,
    /// It was being overwritten, and is taken as it is.
    Accepted,
    /// It was written as zeros.
    Zeros,
    Unwritten,
    Unreadable,
}

impl Repairs {
    pub(crate) fn of(mends: &[Mend], zone_size: u64) -> Repairs {
        let mut repairs = Repairs::default();
        for mend in mends {
            match *mend {
                Mend::Accept { zone, block, as_it_is, .. } => {
                    let blocks = if as_it_is { &mut repairs.accepted } else { &mut repairs.known };
                    blocks.insert(u64::from(zone) * zone_size + block);
                }
                Mend::Zero { zone, first, end } => {
                    let start = u64::from(zone) * zone_size;
                    repairs.zeroed.insert(start + first..start + end);
                }
                // Behind a write pointer nothing is looked at.
                Mend::Clear { .. } => {}
            }
        }
        repairs
    }

    /// How many blocks are taken as they are.
    pub(crate) fn accepted_blocks(&self) -> u64 {
        self.accepted.len() as u64
    }

    /// What becomes of a block before the end of its zone.
    pub(crate) fn disposition(&self, verdict: Verdict, lba: u64, may_be_unwritten: bool) -> Disposition {
        match verdict {
            Verdict::Data => Disposition::Data,
            Verdict::Zeros => Disposition::Zeros,
            Verdict::Unwritten if may_be_unwritten => Disposition::Unwritten,
            Verdict::Mismatch if self.known.contains(&lba) => Disposition::Data,
            Verdict::Mismatch if self.accepted.contains(&lba) => Disposition::Accepted,
            // It was never written but for what was in progress when the drive stopped.
            Verdict::Mismatch if self.zeroed.covers(&(lba..lba + 1)) => Disposition::Unwritten,
            Verdict::Unwritten | Verdict::Mismatch | Verdict::Foreign => Disposition::Unreadable,
        }
    }
}
