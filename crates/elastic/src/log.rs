//! [`Log`]: the records of a pool, in two copies on different zones.
//!
//! Records that are added while a block is being written go into the next one together. A record is
//! durable when its block stands in each copy that still works, and the drive has flushed it. A
//! copy that has filled its zone begins the next with a checkpoint; the copies do so one after the
//! other, so that one whole copy stands at any time. A copy whose zone fails goes on in another;
//! without any zone left it has failed, and without any copy the pool becomes read only.

use std::collections::VecDeque;

use crate::bug::{Seeded, SeededBug};
use crate::format::{Body, LogBlock, PoolId, Record, capacity_of};
use crate::limits::{LOG_COPIES, LOG_ZONES};

/// Zones of one copy.
const SLOTS: usize = LOG_ZONES as usize / LOG_COPIES;

/// A number that the owner has for a record that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// What the log must do on the drive. Each is answered by [`Log::on_completion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogEffect {
    Reset { copy: usize, zone: u32 },
    Write { copy: usize, zone: u32, zone_block: u64, block: Vec<u8> },
    Flush,
}

#[derive(Debug)]
pub(crate) struct Log {
    pool: PoolId,
    block_bytes: usize,
    zone_blocks: u64,
    copies: [LogCopy; LOG_COPIES],
    /// The last block of records that was begun.
    sequence: u64,
    /// The last one that is durable; zero if this log has written none yet.
    durable_sequence: u64,
    pending: VecDeque<(Vec<u8>, Ticket)>,
    batch: Option<Batch>,
    effects: VecDeque<LogEffect>,
    durable: VecDeque<(Ticket, bool)>,
    bug: Seeded,
}

/// One copy.
#[derive(Debug)]
struct LogCopy {
    slots: [u32; SLOTS],
    /// Slots whose zone has failed.
    failed: [bool; SLOTS],
    /// Slots that hold what a mount needs of this copy: they are not reset before a newer checkpoint is
    /// flushed, so a log that cannot be written any more can be read.
    needed: [bool; SLOTS],
    /// No zone is left for it.
    has_failed: bool,
    current: usize,
    generation: u64,
    next_block: u64,
    /// Commands in flight.
    outstanding: u32,
    has_error: bool,
    /// Zones to reset once another has taken their place: they may be active still.
    stale: Vec<u32>,
    /// Zones that a mount has found beside the present one: an interrupted mount leaves them active.
    leftovers: Vec<u32>,
}

#[derive(Debug)]
struct Batch {
    tickets: Vec<Ticket>,
    records: Vec<u8>,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What an interrupted mount has left of this copy is reset.
    Sweep(usize),
    /// This copy begins a zone: the zone is reset,
    Clear(usize),
    /// and the checkpoint written,
    Checkpoint(usize),
    /// and flushed; then the zone before it can be reset.
    Flushed(usize),
    Tidy(usize),
    Write,
    Flush,
}

/// Where a mount has found a copy to end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyEnd {
    /// The newest slot that has records or a whole checkpoint.
    pub(crate) current: usize,
    /// The newest generation of any slot.
    pub(crate) generation: u64,
    /// The slot of the checkpoint that was read, if it is of this copy.
    pub(crate) read: Option<usize>,
}

impl LogCopy {
    /// Goes on in the next slot that works, if there is one.
    fn advance(&mut self, generation: u64, keeps_needed: bool) {
        let is_usable = |slot: &usize| !(self.failed[*slot] || keeps_needed && self.needed[*slot]);
        let next = (1..=SLOTS).map(|step| (self.current + step) % SLOTS).find(is_usable);
        let Some(next) = next else {
            self.has_failed = true;
            return;
        };
        (self.current, self.generation) = (next, generation);
        (self.next_block, self.has_error) = (0, false);
    }
}

