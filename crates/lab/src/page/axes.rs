//! The axes of a plot: ranges, ticks and titles.

use zonda_plot::{Axis, Series};

use super::words::exact;
use crate::{LabExperiment, Metric, PlotPlan, ScaleSpec, XAxis};

/// Maximum number of values of x that are all labelled on a linear axis.
const LABELS_MAX: usize = 8;
/// Maximum number of ticks of a linear axis.
const TICKS: u32 = 5;
const TICKS_OF_X: u32 = 8;
/// Margin of a linear x axis beyond its first and last value, as a share, so that no marker is on
/// the border.
const MARGIN: f64 = 0.03;
/// On a logarithmic axis, zero is drawn this many times below the smallest positive value.
const ZERO_BELOW: f64 = 0.5;

/// The horizontal axis of the varied parameter.
pub(super) fn x_axis(x: &XAxis) -> Axis {
    let title = titled(&x.title, &x.unit);
    let labels = || x.values.iter().map(|value| (*value, exact(*value)));
    let (least, most) = bounds(x.values.iter().copied()).unwrap_or((0.0, 1.0));
    match x.scale {
        ScaleSpec::Names => Axis::names(title, x.labels.iter().map(String::as_str)),
        ScaleSpec::Linear => {
            let margin = if most > least { (most - least) * MARGIN } else { 0.5 };
            let axis = Axis::between(title, least - margin, most + margin, TICKS_OF_X);
            if x.values.len() <= LABELS_MAX { axis.with_ticks(labels()) } else { axis }
        }
        ScaleSpec::Log | ScaleSpec::Log2 => {
            let positive = bounds(x.values.iter().copied().filter(|value| *value > 0.0));
            let (positive, most) = positive.unwrap_or((1.0, 1.0));
            let has_zero = least <= 0.0;
            let start = if has_zero { positive * ZERO_BELOW } else { positive };
            let axis = match x.scale {
                ScaleSpec::Log => Axis::log10(title, start, most, exact),
                _ => Axis::log2(title, start, most, exact),
            };
            if !has_zero {
                return axis;
            }
            let zero = (axis.start(), "0".to_owned());
            let others: Vec<(f64, String)> =
                axis.ticks().iter().filter(|(value, _)| *value >= positive).cloned().collect();
            axis.with_ticks(std::iter::once(zero).chain(others))
        }
    }
}

/// The vertical axis of a plot, with a range for all points of these series.
pub(super) fn y_axis(experiment: &LabExperiment, plan: &PlotPlan, series: &[Series]) -> Axis {
    let metrics: Vec<&Metric> = plan.metrics.iter().map(|metric| &experiment.metrics[*metric]).collect();
    let title = y_title(&metrics);
    let all = series.iter().filter_map(Series::y_bounds);
    let most = all.map(|(_, high)| high).fold(0.0, f64::max);
    let values = series.iter().flat_map(|series| series.points().map(|point| point.y));
    let (least, _) = bounds(values.filter(|y| *y > 0.0)).unwrap_or((most, most));
    match plan.scale {
        ScaleSpec::Linear | ScaleSpec::Names => Axis::linear(title, most, TICKS),
        ScaleSpec::Log => Axis::log10(format!("{title}, log scale"), least, most, exact),
        ScaleSpec::Log2 => Axis::log2(format!("{title}, log scale"), least, most, exact),
    }
}

/// The title of the axis with its unit: the words that the titles of all metrics share, if they
/// name the quantity.
fn y_title(metrics: &[&Metric]) -> String {
    let unit = metrics.first().map_or("", |metric| metric.unit.as_str());
    let quantity = quantity(metrics, unit);
    let title = match metrics {
        [metric] => spelled(&metric.title),
        metrics => spelled(&common_end(metrics).unwrap_or_default()),
    };
    let title = match quantity {
        Some(quantity) if title.is_empty() || (metrics.len() > 1 && !says_quantity(&title)) => quantity.to_owned(),
        Some(quantity) if !says_quantity(&title) => format!("{quantity}, {title}"),
        None if title.is_empty() => "number".to_owned(),
        _ => title,
    };
    titled(&title, unit)
}

/// Adds "latency" to the title of a bare percentile.
pub(super) fn spelled(title: &str) -> String {
    if is_of_latencies(title) { format!("{title} latency") } else { title.to_owned() }
}

/// Words that end the titles of all metrics: `average latency` and `p99.9 latency` have `latency`.
fn common_end(metrics: &[&Metric]) -> Option<String> {
    let words = |metric: &&Metric| metric.title.split_whitespace().rev().map(str::to_owned).collect::<Vec<_>>();
    let mut common = words(metrics.first()?);
    for other in &metrics[1..] {
        let same = common.iter().zip(words(other)).take_while(|(one, other)| *one == other).count();
        common.truncate(same);
    }
    common.reverse();
    Some(common.join(" "))
}

/// The quantity of a unit; `None` for plain numbers.
fn quantity(metrics: &[&Metric], unit: &str) -> Option<&'static str> {
    match unit {
        "ns" | "us" | "ms" | "s" if metrics.iter().all(|metric| are_latencies(metric)) => Some("latency"),
        "ns" | "us" | "ms" | "s" => Some("time"),
        "IOPS" | "kIOPS" => Some("rate"),
        unit if unit.ends_with("/s") => Some("bandwidth"),
        _ => None,
    }
}

/// Whether its name or a word of its title is that of a figure of latencies: `reads p99.9`.
fn are_latencies(metric: &Metric) -> bool {
    let words = || metric.title.split_whitespace();
    is_of_latencies(&metric.name) || words().any(|word| is_of_latencies(word.trim_matches(',')) || word == "average")
}

fn says_quantity(title: &str) -> bool {
    let words = ["bandwidth", "throughput", "rate", "latency", "time", "duration"];
    title.split_whitespace().any(|word| words.contains(&word.trim_matches(',')))
}

/// The name of a percentile, or of another figure of latencies.
fn is_of_latencies(name: &str) -> bool {
    let is_percentile = name
        .strip_prefix('p')
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit() || c == '.'));
    is_percentile || ["mean", "min", "max", "median"].contains(&name)
}

/// A title with its unit in parentheses, if there is one.
fn titled(title: &str, unit: &str) -> String {
    match unit {
        "" | "ratio" | "times" => title.to_owned(),
        unit => format!("{title} ({unit})"),
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |bounds, value| {
        Some(bounds.map_or((value, value), |(low, high): (f64, f64)| (low.min(value), high.max(value))))
    })
}
