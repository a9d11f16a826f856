//! Parts: the work of a command in one zone, and which parts wait for which.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, Blocks, Key, Lba, Slab, ZoneIndex};

use super::{RawAction, RawOperation, Run};

/// The work of a command in one zone.
#[derive(Debug)]
pub(super) struct Part {
    /// `None`: the machine's own.
    pub(super) run: Option<Key<Run>>,
    pub(super) zone: ZoneIndex,
    /// Blocks, as offsets in the zone.
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) work: Work,
    /// Frees an open or active resource when it ends.
    pub(super) frees: bool,
    pub(super) is_running: bool,
    /// Depends on a write that has failed: it ends without being started.
    pub(super) is_doomed: bool,
    /// An append that waits only for the start of an earlier one of its zone.
    is_parked: bool,
    blockers: u32,
    waiters: Vec<Key<Part>>,
}

#[derive(Debug)]
pub(super) enum Work {
    /// Its place in the command, in blocks.
    Read {
        place: u64,
    },
    Write {
        buffer: BlockBuffer,
    },
    Append {
        buffer: BlockBuffer,
    },
    Deallocate,
    Manage(RawAction),
    SetExtension {
        extension: Bytes,
    },
    /// An action that changes nothing, behind the parts before it.
    Nothing,
    Report,
}

/// The parts of all commands.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Slab<Part>,
    /// The parts of each zone, in the order of submission.
    queues: Vec<Vec<Key<Part>>>,
    conventional_zones: u32,
    ready: VecDeque<Key<Part>>,
    /// Parts that free an open or active resource.
    freeing: Vec<Key<Part>>,
}

impl Part {
    pub(super) fn new(run: Option<Key<Run>>, zone: ZoneIndex, first: u64, end: u64, work: Work) -> Part {
        Part {
            run,
            zone,
            first,
            end,
            work,
            frees: false,
            is_running: false,
            is_doomed: false,
            is_parked: false,
            blockers: 0,
            waiters: Vec::new(),
        }
    }

    /// The request to the drive; `None` if there is nothing to do.
    pub(super) fn operation(&self, zone_start: Lba) -> Option<RawOperation> {
        let (start, blocks) = (zone_start + Blocks(self.first), Blocks(self.end - self.first));
        if self.is_read() && blocks == Blocks::ZERO {
            return None;
        }
        Some(match &self.work {
            Work::Read { .. } => RawOperation::Read { start, blocks },
            Work::Write { buffer } => RawOperation::Write { start, buffer: buffer.clone() },
            Work::Append { buffer } => RawOperation::Append { zone_start, buffer: buffer.clone() },
            Work::Deallocate => RawOperation::Deallocate { start, blocks },
            Work::Manage(action) => RawOperation::Manage { action: *action, zone: self.zone },
            Work::SetExtension { extension } => {
                RawOperation::SetExtension { zone: self.zone, extension: extension.clone() }
            }
            Work::Report => RawOperation::Report { zone: self.zone },
            Work::Nothing => return None,
        })
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self.work, Work::Write { .. } | Work::Append { .. })
    }

    pub(super) fn is_management(&self) -> bool {
        matches!(self.work, Work::Manage(_) | Work::SetExtension { .. } | Work::Nothing)
    }

    fn is_append(&self) -> bool {
        matches!(self.work, Work::Append { .. })
    }

    fn is_read(&self) -> bool {
        matches!(self.work, Work::Read { .. })
    }

    /// Whether it waits for an earlier part of its zone.
    fn waits_for(&self, earlier: &Part, is_conventional: bool) -> bool {
        let overlaps = self.first < earlier.end && earlier.first < self.end;
        match (&self.work, &earlier.work) {
            (Work::Report, _) => true,
            _ if self.is_management() || earlier.is_management() => true,
            (_, Work::Report) | (Work::Append { .. }, Work::Append { .. }) => false,
            (Work::Write { .. } | Work::Append { .. }, Work::Write { .. } | Work::Append { .. }) => {
                !is_conventional || overlaps
            }
            _ => overlaps && !(self.is_read() && earlier.is_read()),
        }
    }
}

impl Parts {
    pub(super) fn new(zones: usize, conventional_zones: u32) -> Parts {
        Parts {
            parts: Slab::new(),
            queues: vec![Vec::new(); zones],
            conventional_zones,
            ready: VecDeque::new(),
            freeing: Vec::new(),
        }
    }

    /// Adds a part behind those of its zone. One that `takes` an open or active resource also waits for
    /// the parts that free one.
    pub(super) fn add(&mut self, part: Part, takes: bool) {
        let (zone, frees, is_write) = (part.zone, part.frees, part.is_write());
        let is_conventional = zone.0 < self.conventional_zones;
        let key = self.parts.insert(part);
        let mut earlier: Vec<Key<Part>> = Vec::new();
        for &other in self.queues[zone.as_usize()].iter().rev() {
            if !self.parts[key].waits_for(&self.parts[other], is_conventional) {
                continue;
            }
            earlier.push(other);
            // This one waits for all before it, and so does a write for earlier writes.
            let is_last_write = is_write && !is_conventional && matches!(self.parts[other].work, Work::Write { .. });
            if self.parts[other].is_management() || is_last_write {
                break;
            }
        }
        if takes {
            earlier.extend(&self.freeing);
        }
        for &other in &earlier {
            self.parts[other].waiters.push(key);
        }
        self.parts[key].blockers = earlier.len() as u32;
        self.queues[zone.as_usize()].push(key);
        if frees {
            self.freeing.push(key);
        }
        if earlier.is_empty() {
            self.ready.push_back(key);
        }
    }

