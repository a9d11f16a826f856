//! Executes a plan on a device, in virtual time or live.
//!
//! The loop: issue all possible commands, advance to the device's next wakeup or the next timer,
//! whichever is earlier, poll, record. No memory is allocated for an operation, except the
//! fingerprints of a device that keeps them, and stamped blocks when reads are verified. A live run
//! (`live.rs`) waits instead of advancing; everything else is the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use zonda_zoned::{CompletionQueue, Duration, Instant, NamespaceId, PayloadKind, Prng, TenantId, ZonedDevice};

use crate::limits::VIRTUAL_TIME_MAX_NS;
use crate::plan::JobPlan;
use crate::{JobResult, Plan, RunResult, TenantSpec};

mod block_records;
mod events;
mod flights;
mod issue;
mod job;
mod live;
mod payloads;
mod record;
#[cfg(test)]
mod tests;
mod verify;
mod worker;
mod writer;
mod zones;

use flights::Flights;
use job::{Job, later};
use payloads::Payloads;
use record::Recorder;
use verify::Verifier;
use worker::Worker;
use zones::ZoneViews;

/// Polls at one instant without a completion after which the device counts as broken.
const IDLE_POLLS_MAX: u32 = 10_000_000;

/// The progress of a run, reported at the end of each sample interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since the start of the run.
    pub elapsed: Duration,
    /// The time limit of the run, if the plan sets one.
    pub time: Option<Duration>,
    /// Requests completed by all jobs, ramp included.
    pub operations: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The completed share of the run, 0.0 to 1.0, if time, counts or zones limit it. The remaining
    /// work in zones is an estimate.
    pub fraction: Option<f64>,
}

/// A load generator for one run of one plan.
///
/// The zones of the device must be as [`Plan::prefill`] lists them, and no other client may write
/// to the jobs' zones during the run.
pub struct Runner {
    plan: Plan,
    keeps: PayloadKind,
    namespace: NamespaceId,
    is_prepared: bool,
}

/// A run in progress.
struct Run {
    plan: Plan,
    namespace: NamespaceId,
    block_size_bytes: u64,
    started: Instant,
    /// No command is issued from here on.
    clock_end: Instant,
    now: Instant,
    jobs: Vec<Job>,
    jobs_issuing: usize,
    workers: Vec<Worker>,
    zones: ZoneViews,
    flights: Flights,
    timers: BinaryHeap<Reverse<(Instant, u64, Timer)>>,
    timers_set: u64,
    /// Workers that may have commands to issue.
    ready: VecDeque<u32>,
    /// Workers that wait for a zone.
    blocked: Vec<u32>,
    /// Workers with a refused command, in the order of refusal.
    stalled: Vec<u32>,
    payloads: Payloads,
    verifier: Option<Box<Verifier>>,
    recorder: Recorder,
    /// Completions since time last advanced.
    standstill: u32,
    idle_polls: u32,
}

/// What a timer wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Worker(u32),
    JobEnd(u32),
}

impl Runner {
    /// A run of `plan` on a namespace of a device that keeps payloads of kind `keeps`.
    #[must_use]
    pub fn new(plan: Plan, keeps: PayloadKind, namespace: NamespaceId) -> Runner {
        Runner { plan, keeps, namespace, is_prepared: false }
    }

    /// Declares that [`crate::prepare`] has prepared the zones with the same plan: a run that
    /// verifies expects its blocks in them. Without this, prefilled zones may read as zeros.
    #[must_use]
    pub fn prepared(self) -> Runner {
        Runner { is_prepared: true, ..self }
    }

    /// Drives the device from `start` until all jobs have ended and all commands have completed.
    /// Calls `progress` at the end of each sample interval.
    ///
    /// A job that only a time limit would end, on a device that completes commands in zero time,
    /// ends with [`crate::EndReason::TimeStoodStill`]. One that is still running
    /// [`crate::limits::VIRTUAL_TIME_MAX_NS`] after `start` ends with
    /// [`crate::EndReason::ClockEnd`].
    ///
    /// # Panics
    /// When the namespace has another geometry than the plan was made for, or the device breaks its
    /// contract: it loses a command, completes one that it was not given, or wakes up forever
    /// without a completion.
    pub fn run<D: ZonedDevice + ?Sized>(
        self,
        device: &mut D,
        start: Instant,
        progress: &mut dyn FnMut(Progress),
    ) -> RunResult {
        self.run_observed(device, start, &mut |reported, _| progress(reported))
    }

