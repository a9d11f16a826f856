//! Recovers, from the tags, what a crash left: write pointers, and tags that must be repaired.

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, ZoneIndex};

use crate::format::Generation;
use crate::format::entry::{Entry, RecordedState};
use crate::format::tag::Verdict;
use crate::intended::Resolved;
use crate::load::Loaded;
use crate::media::{Chunk, Look, Media};
use crate::rebuild::{Builder, implicit_commit};
use crate::{Files, ImageError};

/// How far a zone is written, as recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pointer: u64,
    pub(crate) written: u64,
}

/// A change that repairs tags or data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockRepair {
    /// Tags behind a write pointer, of blocks that were never acknowledged.
    Clear { zone: ZoneIndex, first: u64, end: u64 },
    /// Data of blocks that read as zeros without a look at their data, and may be overwritten:
    /// a later recovery must not accept what the data file holds there.
    Zero { zone: ZoneIndex, first: u64, end: u64 },
    /// A tag for a block that was being overwritten: it matches, or the block is accepted
    /// `as_it_is`. If there is no space for the tag, the block becomes unwritten if it may
    /// (`or_unwritten`).
    Accept { zone: ZoneIndex, block: u64, tag: Vec<u8>, as_it_is: bool, or_unwritten: bool },
}

/// The recovered state, and the repairs that it needs.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    pub(crate) zones: Vec<Found>,
    pub(crate) repairs: Vec<BlockRepair>,
    /// Blocks that were being written as zeros, and whose other data become zeros.
    pub(crate) emptied_blocks: u64,
    /// Blocks found behind those that the journal records as synced.
    pub(crate) found_blocks: u64,
    /// Blocks with a tag behind the write pointer.
    pub(crate) dropped_blocks: u64,
}

/// Scans every zone whose tags may have changed since its entry was recorded.
pub(crate) fn examine(files: &mut dyn Files, loaded: &Loaded) -> Result<Examined, ImageError> {
    let mut examined = Examined::default();
    let mut media = Media::new(files, loaded);
    for (zone, entry) in loaded.ledger.zones() {
        let found = if loaded.layout.is_conventional(zone) {
            Found { pointer: 0, written: loaded.layout.capacity }
        } else if loaded.clean || entry.finished || entry.state == RecordedState::Offline {
            known(entry)
        } else if entry.had_zrwa {
            examined.random_writes(&mut media, loaded, zone, entry)?
        } else {
            examined.sequential_writes(&mut media, zone, entry, loaded.layout.capacity)?
        };
        examined.zones.push(found);
    }
    for blocks in loaded.intended.blocks() {
        examined.intended(&mut media, loaded, blocks)?;
    }
    Ok(examined)
}

/// How far a zone is written whose tags need no scan.
pub(crate) fn known(entry: &Entry) -> Found {
    match entry.state {
        RecordedState::Offline => Found::default(),
        _ if entry.finished => Found { pointer: entry.pointer, written: entry.written },
        _ if entry.had_zrwa => Found { pointer: entry.pointer, written: entry.written.max(entry.pointer) },
        _ => Found { pointer: entry.durable, written: entry.durable },
    }
}

impl Examined {
    /// The write pointer is at the first block that is missing or incomplete. Blocks behind it were
    /// never acknowledged, and must not be found again when the zone is written up to them.
    fn sequential_writes(
        &mut self,
        media: &mut Media<'_>,
        zone: ZoneIndex,
        entry: &Entry,
        capacity: u64,
    ) -> Result<Found, ImageError> {
        let end = if entry.state == RecordedState::ReadOnly { entry.pointer } else { capacity };
        let mut pointer = entry.durable;
        let mut at = entry.durable;
        let mut clear: Option<(u64, u64)> = None;
        while let Some(next) = media.next_tagged(zone, at, end)? {
            let chunk = media.chunk((zone, entry.generation), next, end, Look::AtData)?;
            at = chunk.end();
            for block in chunk.first..chunk.end() {
                let verdict = media.verdict(&chunk, zone, entry.generation, block);
                // A block that the disk cannot read may have been acknowledged, and may be readable
                // later.
                let is_unreadable = verdict == Verdict::Mismatch && chunk.is_lost(block);
                if block == pointer && (is_unreadable || matches!(verdict, Verdict::Data | Verdict::Zeros)) {
                    pointer = block + 1;
                } else if matches!(verdict, Verdict::Data | Verdict::Zeros | Verdict::Mismatch) {
                    // Tags of earlier generations may stay: they match no block.
                    self.dropped_blocks += 1;
                    let first = clear.map_or(block, |(first, _)| first);
                    clear = Some((first, block + 1));
                }
            }
        }
        if let Some((first, end)) = clear {
            self.repairs.push(BlockRepair::Clear { zone, first, end });
        }
        self.found_blocks += pointer - entry.durable;
        Ok(Found { pointer, written: pointer })
    }

