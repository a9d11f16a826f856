//! Half-open connections, whose handshake is not complete, and which of them is evicted for a new
//! connection.
//!
//! The connections of a flood send nothing, or stop sending. An honest host answers each step of
//! its handshake within milliseconds. So the connection is evicted whose last step was the longest
//! ago, not the oldest one: an honest host loses its slot only if a whole table of other
//! connections arrives or takes a step while the host answers one. Each connection has a limited
//! number of steps, so an attacker needs new connections to hold its slots.
//!
//! A connection that waits for the server is not silent: its silence begins with the response.
//! Until then it is pinned, and not evicted. At most half of the slots of an address, and of the
//! whole table, are pinned, so that a new connection can always evict one. If all pins are used, an
//! address with none takes one from the address with the most.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::Instant;

use crate::effects::ConnectionId;
use crate::limits::{HALF_OPEN_USUAL, HANDSHAKE_STEPS, Limits};

/// Of all slots, and of those of an address, one in so many can be pinned.
const PINNED_PARTS: usize = 2;

/// The table of half-open connections. An address is a group: see
/// [`Flow::group_of`](crate::Flow::group_of).
#[derive(Debug)]
pub(crate) struct HalfOpen {
    entries: BTreeMap<ConnectionId, Entry>,
    by_deadline: BTreeSet<(Instant, ConnectionId)>,
    /// Connections that may be evicted, the longest silent first.
    by_step: BTreeSet<(u64, ConnectionId)>,
    groups: BTreeMap<u64, Group>,
    /// How many connections each group has.
    sizes: BTreeSet<(usize, u64)>,
    /// How many connections of each group are pinned, if any.
    pinned_sizes: BTreeSet<(usize, u64)>,
    pinned: usize,
    pinned_max: usize,
    pinned_per_group_max: usize,
    /// Steps of all connections so far. They order steps that have the same time.
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    group: u64,
    deadline: Instant,
    /// Number of its last step, counted over all connections.
    step: u64,
    /// Steps that still count.
    steps_left: u8,
    /// Pinned since the step of this number: it waits for the server, and is not evicted.
    pinned: Option<u64>,
}

/// The connections of one address, in the order of their steps.
#[derive(Debug, Default)]
struct Group {
    silent: BTreeSet<(u64, ConnectionId)>,
    pinned: BTreeSet<(u64, ConnectionId)>,
}

impl HalfOpen {
    pub(crate) fn new(limits: &Limits) -> HalfOpen {
        HalfOpen {
            entries: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            by_step: BTreeSet::new(),
            groups: BTreeMap::new(),
            sizes: BTreeSet::new(),
            pinned_sizes: BTreeSet::new(),
            pinned: 0,
            pinned_max: limits.half_open / PINNED_PARTS,
            pinned_per_group_max: limits.half_open_per_address / PINNED_PARTS,
            steps: 0,
        }
    }

    /// Adds a connection.
    pub(crate) fn insert(&mut self, id: ConnectionId, group: u64, deadline: Instant) {
        self.steps += 1;
        let entry = Entry { group, deadline, step: self.steps, steps_left: HANDSHAKE_STEPS, pinned: None };
        assert!(self.entries.insert(id, entry).is_none(), "a connection has one entry");
        self.by_deadline.insert((deadline, id));
        self.enter(id, entry);
    }

