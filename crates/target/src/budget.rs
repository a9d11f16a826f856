//! One memory budget for the data of all connections of a server.
//!
//! Each connection has an [`Account`] of the bytes that are held for it. A share of the budget is reserved for every connection
//! that the server may have, so no connection can be kept from small requests. The rest is a pool. From the pool a connection
//! gets what it asks for as long as it then holds no more of it than remains free (dynamic thresholds, Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 6 (2), 1998): one connection alone gets half, N of them that take all they can get an
//! (N+1)th each, and as much is left for the next. A connection that holds nothing of the pool goes before those that do.
//!
//! Bytes are admitted before a request is begun, for all that it takes to end it. So whoever holds bytes never waits for more.

use crate::limits::{STALL_INTERVAL, STALL_MAX, STALL_PARTS};

/// Bytes of each connection that no other can take.
pub const SHARE_BYTES: usize = 128 << 10;

/// The budget, and how much of it is held.
#[derive(Clone, Debug)]
pub struct Budget {
    total_bytes: usize,
    share_bytes: usize,
    pool_bytes: usize,
    /// Held by accounts, within their shares and beyond.
    held_bytes: usize,
    /// What accounts hold beyond their shares.
    pool_held_bytes: usize,
    /// What commands hold whose connections are closed.
    orphaned_bytes: usize,
    /// What the caller holds of connections that are closed here.
    outside_bytes: usize,
    /// Accounts that wait.
    waiting: usize,
    /// Of these, accounts that hold nothing of the pool.
    newcomers_waiting: usize,
    waits: u64,
    /// How often something was released for which accounts may have waited.
    releases: u64,
}

/// What is held for one connection.
#[derive(Debug, Default)]
pub struct Account {
    held_bytes: usize,
    waits: Waits,
}

/// Whether an account waits for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waits {
    #[default]
    No,
    /// It holds nothing of the pool.
    Newcomer,
    /// It holds a part of the pool.
    Holder,
}

/// Whether a connection makes progress that is worth what it holds of the pool, while others wait for that.
///
/// A byte now and then is none: whoever holds 32 MiB could keep them for years with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    moved_bytes: u64,
    /// Looks since the last one that found enough.
    looks: u64,
}

impl Progress {
    /// Its client has taken or sent so many bytes of what is held.
    #[inline]
    pub fn moved(&mut self, bytes: usize) {
        self.moved_bytes += bytes as u64;
    }

    /// A look every [`STALL_INTERVAL`], at a connection that holds so many bytes of the pool, and whether it is its client
    /// that others wait for. Returns whether it is to be closed: in [`STALL_MAX`] it has not moved one in [`STALL_PARTS`] of what it holds.
    pub fn is_stalled(&mut self, pool_bytes: usize, is_owed: bool) -> bool {
        if !is_owed || self.moved_bytes.saturating_mul(STALL_PARTS) >= pool_bytes as u64 {
            *self = Progress::default();
            return false;
        }
        self.looks += 1;
        self.looks * STALL_INTERVAL.as_nanos() >= STALL_MAX.as_nanos()
    }
}

impl Budget {
    /// A budget of `total_bytes` for at most `connections`. Of each connection, `fixed_bytes` are taken whatever it does.
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

    /// The most that one connection gets when no other holds anything of the pool, in bytes. A request that needs more would wait
    /// for ever.
    #[must_use]
    pub fn request_bytes_max(&self) -> usize {
        self.pool_bytes / 2 + self.share_bytes
    }

