//! The superblock, one block in a member's metadata zones: the identity of the array, and its
//! members.
//!
//! ```text
//! byte 0..4    magic "ZVSB"                        32..40  epoch
//!      4..8    CRC-32C over byte 8 to the end       40..48  sequence of the superblock
//!      8..10   version, 2                           48..56  blocks of the volume
//!      10      level                                56..60  bytes of a block
//!      11      data chunks of a stripe              60..64  small stream: blocks of a stripe unit
//!      12      parity chunks of a stripe            64..68                stripes of a group
//!      13      bits: 0 metadata are in band,        68..72  large stream: blocks of a stripe unit
//!              1 headers of segments stand once
//!      14      member: whose copy this is           72..76                stripes of a group
//!      15      members                              76      bytes of the name
//!      16..32  array                                77      copies of this superblock in the blocks behind it
//!      144..496  a member each                      78..80  0
//!      496..504  accepted: the last segment up to   80..144 name, UTF-8, then zeros
//!                which an operator accepted losses  504..508 zones of the member that are offline and held nothing
//!                                                  508..   numbers u32 of unused zones of the member that are
//!                                                          read only, up to the end of the block; then zeros
//!
//! a member: 0..16  id    16..22  a number of 48 bits: the upper two are its state (0 active, 1 failed, 2 rebuilding, 3 failed
//!                                and rejected), the others the epoch since which it has it
//!
//! In version 1 byte 77 is 0, nothing is accepted, no zones are counted or named, and members stand at 144..512:
//! a member: 0..16  id    16  state    17..23  the epoch since which it has it
//! ```

use super::block::{self, HeaderError};
use super::bytes::{array_at, put_u32, put_u48, put_u64, u32_at, u48_at, u64_at};
use super::{ArrayId, BLOCK_BYTES_MIN, MEMBERS_MAX, VERSION};
use crate::config::StreamShape;

/// The first bytes of a superblock.
pub const MAGIC: [u8; 4] = *b"ZVSB";
const LEVEL_AT: usize = block::FIELDS_AT;
const DATA_AT: usize = 11;
const PARITY_AT: usize = 12;
const FLAGS_AT: usize = 13;
const MEMBER_AT: usize = 14;
const MEMBERS_AT: usize = 15;
const ARRAY_AT: usize = 16;
const EPOCH_AT: usize = 32;
const SEQUENCE_AT: usize = 40;
const VOLUME_BLOCKS_AT: usize = 48;
const BLOCK_SIZE_AT: usize = 56;
const SMALL_AT: usize = 60;
const LARGE_AT: usize = 68;
const NAME_LENGTH_AT: usize = 76;
const COPIES_BEHIND_AT: usize = 77;
const NAME_AT: usize = 80;
const ENTRIES_AT: usize = NAME_AT + NAME_BYTES_MAX;

const ACCEPTED_AT: usize = 496;
const OFFLINE_AT: usize = 504;
const READ_ONLY_AT: usize = 508;
const ZONE_BYTES: usize = 4;

/// Offset of an entry's state and epoch, in both versions.
const ENTRY_STATE_AT: usize = 16;
const ENTRY_BYTES: usize = 22;
/// Bits of an entry's epoch; the two bits above are its state.
const ENTRY_EPOCH_BITS: u32 = 46;
/// The state of a failed and rejected member, in version 2.
const REJECTED: u8 = 3;
/// In version 1 state and epoch are separate.
const ENTRY_EPOCH_AT_V1: usize = 17;
const ENTRY_BYTES_V1: usize = 23;

const IN_BAND: u8 = 1;
const SINGLE_HEADERS: u8 = 2;

/// Maximum length of an array's name.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// The last epoch: a member's entry has 46 bits for it. An array that changed a thousand times a
/// second would reach it in 2,200 years.
pub(crate) const EPOCH_MAX: u64 = (1 << ENTRY_EPOCH_BITS) - 1;

