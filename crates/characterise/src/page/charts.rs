//! Curves and bars of the page.

use zonda_plot::text::{count, number, round_bytes};
use zonda_plot::{Axis, Chart, Form, LOOKS, Look, Point, Reference, Series, Size};

use super::{matrix, title_of};
use crate::limits::MATRIX_RATES_PERCENT;
use crate::load::Kind;
use crate::{Figures, Finding, Load, Part, Report, rules};

type Measured = (Load, Figures);
/// The name of a series and its points.
type Named = (String, Vec<Measured>);

/// What an axis shows of a load.
#[derive(Clone, Copy)]
enum Over {
    Size,
    Depth,
    Zones,
}

/// What the other axis shows of its figures.
#[derive(Clone, Copy)]
enum Value {
    Bandwidth,
    Iops,
    Median,
    P99,
}

impl Over {
    fn of(self, load: &Load) -> f64 {
        match self {
            Over::Size => load.size_bytes as f64,
            Over::Depth => f64::from(load.queue_depth),
            Over::Zones => f64::from(load.zones),
        }
    }

    fn axis(self, least: f64, most: f64) -> Axis {
        match self {
            Over::Size => Axis::log2("request size", least, most, |bytes| round_bytes(bytes as u64)),
            Over::Depth => Axis::log2("outstanding requests", least, most, |depth| count(depth as u64)),
            Over::Zones => Axis::log2("zones", least, most, |zones| count(zones as u64)),
        }
    }
}

impl Value {
    fn of(self, figures: &Figures) -> f64 {
        match self {
            Value::Bandwidth => figures.bytes_per_second / f64::from(1 << 20),
            Value::Iops => figures.per_second / 1000.0,
            Value::Median => figures.p50_ns as f64,
            Value::P99 => figures.p99_ns as f64,
        }
    }

    fn axis(self, least: f64, most: f64) -> Axis {
        match self {
            Value::Bandwidth => Axis::linear("bandwidth (MiB/s)", most, 5),
            Value::Iops => Axis::linear("throughput (kIOPS)", most, 5),
            Value::Median => Axis::latency("median latency", least.max(1.0), most.max(1.0)),
            Value::P99 => Axis::latency("latency (log scale)", least.max(1.0), most.max(1.0)),
        }
    }
}

fn chart(id: &str, title: &str, over: Over, values: &[Value], curves: &[Named]) -> Chart {
    let all: Vec<&Measured> = curves.iter().flat_map(|(_, points)| points).collect();
    let bounds = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (least, values.into_iter().fold(0.0, f64::max))
    };
    let (least_x, most_x) = bounds(all.iter().map(|(load, _)| over.of(load)).collect());
    let of = |(_, figures): &&Measured| values.iter().map(|value| value.of(figures)).collect::<Vec<_>>();
    let (least_y, most_y) = bounds(all.iter().flat_map(of).collect());
    let last = *values.last().expect("a chart shows a value");
    let mut chart = Chart::new(id, title, over.axis(least_x, most_x), last.axis(least_y, most_y));
    let mut looks = LOOKS.into_iter();
    for (name, points) in curves.iter().filter(|(_, points)| points.len() > 1) {
        for value in values {
            let Some(look) = looks.next() else { break };
            let name = match (values.len() > 1, value) {
                (true, Value::Median) => format!("{name}, median"),
                (true, Value::P99) => format!("{name}, p99"),
                _ => name.clone(),
            };
            chart.series.push(series(
                &name,
                look,
                points.iter().map(|(load, figures)| (over.of(load), value.of(figures))),
            ));
        }
    }
    chart.description = description(&chart);
    chart
}

fn series(name: &str, look: Look, points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series::new(name, look, Form::Line, points.map(|(x, y)| Point::new(x, y)))
}

/// The ends of each series in words.
fn description(chart: &Chart) -> String {
    let of = |series: &Series| {
        let (first, last) = (series.points().next()?, series.points().last()?);
        Some(format!("{}: {} to {}.", series.name, number(first.y), number(last.y)))
    };
    chart.series.iter().filter_map(of).collect::<Vec<_>>().join(" ")
}

