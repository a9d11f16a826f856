//! The plots of an experiment: results of the model as lines or bars, published values as hollow
//! markers or ticks.

use zonda_plot::{Axis, Chart, Form, LOOKS, Look, OTHERS, Point, Series};

use super::axes::{spelled, x_axis, y_axis};
use super::names::{anchor, plot_file};
use super::words::{exact, rounded};
use crate::{AcrossSpec, LabExperiment, Outcome, Paper, PlotPlan, ScaleSpec};

/// Maximum number of series of bars.
const BARS_MAX: usize = 4;
/// A spread below this share of the axis is not shown, because the marker covers it.
const SPREAD_MIN: f64 = 0.012;

/// Every plot of an experiment, and the name of its file.
pub(super) fn of(experiment: &LabExperiment, outcome: &Outcome, paper: Option<&Paper>) -> Vec<(Chart, String)> {
    let file = |number| plot_file(&experiment.id, paper.map(|paper| paper.key), number);
    let numbered = experiment.plots.iter().zip(1..);
    numbered.map(|(plan, number)| (chart(experiment, outcome, plan, number), file(number))).collect()
}

/// The horizontal axis, which determines the series.
#[derive(Clone, Copy, PartialEq)]
enum Across {
    /// The values of x; a series is a metric of a curve.
    X,
    /// The metrics; a series is a curve at a value of x.
    Metrics,
    /// The curves, if nothing is varied; a series is a metric.
    Curves,
}