    /// Bytes of data that are held now. Fixed bytes of connections are not among them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.orphaned_bytes + self.outside_bytes
    }

    /// How often a request had to wait for room.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Whether an account waits.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// An account no longer wants what it waits for.
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

    /// Admits `bytes` more to an account, or not; whether it waits for something else stays as it is.
    #[inline]
    pub fn try_admit(&mut self, account: &mut Account, bytes: usize) -> bool {
        let after = account.held_bytes + bytes;
        let (pool_before, pool_after) = (self.beyond_share(account.held_bytes), self.beyond_share(after));
        let is_admitted = pool_after == pool_before || self.has_room(account, pool_before, pool_after);
        if is_admitted {
            self.set(account, after);
        }
        is_admitted
    }

    /// Says how many bytes are held for an account, whether they were admitted or not.
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

    /// The connection of an account is closed. Of its bytes, `orphaned_bytes` stay until they are released with
    /// [`Budget::release_orphaned`].
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

    /// How many bytes the caller still holds of connections that are closed.
    pub fn set_outside(&mut self, bytes: usize) {
        self.releases += u64::from(bytes < self.outside_bytes);
        self.outside_bytes = bytes;
    }

    /// Goes up when accounts that wait may find room. Whoever has some asks again when this has changed.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// What an account holds of the pool, in bytes.
    #[must_use]
    pub fn pool_bytes_of(&self, account: &Account) -> usize {
        self.beyond_share(account.held_bytes)
    }

    #[inline]
    fn beyond_share(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.share_bytes)
    }

    fn has_room(&self, account: &Account, pool_before: usize, pool_after: usize) -> bool {
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
            // Those that hold something have waited for it.
            self.releases += 1;
        }
        self.waiting -= usize::from(account.is_waiting());
        account.waits = Waits::No;
    }

    /// What must hold between events, of all accounts.
    ///
    /// # Panics
    /// When it does not.
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

    /// Whether it waits for room.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits != Waits::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A pool of 64 MiB beside the shares of 64 connections.
    fn budget() -> Budget {
        Budget::new(64 * MIB + 64 * SHARE_BYTES, 64, 0)
    }

    /// Has an account take all that it can get, in steps.
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
    fn connections_that_take_all_they_can_get_leave_as_much_as_each_has() {
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
    fn the_share_of_a_connection_is_free_however_much_others_hold() {
        let (mut budget, mut greedy, mut small) = (budget(), Account::default(), Account::default());
        budget.set(&mut greedy, 100 * MIB);
        assert!(budget.admit(&mut small, SHARE_BYTES));
        assert!(!budget.admit(&mut small, 1), "and no byte more");
        assert!(small.is_waiting() && budget.has_waiting());
        assert_eq!(budget.waits(), 1);
        assert!(!budget.admit(&mut small, 1));
        assert_eq!(budget.waits(), 1, "it is one wait, however often it is looked at");
        budget.withdraw(&mut small);
        assert!(!small.is_waiting() && !budget.has_waiting());
    }

    #[test]
    fn who_has_nothing_of_the_pool_goes_before_those_who_have() {
        let (mut budget, mut holder, mut newcomer) = (budget(), Account::default(), Account::default());
        assert!(budget.admit(&mut holder, 20 * MIB));
        assert!(!budget.admit(&mut newcomer, 30 * MIB));
        assert!(!budget.admit(&mut holder, MIB), "there would be room");
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
        assert!(!budget.admit(&mut second, MIB), "the first goes before");
        assert!(budget.admit(&mut first, MIB) && budget.admit(&mut second, MIB));
    }

    #[test]
    fn what_is_held_of_closed_connections_counts_until_it_is_released() {
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
    fn who_holds_memory_and_moves_a_byte_now_and_then_is_stalled() {
        let looks = STALL_MAX.as_nanos() / STALL_INTERVAL.as_nanos();
        let stalls = |pool_bytes: usize, moved: usize, is_owed: bool| {
            let mut progress = Progress::default();
            (1..100).find(|_| {
                progress.moved(moved);
                progress.is_stalled(pool_bytes, is_owed)
            })
        };
        assert_eq!(stalls(32 * MIB, 1, true), Some(looks));
        // A sixteenth in ten looks.
        assert_eq!(stalls(32 * MIB, 2 * MIB / 10 - 1, true), Some(looks));
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
