//! Seeded bugs: each a mistake that the code of a pool could contain.
//!
//! The simulation tester must detect each of them: a bug that it misses is a rule that it does not
//! test. Only the tester seeds bugs, and only with the feature `testing`.

/// The bug that was seeded in a pool, if any.
pub(crate) type Seeded = zonda_zoned::Seeded<SeededBug, { cfg!(any(test, feature = "testing")) }>;

/// A mistake, enabled for one pool until it is mounted again.
#[allow(unreachable_pub, reason = "without `testing` nothing exports it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A copy of the log whose other zones have failed begins again in the one that holds it.
    ClearedLog,
    /// Blocks are written into a stripe group before its record is durable.
    EarlyGroup,
    /// A record counts as durable before the drive has flushed it.
    UnflushedRecord,
    /// Records are written into the first copy of the log only.
    SingleCopy,
    /// The zones of a v-zone are reset before the reset is recorded.
    EarlyReset,
    /// A Finish is acknowledged without a record.
    UnrecordedFinish,
    /// The zones of a full group are finished before their data are flushed.
    UnflushedEnd,
    /// A Flush of a host is acknowledged without a flush of the drive.
    DryFlush,
    /// A group that a power loss tore is written as if all its zones were equally far.
    IgnoredTear,
    /// A torn group is padded without a record of the jump.
    UnrecordedJump,
    /// A v-zone becomes active before the finishes and resets before it are recorded.
    UnawaitedRelease,
    /// A Finish or a Reset that repeats one that is not recorded yet is acknowledged at once.
    UnawaitedRepeat,
    /// The spares of a group that has ended are not released.
    KeptSpares,
    /// The zones of a deleted namespace are not reset.
    ForgottenDeletion,
    /// The zones of a namespace are reset before its deletion is recorded.
    EarlyDeletion,
    /// A namespace is shown to hosts before it is recorded.
    EarlyCreation,
    /// The status of a write to a zone is ignored.
    ForgottenFailure,
    /// Blocks that cannot be read are returned as zeros.
    UnreadableAsZeros,
    /// A Reset keeps the descriptor extension of the v-zone.
    KeptExtension,
    /// A mount takes zones of no v-zone for empty ones.
    UnresetZones,
    /// A mount does not check the epoch that it was told to expect.
    IgnoredEpoch,
    /// A mount does not read who owns the zones of a v-zone.
    IgnoredOwner,
    /// A mount does not notice that the last block of records is unreadable in both copies.
    IgnoredTail,
    /// A mount takes a v-zone whose zones are empty for an empty v-zone.
    BelievedEmpty,
}

#[cfg(any(test, feature = "testing"))]
impl SeededBug {
    /// Every bug, with the name that the command line uses.
    pub const ALL: [(&'static str, SeededBug); 24] = [
        ("cleared-log", SeededBug::ClearedLog),
        ("early-group", SeededBug::EarlyGroup),
        ("unflushed-log", SeededBug::UnflushedRecord),
        ("single-log", SeededBug::SingleCopy),
        ("early-vzone-reset", SeededBug::EarlyReset),
        ("unrecorded-finish", SeededBug::UnrecordedFinish),
        ("unflushed-group", SeededBug::UnflushedEnd),
        ("dry-tenant-flush", SeededBug::DryFlush),
        ("ignored-tear", SeededBug::IgnoredTear),
        ("unrecorded-jump", SeededBug::UnrecordedJump),
        ("unawaited-release", SeededBug::UnawaitedRelease),
        ("unawaited-repeat", SeededBug::UnawaitedRepeat),
        ("kept-spares", SeededBug::KeptSpares),
        ("forgotten-deletion", SeededBug::ForgottenDeletion),
        ("early-deletion", SeededBug::EarlyDeletion),
        ("early-creation", SeededBug::EarlyCreation),
        ("forgotten-zone-failure", SeededBug::ForgottenFailure),
        ("unreadable-as-zeros", SeededBug::UnreadableAsZeros),
        ("kept-extension", SeededBug::KeptExtension),
        ("unreset-zones", SeededBug::UnresetZones),
        ("ignored-pool-epoch", SeededBug::IgnoredEpoch),
        ("ignored-owner", SeededBug::IgnoredOwner),
        ("ignored-tail", SeededBug::IgnoredTail),
        ("believed-empty", SeededBug::BelievedEmpty),
    ];

    /// Bugs that need damage of metadata: the enumeration of short histories finds them, not runs
    /// from seeds.
    pub const ENUMERATED: [SeededBug; 4] =
        [SeededBug::IgnoredEpoch, SeededBug::IgnoredOwner, SeededBug::IgnoredTail, SeededBug::BelievedEmpty];
}