pub(super) fn reads(report: &Report) -> Vec<Chart> {
    data(report, Part::Reads, Kind::Read, "reads")
}

pub(super) fn writes(report: &Report) -> Vec<Chart> {
    let mut charts = data(report, Part::Writes, Kind::Write, "writes");
    charts.retain(|chart| chart.id != "writes-depth" && chart.id != "writes-depth-latency");
    charts
}

pub(super) fn appends(report: &Report) -> Vec<Chart> {
    let mut charts = data(report, Part::Appends, Kind::Append, "appends");
    // Append and write beside each other, at one zone.
    let curves = [
        ("append".to_owned(), rules::over_size(report, Part::Appends, Kind::Append)),
        ("write".to_owned(), rules::over_size(report, Part::Writes, Kind::Write)),
    ];
    charts.push(chart("append-write", "Append and write at one zone", Over::Size, &[Value::Bandwidth], &curves));
    charts
}

fn data(report: &Report, part: Part, kind: Kind, id: &str) -> Vec<Chart> {
    let title = title_of(kind);
    let one = |name: &str, points: Vec<Measured>| [(name.to_owned(), points)];
    let sizes = one("one outstanding", rules::over_size(report, part, kind));
    let depths = rules::over_depth(report, part, kind);
    let size = depths.first().map_or(0, |(load, _)| load.size_bytes);
    let depths = one(&round_bytes(size), depths);
    let zones: Vec<Named> = rules::sizes_over_zones(report, part, kind)
        .into_iter()
        .map(|size| (round_bytes(size), rules::over_zones(report, part, kind, size)))
        .collect();
    let outstanding = if kind == Kind::Read { crate::limits::READS_OF_ZONE } else { 1 };
    let over_zones = format!("{title} by number of zones, {outstanding} outstanding in each");
    let tails = [Value::Median, Value::P99];
    vec![
        chart(&format!("{id}-size"), &format!("{title} by size"), Over::Size, &[Value::Bandwidth], &sizes),
        chart(
            &format!("{id}-size-latency"),
            &format!("Latency of {} by size", kind.plural()),
            Over::Size,
            &tails,
            &sizes,
        ),
        chart(&format!("{id}-depth"), &format!("{title} by depth"), Over::Depth, &[Value::Iops], &depths),
        chart(
            &format!("{id}-depth-latency"),
            &format!("Latency of {} by depth", kind.plural()),
            Over::Depth,
            &tails,
            &depths,
        ),
        chart(&format!("{id}-zones"), &over_zones, Over::Zones, &[Value::Bandwidth], &zones),
    ]
}

