//! The records of a metadata zone: changes in their order. A snapshot consists of records, too.
//!
//! ```text
//! byte 0      kind                       payload
//!      1..3   length of the payload
//!      3..    payload:
//!        1 created        file u64, lifetime u8, name
//!        2 extents        file u64, then runs: added at the end of the file
//!        3 closed         file u64
//!        4 deleted        file u64
//!        5 renamed        file u64, name: an existing file of this name is deleted
//!        6 moved          file u64, offset in the file u64, a run: the new place of these bytes
//!        7 zone opened    zone u32, lifetime u8: its first data since it was reset
//!        8 zone finished  zone u32, blocks written before u32
//!        9 snapshot end   nothing
//!
//! a run: zone u32, first block u32, blocks u32, bytes of padding u16
//! ```
//! A record does not cross blocks.

use zonda_zoned::ZoneIndex;

use super::Fields;
use super::block::{Block, BlockKind, HEADER_BYTES};
use crate::extents::Run;
use crate::limits::NAME_BYTES_MAX;
use crate::{FileId, Lifetime};

const RECORD_HEADER_BYTES: usize = 3;
const FILE_BYTES: usize = 8;
pub(crate) const RUN_BYTES: usize = 14;

/// Bytes of the longest record.
pub(crate) const RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + FILE_BYTES + 1 + NAME_BYTES_MAX;
/// Bytes of a file without extents in a snapshot, without its name: created, closed, and the head
/// of its extents.
pub(crate) const FILE_COST_BYTES: u64 = (3 * (RECORD_HEADER_BYTES + FILE_BYTES) + 1) as u64;
/// Bytes of an extent in a snapshot, with its share of the heads of further records.
pub(crate) const EXTENT_COST_BYTES: u64 = RUN_BYTES as u64 + 1;
/// Bytes of a zone in a snapshot: opened, finished.
pub(crate) const ZONE_COST_BYTES: u64 = (2 * RECORD_HEADER_BYTES + 5 + 8) as u64;
/// Bytes of the record that ends a snapshot.
pub(crate) const SNAPSHOT_END_BYTES: u64 = RECORD_HEADER_BYTES as u64;
/// Runs of one record.
const RUNS_MAX: usize = (RECORD_BYTES_MAX - RECORD_HEADER_BYTES - FILE_BYTES) / RUN_BYTES;

const _: () = assert!(RECORD_BYTES_MAX + HEADER_BYTES <= 512, "a record fits in the smallest block");
const _: () = assert!(
    RECORD_HEADER_BYTES + FILE_BYTES < RUNS_MAX,
    "the head of a record adds less than a byte to each of its runs"
);

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Created { file: FileId, lifetime: Lifetime, name: &'a str },
    Extents { file: FileId, runs: Vec<Run> },
    Closed { file: FileId },
    Deleted { file: FileId },
    Renamed { file: FileId, name: &'a str },
    Moved { file: FileId, offset: u64, run: Run },
    ZoneOpened { zone: ZoneIndex, lifetime: Lifetime },
    ZoneFinished { zone: ZoneIndex, written: u32 },
    SnapshotEnd,
}

/// Consecutive records, not yet packed into blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordBuffer {
    bytes: Vec<u8>,
    count: u64,
}

impl RecordBuffer {
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        let from = self.bytes.len();
        self.count += 1;
        self.bytes.extend_from_slice(&[record.kind(), 0, 0]);
        match record {
            Record::Created { file, lifetime, name } => {
                self.number(file.0);
                self.bytes.push(*lifetime as u8);
                self.bytes.extend_from_slice(name.as_bytes());
            }
            Record::Extents { file, runs } => {
                self.number(file.0);
                for run in runs {
                    self.run(run);
                }
            }
            Record::Closed { file } | Record::Deleted { file } => self.number(file.0),
            Record::Renamed { file, name } => {
                self.number(file.0);
                self.bytes.extend_from_slice(name.as_bytes());
            }
            Record::Moved { file, offset, run } => {
                self.number(file.0);
                self.number(*offset);
                self.run(run);
            }
            Record::ZoneOpened { zone, lifetime } => {
                self.bytes.extend_from_slice(&zone.0.to_le_bytes());
                self.bytes.push(*lifetime as u8);
            }
            Record::ZoneFinished { zone, written } => {
                self.bytes.extend_from_slice(&zone.0.to_le_bytes());
                self.bytes.extend_from_slice(&written.to_le_bytes());
            }
            Record::SnapshotEnd => {}
        }
        let length = (self.bytes.len() - from - RECORD_HEADER_BYTES) as u16;
        self.bytes[from + 1..from + RECORD_HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    }