const _: () = assert!(ENTRIES_AT + ENTRY_BYTES * MEMBERS_MAX <= ACCEPTED_AT, "members end before what follows them");
const _: () = assert!(ENTRIES_AT + ENTRY_BYTES_V1 * MEMBERS_MAX <= BLOCK_BYTES_MIN, "it fits the smallest block");

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Holds all of its data.
    Active = 0,
    /// Failed; the volume runs without it.
    Failed = 1,
    /// Receives new stripes, and the old ones are being rebuilt.
    Rebuilding = 2,
}

/// One member of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberEntry {
    pub(crate) id: [u8; 16],
    pub(crate) state: MemberState,
    /// The epoch since which it has this state, at most [`EPOCH_MAX`].
    pub(crate) since_epoch: u64,
    /// It failed because the other side of a split brain was chosen; never set in version 1.
    pub(crate) is_rejected: bool,
}

/// The identity of an array, and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// 1 or 2.
    pub(crate) version: u16,
    /// Number of copies in the blocks behind it; always 0 in version 1.
    pub(crate) copies_behind: u8,
    /// The last segment up to which an operator accepted losses; always 0 in version 1.
    pub(crate) accepted_segment: u64,
    /// Zones of this member that are offline and are known to hold nothing that is needed; `None`
    /// in version 1.
    pub(crate) offline_zones: Option<u32>,
    /// Zones of this member that are read only and hold nothing that is needed, as many as fit the
    /// block: a mount treats them as empty, since no reset can erase them. None of them is a
    /// metadata zone. Always empty in version 1.
    pub(crate) read_only_zones: Vec<u32>,
    pub(crate) array: ArrayId,
    /// At most [`NAME_BYTES_MAX`] bytes.
    pub(crate) name: String,
    /// At most [`EPOCH_MAX`].
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) block_size_bytes: u32,
    pub(crate) volume_blocks: u64,
    pub(crate) level: u8,
    /// Data chunks of a stripe.
    pub(crate) data: u8,
    /// Parity chunks of a stripe.
    pub(crate) parity: u8,
    pub(crate) is_in_band: bool,
    /// New segments have single headers, as in version 1: otherwise the volume would not fit.
    pub(crate) has_single_headers: bool,
    pub(crate) small: StreamShape,
    pub(crate) large: StreamShape,
    /// The member whose copy this is.
    pub(crate) member: u8,
    pub(crate) members: Vec<MemberEntry>,
}

impl Superblock {
    /// Whether another superblock of the volume has the same members and accepted losses, in any
    /// epoch.
    pub(crate) fn has_same_contents(&self, other: &Superblock) -> bool {
        (self.version, self.accepted_segment, &self.members) == (other.version, other.accepted_segment, &other.members)
    }

