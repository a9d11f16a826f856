//! One copy of a job: its position in its zones, and its next step.

use std::collections::{BTreeSet, VecDeque};

use zonda_zoned::{Blocks, Command, Instant, Key, Lba, Origin, Prng, ZoneIndex};

use super::flights::Striped;
use super::job::ZoneWork;
use super::writer::WriterPlace;
use super::zones::ZoneViews;
use crate::distribution::Skew;
use crate::plan::JobPlan;
use crate::{EndReason, JobOperation, OnFull, RequestKind, ZoneOrder};

/// The next step of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A read, write or append; `start` is its first block, for an append the expected one.
    Data { kind: RequestKind, zone: ZoneIndex, start: Lba, blocks: u64 },
    /// A command for a zone as a whole.
    Manage { kind: RequestKind, zone: ZoneIndex },
    /// Wait until an outstanding command has ended.
    Wait,
    /// No further work.
    Done(EndReason),
}

/// A striped request with parts that are not issued yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partial {
    pub(super) request: Key<Striped>,
    pub(super) parts_left: u64,
}

/// One copy of a job.
pub(super) struct Worker {
    pub(super) job: u32,
    pub(super) zones: Vec<ZoneIndex>,
    pub(super) prng: Prng,
    /// Requests issued, and queue slots in think time.
    pub(super) outstanding: u32,
    /// When queue slots in think time can be used again, in order.
    pub(super) rests: VecDeque<Instant>,
    pub(super) timer: Option<Instant>,
    /// Commands that the device refused.
    pub(super) held: VecDeque<Command>,
    pub(super) partial: Option<Partial>,
    /// Of all its commands.
    pub(super) origin: Origin,
    /// Whether a batch is being issued.
    pub(super) is_refilling: bool,
    pub(super) is_ready: bool,
    pub(super) is_blocked: bool,
    pub(super) is_stalled: bool,
    pub(super) is_done: bool,
    skew: Option<Skew>,
    /// Index into `zones` of the current or next zone.
    rotor: usize,
    pub(super) writer: WriterPlace,
    reader: ReaderPlace,
    mix: MixPlace,
}

/// The position of a sequential reader.
struct ReaderPlace {
    /// Blocks read of each zone; [`PASSED`] when the zone is done in this pass.
    offsets: Vec<u64>,
    /// Striped readers count in parts, round-robin over the zones: the next one, and the end of the
    /// last whole request.
    next_part: u64,
    parts_end: u64,
}

const PASSED: u64 = u64::MAX;

/// The pending operation of a mix, and the zones that it can read.
struct MixPlace {
    pending: Option<RequestKind>,
    /// Indices into `zones` of those with at least one request. One that was reset since is dropped
    /// when it is chosen.
    written: Vec<u32>,
    is_listed: Vec<bool>,
}

impl Worker {
    pub(super) fn new(job_index: u32, job: &JobPlan, zones: Vec<ZoneIndex>, prng: Prng, views: &ZoneViews) -> Worker {
        let count = zones.len();
        let slots = views.capacity() / job.request_blocks;
        let parts = job.parts;
        let requests = if parts > 1 { readable_parts(job, &zones, views) / parts } else { count as u64 * slots };
        let is_random = matches!(job.operation, JobOperation::Randread | JobOperation::Randwrite | JobOperation::Mix);
        let reads_forward = job.operation == JobOperation::Read;
        let mut worker = Worker {
            job: job_index,
            prng,
            outstanding: 0,
            rests: VecDeque::new(),
            timer: None,
            held: VecDeque::new(),
            partial: None,
            origin: Origin::default(),
            is_refilling: false,
            is_ready: false,
            is_blocked: false,
            is_stalled: false,
            is_done: false,
            skew: if is_random { Skew::new(job.distribution, requests) } else { None },
            rotor: 0,
            writer: WriterPlace::default(),
            reader: ReaderPlace {
                offsets: vec![0; if reads_forward && parts == 1 { count } else { 0 }],
                next_part: 0,
                parts_end: requests * parts,
            },
            mix: MixPlace {
                pending: None,
                written: Vec::new(),
                is_listed: vec![false; if job.operation == JobOperation::Mix { count } else { 0 }],
            },
            zones,
        };
        if job.operation == JobOperation::Mix {
            (0..count).for_each(|index| worker.list_if_written(index, job, views));
        }
        if job.operation.is_management() && job.zone_order == ZoneOrder::Random {
            worker.shuffle_zones();
        }
        worker
    }

