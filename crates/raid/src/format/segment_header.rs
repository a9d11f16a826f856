//! The first two blocks of each zone of a segment, which are identical; in version 1 there is one.
//!
//! ```text
//! byte 0..4    magic "ZVSG"                        15      members
//!      4..8    CRC-32C over byte 8 to the end       16..32  array
//!      8..10   version, 2                           32..40  segment: its sequence, from 1, never used twice
//!      10      member: whose zone this is           40..48  epoch
//!      11      stream                               48..56  timestamp
//!      12      bits: 0 in band, 1 a rebuild's zone  56..60  blocks of a stripe unit, the one for metadata included
//!      13      data chunks of a stripe              60..64  stripes of a group
//!      14      parity chunks of a stripe            64..68  stripes
//!                                                   68..72  0
//!      72..136 zone u32 on each member, 2^32 - 1: it took no part, or there is no such member       136.. zeros
//! ```

use super::block::{self, HeaderError};
use super::bytes::{array_at, put_u32, put_u64, u32_at, u64_at};
use super::{ArrayId, BLOCK_BYTES_MIN, MEMBERS_MAX, VERSION};

/// The first bytes of a header of a segment.
pub const MAGIC: [u8; 4] = *b"ZVSG";
/// Copies of the header in a zone of version 2.
pub(crate) const HEADER_COPIES: u32 = 2;
const MEMBER_AT: usize = block::FIELDS_AT;
const STREAM_AT: usize = 11;
const FLAGS_AT: usize = 12;
const DATA_AT: usize = 13;
const PARITY_AT: usize = 14;
const MEMBERS_AT: usize = 15;
const ARRAY_AT: usize = 16;
const SEGMENT_AT: usize = 32;
const EPOCH_AT: usize = 40;
const TIMESTAMP_AT: usize = 48;
const UNIT_BLOCKS_AT: usize = 56;
const GROUP_STRIPES_AT: usize = 60;
const STRIPES_AT: usize = 64;
const ZONES_AT: usize = 72;

const IN_BAND: u8 = 1;
const REBUILT: u8 = 2;
const NO_ZONE: u32 = u32::MAX;

const _: () = assert!(HEADER_COPIES == VERSION as u32, "the version is the number of copies");
const _: () = assert!(ZONES_AT + 4 * MEMBERS_MAX <= BLOCK_BYTES_MIN, "a header fits the smallest block");

/// Identity and layout of a segment, and its zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Copies of the header in a row: 1 in version 1, 2 in version 2.
    pub(crate) copies: u32,
    pub(crate) array: ArrayId,
    /// Its sequence number: from 1, never reused.
    pub(crate) segment: u64,
    /// The epoch of the array when it was opened.
    pub(crate) epoch: u64,
    /// The next timestamp when it was opened.
    pub(crate) timestamp: u64,
    /// The member whose zone begins with this copy.
    pub(crate) member: u8,
    pub(crate) stream: u8,
    /// Whether the first block of each chunk describes the others.
    pub(crate) is_in_band: bool,
    pub(crate) unit_blocks: u32,
    pub(crate) group_stripes: u32,
    pub(crate) stripes: u32,
    /// Whether a rebuild wrote the zone: blocks that it lacks need not have been missing before,
    /// and it counts once it is full.
    pub(crate) is_rebuilt: bool,
    /// Data chunks of a stripe.
    pub(crate) data: u8,
    /// Parity chunks of a stripe.
    pub(crate) parity: u8,
    /// The zone on each member; `None`: the member took no part.
    pub(crate) zones: Vec<Option<u32>>,
}

