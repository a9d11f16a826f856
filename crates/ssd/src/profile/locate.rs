//! Where a dotted key stands in a profile's text.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// The place of a key's value; of the nearest table around it that is there, if the key itself is not.
pub(super) fn locate(text: &str, key: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let mut table: &DeTable<'_> = root.get_ref();
    let mut span = None;
    for part in key.split('.') {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref().as_ref() == part) else { break };
        match value.get_ref() {
            DeValue::Table(inner) => {
                span = Some(name.span());
                table = inner;
            }
            _ => return Some(value.span()),
        }
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[flash]\nchannels = 8\nread = [{ time = {} }]\n[firmware]\nread = { server = \"core\" }\n";

    fn found(key: &str) -> Option<&'static str> {
        locate(TEXT, key).map(|span| &TEXT[span])
    }

    #[test]
    fn a_key_is_found_by_its_value_and_a_missing_one_by_its_table() {
        assert_eq!(found("flash.channels"), Some("8"));
        assert_eq!(found("firmware.read.server"), Some("\"core\""));
        assert_eq!(found("flash.read"), Some("[{ time = {} }]"));
        assert_eq!(found("flash.erase"), Some("flash"));
        assert_eq!(found("link.read_bandwidth"), None);
    }
}
