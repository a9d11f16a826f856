//! The drawing of a chart: the contents of its SVG element.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, RGBColor, ShapeStyle, TextStyle};

use crate::axis::Axis;
use crate::chart::Chart;
use crate::look::{HATCH_TILE, Look, hex};
use crate::marks::draw_marks;
use crate::measure::{width_of, wrap};
use crate::series::{Place, Reference};
use crate::text::escape;

/// Steps per pixel: plotters draws at integer coordinates.
pub(crate) const STEPS: u32 = 10;
/// Space around the plotting area, in pixels.
const MARGIN_TOP: u32 = 30;
const MARGIN_RIGHT: u32 = 18;
const LABELS_LEFT: u32 = 58;
const LABELS_BELOW: u32 = 44;
/// Between a label at the left and the drawing's border, and its tick.
const LABEL_GAP: f64 = 10.0;
const TICK: u32 = 4;
/// Between two labels below, at least.
const LABELS_APART: f64 = 4.0;
/// From the axis to the first line of a name below it, and from one line to the next.
const NAME_BELOW: u32 = 8;
const NAME_PITCH: u32 = 15;
pub(crate) const FONT_SIZE: f64 = 13.0;
/// The font on a phone: `page.css` makes it larger there, and labels must still fit.
const FONT_SIZE_MAX: f64 = 15.0;
/// Factor by which plotters reduces the font size in SVG.
const PLOTTERS_FONT_FACTOR: f64 = 1.24;
const REFERENCE_WIDTH: f64 = 1.2;

/// Colours by their use; `plot.css` selects them by these values and has others for a dark page.
pub(crate) const PAGE: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub(crate) const STRONG: RGBColor = RGBColor(0x1c, 0x21, 0x28);
pub(crate) const TEXT: RGBColor = RGBColor(0x57, 0x60, 0x6a);
/// Of words inside of the plotting area, which have a rim so that lines do not run through them.
const LABEL: RGBColor = RGBColor(0x56, 0x60, 0x6a);
const GRID: RGBColor = RGBColor(0xe1, 0xe4, 0xe8);
const GRID_MINOR: RGBColor = RGBColor(0xf0, 0xf2, 0xf4);
const AXIS: RGBColor = RGBColor(0x8c, 0x95, 0x9f);
const BAND: RGBColor = RGBColor(0xee, 0xee, 0xef);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The plotting area, and where values are in it.
pub(crate) struct Canvas<'a, 'b> {
    pub(crate) area: &'a Area<'b>,
    plane: ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
}

impl Canvas<'_, '_> {
    /// Position of a value, in steps from the upper left corner of the drawing.
    pub(crate) fn at(&self, x: f64, y: f64) -> (i32, i32) {
        self.plane.backend_coord(&(x, y))
    }
}

/// The elements of the drawing, each on a line of its own.
pub(crate) fn drawing(chart: &Chart) -> String {
    let mut drawn = String::new();
    {
        let size = (chart.size.width * STEPS, chart.size.height * STEPS);
        let area = SVGBackend::with_string(&mut drawn, size).into_drawing_area();
        let done = draw(chart, &area).and_then(|()| area.present());
        done.expect("drawing into a string cannot fail");
    }
    // The tags of plotters have a size in pixels and no name; what is between them is kept.
    let start = drawn.find('>').expect("plotters writes an opening tag") + 1;
    let end = drawn.rfind("</svg>").expect("plotters writes a closing tag");
    let elements = without_empty_text(&drawn[start..end]).replace(" opacity=\"1\"", "");
    with_hatching(chart, elements)
}

