//! The contents of a chart: points, series, and reference lines.

use crate::look::Look;

/// A point of a series, in the units of the axes. On an axis of names, `x` is the place of the
/// name: 0, 1, 2, ...
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Along the x axis.
    pub x: f64,
    /// Along the y axis.
    pub y: f64,
    /// The least and the greatest `y` of what the point stands for, such as runs with other seeds:
    /// drawn as a whisker.
    pub spread: Option<(f64, f64)>,
}

impl Point {
    /// A point without a spread.
    #[must_use]
    pub const fn new(x: f64, y: f64) -> Point {
        Point { x, y, spread: None }
    }

    /// The same point with a whisker from `low` to `high`.
    #[must_use]
    pub const fn with_spread(self, low: f64, high: f64) -> Point {
        Point { spread: Some((low, high)), ..self }
    }

    /// A point that is not a number cannot be drawn and is left out.
    pub(crate) fn is_finite(&self) -> bool {
        self.x.is_finite() && self.y.is_finite()
    }
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Point {
        Point::new(x, y)
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line with a marker on each point.
    Line,
    /// A line of many points, some of which have a marker.
    LongLine,
    /// Bars from the lower end of the y axis. Series of bars with other looks stand side by side at
    /// each name.
    Bars,
    /// Published points: markers that are larger and hollow.
    Published,
    /// Published points on a thin dashed line.
    PublishedLine,
    /// Published values of bars: a hollow tick across the bar of the same look.
    PublishedBars,
}

impl Form {
    /// Whether the series is of published values.
    #[must_use]
    pub const fn is_published(self) -> bool {
        matches!(self, Form::Published | Form::PublishedLine | Form::PublishedBars)
    }

    pub(crate) const fn is_bars(self) -> bool {
        matches!(self, Form::Bars | Form::PublishedBars)
    }

    pub(crate) const fn has_line(self) -> bool {
        matches!(self, Form::Line | Form::LongLine | Form::PublishedLine)
    }
}

/// A line without a gap, or several with gaps between them.
pub type Pieces = Vec<Vec<Point>>;

/// A series of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// For the legend. Plain text.
    pub name: String,
    /// For the legend, behind the name. Plain text.
    pub remark: String,
    /// Its colour, dashes, marker and hatching.
    pub look: Look,
    /// How it is drawn.
    pub form: Form,
    /// Its points.
    pub pieces: Pieces,
}

impl Series {
    /// A series without gaps and without a remark.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        look: Look,
        form: Form,
        points: impl IntoIterator<Item = impl Into<Point>>,
    ) -> Series {
        let points: Vec<Point> = points.into_iter().map(Into::into).collect();
        let pieces = if points.is_empty() { Vec::new() } else { vec![points] };
        Series { name: name.into(), remark: String::new(), look, form, pieces }
    }

    /// All points that can be drawn.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.pieces.iter().flatten().filter(|point| point.is_finite())
    }

    /// The least and the greatest y of all points that can be drawn, their spread included; none
    /// without a point.
    #[must_use]
    pub fn y_bounds(&self) -> Option<(f64, f64)> {
        let every = self.points().flat_map(|point| {
            let (low, high) = point.spread.unwrap_or((point.y, point.y));
            [point.y, low, high]
        });
        every.filter(|y| y.is_finite()).fold(None, |bounds: Option<(f64, f64)>, y| {
            Some(bounds.map_or((y, y), |(least, most)| (least.min(y), most.max(y))))
        })
    }
}

/// A reference at a fixed position to compare series with, such as a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Its position.
    pub place: Place,
    /// Its label. Plain text.
    pub label: String,
}

/// Position of a [`Reference`], in the units of the axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// A line at a y.
    Line(f64),
    /// A band between two y.
    Band(f64, f64),
    /// A span between two x.
    Span(f64, f64),
}

impl Reference {
    /// A horizontal line at `y`: `PCIe 3,200 MiB/s`.
    #[must_use]
    pub fn line(y: f64, label: impl Into<String>) -> Reference {
        Reference { place: Place::Line(y), label: label.into() }
    }

    /// A horizontal band from one y to another.
    #[must_use]
    pub fn band(low: f64, high: f64, label: impl Into<String>) -> Reference {
        Reference { place: Place::Band(low, high), label: label.into() }
    }

    /// A part of the x axis: `ramp`.
    #[must_use]
    pub fn span(from: f64, to: f64, label: impl Into<String>) -> Reference {
        Reference { place: Place::Span(from, to), label: label.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::LOOKS;

    #[test]
    fn bounds_include_spreads_and_exclude_nan() {
        let points = [Point::new(0.0, 5.0).with_spread(4.0, 9.0), Point::new(1.0, f64::NAN), Point::new(2.0, 3.0)];
        let series = Series::new("", LOOKS[0], Form::Line, points);
        assert_eq!((series.y_bounds(), series.points().count()), (Some((3.0, 9.0)), 2));
        assert_eq!(Series::new("", LOOKS[0], Form::Line, [(0.0, 0.0); 0]).y_bounds(), None);
    }
}
