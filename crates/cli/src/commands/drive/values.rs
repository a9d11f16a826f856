//! The values of a profile, collected from its text, so that new keys need no code here.

use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zonda_ssd::profile::{SourceKind, Sources};

/// Tables and keys that hold no values with a source.
const NOT_NUMBERS: [&str; 4] = ["name", "title", "description", "sources"];

/// One value, or one list of values.
#[derive(Debug, Serialize)]
pub(super) struct Value {
    /// The dotted key.
    pub(super) key: String,
    /// The value, as in the file.
    pub(super) value: String,
    /// The source, in a line.
    pub(super) source: String,
    /// The kind of source: given, assumed, derived or fitted.
    pub(super) source_kind: SourceKind,
    /// Ids of the published results that the value was fitted to or derived from.
    pub(super) results: Vec<String>,
    /// Whether the value was fitted to a result.
    pub(super) is_fitted: bool,
}

impl Value {
    /// The top-level table of the key.
    pub(super) fn group(&self) -> &str {
        self.key.split_once('.').map_or(&self.key, |(group, _)| group)
    }

    /// The key within its group.
    pub(super) fn name(&self) -> &str {
        self.key.split_once('.').map_or(&self.key, |(_, name)| name)
    }
}

/// All values, in the order of the text.
pub(super) fn of(text: &str, sources: &Sources) -> Vec<Value> {
    let table = DeTable::parse(text).expect("the text was read as a profile before");
    let mut values = Vec::new();
    collect("", table.get_ref(), sources, &mut |key, value| {
        let source = sources.of(&key).expect("every number of a profile that was read has a source");
        values.push(Value {
            value: written(value),
            source: source.to_string(),
            source_kind: source.kind(),
            results: source.results().to_vec(),
            is_fitted: source.kind() == SourceKind::Fitted,
            key,
        });
    });
    values
}

fn collect<'a>(path: &str, table: &'a DeTable<'a>, sources: &Sources, found: &mut impl FnMut(String, &'a DeValue<'a>)) {
    let mut entries: Vec<(&Spanned<_>, &'a Spanned<DeValue<'a>>)> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (name, value) in entries {
        let name: &str = name.get_ref();
        if path.is_empty() && NOT_NUMBERS.contains(&name) {
            continue;
        }
        let key = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value.get_ref() {
            DeValue::Table(inner) => collect(&key, inner, sources, found),
            // Elements with sources of their own are listed separately.
            DeValue::Array(items) if sources.has_entries_below(&key) => {
                for (index, item) in items.iter().enumerate() {
                    if let DeValue::Table(inner) = item.get_ref() {
                        collect(&format!("{key}.{index}"), inner, sources, found);
                    }
                }
            }
            value => found(key, value),
        }
    }
}

/// A value in a line; a list of tables in a line for each.
fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => items.iter().map(|item| written(item.get_ref())).collect::<Vec<_>>().join("\n"),
        DeValue::Table(table) => {
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_by_key(|(key, _)| key.span().start);
            let entries = entries.iter().map(|(key, value)| match value.get_ref() {
                // A distribution in a class of sizes: its keys are clear without its name.
                DeValue::Table(_) => written(value.get_ref()),
                value => format!("{} {}", key.get_ref(), written(value)),
            });
            entries.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiles::{builtin_names, builtin_text};
    use zonda_ssd::profile::Profile;

    #[test]
    fn every_number_of_every_built_in_profile_has_a_source() {
        for name in builtin_names() {
            let text = builtin_text(name).unwrap();
            let values = of(text, &Profile::parse(text).unwrap().sources);
            assert!(values.len() > 20, "{name}");
            assert!(values.iter().all(|value| !value.source.is_empty() && !value.value.is_empty()), "{name}");
        }
    }

    #[test]
    fn a_list_of_distributions_is_written_in_a_line_for_each() {
        let text = builtin_text("zn540").unwrap();
        let values = of(text, &Profile::parse(text).unwrap().sources);
        let read = values.iter().find(|value| value.key == "flash.read").unwrap();
        assert_eq!(
            read.value,
            "up_to 4 KiB, base 48.9 us, extra 12.3 us, extra_chance 0.344\nbase 51.7 us, extra 12.3 us, extra_chance 0.344"
        );
        assert!(!read.is_fitted && read.source.starts_with("derived: "), "{}", read.source);
    }

    #[test]
    fn elements_with_their_own_sources_are_listed_separately() {
        let text = builtin_text("zn540").unwrap();
        let values = of(text, &Profile::parse(text).unwrap().sources);
        let kinds: Vec<(&str, &str, SourceKind)> = values
            .iter()
            .filter(|value| value.key.starts_with("firmware.write.serial"))
            .map(|value| (value.name(), value.value.as_str(), value.source_kind))
            .collect();
        let expected = [
            ("write.serial.0.up_to", "4 KiB", SourceKind::Derived),
            ("write.serial.0.time.base", "380 ns", SourceKind::Derived),
            ("write.serial.0.time.exponential", "5 us", SourceKind::Fitted),
            ("write.serial.1.time.base", "4.08 us", SourceKind::Assumed),
            ("write.serial.1.time.exponential", "1.3 us", SourceKind::Fitted),
        ];
        assert_eq!(kinds, expected);
    }
}
