//! A run in real time: the same state machine, with an external clock.

use zonda_zoned::{Completion, CompletionQueue, Instant, LiveClock, Status, ZonedDevice};

use super::{Progress, Run, Runner};
use crate::limits::REFUSAL_MAX_NS;
use crate::{EndReason, RunResult};

impl Runner {
    /// Drives the device as [`run`](Runner::run) does, but in the time of `clock`: latencies are
    /// from the submission of a request to the iteration in which its completion was found,
    /// including the time of the host itself.
    ///
    /// A device that fails every command ends each job after
    /// [`crate::limits::CONSECUTIVE_ERRORS_MAX`] errors. A device that accepts no command for
    /// [`REFUSAL_MAX_NS`] and has none in flight ends all jobs, with [`EndReason::Refused`].
    ///
    /// # Panics
    /// When the namespace has another geometry than the plan was made for, or the device completes
    /// a command that it was not given.
    pub fn run_live<D: ZonedDevice + ?Sized>(
        self,
        device: &mut D,
        clock: &mut dyn LiveClock,
        progress: &mut dyn FnMut(Progress),
    ) -> RunResult {
        self.check_geometry(device);
        let mut run = Run::new(self, clock.now());
        let mut refused_since = None;
        let mut completions = CompletionQueue::new();
        loop {
            run.issue_ready(device);
            if run.is_over() {
                return run.result();
            }
            refused_since = refused_since.or(Some(run.now)).filter(|_| run.is_refused());
            let timeout_at = refused_since.map(|since| since + zonda_zoned::Duration(REFUSAL_MAX_NS));
            let own = [run.next_timer(), run.next_sample(), timeout_at];
            clock.wait(own.into_iter().chain([device.next_timeout()]).flatten().min());
            run.pass_to(clock.now(), progress);
            run.fire_timers();
            device.poll(run.now, &mut completions);
            run.retry_stalled();
            while let Some(completion) = completions.pop() {
                run.complete(&completion);
            }
            if timeout_at.is_some_and(|end| run.now >= end) && run.is_refused() {
                run.abort();
            }
        }
    }
}

impl Run {
    /// Whether the device has refused commands, and has none in flight that could free a queue
    /// slot.
    fn is_refused(&self) -> bool {
        let held: usize = self.workers.iter().map(|worker| worker.held.len()).sum();
        held > 0 && held == self.flights.len()
    }

    /// Ends all jobs. The commands that the device did not accept fail.
    fn abort(&mut self) {
        for index in 0..self.jobs.len() as u32 {
            self.stop(index, EndReason::Refused);
        }
        for index in 0..self.workers.len() {
            while let Some(command) = self.workers[index].held.pop_front() {
                self.complete(&Completion::of(command.id, Status::NamespaceNotReady));
            }
        }
    }

    /// When the sample interval ends, so that progress is reported without completions.
    fn next_sample(&self) -> Option<Instant> {
        Some(self.recorder.sample_end()).filter(|end| *end > self.now)
    }
}
