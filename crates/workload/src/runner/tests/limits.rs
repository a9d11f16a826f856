//! Limits, errors, payloads, and the bounds of a series.

use super::*;
use crate::limits::{CONSECUTIVE_ERRORS_MAX, JOB_SAMPLES_MAX, SAMPLES_MAX, VIRTUAL_TIME_MAX_NS};
use zonda_zoned::{Outcome, Status};

#[test]
fn a_job_ends_with_its_bytes_rounded_up_to_whole_requests() {
    let text =
        "[[job]]\noperation = \"append\"\nblock_size = \"16 KiB\"\nbytes = \"40 KiB\"\nzones = 0\nqueue_depth = 2\n";
    let job = run(1_000, text).jobs.remove(0);
    assert_eq!((operations(&job, RequestKind::Append), job.ended_by), (3, EndReason::Bytes));
    assert_eq!(job.ended_ns, 2_000, "two at a time, and then the third");
}

#[test]
fn limits_are_those_of_all_workers_together() {
    let text = "[[job]]\noperation = \"randread\"\nworkers = 3\nqueue_depth = 2\noperations = 50\n";
    assert_eq!(operations(&run(1_000, text).jobs[0], RequestKind::Read), 50);
}

#[test]
fn a_job_whose_every_command_fails_stops_and_reports_why() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    for zone in 0..16 {
        device.oracle.degrade(ZoneIndex(zone), ZoneState::Offline);
    }
    let text = "[run]\ntime = \"1 s\"\n[[job]]\noperation = \"randread\"\nqueue_depth = 4\nprefill = false\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!(job.ended_by, EndReason::Errors { status: Status::ZoneIsOffline });
    assert_eq!(job.errors.len(), 1);
    assert_eq!((job.errors[0].kind, job.errors[0].status), (RequestKind::Read, Status::ZoneIsOffline));
    assert!((1000..1004).contains(&job.errors[0].count), "{}", job.errors[0].count);
    assert!(job.kinds.is_empty());
    assert_eq!(CONSECUTIVE_ERRORS_MAX, 1000);
}

#[test]
fn a_writer_skips_offline_zones() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    device.oracle.degrade(ZoneIndex(1), ZoneState::ReadOnly);
    let text = "[[job]]\noperation = \"append\"\nzones = \"0..3\"\nqueue_depth = 2\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!((operations(&job, RequestKind::Append), job.ended_by), (96, EndReason::ZonesDone));
    assert_eq!((job.error_count(), job.errors[0].status), (2, Status::ZoneIsReadOnly));
}

#[test]
fn a_writer_continues_when_another_job_fills_its_zone() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"write\"\nzones = \"0..2\"\nqueue_depth = 3\nthink_time = \"1 us\"\n\
                [[job]]\noperation = \"finish\"\nzones = 0\nstart = \"10 us\"\n";
    let result = run_on(&mut device, text);
    assert_eq!(result.jobs[0].ended_by, EndReason::ZonesDone);
    assert!(zones(&mut device.oracle)[..2].iter().all(|zone| zone.0 == ZoneState::Full));
    assert_eq!(result.jobs[0].error_count(), 0, "{:?}", result.jobs[0].errors);
}

/// Fails one write in seven before it reaches the oracle, like a device that loses a transfer.
struct Lossy(FixedLatency, u32);

impl ZonedDevice for Lossy {
    fn namespaces(&self) -> &Namespaces {
        self.0.namespaces()
    }
    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.1 += 1;
        if self.1 % 7 == 3 {
            let at = (Instant(now.0 + 1_000), u64::from(u32::MAX) + u64::from(self.1));
            self.0.waiting.insert(at, Completion::of(command.id, Status::DataTransferError));
            return Ok(());
        }
        self.0.submit(now, command)
    }
    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.0.poll(now, completions);
    }
    fn next_timeout(&self) -> Option<Instant> {
        self.0.next_timeout()
    }
}

#[test]
fn a_writer_resumes_where_a_write_failed_and_fills_its_zones() {
    for operation in ["write", "append"] {
        let mut device = Lossy(FixedLatency::new(&drive(), 1_000), 0);
        let plan =
            plan(&drive(), &format!("[[job]]\noperation = \"{operation}\"\nzones = \"0..3\"\nqueue_depth = 5\n"));
        let runner = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST);
        let job = runner.run(&mut device, Instant::ZERO, &mut |_| {}).jobs.remove(0);
        assert_eq!(job.ended_by, EndReason::ZonesDone);
        assert!(job.errors.iter().any(|error| error.status == Status::DataTransferError));
        assert_eq!(job.kinds[0].bytes, 3 * 48 * 4096, "{operation}");
        assert!(zones(&mut device.0.oracle)[..3].iter().all(|zone| zone.0 == ZoneState::Full), "{operation}");
    }
}

