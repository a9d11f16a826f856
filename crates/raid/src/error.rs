//! Errors of volumes.

use std::fmt;

use crate::MemberIndex;

/// Why a volume cannot be created, mounted or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// The request is invalid; the text says why, and what to change.
    Config(String),
    /// Another owner has acquired the members: this volume writes nothing any more.
    TakenOver,
    /// Too few active members are present.
    TooManyMissing {
        /// How many members may be missing.
        tolerates: usize,
        /// The missing members.
        missing: Vec<MemberIndex>,
        /// Members that are present, but not rebuilt yet.
        rebuilding: Vec<MemberIndex>,
    },
    /// Blocks that may have been acknowledged are lost, and it is not known which logical blocks:
    /// any block of the volume may be older than the version that was acknowledged.
    UnidentifiedLosses {
        /// A damaged member that holds some of them.
        member: MemberIndex,
        /// The sequence of their segment.
        segment: u64,
        /// Upper bound of their number.
        blocks: u64,
    },
    /// The newest superblock of these members is older than the epoch that the caller knows.
    OlderThanKnown {
        /// The epoch of the newest superblock found.
        found: u64,
        /// The epoch that the caller knows.
        known: u64,
    },
    /// Members were used independently of each other: each side has recorded the other one as
    /// failed.
    SplitBrain {
        /// Members of the side with the newest epoch.
        newest: Vec<MemberIndex>,
        /// Members of the other side: these were active after the first ones had recorded them as
        /// failed.
        other: Vec<MemberIndex>,
        /// The newest epoch of the first side.
        newest_epoch: u64,
        /// The newest epoch of the other side.
        other_epoch: u64,
    },
    /// A member belongs to another volume.
    Foreign {
        /// The member.
        member: MemberIndex,
        /// The name of the volume that it belongs to.
        volume: String,
    },
    /// A device holds no superblock of a volume.
    NoVolume {
        /// The member.
        member: MemberIndex,
    },
    /// A member's on-media format has another version.
    Version {
        /// The member.
        member: MemberIndex,
        /// Its format version.
        found: u16,
    },
    /// A member failed while the volume was starting.
    Member {
        /// The member.
        member: MemberIndex,
        /// What failed.
        what: String,
    },
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumeError::Config(remedy) => f.write_str(remedy),
            VolumeError::TakenOver => f.write_str("another owner has acquired the members"),
            VolumeError::TooManyMissing { tolerates, missing, rebuilding } => {
                f.write_str("too few active members: ")?;
                if !missing.is_empty() {
                    write!(f, "{} missing or out of date, ", list(missing))?;
                }
                if !rebuilding.is_empty() {
                    write!(f, "{} not rebuilt yet, ", list(rebuilding))?;
                }
                write!(f, "the volume tolerates the loss of {tolerates}; reconnect the missing members")
            }
            VolumeError::UnidentifiedLosses { member, segment, blocks } => write!(
                f,
                "up to {blocks} {} written last are lost, and it is not known which: segment {segment} is damaged \
                 on member {}; reconnect the missing members, or accept the losses: any block may then be older than \
                 when it was last written, so check the file system and compare with a backup",
                if *blocks == 1 { "block" } else { "blocks" },
                member.0
            ),
            VolumeError::OlderThanKnown { found, known } => write!(
                f,
                "the members are out of date: their newest superblock has epoch {found}, but the volume has reached \
                 epoch {known}; reconnect the members that were active since"
            ),
            VolumeError::SplitBrain { newest, other, newest_epoch, other_epoch } => write!(
                f,
                "split brain: members {} (epoch {newest_epoch}) and members {} (epoch {other_epoch}) were written \
                 independently of each other; choose the side to keep, and replace the members of the other side",
                list(newest),
                list(other)
            ),
            VolumeError::Foreign { member, volume } => write!(
                f,
                "member {} belongs to another volume, \"{volume}\"; name the members of one volume, or wipe this \
                 one to reuse it",
                member.0
            ),
            VolumeError::NoVolume { member } => {
                write!(
                    f,
                    "member {} holds no volume superblock; create a volume, or name the members of an existing one",
                    member.0
                )
            }
            VolumeError::Version { member, found } => write!(
                f,
                "member {} has on-media format version {found}, and this program supports versions up to {}; use a \
                 newer program",
                member.0,
                crate::format::VERSION
            ),
            VolumeError::Member { member, what } => write!(f, "member {}: {what}", member.0),
        }
    }
}

/// A list of members for a message.
fn list(members: &[MemberIndex]) -> String {
    let names: Vec<String> = members.iter().map(|member| member.0.to_string()).collect();
    names.join(", ")
}

impl std::error::Error for VolumeError {}
