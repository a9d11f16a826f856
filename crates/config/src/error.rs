//! An error with its place, and what to do about it.

use std::fmt;
use std::ops::Range;

use serde::de;
use toml::Spanned;

/// Separates message and help while both travel through a serde error, which has room for one string.
pub(crate) const HELP_SEPARATOR: char = '\u{1f}';

/// What is wrong in a file, where, and what to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong, for a person; one sentence without a full stop.
    pub message: String,
    /// The bytes of the text that the message is about; `None` when it is about no place in particular.
    pub span: Option<Range<usize>>,
    /// What to do: what is allowed, or which value to use.
    pub help: Option<String>,
}

/// A value that stands in no file, for specifications built by a program. Errors about it have no place.
#[must_use]
pub fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl ConfigError {
    /// An error without a place.
    #[must_use]
    pub fn new(message: impl Into<String>) -> ConfigError {
        ConfigError { message: message.into(), span: None, help: None }
    }

    /// An error about `place`; without a place when that is [`unplaced`].
    #[must_use]
    pub fn at<T>(place: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::new(message).within(place.span())
    }

    /// The same error about these bytes; without a place when there are none.
    #[must_use]
    pub fn within(mut self, span: Range<usize>) -> ConfigError {
        self.span = Some(span).filter(|span| !span.is_empty());
        self
    }

    /// The same error with what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> ConfigError {
        self.help = Some(help.into());
        self
    }

    /// The error as one of serde's, for use in a `Deserialize` written by hand: [`crate::parse`] finds message and help
    /// in it again, and adds the place.
    #[must_use]
    pub fn into_serde<E: de::Error>(self) -> E {
        match self.help {
            None => E::custom(self.message),
            Some(help) => E::custom(format_args!("{}{HELP_SEPARATOR}{help}", self.message)),
        }
    }
}

impl fmt::Display for ConfigError {
    /// Message and help in one line; the place is left to whoever has the text.
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
    fn an_error_about_an_unplaced_value_has_no_place() {
        assert_eq!(ConfigError::at(&unplaced(7), "no").span, None);
        assert_eq!(ConfigError::at(&Spanned::new(3..5, 7), "no").span, Some(3..5));
    }

    #[test]
    fn an_error_prints_its_help_behind_its_message() {
        assert_eq!(ConfigError::new("too much").help("take less").to_string(), "too much: take less");
    }
}
