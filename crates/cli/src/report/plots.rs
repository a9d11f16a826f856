//! The charts of a run: bandwidth, operations and latency over time, and the quantiles of the
//! latency.

use zonda_plot::text::{counted, duration, mebibytes, number, rate};
use zonda_plot::{Axis, Chart, Form, LOOKS, Look, OTHERS, Pieces, Point, Reference, Series, Size};
use zonda_workload::{JobResult, JobSample, KindResult, LatencySummary, RunResult};

use super::series::Thinned;

/// A quantile with its name.
type Quantile = (&'static str, fn(&LatencySummary) -> u64);

/// Quantiles of the chart, in its order.
const QUANTILES: [Quantile; 6] = [
    ("p50", |latency| latency.p50_ns),
    ("p95", |latency| latency.p95_ns),
    ("p99", |latency| latency.p99_ns),
    ("p99.9", |latency| latency.p99_9_ns),
    ("p99.99", |latency| latency.p99_99_ns),
    ("max", |latency| latency.max_ns),
];

/// Jobs with a curve of their own, and the others.
struct Cast {
    /// Indexes of jobs in the file, with a look each.
    drawn: Vec<(usize, Look)>,
    others: Vec<usize>,
}

/// All charts of a run.
pub(super) fn section(run: &RunResult) -> String {
    let cast = Cast::of(&run.jobs);
    let series = Thinned::of(run, cast.drawn.len());
    let plots = Plots { run, cast, series };
    let figures: [Chart; 5] =
        [plots.bandwidth(), plots.operations(), plots.mean_latency(), plots.p99_latency(), plots.quantiles()];
    let figures: String = figures.iter().map(Chart::figure).collect();
    let mut notes = String::new();
    if !plots.cast.others.is_empty() {
        let (drawn, all) = (plots.cast.drawn.len(), run.jobs.len());
        notes +=
            &format!("<p>The charts show the {drawn} of {all} jobs with the most operations; the table has all.</p>");
    }
    if plots.series.merged > 1 {
        let merged = counted(plots.series.merged as u64, "interval");
        notes +=
            &format!("<p>Each point over time is the mean of {merged} of the time series; for p99, the maximum.</p>");
    }
    if run.series_is_cut {
        notes += "<p>The time series was truncated at its maximum length; the run continued.</p>";
    }
    let notes = if notes.is_empty() { notes } else { format!("<div class=\"notes\">{notes}</div>\n") };
    format!("<div class=\"plots\">\n{figures}</div>\n{notes}")
}

struct Plots<'a> {
    run: &'a RunResult,
    cast: Cast,
    series: Thinned,
}

impl Cast {
    /// The jobs with the most operations get a look, in the order of the file.
    fn of(jobs: &[JobResult]) -> Cast {
        let mut by_operations: Vec<usize> = (0..jobs.len()).collect();
        by_operations.sort_by_key(|index| std::cmp::Reverse(operations(&jobs[*index])));
        let others = by_operations.split_off(jobs.len().min(LOOKS.len()));
        by_operations.sort_unstable();
        Cast { drawn: by_operations.into_iter().zip(LOOKS).collect(), others }
    }
}

