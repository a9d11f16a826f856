//! The superblock, one block in a member's metadata zones: what the array is, and who its members are.
//!
//! ```text
//! byte 0..4    magic "ZVSB"                        32..40  epoch
//!      4..8    CRC-32C over byte 8 to the end       40..48  sequence of the superblock
//!      8..10   version, 1                           48..56  blocks of the volume
//!      10      level                                56..60  bytes of a block
//!      11      data chunks of a stripe              60..64  small stream: blocks of a stripe unit
//!      12      parity chunks of a stripe            64..68                stripes of a group
//!      13      bit 0: metadata are in band          68..72  large stream: blocks of a stripe unit
//!      14      member: whose copy this is           72..76                stripes of a group
//!      15      members                              76      bytes of the name
//!      16..32  array                                77..80  0
//!                                                   80..144 name, UTF-8, then zeros
//!      144..512  a member each                      512..   zeros
//!
//! a member: 0..16  id    16  state: 0 active, 1 failed, 2 rebuilding    17..23  the epoch since which it has it
//! ```

use super::block::{self, HeaderError};
use super::bytes::{array_at, put_u32, put_u48, put_u64, u32_at, u48_at, u64_at};
use super::{ArrayId, BLOCK_BYTES_MIN, MEMBERS_MAX};
use crate::config::StreamShape;

const MAGIC: [u8; 4] = *b"ZVSB";
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
const NAME_AT: usize = 80;
const ENTRIES_AT: usize = NAME_AT + NAME_BYTES_MAX;

const ENTRY_STATE_AT: usize = 16;
const ENTRY_EPOCH_AT: usize = 17;
const ENTRY_BYTES: usize = 23;

const IN_BAND: u8 = 1;

/// Bytes of an array's name.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// The last epoch: a member's entry has six bytes for it. An array that changed a thousand times a second would reach it in 8,900 years.
pub(crate) const EPOCH_MAX: u64 = (1 << 48) - 1;

const _: () = assert!(ENTRIES_AT + ENTRY_BYTES * MEMBERS_MAX <= BLOCK_BYTES_MIN, "it fits the smallest block");

/// What a member is to its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Holds its part.
    Active = 0,
    /// Given up; the volume does without it.
    Failed = 1,
    /// Takes new stripes, and is being given the old ones.
    Rebuilding = 2,
}

/// One member of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberEntry {
    pub(crate) id: [u8; 16],
    pub(crate) state: MemberState,
    /// The epoch since which it has this state, at most [`EPOCH_MAX`].
    pub(crate) since_epoch: u64,
}

/// What an array is, and who its members are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
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
    pub(crate) small: StreamShape,
    pub(crate) large: StreamShape,
    /// Whose copy this is.
    pub(crate) member: u8,
    pub(crate) members: Vec<MemberEntry>,
}

impl Superblock {
    /// Writes the superblock into a block.
    pub(crate) fn write(&self, out: &mut [u8]) {
        assert!(self.members.len() <= MEMBERS_MAX, "an array has at most {MEMBERS_MAX} members");
        assert!(self.name.len() <= NAME_BYTES_MAX, "a name has at most {NAME_BYTES_MAX} bytes");
        assert!(self.epoch <= EPOCH_MAX, "epochs count changes of the array, one by one");
        block::begin(out, MAGIC);
        out[LEVEL_AT] = self.level;
        out[DATA_AT] = self.data;
        out[PARITY_AT] = self.parity;
        out[FLAGS_AT] = if self.is_in_band { IN_BAND } else { 0 };
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
        for (bytes, member) in out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(&self.members) {
            member.write(bytes);
        }
        block::seal(out);
    }

    /// The superblock in a block. That its numbers make an array is for the caller to check.
    ///
    /// # Errors
    /// Why it is none. [`HeaderError::Damaged`] also where a field has a value that no writer gives it: no chunk of data, more chunks
    /// or members than [`MEMBERS_MAX`], a copy of nobody, a state that is none, a name that is no UTF-8, an epoch to come.
    pub(crate) fn read(block: &[u8]) -> Result<Superblock, HeaderError> {
        block::check(block, MAGIC)?;
        Superblock::read_fields(block).filter(Superblock::is_possible).ok_or(HeaderError::Damaged)
    }

    fn read_fields(block: &[u8]) -> Option<Superblock> {
        let name = block[NAME_AT..ENTRIES_AT].get(..usize::from(block[NAME_LENGTH_AT]))?;
        let members = usize::from(block[MEMBERS_AT]);
        if members > MEMBERS_MAX {
            return None;
        }
        let entries = block[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(members);
        Some(Superblock {
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
            small: read_shape(&block[SMALL_AT..]),
            large: read_shape(&block[LARGE_AT..]),
            member: block[MEMBER_AT],
            members: entries.map(MemberEntry::read).collect::<Option<Vec<_>>>()?,
        })
    }

    fn is_possible(&self) -> bool {
        let shapes = [self.small, self.large];
        self.data > 0
            && usize::from(self.data) + usize::from(self.parity) <= MEMBERS_MAX
            && usize::from(self.member) < self.members.len()
            && self.epoch <= EPOCH_MAX
            && self.members.iter().all(|member| member.since_epoch <= self.epoch)
            && shapes.iter().all(|shape| shape.unit_blocks > 0 && shape.group_stripes > 0)
    }
}

impl MemberEntry {
    fn write(&self, out: &mut [u8]) {
        assert!(self.since_epoch <= EPOCH_MAX, "epochs count changes of the array, one by one");
        out[..ENTRY_STATE_AT].copy_from_slice(&self.id);
        out[ENTRY_STATE_AT] = self.state as u8;
        put_u48(out, ENTRY_EPOCH_AT, self.since_epoch);
    }

    fn read(bytes: &[u8]) -> Option<MemberEntry> {
        let state = match bytes[ENTRY_STATE_AT] {
            0 => MemberState::Active,
            1 => MemberState::Failed,
            2 => MemberState::Rebuilding,
            _ => return None,
        };
        Some(MemberEntry { id: array_at(bytes, 0), state, since_epoch: u48_at(bytes, ENTRY_EPOCH_AT) })
    }
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
        let member = |number: u8, state, since_epoch| MemberEntry { id: [number; 16], state, since_epoch };
        Superblock {
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
        let plain = Superblock { name: String::new(), is_in_band: false, ..superblock() };
        for superblock in [superblock(), most, plain] {
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
            (ENTRIES_AT + ENTRY_STATE_AT, 3),
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
    fn the_bytes_of_a_superblock_are_golden() {
        let mut block = [0; 512];
        superblock().write(&mut block);
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
}
