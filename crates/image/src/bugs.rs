//! Seeded bugs: each a mistake that the code of an image could contain.
//!
//! The simulation tester must detect each of them: a bug that it misses is a rule that it does not
//! test. Only the tester seeds bugs, and only with the feature `testing`.

/// The bug that was seeded in an image, if any.
pub(crate) type Seeded = zonda_zoned::Seeded<SeededBug, { cfg!(any(test, feature = "testing")) }>;

/// A mistake, enabled for one image until the image is opened again.
#[allow(unreachable_pub, reason = "without `testing` nothing exports it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A write at a write pointer is acknowledged when its data are on file, before its tags are.
    EarlyWrite,
    /// Management is acknowledged when its record is written, before it is synced.
    UnsyncedRecord,
    /// Data and tags written before a Finish are not synced before its record.
    UnsyncedFinish,
    /// Tags that a recovery finds behind a write pointer are not cleared.
    KeptTags,
    /// A reset is journaled with a new generation, and the running drive keeps the old one.
    KeptGeneration,
    /// A reset punches its holes before its record is synced.
    EarlyHole,
    /// A mark covers records that are not written yet.
    EarlyMark,
    /// A checkpoint is written as one copy.
    SingleCopy,
    /// A failed batch of records is not invalidated.
    KeptBatch,
    /// A flush syncs the data, and not the tags.
    HalfFlush,
    /// A flush is acknowledged before its note is on file.
    EarlyFlush,
    /// The next flush ignores that a sync has failed.
    ForgottenFailure,
    /// A conventional zone is overwritten without an intent.
    MissingIntent,
    /// An intent does not contain the tags before the overwrite.
    ForgottenBefore,
    /// A second overwrite of a block since a flush records no intent, although the first intent has
    /// other tags.
    UnrecordedRepeat,
    /// A recovery accepts whatever a block holds that an intent names.
    BlindIntent,
    /// A ZRWA is allocated to a zone without punching holes in its data and tags.
    MissingHole,
    /// Journaled contents are rewritten although their zone was reset since.
    StaleContents,
    /// The write pointer is not rolled back after a failed write.
    KeptPointer,
    /// A recovery writes its checkpoint before the blocks that it found are synced.
    UnsyncedRecovery,
    /// A recovery takes the last record that it can read for the end of the journal, and ignores
    /// the marks.
    IgnoredMarks,
    /// A read does not verify blocks against their tags.
    BlindRead,
    /// A tag of zeros is accepted without checking the data.
    BelievedZeros,
    /// A flush repeats intents of writes in progress so that they accept any contents.
    CarriedAnything,
    /// A read does not record the damage that it has found.
    ForgottenDamage,
    /// The intent of an overwrite takes a lost tag for that of an unwritten block.
    TrustedUnwritten,
    /// Contents are journaled before space for them is allocated in the files.
    MissingSpace,
}
