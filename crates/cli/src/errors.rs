//! What went wrong, and how a person gets to see it.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use zonda_config::ConfigError;
use zonda_stack::{ErrorSource, StackError};

/// Width at which a help is broken into lines.
const HELP_WIDTH: usize = 100;

/// Why a command ends with another exit code than 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input or the usage is wrong: code 2. The text is ready to be shown.
    Input(String),
    /// The run failed: code 1. What is to be said has been said.
    Run,
    /// What was under way came to a bad end, and not for its input: code 1. The text is ready to be shown.
    Broken(String),
    /// Nobody reads the output any more, as in `zonda ... | head`: code 0.
    ReaderGone,
}

impl Failure {
    /// A mistake that stands in no file.
    pub(crate) fn input(message: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::Input(render(&in_words(message, help), None))
    }

    /// What was under way came to a bad end.
    pub(crate) fn broken(message: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure::Broken(render(&in_words(message, help), None))
    }

    /// A mistake in a file, or about it.
    pub(crate) fn in_file(error: &ConfigError, path: &str, text: &str) -> Failure {
        Failure::Input(render(error, Some((path, text))))
    }

    /// A mistake in an experiment that was read from `path`.
    pub(crate) fn in_experiment(error: &StackError, path: &str, text: &str) -> Failure {
        match &error.source {
            ErrorSource::JobFile => Failure::in_file(&error.error, path, text),
            ErrorSource::Profile { path, text } => Failure::in_file(&error.error, path, text),
        }
    }

    /// Shows it on the standard error.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::ReaderGone => ExitCode::SUCCESS,
            Failure::Run => ExitCode::from(1),
            Failure::Input(text) => shown(&text, 2),
            Failure::Broken(text) => shown(&text, 1),
        }
    }
}

fn shown(text: &str, code: u8) -> ExitCode {
    // Where the standard error is gone too, there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{text}");
    ExitCode::from(code)
}

/// Nothing is better than an empty remedy.
fn in_words(message: impl Into<String>, help: impl Into<String>) -> ConfigError {
    let (error, help) = (ConfigError::new(message), help.into());
    if help.is_empty() { error } else { error.help(help) }
}

impl From<io::Error> for Failure {
    /// From writing to the standard output.
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::input(
                format!("the output cannot be written: {error}"),
                "see whether the disk is full, or the output closed",
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
    renderer.render(&[group(error, file)])
}

fn group<'a>(error: &'a ConfigError, file: Option<(&'a str, &'a str)>) -> Group<'a> {
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
        Some(help) => group.element(Level::HELP.message(broken_into_lines(help))),
        None => group,
    }
}

fn broken_into_lines(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= HELP_WIDTH {
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
    fn a_long_help_is_broken_between_words() {
        let help = broken_into_lines(&"word ".repeat(50));
        assert!(help.lines().all(|line| line.len() <= HELP_WIDTH), "{help}");
        assert_eq!(help.split_whitespace().count(), 50);
    }

    #[test]
    fn a_place_beyond_the_text_is_shown_at_its_end() {
        let error = ConfigError::new("wrong").within(3..900);
        assert!(Renderer::plain().render(&[group(&error, Some(("a.toml", "a = 1\n")))]).contains("a.toml:1:4"));
    }
}