    /// In a ZRWA blocks are written in any order, and in place: the last one written shows how far
    /// implicit commits have moved the write pointer. A block that does not match its tag was being
    /// written, unless it was flushed since.
    fn random_writes(
        &mut self,
        media: &mut Media<'_>,
        loaded: &Loaded,
        zone: ZoneIndex,
        entry: &Entry,
    ) -> Result<Found, ImageError> {
        let capacity = loaded.layout.capacity;
        // Tags show how far a zone was written, but the last ones may be lost.
        let mut written = entry.written.max(entry.persisted);
        let unpersisted_from = unpersisted_from(loaded, entry);
        let mut at = entry.durable;
        while at < capacity {
            let next = media.next_tagged(zone, at, capacity)?.unwrap_or(capacity);
            if next > at.max(unpersisted_from) {
                self.repairs.push(BlockRepair::Zero { zone, first: at.max(unpersisted_from), end: next });
            }
            at = next;
            if at == capacity {
                break;
            }
            let chunk = media.chunk((zone, entry.generation), at, capacity, Look::AtData)?;
            at = chunk.end();
            for block in chunk.first..chunk.end() {
                let verdict = media.verdict(&chunk, zone, entry.generation, block);
                if block >= unpersisted_from {
                    // A block without a tag becomes zeros.
                    let resolve = |_: &[u8], _: &[u8]| Resolved::AsItIs { or_unwritten: false };
                    self.repair_overwritten(media, &chunk, entry.generation, (zone, block), resolve);
                }
                if verdict != Verdict::Unwritten {
                    written = written.max(block + 1);
                    self.found_blocks += 1;
                }
            }
        }
        let pointer = entry.pointer.max(entry.durable).max(implicit_commit(&loaded.spec.geometry, written));
        Ok(Found { pointer, written: written.max(pointer) })
    }

    /// Blocks, by LBA, that an intent names.
    fn intended(
        &mut self,
        media: &mut Media<'_>,
        loaded: &Loaded,
        blocks: std::ops::Range<u64>,
    ) -> Result<(), ImageError> {
        let zone_size = loaded.spec.geometry.zone_size_blocks.0;
        let mut lba = blocks.start;
        while lba < blocks.end {
            let (zone, first) = (ZoneIndex((lba / zone_size) as u32), lba % zone_size);
            let end = loaded.layout.capacity.min(first + (blocks.end - lba));
            lba = (u64::from(zone.0) + 1) * zone_size;
            let entry = &loaded.ledger.entries[zone.as_usize()];
            if entry.finished || entry.state == RecordedState::Offline {
                continue;
            }
            // Blocks that were not flushed are uncertain without an intent, and were scanned. A
            // failed flush may have left an intent for them.
            let end = if loaded.layout.is_conventional(zone) { end } else { end.min(unpersisted_from(loaded, entry)) };
            let mut at = first;
            while at < end {
                let chunk = media.chunk((zone, entry.generation), at, end, Look::AtEverything)?;
                at = chunk.end();
                for block in chunk.first..chunk.end() {
                    let lba = media.lba(zone, block);
                    let resolve = |tag: &[u8], data: &[u8]| {
                        loaded.intended.resolve(&loaded.codec, lba, entry.generation, tag, data)
                    };
                    self.repair_overwritten(media, &chunk, entry.generation, (zone, block), resolve);
                }
            }
        }
        Ok(())
    }

