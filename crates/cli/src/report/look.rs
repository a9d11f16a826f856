//! How the lines of the charts differ: by colour, dashes and markers, so that they do without colour.

use plotters::style::RGBColor;

/// The look of a line. Dashes, and colours on a dark page, are in `page.css`, which knows a look by its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// On a light page.
    pub(super) color: RGBColor,
    marker: Marker,
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

/// Looks, in the order in which jobs get them.
pub(super) const LOOKS: [Look; 8] = [
    Look { color: RGBColor(0x00, 0x6c, 0xb0), marker: Marker::Disc },
    Look { color: RGBColor(0xc8, 0x4e, 0x00), marker: Marker::Square },
    Look { color: RGBColor(0x00, 0x84, 0x5f), marker: Marker::Triangle },
    Look { color: RGBColor(0xa8, 0x41, 0x7f), marker: Marker::Diamond },
    Look { color: RGBColor(0x8a, 0x6a, 0x00), marker: Marker::TriangleDown },
    Look { color: RGBColor(0x5b, 0x4f, 0xc9), marker: Marker::Plus },
    Look { color: RGBColor(0x1f, 0x84, 0xa0), marker: Marker::Cross },
    Look { color: RGBColor(0x44, 0x44, 0x44), marker: Marker::Star },
];

/// The look of several jobs together.
pub(super) const OTHERS: Look = Look { color: RGBColor(0x8b, 0x8b, 0x8b), marker: Marker::None };

/// Corners of the polygon that stands for a disc.
const DISC_CORNERS: u32 = 16;

impl Look {
    /// The corners of the marker around a centre, in a unit of which a marker is about two wide; none without a marker.
    pub(super) fn corners(self) -> Vec<(f64, f64)> {
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

    /// The colour as SVG has it.
    pub(super) fn hex(self) -> String {
        let RGBColor(red, green, blue) = self.color;
        format!("#{red:02X}{green:02X}{blue:02X}")
    }

    /// A piece of the line with its marker, for a legend.
    pub(super) fn swatch(self) -> String {
        let hex = self.hex();
        let line = format!("<polyline fill=\"none\" stroke=\"{hex}\" stroke-width=\"20\" points=\"5,80 355,80\"/>");
        let corners = self.corners();
        let marker = if corners.is_empty() {
            String::new()
        } else {
            let points: Vec<String> =
                corners.iter().map(|(x, y)| format!("{:.0},{:.0}", 180.0 + x * 40.0, 80.0 + y * 40.0)).collect();
            format!("<polygon fill=\"{hex}\" points=\"{}\"/>", points.join(" "))
        };
        format!(
            "<svg class=\"swatch\" viewBox=\"0 0 360 160\" width=\"36\" height=\"16\" \
             aria-hidden=\"true\">{line}{marker}</svg>"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_sheet_knows_every_look() {
        let css = include_str!("page.css");
        for look in LOOKS.into_iter().chain([OTHERS]) {
            assert!(css.contains(&format!("[stroke=\"{}\"]", look.hex())), "no dashes for {}", look.hex());
            assert!(css.contains(&format!("[fill=\"{}\"]", look.hex())), "no dark marker for {}", look.hex());
        }
    }

    #[test]
    fn no_two_looks_share_colour_or_marker() {
        for (index, look) in LOOKS.iter().enumerate() {
            assert!(LOOKS[..index].iter().all(|other| other.color != look.color && other.marker != look.marker));
        }
    }
}
