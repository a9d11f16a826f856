//! Opens an image: recovers from a crash, and records the recovered state before the first command.

use zonda_zoned::ZoneIndex;

use crate::bugs::{Seeded, SeededBug};
use crate::create::{sync, write};
use crate::examine::{BlockRepair, Examined, build_table, examine};
use crate::format::entry::add;
use crate::format::layout::Layout;
use crate::format::record::{HEADER_BYTES, MARK_STRIDE, MARKS_BYTES, encode_mark};
use crate::format::{checkpoint, superblock};
use crate::load::{Loaded, load_seeded};
use crate::machine::Start;
use crate::{FileError, Files, Image, ImageError, ImageFile};

/// What opening an image found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The drive had been shut down cleanly; no scan was needed.
    pub clean: bool,
    /// Records in the journal.
    pub journal_records: u64,
    /// Blocks found behind those recorded as synced.
    pub found_blocks: u64,
    /// Blocks that were never acknowledged, and are dropped: behind a write pointer, or
    /// written in place, where their tags find no space on a full file system.
    pub dropped_blocks: u64,
    /// Blocks that were being overwritten and are accepted as they are, or that were being written
    /// as zeros and whose data were discarded.
    pub accepted_blocks: u64,
    /// Blocks whose contents were rewritten from the journal.
    pub rewritten_blocks: u64,
    /// Zones that became full because no active resource was left for them.
    pub finished_zones: Vec<ZoneIndex>,
    /// The damaged copy of the superblock was rewritten.
    pub superblock_repaired: bool,
    /// The image had an older format version, and was converted to the current one: older programs
    /// refuse it.
    pub converted: bool,
    /// One copy of the checkpoint was damaged, or not written completely; both are good now.
    pub checkpoint_repaired: bool,
}

/// Opens an image. When this returns, recovery is complete and synced; an interrupted opening can
/// be repeated. The caller must hold the lock of the image: two programs with the same image open
/// destroy it.
///
/// # Errors
/// Why the image is refused, and the remedy.
pub fn open(files: &mut dyn Files) -> Result<(Image, RecoveryReport), ImageError> {
    open_seeded(files, Seeded::NONE)
}

pub(crate) fn open_seeded(files: &mut dyn Files, bug: Seeded) -> Result<(Image, RecoveryReport), ImageError> {
    let mut loaded = load_seeded(files, bug)?;
    let mut report = RecoveryReport {
        clean: loaded.clean,
        journal_records: loaded.records,
        superblock_repaired: loaded.superblock_copies_good != [true; 2],
        converted: (0..2).any(|copy| loaded.superblock_copies_good[copy] && !loaded.superblock_copies_current[copy]),
        checkpoint_repaired: loaded.checkpoint_copies_good != [true; 2],
        rewritten_blocks: loaded.logged.blocks(),
        ..RecoveryReport::default()
    };
    // The creation may have been killed before its last sync.
    sync(files, ImageFile::Superblock)?;
    if !loaded.clean {
        // Records may be only in the page cache: writes that depend on them must not outlive them.
        sync(files, ImageFile::Journal)?;
    }
    loaded.logged.write(files, &loaded.layout, &loaded.codec, loaded.spec.geometry.zone_size_blocks.0)?;
    let mut examined = examine(files, &loaded)?;
    if bug.has(SeededBug::KeptTags) {
        examined.repairs.retain(|repair| !matches!(repair, BlockRepair::Clear { .. }));
    }
    report.found_blocks = examined.found_blocks;
    report.dropped_blocks = examined.dropped_blocks;
    report.accepted_blocks = examined.emptied_blocks;
    apply_repairs(files, &loaded.layout, &examined, &mut report)?;
    if !loaded.clean && !bug.has(SeededBug::UnsyncedRecovery) {
        sync(files, ImageFile::Data)?;
        sync(files, ImageFile::Tags)?;
    }
    let (table, finished) = build_table(&mut loaded, &examined.zones);
    report.finished_zones = finished;
    note_found(&mut loaded, &examined);
    let sequence = checkpoint::next_sequence(loaded.sequence);
    let copy = checkpoint::encode(&loaded.layout, &loaded.spec.uuid, sequence, false, &loaded.ledger);
    // The copy that was read may be only in the page cache: it must be durable before the other one
    // is overwritten.
    sync(files, ImageFile::State)?;
    for slot in [1 - loaded.slot, loaded.slot] {
        write(files, ImageFile::State, loaded.layout.slot_offset(slot), &copy)?;
        sync(files, ImageFile::State)?;
    }
    begin_journal(files, &loaded.spec.uuid, sequence)?;
    repair_superblock(files, &loaded)?;
    let Loaded { spec, layout, codec, ledger, .. } = loaded;
    Ok((Image::start(Start { spec, layout, codec, ledger, table, sequence, bug }), report))
}

