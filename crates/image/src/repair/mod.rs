//! Saves the readable blocks of a damaged image: all blocks that verify are copied into a new
//! image.

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
use scan::{EntryValidity, scan};
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

/// The zones to copy.
struct Plan {
    loaded: Loaded,
    examined: Examined,
    doubts: Vec<Option<ZoneDoubt>>,
    damage: Vec<String>,
}

/// Copies the blocks of a damaged image that verify into a new one with another UUID, which is then
/// as after a clean shutdown. The damaged image is only read. `progress` is called after each zone.
/// The caller holds the locks of both.
///
/// An image that can be opened is copied as opening it would recover it, unless blocks are newer
/// than its checkpoint and journal. Otherwise a repair continues where an opening refuses: missing
/// parts of files are unreadable, and of a damaged journal the records before the damage are
/// applied. A block that does not verify, where a block was or may have been written, is unreadable
/// in the new image too, until it is rewritten or its zone is reset.
///
/// # Errors
/// No good copy of the superblock, so that the files cannot be interpreted; an image in `to`; or an
/// error of writing there. The new image is complete when this returns, and not an image before.
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
                // A read failed.
                salvaged.notes.push(error.message());
            }
            Plan::of(&mut damaged, salvaged)?
        }
    };
    let Plan { mut loaded, examined, doubts, damage } = plan;
    let spec = ImageSpec { uuid, ..loaded.spec.clone() };
    let new_layout = make_files(&spec, to)?;
    assert_eq!(new_layout, layout, "the new image has the geometry of the old one");
    // No block of an offline zone is copied, and a zone that becomes full keeps its blocks.
    let entries = loaded.ledger.entries.clone();
    let (_, finished_zones) = build_table(&mut loaded, &examined.zones);
    note_found(&mut loaded, &examined);
    let report = RepairReport { damage, journal_records: loaded.records, finished_zones, ..RepairReport::default() };
    let mut copier = Copier {
        media: Media::new(&mut damaged, &loaded),
        to,
        layout,
        codec: TagCodec::new(&uuid, layout.block_bytes, spec.geometry.metadata_bytes, layout.tag_bytes),
        repairs: Repairs::of(&examined.repairs, spec.geometry.zone_size_blocks.0),
        report,
    };
    for ((zone, doubt), (entry, found)) in (0..).map(ZoneIndex).zip(doubts).zip(entries.iter().zip(&examined.zones)) {
        let copied = RepairedZone { doubt, ..copier.zone(zone, entry, found.written)? };
        if copied.copied_blocks + copied.unreadable_blocks > 0 || doubt.is_some() {
            copier.report.zones.push(copied);
        }
        let blocks = copier.report.copied_blocks;
        progress(CheckProgress { zones: zone.0 + 1, zones_total: layout.zones, blocks });
    }
    let report = copier.report;
    for file in [ImageFile::Data, ImageFile::Tags] {
        sync(to, file)?;
    }
    complete(&spec, to, &loaded.ledger)?;
    Ok(report)
}

/// The state that an opening recovers; `None` if blocks are newer than checkpoint and journal,
/// which an opening takes for unwritten.
fn opened(files: &mut dyn Files) -> Result<Option<(Loaded, Examined)>, ImageError> {
    let loaded = load(files)?;
    let examined = examine(files, &loaded)?;
    Ok(zones_with_later_blocks(files, &loaded)?.is_empty().then_some((loaded, examined)))
}

impl Plan {
    /// The plan for an image that an opening refuses.
    fn of(damaged: &mut DamagedFiles<'_>, salvaged: Salvaged) -> Result<Plan, ImageError> {
        let Salvaged { mut loaded, is_whole, is_known, impossible, notes } = salvaged;
        let mut examined = Examined::default();
        if is_whole {
            // Blocks that were being overwritten are resolved as an opening would.
            examined.repairs = examine(damaged, &loaded)?.repairs;
        }
        let mut media = Media::new(damaged, &loaded);
        let (mut entries, mut doubts) = (Vec::new(), Vec::new());
        for (zone, &entry) in loaded.ledger.zones() {
            if loaded.layout.is_conventional(zone) {
                entries.push(entry);
                doubts.push(None);
                examined.zones.push(Found { pointer: 0, written: loaded.layout.capacity });
                continue;
            }
            let validity = match (is_whole && impossible.binary_search(&zone).is_err(), is_known[zone.as_usize()]) {
                (true, _) => EntryValidity::Valid,
                (false, true) => EntryValidity::MaybeStale,
                (false, false) => EntryValidity::Unknown,
            };
            let scanned = scan(&mut media, &loaded, zone, validity)?;
            entries.push(scanned.entry);
            doubts.push(scanned.doubt);
            examined.zones.push(scanned.found);
        }
        for &zone in &impossible {
            doubts[zone.as_usize()] = Some(ZoneDoubt::Entry);
        }
        for (zone, entry) in (0..).map(ZoneIndex).zip(&entries) {
            if !entry.has_extension {
                loaded.ledger.extensions.remove(&zone);
            }
        }
        loaded.ledger.entries = entries;
        let mut damage = notes;
        for zone in impossible {
            damage.push(format!("{}: zone {zone} is in a state that is not possible on this drive", ImageFile::State));
        }
        Ok(Plan { loaded, examined, doubts, damage })
    }
}
