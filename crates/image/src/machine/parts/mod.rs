//! Parts in their order: those that touch the same blocks are processed in the order of submission.
//!
//! Operations, in their order: [`add`](Parts::add) puts a part behind those that it conflicts with,
//! [`next_ready`](Parts::next_ready) returns it once they are released, [`release`](Parts::release)
//! unblocks the parts behind it, and [`remove`](Parts::remove) ends it. Writes at a write pointer
//! have an order of their own, in which they are acknowledged: a part is in it longer than it blocks
//! others.

mod part;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use zonda_zoned::{Key, Slab, Status, ZoneIndex};

use super::ZoneRun;
use super::sequential::Failed;

pub(super) use part::{LedgerUndo, Manage, Part, Stage, Step, Undo, Work};

/// Owns the parts of all commands, and their dependencies.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Slab<Part>,
    queues: Vec<Queue>,
    /// Parts that are ready to start.
    ready: VecDeque<Key<Part>>,
    /// Parts that free an active resource on file when they end.
    releasing: Vec<Key<Part>>,
}

/// The parts of a zone.
#[derive(Debug, Default)]
struct Queue {
    /// Parts that touch the zone's files, or wait to, in the order of submission.
    parts: Vec<Key<Part>>,
    /// Writes at the write pointer that are not acknowledged yet, in order.
    writes: VecDeque<Key<Part>>,
    /// How many of `parts` are management.
    exclusive: u32,
    /// How many of `parts` are overwrites.
    overwrites: u32,
}

impl Parts {
    pub(super) fn new(zones: usize) -> Parts {
        let queues = std::iter::repeat_with(Queue::default).take(zones).collect();
        Parts { parts: Slab::new(), queues, ready: VecDeque::new(), releasing: Vec::new() }
    }

    /// Adds a part behind the existing ones of its zone, whose state is `run`. With
    /// `takes_resource` it also waits for the parts that free active resources.
    pub(super) fn add(&mut self, part: Part, run: &ZoneRun, takes_resource: bool) -> Key<Part> {
        assert!(part.stage == Stage::Waiting && part.blockers == 0 && !part.released, "a part is added once");
        let zone = part.zone.as_usize();
        let waits = self.queues[zone].may_block(&part, run.on_file);
        let (exclusive, overwrites) = (part.is_exclusive(), part.is_overwrite());
        let is_write = matches!(part.work, Work::Sequential { .. });
        let key = self.parts.insert(part);
        let queue = &self.queues[zone];
        if waits {
            for &earlier in &queue.parts {
                if self.parts[key].conflicts_with(&self.parts[earlier]) {
                    wait_for(&mut self.parts, key, earlier);
                }
            }
        }
        if takes_resource {
            for &releasing in &self.releasing {
                let part = &self.parts[releasing];
                if !matches!(part.work, Work::Sequential { .. }) {
                    wait_for(&mut self.parts, key, releasing);
                    continue;
                }
                // A write that fills its zone frees the resource once every write before it is on
                // file.
                for &earlier in &self.queues[part.zone.as_usize()].writes {
                    if !self.parts[earlier].released {
                        wait_for(&mut self.parts, key, earlier);
                    }
                }
            }
        }
        self.wait_for_rollback(key, run.failed);
        let queue = &mut self.queues[zone];
        queue.exclusive += u32::from(exclusive);
        queue.overwrites += u32::from(overwrites);
        queue.parts.push(key);
        if is_write {
            queue.writes.push_back(key);
        }
        if self.parts[key].blockers == 0 {
            self.ready.push_back(key);
        }
        key
    }

    /// A part that reads or deallocates blocks behind the failed write of its zone waits until they
    /// are rolled back. Returns whether it waits.
    pub(super) fn wait_for_rollback(&mut self, key: Key<Part>, failed: Option<Failed>) -> bool {
        let part = &self.parts[key];
        let Some(failed) = failed else { return false };
        let concerned = matches!(part.work, Work::Read { .. } | Work::Zero { .. });
        if !concerned || part.generation != failed.generation || part.end <= failed.first {
            return false;
        }
        let behind = |other: &&Key<Part>| failed.fails(&self.parts[**other]) && !self.parts[**other].released;
        let writes = &self.queues[part.zone.as_usize()].writes;
        let earlier = *writes.iter().find(behind).expect("the failed write is not released before it is rolled back");
        wait_for(&mut self.parts, key, earlier);
        true
    }