impl Log {
    /// The log behind its last block of records. Each copy begins a new zone with the first record.
    pub(crate) fn new(
        pool: PoolId,
        block_bytes: usize,
        zone_blocks: u64,
        sequence: u64,
        ends: [CopyEnd; LOG_COPIES],
        bug: Seeded,
    ) -> Log {
        let copies = [0, 1].map(|copy: usize| LogCopy {
            slots: slots_of(copy),
            failed: [false; SLOTS],
            needed: needed_of(ends[copy]),
            has_failed: false,
            current: ends[copy].current,
            generation: ends[copy].generation,
            next_block: zone_blocks,
            outstanding: 0,
            has_error: false,
            stale: vec![slots_of(copy)[ends[copy].current]],
            leftovers: leftovers_of(copy, ends[copy]),
        });
        Log {
            pool,
            block_bytes,
            zone_blocks,
            copies,
            sequence,
            durable_sequence: 0,
            pending: VecDeque::new(),
            batch: None,
            effects: VecDeque::new(),
            durable: VecDeque::new(),
            bug,
        }
    }

    /// Adds a record; its ticket comes back when it is durable.
    pub(crate) fn add(&mut self, record: &Record, ticket: Ticket) {
        self.pending.push_back((record.encode(), ticket));
    }

    /// Copies that can be written.
    pub(crate) fn working_copies(&self) -> usize {
        self.copies.iter().filter(|copy| !copy.has_failed).count()
    }

    /// A log of the same drive has known this block to be durable, and it was read.
    pub(crate) fn assume_durable(&mut self, sequence: u64) {
        assert!(sequence <= self.sequence, "a mount without durable records is refused");
        self.durable_sequence = self.durable_sequence.max(sequence);
    }

