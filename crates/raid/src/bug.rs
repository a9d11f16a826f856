//! Bugs to plant, each a mistake that a volume could make.
//!
//! The simulation tester, or the enumeration of short histories, must find every one of them; what they cannot find, they do not test.

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
    /// A member that is being rebuilt counts among those that are enough, as if it held all of its part.
    RebuildingCounts,
    /// A zone of which no header can be read is taken for one that nothing was written to, and is reset.
    UnreadableHeaderReset,
    /// Of the two headers of a zone only the first is written; the second block is left blank.
    SingleHeader,
    /// Where a superblock goes to one zone twice, the first of the two blocks is left blank.
    SingleSuperblock,
    /// A stripe of the last group that cannot be decoded is taken for one that was cut short, also where a chunk is damaged.
    DamageTakenForCut,
    /// Stripes of the last group of which every chunk is damaged do not count as losses.
    UncountedStripes,
    /// A block of tombstones that a mount cannot read is passed over.
    IgnoredTombstones,
    /// A mount does not refuse losses of which it is not known which blocks they are.
    UnrefusedLosses,
    /// That losses were accepted is not written to the superblocks.
    ForgottenAcceptance,
    /// A segment that lacks zones is dropped, also where no member shows that it was being opened or reset.
    DroppedSegment,
    /// A zone that has gone offline since the last superblock is not missed.
    UncountedZone,
    /// Two sides that went on without each other are not told from one that has missed something.
    UndetectedSplit,
    /// Members that are all older than the epoch that the caller knows are believed.
    OlderEpoch,
    /// A mount begins no epoch, so that a copy of a member from before is as new as the member.
    UncountedMount,
    /// A zone that a rebuild has not filled counts at the next mount.
    HalfRebuiltZone,
    /// A block that is lost is known to be in memory alone: its marker says nothing.
    UnwrittenMarker,
    /// Garbage collection does not move markers of lost blocks.
    DroppedMarker,
    /// A marker of a lost block has a timestamp that is later than those of versions written after it.
    LateMarker,
    /// A scrub does not read footers.
    UncheckedFooters,
    /// A scrub leaves out segments that are open.
    UnscrubbedOpen,
    /// A scrub ends without writing the superblocks once more.
    UnscrubbedSuperblocks,
    /// A member that the volume cannot do without is failed like any other.
    NeededMemberFailed,
    /// A zone that cannot be reset for want of room is taken for worn out.
    FullZoneRetired,
    /// Time in which the program did not run counts as silence of members.
    PauseCounts,
    /// A flush that fails on a member that the volume cannot do without is taken for done.
    IgnoredFlushError,
    /// A footer is written before the last group is out of the members' caches.
    UnflushedFooter,
}

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

    /// Those that the enumeration of short histories finds for certain, and worlds from seeds seldom or never: they have no entry among the
    /// failures that are kept.
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
