//! The marks of a chart: bars, lines, whiskers, markers.

use plotters::element::{PathElement, Polygon, Rectangle};
use plotters::style::{Color, RGBColor};

use crate::chart::Chart;
use crate::draw::{Canvas, Drawn, PAGE, STEPS, STRONG, line};
use crate::look::Look;
use crate::series::{Form, Point, Series};

/// Widths of lines in pixels. `plot.css` distinguishes lines of series and published ones by their
/// width.
pub(crate) const LINE_WIDTH: f64 = 2.0;
pub(crate) const PUBLISHED_LINE_WIDTH: f64 = 1.1;
pub(crate) const OUTLINE_WIDTH: f64 = 1.4;
const WHISKER_WIDTH: f64 = 1.3;
/// Half of a marker, in pixels.
pub(crate) const MARKER_RADIUS: f64 = 3.4;
pub(crate) const PUBLISHED_RADIUS: f64 = 6.2;
/// Half the bar at the end of a whisker, and how far a published tick reaches above and below its
/// value, and beyond its bar.
const WHISKER_CAP: f64 = 4.0;
const TICK_HALF: f64 = 2.5;
const TICK_BEYOND: f64 = 1.0;
/// Markers along a line with many points.
const MARKERS_MAX: usize = 9;
/// Share of a name's place that its bars take, of one and of several series, and of a bar's place
/// that it fills.
const GROUP_OF_ONE: f64 = 0.5;
const GROUP: f64 = 0.8;
const BAR: f64 = 0.9;

/// All marks, from those at the back to those in front.
pub(crate) fn draw_marks(chart: &Chart, canvas: &Canvas<'_, '_>) -> Drawn {
    let bars = Bars::of(&chart.series);
    let of = |form: fn(Form) -> bool| chart.series.iter().filter(move |series| form(series.form));
    for series in of(|form| form == Form::Bars) {
        bars.draw(series, canvas)?;
    }
    for series in of(Form::has_line) {
        draw_line(series, canvas)?;
    }
    for series in &chart.series {
        for point in series.points() {
            let (x, color) = if series.form.is_bars() {
                (bars.middle(series.look, point.x), STRONG)
            } else {
                (point.x, series.look.color)
            };
            draw_whisker(x, point, color, canvas)?;
        }
    }
    for (index, series) in chart.series.iter().enumerate() {
        if matches!(series.form, Form::Line | Form::LongLine) {
            draw_markers(series, index, chart.series.len(), canvas)?;
        }
    }
    for series in of(Form::is_published) {
        if series.form == Form::PublishedBars {
            bars.draw_published(series, canvas)?;
        } else {
            draw_published(series, canvas)?;
        }
    }
    Ok(())
}

fn draw_line(series: &Series, canvas: &Canvas<'_, '_>) -> Drawn {
    let width = if series.form.is_published() { PUBLISHED_LINE_WIDTH } else { LINE_WIDTH };
    for piece in &series.pieces {
        let points: Vec<(i32, i32)> =
            piece.iter().filter(|point| point.is_finite()).map(|point| canvas.at(point.x, point.y)).collect();
        if points.len() > 1 {
            canvas.area.draw(&PathElement::new(points, line(series.look.color, width)))?;
        }
    }
    Ok(())
}

fn draw_whisker(x: f64, point: &Point, color: RGBColor, canvas: &Canvas<'_, '_>) -> Drawn {
    let Some((low, high)) = point.spread.filter(|(low, high)| low.is_finite() && high.is_finite()) else {
        return Ok(());
    };
    let ((x, low), (_, high)) = (canvas.at(x, low), canvas.at(x, high));
    let cap = steps(WHISKER_CAP);
    let path = [(x - cap, high), (x + cap, high), (x, high), (x, low), (x - cap, low), (x + cap, low)];
    canvas.area.draw(&PathElement::new(path, line(color, WHISKER_WIDTH)))
}

fn draw_markers(series: &Series, index: usize, of: usize, canvas: &Canvas<'_, '_>) -> Drawn {
    for (x, y) in marked(series, index, of) {
        let corners = corners(series.look, MARKER_RADIUS, canvas.at(x, y));
        if !corners.is_empty() {
            canvas.area.draw(&Polygon::new(corners, series.look.color.filled()))?;
        }
    }
    Ok(())
}

/// The points with a marker: all, or some, at other places than those of the next series. A point
/// alone always has one, as it would not be seen otherwise.
fn marked(series: &Series, index: usize, of: usize) -> Vec<(f64, f64)> {
    let points: usize = series.pieces.iter().map(Vec::len).sum();
    let every = if series.form == Form::LongLine { points.div_ceil(MARKERS_MAX).max(1) } else { 1 };
    let offset = (index * every / of.max(1) + every / 2) % every;
    let mut place = 0;
    let mut marked = Vec::new();
    for piece in &series.pieces {
        for point in piece {
            if (piece.len() == 1 || place % every == offset) && point.is_finite() {
                marked.push((point.x, point.y));
            }
            place += 1;
        }
    }
    marked
}

