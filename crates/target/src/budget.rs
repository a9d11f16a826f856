//! One memory budget for the data of all connections of a server.
//!
//! Each connection has an [`Account`] of the bytes that are held for it. A share of the budget is
//! reserved for every connection that the server may have, so small requests are always admitted.
//! The rest is a pool. A request is admitted from the pool if the connection then holds no more of
//! the pool than remains free (dynamic thresholds, Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking 6 (2), 1998): a single connection gets half of the pool, N connections at their limit
//! get an (N+1)th each, and as much remains for the next. A connection that holds nothing of the
//! pool takes precedence over those that do.
//!
//! All bytes that a request needs are admitted before it starts, so a request that holds bytes
//! never waits for more.

use crate::limits::{STALL_INTERVAL, STALL_MAX, STALL_PARTS};

/// Bytes that are reserved for each connection.
pub const SHARE_BYTES: usize = 128 << 10;

/// The budget, and how much of it is held.
#[derive(Clone, Debug)]
pub struct Budget {
    total_bytes: usize,
    share_bytes: usize,
    pool_bytes: usize,
    /// Held by accounts, within their shares and beyond.
    held_bytes: usize,
    /// Held by accounts beyond their shares.
    pool_held_bytes: usize,
    /// Held by commands whose connections are closed.
    orphaned_bytes: usize,
    /// Held by the caller for connections that are closed here.
    outside_bytes: usize,
    /// Accounts that wait.
    waiting: usize,
    /// Of these, accounts that hold nothing of the pool.
    newcomers_waiting: usize,
    waits: u64,
    /// How often bytes were released that accounts may have waited for.
    releases: u64,
}

/// What is held for one connection.
#[derive(Debug, Default)]
pub struct Account {
    held_bytes: usize,
    waits: Waits,
}

/// Whether an account waits for free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    No,
    /// It holds nothing of the pool.
    Newcomer,
    /// It holds a part of the pool.
    Holder,
}

/// Detects connections that hold memory of the pool and transfer too little, while others wait for
/// it.
///
/// A byte now and then does not count as progress: a client could hold 32 MiB for years with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    moved_bytes: u64,
    /// Checks since the last one that found enough progress.
    checks: u64,
}

impl Progress {
    /// The client has read or sent so many bytes of those held for it.
    #[inline]
    pub fn moved(&mut self, bytes: usize) {
        self.moved_bytes += bytes as u64;
    }

    /// Checks a connection that holds `pool_bytes` of the pool, to be called every
    /// [`STALL_INTERVAL`]. `is_owed`: the next step is the client's. Returns whether the connection
    /// must be closed: within [`STALL_MAX`] it has not transferred one [`STALL_PARTS`]th of the
    /// bytes it holds.
    pub fn is_stalled(&mut self, pool_bytes: usize, is_owed: bool) -> bool {
        if !is_owed || self.moved_bytes.saturating_mul(STALL_PARTS) >= pool_bytes as u64 {
            *self = Progress::default();
            return false;
        }
        self.checks += 1;
        self.checks * STALL_INTERVAL.as_nanos() >= STALL_MAX.as_nanos()
    }
}

impl Budget {
    /// A budget of `total_bytes` for at most `connections`. Of each connection, `fixed_bytes` are
    /// taken whatever it does.
    ///
    /// # Panics
    /// When shares and fixed bytes of all connections leave nothing for the pool.
    #[must_use]
    pub fn new(total_bytes: usize, connections: usize, fixed_bytes: usize) -> Budget {
        Budget::with_share(total_bytes, connections, fixed_bytes, SHARE_BYTES)
    }

    /// The same with another share of each connection than [`SHARE_BYTES`].
    ///
    /// # Panics
    /// See [`Budget::new`].
    #[must_use]
    pub fn with_share(total_bytes: usize, connections: usize, fixed_bytes: usize, share_bytes: usize) -> Budget {
        let reserved = connections * (share_bytes + fixed_bytes);
        assert!(reserved < total_bytes, "{reserved} bytes are reserved of {total_bytes}");
        Budget { total_bytes, share_bytes, pool_bytes: total_bytes - reserved, ..Budget::unlimited() }
    }

