//! The catalog: files and zones as the records of a metadata zone describe them.

use std::collections::BTreeMap;

use zonda_zoned::ZoneIndex;

use crate::extents::{ExtentList, Run};
use crate::format::Fields;
use crate::format::block::{Block, BlockKind};
use crate::format::record::Record;
use crate::limits::FILES_MAX;
use crate::{FileError, FileId, Lifetime};

/// A file as recorded on the media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMeta {
    pub(crate) name: String,
    pub(crate) lifetime: Lifetime,
    pub(crate) extents: ExtentList,
    /// It accepts no more data.
    pub(crate) is_closed: bool,
}

/// The data zones, which must contain all extents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataZones {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) capacity_blocks: u32,
    pub(crate) block_bytes: u32,
}

/// The recorded state of a data zone since it was last opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneFacts {
    pub(crate) lifetime: Lifetime,
    /// Blocks written when it was finished.
    pub(crate) finished: Option<u32>,
}

/// Files and zones, built from records.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    pub(crate) files: BTreeMap<FileId, FileMeta>,
    pub(crate) names: BTreeMap<String, FileId>,
    /// By the number of the data zone.
    pub(crate) zones: Vec<ZoneFacts>,
    /// The snapshot is complete.
    pub(crate) is_complete: bool,
    /// Greater than the number of every file so far.
    pub(crate) next_file: u64,
    within: DataZones,
}

/// Reads a metadata zone block by block.
#[derive(Clone, Debug)]
pub(crate) struct LogReader {
    pub(crate) catalog: Catalog,
    sequence: u64,
    /// Blocks seen, the superblock among them.
    seen: u32,
    /// Consecutive intact blocks from the start.
    pub(crate) whole: u32,
}

type Reason = String;

impl DataZones {
    pub(crate) fn contains(&self, zone: ZoneIndex) -> bool {
        zone.0.checked_sub(self.first).is_some_and(|index| index < self.count)
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = ZoneIndex> + use<> {
        (self.first..self.first + self.count).map(ZoneIndex)
    }

    fn total_bytes(&self) -> u64 {
        u64::from(self.count) * u64::from(self.capacity_blocks) * u64::from(self.block_bytes)
    }

    fn check(&self, run: &Run) -> Result<(), Reason> {
        let end = run.start.checked_add(run.blocks);
        if !self.contains(run.zone)
            || run.blocks == 0
            || end.is_none_or(|end| end > self.capacity_blocks)
            || run.padding >= self.block_bytes
        {
            return Err(format!(
                "an extent of {} blocks from block {} of zone {} is not in a data zone",
                run.blocks, run.start, run.zone
            ));
        }
        Ok(())
    }
}

impl Catalog {
    pub(crate) fn new(within: DataZones) -> Catalog {
        Catalog {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            zones: vec![ZoneFacts::default(); within.count as usize],
            is_complete: false,
            next_file: 1,
            within,
        }
    }

    /// Applies a change. It comes from the media and may be invalid: then the error is its reason.
    pub(crate) fn apply(&mut self, record: &Record<'_>) -> Result<(), Reason> {
        let block_bytes = self.within.block_bytes;
        match record {
            Record::Created { file, lifetime, name } => {
                if self.files.contains_key(file) || self.names.contains_key(*name) {
                    return Err(format!("file {} or its name {name:?} already exists", file.0));
                }
                if self.files.len() >= FILES_MAX {
                    return Err(format!("there are more than {FILES_MAX} files"));
                }
                let name = (*name).to_owned();
                self.names.insert(name.clone(), *file);
                let extents = ExtentList::default();
                self.files.insert(*file, FileMeta { name, lifetime: *lifetime, extents, is_closed: false });
                self.next_file = self.next_file.max(file.0.saturating_add(1));
            }
            Record::Extents { file, runs } => {
                let within = self.within;
                let meta = self.file_mut(*file)?;
                for run in runs {
                    within.check(run)?;
                    if meta.extents.len_bytes() + run.bytes(block_bytes) > within.total_bytes() {
                        return Err(format!("file {:?} is longer than the drive", meta.name));
                    }
                    meta.extents.push(*run, block_bytes);
                }
            }
            Record::Closed { file } => self.file_mut(*file)?.is_closed = true,
            Record::Deleted { file } => {
                let meta = self.files.remove(file).ok_or_else(|| unknown(*file))?;
                self.names.remove(&meta.name);
            }
            Record::Renamed { file, name } => {
                let from = std::mem::replace(&mut self.file_mut(*file)?.name, (*name).to_owned());
                self.names.remove(&from);
                if let Some(replaced) = self.names.insert((*name).to_owned(), *file) {
                    self.files.remove(&replaced);
                }
            }
            Record::Moved { file, offset, run } => {
                self.within.check(run)?;
                let meta = self.file_mut(*file)?;
                if meta.extents.replace(*offset, *run, block_bytes).is_none() {
                    return Err(format!("file {:?} has no blocks at byte {offset} to move", meta.name));
                }
            }
            Record::ZoneOpened { zone, lifetime } => {
                *self.zone_mut(*zone)? = ZoneFacts { lifetime: *lifetime, finished: None };
            }
            Record::ZoneFinished { zone, written } => self.zone_mut(*zone)?.finished = Some(*written),
            Record::SnapshotEnd => {
                if self.is_complete {
                    return Err("a snapshot ends twice".to_owned());
                }
                self.is_complete = true;
            }
        }
        Ok(())
    }