    /// Writes the superblock into a block.
    pub(crate) fn write(&self, out: &mut [u8]) {
        assert!(self.members.len() <= MEMBERS_MAX, "an array has at most {MEMBERS_MAX} members");
        assert!(self.name.len() <= NAME_BYTES_MAX, "a name has at most {NAME_BYTES_MAX} bytes");
        assert!(self.epoch <= EPOCH_MAX, "epochs count changes of the array, one by one");
        block::begin_version(out, MAGIC, self.version);
        out[LEVEL_AT] = self.level;
        out[DATA_AT] = self.data;
        out[PARITY_AT] = self.parity;
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        out[FLAGS_AT] = flag(IN_BAND, self.is_in_band) | flag(SINGLE_HEADERS, self.has_single_headers);
        out[MEMBER_AT] = self.member;
        out[MEMBERS_AT] = self.members.len() as u8;
        out[ARRAY_AT..EPOCH_AT].copy_from_slice(&self.array);
        put_u64(out, EPOCH_AT, self.epoch);
        put_u64(out, SEQUENCE_AT, self.sequence);
        put_u64(out, VOLUME_BLOCKS_AT, self.volume_blocks);
        put_u32(out, BLOCK_SIZE_AT, self.block_size_bytes);
        write_shape(self.small, &mut out[SMALL_AT..]);
        write_shape(self.large, &mut out[LARGE_AT..]);
        out[NAME_LENGTH_AT] = self.name.len() as u8;
        out[NAME_AT..NAME_AT + self.name.len()].copy_from_slice(self.name.as_bytes());
        if self.version == 1 {
            for (bytes, member) in out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES_V1).zip(&self.members) {
                member.write_v1(bytes);
            }
        } else {
            out[COPIES_BEHIND_AT] = self.copies_behind;
            put_u64(out, ACCEPTED_AT, self.accepted_segment);
            put_u32(out, OFFLINE_AT, self.offline_zones.unwrap_or(0));
            for (bytes, &zone) in out[READ_ONLY_AT..].chunks_exact_mut(ZONE_BYTES).zip(&self.read_only_zones) {
                put_u32(bytes, 0, zone);
            }
            for (bytes, member) in out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(&self.members) {
                member.write(bytes);
            }
        }
        block::seal(out);
    }

    /// Reads a superblock from a block. The caller checks that its numbers describe a valid array.
    ///
    /// # Errors
    /// Why it is not a superblock. [`HeaderError::Damaged`] also if a field has a value that no
    /// writer writes: no data chunk, more chunks or members than [`MEMBERS_MAX`], an invalid member
    /// index, state or epoch, a name that is not UTF-8.
    pub(crate) fn read(block: &[u8]) -> Result<Superblock, HeaderError> {
        let version = block::check_version(block, MAGIC, VERSION)?;
        Superblock::read_fields(block, version).filter(Superblock::is_possible).ok_or(HeaderError::Damaged)
    }

    fn read_fields(block: &[u8], version: u16) -> Option<Superblock> {
        let name = block[NAME_AT..ENTRIES_AT].get(..usize::from(block[NAME_LENGTH_AT]))?;
        let members = usize::from(block[MEMBERS_AT]);
        if members > MEMBERS_MAX {
            return None;
        }
        let is_first = version == 1;
        let entry_bytes = if is_first { ENTRY_BYTES_V1 } else { ENTRY_BYTES };
        let entries = block[ENTRIES_AT..].chunks_exact(entry_bytes).take(members);
        let entry = if is_first { MemberEntry::read_v1 } else { MemberEntry::read };
        Some(Superblock {
            version,
            copies_behind: if is_first { 0 } else { block[COPIES_BEHIND_AT] },
            accepted_segment: if is_first { 0 } else { u64_at(block, ACCEPTED_AT) },
            offline_zones: (!is_first).then(|| u32_at(block, OFFLINE_AT)),
            read_only_zones: if is_first { Vec::new() } else { read_only_zones(block) },
            array: array_at(block, ARRAY_AT),
            name: str::from_utf8(name).ok()?.to_owned(),
            epoch: u64_at(block, EPOCH_AT),
            sequence: u64_at(block, SEQUENCE_AT),
            block_size_bytes: u32_at(block, BLOCK_SIZE_AT),
            volume_blocks: u64_at(block, VOLUME_BLOCKS_AT),
            level: block[LEVEL_AT],
            data: block[DATA_AT],
            parity: block[PARITY_AT],
            is_in_band: block[FLAGS_AT] & IN_BAND != 0,
            has_single_headers: block[FLAGS_AT] & SINGLE_HEADERS != 0,
            small: read_shape(&block[SMALL_AT..]),
            large: read_shape(&block[LARGE_AT..]),
            member: block[MEMBER_AT],
            members: entries.map(entry).collect::<Option<Vec<_>>>()?,
        })
    }

    fn is_possible(&self) -> bool {
        let shapes = [self.small, self.large];
        self.data > 0
            && usize::from(self.data) + usize::from(self.parity) <= MEMBERS_MAX
            && usize::from(self.member) < self.members.len()
            && self.epoch <= EPOCH_MAX
            && self.members.iter().all(|member| member.since_epoch <= self.epoch)
            // A side is chosen among members that have an epoch.
            && self.members.iter().all(|member| !member.is_rejected || member.since_epoch > 0)
            && shapes.iter().all(|shape| shape.unit_blocks > 0 && shape.group_stripes > 0)
    }
}

impl MemberEntry {
    fn write(&self, out: &mut [u8]) {
        assert!(self.since_epoch <= EPOCH_MAX, "epochs count changes of the array, one by one");
        out[..ENTRY_STATE_AT].copy_from_slice(&self.id);
        let state = if self.is_rejected { REJECTED } else { self.state as u8 };
        put_u48(out, ENTRY_STATE_AT, u64::from(state) << ENTRY_EPOCH_BITS | self.since_epoch);
    }