/// plotters writes an element for each label, also for one without a letter.
fn without_empty_text(elements: &str) -> String {
    let mut kept = String::with_capacity(elements.len());
    let mut lines = elements.trim_start().lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("<text ") && lines.next_if_eq(&"").is_some() {
            lines.next();
            continue;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

fn draw(chart: &Chart, area: &Area<'_>) -> Drawn {
    let label_width = |label: &str| width_of(label, FONT_SIZE);
    let widest = chart.y.ticks().iter().map(|(_, label)| label_width(label) + LABEL_GAP).fold(0.0, f64::max);
    let labels_left = LABELS_LEFT.max(widest as u32);
    let width = f64::from(chart.size.width.saturating_sub(labels_left + MARGIN_RIGHT));
    let x = if chart.has_bars() { chart.x.clone().with_space_for_bars() } else { chart.x.clone() };
    let names = if x.has_names() { names(&x, width) } else { Vec::new() };
    let x = if x.has_names() {
        x.without_labels()
    } else {
        x.with_labels_apart(width, |label| width_of(label, FONT_SIZE_MAX) + LABELS_APART)
    };
    let name_lines = names.iter().map(Vec::len).max().unwrap_or(1).max(1) as u32;
    let mut plane = ChartBuilder::on(area)
        .margin_top(MARGIN_TOP * STEPS)
        .margin_right(MARGIN_RIGHT * STEPS)
        .x_label_area_size((LABELS_BELOW + (name_lines - 1) * NAME_PITCH) * STEPS)
        .y_label_area_size(labels_left * STEPS)
        .build_cartesian_2d(x.clone(), chart.y.clone())?;
    let bands = chart.references.iter().filter_map(|reference| match reference.place {
        Place::Line(_) => None,
        Place::Band(low, high) => Some([(x.start(), low), (x.end(), high)]),
        Place::Span(from, to) => Some([(from, chart.y.start()), (to, chart.y.end())]),
    });
    plane.draw_series(bands.map(|corners| Rectangle::new(corners, BAND.filled())))?;
    let mut mesh = plane.configure_mesh();
    if chart.has_bars() {
        mesh.disable_x_mesh();
    }
    mesh.x_desc(x.title.clone())
        .label_style(text_style(&TEXT, HPos::Center, VPos::Center))
        .axis_desc_style(text_style(&TEXT, HPos::Center, VPos::Center))
        .bold_line_style(line(GRID, 1.0))
        .light_line_style(line(GRID_MINOR, 1.0))
        .axis_style(line(AXIS, 1.0))
        .set_all_tick_mark_size(TICK * STEPS)
        .draw()?;
    write(area, &chart.y.title, (0, 2 * STEPS as i32), text_style(&TEXT, HPos::Left, VPos::Top))?;
    let canvas = Canvas { area, plane, x, y: chart.y.clone() };
    write_names(&canvas, &names)?;
    for reference in &chart.references {
        if let Place::Line(y) = reference.place {
            let ends = [canvas.at(canvas.x.start(), y), canvas.at(canvas.x.end(), y)];
            area.draw(&PathElement::new(ends, line(TEXT, REFERENCE_WIDTH)))?;
        }
    }
    draw_marks(chart, &canvas)?;
    chart.references.iter().try_for_each(|reference| write_label(&canvas, reference))
}

/// The names of an axis in lines, as the places are wide.
fn names(x: &Axis, width: f64) -> Vec<Vec<String>> {
    let place_width = width / x.ticks().len().max(1) as f64;
    x.ticks().iter().map(|(_, name)| wrap(name, place_width, FONT_SIZE_MAX)).collect()
}

fn write_names(canvas: &Canvas<'_, '_>, names: &[Vec<String>]) -> Drawn {
    for ((value, _), lines) in canvas.x.ticks().iter().zip(names) {
        let (x, y) = canvas.at(*value, canvas.y.start());
        for (name, place) in lines.iter().zip(0..) {
            let below = (NAME_BELOW + place * NAME_PITCH) * STEPS;
            write(canvas.area, name, (x, y + below as i32), text_style(&TEXT, HPos::Center, VPos::Top))?;
        }
    }
    Ok(())
}

/// The word of a reference: of a span at its upper left, of a band and of a line at its right,
/// above it if there is space.
fn write_label(canvas: &Canvas<'_, '_>, reference: &Reference) -> Drawn {
    let steps = STEPS as i32;
    let (right, top) = canvas.at(canvas.x.end(), canvas.y.end());
    let (place, horizontal, vertical) = match reference.place {
        Place::Span(from, _) => {
            let (left, _) = canvas.at(from, canvas.y.end());
            ((left + 5 * steps, top + 5 * steps), HPos::Left, VPos::Top)
        }
        Place::Band(_, high) => {
            let (_, y) = canvas.at(canvas.x.end(), high);
            ((right - 4 * steps, y + 4 * steps), HPos::Right, VPos::Top)
        }
        Place::Line(y) => {
            let (_, y) = canvas.at(canvas.x.end(), y);
            if y - top > 18 * steps {
                ((right - 4 * steps, y), HPos::Right, VPos::Bottom)
            } else {
                ((right - 4 * steps, y + 4 * steps), HPos::Right, VPos::Top)
            }
        }
    };
    write(canvas.area, &reference.label, place, text_style(&LABEL, horizontal, vertical))
}

fn write(area: &Area<'_>, text: &str, place: (i32, i32), style: TextStyle<'static>) -> Drawn {
    area.draw(&Text::new(text.to_owned(), place, style))
}

/// plotters does not support patterns: a second rectangle covers each bar.
fn with_hatching(chart: &Chart, elements: String) -> String {
    let mut looks: Vec<Look> = Vec::new();
    for series in chart.series.iter().filter(|series| series.form.is_bars()) {
        if !looks.contains(&series.look) && series.look.hatch().is_some() {
            looks.push(series.look);
        }
    }
    if looks.is_empty() {
        return elements;
    }
    let id = escape(&chart.id);
    let mut hatched = format!("<defs>\n{}</defs>\n", looks.iter().map(|look| pattern(*look, &id)).collect::<String>());
    for element in elements.lines() {
        hatched.push_str(element);
        hatched.push('\n');
        if !element.starts_with("<rect ") {
            continue;
        }
        if let Some(look) = looks.iter().find(|look| element.contains(&format!("fill=\"{}\"", look.hex()))) {
            hatched.push_str(&element.replace(&look.hex(), &format!("url(#{})", look.hatch_id(&id))));
            hatched.push('\n');
        }
    }
    hatched
}

fn pattern(look: Look, chart_id: &str) -> String {
    let Some(hatch) = look.hatch() else { return String::new() };
    format!(
        "<pattern id=\"{}\" width=\"{HATCH_TILE}\" height=\"{HATCH_TILE}\" patternUnits=\"userSpaceOnUse\"><path \
         d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"/></pattern>\n",
        look.hatch_id(chart_id),
        hatch.path,
        hex(PAGE),
        hatch.stroke_width,
    )
}

pub(crate) fn line(color: RGBColor, width: f64) -> ShapeStyle {
    color.stroke_width((width * f64::from(STEPS)).round() as u32)
}

fn text_style(color: &'static RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    let size = FONT_SIZE * f64::from(STEPS) * PLOTTERS_FONT_FACTOR;
    TextStyle::from((FontFamily::SansSerif, size)).color(color).pos(Pos::new(horizontal, vertical))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_defines_every_colour_of_a_chart() {
        let css = include_str!("plot.css");
        for (color, attribute) in [
            (PAGE, "fill"),
            (PAGE, "stroke"),
            (STRONG, "fill"),
            (STRONG, "stroke"),
            (TEXT, "fill"),
            (TEXT, "stroke"),
            (LABEL, "fill"),
            (GRID, "stroke"),
            (GRID_MINOR, "stroke"),
            (AXIS, "stroke"),
            (BAND, "fill"),
        ] {
            let selector = format!("[{attribute}=\"{}\"]", hex(color));
            assert!(css.contains(&selector), "no {selector}");
        }
    }
}
