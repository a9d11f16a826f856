//! Scans a zone of a damaged image for its generation, and for how far it may have been written.

use zonda_zoned::ZoneIndex;

use super::report::ZoneDoubt;
use crate::examine::{Found, known};
use crate::format::Generation;
use crate::format::entry::{Entry, RecordedState};
use crate::format::tag::Verdict;
use crate::load::Loaded;
use crate::logged::Logged;
use crate::media::{Look, Media};
use crate::rebuild::implicit_commit;
use crate::{Files, ImageError};

/// The result of scanning a zone.
pub(super) struct Scanned {
    pub(super) entry: Entry,
    pub(super) found: Found,
    pub(super) doubt: Option<ZoneDoubt>,
}

/// Whether an entry can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryValidity {
    /// It is complete.
    Valid,
    /// The zone may have been reset since.
    MaybeStale,
    /// It is lost or invalid.
    Unknown,
}

/// Scans a sequential zone.
pub(super) fn scan(
    media: &mut Media<'_>,
    loaded: &Loaded,
    zone: ZoneIndex,
    validity: EntryValidity,
) -> Result<Scanned, ImageError> {
    let mut entry = loaded.ledger.entries[zone.as_usize()];
    if entry.state == RecordedState::Offline || validity == EntryValidity::Valid && (loaded.clean || entry.finished) {
        return Ok(Scanned { entry, found: known(&entry), doubt: None });
    }
    let mut doubt = None;
    if validity != EntryValidity::Valid {
        let least = (validity == EntryValidity::MaybeStale).then_some(entry.generation);
        match newest_generation(media, loaded, zone, least)? {
            Some(newest) if least.is_none() || newest != entry.generation.as_in_tags() => {
                let generation = entry.generation.advance_to(newest);
                entry = Entry { generation, wear: entry.wear, ..Entry::default() };
                doubt = Some(ZoneDoubt::Generation);
            }
            Some(_) => {}
            None if entry.durable.max(entry.pointer) > 0 => doubt = Some(ZoneDoubt::NothingLeft),
            None => {}
        }
        if !entry.had_zrwa {
            (entry.pointer, entry.written) = (entry.pointer.max(entry.written), entry.pointer.max(entry.written));
        }
        if entry.finished {
            let stood = known(&entry);
            let from = Entry { durable: stood.written.max(stood.pointer), ..entry };
            let is_permanent = entry.state == RecordedState::ReadOnly;
            if is_permanent || written_up_to(media, loaded, zone, &from, loaded.layout.capacity)?.end == from.durable {
                return Ok(Scanned { entry, found: stood, doubt });
            }
            // Blocks lie behind its end: it was reset since, and its generation cannot be read.
            entry = Entry { generation: entry.generation, wear: entry.wear, durable: from.durable, ..Entry::default() };
        }
    }
    let is_bounded = entry.state == RecordedState::ReadOnly && !entry.had_zrwa;
    let end = if is_bounded { entry.pointer } else { loaded.layout.capacity };
    let extent = written_up_to(media, loaded, zone, &entry, end)?;
    if extent.end > extent.sure {
        doubt = doubt.or(Some(ZoneDoubt::Extent));
    }
    let found = if entry.had_zrwa {
        let written = entry.written.max(entry.persisted).max(extent.end);
        let pointer = entry.pointer.max(entry.durable).max(implicit_commit(&loaded.spec.geometry, written));
        Found { pointer, written: written.max(pointer) }
    } else {
        Found { pointer: extent.end, written: extent.end }
    };
    Ok(Scanned { entry, found, doubt })
}

