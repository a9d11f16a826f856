//! Parses TOML into any type, with errors reworded for users.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::ConfigError;
use crate::any_table::spanned;
use crate::phrases::{Place, Step, reword};

/// Parses the text of a file.
///
/// An empty text lacks the required keys of `T`. [`parse_with`] reports it with a better message.
///
/// # Errors
/// The first error: invalid syntax, an unknown or missing key, a value that `T` refuses.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| explain(text, &error))
}

/// Parses the text of a file, and refuses a file without keys with the help `must_contain`, which
/// describes what a file of this kind must contain.
///
/// # Errors
/// As [`parse`]; and if the file has no key.
pub fn parse_with<T: DeserializeOwned>(text: &str, must_contain: &str) -> Result<T, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| explain(text, &error))?;
    if table.get_ref().is_empty() {
        return Err(ConfigError::new("the file is empty").help(must_contain));
    }
    parse(text)
}

fn explain(text: &str, error: &toml::de::Error) -> ConfigError {
    let (inner, message) = spanned(error.message());
    let span = inner.or_else(|| error.span()).map(|span| span.start.min(text.len())..span.end.min(text.len()));
    let place = match (DeTable::parse(text), &span) {
        (Ok(root), Some(span)) => {
            let mut search = Search { start: span.start, end: span.end, path: Vec::new(), found: Vec::new() };
            search.table(root.get_ref());
            Place { path: search.found, has_header: text.get(span.clone()).is_some_and(|at| at.starts_with('[')) }
        }
        _ => Place::default(),
    };
    let reworded = reword(message, &place);
    // An error about the file as a whole, such as a missing top-level key, has no position to show.
    let span = span.map(|span| with_a_character(text, span));
    let span = span.filter(|span| !span.is_empty() && (*span != (0..text.len()) || !reworded.is_missing));
    ConfigError { span, ..reworded.error }
}

/// An empty span, which the parser returns for something missing, is extended to the character
/// before it.
fn with_a_character(text: &str, span: Range<usize>) -> Range<usize> {
    if !span.is_empty() {
        return span;
    }
    let before = text[..span.start].char_indices().next_back().map_or(0, |(at, _)| at);
    before..span.end
}

/// Searches the value with exactly the span of an error, and records its path. The innermost value
/// is used, because a table written `[a.b]` has the same span as the `a` it implies.
struct Search {
    start: usize,
    end: usize,
    path: Vec<Step>,
    found: Vec<Step>,
}