impl SegmentHeader {
    /// Writes the header into a block.
    pub(crate) fn write(&self, out: &mut [u8]) {
        assert!(self.zones.len() <= MEMBERS_MAX, "an array has at most {MEMBERS_MAX} members");
        block::begin_version(out, MAGIC, self.copies as u16);
        out[MEMBER_AT] = self.member;
        out[STREAM_AT] = self.stream;
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        out[FLAGS_AT] = flag(self.is_in_band, IN_BAND) | flag(self.is_rebuilt, REBUILT);
        out[DATA_AT] = self.data;
        out[PARITY_AT] = self.parity;
        out[MEMBERS_AT] = self.zones.len() as u8;
        out[ARRAY_AT..SEGMENT_AT].copy_from_slice(&self.array);
        put_u64(out, SEGMENT_AT, self.segment);
        put_u64(out, EPOCH_AT, self.epoch);
        put_u64(out, TIMESTAMP_AT, self.timestamp);
        put_u32(out, UNIT_BLOCKS_AT, self.unit_blocks);
        put_u32(out, GROUP_STRIPES_AT, self.group_stripes);
        put_u32(out, STRIPES_AT, self.stripes);
        for member in 0..MEMBERS_MAX {
            let zone = self.zones.get(member).copied().flatten();
            assert!(zone != Some(NO_ZONE), "a namespace has fewer zones than {NO_ZONE}");
            put_u32(out, ZONES_AT + 4 * member, zone.unwrap_or(NO_ZONE));
        }
        block::seal(out);
    }

    /// Reads a header from one of a zone's first blocks. The caller checks that array, member and
    /// zone match.
    ///
    /// # Errors
    /// Why it is not a header. [`HeaderError::Damaged`] also if the checksum matches and the fields
    /// are inconsistent: no data chunk, more chunks or members than [`MEMBERS_MAX`], the zone of a
    /// member that does not exist or took no part.
    pub(crate) fn read(block: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let version = block::check_version(block, MAGIC, VERSION)?;
        let zone = |member: usize| Some(u32_at(block, ZONES_AT + 4 * member)).filter(|zone| *zone != NO_ZONE);
        let members = usize::from(block[MEMBERS_AT]);
        if members > MEMBERS_MAX || (members..MEMBERS_MAX).any(|member| zone(member).is_some()) {
            return Err(HeaderError::Damaged);
        }
        let header = SegmentHeader {
            copies: u32::from(version),
            array: array_at(block, ARRAY_AT),
            segment: u64_at(block, SEGMENT_AT),
            epoch: u64_at(block, EPOCH_AT),
            timestamp: u64_at(block, TIMESTAMP_AT),
            member: block[MEMBER_AT],
            stream: block[STREAM_AT],
            is_in_band: block[FLAGS_AT] & IN_BAND != 0,
            is_rebuilt: block[FLAGS_AT] & REBUILT != 0,
            unit_blocks: u32_at(block, UNIT_BLOCKS_AT),
            group_stripes: u32_at(block, GROUP_STRIPES_AT),
            stripes: u32_at(block, STRIPES_AT),
            data: block[DATA_AT],
            parity: block[PARITY_AT],
            zones: (0..members).map(zone).collect(),
        };
        if header.is_possible() { Ok(header) } else { Err(HeaderError::Damaged) }
    }

