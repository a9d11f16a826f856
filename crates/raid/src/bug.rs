//! Bugs to plant, each a mistake that a volume could make.
//!
//! The simulation tester must find every one of them; what it cannot find, it does not test.

/// A mistake, switched on for one volume, until it is mounted again.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Stripes of a group are written before the group before it is complete.
    SkippedBarrier,
    /// A write ends when the first chunk of its stripe is durable.
    HastyAcknowledgement,
    /// A write that fails is taken for done.
    IgnoredChunkError,
    /// After a mount timestamps go on from those of headers, not from those of blocks.
    StaleTimestamps,
    /// A mount takes no tombstones from segments that were full.
    LostTombstones,
    /// Parity takes the first chunk of its stripe in the place of the last.
    WrongParity,
    /// Blocks of stripes that a crash has torn are not written anew.
    TornStripeKept,
    /// A block that was moved takes the place of what was written meanwhile.
    StaleRelocation,
    /// What a write replaces is given up when the write is taken: its zone can be reset.
    EagerRetirement,
    /// Checksums are not compared when blocks are read.
    UnverifiedRead,
    /// A member that was given up and comes back is believed.
    BelievedStaleMember,
    /// A change of members is not written down when one fails.
    ForgottenEpoch,
    /// Of the stripes that wait for a change of members one is forgotten.
    ForgottenStripe,
    /// A rebuild ends without the segments that are being closed.
    UnfinishedRebuild,
    /// A scrub writes anew what it has read, not what it has computed.
    ScrubBelievesRot,
    /// A block is computed from the chunks beside its own, as if members had one order.
    WrongChunk,
    /// A footer names chunks as if they had come in the order of their stripes.
    FooterWrongSlot,
    /// A flush ends without those of the members.
    DryFlush,
    /// Zones are reset before what replaces their contents is out of the members' caches.
    UnflushedReset,
    /// A group begins before the one before it is out of the members' caches.
    UnflushedBarrier,
}

impl SeededBug {
    /// Every bug, with the name that the command line uses.
    pub const ALL: [(&'static str, SeededBug); 20] = [
        ("skipped-barrier", SeededBug::SkippedBarrier),
        ("hasty-acknowledgement", SeededBug::HastyAcknowledgement),
        ("ignored-chunk-error", SeededBug::IgnoredChunkError),
        ("stale-timestamps", SeededBug::StaleTimestamps),
        ("lost-tombstones", SeededBug::LostTombstones),
        ("wrong-parity", SeededBug::WrongParity),
        ("torn-stripe-kept", SeededBug::TornStripeKept),
        ("stale-relocation", SeededBug::StaleRelocation),
        ("eager-retirement", SeededBug::EagerRetirement),
        ("unverified-read", SeededBug::UnverifiedRead),
        ("believed-stale-member", SeededBug::BelievedStaleMember),
        ("forgotten-epoch", SeededBug::ForgottenEpoch),
        ("forgotten-stripe", SeededBug::ForgottenStripe),
        ("unfinished-rebuild", SeededBug::UnfinishedRebuild),
        ("scrub-believes-rot", SeededBug::ScrubBelievesRot),
        ("wrong-chunk", SeededBug::WrongChunk),
        ("footer-wrong-slot", SeededBug::FooterWrongSlot),
        ("dry-flush", SeededBug::DryFlush),
        ("unflushed-reset", SeededBug::UnflushedReset),
        ("unflushed-barrier", SeededBug::UnflushedBarrier),
    ];
}
