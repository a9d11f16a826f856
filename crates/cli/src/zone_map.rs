//! The zone map of a drive: a cell for each zone, or for several zones of a large drive.
//!
//! The height of a cell shows how full its zones are, its colour their state. The list of states
//! below the map names the zones in each state, for terminals without colours.

use zonda_stack::ZoneRange;
use zonda_zoned::{Geometry, ZoneDescriptor, ZoneState};

use crate::output::Screen;
use crate::units;

/// Lines of the map.
const LINES_MAX: usize = 12;
/// Cells in a line, at most.
const COLUMNS_MAX: usize = 64;
/// Columns of the list of states, at most.
const LIST_WIDTH_MAX: u16 = 100;
/// Columns reserved for the number of ranges that are not listed.
const MORE_WIDTH: usize = 26;
/// Heights of a cell, from almost empty to full.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// States with their colours (ECMA-48), the most important first: a cell of several zones shows the
/// first that occurs.
const STATES: [(&str, &str); 8] = [
    ("offline", "31"),
    ("read only", "35"),
    ("explicitly opened", "92"),
    ("implicitly opened", "32"),
    ("closed", "33"),
    ("full", "34"),
    ("conventional", "36"),
    ("empty", "2"),
];
const EMPTY: usize = STATES.len() - 1;
const CONVENTIONAL: usize = EMPTY - 1;
/// A conventional zone, which has no fill.
const CONVENTIONAL_CELL: char = '▒';

/// One zone, or several that share a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    state: usize,
    written: f64,
}

/// The map and the list of states below it.
pub(crate) fn draw(all: &[ZoneRange], zone_capacity_blocks: u64, screen: Screen) -> String {
    let cells = all.iter().map(|range| (cell_of(range, zone_capacity_blocks), range.count as usize));
    let zones: Vec<Cell> = cells.flat_map(|(cell, count)| std::iter::repeat_n(cell, count)).collect();
    let label_width = units::count(zones.len() as u64).len() + 4;
    let columns = columns_in(usize::from(screen.width) - label_width);
    // Empty zones at the end of the drive are left out, except in the line with the last used zone.
    let used = zones.iter().rposition(|zone| zone.state != EMPTY).map_or(0, |last| last + 1);
    let shown = used.next_multiple_of(columns).clamp(columns.min(zones.len()), zones.len());
    let zones_in_cell = shown.div_ceil(columns * LINES_MAX).next_power_of_two();
    let mut text = format!("  {}\n", caption(zones_in_cell, &zones));
    let cells: Vec<Cell> = zones[..shown].chunks(zones_in_cell).map(merged).collect();
    for (line, cells) in cells.chunks(columns).enumerate() {
        let first = units::count((line * columns * zones_in_cell) as u64);
        text += &format!("{first:>label_width$} {}\n", line_of(cells, screen));
    }
    if shown < zones.len() {
        let rest = units::counted((zones.len() - shown) as u64, "more empty zone");
        text += &format!("{:>label_width$} and {rest}\n", "");
    }
    text + "\n" + &list(all, screen)
}

/// Zones as a drive reports them; consecutive zones with the same state and write pointer are
/// merged.
pub(crate) fn of_descriptors(descriptors: &[ZoneDescriptor], geometry: &Geometry) -> Vec<ZoneRange> {
    let mut ranges: Vec<ZoneRange> = Vec::new();
    for descriptor in descriptors {
        let first = geometry.zone_of(descriptor.start).map_or(0, |zone| zone.0);
        let (state, written) = (descriptor.state.to_string(), written_blocks(descriptor).unwrap_or(0));
        match ranges.last_mut() {
            Some(last) if last.state == state && last.written_blocks == written => last.count += 1,
            _ => ranges.push(ZoneRange { first, count: 1, state, written_blocks: written }),
        }
    }
    ranges
}

