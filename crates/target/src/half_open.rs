//! Connections that are not through their handshake, and which of them gives way to another.
//!
//! Whoever floods a server has connections that say nothing, or nothing more. An honest host answers each step of its handshake
//! within milliseconds. So that one gives way whose last step is the longest ago, not the one that came first: an honest host
//! loses its place only if a whole table of others takes a step, or comes, while it answers one. Each connection has a limited
//! number of steps, so a flood pays for its places with new connections.
//!
//! Who waits for the server is not silent: its silence begins with the answer. Until then it does not give way. At most half of
//! the places of an address, and of all, are kept in this way, so that newcomers find one who does. Where all are kept, an address
//! that has none takes one from the address with the most.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::Instant;

use crate::effects::ConnectionId;
use crate::limits::{HALF_OPEN_USUAL, HANDSHAKE_STEPS, Limits};

/// Of all places, and of those of an address, one in so many is kept for connections that wait for the server.
const KEPT_PARTS: usize = 2;

/// The table of half-open connections. An address is a group: see [`Flow::group_of`](crate::Flow::group_of).
#[derive(Debug)]
pub(crate) struct HalfOpen {
    places: BTreeMap<ConnectionId, Place>,
    by_deadline: BTreeSet<(Instant, ConnectionId)>,
    /// Those that may give way, the longest silent first.
    by_step: BTreeSet<(u64, ConnectionId)>,
    groups: BTreeMap<u64, Group>,
    /// How many connections each group has.
    sizes: BTreeSet<(usize, u64)>,
    /// How many of each group are kept, where any are.
    kept_sizes: BTreeSet<(usize, u64)>,
    kept: usize,
    kept_max: usize,
    kept_per_group_max: usize,
    /// Steps of all connections so far. Their order is exact where times of one turn are equal.
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    group: u64,
    deadline: Instant,
    /// Number of its last step among those of all connections.
    step: u64,
    /// Steps that still count.
    steps_left: u8,
    /// It waits for the server, since the step of this number, and does not give way.
    kept: Option<u64>,
}

/// The connections of one address, in the order of their steps.
#[derive(Debug, Default)]
struct Group {
    silent: BTreeSet<(u64, ConnectionId)>,
    kept: BTreeSet<(u64, ConnectionId)>,
}

impl HalfOpen {
    pub(crate) fn new(limits: &Limits) -> HalfOpen {
        HalfOpen {
            places: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            by_step: BTreeSet::new(),
            groups: BTreeMap::new(),
            sizes: BTreeSet::new(),
            kept_sizes: BTreeSet::new(),
            kept: 0,
            kept_max: limits.half_open / KEPT_PARTS,
            kept_per_group_max: limits.half_open_per_address / KEPT_PARTS,
            steps: 0,
        }
    }

    /// A connection comes.
    pub(crate) fn insert(&mut self, id: ConnectionId, group: u64, deadline: Instant) {
        self.steps += 1;
        let place = Place { group, deadline, step: self.steps, steps_left: HANDSHAKE_STEPS, kept: None };
        assert!(self.places.insert(id, place).is_none(), "a connection has one place");
        self.by_deadline.insert((deadline, id));
        self.enter(id, place);
    }