    /// A budget that is never full, for callers that bound connections one by one.
    #[must_use]
    pub fn unlimited() -> Budget {
        Budget {
            total_bytes: usize::MAX,
            share_bytes: SHARE_BYTES,
            pool_bytes: usize::MAX,
            held_bytes: 0,
            pool_held_bytes: 0,
            orphaned_bytes: 0,
            outside_bytes: 0,
            waiting: 0,
            newcomers_waiting: 0,
            waits: 0,
            releases: 0,
        }
    }

    /// All of it, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// The most that one connection gets when no other holds anything of the pool, in bytes. A
    /// larger request would wait forever.
    #[must_use]
    pub fn request_bytes_max(&self) -> usize {
        self.pool_bytes / 2 + self.share_bytes
    }

    /// Bytes of data that are held now. Fixed bytes of connections are not among them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.orphaned_bytes + self.outside_bytes
    }

    /// How often a request had to wait for free memory.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Whether an account waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Cancels the wait of an account.
    pub fn withdraw(&mut self, account: &mut Account) {
        self.stop_waiting(account);
    }

    /// Admits `bytes` more to an account, or notes that it waits.
    #[inline]
    pub fn admit(&mut self, account: &mut Account, bytes: usize) -> bool {
        let is_admitted = self.try_admit(account, bytes);
        if is_admitted {
            self.stop_waiting(account);
        } else {
            self.wait(account);
        }
        is_admitted
    }

    /// Admits `bytes` more to an account, or not; whether it waits for something else stays as it
    /// is.
    #[inline]
    pub fn try_admit(&mut self, account: &mut Account, bytes: usize) -> bool {
        let after = account.held_bytes + bytes;
        let (pool_before, pool_after) = (self.beyond_share(account.held_bytes), self.beyond_share(after));
        let is_admitted = pool_after == pool_before || self.is_within_threshold(account, pool_before, pool_after);
        if is_admitted {
            self.set(account, after);
        }
        is_admitted
    }

    /// Sets how many bytes are held for an account, whether they were admitted or not.
    #[inline]
    pub fn set(&mut self, account: &mut Account, bytes: usize) {
        let before = account.held_bytes;
        if before == bytes {
            return;
        }
        account.held_bytes = bytes;
        self.held_bytes = self.held_bytes + bytes - before;
        let (pool_before, pool_after) = (self.beyond_share(before), self.beyond_share(bytes));
        self.pool_held_bytes = self.pool_held_bytes + pool_after - pool_before;
        if pool_after < pool_before {
            self.releases += 1;
            if pool_after == 0 && account.waits == Waits::Holder {
                account.waits = Waits::Newcomer;
                self.newcomers_waiting += 1;
            }
        }
    }

    /// The connection of an account is closed. Of its bytes, `orphaned_bytes` stay until they are
    /// released with [`Budget::release_orphaned`].
    pub fn close(&mut self, mut account: Account, orphaned_bytes: usize) {
        self.stop_waiting(&mut account);
        self.set(&mut account, 0);
        self.orphaned_bytes += orphaned_bytes;
    }

    /// Bytes of a closed connection are no longer held.
    pub fn release_orphaned(&mut self, bytes: usize) {
        self.orphaned_bytes -= bytes;
        self.releases += u64::from(bytes > 0);
    }

    /// Sets how many bytes the caller still holds for closed connections.
    pub fn set_outside(&mut self, bytes: usize) {
        self.releases += u64::from(bytes < self.outside_bytes);
        self.outside_bytes = bytes;
    }

    /// Increases when waiting accounts may be admitted. Callers with waiting accounts retry when it
    /// has changed.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Bytes of the pool that an account holds.
    #[must_use]
    pub fn pool_bytes_of(&self, account: &Account) -> usize {
        self.beyond_share(account.held_bytes)
    }

    #[inline]
    fn beyond_share(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.share_bytes)
    }

    fn is_within_threshold(&self, account: &Account, pool_before: usize, pool_after: usize) -> bool {
        let held = self.pool_held_bytes - pool_before + self.orphaned_bytes + self.outside_bytes;
        let Some(free) = self.pool_bytes.checked_sub(held).and_then(|free| free.checked_sub(pool_after)) else {
            return false;
        };
        let newcomers = self.newcomers_waiting - usize::from(account.waits == Waits::Newcomer);
        pool_after <= free && (pool_before == 0 || newcomers == 0)
    }

    fn wait(&mut self, account: &mut Account) {
        if account.waits == Waits::No {
            self.waits += 1;
            self.waiting += 1;
            account.waits = if self.beyond_share(account.held_bytes) == 0 { Waits::Newcomer } else { Waits::Holder };
            self.newcomers_waiting += usize::from(account.waits == Waits::Newcomer);
        }
    }

    fn stop_waiting(&mut self, account: &mut Account) {
        if account.waits == Waits::Newcomer {
            self.newcomers_waiting -= 1;
            // Holders have waited for the newcomers.
            self.releases += 1;
        }
        self.waiting -= usize::from(account.is_waiting());
        account.waits = Waits::No;
    }

    /// Checks the invariants of the budget and all its accounts.
    ///
    /// # Panics
    /// If an invariant is violated.
    #[doc(hidden)]
    pub fn check_invariants<'a>(&self, accounts: impl Iterator<Item = &'a Account>) {
        let (mut held, mut beyond, mut waiting, mut newcomers) = (0, 0, 0, 0);
        for account in accounts {
            held += account.held_bytes;
            beyond += self.beyond_share(account.held_bytes);
            waiting += usize::from(account.is_waiting());
            newcomers += usize::from(account.waits == Waits::Newcomer);
        }
        assert_eq!((held, beyond), (self.held_bytes, self.pool_held_bytes), "bytes of accounts are counted");
        assert_eq!((waiting, newcomers), (self.waiting, self.newcomers_waiting), "accounts that wait are counted");
    }
}

