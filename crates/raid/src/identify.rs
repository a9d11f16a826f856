//! Identifies the volume and member of a device by a block of its superblock log. For programs that
//! must not damage a volume that they do not mount.

use crate::config::{Level, Scheme};
use crate::format::{ArrayId, HeaderError, MemberState, Superblock};

/// Blocks at the end of each metadata zone in which to search for the newest superblock: the last
/// ones may be damaged.
pub const SUPERBLOCKS_BACK_MAX: u32 = 16;

/// What a block reveals about its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The device is a member of a volume.
    Member(Box<Membership>),
    /// The device is a member, with a format version that this crate does not support.
    OtherVersion(u16),
}

/// What a member's superblock records about its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The volume's name.
    pub name: String,
    /// The unique id of the volume.
    pub array: ArrayId,
    /// The index of this device among the members.
    pub member: u8,
    /// The epoch of the superblock: it counts mounts and changes of the members.
    pub epoch: u64,
    /// The sequence number of the superblock: of two with the same epoch, the higher one is newer.
    pub sequence: u64,
    /// Level and number of members; `None` for a level that this crate does not support.
    pub scheme: Option<Scheme>,
    /// Exported capacity in blocks.
    pub volume_blocks: u64,
    /// Block size in bytes.
    pub block_size_bytes: u32,
    /// Chunks have a block for metadata, since not all members have metadata with each block.
    pub is_in_band: bool,
    /// All members, in their order, as this superblock records them.
    pub members: Vec<KnownMember>,
}

/// A member, as a superblock records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMember {
    /// The unique id of the device.
    pub id: [u8; 16],
    /// Its state.
    pub state: MemberState,
    /// The epoch since which it has this state.
    pub since_epoch: u64,
    /// It failed because the other side of a split brain was chosen: its contents, segments
    /// included, are no part of the volume.
    pub is_rejected: bool,
}

impl Membership {
    pub(crate) fn of(superblock: &Superblock) -> Membership {
        let scheme = Level::of_code(superblock.level).map(|level| Scheme {
            level,
            data: superblock.data,
            parity: superblock.parity,
        });
        let member = |entry: &crate::format::MemberEntry| KnownMember {
            id: entry.id,
            state: entry.state,
            since_epoch: entry.since_epoch,
            is_rejected: entry.is_rejected,
        };
        Membership {
            members: superblock.members.iter().map(member).collect(),
            name: superblock.name.clone(),
            array: superblock.array,
            member: superblock.member,
            epoch: superblock.epoch,
            sequence: superblock.sequence,
            scheme,
            volume_blocks: superblock.volume_blocks,
            block_size_bytes: superblock.block_size_bytes,
            is_in_band: superblock.is_in_band,
        }
    }

    /// The unique id of this device.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        // A superblock whose own member index is out of range is refused when it is read.
        self.members[usize::from(self.member)].id
    }

    /// Whether this superblock is newer than another one of the same volume.
    #[must_use]
    pub fn is_newer_than(&self, other: &Membership) -> bool {
        (self.epoch, self.sequence) > (other.epoch, other.sequence)
    }
}

/// The identity in this block; `None` if it is no superblock, or a damaged one.
#[must_use]
pub fn identify(block: &[u8]) -> Option<Identity> {
    let superblock = match Superblock::read(block) {
        Ok(superblock) => superblock,
        Err(HeaderError::OtherVersion { found }) => return Some(Identity::OtherVersion(found)),
        Err(_) => return None,
    };
    Some(Identity::Member(Box::new(Membership::of(&superblock))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StreamShape;
    use crate::format::MemberEntry;

    #[test]
    fn a_member_is_identified_by_its_superblock_and_nothing_else_is_one() {
        let entry =
            |number: u8, state, since_epoch| MemberEntry { id: [number; 16], state, since_epoch, is_rejected: false };
        let shape = StreamShape { unit_blocks: 1, group_stripes: 1 };
        let superblock = Superblock {
            version: crate::format::VERSION,
            copies_behind: 0,
            accepted_segment: 0,
            offline_zones: Some(0),
            read_only_zones: Vec::new(),
            has_single_headers: false,
            array: [7; 16],
            name: "vol".to_owned(),
            epoch: 5,
            sequence: 9,
            block_size_bytes: 512,
            volume_blocks: 1000,
            level: Level::Raid5.code(),
            data: 1,
            parity: 1,
            is_in_band: false,
            small: shape,
            large: shape,
            member: 1,
            members: vec![entry(1, MemberState::Failed, 5), entry(2, MemberState::Active, 3)],
        };
        let mut block = [0; 512];
        superblock.write(&mut block);
        let Some(Identity::Member(found)) = identify(&block) else { panic!("it is a superblock") };
        assert_eq!((found.name.as_str(), found.array, found.member, found.id()), ("vol", [7; 16], 1, [2; 16]));
        assert_eq!((found.epoch, found.members[0].state, found.members[1].since_epoch), (5, MemberState::Failed, 3));
        assert_eq!(found.scheme, Some(Scheme { level: Level::Raid5, data: 1, parity: 1 }));
        let older = Membership { epoch: 4, sequence: 10, ..(*found).clone() };
        assert!(found.is_newer_than(&older) && !older.is_newer_than(&found));
        block[200] ^= 1;
        assert_eq!((identify(&block), identify(&[0; 512]), identify(&[1; 9])), (None, None, None));
    }
}