impl Search {
    fn table(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            self.visit(Step::Key(key.get_ref().to_string()), value);
        }
    }

    fn visit(&mut self, step: Step, value: &toml::Spanned<DeValue<'_>>) {
        self.path.push(step);
        if value.span() == (self.start..self.end) {
            self.found.clone_from(&self.path);
        }
        match value.get_ref() {
            DeValue::Table(table) => self.table(table),
            DeValue::Array(array) => {
                for (index, item) in array.iter().enumerate() {
                    self.visit(Step::Index(index), item);
                }
            }
            _ => {}
        }
        self.path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByteSize, IndexSet, Rate, Spanned, TimeSpan};
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        run: Option<Run>,
        #[serde(default)]
        job: Vec<Spanned<Job>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only errors are looked at")]
    struct Run {
        seed: u8,
        ratio: Option<f64>,
        pair: Option<(u8, u8)>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "mostly errors are looked at")]
    struct Job {
        operation: Kind,
        queue_depth: Option<Spanned<u32>>,
        block_size: Option<Spanned<ByteSize>>,
        time: Option<TimeSpan>,
        rate: Option<Rate>,
        zones: Option<Spanned<IndexSet>>,
        verify: Option<bool>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Read,
        Randread,
    }

    /// The error about `text`: its message, what it points at, and its help.
    fn error(text: &str) -> (String, String, String) {
        let error = parse::<File>(text).unwrap_err();
        let place = error.span.map_or("nothing", |span| &text[span]);
        (error.message, place.to_owned(), error.help.unwrap_or_default())
    }

    fn strings(expected: (&str, &str, &str)) -> (String, String, String) {
        (expected.0.to_owned(), expected.1.to_owned(), expected.2.to_owned())
    }

    #[test]
    fn a_valid_file_is_parsed_with_its_spans() {
        let text = "[run]\nseed = 3\n[[job]]\noperation = \"randread\"\nzones = \"0..4\"\nblock_size = 512\n";
        let file: File = parse(text).unwrap();
        assert_eq!(file.run.unwrap().seed, 3);
        let job = file.job[0].get_ref();
        assert_eq!(&text[job.zones.as_ref().unwrap().span()], "\"0..4\"");
        assert_eq!(job.block_size.as_ref().unwrap().get_ref(), &ByteSize(512));
        assert_eq!(&text[file.job[0].span()], "[[job]]");
    }

    #[test]
    fn an_unknown_key_is_reported_with_its_span_and_a_suggestion() {
        assert_eq!(
            error("[[job]]\noperation = \"read\"\nquedepth = 4\n"),
            strings((
                "unknown key \"quedepth\"",
                "quedepth",
                "did you mean \"queue_depth\"? allowed here: operation, queue_depth, block_size, time, rate, zones, verify"
            ))
        );
        assert_eq!(
            error("jobs = 4\n"),
            strings(("unknown key \"jobs\"", "jobs", "did you mean \"job\"? allowed here: run, job"))
        );
    }

    #[test]
    fn an_unknown_choice_is_reported_with_its_span_and_a_suggestion() {
        assert_eq!(
            error("[[job]]\noperation = \"ranread\"\n"),
            strings((
                "unknown value \"ranread\" for \"operation\"",
                "\"ranread\"",
                "did you mean \"randread\"? allowed here: read, randread"
            ))
        );
    }

    #[test]
    fn a_missing_key_is_reported_with_its_table() {
        assert_eq!(
            error("[[job]]\noperation = \"read\"\n[[job]]\ntime = \"1 s\"\n"),
            strings(("missing key \"operation\" in [[job]] number 2", "[[job]]", "add a line operation = ..."))
        );
        assert_eq!(
            error("[run]\nratio = 1.0\n"),
            strings(("missing key \"seed\" in [run]", "[run]", "add a line seed = ..."))
        );
        assert_eq!(
            error("run = { ratio = 1.0 }\n"),
            strings(("missing key \"seed\" in the table \"run\"", "{ ratio = 1.0 }", "add a line seed = ..."))
        );
    }

    #[test]
    fn a_missing_top_level_key_has_no_span() {
        let error = parse::<Run>("# nothing\n").unwrap_err();
        assert_eq!((error.message.as_str(), error.span), ("missing key \"seed\" in the file", None));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_reported_with_the_expected_type() {
        let job = |line: &str| error(&format!("[[job]]\noperation = \"read\"\n{line}\n"));
        for (line, message, place) in [
            ("queue_depth = \"4\"", "\"queue_depth\" must be a whole number, not the text \"4\"", "\"4\""),
            ("queue_depth = -1", "\"queue_depth\" must be a whole number from 0 to 4294967295, not -1", "-1"),
            ("queue_depth = 1.5", "\"queue_depth\" must be a whole number, not 1.5", "1.5"),
            ("verify = [1]", "\"verify\" must be true or false, not a list", "[1]"),
            ("time = true", "\"time\" must be a time like \"10 s\" or \"500 us\", not true", "true"),
            (
                "zones = [\"0..2\", true]",
                "item 2 of \"zones\" must be a range like \"0..16\", a number, or a list of these, not true",
                "true",
            ),
        ] {
            assert_eq!(job(line), strings((message, place, "")), "{line}");
        }
        assert_eq!(job("operation = \"read\"").0, "duplicate key");
        assert_eq!(error("job = 4").0, "\"job\" must be a list, not 4");
        assert_eq!(error("run = 4").0, "\"run\" must be a table, not 4");
        assert_eq!(error("[run]\nseed = 300").0, "\"seed\" must be a whole number from 0 to 255, not 300");
        assert_eq!(error("[run]\nseed = 3\nratio = \"x\"").0, "\"ratio\" must be a number, not the text \"x\"");
    }

    #[test]
    fn a_value_that_its_type_refuses_has_the_help_of_the_type() {
        assert_eq!(
            error("[[job]]\noperation = \"read\"\nblock_size = \"4 Kib\"\n").2,
            "did you mean \"4 KiB\"? write a number and one of B, KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB \
             (powers of 1000), like \"4 KiB\""
        );
        assert_eq!(error("[[job]]\noperation = \"read\"\ntime = 10\n").0, "\"10\" is not a time");
        assert_eq!(error("[[job]]\noperation = \"read\"\nrate = \"9\"\n").1, "\"9\"");
    }

    #[test]
    fn invalid_syntax_is_reported_with_its_span() {
        let (message, place, _) = error("[[job]]\noperation = read\n");
        assert!(message.starts_with("string values must be quoted"), "{message}");
        assert_eq!(place, "read");
        assert!(parse::<File>("[[job").is_err());
        assert!(parse::<File>("a = \"").is_err());
    }

    #[test]
    fn an_empty_file_is_reported_with_what_it_must_contain() {
        for text in ["", "\n\n", "# only a remark\n"] {
            let error = parse_with::<File>(text, "a job file needs at least one [[job]] table").unwrap_err();
            assert_eq!(error.message, "the file is empty");
            assert_eq!(error.help.as_deref(), Some("a job file needs at least one [[job]] table"));
            assert_eq!(error.span, None);
        }
        assert!(parse_with::<File>("[[job]]\noperation = \"read\"\n", "").is_ok());
    }

    proptest! {
        #[test]
        fn errors_about_any_text_have_a_valid_span(
            text in "(\\[\\[job\\]\\]\n)?([a-zé_]{0,6} ?= ?[\"\\[{0-9a-zß. -]{0,8}\n){0,4}",
        ) {
            if let Err(error) = parse::<File>(&text) && let Some(span) = error.span {
                prop_assert!(text.get(span.clone()).is_some(), "{span:?} of {text:?}");
            }
        }
    }

    #[test]
    fn a_missing_value_is_reported_at_the_text_before_it() {
        let text = "seed = 1\nname =\n";
        let span = parse::<File>(text).expect_err("there is no value").span.expect("it has a place");
        assert!(text[..span.end].contains("name"), "{span:?}");
    }

    #[test]
    fn a_number_beyond_all_types_is_reported_without_a_rust_type() {
        #[derive(Debug, Deserialize)]
        struct Seeded {
            #[expect(dead_code, reason = "only read")]
            seed: u64,
        }
        let error = parse::<Seeded>("seed = 99999999999999999999\n").expect_err("no seed is so large");
        assert!(error.message.ends_with("is out of range: 99999999999999999999"), "{}", error.message);
    }
}
