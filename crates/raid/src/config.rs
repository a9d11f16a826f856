//! Configuration of a volume.

use zonda_erasure::Code;
use zonda_zoned::Duration;

use crate::format::ArrayId;
use crate::limits::{GROUP_STRIPES_MAX, MEMBERS_MAX, OPEN_SEGMENTS_MAX, TRIM_BLOCKS_MAX, UNIT_BLOCKS_MAX};
use crate::{MemberIndex, VolumeError};

/// Redundancy level: `k` data members, `m` parity members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// No redundancy: `k` members.
    Raid0,
    /// `m` copies of each block: 1 + m members.
    Raid1,
    /// A mirror of a stripe: `k` members and their `k` copies.
    Raid01,
    /// One parity member, always the last.
    Raid4,
    /// One parity, rotated.
    Raid5,
    /// Two parities, rotated.
    Raid6,
    /// `k` + `m` Reed-Solomon, rotated.
    ReedSolomon,
}

/// The number of members that hold data and parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// The redundancy level.
    pub level: Level,
    /// Data chunks of a stripe, k.
    pub data: u8,
    /// Parity chunks or copies of a stripe, m.
    pub parity: u8,
}

/// How segments of one stream are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamShape {
    /// Blocks of a chunk, the part of a stripe on one member (with its metadata block on members
    /// without metadata).
    pub unit_blocks: u32,
    /// Stripes of a group, G: inside a group chunks are appended in any order; 1 is Zone Write
    /// only.
    pub group_stripes: u32,
}

/// Which sealed segment garbage collection empties next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The one with the fewest live blocks.
    #[default]
    Greedy,
    /// The one with the best (1 - u) x age / (1 + u), where u is the live share (Rosenblum and
    /// Ousterhout, "The Design and Implementation of a Log-Structured File System", ACM TOCS 10
    /// (1), 1992, section 3.5).
    CostBenefit,
}

/// Configuration of a volume. The layout is stored on the members; the rest can differ from mount
/// to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConfig {
    /// A human-readable name, at most 64 bytes.
    pub name: String,
    /// Level and number of members.
    pub scheme: Scheme,
    /// Exported capacity in blocks; `None` is as much as the members allow with
    /// [`reserve_percent`](Tuning::reserve_percent).
    pub volume_blocks: Option<u64>,
    /// Segments for small requests.
    pub small: StreamShape,
    /// Segments for large requests.
    pub large: StreamShape,
    /// Tuning, which can be changed with every mount.
    pub tuning: Tuning,
}

/// Parameters that can be changed with every mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Overprovisioning: space that is reserved for garbage collection, in percent of all.
    pub reserve_percent: u8,
    /// Segments open for small requests.
    pub small_segments: u8,
    /// Segments open for large requests; 0 sends all to the small ones.
    pub large_segments: u8,
    /// Blocks from which a request is large.
    pub large_from_blocks: u32,
    /// A stripe that has waited this long for more blocks is padded.
    pub flush_interval: Duration,
    /// Which segment is emptied next.
    pub victim: Victim,
    /// A member that leaves a command unanswered for this long has failed.
    pub member_timeout: Duration,
    /// Maximum rate at which a rebuild writes; `None`: unlimited.
    pub rebuild_blocks_per_second: Option<u64>,
    /// Maximum rate at which a scrub reads; `None`: unlimited.
    pub scrub_blocks_per_second: Option<u64>,
    /// Blocks of trims in flight at once; the remainder of a longer trim waits in memory, as
    /// ranges.
    pub trim_blocks: u64,
    /// Whether members have volatile write caches: they may lose acknowledged writes until they are
    /// flushed.
    pub is_cache_volatile: bool,
    /// Whether contents are stored. Without them nothing can be verified, mounted or repaired; for
    /// performance studies.
    pub has_contents: bool,
    /// Segments that are emptied are read completely, so that damage in blocks that are not needed
    /// any more is counted, too: for checks. During a scrub this applies to segments that it has
    /// not reached.
    pub reads_unneeded: bool,
}

