//! Seeded bugs: each a mistake that a file store could contain.
//!
//! The simulation tester must detect each of them: a bug that it misses is a rule that it does not
//! test. Only builds with the feature `testing` can seed one.

/// A mistake, enabled for one store until it is mounted again.
#[allow(unreachable_pub, reason = "it is exported with the feature `testing`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A sync ends when its data are on the media, before the records that refer to them.
    EarlySync,
    /// A snapshot omits the extent that a migration moved last.
    ForgottenMove,
    /// Extents that a delete, a rename or a migration drops are freed before that is durable: their
    /// zone can be reset.
    EagerReset,
    /// A mount ignores the last block of the metadata.
    LostLogTail,
    /// A failed write of data is taken for successful.
    IgnoredWriteError,
    /// One of the requests that wait while the metadata move to another zone is lost.
    ForgottenWaiter,
}

/// The bug of a store, if it has one.
pub(crate) type Seeded = zonda_zoned::Seeded<SeededBug, { cfg!(any(test, feature = "testing")) }>;

#[cfg(any(test, feature = "testing"))]
impl SeededBug {
    /// Every bug, with the name that the command line uses.
    pub const ALL: [(&'static str, SeededBug); 6] = [
        ("early-sync", SeededBug::EarlySync),
        ("forgotten-move", SeededBug::ForgottenMove),
        ("eager-reset", SeededBug::EagerReset),
        ("lost-log-tail", SeededBug::LostLogTail),
        ("ignored-write-error", SeededBug::IgnoredWriteError),
        ("forgotten-waiter", SeededBug::ForgottenWaiter),
    ];
}
