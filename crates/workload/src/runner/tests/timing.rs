//! Arithmetic of queues, rates and pauses.

use super::*;
use crate::Progress;

const TEN_MICROSECONDS: u64 = 10_000;

#[test]
fn four_outstanding_reads_of_ten_microseconds_are_400_000_a_second() {
    let result =
        run(TEN_MICROSECONDS, "[run]\ntime = \"100 ms\"\n[[job]]\noperation = \"randread\"\nqueue_depth = 4\n");
    let job = &result.jobs[0];
    let reads = job.kind(RequestKind::Read).unwrap();
    // The four that complete at the end itself are not counted.
    assert_eq!(reads.operations, 40_000 - 4);
    assert_eq!(job.measured_ns, 100_000_000);
    assert!((reads.iops - 400_000.0).abs() < 100.0, "{}", reads.iops);
    assert_eq!(reads.bytes, reads.operations * 4096);
    assert_eq!((reads.latency.min_ns, reads.latency.mean_ns, reads.latency.max_ns), (10_000, 10_000, 10_000));
    assert_eq!((reads.latency.p50_ns, reads.latency.p99_99_ns), (10_000, 10_000));
    assert_eq!(job.ended_by, EndReason::Time);
    assert_eq!((result.elapsed_ns, result.drained_ns), (100_000_000, 100_000_000));
}

#[test]
fn a_queue_depth_counts_for_each_worker() {
    let text = "[run]\ntime = \"10 ms\"\n[[job]]\noperation = \"randread\"\nqueue_depth = 2\nworkers = 3\n";
    let mut device = FixedLatency::new(&drive(), TEN_MICROSECONDS);
    let result = run_on(&mut device, text);
    assert_eq!(operations(&result.jobs[0], RequestKind::Read), 6 * 999);
}

#[test]
fn completions_in_the_ramp_are_only_in_the_series() {
    let text = "[run]\ntime = \"10 ms\"\nramp = \"4 ms\"\nsample = \"1 ms\"\n[[job]]\noperation = \"randread\"\n";
    let result = run(TEN_MICROSECONDS, text);
    let job = &result.jobs[0];
    assert_eq!(job.measured_ns, 6_000_000);
    assert_eq!(operations(job, RequestKind::Read), 600);
    assert_eq!(result.series.len(), 10);
    assert_eq!(result.series[2].start_ns, 2_000_000);
    assert_eq!((result.series[0].jobs[0].operations, result.series[2].jobs[0].operations), (99, 100));
    assert_eq!(result.series[2].jobs[0].mean_latency_ns, 10_000);
    assert_eq!(result.series[2].jobs[0].p99_latency_ns, 10_000);
    let sum: u64 = result.series.iter().map(|sample| sample.jobs[0].operations).sum();
    assert_eq!(sum, 999);
}

#[test]
fn a_rate_of_operations_spaces_them_evenly() {
    let text = "[run]\ntime = \"100 ms\"\n[[job]]\noperation = \"randread\"\nrate = \"5000 IOPS\"\nqueue_depth = 8\n";
    let result = run(TEN_MICROSECONDS, text);
    assert_eq!(operations(&result.jobs[0], RequestKind::Read), 500);
    assert!(result.series.iter().all(|sample| sample.jobs[0].operations == 5), "{:?}", result.series);
}

#[test]
fn a_rate_of_bytes_is_shared_by_the_workers_of_a_job() {
    let text = "[run]\ntime = \"1 s\"\n[[job]]\noperation = \"randread\"\nrate = \"20 MiB/s\"\nblock_size = \"16 KiB\"\nworkers = 4\n";
    let mut device = FixedLatency::new(&drive(), TEN_MICROSECONDS);
    let result = run_on(&mut device, text);
    let reads = result.jobs[0].kind(RequestKind::Read).unwrap();
    assert!(reads.bytes.abs_diff(20 << 20) <= 16 << 10, "{}", reads.bytes);
}