    /// A block that may have been overwritten when the drive stopped.
    fn repair_overwritten(
        &mut self,
        media: &Media<'_>,
        chunk: &Chunk,
        generation: Generation,
        (zone, block): (ZoneIndex, u64),
        resolve: impl Fn(&[u8], &[u8]) -> Resolved,
    ) {
        match media.verdict(chunk, zone, generation, block) {
            Verdict::Mismatch => {
                let Some(data) = media.contents(chunk, block) else { return };
                let (tag, as_it_is, or_unwritten) = match resolve(media.tag(chunk, block), data) {
                    Resolved::Fits { tag, or_unwritten } => (tag, false, or_unwritten),
                    Resolved::Zeros => {
                        self.emptied_blocks += 1;
                        return self.zero(zone, block);
                    }
                    Resolved::AsItIs { or_unwritten } => {
                        (media.accepted(chunk, zone, generation, block), true, or_unwritten)
                    }
                    Resolved::Neither => return,
                };
                self.repairs.push(BlockRepair::Accept { zone, block, tag, as_it_is, or_unwritten });
            }
            Verdict::Unwritten | Verdict::Zeros => self.zero(zone, block),
            Verdict::Data | Verdict::Foreign => {}
        }
    }

    fn zero(&mut self, zone: ZoneIndex, block: u64) {
        match self.repairs.last_mut() {
            Some(BlockRepair::Zero { zone: same, end, .. }) if *same == zone && *end == block => *end += 1,
            _ => self.repairs.push(BlockRepair::Zero { zone, first: block, end: block + 1 }),
        }
    }
}

/// In a zone with a ZRWA, blocks below this one were flushed; those that were being overwritten
/// since are named by intents.
fn unpersisted_from(loaded: &Loaded, entry: &Entry) -> u64 {
    if loaded.layout.logs_contents { loaded.layout.capacity } else { entry.persisted.max(entry.durable) }
}

/// Builds the zone table from the recovered zones. A zone that can only be active, with no active
/// resource or ZRWA left for it, becomes full, and so does its entry: see the format document.
pub(crate) fn build_table(loaded: &mut Loaded, found: &[Found]) -> (ZoneTable, Vec<ZoneIndex>) {
    let geometry = &loaded.spec.geometry;
    let mut table = ZoneTable::new(geometry.clone());
    let builder = Builder::new(geometry);
    let mut finished = Vec::new();
    for zone in (0..loaded.layout.conventional).map(ZoneIndex) {
        table.set_written(zone, Blocks(loaded.layout.capacity)).expect("a conventional zone has no limits");
    }
    let mut zones: Vec<ZoneIndex> = loaded.layout.sequential_zones().collect();
    // Zones that the journal describes come first, then the emptiest: the fullest zones are those
    // that a torn write left.
    zones.sort_by_key(|&zone| {
        let entry = &loaded.ledger.entries[zone.as_usize()];
        let known = entry.has_extension || entry.has_zrwa || entry.durable > 0;
        (!known, found[zone.as_usize()].pointer, zone)
    });
    for zone in zones {
        let entry = &mut loaded.ledger.entries[zone.as_usize()];
        let Found { pointer, written } = found[zone.as_usize()];
        if *entry == (Entry { generation: entry.generation, wear: entry.wear, ..Entry::default() }) && pointer == 0 {
            continue;
        }
        let extension = loaded.ledger.extensions.get(&zone).map(|extension| &extension[..]);
        if table.restore(zone, &builder.zone(entry, extension, pointer, written)) {
            continue;
        }
        (entry.state, entry.finished) = (RecordedState::Finished, true);
        entry.has_zrwa = false;
        (entry.pointer, entry.written) = (pointer, written);
        let restored = table.restore(zone, &builder.zone(entry, extension, pointer, written));
        assert!(restored, "a full zone holds no resources");
        finished.push(zone);
    }
    finished.sort_unstable();
    (table, finished)
}
