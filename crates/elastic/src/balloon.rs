//! [`Balloon`]: how many active zones each namespace may use (eZNS, section 4.4).
//!
//! The active zones of a drive are *essentials*, enough for its whole write bandwidth, and
//! *spares*. Each namespace has a share of both by its weight. A stripe group gets the essentials
//! of one v-zone, and of the namespace's spares as many as fall to one of the v-zones that it
//! usually writes: *local overdrive*. Namespaces that open no groups and write into none lend their
//! spares to those that do, and get them back as groups end: *global overdrive*.
//!
//! It counts, and knows no zones. Redistribution is due after so many zones were allocated, and
//! after a time, so that a drive on which nothing is opened quiesces, too.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{Duration, Instant};

/// Zones that are allocated between two redistributions (the public prototype of eZNS).
const REDISTRIBUTION_ZONES: u32 = 32;
/// Time after which a redistribution is due without allocations.
const REDISTRIBUTION_TIME: Duration = Duration::from_secs(1);
/// On a drive on which others allocate little, a namespace is inactive only if it has also allocated
/// and written nothing for so long.
const INACTIVE_TIME: Duration = Duration::from_secs(2);
/// Weight of one allocation in the moving average: one in so many (the public prototype of eZNS).
const HISTORY_DIVISOR: i64 = 32;
/// Fixed-point unit of the moving average.
const UNIT: i64 = 1 << 16;

/// What a stripe group holds while it can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) width: u32,
    /// How many of these are spares.
    pub(crate) spares: u32,
}

/// The numbers of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Active zones that are always there for it.
    pub essentials: u32,
    /// Spares that are its own, lent ones included.
    pub spares_own: u32,
    /// Its own spares that others have.
    pub spares_lent: u32,
    /// Spares of others that it has.
    pub spares_leased: u32,
    /// Spares in its stripe groups.
    pub spares_used: u32,
    /// Essentials of one v-zone: the minimum width of a stripe group.
    pub width_min: u32,
}

