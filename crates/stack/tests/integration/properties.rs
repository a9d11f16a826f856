//! What any SSD engineer would expect of a drive, on every profile of a zoned drive.
//!
//! Statements, not numbers: each runs two or more loads that differ in one thing, and compares them.
//! Service times are distributed, so a comparison allows a few percent ([`SLACK`]).

use zonda_profiles::BUILTIN;
use zonda_stack::{Experiment, ExperimentResult};
use zonda_workload::{KindResult, RequestKind};
use zonda_zoned::Prng;

use crate::PROFILES;

/// What a smaller result may be of a larger one, that is expected to be at least as large.
const SLACK: f64 = 0.93;

/// Profiles of zoned drives, and the number of zones that a load spreads over.
fn drives() -> Vec<(&'static str, u64)> {
    let zoned = |name: &&str| !["conventional", "tiny"].contains(name);
    let names = BUILTIN.iter().map(|(name, _)| *name).filter(zoned);
    names.map(|name| (name, if name == "ezns-small" || name == "bae-small" { 64 } else { 8 })).collect()
}

fn run(drive: &str, set: &str, jobs: &str) -> ExperimentResult {
    let text = format!("[drive]\nprofile = \"{drive}\"\n{set}\n[run]\ntime = \"120 ms\"\nramp = \"20 ms\"\n{jobs}");
    let experiment = Experiment::parse(&text, &PROFILES).unwrap_or_else(|error| panic!("{error}\n{text}"));
    experiment.run(&mut |_| {})
}

fn reader(zones: u64, block: &str, queue_depth: u64) -> String {
    format!(
        "[[job]]\nname = \"reader\"\noperation = \"randread\"\nzones = \"0..{zones}\"\nblock_size = \"{block}\"\n\
         queue_depth = {queue_depth}\n"
    )
}

/// Writers of the zones behind those that are read.
fn writers(first: u64, count: u64, block: &str, queue_depth: u64) -> String {
    format!(
        "[[job]]\nname = \"writers\"\noperation = \"append\"\nzones = \"{first}..{}\"\nworkers = {count}\n\
         block_size = \"{block}\"\nqueue_depth = {queue_depth}\n",
        first + count
    )
}

fn of(result: &ExperimentResult, job: usize, kind: RequestKind) -> KindResult {
    result.run.jobs[job].kind(kind).expect("the job has requests of this kind").clone()
}

fn reads(drive: &str, zones: u64, block: &str, queue_depth: u64) -> KindResult {
    of(&run(drive, "", &reader(zones, block, queue_depth)), 0, RequestKind::Read)
}

fn writes(drive: &str, count: u64, block: &str, queue_depth: u64) -> KindResult {
    of(&run(drive, "", &writers(0, count, block, queue_depth)), 0, RequestKind::Append)
}

/// At least as much, but for the slack.
fn grows(what: &str, drive: &str, values: &[f64]) {
    for pair in values.windows(2) {
        assert!(pair[1] >= pair[0] * SLACK, "{what} of {drive} must not fall: {values:?}");
    }
}

#[test]
fn latency_and_throughput_of_reads_grow_with_the_queue_depth() {
    for (drive, zones) in drives() {
        let all: Vec<KindResult> = [1, 4, 16, 64].map(|depth| reads(drive, zones, "4 KiB", depth)).into();
        grows("mean latency", drive, &all.iter().map(|it| it.latency.mean_ns as f64).collect::<Vec<f64>>());
        grows("p99", drive, &all.iter().map(|it| it.latency.p99_ns as f64).collect::<Vec<f64>>());
        grows("IOPS", drive, &all.iter().map(|it| it.iops).collect::<Vec<f64>>());
    }
}

#[test]
fn a_closed_loop_obeys_littles_law() {
    let mut prng = Prng::new(9).fork("properties");
    for (drive, zones) in drives() {
        for _ in 0..2 {
            let depth = 1 + prng.below(48);
            let block = ["4 KiB", "16 KiB", "64 KiB"][prng.below(3) as usize];
            let it = reads(drive, zones, block, depth);
            let outstanding = it.iops * (it.latency.mean_ns as f64) / 1e9;
            let error = (outstanding / depth as f64 - 1.0).abs();
            assert!(error < 0.05, "{drive}, {block} at QD{depth}: {outstanding:.2} outstanding on average");
        }
    }
}

#[test]
fn bandwidth_does_not_fall_with_more_zones() {
    for (drive, zones) in drives() {
        let counts = [1, zones / 4, zones];
        let read = counts.map(|count| reads(drive, count, "16 KiB", 32).bandwidth_bytes_per_second);
        grows("read bandwidth over more zones", drive, &read);
        let active = zones.min(8);
        let written = [1, active / 2, active].map(|count| writes(drive, count, "64 KiB", 2).bandwidth_bytes_per_second);
        grows("write bandwidth over more zones", drive, &written);
    }
}

#[test]
fn writers_do_not_make_reads_faster() {
    for (drive, zones) in drives() {
        let alone = of(&run(drive, "", &reader(zones, "4 KiB", 4)), 0, RequestKind::Read);
        let jobs = reader(zones, "4 KiB", 4) + &writers(zones, 4, "64 KiB", 2);
        let beside = of(&run(drive, "", &jobs), 0, RequestKind::Read);
        grows("p99 of reads beside writers", drive, &[alone.latency.p99_ns as f64, beside.latency.p99_ns as f64]);
        grows("mean of reads beside writers", drive, &[alone.latency.mean_ns as f64, beside.latency.mean_ns as f64]);
        assert!(beside.iops <= alone.iops / SLACK, "{drive}: {} and {} IOPS", beside.iops, alone.iops);
    }
}

