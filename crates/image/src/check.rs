//! Verifies every block of an image, and changes none.

use std::fmt;

use zonda_zoned::{Lba, ZoneIndex};

use crate::disposition::{Disposition, Repairs};
use crate::examine::{Found, examine};
use crate::format::entry::RecordedState;
use crate::load::load;
use crate::media::{Look, Media};
use crate::repair::zones_with_later_blocks;
use crate::{Files, ImageError, ImageFile};

/// Progress of a check or a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Zones completed.
    pub zones: u32,
    /// Total number of zones.
    pub zones_total: u32,
    /// Blocks verified or copied so far.
    pub blocks: u64,
}

/// A defect that a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A block cannot be read: its data or its tag are damaged. Reads of it end with
    /// UnrecoveredReadError.
    Block {
        /// Its zone.
        zone: ZoneIndex,
        /// Its address.
        lba: Lba,
    },
    /// A zone has blocks that were written after a reset which neither checkpoint nor journal
    /// contains: both were restored from an older copy, or are damaged. Opening the drive would
    /// lose these blocks.
    Later {
        /// The zone.
        zone: ZoneIndex,
    },
    /// One of the two copies in a file is damaged; the next opening repairs it.
    Copy {
        /// In which file.
        file: ImageFile,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Block { zone, lba } => write!(
                f,
                "{}: zone {zone}, block {lba}: damaged; its contents are lost, and reads of it fail",
                ImageFile::Data
            ),
            Finding::Later { zone } => write!(
                f,
                "zone {zone} has blocks from after a reset that {} and {} do not contain: these files are from an older \
                 copy, or damaged",
                ImageFile::State,
                ImageFile::Journal
            ),
            Finding::Copy { file } => {
                write!(f, "{file}: one of two copies is damaged; zonda serve repairs it when it opens the drive")
            }
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Whether the drive was shut down in order.
    pub clean: bool,
    /// Blocks verified.
    pub blocks: u64,
    /// Of these, blocks that may have been overwritten when the drive stopped, and do not match
    /// their checksums: opening the drive accepts them as they are, or as zeros if zeros were being
    /// written, and bit rot in them is not detected.
    pub accepted_blocks: u64,
    /// Defects, in the order of the zones; at most
    /// [`limits::FINDINGS_MAX`](crate::limits::FINDINGS_MAX).
    pub findings: Vec<Finding>,
    /// More defects were found than `findings` holds.
    pub more_findings: bool,
}

/// Verifies superblock, checkpoint, journal and every block that was written, and changes nothing.
/// `progress` is called after each zone. The caller holds the image's lock.
///
/// After an unclean stop it verifies the image as opening the drive would recover it.
///
/// # Errors
/// As for [`open`](crate::open): why the image cannot be opened.
pub fn check(files: &mut dyn Files, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport, ImageError> {
    let loaded = load(files)?;
    let mut report = CheckReport { clean: loaded.clean, ..CheckReport::default() };
    for (file, good) in
        [(ImageFile::Superblock, loaded.superblock_copies_good), (ImageFile::State, loaded.checkpoint_copies_good)]
    {
        if good != [true; 2] {
            report.add(Finding::Copy { file });
        }
    }
    zones_with_later_blocks(files, &loaded)?.into_iter().for_each(|zone| report.add(Finding::Later { zone }));
    let examined = examine(files, &loaded)?;
    let repairs = Repairs::of(&examined.repairs, loaded.spec.geometry.zone_size_blocks.0);
    report.accepted_blocks = repairs.accepted_blocks() + examined.emptied_blocks;
    let mut media = Media::new(files, &loaded);
    for ((zone, entry), found) in loaded.ledger.zones().zip(&examined.zones) {
        let Found { written, .. } = *found;
        let may_be_unwritten = entry.had_zrwa || loaded.layout.is_conventional(zone);
        let mut at = if entry.state == RecordedState::Offline { written } else { 0 };
        while at < written {
            let look = if may_be_unwritten { Look::AtEverything } else { Look::AtData };
            let chunk = media.chunk((zone, entry.generation), at, written, look)?;
            at = chunk.end();
            for block in chunk.first..chunk.end() {
                let lba = media.lba(zone, block);
                let verdict = media.verdict(&chunk, zone, entry.generation, block);
                if repairs.disposition(verdict, lba, may_be_unwritten) == Disposition::Unreadable {
                    report.add(Finding::Block { zone, lba: Lba(lba) });
                }
            }
            report.blocks += chunk.blocks;
        }
        progress(CheckProgress { zones: zone.0 + 1, zones_total: loaded.layout.zones, blocks: report.blocks });
    }
    Ok(report)
}

impl CheckReport {
    fn add(&mut self, finding: Finding) {
        if self.findings.len() < crate::limits::FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more_findings = true;
        }
    }
}