/// Finish and reset over the fill of their zones.
pub(super) fn zones(report: &Report) -> Vec<Chart> {
    let of = |kind: Kind| -> Vec<(f64, f64)> {
        let findings = report.of_part(Part::Zones).filter(|finding| finding.load.kind == kind);
        let point = |finding: &Finding| Some((f64::from(finding.load.fill_percent?), finding.figures?.p50_ns as f64));
        let mut points: Vec<(f64, f64)> = findings.filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let curves = [(Kind::Finish, of(Kind::Finish)), (Kind::Reset, of(Kind::Reset))];
    let all: Vec<f64> = curves.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(1.0, f64::max);
    let y = Axis::latency("median latency (log scale)", if least.is_finite() { least.max(1.0) } else { 1.0 }, most);
    let mut chart = Chart::new(
        "fill",
        "Finish and reset over the fill of the zone",
        Axis::exact("data in the zone (%)", 100.0, 5),
        y,
    );
    for ((kind, points), look) in curves.into_iter().zip(LOOKS) {
        if !points.is_empty() {
            chart.series.push(series(kind.name(), look, points.into_iter()));
        }
    }
    chart.description = description(&chart);
    vec![chart]
}

/// What is left of reads, writes and appends beside resets and finishes, at all depths.
pub(super) fn interference(report: &Report) -> Vec<Chart> {
    let loads = report.matrix_loads();
    let beside: Vec<Load> = loads.iter().filter(|load| load.kind.is_management()).copied().collect();
    let of = |kind: Kind| {
        let alone = matrix::alone(report).into_iter().filter(|finding| finding.load.kind == kind);
        let names: Vec<(Load, String)> = alone.map(|finding| (finding.load, finding.load.short())).collect();
        let shares: Vec<(&Load, Vec<(f64, f64)>)> = beside
            .iter()
            .map(|beside| {
                let share = |(place, (load, _)): (usize, &(Load, String))| {
                    let (throughput, _) = report.relative(report.pair(load, beside)?)?;
                    Some((place as f64, throughput * 100.0))
                };
                (beside, names.iter().enumerate().filter_map(share).collect())
            })
            .collect();
        let most = shares.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(100.0, f64::max);
        let short = |(load, _): &(Load, String)| match load.kind {
            Kind::Write => load.zones.to_string(),
            _ => load.queue_depth.to_string(),
        };
        let axis = if kind == Kind::Write { "writers" } else { "outstanding" };
        let title = format!("{} beside resets and finishes", title_of(kind));
        let x = Axis::names(axis, names.iter().map(short).collect::<Vec<_>>());
        let mut chart =
            Chart::new(format!("beside-{kind}"), title, x, Axis::linear("throughput (% of alone)", most, 5));
        chart.size = Size { width: 420, height: 240 };
        for ((beside, points), look) in shares.into_iter().zip(LOOKS) {
            if !points.is_empty() {
                let points = points.into_iter().map(|(x, y)| Point::new(x, y));
                chart.series.push(Series::new(format!("beside {}", beside.kind.plural()), look, Form::Bars, points));
            }
        }
        chart.references.push(Reference::line(100.0, "alone"));
        chart.description = description(&chart);
        chart
    };
    let mut charts: Vec<Chart> = [Kind::Read, Kind::Write, Kind::Append].map(of).into_iter().collect();
    charts.push(limited(report));
    charts
}

/// The p99 of reads beside writes and appends of limited rates.
fn limited(report: &Report) -> Chart {
    let of_reads: Vec<(Load, Vec<&Finding>)> = matrix::limited_pairs(report)
        .into_iter()
        .filter(|(load, ..)| load.kind == Kind::Read)
        .map(|(_, beside, findings)| (beside, findings))
        .collect();
    let limits: Vec<Option<u32>> = MATRIX_RATES_PERCENT.into_iter().map(Some).chain([None]).collect();
    let series: Vec<(String, Vec<(f64, f64)>)> = of_reads
        .iter()
        .map(|(beside, findings)| {
            let point = |finding: &&Finding| {
                let limit = finding.beside?.rate_percent;
                let place = limits.iter().position(|other| *other == limit)?;
                Some((place as f64, finding.figures?.p99_ns as f64 / 1000.0))
            };
            (format!("beside {}", beside.kind.plural()), findings.iter().filter_map(point).collect())
        })
        .collect();
    let most = series.iter().flat_map(|(_, points)| points).map(|(_, y)| *y).fold(0.0, f64::max);
    let names = limits.iter().map(|limit| limit.map_or_else(|| "no limit".to_owned(), |percent| format!("{percent}%")));
    let x = Axis::names("rate of writes or appends (of that alone)", names.collect::<Vec<_>>());
    let title = "p99 of reads beside limited writes";
    let mut chart = Chart::new("limited-reads", title, x, Axis::linear("p99 (us)", most, 5));
    chart.size = Size { width: 420, height: 240 };
    for ((name, points), look) in series.into_iter().zip(LOOKS) {
        if !points.is_empty() {
            let points = points.into_iter().map(|(x, y)| Point::new(x, y));
            chart.series.push(Series::new(name, look, Form::Bars, points));
        }
    }
    let alone = report.matrix_loads().into_iter().find(|load| load.kind == Kind::Read);
    if let Some(figures) = alone.and_then(|load| report.alone(&load)?.figures) {
        chart.references.push(Reference::line(figures.p99_ns as f64 / 1000.0, "alone"));
    }
    chart.description = description(&chart);
    chart
}
