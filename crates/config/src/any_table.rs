//! [`AnyTable`]: a table whose keys depend on the value of one of them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{self, DeserializeOwned, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Encloses the span of an error in a message of serde, see [`spanned`].
const SPAN_MARK: char = '\u{1e}';

/// A table as it is in the file, for a `Deserialize` implementation that first reads one key, such
/// as `kind`, and then the others as the type that belongs to its value. Serde's own
/// `#[serde(tag = "kind")]` loses the positions of values, and so those of errors.
///
/// ```
/// use serde::{Deserialize, Deserializer};
/// use zonda_config::{AnyTable, Spanned, TimeSpan, parse};
///
/// enum Timer {
///     Every(Every),
///     Never,
/// }
///
/// #[derive(Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Every {
///     interval: Spanned<TimeSpan>,
/// }
///
/// #[derive(Deserialize)]
/// #[serde(rename_all = "lowercase")]
/// enum Kind {
///     Every,
///     Never,
/// }
///
/// impl<'de> Deserialize<'de> for Timer {
///     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timer, D::Error> {
///         let mut table = AnyTable::deserialize(deserializer)?;
///         match table.take("kind")? {
///             Kind::Every => table.parse().map(Timer::Every),
///             Kind::Never => Ok(Timer::Never),
///         }
///     }
/// }
///
/// let error = parse::<Timer>("kind = \"every\"\nintervall = \"1 s\"\n").err().expect("a key is mistyped");
/// assert_eq!(error.message, "unknown key \"intervall\"");
/// assert_eq!(error.span, Some(15..24));
/// assert!(matches!(parse("kind = \"every\"\ninterval = \"1 s\""), Ok(Timer::Every(_))));
/// assert!(matches!(parse("kind = \"never\""), Ok(Timer::Never)));
/// ```
#[derive(Clone, Debug)]
pub struct AnyTable(Vec<(Spanned<String>, Spanned<Tree>)>);

/// A value with the positions of its parts.
#[derive(Clone, Debug)]
enum Tree {
    Text(String),
    /// Any other value without parts, in the notation of TOML.
    Literal(String),
    List(Vec<Spanned<Tree>>),
    Table(AnyTable),
}

impl AnyTable {
    /// Removes a required key, and returns its value.
    ///
    /// # Errors
    /// If the key is missing, or its value is not valid for `T`.
    pub fn take<T: DeserializeOwned, E: de::Error>(&mut self, key: &'static str) -> Result<T, E> {
        let place = self.0.iter().position(|(name, _)| name.get_ref() == key);
        let place = place.ok_or_else(|| E::missing_field(key))?;
        read(&self.0.remove(place).1)
    }

    /// Reads all remaining keys.
    ///
    /// # Errors
    /// If they are not valid for `T`, with the position in the file.
    pub fn parse<T: DeserializeOwned, E: de::Error>(&self) -> Result<T, E> {
        T::deserialize(Spanned::new(0..0, DeValue::Table(self.values())).into_deserializer())
            .map_err(|error| into_serde(&error))
    }

    fn values(&self) -> DeTable<'_> {
        let entry = |(key, value): &'_ (Spanned<String>, Spanned<Tree>)| {
            (Spanned::new(key.span(), Cow::Owned(key.get_ref().clone())), value.span())
        };
        let keys = self.0.iter().map(entry);
        keys.zip(&self.0).map(|((key, span), (_, value))| (key, Spanned::new(span, value.get_ref().value()))).collect()
    }
}

impl Tree {
    fn value(&self) -> DeValue<'_> {
        match self {
            Tree::Text(text) => DeValue::String(Cow::Borrowed(text)),
            Tree::Literal(text) => DeValue::parse(text).expect("the value was read from TOML").into_inner(),
            Tree::List(items) => {
                let items = items.iter().map(|item| Spanned::new(item.span(), item.get_ref().value()));
                DeValue::Array(items.collect::<DeArray<'_>>())
            }
            Tree::Table(table) => DeValue::Table(table.values()),
        }
    }
}

fn read<T: DeserializeOwned, E: de::Error>(tree: &Spanned<Tree>) -> Result<T, E> {
    T::deserialize(Spanned::new(tree.span(), tree.get_ref().value()).into_deserializer())
        .map_err(|error| into_serde(&error))
}

/// The error of a part as an error of the whole, with the span in its message.
fn into_serde<E: de::Error>(error: &toml::de::Error) -> E {
    // A message with a span is about a part of a part.
    let span = error.span().filter(|span| !span.is_empty() && !error.message().starts_with(SPAN_MARK));
    match span {
        Some(Range { start, end }) => {
            E::custom(format_args!("{SPAN_MARK}{start}{SPAN_MARK}{end}{SPAN_MARK}{}", error.message()))
        }
        None => E::custom(error.message()),
    }
}

