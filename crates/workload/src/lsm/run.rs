//! The loop of a run: virtual time advances from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zonda_files::FileError;
use zonda_zoned::{Duration, Instant, Prng};

use super::client::{Client, Next};
use super::effect::{Effect, Waker};
use super::figures::{Figures, Series, sample_of};
use super::files::{Ended, Files};
use super::keys::Operations;
use super::meter::HostBytes;
use super::plan::{Load, StorePlan, TreeOptions};
use super::result::{StoreCounters, StoreEnd, StoreProgress, StoreSample};
use super::round::Phase;
use super::spec::StoreWorkload;
use super::store::{Answer, Store};
use crate::limits::VIRTUAL_TIME_MAX_NS;

/// Iterations at one instant without progress after which the device counts as broken.
const IDLE_ITERATIONS_MAX: u32 = 10_000_000;
/// Time for which a device without commands is waited for: a drive ends its programs, but a pool never
/// ceases to wake up.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// A run in progress.
pub(super) struct Run<F> {
    pub(super) load: Load,
    pub(super) tree: TreeOptions,
    pub(super) checks: bool,
    pub(super) prng: Prng,
    pub(super) files: F,
    pub(super) started: Instant,
    pub(super) now: Instant,
    pub(super) phase: Phase,
    /// Repetitions before this one.
    pub(super) round: u32,
    pub(super) store: Store,
    pub(super) source: Operations,
    pub(super) clients: Vec<Client>,
    pub(super) clients_busy: u32,
    /// Operations of this phase that have begun, and that have ended; without those of a client
    /// that only writes meanwhile.
    pub(super) begun: u64,
    pub(super) ended: u64,
    timers: BinaryHeap<Reverse<(Instant, u64, Timer)>>,
    timers_set: u64,
    /// The last wakeup that the files requested.
    files_wakeup: Option<Instant>,
    /// Requests were submitted since the files last ran.
    must_run_files: bool,
    idle_iterations: u32,
    pub(super) end: Option<StoreEnd>,
    pub(super) figures: Figures,
    pub(super) series: Series,
    pub(super) counted: Counted,
}

/// The counters of all repetitions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) operations: u64,
    pub(super) elapsed: Duration,
    pub(super) counters: StoreCounters,
    pub(super) host: HostBytes,
    /// When counting began, and the bytes transferred until then.
    pub(super) since: Option<(Instant, HostBytes)>,
}

/// What a timer wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Client(u32),
    Store(Waker),
}

impl<F: Files> Run<F> {
    pub(super) fn new(
        plan: &StorePlan,
        seed: u64,
        checks: bool,
        files: F,
        started: Instant,
        sample: Option<Duration>,
    ) -> Run<F> {
        let prng = Prng::new(seed);
        let load = plan.load;
        Run {
            source: Operations::new(&load, prng.fork("store/round/0")),
            store: Store::new(plan.tree.clone(), load.clients, checks),
            clients: vec![Client::default(); load.clients as usize],
            tree: plan.tree.clone(),
            load,
            checks,
            prng,
            files,
            started,
            now: started,
            phase: Phase::Formatting,
            round: 0,
            clients_busy: 0,
            begun: 0,
            ended: 0,
            timers: BinaryHeap::new(),
            timers_set: 0,
            files_wakeup: None,
            must_run_files: true,
            idle_iterations: 0,
            end: None,
            figures: Figures::new(),
            series: Series::new(started, sample),
            counted: Counted::default(),
        }
    }

    /// Runs until the plan is complete or has failed, then until the device is idle.
    pub(super) fn carry_out(&mut self, observe: &mut dyn FnMut(&StoreProgress, &F)) {
        loop {
            self.make_progress();
            if self.end.is_some() {
                break;
            }
            if self.enter_next_phase() {
                continue;
            }
            let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
            let Some(at) = timer.into_iter().chain(self.files_wakeup).min() else {
                self.fail(StoreEnd::Stuck);
                break;
            };
            if at.since(self.started).0 >= VIRTUAL_TIME_MAX_NS {
                self.fail(StoreEnd::ClockEnd);
                break;
            }
            self.advance(at, observe);
            self.must_run_files |= self.files_wakeup.is_some_and(|wakeup| wakeup <= self.now);
            self.fire_timers();
        }
        self.drain();
    }

    /// Begins an operation for a client, if one is left.
    pub(super) fn begin(&mut self, client: u32) {
        let Some(operation) = self.next_operation(client) else { return };
        self.clients[client as usize].start(self.now, operation);
        self.clients_busy += 1;
        self.set_timer(self.now + self.load.operation_cpu, Timer::Client(client));
    }

    /// Whether the client's operations are counted.
    #[inline]
    pub(super) fn counts(&self, client: u32) -> bool {
        self.load.workload != StoreWorkload::Readwhilewriting || client > 0 || self.phase == Phase::Preloading
    }

    /// Ends the run with a failure.
    pub(super) fn fail(&mut self, end: StoreEnd) {
        self.end.get_or_insert(end);
    }

