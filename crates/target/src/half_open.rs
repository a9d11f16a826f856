//! Connections that are not through their handshake, and which of them gives way to another.
//!
//! Whoever floods a server has connections that say nothing, or nothing more. An honest host answers each step of its handshake
//! within milliseconds. So that one gives way whose last step is the longest ago, not the one that came first: an honest host
//! loses its place only if a whole table of others takes a step, or comes, while it answers one. Each connection has a limited
//! number of steps, so a flood pays for its places with new connections.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::Instant;

use crate::effects::ConnectionId;
use crate::limits::{HALF_OPEN_USUAL, HANDSHAKE_STEPS};

/// The table of half-open connections. An address is a group: see [`Flow::group_of`](crate::Flow::group_of).
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    places: BTreeMap<ConnectionId, Place>,
    by_deadline: BTreeSet<(Instant, ConnectionId)>,
    /// The longest silent first.
    by_step: BTreeSet<(u64, ConnectionId)>,
    /// The same for each group.
    groups: BTreeMap<u64, BTreeSet<(u64, ConnectionId)>>,
    /// How many connections each group has.
    sizes: BTreeSet<(usize, u64)>,
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
}

impl HalfOpen {
    /// A connection comes.
    pub(crate) fn insert(&mut self, id: ConnectionId, group: u64, deadline: Instant) {
        self.steps += 1;
        let place = Place { group, deadline, step: self.steps, steps_left: HANDSHAKE_STEPS };
        assert!(self.places.insert(id, place).is_none(), "a connection has one place");
        self.by_deadline.insert((deadline, id));
        self.by_step.insert((place.step, id));
        self.change_group(group, |of_group| of_group.insert((place.step, id)));
    }

    /// A connection is through its handshake, or gone.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let Some(place) = self.places.remove(&id) else { return };
        self.by_deadline.remove(&(place.deadline, id));
        self.by_step.remove(&(place.step, id));
        self.change_group(place.group, |of_group| of_group.remove(&(place.step, id)));
    }

    /// A connection has taken a step of its handshake.
    pub(crate) fn advance(&mut self, id: ConnectionId) {
        let Some(place) = self.places.get_mut(&id).filter(|place| place.steps_left > 0) else { return };
        self.steps += 1;
        let (group, old, new) = (place.group, (place.step, id), (self.steps, id));
        (place.step, place.steps_left) = (self.steps, place.steps_left - 1);
        self.by_step.remove(&old);
        self.by_step.insert(new);
        self.change_group(group, |of_group| of_group.remove(&old) && of_group.insert(new));
    }

    /// Changes when a connection must be through.
    pub(crate) fn set_deadline(&mut self, id: ConnectionId, deadline: Instant) {
        let place = self.places.get_mut(&id).expect("a half-open connection has a place");
        self.by_deadline.remove(&(place.deadline, id));
        place.deadline = deadline;
        self.by_deadline.insert((deadline, id));
    }

    fn change_group(&mut self, group: u64, change: impl FnOnce(&mut BTreeSet<(u64, ConnectionId)>) -> bool) {
        let of_group = self.groups.entry(group).or_default();
        let old = of_group.len();
        assert!(change(of_group), "a group knows its connections");
        let new = of_group.len();
        if new == 0 {
            self.groups.remove(&group);
        }
        if old != new {
            self.sizes.remove(&(old, group));
            if new > 0 {
                self.sizes.insert((new, group));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many connections a group has.
    pub(crate) fn len_of(&self, group: u64) -> usize {
        self.groups.get(&group).map_or(0, BTreeSet::len)
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
        self.groups.get(&group)?.first().map(|&(_, id)| id)
    }

    /// Which of those that suit gives way: the longest silent of the group with the most, if that has more than is usual, and of
    /// all otherwise. Many addresses with one connection each must not single out a host that has two.
    pub(crate) fn gives_way(&self, suits: impl Fn(ConnectionId) -> bool) -> Option<ConnectionId> {
        let first = |set: &BTreeSet<(u64, ConnectionId)>| set.iter().map(|&(_, id)| id).find(|&id| suits(id));
        let crowds = self.sizes.iter().rev().take_while(|&&(size, _)| size > HALF_OPEN_USUAL);
        crowds.map(|(_, group)| &self.groups[group]).find_map(first).or_else(|| first(&self.by_step))
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
        let mut table = HalfOpen::default();
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
}