    /// The last block of records that this log has written and knows to be durable; zero: none.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.durable_sequence
    }

    /// The next record that is durable, or that can never be.
    pub(crate) fn poll_durable(&mut self) -> Option<(Ticket, bool)> {
        self.durable.pop_front()
    }

    /// Whether it has nothing to write, and no one waits for it.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.batch.is_none() && self.pending.is_empty() && self.durable.is_empty()
    }

    pub(crate) fn has_durable(&self) -> bool {
        !self.durable.is_empty()
    }

    /// The next effect. `snapshot` returns records of the whole state, for a checkpoint.
    pub(crate) fn poll_effect(&mut self, snapshot: impl Fn() -> Vec<Record>) -> Option<LogEffect> {
        if self.effects.is_empty() {
            if self.batch.is_none() {
                self.begin_batch();
            }
            self.proceed(&snapshot);
        }
        self.effects.pop_front()
    }

    fn begin_batch(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let (mut tickets, mut records) = (Vec::new(), Vec::new());
        while let Some((bytes, ticket)) = self.pending.front()
            && records.len() + bytes.len() <= capacity_of(self.block_bytes)
        {
            records.extend_from_slice(bytes);
            tickets.push(*ticket);
            self.pending.pop_front();
        }
        assert!(!tickets.is_empty(), "every record fits a block");
        self.sequence += 1;
        self.batch = Some(Batch { tickets, records, step: Step::Write });
        self.choose_step();
    }

    /// A copy without room begins a zone before the batch is written.
    fn choose_step(&mut self) {
        let (zone_blocks, keeps_needed) = (self.zone_blocks, !self.bug.has(SeededBug::ClearedLog));
        let step = loop {
            let full = self.copies.iter().position(|copy| !copy.has_failed && copy.next_block >= zone_blocks);
            // Those of both copies: the drive has one active zone for the log beside the present two.
            let left = self.copies.iter().position(|copy| !copy.leftovers.is_empty());
            match (full, left) {
                (Some(_), Some(left)) => break Step::Sweep(left),
                (Some(copy), None) => {
                    // Above those of both copies: of two checkpoints that cover the same records the later one is
                    // right, since a mount may have dropped what was not written.
                    let newest = self.copies.iter().map(|copy| copy.generation).max();
                    let generation = newest.expect("there are copies") + 1;
                    self.copies[copy].advance(generation, keeps_needed);
                    if !self.copies[copy].has_failed {
                        break Step::Clear(copy);
                    }
                }
                (None, _) => break Step::Write,
            }
        };
        if let Some(batch) = &mut self.batch {
            batch.step = step;
        }
        self.start_step();
    }

    /// Emits the effects of the present step, but for a checkpoint, whose records are not here.
    fn start_step(&mut self) {
        let Some(batch) = &self.batch else { return };
        match batch.step {
            Step::Clear(index) => {
                let copy = &mut self.copies[index];
                let zone = copy.slots[copy.current];
                copy.stale.retain(|other| *other != zone);
                copy.outstanding = 1;
                self.effects.push_back(LogEffect::Reset { copy: index, zone });
            }
            Step::Flushed(index) => {
                self.copies[index].outstanding = 1;
                self.effects.push_back(LogEffect::Flush);
            }
            Step::Sweep(index) => {
                let copy = &mut self.copies[index];
                for zone in std::mem::take(&mut copy.leftovers) {
                    copy.outstanding += 1;
                    self.effects.push_back(LogEffect::Reset { copy: index, zone });
                }
            }
            Step::Tidy(index) => {
                let copy = &mut self.copies[index];
                for zone in std::mem::take(&mut copy.stale) {
                    copy.outstanding += 1;
                    self.effects.push_back(LogEffect::Reset { copy: index, zone });
                }
            }
            Step::Write => {
                let is_single = self.bug.has(SeededBug::SingleCopy);
                let working = self.copies.iter_mut().enumerate().filter(|(_, copy)| !copy.has_failed);
                for (index, copy) in working.take(if is_single { 1 } else { LOG_COPIES }) {
                    let (zone, generation) = (copy.slots[copy.current], copy.generation);
                    let block = LogBlock::seal(
                        self.pool,
                        index as u8,
                        generation,
                        self.sequence,
                        Body::Records,
                        &batch.records,
                        self.block_bytes,
                    );
                    self.effects.push_back(LogEffect::Write { copy: index, zone, zone_block: copy.next_block, block });
                    copy.next_block += 1;
                    copy.outstanding += 1;
                }
            }
            Step::Flush => {
                self.copies[0].outstanding += 1;
                self.effects.push_back(LogEffect::Flush);
            }
            Step::Checkpoint(_) => {}
        }
    }

    /// Begins a checkpoint that is due, and the steps that have nothing to wait for.
    fn proceed(&mut self, snapshot: &impl Fn() -> Vec<Record>) {
        while let Some(batch) = &self.batch
            && self.effects.is_empty()
            && self.copies.iter().all(|copy| copy.outstanding == 0)
        {
            // The owner of what is durable learns of it before it describes its state.
            let is_described = matches!(batch.step, Step::Checkpoint(index) if self.copies[index].next_block == 0);
            if is_described && !self.durable.is_empty() {
                return;
            }
            match batch.step {
                Step::Checkpoint(index) if self.copies[index].next_block == 0 => self.write_checkpoint(index, snapshot),
                _ if self.working_copies() == 0 => self.end_batch(false),
                _ => self.finish_step(),
            }
        }
    }

    fn write_checkpoint(&mut self, index: usize, snapshot: &impl Fn() -> Vec<Record>) {
        let parts = parts_of(&snapshot(), capacity_of(self.block_bytes));
        let copy = &mut self.copies[index];
        if parts.len() as u64 >= self.zone_blocks {
            // Zones that have failed since namespaces were made are listed, too: what stands can be read.
            copy.has_failed = true;
            return self.choose_step();
        }
        for (part, records) in parts.iter().enumerate() {
            let body = Body::Checkpoint { part: part as u32, parts: parts.len() as u32 };
            let block = LogBlock::seal(
                self.pool,
                index as u8,
                copy.generation,
                self.sequence - 1,
                body,
                records,
                self.block_bytes,
            );
            let zone = copy.slots[copy.current];
            self.effects.push_back(LogEffect::Write { copy: index, zone, zone_block: copy.next_block, block });
            copy.next_block += 1;
            copy.outstanding += 1;
        }
    }

    /// An effect has ended. Flushes belong to no copy: `copy` is `None`.
    pub(crate) fn on_completion(&mut self, copy: Option<usize>, is_success: bool) {
        let step = self.batch.as_ref().map(|batch| batch.step).expect("the log has effects in a batch only");
        let index = copy.unwrap_or(match step {
            Step::Flushed(index) => index,
            _ => 0,
        });
        let copy = &mut self.copies[index];
        copy.outstanding = copy.outstanding.checked_sub(1).expect("an effect ends once");
        copy.has_error |= !is_success;
    }

    /// All effects of the step have ended.
    fn finish_step(&mut self) {
        let Some(batch) = &mut self.batch else { return };
        let step = batch.step;
        match step {
            Step::Sweep(index) | Step::Tidy(index) => {
                // A zone that cannot be reset is found out when its turn comes.
                self.copies[index].has_error = false;
                self.choose_step();
            }
            Step::Clear(index) | Step::Checkpoint(index) | Step::Flushed(index) => {
                if self.copies[index].has_error {
                    self.leave_zone(index, false);
                    return self.choose_step();
                }
                batch.step = match step {
                    Step::Clear(_) => Step::Checkpoint(index),
                    Step::Checkpoint(_) => Step::Flushed(index),
                    _ => {
                        let copy = &mut self.copies[index];
                        copy.needed = std::array::from_fn(|slot| slot == copy.current);
                        Step::Tidy(index)
                    }
                };
                self.start_step();
            }
            Step::Write => {
                // Both may have failed. A copy whose failure was noted later might be taken for full by then,
                // and its zone, which is active, for one that is not.
                if self.copies.iter().any(|copy| copy.has_error) {
                    for index in 0..LOG_COPIES {
                        if self.copies[index].has_error {
                            self.leave_zone(index, true);
                        }
                    }
                    return self.choose_step();
                }
                batch.step = Step::Flush;
                if self.bug.has(SeededBug::UnflushedRecord) {
                    return self.end_batch(true);
                }
                self.start_step();
            }
            Step::Flush => {
                let is_flushed = !self.copies[0].has_error;
                self.copies[0].has_error = false;
                self.end_batch(is_flushed);
            }
        }
    }

    /// The zone of a copy has failed: it goes on in another, whose checkpoint has this batch.
    fn leave_zone(&mut self, index: usize, has_records: bool) {
        let copy = &mut self.copies[index];
        copy.failed[copy.current] = true;
        let zone = copy.slots[copy.current];
        // A zone that was only begun may be active: it is reset before the next one is begun.
        if has_records {
            copy.stale.push(zone);
        } else {
            copy.leftovers.push(zone);
        }
        copy.has_error = false;
        copy.next_block = self.zone_blocks;
    }

    fn end_batch(&mut self, is_durable: bool) {
        let batch = self.batch.take().expect("a batch ends once");
        if is_durable {
            self.durable_sequence = self.sequence;
        }
        self.durable.extend(batch.tickets.into_iter().map(|ticket| (ticket, is_durable)));
        self.begin_batch();
    }
}

