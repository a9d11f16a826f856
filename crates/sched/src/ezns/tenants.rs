//! [`Tenants`]: weighted round robin over the tenants of a class.

use std::collections::VecDeque;

use zonda_zoned::{Key, TenantId};

use super::EznsConfig;
use super::streams::Stream;
use crate::Accepts;
use crate::direction::Direction;
use crate::limits::{EZNS_QUANTUM_BYTES, EZNS_WEIGHT_MAX};

/// The tenants of a class with requests that may be released: deficit round robin by bytes.
///
/// A tenant in turn receives a quantum for its weight, and releases requests until their size has
/// used it up. The last one may exceed it; then the tenant pays with its next turns. Its streams
/// take turns by requests, reads and writes alternate.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// By number.
    tenants: Vec<Tenant>,
    /// Tenants with a queue that is ready; the first one is in turn.
    ring: VecDeque<TenantId>,
    /// What the last tenant that has passed lost with the end of its turn.
    lost: i64,
}

#[derive(Debug)]
struct Tenant {
    quantum: i64,
    /// Bytes that it may still release in this turn; negative if it has released more.
    balance: i64,
    is_active: bool,
    /// By direction: streams whose queue is ready.
    ready: [VecDeque<Key<Stream>>; 2],
    /// The direction considered first.
    next: Direction,
}

/// A queue in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) tenant: TenantId,
    pub(super) direction: Direction,
    pub(super) stream: Key<Stream>,
}

impl Tenants {
    /// Adds a queue that has become ready; behind the others, or before them.
    pub(super) fn add(&mut self, turn: Turn, is_first: bool, config: &EznsConfig) {
        let tenant = self.known(turn.tenant, config);
        let ready = &mut tenant.ready[turn.direction as usize];
        if is_first {
            ready.push_front(turn.stream);
        } else {
            ready.push_back(turn.stream);
        }
        if !tenant.is_active {
            tenant.is_active = true;
            if is_first { self.ring.push_front(turn.tenant) } else { self.ring.push_back(turn.tenant) }
        }
    }

    /// A tenant, with all before it.
    fn known(&mut self, number: TenantId, config: &EznsConfig) -> &mut Tenant {
        let index = usize::from(number.0);
        for number in self.tenants.len()..=index {
            self.tenants.push(Tenant::new(TenantId(number as u16), config));
        }
        &mut self.tenants[index]
    }

    /// Whether no tenant has a turn, or waits for one.
    pub(super) fn are_idle(&self) -> bool {
        self.ring.is_empty()
    }

    /// The only tenant with a request releases it: as [`add`](Tenants::add), [`next`](Tenants::next) and
    /// [`on_released`](Tenants::on_released) would, and if it is the last one,
    /// [`end_turns`](Tenants::end_turns).
    pub(super) fn pass(
        &mut self,
        number: TenantId,
        direction: Direction,
        bytes: u64,
        is_last: bool,
        config: &EznsConfig,
    ) {
        assert!(self.ring.is_empty(), "no other tenant has a turn");
        let tenant = self.known(number, config);
        while tenant.balance <= 0 {
            tenant.balance += tenant.quantum;
        }
        tenant.balance -= bytes as i64;
        tenant.next = direction.other();
        if is_last {
            let balance = tenant.balance;
            tenant.end_turn();
            self.lost = balance - tenant.balance;
        } else {
            tenant.is_active = true;
            self.ring.push_back(number);
        }
    }

    /// The request that has just [passed](Tenants::pass) was not the last one: its tenant has its turn again.
    pub(super) fn resume(&mut self, number: TenantId) {
        if self.ring.is_empty() {
            let tenant = &mut self.tenants[usize::from(number.0)];
            tenant.balance += self.lost;
            tenant.is_active = true;
            self.ring.push_back(number);
        }
    }

    /// Ends the turns of tenants, of which none has a queue that is ready: as [`next`](Tenants::next).
    pub(super) fn end_turns(&mut self) {
        while let Some(number) = self.ring.pop_front() {
            self.tenants[usize::from(number.0)].end_turn();
        }
    }

    /// What a tenant receives in its next turns. Its balance stays: it is of turns that it has had.
    pub(super) fn set_weight(&mut self, tenant: TenantId, weight: u32) {
        if let Some(known) = self.tenants.get_mut(usize::from(tenant.0)) {
            known.quantum = quantum_of(weight);
        }
    }

    /// The queue in turn.
    pub(super) fn next(&mut self, accepts: Accepts) -> Option<Turn> {
        let mut skipped = 0;
        while skipped < self.ring.len() {
            let number = *self.ring.front().expect("the ring is longer than what was skipped");
            let tenant = &mut self.tenants[usize::from(number.0)];
            let Some((direction, stream)) = tenant.next(accepts) else {
                if tenant.ready.iter().all(VecDeque::is_empty) {
                    tenant.end_turn();
                    self.ring.pop_front();
                } else {
                    skipped += 1;
                    self.ring.rotate_left(1);
                }
                continue;
            };
            if tenant.balance > 0 {
                return Some(Turn { tenant: number, direction, stream });
            }
            tenant.balance += tenant.quantum;
            if tenant.balance <= 0 {
                self.ring.rotate_left(1);
            }
            skipped = 0;
        }
        None
    }

