//! The looks of series: colour, dashes, markers and hatching, so that they can be distinguished
//! without colour.

use plotters::style::RGBColor;

/// The look of a series. Dashes, and colours on a dark page, are in `plot.css`, which selects a
/// look by its colour.
///
/// Model and published values of the same quantity have the same look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// On a light page.
    pub(crate) color: RGBColor,
    marker: Marker,
    hatch: HatchPattern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    None,
    Disc,
    Square,
    Triangle,
    Diamond,
    TriangleDown,
    Plus,
    Cross,
    Star,
}

/// Lines on a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HatchPattern {
    /// A path in a tile of [`HATCH_TILE`]; empty for a plain bar.
    pub(crate) path: &'static str,
    /// In tenths of a pixel.
    pub(crate) stroke_width: u32,
}

/// Side of the tile that is repeated, in tenths of a pixel.
pub(crate) const HATCH_TILE: u32 = 80;

/// Looks, in the order in which series get them.
pub const LOOKS: [Look; 8] = [
    look(RGBColor(0x00, 0x6c, 0xb0), Marker::Disc, "", 0),
    look(RGBColor(0xc8, 0x4e, 0x00), Marker::Square, "M-20 20 20-20M0 80 80 0M60 100 100 60", 16),
    look(RGBColor(0x00, 0x84, 0x5f), Marker::Triangle, "M8 20h24M48 60h24", 24),
    look(RGBColor(0xa8, 0x41, 0x7f), Marker::Diamond, "M0 40H80", 20),
    look(RGBColor(0x8a, 0x6a, 0x00), Marker::TriangleDown, "M-20 60 20 100M0 0 80 80M60-20 100 20", 16),
    look(RGBColor(0x5b, 0x4f, 0xc9), Marker::Plus, "M0 40H80M40 0V80", 12),
    look(RGBColor(0x1f, 0x84, 0xa0), Marker::Cross, "M40 0V80", 20),
    look(RGBColor(0x44, 0x44, 0x44), Marker::Star, "M0 0 80 80M0 80 80 0", 12),
];

/// The look of several series together: a line without markers.
pub const OTHERS: Look = look(RGBColor(0x8b, 0x8b, 0x8b), Marker::None, "", 0);

const fn look(color: RGBColor, marker: Marker, path: &'static str, stroke_width: u32) -> Look {
    Look { color, marker, hatch: HatchPattern { path, stroke_width } }
}

/// Corners of the polygon that stands for a disc.
const DISC_CORNERS: u32 = 16;

impl Look {
    /// The corners of the marker around a centre, in a unit of which a marker is about two wide;
    /// none without a marker.
    pub(crate) fn corners(self) -> Vec<(f64, f64)> {
        let regular = |corners: u32, turn: f64, radii: [f64; 2]| -> Vec<(f64, f64)> {
            let corner = |index: u32| {
                let angle = (f64::from(index) / f64::from(corners) + turn) * std::f64::consts::TAU;
                let radius = radii[index as usize % 2];
                (radius * angle.sin(), -radius * angle.cos())
            };
            (0..corners).map(corner).collect()
        };
        let plus = |turn: f64| {
            let (long, short) = (1.25f64, 0.42f64);
            let arms = [(-short, -long), (short, -long), (short, -short)];
            let (sin, cos) = (turn * std::f64::consts::TAU).sin_cos();
            (0..4)
                .flat_map(|quarter| {
                    let (sin, cos) = (f64::from(quarter) * 0.25 * std::f64::consts::TAU).sin_cos();
                    arms.map(|(x, y)| (x * cos - y * sin, x * sin + y * cos))
                })
                .map(|(x, y)| (x * cos - y * sin, x * sin + y * cos))
                .collect()
        };
        match self.marker {
            Marker::None => Vec::new(),
            Marker::Disc => regular(DISC_CORNERS, 0.0, [1.0; 2]),
            Marker::Square => regular(4, 0.125, [1.25; 2]),
            Marker::Triangle => regular(3, 0.0, [1.35; 2]),
            Marker::Diamond => regular(4, 0.0, [1.4; 2]),
            Marker::TriangleDown => regular(3, 0.5, [1.35; 2]),
            Marker::Plus => plus(0.0),
            Marker::Cross => plus(0.125),
            Marker::Star => regular(10, 0.0, [1.5, 0.6]),
        }
    }

    /// The colour in SVG notation.
    pub(crate) fn hex(self) -> String {
        hex(self.color)
    }

    /// The lines on its bars; none for a plain bar.
    pub(crate) fn hatch(self) -> Option<HatchPattern> {
        Some(self.hatch).filter(|hatch| !hatch.path.is_empty())
    }

    /// The name of its hatching among the elements of a page, in the chart `chart_id`.
    pub(crate) fn hatch_id(self, chart_id: &str) -> String {
        let RGBColor(red, green, blue) = self.color;
        format!("{chart_id}-hatch-{red:02x}{green:02x}{blue:02x}")
    }
}

/// A colour in SVG notation.
pub(crate) fn hex(color: RGBColor) -> String {
    let RGBColor(red, green, blue) = color;
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_defines_every_look() {
        let css = include_str!("plot.css");
        for look in LOOKS.into_iter().chain([OTHERS]) {
            assert!(css.contains(&format!("[stroke=\"{}\"]", look.hex())), "no dark line for {}", look.hex());
            assert!(css.contains(&format!("[fill=\"{}\"]", look.hex())), "no dark marker for {}", look.hex());
        }
    }

    #[test]
    fn no_two_looks_share_colour_marker_or_hatching() {
        for (index, look) in LOOKS.iter().enumerate() {
            assert!(LOOKS[..index].iter().all(|other| {
                other.color != look.color && other.marker != look.marker && other.hatch != look.hatch
            }));
        }
    }
}