    /// As [`Runner::run`], but `observe` also gets the device, in its state at the end of each
    /// sample interval.
    ///
    /// # Panics
    /// As [`Runner::run`].
    pub fn run_observed<D: ZonedDevice + ?Sized>(
        self,
        device: &mut D,
        start: Instant,
        observe: &mut dyn FnMut(Progress, &D),
    ) -> RunResult {
        self.check_geometry(device);
        let mut run = Run::new(self, start);
        let mut completions = CompletionQueue::new();
        loop {
            run.issue_ready(device);
            if run.is_over() {
                return run.result();
            }
            let wakeup = device.next_timeout();
            run.advance(wakeup, &mut |reported| observe(reported, device));
            run.fire_timers();
            if wakeup.is_some_and(|wakeup| wakeup <= run.now) {
                device.poll(run.now, &mut completions);
                run.idle_polls = if completions.is_empty() { run.idle_polls + 1 } else { 0 };
                assert!(
                    run.idle_polls < IDLE_POLLS_MAX,
                    "the device wakes up at {} without a completion, forever",
                    run.now
                );
                run.retry_stalled();
                while let Some(completion) = completions.pop() {
                    run.complete(&completion);
                }
            }
        }
    }

    fn check_geometry<D: ZonedDevice + ?Sized>(&self, device: &D) {
        let geometry = device.geometry(self.namespace);
        assert!(*geometry == self.plan.geometry, "the plan was made for a device of another geometry");
    }
}

impl Run {
    fn new(runner: Runner, started: Instant) -> Run {
        let Runner { mut plan, keeps, namespace, is_prepared } = runner;
        let root = Prng::new(plan.seed);
        let prefill = plan.prefill();
        let zones = ZoneViews::new(&plan.geometry, &prefill);
        let verifier =
            plan.verifies().then(|| Box::new(Verifier::new(&plan.geometry, plan.seed, &prefill, is_prepared)));
        let clock_end = later(started, Duration(VIRTUAL_TIME_MAX_NS));
        let planned_end = plan.time.map_or(clock_end, |time| later(started, time));
        let plans = std::mem::take(&mut plan.jobs);
        let largest = plans.iter().map(|job| job.part_blocks).max().unwrap_or(1);
        let mut run = Run {
            payloads: Payloads::new(keeps, &plan.geometry, largest, root.fork("workload/payload")),
            verifier,
            recorder: Recorder::new(started, planned_end, plan.sample),
            block_size_bytes: u64::from(plan.geometry.block_size_bytes),
            plan,
            namespace,
            started,
            clock_end,
            now: started,
            jobs: Vec::new(),
            jobs_issuing: plans.len(),
            workers: Vec::new(),
            zones,
            flights: Flights::default(),
            timers: BinaryHeap::new(),
            timers_set: 0,
            ready: VecDeque::new(),
            blocked: Vec::new(),
            stalled: Vec::new(),
            standstill: 0,
            idle_polls: 0,
        };
        for plan in plans {
            run.add_job(plan, &root);
        }
        run
    }

    fn add_job(&mut self, mut plan: JobPlan, root: &Prng) {
        let index = self.jobs.len() as u32;
        let first = self.workers.len() as u32;
        for (copy, zones) in std::mem::take(&mut plan.workers).into_iter().enumerate() {
            let prng = root.fork(&format!("workload/{}/{copy}", plan.name));
            let tenant = match plan.tenant {
                TenantSpec::Number(number) => TenantId(number),
                TenantSpec::EachWorker => TenantId(copy as u16 + 1),
            };
            let mut worker = Worker::new(index, &plan, zones, prng, &self.zones);
            worker.origin.tenant = tenant;
            self.workers.push(worker);
        }
        let work = worker::zone_work(&plan, &self.workers[first as usize..], &self.zones, self.block_size_bytes);
        let job = Job::new(plan, self.started, self.clock_end, first..self.workers.len() as u32, work);
        self.recorder.add_job(job.starts.max(later(self.started, self.plan.ramp)), job.until);
        for worker in job.workers.clone() {
            self.arm(worker, job.starts);
        }
        if job.plan.end.is_some() {
            self.set_timer(job.until, Timer::JobEnd(index));
        }
        self.jobs.push(job);
    }

