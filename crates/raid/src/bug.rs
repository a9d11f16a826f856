//! Bugs that can be seeded into a volume, each a mistake that an implementation could make.
//!
//! The simulation tester, or the enumeration of short histories, must find every one of them; what
//! they cannot find, they do not test. Only builds with the feature `testing` can seed one.

/// A seeded bug: active in one volume until it is mounted again.
#[allow(unreachable_pub, reason = "it is exported with the feature `testing`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Stripes of a group are written before the previous group is complete.
    SkippedBarrier,
    /// A write completes when the first chunk of its stripe is durable.
    HastyAcknowledgement,
    /// A failed write is treated as successful.
    IgnoredChunkError,
    /// After a mount, timestamps continue from those of headers, not from those of blocks.
    StaleTimestamps,
    /// A mount ignores the tombstones of segments that were full.
    LostTombstones,
    /// Parity is computed with the first chunk of its stripe in place of the last.
    WrongParity,
    /// Blocks of stripes that a crash has torn are not rewritten.
    TornStripeKept,
    /// A moved block replaces a version that was written in the meantime.
    StaleRelocation,
    /// The version that a write replaces is released when the write is accepted: its zone can be
    /// reset.
    EagerRetirement,
    /// Checksums are not compared when blocks are read.
    UnverifiedRead,
    /// A failed member that returns is treated as up to date.
    BelievedStaleMember,
    /// When a member fails, the change of members is not recorded.
    ForgottenEpoch,
    /// One of the stripes that wait for a change of members is forgotten.
    ForgottenStripe,
    /// A rebuild completes without the segments that are being closed.
    UnfinishedRebuild,
    /// A scrub rewrites the data that it has read, not the data that it has computed.
    ScrubBelievesRot,
    /// A block is computed from the chunks in the same slot, as if all members had the same order.
    WrongChunk,
    /// A footer lists chunks as if they had arrived in the order of their stripes.
    FooterWrongSlot,
    /// A flush completes without flushing the members.
    DryFlush,
    /// Zones are reset before the blocks that replace their contents have left the members' caches.
    UnflushedReset,
    /// A group begins before the previous one has left the members' caches.
    UnflushedBarrier,
    /// A member that is being rebuilt counts as if it held all of its data.
    RebuildingCounts,
    /// A zone without a readable header is treated as never written, and is reset.
    UnreadableHeaderReset,
    /// Of the two headers of a zone only the first is written; the second block is left blank.
    SingleHeader,
    /// Where a superblock is written to one zone twice, the first of the two blocks is left blank.
    SingleSuperblock,
    /// A stripe of the last group that cannot be decoded is treated as an interrupted write even
    /// where a chunk is damaged.
    DamageTakenForCut,
    /// Stripes of the last group whose chunks are all damaged do not count as losses.
    UncountedStripes,
    /// A block of tombstones that a mount cannot read is skipped.
    IgnoredTombstones,
    /// A mount does not refuse unidentified losses.
    UnrefusedLosses,
    /// Accepted losses are not recorded in the superblocks.
    ForgottenAcceptance,
    /// A segment that lacks zones is dropped even where no member shows that it was being opened or
    /// reset.
    DroppedSegment,
    /// A zone that went offline after the last superblock was written is not noticed.
    UncountedZone,
    /// Two sides of a split brain are not distinguished from one member that is out of date.
    UndetectedSplit,
    /// Members that are all older than the epoch known to the caller are accepted.
    OlderEpoch,
    /// A mount begins no epoch, so that an older copy of a member looks as new as the member.
    UncountedMount,
    /// A zone that a rebuild has not filled counts at the next mount.
    HalfRebuiltZone,
    /// A lost block is known in memory only: its marker is empty.
    UnwrittenMarker,
    /// Garbage collection does not move markers of lost blocks.
    DroppedMarker,
    /// A marker of a lost block has a later timestamp than versions written after it.
    LateMarker,
    /// A scrub does not read footers.
    UncheckedFooters,
    /// A scrub leaves out segments that are open.
    UnscrubbedOpen,
    /// A scrub ends without writing the superblocks once more.
    UnscrubbedSuperblocks,
    /// A member that the volume needs is failed like any other.
    NeededMemberFailed,
    /// A zone whose reset fails for lack of space is treated as failed for good.
    FullZoneRetired,
    /// Time during which the program was stopped counts towards the timeouts of members.
    PauseCounts,
    /// A failed flush of a member that the volume needs is treated as successful.
    IgnoredFlushError,
    /// A footer is written before the last group has left the members' caches.
    UnflushedFooter,
}

/// The bug of a volume, if it has one.
pub(crate) type Seeded = zonda_zoned::Seeded<SeededBug, { cfg!(any(test, feature = "testing")) }>;

#[cfg(any(test, feature = "testing"))]
impl SeededBug {
    /// Every bug, with the name that the command line uses.
    pub const ALL: [(&'static str, SeededBug); 46] = [
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
        ("rebuilding-counts", SeededBug::RebuildingCounts),
        ("unreadable-header-reset", SeededBug::UnreadableHeaderReset),
        ("single-header", SeededBug::SingleHeader),
        ("single-superblock", SeededBug::SingleSuperblock),
        ("damage-taken-for-cut", SeededBug::DamageTakenForCut),
        ("uncounted-stripes", SeededBug::UncountedStripes),
        ("ignored-tombstones", SeededBug::IgnoredTombstones),
        ("unrefused-losses", SeededBug::UnrefusedLosses),
        ("forgotten-acceptance", SeededBug::ForgottenAcceptance),
        ("dropped-segment", SeededBug::DroppedSegment),
        ("uncounted-zone", SeededBug::UncountedZone),
        ("undetected-split", SeededBug::UndetectedSplit),
        ("older-epoch", SeededBug::OlderEpoch),
        ("uncounted-mount", SeededBug::UncountedMount),
        ("half-rebuilt-zone", SeededBug::HalfRebuiltZone),
        ("unwritten-marker", SeededBug::UnwrittenMarker),
        ("dropped-marker", SeededBug::DroppedMarker),
        ("late-marker", SeededBug::LateMarker),
        ("unchecked-footers", SeededBug::UncheckedFooters),
        ("unscrubbed-open", SeededBug::UnscrubbedOpen),
        ("unscrubbed-superblocks", SeededBug::UnscrubbedSuperblocks),
        ("needed-member-failed", SeededBug::NeededMemberFailed),
        ("full-zone-retired", SeededBug::FullZoneRetired),
        ("pause-counts", SeededBug::PauseCounts),
        ("ignored-flush-error", SeededBug::IgnoredFlushError),
        ("unflushed-footer", SeededBug::UnflushedFooter),
    ];

    /// The bugs that the enumeration of short histories finds for certain, and random simulations
    /// seldom or never: they have no entry among the recorded failures.
    pub const ENUMERATED: [SeededBug; 10] = [
        SeededBug::UncheckedFooters,
        SeededBug::UncountedStripes,
        SeededBug::IgnoredTombstones,
        SeededBug::ForgottenAcceptance,
        SeededBug::DroppedSegment,
        SeededBug::UncountedZone,
        SeededBug::UnwrittenMarker,
        SeededBug::DroppedMarker,
        SeededBug::LateMarker,
        SeededBug::IgnoredFlushError,
    ];
}