    pub(super) fn sample(&self) -> StoreSample {
        StoreSample {
            at_ns: self.now.since(self.started).0,
            operations: self.counted.operations + if self.phase == Phase::Counting { self.ended } else { 0 },
            level0_tables: self.store.level0_tables() as u64,
            ..sample_of(&self.files.usage(), self.files.host_bytes())
        }
    }

    /// Makes all progress that is possible without advancing time.
    fn make_progress(&mut self) {
        loop {
            // The store has effects from the beginning; the files accept them when they are ready.
            while let Some(effect) = self.poll_effect() {
                self.perform(effect);
            }
            while let Some((client, answer)) = self.store.poll_answer() {
                self.on_answer(client, answer);
            }
            if !self.must_run_files || self.end.is_some() {
                return;
            }
            self.must_run_files = false;
            self.files.run_once(self.now);
            self.idle_iterations += 1;
            while let Some(ended) = self.files.poll() {
                self.idle_iterations = 0;
                self.on_ended(ended);
            }
            assert!(
                self.idle_iterations < IDLE_ITERATIONS_MAX,
                "the device wakes up at {} without a completion, forever",
                self.now
            );
            self.files_wakeup = self.files.next_timeout();
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        if self.phase == Phase::Formatting || self.end.is_some() { None } else { self.store.poll_effect() }
    }

    fn perform(&mut self, effect: Effect) {
        if let Effect::Wake { at, waker } = effect {
            return self.set_timer(at, Timer::Store(waker));
        }
        self.must_run_files = true;
        if let Err(error) = self.files.perform(effect) {
            self.fail_for(error);
        }
    }

    fn on_ended(&mut self, ended: Ended) {
        match ended {
            Ended::Ready => self.phase = Phase::Ready,
            Ended::Failed(error) | Ended::Request(_, Err(error)) => self.fail_for(error),
            Ended::Request(..) if self.end.is_some() => {}
            Ended::Request(owner, Ok(())) => self.store.on_done(self.now, owner),
        }
    }

    fn fail_for(&mut self, error: FileError) {
        self.fail(match error {
            FileError::NoSpace => StoreEnd::NoSpace,
            error => StoreEnd::Files { error: error.to_string() },
        });
    }

    /// Advances time to `at`, and takes the samples until then.
    #[inline]
    fn advance(&mut self, at: Instant, observe: &mut dyn FnMut(&StoreProgress, &F)) {
        let at = at.max(self.now);
        while self.series.next() <= at {
            self.now = self.series.next();
            let sample = self.sample();
            self.series.add(sample);
            if self.series.is_kept() {
                observe(&self.progress(sample), &self.files);
            }
        }
        if at > self.now {
            self.idle_iterations = 0;
        }
        self.now = at;
    }

    #[inline]
    fn fire_timers(&mut self) {
        while let Some(&Reverse((at, _, timer))) = self.timers.peek() {
            // The store's current effects come first.
            if at > self.now || self.store.has_effects() {
                return;
            }
            self.timers.pop();
            match timer {
                Timer::Store(waker) => self.store.on_wake(self.now, waker),
                Timer::Client(client) => {
                    let answer = self.clients[client as usize].ask(self.now, client, &mut self.store);
                    if let Some(answer) = answer {
                        self.on_answer(client, answer);
                    }
                }
            }
        }
    }

    fn on_answer(&mut self, client: u32, answer: Answer) {
        match self.clients[client as usize].on_answer(answer) {
            Next::GoesOn => self.set_timer(self.now + self.load.operation_cpu, Timer::Client(client)),
            Next::Ended { kind, started, found } => {
                self.clients_busy -= 1;
                self.ended += u64::from(self.counts(client));
                if self.phase == Phase::Counting {
                    self.figures.record(kind, self.now.since(started), found);
                }
                self.begin(client);
            }
        }
    }

    /// Timers of one instant fire in the order in which they were set.
    #[inline]
    fn set_timer(&mut self, at: Instant, timer: Timer) {
        self.timers.push(Reverse((at, self.timers_set, timer)));
        self.timers_set += 1;
    }

    /// Waits for the commands in flight on the device, and for what it does after the last one.
    fn drain(&mut self) {
        let clock_end = self.started + Duration(VIRTUAL_TIME_MAX_NS);
        let mut end = self.now + DRAIN_TIME_MAX;
        while let Some(at) = self.files.next_timeout().filter(|&at| at < clock_end) {
            if self.files.in_flight() > 0 {
                end = self.now.max(at) + DRAIN_TIME_MAX;
            } else if at > end {
                break;
            }
            self.idle_iterations = if at > self.now { 0 } else { self.idle_iterations + 1 };
            assert!(
                self.idle_iterations < IDLE_ITERATIONS_MAX,
                "the device wakes up at {} without a completion, forever",
                self.now
            );
            self.now = self.now.max(at);
            self.files.run_once(self.now);
            while self.files.poll().is_some() {}
        }
    }
}