impl Plots<'_> {
    fn bandwidth(&self) -> Chart {
        let mut curves = self.rates(|sample| sample.bytes);
        curves.retain(|curve| values(&curve.pieces).any(|bytes| bytes > 0.0));
        for point in points(&mut curves) {
            point.y /= f64::from(1 << 20);
        }
        let y = Axis::linear("bandwidth (MiB/s)", highest(&curves), 5);
        let describe = |value: f64| format!("{} MiB/s", mebibytes(value * f64::from(1 << 20)));
        self.over_time("bandwidth", "Bandwidth over time", curves, y, describe)
    }

    fn operations(&self) -> Chart {
        let mut curves = self.rates(|sample| sample.operations);
        let (unit, size) = match highest(&curves) {
            1e7.. => ("MIOPS", 1e6),
            1e4.. => ("kIOPS", 1e3),
            _ => ("IOPS", 1.0),
        };
        for point in points(&mut curves) {
            point.y /= size;
        }
        let y = Axis::linear(format!("completed requests ({unit})"), highest(&curves), 5);
        self.over_time("iops", "IOPS over time", curves, y, |value| format!("{} {unit}", number(value)))
    }

    fn mean_latency(&self) -> Chart {
        self.latency("mean-latency", "Mean latency over time", "mean latency (log scale)", |job| job.mean_latency_ns)
    }

    fn p99_latency(&self) -> Chart {
        let title = "99th percentile of latency over time";
        self.latency("p99-latency", title, "p99 latency (log scale)", |job| job.p99_latency_ns)
    }

    fn latency(&self, id: &str, title: &str, axis: &str, of: fn(&JobSample) -> u64) -> Chart {
        let jobs = self.cast.drawn.iter();
        let curves = jobs.map(|(index, look)| self.curve(*index, *look, self.series.latency(*index, of)));
        let mut curves: Vec<Series> = curves.filter(|curve| !curve.pieces.is_empty()).collect();
        // Both charts have the same scale, to be comparable.
        let every = self.cast.drawn.iter().flat_map(|(index, _)| {
            let parts: [fn(&JobSample) -> u64; 2] = [|job| job.mean_latency_ns, |job| job.p99_latency_ns];
            parts.map(|part| self.series.latency(*index, part))
        });
        let (least, most) = bounds(every.flatten().flatten().map(|point| point.y));
        let notes = lift_zeros(&mut curves);
        let mut chart = self.over_time(id, title, curves, Axis::latency(axis, least, most), |ns| duration(ns as u64));
        chart.notes.extend(notes);
        chart
    }

    fn quantiles(&self) -> Chart {
        let mut free = LOOKS.iter().filter(|look| self.cast.drawn.iter().all(|(_, taken)| taken != *look));
        let mut curves = Vec::new();
        let mut left_out = 0u64;
        for (index, look) in &self.cast.drawn {
            let job = &self.run.jobs[*index];
            let main = job.kinds.iter().max_by_key(|figures| figures.operations).map(|figures| figures.kind);
            for figures in &job.kinds {
                let look = if Some(figures.kind) == main { Some(look) } else { free.next() };
                match look {
                    Some(look) => curves.push(quantile_curve(job, figures, *look)),
                    None => left_out += 1,
                }
            }
        }
        let (least, most) = bounds(curves.iter().flat_map(|curve| values(&curve.pieces)));
        let mut notes: Vec<String> = lift_zeros(&mut curves).into_iter().collect();
        if left_out > 0 {
            let kinds = counted(left_out, "further kind");
            notes.push(format!("Not shown: {kinds} of operations of these jobs; see the table."));
        }
        let of_curve = |curve: &Series| {
            let points: Vec<String> = QUANTILES
                .iter()
                .zip(values(&curve.pieces))
                .map(|((name, _), value)| format!("{name} {}", duration(value as u64)))
                .collect();
            format!("{}: {}.", curve.name, points.join(", "))
        };
        let x = Axis::names("share of the requests that took at most this", QUANTILES.map(|(name, _)| name));
        let y = Axis::latency("latency (log scale)", least, most);
        Chart {
            description: curves.iter().map(of_curve).collect::<Vec<_>>().join(" "),
            series: curves,
            size: Size::WIDE,
            is_wide: true,
            notes,
            ..Chart::new("quantiles", "Latency quantiles", x, y)
        }
    }

    /// A rate of each job that is drawn, and of the others together.
    fn rates(&self, of: fn(&JobSample) -> u64) -> Vec<Series> {
        let jobs = &self.run.jobs;
        let drawn = self.cast.drawn.iter();
        let mut curves: Vec<Series> = drawn
            .map(|(index, look)| self.curve(*index, *look, self.series.rate(jobs, &[*index], of)))
            .filter(|curve| !curve.pieces.is_empty())
            .collect();
        let others = &self.cast.others;
        let pieces = self.series.rate(jobs, others, of);
        if !pieces.is_empty() {
            let name = format!("{} together", counted(others.len() as u64, "other job"));
            curves.push(Series { name, remark: String::new(), look: OTHERS, form: Form::LongLine, pieces });
        }
        curves
    }

    fn curve(&self, index: usize, look: Look, pieces: Pieces) -> Series {
        let job = &self.run.jobs[index];
        Series { name: job.name.clone(), remark: String::new(), look, form: Form::LongLine, pieces }
    }

    fn over_time(
        &self,
        id: &str,
        title: &str,
        curves: Vec<Series>,
        y: Axis,
        describe: impl Fn(f64) -> String,
    ) -> Chart {
        let end_ns = self.series.end_ns() as f64;
        let of_curve = |curve: &Series| {
            let (least, most) = bounds(values(&curve.pieces));
            format!("{} between {} and {}.", curve.name, describe(least), describe(most))
        };
        let description = curves.iter().map(of_curve).collect::<Vec<_>>().join(" ");
        // Completions up to here are excluded from all figures.
        let ramp_end = self.run.ramp_ns as f64 / unit_of_time(end_ns).1;
        let ramp = (self.run.ramp_ns > 0).then(|| Reference::span(0.0, ramp_end, "ramp"));
        let references = ramp.into_iter().collect();
        Chart { description, references, ..over_time(id, title, curves, y, end_ns) }
    }
}