/// What the caller of a mount knows about the volume, and what it accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The expected volume: members of any other volume are refused.
    pub expected: Option<ArrayId>,
    /// The newest epoch of the volume that the caller knows: if all members are older, the mount is
    /// refused.
    pub newest_epoch: Option<u64>,
    /// The epoch of a superblock that the caller has just read. If the member that has it is lost
    /// in the meantime, members that are all older are refused, too. Not every member needs to have
    /// it.
    pub seen_epoch: Option<u64>,
    /// Mount although acknowledged blocks are lost and it is not known which: any block may then be
    /// older than the version that was acknowledged. Later mounts do not refuse these losses again.
    pub accepts_losses: bool,
    /// Mount although all members are older than `newest_epoch`, or one that is needed is an older
    /// copy: what was written since is lost. The volume continues with a newer epoch, so that
    /// members which return later are not mistaken for newer ones.
    pub accepts_older: bool,
    /// In a split brain, keep the side of this member. Members of the other side are treated as
    /// failed and keep their contents; later mounts do not refuse them again.
    pub accepts_side: Option<MemberIndex>,
}

impl MountOptions {
    /// Expects the members of one volume; nothing else is known, and nothing is accepted.
    #[must_use]
    pub fn of(array: ArrayId) -> MountOptions {
        MountOptions { expected: Some(array), ..MountOptions::default() }
    }
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            reserve_percent: 12,
            small_segments: 1,
            large_segments: 1,
            large_from_blocks: 16,
            flush_interval: Duration::from_micros(100),
            victim: Victim::Greedy,
            member_timeout: Duration::from_secs(30),
            rebuild_blocks_per_second: None,
            // 64 MiB/s with blocks of 4 KiB.
            scrub_blocks_per_second: Some(16_384),
            trim_blocks: TRIM_BLOCKS_MAX,
            is_cache_volatile: false,
            has_contents: true,
            reads_unneeded: false,
        }
    }
}

impl VolumeConfig {
    /// A volume with the defaults: groups of 256 stripes of one block for small requests, stripes
    /// of 64 KiB chunks for large ones, and the largest capacity that its members allow.
    #[must_use]
    pub fn new(name: &str, scheme: Scheme) -> VolumeConfig {
        VolumeConfig {
            name: name.to_owned(),
            scheme,
            volume_blocks: None,
            small: StreamShape { unit_blocks: 1, group_stripes: 256 },
            large: StreamShape { unit_blocks: 16, group_stripes: 1 },
            tuning: Tuning::default(),
        }
    }
}

impl Scheme {
    /// RAID 5 over `data` + 1 members.
    #[must_use]
    pub fn raid5(data: u8) -> Scheme {
        Scheme { level: Level::Raid5, data, parity: 1 }
    }

    /// The number of members.
    #[must_use]
    pub fn members(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }

    /// Checks that the level supports these numbers of members.
    ///
    /// # Errors
    /// Returns what must be changed.
    pub fn validate(self) -> Result<(), VolumeError> {
        let Scheme { level, data, parity } = self;
        let fits = match level {
            Level::Raid0 => data >= 1 && parity == 0,
            Level::Raid1 => data == 1 && parity >= 1,
            Level::Raid01 => data >= 1 && parity == data,
            Level::Raid4 | Level::Raid5 => data >= 2 && parity == 1,
            Level::Raid6 => data >= 2 && parity == 2,
            Level::ReedSolomon => data >= 1 && parity >= 1,
        };
        if !fits {
            return Err(VolumeError::Config(format!(
                "{level} does not support {data} data and {parity} parity members: RAID 0 has no parity, RAID 1 one \
                 data member, RAID 01 as many copies as data members, RAID 4 and 5 one parity, RAID 6 two"
            )));
        }
        if self.members() > MEMBERS_MAX {
            return Err(VolumeError::Config(format!("a volume has at most {MEMBERS_MAX} members")));
        }
        Ok(())
    }

    /// Whether all blocks can be computed from these members, given as bits.
    #[must_use]
    pub fn are_enough(self, members: u32) -> bool {
        let data = usize::from(self.data);
        match self.level {
            Level::Raid01 => Code::mirror(data).is_ok_and(|code| code.is_decodable(members)),
            _ => members.count_ones() as usize >= data,
        }
    }

