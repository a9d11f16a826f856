//! The sources of all numbers of a profile, and how many of them were fitted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;

use super::{Profile, Source, SourceKind};

/// Sources by key: `"flash.read" = "..."` applies to everything below `flash.read` without its own
/// entry. Keys go into lists by position: `"flash.read.0.time.rare"`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(from = "BTreeMap<String, Source>", into = "BTreeMap<String, Source>")]
pub struct Sources {
    entries: BTreeMap<String, Source>,
    /// The numbers in the text of the profile, in its order.
    numbers: Vec<Number>,
}

/// A value of a profile's text: a number, a quantity, a word or a switch.
#[derive(Clone, Debug)]
struct Number {
    /// Its key, dotted, down into lists.
    key: String,
    /// The key of the list that it is in, or its own.
    list: String,
    /// A time of zero: a part of a distribution without effect.
    is_nothing: bool,
}

impl From<BTreeMap<String, Source>> for Sources {
    fn from(entries: BTreeMap<String, Source>) -> Sources {
        Sources { entries, numbers: Vec::new() }
    }
}

impl From<Sources> for BTreeMap<String, Source> {
    fn from(sources: Sources) -> BTreeMap<String, Source> {
        sources.entries
    }
}

impl Sources {
    /// The source of the number at a dotted key: its own entry, or that of the nearest table or
    /// list around it.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<&Source> {
        let mut key = key;
        loop {
            if let Some(source) = self.entries.get(key) {
                return Some(source);
            }
            key = &key[..key.rfind('.')?];
        }
    }

    /// Whether something below the key has an entry of its own.
    #[must_use]
    pub fn has_entries_below(&self, key: &str) -> bool {
        self.entries.keys().any(|entry| is_below(entry, key))
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.entries.iter().map(|(key, source)| (key.as_str(), source))
    }

    /// Checks the entries against the numbers of the profile's text, both ways, and records the
    /// numbers.
    pub(super) fn bind(&mut self, text: &str) -> Result<(), ConfigError> {
        let table: toml::Table = zonda_config::parse(text)?;
        let mut numbers = Vec::new();
        for (name, value) in &table {
            if !["name", "title", "description", "sources"].contains(&name.as_str()) {
                collect_numbers(name, None, value, &mut numbers);
            }
        }
        if let Some(number) = numbers.iter().find(|number| self.of(&number.key).is_none()) {
            let key = if self.has_entries_below(&number.list) { &number.key } else { &number.list };
            return Err(ConfigError { span: super::locate::locate(text, key), ..without_source(key) });
        }
        let covers = |entry: &str| numbers.iter().any(|number| number.key == entry || is_below(&number.key, entry));
        if let Some(entry) = self.entries.keys().find(|entry| !covers(entry)) {
            return Err(without_number(entry));
        }
        self.numbers = numbers;
        Ok(())
    }
}

impl Profile {
    /// The dotted keys of the numbers that were fitted, in the order of the tables' names. Each
    /// scalar of a distribution or a list counts, and so do words and switches; a time of zero does
    /// not. Of the text of the profile: later changes are not counted.
    #[must_use]
    pub fn fitted_numbers(&self) -> Vec<String> {
        let is_fitted = |key: &str| self.sources.of(key).is_some_and(|source| source.kind() == SourceKind::Fitted);
        let numbers = self.sources.numbers.iter();
        numbers.filter(|number| !number.is_nothing && is_fitted(&number.key)).map(|number| number.key.clone()).collect()
    }

    /// The ids of the published results that any number was fitted to or derived from.
    #[must_use]
    pub fn results_used(&self) -> BTreeSet<&str> {
        let sources = self.sources.numbers.iter().filter_map(|number| self.sources.of(&number.key));
        sources.flat_map(|source| source.results()).map(String::as_str).collect()
    }
}

fn is_below(key: &str, above: &str) -> bool {
    key.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'))
}

fn without_source(key: &str) -> ConfigError {
    ConfigError::new(format!("missing source of \"{key}\" in [sources]"))
        .help(format!("add a line such as \"{key}\" = \"Table 2 of ...\" or \"{key}\" = \"assumed: ...\""))
}

fn without_number(key: &str) -> ConfigError {
    ConfigError::new(format!("[sources] has an entry \"{key}\", which is not a key of the profile"))
        .help("remove the line, or correct the key")
}

