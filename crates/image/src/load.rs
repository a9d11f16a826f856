//! Reads superblock, checkpoint and journal, and writes nothing.

use zonda_zoned::ZoneIndex;

use crate::bugs::{Seeded, SeededBug};
use crate::format::checkpoint::{self, Checkpoint};
use crate::format::entry::{Ledger, RecordedState};
use crate::format::layout::Layout;
use crate::format::record::{self, Decoded, Kind, MARK_STRIDE, MARKS_BYTES, Mark, OVERWRITE_TAGS, Record};
use crate::format::superblock;
use crate::format::tag::{TAG_BYTES, TagCodec};
use crate::intended::{Intended, Intents};
use crate::limits::{RESERVATIONS_BYTES_MAX, ZERO_CHUNK_BLOCKS};
use crate::logged::{Logged, Source};
use crate::{FileError, Files, ImageError, ImageFile, ImageSpec};

/// The contents of superblock, checkpoint and journal, before any tag is read.
pub(crate) struct Loaded {
    pub(crate) spec: ImageSpec,
    pub(crate) layout: Layout,
    pub(crate) codec: TagCodec,
    pub(crate) ledger: Ledger,
    /// The sequence of the checkpoint.
    pub(crate) sequence: u64,
    /// The copy of the checkpoint that was read; the other one must be written first.
    pub(crate) slot: u64,
    pub(crate) clean: bool,
    pub(crate) superblock_copies_good: [bool; 2],
    pub(crate) superblock_copies_current: [bool; 2],
    pub(crate) checkpoint_copies_good: [bool; 2],
    pub(crate) records: u64,
    /// Contents to be rewritten.
    pub(crate) logged: Logged,
    /// Blocks, by LBA, that may not match their tags because they were being overwritten.
    pub(crate) intended: Intended,
}

pub(crate) fn load(files: &mut dyn Files) -> Result<Loaded, ImageError> {
    load_seeded(files, Seeded::NONE)
}

pub(crate) fn load_seeded(files: &mut dyn Files, bug: Seeded) -> Result<Loaded, ImageError> {
    let superblock::Superblock { spec, copies_good, copies_current } = superblock::read(files)?;
    let layout = Layout::new(&spec.geometry, spec.journal_bytes);
    for file in ImageFile::ALL {
        let found = match files.length(file) {
            Ok(found) => found,
            Err(FileError::Missing) => 0,
            Err(error) => return Err(ImageError::File { file, operation: "get the length of", error }),
        };
        let expected = layout.length(file);
        // One good copy of the superblock is enough; the file is repaired.
        if found != expected && file != ImageFile::Superblock {
            return Err(ImageError::Length { file, found, expected });
        }
    }
    let (Checkpoint { sequence, clean, ledger }, slot, checkpoint_copies_good) =
        read_checkpoint(files, &layout, &spec.uuid)?;
    let codec = TagCodec::new(&spec.uuid, layout.block_bytes, spec.geometry.metadata_bytes, layout.tag_bytes);
    let mut loaded = Loaded {
        spec,
        layout,
        codec,
        ledger,
        sequence,
        slot,
        clean,
        superblock_copies_good: copies_good,
        superblock_copies_current: copies_current,
        checkpoint_copies_good,
        records: 0,
        logged: Logged::default(),
        intended: Intended::default(),
    };
    loaded.check_epochs(files)?;
    if !clean {
        let journal = read(files, ImageFile::Journal, 0, loaded.layout.journal_bytes as usize)?;
        loaded.follow_journal(journal, bug).map_err(|what| ImageError::Damaged { file: ImageFile::Journal, what })?;
    }
    if let Some(zone) = loaded.impossible_zones().next() {
        let what = format!("zone {zone} is in a state that is not possible on this drive");
        return Err(ImageError::Damaged { file: ImageFile::State, what });
    }
    Ok(loaded)
}

fn read_checkpoint(
    files: &mut dyn Files,
    layout: &Layout,
    uuid: &[u8; 16],
) -> Result<(Checkpoint, u64, [bool; 2]), ImageError> {
    let mut best: Option<(Checkpoint, u64)> = None;
    let mut good = [false; 2];
    for slot in 0..2 {
        let bytes = read(files, ImageFile::State, layout.slot_offset(slot), layout.checkpoint_bytes() as usize)?;
        if let Some(checkpoint) = checkpoint::decode(layout, uuid, &bytes)? {
            good[slot as usize] = true;
            if best.as_ref().is_none_or(|(best, _)| checkpoint::is_later(checkpoint.sequence, best.sequence)) {
                best = Some((checkpoint, slot));
            }
        }
    }
    let damaged =
        || ImageError::Damaged { file: ImageFile::State, what: "both copies of the checkpoint are damaged".into() };
    let (checkpoint, slot) = best.ok_or_else(damaged)?;
    Ok((checkpoint, slot, good))
}

