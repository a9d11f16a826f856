//! Random jobs: whatever the plan accepts runs to completion without a device error.

use super::*;
use proptest::prelude::*;

/// One job in seven zones from `first` on.
pub(super) fn any_job(first: u32) -> impl Strategy<Value = String> {
    let operations = ["read", "randread", "write", "append", "reset", "finish", "open", "mix"];
    let orders = ["", "zone_order = \"round-robin\"\n", "zone_order = \"random\"\n", "zone_order = \"sequential\"\n"];
    let sizes = ["", "block_size = \"4 KiB\"\n", "block_size = \"20 KiB\"\n", "block_size = \"64 KiB\"\n"];
    let stripes = ["", "", "stripe = \"4 KiB\"\n", "stripe = \"16 KiB\"\n"];
    let full = ["", "on_full = \"reset\"\n", "on_full = \"next\"\n", "on_full = \"stop\"\n"];
    let finish = ["", "", "finish_at = 0.4\n", "finish_at = 0.9\n"];
    let fills = ["", "prefill = 0.3\n", "prefill = true\n", "prefill = false\n"];
    let paces = ["", "", "think_time = \"7 us\"\n", "rate = \"30000 IOPS\"\n"];
    let skews = ["", "distribution = { zipf = 0.8 }\n", "distribution = { hot = 0.2, of = 0.9 }\n"];
    let shares = ["", "share = \"all\"\n", "share = \"split\"\n"];
    let limits = ["", "operations = 300\n", "bytes = \"1 MiB\"\n"];
    let pick = |choices: &'static [&'static str]| proptest::sample::select(choices);
    let leak = |choices: Vec<&'static str>| -> &'static [&'static str] { choices.leak() };
    let lines = [
        pick(leak(orders.into())),
        pick(leak(sizes.into())),
        pick(leak(stripes.into())),
        pick(leak(full.into())),
        pick(leak(finish.into())),
        pick(leak(fills.into())),
        pick(leak(paces.into())),
        pick(leak(skews.into())),
        pick(leak(shares.into())),
        pick(leak(limits.into())),
    ];
    (pick(leak(operations.into())), lines, 1u32..6, 1u32..4).prop_map(move |(operation, lines, depth, workers)| {
        let is_writer = matches!(operation, "write" | "append" | "mix");
        let is_random = matches!(operation, "randread" | "mix");
        let is_management = matches!(operation, "reset" | "finish" | "open");
        let [order, size, stripe, full, finish, fill, pace, skew, share, limit] = lines;
        let when = |holds: bool, line: &'static str| if holds { line } else { "" };
        let mix = when(operation == "mix", "mix = { read = 3, write = 1, append = 2 }\n");
        [
            &format!(
                "[[job]]\nname = \"from {first}\"\noperation = \"{operation}\"\nzones = \"{first}..{}\"\n",
                first + 7
            ),
            &format!("queue_depth = {depth}\nworkers = {workers}\n"),
            mix,
            order,
            when(!is_management, size),
            when(!is_management && operation != "mix", stripe),
            when(is_writer, full),
            when(is_writer, finish),
            when(operation != "open", fill),
            pace,
            when(is_random, skew),
            share,
            when(!is_management, limit),
        ]
        .concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_valid_plan_runs_to_completion_without_errors(
        first in any_job(0),
        second in any_job(7),
        queue_slots in prop_oneof![Just(usize::MAX), 1usize..6],
        slow_zone in 0u32..14,
        seed in 0u32..100,
    ) {
        let text = format!("[run]\nseed = {seed}\ntime = \"3 ms\"\nramp = \"1 ms\"\n{first}{second}");
        let (run, jobs) = parse_jobs(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let Ok(plan) = Plan::new(&run, &jobs, &drive()) else { return Ok(()) };
        let execute = || {
            let mut device = FixedLatency::new(&drive(), 9_000);
            (device.queue_slots, device.slow_zone) = (queue_slots, Some((ZoneIndex(slow_zone), 31_000)));
            device.management_latency_ns = 50_000;
            fill(&mut device.oracle, &plan);
            let runner = Runner::new(plan.clone(), PayloadKind::None, NamespaceId::FIRST);
            (runner.run(&mut device, Instant(5), &mut |_| {}), device.taken)
        };
        let (result, taken) = execute();
        for job in &result.jobs {
            prop_assert!(job.errors.is_empty(), "{:?}\n{text}", job.errors);
            for figures in &job.kinds {
                prop_assert_eq!(figures.operations, figures.latency.count);
                prop_assert!(figures.latency.min_ns >= 9_000);
            }
        }
        // Samples cover the run without a gap, and contain at least the results.
        let covered: u64 = result.series.iter().map(|sample| sample.length_ns).sum();
        prop_assert_eq!(covered, result.elapsed_ns);
        for (index, job) in result.jobs.iter().enumerate() {
            let sampled: u64 = result.series.iter().map(|sample| sample.jobs[index].bytes).sum();
            prop_assert!(sampled >= job.kinds.iter().map(|figures| figures.bytes).sum());
        }
        prop_assert!(execute() == (result, taken), "the second run differs\n{text}");
    }
}
