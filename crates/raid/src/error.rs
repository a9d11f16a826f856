//! What can go wrong with a volume.

use std::fmt;

use crate::MemberIndex;

/// Why a volume cannot be made, mounted or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// What was asked for cannot be, and what to change.
    Config(String),
    /// Too few members are there: how many of the missing could be done without, and which are missing.
    TooManyMissing {
        /// How many may be missing.
        tolerates: usize,
        /// Which are missing.
        missing: Vec<MemberIndex>,
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
            VolumeError::TooManyMissing { tolerates, missing } => {
                let names: Vec<String> = missing.iter().map(|member| member.0.to_string()).collect();
                write!(
                    f,
                    "members {} are missing or out of date, and the volume can do without {tolerates}: bring one back",
                    names.join(", ")
                )
            }
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
                "member {} has format version {found}, this program reads {}: use the program that wrote it",
                member.0,
                crate::format::VERSION
            ),
            VolumeError::Member { member, what } => write!(f, "member {}: {what}", member.0),
        }
    }
}

impl std::error::Error for VolumeError {}
