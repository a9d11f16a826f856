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
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The most memory the process has held.
pub(crate) fn peak_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("Linux tells each process's memory");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of it is the peak");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("which is a number of KiB");
    kib * 1024
}

/// Nanoseconds that all other threads of this process have spent on a processor.
pub(crate) fn cpu_of_others_ns() -> u64 {
    let threads = fs::read_dir("/proc/self/task").expect("Linux lists each process's threads");
    let all: u64 = threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    all.saturating_sub(cpu_ns())
}
