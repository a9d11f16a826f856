//! A chart of all results: a mark for each, at its error relative to the allowed error, with a row
//! for each paper.

use zonda_plot::text::{counted, escape};

use super::entry::{Found, Site};
use super::words;
use crate::Basis;

/// Sizes in the SVG, which is scaled up slightly on a wide page.
const WIDTH: f64 = 560.0;
const LABELS: f64 = 108.0;
const MARGIN: f64 = 14.0;
const TOP: f64 = 26.0;
const BELOW: f64 = 62.0;
const RADIUS: f64 = 4.6;
/// Distance between marks.
const PITCH: f64 = 11.0;
/// Margin around the marks of a paper.
const ROW_PADDING: f64 = 16.0;
/// Minimum and maximum range of the axis.
const REACH_MIN: f64 = 1.5;
const REACH_MAX: f64 = 4.0;

/// A mark, relative to the middle of the row of its paper.
struct Mark<'a> {
    found: Found<'a>,
    x: f64,
    rise: f64,
}

/// The chart and its legend.
pub(super) fn html(site: &Site<'_>, device: &[Found<'_>]) -> String {
    let share = |found: &Found<'_>| found.1.error.map(|error| error / found.1.tolerance.max(f64::MIN_POSITIVE));
    let most = device.iter().filter_map(share).fold(0.0, |most: f64, share| most.max(share.abs()));
    let reach = ((most * 2.0).ceil() / 2.0).clamp(REACH_MIN, REACH_MAX);
    let at = |share: f64| {
        let from_start = (share.clamp(-reach, reach) + reach) / (2.0 * reach);
        LABELS + 6.0 + from_start * (WIDTH - LABELS - MARGIN - 12.0)
    };
    let mut rows = String::new();
    let mut top = TOP;
    for paper in site.groups.iter().filter_map(|group| group.paper) {
        let of_paper = device.iter().filter(|(entry, _)| entry.paper.is_some_and(|its| its.key == paper.key));
        let marks = swarm(of_paper.filter_map(|found| Some((at(share(found)?), *found))).collect());
        if marks.is_empty() {
            continue;
        }
        let rise = marks.iter().map(|mark| mark.rise.abs()).fold(0.0, f64::max);
        let middle = top + rise + ROW_PADDING;
        let bottom = middle + rise + ROW_PADDING;
        let drawn: String = marks.iter().map(|mark| drawn(mark, middle)).collect();
        rows += &format!(
            "<text class=\"paper\" x=\"0\" y=\"{:.1}\">{}</text>\n<path class=\"rule\" d=\"M0 {bottom:.1}H{WIDTH}\"/>\n{drawn}",
            middle + 4.5,
            escape(paper.name)
        );
        top = bottom;
    }
    let met = device.iter().filter(|(_, row)| row.met).count();
    let beyond = device.iter().filter_map(share).filter(|share| share.abs() > reach).count();
    format!(
        "<div class=\"glance\">\n<div><svg class=\"overview\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"group\" \
         aria-labelledby=\"overview-title overview-desc\"><title id=\"overview-title\">Errors of all results, as shares of the \
         allowed error</title><desc id=\"overview-desc\">{met} of {all} marks are within the band of the \
         allowed error.</desc>\n{axis}{rows}</svg></div>\n{legend}</div>\n",
        height = top + BELOW,
        all = device.len(),
        axis = axis(reach, top, at),
        legend = legend(device, beyond),
    )
}