impl Account {
    /// Bytes that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether it waits for free memory.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits != Waits::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A pool of 64 MiB besides the shares of 64 connections.
    fn budget() -> Budget {
        Budget::new(64 * MIB + 64 * SHARE_BYTES, 64, 0)
    }

    /// Admits as much as possible to an account, in steps.
    fn take_all(budget: &mut Budget, account: &mut Account, step: usize) {
        while budget.admit(account, step) {}
    }

    #[test]
    fn one_connection_alone_gets_its_share_and_half_of_the_pool() {
        let (mut budget, mut account) = (budget(), Account::default());
        assert_eq!(budget.request_bytes_max(), 32 * MIB + SHARE_BYTES);
        take_all(&mut budget, &mut account, 64 << 10);
        assert_eq!(account.held_bytes(), 32 * MIB + SHARE_BYTES);
        assert_eq!(budget.held_bytes(), account.held_bytes());
    }

    #[test]
    fn greedy_connections_leave_as_much_free_as_each_of_them_holds() {
        let mut budget = budget();
        let mut accounts: Vec<Account> = (0..15).map(|_| Account::default()).collect();
        for _ in 0..200 {
            for account in &mut accounts {
                budget.admit(account, SHARE_BYTES);
            }
        }
        let most = accounts.iter().map(Account::held_bytes).max().unwrap();
        assert_eq!(most, 4 * MIB + SHARE_BYTES, "a sixteenth of the pool");
        let mut newcomer = Account::default();
        assert!(budget.admit(&mut newcomer, 2 * MIB), "half of what is free");
        budget.check_invariants(accounts.iter().chain([&newcomer]));
    }

