//! What has changed between two reports of a drive, beyond noise.

use zonda_plot::text::{duration, mebibytes, number, rate};

use crate::limits::{CHANGE_ERRORS, CHANGE_MIN, LATENCY_CHANGE_MIN};
use crate::{Figures, Finding, Part, Report};

/// One difference.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Change {
    /// What has changed.
    pub subject: String,
    /// The quantity: `throughput`, `p50`, `p99`, `groups`, ...
    pub quantity: &'static str,
    /// In the older report.
    pub before: String,
    /// In the newer one.
    pub after: String,
    /// The newer value divided by the older one, if both are numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

/// What two reports have in common and what differs.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Loads that both have measured.
    pub compared: u32,
    /// Differences, the largest first.
    pub changes: Vec<Change>,
}

impl Report {
    /// What has changed since an older report.
    #[must_use]
    pub fn changes(&self, older: &Report) -> Comparison {
        let mut changes = drive_changes(older, self);
        changes.extend(group_changes(older, self));
        let (mut compared, mut measured) = (0, Vec::new());
        for finding in &self.findings {
            let is_same = |other: &&Finding| {
                (other.part, other.load, other.beside, other.scheduler)
                    == (finding.part, finding.load, finding.beside, finding.scheduler)
            };
            let Some(before) = older.findings.iter().find(is_same) else { continue };
            match (before.figures, finding.figures) {
                (Some(old), Some(new)) => {
                    compared += 1;
                    measured.extend(figure_changes(finding, &old, &new));
                }
                (Some(_), None) if is_failure(finding) => measured.push(Change {
                    subject: finding.words(),
                    quantity: "result",
                    before: "measured".to_owned(),
                    after: finding.missing.as_ref().map(ToString::to_string).unwrap_or_default(),
                    ratio: None,
                }),
                _ => {}
            }
        }
        let size =
            |change: &Change| change.ratio.map_or(f64::INFINITY, |ratio| if ratio < 1.0 { 1.0 / ratio } else { ratio });
        measured.sort_by(|a, b| size(b).total_cmp(&size(a)));
        changes.extend(measured);
        Comparison { compared, changes }
    }
}

/// What was not measured for lack of time is no change of the drive.
fn is_failure(finding: &Finding) -> bool {
    use crate::Missing::{Failed, NotSupported};
    matches!(finding.missing, Some(Failed(_) | NotSupported(_)))
}

fn figure_changes(finding: &Finding, old: &Figures, new: &Figures) -> Vec<Change> {
    let errors = (old.uncertainty * old.uncertainty + new.uncertainty * new.uncertainty).sqrt();
    let noise = CHANGE_MIN.max(CHANGE_ERRORS * errors);
    let latency_noise = LATENCY_CHANGE_MIN.max(CHANGE_ERRORS * errors);
    let is_change = |before: f64, after: f64, noise: f64| {
        before > 0.0 && after > 0.0 && !(1.0 / (1.0 + noise)..=1.0 + noise).contains(&(after / before))
    };
    let mut changes = Vec::new();
    let mut add = |quantity, before: f64, after: f64, noise, words: &dyn Fn(f64) -> String| {
        if is_change(before, after, noise) {
            changes.push(Change {
                subject: finding.words(),
                quantity,
                before: words(before),
                after: words(after),
                ratio: Some((after / before * 1e4).round() / 1e4),
            });
        }
    };
    let time = |value: f64| duration(value as u64);
    // Of commands that are carried out one after the other, the rate repeats the latency.
    if finding.part != Part::Zones {
        if finding.load.kind.is_management() {
            add("throughput", old.per_second, new.per_second, noise, &|value| format!("{}/s", number(value)));
        } else if old.bytes_per_second > 0.0 {
            let words = |value: f64| {
                let bytes = value * finding.load.size_bytes as f64;
                format!("{} IOPS ({} MiB/s)", rate(value), mebibytes(bytes))
            };
            add("throughput", old.per_second, new.per_second, noise, &words);
        }
    }
    add("p50", old.p50_ns as f64, new.p50_ns as f64, latency_noise, &time);
    // A tail of few requests is one request.
    if old.operations.min(new.operations) >= 1000 {
        add("p99", old.p99_ns as f64, new.p99_ns as f64, 2.0 * latency_noise, &time);
    }
    changes
}

