//! Decides which commands may be in flight together, so that they take effect in the order of their
//! submission.
//!
//! Zones are mapped to *lanes*: zone `z` is in lane `z` mod 1024 (in a conventional namespace,
//! block ranges take the place of zones). All commands of a lane use the same I/O queue. A command
//! *conflicts* with an earlier one if they share a lane and at least one of them is not a read.
//!
//! With [`Order::Arrival`], all commands of one queue take effect in the order of their arrival at
//! the target, with these exceptions:
//! - a write whose data the target solicits (R2T) arrives with its data. Such writes may follow one
//!   another (the queue sends their data in their order); any other command with changes waits
//!   until the data of earlier writes has been sent, and so does a read of their zones;
//! - a command that conflicts with outstanding commands of another queue waits for their
//!   completion. These are the commands to several zones (Select All, reports, reads and
//!   deallocations over zone boundaries): with several queues they wait for other commands, and
//!   other commands wait for them. Flush waits for earlier changes, and no command waits for it.
//!
//! - an operation with several rounds (a report, a deallocation or zeros too long for one command)
//!   waits for the completion of all commands that it conflicts with, on any queue, and conflicting
//!   commands wait for its last round.
//!
//! So with one queue all effects are in order. With several, those of each zone are; but whether a
//! zone can be opened within the limits of open and active zones can depend on commands of other
//! queues that were submitted a little later.
//!
//! With [`Order::Completion`], a command waits for the completion of every earlier one that it
//! conflicts with; appends do not conflict with each other.

#[cfg(test)]
mod tests;

use zonda_zoned::{Blocks, Geometry, Lba, Operation, ZoneTarget};

use crate::Order;
use crate::limits::{LANES, LANES_OF_A_COMMAND_MAX};

/// Blocks of a lane of a conventional namespace: 16 MiB of 4 KiB blocks.
const CONVENTIONAL_LANE_BLOCKS: u64 = 4096;

/// How a command accesses its zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads them.
    Observe = 0,
    /// Changes them.
    Change = 1,
    /// Appends to one.
    Append = 2,
    /// Makes earlier changes durable.
    Flush = 3,
    /// Does not access zones.
    Apart = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Footprint {
    /// Consecutive lanes, wrapping around at the end of the table.
    Lanes {
        first: u16,
        count: u16,
    },
    All,
}

/// The lanes that a command accesses, and its I/O queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) kind: Kind,
    footprint: Footprint,
    /// Counted from 0.
    pub(crate) queue: u16,
    /// Commands of one domain are ordered by the target: the queue, or a domain of its own for an
    /// operation with several rounds.
    domain: u16,
}

/// Counts of commands by [`Kind`]: observe, change, append.
type Counts = [u32; 3];

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Outstanding commands by kind: on the lane's own queue, and on others.
    own: [u16; 3],
    foreign: [u16; 3],
    held: [u16; 3],
    /// Outstanding writes whose data has not all been sent.
    unsent: u16,
}

/// Outstanding and held commands.
#[derive(Debug)]
pub(crate) struct Lanes {
    order: Order,
    queues: u16,
    lane_blocks: u64,
    lanes: Vec<Lane>,
    /// Commands to all lanes: those of the first queue, and operations with several rounds.
    all_outstanding: Counts,
    all_lasting: Counts,
    all_held: Counts,
    /// Changes of all lanes whose data has not all been sent.
    all_unsent: u16,
    /// All commands, by domain.
    outstanding: Vec<Counts>,
    held: Vec<Counts>,
}

impl Lanes {
    pub(crate) fn new(order: Order, queues: u16, geometry: &Geometry) -> Lanes {
        assert!(queues > 0, "commands need a queue");
        let is_conventional = geometry.conventional_zone_count == geometry.zone_count;
        Lanes {
            order,
            queues,
            lane_blocks: if is_conventional { CONVENTIONAL_LANE_BLOCKS } else { geometry.zone_size_blocks.0 },
            lanes: vec![Lane::default(); LANES],
            all_outstanding: [0; 3],
            all_lasting: [0; 3],
            all_held: [0; 3],
            all_unsent: 0,
            outstanding: vec![[0; 3]; usize::from(queues) + 1],
            held: vec![[0; 3]; usize::from(queues)],
        }
    }

