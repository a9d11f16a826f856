//! Bugs to plant, each a mistake that the keeper of an image could make.
//!
//! The simulation tester must find every one of them; what it cannot find, it does not test. Nothing but the tester plants any.

/// A mistake, switched on for one image, until it is opened again.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A write at a write pointer is acknowledged when its data are on file, and its tags perhaps not yet.
    EarlyWrite,
    /// Management is acknowledged when its record is written, before it is synced.
    UnsyncedRecord,
    /// What was written before a Finish is not synced before its record.
    UnsyncedFinish,
    /// Tags behind a write pointer that a recovery finds are left there.
    KeptTags,
    /// A reset goes to the journal with a new generation, and the running drive keeps the old one.
    KeptGeneration,
    /// A reset makes its holes before its record is synced.
    EarlyHole,
    /// A mark counts records that are not written yet.
    EarlyMark,
    /// A checkpoint is one copy.
    SingleCopy,
    /// A batch of records that failed is not made void.
    KeptBatch,
    /// A flush syncs the data, and not the tags.
    HalfFlush,
    /// A flush is acknowledged before its note is on file.
    EarlyFlush,
    /// A sync that failed is forgotten by the next flush.
    ForgottenFailure,
    /// A conventional zone is overwritten without an intent.
    MissingIntent,
    /// An intent does not tell the tags before.
    ForgottenBefore,
    /// Another overwrite of a block since a flush goes on without an intent, though the first one tells other tags.
    UnrecordedRepeat,
    /// A recovery accepts whatever a block holds that an intent names.
    BlindIntent,
    /// A ZRWA is given to a zone without holes in its data and tags.
    MissingHole,
    /// Contents in the journal are written again though their zone was reset since.
    StaleContents,
    /// The write pointer stays where a failed write was to take it.
    KeptPointer,
    /// A recovery writes its checkpoint before what it found is synced.
    UnsyncedRecovery,
    /// A recovery takes the end of the records for the end of the journal, whatever the marks say.
    IgnoredMarks,
    /// A read does not hold blocks against their tags.
    BlindRead,
    /// A tag of zeros is believed, whatever the data are.
    BelievedZeros,
    /// Contents go to the journal before they have their places in the files.
    MissingSpace,
}

impl SeededBug {
    /// Every bug, with the name that the command line uses.
    pub const ALL: [(&'static str, SeededBug); 24] = [
        ("early-write", SeededBug::EarlyWrite),
        ("unsynced-record", SeededBug::UnsyncedRecord),
        ("unsynced-finish", SeededBug::UnsyncedFinish),
        ("kept-tags", SeededBug::KeptTags),
        ("kept-generation", SeededBug::KeptGeneration),
        ("early-hole", SeededBug::EarlyHole),
        ("early-mark", SeededBug::EarlyMark),
        ("single-copy", SeededBug::SingleCopy),
        ("kept-batch", SeededBug::KeptBatch),
        ("half-flush", SeededBug::HalfFlush),
        ("early-flush", SeededBug::EarlyFlush),
        ("forgotten-failure", SeededBug::ForgottenFailure),
        ("missing-intent", SeededBug::MissingIntent),
        ("forgotten-before", SeededBug::ForgottenBefore),
        ("unrecorded-repeat", SeededBug::UnrecordedRepeat),
        ("blind-intent", SeededBug::BlindIntent),
        ("missing-hole", SeededBug::MissingHole),
        ("stale-contents", SeededBug::StaleContents),
        ("kept-pointer", SeededBug::KeptPointer),
        ("unsynced-recovery", SeededBug::UnsyncedRecovery),
        ("ignored-marks", SeededBug::IgnoredMarks),
        ("blind-read", SeededBug::BlindRead),
        ("believed-zeros", SeededBug::BelievedZeros),
        ("missing-space", SeededBug::MissingSpace),
    ];
}