/// Places marks without overlap, as near to the middle of the row as possible.
fn swarm(mut found: Vec<(f64, Found<'_>)>) -> Vec<Mark<'_>> {
    found.sort_by(|(x, one), (other_x, other)| x.total_cmp(other_x).then_with(|| one.1.id.cmp(&other.1.id)));
    let mut marks: Vec<Mark<'_>> = Vec::with_capacity(found.len());
    for (x, found) in found {
        let is_free = |rise: &f64| {
            marks.iter().all(|mark| (mark.x - x).powi(2) + (mark.rise - rise).powi(2) >= PITCH * PITCH * 0.999)
        };
        let rises = (0..).flat_map(|step| [f64::from(step) * PITCH / 2.0, f64::from(step) * -PITCH / 2.0]);
        let rise = rises.take(1_000).find(is_free).unwrap_or(0.0);
        marks.push(Mark { found, x, rise });
    }
    marks
}

fn drawn(mark: &Mark<'_>, middle: f64) -> String {
    let (entry, row) = mark.found;
    let ours = row.ours.map_or_else(String::new, |ours| words::with_unit(&words::rounded(ours), &row.unit));
    format!(
        "<a href=\"{}\" tabindex=\"-1\"><title>{}: {} published, {ours} by the model, {} ({})</title>{}</a>\n",
        entry.result_link(row),
        escape(&words::capitalized(&row.title)),
        words::with_unit(&words::exact(row.published), &row.unit),
        row.verdict.name(),
        row.basis.name(),
        words::marker(row.basis, mark.x, middle + mark.rise, RADIUS)
    )
}

/// The band of met results, grid lines, and labels.
fn axis(reach: f64, bottom: f64, at: impl Fn(f64) -> f64) -> String {
    let (left, right, middle) = (at(-1.0), at(1.0), at(0.0));
    let mut axis = format!(
        "<rect class=\"band\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\n\
         <text class=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">met</text>\n\
         <text class=\"end\" x=\"{:.1}\" y=\"{y:.1}\">missed</text><text x=\"{:.1}\" y=\"{y:.1}\">missed</text>\n\
         <path class=\"rule\" d=\"M0 {TOP}H{WIDTH}\"/>\n",
        right - left,
        bottom - TOP,
        TOP - 8.0,
        left - 8.0,
        right + 8.0,
        y = TOP - 8.0,
    );
    for step in -(reach.floor() as i32)..=reach.floor() as i32 {
        let x = at(step.into());
        let label = match step {
            0 => "0".to_owned(),
            step if step < 0 => format!("\u{2212}{}", -step),
            step => format!("+{step}"),
        };
        let class = if step == 0 { "zero" } else { "grid" };
        axis += &format!(
            "<path class=\"{class}\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/><text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>\n",
            bottom + 18.0
        );
    }
    axis += &format!(
        "<text class=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">error ÷ allowed error</text>\n\
         <text x=\"{:.1}\" y=\"{y:.1}\">← model lower</text><text class=\"end\" x=\"{:.1}\" y=\"{y:.1}\">model higher →</text>\n",
        bottom + 38.0,
        at(-reach),
        at(reach),
        y = bottom + 56.0,
    );
    axis
}

/// The legend.
fn legend(device: &[Found<'_>], beyond: usize) -> String {
    let meaning = [
        (
            Basis::Predicted,
            "Nothing was set with this result or another one of the same figure in view: the model predicts it.",
        ),
        (
            Basis::Chosen,
            "No value of the drive model depends on it, but an unpublished parameter of the workload, or a structure of \
             the model, was chosen with it in view.",
        ),
        (
            Basis::SameFigure,
            "A value of the drive model was derived from another result of the same figure, or fitted to it.",
        ),
        (Basis::Derived, "A value of the drive model was computed from this result, without running the model."),
        (
            Basis::Fitted,
            "A value of the drive model was chosen by running the model until it met this result, which is therefore weak evidence.",
        ),
    ];
    let items: String = meaning
        .iter()
        .map(|(basis, words)| {
            let of_basis = device.iter().filter(|(_, row)| row.basis == *basis);
            let results = counted(of_basis.count() as u64, "result");
            format!("<dt>{} <small>{results}</small></dt><dd>{words}</dd>\n", words::basis(*basis))
        })
        .collect();
    let mut notes = String::new();
    if beyond > 0 {
        notes += &format!(
            "<p>{} beyond the range of the axis, and drawn at its end.</p>\n",
            are(beyond, "mark is", "marks are")
        );
    }
    let nothing = device.iter().filter(|(_, row)| row.error.is_none()).count();
    if nothing > 0 {
        notes +=
            &format!("<p>{} no mark: the runs produced no value.</p>\n", are(nothing, "result has", "results have"));
    }
    format!(
        "<div class=\"reading\">\n<p>Each mark is a published result about a drive. At 0 the model has the same value; at \
         \u{2212}1 and +1 it deviates by the allowed error. Select a mark to go to its result.</p>\n\
         <dl>\n{items}</dl>\n{notes}</div>\n"
    )
}

fn are(how_many: usize, one: &str, several: &str) -> String {
    format!("{how_many} {}", if how_many == 1 { one } else { several })
}