    /// Whether two extents share a block.
    pub(crate) fn check_overlaps(&self) -> Result<(), Reason> {
        let mut runs: Vec<(Run, &str)> = Vec::new();
        for meta in self.files.values() {
            runs.extend(meta.extents.iter().map(|extent| (extent.run, meta.name.as_str())));
        }
        runs.sort_unstable_by_key(|(run, _)| (run.zone, run.start));
        match runs.windows(2).find(|pair| pair[0].0.zone == pair[1].0.zone && pair[0].0.end() > pair[1].0.start) {
            None => Ok(()),
            Some(pair) => {
                Err(format!("files {:?} and {:?} share a block of zone {}", pair[0].1, pair[1].1, pair[0].0.zone))
            }
        }
    }

    fn file_mut(&mut self, file: FileId) -> Result<&mut FileMeta, Reason> {
        self.files.get_mut(&file).ok_or_else(|| unknown(file))
    }

    fn zone_mut(&mut self, zone: ZoneIndex) -> Result<&mut ZoneFacts, Reason> {
        if !self.within.contains(zone) {
            return Err(format!("a record refers to zone {zone}, which is not a data zone"));
        }
        Ok(&mut self.zones[(zone.0 - self.within.first) as usize])
    }
}

fn unknown(file: FileId) -> Reason {
    format!("a record refers to file {}, which does not exist", file.0)
}

impl LogReader {
    /// A reader for a zone whose superblock, already read, has this sequence.
    pub(crate) fn new(within: DataZones, sequence: u64) -> LogReader {
        LogReader { catalog: Catalog::new(within), sequence, seen: 1, whole: 1 }
    }

