//! [`one_word`]: a value that is one of a few words. [`one_or_several`]: text, or a list of it.

use std::fmt;
use std::fmt::Write as _;

use serde::de::{self, Deserializer, Visitor};

/// Deserializes one of a few words, for an enum whose value users might write as a table. Serde's
/// own enums accept a table with one key, and describe another one in terms of its elements; this
/// refuses every value that is not text, and names the words.
///
/// # Errors
/// If the value is not one of the words.
pub fn one_word<'de, T: Copy, D: Deserializer<'de>>(deserializer: D, words: &[(&str, T)]) -> Result<T, D::Error> {
    deserializer.deserialize_any(OneOf(words))
}

struct OneOf<'a, T>(&'a [(&'a str, T)]);

impl<T: Copy> Visitor<'_> for OneOf<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (word, _)) in self.0.iter().enumerate() {
            let separator = match at {
                0 => "",
                _ if at + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{separator}\"{word}\"")?;
        }
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        if let Some((_, value)) = self.0.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        // The wording of serde, which `phrases` rewords together with that of its own enums.
        let mut message = format!("unknown variant `{text}`, expected ");
        for (word, _) in self.0 {
            write!(message, "`{word}`, ").expect("writing to a string succeeds");
        }
        Err(E::custom(message.trim_end_matches(", ")))
    }
}

/// Deserializes text, or a list of it. An untagged enum would name itself to users who write
/// something else. `what` says what one of them is, as in `an address in quotes`.
///
/// # Errors
/// If the value is neither.
pub fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D, what: &str) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_any(OneOrSeveral(what))
}

struct OneOrSeveral<'a>(&'a str);

impl<'de> Visitor<'de> for OneOrSeveral<'_> {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or a list of these", self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
        Ok(vec![text.to_owned()])
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Vec<String>, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element()? {
            texts.push(text);
        }
        Ok(texts)
    }
}
