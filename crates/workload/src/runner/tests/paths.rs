//! Addresses of requests: zones, orders, shares, mixes and skew.

use super::*;

/// The zones of the data commands, in order.
fn zones_taken(device: &FixedLatency) -> Vec<u32> {
    device.taken.iter().filter_map(|command| device.zone_of(command)).map(|zone| zone.0).collect()
}

#[test]
fn a_sequential_writer_fills_one_zone_after_the_other_and_ends() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"write\"\nblock_size = \"16 KiB\"\nzones = [2, 5]\nqueue_depth = 4\n";
    let result = run_on(&mut device, text);
    assert_eq!(result.jobs[0].ended_by, EndReason::ZonesDone);
    assert!(result.jobs[0].errors.is_empty());
    assert_eq!(zones_taken(&device), [vec![2; 12], vec![5; 12]].concat());
    let zones = zones(&mut device.oracle);
    assert_eq!((zones[2].0, zones[5].0, zones[3].0), (ZoneState::Full, ZoneState::Full, ZoneState::Empty));
}

#[test]
fn workers_that_share_zones_in_ranges_have_neighbors() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text =
        "[[job]]\noperation = \"read\"\nblock_size = \"96 KiB\"\nzones = \"0..5\"\nworkers = 2\nshare = \"ranges\"\n";
    run_on(&mut device, text);
    // Worker 0 has zones 0 to 2, and worker 1 zones 3 and 4; each zone is two reads.
    assert_eq!(zones_taken(&device), [0, 3, 0, 3, 1, 4, 1, 4, 2, 2]);
}

#[test]
fn a_batch_is_issued_when_all_requests_of_the_last_one_have_completed() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    // The first request of a batch of three takes twice as long as the others.
    device.latency_by_number = Some(|number| if number % 3 == 0 { 2_000 } else { 1_000 });
    let text = |batch: &str| format!("[[job]]\noperation = \"randread\"\nqueue_depth = 3\noperations = 9\n{batch}\n");
    let batches = run_on(&mut device, &text("batch = true"));
    assert_eq!(batches.jobs[0].ended_ns, 3 * 2_000);
    device.taken.clear();
    let mut device = FixedLatency::new(&drive(), 1_000);
    device.latency_by_number = Some(|number| if number % 3 == 0 { 2_000 } else { 1_000 });
    assert!(run_on(&mut device, &text("")).jobs[0].ended_ns < 3 * 2_000);
    assert!(
        run_on(&mut FixedLatency::new(&drive(), 1_000), &text("batch = true\nthink_time = \"5 us\"")).jobs[0].ended_ns
            >= 13_000
    );
}

#[test]
fn commands_have_the_tenant_of_their_job_or_worker() {
    let tenants = |tenant: &str| {
        let mut device = FixedLatency::new(&drive(), 1_000);
        run_on(&mut device, &format!("[[job]]\noperation = \"append\"\nworkers = 2\noperations = 2\n{tenant}\n"));
        device.taken.iter().map(|command| command.origin.tenant.0).collect::<Vec<_>>()
    };
    assert_eq!(tenants(""), [0, 0]);
    assert_eq!(tenants("tenant = 7"), [7, 7]);
    assert_eq!(tenants("tenant = \"worker\""), [1, 2]);
}

#[test]
fn a_writer_that_resets_full_zones_cycles_and_measures_the_resets() {
    let mut device = FixedLatency::new(&drive(), 10_000);
    device.management_latency_ns = 500_000;
    let text = "[[job]]\noperation = \"write\"\nblock_size = \"64 KiB\"\nzones = \"0..2\"\non_full = \"reset\"\nqueue_depth = 2\noperations = 15\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!(operations(&job, RequestKind::Write), 15);
    // Both zones hold three requests: the third and fourth filling are preceded by a reset each,
    // the fifth as well.
    let resets = job.kind(RequestKind::Reset).unwrap();
    assert_eq!((resets.operations, resets.bytes), (3, 0));
    assert_eq!(resets.latency.min_ns, 500_000);
    assert_eq!((job.ended_by, job.errors.len()), (EndReason::Operations, 0));
}

