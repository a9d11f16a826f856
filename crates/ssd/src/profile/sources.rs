//! Where each number of a profile comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;

/// Sources by key: `"flash.read" = "..."` speaks for everything below `flash.read` that has no entry of its own.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Sources(BTreeMap<String, String>);

impl Sources {
    /// The source of the number at a dotted key: its own entry, or that of the nearest table around it.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<&str> {
        let mut key = key;
        loop {
            if let Some(source) = self.0.get(key) {
                return Some(source);
            }
            key = &key[..key.rfind('.')?];
        }
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, source)| (key.as_str(), source.as_str()))
    }

    /// Whether a number was fitted by hand: its source says so with its first word, `fitted`.
    #[must_use]
    pub fn is_fitted(&self, key: &str) -> bool {
        self.of(key).is_some_and(|source| source.starts_with("fitted"))
    }

    /// Holds the entries against the numbers of the profile's text, both ways.
    pub(crate) fn check(&self, text: &str) -> Result<(), ConfigError> {
        let table: toml::Table = zonda_config::parse(text)?;
        let mut keys = Vec::new();
        for (name, value) in &table {
            if !["name", "title", "description", "sources"].contains(&name.as_str()) {
                collect_keys(name, value, &mut keys);
            }
        }
        let missing = keys.iter().find(|key| self.of(key).is_none());
        if let Some(key) = missing {
            let error = without_source(key);
            return Err(ConfigError { span: super::locate::locate(text, key), ..error });
        }
        let covers = |entry: &str, key: &str| key == entry || key.starts_with(&format!("{entry}."));
        let unused = self.0.keys().find(|entry| !keys.iter().any(|key| covers(entry, key)));
        match unused {
            Some(entry) => Err(without_number(entry)),
            None => Ok(()),
        }
    }
}

fn without_source(key: &str) -> ConfigError {
    ConfigError::new(format!("[sources] does not say where \"{key}\" comes from"))
        .help(format!("add a line such as \"{key}\" = \"Table 2 of ...\", \"fitted to ...\" or \"assumed: ...\""))
}

fn without_number(key: &str) -> ConfigError {
    ConfigError::new(format!("[sources] speaks of \"{key}\", which the profile does not have"))
        .help("remove the line, or correct its key")
}

/// Dotted keys of all values that are not tables. A list of laws by size counts as one value.
fn collect_keys(path: &str, value: &toml::Value, keys: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                collect_keys(&format!("{path}.{name}"), value, keys);
            }
        }
        _ => keys.push(path.to_owned()),
    }
}