/// All values that are neither tables nor lists of tables. `list` is the list that the path is in.
fn collect_numbers(path: &str, list: Option<&str>, value: &toml::Value, numbers: &mut Vec<Number>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                collect_numbers(&format!("{path}.{name}"), list, value, numbers);
            }
        }
        toml::Value::Array(items) if !items.is_empty() && items.iter().all(toml::Value::is_table) => {
            for (index, item) in items.iter().enumerate() {
                collect_numbers(&format!("{path}.{index}"), list.or(Some(path)), item, numbers);
            }
        }
        value => {
            let is_nothing = value
                .as_str()
                .and_then(|text| text.split_once(' '))
                .is_some_and(|(number, _)| number.parse::<f64>().is_ok_and(|number| number == 0.0));
            numbers.push(Number { key: path.to_owned(), list: list.unwrap_or(path).to_owned(), is_nothing });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiles::{builtin_names, builtin_text};

    /// A model with a free number for each result proves nothing: it can match any of them. With
    /// six at most, nearly all of a drive's published results are matched or missed by numbers that
    /// were not chosen for them.
    const FITTED_NUMBERS_MAX: usize = 6;

    fn builtin(name: &str) -> Profile {
        Profile::parse(builtin_text(name).unwrap()).unwrap()
    }

    /// `tiny` with these lines instead of the source of its flash.
    fn tiny_with(lines: &str) -> Result<Profile, ConfigError> {
        let line = "flash = \"assumed: ordinary TLC flash, rounded\"\n";
        let text = builtin_text("tiny").unwrap();
        assert!(text.contains(line));
        Profile::parse(&text.replace(line, lines))
    }

    #[test]
    fn no_built_in_drive_has_more_than_a_handful_of_fitted_numbers() {
        for name in builtin_names() {
            let fitted = builtin(name).fitted_numbers();
            assert!(fitted.len() <= FITTED_NUMBERS_MAX, "{name}: {fitted:?}");
        }
    }

    #[test]
    fn results_are_named_by_paper_place_and_what() {
        let is_word =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        for name in builtin_names() {
            for result in builtin(name).results_used() {
                let mut parts = result.splitn(3, '-');
                let paper = parts.next().unwrap_or_default();
                let place = parts.next().unwrap_or_default().replace('.', "");
                let what = parts.next().unwrap_or_default().replace('-', "");
                assert!(is_word(paper) && is_word(&place) && is_word(&what), "{name}: {result}");
            }
        }
    }

    #[test]
    fn the_nearest_entry_upward_speaks_for_a_number_also_within_lists() {
        let profile = tiny_with(
            "flash = \"assumed: x\"\n\"flash.read\" = \"derived: y\"\n\"flash.read.1.time\" = \"fitted: z\"\n\
             \"flash.read.1.time.uniform\" = \"data sheet\"\n",
        );
        let sources = profile.unwrap().sources;
        let kind = |key: &str| sources.of(key).unwrap().kind();
        assert_eq!(kind("flash.channels"), SourceKind::Assumed);
        assert_eq!(kind("flash.read.0.time.base"), SourceKind::Derived);
        assert_eq!(kind("flash.read.1.up_to"), SourceKind::Derived);
        assert_eq!(kind("flash.read.1.time.base"), SourceKind::Fitted);
        assert_eq!(kind("flash.read.1.time.uniform"), SourceKind::Given);
        assert!(sources.has_entries_below("flash.read") && !sources.has_entries_below("flash.program"));
    }

    #[test]
    fn every_scalar_of_a_fitted_distribution_counts_but_not_a_time_of_zero() {
        let profile = tiny_with("flash = \"assumed: x\"\n\"flash.read\" = { fitted = [\"a-b-c\"], how = \"y\" }\n");
        let expected = ["0.time.base", "0.time.uniform", "0.up_to", "1.time.base", "1.time.uniform"]
            .map(|key| format!("flash.read.{key}"));
        let mut fitted = profile.unwrap().fitted_numbers();
        fitted.sort_unstable();
        assert_eq!(fitted, expected);

        let text = builtin_text("tiny").unwrap().replace("firmware = \"assumed:", "firmware = \"fitted:");
        let text =
            text.replace("serial = [{ time = { base = \"2 us\" } }]", "serial = [{ time = { base = \"0 us\" } }]");
        let fitted = Profile::parse(&text).unwrap().fitted_numbers();
        assert!(fitted.contains(&"firmware.write.parallel.0.time.base".to_owned()), "{fitted:?}");
        assert!(fitted.contains(&"firmware.write.server".to_owned()), "{fitted:?}");
        assert!(!fitted.contains(&"firmware.write.serial.0.time.base".to_owned()), "{fitted:?}");
    }

    #[test]
    fn the_results_behind_fitted_and_derived_numbers_are_collected() {
        let profile = tiny_with(
            "flash = { derived = [\"a-b-c\", \"a-b-d\"], how = \"x\" }\n\"flash.read\" = { fitted = [\"a-b-c\"], how = \"y\" }\n\
             \"flash.erase\" = \"fitted: no id\"\n",
        );
        assert_eq!(profile.unwrap().results_used().into_iter().collect::<Vec<_>>(), ["a-b-c", "a-b-d"]);
    }

    #[test]
    fn a_list_without_a_source_is_named_whole_unless_its_parts_have_sources() {
        let rest = [
            "channels",
            "dies_per_channel",
            "read_unit",
            "program_unit",
            "erase_unit",
            "program",
            "erase",
            "suspend_slice",
        ];
        let rest: String = rest.iter().map(|key| format!("\"flash.{key}\" = \"x\"\n")).collect();
        let error = tiny_with(&rest).expect_err("reads have no source");
        assert_eq!(error.message, "missing source of \"flash.read\" in [sources]");
        let error = tiny_with(&format!("{rest}\"flash.read.0\" = \"x\"\n")).expect_err("large reads have no source");
        assert_eq!(error.message, "missing source of \"flash.read.1.time.base\" in [sources]");
        let error = tiny_with(&format!("{rest}\"flash.read\" = \"x\"\n\"flash.read.2\" = \"x\"\n"))
            .expect_err("no such distribution");
        assert_eq!(error.message, "[sources] has an entry \"flash.read.2\", which is not a key of the profile");
    }
}
