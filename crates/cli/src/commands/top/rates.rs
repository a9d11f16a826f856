//! [`Rates`]: the activity of a namespace between two snapshots.

use serde::Serialize;
use zonda_exports::LATENCY_BOUNDS_NS;
use zonda_exports::snapshot::{CommandSnapshot, NamespaceSnapshot};

/// Commands that move data, from the host and to it. Others are not counted as I/O: zone management
/// takes as long as the drive needs to erase.
const READS: [&str; 1] = ["read"];
const WRITES: [&str; 3] = ["write", "append", "write zeroes"];

/// Rates and latencies of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) read_bytes_per_s: f64,
    pub(super) write_bytes_per_s: f64,
    pub(super) read_iops: f64,
    /// Writes and Zone Appends.
    pub(super) write_iops: f64,
    /// Both.
    pub(super) iops: f64,
    /// Commands of any kind that failed.
    pub(super) errors_per_s: f64,
    /// Of reads and writes, from their submission to the drive to their completion; absent if there
    /// were none.
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_9_ns: Option<u64>,
}

impl Rates {
    /// Between two snapshots of a namespace; without the first one, since it was added.
    pub(super) fn between(before: Option<&NamespaceSnapshot>, now: &NamespaceSnapshot, interval_ns: u64) -> Rates {
        let seconds = interval_ns as f64 / 1e9;
        let (mut reads, mut writes) = (Activity::default(), Activity::default());
        for command in &now.commands {
            let kind = command.kind.as_str();
            let old = before.and_then(|before| before.commands.iter().find(|old| old.kind == kind));
            if READS.contains(&kind) {
                reads.add(old, command);
            } else if WRITES.contains(&kind) {
                writes.add(old, command);
            }
        }
        let errors = |namespace: &NamespaceSnapshot| namespace.errors.iter().map(|error| error.count).sum::<u64>();
        let errors = since(before.map(errors), errors(now));
        let all: Vec<u64> = (0..=LATENCY_BOUNDS_NS.len()).map(|class| reads.of(class) + writes.of(class)).collect();
        Rates {
            read_bytes_per_s: reads.bytes as f64 / seconds,
            write_bytes_per_s: writes.bytes as f64 / seconds,
            read_iops: reads.count as f64 / seconds,
            write_iops: writes.count as f64 / seconds,
            iops: (reads.count + writes.count) as f64 / seconds,
            errors_per_s: errors as f64 / seconds,
            p50_ns: quantile_ns(&all, 0.5),
            p99_9_ns: quantile_ns(&all, 0.999),
        }
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s + self.write_bytes_per_s
    }
}

/// How much a counter has grown. A smaller value is that of a new namespace of the same number.
fn since(before: Option<u64>, now: u64) -> u64 {
    now.checked_sub(before.unwrap_or(0)).unwrap_or(now)
}

/// Commands of some kinds in the interval.
#[derive(Default)]
struct Activity {
    count: u64,
    bytes: u64,
    latencies: Vec<u64>,
}

impl Activity {
    fn add(&mut self, before: Option<&CommandSnapshot>, now: &CommandSnapshot) {
        let before = before.filter(|before| before.count <= now.count);
        self.count += since(before.map(|before| before.count), now.count);
        self.bytes += since(before.map(|before| before.bytes), now.bytes);
        self.latencies.resize(self.latencies.len().max(now.latency_counts.len()), 0);
        for (class, count) in now.latency_counts.iter().enumerate() {
            let old = before.and_then(|before| before.latency_counts.get(class));
            self.latencies[class] += since(old.copied(), *count);
        }
    }

    fn of(&self, class: usize) -> u64 {
        self.latencies.get(class).copied().unwrap_or(0)
    }
}

