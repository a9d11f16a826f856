//! CPU time and memory of this process.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of this thread in nanoseconds: `/proc` is some milliseconds behind for a running
/// thread.
pub(crate) fn cpu_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

/// CPU time in nanoseconds of all other threads of this process, including ended ones.
pub(crate) fn cpu_of_others_ns() -> u64 {
    // The time of this thread is read first, so that it does not exceed that of the process.
    let own = cpu_ns();
    clock_ns(ClockId::ProcessCPUTime) - own
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Peak memory of the process.
pub(crate) fn peak_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux reports the memory of each process");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of it is the peak");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("which is a number of KiB");
    kib * 1024
}
