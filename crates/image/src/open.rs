//! Opening an image: what a crash left is found, mended and written down before the first command.

use zonda_zoned::ZoneIndex;

use crate::bugs::SeededBug;
use crate::create::{sync, write};
use crate::examine::{Examined, Mend, build_table, examine};
use crate::format::entry::add;
use crate::format::layout::Layout;
use crate::format::record::{HEADER_BYTES, MARK_STRIDE, MARKS_BYTES, encode_mark};
use crate::format::{checkpoint, superblock};
use crate::load::{Loaded, load_with_bug};
use crate::machine::Start;
use crate::{Files, Image, ImageError, ImageFile};

/// What opening an image found and mended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The drive had been shut down in order; nothing had to be looked for.
    pub clean: bool,
    /// Records that the journal held.
    pub journal_records: u64,
    /// Blocks found behind what was known to be synced.
    pub found_blocks: u64,
    /// Blocks behind a write pointer that were never acknowledged, and are gone.
    pub dropped_blocks: u64,
    /// Blocks that were being overwritten and are accepted as they are.
    pub accepted_blocks: u64,
    /// Blocks whose contents were written again from the journal.
    pub rewritten_blocks: u64,
    /// Zones that came back full because no active resource was left for them.
    pub finished_zones: Vec<ZoneIndex>,
    /// The damaged copy of the superblock was written again.
    pub superblock_mended: bool,
    /// The image was of an older format version, and has that of this program now: older programs refuse it.
    pub converted: bool,
    /// One copy of the checkpoint was damaged, or had not been written to its end; both are good now.
    pub checkpoint_mended: bool,
}

/// Opens an image. Everything that a crash left is mended and synced when this returns; if it is broken off, it can be
/// done again. The image must be locked by the caller: two programs with the same image open destroy it.
///
/// # Errors
/// Why the image is refused, and what to do.
pub fn open(files: &mut dyn Files) -> Result<(Image, RecoveryReport), ImageError> {
    open_with_bug(files, None)
}

/// As [`open`], with a bug planted in the opening and in the drive, so that a tester can show that it would be found.
///
/// # Errors
/// As for [`open`].
#[doc(hidden)]
pub fn open_with_bug(files: &mut dyn Files, bug: Option<SeededBug>) -> Result<(Image, RecoveryReport), ImageError> {
    let mut loaded = load_with_bug(files, bug)?;
    let mut report = RecoveryReport {
        clean: loaded.clean,
        journal_records: loaded.records,
        superblock_mended: loaded.superblock_copies_good != [true; 2],
        converted: (0..2).any(|copy| loaded.superblock_copies_good[copy] && !loaded.superblock_copies_current[copy]),
        checkpoint_mended: loaded.checkpoint_copies_good != [true; 2],
        rewritten_blocks: loaded.logged.blocks(),
        ..RecoveryReport::default()
    };
    // A creation may have been killed before its last sync.
    sync(files, ImageFile::Superblock)?;
    if !loaded.clean {
        // Records may be in the page cache alone: what is written because of them must not outlive them.
        sync(files, ImageFile::Journal)?;
    }
    loaded.logged.write(files, &loaded.layout, &loaded.codec, loaded.spec.geometry.zone_size_blocks.0)?;
    let mut examined = examine(files, &loaded)?;
    if bug == Some(SeededBug::KeptTags) {
        examined.mends.retain(|mend| !matches!(mend, Mend::Clear { .. }));
    }
    report.found_blocks = examined.found_blocks;
    report.dropped_blocks = examined.dropped_blocks;
    mend(files, &loaded.layout, &examined, &mut report)?;
    if !loaded.clean && bug != Some(SeededBug::UnsyncedRecovery) {
        sync(files, ImageFile::Data)?;
        sync(files, ImageFile::Tags)?;
    }
    let (table, finished) = build_table(&mut loaded, &examined.zones);
    report.finished_zones = finished;
    note_found(&mut loaded, &examined);
    let sequence = checkpoint::next_sequence(loaded.sequence);
    let copy = checkpoint::encode(&loaded.layout, &loaded.spec.uuid, sequence, false, &loaded.ledger);
    // The copy that was read may be in the page cache alone: it must last while the other one is written over.
    sync(files, ImageFile::State)?;
    for slot in [1 - loaded.slot, loaded.slot] {
        write(files, ImageFile::State, loaded.layout.slot_offset(slot), &copy)?;
        sync(files, ImageFile::State)?;
    }
    begin_journal(files, &loaded.spec.uuid, sequence)?;
    mend_superblock(files, &loaded)?;
    let Loaded { spec, layout, codec, ledger, .. } = loaded;
    Ok((Image::start(Start { spec, layout, codec, ledger, table, sequence, bug }), report))
}

