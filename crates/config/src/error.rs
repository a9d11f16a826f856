//! An error with its position and a remedy.

use std::fmt;
use std::ops::Range;

use serde::de;
use toml::Spanned;

/// Separates message and help in a serde error, which holds a single string.
pub(crate) const HELP_SEPARATOR: char = '\u{1f}';

/// An error in a file: what is wrong, where, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong; one sentence without a full stop.
    pub message: String,
    /// The byte range of the text that the message is about; `None` if it has no position.
    pub span: Option<Range<usize>>,
    /// The remedy: what is allowed, or which value to use.
    pub help: Option<String>,
}

/// A value that is not in a file, for specifications built by a program. Errors about it have no
/// position.
#[must_use]
pub fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl ConfigError {
    /// An error without a position.
    #[must_use]
    pub fn new(message: impl Into<String>) -> ConfigError {
        ConfigError { message: message.into(), span: None, help: None }
    }

    /// An error about `place`; without a position if that is [`unplaced`].
    #[must_use]
    pub fn at<T>(place: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::new(message).within(place.span())
    }

    /// The same error about this byte range; without a position if the range is empty.
    #[must_use]
    pub fn within(mut self, span: Range<usize>) -> ConfigError {
        self.span = Some(span).filter(|span| !span.is_empty());
        self
    }

    /// The same error with a remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> ConfigError {
        self.help = Some(help.into());
        self
    }

    /// The error as a serde error, for hand-written `Deserialize` implementations: [`crate::parse`]
    /// recovers message and help from it, and adds the position.
    #[must_use]
    pub fn into_serde<E: de::Error>(self) -> E {
        match self.help {
            None => E::custom(self.message),
            Some(help) => E::custom(format_args!("{}{HELP_SEPARATOR}{help}", self.message)),
        }
    }
}

impl fmt::Display for ConfigError {
    /// Message and help in one line, without the position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            None => Ok(()),
            Some(help) => write!(f, ": {help}"),
        }
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_an_unplaced_value_has_no_span() {
        assert_eq!(ConfigError::at(&unplaced(7), "no").span, None);
        assert_eq!(ConfigError::at(&Spanned::new(3..5, 7), "no").span, Some(3..5));
    }

    #[test]
    fn an_error_is_printed_as_message_and_help() {
        assert_eq!(ConfigError::new("too much").help("take less").to_string(), "too much: take less");
    }
}