    /// Adds runs at the end of a file, in as many records as needed.
    pub(crate) fn push_extents(&mut self, file: FileId, runs: impl Iterator<Item = Run>) {
        let mut runs = runs.peekable();
        while runs.peek().is_some() {
            let runs = runs.by_ref().take(RUNS_MAX).collect();
            self.push(&Record::Extents { file, runs });
        }
    }

    /// The number of records.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Packs records from the front into at most `blocks_max` blocks, the first of which has the
    /// place `place`. Returns the blocks.
    pub(crate) fn pack(&mut self, sequence: u64, place: u32, blocks_max: u32, block_bytes: usize) -> Vec<u8> {
        let payload_bytes = block_bytes - HEADER_BYTES;
        let mut blocks = Vec::new();
        let mut taken = 0;
        for place in (place..).take(blocks_max as usize) {
            let from = taken;
            while let Some(length) = record_length(&self.bytes[taken..])
                && taken + length - from <= payload_bytes
            {
                taken += length;
                self.count -= 1;
            }
            if taken == from {
                break;
            }
            let payload = &self.bytes[from..taken];
            Block { kind: BlockKind::Records, sequence, place, payload }.encode(block_bytes, &mut blocks);
        }
        self.bytes.drain(..taken);
        blocks
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn run(&mut self, run: &Run) {
        self.bytes.extend_from_slice(&run.zone.0.to_le_bytes());
        self.bytes.extend_from_slice(&run.start.to_le_bytes());
        self.bytes.extend_from_slice(&run.blocks.to_le_bytes());
        self.bytes.extend_from_slice(&(run.padding as u16).to_le_bytes());
    }
}

/// The length of the first of these records.
fn record_length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
    Some(RECORD_HEADER_BYTES + usize::from(u16::from_le_bytes([header[1], header[2]])))
}

impl<'a> Record<'a> {
    fn kind(&self) -> u8 {
        match self {
            Record::Created { .. } => 1,
            Record::Extents { .. } => 2,
            Record::Closed { .. } => 3,
            Record::Deleted { .. } => 4,
            Record::Renamed { .. } => 5,
            Record::Moved { .. } => 6,
            Record::ZoneOpened { .. } => 7,
            Record::ZoneFinished { .. } => 8,
            Record::SnapshotEnd => 9,
        }
    }

    /// Decodes a record from the front; `None` if the bytes are not a record.
    pub(crate) fn decode(fields: &mut Fields<'a>) -> Option<Record<'a>> {
        let kind = fields.u8()?;
        let length = usize::from(fields.u16()?);
        let mut fields = Fields(fields.take(length)?);
        let record = match kind {
            1 => {
                let file = FileId(fields.u64()?);
                let lifetime = Lifetime::of_code(fields.u8()?)?;
                Record::Created { file, lifetime, name: decode_name(&mut fields)? }
            }
            2 => {
                let file = FileId(fields.u64()?);
                let mut runs = Vec::with_capacity(length / RUN_BYTES);
                while !fields.is_empty() {
                    runs.push(decode_run(&mut fields)?);
                }
                Record::Extents { file, runs }
            }
            3 => Record::Closed { file: FileId(fields.u64()?) },
            4 => Record::Deleted { file: FileId(fields.u64()?) },
            5 => Record::Renamed { file: FileId(fields.u64()?), name: decode_name(&mut fields)? },
            6 => {
                let file = FileId(fields.u64()?);
                Record::Moved { file, offset: fields.u64()?, run: decode_run(&mut fields)? }
            }
            7 => {
                let zone = ZoneIndex(fields.u32()?);
                Record::ZoneOpened { zone, lifetime: Lifetime::of_code(fields.u8()?)? }
            }
            8 => Record::ZoneFinished { zone: ZoneIndex(fields.u32()?), written: fields.u32()? },
            9 => Record::SnapshotEnd,
            _ => return None,
        };
        fields.is_empty().then_some(record)
    }
}

fn decode_name<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    let bytes = fields.take(fields.0.len())?;
    std::str::from_utf8(bytes).ok().filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()))
}

