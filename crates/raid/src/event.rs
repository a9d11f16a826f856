//! What a volume has to tell beside completions.

use zonda_zoned::{Blocks, Lba};

use crate::{MemberIndex, VolumeError};

/// Something happened to the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is created or mounted.
    Ready,
    /// It could not be created or mounted, or has lost more members than it can do without.
    Failed(VolumeError),
    /// A member is given up: by command, because it fails, or because it does not answer.
    MemberFailed {
        /// Which one.
        member: MemberIndex,
        /// Why.
        reason: FailReason,
    },
    /// I/O waits for a member that the volume cannot do without.
    Suspended {
        /// Which one.
        member: MemberIndex,
        /// Why.
        reason: FailReason,
    },
    /// A member that I/O waited for answers again.
    Resumed {
        /// Which one.
        member: MemberIndex,
    },
    /// A member has no room for what was to be written (Capacity Exceeded): writes end with that status until there is some.
    OutOfRoom {
        /// Which one.
        member: MemberIndex,
    },
    /// Writes are taken again.
    RoomFound,
    /// A member that had failed is taken back with what it holds, and is caught up: it is being rebuilt.
    Returned {
        /// Which one.
        member: MemberIndex,
    },
    /// A member that had failed is not taken back.
    NotReturned {
        /// Which one.
        member: MemberIndex,
        /// Why, and what to do.
        error: VolumeError,
    },
    /// A member holds its part again.
    Rebuilt {
        /// Which one.
        member: MemberIndex,
    },
    /// Blocks were found that can never be read again: reads of them fail until they are written or trimmed.
    Lost {
        /// The first of them.
        lba: Lba,
        /// How many.
        blocks: Blocks,
    },
    /// All segments have been read and compared.
    Scrubbed {
        /// Blocks that were read.
        blocks: u64,
        /// Blocks of members that were damaged, and are repaired.
        mended: u64,
        /// Blocks of members that cannot be repaired while a member is away.
        unreadable: u64,
        /// Blocks of members that were found damaged, and are lost.
        lost: u64,
        /// Blocks of the volume that were known to be lost before, and still are: they do not count again.
        known_lost: u64,
    },
}

/// Why a member is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// Somebody said so.
    Command,
    /// Its commands fail.
    Errors,
    /// It left a command without an answer.
    Silence,
    /// It was not there, or out of date, when the volume was mounted.
    Absent,
    /// It failed and came back again and again, or stopped answering for a while again and again.
    Flapping,
}
