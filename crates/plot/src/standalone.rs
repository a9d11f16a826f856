//! A chart as a file of its own: title, drawing, legend and style in one SVG document.

use crate::PLOT_CSS;
use crate::chart::Chart;
use crate::draw::{FONT_SIZE, PAGE, STEPS, STRONG, TEXT, drawing};
use crate::legend::{SWATCH_HEIGHT, SWATCH_WIDTH, rows, swatch};
use crate::look::hex;
use crate::measure::{width_of, wrap};
use crate::text::escape;

/// Outer margin, in pixels as all of these.
const PADDING: f64 = 4.0;
const TITLE_SIZE: f64 = 15.0;
/// From one line of the title, or of the legend, to the next.
const TITLE_PITCH: f64 = 20.0;
const LEGEND_PITCH: f64 = 20.0;
/// Between the drawing and the legend, a swatch and its name, an item and the next.
const LEGEND_ABOVE: f64 = 6.0;
const SWATCH_GAP: f64 = 8.0;
const ITEM_GAP: f64 = 18.0;
/// From the top of a line to its baseline.
const BASELINE: f64 = 12.5;

/// The chart as a document.
pub(crate) fn svg(chart: &Chart) -> String {
    let (width, height) = (f64::from(chart.size.width), f64::from(chart.size.height));
    let mut text = Writer::default();
    for line in wrap(&chart.title, width, TITLE_SIZE) {
        text.write(0.0, &line, TITLE_SIZE, "font-weight=\"600\" ", &hex(STRONG));
        text.y += TITLE_PITCH;
    }
    let drawing_y = text.y;
    text.y += height + LEGEND_ABOVE;
    legend(chart, width, &mut text);
    let (all_width, all_height) = (width + 2.0 * PADDING, text.y + 2.0 * PADDING);
    let corner = -steps(PADDING);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" width=\"{all_width}\" height=\"{all_height}\" \
         viewBox=\"{corner} {corner} {w} {h}\" {named}<style>\n{PLOT_CSS}</style>\n\
         <rect x=\"{corner}\" y=\"{corner}\" width=\"{w}\" height=\"{h}\" fill=\"{page}\"/>\n\
         <g transform=\"translate(0 {y})\">\n{drawing}</g>\n{text}</svg>\n",
        w = steps(all_width),
        h = steps(all_height),
        named = chart.named(),
        page = hex(PAGE),
        y = steps(drawing_y),
        drawing = drawing(chart),
        text = text.elements,
    )
}

/// Items one after the other, in as many lines as they need.
fn legend(chart: &Chart, width: f64, text: &mut Writer) {
    let rows = rows(chart);
    let widest = rows.iter().map(|row| width_of(row.source, FONT_SIZE)).fold(0.0, f64::max);
    let left = if widest > 0.0 { widest + SWATCH_GAP } else { 0.0 };
    let swatch_width = f64::from(SWATCH_WIDTH) + SWATCH_GAP;
    for row in rows {
        text.write(0.0, row.source, FONT_SIZE, "", &hex(TEXT));
        let mut x = left;
        for series in row.series {
            let remark = if series.remark.is_empty() { String::new() } else { format!(" ({})", series.remark) };
            let name = format!("{}{remark}", series.name);
            if x > left && x + swatch_width + width_of(&name, FONT_SIZE) > width {
                text.y += LEGEND_PITCH;
                x = left;
            }
            text.elements += &format!(
                "<g transform=\"translate({} {})\">{}</g>\n",
                steps(x),
                steps(text.y + (LEGEND_PITCH - f64::from(SWATCH_HEIGHT)) / 2.0 - 2.0),
                swatch(series, &chart.id)
            );
            let lines = wrap(&name, width - left - swatch_width, FONT_SIZE);
            for (place, line) in lines.iter().enumerate() {
                text.y += if place == 0 { 0.0 } else { LEGEND_PITCH };
                text.write(x + swatch_width, line, FONT_SIZE, "", &hex(STRONG));
            }
            x = if lines.len() > 1 { width } else { x + swatch_width + width_of(&name, FONT_SIZE) + ITEM_GAP };
        }
        text.y += LEGEND_PITCH;
    }
}

/// Lines of text from the top down.
#[derive(Default)]
struct Writer {
    elements: String,
    /// Where the next line begins, in pixels.
    y: f64,
}

impl Writer {
    fn write(&mut self, x: f64, line: &str, font_size: f64, attributes: &str, fill: &str) {
        if line.is_empty() {
            return;
        }
        self.elements += &format!(
            "<text x=\"{}\" y=\"{}\" font-family=\"sans-serif\" font-size=\"{}\" {attributes}fill=\"{fill}\">{}</text>\n",
            steps(x),
            steps(self.y + BASELINE),
            steps(font_size),
            escape(line)
        );
    }
}

fn steps(pixels: f64) -> i32 {
    (pixels * f64::from(STEPS)).round() as i32
}
