//! Runs a workload on a simulated drive, in virtual time.

use zonda_stack::{Experiment, Profiles};

const LOAD: &str = r#"
[drive]
profile = "zn540"

[run]
time = "100 ms"

[[job]]
name = "log"
operation = "append"
zones = "0..4"
block_size = "16 KiB"
queue_depth = 4

[[job]]
name = "readers"
operation = "randread"
zones = "100..116"
block_size = "4 KiB"
queue_depth = 32
"#;

fn main() {
    for line in results() {
        println!("{line}");
    }
}

/// A line for each kind of request of each job.
pub fn results() -> Vec<String> {
    let profiles = Profiles::without_files(zonda_profiles::BUILTIN);
    let experiment = Experiment::parse(LOAD, &profiles).unwrap_or_else(|error| panic!("{error}"));
    let result = experiment.run(&mut |_| {});
    let lines = result.run.jobs.iter().flat_map(|job| {
        let kinds = job.kinds.iter();
        kinds.map(|kind| format!("{}: {:.0} IOPS, p99 {} ns", job.name, kind.iops, kind.latency.p99_ns))
    });
    lines.collect()
}