/// Blocks below the write pointer; all blocks of a full zone; `None` if unknown.
pub(crate) fn written_blocks(descriptor: &ZoneDescriptor) -> Option<u64> {
    match (descriptor.write_pointer, descriptor.state) {
        (Some(pointer), _) => Some((pointer - descriptor.start).0),
        (None, ZoneState::Full | ZoneState::NotWritePointer) => Some(descriptor.capacity_blocks.0),
        (None, _) => None,
    }
}

fn caption(zones_in_cell: usize, zones: &[Cell]) -> String {
    let cell = match zones_in_cell {
        1 => "each cell is a zone".to_owned(),
        zones => format!("each cell is {zones} zones"),
    };
    if zones.iter().all(|zone| zone.state == CONVENTIONAL) {
        return format!("{cell}; conventional zones have no write pointer, and no fill is shown");
    }
    match zones_in_cell {
        1 => format!("{cell}; its height shows how full the zone is"),
        _ => format!("{cell}; its height shows how full they are"),
    }
}

/// The largest power of two that fits.
fn columns_in(width: usize) -> usize {
    let fitting = width.clamp(8, COLUMNS_MAX);
    if fitting.is_power_of_two() { fitting } else { fitting.next_power_of_two() / 2 }
}

fn cell_of(range: &ZoneRange, capacity_blocks: u64) -> Cell {
    let state = STATES.iter().position(|(state, _)| *state == range.state).unwrap_or(EMPTY);
    Cell { state, written: range.written_blocks as f64 / capacity_blocks.max(1) as f64 }
}

fn merged(zones: &[Cell]) -> Cell {
    let state = zones.iter().map(|zone| zone.state).min().unwrap_or(EMPTY);
    Cell { state, written: zones.iter().map(|zone| zone.written).sum::<f64>() / zones.len() as f64 }
}

fn line_of(cells: &[Cell], screen: Screen) -> String {
    let alike = cells.chunk_by(|left, right| left.state == right.state);
    alike.map(|run| screen.styled(STATES[run[0].state].1, &run.iter().map(symbol).collect::<String>())).collect()
}

fn symbol(cell: &Cell) -> char {
    match STATES[cell.state].0 {
        "offline" => '×',
        "conventional" => CONVENTIONAL_CELL,
        _ if cell.written <= 0.0 && cell.state == EMPTY => '·',
        _ if cell.written <= 0.0 => '_',
        _ => HEIGHTS[((cell.written * HEIGHTS.len() as f64).ceil() as usize).clamp(1, HEIGHTS.len()) - 1],
    }
}

