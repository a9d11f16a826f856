//! Mistakes to plant in what keeps a volume to one owner: the scenarios must find each of them. No program but tests has them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerBug {
    /// Hosts are answered without a member having said that the volume is still this owner's.
    NoLease,
    /// One member that confirms is enough, whichever it is.
    OneConfirms,
    /// What a member has said is believed from when it was heard, not from when it was asked for.
    LeaseFromAnswer,
    /// A takeover does not wait until leases of others have run out.
    HastyTakeover,
    /// A new connection takes the member back from whoever has taken the volume over.
    ReconnectPreempts,
    /// A copy of the directory mounts with what it reaches.
    CopyIsTrusted,
    /// A directory is the last owner's, whatever epoch the members have reached since.
    EpochIgnored,
    /// What a takeover has reserved is given back when the volume is closed.
    NothingStaysReserved,
    /// A mount that is refused gives back what was reserved before it, too.
    AllGivenBack,
    /// A mount does not remember the newest superblock that was seen before it began.
    NewestForgotten,
}

/// Whether this thread has a mistake planted.
#[cfg(test)]
pub(super) fn is_planted(bug: OwnerBug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
pub(super) const fn is_planted(_: OwnerBug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<OwnerBug>> = const { std::cell::Cell::new(None) };
}

/// Plants a mistake in this thread, in the place of another.
#[cfg(test)]
pub(super) fn plant(bug: Option<OwnerBug>) {
    PLANTED.set(bug);
}
