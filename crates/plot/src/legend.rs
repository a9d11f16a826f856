//! The legend of a chart: the look of each series, and whether it is of the model or published.

use crate::chart::Chart;
use crate::draw::{PAGE, STEPS, STRONG};
use crate::look::{Look, hex};
use crate::marks::{LINE_WIDTH, OUTLINE_WIDTH, PUBLISHED_LINE_WIDTH, PUBLISHED_RADIUS, corners};
use crate::series::{Form, Series};
use crate::text::escape;

/// Size of a swatch in pixels.
pub(crate) const SWATCH_WIDTH: u32 = 36;
pub(crate) const SWATCH_HEIGHT: u32 = 16;
const SWATCH_MARKER_RADIUS: f64 = 4.0;
const SWATCH_MIDDLE: (i32, i32) = (180, 80);

/// A row of a legend.
pub(crate) struct Row<'a> {
    /// `model` or `published`; empty if a chart has no published values.
    pub(crate) source: &'static str,
    pub(crate) series: Vec<&'a Series>,
}

/// One row for all series, or one for the model and one for published values.
pub(crate) fn rows(chart: &Chart) -> Vec<Row<'_>> {
    let (published, ours): (Vec<&Series>, Vec<&Series>) =
        chart.series.iter().partition(|series| series.form.is_published());
    if published.is_empty() {
        return vec![Row { source: "", series: ours }];
    }
    let rows = [Row { source: "model", series: ours }, Row { source: "published", series: published }];
    rows.into_iter().filter(|row| !row.series.is_empty()).collect()
}

/// The legend below a figure of a page.
pub(crate) fn html(chart: &Chart) -> String {
    let list = |row: &Row<'_>| {
        let items: String = row.series.iter().map(|series| item(series, &chart.id)).collect();
        match row.source {
            "" => format!("<ul class=\"legend\">{items}</ul>"),
            source => format!("<div class=\"source\"><span>{source}</span><ul class=\"legend\">{items}</ul></div>"),
        }
    };
    rows(chart).iter().map(list).collect()
}

fn item(series: &Series, chart_id: &str) -> String {
    let remark = match series.remark.as_str() {
        "" => String::new(),
        remark => format!(" <small>{}</small>", escape(remark)),
    };
    format!(
        "<li><svg class=\"swatch\" viewBox=\"0 0 {} {}\" width=\"{SWATCH_WIDTH}\" height=\"{SWATCH_HEIGHT}\" \
         aria-hidden=\"true\">{}</svg><span>{}{remark}</span></li>",
        SWATCH_WIDTH * STEPS,
        SWATCH_HEIGHT * STEPS,
        swatch(series, chart_id),
        escape(&series.name),
    )
}

/// A piece of the series, in steps from the upper left corner of the swatch.
pub(crate) fn swatch(series: &Series, chart_id: &str) -> String {
    let color = series.look.hex();
    match series.form {
        Form::Line | Form::LongLine => line(&color, LINE_WIDTH) + &filled_marker(series.look),
        Form::Published => hollow_marker(series.look),
        Form::PublishedLine => line(&color, PUBLISHED_LINE_WIDTH) + &hollow_marker(series.look),
        Form::Bars => bar(series.look, chart_id),
        Form::PublishedBars => format!(
            "{}<rect x=\"5\" y=\"55\" width=\"350\" height=\"50\" fill=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>",
            bar(series.look, chart_id),
            hex(PAGE),
            hex(STRONG),
            steps(OUTLINE_WIDTH)
        ),
    }
}

fn bar(look: Look, chart_id: &str) -> String {
    let rect = |fill: &str| format!("<rect x=\"30\" y=\"5\" width=\"300\" height=\"150\" fill=\"{fill}\"/>");
    let hatching = look.hatch().map(|_| rect(&format!("url(#{})", look.hatch_id(&escape(chart_id)))));
    rect(&look.hex()) + &hatching.unwrap_or_default()
}

fn line(color: &str, width: f64) -> String {
    format!("<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"{}\" points=\"5,80 355,80\"/>", steps(width))
}

fn filled_marker(look: Look) -> String {
    match points(look, SWATCH_MARKER_RADIUS).as_str() {
        "" => String::new(),
        points => format!("<polygon fill=\"{}\" points=\"{points}\"/>", look.hex()),
    }
}

fn hollow_marker(look: Look) -> String {
    match points(look, PUBLISHED_RADIUS).as_str() {
        "" => String::new(),
        points => format!(
            "<polygon fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" points=\"{points}\"/>",
            look.hex(),
            steps(OUTLINE_WIDTH)
        ),
    }
}

fn points(look: Look, radius: f64) -> String {
    let corners: Vec<String> = corners(look, radius, SWATCH_MIDDLE).iter().map(|(x, y)| format!("{x},{y}")).collect();
    corners.join(" ")
}

fn steps(pixels: f64) -> i32 {
    (pixels * f64::from(STEPS)).round() as i32
}