#[test]
fn payloads_are_of_the_kind_that_the_device_keeps() {
    let geometry = Geometry { metadata_bytes: 8, ..drive() };
    for keeps in [PayloadKind::None, PayloadKind::Fingerprints, PayloadKind::Bytes] {
        let mut oracle = ReferenceDevice::new(geometry.clone(), keeps);
        let plan = plan(&geometry, "[[job]]\noperation = \"append\"\nblock_size = \"16 KiB\"\nzones = 0\n");
        let result = Runner::new(plan, keeps, NamespaceId::FIRST).run(&mut oracle, Instant::ZERO, &mut |_| {});
        assert!(result.jobs[0].errors.is_empty(), "{:?}", result.jobs[0].errors);
        let read = Operation::Read { start: zonda_zoned::Lba(0), blocks: Blocks(8) };
        let command = Command::new(zonda_zoned::CommandId(1), NamespaceId::FIRST, read);
        let Outcome::Data(data) = oracle.execute(&command).outcome else { panic!("no data") };
        match (keeps, data) {
            (PayloadKind::None, Payload::None) => {}
            (PayloadKind::Fingerprints, Payload::Fingerprints(prints)) => {
                assert!(prints.iter().all(|&print| print != 0));
                assert_ne!(prints[0], prints[4]);
            }
            (PayloadKind::Bytes, Payload::Bytes(buffer)) => {
                assert_ne!(buffer.data[..4096], buffer.data[16_384..20_480]);
                assert_eq!(buffer.metadata.len(), 64);
            }
            (keeps, data) => panic!("{keeps:?} gave {data:?}"),
        }
    }
}

#[test]
fn a_series_that_is_too_long_is_truncated() {
    // Without a time limit the interval is 10 ms, and these operations take 20 minutes.
    let text = "[[job]]\noperation = \"randread\"\noperations = 1200\nthink_time = \"1 s\"\n";
    let result = run(1_000, text);
    assert!(result.series_is_cut);
    assert_eq!(result.series.len() as u64, SAMPLES_MAX);
    assert_eq!(operations(&result.jobs[0], RequestKind::Read), 1200);
}

#[test]
fn the_last_sample_may_be_shorter() {
    let text = "[run]\nsample = \"1 ms\"\n[[job]]\noperation = \"randread\"\noperations = 250\n";
    let result = run(10_000, text);
    let lengths: Vec<u64> = result.series.iter().map(|sample| sample.length_ns).collect();
    assert_eq!(lengths, [1_000_000, 1_000_000, 500_000]);
    let sum: u64 = result.series.iter().map(|sample| sample.jobs[0].operations).sum();
    assert_eq!(sum, 250);
}

#[test]
#[should_panic(expected = "another geometry")]
fn a_plan_for_another_geometry_is_refused() {
    let plan = plan(&drive_with_conventional_zones(), "[[job]]\noperation = \"append\"\n");
    let mut device = FixedLatency::new(&drive(), 1);
    let _ = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST).run(&mut device, Instant::ZERO, &mut |_| {});
}

#[test]
fn a_pause_beyond_the_end_of_virtual_time_ends_the_job_there() {
    let result = run(1_000, "[[job]]\noperation = \"write\"\nthink_time = \"8760 h\"\n");
    let job = &result.jobs[0];
    assert_eq!(job.ended_by, EndReason::ClockEnd);
    assert_eq!(job.ended_by.to_string(), "virtual time ends after 100 years");
    assert_eq!((operations(job, RequestKind::Write), job.ended_ns), (100, VIRTUAL_TIME_MAX_NS));
}

#[test]
fn a_rate_too_slow_for_its_operations_is_kept_until_the_end_of_virtual_time() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"randread\"\nrate = \"1 B/s\"\noperations = 5000000\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!(job.ended_by, EndReason::ClockEnd);
    assert_eq!(device.taken.len() as u64, (VIRTUAL_TIME_MAX_NS / 1_000_000_000).div_ceil(4096));
}

#[test]
fn jobs_that_end_by_themselves_are_not_delayed_by_one_that_virtual_time_ends() {
    let text = "[[job]]\noperation = \"write\"\nzones = \"6..12\"\nthink_time = \"8760 h\"\nworkers = 2\n\
                [[job]]\noperation = \"write\"\nzones = 4\n[[job]]\noperation = \"append\"\nzones = 5\ntime = \"8760 h\"\n\
                on_full = \"reset\"\nrate = \"1 B/s\"\n";
    let reasons: Vec<EndReason> = run(1_000, text).jobs.iter().map(|job| job.ended_by).collect();
    assert_eq!(reasons, [EndReason::ClockEnd, EndReason::ZonesDone, EndReason::Time]);
}

