//! Requests that the SSD model simulates per second of CPU time, on one thread.
//!
//! Each case alternates with its baselines for several rounds, and the median is reported: `null`
//! is the same workload on a device that only applies the zone rules (the cost of the workload
//! generator), `heap` is the binary heap of the standard library with five pushes and pops per
//! request (the cost of a plain event loop). `docs/performance.md` has the figures and explains
//! them.

use std::collections::BinaryHeap;
use std::hint::black_box;

use serde::Serialize;
use zonda_layers::Null;
use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_workload::{Plan, Runner, parse_jobs};
use zonda_zoned::{Instant, NamespaceId, PayloadKind, Prng, ZonedDevice};

use crate::host::{cpu_ns, median, peak_memory_bytes};

/// Rounds of each case.
const ROUNDS: usize = 5;

/// A case.
struct Case {
    name: &'static str,
    profile: &'static str,
    job: &'static str,
}

const CASES: [Case; 8] = [
    Case {
        name: "4 KiB random reads, QD32, 128 dies",
        profile: "ezns-small",
        job: r#"
            [[job]]
            operation = "randread"
            block_size = "4 KiB"
            queue_depth = 32
            zones = "0..128"
            operations = 1000000
        "#,
    },
    Case {
        name: "4 KiB random reads, QD32, 32 dies",
        profile: "zn540",
        job: r#"
            [[job]]
            operation = "randread"
            block_size = "4 KiB"
            queue_depth = 32
            zones = "0..16"
            operations = 1000000
        "#,
    },
    Case {
        name: "4 KiB random reads, QD32, 40,704 zones",
        profile: "ezns-small",
        job: r#"
            [[job]]
            operation = "randread"
            block_size = "4 KiB"
            queue_depth = 32
            operations = 1000000
        "#,
    },
    Case {
        name: "4 KiB random reads, QD32, 3,690 zones",
        profile: "zn540",
        job: r#"
            [[job]]
            operation = "randread"
            block_size = "4 KiB"
            queue_depth = 32
            operations = 1000000
        "#,
    },
    Case {
        name: "128 KiB sequential writes, QD8, 128 dies",
        profile: "ezns-small",
        job: r#"
            [[job]]
            operation = "write"
            block_size = "128 KiB"
            queue_depth = 8
            zones = "0..256"
            zone_order = "round-robin"
            operations = 190000
        "#,
    },
    Case {
        name: "128 KiB sequential writes, QD8, 32 dies",
        profile: "zn540",
        job: r#"
            [[job]]
            operation = "write"
            block_size = "128 KiB"
            queue_depth = 8
            zones = "0..40"
            operations = 190000
        "#,
    },
    Case {
        name: "128 KiB writes, 8 workers, 40,704 zones",
        profile: "ezns-small",
        job: r#"
            [[job]]
            operation = "write"
            block_size = "128 KiB"
            workers = 8
            operations = 190000
        "#,
    },
    Case {
        name: "128 KiB writes, 8 workers, 3,690 zones",
        profile: "zn540",
        job: r#"
            [[job]]
            operation = "write"
            block_size = "128 KiB"
            workers = 8
            operations = 190000
        "#,
    },
];

/// The figures of a case: rates in requests per CPU second, and the CPU time before the first
/// request.
#[derive(Serialize)]
struct Figures {
    case: &'static str,
    model_per_cpu_second: f64,
    null_per_cpu_second: f64,
    heap_per_cpu_second: f64,
    model_over_heap: f64,
    start_ms: f64,
    peak_memory_bytes: u64,
}

