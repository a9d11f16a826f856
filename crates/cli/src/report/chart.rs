//! One chart: lines with markers over two axes, as a figure of the page.

use std::fmt;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{EmptyElement, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, RGBColor, ShapeStyle, TextStyle};

use super::axis::Axis;
use super::look::Look;
use super::series::Pieces;
use super::text::escape;

/// Size of a drawing in pixels, and into how many steps each is divided: plotters draws at whole numbers.
const WIDTH: u32 = 520;
const HEIGHT: u32 = 300;
const STEPS: u32 = 10;
/// Space around the plotting area.
const MARGIN_TOP: u32 = 30;
const MARGIN_RIGHT: u32 = 18;
const LABELS_LEFT: u32 = 58;
const LABELS_BELOW: u32 = 44;
const FONT_SIZE: f64 = 13.0;
/// By how much plotters makes a font smaller when it writes SVG.
const PLOTTERS_FONT_FACTOR: f64 = 1.24;
const MARKER_RADIUS: f64 = 3.4;
/// Markers along a line with many points.
const MARKERS_MAX: usize = 9;

/// Colours by their use; `page.css` knows them by these values and has others for a dark page.
const GRID: RGBColor = RGBColor(0xe1, 0xe4, 0xe8);
const GRID_MINOR: RGBColor = RGBColor(0xf0, 0xf2, 0xf4);
const AXIS: RGBColor = RGBColor(0x8c, 0x95, 0x9f);
const TEXT: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const RAMP: RGBColor = RGBColor(0xee, 0xee, 0xef);

/// A chart with what is said about it.
pub(super) struct Chart {
    /// A word that no other figure of the page has.
    pub(super) id: &'static str,
    /// In plain text, as all of these.
    pub(super) title: &'static str,
    /// What the chart shows, for those who do not see it.
    pub(super) description: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
    /// Up to where completions are in no figure.
    pub(super) ramp_until: Option<f64>,
    /// Each point has a marker, not only some.
    pub(super) all_markers: bool,
    /// The figure may be as wide as the page, with its legend at the side.
    pub(super) is_wide: bool,
    /// Sentences below.
    pub(super) notes: Vec<String>,
}

/// A line of a chart.
pub(super) struct Curve {
    /// For the legend.
    pub(super) name: String,
    /// For the legend, behind the name.
    pub(super) remark: String,
    pub(super) look: Look,
    /// In the units of the axes.
    pub(super) pieces: Pieces,
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Chart {
    /// The chart as an HTML figure; a sentence if it has no point.
    pub(super) fn figure(&self) -> String {
        let class = if self.is_wide { " class=\"wide\"" } else { "" };
        let title = escape(self.title);
        if self.curves.iter().all(|curve| curve.pieces.is_empty()) {
            return format!("<figure{class}><h3>{title}</h3><p class=\"none\">Nothing to draw.</p></figure>\n");
        }
        let notes: String = self.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
        format!(
            "<figure{class}><h3>{title}</h3>\n<div \
             class=\"drawing\">{}</div>\n<figcaption>{}{notes}</figcaption></figure>\n",
            self.svg(),
            Legend(&self.curves),
        )
    }

    fn svg(&self) -> String {
        let mut drawn = String::new();
        {
            let backend = SVGBackend::with_string(&mut drawn, (WIDTH * STEPS, HEIGHT * STEPS));
            let area = backend.into_drawing_area();
            let done = self.draw(&area).and_then(|()| area.present());
            done.expect("drawing into a string cannot fail");
        }
        // The opening tag of plotters has a size in pixels and no name; what is in it is kept.
        let start = drawn.find('>').expect("plotters writes an opening tag") + 1;
        let (id, title, description) = (self.id, escape(self.title), escape(&self.description));
        let (width, height) = (WIDTH * STEPS, HEIGHT * STEPS);
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-title \
             {id}-desc\">\
             <title id=\"{id}-title\">{title}</title><desc id=\"{id}-desc\">{description}</desc>{}",
            drawn[start..].replace(" opacity=\"1\"", "")
        )
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin_top(MARGIN_TOP * STEPS)
            .margin_right(MARGIN_RIGHT * STEPS)
            .x_label_area_size(LABELS_BELOW * STEPS)
            .y_label_area_size(LABELS_LEFT * STEPS)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        let y_range = plotters::coord::ranged1d::Ranged::range(&self.y);
        if let Some(ramp_until) = self.ramp_until {
            let corners = [(0.0, y_range.start), (ramp_until.min(self.x.end()), y_range.end)];
            chart.draw_series([Rectangle::new(corners, RAMP.filled())])?;
        }
        chart
            .configure_mesh()
            .x_desc(self.x.title.clone())
            .label_style(text_style(HPos::Center, VPos::Center))
            .axis_desc_style(text_style(HPos::Center, VPos::Center))
            .bold_line_style(line(GRID, 1.0))
            .light_line_style(line(GRID_MINOR, 1.0))
            .axis_style(line(AXIS, 1.0))
            .set_all_tick_mark_size(4 * STEPS)
            .draw()?;
        area.draw(&Text::new(self.y.title.clone(), (0, 2 * STEPS as i32), text_style(HPos::Left, VPos::Top)))?;
        if self.ramp_until.is_some() {
            let place = EmptyElement::at((0.0, y_range.end));
            let word = Text::new("ramp", (5 * STEPS as i32, 5 * STEPS as i32), text_style(HPos::Left, VPos::Top));
            chart.draw_series([place + word])?;
        }
        for curve in &self.curves {
            let lines = curve.pieces.iter().filter(|piece| piece.len() > 1);
            chart.draw_series(lines.map(|piece| PathElement::new(piece.clone(), line(curve.look.color, 2.0))))?;
        }
        for (index, curve) in self.curves.iter().enumerate() {
            let points = self.marked(curve, index);
            let corners = pixels(&curve.look.corners());
            if corners.is_empty() {
                continue;
            }
            let marker = |point| EmptyElement::at(point) + Polygon::new(corners.clone(), curve.look.color.filled());
            chart.draw_series(points.into_iter().map(marker))?;
        }
        Ok(())
    }

