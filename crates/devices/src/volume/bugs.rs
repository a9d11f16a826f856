//! Seeded bugs in the code that ensures that a volume has one owner: the scenarios must find each
//! of them. Only tests can enable them.

/// A seeded bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerBug {
    /// Commands are completed without the confirmation of members that the volume is still this
    /// owner's.
    NoLease,
    /// The confirmation of any one member is enough.
    OneConfirms,
    /// The lease begins when a confirmation arrives, not when it was requested.
    LeaseFromAnswer,
    /// A takeover does not wait until the leases of other owners have expired.
    HastyTakeover,
    /// A new connection preempts the owner that has taken the volume over.
    ReconnectPreempts,
    /// A copy of the directory mounts with the members that it reaches.
    CopyIsTrusted,
    /// A directory counts as that of the last owner regardless of the epoch that members have
    /// reached since.
    EpochIgnored,
    /// The reservations of a takeover are released when the volume is closed.
    NothingStaysReserved,
    /// A refused mount also releases reservations that existed before it.
    AllReleased,
    /// A member whose connection is lost fails before its server is asked who holds it.
    LostFailsUnasked,
    /// A mount ignores the newest superblock that was read before it began.
    NewestForgotten,
}

/// Whether this bug is seeded in this thread.
#[cfg(test)]
pub(super) fn is_seeded(bug: OwnerBug) -> bool {
    SEEDED.get() == Some(bug)
}

#[cfg(not(test))]
pub(super) const fn is_seeded(_: OwnerBug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static SEEDED: std::cell::Cell<Option<OwnerBug>> = const { std::cell::Cell::new(None) };
}

/// Seeds a bug in this thread, in place of another one.
#[cfg(test)]
pub(super) fn seed_bug(bug: Option<OwnerBug>) {
    SEEDED.set(bug);
}
