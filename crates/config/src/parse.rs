//! TOML into any type, and errors into words for people.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::ConfigError;
use crate::phrases::{Place, Step, reword};

/// Reads a file's text.
///
/// What an empty text means is up to `T`: keys without a default are missing. Use [`parse_with`] to say it better.
///
/// # Errors
/// The first thing that is wrong: the syntax, an unknown or missing key, a value that `T` refuses.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| explain(text, &error))
}

/// Reads a file's text, and refuses one without any key with the sentence `must_contain`, which says what a file of this
/// kind is made of.
///
/// # Errors
/// As [`parse`]; and when there is no key.
pub fn parse_with<T: DeserializeOwned>(text: &str, must_contain: &str) -> Result<T, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| explain(text, &error))?;
    if table.get_ref().is_empty() {
        return Err(ConfigError::new("there is nothing in this file").help(must_contain));
    }
    parse(text)
}

fn explain(text: &str, error: &toml::de::Error) -> ConfigError {
    let span = error.span().map(|span| span.start.min(text.len())..span.end.min(text.len()));
    let place = match (DeTable::parse(text), &span) {
        (Ok(root), Some(span)) => {
            let mut search = Search { start: span.start, end: span.end, path: Vec::new(), found: Vec::new() };
            search.table(root.get_ref());
            Place { path: search.found, has_header: text.get(span.clone()).is_some_and(|at| at.starts_with('[')) }
        }
        _ => Place::default(),
    };
    let reworded = reword(error.message(), &place);
    // An error about the file as a whole, such as a key missing at its top, covers it all: that is no place to show.
    let span = span.map(|span| with_a_character(text, span));
    let span = span.filter(|span| !span.is_empty() && (*span != (0..text.len()) || !reworded.is_missing));
    ConfigError { span, ..reworded.error }
}

/// A place between two characters, as the parser gives it for something that is missing, is shown at the one before it.
fn with_a_character(text: &str, span: Range<usize>) -> Range<usize> {
    if !span.is_empty() {
        return span;
    }
    let before = text[..span.start].char_indices().next_back().map_or(0, |(at, _)| at);
    before..span.end
}

/// Looks for the value that covers exactly the bytes of an error, and remembers how it is reached. The innermost one
/// counts, because a table written `[a.b]` covers the same bytes as the `a` it implies.
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
    fn a_right_file_is_read_with_its_places() {
        let text = "[run]\nseed = 3\n[[job]]\noperation = \"randread\"\nzones = \"0..4\"\nblock_size = 512\n";
        let file: File = parse(text).unwrap();
        assert_eq!(file.run.unwrap().seed, 3);
        let job = file.job[0].get_ref();
        assert_eq!(&text[job.zones.as_ref().unwrap().span()], "\"0..4\"");
        assert_eq!(job.block_size.as_ref().unwrap().get_ref(), &ByteSize(512));
        assert_eq!(&text[file.job[0].span()], "[[job]]");
    }

    #[test]
    fn an_unknown_key_points_at_itself_and_names_the_nearest() {
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
    fn an_unknown_choice_points_at_itself_and_names_the_nearest() {
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
    fn a_missing_key_names_the_table_that_lacks_it() {
        assert_eq!(
            error("[[job]]\noperation = \"read\"\n[[job]]\ntime = \"1 s\"\n"),
            strings(("[[job]] number 2 lacks the key \"operation\"", "[[job]]", "add a line: operation = ..."))
        );
        assert_eq!(
            error("[run]\nratio = 1.0\n"),
            strings(("[run] lacks the key \"seed\"", "[run]", "add a line: seed = ..."))
        );
        assert_eq!(
            error("run = { ratio = 1.0 }\n"),
            strings(("the table \"run\" lacks the key \"seed\"", "{ ratio = 1.0 }", "add a line: seed = ..."))
        );
    }

    #[test]
    fn a_key_missing_at_the_top_points_at_nothing() {
        let error = parse::<Run>("# nothing\n").unwrap_err();
        assert_eq!((error.message.as_str(), error.span), ("the file lacks the key \"seed\"", None));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_told_in_plain_words() {
        let job = |line: &str| error(&format!("[[job]]\noperation = \"read\"\n{line}\n"));
        for (line, message, place) in [
            ("queue_depth = \"4\"", "\"queue_depth\" must be a whole number, not the text \"4\"", "\"4\""),
            ("queue_depth = -1", "\"queue_depth\" must be a whole number from 0 to 4294967295, not -1", "-1"),
            ("queue_depth = 1.5", "\"queue_depth\" must be a whole number, not 1.5", "1.5"),
            ("verify = [1]", "\"verify\" must be true or false, not a list", "[1]"),
            ("time = true", "\"time\" must be a time like \"10 s\" or \"500 us\", not true", "true"),
            (
                "zones = [\"0..2\", true]",
                "item 2 of \"zones\" must be a range like \"0..16\", an index, or a list of these, not true",
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
    fn a_value_that_its_type_refuses_brings_its_own_help() {
        assert_eq!(
            error("[[job]]\noperation = \"read\"\nblock_size = \"4 Kib\"\n").2,
            "did you mean \"4 KiB\"? write a number and one of B, KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB \
             (powers of 1000), like \"4 KiB\""
        );
        assert_eq!(error("[[job]]\noperation = \"read\"\ntime = 10\n").0, "\"10\" is not a time");
        assert_eq!(error("[[job]]\noperation = \"read\"\nrate = \"9\"\n").1, "\"9\"");
    }

    #[test]
    fn broken_syntax_points_at_its_place() {
        let (message, place, _) = error("[[job]]\noperation = read\n");
        assert!(message.starts_with("string values must be quoted"), "{message}");
        assert_eq!(place, "read");
        assert!(parse::<File>("[[job").is_err());
        assert!(parse::<File>("a = \"").is_err());
    }

    #[test]
    fn an_empty_file_says_what_it_must_contain() {
        for text in ["", "\n\n", "# only a remark\n"] {
            let error = parse_with::<File>(text, "a job file needs at least one [[job]] table").unwrap_err();
            assert_eq!(error.message, "there is nothing in this file");
            assert_eq!(error.help.as_deref(), Some("a job file needs at least one [[job]] table"));
            assert_eq!(error.span, None);
        }
        assert!(parse_with::<File>("[[job]]\noperation = \"read\"\n", "").is_ok());
    }

    proptest! {
        #[test]
        fn any_text_gets_an_answer_and_a_place_inside_it(
            text in "(\\[\\[job\\]\\]\n)?([a-zé_]{0,6} ?= ?[\"\\[{0-9a-zß. -]{0,8}\n){0,4}",
        ) {
            if let Err(error) = parse::<File>(&text) && let Some(span) = error.span {
                prop_assert!(text.get(span.clone()).is_some(), "{span:?} of {text:?}");
            }
        }
    }

    #[test]
    fn something_missing_is_shown_at_what_stands_before_it() {
        let text = "seed = 1\nname =\n";
        let span = parse::<File>(text).expect_err("there is no value").span.expect("it has a place");
        assert!(text[..span.end].contains("name"), "{span:?}");
    }

    #[test]
    fn a_number_beyond_all_types_is_too_large_and_shows_no_type_of_ours() {
        #[derive(Debug, Deserialize)]
        struct Seeded {
            #[expect(dead_code, reason = "only read")]
            seed: u64,
        }
        let error = parse::<Seeded>("seed = 99999999999999999999\n").expect_err("no seed is so large");
        assert!(error.message.ends_with("cannot be as large as 99999999999999999999"), "{}", error.message);
    }
}