    fn read(bytes: &[u8]) -> Option<MemberEntry> {
        let state_and_epoch = u48_at(bytes, ENTRY_STATE_AT);
        let code = (state_and_epoch >> ENTRY_EPOCH_BITS) as u8;
        let is_rejected = code == REJECTED;
        let state = if is_rejected { MemberState::Failed } else { state_of(code)? };
        Some(MemberEntry { id: array_at(bytes, 0), state, since_epoch: state_and_epoch & EPOCH_MAX, is_rejected })
    }

    fn write_v1(&self, out: &mut [u8]) {
        out[..ENTRY_STATE_AT].copy_from_slice(&self.id);
        out[ENTRY_STATE_AT] = self.state as u8;
        put_u48(out, ENTRY_EPOCH_AT_V1, self.since_epoch);
    }

    fn read_v1(bytes: &[u8]) -> Option<MemberEntry> {
        let state = state_of(bytes[ENTRY_STATE_AT])?;
        let since_epoch = u48_at(bytes, ENTRY_EPOCH_AT_V1);
        Some(MemberEntry { id: array_at(bytes, 0), state, since_epoch, is_rejected: false })
    }
}

#[cfg(test)]
impl Superblock {
    /// The superblock reduced to the fields of version 1.
    pub(crate) fn into_version_1(self) -> Superblock {
        let read_only_zones = Vec::new();
        Superblock { version: 1, copies_behind: 0, accepted_segment: 0, offline_zones: None, read_only_zones, ..self }
    }
}

/// Zone 0 is a metadata zone: it terminates the list.
fn read_only_zones(block: &[u8]) -> Vec<u32> {
    let zones = block[READ_ONLY_AT..].chunks_exact(ZONE_BYTES).map(|bytes| u32_at(bytes, 0));
    zones.take_while(|&zone| zone != 0).collect()
}

fn state_of(code: u8) -> Option<MemberState> {
    [MemberState::Active, MemberState::Failed, MemberState::Rebuilding].into_iter().find(|&state| state as u8 == code)
}

fn write_shape(shape: StreamShape, out: &mut [u8]) {
    put_u32(out, 0, shape.unit_blocks);
    put_u32(out, 4, shape.group_stripes);
}

