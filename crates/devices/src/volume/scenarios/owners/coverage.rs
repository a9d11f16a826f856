//! Coverage of runs: counts the events that must occur.

/// Counts of events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coverage {
    pub(super) mounts: u64,
    pub(super) refused_mounts: u64,
    pub(super) takeovers: u64,
    pub(super) refused_takeovers: u64,
    pub(super) fenced: u64,
    pub(super) pauses: u64,
    pub(super) kills: u64,
    pub(super) kills_while_busy: u64,
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) refused_commands: u64,
    pub(super) degraded_mounts: u64,
    pub(super) copies_refused: u64,
    /// Takeovers that had reserved or read a member before they were refused.
    pub(super) insufficient_takeovers: u64,
    /// Members whose reservation was restored for their owner.
    pub(super) restored: u64,
    /// Takeovers that accept members as missing.
    pub(super) partial_takeovers: u64,
}

impl Coverage {
    pub(super) fn add(&mut self, other: &Coverage) {
        self.mounts += other.mounts;
        self.refused_mounts += other.refused_mounts;
        self.takeovers += other.takeovers;
        self.refused_takeovers += other.refused_takeovers;
        self.fenced += other.fenced;
        self.pauses += other.pauses;
        self.kills += other.kills;
        self.kills_while_busy += other.kills_while_busy;
        self.writes += other.writes;
        self.reads += other.reads;
        self.refused_commands += other.refused_commands;
        self.degraded_mounts += other.degraded_mounts;
        self.copies_refused += other.copies_refused;
        self.insufficient_takeovers += other.insufficient_takeovers;
        self.restored += other.restored;
        self.partial_takeovers += other.partial_takeovers;
    }

    /// Whether all kinds of events have occurred.
    pub(super) fn is_complete(&self) -> bool {
        let Coverage { mounts, refused_mounts, takeovers, refused_takeovers, fenced, pauses, .. } = *self;
        let Coverage {
            kills, kills_while_busy, writes, reads, refused_commands, degraded_mounts, copies_refused, ..
        } = *self;
        let third = [self.insufficient_takeovers, self.partial_takeovers];
        let first = [mounts, refused_mounts, takeovers, refused_takeovers, fenced, pauses, kills];
        let second = [kills_while_busy, writes, reads, refused_commands, degraded_mounts, copies_refused];
        first.into_iter().chain(second).chain(third).all(|count| count > 0)
    }
}
