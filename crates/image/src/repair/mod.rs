//! Saving what can be read of a damaged image: everything that verifies is copied into a new one.

mod copy;
mod damaged;
mod report;
mod salvage;
mod scan;

pub use report::{RepairReport, RepairedZone, ZoneDoubt};

use copy::Copier;
use damaged::DamagedFiles;
use salvage::{Salvaged, salvage};
pub(crate) use scan::zones_with_later_blocks;
use scan::{Knowledge, scan};
use zonda_zoned::ZoneIndex;

use crate::create::{complete, make_files, sync};
use crate::disposition::Repairs;
use crate::examine::{Examined, Found, build_table, examine};
use crate::format::layout::Layout;
use crate::format::superblock;
use crate::format::tag::TagCodec;
use crate::load::{Loaded, load};
use crate::media::Media;
use crate::open::note_found;
use crate::{CheckProgress, Files, ImageError, ImageFile, ImageSpec};

/// Zones as they are to be copied.
struct Plan {
    loaded: Loaded,
    examined: Examined,
    doubts: Vec<Option<ZoneDoubt>>,
    damage: Vec<String>,
}

/// Copies what verifies of a damaged image into a new one with another UUID, which is then as if it had been stopped in order.
/// The damaged one is read and not changed. `progress` is called after each zone. The caller holds the locks of both.
///
/// An image that can be opened is copied as opening it would find it, unless blocks are newer than its checkpoint and journal.
/// Else it goes on where an opening refuses: what is missing of a file is unreadable, and of a journal that is damaged the
/// records before are applied. A block that does not verify, where one was written or may have been, is unreadable in the new
/// image too, and so it is until it is written again or its zone is reset.
///
/// # Errors
/// Without a good copy of the superblock nobody knows what the files hold; or an image in `to`, or what the system said of writing
/// there. The new image is complete when this returns, and none before.
pub fn repair(
    files: &mut dyn Files,
    to: &mut dyn Files,
    uuid: [u8; 16],
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<RepairReport, ImageError> {
    let superblock = superblock::read(files)?;
    let layout = Layout::new(&superblock.spec.geometry, superblock.spec.journal_bytes);
    let opened = opened(files);
    let mut damaged = DamagedFiles::new(files, layout);
    let plan = match opened {
        Ok(Some((loaded, examined))) => {
            let doubts = vec![None; examined.zones.len()];
            Plan { loaded, examined, doubts, damage: Vec::new() }
        }
        unusable => {
            let mut salvaged = salvage(&mut damaged, &superblock, layout);
            salvaged.compare_with_blocks(&mut damaged)?;
            if let Err(error) = unusable
                && salvaged.notes.is_empty()
                && salvaged.impossible.is_empty()
            {
                // The system could not read something.
                salvaged.notes.push(error.message());
            }
            Plan::of(&mut damaged, salvaged)?
        }
    };
    let Plan { mut loaded, examined, doubts, damage } = plan;
    let spec = ImageSpec { uuid, ..loaded.spec.clone() };
    let new_layout = make_files(&spec, to)?;
    assert_eq!(new_layout, layout, "the new image has the geometry of the old one");
    // Of an offline zone nothing is copied, and a zone that becomes full keeps its blocks.
    let entries = loaded.ledger.entries.clone();
    let (_, finished_zones) = build_table(&mut loaded, &examined.zones);
    note_found(&mut loaded, &examined);
    let report = RepairReport { damage, journal_records: loaded.records, finished_zones, ..RepairReport::default() };
    let mut copier = Copier {
        media: Media::new(&mut damaged, &loaded),
        to,
        layout,
        codec: TagCodec::new(&uuid, layout.block_bytes, spec.geometry.metadata_bytes, layout.tag_bytes),
        repairs: Repairs::of(&examined.mends, spec.geometry.zone_size_blocks.0),
        report,
    };
    for ((zone, doubt), (entry, found)) in (0..).zip(doubts).zip(entries.iter().zip(&examined.zones)) {
        let copied = RepairedZone { doubt, ..copier.zone(zone, entry, found.written)? };
        if copied.copied_blocks + copied.unreadable_blocks > 0 || doubt.is_some() {
            copier.report.zones.push(copied);
        }
        let blocks = copier.report.copied_blocks;
        progress(CheckProgress { zones: zone + 1, zones_total: layout.zones, blocks });
    }
    let report = copier.report;
    for file in [ImageFile::Data, ImageFile::Tags] {
        sync(to, file)?;
    }
    complete(&spec, to, &loaded.ledger)?;
    Ok(report)
}

/// What an opening finds; nothing if it takes blocks for unwritten that are newer than checkpoint and journal.
fn opened(files: &mut dyn Files) -> Result<Option<(Loaded, Examined)>, ImageError> {
    let loaded = load(files)?;
    let examined = examine(files, &loaded)?;
    Ok(zones_with_later_blocks(files, &loaded)?.is_empty().then_some((loaded, examined)))
}

impl Plan {
    /// What is to be copied of an image that an opening refuses.
    fn of(damaged: &mut DamagedFiles<'_>, salvaged: Salvaged) -> Result<Plan, ImageError> {
        let Salvaged { mut loaded, is_whole, is_known, impossible, notes } = salvaged;
        let mut examined = Examined::default();
        if is_whole {
            // What was being overwritten is taken as an opening would take it.
            examined.mends = examine(damaged, &loaded)?.mends;
        }
        let mut media = Media::new(damaged, &loaded);
        let (mut entries, mut doubts) = (Vec::new(), Vec::new());
        for (zone, &entry) in (0..).zip(&loaded.ledger.entries) {
            if zone < loaded.layout.conventional {
                entries.push(entry);
                doubts.push(None);
                examined.zones.push(Found { pointer: 0, written: loaded.layout.capacity });
                continue;
            }
            let knowledge = match (is_whole && impossible.binary_search(&zone).is_err(), is_known[zone as usize]) {
                (true, _) => Knowledge::Whole,
                (false, true) => Knowledge::Earlier,
                (false, false) => Knowledge::None,
            };
            let scanned = scan(&mut media, &loaded, zone, knowledge)?;
            entries.push(scanned.entry);
            doubts.push(scanned.doubt);
            examined.zones.push(scanned.found);
        }
        for &zone in &impossible {
            doubts[zone as usize] = Some(ZoneDoubt::Entry);
        }
        for (zone, entry) in (0..).zip(&entries) {
            if !entry.has_extension {
                loaded.ledger.extensions.remove(&zone);
            }
        }
        loaded.ledger.entries = entries;
        let mut damage = notes;
        for zone in impossible.into_iter().map(ZoneIndex) {
            damage.push(format!("{}: zone {zone} is in a state that this drive does not have", ImageFile::State));
        }
        Ok(Plan { loaded, examined, doubts, damage })
    }
}