    fn is_possible(&self) -> bool {
        let chunks = usize::from(self.data) + usize::from(self.parity);
        let has_zone = self.zones.get(usize::from(self.member)).is_some_and(Option::is_some);
        self.data > 0
            && chunks <= MEMBERS_MAX
            && has_zone
            && self.segment > 0
            && [self.unit_blocks, self.group_stripes, self.stripes].iter().all(|&count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};

    fn header() -> SegmentHeader {
        SegmentHeader {
            copies: 2,
            array: *b"0123456789abcdef",
            segment: 0x0102_0304_0506_0708,
            epoch: 0x1112_1314_1516_1718,
            timestamp: 0x2122_2324_2526_2728,
            member: 2,
            stream: 1,
            is_in_band: true,
            is_rebuilt: false,
            unit_blocks: 0x3132_3334,
            group_stripes: 0x4142_4344,
            stripes: 0x5152_5354,
            data: 3,
            parity: 1,
            zones: vec![Some(0x6162_6364), None, Some(0), Some(u32::MAX - 1)],
        }
    }

    #[test]
    fn a_header_reads_back_with_any_number_of_members() {
        for members in [3, 4, MEMBERS_MAX] {
            for (is_in_band, block_bytes) in [(false, 512), (true, 4096)] {
                let copies = if is_in_band { 1 } else { 2 };
                let mut header = SegmentHeader { copies, is_in_band, is_rebuilt: !is_in_band, ..header() };
                header.zones.resize(members, Some(9));
                let mut block = vec![0xFF; block_bytes];
                header.write(&mut block);
                assert_eq!(SegmentHeader::read(&block), Ok(header));
            }
        }
        assert_eq!(SegmentHeader::read(&[0; 4096]), Err(HeaderError::Blank));
        assert_eq!(SegmentHeader::read(&[1; 4096]), Err(HeaderError::NotOurs));
    }

    #[test]
    fn a_header_with_a_flipped_bit_is_refused() {
        let mut block = [0; 512];
        header().write(&mut block);
        every_flipped_bit_is_noticed(&block, |block| SegmentHeader::read(block).is_err());
    }

    #[test]
    fn a_header_that_contradicts_itself_is_damaged() {
        let refused: [fn(&mut SegmentHeader); 7] = [
            |header| header.data = 0,
            |header| header.parity = 14,
            |header| header.member = 1,
            |header| header.member = 4,
            |header| header.segment = 0,
            |header| header.unit_blocks = 0,
            |header| header.zones.clear(),
        ];
        for (number, change) in refused.iter().enumerate() {
            let mut header = header();
            change(&mut header);
            let mut block = [0; 512];
            header.write(&mut block);
            assert_eq!(SegmentHeader::read(&block), Err(HeaderError::Damaged), "change {number}");
        }
        let mut block = [0; 512];
        header().write(&mut block);
        block[MEMBERS_AT] = 17;
        block::seal(&mut block);
        assert_eq!(SegmentHeader::read(&block), Err(HeaderError::Damaged));
    }

    #[test]
    fn the_bytes_of_a_header_of_version_1_are_golden() {
        let mut block = [0; 512];
        SegmentHeader { copies: 1, ..header() }.write(&mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a5653475d7974ff0100020101030104\n",
                "30313233343536373839616263646566\n",
                "08070605040302011817161514131211\n",
                "28272625242322213433323144434241\n",
                "545352510000000064636261ffffffff\n",
                "00000000feffffffffffffffffffffff\n",
                "ffffffffffffffffffffffffffffffff\n",
                "ffffffffffffffffffffffffffffffff\n",
                "ffffffffffffffff",
            )
        );
    }

    #[test]
    fn a_header_of_more_chunks_than_a_volume_has_members_is_damaged() {
        let most = MEMBERS_MAX as u8;
        for (data, parity, is_possible) in [
            (most, 0, true),
            (1, most - 1, true),
            (most + 1, 0, false),
            (most, 1, false),
            (1, most, false),
            (0, 1, false),
        ] {
            let mut block = [0; 512];
            let header = SegmentHeader { data, parity, ..header() };
            header.write(&mut block);
            let expected = if is_possible { Ok(header) } else { Err(HeaderError::Damaged) };
            assert_eq!(SegmentHeader::read(&block), expected, "{data} data and {parity} parity chunks");
        }
    }

    #[test]
    fn a_header_of_version_2_differs_in_its_version_alone() {
        let (mut first, mut second) = ([0; 512], [0; 512]);
        SegmentHeader { copies: 1, ..header() }.write(&mut first);
        header().write(&mut second);
        assert_eq!((hex(&first[8..10]), hex(&second[8..10])), ("01".to_owned(), "02".to_owned()));
        assert_eq!(first[10..], second[10..]);
    }
}