#[derive(Clone, Debug)]
struct Member {
    weight: u32,
    active_max: u32,
    share: Share,
    /// Moving average of the number of active v-zones, in [`UNIT`].
    active_history: i64,
    /// When it has last allocated or written, as far as that is known.
    last_use: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Loan {
    zones: u32,
    /// The lender needs them: they go back when the borrower does not use them.
    is_recalled: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Balloon {
    essential_zones: u32,
    spare_zones: u32,
    width_max: u32,
    members: BTreeMap<u32, Member>,
    /// By lender and borrower.
    loans: BTreeMap<(u32, u32), Loan>,
    /// Namespaces that have allocated the last zones, and how many each.
    recent: VecDeque<(u32, u32)>,
    recent_zones: u32,
    allocated_since: u32,
    last_redistribution: Instant,
}

impl Share {
    /// Spares that it may use.
    #[must_use]
    pub fn spares(&self) -> u32 {
        (self.spares_own + self.spares_leased) - self.spares_lent
    }

    /// Spares that it does not use. None, while it uses more than it still has.
    #[must_use]
    pub fn spares_remaining(&self) -> u32 {
        self.spares().saturating_sub(self.spares_used)
    }
}

impl Balloon {
    /// # Panics
    /// If groups would have no width, or one that is not a power of two.
    pub(crate) fn new(essential_zones: u32, spare_zones: u32, width_max: u32) -> Balloon {
        assert!(width_max.is_power_of_two(), "the width of a group is a power of two");
        Balloon {
            essential_zones,
            spare_zones,
            width_max,
            members: BTreeMap::new(),
            loans: BTreeMap::new(),
            recent: VecDeque::new(),
            recent_zones: 0,
            allocated_since: 0,
            last_redistribution: Instant::ZERO,
        }
    }

    pub(crate) fn share(&self, namespace: u32) -> Share {
        self.members[&namespace].share
    }

    /// Whether all namespaces still have one essential for each active v-zone, if more join: the
    /// weight and the active v-zones of each.
    pub(crate) fn can_add(&self, joining: impl IntoIterator<Item = (u32, u32)>) -> bool {
        let members = self.members.values().map(|member| (member.weight, member.active_max));
        let all: Vec<(u32, u32)> = members.chain(joining).collect();
        let weights: u64 = all.iter().map(|(weight, _)| u64::from(*weight)).sum();
        all.iter().all(|(weight, active)| portion(self.essential_zones, *weight, weights) >= *active)
    }

    /// Essentials of a namespace of this weight, if all namespaces together weigh `weights`.
    pub(crate) fn essentials_of(&self, weight: u32, weights: u64) -> u32 {
        portion(self.essential_zones, weight, weights)
    }

    pub(crate) fn add(&mut self, namespace: u32, weight: u32, active_max: u32) {
        let share =
            Share { essentials: 0, spares_own: 0, spares_lent: 0, spares_leased: 0, spares_used: 0, width_min: 1 };
        let active_history = i64::from(active_max) * UNIT;
        let member = Member { weight, active_max, share, active_history, last_use: None };
        assert!(self.members.insert(namespace, member).is_none(), "a namespace joins once");
        self.divide();
    }

    /// The namespace's groups must have been released.
    pub(crate) fn remove(&mut self, namespace: u32) {
        let member = self.members.remove(&namespace).expect("a namespace leaves once");
        assert_eq!(member.share.spares_used, 0, "a namespace that leaves has no groups");
        self.recent.retain(|(other, _)| *other != namespace);
        self.recent_zones = self.recent.iter().map(|(_, zones)| zones).sum();
        self.divide();
    }

    /// Divides essentials and spares by weight, and forgets loans. Groups keep what they use.
    fn divide(&mut self) {
        self.loans.clear();
        let weights: u64 = self.members.values().map(|member| u64::from(member.weight)).sum();
        let mut spares_left = self.spare_zones;
        for member in self.members.values_mut() {
            let share = &mut member.share;
            share.essentials = portion(self.essential_zones, member.weight, weights);
            share.spares_own = portion(self.spare_zones, member.weight, weights);
            (share.spares_lent, share.spares_leased) = (0, 0);
            spares_left -= share.spares_own;
            let width = (share.essentials / member.active_max.max(1)).max(1).min(self.width_max);
            share.width_min = 1 << width.ilog2();
        }
        // What the division leaves over goes to the first.
        for member in self.members.values_mut() {
            let extra = u32::from(spares_left > 0);
            member.share.spares_own += extra;
            spares_left -= extra;
        }
    }

    /// The width of the next group of a namespace that has so many active v-zones, this one
    /// included, if `zones_max` zones are available at most: local overdrive. `None` if none is.
    pub(crate) fn allocate(
        &mut self,
        now: Instant,
        namespace: u32,
        active_vzones: u32,
        zones_max: u32,
    ) -> Option<Grant> {
        let width_max = self.width_max.min(zones_max);
        if width_max == 0 {
            return None;
        }
        let member = self.members.get_mut(&namespace).expect("a namespace joins before it allocates");
        member.active_history += (i64::from(active_vzones) * UNIT - member.active_history) / HISTORY_DIVISOR;
        let share = member.share;
        let history = member.active_history.max(UNIT);
        // To the nearest: rounding down would leave a spare for each v-zone unused.
        let portion = (i64::from(share.spares()) * UNIT + history / 2) / history;
        let reaped = share.spares_remaining().min(portion as u32);
        let width = 1 << (share.width_min + reaped).min(width_max).ilog2();
        let spares = width - width.min(share.width_min);
        member.share.spares_used += spares;
        member.last_use = Some(now);
        self.record(namespace, width);
        Some(Grant { width, spares })
    }

    fn record(&mut self, namespace: u32, zones: u32) {
        self.recent.push_back((namespace, zones));
        self.recent_zones += zones;
        self.allocated_since += zones;
        while let Some((_, oldest)) = self.recent.front()
            && self.recent_zones - oldest >= self.essential_zones
        {
            self.recent_zones -= oldest;
            self.recent.pop_front();
        }
    }

    /// A group that was mounted holds this.
    pub(crate) fn adopt(&mut self, namespace: u32, width: u32) -> Grant {
        let member = self.members.get_mut(&namespace).expect("a namespace joins before its groups");
        let spares = width - width.min(member.share.width_min);
        member.share.spares_used += spares;
        Grant { width, spares }
    }

    /// What a group holds after namespaces have joined or left: what is above the new minimum width are
    /// spares.
    pub(crate) fn adopt_again(&mut self, namespace: u32, grant: Grant) -> Grant {
        let Some(member) = self.members.get_mut(&namespace) else { return grant };
        let used = member.share.spares_used.checked_sub(grant.spares);
        member.share.spares_used = used.expect("a group holds what it was granted");
        self.adopt(namespace, grant.width)
    }

    /// A group has ended.
    pub(crate) fn release(&mut self, namespace: u32, grant: Grant) {
        let Some(member) = self.members.get_mut(&namespace) else { return };
        let used = member.share.spares_used.checked_sub(grant.spares);
        member.share.spares_used = used.expect("a group releases what it was granted");
        self.return_recalled(namespace);
    }

    /// Returns recalled spares that the borrower does not use.
    fn return_recalled(&mut self, borrower: u32) {
        let recalled: Vec<u32> = self
            .loans
            .iter()
            .filter(|((_, to), loan)| *to == borrower && loan.is_recalled)
            .map(|((from, _), _)| *from)
            .collect();
        for lender in recalled {
            let remaining = self.members[&borrower].share.spares_remaining();
            let zones = self.loans[&(lender, borrower)].zones.min(remaining);
            self.move_loan(lender, borrower, zones);
        }
    }

    /// Ends a loan of so many zones.
    fn move_loan(&mut self, lender: u32, borrower: u32, zones: u32) {
        let loan = self.loans.get_mut(&(lender, borrower)).expect("a loan is returned by its borrower");
        loan.zones -= zones;
        if loan.zones == 0 {
            self.loans.remove(&(lender, borrower));
        }
        self.members.get_mut(&lender).expect("a lender is a member").share.spares_lent -= zones;
        self.members.get_mut(&borrower).expect("a borrower is a member").share.spares_leased -= zones;
    }

    /// When a redistribution may be due without an allocation.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.last_redistribution + REDISTRIBUTION_TIME
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.allocated_since >= REDISTRIBUTION_ZONES || now >= self.next_timeout()
    }

    /// A namespace was written since the last redistribution. Its groups can last much longer than the
    /// time after which it would be inactive, and what follows them would have no spares.
    pub(crate) fn on_written(&mut self, now: Instant, namespace: u32) {
        self.members.get_mut(&namespace).expect("a namespace joins before it is written").last_use = Some(now);
    }

    /// Whether a namespace has opened no group lately, and was not written.
    pub(crate) fn is_inactive(&self, now: Instant, namespace: u32) -> bool {
        let is_recent = self.recent.iter().any(|(other, _)| *other == namespace);
        let last = self.members[&namespace].last_use;
        let is_young = last.is_some_and(|last| now.since(last) < INACTIVE_TIME);
        // On a busy drive counts decide, as in the paper; on an idle one nothing would ever leave the list.
        !is_recent || (!is_young && now >= Instant::ZERO + INACTIVE_TIME && last.is_some())
    }

    /// Whether spares of an inactive namespace could be lent to another.
    pub(crate) fn is_wanted(&self, now: Instant, namespace: u32) -> bool {
        let is_active = |id: &&u32| **id != namespace && !self.is_inactive(now, **id);
        self.is_inactive(now, namespace) && self.members.keys().any(|id| is_active(&id))
    }

    /// Global overdrive: inactive namespaces lend what they do not use to the active ones, and
    /// those that are active again get theirs back. `active_vzones` is the present number of each.
    pub(crate) fn redistribute(&mut self, now: Instant, active_vzones: impl Fn(u32) -> u32) {
        let is_timed = self.allocated_since < REDISTRIBUTION_ZONES;
        (self.allocated_since, self.last_redistribution) = (0, now);
        let ids: Vec<u32> = self.members.keys().copied().collect();
        let (inactive, active): (Vec<u32>, Vec<u32>) = ids.iter().copied().partition(|id| self.is_inactive(now, *id));
        if is_timed {
            for (id, member) in &mut self.members {
                let target = i64::from(active_vzones(*id).max(1)) * UNIT;
                member.active_history += (target - member.active_history) / 4;
            }
        }
        for (_, loan) in self.loans.iter_mut().filter(|((lender, _), _)| active.contains(lender)) {
            loan.is_recalled = true;
        }
        // No namespace keeps leased spares idle.
        for (_, loan) in self.loans.iter_mut().filter(|((_, borrower), _)| inactive.contains(borrower)) {
            loan.is_recalled = true;
        }
        for id in &ids {
            self.return_recalled(*id);
        }
        for lender in inactive {
            let remaining = self.members[&lender].share;
            // It lends its own only.
            let lendable = remaining.spares_remaining().min(remaining.spares_own - remaining.spares_lent);
            self.lend(lender, lendable, &active);
        }
    }

    fn lend(&mut self, lender: u32, zones: u32, to: &[u32]) {
        let mut weights: u64 = to.iter().map(|id| u64::from(self.members[id].weight)).sum();
        let mut left = zones;
        for borrower in to {
            let weight = self.members[borrower].weight;
            let part = portion(left, weight, weights);
            weights -= u64::from(weight);
            left -= part;
            if part > 0 {
                let loan = self.loans.entry((lender, *borrower)).or_default();
                loan.zones += part;
                loan.is_recalled = false;
                self.members.get_mut(&lender).expect("a lender is a member").share.spares_lent += part;
                self.members.get_mut(borrower).expect("a borrower is a member").share.spares_leased += part;
            }
        }
    }

    /// # Panics
    /// If spares were lost or made.
    pub(crate) fn check_invariants(&self) {
        let own: u32 = self.members.values().map(|member| member.share.spares_own).sum();
        assert!(own == self.spare_zones || self.members.is_empty(), "all spares are someone's own");
        for (id, member) in &self.members {
            let lent: u32 = self.loans.iter().filter(|((from, _), _)| from == id).map(|(_, loan)| loan.zones).sum();
            let leased: u32 = self.loans.iter().filter(|((_, to), _)| to == id).map(|(_, loan)| loan.zones).sum();
            assert_eq!(lent, member.share.spares_lent, "what namespace {id} has lent is lent to someone");
            assert_eq!(leased, member.share.spares_leased, "what namespace {id} has leased is someone's");
            assert!(lent <= member.share.spares_own, "namespace {id} lends its own spares only");
        }
    }
}

/// The part of `whole` zones that a namespace of this weight has, if all together have the weight
/// `weights`: `whole` × `weight` ÷ `weights`, rounded down.
#[must_use]
pub fn portion(whole: u32, weight: u32, weights: u64) -> u32 {
    (u64::from(whole) * u64::from(weight)).checked_div(weights).unwrap_or(0) as u32
}

#[cfg(test)]
mod tests;