#[test]
fn a_writer_continues_where_the_prefill_ends() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"write\"\nblock_size = \"4 KiB\"\nzones = \"0..2\"\nprefill = 0.5\n";
    let result = run_on(&mut device, text);
    assert_eq!(operations(&result.jobs[0], RequestKind::Write), 48);
    assert!(result.jobs[0].errors.is_empty());
}

#[test]
fn the_last_request_of_a_zone_is_shorter_so_that_the_zone_ends_up_full() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    // 48 blocks hold four requests of ten, and one of eight.
    let text = "[[job]]\noperation = \"append\"\nblock_size = \"40 KiB\"\nzones = 1\n";
    let result = run_on(&mut device, text);
    let appends = result.jobs[0].kind(RequestKind::Append).unwrap();
    assert_eq!((appends.operations, appends.bytes), (5, 48 * 4096));
    assert_eq!(zones(&mut device.oracle)[1].0, ZoneState::Full);
}

#[test]
fn a_writer_that_stops_at_a_full_zone_leaves_the_others() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"write\"\nzones = \"0..2\"\non_full = \"stop\"\n";
    let result = run_on(&mut device, text);
    assert_eq!(result.jobs[0].ended_by, EndReason::ZoneFull);
    assert_eq!(operations(&result.jobs[0], RequestKind::Write), 48);
}

#[test]
fn a_round_robin_writer_takes_the_next_zone_with_each_operation() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"write\"\nzones = \"0..3\"\nzone_order = \"round-robin\"\noperations = 7\n";
    run_on(&mut device, text);
    assert_eq!(zones_taken(&device), [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn a_random_writer_fills_all_its_zones() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"append\"\nzones = \"0..3\"\nzone_order = \"random\"\nqueue_depth = 5\n";
    let result = run_on(&mut device, text);
    assert_eq!(operations(&result.jobs[0], RequestKind::Append), 3 * 48);
    assert!(zones(&mut device.oracle)[..3].iter().all(|zone| zone.0 == ZoneState::Full));
    let first = &zones_taken(&device)[..30];
    assert!([0, 1, 2].iter().all(|zone| first.contains(zone)), "{first:?}");
}

#[test]
fn zones_are_finished_at_a_fraction_and_reset_in_the_next_cycle() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    device.management_latency_ns = 9_000;
    let text = "[[job]]\noperation = \"write\"\nblock_size = \"16 KiB\"\nzones = \"0..2\"\nfinish_at = 0.5\non_full = \"reset\"\n\
                queue_depth = 3\noperations = 24\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    // Half of a zone is six requests: four fillings, three of them seen to be finished before the
    // last request is out.
    assert_eq!(operations(&job, RequestKind::Write), 24);
    assert_eq!(operations(&job, RequestKind::Finish), 3);
    assert_eq!(operations(&job, RequestKind::Reset), 2);
    assert_eq!(job.kind(RequestKind::Finish).unwrap().latency.max_ns, 9_000);
    assert!(job.errors.is_empty());
}

#[test]
fn finished_zones_are_skipped_like_full_zones() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"append\"\nzones = \"0..3\"\nfinish_at = 0.25\nzone_order = \"round-robin\"\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!((operations(&job, RequestKind::Append), operations(&job, RequestKind::Finish)), (36, 3));
    assert_eq!(job.ended_by, EndReason::ZonesDone);
    assert!(zones(&mut device.oracle)[..3].iter().all(|zone| zone.0 == ZoneState::Full));
}

#[test]
fn workers_that_append_may_share_zones_and_never_overfill_them() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"append\"\nblock_size = \"20 KiB\"\nzones = \"0..4\"\nworkers = 3\nshare = \"all\"\nqueue_depth = 4\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!(job.kind(RequestKind::Append).unwrap().bytes, 4 * 48 * 4096);
    assert!(job.errors.is_empty(), "{:?}", job.errors);
}

#[test]
fn workers_that_split_zones_get_them_round_robin() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"write\"\nzones = \"0..5\"\nworkers = 2\noperations = 4\n";
    run_on(&mut device, text);
    assert_eq!(zones_taken(&device), [0, 1, 0, 1]);
}

