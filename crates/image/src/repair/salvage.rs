//! Salvages checkpoint and journal where an opening would refuse them.

use zonda_zoned::ZoneIndex;

use super::damaged::DamagedFiles;
use super::scan::zones_with_later_blocks;
use crate::bugs::Seeded;
use crate::format::Generation;
use crate::format::checkpoint::{self, Checkpoint, SLOT_HEADER_BYTES, is_later};
use crate::format::entry::{Entry, Ledger};
use crate::format::layout::Layout;
use crate::format::record::{Decoded, FlushedPointer, Kind, MARKS_BYTES, Record};
use crate::format::superblock::Superblock;
use crate::format::tag::TagCodec;
use crate::intended::Intended;
use crate::load::{Loaded, epochs};
use crate::logged::Logged;
use crate::{ImageError, ImageFile};

/// Zones as far as checkpoint and journal describe them.
pub(super) struct Salvaged {
    pub(super) loaded: Loaded,
    /// No synced record is missing: zones have the generations of their entries.
    pub(super) is_whole: bool,
    /// Zones with a known entry; they have been reset at least as often as it says.
    pub(super) is_known: Vec<bool>,
    /// Zones with invalid entries.
    pub(super) impossible: Vec<ZoneIndex>,
    /// Damage, and its consequences.
    pub(super) notes: Vec<String>,
}

/// Reads what is readable.
pub(super) fn salvage(files: &mut DamagedFiles<'_>, superblock: &Superblock, layout: Layout) -> Salvaged {
    let spec = superblock.spec.clone();
    let codec = TagCodec::new(&spec.uuid, layout.block_bytes, spec.geometry.metadata_bytes, layout.tag_bytes);
    let mut notes = cut_files(files, &layout);
    let (state, _) = files.whole(ImageFile::State);
    let (journal, has_journal) = files.whole(ImageFile::Journal);
    let (found, has_zones) = read_checkpoint(&layout, &spec.uuid, &state, &mut notes);
    let Checkpoint { sequence, clean, ledger } = found;
    let epoch = epochs(&journal, &spec.uuid).reduce(|a, b| if is_later(b, a) { b } else { a });
    let later = epoch.filter(|&epoch| !has_zones || is_later(epoch, sequence));
    let mut salvaged = Salvaged {
        loaded: Loaded {
            spec,
            layout,
            codec,
            ledger,
            sequence,
            slot: 0,
            clean,
            superblock_copies_good: superblock.copies_good,
            superblock_copies_current: superblock.copies_current,
            checkpoint_copies_good: [has_zones; 2],
            records: 0,
            logged: Logged::default(),
            intended: Intended::default(),
        },
        is_whole: has_zones && later.is_none(),
        is_known: vec![has_zones; layout.zones as usize],
        impossible: Vec::new(),
        notes,
    };
    match later {
        Some(epoch) => {
            salvaged.follow_another_checkpoint(&journal, epoch);
            let records = salvaged.loaded.records;
            if has_zones {
                salvaged.notes.push(format!(
                    "{}: checkpoint {sequence} is older than the journal, which follows checkpoint {epoch}: changes recorded \
                     between the two are missing; records applied: {records}",
                    ImageFile::State
                ));
            }
        }
        None if has_zones && !clean => salvaged.follow_journal(journal, has_journal),
        None => {}
    }
    salvaged.repair_impossible_zones();
    salvaged
}

/// Files with a wrong length.
fn cut_files(files: &mut DamagedFiles<'_>, layout: &Layout) -> Vec<String> {
    let mut notes = Vec::new();
    for file in ImageFile::ALL.into_iter().filter(|&file| file != ImageFile::Superblock) {
        match (files.found_length(file), layout.length(file)) {
            (0, _) => notes.push(format!("{file} is missing or empty")),
            (found, expected) if found < expected => {
                notes.push(format!("{file} ends after {found} of {expected} bytes: the rest is missing"));
            }
            (found, expected) if found > expected => {
                notes.push(format!("{file} is {found} bytes long and must be {expected}: the excess is ignored"));
            }
            _ => {}
        }
    }
    notes
}

/// The latest checkpoint that can be assembled, and whether it has the zones. Both copies have the
/// same contents, so the first page of one and the rest of the other make a complete copy, if their
/// checksums match.
fn read_checkpoint(layout: &Layout, uuid: &[u8; 16], state: &[u8], notes: &mut Vec<String>) -> (Checkpoint, bool) {
    let slot = |slot| &state[layout.slot_offset(slot) as usize..][..layout.checkpoint_bytes() as usize];
    let (mut whole, mut header): (Option<Checkpoint>, Option<Checkpoint>) = (None, None);
    let keep_later = |kept: &mut Option<Checkpoint>, found: Checkpoint| {
        if kept.as_ref().is_none_or(|kept| is_later(found.sequence, kept.sequence)) {
            *kept = Some(found);
        }
    };
    for (head, body) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        let copy = [&slot(head)[..SLOT_HEADER_BYTES], &slot(body)[SLOT_HEADER_BYTES..]].concat();
        match checkpoint::decode_header(uuid, &copy) {
            Ok(None) => continue,
            Ok(Some(found)) => keep_later(&mut header, found),
            Err(error) => {
                notes.push(error.message());
                continue;
            }
        }
        if let Ok(Some(found)) = checkpoint::decode(layout, uuid, &copy) {
            keep_later(&mut whole, found);
        }
    }
    notes.dedup();
    if let Some(whole) = whole {
        return (whole, true);
    }
    let file = ImageFile::State;
    let ledger = Ledger::new(layout.zones);
    match header {
        Some(Checkpoint { sequence, clean, ledger: Ledger { counters, reservations, .. } }) => {
            notes.push(format!(
                "{file}: the zones of both copies of the checkpoint are damaged: they are reconstructed from tags and \
                 journal"
            ));
            (Checkpoint { sequence, clean, ledger: Ledger { counters, reservations, ..ledger } }, false)
        }
        None => {
            notes.push(format!(
                "{file}: both copies of the checkpoint are damaged: zones are reconstructed from tags and journal; \
                 counters restart at zero, and reservations are kept only if the journal has them"
            ));
            (Checkpoint { sequence: 0, clean: false, ledger }, false)
        }
    }
}