fn apply_repairs(
    files: &mut dyn Files,
    layout: &Layout,
    examined: &Examined,
    report: &mut RecoveryReport,
) -> Result<(), ImageError> {
    // None of this needs space: holes free some, and a tag replaces one in the same page. A page of
    // tags that was never written has no acknowledged tag, or lost it with the power before a flush:
    // if there is no space for it, its blocks stay unwritten.
    let punch = |files: &mut dyn Files, file, offset, length| {
        let failed = |error| ImageError::File { file, operation: "punch a hole in", error };
        files.punch_hole(file, offset, length).map_err(failed)
    };
    for repair in &examined.repairs {
        match repair {
            BlockRepair::Clear { zone, first, end } => {
                let length = (end - first) * layout.tag_bytes;
                punch(files, ImageFile::Tags, layout.tag_offset(*zone, *first), length)?;
            }
            BlockRepair::Zero { zone, first, end } => {
                let length = (end - first) * layout.block_bytes;
                punch(files, ImageFile::Data, layout.data_offset(*zone, *first), length)?;
            }
            BlockRepair::Accept { zone, block, tag, as_it_is, or_unwritten } => {
                match write(files, ImageFile::Tags, layout.tag_offset(*zone, *block), tag) {
                    Err(ImageError::File { error: FileError::StorageFull, .. }) if *or_unwritten => {
                        punch(files, ImageFile::Data, layout.data_offset(*zone, *block), layout.block_bytes)?;
                        report.dropped_blocks += 1;
                        continue;
                    }
                    written => written?,
                }
                report.accepted_blocks += u64::from(*as_it_is);
            }
        }
    }
    Ok(())
}

/// Updates the ledger with the blocks that were found and are synced now.
pub(crate) fn note_found(loaded: &mut Loaded, examined: &Examined) {
    let first = loaded.layout.conventional as usize;
    for (entry, found) in loaded.ledger.entries.iter_mut().zip(&examined.zones).skip(first) {
        add(&mut loaded.ledger.counters.host_written_blocks, entry.uncounted(found.pointer));
        if entry.had_zrwa {
            (entry.pointer, entry.written) = (found.pointer, found.written);
            // Blocks that were being written match their tags now.
            entry.persisted = entry.persisted.max(found.written);
        }
        entry.durable = entry.durable.max(found.pointer);
    }
}

/// Writes both marks for the new epoch, and clears the place of its first record. So a checkpoint
/// from before this opening is always recognized as older, and no stale record is so old that it
/// appears to be later when sequences wrap around.
pub(crate) fn begin_journal(files: &mut dyn Files, uuid: &[u8; 16], epoch: u64) -> Result<(), ImageError> {
    let mut start = vec![0; MARKS_BYTES as usize + HEADER_BYTES];
    let mark = encode_mark(uuid, epoch, 0);
    for place in start[..MARKS_BYTES as usize].chunks_exact_mut(MARK_STRIDE as usize) {
        place[..mark.len()].copy_from_slice(&mark);
    }
    write(files, ImageFile::Journal, 0, &start)?;
    sync(files, ImageFile::Journal)
}

/// Rewrites a copy that is damaged or has an older version: the damaged one first, each synced
/// before the next, so that one copy is always good. From then on older programs refuse the image,
/// and cannot drop records that they do not support.
fn repair_superblock(files: &mut dyn Files, loaded: &Loaded) -> Result<(), ImageError> {
    let copy = superblock::encode(&loaded.spec);
    let (good, current) = (loaded.superblock_copies_good, loaded.superblock_copies_current);
    let first = usize::from(good[0]);
    for i in [first, 1 - first].into_iter().filter(|&i| !current[i]) {
        write(files, ImageFile::Superblock, (i * copy.len()) as u64, &copy)?;
        sync(files, ImageFile::Superblock)?;
    }
    Ok(())
}