/// The zones of a copy: even ones and odd ones, so that a drive that goes from die to die has them
/// on different dies.
pub(crate) fn slots_of(copy: usize) -> [u32; SLOTS] {
    std::array::from_fn(|slot| (slot * LOG_COPIES + copy) as u32)
}

/// The slot in which a copy ends, and that of the checkpoint that was read.
fn needed_of(end: CopyEnd) -> [bool; SLOTS] {
    std::array::from_fn(|slot| end.generation > 0 && (slot == end.current || Some(slot) == end.read))
}

/// Zones of a copy beside the one in which it ends, and the one that was read: before another is begun,
/// they must not be active.
fn leftovers_of(copy: usize, end: CopyEnd) -> Vec<u32> {
    if end.generation == 0 {
        return Vec::new();
    }
    let slots = slots_of(copy).into_iter().enumerate();
    slots.filter(|(slot, _)| *slot != end.current && Some(*slot) != end.read).map(|(_, zone)| zone).collect()
}

/// The records in as many parts as are needed.
fn parts_of(records: &[Record], part_bytes: usize) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    for record in records {
        let bytes = record.encode();
        if parts.last().is_some_and(|part: &Vec<u8>| part.len() + bytes.len() > part_bytes) {
            parts.push(Vec::new());
        }
        parts.last_mut().expect("there is a part").extend_from_slice(&bytes);
    }
    parts
}