#[test]
fn a_reader_without_a_limit_reads_everything_once() {
    for order in ["sequential", "round-robin", "random"] {
        let mut device = FixedLatency::new(&drive(), 1_000);
        let text = format!(
            "[[job]]\noperation = \"read\"\nblock_size = \"20 KiB\"\nzones = \"3..6\"\nzone_order = \"{order}\"\n"
        );
        let job = run_on(&mut device, &text).jobs.remove(0);
        assert_eq!(job.ended_by, EndReason::ZonesDone, "{order}");
        let mut read = vec![0; 1024];
        for command in &device.taken {
            let Operation::Read { start, blocks } = command.operation else { panic!("not a read") };
            (start.0..start.0 + blocks.0).for_each(|block| read[block as usize] += 1);
        }
        for (block, &times) in read.iter().enumerate() {
            let expected = u32::from((3..6).contains(&(block / 64)) && block % 64 < 48);
            assert_eq!(times, expected, "{order}, block {block}");
        }
    }
}

#[test]
fn a_reader_with_a_limit_starts_over() {
    let text = "[[job]]\noperation = \"read\"\nzones = \"0..2\"\noperations = 200\n";
    let job = run(1_000, text).jobs.remove(0);
    assert_eq!((operations(&job, RequestKind::Read), job.ended_by), (200, EndReason::Operations));
}

#[test]
fn a_striped_reader_reads_the_places_of_a_striped_writer() {
    // Reads follow the writes over the same zones: zone and place of each part are the same.
    let places = |operation: &str| {
        let mut device = FixedLatency::new(&drive(), 1_000);
        let text = format!(
            "[[job]]\noperation = \"{operation}\"\nblock_size = \"24 KiB\"\nstripe = \"8 KiB\"\nzones = \"0..4\"\noperations = 20\n"
        );
        run_on(&mut device, &text);
        let starts = device.taken.iter().map(|command| match command.operation {
            Operation::Read { start, .. } | Operation::Write { start, .. } => start.0,
            _ => panic!("neither read nor write"),
        });
        starts.collect::<Vec<_>>()
    };
    assert_eq!(places("read"), places("write"));
}

#[test]
fn random_reads_stay_within_what_is_written() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"randread\"\nblock_size = \"8 KiB\"\nzones = \"0..4\"\nprefill = 0.5\noperations = 2000\n";
    run_on(&mut device, text);
    let mut seen = std::collections::BTreeSet::new();
    for command in &device.taken {
        let Operation::Read { start, blocks } = command.operation else { panic!("not a read") };
        assert!(start.0 % 64 + blocks.0 <= 24 && start.0 < 256 && start.0 % 2 == 0, "{start}");
        seen.insert(start.0);
    }
    assert_eq!(seen.len(), 4 * 12, "every place is read some time");
}

#[test]
fn a_mix_has_its_weights_within_one_percent() {
    let text = "[[job]]\noperation = \"mix\"\nmix = { read = 70, append = 30 }\nzones = \"0..4\"\nqueue_depth = 4\non_full = \"reset\"\noperations = 100000\n";
    let job = run(1_000, text).jobs.remove(0);
    let (reads, appends) = (operations(&job, RequestKind::Read), operations(&job, RequestKind::Append));
    assert_eq!(reads + appends, 100_000);
    assert!((69_500..70_500).contains(&reads), "{reads}");
    assert!(job.errors.is_empty() && operations(&job, RequestKind::Reset) > 100);
}

#[test]
fn a_mix_reads_only_what_is_written() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text =
        "[[job]]\noperation = \"mix\"\nmix = { read = 1, write = 1 }\nzones = \"0..8\"\nblock_size = \"16 KiB\"\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!((operations(&job, RequestKind::Write), job.ended_by), (8 * 12, EndReason::ZonesDone));
    let mut written = [0; 16];
    for command in &device.taken {
        match command.operation {
            Operation::Write { start, blocks, .. } => written[start.0 as usize / 64] = start.0 % 64 + blocks.0,
            Operation::Read { start, blocks } => assert!(start.0 % 64 + blocks.0 <= written[start.0 as usize / 64]),
            _ => panic!("neither read nor write"),
        }
    }
}