    /// Reads the next block. The first block that is not intact ends the log: it was being written
    /// when the drive stopped. An intact block behind it means that it was damaged since.
    ///
    /// # Errors
    /// [`FileError::Corrupt`].
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let place = self.seen;
        self.seen += 1;
        let is_ours = |block: &Block<'_>| {
            block.kind == BlockKind::Records && block.sequence == self.sequence && block.place == place
        };
        let Some(block) = Block::decode(bytes).filter(is_ours) else { return Ok(()) };
        if self.whole != place {
            let words = format!("block {} of the metadata is damaged", self.whole);
            return Err(FileError::Corrupt(words));
        }
        self.whole += 1;
        let mut fields = Fields(block.payload);
        while !fields.is_empty() {
            let applied = match Record::decode(&mut fields) {
                Some(record) => self.catalog.apply(&record),
                None => Err("a record is invalid".to_owned()),
            };
            applied.map_err(|words| FileError::Corrupt(format!("block {place} of the metadata: {words}")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::record::RecordBuffer;

    const WITHIN: DataZones = DataZones { first: 2, count: 3, capacity_blocks: 16, block_bytes: 512 };

    fn run(zone: u32, start: u32, blocks: u32) -> Run {
        Run { zone: ZoneIndex(zone), start, blocks, padding: 0 }
    }

    fn created(file: u64, name: &str) -> Record<'_> {
        Record::Created { file: FileId(file), lifetime: Lifetime::Short, name }
    }

    #[test]
    fn a_rename_replaces_another_file() {
        let mut catalog = Catalog::new(WITHIN);
        catalog.apply(&created(1, "a")).unwrap();
        catalog.apply(&created(2, "b")).unwrap();
        catalog.apply(&Record::Renamed { file: FileId(1), name: "b" }).unwrap();
        assert_eq!(catalog.names, BTreeMap::from([("b".to_owned(), FileId(1))]));
        assert_eq!(catalog.files.len(), 1);
        assert_eq!(catalog.next_file, 3);
        catalog.apply(&Record::Renamed { file: FileId(1), name: "b" }).unwrap();
        assert!(catalog.files.contains_key(&FileId(1)), "a file does not replace itself");
    }

    #[test]
    fn invalid_records_are_reported() {
        let mut catalog = Catalog::new(WITHIN);
        catalog.apply(&created(1, "a")).unwrap();
        let file = FileId(1);
        let senseless = [
            created(1, "b"),
            created(2, "a"),
            Record::Closed { file: FileId(9) },
            Record::Deleted { file: FileId(9) },
            Record::Extents { file, runs: vec![run(1, 0, 1)] },
            Record::Extents { file, runs: vec![run(5, 0, 1)] },
            Record::Extents { file, runs: vec![run(2, 0, 0)] },
            Record::Extents { file, runs: vec![run(2, 10, 7)] },
            Record::Extents { file, runs: vec![run(2, u32::MAX, 7)] },
            Record::Extents { file, runs: vec![Run { padding: 512, ..run(2, 0, 1) }] },
            Record::Moved { file, offset: 0, run: run(2, 0, 1) },
            Record::ZoneOpened { zone: ZoneIndex(0), lifetime: Lifetime::Long },
            Record::ZoneFinished { zone: ZoneIndex(5), written: 1 },
        ];
        for record in senseless {
            assert!(catalog.apply(&record).is_err(), "{record:?}");
        }
    }

    #[test]
    fn extents_that_share_a_block_are_found() {
        let mut catalog = Catalog::new(WITHIN);
        catalog.apply(&created(1, "a")).unwrap();
        catalog.apply(&created(2, "b")).unwrap();
        catalog.apply(&Record::Extents { file: FileId(1), runs: vec![run(2, 0, 4), run(3, 0, 2)] }).unwrap();
        catalog.apply(&Record::Extents { file: FileId(2), runs: vec![run(2, 4, 4)] }).unwrap();
        assert_eq!(catalog.check_overlaps(), Ok(()));
        catalog.apply(&Record::Extents { file: FileId(2), runs: vec![run(3, 1, 1)] }).unwrap();
        assert!(catalog.check_overlaps().unwrap_err().contains("share a block of zone 3"));
    }

    #[test]
    fn a_torn_block_is_the_end_and_a_hole_is_damage() {
        let mut buffer = RecordBuffer::default();
        for file in 1..200 {
            buffer.push(&created(file, &format!("file-{file}")));
        }
        let blocks = buffer.pack(4, 1, 100, 512);
        let mut torn = LogReader::new(WITHIN, 4);
        for block in blocks.chunks(512).take(3) {
            torn.feed(block).unwrap();
        }
        torn.feed(&[0; 512]).unwrap();
        assert_eq!(torn.whole, 4);
        let damaged = torn.feed(blocks.chunks(512).nth(4).unwrap());
        assert!(matches!(damaged, Err(FileError::Corrupt(words)) if words.contains("block 4")));
    }

    proptest! {
        #[test]
        fn no_payload_makes_the_reader_panic(payload in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut bytes = Vec::new();
            Block { kind: BlockKind::Records, sequence: 1, place: 1, payload: &payload }.encode(512, &mut bytes);
            let mut reader = LogReader::new(WITHIN, 1);
            let _ = reader.feed(&bytes);
            prop_assert!(reader.catalog.files.len() <= payload.len());
        }

        #[test]
        fn no_records_make_the_catalog_panic(
            records in prop::collection::vec(
                (1..10u8, 1..4u64, 0..3usize, 0..6u32, 0..20u32, 0..6u32, 0..600u32, 0..4000u64), 0..60,
            ),
        ) {
            let mut catalog = Catalog::new(WITHIN);
            for (kind, file, name, zone, start, blocks, padding, offset) in records {
                let (file, name) = (FileId(file), ["a", "b", "c"][name]);
                let run = Run { zone: ZoneIndex(zone), start, blocks, padding };
                let record = match kind {
                    1 | 9 => created(file.0, name),
                    2 => Record::Extents { file, runs: vec![run, run] },
                    3 => Record::Closed { file },
                    4 => Record::Deleted { file },
                    5 => Record::Renamed { file, name },
                    6 => Record::Moved { file, offset, run },
                    7 => Record::ZoneOpened { zone: run.zone, lifetime: Lifetime::Long },
                    _ => Record::ZoneFinished { zone: run.zone, written: start },
                };
                let _ = catalog.apply(&record);
                for meta in catalog.files.values() {
                    meta.extents.check_invariants(512);
                }
                prop_assert_eq!(catalog.names.len(), catalog.files.len());
                let _ = catalog.check_overlaps();
            }
        }
    }
}