/// Fails one write in so many, before or after it is executed.
struct FailsWrites {
    device: FixedLatency,
    every: u64,
    happens: bool,
    writes: u64,
    failing: Vec<zonda_zoned::CommandId>,
}

impl FailsWrites {
    fn new(every: u64, happens: bool) -> FailsWrites {
        let device = FixedLatency::new(&drive(), 1_000);
        FailsWrites { device, every, happens, writes: 0, failing: Vec::new() }
    }

    fn run(&mut self, text: &str) -> JobResult {
        let runner = Runner::new(plan(&drive(), text), PayloadKind::None, NamespaceId::FIRST);
        runner.run(self, Instant::ZERO, &mut |_| {}).jobs.remove(0)
    }
}

impl ZonedDevice for FailsWrites {
    fn namespaces(&self) -> &Namespaces {
        self.device.namespaces()
    }
    fn submit(&mut self, now: Instant, mut command: Command) -> Result<(), QueueFull> {
        if matches!(command.operation, Operation::Write { .. }) {
            self.writes += 1;
            if self.writes.is_multiple_of(self.every) {
                self.failing.push(command.id);
                if !self.happens {
                    let read = Operation::Read { start: zonda_zoned::Lba(0), blocks: Blocks(1) };
                    command.operation = read;
                }
            }
        }
        self.device.submit(now, command)
    }
    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut inner = CompletionQueue::new();
        self.device.poll(now, &mut inner);
        while let Some(completion) = inner.pop() {
            let failing = self.failing.iter().position(|&id| id == completion.id);
            completions.push(match failing {
                Some(index) => Completion::of(self.failing.swap_remove(index), Status::InternalError),
                None => completion,
            });
        }
    }
    fn next_timeout(&self) -> Option<Instant> {
        self.device.next_timeout()
    }
}

#[test]
fn successful_reads_do_not_hide_that_every_write_of_a_mix_fails() {
    let text = "[[job]]\noperation = \"mix\"\nmix = { read = 3, write = 3 }\nzones = \"0..2\"\nprefill = 0.5\n";
    let mut device = FailsWrites::new(1, false);
    let filled = plan(&drive(), text);
    fill(&mut device.device.oracle, &filled);
    let job = device.run(text);
    assert_eq!(job.ended_by, EndReason::Errors { status: Status::InternalError });
    assert_eq!(job.ended_by.to_string(), "1,000 commands in a row failed, the last with: internal error");
    assert_eq!(job.error_count(), u64::from(CONSECUTIVE_ERRORS_MAX));
    assert!(operations(&job, RequestKind::Read) > 500);
}

#[test]
fn a_writer_leaves_a_zone_in_which_a_failed_write_was_executed_and_continues_with_the_next() {
    for depth in [1, 4] {
        let mut device = FailsWrites::new(20, true);
        let mix = format!("mix = {{ read = 3, write = 3 }}\nzones = \"0..4\"\nqueue_depth = {depth}\n");
        let job = device.run(&format!("[[job]]\noperation = \"mix\"\n{mix}"));
        assert_eq!(job.ended_by, EndReason::ZonesDone, "queue depth {depth}");
        let statuses: Vec<Status> = job.errors.iter().map(|error| error.status).collect();
        assert!(statuses.contains(&Status::InternalError) && statuses.contains(&Status::ZoneInvalidWrite));
        assert!(job.error_count() < 100, "{:?}", job.errors);
    }
}

#[test]
fn a_writer_with_on_full_reset_resets_a_zone_whose_write_pointer_is_unknown() {
    let mut device = FailsWrites::new(20, true);
    let text = "[[job]]\noperation = \"write\"\nzones = 0\non_full = \"reset\"\noperations = 500\n";
    let job = device.run(text);
    assert_eq!(job.ended_by, EndReason::Operations);
    assert!(operations(&job, RequestKind::Write) > 400, "{:?}", job.errors);
}

#[test]
fn a_series_with_too_many_samples_times_jobs_is_truncated() {
    let jobs = "[[job]]\noperation = \"randread\"\n".repeat(200);
    let result = run(100_000, &format!("[run]\ntime = \"60 ms\"\nsample = \"10 us\"\n{jobs}"));
    assert!(result.series_is_cut);
    assert_eq!(result.series.len() as u64, JOB_SAMPLES_MAX / 200);
    assert_eq!(operations(&result.jobs[199], RequestKind::Read), 599, "the run itself continues");
}