/// Outlines, so that values of the model are visible behind them.
fn draw_published(series: &Series, canvas: &Canvas<'_, '_>) -> Drawn {
    for point in series.points() {
        let mut outline = corners(series.look, PUBLISHED_RADIUS, canvas.at(point.x, point.y));
        if let Some(first) = outline.first() {
            outline.push(*first);
            canvas.area.draw(&PathElement::new(outline, line(series.look.color, OUTLINE_WIDTH)))?;
        }
    }
    Ok(())
}

/// The looks of the bars of a chart, from left to right.
struct Bars(Vec<Look>);

impl Bars {
    fn of(series: &[Series]) -> Bars {
        let mut looks = Vec::new();
        for series in series.iter().filter(|series| series.form.is_bars()) {
            if !looks.contains(&series.look) {
                looks.push(series.look);
            }
        }
        Bars(looks)
    }

    /// Width of the place of one bar, if that of a name is 1.
    fn pitch(&self) -> f64 {
        if self.0.len() < 2 { GROUP_OF_ONE } else { GROUP / self.0.len() as f64 }
    }

    /// The middle of a bar at `x`.
    fn middle(&self, look: Look, x: f64) -> f64 {
        let place = self.0.iter().position(|of| *of == look).unwrap_or(0) as f64;
        x + (place + 0.5 - self.0.len() as f64 / 2.0) * self.pitch()
    }

    fn draw(&self, series: &Series, canvas: &Canvas<'_, '_>) -> Drawn {
        let half = self.pitch() * BAR / 2.0;
        for point in series.points() {
            let middle = self.middle(series.look, point.x);
            let corners = [canvas.at(middle - half, point.y), canvas.at(middle + half, canvas.y.start())];
            canvas.area.draw(&Rectangle::new(corners, series.look.color.filled()))?;
        }
        Ok(())
    }

    fn draw_published(&self, series: &Series, canvas: &Canvas<'_, '_>) -> Drawn {
        let half = self.pitch() * BAR / 2.0;
        let (beyond, above) = (steps(TICK_BEYOND), steps(TICK_HALF));
        for point in series.points() {
            let middle = self.middle(series.look, point.x);
            let ((left, y), (right, _)) = (canvas.at(middle - half, point.y), canvas.at(middle + half, point.y));
            let (left, right, top, bottom) = (left - beyond, right + beyond, y - above, y + above);
            let outline = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
            canvas.area.draw(&Rectangle::new([(left, top), (right, bottom)], PAGE.filled()))?;
            canvas.area.draw(&PathElement::new(outline, line(STRONG, OUTLINE_WIDTH)))?;
        }
        Ok(())
    }
}

/// The corners of a marker of `radius` pixels around a place in steps.
pub(crate) fn corners(look: Look, radius: f64, (x, y): (i32, i32)) -> Vec<(i32, i32)> {
    look.corners().iter().map(|(right, down)| (x + steps(right * radius), y + steps(down * radius))).collect()
}

fn steps(pixels: f64) -> i32 {
    (pixels * f64::from(STEPS)).round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::LOOKS;

    #[test]
    fn the_style_sheet_selects_the_lines_of_series_by_their_width() {
        let css = include_str!("plot.css");
        for (width, what) in [(LINE_WIDTH, "[stroke=\"#C84E00\"]"), (PUBLISHED_LINE_WIDTH, " ")] {
            let selector = format!("polyline[stroke-width=\"{}\"]{what}", steps(width));
            assert!(css.contains(&selector), "no {selector}");
        }
    }

    #[test]
    fn a_long_line_has_few_markers_and_a_point_alone_has_one() {
        let points: Vec<(f64, f64)> = (0..90).map(|x| (f64::from(x), 1.0)).collect();
        let mut series = Series::new("", LOOKS[0], Form::LongLine, points);
        assert_eq!(marked(&series, 0, 2).len(), MARKERS_MAX);
        assert_ne!(marked(&series, 0, 2), marked(&series, 1, 2));
        series.pieces.push(vec![Point::new(99.0, 1.0)]);
        assert_eq!(marked(&series, 0, 2).last(), Some(&(99.0, 1.0)));
        series.form = Form::Line;
        assert_eq!(marked(&series, 0, 2).len(), 91);
    }

    #[test]
    fn bars_of_one_look_share_a_place_and_those_of_others_are_side_by_side() {
        let of = |look, form| Series::new("", look, form, [(0.0, 1.0)]);
        let series = [
            of(LOOKS[0], Form::Bars),
            of(LOOKS[1], Form::Bars),
            of(LOOKS[0], Form::PublishedBars),
            of(LOOKS[2], Form::Line),
        ];
        let bars = Bars::of(&series);
        assert_eq!(bars.0, LOOKS[..2]);
        assert_eq!([LOOKS[0], LOOKS[1]].map(|look| bars.middle(look, 3.0)), [2.8, 3.2]);
        assert_eq!(Bars::of(&series[..1]).middle(LOOKS[0], 3.0), 3.0);
    }
}