    /// The points with a marker: all, or some, at other places than those of the next curve. A point alone always has
    /// one, as it would not be seen otherwise.
    fn marked(&self, curve: &Curve, index: usize) -> Vec<(f64, f64)> {
        let points: usize = curve.pieces.iter().map(Vec::len).sum();
        let every = if self.all_markers { 1 } else { points.div_ceil(MARKERS_MAX).max(1) };
        let offset = (index * every / self.curves.len().max(1) + every / 2) % every;
        let mut place = 0;
        let mut marked = Vec::new();
        for piece in &curve.pieces {
            for point in piece {
                if piece.len() == 1 || place % every == offset {
                    marked.push(*point);
                }
                place += 1;
            }
        }
        marked
    }
}

/// The legend of a chart.
struct Legend<'a>(&'a [Curve]);

impl fmt::Display for Legend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<ul class=\"legend\">")?;
        for Curve { name, remark, look, .. } in self.0 {
            let remark = if remark.is_empty() { String::new() } else { format!(" <small>{}</small>", escape(remark)) };
            write!(f, "<li>{}<span>{}{remark}</span></li>", look.swatch(), escape(name))?;
        }
        f.write_str("</ul>")
    }
}

fn pixels(corners: &[(f64, f64)]) -> Vec<(i32, i32)> {
    let scale = MARKER_RADIUS * f64::from(STEPS);
    corners.iter().map(|(x, y)| ((x * scale).round() as i32, (y * scale).round() as i32)).collect()
}

fn line(color: RGBColor, width: f64) -> ShapeStyle {
    color.stroke_width((width * f64::from(STEPS)) as u32)
}

fn text_style(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    let size = FONT_SIZE * f64::from(STEPS) * PLOTTERS_FONT_FACTOR;
    TextStyle::from((FontFamily::SansSerif, size)).color(&TEXT).pos(Pos::new(horizontal, vertical))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_knows_every_colour_of_a_chart() {
        let css = include_str!("page.css");
        for (RGBColor(red, green, blue), attribute) in
            [(GRID, "stroke"), (GRID_MINOR, "stroke"), (AXIS, "stroke"), (TEXT, "fill"), (RAMP, "fill")]
        {
            let selector = format!("[{attribute}=\"#{red:02X}{green:02X}{blue:02X}\"]");
            assert!(css.contains(&selector), "no {selector}");
        }
    }
}
