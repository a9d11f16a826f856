//! Zone maps: a character for each zone, or for several zones of a large drive.
//!
//! The height of a character shows how full its zones are, its colour their state. On the drive of a
//! pool it is a letter for the namespace that has the zone, upper case while the zone can be written.

use ratatui::style::{Color, Style};
use zonda_exports::snapshot::{CellState, PoolSnapshot, ZoneMapSnapshot};

use super::canvas::{BOLD, Canvas, DIM, PLAIN, in_colour};
use crate::units;

/// Columns before the first cell: the number of its zone.
pub(super) const LABEL_WIDTH: u16 = 8;
/// Heights of a cell, from almost empty to full.
pub(super) const HEIGHTS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Colours of namespaces; their letters distinguish them, too.
const OWNERS: [Color; 6] = [Color::Green, Color::Magenta, Color::Cyan, Color::Red, Color::Blue, Color::Yellow];

/// A cell of the picture.
#[derive(Clone, Copy, Debug)]
struct Cell {
    state: CellState,
    fill: u32,
    owner: u32,
}

/// What the cells stand for.
#[derive(Clone, Copy)]
pub(super) enum Owners<'p> {
    /// Zones of a drive, or of a namespace.
    None,
    /// Zones of the drive of a pool; the namespace with this identifier is emphasized.
    Pool(&'p PoolSnapshot, u32),
}

/// Draws a map into `lines` lines from `top` on, with its legend; returns the line below.
pub(super) fn draw(canvas: &mut Canvas<'_>, top: u16, lines: u16, map: &ZoneMapSnapshot, owners: Owners<'_>) -> u16 {
    let samples = legend(map, owners);
    let legend_lines = legend_lines(canvas.width(), &samples).min(lines / 2);
    let end = cells(canvas, top, lines - legend_lines, map, owners);
    put_legend(canvas, end, legend_lines, &samples);
    end + legend_lines
}

/// Draws the cells alone.
pub(super) fn cells(canvas: &mut Canvas<'_>, top: u16, lines: u16, map: &ZoneMapSnapshot, owners: Owners<'_>) -> u16 {
    let columns = usize::from(canvas.width().saturating_sub(LABEL_WIDTH + 1)) / 8 * 8;
    let all: Vec<Cell> = map.cells().map(|(state, fill, owner)| Cell { state, fill, owner }).collect();
    if columns == 0 || lines == 0 || all.is_empty() {
        return top;
    }
    let merged_cells = all.len().div_ceil(columns * usize::from(lines)).next_power_of_two();
    let shown: Vec<Cell> = all.chunks(merged_cells).map(merged).collect();
    let mut line = top;
    for (index, row) in shown.chunks(columns).enumerate() {
        let zone = index * columns * merged_cells * map.zones_per_cell as usize;
        let label = units::count(zone as u64);
        canvas.put(LABEL_WIDTH.saturating_sub(1 + label.len() as u16), line, &label, DIM);
        let mut column = LABEL_WIDTH;
        for cell in row {
            let (symbol, style) = look(cell, owners);
            column = canvas.put(column, line, &symbol, style);
        }
        line += 1;
    }
    line
}

/// How many zones a character of a map stands for, if map and legend have so many lines and the
/// terminal so many columns.
pub(super) fn zones_per_cell(width: u16, lines: u16, map: &ZoneMapSnapshot, owners: Owners<'_>) -> usize {
    let lines = lines - legend_lines(width, &legend(map, owners)).min(lines / 2);
    let columns = usize::from(width.saturating_sub(LABEL_WIDTH + 1)) / 8 * 8;
    let cells = map.states.len().div_ceil((columns * usize::from(lines)).max(1));
    cells.next_power_of_two() * map.zones_per_cell as usize
}

/// The most important state, and the mean of the fill.
fn merged(cells: &[Cell]) -> Cell {
    Cell {
        state: cells.iter().map(|cell| cell.state).min().unwrap_or(CellState::Empty),
        fill: cells.iter().map(|cell| cell.fill).sum::<u32>().div_ceil(cells.len().max(1) as u32),
        owner: cells.iter().map(|cell| cell.owner).find(|owner| *owner > 0).unwrap_or(0),
    }
}

/// The symbol and the style of a cell.
fn look(cell: &Cell, owners: Owners<'_>) -> (String, Style) {
    if let (Owners::Pool(pool, selected), 1..) = (owners, cell.owner) {
        let (letter, colour) = owner(pool, cell.owner);
        let is_writable =
            matches!(cell.state, CellState::ExplicitlyOpened | CellState::ImplicitlyOpened | CellState::Closed);
        let letter = if is_writable { letter.to_ascii_uppercase() } else { letter };
        let style = if cell.owner == selected { in_colour(colour).patch(BOLD) } else { in_colour(colour) };
        return (letter.to_string(), style);
    }
    let symbol = symbol(cell.state).map_or_else(|| height(cell).to_owned(), str::to_owned);
    (symbol, style_of(cell.state))
}

/// The letter and the colour of a namespace of a pool: by its place among the others.
fn owner(pool: &PoolSnapshot, id: u32) -> (char, Color) {
    let place = pool.report.namespaces.iter().position(|own| own.id == id).unwrap_or(0);
    (char::from(b'a' + (place % 26) as u8), OWNERS[place % OWNERS.len()])
}

