//! The events of a run: time advances, timers fire, commands complete.

use std::cmp::Reverse;

use zonda_zoned::{Completion, Duration, Instant, Key};

use super::flights::{Flight, Striped};
use super::job::later;
use super::{Progress, Run, Timer};
use crate::limits::{CONSECUTIVE_ERRORS_MAX, STANDSTILL_COMPLETIONS_MAX};
use crate::{EndReason, RequestKind};

impl Run {
    /// Advances to the next event.
    pub(super) fn advance(&mut self, wakeup: Option<Instant>, progress: &mut dyn FnMut(Progress)) {
        let Some(next) = wakeup.into_iter().chain(self.next_timer()).min() else {
            let outstanding = self.flights.len();
            panic!("no further event: the device has lost some of {outstanding} outstanding commands");
        };
        self.pass_to(next, progress);
    }

    /// The earliest instant at which a timer fires.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, ..))| *at).filter(|_| self.jobs_issuing > 0)
    }

    /// Advances time to `next`, unless that is past.
    pub(super) fn pass_to(&mut self, next: Instant, progress: &mut dyn FnMut(Progress)) {
        if next <= self.now {
            return;
        }
        self.now = next;
        (self.standstill, self.idle_polls) = (0, 0);
        if self.recorder.advance(next) {
            progress(Progress {
                elapsed: next.since(self.started),
                time: self.plan.time,
                operations: self.recorder.operations,
                bytes: self.recorder.bytes,
                fraction: self.fraction(),
            });
        }
    }

    pub(super) fn fire_timers(&mut self) {
        while let Some(&Reverse((at, _, timer))) = self.timers.peek()
            && at <= self.now
        {
            self.timers.pop();
            match timer {
                Timer::JobEnd(job) => self.stop(job, EndReason::Time),
                Timer::Worker(index) => {
                    let worker = &mut self.workers[index as usize];
                    if worker.timer == Some(at) {
                        worker.timer = None;
                    }
                    while worker.rests.front().is_some_and(|&rested| rested <= self.now) {
                        worker.rests.pop_front();
                        worker.outstanding -= 1;
                    }
                    if let Some(&rested) = worker.rests.front() {
                        self.arm(index, rested);
                    }
                    self.make_ready(index);
                }
            }
        }
    }

    #[inline]
    pub(super) fn complete(&mut self, completion: &Completion) {
        let flight = self.flights.end(completion.id);
        let job = self.workers[flight.worker as usize].job;
        let kind = flight.kind;
        let status = completion.status;
        if self.verifier.is_some() {
            self.verify(&flight, job, completion);
        }
        match kind {
            RequestKind::Write | RequestKind::Append if flight.is_counted_in_zone => {
                let was_last = self.zones.write_ended(flight.zone, status, flight.blocks, flight.epoch);
                if was_last {
                    self.wake_blocked();
                }
            }
            RequestKind::Reset | RequestKind::Finish => {
                self.zones.view_mut(flight.zone).is_managed = false;
                if status.is_success() {
                    self.zones.managed(flight.zone, kind);
                }
                self.wake_blocked();
            }
            _ => {}
        }
        if status.is_success() {
            self.jobs[job as usize].errors_in_row[kind as usize] = 0;
        } else {
            self.recorder.error(self.now, job, kind, status);
            let errors_in_row = &mut self.jobs[job as usize].errors_in_row[kind as usize];
            *errors_in_row += 1;
            if *errors_in_row >= CONSECUTIVE_ERRORS_MAX {
                self.stop(job, EndReason::Errors { status });
            }
        }
        match flight.request {
            None => self.complete_request(flight.worker, kind, flight.blocks, flight.issued, status.is_success()),
            Some(request) => {
                let striped = self.flights.part_ended(request, status.is_success());
                self.complete_striped(request, striped);
            }
        }
        self.standstill += 1;
        if self.standstill >= STANDSTILL_COMPLETIONS_MAX {
            self.stop_at_standstill();
        }
    }

    /// Reports a completion to the verifier, and counts its findings.
    fn verify(&mut self, flight: &Flight, job: u32, completion: &Completion) {
        let Some(verifier) = &mut self.verifier else { return };
        let Completion { id, status, outcome } = completion;
        let (wrong, first) = match flight.kind {
            RequestKind::Read if status.is_success() => verifier.read_ended(*id, outcome),
            RequestKind::Read => {
                verifier.forget(*id);
                return;
            }
            RequestKind::Write | RequestKind::Append => {
                let misplaced = verifier.write_ended(*id, *status, outcome);
                (if misplaced.is_some() { flight.blocks } else { 0 }, misplaced)
            }
            RequestKind::Reset => {
                verifier.reset_ended(flight.zone, status.is_success());
                return;
            }
            RequestKind::Finish | RequestKind::Open | RequestKind::Close => return,
        };
        if let Some(first) = first {
            self.recorder.verify_error(self.now, job, wrong, first);
        }
    }

    pub(super) fn complete_striped(&mut self, request: Key<Striped>, striped: Striped) {
        if striped.parts_in_flight == 0 && !striped.is_growing {
            self.flights.end_request(request);
            self.complete_request(striped.worker, striped.kind, striped.blocks, striped.issued, !striped.has_failed);
        }
    }

    #[inline]
    fn complete_request(&mut self, worker: u32, kind: RequestKind, blocks: u64, issued: Instant, is_success: bool) {
        let index = self.workers[worker as usize].job;
        let job = &mut self.jobs[index as usize];
        job.last_completion = self.now;
        if is_success {
            let bytes = blocks * self.block_size_bytes;
            self.recorder.success(self.now, index, kind, bytes, self.now.since(issued).0);
        }
        let think_time = job.plan.think_time;
        if think_time == Duration::ZERO {
            self.workers[worker as usize].outstanding -= 1;
            self.make_ready(worker);
        } else {
            // No pause lasts beyond the end of virtual time: the worker must see it.
            let rested = later(self.now, think_time).min(self.clock_end);
            self.workers[worker as usize].rests.push_back(rested);
            self.arm(worker, rested);
        }
    }
}
