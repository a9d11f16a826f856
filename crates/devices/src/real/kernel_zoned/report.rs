//! The bytes of a zone report of the block layer (`linux/blkzoned.h`).

use std::io;

use zonda_ring::File;
use zonda_zoned::{Blocks, ZoneState};

use crate::real::FoundZone;

/// `struct blk_zone_report` before its zones, and `struct blk_zone`, in bytes.
const HEADER_BYTES: usize = 16;
const ZONE_BYTES: usize = 64;
/// Set in the flags of a report whose zones have capacities (`BLK_ZONE_REP_CAPACITY`).
const HAS_CAPACITY: u32 = 1;
/// `BLK_ZONE_TYPE_CONVENTIONAL` and `BLK_ZONE_TYPE_SEQWRITE_REQ`.
const CONVENTIONAL: u8 = 1;
const SEQUENTIAL_WRITE_REQUIRED: u8 = 2;
/// Zones of one report.
const ZONES_PER_REPORT: u32 = 4096;
/// Bytes of a sector, the unit of the block layer.
pub(super) const SECTOR_BYTES: u64 = 512;

/// One zone, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportedZone {
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) capacity: u64,
    write_pointer: u64,
    pub(crate) is_conventional: bool,
    pub(crate) state: ZoneState,
}

impl ReportedZone {
    #[cfg(test)]
    pub(super) fn empty(start: u64, length: u64, capacity: u64, is_conventional: bool) -> ReportedZone {
        let state = if is_conventional { ZoneState::NotWritePointer } else { ZoneState::Empty };
        ReportedZone { start, length, capacity, write_pointer: start, is_conventional, state }
    }

    #[cfg(test)]
    pub(super) fn closed(start: u64, length: u64, written: u64) -> ReportedZone {
        let state = ZoneState::Closed;
        ReportedZone { write_pointer: start + written, state, ..ReportedZone::empty(start, length, length, false) }
    }

    /// Whether the next write would have to begin within a block of this size.
    pub(super) fn is_within_block(&self, block_bytes: u64) -> bool {
        let offset = self.write_pointer.wrapping_sub(self.start);
        self.state.is_active() && !(offset * SECTOR_BYTES).is_multiple_of(block_bytes)
    }

    /// State and write pointer, for blocks of this size.
    pub(super) fn found(&self, block_bytes: u64) -> FoundZone {
        let offset = self.write_pointer.saturating_sub(self.start).min(self.length);
        FoundZone::new(self.state, Blocks(offset * SECTOR_BYTES / block_bytes))
    }
}

/// The zones from a sector on, at most `most`. Blocks.
pub(super) fn report(file: &File, sector: u64, most: u32) -> io::Result<Vec<ReportedZone>> {
    let mut bytes = vec![0; HEADER_BYTES + most as usize * ZONE_BYTES];
    bytes[..8].copy_from_slice(&sector.to_ne_bytes());
    bytes[8..12].copy_from_slice(&most.to_ne_bytes());
    file.report_zones(&mut bytes)?;
    parse(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

/// All zones. Blocks.
pub(super) fn report_all(file: &File, sectors: u64) -> io::Result<Vec<ReportedZone>> {
    let mut zones: Vec<ReportedZone> = Vec::new();
    loop {
        let next = zones.last().map_or(0, |zone| zone.start + zone.length);
        if next >= sectors {
            return Ok(zones);
        }
        let found = report(file, next, ZONES_PER_REPORT)?;
        if found.first().is_none_or(|zone| zone.start != next) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("no zone at sector {next} is reported")));
        }
        zones.extend(found);
    }
}