    /// Removes a connection: its handshake is complete, or it was closed.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.by_deadline.remove(&(entry.deadline, id));
        self.leave(id, entry);
    }

    /// Records a handshake step of a connection.
    pub(crate) fn advance(&mut self, id: ConnectionId) {
        self.change(id, |entry, step| {
            if entry.steps_left > 0 {
                (entry.step, entry.steps_left) = (step, entry.steps_left - 1);
            }
        });
    }

    /// Pins a connection, which waits for the server from now on. It stays unpinned if its address
    /// has used up its pins, or if all pins are used by addresses that have no more of them than
    /// its own.
    pub(crate) fn pin(&mut self, id: ConnectionId) {
        let Some(entry) = self.entries.get(&id).filter(|entry| entry.pinned.is_none()) else { return };
        let of_own = self.groups[&entry.group].pinned.len();
        if of_own >= self.pinned_per_group_max {
            return;
        }
        if self.pinned >= self.pinned_max {
            let Some((_, group)) = self.pinned_sizes.last().filter(|(most, _)| *most > of_own + 1) else { return };
            let &(_, newest) =
                self.groups[group].pinned.last().expect("the group with the most pinned connections has some");
            self.unpin(newest);
        }
        self.change(id, |entry, step| entry.pinned = Some(step));
    }

    /// Unpins a connection that has received its response.
    pub(crate) fn unpin(&mut self, id: ConnectionId) {
        if self.entries.get(&id).is_some_and(|entry| entry.pinned.is_some()) {
            self.change(id, |entry, _| entry.pinned = None);
        }
    }

    /// Sets the deadline of a connection's handshake.
    pub(crate) fn set_deadline(&mut self, id: ConnectionId, deadline: Instant) {
        let entry = self.entries.get_mut(&id).expect("a half-open connection has an entry");
        self.by_deadline.remove(&(entry.deadline, id));
        entry.deadline = deadline;
        self.by_deadline.insert((deadline, id));
    }

    /// Updates an entry, with the number of the next step.
    fn change(&mut self, id: ConnectionId, change: impl FnOnce(&mut Entry, u64)) {
        let Some(&old) = self.entries.get(&id) else { return };
        let mut new = old;
        self.steps += 1;
        change(&mut new, self.steps);
        self.leave(id, old);
        self.enter(id, new);
        self.entries.insert(id, new);
    }

    fn enter(&mut self, id: ConnectionId, entry: Entry) {
        self.change_group(entry.group, |group| match entry.pinned {
            Some(since) => group.pinned.insert((since, id)),
            None => group.silent.insert((entry.step, id)),
        });
        if entry.pinned.is_none() {
            self.by_step.insert((entry.step, id));
        }
    }

    fn leave(&mut self, id: ConnectionId, entry: Entry) {
        self.change_group(entry.group, |group| match entry.pinned {
            Some(since) => group.pinned.remove(&(since, id)),
            None => group.silent.remove(&(entry.step, id)),
        });
        self.by_step.remove(&(entry.step, id));
    }

    fn change_group(&mut self, key: u64, change: impl FnOnce(&mut Group) -> bool) {
        let group = self.groups.entry(key).or_default();
        let old = (group.len(), group.pinned.len());
        assert!(change(group), "a group lists its connections");
        let new = (group.len(), group.pinned.len());
        if new.0 == 0 {
            self.groups.remove(&key);
        }
        self.pinned = self.pinned + new.1 - old.1;
        for (sizes, old, new) in [(&mut self.sizes, old.0, new.0), (&mut self.pinned_sizes, old.1, new.1)] {
            if old != new {
                sizes.remove(&(old, key));
                if new > 0 {
                    sizes.insert((new, key));
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many connections a group has.
    pub(crate) fn len_of(&self, group: u64) -> usize {
        self.groups.get(&group).map_or(0, Group::len)
    }

    /// Whether a connection is half-open.
    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.entries.contains_key(&id)
    }

    /// Whether the numbers of pinned connections are within their limits.
    pub(crate) fn pins_are_within_limits(&self) -> bool {
        let most = self.pinned_sizes.last().map_or(0, |&(most, _)| most);
        self.pinned <= self.pinned_max && most <= self.pinned_per_group_max
    }

    /// The connection with the earliest deadline.
    pub(crate) fn first_deadline(&self) -> Option<(Instant, ConnectionId)> {
        self.by_deadline.first().copied()
    }

    /// All connections and their deadlines.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Instant, ConnectionId)> {
        self.by_deadline.iter().copied()
    }

    /// The longest silent connection of a group.
    pub(crate) fn longest_silent_of(&self, group: u64) -> Option<ConnectionId> {
        self.groups.get(&group)?.silent.first().map(|&(_, id)| id)
    }

    /// The connection to evict, of those that `suits` accepts: the longest silent of the largest
    /// group, if that has more than [`HALF_OPEN_USUAL`] connections, and of all groups otherwise.
    /// Many addresses with one connection each must not cause the eviction of a host that has two.
    pub(crate) fn eviction_candidate(&self, suits: impl Fn(ConnectionId) -> bool) -> Option<ConnectionId> {
        let first = |set: &BTreeSet<(u64, ConnectionId)>| set.iter().map(|&(_, id)| id).find(|&id| suits(id));
        let large_groups = self.sizes.iter().rev().take_while(|&&(size, _)| size > HALF_OPEN_USUAL);
        large_groups.map(|(_, group)| &self.groups[group].silent).find_map(first).or_else(|| first(&self.by_step))
    }
}

impl Group {
    fn len(&self) -> usize {
        self.silent.len() + self.pinned.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Instant = Instant(20_000_000_000);

    fn all(_: ConnectionId) -> bool {
        true
    }

    /// Connections 0, 1, ... of these groups.
    fn table(groups: &[u64]) -> HalfOpen {
        let mut table = HalfOpen::new(&Limits { half_open: 8, half_open_per_address: 6, ..Limits::default() });
        (0..).zip(groups).for_each(|(id, &group)| table.insert(ConnectionId(id), group, DEADLINE));
        table
    }

    #[test]
    fn a_connection_that_takes_a_step_outlives_later_silent_ones() {
        let mut table = table(&[1, 2, 3]);
        table.advance(ConnectionId(0));
        assert_eq!(table.eviction_candidate(all), Some(ConnectionId(1)));
        assert_eq!(table.eviction_candidate(|id| id != ConnectionId(1)), Some(ConnectionId(2)));
        table.remove(ConnectionId(1));
        table.remove(ConnectionId(2));
        assert_eq!((table.eviction_candidate(all), table.len()), (Some(ConnectionId(0)), 1));
    }

    #[test]
    fn the_steps_of_a_connection_are_limited() {
        let mut table = table(&[1, 2]);
        for _ in 0..HANDSHAKE_STEPS {
            table.advance(ConnectionId(0));
            assert_eq!(table.eviction_candidate(all), Some(ConnectionId(1)));
        }
        table.advance(ConnectionId(1));
        table.advance(ConnectionId(0));
        assert_eq!(table.eviction_candidate(all), Some(ConnectionId(0)));
    }

    #[test]
    fn a_large_group_is_evicted_first_and_a_small_one_is_not_singled_out() {
        // The host of group 1 has two, all others one each: the longest silent is evicted, which is
        // another group's.
        let mut table = table(&[2, 1, 1, 3]);
        assert_eq!(table.eviction_candidate(all), Some(ConnectionId(0)));
        let many = 100..101 + HALF_OPEN_USUAL as u64;
        many.for_each(|id| table.insert(ConnectionId(id), 9, DEADLINE));
        assert_eq!(table.eviction_candidate(all), Some(ConnectionId(100)));
        assert_eq!(
            table.eviction_candidate(|id| id.0 < 100),
            Some(ConnectionId(0)),
            "no connection of the large group is accepted"
        );
        table.remove(ConnectionId(103));
        assert_eq!(table.eviction_candidate(all), Some(ConnectionId(0)), "the group is not large any more");
        assert_eq!((table.len_of(9), table.longest_silent_of(9)), (HALF_OPEN_USUAL, Some(ConnectionId(100))));
        assert_eq!((table.len_of(7), table.longest_silent_of(7)), (0, None));
    }

    #[test]
    fn deadlines_are_ordered_and_do_not_affect_eviction() {
        let mut table = table(&[1, 2]);
        table.set_deadline(ConnectionId(1), Instant(5));
        assert_eq!(table.first_deadline(), Some((Instant(5), ConnectionId(1))));
        assert_eq!(table.eviction_candidate(all), Some(ConnectionId(0)));
        table.remove(ConnectionId(1));
        assert_eq!(table.first_deadline(), Some((DEADLINE, ConnectionId(0))));
    }

    #[test]
    fn a_connection_that_waits_for_the_server_is_not_silent_until_it_has_its_response() {
        let mut table = table(&[1, 2]);
        table.pin(ConnectionId(0));
        table.pin(ConnectionId(0));
        assert_eq!((table.eviction_candidate(all), table.longest_silent_of(1)), (Some(ConnectionId(1)), None));
        assert_eq!((table.eviction_candidate(|id| id.0 == 0), table.len_of(1)), (None, 1));
        // The response is a step, and the silence begins with it.
        table.unpin(ConnectionId(0));
        table.advance(ConnectionId(0));
        assert_eq!(
            (table.eviction_candidate(all), table.longest_silent_of(1)),
            (Some(ConnectionId(1)), Some(ConnectionId(0)))
        );
        table.remove(ConnectionId(1));
        table.pin(ConnectionId(0));
        table.remove(ConnectionId(0));
        assert_eq!((table.len(), table.pinned, table.pinned_sizes.len(), table.groups.len()), (0, 0, 0, 0));
    }

    #[test]
    fn half_of_an_addresss_slots_and_half_of_all_can_be_pinned() {
        // 8 entries, 6 of an address: 4 and 3 are pinned.
        let mut table = table(&[1, 1, 1, 1, 2, 3, 3, 4]);
        (0..4).for_each(|id| table.pin(ConnectionId(id)));
        assert_eq!(table.longest_silent_of(1), Some(ConnectionId(3)), "its address has used up its pins");
        table.pin(ConnectionId(4));
        assert_eq!((table.pinned, table.longest_silent_of(2)), (4, None));
        // All pins are used: the newest of the address with the most loses its pin to an address
        // that has none.
        table.pin(ConnectionId(5));
        assert_eq!((table.pinned, table.longest_silent_of(3)), (4, Some(ConnectionId(6))));
        assert_eq!(table.longest_silent_of(1), Some(ConnectionId(2)));
        table.pin(ConnectionId(6));
        assert_eq!(
            table.longest_silent_of(3),
            Some(ConnectionId(6)),
            "with one more pin, it would have as many as the address with the most"
        );
        table.pin(ConnectionId(7));
        assert_eq!(
            (table.pinned, table.longest_silent_of(4), table.longest_silent_of(1)),
            (4, None, Some(ConnectionId(1)))
        );
        assert!(table.pins_are_within_limits());
    }

    #[test]
    fn a_table_of_one_slot_pins_none() {
        let mut table = HalfOpen::new(&Limits { half_open: 1, half_open_per_address: 1, ..Limits::default() });
        table.insert(ConnectionId(0), 1, DEADLINE);
        table.pin(ConnectionId(0));
        assert_eq!(
            (table.eviction_candidate(all), table.longest_silent_of(1)),
            (Some(ConnectionId(0)), Some(ConnectionId(0)))
        );
    }
}
