//! A fair queue over addresses, and over the connections of each address, weighted by the cost of
//! their commands.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, IEEE/ACM Transactions on Networking 5 (5),
//! 1997), on two levels: between addresses, and between the connections of one address. Each
//! command has a start tag: the virtual time at which it was queued, or the finish tag of the
//! previous command on the same connection if that is later. The command with the smallest start
//! tag is served first, and its tag becomes the virtual time. So two backlogged flows get equal
//! service; and a flow with few commands waits for at most one command of each other address,
//! however many commands and connections those have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// The flow of a command, for fairness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// An address: see [`Flow::group_of`].
    pub group: u64,
    /// A connection of it.
    pub queue: u64,
}

impl Flow {
    /// Commands of the server itself.
    pub const SERVER: Flow = Flow { group: u64::MAX - 1, queue: 0 };

    /// The group of a peer (`192.0.2.9:5000`): its IPv4 address, or the /64 network of its IPv6
    /// address, since a host chooses the rest (RFC 4291, section 2.5.1). All peers without an
    /// address, such as Unix sockets, are one group.
    #[must_use]
    pub fn group_of(peer: &str) -> u64 {
        let address = peer.parse().map(|address: SocketAddr| address.ip().to_canonical());
        match address {
            Ok(IpAddr::V4(address)) => u64::from(address.to_bits()),
            Ok(IpAddr::V6(address)) => (address.to_bits() >> 64) as u64,
            Err(_) => u64::MAX,
        }
    }
}

/// Commands that wait; commands of one flow are served in FIFO order.
#[derive(Debug)]
pub struct FairQueue<T> {
    groups: Level<Level<VecDeque<(u64, T)>>>,
    length: usize,
}

/// One level of the hierarchy. Its nodes are addresses, or the connections of one address.
#[derive(Debug)]
struct Level<N> {
    /// The virtual time: the start tag that was served last.
    now: u64,
    nodes: BTreeMap<u64, Node<N>>,
    /// Backlogged nodes: start tag, arrival, and key.
    ready: BTreeSet<(u64, u64, u64)>,
    /// Idle nodes, by finish tag. They are removed once the virtual time has reached it.
    idle: BTreeSet<(u64, u64)>,
    arrivals: u64,
}

#[derive(Debug)]
struct Node<N> {
    /// Start tag and arrival, while backlogged.
    place: Option<(u64, u64)>,
    /// Finish tag of the command served last.
    finish: u64,
    inner: N,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { groups: Level::default(), length: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Adds a command. Its cost is in any unit, for instance bytes, and must not be zero.
    pub fn push(&mut self, flow: Flow, cost: u64, item: T) {
        assert!(cost > 0, "a flow of commands without cost would starve the others");
        let queues = self.groups.wake(flow.group);
        queues.wake(flow.queue).push_back((cost, item));
        self.length += 1;
    }

    /// The next command, with its cost.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.pop_of(|_| true)
    }

    /// The next command among the groups that may be served now.
    pub fn pop_of(&mut self, may_serve: impl Fn(u64) -> bool) -> Option<(u64, T)> {
        let group = self.groups.first(may_serve)?;
        let queues = self.groups.inner(group);
        let queue = queues.first(|_| true).expect("a group that is ready has a queue that is");
        let items = queues.inner(queue);
        let (cost, item) = items.pop_front().expect("a queue that is ready has something");
        let has_more = !items.is_empty();
        queues.serve(queue, cost, has_more);
        let has_more = !queues.ready.is_empty();
        self.groups.serve(group, cost, has_more);
        self.length -= 1;
        Some((cost, item))
    }