    #[inline]
    fn issue_ready<D: ZonedDevice + ?Sized>(&mut self, device: &mut D) {
        while let Some(worker) = self.ready.pop_front() {
            self.workers[worker as usize].is_ready = false;
            self.issue(device, worker);
        }
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.jobs_issuing == 0 && self.flights.is_empty()
    }

    #[inline]
    fn make_ready(&mut self, index: u32) {
        let worker = &mut self.workers[index as usize];
        if !worker.is_ready {
            worker.is_ready = true;
            self.ready.push_back(index);
        }
    }

    fn wake_blocked(&mut self) {
        while let Some(index) = self.blocked.pop() {
            self.workers[index as usize].is_blocked = false;
            self.make_ready(index);
        }
    }

    fn retry_stalled(&mut self) {
        for index in std::mem::take(&mut self.stalled) {
            self.workers[index as usize].is_stalled = false;
            self.make_ready(index);
        }
    }

    /// Wakes a worker at `at` or at the end of virtual time, unless it is woken before.
    fn arm(&mut self, index: u32, at: Instant) {
        let at = at.min(self.clock_end);
        let worker = &mut self.workers[index as usize];
        if worker.timer.is_none_or(|timer| timer > at) {
            worker.timer = Some(at);
            self.set_timer(at, Timer::Worker(index));
        }
    }

    /// Timers of one instant fire in the order in which they were set.
    fn set_timer(&mut self, at: Instant, timer: Timer) {
        self.timers.push(Reverse((at, self.timers_set, timer)));
        self.timers_set += 1;
    }

    fn fraction(&self) -> Option<f64> {
        let by_time = self.plan.time.map(|time| self.now.since(self.started).0 as f64 / time.0 as f64);
        let by_counts: Option<f64> =
            self.jobs.iter().map(|job| job.fraction(self.now)).reduce(|least, other| match (least, other) {
                (Some(least), Some(other)) => Some(least.min(other)),
                _ => None,
            })?;
        by_time.into_iter().chain(by_counts).reduce(f64::max).map(|fraction| fraction.min(1.0))
    }

    fn result(mut self) -> RunResult {
        let since_start = |at: Instant| at.since(self.started).0;
        let measured_from = later(self.started, self.plan.ramp);
        let jobs: Vec<JobResult> = self
            .jobs
            .iter()
            .enumerate()
            .map(|(index, job)| {
                let (ended_by, ended) = job.end();
                let measured = ended.since(job.starts.max(measured_from));
                JobResult {
                    name: job.plan.name.clone(),
                    operation: job.plan.operation.name(),
                    started_ns: since_start(job.starts),
                    ended_ns: since_start(ended),
                    measured_ns: measured.0,
                    ended_by,
                    kinds: self.recorder.kinds(index, measured),
                    errors: self.recorder.errors(index),
                    verify_errors: self.recorder.verify_errors(index),
                }
            })
            .collect();
        let elapsed_ns = jobs.iter().map(|job| job.ended_ns).max().unwrap_or(0);
        let drained_ns = since_start(self.now).max(elapsed_ns);
        let (series, series_is_cut) = self.recorder.take_series(self.started + Duration(elapsed_ns));
        RunResult {
            seed: self.plan.seed,
            elapsed_ns,
            drained_ns,
            ramp_ns: self.plan.ramp.0,
            jobs,
            verified_blocks: self.verifier.map(|verifier| verifier.blocks_checked),
            series,
            series_is_cut,
        }
    }
}