/// The zones of a report.
fn parse(bytes: &[u8]) -> Result<Vec<ReportedZone>, String> {
    let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    if bytes.len() < HEADER_BYTES {
        return Err("the zone report is shorter than its header".to_owned());
    }
    let (zones, has_capacity) = (number(8) as usize, number(12) & HAS_CAPACITY != 0);
    let zones = bytes[HEADER_BYTES..].chunks_exact(ZONE_BYTES).take(zones);
    let parsed: Result<Vec<ReportedZone>, String> = zones.map(|zone| parse_zone(zone, has_capacity)).collect();
    let parsed = parsed?;
    for pair in parsed.windows(2) {
        if pair[0].start.checked_add(pair[0].length) != Some(pair[1].start) {
            return Err(format!(
                "the reported zones at sectors {} and {} are not adjacent",
                pair[0].start, pair[1].start
            ));
        }
    }
    Ok(parsed)
}

fn parse_zone(bytes: &[u8], has_capacity: bool) -> Result<ReportedZone, String> {
    let sectors = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (start, length, write_pointer) = (sectors(0), sectors(8), sectors(16));
    let (zone_type, condition) = (bytes[24], bytes[25]);
    let is_conventional = match zone_type {
        CONVENTIONAL => true,
        SEQUENTIAL_WRITE_REQUIRED => false,
        other => return Err(format!("the zone at sector {start} has the type {other}, which is not supported")),
    };
    let state = match condition {
        0 => ZoneState::NotWritePointer,
        1 => ZoneState::Empty,
        2 => ZoneState::ImplicitlyOpened,
        3 => ZoneState::ExplicitlyOpened,
        4 => ZoneState::Closed,
        0xd => ZoneState::ReadOnly,
        0xe => ZoneState::Full,
        0xf => ZoneState::Offline,
        other => return Err(format!("the zone at sector {start} has the condition {other:#x}, which is not known")),
    };
    let capacity = if has_capacity { sectors(32) } else { length };
    if length == 0 || capacity == 0 || capacity > length || start.checked_add(length).is_none() {
        return Err(format!("the zone at sector {start} has {length} sectors and a capacity of {capacity}"));
    }
    Ok(ReportedZone { start, length, capacity, write_pointer, is_conventional, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two zones of 2 MiB as null_blk of Linux 6.12 reports them, on a little-endian machine: the first
    /// implicitly open with a write pointer at 4 KiB and a capacity of 1 MiB, the second empty.
    const REPORT: &str = "0000000000000000 02000000 01000000 \
        0000000000000000 0010000000000000 0800000000000000 02020000 00000000 0008000000000000 \
        000000000000000000000000000000000000000000000000 \
        0010000000000000 0010000000000000 0010000000000000 02010000 00000000 0008000000000000 \
        000000000000000000000000000000000000000000000000";

    fn bytes() -> Vec<u8> {
        let digits: Vec<u8> = REPORT.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn a_report_is_parsed_from_its_bytes() {
        let zones = parse(&bytes()).unwrap();
        let first = ReportedZone {
            start: 0,
            length: 4096,
            capacity: 2048,
            write_pointer: 8,
            is_conventional: false,
            state: ZoneState::ImplicitlyOpened,
        };
        let second = ReportedZone { start: 4096, length: 4096, write_pointer: 4096, state: ZoneState::Empty, ..first };
        assert_eq!(zones, [first, second]);
        let found = FoundZone::new(ZoneState::ImplicitlyOpened, Blocks(1));
        assert_eq!(zones[0].found(4096), found);
    }

    #[test]
    fn without_the_flag_the_capacity_is_the_size() {
        let mut bytes = bytes();
        bytes[12] = 0;
        assert_eq!(parse(&bytes).unwrap()[0].capacity, 4096);
    }

    #[test]
    fn a_report_that_contradicts_itself_is_an_error() {
        let spoilt = |at: usize, byte: u8| {
            let mut bytes = bytes();
            bytes[at] = byte;
            parse(&bytes).expect_err("it is wrong")
        };
        assert!(spoilt(16 + 24, 3).contains("type 3"), "sequential write preferred");
        assert!(spoilt(16 + 25, 7).contains("condition 0x7"));
        assert!(spoilt(16 + 33, 0x20).contains("capacity of 8192"));
        assert!(spoilt(16 + 9, 0x20).contains("not adjacent"));
        assert!(parse(&[0; 8]).is_err());
    }
}