    #[test]
    fn the_share_of_a_connection_stays_available_however_much_others_hold() {
        let (mut budget, mut greedy, mut small) = (budget(), Account::default(), Account::default());
        budget.set(&mut greedy, 100 * MIB);
        assert!(budget.admit(&mut small, SHARE_BYTES));
        assert!(!budget.admit(&mut small, 1), "and no byte more");
        assert!(small.is_waiting() && budget.has_waiting());
        assert_eq!(budget.waits(), 1);
        assert!(!budget.admit(&mut small, 1));
        assert_eq!(budget.waits(), 1, "one wait is counted once, however often it is retried");
        budget.withdraw(&mut small);
        assert!(!small.is_waiting() && !budget.has_waiting());
    }

    #[test]
    fn connections_without_pool_memory_take_precedence_over_holders() {
        let (mut budget, mut holder, mut newcomer) = (budget(), Account::default(), Account::default());
        assert!(budget.admit(&mut holder, 20 * MIB));
        assert!(!budget.admit(&mut newcomer, 30 * MIB));
        assert!(!budget.admit(&mut holder, MIB), "the newcomer goes first, though memory is free");
        let before = budget.releases();
        budget.set(&mut holder, MIB);
        assert_ne!(budget.releases(), before);
        assert!(budget.admit(&mut newcomer, 30 * MIB) && !newcomer.is_waiting());
        assert!(budget.admit(&mut holder, MIB));
        budget.check_invariants([&holder, &newcomer].into_iter());
    }

    #[test]
    fn a_holder_that_has_released_everything_waits_as_a_newcomer() {
        let (mut budget, mut first, mut second) = (budget(), Account::default(), Account::default());
        assert!(budget.admit(&mut first, 32 * MIB) && !budget.admit(&mut first, MIB));
        budget.set(&mut first, 0);
        budget.check_invariants([&first].into_iter());
        assert!(budget.admit(&mut second, MIB), "it holds nothing either");
        assert!(!budget.admit(&mut second, MIB), "the first is served before");
        assert!(budget.admit(&mut first, MIB) && budget.admit(&mut second, MIB));
    }

    #[test]
    fn memory_of_closed_connections_counts_until_it_is_released() {
        let (mut budget, mut closing, mut other) = (budget(), Account::default(), Account::default());
        assert!(budget.admit(&mut closing, 30 * MIB));
        budget.close(closing, 20 * MIB);
        budget.set_outside(10 * MIB);
        assert_eq!(budget.held_bytes(), 30 * MIB);
        assert!(!budget.admit(&mut other, 18 * MIB));
        let mut before = budget.releases();
        budget.release_orphaned(20 * MIB);
        assert!(budget.releases() > before && budget.admit(&mut other, 18 * MIB));
        before = budget.releases();
        budget.set_outside(0);
        assert!(budget.releases() > before);
        assert_eq!(budget.held_bytes(), 18 * MIB);
    }

    #[test]
    fn a_holder_that_transfers_a_byte_now_and_then_is_stalled() {
        let checks = STALL_MAX.as_nanos() / STALL_INTERVAL.as_nanos();
        let stalls = |pool_bytes: usize, moved: usize, is_owed: bool| {
            let mut progress = Progress::default();
            (1..100).find(|_| {
                progress.moved(moved);
                progress.is_stalled(pool_bytes, is_owed)
            })
        };
        assert_eq!(stalls(32 * MIB, 1, true), Some(checks));
        // A sixteenth in ten checks.
        assert_eq!(stalls(32 * MIB, 2 * MIB / 10 - 1, true), Some(checks));
        assert_eq!(stalls(32 * MIB, 2 * MIB / 10 + 1, true), None);
        assert_eq!((stalls(32 * MIB, 0, false), stalls(0, 0, true)), (None, None));
    }

    #[test]
    fn a_waiting_connection_that_is_closed_delays_no_other() {
        let (mut budget, mut holder, mut newcomer) = (budget(), Account::default(), Account::default());
        assert!(budget.admit(&mut holder, 20 * MIB) && !budget.admit(&mut newcomer, 40 * MIB));
        let before = budget.releases();
        budget.close(newcomer, 0);
        assert!(budget.releases() > before && budget.admit(&mut holder, MIB));
    }
}
