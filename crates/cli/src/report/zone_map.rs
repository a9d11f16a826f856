//! The zone map: a square for each zone, or for several where there are many.

use zonda_plot::text::{count, counted, escape, list};
use zonda_stack::ZoneRange;
use zonda_zoned::ZoneState;

use super::percent;
use crate::results::Zones;

/// Maximum number of squares of a map; with more zones, several share a square.
const CELLS_MAX: u64 = 2_000;
/// Layouts: maximum number of squares, squares in a row, and maximum width of a digit of the
/// numbers at the left. The font is in `report.css`.
const LAYOUTS: [(u64, u64, u64); 3] = [(64, 16, 6), (512, 32, 10), (CELLS_MAX, 64, 13)];
/// Distance between squares, and the side of a square, in units of the SVG.
const PITCH: u64 = 16;
const SIDE: u64 = 14;
/// Gap between a number at the left and its row.
const GAP: u64 = 8;
/// Rows from one number to the next.
const ROWS_PER_NUMBER: u64 = 4;

/// The opacity of conventional zones, which are not more or less full.
const CONVENTIONAL_OPACITY: f64 = 0.7;

/// The appearance of a state.
struct StateLook {
    state: ZoneState,
    /// Its class in `report.css`.
    class: &'static str,
    /// A mark that distinguishes the state without colour: a path with the corner of the square at
    /// 0, 0.
    mark: &'static str,
}

/// All states. A square with several zones shows the first of these states that occurs in it, so
/// that rare states stay visible.
const STATES: [StateLook; 8] = [
    StateLook { state: ZoneState::Offline, class: "offline", mark: "m3 3 8 8m-8 0 8-8" },
    StateLook { state: ZoneState::ReadOnly, class: "readonly", mark: "m3 5h8m-8 4h8" },
    StateLook { state: ZoneState::ExplicitlyOpened, class: "explicit", mark: "m7 2v10m-5-5h10" },
    StateLook { state: ZoneState::ImplicitlyOpened, class: "implicit", mark: "m3 11 8-8" },
    StateLook { state: ZoneState::Closed, class: "closed", mark: "m2 7h10" },
    StateLook { state: ZoneState::Full, class: "full", mark: "" },
    StateLook { state: ZoneState::NotWritePointer, class: "conventional", mark: "m5 3v8m4-8v8" },
    StateLook { state: ZoneState::Empty, class: "empty", mark: "" },
];

/// Neighbouring zones that share a square.
#[derive(Clone, Default)]
struct Cell {
    first: u64,
    zones: u64,
    written_blocks: u128,
    /// In the order of [`STATES`].
    by_state: [u64; STATES.len()],
}

/// The map of a drive, with its legend.
pub(super) fn section(zones: Zones<'_>) -> String {
    let cells = cells(zones.ranges);
    if cells.is_empty() {
        return "<p class=\"none\">The drive has no zones.</p>\n".to_owned();
    }
    let per_cell = cells[0].zones;
    let layout = LAYOUTS.into_iter().find(|(cells_max, ..)| cells.len() as u64 <= *cells_max);
    let (_, columns, digit_width) = layout.expect("there are never more squares than the last layout takes");
    let rows = (cells.len() as u64).div_ceil(columns);
    let left = count(rows * columns * per_cell).len() as u64 * digit_width + GAP;
    let (width, height) = (left + columns * PITCH, rows * PITCH);
    let squares: String = cells
        .iter()
        .zip(0..)
        .map(|(cell, place)| {
            square(cell, zones.capacity_blocks, left + place % columns * PITCH + 1, place / columns * PITCH + 1)
        })
        .collect();
    let numbers: String = (0..rows)
        .step_by(ROWS_PER_NUMBER as usize)
        .map(|row| {
            let (x, y) = (left - GAP, row * PITCH + PITCH / 2);
            format!("<text x=\"{x}\" y=\"{y}\" dy=\"0.36em\">{}</text>", count(row * columns * per_cell))
        })
        .collect();
    let states: Vec<String> =
        zones.by_state.iter().map(|of| format!("{} {}", count(of.zones.into()), of.state)).collect();
    let per_square =
        if per_cell == 1 { "one zone".to_owned() } else { format!("{} neighboring zones", count(per_cell)) };
    let several = if per_cell == 1 {
        ""
    } else {
        " It shows the state that comes first in the legend among those of its zones, and how full they are together."
    };
    format!(
        "<p>Each square is {per_square}, {} in a row.{several} At the left is the number of the first zone of \
         the row.</p>\n\
         <figure class=\"map\"><svg class=\"zones columns-{columns}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-labelledby=\"zones-title zones-desc\"><title id=\"zones-title\">Zone map</title>\
         <desc id=\"zones-desc\">{}.</desc>\n{numbers}\n{squares}</svg>\n<figcaption>{}</figcaption></figure>\n",
        count(columns * per_cell),
        escape(&list(&states)),
        legend(zones),
    )
}

fn cells(zones: &[ZoneRange]) -> Vec<Cell> {
    let total: u64 = zones.iter().map(|range| u64::from(range.count)).sum();
    let per_cell = total.div_ceil(CELLS_MAX).max(1);
    let mut cells: Vec<Cell> = Vec::new();
    for range in zones {
        let state = place_of(&range.state);
        let mut left = u64::from(range.count);
        while left > 0 {
            if cells.last().is_none_or(|cell| cell.zones == per_cell) {
                cells.push(Cell { first: cells.len() as u64 * per_cell, ..Cell::default() });
            }
            let cell = cells.last_mut().expect("one was pushed if there was none");
            let taken = left.min(per_cell - cell.zones);
            cell.zones += taken;
            cell.written_blocks += u128::from(range.written_blocks) * u128::from(taken);
            cell.by_state[state] += taken;
            left -= taken;
        }
    }
    cells
}