    /// A queue is blocked or empty: it is not considered until it is added again.
    pub(super) fn remove(&mut self, turn: Turn) {
        let ready = &mut self.of(turn).ready[turn.direction as usize];
        let place = ready.iter().position(|stream| *stream == turn.stream);
        ready.remove(place.expect("a queue that is considered is in the list of its tenant"));
    }

    /// A request of the queue in turn is released; unless it was the last one, the queue is considered
    /// again after the others.
    pub(super) fn on_released(&mut self, turn: Turn, bytes: u64, is_last: bool) {
        let tenant = self.of(turn);
        tenant.next = turn.direction.other();
        let ready = &mut tenant.ready[turn.direction as usize];
        let first = ready.pop_front();
        assert_eq!(first, Some(turn.stream), "the queue in turn is the first of its list");
        if !is_last {
            ready.push_back(turn.stream);
        }
        tenant.balance -= bytes as i64;
        if tenant.balance <= 0 {
            self.ring.rotate_left(1);
        }
    }

    /// The device has refused a request.
    pub(super) fn put_back(&mut self, tenant: TenantId, bytes: u64) {
        self.tenants[usize::from(tenant.0)].balance += bytes as i64;
    }

    fn of(&mut self, turn: Turn) -> &mut Tenant {
        &mut self.tenants[usize::from(turn.tenant.0)]
    }

    /// Queues that are considered.
    pub(super) fn ready(&self) -> usize {
        self.tenants.iter().flat_map(|tenant| &tenant.ready).map(VecDeque::len).sum()
    }

    pub(super) fn check_invariants(&self) {
        let is_active = |number: &TenantId| self.tenants[usize::from(number.0)].is_active;
        assert!(self.ring.iter().all(is_active), "a tenant in the ring is active");
        let active = self.tenants.iter().filter(|tenant| tenant.is_active).count();
        assert_eq!(active, self.ring.len(), "an active tenant is in the ring once");
        let has_turn = |tenant: &Tenant| tenant.is_active || tenant.ready.iter().all(VecDeque::is_empty);
        assert!(self.tenants.iter().all(has_turn), "a tenant with a ready queue is active");
    }
}

impl Tenant {
    fn new(number: TenantId, config: &EznsConfig) -> Tenant {
        let listed = config.weights.iter().rev().find(|(tenant, _)| *tenant == number);
        Tenant {
            quantum: quantum_of(listed.map_or(1, |(_, weight)| *weight)),
            balance: 0,
            is_active: false,
            ready: Default::default(),
            next: Direction::Read,
        }
    }

    /// What it has not used does not accumulate; what it owes remains.
    fn end_turn(&mut self) {
        self.balance = self.balance.min(0);
        self.is_active = false;
    }

    fn next(&self, accepts: Accepts) -> Option<(Direction, Key<Stream>)> {
        let is_accepted = |direction: &Direction| accepts == Accepts::All || *direction == Direction::Read;
        let first = |direction: Direction| Some((direction, *self.ready[direction as usize].front()?));
        [self.next, self.next.other()].into_iter().filter(is_accepted).find_map(first)
    }
}