#[test]
fn larger_reads_take_longer_and_move_more() {
    for (drive, zones) in drives() {
        let all: Vec<KindResult> = ["4 KiB", "16 KiB", "64 KiB"].map(|block| reads(drive, zones, block, 8)).into();
        grows(
            "mean latency of larger reads",
            drive,
            &all.iter().map(|it| it.latency.mean_ns as f64).collect::<Vec<f64>>(),
        );
        grows(
            "bandwidth of larger reads",
            drive,
            &all.iter().map(|it| it.bandwidth_bytes_per_second).collect::<Vec<f64>>(),
        );
    }
}

/// No work is done twice or never: what the drive programs for the host is what the host has
/// written, up to what its buffer holds.
#[test]
fn host_writes_are_programmed_once() {
    for (drive, _) in drives() {
        let text = format!(
            "[drive]\nprofile = \"{drive}\"\n[[job]]\nname = \"writer\"\noperation = \"append\"\nzones = \"0..4\"\n\
             block_size = \"64 KiB\"\nbytes = \"24 MiB\"\n"
        );
        let experiment = Experiment::parse(&text, &PROFILES).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let result = experiment.run(&mut |_| {});
        let written = of(&result, 0, RequestKind::Append).bytes;
        assert_eq!(written, 24 << 20, "{drive}");
        let counters = result.drive.counters;
        assert_eq!(counters.host_write_bytes, written, "{drive}");
        assert!(counters.programmed_host_bytes <= written, "{drive}: {counters:?}");
        assert_eq!(counters.erases, 0, "{drive}: nothing was reset");
    }
}

/// A load on a drive, drawn at random.
struct Load {
    drive: &'static str,
    zones: u64,
    block: &'static str,
    queue_depth: u64,
    writers: u64,
    seed: u64,
}

impl Load {
    fn draw(prng: &mut Prng) -> Load {
        let all = drives();
        let (drive, zones) = all[prng.below(all.len() as u64) as usize];
        Load {
            drive,
            zones: 1 + prng.below(zones),
            block: ["4 KiB", "8 KiB", "16 KiB", "32 KiB", "64 KiB"][prng.below(5) as usize],
            queue_depth: 1 + prng.below(64),
            writers: 1 + prng.below(6),
            seed: prng.below(1 << 32),
        }
    }

    /// The jobs, with `depth_factor` times the queue depth, and these writers beside them.
    fn jobs(&self, depth_factor: u64, writers_beside: u64) -> String {
        let reader = reader(self.zones, self.block, self.queue_depth * depth_factor);
        match writers_beside {
            0 => reader,
            count => reader + &writers(self.zones, count, "64 KiB", 2),
        }
    }

    fn reads(&self, depth_factor: u64, writers_beside: u64) -> (String, KindResult) {
        let text = format!(
            "[drive]\nprofile = \"{}\"\n[run]\nseed = {}\ntime = \"200 ms\"\nramp = \"20 ms\"\n{}",
            self.drive,
            self.seed,
            self.jobs(depth_factor, writers_beside)
        );
        let experiment = Experiment::parse(&text, &PROFILES).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let result = of(&experiment.run(&mut |_| {}), 0, RequestKind::Read);
        (text, result)
    }
}

fn statements_hold_for(load: &Load) {
    let (text, alone) = load.reads(1, 0);
    let outstanding = alone.iops * (alone.latency.mean_ns as f64) / 1e9;
    let error = (outstanding / load.queue_depth as f64 - 1.0).abs();
    assert!(error < 0.06, "{outstanding:.2} commands outstanding on average; the job file:\n{text}");
    let (text, deeper) = load.reads(2, 0);
    let least = |what: &str, it: f64, of: f64, text: &str| {
        assert!(it >= of * SLACK, "{what} is {it}, and {of} with a smaller load; the job file:\n{text}");
    };
    least("mean latency", deeper.latency.mean_ns as f64, alone.latency.mean_ns as f64, &text);
    least("IOPS", deeper.iops, alone.iops, &text);
    let (text, beside) = load.reads(1, load.writers);
    least("mean latency beside writers", beside.latency.mean_ns as f64, alone.latency.mean_ns as f64, &text);
    assert!(beside.iops <= alone.iops / SLACK, "{} IOPS beside writers, {} alone:\n{text}", beside.iops, alone.iops);
}

#[test]
fn the_statements_hold_for_random_loads() {
    let mut prng = Prng::new(22).fork("random loads");
    (0..3).for_each(|_| statements_hold_for(&Load::draw(&mut prng)));
}

/// Each run draws other loads; a failure prints the job file.
#[test]
#[ignore = "soak"]
#[expect(clippy::disallowed_types, reason = "a long test draws other loads each time")]
fn soak_the_statements_hold_for_random_loads() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("the clock is right");
    let mut prng = Prng::new(now.as_nanos() as u64).fork("random loads");
    (0..150).for_each(|_| statements_hold_for(&Load::draw(&mut prng)));
}