impl Loaded {
    /// Checks that the journal has no later epoch than the checkpoint, which is synced, twice,
    /// before a record of its epoch is written. Otherwise a later checkpoint is lost: opening the
    /// drive would lose changes, and later, when it reaches that epoch, take stale records for its
    /// own. Only the marks and the first record have fixed offsets; behind them may be contents,
    /// which may look like anything.
    fn check_epochs(&self, files: &mut dyn Files) -> Result<(), ImageError> {
        let start = read(files, ImageFile::Journal, 0, MARKS_BYTES as usize + record::HEADER_BYTES)?;
        let mut epochs = epochs(&start, &self.spec.uuid);
        let Some(epoch) = epochs.find(|&epoch| checkpoint::is_later(epoch, self.sequence)) else { return Ok(()) };
        let what = format!("checkpoint {} is older than the journal, which follows checkpoint {epoch}", self.sequence);
        Err(ImageError::Damaged { file: ImageFile::State, what })
    }

    /// Applies the records that follow the checkpoint.
    ///
    /// # Errors
    /// Why records are missing, or may be. The records before are applied.
    pub(crate) fn follow_journal(&mut self, journal: Vec<u8>, bug: Seeded) -> Result<(), String> {
        let epoch = self.sequence;
        let mut at = MARKS_BYTES as usize;
        let (mut last_sequence, mut last_sum) = (0, 0);
        let mut intents = Intents::default();
        while let Some(Decoded { record, place, sum, length }) = Record::decode(&journal[at..], epoch) {
            let sequence = place.sequence;
            if sequence != last_sequence + 1 || place.previous != last_sum {
                break;
            }
            if !self.possible(&record) {
                return Err(format!("record {sequence} refers to zones or blocks that this drive does not have"));
            }
            self.ledger.apply(&record);
            match record.kind {
                Kind::Flush => intents.end_before(sequence.saturating_sub(record.c)),
                Kind::RegionIntent => {
                    intents.add_region(sequence, record.a * REGION_BLOCKS..(record.a + record.b) * REGION_BLOCKS);
                }
                Kind::Overwrite => intents.add_overwrite(sequence, &record, at, bug),
                Kind::Reset => {
                    let start = u64::from(record.zone.0) * self.spec.geometry.zone_size_blocks.0;
                    intents.remove(&(start..start + self.layout.capacity));
                }
                Kind::Contents | Kind::Zeros => self.log(&record, at),
                _ => {}
            }
            (last_sequence, last_sum) = (sequence, sum);
            at += length;
            self.records = sequence;
        }
        let marks: Vec<Mark> = marks(&journal, &self.spec.uuid).collect();
        if marks.is_empty() {
            // Since the image was created, at least one of them is always good.
            return Err("both marks are damaged, so that missing records cannot be detected".into());
        }
        let synced = marks.iter().filter(|mark| mark.epoch == epoch).map(|mark| mark.synced).max().unwrap_or(0);
        if last_sequence < synced && !bug.has(SeededBug::IgnoredMarks) {
            return Err(format!(
                "record {} is damaged, although records up to {synced} were synced",
                last_sequence + 1
            ));
        }
        self.intended = intents.complete(&journal);
        let entries = &self.ledger.entries;
        // An offline zone has no contents any more, and no space for any.
        self.logged.complete(journal, |zone, generation| {
            let entry = &entries[zone.as_usize()];
            let is_current = generation == entry.generation && entry.state != RecordedState::Offline;
            is_current || bug.has(SeededBug::StaleContents)
        });
        Ok(())
    }

    /// Adds a record at offset `at` of the journal.
    fn log(&mut self, record: &Record<'_>, at: usize) {
        let source = match record.kind {
            Kind::Zeros => Source::Zeros,
            _ => {
                let tags_at = at + record::HEADER_BYTES;
                Source::Contents { tags_at, data_at: tags_at + (record.b * self.layout.tag_bytes) as usize }
            }
        };
        let blocks = record.a..record.a + record.b;
        self.logged.add(&self.layout, record.zone, record.generation, blocks, source);
    }