    /// The next step. For a write or append its blocks in the zone are reserved then.
    #[inline]
    pub(super) fn next(&mut self, job: &JobPlan, views: &mut ZoneViews) -> Step {
        match job.operation {
            JobOperation::Randread | JobOperation::Read if job.parts > 1 => self.read_part(job, views),
            JobOperation::Randread => self.random(RequestKind::Read, job, views),
            JobOperation::Randwrite => self.random(RequestKind::Write, job, views),
            JobOperation::Read => self.read_forward(job, views),
            JobOperation::Write => self.write_forward(RequestKind::Write, job, views).1,
            JobOperation::Append => self.write_forward(RequestKind::Append, job, views).1,
            JobOperation::Mix => self.mixed(job, views),
            JobOperation::Reset => self.manage(RequestKind::Reset, views),
            JobOperation::Finish => self.manage(RequestKind::Finish, views),
            JobOperation::Open => self.manage(RequestKind::Open, views),
            JobOperation::Close => self.manage(RequestKind::Close, views),
        }
    }

    /// A request at a random address, in the readable part of a zone for reads and in the whole
    /// zone for writes.
    #[inline]
    fn random(&mut self, kind: RequestKind, job: &JobPlan, views: &ZoneViews) -> Step {
        let blocks = job.request_blocks;
        let count = self.zones.len();
        let (index, chosen) = match &self.skew {
            Some(skew) => {
                let slots = views.capacity() / blocks;
                let place = skew.sample(&mut self.prng);
                ((place / slots) as usize, Some(place % slots))
            }
            None if job.zone_order == ZoneOrder::RoundRobin => {
                let index = self.rotor;
                self.rotor = if index + 1 == count { 0 } else { index + 1 };
                (index, None)
            }
            None => (self.prng.below(count as u64) as usize, None),
        };
        let zone = self.zones[index];
        let extent = if kind == RequestKind::Read { views.readable(zone, blocks) } else { views.capacity() };
        self.at_slot(kind, zone, chosen, blocks, extent, views)
    }

    /// A request in one of the whole slots of the first `extent` blocks of a zone. A slot that was
    /// chosen from the whole capacity and is beyond them is folded back.
    #[inline]
    fn at_slot(
        &mut self,
        kind: RequestKind,
        zone: ZoneIndex,
        chosen: Option<u64>,
        blocks: u64,
        extent: u64,
        views: &ZoneViews,
    ) -> Step {
        let slots = extent / blocks;
        let slot = match chosen {
            Some(slot) if slot < slots => slot,
            Some(slot) => slot % slots,
            None => self.prng.below(slots),
        };
        Step::Data { kind, zone, start: views.start(zone) + Blocks(slot * blocks), blocks }
    }

    /// The next part of a striped read. Part `p` of the whole lies in zone `p % zones`, at `p /
    /// zones` parts from its start, where a striped writer has written it.
    fn read_part(&mut self, job: &JobPlan, views: &ZoneViews) -> Step {
        let parts = job.parts;
        if self.partial.is_none() {
            if job.operation == JobOperation::Randread {
                let requests = self.reader.parts_end / parts;
                let request = match &self.skew {
                    Some(skew) => skew.sample(&mut self.prng),
                    None => self.prng.below(requests),
                };
                self.reader.next_part = request * parts;
            } else if self.reader.next_part == self.reader.parts_end {
                if job.one_pass {
                    return Step::Done(EndReason::ZonesDone);
                }
                self.reader.next_part = 0;
            }
        }
        let part = self.reader.next_part;
        self.reader.next_part += 1;
        let zone = self.zones[(part % self.zones.len() as u64) as usize];
        let offset = Blocks(part / self.zones.len() as u64 * job.part_blocks);
        Step::Data { kind: RequestKind::Read, zone, start: views.start(zone) + offset, blocks: job.part_blocks }
    }

    /// The next request of a sequential read.
    fn read_forward(&mut self, job: &JobPlan, views: &ZoneViews) -> Step {
        let count = self.zones.len();
        // The second time round begins a new pass.
        for pass in 0..2 {
            let first = match job.zone_order {
                ZoneOrder::Random => self.prng.below(count as u64) as usize,
                _ => self.rotor,
            };
            for step in 0..count {
                let index = (first + step) % count;
                let zone = self.zones[index];
                let (offset, extent) = (self.reader.offsets[index], views.readable(zone, job.request_blocks));
                if offset >= extent {
                    self.reader.offsets[index] = PASSED;
                    continue;
                }
                let blocks = job.request_blocks.min(extent - offset);
                self.reader.offsets[index] = offset + blocks;
                self.rotor = if job.zone_order == ZoneOrder::RoundRobin { (index + 1) % count } else { index };
                let start = views.start(zone) + Blocks(offset);
                return Step::Data { kind: RequestKind::Read, zone, start, blocks };
            }
            if job.one_pass {
                return Step::Done(EndReason::ZonesDone);
            }
            assert!(pass == 0, "a zone at its start has blocks to read");
            self.reader.offsets.fill(0);
            self.rotor = 0;
        }
        unreachable!("the second pass begins with a zone to read")
    }