    /// Removes all waiting commands of a connection, in order.
    pub fn remove(&mut self, flow: Flow) -> Vec<T> {
        let Some(group) = self.groups.nodes.get_mut(&flow.group) else { return Vec::new() };
        let items = group.inner.take(flow.queue).unwrap_or_default();
        if group.inner.ready.is_empty() {
            // Service that it has received before still counts.
            self.groups.set_idle(flow.group);
        }
        self.length -= items.len();
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// Removes one command of a flow; returns whether it was waiting.
    pub fn remove_item(&mut self, flow: Flow, item: &T) -> bool
    where
        T: PartialEq,
    {
        let Some(group) = self.groups.nodes.get_mut(&flow.group) else { return false };
        let Some(queue) = group.inner.nodes.get_mut(&flow.queue) else { return false };
        let Some(place) = queue.inner.iter().position(|(_, other)| other == item) else { return false };
        queue.inner.remove(place);
        // Service received before still counts for both.
        if queue.inner.is_empty() {
            group.inner.set_idle(flow.queue);
        }
        if group.inner.ready.is_empty() {
            self.groups.set_idle(flow.group);
        }
        self.length -= 1;
        true
    }

    /// Removes all commands, in the order of service.
    pub fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.pop()).map(|(_, item)| item).collect()
    }

    /// How many commands wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl<N> Default for Level<N> {
    fn default() -> Level<N> {
        Level { now: 0, nodes: BTreeMap::new(), ready: BTreeSet::new(), idle: BTreeSet::new(), arrivals: 0 }
    }
}

impl<N: Default> Level<N> {
    /// Makes a node backlogged, and returns its contents.
    fn wake(&mut self, key: u64) -> &mut N {
        let node = self.nodes.entry(key).or_insert_with(|| Node { place: None, finish: 0, inner: N::default() });
        if node.place.is_none() {
            self.idle.remove(&(node.finish, key));
            self.arrivals += 1;
            let place = (self.now.max(node.finish), self.arrivals);
            node.place = Some(place);
            self.ready.insert((place.0, place.1, key));
        }
        &mut node.inner
    }

    /// The next node, of those that may be served.
    fn first(&self, may: impl Fn(u64) -> bool) -> Option<u64> {
        self.ready.iter().map(|&(_, _, key)| key).find(|&key| may(key))
    }

    fn inner(&mut self, key: u64) -> &mut N {
        &mut self.nodes.get_mut(&key).expect("a ready node exists").inner
    }

    /// Records that a ready node was served.
    fn serve(&mut self, key: u64, cost: u64, has_more: bool) {
        let node = self.nodes.get_mut(&key).expect("the served node exists");
        let (start, arrival) = node.place.expect("the served node was ready");
        self.ready.remove(&(start, arrival, key));
        // If nodes were skipped, the virtual time is past their start tags already.
        self.now = self.now.max(start);
        node.finish = start + cost;
        if has_more {
            self.arrivals += 1;
            node.place = Some((node.finish, self.arrivals));
            self.ready.insert((node.finish, self.arrivals, key));
        } else {
            node.place = None;
            self.idle.insert((node.finish, key));
        }
        self.forget();
    }

    /// Makes a node idle whose commands were all removed without being served.
    fn set_idle(&mut self, key: u64) {
        if let Some(node) = self.nodes.get_mut(&key)
            && let Some((start, arrival)) = node.place.take()
        {
            self.ready.remove(&(start, arrival, key));
            self.idle.insert((node.finish, key));
            self.forget();
        }
    }

    /// Removes a node, and returns its contents.
    fn take(&mut self, key: u64) -> Option<N> {
        let node = self.nodes.remove(&key)?;
        match node.place {
            Some((start, arrival)) => self.ready.remove(&(start, arrival, key)),
            None => self.idle.remove(&(node.finish, key)),
        };
        self.forget();
        Some(node.inner)
    }