/// The zones with blocks of a later generation than in checkpoint and journal. A reset is recorded
/// and synced before a block is written: so records are missing, and resets of other zones may be,
/// too.
pub(crate) fn zones_with_later_blocks(files: &mut dyn Files, loaded: &Loaded) -> Result<Vec<ZoneIndex>, ImageError> {
    // Journaled contents have no later generation than the journal.
    let nothing = Logged::default();
    let mut media = Media::with(files, loaded, &nothing);
    let mut later = Vec::new();
    for zone in loaded.layout.sequential_zones() {
        let entry = &loaded.ledger.entries[zone.as_usize()];
        let newest = newest_generation(&mut media, loaded, zone, Some(entry.generation))?;
        if entry.state != RecordedState::Offline && newest.is_some_and(|newest| newest != entry.generation.as_in_tags())
        {
            later.push(zone);
        }
    }
    Ok(later)
}

/// The newest generation, not older than `least`, of which a block of the zone verifies.
fn newest_generation(
    media: &mut Media<'_>,
    loaded: &Loaded,
    zone: ZoneIndex,
    least: Option<Generation>,
) -> Result<Option<Generation>, ImageError> {
    let capacity = loaded.layout.capacity;
    let mut newest: Option<Generation> = None;
    let mut at = 0;
    while let Some(next) = media.next_tagged(zone, at, capacity)? {
        let chunk = media.chunk((zone, Generation::default()), next, capacity, Look::Nowhere)?;
        at = chunk.end();
        for block in chunk.first..chunk.end() {
            let Some(claimed) = loaded.codec.claimed_generation(chunk.tag(block, loaded.layout.tag_bytes)) else {
                continue;
            };
            let is_news = newest.is_none_or(|newest| claimed.is_later_than(newest))
                && least.is_none_or(|least| !least.is_later_than(claimed));
            if is_news && verifies(media, zone, claimed, block)? {
                newest = Some(claimed);
            }
        }
    }
    Ok(newest)
}

fn verifies(media: &mut Media<'_>, zone: ZoneIndex, generation: Generation, block: u64) -> Result<bool, ImageError> {
    let chunk = media.chunk((zone, generation), block, block + 1, Look::AtData)?;
    Ok(matches!(media.verdict(&chunk, zone, generation, block), Verdict::Data | Verdict::Zeros))
}

/// How far a zone was written.
struct Extent {
    /// Blocks from here on were not written.
    end: u64,
    /// The last block before `end` was written.
    sure: u64,
}

/// An opening ends a zone at the first block that is missing or incomplete. Here files are damaged,
/// and such a block may have been acknowledged: the zone ends behind the last block that has a tag
/// or data, and blocks before that do not verify are unreadable.
fn written_up_to(
    media: &mut Media<'_>,
    loaded: &Loaded,
    zone: ZoneIndex,
    entry: &Entry,
    end: u64,
) -> Result<Extent, ImageError> {
    let mut extent = Extent { end: entry.durable, sure: entry.durable };
    // Data before this block are a hole: tags of many blocks that were never written may be
    // missing.
    let mut filled_from = 0;
    let mut at = entry.durable;
    while let Some(next) = media.next_tagged(zone, at, end)? {
        let chunk = media.chunk((zone, entry.generation), next, end, Look::AtData)?;
        at = chunk.end();
        for block in chunk.first..chunk.end() {
            match media.verdict(&chunk, zone, entry.generation, block) {
                Verdict::Data | Verdict::Zeros => extent = Extent { end: block + 1, sure: block + 1 },
                Verdict::Mismatch => extent.end = block + 1,
                Verdict::Unwritten => {}
                Verdict::Foreign => {
                    let claimed = loaded.codec.claimed_generation(chunk.tag(block, loaded.layout.tag_bytes));
                    // Blocks from before the last reset match no tag of this generation.
                    let is_left_over = match claimed {
                        Some(claimed) => verifies(media, zone, claimed, block)?,
                        None => false,
                    };
                    if block >= filled_from {
                        filled_from = media.next_filled(zone, block)?;
                    }
                    // Without metadata a written block of zeros looks like an unwritten one.
                    let is_nothing =
                        loaded.codec.metadata_bytes() == 0 && (block < filled_from || media.is_blank(zone, block));
                    if !is_left_over && !is_nothing {
                        extent.end = block + 1;
                    }
                }
            }
        }
    }
    Ok(extent)
}
