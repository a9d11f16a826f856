//! Issues commands, and ends jobs.

use zonda_zoned::{Blocks, Command, CommandId, Lba, Operation, Payload, QueueFull, ZoneIndex, ZonedDevice};

use super::Run;
use super::flights::Flight;
use super::worker::{Partial, Step};
use crate::{EndReason, RequestKind};

impl Run {
    /// Issues all commands that a worker can issue now.
    pub(super) fn issue<D: ZonedDevice + ?Sized>(&mut self, device: &mut D, index: u32) {
        while let Some(command) = self.workers[index as usize].held.pop_front() {
            if !self.submit(device, index, command) {
                return;
            }
        }
        loop {
            let worker = &mut self.workers[index as usize];
            let job_index = worker.job;
            let job = &self.jobs[job_index as usize];
            if worker.is_done || job.stopped.is_some() {
                self.abandon_partial(index);
                return;
            }
            if self.now < job.starts {
                return;
            }
            if self.now >= job.until {
                let reason = job.reason_at_until();
                self.stop(job_index, reason);
                continue;
            }
            if worker.partial.is_none() {
                if job.plan.is_batch && worker.outstanding == 0 {
                    worker.is_refilling = true;
                }
                if worker.outstanding >= job.plan.queue_depth {
                    worker.is_refilling = false;
                }
                let waits_for_batch = job.plan.is_batch && !worker.is_refilling;
                if worker.outstanding >= job.plan.queue_depth || waits_for_batch {
                    return;
                }
                if let Some(reason) = job.limit_reached() {
                    self.stop(job_index, reason);
                    continue;
                }
                if let Some(due) = job.due()
                    && due > self.now
                {
                    self.arm(index, due);
                    return;
                }
            }
            match worker.next(&job.plan, &mut self.zones) {
                Step::Data { kind, zone, start, blocks } => {
                    let command = self.data(index, kind, zone, start, blocks);
                    if !self.submit(device, index, command) {
                        return;
                    }
                }
                Step::Manage { kind, zone } => {
                    let flight = self.management(index, kind, zone);
                    let operation = kind.management(&self.plan.geometry, zone);
                    let command = Command::new(self.flights.begin(flight), self.namespace, operation);
                    let command = command.with_origin(self.workers[index as usize].origin);
                    if kind == RequestKind::Reset
                        && let Some(verifier) = &mut self.verifier
                    {
                        verifier.reset(zone);
                    }
                    if !self.submit(device, index, command) {
                        return;
                    }
                }
                Step::Wait => {
                    if !worker.is_blocked {
                        worker.is_blocked = true;
                        self.blocked.push(index);
                    }
                    return;
                }
                Step::Done(EndReason::ZonesDone) => {
                    worker.is_done = true;
                    self.abandon_partial(index);
                    let job = &mut self.jobs[job_index as usize];
                    job.workers_issuing -= 1;
                    if job.workers_issuing == 0 {
                        self.stop(job_index, EndReason::ZonesDone);
                    }
                }
                Step::Done(reason) => self.stop(job_index, reason),
            }
        }
    }

    /// Submits a command. One that the device refuses is kept by its worker, which issues nothing
    /// else before it. Returns false then.
    #[inline]
    fn submit<D: ZonedDevice + ?Sized>(&mut self, device: &mut D, index: u32, command: Command) -> bool {
        let Err(QueueFull(command)) = device.submit(self.now, command) else { return true };
        let worker = &mut self.workers[index as usize];
        worker.held.push_front(command);
        if !worker.is_stalled {
            worker.is_stalled = true;
            self.stalled.push(index);
        }
        false
    }

    /// Records a read, write or append, and builds its command.
    #[inline]
    fn data(&mut self, index: u32, kind: RequestKind, zone: ZoneIndex, start: Lba, blocks: u64) -> Command {
        let worker = &mut self.workers[index as usize];
        let job = &mut self.jobs[worker.job as usize];
        if worker.partial.is_none() {
            worker.outstanding += 1;
            job.issued_operations += 1;
        }
        job.issued_bytes += blocks * self.block_size_bytes;
        let request = match job.plan.parts {
            1 => None,
            parts => {
                let partial = worker.partial.take().unwrap_or_else(|| Partial {
                    request: self.flights.begin_request(index, kind, self.now),
                    parts_left: parts,
                });
                let parts_left = partial.parts_left - 1;
                worker.partial = (parts_left > 0).then_some(Partial { parts_left, ..partial });
                self.flights.add_part(partial.request, blocks, parts_left > 0);
                Some(partial.request)
            }
        };
        let is_counted_in_zone = kind != RequestKind::Read && job.plan.writes_forward();
        if is_counted_in_zone {
            job.issued_forward_bytes += blocks * self.block_size_bytes;
        }
        let flight = Flight {
            worker: index,
            kind,
            zone,
            request,
            is_counted_in_zone,
            epoch: if is_counted_in_zone { self.zones.view(zone).epoch } else { 0 },
            blocks,
            issued: self.now,
        };
        let id = self.flights.begin(flight);
        let length = Blocks(blocks);
        let operation = match kind {
            RequestKind::Read => {
                if let Some(verifier) = &mut self.verifier {
                    verifier.read(id, zone, start, blocks);
                }
                Operation::Read { start, blocks: length }
            }
            RequestKind::Write => {
                Operation::Write { start, blocks: length, payload: self.payload(id, zone, start, blocks) }
            }
            _ => Operation::Append {
                zone_start: self.zones.start(zone),
                blocks: length,
                payload: self.payload(id, zone, start, blocks),
            },
        };
        Command::new(id, self.namespace, operation).with_origin(self.workers[index as usize].origin)
    }

    #[inline]
    fn payload(&mut self, id: CommandId, zone: ZoneIndex, start: Lba, blocks: u64) -> Payload {
        match &mut self.verifier {
            None => self.payloads.next(blocks),
            Some(verifier) => verifier.write(id, zone, start, blocks),
        }
    }

    /// Records a command for a zone as a whole.
    fn management(&mut self, index: u32, kind: RequestKind, zone: ZoneIndex) -> Flight {
        let worker = &mut self.workers[index as usize];
        let job = &mut self.jobs[worker.job as usize];
        worker.outstanding += 1;
        if job.plan.operation.is_management() {
            job.issued_operations += 1;
        }
        if matches!(kind, RequestKind::Reset | RequestKind::Finish) {
            self.zones.view_mut(zone).is_managed = true;
        }
        Flight {
            worker: index,
            kind,
            zone,
            request: None,
            is_counted_in_zone: false,
            epoch: 0,
            blocks: 0,
            issued: self.now,
        }
    }

    /// Stops a job. The first reason counts.
    pub(super) fn stop(&mut self, index: u32, reason: EndReason) {
        let job = &mut self.jobs[index as usize];
        if job.stopped.is_some() {
            return;
        }
        job.stopped = Some(reason);
        self.jobs_issuing -= 1;
        // Each worker runs once more, to end a request that it has begun.
        for worker in job.workers.clone() {
            self.make_ready(worker);
        }
    }

    pub(super) fn stop_at_standstill(&mut self) {
        self.standstill = 0;
        for index in 0..self.jobs.len() as u32 {
            if !self.jobs[index as usize].plan.ends_without_time() {
                self.stop(index, EndReason::TimeStoodStill);
            }
        }
    }

    /// Completes a striped request with the issued parts if the others cannot be issued.
    fn abandon_partial(&mut self, index: u32) {
        if let Some(partial) = self.workers[index as usize].partial.take() {
            let striped = self.flights.stop_growing(partial.request);
            self.complete_striped(partial.request, striped);
        }
    }
}