#[test]
fn a_rate_above_the_device_s_gives_the_rate_of_the_device() {
    // One at a time at 10 us is 100,000 a second, half of what is asked for.
    let text = "[run]\ntime = \"10 ms\"\n[[job]]\noperation = \"randread\"\nrate = \"200000 IOPS\"\n";
    assert_eq!(operations(&run(TEN_MICROSECONDS, text).jobs[0], RequestKind::Read), 999);
}

#[test]
fn latency_counts_from_when_a_late_request_was_issued() {
    let text = "[[job]]\noperation = \"randread\"\nrate = \"200000 IOPS\"\noperations = 100\n";
    let result = run(TEN_MICROSECONDS, text);
    assert_eq!(result.jobs[0].kind(RequestKind::Read).unwrap().latency.max_ns, 10_000);
}

#[test]
fn think_time_pauses_each_queue_slot() {
    // 10 us of work and 40 us of pause: 20,000 a second for each of the two queue slots.
    let text = "[run]\ntime = \"100 ms\"\n[[job]]\noperation = \"randread\"\nqueue_depth = 2\nthink_time = \"40 us\"\n";
    let reads = operations(&run(TEN_MICROSECONDS, text).jobs[0], RequestKind::Read);
    assert_eq!(reads, 4_000);
}

#[test]
fn a_job_starts_late_and_is_measured_from_there() {
    let text = "[run]\ntime = \"10 ms\"\nramp = \"1 ms\"\n[[job]]\noperation = \"randread\"\nstart = \"6 ms\"\ntime = \"2 ms\"\n";
    let job = &run(TEN_MICROSECONDS, text).jobs[0];
    assert_eq!((job.started_ns, job.ended_ns, job.measured_ns), (6_000_000, 8_000_000, 2_000_000));
    assert_eq!(operations(job, RequestKind::Read), 199);
}

#[test]
fn the_rate_of_a_job_that_starts_late_counts_from_its_start() {
    // 5000 a second are 5 in each millisecond. Requests counted from the start of the run would all
    // be late at 60 ms, and the job would issue 300 of them as fast as the device takes them.
    let text = "[run]\ntime = \"100 ms\"\nsample = \"1 ms\"\n[[job]]\noperation = \"randread\"\nrate = \"5000 IOPS\"\n\
                start = \"60 ms\"\nqueue_depth = 8\n";
    let result = run(TEN_MICROSECONDS, text);
    assert_eq!(operations(&result.jobs[0], RequestKind::Read), 200);
    let per_sample: Vec<u64> = result.series.iter().map(|sample| sample.jobs[0].operations).collect();
    assert!(per_sample[..60].iter().all(|&count| count == 0), "nothing before its start: {per_sample:?}");
    assert!(per_sample[60..].iter().all(|&count| count == 5), "evenly from its start: {per_sample:?}");
}

#[test]
fn a_rate_of_bytes_of_a_job_that_starts_late_counts_from_its_start() {
    let text = "[run]\ntime = \"100 ms\"\nsample = \"10 ms\"\n[[job]]\noperation = \"randread\"\nrate = \"16 MiB/s\"\n\
                block_size = \"16 KiB\"\nstart = \"60 ms\"\n";
    let result = run(TEN_MICROSECONDS, text);
    // 1024 requests a second, about ten in each sample.
    let per_sample: Vec<u64> = result.series.iter().map(|sample| sample.jobs[0].operations).collect();
    assert!(per_sample[6..].iter().all(|count| (10..=11).contains(count)), "{per_sample:?}");
}

/// Latencies of 100 ns to 10 us, each once in a hundred commands.
fn uniform(number: u64) -> u64 {
    (number * 37 % 100 + 1) * 100
}

/// The latency that a share of all took at most, by sorting them.
fn percentile(latencies: &[u64], share: f64) -> u64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted[((share * sorted.len() as f64).ceil() as usize).max(1) - 1]
}

