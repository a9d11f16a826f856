//! Scatter plots of all candidates, and bar charts of the leading ones.

use zonda_plot::text::{duration, number, significant};
use zonda_plot::{Axis, Chart, Form, LOOKS, Look, Point, Reference, Series};
use zonda_ssd::allocation::AllocationKind;

use crate::advice::Advice;
use crate::score::Ranked;

/// Looks of the recommended candidate and of the zones of the profile.
const CHOICE: Look = LOOKS[7];
const OWN: Look = LOOKS[6];
/// Margin beyond the outermost points, as a share of the axis.
const BEYOND: f64 = 0.06;
/// Half the width of the band at the recommendation, as a share of the axis.
const MARK_SHARE: f64 = 0.012;

/// Two plots of every candidate: write amplification and throughput, each against space
/// amplification.
pub(super) fn scatters(advice: &Advice) -> [Chart; 2] {
    let of = |figure: fn(&Ranked) -> f64| advice.ranking.iter().map(figure);
    let space: fn(&Ranked) -> f64 = |of| of.figures.space_amplification;
    let dlwa: fn(&Ranked) -> f64 = |of| of.figures.dlwa;
    let rate: fn(&Ranked) -> f64 = |of| of.figures.throughput_bytes_per_s / f64::from(1 << 20);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let dlwa_axis = Axis::log2("DLWA (log scale)", 1.0, most(&mut of(dlwa)).max(2.0), significant);
    let rate_axis = Axis::linear("throughput (MiB/s)", most(&mut of(rate)) * (1.0 + BEYOND), 5);
    let mut first = Chart::new("dlwa", "DLWA against space amplification", space_axis(advice), dlwa_axis);
    first.series = series(advice, space, dlwa);
    let mut second = Chart::new("rate", "Throughput against space amplification", space_axis(advice), rate_axis);
    second.series = series(advice, space, rate);
    let choice = advice.choice();
    let at = |name: &str, value: String| {
        format!(
            "{} candidates. The recommended one, {}, is at a space amplification of {} and {name} of {value}.",
            advice.ranking.len(),
            choice.measurement.candidate.short(),
            number(space(choice))
        )
    };
    first.description = at("a DLWA", number(dlwa(choice)));
    second.description = at("a throughput", format!("{} MiB/s", number(rate(choice))));
    for chart in [&mut first, &mut second] {
        let half = (chart.x.end() - chart.x.start()) * MARK_SHARE;
        chart.references.push(Reference::span(space(choice) - half, space(choice) + half, "recommended"));
        chart.notes.push("Each mark is a run. The best ones are at the left".to_owned());
        let notation = "P: dies of a zone; S: size of a zone in MiB; F: percentage from which the host finishes zones.";
        chart.notes.push(notation.to_owned());
    }
    first.notes[0] += " bottom.";
    second.notes[0] += " top.";
    [first, second]
}

fn space_axis(advice: &Advice) -> Axis {
    let values = || advice.ranking.iter().map(|of| of.figures.space_amplification);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let beyond = ((most - least) * BEYOND).max(0.01);
    Axis::between("space amplification", least - beyond, most + beyond, 5)
}

/// A series of marks for each storage element, then the zones of the profile and the
/// recommendation.
fn series(advice: &Advice, x: fn(&Ranked) -> f64, y: fn(&Ranked) -> f64) -> Vec<Series> {
    let marks = |name: String, look: Look, of: Vec<&Ranked>| {
        let pieces = of.into_iter().map(|of| vec![Point::new(x(of), y(of))]).collect();
        Series { name, remark: String::new(), look, form: Form::Line, pieces }
    };
    let mut elements: Vec<AllocationKind> = Vec::new();
    for best in advice.best_of_each_element() {
        elements.push(best.measurement.candidate.shape.element);
    }
    elements.sort_by_key(ToString::to_string);
    let mut all: Vec<Series> = elements
        .iter()
        .zip(LOOKS)
        .map(|(element, look)| {
            let of = advice.ranking.iter().filter(|of| of.measurement.candidate.shape.element == *element);
            marks(element.to_string(), look, of.collect())
        })
        .collect();
    if let Some(own) = advice.own.filter(|own| *own != 0) {
        let own = &advice.ranking[own];
        all.push(marks(format!("profile: {}", own.measurement.candidate.short()), OWN, vec![own]));
    }
    let choice = advice.choice();
    all.push(marks(format!("recommended: {}", choice.measurement.candidate.short()), CHOICE, vec![choice]));
    all
}

/// Figures of the leading candidates side by side.
pub(super) fn bars(advice: &Advice, top: usize) -> Vec<Chart> {
    let leading = &advice.ranking[..top.clamp(1, advice.ranking.len())];
    let operation = advice.choice().figures.waited_for;
    let mut charts = vec![
        chart(
            leading,
            "throughput",
            "Throughput",
            "MiB/s",
            &[("throughput", |of| of.figures.throughput_bytes_per_s / f64::from(1 << 20))],
        ),
        chart(
            leading,
            "written",
            "Writing and wear",
            "per byte written",
            &[("written to flash (DLWA)", |of| of.figures.dlwa), ("erased (wear)", |of| of.figures.wear)],
        ),
        chart(
            leading,
            "space",
            "Space amplification",
            "live and dead bytes over live ones",
            &[("space", |of| of.figures.space_amplification)],
        ),
    ];
    if !operation.is_empty() {
        let title = format!("Latency of {operation}");
        charts.push(chart(
            leading,
            "latency",
            &title,
            "ms",
            &[("mean", |of| of.figures.mean_ns as f64 / 1e6), ("p99", |of| of.figures.p99_ns as f64 / 1e6)],
        ));
        let last = charts.last_mut().expect("it was added");
        last.description = format!("The recommended one: {}.", duration(advice.choice().figures.mean_ns));
    }
    charts
}

/// A name, and a figure.
type Bar = (&'static str, fn(&Ranked) -> f64);

fn chart(leading: &[Ranked], id: &str, title: &str, unit: &str, bars: &[Bar]) -> Chart {
    let x = Axis::names("rank", leading.iter().map(|of| of.rank.to_string()));
    let most = leading.iter().flat_map(|of| bars.iter().map(|(_, figure)| figure(of))).fold(0.0, f64::max);
    let mut chart = Chart::new(id, title, x, Axis::linear(unit, most, 5));
    for ((name, figure), look) in bars.iter().zip(LOOKS) {
        let points = leading.iter().enumerate().map(|(place, of)| (place as f64, figure(of)));
        chart.series.push(Series::new(*name, look, Form::Bars, points));
    }
    let all: Vec<String> = leading.iter().map(|of| format!("{} {}", of.rank, number(bars[0].1(of)))).collect();
    chart.description = format!("{} by rank: {}.", bars[0].0, all.join(", "));
    chart
}
