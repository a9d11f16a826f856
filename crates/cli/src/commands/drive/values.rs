//! The numbers of a profile as its own text has them, so that a new key needs no code here.

use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zonda_ssd::profile::Sources;

/// Tables and keys that hold no number.
const NOT_NUMBERS: [&str; 4] = ["name", "title", "description", "sources"];

/// One number, or one list of numbers.
#[derive(Debug, Serialize)]
pub(super) struct Value {
    /// The key, dotted.
    pub(super) key: String,
    /// The value, as in the file.
    pub(super) value: String,
    /// Where it comes from.
    pub(super) source: String,
    /// Whether it was chosen so that the model meets a measurement.
    pub(super) is_fitted: bool,
}

impl Value {
    /// The table at the top that the key is in.
    pub(super) fn group(&self) -> &str {
        self.key.split_once('.').map_or(&self.key, |(group, _)| group)
    }

    /// The key within its group.
    pub(super) fn name(&self) -> &str {
        self.key.split_once('.').map_or(&self.key, |(_, name)| name)
    }
}

/// All numbers, in the order of the text.
pub(super) fn of(text: &str, sources: &Sources) -> Vec<Value> {
    let table = DeTable::parse(text).expect("the text was read as a profile before");
    let mut values = Vec::new();
    collect("", table.get_ref(), &mut |key, value| {
        let source = sources.of(&key).unwrap_or_default().to_owned();
        let is_fitted = sources.is_fitted(&key);
        values.push(Value { value: written(value), source, is_fitted, key });
    });
    values
}

fn collect<'a>(path: &str, table: &'a DeTable<'a>, found: &mut impl FnMut(String, &'a DeValue<'a>)) {
    let mut entries: Vec<(&Spanned<_>, &'a Spanned<DeValue<'a>>)> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (name, value) in entries {
        let name: &str = name.get_ref();
        if path.is_empty() && NOT_NUMBERS.contains(&name) {
            continue;
        }
        let key = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value.get_ref() {
            DeValue::Table(inner) => collect(&key, inner, found),
            value => found(key, value),
        }
    }
}

/// A value in a line, or for a list of tables in a line for each.
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
                // A law in a class of sizes: its parts say enough.
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
    use zonda_ssd::profile::{Profile, builtin_names, builtin_text};

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
    fn a_list_of_laws_is_written_in_a_line_for_each() {
        let text = builtin_text("zn540").unwrap();
        let values = of(text, &Profile::parse(text).unwrap().sources);
        let read = values.iter().find(|value| value.key == "flash.read").unwrap();
        assert_eq!(
            read.value,
            "up_to 4 KiB, base 50.4 us, extra 12.3 us, extra_chance 0.28\nbase 53 us, extra 12.3 us, extra_chance 0.28"
        );
        assert!(read.is_fitted);
    }
}
