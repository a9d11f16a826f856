//! Events that a volume reports besides completions.

use zonda_zoned::{Blocks, Lba};

use crate::{MemberIndex, VolumeError};

/// An event of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The volume was created or mounted.
    Ready,
    /// The volume could not be created or mounted, or has lost more members than it tolerates.
    Failed(VolumeError),
    /// A member has failed: by command, because of errors, or because it timed out.
    MemberFailed {
        /// The member.
        member: MemberIndex,
        /// The reason.
        reason: FailReason,
    },
    /// I/O is suspended: it waits for a member that the volume needs.
    Suspended {
        /// The member.
        member: MemberIndex,
        /// The reason.
        reason: FailReason,
    },
    /// I/O is resumed: the member answers again.
    Resumed {
        /// The member.
        member: MemberIndex,
    },
    /// A member has no space for a write (Capacity Exceeded): writes end with that status until
    /// there is space.
    OutOfSpace {
        /// The member.
        member: MemberIndex,
    },
    /// There is space again: writes are accepted.
    SpaceAvailable,
    /// A member has no space to record the states of the members: until it has, flushes wait, and
    /// writes that were in flight when a member failed.
    EpochWaits {
        /// The first such member.
        member: MemberIndex,
    },
    /// The members have recorded the states that they had no space for.
    EpochRecorded,
    /// A member that had failed was re-added with its contents, and catches up: it is being
    /// rebuilt.
    Readded {
        /// The member.
        member: MemberIndex,
    },
    /// A member that had failed could not be re-added.
    ReaddRefused {
        /// The member.
        member: MemberIndex,
        /// The reason, and the remedy.
        error: VolumeError,
    },
    /// A rebuild has completed: the member holds all of its data.
    Rebuilt {
        /// The member.
        member: MemberIndex,
    },
    /// Blocks were found to be lost: reads of them fail until they are written or trimmed.
    Lost {
        /// The first lost block.
        lba: Lba,
        /// The number of lost blocks.
        blocks: Blocks,
    },
    /// The mount has accepted unidentified losses: any block may be older than last written.
    LossesAccepted {
        /// The maximum number of lost blocks; 0 if it is not known.
        blocks: u64,
    },
    /// A scrub has completed: all segments were read and verified.
    Scrubbed {
        /// Blocks read.
        blocks: u64,
        /// Damaged blocks of members that were repaired.
        repaired: u64,
        /// Damaged blocks of members that cannot be repaired while a member is missing.
        unreadable: u64,
        /// Damaged blocks of members that are lost.
        lost: u64,
        /// Blocks of the volume that were known to be lost before and still are; not counted again.
        known_lost: u64,
    },
}

/// Why a member has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// By command.
    Command,
    /// Its commands fail.
    Errors,
    /// It left a command unanswered until the timeout.
    Timeout,
    /// It was missing or out of date when the volume was mounted.
    Missing,
    /// It repeatedly failed and returned, or repeatedly stopped answering for a while.
    Flapping,
}
