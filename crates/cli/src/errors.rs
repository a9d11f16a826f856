//! Failures of commands: messages and exit codes.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use zonda_config::ConfigError;
use zonda_stack::{ErrorSource, StackError};

use crate::output::Screen;

/// Columns at which a remedy is wrapped if the standard error is not a terminal, and the maximum if
/// it is.
const HELP_WIDTH: usize = 100;
/// Minimum number of columns of a message or remedy.
const WIDTH_MIN: usize = 40;
/// Columns before the message and the remedy: "error: " and "  = help: ".
const PREFIX_WIDTH: usize = 10;

/// Why a command ends with another exit code than 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input or the usage is invalid: code 2. Holds the rendered message.
    Input(String),
    /// The run failed: code 1. The message has already been printed.
    Run,
    /// The operation failed for a reason other than its input: code 1. Holds the rendered message.
    Broken(String),
    /// The reader of the output has closed it, as in `zonda ... | head`: code 0.
    ReaderGone,
}

impl Failure {
    /// Invalid input that is not in a file.
    pub(crate) fn input(message: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::Input(render(&config_error(message, help), None))
    }

    /// An operation that failed for a reason other than its input.
    pub(crate) fn broken(message: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::Broken(render(&config_error(message, help), None))
    }

    /// Invalid contents of a file, or a failure to read it.
    pub(crate) fn in_file(error: &ConfigError, path: &str, text: &str) -> Failure {
        Failure::Input(render(error, Some((path, text))))
    }

    /// Invalid contents of an experiment read from `path`, or of a profile that it names.
    pub(crate) fn in_experiment(error: &StackError, path: &str, text: &str) -> Failure {
        match &error.source {
            ErrorSource::JobFile => Failure::in_file(&error.error, path, text),
            ErrorSource::Profile { path, text } => {
                Failure::in_file(&described(&error.error, PROFILE_GUIDE), path, text)
            }
        }
    }

    /// The same for a file whose keys `described_in` describes: the remedy of errors that have none.
    pub(crate) fn in_file_of_keys(mut error: StackError, path: &str, text: &str, described_in: &str) -> Failure {
        if let ErrorSource::JobFile = error.source {
            error.error = described(&with_help_for_set(&error.error, text), described_in);
        }
        Failure::in_experiment(&error, path, text)
    }

    /// The message without colours and without lines of the file, which may contain secrets.
    pub(crate) fn text_without_source(&self) -> String {
        match self {
            Failure::Input(text) | Failure::Broken(text) => without_source(text),
            Failure::Run | Failure::ReaderGone => String::new(),
        }
    }

    /// Prints the message to the standard error and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::ReaderGone => ExitCode::SUCCESS,
            Failure::Run => ExitCode::from(1),
            Failure::Input(text) => shown(&text, 2),
            Failure::Broken(text) => shown(&text, 1),
        }
    }
}

/// Leaves out the lines of a snippet, which have a `|` after the line number or in its place.
fn without_source(text: &str) -> String {
    let mut plain = String::new();
    let mut parts = text.split("\u{1b}[");
    plain += parts.next().unwrap_or_default();
    parts.for_each(|part| plain += part.split_once('m').map_or(part, |(_, rest)| rest));
    let is_source = |line: &&str| line.trim_start_matches(|it: char| it == ' ' || it.is_ascii_digit()).starts_with('|');
    plain.lines().filter(|line| !is_source(line)).collect::<Vec<_>>().join("\n")
}

fn shown(text: &str, code: u8) -> ExitCode {
    // If the standard error is closed too, the message cannot be delivered.
    let _ = writeln!(io::stderr(), "{text}");
    ExitCode::from(code)
}

/// The guide that describes the keys of profiles.
const PROFILE_GUIDE: &str = "docs/guide/drives.md";

/// Whether a message starts with the path of a key of a profile, such as `geometry.zones`.
fn is_about_profile(message: &str) -> bool {
    let tables = ["geometry.", "flash.", "channel.", "link.", "write_buffer.", "zones.", "conventional.", "firmware."];
    tables.iter().any(|table| message.starts_with(table))
}

/// An error in a file whose keys this guide describes: the remedy of errors that have none.
pub(crate) fn described(error: &ConfigError, guide: &str) -> ConfigError {
    let guide = if is_about_profile(&error.message) { PROFILE_GUIDE } else { guide };
    let described = || format!("{guide} describes the keys and their values");
    ConfigError { help: Some(error.help.clone().unwrap_or_else(described)), ..error.clone() }
}

/// The remedy for a section of a profile that is set to a value, as in `set = { zones = 4 }`.
const PATHS_IN_SET: &str =
    "the keys in set are paths, such as \"geometry.zones\" = 64; zonda drive show PROFILE lists the keys of a profile";