#[test]
fn percentiles_of_a_run_and_of_its_samples_are_those_of_the_sorted_latencies() {
    const SAMPLE_NS: u64 = 1_000_000;
    let mut device = FixedLatency::new(&drive(), 0);
    device.latency_by_number = Some(uniform);
    let result = run_on(&mut device, "[run]\ntime = \"10 ms\"\nsample = \"1 ms\"\n[[job]]\noperation = \"randread\"\n");
    // One read at a time: each completes its own latency after the one before.
    let ends = (0..).map(uniform).scan(0, |end, latency| {
        *end += latency;
        Some((*end, latency))
    });
    let completed: Vec<(u64, u64)> = ends.take_while(|(end, _)| *end < 10 * SAMPLE_NS).collect();

    let all: Vec<u64> = completed.iter().map(|(_, latency)| *latency).collect();
    let latency = result.jobs[0].kind(RequestKind::Read).expect("it reads").latency;
    assert_eq!(latency.count, all.len() as u64);
    for (got, share) in [
        (latency.p50_ns, 0.5),
        (latency.p95_ns, 0.95),
        (latency.p99_ns, 0.99),
        (latency.p99_9_ns, 0.999),
        (latency.p99_99_ns, 0.9999),
    ] {
        let exact = percentile(&all, share);
        assert!(got.abs_diff(exact) * 1000 <= exact, "{share} of the run: {got} for {exact}");
    }

    assert_eq!(result.series.len(), 10);
    for (number, sample) in (0..).zip(&result.series) {
        let within = completed.iter().filter(|(end, _)| end / SAMPLE_NS == number);
        let latencies: Vec<u64> = within.map(|(_, latency)| *latency).collect();
        let (job, exact) = (&sample.jobs[0], percentile(&latencies, 0.99));
        assert_eq!(job.operations, latencies.len() as u64, "sample {number}");
        assert!(
            job.p99_latency_ns.abs_diff(exact) * 100 <= exact,
            "sample {number}: {} for {exact}",
            job.p99_latency_ns
        );
    }
}

#[test]
fn a_striped_request_is_complete_when_its_slowest_part_is() {
    let text = "[[job]]\noperation = \"append\"\nblock_size = \"64 KiB\"\nstripe = \"16 KiB\"\nzones = \"0..4\"\noperations = 5\n";
    let mut device = FixedLatency::new(&drive(), TEN_MICROSECONDS);
    device.slow_zone = Some((ZoneIndex(2), 70_000));
    let result = run_on(&mut device, text);
    let appends = result.jobs[0].kind(RequestKind::Append).unwrap();
    assert_eq!((appends.operations, appends.bytes), (5, 5 * (64 << 10)));
    assert_eq!((appends.latency.min_ns, appends.latency.max_ns), (70_000, 70_000));
    assert_eq!(device.taken.len(), 20);
    assert_eq!(result.elapsed_ns, 350_000);
}

#[test]
fn a_command_refused_by_a_full_device_is_resubmitted_and_the_wait_counts_as_latency() {
    let mut device = FixedLatency::new(&drive(), TEN_MICROSECONDS);
    device.queue_slots = 3;
    let text = "[[job]]\noperation = \"randread\"\nqueue_depth = 8\nworkers = 2\noperations = 300\n";
    let result = run_on(&mut device, text);
    let reads = result.jobs[0].kind(RequestKind::Read).unwrap();
    assert_eq!(reads.operations, 300);
    assert_eq!(result.elapsed_ns, 100 * TEN_MICROSECONDS);
    assert!(reads.latency.max_ns > TEN_MICROSECONDS, "{}", reads.latency.max_ns);
}

#[test]
fn striped_requests_survive_a_full_device() {
    let mut device = FixedLatency::new(&drive(), TEN_MICROSECONDS);
    device.queue_slots = 3;
    let text = "[[job]]\noperation = \"write\"\nblock_size = \"32 KiB\"\nstripe = \"4 KiB\"\nzones = \"0..8\"\n\
                queue_depth = 4\nbytes = \"1 MiB\"\n";
    let result = run_on(&mut device, text);
    let writes = result.jobs[0].kind(RequestKind::Write).unwrap();
    assert_eq!((writes.bytes, writes.operations), (1 << 20, 32));
    assert!(result.jobs[0].errors.is_empty(), "{:?}", result.jobs[0].errors);
}