fn chart(experiment: &LabExperiment, outcome: &Outcome, plan: &PlotPlan, number: usize) -> Chart {
    let across = match (plan.across, &experiment.x) {
        (AcrossSpec::Metrics, _) => Across::Metrics,
        (AcrossSpec::X, Some(_)) => Across::X,
        (AcrossSpec::X, None) => Across::Curves,
    };
    let x = match (across, &experiment.x) {
        (Across::X, Some(x)) => x_axis(x),
        (Across::Metrics, _) => {
            let names = plan.metrics.iter().map(|metric| experiment.metrics[*metric].title.as_str());
            Axis::names("", names)
        }
        _ => Axis::names("", plan.series.iter().map(|curve| experiment.series[*curve].as_str())),
    };
    let lines = lines(experiment, plan, across);
    let is_named = match across {
        Across::X => experiment.x.as_ref().is_some_and(|x| x.scale == ScaleSpec::Names),
        Across::Metrics => false,
        Across::Curves => true,
    };
    let has_bars = is_named && plan.scale == ScaleSpec::Linear && lines.len() <= BARS_MAX;
    let (form, form_published) =
        if has_bars { (Form::Bars, Form::PublishedBars) } else { (Form::Line, Form::Published) };
    let mut ours = Vec::new();
    let mut published = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let look = look(place);
        let measured = line.points.iter().filter_map(|(at, metric, curve, x)| {
            let estimate = outcome.estimate(experiment, *metric, *curve, *x)?;
            Some(Point::new(*at, estimate.mean).with_spread(estimate.low, estimate.high))
        });
        ours.push(Series::new(line.name.clone(), look, form, measured));
        let theirs = line.published(experiment, plan, across);
        if !theirs.is_empty() {
            // A line without markers has no hollow ones.
            let look = if look == OTHERS { LOOKS[place % LOOKS.len()] } else { look };
            published.push(Series::new(line.name.clone(), look, form_published, theirs));
        }
    }
    ours.extend(published);
    let y = y_axis(experiment, plan, &ours);
    let height = y.end() - y.start();
    let mut has_spread = false;
    for point in ours.iter_mut().flat_map(|series| series.pieces.iter_mut().flatten()) {
        point.spread = point.spread.filter(|(low, high)| high - low > SPREAD_MIN * height);
        has_spread |= point.spread.is_some();
    }
    let id = format!("plot-{}-{number}", anchor(&experiment.id));
    let mut chart = Chart::new(id, plan.title.clone(), x, y);
    chart.description = description(&ours, &chart);
    chart.series = ours;
    // A single plot has its legend at the side.
    chart.is_wide = experiment.plots.len() == 1;
    if !plan.note.trim().is_empty() {
        chart.notes.push(plan.note.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    if has_spread {
        chart
            .notes
            .push(format!("Whiskers: minimum and maximum of {} runs, where visibly different.", experiment.seeds));
    }
    chart
}

/// A series of the model: its name, and for each point its position on the axis, its metric, its
/// curve and its index of x.
struct Line {
    name: String,
    points: Vec<(f64, usize, usize, usize)>,
}

fn lines(experiment: &LabExperiment, plan: &PlotPlan, across: Across) -> Vec<Line> {
    let values: Vec<f64> = experiment.x.as_ref().map_or_else(|| vec![0.0], |x| x.values.clone());
    let curve_name = |curve: usize| experiment.series[curve].as_str();
    let metric_name = |metric: usize| spelled(&experiment.metrics[metric].title);
    let joined = |parts: [&str; 2]| parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let pairs = plan.series.iter().flat_map(|curve| plan.metrics.iter().map(move |metric| (*curve, *metric)));
    match across {
        Across::X => pairs
            .map(|(curve, metric)| {
                let name = match plan.metrics.len() {
                    1 if !curve_name(curve).is_empty() => curve_name(curve).to_owned(),
                    _ => joined([curve_name(curve), &metric_name(metric)]),
                };
                let points = values.iter().enumerate().map(|(x, value)| (*value, metric, curve, x));
                Line { name, points: points.collect() }
            })
            .collect(),
        Across::Metrics => plan
            .series
            .iter()
            .flat_map(|curve| (0..values.len()).map(move |x| (*curve, x)))
            .map(|(curve, x)| {
                let at = experiment
                    .x
                    .as_ref()
                    .map_or_else(String::new, |axis| joined([&axis.title, &axis.labels[x]]).replace(", ", " "));
                let name = joined([curve_name(curve), &at]);
                let name = if name.is_empty() { experiment.title.clone() } else { name };
                let points = plan.metrics.iter().enumerate().map(|(at, metric)| (at as f64, *metric, curve, x));
                Line { name, points: points.collect() }
            })
            .collect(),
        Across::Curves => plan
            .metrics
            .iter()
            .map(|metric| {
                let points = plan.series.iter().enumerate().map(|(at, curve)| (at as f64, *metric, *curve, 0));
                Line { name: metric_name(*metric), points: points.collect() }
            })
            .collect(),
    }
}

impl Line {
    /// Its published values. There may be published points that were not run.
    fn published(&self, experiment: &LabExperiment, plan: &PlotPlan, across: Across) -> Vec<Point> {
        let mut points = Vec::new();
        for curve in &experiment.published {
            let own: Vec<&(f64, usize, usize, usize)> = self
                .points
                .iter()
                .filter(|(_, metric, series, _)| *metric == curve.metric && *series == curve.series)
                .collect();
            if !plan.metrics.contains(&curve.metric) || own.is_empty() {
                continue;
            }
            if across == Across::X {
                points.extend(curve.points.iter().map(|(x, y)| Point::new(*x, *y)));
                continue;
            }
            for (at, _, _, x) in own {
                let value = experiment.x.as_ref().map(|axis| axis.values[*x]);
                let here = curve.points.iter().find(|(x, _)| value.is_none_or(|value| value == *x));
                points.extend(here.map(|(_, y)| Point::new(*at, *y)));
            }
        }
        points
    }
}

/// The ninth series has no marker; a tenth would look like the first.
fn look(place: usize) -> Look {
    if place == LOOKS.len() { OTHERS } else { LOOKS[place % LOOKS.len()] }
}

/// The text alternative of the chart: the first and the last point of each series.
fn description(series: &[Series], chart: &Chart) -> String {
    let x_name = |value: f64| {
        let tick = chart.x.ticks().iter().find(|(tick, _)| *tick == value);
        tick.map_or_else(|| exact(value), |(_, label)| label.clone())
    };
    let of = |series: &Series| {
        let whose = if series.form.is_published() { "published" } else { "model" };
        let at = |point: &Point| format!("{} at {}", rounded(point.y), x_name(point.x));
        let points: Vec<&Point> = series.points().collect();
        match points[..] {
            [] => format!("{} ({whose}): no values.", series.name),
            [only] => format!("{} ({whose}): {}.", series.name, at(only)),
            [first, .., last] => format!("{} ({whose}): {} to {}.", series.name, at(first), at(last)),
        }
    };
    let over = if chart.x.title.is_empty() { String::new() } else { format!(" over {}", chart.x.title) };
    format!("{}{over}. {}", chart.y.title, series.iter().map(of).collect::<Vec<_>>().join(" "))
}