    /// The access of an operation. Its blocks were checked to lie within the namespace.
    #[inline]
    pub(crate) fn access_of(&self, operation: &Operation) -> Access {
        match operation {
            Operation::Read { start, blocks } => self.of_blocks(Kind::Observe, *start, *blocks),
            Operation::Write { start, blocks, .. } | Operation::WriteZeroes { start, blocks } => {
                self.of_blocks(Kind::Change, *start, *blocks)
            }
            Operation::Append { zone_start, .. } => self.of_blocks(Kind::Append, *zone_start, Blocks(1)),
            Operation::ManageZones { target: ZoneTarget::Zone(lba), .. } => {
                self.of_blocks(Kind::Change, *lba, Blocks(1))
            }
            Operation::ManageZones { target: ZoneTarget::All, .. } => self.of_all(Kind::Change),
            Operation::Deallocate { ranges } => match &**ranges {
                [range] => self.of_blocks(Kind::Change, range.start, range.blocks),
                _ => self.of_all(Kind::Change),
            },
            // A report shows zones that an open anywhere has closed implicitly, so it is ordered
            // with all changes.
            Operation::ReportZones { .. } => self.of_all(Kind::Observe),
            Operation::Flush => self.of_all(Kind::Flush),
            Operation::ReadChangedZones => self.of_all(Kind::Apart),
        }
    }

    /// Whether a command may be sent now. `data_is_solicited`: it is a write whose data is not in
    /// the capsule; `queue_has_unsent`: its queue has earlier writes of this kind whose data was
    /// not sent.
    #[inline]
    pub(crate) fn may_start(&self, access: &Access, data_is_solicited: bool, queue_has_unsent: bool) -> bool {
        let against = conflicting(access.kind, self.order);
        if access.kind == Kind::Apart {
            return true;
        }
        let in_order = self.order == Order::Arrival;
        let changes = matches!(access.kind, Kind::Change | Kind::Append);
        if in_order && changes {
            let held = &self.held[usize::from(access.queue)];
            if queue_has_unsent && !data_is_solicited || held[Kind::Change as usize] + held[Kind::Append as usize] > 0 {
                return false;
            }
        }
        if meets(&self.all_held, against) || meets(&self.all_lasting, against) {
            return false;
        }
        // Commands to all lanes use the first queue.
        if meets(&self.all_outstanding, against) && !(in_order && access.domain == 0) {
            return false;
        }
        match access.footprint {
            Footprint::All => {
                if in_order && queue_has_unsent && !data_is_solicited {
                    return false;
                }
                let mut domains = self.outstanding.iter().enumerate();
                !self.held.iter().any(|held| meets(held, against))
                    && domains.all(|(domain, counts)| {
                        in_order && domain == usize::from(access.domain) || !meets(counts, against)
                    })
            }
            Footprint::Lanes { first, count } => (0..count).all(|i| {
                let index = (first + i) as usize % LANES;
                let lane = &self.lanes[index];
                let own_matters = !in_order || self.queue_of_lane(index) != access.domain;
                !(meets_short(&lane.held, against)
                    || meets_short(&lane.foreign, against)
                    || own_matters && meets_short(&lane.own, against)
                    || in_order && lane.unsent + self.all_unsent > 0 && !data_is_solicited)
            }),
        }
    }

    /// A command has been sent; `data_sent`: all its data has been sent, too.
    #[inline]
    pub(crate) fn start(&mut self, access: &Access, data_sent: bool) {
        self.count(access, |counter| *counter += 1);
        if !data_sent {
            self.count_unsent(access, |unsent| *unsent += 1);
        }
    }

    /// All data of a write has been sent.
    pub(crate) fn data_sent(&mut self, access: &Access) {
        self.count_unsent(access, |unsent| *unsent -= 1);
    }

    /// A command has completed.
    #[inline]
    pub(crate) fn end(&mut self, access: &Access, data_sent: bool) {
        self.count(access, |counter| *counter -= 1);
        if !data_sent {
            self.count_unsent(access, |unsent| *unsent -= 1);
        }
    }

    /// A command is held: later conflicting ones must be held, too.
    pub(crate) fn hold(&mut self, access: &Access) {
        let Some(kind) = counted(access.kind).or((access.kind == Kind::Flush).then_some(Kind::Observe as usize)) else {
            return;
        };
        self.held[usize::from(access.queue)][kind] += 1;
        match access.footprint {
            Footprint::All => self.all_held[kind] += 1,
            Footprint::Lanes { first, count } => {
                for i in 0..count {
                    self.lanes[(first + i) as usize % LANES].held[kind] += 1;
                }
            }
        }
    }