impl Salvaged {
    /// Applies the readable records of the journal, which follows the checkpoint. If a part of it
    /// is missing, the mark with its synced length may be missing too.
    fn follow_journal(&mut self, journal: Vec<u8>, has_all: bool) {
        let followed = self.loaded.follow_journal(journal, Seeded::NONE);
        let missing = || Err("records may be in the part that cannot be read".to_owned());
        let Err(what) = followed.and_then(|()| if has_all { Ok(()) } else { missing() }) else { return };
        let records = self.loaded.records;
        self.notes.push(format!(
            "{}: {what}; records applied: {records}; later zone management may be missing, including resets",
            ImageFile::Journal
        ));
        self.forget_contents();
    }

    /// Drops contents and intents because records are missing: later records may have overwritten
    /// the same blocks again, or ended the intents. Only blocks that match their tags are trusted.
    fn forget_contents(&mut self) {
        self.is_whole = false;
        self.loaded.logged = Logged::default();
        self.loaded.intended = Intended::default();
    }

    /// Checks checkpoint and journal, which look complete, against the blocks.
    pub(super) fn compare_with_blocks(&mut self, files: &mut DamagedFiles<'_>) -> Result<(), ImageError> {
        if !self.is_whole {
            return Ok(());
        }
        let later = zones_with_later_blocks(files, &self.loaded)?;
        let Some(first) = later.first() else { return Ok(()) };
        let others = if later.len() > 1 { format!(" and {} more", later.len() - 1) } else { String::new() };
        self.notes.push(format!(
            "{} and {} are older than blocks of zone {first}{others}: records written since are missing",
            ImageFile::State,
            ImageFile::Journal
        ));
        self.forget_contents();
        Ok(())
    }

    /// Applies a journal whose checkpoint is lost: its records describe the zones that they name.
    fn follow_another_checkpoint(&mut self, journal: &[u8], epoch: u64) {
        let mut at = MARKS_BYTES as usize;
        let (mut last_sequence, mut last_sum) = (0, 0);
        while let Some(Decoded { record, place, sum, length }) = Record::decode(&journal[at..], epoch) {
            let follows = place.sequence == last_sequence + 1 && place.previous == last_sum;
            if !follows || !self.loaded.possible(&record) {
                break;
            }
            self.come_to(&record);
            self.loaded.ledger.apply(&record);
            (last_sequence, last_sum) = (place.sequence, sum);
            at += length;
        }
        self.loaded.records = last_sequence;
    }

    /// Gives zones that a record names its generation before it is applied, and a ZRWA if the
    /// record requires one.
    fn come_to(&mut self, record: &Record<'_>) {
        match record.kind {
            Kind::Flush => {
                record.pointers().for_each(|FlushedPointer { zone, generation, .. }| self.come_to_of(zone, generation));
            }
            Kind::RegionIntent | Kind::Overwrite | Kind::Contents | Kind::Zeros | Kind::Reservations => {}
            _ => self.come_to_of(record.zone, record.generation),
        }
        if let Some(entry) = self.loaded.ledger.entries.get_mut(record.zone.as_usize()) {
            match record.kind {
                Kind::Commit | Kind::Persisted => (entry.has_zrwa, entry.had_zrwa) = (true, true),
                // Only a zone with a ZRWA is written beyond its write pointer.
                Kind::Finish | Kind::ReadOnly => entry.had_zrwa |= record.b > record.a,
                _ => {}
            }
        }
    }

    fn come_to_of(&mut self, zone: ZoneIndex, generation: Generation) {
        let entry = &mut self.loaded.ledger.entries[zone.as_usize()];
        if entry.generation != generation {
            *entry = Entry { generation, wear: entry.wear, ..Entry::default() };
            self.loaded.ledger.extensions.remove(&zone);
        }
        self.is_known[zone.as_usize()] = true;
    }

    /// Replaces invalid entries, and keeps their block counts: these blocks must be copied, or be
    /// unreadable.
    fn repair_impossible_zones(&mut self) {
        self.impossible = self.loaded.impossible_zones().collect();
        for &zone in &self.impossible {
            let entry = &mut self.loaded.ledger.entries[zone.as_usize()];
            let Entry { generation, wear, .. } = *entry;
            let is_sequential = !self.loaded.layout.is_conventional(zone);
            let durable = if is_sequential { entry.durable.max(entry.pointer) } else { 0 };
            *entry = Entry { generation, wear, durable, ..Entry::default() };
            self.loaded.ledger.extensions.remove(&zone);
        }
    }
}