fn mend(
    files: &mut dyn Files,
    layout: &Layout,
    examined: &Examined,
    report: &mut RecoveryReport,
) -> Result<(), ImageError> {
    // Nothing of this needs space: holes give some back, and a tag goes where one was.
    let punch = |files: &mut dyn Files, file, offset, length| {
        let failed = |error| ImageError::File { file, doing: "punching a hole", error };
        files.punch_hole(file, offset, length).map_err(failed)
    };
    for mend in &examined.mends {
        match mend {
            Mend::Clear { zone, first, end } => {
                let length = (end - first) * layout.tag_bytes;
                punch(files, ImageFile::Tags, layout.tag_offset(*zone, *first), length)?;
            }
            Mend::Zero { zone, first, end } => {
                let length = (end - first) * layout.block_bytes;
                punch(files, ImageFile::Data, layout.data_offset(*zone, *first), length)?;
            }
            Mend::Accept { zone, block, tag, as_it_is } => {
                write(files, ImageFile::Tags, layout.tag_offset(*zone, *block), tag)?;
                report.accepted_blocks += u64::from(*as_it_is);
            }
        }
    }
    Ok(())
}

/// Brings the ledger up to what was found and is synced now.
pub(crate) fn note_found(loaded: &mut Loaded, examined: &Examined) {
    let first = loaded.layout.conventional as usize;
    for (entry, found) in loaded.ledger.entries.iter_mut().zip(&examined.zones).skip(first) {
        add(&mut loaded.ledger.counters.host_written_blocks, entry.uncounted(found.pointer));
        if entry.had_zrwa {
            (entry.pointer, entry.written) = (found.pointer, found.written);
            // What was being written fits its tags now.
            entry.settled = entry.settled.max(found.written);
        }
        entry.durable = entry.durable.max(found.pointer);
    }
}

/// Both marks speak of the new epoch, and no record lies where its first one belongs. So a checkpoint from before this
/// opening is known as such for ever, and nothing left over is so old that, as numbers go round, it comes to be later.
pub(crate) fn begin_journal(files: &mut dyn Files, uuid: &[u8; 16], epoch: u64) -> Result<(), ImageError> {
    let mut start = vec![0; MARKS_BYTES as usize + HEADER_BYTES];
    let mark = encode_mark(uuid, epoch, 0);
    for place in start[..MARKS_BYTES as usize].chunks_exact_mut(MARK_STRIDE as usize) {
        place[..mark.len()].copy_from_slice(&mark);
    }
    write(files, ImageFile::Journal, 0, &start)?;
    sync(files, ImageFile::Journal)
}

/// A copy that is damaged or of an older version is written again: the damaged one first, each synced before the next, so that
/// there is always a good one. When this returns no older program opens the image, and forgets what it does not know.
fn mend_superblock(files: &mut dyn Files, loaded: &Loaded) -> Result<(), ImageError> {
    let copy = superblock::encode(&loaded.spec);
    let (good, current) = (loaded.superblock_copies_good, loaded.superblock_copies_current);
    let first = usize::from(good[0]);
    for i in [first, 1 - first].into_iter().filter(|&i| !current[i]) {
        write(files, ImageFile::Superblock, (i * copy.len()) as u64, &copy)?;
        sync(files, ImageFile::Superblock)?;
    }
    Ok(())
}