    /// Whether parity moves from member to member, stripe by stripe.
    #[must_use]
    pub fn is_rotated(self) -> bool {
        matches!(self.level, Level::Raid5 | Level::Raid6 | Level::ReedSolomon)
    }
}

impl Level {
    pub(crate) fn code(self) -> u8 {
        match self {
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid01 => 2,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::ReedSolomon => 7,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Level> {
        [Level::Raid0, Level::Raid1, Level::Raid01, Level::Raid4, Level::Raid5, Level::Raid6, Level::ReedSolomon]
            .into_iter()
            .find(|level| level.code() == code)
    }
}

impl StreamShape {
    /// A group as large as its segment: Zone Append only.
    pub const WHOLE_SEGMENT: u32 = GROUP_STRIPES_MAX;

    pub(crate) fn validate(self) -> Result<(), VolumeError> {
        let StreamShape { unit_blocks, group_stripes } = self;
        if !(1..=UNIT_BLOCKS_MAX).contains(&unit_blocks) {
            return Err(VolumeError::Config(format!(
                "a stripe unit must have 1 to {UNIT_BLOCKS_MAX} blocks, not {unit_blocks}"
            )));
        }
        if !(1..=GROUP_STRIPES_MAX).contains(&group_stripes) {
            return Err(VolumeError::Config(format!(
                "a group must have 1 to {GROUP_STRIPES_MAX} stripes, not {group_stripes}"
            )));
        }
        Ok(())
    }
}

impl Tuning {
    pub(crate) fn validate(&self) -> Result<(), VolumeError> {
        let open = [self.small_segments, self.large_segments].map(usize::from);
        if open[0] == 0 || open.iter().any(|&count| count > OPEN_SEGMENTS_MAX) {
            return Err(VolumeError::Config(format!(
                "open segments must be 1 to {OPEN_SEGMENTS_MAX} for small requests and 0 to {OPEN_SEGMENTS_MAX} for \
                 large requests"
            )));
        }
        if !(1..=90).contains(&self.reserve_percent) {
            return Err(VolumeError::Config("the reserve must be 1 to 90 percent".to_owned()));
        }
        if !(1..=TRIM_BLOCKS_MAX).contains(&self.trim_blocks) {
            return Err(VolumeError::Config(format!("blocks of trims in flight must be 1 to {TRIM_BLOCKS_MAX}")));
        }
        if [self.rebuild_blocks_per_second, self.scrub_blocks_per_second].contains(&Some(0)) {
            return Err(VolumeError::Config(
                "a rate of 0 blocks per second would never complete a rebuild or a scrub: omit the rate for no limit"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of data and parity members.
    type Forms = &'static [(u8, u8)];

    #[test]
    fn each_level_has_the_numbers_of_members_that_are_its_own() {
        use Level::{Raid0, Raid01, Raid1, Raid4, Raid5, Raid6, ReedSolomon};
        let forms: [(Level, Forms, Forms); 7] = [
            (Raid0, &[(1, 0), (4, 0)], &[(0, 0), (0, 1), (1, 1), (4, 1)]),
            (Raid1, &[(1, 1), (1, 3)], &[(1, 0), (0, 1), (2, 1)]),
            (Raid01, &[(1, 1), (3, 3)], &[(0, 0), (2, 1), (2, 3)]),
            (Raid4, &[(2, 1), (5, 1)], &[(1, 1), (2, 0), (2, 2)]),
            (Raid5, &[(2, 1), (5, 1)], &[(1, 1), (2, 0), (2, 2)]),
            (Raid6, &[(2, 2), (5, 2)], &[(1, 2), (2, 1), (2, 3)]),
            (ReedSolomon, &[(1, 1), (5, 3)], &[(0, 1), (1, 0), (5, 0)]),
        ];
        for (level, possible, impossible) in forms {
            let is_valid = |&(data, parity): &(u8, u8)| Scheme { level, data, parity }.validate().is_ok();
            assert!(possible.iter().all(is_valid), "{level:?}");
            assert!(!impossible.iter().any(is_valid), "{level:?}");
        }
    }
}