    /// One of the operations of a mix. A chosen operation is kept until it can be issued, so that
    /// waiting does not skew the weights.
    fn mixed(&mut self, job: &JobPlan, views: &mut ZoneViews) -> Step {
        let kind = self.mix.pending.take().unwrap_or_else(|| self.random_kind(job));
        let kind = match kind {
            RequestKind::Read => match self.read_written(job, views) {
                Some(step) => return step,
                None if job.weights.append > 0 => RequestKind::Append,
                None if job.weights.write > 0 => RequestKind::Write,
                None => return self.random(RequestKind::Read, job, views),
            },
            kind => kind,
        };
        let (index, step) = self.write_forward(kind, job, views);
        if matches!(step, Step::Data { .. }) {
            self.list_if_written(index, job, views);
        } else {
            self.mix.pending = Some(kind);
        }
        step
    }

    fn random_kind(&mut self, job: &JobPlan) -> RequestKind {
        let weights = job.weights;
        let [read, write, append] = [weights.read, weights.write, weights.append].map(u64::from);
        match self.prng.below(read + write + append) {
            number if number < read => RequestKind::Read,
            number if number < read + write => RequestKind::Write,
            _ => RequestKind::Append,
        }
    }

    /// A random read in a written zone; `None` without one.
    fn read_written(&mut self, job: &JobPlan, views: &ZoneViews) -> Option<Step> {
        let blocks = job.request_blocks;
        if let Some(skew) = &self.skew {
            let slots = views.capacity() / blocks;
            let place = skew.sample(&mut self.prng);
            let zone = self.zones[(place / slots) as usize];
            let written = views.written(zone);
            if written >= blocks {
                return Some(self.at_slot(RequestKind::Read, zone, Some(place % slots), blocks, written, views));
            }
        }
        while !self.mix.written.is_empty() {
            let place = self.prng.below(self.mix.written.len() as u64) as usize;
            let index = self.mix.written[place] as usize;
            let zone = self.zones[index];
            let written = views.written(zone);
            if written >= blocks {
                return Some(self.at_slot(RequestKind::Read, zone, None, blocks, written, views));
            }
            self.mix.written.swap_remove(place);
            self.mix.is_listed[index] = false;
        }
        None
    }

    fn list_if_written(&mut self, index: usize, job: &JobPlan, views: &ZoneViews) {
        if !self.mix.is_listed[index] && views.written(self.zones[index]) >= job.request_blocks {
            self.mix.is_listed[index] = true;
            self.mix.written.push(index as u32);
        }
    }

    /// The next write or append, and the index of its zone.
    fn write_forward(&mut self, kind: RequestKind, job: &JobPlan, views: &mut ZoneViews) -> (usize, Step) {
        self.writer.next(kind, &self.zones, job, views, &mut self.prng)
    }

    /// A command for the next zone, once for each.
    fn manage(&mut self, kind: RequestKind, views: &ZoneViews) -> Step {
        let Some(&zone) = self.zones.get(self.rotor) else { return Step::Done(EndReason::ZonesDone) };
        if views.view(zone).is_managed {
            return Step::Wait;
        }
        self.rotor += 1;
        Step::Manage { kind, zone }
    }

    /// Fisher and Yates.
    fn shuffle_zones(&mut self) {
        for last in (1..self.zones.len()).rev() {
            let other = self.prng.below(last as u64 + 1) as usize;
            self.zones.swap(last, other);
        }
    }
}

/// The work of one job's workers until they have processed their zones; `None` if that never
/// happens.
pub(super) fn zone_work(
    job: &JobPlan,
    workers: &[Worker],
    views: &ZoneViews,
    block_size_bytes: u64,
) -> Option<ZoneWork> {
    let zones = || workers.iter().flat_map(|worker| worker.zones.iter().copied());
    if job.operation.is_management() {
        return Some(ZoneWork::Commands(zones().count() as u64));
    }
    if job.one_pass {
        let blocks = workers.iter().map(|worker| match job.parts {
            1 => worker.zones.iter().map(|&zone| views.readable(zone, job.request_blocks)).sum(),
            _ => worker.reader.parts_end * job.part_blocks,
        });
        return Some(ZoneWork::ReadBytes(blocks.sum::<u64>() * block_size_bytes));
    }
    if job.writes_forward() && job.on_full != OnFull::Reset {
        let limit = job.finish_at_blocks.unwrap_or(views.capacity());
        // Workers that append may share zones.
        let zones: BTreeSet<ZoneIndex> = zones().collect();
        let blocks: u64 = zones.iter().map(|&zone| limit.saturating_sub(views.written(zone))).sum();
        return Some(ZoneWork::WriteBytes(blocks * block_size_bytes));
    }
    None
}

/// Parts that a striped reader can read, in whole rows over its zones: up to the write pointer of
/// the least written zone, or all if that is less than one request.
fn readable_parts(job: &JobPlan, zones: &[ZoneIndex], views: &ZoneViews) -> u64 {
    let rows = zones.iter().map(|&zone| views.readable(zone, job.part_blocks) / job.part_blocks).min();
    let readable = rows.unwrap_or(0) * zones.len() as u64;
    if readable >= job.parts { readable } else { views.capacity() / job.part_blocks * zones.len() as u64 }
}