fn quantum_of(weight: u32) -> i64 {
    EZNS_QUANTUM_BYTES as i64 * i64::from(weight.clamp(1, EZNS_WEIGHT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::{Prng, Slab};

    const KIB: u64 = 1024;

    struct Rig {
        tenants: Tenants,
        config: EznsConfig,
    }

    /// Tenants with these weights; each has one stream, with the same number, which reads.
    fn rig(weights: &[u32]) -> Rig {
        let numbered = weights.iter().enumerate().map(|(number, weight)| (TenantId(number as u16), *weight));
        let mut rig = Rig {
            tenants: Tenants::default(),
            config: EznsConfig { weights: numbered.collect(), ..EznsConfig::default() },
        };
        (0..weights.len()).for_each(|number| rig.add(number, number, Direction::Read));
        rig
    }

    fn key(number: usize) -> Key<Stream> {
        let mut slab: Slab<()> = Slab::new();
        let key = (0..=number).map(|_| slab.insert(())).last().expect("at least one");
        Key::of_command(key.into()).expect("it is of a slab")
    }

    impl Rig {
        fn add(&mut self, tenant: usize, stream: usize, direction: Direction) {
            let turn = Turn { tenant: TenantId(tenant as u16), direction, stream: key(stream) };
            self.tenants.add(turn, false, &self.config);
        }

        /// Releases a request of the size that its tenant has; returns the tenant.
        fn release(&mut self, accepts: Accepts, sizes: &[u64]) -> Turn {
            let turn = self.tenants.next(accepts).expect("a queue is ready");
            self.tenants.on_released(turn, sizes[usize::from(turn.tenant.0)], false);
            self.tenants.check_invariants();
            turn
        }

        /// The bytes that each tenant releases of so many requests.
        fn bytes(&mut self, sizes: &[u64], requests: usize) -> Vec<u64> {
            let mut bytes = vec![0; sizes.len()];
            for _ in 0..requests {
                let tenant = usize::from(self.release(Accepts::All, sizes).tenant.0);
                bytes[tenant] += sizes[tenant];
            }
            bytes
        }
    }

    #[test]
    fn tenants_share_bytes_by_their_weights() {
        let bytes = rig(&[1, 3]).bytes(&[64 * KIB, 64 * KIB], 4000);
        assert_eq!(bytes[1] / bytes[0], 3);
        assert_eq!(bytes[0], 1000 * 64 * KIB);
    }

    #[test]
    fn a_weight_that_changes_while_tenants_wait_applies_from_their_next_turns_on() {
        let mut rig = rig(&[1, 1]);
        rig.bytes(&[64 * KIB, 64 * KIB], 100);
        rig.tenants.set_weight(TenantId(1), 3);
        let bytes = rig.bytes(&[64 * KIB, 64 * KIB], 4000);
        assert_eq!((bytes[1] + bytes[0] / 2) / bytes[0], 3, "{bytes:?}");
        rig.tenants.set_weight(TenantId(7), 5);
        assert_eq!(rig.tenants.tenants.len(), 2, "a tenant gets its weight from the configuration when it comes");
    }

    #[test]
    fn the_size_of_requests_does_not_change_the_share() {
        let bytes = rig(&[1, 1]).bytes(&[4 * KIB, 2048 * KIB], 51_300);
        let percent = bytes[0] * 100 / bytes[1];
        assert!((99..=101).contains(&percent), "{bytes:?}");
    }

    #[test]
    fn a_tenant_that_was_idle_has_not_saved_its_share_and_still_owes_what_it_has_released() {
        let mut rig = rig(&[1, 1]);
        let sizes = [2048 * KIB, 128 * KIB];
        let large = rig.release(Accepts::All, &sizes);
        assert_eq!(large.tenant, TenantId(0));
        let remove_from = |rig: &mut Rig, tenant: u16| loop {
            let turn = rig.tenants.next(Accepts::All).expect("both are ready");
            if turn.tenant == TenantId(tenant) {
                return rig.tenants.remove(turn);
            }
            rig.tenants.on_released(turn, 128 * KIB, false);
        };
        remove_from(&mut rig, 1);
        remove_from(&mut rig, 0);
        assert_eq!(rig.tenants.next(Accepts::All), None);
        rig.tenants.check_invariants();
        let debt = rig.tenants.tenants[0].balance;
        assert!(debt <= 0 && rig.tenants.tenants[1].balance <= 0, "{:?}", rig.tenants);
    }

    #[test]
    fn a_request_that_passes_as_the_last_one_ends_the_turn_and_a_refusal_restores_it() {
        let state = |tenants: &Tenants| {
            let of = |tenant: &Tenant| (tenant.balance, tenant.is_active, tenant.next);
            (tenants.tenants.iter().map(of).collect::<Vec<_>>(), tenants.ring.clone())
        };
        let (mut prng, config) = (Prng::new(1), EznsConfig::default());
        let (mut one, mut other) = (Tenants::default(), Tenants::default());
        for _ in 0..1000 {
            let (tenant, bytes) = (TenantId(prng.below(3) as u16), 4 * KIB * (1 + prng.below(100)));
            one.pass(tenant, Direction::Write, bytes, true, &config);
            other.pass(tenant, Direction::Write, bytes, false, &config);
            if prng.chance(1, 2) {
                [&mut one, &mut other].into_iter().for_each(|tenants| tenants.resume(tenant));
                assert_eq!(state(&one), state(&other));
                [&mut one, &mut other].into_iter().for_each(|tenants| tenants.put_back(tenant, bytes));
                one.end_turns();
            }
            other.end_turns();
            assert_eq!(state(&one), state(&other));
        }
    }

    #[test]
    fn streams_of_a_tenant_take_turns_and_its_reads_and_writes_alternate() {
        let mut rig = rig(&[1]);
        rig.add(0, 1, Direction::Read);
        rig.add(0, 2, Direction::Write);
        let turns: Vec<usize> = (0..6)
            .map(|_| rig.release(Accepts::All, &[4 * KIB]).stream)
            .map(|stream| (0..3).find(|number| key(*number) == stream).expect("it was added"))
            .collect();
        assert_eq!(turns, [0, 2, 1, 2, 0, 2]);
    }

    #[test]
    fn while_the_device_refuses_writes_tenants_that_only_write_are_passed_over() {
        let mut rig = rig(&[1]);
        rig.add(1, 5, Direction::Write);
        rig.add(2, 6, Direction::Write);
        for _ in 0..100 {
            assert_eq!(rig.release(Accepts::Reads, &[64 * KIB]).tenant, TenantId(0));
        }
        let turn = rig.tenants.next(Accepts::Reads).expect("it reads");
        rig.tenants.remove(turn);
        assert_eq!(rig.tenants.next(Accepts::Reads), None);
        assert!(rig.tenants.next(Accepts::All).is_some());
    }
}