/// A chart over time up to `end_ns`, with the times of the points in nanoseconds.
pub(super) fn over_time(id: &str, title: &str, mut curves: Vec<Series>, y: Axis, end_ns: f64) -> Chart {
    let (unit, size) = unit_of_time(end_ns);
    for point in points(&mut curves) {
        point.x /= size;
    }
    let x = Axis::exact(format!("time since the start of the run ({unit})"), end_ns / size, 6);
    Chart { series: curves, size: Size::WIDE, ..Chart::new(id, title, x, y) }
}

/// The unit for a time axis up to `end_ns`, and its length in nanoseconds.
fn unit_of_time(end_ns: f64) -> (&'static str, f64) {
    match end_ns {
        2e9.. => ("s", 1e9),
        2e6.. => ("ms", 1e6),
        2e3.. => ("us", 1e3),
        _ => ("ns", 1.0),
    }
}

fn quantile_curve(job: &JobResult, figures: &KindResult, look: Look) -> Series {
    let points = QUANTILES.iter().enumerate().map(|(place, (_, of))| (place as f64, of(&figures.latency) as f64));
    let count = figures.latency.count;
    let requests = if count < 10_000 { counted(count, "request") } else { format!("{} requests", rate(count as f64)) };
    let name = format!("{}, {}", job.name, figures.kind);
    let remark = format!("{requests}, mean {}", duration(figures.latency.mean_ns));
    Series { remark, ..Series::new(name, look, Form::Line, points) }
}

fn operations(job: &JobResult) -> u64 {
    job.kinds.iter().map(|figures| figures.operations).sum()
}

fn values(pieces: &Pieces) -> impl Iterator<Item = f64> {
    pieces.iter().flatten().map(|point| point.y)
}

fn points(curves: &mut [Series]) -> impl Iterator<Item = &mut Point> {
    curves.iter_mut().flat_map(|curve| curve.pieces.iter_mut().flatten())
}

pub(super) fn highest(curves: &[Series]) -> f64 {
    curves.iter().flat_map(|curve| values(&curve.pieces)).fold(0.0, f64::max)
}

/// The least and the most of all values; zeros if there is none.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let bounds = values.fold(None, |bounds: Option<(f64, f64)>, value| {
        Some(bounds.map_or((value, value), |(least, most)| (least.min(value), most.max(value))))
    });
    bounds.unwrap_or((0.0, 0.0))
}

/// A logarithmic axis has no zero: it is drawn at 1 ns, and the note says so.
fn lift_zeros(curves: &mut [Series]) -> Option<String> {
    let mut lifted = false;
    for point in points(curves) {
        if point.y < 1.0 {
            (point.y, lifted) = (1.0, true);
        }
    }
    lifted.then(|| "A latency of 0 ns is drawn at 1 ns.".to_owned())
}
