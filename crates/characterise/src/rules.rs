//! Guidelines in words. Each rule has a name, uses only the findings, and is silent if it has none.

use serde::{Deserialize, Serialize};
use zonda_plot::text::{counted, duration, mebibytes, number, percent, rate, round_bytes};

use crate::limits::{BETTER, DISTURBED, FINISH_PAYS, SATURATED, TAIL_DISTURBED};
use crate::load::fill_words;
use crate::report::Report;
use crate::{Figures, Finding, Kind, Load, Part};

/// What a user should do, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guideline {
    /// The name of the rule.
    pub rule: String,
    /// The guideline.
    pub text: String,
}

type Rule = (&'static str, fn(&Report) -> Option<String>);

const RULES: [Rule; 15] = [
    ("write-size", write_size),
    ("append-or-write", crate::appends::guideline),
    ("append-depth", append_depth),
    ("write-zones", write_zones),
    ("read-size", read_size),
    ("read-depth", read_depth),
    ("read-zones", read_zones),
    ("conflict-groups", conflict_groups),
    ("finish-fill", finish_fill),
    ("reset-fill", reset_fill),
    ("open", open),
    ("active-zones", active_zones),
    ("interference-throughput", interference_throughput),
    ("interference-tail", interference_tail),
    ("scheduler", |report| crate::choice::guideline(report, |_| true)),
];

/// The guidelines of all rules that the findings allow.
pub(crate) fn guidelines(report: &Report) -> Vec<Guideline> {
    let of = |(rule, text): &Rule| text(report).map(|text| Guideline { rule: (*rule).to_owned(), text });
    RULES.iter().filter_map(of).collect()
}

type Measured = (Load, Figures);

/// Measured loads of an operation that ran alone, in ascending order of `key`.
fn curve(
    report: &Report,
    part: Part,
    kind: Kind,
    is_in: impl Fn(&Load) -> bool,
    key: impl Fn(&Load) -> u64,
) -> Vec<Measured> {
    let measured = |finding: &Finding| Some((finding.load, finding.figures?));
    let of_kind = report.of_part(part).filter(|finding| finding.load.kind == kind && finding.beside.is_none());
    let mut points: Vec<Measured> = of_kind.filter_map(measured).filter(|(load, _)| is_in(load)).collect();
    points.sort_by_key(|(load, _)| key(load));
    points
}

/// Over the size, one request at a time, at one zone if zones are written.
pub(crate) fn over_size(report: &Report, part: Part, kind: Kind) -> Vec<Measured> {
    let most = report.of_part(part).map(|finding| finding.load.zones).max().unwrap_or(1);
    let zones = if kind == Kind::Read { most } else { 1 };
    curve(report, part, kind, |load| load.queue_depth == 1 && load.zones == zones, |load| load.size_bytes)
}

/// Over the depth, with the smallest size, at one zone if zones are written.
pub(crate) fn over_depth(report: &Report, part: Part, kind: Kind) -> Vec<Measured> {
    let most = report.of_part(part).map(|finding| finding.load.zones).max().unwrap_or(1);
    let zones = if kind == Kind::Read { most } else { 1 };
    let size = over_size(report, part, kind).first().map_or(0, |(load, _)| load.size_bytes);
    let is_in = |load: &Load| load.zones == zones && load.size_bytes == size;
    curve(report, part, kind, is_in, |load| u64::from(load.queue_depth))
}

/// Over the number of zones, with requests of this size.
pub(crate) fn over_zones(report: &Report, part: Part, kind: Kind, size_bytes: u64) -> Vec<Measured> {
    let depth = if kind == Kind::Read { crate::limits::READS_OF_ZONE } else { 1 };
    let is_in = |load: &Load| load.size_bytes == size_bytes && load.queue_depth == load.zones.saturating_mul(depth);
    curve(report, part, kind, is_in, |load| u64::from(load.zones))
}

/// Sizes for which there is a curve over zones.
pub(crate) fn sizes_over_zones(report: &Report, part: Part, kind: Kind) -> Vec<u64> {
    let mut sizes: Vec<u64> = report.of_part(part).map(|finding| finding.load.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|size| over_zones(report, part, kind, *size).len() > 1);
    sizes
}

fn bandwidth(figures: &Figures) -> f64 {
    figures.bytes_per_second
}

/// The first point that reaches nearly the maximum, and the maximum.
fn saturation(points: &[Measured], value: impl Fn(&Figures) -> f64) -> Option<(Measured, f64)> {
    let most = points.iter().map(|(_, figures)| value(figures)).fold(0.0, f64::max);
    let first = points.iter().find(|(_, figures)| value(figures) >= SATURATED * most)?;
    (points.len() > 1 && most > 0.0).then_some((*first, most))
}

fn write_size(report: &Report) -> Option<String> {
    let points = over_size(report, Part::Writes, Kind::Write);
    let ((load, figures), _) = saturation(&points, bandwidth)?;
    let size = round_bytes(load.size_bytes);
    let at = mebibytes(bandwidth(&figures));
    Some(if load.size_bytes == points.last()?.0.size_bytes {
        format!("Write as much at a time as the drive allows: one writer reaches {at} MiB/s only with {size}.")
    } else {
        let (smallest, least) = points.first()?;
        let compared = if load.size_bytes == smallest.size_bytes {
            String::new()
        } else {
            format!(", writes of {} {}", round_bytes(smallest.size_bytes), mebibytes(bandwidth(least)))
        };
        format!("Writes of {size} and more saturate a zone: one writer reaches {at} MiB/s with them{compared}.")
    })
}

fn append_depth(report: &Report) -> Option<String> {
    let points = over_depth(report, Part::Appends, Kind::Append);
    let ((load, figures), _) = saturation(&points, |figures| figures.per_second)?;
    let size = round_bytes(load.size_bytes);
    Some(match load.queue_depth {
        1 => format!("One outstanding append of {size} saturates a zone: more only wait."),
        depth => format!(
            "{depth} outstanding appends of {size} saturate a zone: {} IOPS, {} with one.",
            rate(figures.per_second),
            rate(points.first()?.1.per_second)
        ),
    })
}

fn write_zones(report: &Report) -> Option<String> {
    let size = *sizes_over_zones(report, Part::Writes, Kind::Write).last()?;
    let points = over_zones(report, Part::Writes, Kind::Write, size);
    let ((load, figures), _) = saturation(&points, bandwidth)?;
    let at = mebibytes(bandwidth(&figures));
    let size = round_bytes(size);
    Some(match load.zones {
        1 => {
            format!("One zone takes all that the drive can write with {size} ({at} MiB/s): more zones only divide it.")
        }
        zones => format!(
            "Stripe large writes over {zones} zones: they reach {at} MiB/s with {size}, one zone {}.",
            mebibytes(bandwidth(&points.first()?.1))
        ),
    })
}

fn read_size(report: &Report) -> Option<String> {
    let points = over_size(report, Part::Reads, Kind::Read);
    let (first, last) = (points.first()?, points.last()?);
    (points.len() > 1).then(|| {
        format!(
            "A single read of {} takes {}, one of {} {}: one reader alone reaches {} MiB/s.",
            round_bytes(first.0.size_bytes),
            duration(first.1.p50_ns),
            round_bytes(last.0.size_bytes),
            duration(last.1.p50_ns),
            mebibytes(points.iter().map(|(_, figures)| bandwidth(figures)).fold(0.0, f64::max))
        )
    })
}

fn read_depth(report: &Report) -> Option<String> {
    let points = over_depth(report, Part::Reads, Kind::Read);
    let ((load, figures), most) = saturation(&points, |figures| figures.per_second)?;
    let size = round_bytes(load.size_bytes);
    let last = points.last()?;
    let at = rate(figures.per_second);
    Some(if load.queue_depth == last.0.queue_depth {
        format!(
            "Keep {} reads of {size} outstanding or more: the drive still gains there ({} IOPS, p99 {}).",
            load.queue_depth,
            rate(most),
            duration(last.1.p99_ns)
        )
    } else {
        format!(
            "{} outstanding reads of {size} reach {at} IOPS; more add latency (p99 {} at {}, {} at {}).",
            load.queue_depth,
            duration(figures.p99_ns),
            load.queue_depth,
            duration(last.1.p99_ns),
            last.0.queue_depth
        )
    })
}

fn read_zones(report: &Report) -> Option<String> {
    let size = *sizes_over_zones(report, Part::Reads, Kind::Read).last()?;
    let points = over_zones(report, Part::Reads, Kind::Read, size);
    let ((load, figures), _) = saturation(&points, bandwidth)?;
    let size = round_bytes(size);
    let at = mebibytes(bandwidth(&figures));
    let outstanding = crate::limits::READS_OF_ZONE;
    Some(match load.zones {
        1 => format!(
            "Reads of one zone reach {at} MiB/s with {outstanding} of {size} outstanding: data need not be striped."
        ),
        zones => format!(
            "Spread large reads over {zones} zones: {outstanding} of {size} outstanding in each reach {at} MiB/s, in one zone {}.",
            mebibytes(bandwidth(&points.first()?.1))
        ),
    })
}

fn conflict_groups(report: &Report) -> Option<String> {
    let groups = report.groups.as_ref()?;
    match groups.verdict.as_str() {
        "groups" => {
            let (known, zones) = (groups.known_zones, groups.group_of_zone.len() as u32);
            let count = match known < zones {
                true => format!("at least {} conflict groups ({known} of {zones} zones were measured)", groups.groups),
                false => format!("{} conflict groups", groups.groups),
            };
            Some(format!(
                "Zones share hardware in {count}: place what is used at the same time in zones of different groups."
            ))
        }
        "one-group" => {
            Some("All zones share the same hardware: it does not matter which of them are used together.".to_owned())
        }
        _ => None,
    }
}

fn managed(report: &Report, kind: Kind) -> Vec<Measured> {
    curve(report, Part::Zones, kind, |_| true, |load| u64::from(load.fill_percent.unwrap_or(0)))
}

fn finish_fill(report: &Report) -> Option<String> {
    let points = managed(report, Kind::Finish);
    let (emptiest, fullest) = (points.first()?, points.last()?);
    let of = |point: &Measured| fill_words(Kind::Finish, point.0.fill_percent.unwrap_or(0));
    let (slow, fast) = (duration(emptiest.1.p50_ns), duration(fullest.1.p50_ns));
    (emptiest.0 != fullest.0).then(|| {
        if emptiest.1.p50_ns / FINISH_PAYS >= fullest.1.p50_ns {
            format!(
                "Finish zones as late as possible: the finish of {} takes {slow}, of {} {fast}.",
                of(emptiest),
                of(fullest)
            )
        } else if emptiest.1.p50_ns as f64 >= BETTER * fullest.1.p50_ns as f64 {
            format!("The finish of a fuller zone is faster: {slow} for {}, {fast} for {}.", of(emptiest), of(fullest))
        } else {
            format!("The fill hardly matters for a finish: {slow} for {}, {fast} for {}.", of(emptiest), of(fullest))
        }
    })
}

fn reset_fill(report: &Report) -> Option<String> {
    let points = managed(report, Kind::Reset);
    let ((first, empty), (last, full)) = (points.first()?, points.last()?);
    let of = |load: &Load| fill_words(Kind::Reset, load.fill_percent.unwrap_or(0));
    (first != last).then(|| {
        format!(
            "Resets take {} for {} and {} for {}: reset zones in idle time, not when one is needed.",
            duration(empty.p50_ns),
            of(first),
            duration(full.p50_ns),
            of(last)
        )
    })
}

fn open(report: &Report) -> Option<String> {
    let opens = managed(report, Kind::Open);
    let closes = managed(report, Kind::Close);
    let ((_, open), (_, close)) = (opens.first()?, closes.first()?);
    let writes = over_size(report, Part::Writes, Kind::Write);
    let beside = writes.first().map_or_else(String::new, |(load, figures)| {
        format!(
            " A write of {} takes {}, and opens its zone by itself.",
            round_bytes(load.size_bytes),
            duration(figures.p50_ns)
        )
    });
    Some(format!("An open takes {}, a close {}.{beside}", duration(open.p50_ns), duration(close.p50_ns)))
}

fn active_zones(report: &Report) -> Option<String> {
    let active = report.limits.max_active_zones?;
    let open = report.limits.max_open_zones.unwrap_or(active);
    Some(format!(
        "At most {} active, {open} of them open: as many streams can be written at a time.",
        counted(u64::from(active), "zone") + if active == 1 { " is" } else { " are" }
    ))
}

/// Cells of the matrix with their throughput and p99 relative to those alone.
fn cells(report: &Report) -> Vec<(Load, Load, f64, f64)> {
    let loads = report.matrix_loads();
    let pairs = loads.iter().flat_map(|load| loads.iter().map(move |beside| (*load, *beside)));
    let cell = |(load, beside): (Load, Load)| {
        let (throughput, tail) = report.relative(report.pair(&load, &beside)?)?;
        Some((load, beside, throughput, tail))
    };
    // Two streams of one operation share it: that is no interference.
    pairs.filter(|(load, beside)| load.kind != beside.kind).filter_map(cell).collect()
}

fn interference_throughput(report: &Report) -> Option<String> {
    let cells = cells(report);
    let (load, beside, share, _) = cells.iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
    Some(if *share < DISTURBED {
        format!(
            "Keep {} and {} apart in time: beside {}, {} keep {} of their throughput, the least of all pairs.",
            load.kind.plural(),
            beside.kind.plural(),
            beside.kind.plural(),
            load.kind.plural(),
            percent(*share)
        )
    } else {
        format!("No operation takes more than {} of the throughput of another.", percent(1.0 - DISTURBED))
    })
}

fn interference_tail(report: &Report) -> Option<String> {
    let cells = cells(report);
    let of_reads = cells.iter().filter(|(load, ..)| load.kind == Kind::Read);
    let (_, beside, _, tail) = of_reads.max_by(|a, b| a.3.total_cmp(&b.3))?;
    Some(if *tail >= TAIL_DISTURBED {
        format!(
            "Reads that must be fast suffer most beside {}: their p99 grows by a factor of {}.",
            beside.kind.plural(),
            number(*tail)
        )
    } else {
        format!("The p99 of reads grows by less than a factor of {} beside any operation.", number(TAIL_DISTURBED))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{figures, report};

    fn data(part: Part, kind: Kind, size: u64, depth: u32, zones: u32, iops: f64) -> Finding {
        let load = Load::of_data(kind, size, depth, zones);
        Finding::new(part, load, None, Ok(figures(iops, size, 10_000, 20_000)))
    }

    fn text(report: &Report, rule: &str) -> Option<String> {
        report.guidelines.iter().find(|guideline| guideline.rule == rule).map(|guideline| guideline.text.clone())
    }

    #[test]
    fn the_size_that_saturates_a_zone_is_the_first_near_the_maximum() {
        let write = |size, iops| data(Part::Writes, Kind::Write, size, 1, 1, iops);
        let report = report(vec![write(4096, 25_600.0), write(16_384, 64_000.0), write(65_536, 16_320.0)]);
        let expected = "Writes of 16 KiB and more saturate a zone: one writer reaches 1,000 MiB/s with them, writes of \
                        4 KiB 100.";
        assert_eq!(text(&report, "write-size").as_deref(), Some(expected));
        assert_eq!(text(&report, "append-or-write"), None, "without appends there is nothing to compare");
    }

    #[test]
    fn the_worst_pair_of_operations_is_named_with_its_share() {
        let read = Load::of_data(Kind::Read, 8192, 16, 1);
        let finish = Load::of_management(Kind::Finish, 0);
        let of = |load: Load, beside, iops, p99| {
            Finding::new(Part::Interference, load, beside, Ok(figures(iops, load.size_bytes, 1, p99)))
        };
        let report = report(vec![
            of(read, None, 1000.0, 100),
            of(finish, None, 1.0, 1),
            of(read, Some(finish), 490.0, 690),
            of(finish, Some(read), 0.9, 1),
        ]);
        let throughput = text(&report, "interference-throughput").unwrap();
        assert!(throughput.contains("beside finishes, reads keep 49.0% of their throughput"), "{throughput}");
        assert!(text(&report, "interference-tail").unwrap().ends_with("p99 grows by a factor of 6.90."));
    }
}