    /// The part frees an active resource of the drive when it ends.
    pub(super) fn frees_resource(&mut self, key: Key<Part>) {
        self.releasing.push(key);
    }

    /// The next part to start.
    pub(super) fn next_ready(&mut self) -> Option<Key<Part>> {
        self.ready.pop_front()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Parts that were held may start again.
    pub(super) fn start_again(&mut self, held: impl IntoIterator<Item = Key<Part>>) {
        self.ready.extend(held);
    }

    /// Unblocks the parts that wait for this one. A part may be released before it ends.
    pub(super) fn release(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        if std::mem::replace(&mut part.released, true) {
            return;
        }
        let waiters = std::mem::take(&mut part.waiters);
        let (exclusive, overwrites) = (part.is_exclusive(), part.is_overwrite());
        let queue = &mut self.queues[part.zone.as_usize()];
        let place = queue.place(key);
        queue.parts.remove(place);
        queue.exclusive -= u32::from(exclusive);
        queue.overwrites -= u32::from(overwrites);
        for waiter in waiters {
            let part = &mut self.parts[waiter];
            part.blockers -= 1;
            if part.blockers == 0 {
                self.ready.push_back(waiter);
            }
        }
    }

    /// Removes a part that has ended.
    ///
    /// # Panics
    /// If parts may still wait for it, or file operations would find another part at its key.
    pub(super) fn remove(&mut self, key: Key<Part>) -> Part {
        let part = self.parts.remove(key);
        assert!(part.released, "a part that ends is released before");
        assert!(part.out == 0 && part.reserved_bytes == 0, "a part that ends has returned what it had");
        if !self.releasing.is_empty() {
            self.releasing.retain(|&other| other != key);
        }
        part
    }

    /// Later parts of the zone depend on this one, which has failed: they fail, too.
    pub(super) fn doom_behind(&mut self, key: Key<Part>) {
        let queue = &self.queues[self.parts[key].zone.as_usize()];
        for &later in &queue.parts[queue.place(key) + 1..] {
            self.parts[later].doomed = true;
        }
    }

    /// The unreleased parts of a zone, in the order of submission.
    pub(super) fn of_zone(&self, zone: ZoneIndex) -> impl Iterator<Item = &Part> {
        self.queues[zone.as_usize()].parts.iter().map(|&key| &self.parts[key])
    }

    #[inline]
    pub(super) fn has_any(&self, zone: ZoneIndex) -> bool {
        !self.queues[zone.as_usize()].parts.is_empty()
    }

    #[inline]
    pub(super) fn has_management(&self, zone: ZoneIndex) -> bool {
        self.queues[zone.as_usize()].exclusive > 0
    }

    /// The writes at the write pointer of a zone that are not acknowledged, in order.
    pub(super) fn writes(&self, zone: ZoneIndex) -> impl Iterator<Item = &Part> {
        self.queues[zone.as_usize()].writes.iter().map(|&key| &self.parts[key])
    }

    /// The first of these.
    #[inline]
    pub(super) fn first_write(&self, zone: ZoneIndex) -> Option<Key<Part>> {
        self.queues[zone.as_usize()].writes.front().copied()
    }

    /// Takes the first of these out of the order, and releases it.
    pub(super) fn acknowledge_first(&mut self, zone: ZoneIndex) {
        let key = self.queues[zone.as_usize()].writes.pop_front().expect("a write is acknowledged");
        assert_eq!(self.parts[key].stage, Stage::Done, "a write is acknowledged when it is on file");
        self.release(key);
    }

    /// Writes of a zone behind the failed one have been rolled back. Returns those that were in
    /// flight, released, and out of the order; those that wait for management will fail without
    /// being started, and other parts that wait do not touch the blocks behind.
    pub(super) fn roll_back(&mut self, zone: ZoneIndex, failed: &Failed) -> Vec<Key<Part>> {
        let queue = &mut self.queues[zone.as_usize()];
        for &key in &queue.parts {
            let part = &mut self.parts[key];
            if part.generation == failed.generation && part.stage == Stage::Waiting {
                part.end = part.end.min(failed.first).max(part.first);
            }
        }
        let (mut left, mut ended) = (VecDeque::new(), Vec::new());
        for key in std::mem::take(&mut queue.writes) {
            let part = &mut self.parts[key];
            if part.generation == failed.generation && part.stage != Stage::Waiting {
                ended.push(key);
                continue;
            }
            if part.generation == failed.generation {
                part.doomed = true;
                part.lacks_space |= failed.status() == Status::CapacityExceeded;
            }
            left.push_back(key);
        }
        queue.writes = left;
        ended.iter().for_each(|&key| self.release(key));
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key<Part>, &Part)> {
        self.parts.iter()
    }

    pub(super) fn check_invariants(&self) {
        let mut in_queues = 0;
        for (zone, queue) in (0..).map(ZoneIndex).zip(&self.queues) {
            in_queues += queue.parts.len();
            assert!(self.of_zone(zone).all(|part| part.zone == zone && !part.released), "parts of zone {zone}");
            let exclusive = self.of_zone(zone).filter(|part| part.is_exclusive());
            assert_eq!(queue.exclusive as usize, exclusive.count(), "management of zone {zone}");
            let overwrites = self.of_zone(zone).filter(|part| part.is_overwrite());
            assert_eq!(queue.overwrites as usize, overwrites.count(), "overwrites of zone {zone}");
            let writes = self.writes(zone).filter(|part| !part.doomed);
            let order: Vec<_> = writes.map(|part| (part.generation, part.first)).collect();
            let in_order = |pair: &[(_, u64)]| pair[0].0 != pair[1].0 || pair[0].1 < pair[1].1;
            assert!(order.windows(2).all(in_order), "writes of zone {zone}, generation and first block: {order:?}");
        }
        let unreleased = self.iter().filter(|(_, part)| !part.released).count();
        assert_eq!(in_queues, unreleased, "every part is with its zone");
        let mut blockers = std::collections::BTreeMap::new();
        for waiter in self.iter().flat_map(|(_, part)| &part.waiters) {
            *blockers.entry(*waiter).or_insert(0) += 1;
        }
        for (key, part) in self.iter() {
            assert_eq!(part.blockers, blockers.remove(&key).unwrap_or(0), "{key:?} waits");
            // Otherwise it would be started twice.
            assert!(part.blockers == 0 || !self.ready.contains(&key), "{key:?} is ready and waits");
        }
        assert!(blockers.is_empty(), "parts that have ended do not wait: {blockers:?}");
        let all_exist = self.releasing.iter().all(|key| self.iter().any(|(other, _)| other == *key));
        assert!(all_exist, "a resource is freed by a part that has not ended");
    }
}

impl Queue {
    /// Whether one of the parts may conflict with this one. A write at the write pointer conflicts
    /// only with management; reads of acknowledged blocks wait for no write at the pointer.
    #[inline]
    fn may_block(&self, part: &Part, on_file: u64) -> bool {
        if self.parts.is_empty() {
            return false;
        }
        let only_writes_at_pointer = self.exclusive == 0 && self.overwrites == 0;
        match part.work {
            Work::Sequential { .. } => self.exclusive > 0,
            Work::Read { .. } => !(only_writes_at_pointer && part.end <= on_file),
            _ => true,
        }
    }

    fn place(&self, key: Key<Part>) -> usize {
        self.parts.iter().position(|&other| other == key).expect("an unreleased part is with its zone")
    }
}

fn wait_for(parts: &mut Slab<Part>, key: Key<Part>, earlier: Key<Part>) {
    parts[earlier].waiters.push(key);
    parts[key].blockers += 1;
}

impl Index<Key<Part>> for Parts {
    type Output = Part;

    #[inline]
    fn index(&self, key: Key<Part>) -> &Part {
        &self.parts[key]
    }
}

impl IndexMut<Key<Part>> for Parts {
    #[inline]
    fn index_mut(&mut self, key: Key<Part>) -> &mut Part {
        &mut self.parts[key]
    }
}
