//! What can go wrong with a volume.

use std::fmt;

use crate::MemberIndex;

/// Why a volume cannot be made, mounted or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// What was asked for cannot be, and what to change.
    Config(String),
    /// Another owner has the members: this volume writes nothing any more.
    TakenOver,
    /// Too few active members are present.
    TooManyMissing {
        /// How many may be missing.
        tolerates: usize,
        /// Which are missing.
        missing: Vec<MemberIndex>,
        /// Which are present, but not rebuilt yet.
        rebuilding: Vec<MemberIndex>,
    },
    /// Blocks that may have been acknowledged are lost, and it cannot be known which logical blocks they are: any block of
    /// the volume may have an older version than the one that was acknowledged.
    UnidentifiedLosses {
        /// A member that holds some of them, damaged.
        member: MemberIndex,
        /// The sequence of the segment that they are in.
        segment: u64,
        /// How many there are, at most.
        blocks: u64,
    },
    /// The newest superblock of these members is older than the caller knows the volume to be.
    OlderThanKnown {
        /// The epoch of the newest superblock found.
        found: u64,
        /// The epoch that the caller knows.
        known: u64,
    },
    /// Members were written to apart from each other: each side counts the other one as failed.
    SplitBrain {
        /// Members that know the newest epoch.
        newest: Vec<MemberIndex>,
        /// Members that were active on their own after these had counted them as failed.
        other: Vec<MemberIndex>,
        /// The newest epoch of the first ones.
        newest_epoch: u64,
        /// The newest epoch of the others.
        other_epoch: u64,
    },
    /// A member belongs to another volume.
    Foreign {
        /// Which one.
        member: MemberIndex,
        /// The name of the volume that it belongs to.
        volume: String,
    },
    /// A member holds no volume.
    NoVolume {
        /// Which one.
        member: MemberIndex,
    },
    /// A member's format is of another version.
    Version {
        /// Which one.
        member: MemberIndex,
        /// The version that it has.
        found: u16,
    },
    /// A member failed while the volume started.
    Member {
        /// Which one.
        member: MemberIndex,
        /// What failed.
        what: String,
    },
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumeError::Config(remedy) => f.write_str(remedy),
            VolumeError::TakenOver => f.write_str("another owner has the members"),
            VolumeError::TooManyMissing { tolerates, missing, rebuilding } => {
                if !missing.is_empty() {
                    write!(f, "members {} are missing or out of date, ", list(missing))?;
                }
                if !rebuilding.is_empty() {
                    write!(f, "members {} are not rebuilt yet, ", list(rebuilding))?;
                }
                if !missing.is_empty() && !rebuilding.is_empty() {
                    write!(f, "which is {} in all, ", missing.len() + rebuilding.len())?;
                }
                write!(f, "and the volume can do without {tolerates}: bring one of those that are missing back")
            }
            VolumeError::UnidentifiedLosses { member, segment, blocks } => write!(
                f,
                "up to {blocks} blocks written last are lost, and it is not known which: segment {segment} is damaged on member \
                 {}; bring back the members that are missing, or accept the losses: any block may then be older than when it \
                 was last written, so check the file system and compare with a backup",
                member.0
            ),
            VolumeError::OlderThanKnown { found, known } => write!(
                f,
                "the members are out of date: their newest superblock is of epoch {found}, and the volume has reached epoch \
                 {known}: bring back the members that were active since"
            ),
            VolumeError::SplitBrain { newest, other, newest_epoch, other_epoch } => write!(
                f,
                "split brain: members {} (epoch {newest_epoch}) and members {} (epoch {other_epoch}) were each written to without \
                 the others; choose the side to keep, and replace the members of the other",
                list(newest),
                list(other)
            ),
            VolumeError::Foreign { member, volume } => write!(
                f,
                "member {} belongs to the volume \"{volume}\": name its own members, or wipe it to use it here",
                member.0
            ),
            VolumeError::NoVolume { member } => {
                write!(f, "member {} holds no volume: create one, or name the members it was made of", member.0)
            }
            VolumeError::Version { member, found } => write!(
                f,
                "member {} has format version {found}, this program reads versions up to {}: use the program that wrote it",
                member.0,
                crate::format::VERSION
            ),
            VolumeError::Member { member, what } => write!(f, "member {}: {what}", member.0),
        }
    }
}

/// Members for a message.
fn list(members: &[MemberIndex]) -> String {
    let names: Vec<String> = members.iter().map(|member| member.0.to_string()).collect();
    names.join(", ")
}

impl std::error::Error for VolumeError {}
