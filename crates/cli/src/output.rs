//! The standard output: its width and colours.

use std::io::{self, IsTerminal, Write};

use crate::errors::Failure;

/// Columns if the width of the output is unknown.
const WIDTH_DEFAULT: u16 = 100;
/// Minimum number of columns.
const WIDTH_MIN: u16 = 60;

/// Properties of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Columns.
    pub(crate) width: u16,
    /// Whether there are colours.
    pub(crate) colour: bool,
}

impl Screen {
    /// Properties of the standard output.
    pub(crate) fn of_stdout() -> Screen {
        let is_terminal = io::stdout().is_terminal();
        let width = if is_terminal { comfy_table::Table::new().width().filter(|width| *width > 0) } else { None };
        Screen {
            width: width.unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN),
            colour: is_terminal && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// Columns of the standard error, if it is a terminal.
    pub(crate) fn stderr_width() -> Option<u16> {
        let mut table = comfy_table::Table::new();
        table.use_stderr().width().filter(|width| *width > 0)
    }

    /// The text in bold.
    pub(crate) fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    /// The text in the style of an ANSI code (ECMA-48, Select Graphic Rendition).
    pub(crate) fn styled(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// The text wrapped between words to the width of the screen, each line indented by `indent`
    /// spaces.
    pub(crate) fn paragraph(&self, text: &str, indent: usize) -> String {
        let width = usize::from(self.width.min(WIDTH_DEFAULT)) - indent;
        let margin = " ".repeat(indent);
        let mut lines = String::new();
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines += &format!("{margin}{line}\n");
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines + &format!("{margin}{line}\n")
    }
}

/// Writes to the standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes one JSON object on one line.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string(value).expect("results hold only text keys and finite numbers");
    text.push('\n');
    print(&text)
}