    /// Removes idle nodes whose finish tag is past; all nodes if no command waits.
    fn forget(&mut self) {
        if self.ready.is_empty() {
            return *self = Level::default();
        }
        while let Some(&(finish, key)) = self.idle.first()
            && finish <= self.now
        {
            self.idle.remove(&(finish, key));
            self.nodes.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Prng;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn flow(group: u64, queue: u64) -> Flow {
        Flow { group, queue }
    }

    /// Queues commands of a flow, identified by their group and number.
    fn push(queue: &mut FairQueue<(u64, usize)>, flow: Flow, cost: u64, count: usize) {
        (0..count).for_each(|number| queue.push(flow, cost, (flow.group, number)));
    }

    /// How many commands are served before the first of a group.
    fn delay_of(queue: &mut FairQueue<(u64, usize)>, group: u64) -> usize {
        std::iter::from_fn(|| queue.pop()).take_while(|(_, (of, _))| *of != group).count()
    }

    #[test]
    fn commands_of_one_connection_are_served_in_order() {
        let mut queue = FairQueue::default();
        for (number, cost) in [7, 1, 900, 3].into_iter().enumerate() {
            queue.push(flow(1, 1), cost, number);
        }
        assert_eq!((queue.len(), queue.pop()), (4, Some((7, 0))));
        assert_eq!((queue.drain(), queue.is_empty()), (vec![1, 2, 3], true));
    }

    #[test]
    fn a_greedy_host_delays_another_by_one_command() {
        let mut queue = FairQueue::default();
        for connection in 0..8 {
            push(&mut queue, flow(1, connection), 128 * KIB, 1024);
        }
        for round in 0..500 {
            push(&mut queue, flow(2, 0), 4 * KIB, 1);
            let delay = delay_of(&mut queue, 2);
            assert!(delay <= 1, "round {round}: {delay} commands");
        }
    }

    #[test]
    fn a_group_that_may_not_be_served_keeps_its_place() {
        let mut queue = FairQueue::default();
        push(&mut queue, flow(1, 0), KIB, 3);
        push(&mut queue, flow(2, 0), KIB, 3);
        assert_eq!(queue.pop_of(|group| group != 1), Some((KIB, (2, 0))));
        assert_eq!(queue.pop_of(|group| group != 1), Some((KIB, (2, 1))));
        assert_eq!(queue.pop_of(|_| false), None);
        assert_eq!(queue.drain(), [(1, 0), (1, 1), (2, 2), (1, 2)]);
    }

    #[test]
    fn a_greedy_connection_delays_another_of_the_same_address_by_one_command() {
        let mut queue = FairQueue::default();
        push(&mut queue, flow(1, 0), 128 * KIB, 1024);
        (0..10).for_each(|_| assert!(queue.pop().is_some()));
        queue.push(flow(1, 1), 4 * KIB, (2, 0));
        assert!(delay_of(&mut queue, 2) <= 1);
    }

    #[test]
    fn of_two_addresses_each_gets_as_many_bytes_whatever_their_connections_and_sizes() {
        let mut queue = FairQueue::default();
        for connection in 0..80 {
            push(&mut queue, flow(1, connection), 1024 * KIB, 100);
        }
        push(&mut queue, flow(2, 0), 64 * KIB, 2000);
        let mut bytes = [0; 2];
        for _ in 0..1000 {
            let (cost, (group, _)) = queue.pop().unwrap();
            bytes[group as usize - 1] += cost;
            assert!(bytes[0].abs_diff(bytes[1]) <= 1024 * KIB, "{bytes:?}");
        }
    }

    #[test]
    fn a_host_with_one_large_command_at_a_time_gets_no_more_than_one_with_many_queued() {
        let mut queue = FairQueue::default();
        push(&mut queue, flow(1, 0), 64 * KIB, 2000);
        let mut bytes = [0; 2];
        push(&mut queue, flow(2, 0), 1024 * KIB, 1);
        for _ in 0..800 {
            let (cost, (group, _)) = queue.pop().unwrap();
            bytes[group as usize - 1] += cost;
            if group == 2 {
                push(&mut queue, flow(2, 0), 1024 * KIB, 1);
            }
        }
        assert!(bytes[0].abs_diff(bytes[1]) <= 1024 * KIB, "{bytes:?}");
    }

    #[test]
    fn removing_the_commands_of_a_connection_keeps_the_others_and_the_tags_of_its_address() {
        let mut queue = FairQueue::default();
        push(&mut queue, flow(1, 0), 1024 * KIB, 3);
        push(&mut queue, flow(2, 0), 64 * KIB, 40);
        assert_eq!(queue.pop(), Some((1024 * KIB, (1, 0))));
        assert_eq!(queue.remove(flow(1, 0)), [(1, 1), (1, 2)]);
        assert_eq!((queue.remove(flow(1, 0)), queue.remove(flow(3, 0)), queue.len()), (vec![], vec![], 40));
        push(&mut queue, flow(1, 1), 64 * KIB, 1);
        assert_eq!(delay_of(&mut queue, 1), 16, "a new connection of the address keeps its finish tag");
        assert_eq!(queue.drain().len(), 24);
        assert!(queue.groups.nodes.is_empty(), "no command waits, and no node is left");
    }

    #[test]
    fn removing_one_command_keeps_those_before_and_after_it() {
        let mut queue = FairQueue::default();
        push(&mut queue, flow(1, 0), 1, 3);
        push(&mut queue, flow(2, 0), 1, 1);
        assert!(queue.remove_item(flow(1, 0), &(1, 1)));
        let absent = [(flow(1, 0), (1, 1)), (flow(1, 7), (1, 0)), (flow(3, 0), (1, 0))];
        assert_eq!(absent.map(|(flow, item)| queue.remove_item(flow, &item)), [false; 3]);
        assert!(queue.remove_item(flow(2, 0), &(2, 0)));
        assert_eq!((queue.len(), queue.drain()), (2, vec![(1, 0), (1, 2)]));
        assert!(queue.groups.nodes.is_empty());
    }

    #[test]
    fn two_hundred_and_fifty_addresses_with_four_commands_each_delay_another_by_one_of_each() {
        let mut queue = FairQueue::default();
        for command in 0..4 {
            (1..251).for_each(|group| queue.push(flow(group, command), 1, (group, 0)));
        }
        queue.push(flow(251, 0), 1, (251, 0));
        assert_eq!(delay_of(&mut queue, 251), 250);
        // Its second command waits for no more than its first.
        queue.push(flow(251, 0), 1, (251, 0));
        assert!(delay_of(&mut queue, 251) <= 250);
    }

    #[test]
    fn no_command_is_lost_or_reordered_in_its_flow_and_idle_flows_are_removed() {
        let mut prng = Prng::new(11);
        let mut queue = FairQueue::default();
        let (mut pushed, mut popped) = ([[0_usize; 4]; 4], [[0_usize; 4]; 4]);
        for _ in 0..20_000 {
            let (group, connection) = (prng.below(4) as usize, prng.below(4) as usize);
            let of = flow(group as u64, connection as u64);
            match prng.below(20) {
                0 => popped[group][connection] += queue.remove(of).len(),
                1..10 => {
                    queue.push(of, 1 + prng.below(1000), (group, connection, pushed[group][connection]));
                    pushed[group][connection] += 1;
                }
                _ => {
                    if let Some((_, (group, connection, number))) = queue.pop() {
                        assert_eq!(number, popped[group][connection]);
                        popped[group][connection] += 1;
                    }
                }
            }
            let waiting = |of: &[[usize; 4]; 4]| of.iter().flatten().sum::<usize>();
            assert_eq!(queue.len(), waiting(&pushed) - waiting(&popped));
            assert_eq!(queue.groups.nodes.len(), queue.groups.ready.len() + queue.groups.idle.len());
        }
        queue.drain();
        assert!(queue.groups.nodes.is_empty());
    }

    #[test]
    fn a_group_is_an_ipv4_address_or_a_network_of_ipv6() {
        let group = Flow::group_of;
        assert_eq!(group("192.0.2.9:5000"), 0xc000_0209);
        assert_eq!(group("192.0.2.9:1"), group("[::ffff:192.0.2.9]:5000"), "one address, two notations");
        assert_eq!(group("[2001:db8::1]:1"), 0x2001_0db8_0000_0000);
        assert_eq!(group("[2001:db8::1]:1"), group("[2001:db8::ffff:1]:2"));
        assert_ne!(group("[2001:db8:0:1::1]:1"), group("[2001:db8::1]:1"));
        assert_eq!((group("unix:"), group("unknown")), (u64::MAX, u64::MAX));
    }
}