    /// Removes all held commands; those that still wait are added again with [`Lanes::hold`].
    pub(crate) fn clear_held(&mut self, held: impl Iterator<Item = Access>) {
        self.all_held = [0; 3];
        self.held.fill([0; 3]);
        for access in held {
            if let Footprint::Lanes { first, count } = access.footprint {
                for i in 0..count {
                    self.lanes[(first + i) as usize % LANES].held = [0; 3];
                }
            }
        }
    }

    /// Checks that no command is counted once all have completed.
    pub(crate) fn check_idle(&self) {
        let idle =
            |lane: &Lane| [lane.own, lane.foreign, lane.held].iter().flatten().all(|&n| n == 0) && lane.unsent == 0;
        assert!(self.lanes.iter().all(idle) && self.all_unsent == 0, "a lane counts a command that has completed");
        let of_all = [self.all_outstanding, self.all_lasting, self.all_held];
        let counts = of_all.iter().chain(&self.outstanding).chain(&self.held);
        assert!(counts.flatten().all(|&n| n == 0), "a completed command is counted");
    }

    fn of_all(&self, kind: Kind) -> Access {
        Access { kind, footprint: Footprint::All, queue: 0, domain: 0 }
    }

    #[inline]
    fn of_blocks(&self, kind: Kind, start: Lba, blocks: Blocks) -> Access {
        let first = start.0 / self.lane_blocks;
        let last = (start.0 + blocks.0.saturating_sub(1)) / self.lane_blocks;
        let count = last - first + 1;
        if count > LANES_OF_A_COMMAND_MAX {
            return self.of_all(kind);
        }
        let first = (first % LANES as u64) as usize;
        let footprint = Footprint::Lanes { first: first as u16, count: count as u16 };
        let queue = self.queue_of_lane(first);
        Access { kind, footprint, queue, domain: queue }
    }

    /// The access of an operation with several rounds: it conflicts with commands to all zones,
    /// since a command between its rounds could use up the limit of open zones.
    pub(crate) fn lasting(&self, access: Access) -> Access {
        Access { domain: self.queues, footprint: Footprint::All, ..access }
    }

    #[inline]
    fn queue_of_lane(&self, lane: usize) -> u16 {
        if self.queues == 1 { 0 } else { (lane % usize::from(self.queues)) as u16 }
    }

    /// Applies `change` to every counter of outstanding commands that the access is in.
    #[inline]
    fn count(&mut self, access: &Access, change: impl Fn(&mut u32)) {
        let Some(kind) = counted(access.kind) else { return };
        change(&mut self.outstanding[usize::from(access.domain)][kind]);
        match access.footprint {
            Footprint::All if access.domain == self.queues => change(&mut self.all_lasting[kind]),
            Footprint::All => change(&mut self.all_outstanding[kind]),
            Footprint::Lanes { first, count } => {
                for i in 0..count {
                    let index = (first + i) as usize % LANES;
                    let is_own = self.queue_of_lane(index) == access.domain;
                    let lane = &mut self.lanes[index];
                    let counter = if is_own { &mut lane.own[kind] } else { &mut lane.foreign[kind] };
                    let mut wide = u32::from(*counter);
                    change(&mut wide);
                    *counter = u16::try_from(wide).expect("a lane has at most as many commands as queues have");
                }
            }
        }
    }

    fn count_unsent(&mut self, access: &Access, change: impl Fn(&mut u16)) {
        match access.footprint {
            Footprint::All => change(&mut self.all_unsent),
            Footprint::Lanes { first, count } => {
                for i in 0..count {
                    change(&mut self.lanes[(first + i) as usize % LANES].unsent);
                }
            }
        }
    }
}

/// The index in [`Counts`]; flushes and commands that do not access zones are not counted.
#[inline]
fn counted(kind: Kind) -> Option<usize> {
    (kind as usize <= Kind::Append as usize).then_some(kind as usize)
}

/// Earlier kinds that a command must not overtake.
#[inline]
fn conflicting(kind: Kind, order: Order) -> [bool; 3] {
    match kind {
        Kind::Observe | Kind::Flush => [false, true, true],
        Kind::Change => [true; 3],
        Kind::Append => [true, true, order == Order::Arrival],
        Kind::Apart => [false; 3],
    }
}

#[inline]
fn meets(counts: &Counts, against: [bool; 3]) -> bool {
    (0..3).any(|kind| against[kind] && counts[kind] > 0)
}

#[inline]
fn meets_short(counts: &[u16; 3], against: [bool; 3]) -> bool {
    (0..3).any(|kind| against[kind] && counts[kind] > 0)
}
