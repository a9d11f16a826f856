//! What the host tells: processor time, memory.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// The value in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds this thread has spent on a processor, up to now: what `/proc` tells of a running thread is some milliseconds old.
pub(crate) fn cpu_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

/// Nanoseconds that all other threads of this process have spent on a processor, those that have ended included.
pub(crate) fn cpu_of_others_ns() -> u64 {
    // Its own time is read first, so it is never more than that of the whole process.
    let own = cpu_ns();
    clock_ns(ClockId::ProcessCPUTime) - own
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The most memory the process has held.
pub(crate) fn peak_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux tells each process's memory");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of it is the peak");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("which is a number of KiB");
    kib * 1024
}