/// Splits a message into the span that it encloses, if any, and the rest.
pub(crate) fn spanned(message: &str) -> (Option<Range<usize>>, &str) {
    let parts = || {
        let (start, rest) = message.strip_prefix(SPAN_MARK)?.split_once(SPAN_MARK)?;
        let (end, rest) = rest.split_once(SPAN_MARK)?;
        Some((start.parse().ok()?..end.parse().ok()?, rest))
    };
    parts().map_or((None, message), |(span, rest)| (Some(span), rest))
}

impl<'de> Deserialize<'de> for AnyTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyTable, D::Error> {
        deserializer.deserialize_map(TableVisitor)
    }
}

struct TableVisitor;

impl<'de> Visitor<'de> for TableVisitor {
    type Value = AnyTable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyTable, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(AnyTable(entries))
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Literal(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Literal(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Literal(value.to_string()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Literal(value.to_string()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Tree, E> {
        Ok(Tree::Literal(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Tree, E> {
        // With a decimal point or an exponent, which the notation of Rust omits.
        Ok(Tree::Literal(toml::Value::Float(value).to_string()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tree, A::Error> {
        TableVisitor.visit_map(map).map(Tree::Table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigError, TimeSpan, parse};

    #[derive(Debug, Deserialize)]
    struct File {
        #[serde(default)]
        step: Vec<Spanned<Step>>,
    }

    #[derive(Debug)]
    enum Step {
        Wait(Wait),
        Count(Count),
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wait {
        time: Spanned<TimeSpan>,
        factor: Option<f64>,
        shape: Option<Shape>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        wide: bool,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Count {
        numbers: Vec<Spanned<u8>>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Wait,
        Count,
    }

    impl<'de> Deserialize<'de> for Step {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Step, D::Error> {
            let mut table = AnyTable::deserialize(deserializer)?;
            match table.take("kind")? {
                Kind::Wait => table.parse().map(Step::Wait),
                Kind::Count => table.parse().map(Step::Count),
            }
        }
    }

    fn steps(lines: &str) -> (String, Result<File, ConfigError>) {
        let text = format!("[[step]]\n{lines}\n");
        let file = parse(&text);
        (text, file)
    }

    #[test]
    fn values_have_the_positions_that_they_have_in_the_file() {
        let (text, file) = steps(
            "time = \"1 ms\"\nkind = \"wait\"\nfactor = 2.0\nshape.wide = true\n[[step]]\nkind = \"count\"\nnumbers = [3, 70]",
        );
        let file = file.expect("the file is valid");
        let [wait, count] = &file.step[..] else { panic!("two steps: {file:?}") };
        let Step::Wait(wait) = wait.get_ref() else { panic!("{wait:?}") };
        assert_eq!((&text[wait.time.span()], wait.factor), ("\"1 ms\"", Some(2.0)));
        assert!(wait.shape.as_ref().is_some_and(|shape| shape.wide));
        let Step::Count(count) = count.get_ref() else { panic!("{count:?}") };
        let numbers: Vec<_> = count.numbers.iter().map(|number| (*number.get_ref(), &text[number.span()])).collect();
        assert_eq!(numbers, [(3, "3"), (70, "70")]);
    }

    #[test]
    fn errors_are_those_of_an_ordinary_table() {
        for (lines, message, place) in [
            ("kind = \"wiat\"", "unknown value \"wiat\" for \"kind\"", "\"wiat\""),
            ("time = 3", "missing key \"kind\" in [[step]] number 1", "[[step]]"),
            ("kind = \"wait\"", "missing key \"time\" in [[step]] number 1", "[[step]]"),
            ("kind = \"wait\"\ntimes = 3", "unknown key \"times\"", "times"),
            ("kind = \"wait\"\ntime = 3", "\"3\" is not a time", "3"),
            ("kind = \"wait\"\ntime = 0\nfactor = \"x\"", "\"factor\" must be a number, not the text \"x\"", "\"x\""),
            ("kind = \"wait\"\ntime = 0\nshape = { wide = 1 }", "\"wide\" must be true or false, not 1", "1"),
            ("kind = \"count\"\nnumbers = [1, true]", "item 2 of \"numbers\" must be a whole number, not true", "true"),
            (
                "kind = \"count\"\nnumbers = [1, 300]",
                "item 2 of \"numbers\" must be a whole number from 0 to 255, not 300",
                "300",
            ),
        ] {
            let (text, file) = steps(lines);
            let error = file.expect_err("the step is invalid");
            assert_eq!(error.message, message);
            assert_eq!(error.span.map(|span| text[span].to_owned()).as_deref(), Some(place), "{message}");
        }
    }
}