fn drive_changes(old: &Report, new: &Report) -> Vec<Change> {
    let limit = |limit: Option<u32>| limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let of = |report: &Report| {
        let (drive, limits) = (&report.drive, &report.limits);
        [
            ("serial number", drive.serial.clone()),
            ("block size", drive.block_size_bytes.to_string()),
            ("zones", drive.zone_count.to_string()),
            ("zone size", drive.zone_size_blocks.to_string()),
            ("zone capacity", drive.zone_capacity_blocks.to_string()),
            ("active zones", limit(limits.max_active_zones)),
            ("open zones", limit(limits.max_open_zones)),
            ("largest transfer", limits.max_transfer_bytes.to_string()),
            ("largest append", limits.max_append_bytes.to_string()),
        ]
    };
    let pairs = of(old).into_iter().zip(of(new)).filter(|(before, after)| before != after);
    pairs
        .map(|((quantity, before), (_, after))| Change {
            subject: "the drive".to_owned(),
            quantity,
            before,
            after,
            ratio: None,
        })
        .collect()
}

/// Groups have numbers in the order in which they were found: only which zones are together counts.
fn group_changes(old: &Report, new: &Report) -> Vec<Change> {
    let (Some(before), Some(after)) = (&old.groups, &new.groups) else { return Vec::new() };
    let is_measured = |verdict: &str| verdict != "not-measured";
    if !is_measured(&before.verdict) || !is_measured(&after.verdict) {
        return Vec::new();
    }
    let change = |quantity, before: String, after: String| Change {
        subject: "conflict groups".to_owned(),
        quantity,
        before,
        after,
        ratio: None,
    };
    if (&before.verdict, before.groups) != (&after.verdict, after.groups) {
        return vec![change("verdict", before.words(), after.words())];
    }
    let moved = moved_zones(&before.group_of_zone, &after.group_of_zone);
    match moved {
        0 => Vec::new(),
        _ => vec![change("zones", "as before".to_owned(), format!("{moved} in another group"))],
    }
}

/// Zones that are not in the group in which most of the zones of their former group are.
fn moved_zones(before: &[Option<u32>], after: &[Option<u32>]) -> usize {
    let mut pairs = std::collections::BTreeMap::<(u32, u32), usize>::new();
    for (old, new) in before.iter().zip(after) {
        if let (Some(old), Some(new)) = (old, new) {
            *pairs.entry((*old, *new)).or_default() += 1;
        }
    }
    let mut most = std::collections::BTreeMap::<u32, usize>::new();
    for ((old, _), count) in &pairs {
        let entry = most.entry(*old).or_default();
        *entry = (*entry).max(*count);
    }
    pairs.values().sum::<usize>() - most.values().sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{figures, report};
    use crate::{Kind, Load, Missing};

    fn of(iops: f64, uncertainty: f64) -> Report {
        let load = Load::of_data(Kind::Read, 4096, 1, 8);
        let figures = Figures { uncertainty, ..figures(iops, 4096, 10_000, 20_000) };
        report(vec![Finding::new(Part::Reads, load, None, Ok(figures))])
    }

    #[test]
    fn a_difference_counts_only_beyond_the_noise_of_both_reports() {
        let quiet = of(100_000.0, 0.001);
        assert_eq!(of(104_000.0, 0.001).changes(&quiet), Comparison { compared: 1, changes: Vec::new() });
        let changes = of(80_000.0, 0.001).changes(&quiet).changes;
        assert_eq!((changes.len(), changes[0].quantity, changes[0].ratio), (1, "throughput", Some(0.8)));
        assert_eq!(
            (changes[0].before.as_str(), changes[0].after.as_str()),
            ("100 k IOPS (391 MiB/s)", "80.0 k IOPS (313 MiB/s)")
        );
        assert!(of(80_000.0, 0.1).changes(&quiet).changes.is_empty(), "it varies by as much");
    }

    #[test]
    fn a_load_that_fails_now_is_a_change_and_one_without_time_is_none() {
        let load = Load::of_data(Kind::Read, 4096, 1, 8);
        let missing = |missing| report(vec![Finding::new(Part::Reads, load, None, Err(missing))]);
        let old = of(1000.0, 0.0);
        assert!(missing(Missing::NoTime).changes(&old).changes.is_empty());
        let changes = missing(Missing::Failed("Unrecovered Read Error".to_owned())).changes(&old).changes;
        assert_eq!((changes.len(), changes[0].quantity), (1, "result"));
    }

    #[test]
    fn zones_that_moved_are_counted_whatever_the_numbers_of_groups_are() {
        let before = [0, 1, 0, 1, 0].map(Some);
        assert_eq!(moved_zones(&before, &[1, 0, 1, 0, 1].map(Some)), 0);
        assert_eq!(moved_zones(&before, &[1, 0, 1, 0, 0].map(Some)), 1);
        assert_eq!(moved_zones(&before, &[Some(1), None, Some(1), Some(0), Some(1)]), 0);
    }
}