/// A quantile of a histogram with the bounds of the server. Within a bucket, latencies are taken as
/// evenly distributed, as Prometheus does; above all bounds, the highest bound is returned.
fn quantile_ns(counts: &[u64], quantile: f64) -> Option<u64> {
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return None;
    }
    let rank = quantile * all as f64;
    let mut below = 0;
    for (class, count) in counts.iter().enumerate() {
        if *count > 0 && (below + count) as f64 >= rank {
            let lower = class.checked_sub(1).and_then(|class| LATENCY_BOUNDS_NS.get(class)).copied().unwrap_or(0);
            let upper = LATENCY_BOUNDS_NS.get(class).copied().unwrap_or(lower);
            let part = ((rank - below as f64) / *count as f64).clamp(0.0, 1.0);
            return Some(lower + ((upper - lower) as f64 * part) as u64);
        }
        below += count;
    }
    LATENCY_BOUNDS_NS.last().copied()
}

#[cfg(test)]
mod tests {
    use zonda_exports::snapshot::ErrorSnapshot;

    use super::*;

    fn command(kind: &str, bytes: u64, classes: &[(usize, u64)]) -> CommandSnapshot {
        let mut latency_counts = vec![0; LATENCY_BOUNDS_NS.len() + 1];
        classes.iter().for_each(|(class, count)| latency_counts[*class] = *count);
        let count = classes.iter().map(|(_, count)| count).sum();
        CommandSnapshot { kind: kind.to_owned(), count, bytes, latency_counts, ..CommandSnapshot::default() }
    }

    fn namespace(commands: Vec<CommandSnapshot>, errors: u64) -> NamespaceSnapshot {
        let errors = vec![ErrorSnapshot { status: "LBA Out of Range".to_owned(), count: errors }];
        NamespaceSnapshot { id: 1, commands, errors, ..NamespaceSnapshot::default() }
    }

    #[test]
    fn rates_are_differences_and_management_is_no_io() {
        let before = namespace(vec![command("read", 4096, &[(6, 1)]), command("write", 8192, &[(4, 2)])], 3);
        let now = namespace(
            vec![
                command("read", 4096 + 40960, &[(6, 11)]),
                command("write", 8192 + 2048, &[(4, 4)]),
                command("append", 1024, &[(4, 1)]),
                command("reset", 0, &[(15, 100)]),
            ],
            5,
        );
        let rates = Rates::between(Some(&before), &now, 2_000_000_000);
        assert_eq!((rates.read_bytes_per_s, rates.write_bytes_per_s), (20_480.0, 1_536.0));
        assert_eq!((rates.read_iops, rates.write_iops, rates.iops, rates.errors_per_s), (5.0, 1.5, 6.5, 1.0));
        // Of 13 commands 10 took 50 to 100 us.
        assert_eq!(rates.p50_ns, Some(50_000 + 50_000 * 35 / 100));
        let new = Rates::between(None, &now, 2_000_000_000);
        assert_eq!((new.iops, new.errors_per_s), (8.0, 2.5), "all commands of a namespace that was added");
        let smaller = Rates::between(Some(&now), &before, 1_000_000_000);
        assert_eq!((smaller.iops, smaller.write_bytes_per_s), (3.0, 8192.0), "a namespace that was replaced");
    }

    #[test]
    fn quantiles_are_interpolated_and_rise() {
        let mut counts = vec![0; LATENCY_BOUNDS_NS.len() + 1];
        assert_eq!(quantile_ns(&counts, 0.5), None);
        counts[0] = 100;
        assert_eq!((quantile_ns(&counts, 0.5), quantile_ns(&counts, 1.0)), (Some(500), Some(1_000)));
        counts[9] = 100;
        let shown: Vec<u64> = [0.25, 0.5, 0.75, 0.999].iter().filter_map(|of| quantile_ns(&counts, *of)).collect();
        assert_eq!(shown, [500, 1_000, 750_000, 999_000]);
        counts[LATENCY_BOUNDS_NS.len()] = 1;
        assert_eq!(quantile_ns(&counts, 1.0), Some(10_000_000_000), "above all bounds");
    }
}