    /// The next part that need not wait any more. Appends of a zone start in the order of submission: the
    /// first one may open the zone, and wait for a resource, which those behind it need as well.
    pub(super) fn next_ready(&mut self) -> Option<Key<Part>> {
        loop {
            let key = self.ready.pop_front()?;
            if !self.overtakes(key) {
                return Some(key);
            }
            self.parts[key].is_parked = true;
        }
    }

    /// Whether a part is an append, and an earlier one of its zone has not started.
    fn overtakes(&self, key: Key<Part>) -> bool {
        let part = &self.parts[key];
        let mut earlier = self.queues[part.zone.as_usize()].iter().take_while(|&&other| other != key);
        part.is_append()
            && !part.is_doomed
            && earlier.any(|&other| self.parts[other].is_append() && !self.parts[other].is_running)
    }

    /// A part was passed to the drive.
    pub(super) fn start(&mut self, key: Key<Part>) {
        self.parts[key].is_running = true;
        if self.parts[key].is_append() {
            self.unpark(self.parts[key].zone);
        }
    }

    /// The next append of a zone may start, if it waited for an earlier one only.
    fn unpark(&mut self, zone: ZoneIndex) {
        let mut waiting = self.queues[zone.as_usize()].iter().copied();
        let is_next = |key: &Key<Part>| self.parts[*key].is_append() && !self.parts[*key].is_running;
        if let Some(key) = waiting.find(is_next)
            && std::mem::take(&mut self.parts[key].is_parked)
        {
            self.ready.push_back(key);
        }
    }

    /// An append that fills its zone was accepted: the resources of the zone are free when all that are
    /// outstanding have ended, in whatever order the drive places them.
    pub(super) fn free_with_appends(&mut self, zone: ZoneIndex) {
        for &key in &self.queues[zone.as_usize()] {
            let part = &mut self.parts[key];
            if part.is_append() && !part.frees {
                part.frees = true;
                self.freeing.push(key);
            }
        }
    }

    /// Removes a part that has ended, and unblocks those that wait for it.
    pub(super) fn remove(&mut self, key: Key<Part>) -> Part {
        let part = self.parts.remove(key);
        assert_eq!(part.blockers, 0, "a part that ends has not been waiting");
        let queue = &mut self.queues[part.zone.as_usize()];
        let place = queue.iter().position(|&other| other == key).expect("a part is with its zone");
        queue.remove(place);
        if part.frees {
            self.freeing.retain(|&other| other != key);
        }
        for &waiter in &part.waiters {
            let waiter_part = &mut self.parts[waiter];
            waiter_part.blockers -= 1;
            if waiter_part.blockers == 0 {
                self.ready.push_back(waiter);
            }
        }
        if part.is_append() {
            self.unpark(part.zone);
        }
        part
    }

    /// The writes that wait behind this part depend on it, up to the next reset of the zone; if it is an
    /// action, the reads, too.
    pub(super) fn doom_behind(&mut self, key: Key<Part>) {
        let is_action = self.parts[key].is_management();
        let queue = &self.queues[self.parts[key].zone.as_usize()];
        let place = queue.iter().position(|&other| other == key).expect("a part is with its zone");
        for &later in &queue[place + 1..] {
            let part = &mut self.parts[later];
            if matches!(part.work, Work::Manage(RawAction::Reset)) {
                return;
            }
            part.is_doomed |= (part.is_write() || (is_action && part.is_read())) && !part.is_running;
        }
    }

    /// The parts of a zone, in the order of submission.
    pub(super) fn of_zone(&self, zone: ZoneIndex) -> impl Iterator<Item = &Part> {
        self.queues[zone.as_usize()].iter().map(|&key| &self.parts[key])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn get(&self, key: Key<Part>) -> &Part {
        &self.parts[key]
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(|(_, part)| part)
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let queued: usize = self.queues.iter().map(Vec::len).sum();
        assert_eq!(queued, self.parts.len(), "every part is with its zone");
        for (zone, queue) in self.queues.iter().enumerate().skip(self.conventional_zones as usize) {
            let running = |part: &&Key<Part>| self.parts[**part].is_running;
            let (mut writes, mut others) = (0, 0);
            for key in queue.iter().filter(running) {
                match self.parts[*key].work {
                    Work::Write { .. } => writes += 1,
                    Work::Append { .. } => others += 1,
                    _ => {}
                }
            }
            assert!(writes + usize::from(others > 0) <= 1, "{writes} writes of zone {zone} are outstanding");
        }
    }
}

impl Index<Key<Part>> for Parts {
    type Output = Part;

    fn index(&self, key: Key<Part>) -> &Part {
        &self.parts[key]
    }
}

impl IndexMut<Key<Part>> for Parts {
    fn index_mut(&mut self, key: Key<Part>) -> &mut Part {
        &mut self.parts[key]
    }
}