/// The symbol of a state that is not drawn as a height.
fn symbol(state: CellState) -> Option<&'static str> {
    match state {
        CellState::Offline | CellState::Unusable => Some("×"),
        CellState::Log => Some("#"),
        CellState::Reserved => Some("+"),
        CellState::Resetting => Some("~"),
        CellState::Conventional => Some("▒"),
        CellState::Empty => Some("·"),
        _ => None,
    }
}

fn height(cell: &Cell) -> &'static str {
    let place = cell.fill.checked_sub(1).map(|place| place as usize);
    place.map_or("_", |place| HEIGHTS[place.min(HEIGHTS.len() - 1)])
}

fn style_of(state: CellState) -> Style {
    match state {
        CellState::Offline | CellState::Unusable => in_colour(Color::Red),
        CellState::ReadOnly => in_colour(Color::Magenta),
        CellState::ExplicitlyOpened => in_colour(Color::Green).patch(BOLD),
        CellState::ImplicitlyOpened => in_colour(Color::Green),
        CellState::Closed => in_colour(Color::Yellow),
        CellState::Full | CellState::InGroup => in_colour(Color::Blue),
        CellState::Conventional | CellState::Log => in_colour(Color::Cyan),
        CellState::Reserved | CellState::Resetting | CellState::Empty => DIM,
    }
}

/// A symbol of the map, and its meaning.
struct Sample {
    symbol: String,
    style: Style,
    text: String,
}

/// The states that occur, with the number of zones; of a pool the namespaces, too.
fn legend(map: &ZoneMapSnapshot, owners: Owners<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    let is_owned = |owner: u32| owner > 0 && matches!(owners, Owners::Pool(..));
    if let Owners::Pool(pool, selected) = owners {
        for own in pool.report.namespaces.iter().filter(|own| map.owners.contains(&own.id)) {
            let (letter, colour) = owner(pool, own.id);
            let style = if own.id == selected { in_colour(colour).patch(BOLD) } else { in_colour(colour) };
            samples.push(Sample { symbol: letter.to_string(), style, text: own.name.clone() });
        }
    }
    for state in CellState::ALL {
        let count = map.cells().filter(|(of, _, owner)| *of == state && !is_owned(*owner)).count();
        if count > 0 {
            let text = match map.zones_per_cell {
                1 => format!("{} {}", units::count(count as u64), state.name()),
                _ => state.name().to_owned(),
            };
            samples.push(Sample { symbol: symbol(state).unwrap_or("█").to_owned(), style: style_of(state), text });
        }
    }
    samples
}

/// The line and the column of each sample, counted from the first line of the legend.
fn places(width: u16, samples: &[Sample]) -> Vec<(u16, u16)> {
    let (mut line, mut column) = (0, LABEL_WIDTH);
    let mut places = Vec::with_capacity(samples.len());
    for sample in samples {
        let own = 2 + sample.text.chars().count() as u16;
        if column > LABEL_WIDTH && column + own > width {
            (line, column) = (line + 1, LABEL_WIDTH);
        }
        places.push((line, column));
        column += own + 2;
    }
    places
}

fn legend_lines(width: u16, samples: &[Sample]) -> u16 {
    places(width, samples).last().map_or(0, |(line, _)| line + 1)
}

fn put_legend(canvas: &mut Canvas<'_>, top: u16, lines: u16, samples: &[Sample]) {
    for (sample, (line, column)) in samples.iter().zip(places(canvas.width(), samples)) {
        if line < lines {
            let next = canvas.put(column, top + line, &sample.symbol, sample.style);
            canvas.put(next + 1, top + line, &sample.text, PLAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;

    use super::super::samples;
    use super::*;

    fn text(buffer: &Buffer) -> Vec<String> {
        let width = usize::from(buffer.area.width);
        let lines = buffer.content.chunks(width);
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
    }

    #[test]
    fn a_map_with_too_few_lines_merges_cells_and_keeps_the_important_states() {
        let mut states = "e".repeat(100);
        states.replace_range(37..38, "i");
        let map =
            ZoneMapSnapshot { zones: 100, zones_per_cell: 1, states, fill: "0".repeat(100), ..Default::default() };
        let mut buffer = Buffer::empty(Rect::new(0, 0, 41, 4));
        let mut canvas = Canvas { buffer: &mut buffer, has_colours: true };
        assert_eq!(zones_per_cell(41, 3, &map, Owners::None), 2);
        assert_eq!(draw(&mut canvas, 0, 3, &map, Owners::None), 3);
        let lines = text(&buffer);
        assert_eq!(lines[0], format!("      0 {}_{}", "·".repeat(18), "·".repeat(13)));
        assert_eq!(lines[1], format!("     64 {}", "·".repeat(18)));
        assert_eq!(
            lines[2],
            "        █ 1 implicitly opened  · 99 empty".chars().take(41).collect::<String>().trim_end()
        );
        assert_eq!(buffer[(26, 0)].fg, Color::Green);
    }

    #[test]
    fn zones_of_a_pool_have_the_letter_of_their_namespace() {
        let (_, now) = samples::pool();
        let pool = &now.pools[0];
        let of = |state, owner| look(&Cell { state, fill: 8, owner }, Owners::Pool(pool, 2));
        assert_eq!(of(CellState::Full, 1), ("a".to_owned(), in_colour(Color::Green)));
        assert_eq!(of(CellState::ImplicitlyOpened, 2), ("B".to_owned(), in_colour(Color::Magenta).patch(BOLD)));
        assert_eq!((of(CellState::Log, 0).0, of(CellState::Empty, 0).0), ("#".to_owned(), "·".to_owned()));
    }
}
