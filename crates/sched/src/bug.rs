//! Seeded bugs, each a mistake that a scheduler by conflict groups could make.
//!
//! The simulation tester must find every one of them: this shows that it tests the property. Only
//! schedulers that are built with the feature `testing` can have one.

/// A mistake, switched on for one scheduler.
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "only testers name it"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A command that fails stays counted as outstanding in its group.
    ForgottenCompletion,
    /// The group with the most outstanding requests is served first.
    GreedyGroup,
    /// A request is tagged with the group of the zone behind its own.
    WrongTag,
    /// A group whose request the device has refused is not considered again.
    UnlistedGroup,
    /// Requests in the background are lost when the table is rejected.
    LostAtRejection,
}

/// The bug of a scheduler, if it has one.
pub(crate) type Seeded = zonda_zoned::Seeded<SeededBug, { cfg!(feature = "testing") }>;

#[cfg(feature = "testing")]
impl SeededBug {
    /// Every bug, with the name that the command line uses.
    pub const ALL: [(&'static str, SeededBug); 5] = [
        ("uncounted-failure", SeededBug::ForgottenCompletion),
        ("greedy-group", SeededBug::GreedyGroup),
        ("wrong-tag", SeededBug::WrongTag),
        ("unlisted-group", SeededBug::UnlistedGroup),
        ("lost-at-rejection", SeededBug::LostAtRejection),
    ];
}