    /// Zones in a state that is not possible with this geometry, although their checksum matches.
    pub(crate) fn impossible_zones(&self) -> impl Iterator<Item = ZoneIndex> + '_ {
        let geometry = &self.spec.geometry;
        self.ledger.zones().filter(|(zone, entry)| !entry.is_possible(*zone, geometry)).map(|(zone, _)| zone)
    }

    /// Whether zones and blocks of a record exist.
    pub(crate) fn possible(&self, record: &Record<'_>) -> bool {
        let capacity = self.layout.capacity;
        match record.kind {
            Kind::Flush => record.pointers().all(|p| self.layout.has_zone(p.zone) && p.pointer <= capacity),
            Kind::RegionIntent => {
                let regions = (u64::from(self.layout.conventional) * capacity).div_ceil(REGION_BLOCKS);
                record.a.checked_add(record.b).is_some_and(|end| end <= regions)
            }
            Kind::Overwrite => {
                let blocks = u64::from(self.layout.zones) * self.spec.geometry.zone_size_blocks.0;
                let tags = if record.c == OVERWRITE_TAGS { record.b.saturating_mul(2 * TAG_BYTES as u64) } else { 0 };
                record.a.checked_add(record.b).is_some_and(|end| end <= blocks)
                    && record.c <= OVERWRITE_TAGS
                    && record.payload[0].len() as u64 == tags
            }
            Kind::Contents | Kind::Zeros => {
                if record.a.max(record.b) > capacity {
                    return false;
                }
                let contents = record.b * (self.layout.tag_bytes + self.layout.block_bytes);
                self.layout.has_zone(record.zone)
                    && record.a + record.b <= capacity
                    && match record.kind {
                        Kind::Zeros => record.b <= ZERO_CHUNK_BLOCKS,
                        _ => record.payload[0].len() as u64 == contents,
                    }
            }
            Kind::Reservations => record.payload[0].len() <= RESERVATIONS_BYTES_MAX,
            Kind::Extension => {
                let payload = record.payload.first().map_or(0, |extension| extension.len() as u64);
                self.layout.has_zone(record.zone) && payload == self.layout.extension_bytes
            }
            _ => self.layout.has_zone(record.zone) && record.a.max(record.b) <= capacity,
        }
    }
}

/// Blocks of an intent in versions 1 and 2.
const REGION_BLOCKS: u64 = 256;

/// The good marks of a journal.
fn marks(journal: &[u8], uuid: &[u8; 16]) -> impl Iterator<Item = Mark> {
    [0, MARK_STRIDE as usize].into_iter().filter_map(|at| record::decode_mark(&journal[at..], uuid))
}

/// The epochs in the start of a journal: those of its good marks and of its first record.
pub(crate) fn epochs(journal: &[u8], uuid: &[u8; 16]) -> impl Iterator<Item = u64> {
    marks(journal, uuid).map(|mark| mark.epoch).chain(Record::epoch_of(&journal[MARKS_BYTES as usize..]))
}

/// Reads exactly `length` bytes.
pub(crate) fn read(files: &mut dyn Files, file: ImageFile, offset: u64, length: usize) -> Result<Vec<u8>, ImageError> {
    let mut bytes = vec![0; length];
    match files.read_at(file, offset, &mut bytes) {
        Ok(found) if found == length => Ok(bytes),
        Ok(found) => Err(ImageError::Length { file, found: offset + found as u64, expected: offset + length as u64 }),
        Err(error) => Err(ImageError::File { file, operation: "read", error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Generation;
    use crate::testing::{Drive, spec};
    use zonda_zoned::Geometry;

    #[test]
    fn a_record_with_zones_or_blocks_that_the_drive_does_not_have_is_rejected() {
        let mut disk = Drive::create(&spec(Geometry::tiny())).close();
        let loaded = load(&mut disk).unwrap();
        let (zones, capacity) = (loaded.layout.zones, loaded.layout.capacity);
        for kind in [Kind::Reset, Kind::Finish, Kind::ReadOnly, Kind::Offline, Kind::Zrwa, Kind::Commit] {
            let record = |zone, a, b| Record { kind, zone, generation: Generation(1), a, b, c: 0, payload: [&[], &[]] };
            assert!(loaded.possible(&record(ZoneIndex(zones - 1), capacity, capacity)), "{kind:?}");
            for beyond in [
                record(ZoneIndex(zones), 0, 0),
                record(ZoneIndex(0), capacity + 1, 0),
                record(ZoneIndex(0), 0, capacity + 1),
            ] {
                assert!(!loaded.possible(&beyond), "{beyond:?}");
            }
        }
    }

    #[test]
    fn an_intent_has_two_tags_for_each_of_its_blocks_or_none() {
        let mut disk = Drive::create(&spec(Geometry::tiny())).close();
        let loaded = load(&mut disk).unwrap();
        let tags = [7; 3 * 2 * TAG_BYTES];
        let record = |c, payload| Record {
            kind: Kind::Overwrite,
            zone: ZoneIndex(0),
            generation: Generation(0),
            a: 5,
            b: 3,
            c,
            payload: [payload, &[]],
        };
        for (c, length, is_possible) in [
            (0, 0, true),
            (1, 0, true),
            (2, 48, true),
            (0, 48, false),
            (1, 48, false),
            (2, 0, false),
            (2, 40, false),
            (3, 48, false),
        ] {
            assert_eq!(loaded.possible(&record(c, &tags[..length])), is_possible, "{c}, {length} bytes");
        }
    }

    #[test]
    fn a_read_beyond_the_end_of_a_file_reports_its_length_and_the_required_one() {
        let mut disk = Drive::create(&spec(Geometry::tiny())).close();
        let length = disk.bytes(ImageFile::Journal).len() as u64;
        assert!(read(&mut disk, ImageFile::Journal, length - 10, 10).is_ok());
        match read(&mut disk, ImageFile::Journal, length - 10, 17) {
            Err(ImageError::Length { file: ImageFile::Journal, found, expected }) => {
                assert_eq!((found, expected), (length, length + 7));
            }
            other => panic!("{other:?}"),
        }
    }
}