fn read_shape(bytes: &[u8]) -> StreamShape {
    StreamShape { unit_blocks: u32_at(bytes, 0), group_stripes: u32_at(bytes, 4) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};

    fn superblock() -> Superblock {
        let member =
            |number: u8, state, since_epoch| MemberEntry { id: [number; 16], state, since_epoch, is_rejected: false };
        Superblock {
            version: 2,
            copies_behind: 1,
            accepted_segment: 0x8182_8384_8586_8788,
            offline_zones: Some(0x9192_9394),
            read_only_zones: vec![0xA1A2_A3A4],
            array: *b"0123456789abcdef",
            name: "prague".to_owned(),
            epoch: 0x1112_1314_1516,
            sequence: 0x2122_2324_2526_2728,
            block_size_bytes: 4096,
            volume_blocks: 0x3132_3334_3536_3738,
            level: 5,
            data: 3,
            parity: 1,
            is_in_band: true,
            has_single_headers: false,
            small: StreamShape { unit_blocks: 0x4142_4344, group_stripes: 0x5152_5354 },
            large: StreamShape { unit_blocks: 0x6162_6364, group_stripes: 0x7172_7374 },
            member: 1,
            members: vec![
                member(0xA1, MemberState::Active, 0),
                member(0xA2, MemberState::Failed, 0x0102_0304_0506),
                member(0xA3, MemberState::Rebuilding, 0x1112_1314_1516),
                member(0xA4, MemberState::Active, 1),
            ],
        }
    }

    #[test]
    fn a_superblock_reads_back_in_the_smallest_block_with_all_members_and_the_longest_name() {
        let mut most = Superblock { name: "é".repeat(NAME_BYTES_MAX / 2), epoch: EPOCH_MAX, ..superblock() };
        most.members[0].since_epoch = EPOCH_MAX;
        most.members.resize(MEMBERS_MAX, most.members[1]);
        let mut rejecting = superblock();
        rejecting.members[1].is_rejected = true;
        let plain = Superblock { name: String::new(), is_in_band: false, has_single_headers: true, ..superblock() };
        let first = most.clone().into_version_1();
        for superblock in [superblock(), most, plain, first, rejecting] {
            for block_bytes in [512, 4096] {
                let mut block = vec![0xFF; block_bytes];
                superblock.write(&mut block);
                assert_eq!(Superblock::read(&block).as_ref(), Ok(&superblock));
            }
        }
        assert_eq!(Superblock::read(&[0; 512]), Err(HeaderError::Blank));
        assert_eq!(Superblock::read(&[1; 512]), Err(HeaderError::NotOurs));
    }

    #[test]
    fn a_superblock_with_a_flipped_bit_is_refused() {
        let mut block = [0; 512];
        superblock().write(&mut block);
        every_flipped_bit_is_noticed(&block, |block| Superblock::read(block).is_err());
    }

    #[test]
    fn a_superblock_that_no_writer_writes_is_damaged() {
        let bytes = [
            (DATA_AT, 0),
            (PARITY_AT, 14),
            (MEMBER_AT, 4),
            (MEMBERS_AT, 17),
            (NAME_LENGTH_AT, 65),
            (NAME_AT, 0xFF),
            (EPOCH_AT + 6, 1),
            (EPOCH_AT + 5, 0),
            (ENTRIES_AT + ENTRY_STATE_AT + 5, 0xC0),
        ];
        for (at, value) in bytes {
            let mut block = [0; 512];
            superblock().write(&mut block);
            block[at] = value;
            block::seal(&mut block);
            assert_eq!(Superblock::read(&block), Err(HeaderError::Damaged), "byte {at}");
        }
    }

    #[test]
    fn the_bytes_of_a_superblock_of_version_1_are_golden() {
        let mut block = [0; 512];
        superblock().into_version_1().write(&mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a56534274c0ad0d0100050301010104\n",
                "30313233343536373839616263646566\n",
                "16151413121100002827262524232221\n",
                "38373635343332310010000044434241\n",
                "54535251646362617473727106000000\n",
                "70726167756500000000000000000000\n",
                "00000000000000000000000000000000\n",
                "00000000000000000000000000000000\n",
                "00000000000000000000000000000000\n",
                "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1\n",
                "00000000000000a2a2a2a2a2a2a2a2a2\n",
                "a2a2a2a2a2a2a201060504030201a3a3\n",
                "a3a3a3a3a3a3a3a3a3a3a3a3a3a30216\n",
                "1514131211a4a4a4a4a4a4a4a4a4a4a4\n",
                "a4a4a4a4a40001",
            )
        );
    }

    #[test]
    fn the_bytes_of_a_superblock_of_version_2_are_golden() {
        let (mut first, mut block) = ([0; 512], [0; 512]);
        Superblock { version: 1, ..superblock() }.write(&mut first);
        let flagged = Superblock { has_single_headers: true, ..superblock() };
        flagged.write(&mut block);
        assert_eq!(hex(&block[8..10]), "02");
        assert_eq!((first[13], block[13]), (1, 3));
        assert_eq!((first[77], block[77]), (0, 1));
        let is_flag = |at: &usize| [13, 77].contains(at);
        for at in (10..144).filter(|at| !is_flag(at)) {
            assert_eq!(first[at], block[at], "byte {at} is as in version 1");
        }
        assert_eq!(
            hex(&block[144..]),
            concat!(
                "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1\n",
                "000000000000a2a2a2a2a2a2a2a2a2a2\n",
                "a2a2a2a2a2a2060504030241a3a3a3a3\n",
                "a3a3a3a3a3a3a3a3a3a3a3a316151413\n",
                "1291a4a4a4a4a4a4a4a4a4a4a4a4a4a4\n",
                "a4a40100000000000000000000000000\n",
                "00000000000000000000000000000000\n",
            )
            .to_owned()
                + &"00000000000000000000000000000000\n".repeat(15)
                + "888786858483828194939291a4a3a2a1"
        );
    }
}