fn decode_run(fields: &mut Fields<'_>) -> Option<Run> {
    let zone = ZoneIndex(fields.u32()?);
    let (start, blocks) = (fields.u32()?, fields.u32()?);
    Some(Run { zone, start, blocks, padding: u32::from(fields.u16()?) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_run() -> impl Strategy<Value = Run> {
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u16>()).prop_map(|(zone, start, blocks, padding)| Run {
            zone: ZoneIndex(zone),
            start,
            blocks,
            padding: padding.into(),
        })
    }

    /// A record of the kind with this number, from parts of which each kind uses some.
    fn record<'a>(kind: u8, file: u64, code: usize, name: &'a str, runs: &[Run]) -> Record<'a> {
        let (file, lifetime) = (FileId(file), Lifetime::ALL[code]);
        let zone = runs[0].zone;
        match kind {
            1 => Record::Created { file, lifetime, name },
            2 => Record::Extents { file, runs: runs.to_vec() },
            3 => Record::Closed { file },
            4 => Record::Deleted { file },
            5 => Record::Renamed { file, name },
            6 => Record::Moved { file, offset: file.0 ^ 77, run: runs[0] },
            7 => Record::ZoneOpened { zone, lifetime },
            8 => Record::ZoneFinished { zone, written: runs[0].blocks },
            _ => Record::SnapshotEnd,
        }
    }

    #[test]
    fn the_cost_of_a_file_covers_its_records() {
        let run = Run { zone: ZoneIndex(1), start: 2, blocks: 3, padding: 0 };
        for name in ["a", "a longer name"] {
            for extents in [0, 1, 7] {
                let mut records = RecordBuffer::default();
                records.push(&Record::Created { file: FileId(1), lifetime: Lifetime::ALL[0], name });
                records.push_extents(FileId(1), std::iter::repeat_n(run, extents));
                records.push(&Record::Closed { file: FileId(1) });
                let cost = FILE_COST_BYTES + name.len() as u64 + extents as u64 * EXTENT_COST_BYTES;
                let bytes = records.bytes() as u64;
                assert!(bytes <= cost, "{bytes} bytes, estimated as {cost}");
                assert!(cost - bytes <= FILE_COST_BYTES / 2, "{bytes} bytes, estimated as {cost}");
            }
        }
    }

    proptest! {
        #[test]
        fn records_read_back_from_blocks_as_they_were_written(
            parts in prop::collection::vec(
                (1..10u8, any::<u64>(), 0..6usize, "[a-z/]{1,255}", prop::collection::vec(any_run(), 1..RUNS_MAX)),
                0..20,
            ),
            blocks_max in 1..6u32,
        ) {
            let records: Vec<Record<'_>> =
                parts.iter().map(|(kind, file, code, name, runs)| record(*kind, *file, *code, name, runs)).collect();
            let mut buffer = RecordBuffer::default();
            for record in &records {
                buffer.push(record);
            }
            let mut found = 0;
            let mut place = 5;
            while buffer.count() > 0 {
                let blocks = buffer.pack(3, place, blocks_max, 512);
                prop_assert!(!blocks.is_empty() && blocks.len() <= 512 * blocks_max as usize);
                for bytes in blocks.chunks(512) {
                    let block = Block::decode(bytes).expect("an intact block");
                    prop_assert_eq!((block.sequence, block.place), (3, place));
                    place += 1;
                    let mut fields = Fields(block.payload);
                    while !fields.is_empty() {
                        let record = Record::decode(&mut fields);
                        prop_assert_eq!(record.as_ref(), Some(&records[found]));
                        found += 1;
                    }
                }
            }
            prop_assert_eq!(found, records.len());
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut fields = Fields(&bytes);
            let mut records = 0;
            while Record::decode(&mut fields).is_some() {
                records += 1;
            }
            prop_assert!(records <= bytes.len() / RECORD_HEADER_BYTES);
        }
    }
}
