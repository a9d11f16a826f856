//! A chart with its title, legend and notes, as a figure of a page or as a file.

use crate::axis::Axis;
use crate::draw::{STEPS, drawing};
use crate::series::{Reference, Series};
use crate::text::escape;
use crate::{legend, standalone};

/// Maximum enlargement of a drawing.
const ENLARGED_MAX: f64 = 1.2;

/// A chart: series over two axes.
///
/// [`Chart::new`] returns an empty one; set its fields.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Unique id in the page, of letters, digits and hyphens.
    pub id: String,
    /// Plain text, as all text of a chart.
    pub title: String,
    /// Text alternative: what the chart shows.
    pub description: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// In the order of the legend; a later one is drawn over an earlier one.
    pub series: Vec<Series>,
    /// Limits and other reference lines.
    pub references: Vec<Reference>,
    /// Size of the drawing.
    pub size: Size,
    /// The figure may be as wide as the page, with its legend at the side.
    pub is_wide: bool,
    /// Sentences below the figure, such as what a whisker spans. They are not in the file.
    pub notes: Vec<String>,
}

/// Size of a drawing without its title and its legend, in pixels where it is not scaled. Text of 13
/// pixels is scaled with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

impl Size {
    /// Legible on a phone 360 pixels wide.
    pub const STANDARD: Size = Size { width: 420, height: 300 };
    /// For many points.
    pub const WIDE: Size = Size { width: 520, height: 300 };
}

impl Chart {
    /// An empty chart of [`Size::STANDARD`].
    #[must_use]
    pub fn new(id: impl Into<String>, title: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart {
            id: id.into(),
            title: title.into(),
            description: String::new(),
            x,
            y,
            series: Vec::new(),
            references: Vec::new(),
            size: Size::STANDARD,
            is_wide: false,
            notes: Vec::new(),
        }
    }

    /// The chart as an HTML figure, with its title above, its legend and its notes below; a
    /// sentence instead of a drawing if it has no point. [`PLOT_CSS`](crate::PLOT_CSS) and
    /// [`PAGE_CSS`](crate::PAGE_CSS) give it its style.
    #[must_use]
    pub fn figure(&self) -> String {
        let class = if self.is_wide { " class=\"wide\"" } else { "" };
        let title = escape(&self.title);
        if self.is_empty() {
            return format!("<figure{class}><h3>{title}</h3><p class=\"none\">Nothing to draw.</p></figure>\n");
        }
        let notes: String = self.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
        let Size { width, height } = self.size;
        let width_max = (f64::from(width) * ENLARGED_MAX).round();
        format!(
            "<figure{class}><h3>{title}</h3>\n<div class=\"drawing\"><svg class=\"plot\" viewBox=\"0 0 {} {}\" \
             style=\"max-width: {width_max}px\" {}{}</svg>\n</div>\n<figcaption>{}{notes}</figcaption></figure>\n",
            width * STEPS,
            height * STEPS,
            self.named(),
            drawing(self),
            legend::html(self),
        )
    }

    /// The chart as an SVG file of its own, with its title, its legend and its style.
    #[must_use]
    pub fn svg(&self) -> String {
        standalone::svg(self)
    }

    /// No series has a point.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points().next().is_none())
    }

    pub(crate) fn has_bars(&self) -> bool {
        self.series.iter().any(|series| series.form.is_bars())
    }

    /// The rest of an opening tag, and the text alternative for screen readers.
    pub(crate) fn named(&self) -> String {
        let (id, title, description) = (escape(&self.id), escape(&self.title), escape(&self.description));
        format!(
            "role=\"img\" aria-labelledby=\"{id}-title {id}-desc\"><title id=\"{id}-title\">{title}</title><desc \
             id=\"{id}-desc\">{description}</desc>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::LOOKS;
    use crate::series::Form;

    fn chart(series: Vec<Series>) -> Chart {
        let (x, y) = (Axis::linear("time (s)", 4.0, 4), Axis::linear("bandwidth (MiB/s)", 10.0, 5));
        Chart { series, ..Chart::new("speed", "A <fast> drive", x, y) }
    }

    #[test]
    fn a_chart_without_a_point_says_so() {
        let none = Series::new("none", LOOKS[0], Form::Line, [(f64::NAN, 1.0), (1.0, f64::INFINITY)]);
        assert_eq!(
            chart(vec![none]).figure(),
            "<figure><h3>A &lt;fast&gt; drive</h3><p class=\"none\">Nothing to draw.</p></figure>\n"
        );
    }

    #[test]
    fn the_legend_distinguishes_ours_and_published_only_if_there_are_both() {
        let ours = Series::new("append", LOOKS[0], Form::Line, [(1.0, 2.0), (2.0, 3.0)]);
        let theirs = Series { form: Form::Published, ..ours.clone() };
        assert!(!chart(vec![ours.clone()]).figure().contains(">model<"));
        let both = chart(vec![ours, theirs]);
        for words in [">model<", ">published<"] {
            assert!(both.figure().contains(words) && both.svg().contains(words), "no {words}");
        }
    }

    #[test]
    fn text_is_escaped_and_a_figure_loads_nothing_from_other_servers() {
        let mut all = chart(vec![Series::new("a & b", LOOKS[1], Form::Bars, [(0.0, 2.0)])]);
        (all.x, all.description) = (Axis::names("<x>", ["one & two", "three"]), "<desc>".to_owned());
        all.references.push(Reference::line(5.0, "<limit>"));
        all.notes.push("<note>".to_owned());
        let figure = all.figure();
        for word in ["x", "desc", "limit", "note", "fast"] {
            assert!(figure.contains(&format!("&lt;{word}&gt;")) && !figure.contains(&format!("<{word}>")), "{word}");
        }
        assert!(!figure.contains("http:"));
    }
}