/// Runs all cases and prints the results.
pub(crate) fn run_all(as_json: bool) {
    let figures: Vec<Figures> = CASES.iter().map(measure).collect();
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures are plain numbers"));
        return;
    }
    println!(
        "{:<42} {:>12} {:>12} {:>12} {:>11} {:>9}",
        "requests/CPU second (median)", "model", "null", "heap", "model/heap", "start ms"
    );
    for row in &figures {
        println!(
            "{:<42} {:>12.0} {:>12.0} {:>12.0} {:>11.2} {:>9.2}",
            row.case,
            row.model_per_cpu_second,
            row.null_per_cpu_second,
            row.heap_per_cpu_second,
            row.model_over_heap,
            row.start_ms
        );
    }
    let peak = figures.last().map_or(0, |row| row.peak_memory_bytes);
    println!("peak memory of the process: {:.1} MB", peak as f64 / 1e6);
}

fn measure(case: &Case) -> Figures {
    let (mut model, mut null, mut heap, mut start) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (per_cpu_second, start_ms) = run_model(case);
        model.push(per_cpu_second);
        start.push(start_ms);
        null.push(run_null(case));
        heap.push(run_heap());
    }
    let (model, null, heap) = (median(model), median(null), median(heap));
    Figures {
        case: case.name,
        model_per_cpu_second: model,
        null_per_cpu_second: null,
        heap_per_cpu_second: heap,
        model_over_heap: model / heap,
        start_ms: median(start),
        peak_memory_bytes: peak_memory_bytes(),
    }
}

/// Returns requests per CPU second, and the milliseconds that it takes to make the drive, to check
/// the job and to fill its zones.
fn run_model(case: &Case) -> (f64, f64) {
    let text = builtin_text(case.profile).expect("a built-in profile");
    let profile = Profile::parse(text).expect("built-in profiles are valid");
    let before = cpu_ns();
    let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
    let plan = plan(case, &drive);
    for (zone, blocks) in plan.prefill() {
        drive.prefill(zone, blocks).expect("whole zones need no active resource");
    }
    let start_ms = (cpu_ns() - before) as f64 / 1e6;
    (run(plan, &mut drive), start_ms)
}

fn run_null(case: &Case) -> f64 {
    let text = builtin_text(case.profile).expect("a built-in profile");
    let profile = Profile::parse(text).expect("built-in profiles are valid");
    let mut device = Null::new(profile.geometry());
    let plan = plan(case, &device);
    for (zone, blocks) in plan.prefill() {
        device.zones_mut().set_written(zone, blocks).expect("whole zones need no active resource");
    }
    run(plan, &mut device)
}

fn plan<D: ZonedDevice>(case: &Case, device: &D) -> Plan {
    let (run, jobs) = parse_jobs(case.job).expect("the job is valid");
    Plan::new(&run, &jobs, device.geometry(NamespaceId::FIRST)).expect("the drive supports it")
}

/// Runs a workload; returns requests per CPU second.
fn run<D: ZonedDevice>(plan: Plan, device: &mut D) -> f64 {
    let runner = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST);
    let before = cpu_ns();
    let result = runner.run(device, Instant::ZERO, &mut |_| {});
    let spent_ns = cpu_ns() - before;
    let job = &result.jobs[0];
    assert!(job.errors.is_empty(), "the load runs without errors: {:?}", job.errors);
    let operations: u64 = job.kinds.iter().map(|kind| kind.operations).sum();
    operations as f64 * 1e9 / spent_ns as f64
}

/// Five pushes and pops per request on the standard heap, with a hundred entries pending.
fn run_heap() -> f64 {
    const REQUESTS: u64 = 500_000;
    let mut prng = Prng::new(1);
    let mut heap: BinaryHeap<std::cmp::Reverse<(u64, u64)>> = BinaryHeap::new();
    for i in 0..100 {
        heap.push(std::cmp::Reverse((prng.below(100_000), i)));
    }
    let before = cpu_ns();
    for i in 0..REQUESTS * 5 {
        let std::cmp::Reverse((at, _)) = heap.pop().expect("a hundred entries are pending");
        heap.push(std::cmp::Reverse((at + prng.below(100_000), i)));
    }
    black_box(&heap);
    REQUESTS as f64 * 1e9 / (cpu_ns() - before) as f64
}
