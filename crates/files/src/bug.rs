//! Bugs to plant, each a mistake that a store of files could make.
//!
//! The simulation tester must find every one of them; what it cannot find, it does not test.

/// A mistake, switched on for one store, until it is mounted again.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A sync ends when its data are on the media, before the records that speak of them.
    EarlySync,
    /// A snapshot leaves out the extent that a migration moved last.
    ForgottenMove,
    /// What a delete, a rename or a migration gives up is given back before that is durable: its zone can be reset.
    EagerReset,
    /// A mount takes nothing from the last block of the metadata.
    LostLogTail,
    /// A write of data that failed is taken for done.
    IgnoredWriteError,
    /// Of those who wait while the metadata go on in another zone, one is forgotten.
    ForgottenWaiter,
}

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
