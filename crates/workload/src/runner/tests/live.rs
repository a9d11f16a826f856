//! Runs on a clock.

use super::*;
use crate::Progress;
use zonda_zoned::{Duration, LiveClock, Status};

/// A clock that jumps to the end of each wait, or a little further.
struct Jump {
    now: Instant,
    late_ns: u64,
}

impl Jump {
    fn at(now: u64) -> Jump {
        Jump { now: Instant(now), late_ns: 0 }
    }
}

impl LiveClock for Jump {
    fn now(&mut self) -> Instant {
        self.now
    }

    fn wait(&mut self, until: Option<Instant>) {
        let until = until.expect("a run of these tests always has an event to wait for");
        if until > self.now {
            self.now = until + Duration(self.late_ns);
        }
    }
}

/// A disconnected device: every command fails immediately, or is refused.
struct Lost {
    namespaces: Namespaces,
    takes: bool,
    ended: CompletionQueue,
    submitted: u64,
}

impl Lost {
    fn new(takes: bool) -> Lost {
        Lost { namespaces: Namespaces::single(drive()), takes, ended: CompletionQueue::new(), submitted: 0 }
    }
}

impl ZonedDevice for Lost {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, _now: Instant, command: Command) -> Result<(), QueueFull> {
        self.submitted += 1;
        if !self.takes {
            return Err(QueueFull(command));
        }
        self.ended.push(Completion::of(command.id, Status::InternalError));
        Ok(())
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        while let Some(completion) = self.ended.pop() {
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        (!self.ended.is_empty()).then_some(Instant::ZERO)
    }
}

fn run_live(device: &mut dyn ZonedDevice, clock: &mut Jump, text: &str) -> RunResult {
    let plan = plan(device.geometry(NamespaceId::FIRST), text);
    Runner::new(plan, PayloadKind::None, NamespaceId::FIRST).run_live(device, clock, &mut |_| {})
}

const EVERYTHING: &str = "[run]\ntime = \"5 ms\"\n\
    [[job]]\noperation = \"mix\"\nmix = { read = 1, write = 1 }\nzones = \"0..4\"\non_full = \"reset\"\nqueue_depth = 3\n\
    [[job]]\noperation = \"append\"\nzones = \"4..8\"\non_full = \"reset\"\nrate = \"30000 IOPS\"\nqueue_depth = 4\n\
    [[job]]\noperation = \"randread\"\nzones = \"8..16\"\nprefill = false\nthink_time = \"20 us\"\nqueue_depth = 5\n";

#[test]
fn on_an_exact_clock_a_live_run_equals_one_in_virtual_time() {
    let mut device = FixedLatency::new(&drive(), 9_000);
    device.queue_slots = 6;
    let in_virtual_time = run_on(&mut device, EVERYTHING);
    let mut live_device = FixedLatency::new(&drive(), 9_000);
    live_device.queue_slots = 6;
    let live = run_live(&mut live_device, &mut Jump::at(77), EVERYTHING);
    assert_eq!(live.jobs, in_virtual_time.jobs);
    assert_eq!(live.series, in_virtual_time.series);
    assert!(device.taken == live_device.taken, "the commands differ");
}

#[test]
fn latencies_of_a_live_run_are_measured_by_the_clock() {
    let mut device = FixedLatency::new(&drive(), 10_000);
    let text = "[[job]]\noperation = \"append\"\nzones = 0\n";
    let result = run_live(&mut device, &mut Jump { now: Instant(5), late_ns: 1_500 }, text);
    let appends = result.jobs[0].kind(RequestKind::Append).unwrap();
    assert_eq!((appends.operations, appends.latency.min_ns, appends.latency.max_ns), (48, 11_500, 11_500));
}

#[test]
fn a_lost_device_ends_every_job_of_a_live_run_after_a_thousand_errors_of_a_kind() {
    let mut device = Lost::new(true);
    let result = run_live(&mut device, &mut Jump::at(0), &EVERYTHING.replace("5 ms", "10 s"));
    for job in &result.jobs {
        assert_eq!(job.ended_by, EndReason::Errors { status: Status::InternalError }, "{}", job.name);
        assert!(job.has_failed());
    }
    assert!(device.submitted < 10_000, "{} commands to a lost device", device.submitted);
}

#[test]
fn a_run_on_a_device_that_accepts_no_command_times_out_after_thirty_seconds() {
    for text in [EVERYTHING.replace("5 ms", "1 h"), EVERYTHING.replace("5 ms", "10 s")] {
        let (mut device, mut clock) = (Lost::new(false), Jump::at(0));
        let result = run_live(&mut device, &mut clock, &text);
        assert_eq!(clock.now, Instant(30_000_000_000));
        assert!(result.jobs.iter().all(JobResult::has_failed));
        assert!(result.jobs.iter().all(|job| matches!(job.ended_by, EndReason::Refused | EndReason::Time)));
        assert!(device.submitted < 20_000, "{} offers to a lost device", device.submitted);
    }
}

#[test]
fn progress_of_a_live_run_is_reported_without_completions() {
    let mut device = FixedLatency::new(&drive(), 1_000_000);
    let text = "[run]\ntime = \"1 ms\"\n[[job]]\noperation = \"append\"\nzones = 0\n";
    let plan = plan(&drive(), text);
    let mut reported: Vec<Progress> = Vec::new();
    let runner = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST);
    runner.run_live(&mut device, &mut Jump::at(0), &mut |progress| reported.push(progress));
    assert_eq!(reported.len(), 100);
    assert!(reported.is_sorted_by_key(|progress| progress.elapsed));
}
