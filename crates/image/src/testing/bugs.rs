//! The names of seeded bugs, and the opening of an image with one of them.

use crate::bugs::SeededBug;
use crate::open::open_seeded;
use crate::{Files, Image, ImageError, RecoveryReport};

/// As [`open`](crate::open), with a bug seeded in the opening and in the drive, so that a tester
/// can show that it would be detected.
///
/// # Errors
/// As for [`open`](crate::open).
pub fn open_with_bug(files: &mut dyn Files, bug: Option<SeededBug>) -> Result<(Image, RecoveryReport), ImageError> {
    open_seeded(files, bug.into())
}

impl SeededBug {
    /// Every bug, with the name that the command line uses.
    pub const ALL: [(&'static str, SeededBug); 27] = [
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
        ("carried-anything", SeededBug::CarriedAnything),
        ("forgotten-damage", SeededBug::ForgottenDamage),
        ("trusted-unwritten", SeededBug::TrustedUnwritten),
        ("missing-space", SeededBug::MissingSpace),
    ];
}