fn place_of(state: &str) -> usize {
    STATES.iter().position(|look| look.state.to_string() == state).expect("every state has a look")
}

fn square(cell: &Cell, capacity_blocks: u64, x: u64, y: u64) -> String {
    let place = cell.by_state.iter().position(|zones| *zones > 0).expect("a square has a zone");
    let look = &STATES[place];
    let share = cell.share(capacity_blocks);
    let opacity = match look.state {
        ZoneState::Empty | ZoneState::Offline => String::new(),
        ZoneState::NotWritePointer => format!(" fill-opacity=\"{CONVENTIONAL_OPACITY:.2}\""),
        _ => format!(" fill-opacity=\"{:.2}\"", shade(share)),
    };
    // Conventional zones have no write pointer.
    let title = match look.state {
        ZoneState::NotWritePointer => cell.what(),
        _ => format!("{}, {} written", cell.what(), percent(share)),
    };
    let mark = match look.mark {
        "" => String::new(),
        path => format!("<path d=\"M{x} {y}{path}\"/>"),
    };
    format!(
        "<g class=\"{}\"><title>{title}</title>\
         <rect x=\"{x}\" y=\"{y}\" width=\"{SIDE}\" height=\"{SIDE}\"{opacity}/>{mark}</g>\n",
        look.class
    )
}

/// How strong a colour is for zones of which `share` is written: never nothing, as the state is to
/// be seen.
fn shade(share: f64) -> f64 {
    0.15 + 0.85 * share.clamp(0.0, 1.0)
}

impl Cell {
    fn share(&self, capacity_blocks: u64) -> f64 {
        let blocks = u128::from(capacity_blocks) * u128::from(self.zones);
        if blocks == 0 { 0.0 } else { self.written_blocks as f64 / blocks as f64 }
    }

    fn what(&self) -> String {
        let kinds = self.by_state.iter().zip(&STATES).filter(|(zones, _)| **zones > 0);
        if self.zones == 1 {
            let state = kinds.map(|(_, look)| look.state.to_string()).collect::<String>();
            return format!("zone {}: {state}", count(self.first));
        }
        let states: Vec<String> = kinds.map(|(zones, look)| format!("{} {}", count(*zones), look.state)).collect();
        format!("zones {} to {}: {}", count(self.first), count(self.first + self.zones - 1), list(&states))
    }
}

fn legend(all: Zones<'_>) -> String {
    let swatch = |class: &str, mark: &str, opacity: f64| {
        let path = if mark.is_empty() { String::new() } else { format!("<path d=\"M1 1{mark}\"/>") };
        format!(
            "<svg class=\"zones swatch\" viewBox=\"0 0 16 16\" width=\"16\" height=\"16\" aria-hidden=\"true\">\
             <g class=\"{class}\">\
             <rect x=\"1\" y=\"1\" width=\"{SIDE}\" height=\"{SIDE}\" fill-opacity=\"{opacity:.2}\"/>{path}</g></svg>"
        )
    };
    let states = STATES.iter().filter_map(|look| {
        let zones = all.by_state.iter().find(|of| of.state == look.state.to_string())?.zones;
        let opacity = if matches!(look.state, ZoneState::Empty | ZoneState::Offline) { 1.0 } else { 0.7 };
        let swatch = swatch(look.class, look.mark, opacity);
        Some(format!("<li>{swatch}<span>{} <small>{}</small></span></li>", look.state, counted(zones.into(), "zone")))
    });
    let shades: String = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| swatch("full", "", shade(share))).concat();
    format!(
        "<ul class=\"legend\">{}<li class=\"shades\">\
         <span>0%</span>{shades}<span>100% written by the host</span></li></ul>",
        states.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(count: u32, state: &str, written_blocks: u64) -> ZoneRange {
        ZoneRange { first: 0, count, state: state.to_owned(), written_blocks }
    }

    #[test]
    fn few_zones_have_a_square_each() {
        let cells = cells(&[range(3, "full", 100), range(1, "implicitly opened", 7), range(4, "empty", 0)]);
        assert_eq!(cells.len(), 8);
        assert_eq!((cells[3].first, cells[3].what().as_str()), (3, "zone 3: implicitly opened"));
    }

    #[test]
    fn a_million_zones_share_two_thousand_squares_and_an_open_one_is_still_seen() {
        let cells =
            cells(&[range(500_001, "full", 100), range(1, "explicitly opened", 50), range(500_000, "empty", 0)]);
        assert_eq!(cells.len(), 1_997);
        assert_eq!(cells.iter().map(|cell| cell.zones).sum::<u64>(), 1_000_002);
        let open = cells.iter().find(|cell| cell.by_state[2] > 0).expect("one is open");
        assert_eq!(open.by_state.iter().position(|zones| *zones > 0), Some(2));
        assert!(open.what().ends_with("1 explicitly opened, 3 full and 497 empty"), "{}", open.what());
    }

    #[test]
    fn every_state_has_a_look_and_no_two_the_same() {
        for (index, look) in STATES.iter().enumerate() {
            assert_eq!(place_of(&look.state.to_string()), index);
            assert!(include_str!("report.css").contains(&format!(".zones .{}", look.class)), "{}", look.class);
        }
        assert_eq!(STATES.len(), ZoneState::SEQUENTIAL.len() + 1);
    }
}
