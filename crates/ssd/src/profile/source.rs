//! Source of a number of a profile.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Kind of a source: how reliable a number is, and what it implies for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A source states the number.
    Given,
    /// Not published; a plausible value.
    Assumed,
    /// Computed from published numbers by arithmetic, without running the model.
    Derived,
    /// Chosen so that the model matches published results. The model does not predict those
    /// results.
    Fitted,
}

/// The source of a number: its kind, its description, and the published results it is based on.
///
/// In a profile it is a text whose first word is its kind (`"assumed: ..."`, `"derived: ..."`,
/// `"fitted: ..."`, and any other text for what is given), or a table that names results:
/// `{ fitted = ["ezns-t2-read-4k"], how = "..." }`, or `derived` instead of `fitted`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    kind: SourceKind,
    words: String,
    /// Absent where the source is written as a text.
    results: Option<Vec<String>>,
}

impl SourceKind {
    /// Its name, as in a profile.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            SourceKind::Given => "given",
            SourceKind::Assumed => "assumed",
            SourceKind::Derived => "derived",
            SourceKind::Fitted => "fitted",
        }
    }
}

impl Source {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Its description: the place, the reason, or the arithmetic.
    #[must_use]
    pub fn words(&self) -> &str {
        &self.words
    }

    /// The ids of the published results that the number was fitted to or derived from; none where
    /// it names no ids.
    #[must_use]
    pub fn results(&self) -> &[String] {
        self.results.as_deref().unwrap_or_default()
    }

    fn of_text(text: &str) -> Source {
        let kinds = [SourceKind::Assumed, SourceKind::Derived, SourceKind::Fitted];
        let of_kind = |kind: SourceKind| {
            let rest = text.strip_prefix(kind.word())?;
            let rest = rest.strip_prefix(':').or_else(|| rest.strip_prefix(' '))?;
            Some(Source { kind, words: rest.trim().to_owned(), results: None })
        };
        let given = || Source { kind: SourceKind::Given, words: text.trim().to_owned(), results: None };
        kinds.into_iter().find_map(of_kind).unwrap_or_else(given)
    }

    fn of_table(table: Table) -> Result<Source, &'static str> {
        let (kind, results) = match (table.fitted, table.derived) {
            (Some(results), None) => (SourceKind::Fitted, results),
            (None, Some(results)) => (SourceKind::Derived, results),
            _ => {
                return Err(
                    "a source is either { fitted = [...], how = \"...\" } or { derived = [...], how = \"...\" }",
                );
            }
        };
        Ok(Source { kind, words: table.how.trim().to_owned(), results: Some(results) })
    }
}

/// One line of text: kind, results, description.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let preposition = if self.kind == SourceKind::Fitted { "to" } else { "from" };
        match (self.kind, self.results()) {
            (SourceKind::Given, _) => f.write_str(&self.words),
            (kind, []) => write!(f, "{}: {}", kind.word(), self.words),
            (kind, results) => write!(f, "{} {preposition} {}: {}", kind.word(), results.join(", "), self.words),
        }
    }
}

/// A source written as a table.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(skip_serializing_if = "Option::is_none")]
    fitted: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    derived: Option<Vec<String>>,
    how: String,
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(results) = &self.results else { return serializer.collect_str(self) };
        let of_kind = |kind| (self.kind == kind).then(|| results.clone());
        let (fitted, derived) = (of_kind(SourceKind::Fitted), of_kind(SourceKind::Derived));
        Table { fitted, derived, how: self.words.clone() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Source, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

struct SourceVisitor;

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = Source;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a source: a text such as \"Table 2 of ...\" or \"assumed: ...\", or { fitted = [...], how = \"...\" }",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Source, E> {
        with_words(Source::of_text(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Source, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        Source::of_table(table).map_err(Error::custom).and_then(with_words)
    }
}

fn with_words<E: Error>(source: Source) -> Result<Source, E> {
    match source.words.is_empty() {
        false => Ok(source),
        true => Err(E::custom("a source must say where the number comes from, and not only its kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, Serialize)]
    struct Holder {
        x: Source,
    }

    fn read(source: &str) -> Source {
        toml::from_str::<Holder>(&format!("x = {source}")).unwrap().x
    }

    #[test]
    fn the_first_word_of_a_text_is_its_kind_and_any_other_text_is_given() {
        for (text, kind, words) in [
            ("Table 2", SourceKind::Given, "Table 2"),
            ("assumed: as write", SourceKind::Assumed, "as write"),
            ("derived: 1 s / 186,000", SourceKind::Derived, "1 s / 186,000"),
            ("fitted: Figure 4", SourceKind::Fitted, "Figure 4"),
            ("fitted to Figure 4", SourceKind::Fitted, "to Figure 4"),
            ("fittings, data sheet", SourceKind::Given, "fittings, data sheet"),
        ] {
            let source = read(&format!("\"{text}\""));
            assert_eq!((source.kind(), source.words(), source.results().len()), (kind, words, 0), "{text}");
        }
    }

    #[test]
    fn a_table_names_the_results_that_the_number_rests_on() {
        let fitted = read("{ fitted = [\"a-b-c\", \"a-b-d\"], how = \"the slope\" }");
        assert_eq!((fitted.kind(), fitted.results().len()), (SourceKind::Fitted, 2));
        assert_eq!(fitted.to_string(), "fitted to a-b-c, a-b-d: the slope");
        let derived = read("{ derived = [\"a-b-c\"], how = \"1 s / 3\" }");
        assert_eq!(derived.to_string(), "derived from a-b-c: 1 s / 3");
        let elsewhere = read("{ derived = [], how = \"the data sheet's rate\" }");
        assert_eq!(elsewhere.to_string(), "derived: the data sheet's rate");
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for source in
            ["\"Table 2\"", "\"assumed: x\"", "{ fitted = [\"a-b-c\"], how = \"x\" }", "{ derived = [], how = \"x\" }"]
        {
            let source = read(source);
            let text = toml::to_string(&Holder { x: source.clone() }).unwrap();
            assert_eq!(toml::from_str::<Holder>(&text).unwrap().x, source, "{text}");
        }
    }

    #[test]
    fn a_source_of_two_kinds_or_of_none_or_without_words_is_refused() {
        for (source, expected) in [
            ("{ how = \"x\" }", "a source is either"),
            ("{ fitted = [], derived = [], how = \"x\" }", "a source is either"),
            ("{ fitted = [\"a-b-c\"] }", "missing field `how`"),
            ("{ fitted = [], how = \"\" }", "a source must say where"),
            ("\"assumed: \"", "a source must say where"),
            ("\"\"", "a source must say where"),
            ("3", "expected a source"),
        ] {
            let error = toml::from_str::<Holder>(&format!("x = {source}")).expect_err(source).to_string();
            assert!(error.contains(expected), "{source}: {error}");
        }
    }
}
