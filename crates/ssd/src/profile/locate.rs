//! The place of a dotted key in the text of a profile.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The place of a key's value; of the nearest table or list around it that exists, if the key does
/// not.
pub(super) fn locate(text: &str, key: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let mut parts = key.split('.');
    let (name, mut value) = root.get_ref().get_key_value(parts.next()?)?;
    let mut span = of_value(name.span(), value);
    for part in parts {
        let (found, inner) = match value.get_ref() {
            DeValue::Table(table) => match table.get_key_value(part) {
                Some((name, inner)) => (of_value(name.span(), inner), inner),
                None => break,
            },
            DeValue::Array(items) => match part.parse().ok().and_then(|index: usize| items.get(index)) {
                Some(item) => (item.span(), item),
                None => break,
            },
            _ => break,
        };
        (span, value) = (found, inner);
    }
    Some(span)
}

/// A table is shown by its name, which is shorter.
fn of_value(name: Range<usize>, value: &Spanned<DeValue<'_>>) -> Range<usize> {
    if value.get_ref().is_table() { name } else { value.span() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "[flash]\nchannels = 8\nread = [{ time = { base = \"1 us\" } }]\n[firmware]\nread = { server = \"core\" }\n";

    fn found(key: &str) -> Option<&'static str> {
        locate(TEXT, key).map(|span| &TEXT[span])
    }

    #[test]
    fn a_key_is_found_by_its_value_and_a_missing_one_by_its_table() {
        assert_eq!(found("flash.channels"), Some("8"));
        assert_eq!(found("firmware.read.server"), Some("\"core\""));
        assert_eq!(found("flash.read"), Some("[{ time = { base = \"1 us\" } }]"));
        assert_eq!(found("flash.read.0.time.base"), Some("\"1 us\""));
        assert_eq!(found("flash.read.1.time"), found("flash.read"));
        assert_eq!(found("flash.erase"), Some("flash"));
        assert_eq!(found("link.read_bandwidth"), None);
    }
}
