//! Rewords messages of serde for users.
//!
//! Serde returns a string. Its wording comes from serde's derive macros and has not changed since
//! 1.0; the tests of [`crate::parse`] would detect a change. Unrecognised messages are passed on
//! unchanged.

use std::fmt::Write as _;

use crate::error::HELP_SEPARATOR;
use crate::{ConfigError, did_you_mean_help};

/// One step of the path from the root of a file to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The path of the value that an error is about; empty for the file as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: Vec<Step>,
    /// Whether it is a table with a header, `[run]` or `[[job]]`.
    pub(crate) has_header: bool,
}

/// A reworded error without its position.
pub(crate) struct Reworded {
    pub(crate) error: ConfigError,
    /// Whether the error is about a missing key.
    pub(crate) is_missing: bool,
}

pub(crate) fn reword(message: &str, place: &Place) -> Reworded {
    if let Some((message, help)) = message.split_once(HELP_SEPARATOR) {
        return found(ConfigError::new(message).help(help));
    }
    if let Some((key, allowed)) = unknown(message, "unknown field `") {
        let help = did_you_mean_help(key, &allowed);
        return found(ConfigError::new(format!("unknown key \"{key}\"")).help(help));
    }
    if let Some((value, allowed)) = unknown(message, "unknown variant `") {
        let of = place.name().map_or_else(String::new, |name| format!(" for {name}"));
        let help = did_you_mean_help(value, &allowed);
        return found(ConfigError::new(format!("unknown value \"{value}\"{of}")).help(help));
    }
    if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        let error = ConfigError::new(format!("missing key \"{key}\" in {}", place.table()));
        return Reworded { error: error.help(format!("add a line {key} = ...")), is_missing: true };
    }
    let wrong = ["invalid type: ", "invalid value: "].iter().find_map(|prefix| message.strip_prefix(prefix));
    if let Some((got, expected)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        if got.contains("as i128") || got.contains("as u128") {
            let name = place.name().unwrap_or_else(|| "this".to_owned());
            return found(ConfigError::new(format!("{name} is out of range: {}", finding(got))));
        }
        let name = place.name().unwrap_or_else(|| "this".to_owned());
        let ranged = message.starts_with("invalid value: ");
        return found(ConfigError::new(format!(
            "{name} must be {}, not {}",
            expectation(expected, ranged),
            finding(got)
        )));
    }
    // Of an enum, by the parser of TOML.
    if message == "wanted string or table" || message.starts_with("wanted exactly 1 element") {
        let name = place.name().unwrap_or_else(|| "this".to_owned());
        return found(ConfigError::new(format!("{name} must be one word in quotes")));
    }
    found(ConfigError::new(message))
}

fn found(error: ConfigError) -> Reworded {
    Reworded { error, is_missing: false }
}

/// Extracts the word and the allowed words from ``unknown field `a`, expected one of `b`, `c` ``.
fn unknown<'a>(message: &'a str, prefix: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let rest = message.strip_prefix(prefix)?;
    match rest.rsplit_once("`, expected ") {
        Some((word, allowed)) => Some((word, allowed.split('`').skip(1).step_by(2).collect())),
        None => rest.rsplit_once("`, there are no ").map(|(word, _)| (word, Vec::new())),
    }
}

fn expectation(expected: &str, ranged: bool) -> String {
    let bounds = match expected {
        "u8" => Some((0, u64::from(u8::MAX))),
        "u16" => Some((0, u64::from(u16::MAX))),
        "u32" => Some((0, u64::from(u32::MAX))),
        "u64" | "usize" => Some((0, u64::MAX)),
        "i8" | "i16" | "i32" | "i64" | "isize" => return "a whole number".to_owned(),
        _ => None,
    };
    match (bounds, expected) {
        (Some((least, most)), _) if ranged => format!("a whole number from {least} to {most}"),
        (Some(_), _) => "a whole number".to_owned(),
        (_, "f32" | "f64") => "a number".to_owned(),
        (_, "a boolean") => "true or false".to_owned(),
        (_, "a string") => "text in quotes".to_owned(),
        (_, "a sequence") => "a list".to_owned(),
        (_, "a map") => "a table".to_owned(),
        (_, expected) if expected.starts_with("struct ") => "a table".to_owned(),
        (_, expected) if expected.starts_with("a tuple of size ") => {
            format!("a list of {}", expected.trim_start_matches("a tuple of size "))
        }
        (_, expected) => expected.to_owned(),
    }
}

fn finding(got: &str) -> String {
    match got {
        "map" => return "a table".to_owned(),
        "sequence" => return "a list".to_owned(),
        _ => {}
    }
    if let Some(text) = got.strip_prefix("string ") {
        return format!("the text {text}");
    }
    match got.split_once('`') {
        Some(("integer " | "boolean " | "floating point ", value)) => {
            // Numbers of more than 64 bits come as: integer `123` as i128.
            value.split('`').next().unwrap_or(value).to_owned()
        }
        _ => got.to_owned(),
    }
}

impl Place {
    /// The name of a value, its key: `"queue_depth"`, or `item 2 of "zones"`.
    fn name(&self) -> Option<String> {
        let key = self.path.iter().rposition(|step| matches!(step, Step::Key(_)))?;
        let mut name = String::new();
        for step in &self.path[key + 1..] {
            if let Step::Index(index) = step {
                write!(name, "item {} of ", index + 1).expect("writing to a string succeeds");
            }
        }
        match &self.path[key] {
            Step::Key(key) => Some(format!("{name}\"{key}\"")),
            Step::Index(_) => None,
        }
    }

    /// The name of a table, its header: `[run]`, `[[job]] number 2`; without one `the table "mix"`.
    fn table(&self) -> String {
        if self.path.is_empty() {
            return "the file".to_owned();
        }
        if !self.has_header {
            return self.name().map_or_else(|| "the table".to_owned(), |name| format!("the table {name}"));
        }
        let keys = self.path.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        });
        let keys = keys.collect::<Vec<_>>().join(".");
        match self.path.last() {
            Some(Step::Index(index)) => format!("[[{keys}]] number {}", index + 1),
            _ => format!("[{keys}]"),
        }
    }
}