    /// A connection is through its handshake, or gone.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let Some(place) = self.places.remove(&id) else { return };
        self.by_deadline.remove(&(place.deadline, id));
        self.leave(id, place);
    }

    /// A connection has taken a step of its handshake.
    pub(crate) fn advance(&mut self, id: ConnectionId) {
        self.change(id, |place, step| {
            if place.steps_left > 0 {
                (place.step, place.steps_left) = (step, place.steps_left - 1);
            }
        });
    }

    /// A connection waits for the server from now on. Where its address has its part of such places, or all are taken by
    /// addresses with no more than its own, it gives way as the silent do.
    pub(crate) fn keep(&mut self, id: ConnectionId) {
        let Some(place) = self.places.get(&id).filter(|place| place.kept.is_none()) else { return };
        let of_own = self.groups[&place.group].kept.len();
        if of_own >= self.kept_per_group_max {
            return;
        }
        if self.kept >= self.kept_max {
            let Some((_, group)) = self.kept_sizes.last().filter(|(most, _)| *most > of_own + 1) else { return };
            let &(_, newest) = self.groups[group].kept.last().expect("a group with the most has some");
            self.release(newest);
        }
        self.change(id, |place, step| place.kept = Some(step));
    }

    /// A connection has its answer, and may be silent from now on.
    pub(crate) fn release(&mut self, id: ConnectionId) {
        if self.places.get(&id).is_some_and(|place| place.kept.is_some()) {
            self.change(id, |place, _| place.kept = None);
        }
    }

    /// Changes when a connection must be through.
    pub(crate) fn set_deadline(&mut self, id: ConnectionId, deadline: Instant) {
        let place = self.places.get_mut(&id).expect("a half-open connection has a place");
        self.by_deadline.remove(&(place.deadline, id));
        place.deadline = deadline;
        self.by_deadline.insert((deadline, id));
    }

    /// Changes a place with the number of the next step.
    fn change(&mut self, id: ConnectionId, change: impl FnOnce(&mut Place, u64)) {
        let Some(&old) = self.places.get(&id) else { return };
        let mut new = old;
        self.steps += 1;
        change(&mut new, self.steps);
        self.leave(id, old);
        self.enter(id, new);
        self.places.insert(id, new);
    }

    fn enter(&mut self, id: ConnectionId, place: Place) {
        self.change_group(place.group, |group| match place.kept {
            Some(since) => group.kept.insert((since, id)),
            None => group.silent.insert((place.step, id)),
        });
        if place.kept.is_none() {
            self.by_step.insert((place.step, id));
        }
    }

    fn leave(&mut self, id: ConnectionId, place: Place) {
        self.change_group(place.group, |group| match place.kept {
            Some(since) => group.kept.remove(&(since, id)),
            None => group.silent.remove(&(place.step, id)),
        });
        self.by_step.remove(&(place.step, id));
    }

    fn change_group(&mut self, key: u64, change: impl FnOnce(&mut Group) -> bool) {
        let group = self.groups.entry(key).or_default();
        let old = (group.len(), group.kept.len());
        assert!(change(group), "a group knows its connections");
        let new = (group.len(), group.kept.len());
        if new.0 == 0 {
            self.groups.remove(&key);
        }
        self.kept = self.kept + new.1 - old.1;
        for (sizes, old, new) in [(&mut self.sizes, old.0, new.0), (&mut self.kept_sizes, old.1, new.1)] {
            if old != new {
                sizes.remove(&(old, key));
                if new > 0 {
                    sizes.insert((new, key));
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many connections a group has.
    pub(crate) fn len_of(&self, group: u64) -> usize {
        self.groups.get(&group).map_or(0, Group::len)
    }

    /// Whether a connection is not through its handshake.
    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.places.contains_key(&id)
    }

    /// Whether the places that are kept are within their limits.
    pub(crate) fn keeps_within_limits(&self) -> bool {
        let most = self.kept_sizes.last().map_or(0, |&(most, _)| most);
        self.kept <= self.kept_max && most <= self.kept_per_group_max
    }

    /// The connection that must be through first, and when.
    pub(crate) fn first_deadline(&self) -> Option<(Instant, ConnectionId)> {
        self.by_deadline.first().copied()
    }

    /// All connections and their deadlines.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Instant, ConnectionId)> {
        self.by_deadline.iter().copied()
    }

    /// The longest silent connection of a group.
    pub(crate) fn quietest_of(&self, group: u64) -> Option<ConnectionId> {
        self.groups.get(&group)?.silent.first().map(|&(_, id)| id)
    }

    /// Which of those that suit gives way: the longest silent of the group with the most, if that has more than is usual, and of
    /// all otherwise. Many addresses with one connection each must not single out a host that has two.
    pub(crate) fn gives_way(&self, suits: impl Fn(ConnectionId) -> bool) -> Option<ConnectionId> {
        let first = |set: &BTreeSet<(u64, ConnectionId)>| set.iter().map(|&(_, id)| id).find(|&id| suits(id));
        let crowds = self.sizes.iter().rev().take_while(|&&(size, _)| size > HALF_OPEN_USUAL);
        crowds.map(|(_, group)| &self.groups[group].silent).find_map(first).or_else(|| first(&self.by_step))
    }
}

impl Group {
    fn len(&self) -> usize {
        self.silent.len() + self.kept.len()
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
    fn who_has_taken_a_step_outlives_who_came_later_and_is_silent() {
        let mut table = table(&[1, 2, 3]);
        table.advance(ConnectionId(0));
        assert_eq!(table.gives_way(all), Some(ConnectionId(1)));
        assert_eq!(table.gives_way(|id| id != ConnectionId(1)), Some(ConnectionId(2)));
        table.remove(ConnectionId(1));
        table.remove(ConnectionId(2));
        assert_eq!((table.gives_way(all), table.len()), (Some(ConnectionId(0)), 1));
    }

    #[test]
    fn a_connection_has_so_many_steps_and_no_more() {
        let mut table = table(&[1, 2]);
        for _ in 0..HANDSHAKE_STEPS {
            table.advance(ConnectionId(0));
            assert_eq!(table.gives_way(all), Some(ConnectionId(1)));
        }
        table.advance(ConnectionId(1));
        table.advance(ConnectionId(0));
        assert_eq!(table.gives_way(all), Some(ConnectionId(0)));
    }

    #[test]
    fn a_crowd_gives_way_first_and_a_few_connections_are_no_crowd() {
        // The host of group 1 has two, all others one each: the longest silent goes, which is of another.
        let mut table = table(&[2, 1, 1, 3]);
        assert_eq!(table.gives_way(all), Some(ConnectionId(0)));
        let crowd = 100..101 + HALF_OPEN_USUAL as u64;
        crowd.for_each(|id| table.insert(ConnectionId(id), 9, DEADLINE));
        assert_eq!(table.gives_way(all), Some(ConnectionId(100)));
        assert_eq!(table.gives_way(|id| id.0 < 100), Some(ConnectionId(0)), "none of the crowd suits");
        table.remove(ConnectionId(103));
        assert_eq!(table.gives_way(all), Some(ConnectionId(0)), "it is a crowd no more");
        assert_eq!((table.len_of(9), table.quietest_of(9)), (HALF_OPEN_USUAL, Some(ConnectionId(100))));
        assert_eq!((table.len_of(7), table.quietest_of(7)), (0, None));
    }

    #[test]
    fn deadlines_are_in_their_order_and_change_no_turn() {
        let mut table = table(&[1, 2]);
        table.set_deadline(ConnectionId(1), Instant(5));
        assert_eq!(table.first_deadline(), Some((Instant(5), ConnectionId(1))));
        assert_eq!(table.gives_way(all), Some(ConnectionId(0)));
        table.remove(ConnectionId(1));
        assert_eq!(table.first_deadline(), Some((DEADLINE, ConnectionId(0))));
    }

    #[test]
    fn who_waits_for_the_server_is_not_silent_until_it_has_its_answer() {
        let mut table = table(&[1, 2]);
        table.keep(ConnectionId(0));
        table.keep(ConnectionId(0));
        assert_eq!((table.gives_way(all), table.quietest_of(1)), (Some(ConnectionId(1)), None));
        assert_eq!((table.gives_way(|id| id.0 == 0), table.len_of(1)), (None, 1));
        // The answer is a step, and the silence begins with it.
        table.release(ConnectionId(0));
        table.advance(ConnectionId(0));
        assert_eq!((table.gives_way(all), table.quietest_of(1)), (Some(ConnectionId(1)), Some(ConnectionId(0))));
        table.remove(ConnectionId(1));
        table.keep(ConnectionId(0));
        table.remove(ConnectionId(0));
        assert_eq!((table.len(), table.kept, table.kept_sizes.len(), table.groups.len()), (0, 0, 0, 0));
    }

    #[test]
    fn half_of_an_addresss_places_are_kept_and_half_of_all() {
        // 8 places, 6 of an address: 4 and 3 are kept.
        let mut table = table(&[1, 1, 1, 1, 2, 3, 3, 4]);
        (0..4).for_each(|id| table.keep(ConnectionId(id)));
        assert_eq!(table.quietest_of(1), Some(ConnectionId(3)), "its address has its part");
        table.keep(ConnectionId(4));
        assert_eq!((table.kept, table.quietest_of(2)), (4, None));
        // All are taken: the newest of the address with the most loses its own to an address that has none.
        table.keep(ConnectionId(5));
        assert_eq!((table.kept, table.quietest_of(3)), (4, Some(ConnectionId(6))));
        assert_eq!(table.quietest_of(1), Some(ConnectionId(2)));
        table.keep(ConnectionId(6));
        assert_eq!(table.quietest_of(3), Some(ConnectionId(6)), "with it, it would have as many as the most");
        table.keep(ConnectionId(7));
        assert_eq!((table.kept, table.quietest_of(4), table.quietest_of(1)), (4, None, Some(ConnectionId(1))));
        assert!(table.keeps_within_limits());
    }

    #[test]
    fn a_table_of_one_place_keeps_none() {
        let mut table = HalfOpen::new(&Limits { half_open: 1, half_open_per_address: 1, ..Limits::default() });
        table.insert(ConnectionId(0), 1, DEADLINE);
        table.keep(ConnectionId(0));
        assert_eq!((table.gives_way(all), table.quietest_of(1)), (Some(ConnectionId(0)), Some(ConnectionId(0))));
    }
}