#[test]
fn progress_is_reported_once_each_interval_and_ends_near_one() {
    let mut seen: Vec<Progress> = Vec::new();
    let mut device = FixedLatency::new(&drive(), TEN_MICROSECONDS);
    let plan = plan(&drive(), "[run]\ntime = \"10 ms\"\n[[job]]\noperation = \"randread\"\nprefill = false\n");
    Runner::new(plan, PayloadKind::None, NamespaceId::FIRST)
        .run(&mut device, Instant::ZERO, &mut |progress| seen.push(progress));
    assert_eq!(seen.len(), 100);
    assert_eq!(seen[49].fraction, Some(0.5));
    assert_eq!((seen[49].operations, seen[49].bytes), (499, 499 * 4096));
    assert_eq!(seen[99].elapsed, seen[99].time.unwrap());
}

#[test]
fn a_device_may_be_a_trait_object() {
    let mut device: Box<dyn ZonedDevice> = Box::new(FixedLatency::new(&drive(), 1_000));
    let plan = plan(&drive(), "[[job]]\noperation = \"append\"\nzones = 3\n");
    let result = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST).run(&mut *device, Instant::ZERO, &mut |_| {});
    assert_eq!(operations(&result.jobs[0], RequestKind::Append), 48);
}

#[test]
fn a_job_that_ends_only_by_time_stops_on_a_device_without_latency() {
    let text = "[run]\ntime = \"1 s\"\n[[job]]\noperation = \"randread\"\n[[job]]\noperation = \"randread\"\noperations = 10\n";
    let result = run(0, text);
    assert_eq!(result.jobs[0].ended_by, EndReason::TimeStoodStill);
    assert_eq!(result.jobs[1].ended_by, EndReason::Operations);
    assert_eq!(result.elapsed_ns, 0);
    assert_eq!(result.jobs[0].kinds[0].iops, 0.0);
}

/// The fractions that a run of zones of 48 blocks reports, with a sample for each command.
fn fractions(text: &str) -> Vec<f64> {
    let mut device = FixedLatency::new(&drive(), TEN_MICROSECONDS);
    let plan = plan(&drive(), &format!("[run]\nsample = \"10 us\"\n{text}"));
    fill(&mut device.oracle, &plan);
    let mut seen = Vec::new();
    Runner::new(plan, PayloadKind::None, NamespaceId::FIRST).run(&mut device, Instant::ZERO, &mut |progress| {
        seen.push(progress.fraction.expect("zones determine the progress of the job"));
    });
    seen
}

#[test]
fn the_progress_of_a_job_that_ends_by_its_zones_is_its_progress_in_them() {
    for (job, commands) in [
        ("operation = \"write\"\nzones = \"0..4\"", 192),
        ("operation = \"write\"\nzones = \"0..4\"\nprefill = 0.25", 144),
        ("operation = \"append\"\nzones = \"0..4\"\nfinish_at = 0.5", 96),
        ("operation = \"append\"\nzones = \"0..4\"\nworkers = 2\nshare = \"all\"", 192),
        ("operation = \"read\"\nzones = \"0..4\"\nprefill = 0.5", 96),
        ("operation = \"reset\"\nzones = \"0..16\"", 16),
    ] {
        let seen = fractions(&format!("[[job]]\n{job}\n"));
        assert!(seen.is_sorted() && seen.last().is_some_and(|&last| last == 1.0), "{job}: {seen:?}");
        let middle = seen[seen.len() / 2];
        assert!((middle - 0.5).abs() < 0.1, "{job}: {middle} in the middle");
        assert!((seen[0] * f64::from(commands)).round() <= 2.0, "{job}: {} at first", seen[0]);
    }
}

#[test]
fn the_progress_of_a_run_is_that_of_its_slowest_job() {
    let seen = fractions(
        "[[job]]\noperation = \"write\"\nzones = 0\n[[job]]\noperation = \"write\"\nzones = \"1..5\"\n\
         [[job]]\noperation = \"randread\"\ntime = \"1 ms\"\nprefill = false\n",
    );
    assert!((seen[95] - 0.5).abs() < 0.02, "{}", seen[95]);
}
