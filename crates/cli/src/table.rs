//! The table style of all commands: a rule under the header, no borders.

use comfy_table::{Cell, CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, TableStyle};

use crate::output::Screen;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(' '))
    .header_separator(LineStyle::none().fill('-').junction(' '))
    .content_lines(ContentLineStyle::none().junction(' '));

/// A table under construction.
pub(crate) struct Table {
    inner: comfy_table::Table,
    numbers: Vec<bool>,
    has_url: bool,
}

impl Table {
    /// A table with these columns; columns whose name begins with `>` hold numbers and are
    /// right-aligned.
    pub(crate) fn new(columns: &[&str]) -> Table {
        let mut inner = comfy_table::Table::new();
        inner.load_style(STYLE);
        inner.force_no_tty();
        let numbers: Vec<bool> = columns.iter().map(|column| column.starts_with('>')).collect();
        let header = columns.iter().zip(&numbers).map(|(name, number)| cell(name.trim_start_matches('>'), *number));
        inner.set_header(header.collect::<Vec<_>>());
        inner.column_iter_mut().for_each(|column| {
            column.set_padding((0, 1));
        });
        Table { inner, numbers, has_url: false }
    }

    /// Adds a row.
    pub(crate) fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        assert_eq!(cells.len(), self.numbers.len(), "a row has a cell for each column");
        self.has_url |= cells.iter().any(|text| text.as_ref().contains("://"));
        let cells = cells.iter().zip(&self.numbers).map(|(text, number)| cell(text.as_ref(), *number));
        self.inner.add_row(cells.collect::<Vec<_>>());
    }

    /// Whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The table indented by `indent` spaces; cells wrap to the width of the screen. A table that
    /// holds a URL is not wrapped, so that the URL can be copied.
    pub(crate) fn render(mut self, screen: Screen, indent: usize) -> String {
        if self.has_url {
            return self.into_lines(indent);
        }
        self.inner.set_content_arrangement(ContentArrangement::Dynamic);
        self.inner.set_width(screen.width.saturating_sub(indent as u16));
        self.into_lines(indent)
    }

    /// The table without wrapping.
    pub(crate) fn render_wide(self, indent: usize) -> String {
        self.into_lines(indent)
    }

    fn into_lines(self, indent: usize) -> String {
        let margin = " ".repeat(indent);
        let lines = self.inner.lines();
        lines.map(|line| format!("{margin}{}\n", line.trim_end())).collect()
    }
}

fn cell(text: &str, is_number: bool) -> Cell {
    Cell::new(text).set_alignment(if is_number { CellAlignment::Right } else { CellAlignment::Left })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned_and_words_left_aligned() {
        let mut table = Table::new(&["job", ">operations"]);
        table.row(&["reader", "7"]);
        table.row(&["a", "1,000"]);
        let lines = ["job     operations", "------- -----------", "reader           7", "a            1,000"];
        assert_eq!(table.render_wide(0).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_url_is_never_wrapped() {
        let mut table = Table::new(&["at", "state"]);
        let url = "nvme-tcp://storage-7.example.org:4420/nqn.2026-01.io.zonda:drives:b";
        table.row(&[url, "active"]);
        let text = table.render(Screen { width: 60, colour: false }, 2);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.ends_with(&format!("  {url}  active\n")), "{text}");
    }

    #[test]
    fn a_cell_that_is_too_long_for_the_screen_is_wrapped() {
        let mut table = Table::new(&["key", "source"]);
        table.row(&["k", &"word ".repeat(30)]);
        let screen = Screen { width: 60, colour: false };
        let text = table.render(screen, 2);
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.chars().count() <= 60), "{text}");
    }
}