/// Adds the remedy to an error about such a section.
fn with_help_for_set(error: &ConfigError, text: &str) -> ConfigError {
    let is_about = |key: &str| !key.contains('.') && error.message.starts_with(&format!("\"{key}\" "));
    let root = toml::from_str::<toml::Table>(text).ok().filter(|_| error.help.is_none());
    let in_set = root.is_some_and(|root| sets_of(&root.into()).iter().any(|set| set.keys().any(|key| is_about(key))));
    if in_set { error.clone().help(PATHS_IN_SET) } else { error.clone() }
}

/// All tables named `set`, at any depth.
fn sets_of(value: &toml::Value) -> Vec<toml::Table> {
    match value {
        toml::Value::Array(items) => items.iter().flat_map(sets_of).collect(),
        toml::Value::Table(table) => {
            let own = table.get("set").and_then(toml::Value::as_table).cloned();
            own.into_iter().chain(table.values().flat_map(sets_of)).collect()
        }
        _ => Vec::new(),
    }
}

/// Leaves out an empty remedy.
fn config_error(message: impl Into<String>, help: impl Into<String>) -> ConfigError {
    let (error, help) = (ConfigError::new(message), help.into());
    if help.is_empty() { error } else { error.help(help) }
}

impl From<io::Error> for Failure {
    /// From writing to the standard output.
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::input(
                format!("cannot write to the standard output: {error}"),
                "check whether the disk is full or the output was closed",
            ),
        }
    }
}

fn render(error: &ConfigError, file: Option<(&str, &str)>) -> String {
    let renderer = if io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let Some(columns) = Screen::stderr_width() else { return renderer.render(&[group(error, file, HELP_WIDTH)]) };
    let width = usize::from(columns).saturating_sub(PREFIX_WIDTH).clamp(WIDTH_MIN, HELP_WIDTH);
    let error = ConfigError { message: wrapped(&error.message, width), ..error.clone() };
    renderer.render(&[group(&error, file, width)])
}

/// The remedy is wrapped to `width` columns.
fn group<'a>(error: &'a ConfigError, file: Option<(&'a str, &'a str)>, width: usize) -> Group<'a> {
    let title = Level::ERROR.primary_title(error.message.as_str());
    let group = match (file, &error.span) {
        (Some((path, text)), Some(span)) => {
            let annotation = AnnotationKind::Primary.span(span.start.min(text.len())..span.end.min(text.len()));
            title.element(Snippet::source(text).path(path).line_start(1).annotation(annotation))
        }
        (Some((path, _)), None) => title.element(Origin::path(path)),
        (None, _) => Group::with_title(title),
    };
    match &error.help {
        Some(help) => group.element(Level::HELP.message(wrapped(help, width))),
        None => group,
    }
}

fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_for_others_has_the_place_and_no_line_of_the_file() {
        let file = ("a.toml", "b = 1\nsecret = \"hidden\"\n");
        let error = ConfigError::new("wrong").within(6..12).help("a | b");
        for renderer in [Renderer::plain(), Renderer::styled()] {
            let text = without_source(&renderer.render(&[group(&error, Some(file), HELP_WIDTH)]));
            assert!(text.contains("a.toml:2:1") && text.starts_with("error: wrong\n"), "{text}");
            assert!(text.contains("help: a | b") && !text.contains("hidden"), "{text}");
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
    }

    #[test]
    fn a_long_remedy_is_wrapped_between_words() {
        let help = wrapped(&"word ".repeat(50), HELP_WIDTH);
        assert!(help.lines().all(|line| line.len() <= HELP_WIDTH), "{help}");
        assert_eq!(help.split_whitespace().count(), 50);
    }

    #[test]
    fn a_section_in_set_that_is_no_table_has_a_remedy() {
        let error = ConfigError::new("\"zones\" must be a table, not 4");
        for text in ["[drive]\nset = { zones = 4 }\n", "[[a]]\n[[a.b]]\nmemory = { set = { zones = 4 } }\n"] {
            assert_eq!(with_help_for_set(&error, text).help.as_deref(), Some(PATHS_IN_SET), "{text}");
        }
        assert_eq!(with_help_for_set(&error, "zones = 4\n").help, None);
        assert_eq!(with_help_for_set(&error.help("own"), "set = { zones = 4 }\n").help.as_deref(), Some("own"));
    }

    #[test]
    fn a_span_beyond_the_text_is_shown_at_its_end() {
        let error = ConfigError::new("wrong").within(3..900);
        assert!(
            Renderer::plain().render(&[group(&error, Some(("a.toml", "a = 1\n")), HELP_WIDTH)]).contains("a.toml:1:4")
        );
    }
}