#[test]
fn zipf_reads_have_the_skew_of_the_distribution() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"randread\"\ndistribution = { zipf = 0.99 }\noperations = 100000\n";
    run_on(&mut device, text);
    let mut counts = BTreeMap::new();
    for command in &device.taken {
        let Operation::Read { start, .. } = command.operation else { panic!("not a read") };
        *counts.entry(start.0).or_insert(0u32) += 1;
    }
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|left, right| right.cmp(left));
    let zeta: f64 = (1..=768).map(|rank| f64::from(rank).powf(-0.99)).sum();
    for rank in [0, 1] {
        let (got, expected) = (f64::from(counts[rank]), 100_000.0 * (rank as f64 + 1.0).powf(-0.99) / zeta);
        assert!((got / expected - 1.0).abs() < 0.05, "rank {rank}: {got} for {expected}");
    }
    let top: u32 = counts[..76].iter().sum();
    let expected: f64 = (1..=76).map(|rank| 100_000.0 * f64::from(rank).powf(-0.99) / zeta).sum();
    assert!((f64::from(top) / expected - 1.0).abs() < 0.03, "the top tenth: {top} for {expected}");
}

#[test]
fn random_writes_go_to_conventional_zones() {
    let mut device = FixedLatency::new(&drive_with_conventional_zones(), 1_000);
    let text = "[[job]]\noperation = \"randwrite\"\nqueue_depth = 8\nworkers = 2\noperations = 3000\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!((operations(&job, RequestKind::Write), job.error_count()), (3000, 0));
    assert!([0, 1, 2, 3].iter().all(|zone| zones_taken(&device).contains(zone)));
}

#[test]
fn a_conventional_zone_is_rewritten_without_a_reset() {
    let mut device = FixedLatency::new(&drive_with_conventional_zones(), 1_000);
    let text = "[[job]]\noperation = \"write\"\nzones = \"0..2\"\non_full = \"reset\"\noperations = 500\n";
    let job = run_on(&mut device, text).jobs.remove(0);
    assert_eq!((operations(&job, RequestKind::Write), operations(&job, RequestKind::Reset)), (500, 0));
    assert!(job.errors.is_empty());
}

#[test]
fn management_jobs_visit_each_zone_once() {
    for (operation, kind, state) in [
        ("reset", RequestKind::Reset, ZoneState::Empty),
        ("finish", RequestKind::Finish, ZoneState::Full),
        ("open", RequestKind::Open, ZoneState::ExplicitlyOpened),
    ] {
        for order in ["sequential", "random"] {
            let mut device = FixedLatency::new(&drive(), 1_000);
            let text = format!(
                "[[job]]\noperation = \"{operation}\"\nzones = \"2..9\"\nworkers = 2\nzone_order = \"{order}\"\n"
            );
            let job = run_on(&mut device, &text).jobs.remove(0);
            assert_eq!((operations(&job, kind), job.ended_by), (7, EndReason::ZonesDone), "{operation}");
            assert!(zones(&mut device.oracle)[2..9].iter().all(|zone| zone.0 == state), "{operation}");
        }
    }
}

#[test]
fn zones_are_opened_and_closed_by_one_job_after_the_other() {
    let mut device = FixedLatency::new(&drive(), 1_000);
    let text = "[[job]]\noperation = \"open\"\nzones = \"0..5\"\n[[job]]\noperation = \"close\"\nzones = \"0..5\"\nstart = \"1 ms\"\n";
    let result = run_on(&mut device, text);
    assert!(result.jobs.iter().all(|job| job.errors.is_empty()));
    assert!(zones(&mut device.oracle)[..5].iter().all(|zone| zone.0 == ZoneState::Closed));
}

#[test]
fn a_reader_follows_a_writer_of_the_same_zones() {
    let mut device = FixedLatency::new(&drive(), 10_000);
    let text = "[run]\ntime = \"2 ms\"\n[[job]]\noperation = \"append\"\nzones = \"0..2\"\n[[job]]\noperation = \"randread\"\nzones = \"0..2\"\nstart = \"1 ms\"\n";
    let result = run_on(&mut device, text);
    assert_eq!(result.jobs[0].ended_by, EndReason::ZonesDone, "the default prefill excludes a writer's zones");
    let mut written = [0u64; 2];
    for command in &device.taken {
        match command.operation {
            Operation::Append { zone_start, blocks, .. } => written[zone_start.0 as usize / 64] += blocks.0,
            Operation::Read { start, blocks } => assert!(start.0 % 64 + blocks.0 <= written[start.0 as usize / 64]),
            _ => panic!("neither read nor append"),
        }
    }
}