/// The states that occur, with the number and the ranges of zones in each.
fn list(all: &[ZoneRange], screen: Screen) -> String {
    let zones_in = |state: &str| {
        let counts = all.iter().filter(|range| range.state == state).map(|range| u64::from(range.count));
        counts.reduce(|sum, count| sum + count).map(units::count)
    };
    let width = STATES.iter().filter_map(|(state, _)| zones_in(state)).map(|number| number.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (state, colour) in STATES {
        let Some(number) = zones_in(state) else { continue };
        let sample = match state {
            "empty" => "·",
            "conventional" => "▒",
            _ => "█",
        };
        let sample = screen.styled(colour, sample);
        let left = usize::from(screen.width.min(LIST_WIDTH_MAX)).saturating_sub(25 + width);
        text += &format!("  {sample} {state:<18} {number:>width$}  {}\n", ranges(all, state, left));
    }
    text
}

/// The zones in a state as half-open ranges, as in a job file.
fn ranges(all: &[ZoneRange], state: &str, width: usize) -> String {
    let in_state = all.iter().filter(|range| range.state == state);
    in_ranges(in_state.map(|range| (range.first, range.first + range.count)), width)
}

/// Ascending half-open ranges of zones as in a job file, as many as fit into `width`.
pub(crate) fn in_ranges(runs: impl Iterator<Item = (u32, u32)>, width: usize) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for (first, end) in runs {
        match ranges.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => ranges.push((first, end)),
        }
    }
    let mut text = String::new();
    for (index, &(first, end)) in ranges.iter().enumerate() {
        let range = if end - first == 1 { first.to_string() } else { format!("{first}..{end}") };
        let reserved = if index + 1 < ranges.len() { MORE_WIDTH } else { 2 };
        if index > 0 && text.len() + range.len() + reserved > width {
            let more = units::counted((ranges.len() - index) as u64, "more range");
            return format!("{text}, and {more}");
        }
        text += if index > 0 { ", " } else { "" };
        text += &range;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiles::builtin_text;
    use zonda_ssd::Ssd;
    use zonda_ssd::profile::Profile;
    use zonda_stack::DriveSummary;
    use zonda_zoned::{Blocks, PayloadKind, Prng, ZoneIndex};

    fn map_of(drive: &DriveSummary, screen: Screen) -> String {
        draw(&drive.zones, drive.zone_capacity_blocks, screen)
    }

    const PLAIN: Screen = Screen { width: 100, colour: false };

    fn drive(profile: &str, filled: &[(u32, u64)]) -> DriveSummary {
        let profile = Profile::parse(builtin_text(profile).unwrap()).unwrap();
        let mut ssd = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
        for &(zone, percent) in filled {
            ssd.prefill(ZoneIndex(zone), Blocks(profile.geometry().zone_capacity_blocks.0 * percent / 100)).unwrap();
        }
        DriveSummary::of(&ssd)
    }

    #[test]
    fn the_height_of_a_cell_shows_how_full_its_zone_is() {
        let map = map_of(&drive("tiny", &[(0, 100), (1, 50), (2, 1)]), PLAIN);
        assert!(map.contains("  each cell is a zone; its height shows how full the zone is\n"), "{map}");
        assert!(map.contains(" 0 █▄▁·············\n"), "{map}");
        assert!(map.contains("  █ full                1  0\n"), "{map}");
        assert!(map.contains("  █ closed              2  1..3\n"), "{map}");
        assert!(map.contains("  · empty              13  3..16\n"), "{map}");
    }

    #[test]
    fn empty_zones_at_the_end_of_a_large_drive_are_left_out() {
        let map = map_of(&drive("ezns-small", &[(0, 100), (70, 100)]), PLAIN);
        assert!(map.contains(" 64 ······█···"), "{map}");
        assert!(map.contains("and 40,576 more empty zones\n"), "{map}");
    }

    #[test]
    fn a_cell_of_a_large_drive_has_several_zones_so_that_the_map_fits_twelve_lines() {
        let map = map_of(&drive("ezns-small", &[(40_703, 100)]), PLAIN);
        assert!(map.contains("each cell is 64 zones"), "{map}");
        let lines = map.lines().skip(1).take_while(|line| !line.is_empty());
        assert!(lines.count() <= LINES_MAX, "{map}");
    }

    #[test]
    fn a_cell_of_several_zones_shows_the_most_important_state() {
        let full = Cell { state: 5, written: 1.0 };
        let empty = Cell { state: EMPTY, written: 0.0 };
        let offline = Cell { state: 0, written: 0.0 };
        assert_eq!(merged(&[full, empty]), Cell { state: 5, written: 0.5 });
        assert_eq!(symbol(&merged(&[full, offline])), '×');
    }

    #[test]
    fn a_conventional_zone_has_no_height() {
        let zones =
            |state: &str, written_blocks| ZoneRange { first: 0, count: 2, state: state.to_owned(), written_blocks };
        let map = draw(&[zones("conventional", 64), zones("full", 64), zones("empty", 0)], 64, PLAIN);
        assert!(map.contains(" 0 ▒▒██··\n") && map.contains("  ▒ conventional"), "{map}");
        let map = draw(&[zones("conventional", 64)], 64, PLAIN);
        assert!(map.contains("conventional zones have no write pointer") && !map.contains("height"), "{map}");
    }

    #[test]
    fn no_line_is_wider_than_the_screen() {
        let scattered: Vec<(u32, u64)> = (0..200).map(|zone| (zone * 200 + 7, 100)).collect();
        for width in [60, 80, 200] {
            let map = map_of(&drive("ezns-small", &scattered), Screen { width, colour: false });
            assert!(map.contains("more ranges"), "{map}");
            assert!(map.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}\n{map}");
        }
    }
}
