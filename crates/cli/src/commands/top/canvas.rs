//! [`Canvas`]: text in a buffer of `ratatui`, and numbers that fit into a few columns.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// A buffer that is drawn on; colours are left out if the user does not want any.
pub(super) struct Canvas<'b> {
    pub(super) buffer: &'b mut Buffer,
    pub(super) has_colours: bool,
}

/// Styles. Colours are those of the palette of the terminal, which its user has chosen to be readable
/// on the background; nothing depends on them alone.
pub(super) const PLAIN: Style = Style::new();
pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The style of a colour.
pub(super) const fn in_colour(colour: Color) -> Style {
    Style::new().fg(colour)
}

impl Canvas<'_> {
    pub(super) fn width(&self) -> u16 {
        self.buffer.area.width
    }

    pub(super) fn height(&self) -> u16 {
        self.buffer.area.height
    }

    /// Writes a text from a column on, as far as the line has columns; returns the next column.
    pub(super) fn put(&mut self, column: u16, line: u16, text: &str, style: Style) -> u16 {
        if line >= self.height() || column >= self.width() {
            return column;
        }
        let style = if self.has_colours { style } else { Style { fg: None, bg: None, ..style } };
        let area = self.buffer.area;
        let left = usize::from(self.width() - column);
        let (next, _) = self.buffer.set_stringn(area.x + column, area.y + line, text, left, style);
        next - area.x
    }

    /// Writes the parts that fit into the rest of a line as a whole.
    pub(super) fn put_fitting(&mut self, mut column: u16, line: u16, parts: &[String], style: Style) {
        for part in parts {
            if usize::from(column) + part.chars().count() > usize::from(self.width()) {
                return;
            }
            column = self.put(column, line, part, style);
        }
    }

    /// Writes a text from the first column on, wrapped between words; returns the line below.
    pub(super) fn put_wrapped(&mut self, mut line: u16, text: &str, style: Style) -> u16 {
        let mut column = 0;
        for word in text.split(' ') {
            if column > 0 && usize::from(column) + 1 + word.chars().count() > usize::from(self.width()) {
                (line, column) = (line + 1, 2);
            } else if column > 0 {
                column += 1;
            }
            column = self.put(column, line, word, style);
        }
        line + 1
    }

    /// Changes the style of a whole line.
    pub(super) fn style_line(&mut self, line: u16, style: Style) {
        for column in 0..self.width() {
            if let Some(cell) = self.buffer.cell_mut((self.buffer.area.x + column, self.buffer.area.y + line)) {
                cell.set_style(style);
            }
        }
    }
}

/// A number in at most five columns: `0`, `999`, `1.2k`, `12.3k`, `123k`, `1.2M`.
pub(super) fn short_count(value: f64) -> String {
    short(value, 1000.0, &["", "k", "M", "G", "T"])
}

/// Bytes in at most five columns: `0`, `512`, `1.2K`, `384K`, `1.2M`.
pub(super) fn short_bytes(value: f64) -> String {
    short(value, 1024.0, &["", "K", "M", "G", "T", "P"])
}

fn short(value: f64, base: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value, 0);
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = usize::from(value.abs() < 99.95 && unit > 0 || value.abs() < 9.95 && value.fract() != 0.0);
    format!("{value:.decimals$}{}", units[unit])
}

/// A time in at most five columns: `850ns`, `1.2us`, `87us`, `999ms`, `1.2s`.
pub(super) fn short_time(nanoseconds: u64) -> String {
    let (mut value, mut unit) = (nanoseconds as f64, 0);
    while value >= 999.5 && unit < 3 {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = usize::from(value < 9.95 && unit > 0);
    format!("{value:.decimals$}{}", ["ns", "us", "ms", "s"][unit])
}

/// The time since the start of a server: `0:03:11`.
pub(super) fn clock(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;

    #[test]
    fn numbers_fit_into_five_columns() {
        let counts = [0.0, 0.5, 7.0, 999.0, 1_234.0, 12_345.0, 123_456.0, 999_999.0].map(short_count);
        assert_eq!(counts, ["0", "0.5", "7", "999", "1.2k", "12.3k", "123k", "1.0M"]);
        let bytes = [512.0, 1_229.0, 393_216.0, 1_023.0 * 1024.0, -393_216.0, 3.2e9].map(short_bytes);
        assert_eq!(bytes, ["512", "1.2K", "384K", "1.0M", "-384K", "3.0G"]);
        let times = [0, 850, 1_234, 87_400, 999_499, 12_345_678, 10_000_000_000].map(short_time);
        assert_eq!(times, ["0ns", "850ns", "1.2us", "87us", "999us", "12ms", "10s"]);
        assert_eq!(clock(3_791_000_000_000), "1:03:11");
    }

    #[test]
    fn without_colours_no_cell_has_one_and_emphasis_stays() {
        for has_colours in [true, false] {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 1));
            let mut canvas = Canvas { buffer: &mut buffer, has_colours };
            assert_eq!(canvas.put(1, 0, "abcdef", in_colour(Color::Red).add_modifier(Modifier::BOLD)), 4);
            assert_eq!(canvas.put(0, 7, "below", PLAIN), 0);
            let cell = &buffer[(1, 0)];
            assert_eq!((cell.symbol(), cell.fg == Color::Red), ("a", has_colours));
            assert!(cell.modifier.contains(Modifier::BOLD));
        }
    }
}
