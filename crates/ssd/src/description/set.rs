//! `[drive.set]`: single numbers of a profile, changed.
//!
//! The changes are made in the profile's table, the table is serialized, and the new text is parsed
//! as any profile: so a changed number is checked like a number in a file, and a new key needs no
//! code here.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::limits::KEY_NAMES_MAX;
use crate::profile::Profile;
use toml::{Table, Value};
use zonda_config::{ConfigError, Spanned, did_you_mean};

/// Where a changed number comes from.
const SOURCE: &str = "set in the job file";
/// The keys of a profile that are not numbers, and need no source.
const WORDS: [&str; 3] = ["name", "title", "description"];
/// The table of sources, which cannot be set.
const SOURCES: &str = "sources";

/// One value for one dotted key.
#[derive(Clone, Debug)]
struct Setting {
    key: String,
    value: Value,
    key_span: Range<usize>,
    value_span: Range<usize>,
}

/// The profile of `text` with these changes, and its text. `profile` is that of `text` without
/// them.
pub(super) fn apply(
    text: &str,
    profile: Profile,
    set: &BTreeMap<Spanned<String>, Spanned<Value>>,
) -> Result<(Profile, String), ConfigError> {
    let settings = flatten(set)?;
    if settings.is_empty() {
        return Ok((profile, text.to_owned()));
    }
    let base: Table = toml::from_str(text).expect("the text was parsed as a profile before");
    let known = known_keys(&base, &profile);
    for setting in &settings {
        check_key(setting, &base, &known)?;
    }
    let all: Vec<&Setting> = settings.iter().collect();
    let text = changed(&base, &all)?;
    let profile = Profile::parse(&text).map_err(|error| blame(error, &base, &settings))?;
    Ok((profile, text))
}

/// The place of the value that a key is set to, if it is.
pub(super) fn place_of(key: &str, set: &BTreeMap<Spanned<String>, Spanned<Value>>) -> Option<Range<usize>> {
    let settings = flatten(set).ok()?;
    settings.into_iter().find(|setting| setting.key == key).map(|setting| setting.value_span)
}

/// Tables set the keys they name and leave the others, whether they are written as tables or as
/// dotted keys.
fn flatten(set: &BTreeMap<Spanned<String>, Spanned<Value>>) -> Result<Vec<Setting>, ConfigError> {
    let mut settings = Vec::new();
    for (key, value) in set {
        flatten_into(key.get_ref().clone(), value.get_ref().clone(), (key.span(), value.span()), &mut settings);
    }
    if let Some(endless) = settings.iter().find(|setting| setting.key.split('.').count() > KEY_NAMES_MAX) {
        let error = endless.at_key("the key has too many names".to_owned());
        return Err(error.help("zonda drive show PROFILE lists the keys"));
    }
    settings.sort_by_key(|setting| setting.key_span.start);
    for (index, setting) in settings.iter().enumerate() {
        if settings[..index].iter().any(|earlier| earlier.key == setting.key) {
            let message = format!("\"{}\" is set twice", setting.key);
            return Err(ConfigError::new(message).within(setting.key_span.clone()).help("remove one of the two"));
        }
    }
    Ok(settings)
}

fn flatten_into(key: String, value: Value, spans: (Range<usize>, Range<usize>), settings: &mut Vec<Setting>) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                flatten_into(format!("{key}.{name}"), value, spans.clone(), settings);
            }
        }
        value => settings.push(Setting { key, value, key_span: spans.0, value_span: spans.1 }),
    }
}

impl Setting {
    fn at_key(&self, message: String) -> ConfigError {
        ConfigError::new(message).within(self.key_span.clone())
    }
}

/// The dotted keys of the numbers that a profile has, in its text or by default.
fn known_keys(base: &Table, profile: &Profile) -> Vec<String> {
    let mut keys = Vec::new();
    collect(base, "", &mut keys);
    if let Ok(table) = Table::try_from(profile) {
        collect(&table, "", &mut keys);
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn collect(table: &Table, path: &str, keys: &mut Vec<String>) {
    for (name, value) in table {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Table(_) if key == SOURCES => {}
            Value::Table(table) => collect(table, &key, keys),
            _ => keys.push(key),
        }
    }
}

/// A key may be one that the profile leaves out: then the parser of the profile decides whether it
/// exists.
fn check_key(setting: &Setting, base: &Table, known: &[String]) -> Result<(), ConfigError> {
    if known.contains(&setting.key) {
        return Ok(());
    }
    let is_unknown = setting.key.split('.').next() == Some(SOURCES)
        || zonda_config::parse::<Profile>(&changed(base, &[setting])?)
            .is_err_and(|error| error.message.starts_with("unknown key "));
    if !is_unknown {
        return Ok(());
    }
    let help = match nearest(&setting.key, known) {
        Some(nearest) => format!("did you mean \"{nearest}\"?"),
        None => "use the dotted keys of the profile, such as \"write_buffer.capacity\"".to_owned(),
    };
    let message = format!("unknown profile key \"{}\"", setting.key);
    Err(setting.at_key(message).help(format!("{help} (zonda drive show PROFILE lists them all)")))
}

/// The key that was meant: the nearest whole one, or one that ends like it.
fn nearest<'a>(key: &str, known: &'a [String]) -> Option<&'a str> {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let same_end = || known.iter().map(String::as_str).find(|candidate| last(candidate) == last(key));
    match key.contains('.') {
        true => did_you_mean(key, known).or_else(same_end),
        false => same_end().or_else(|| {
            let ends: Vec<String> = known.iter().map(|key| last(key)).collect();
            let end = did_you_mean(key, &ends)?;
            known.iter().map(String::as_str).find(|candidate| last(candidate) == end)
        }),
    }
}

/// The text of the profile with these changes.
fn changed(base: &Table, settings: &[&Setting]) -> Result<String, ConfigError> {
    let mut table = base.clone();
    for setting in settings {
        let mut place = &mut table;
        let mut walked = String::new();
        let (path, name) = setting.key.rsplit_once('.').unwrap_or(("", &setting.key));
        for step in path.split('.').filter(|step| !step.is_empty()) {
            walked = if walked.is_empty() { step.to_owned() } else { format!("{walked}.{step}") };
            let entry = place.entry(step).or_insert_with(|| Value::Table(Table::new()));
            let kind = if entry.is_array() { "a list" } else { "one value" };
            let Value::Table(inner) = entry else {
                let message = format!("\"{walked}\" is {kind}, which has no key \"{name}\"");
                return Err(setting.at_key(message).help(format!("set the whole of \"{walked}\"")));
            };
            place = inner;
        }
        place.insert(name.to_owned(), setting.value.clone());
        if !WORDS.contains(&setting.key.as_str())
            && let Some(Value::Table(sources)) = table.get_mut(SOURCES)
        {
            // Sources of parts of the old value, such as the distributions of a list, do not apply
            // to the new one.
            let below = format!("{}.", setting.key);
            sources.retain(|key, _| !key.starts_with(&below));
            sources.insert(setting.key.clone(), Value::String(SOURCE.to_owned()));
        }
    }
    Ok(toml::to_string(&table).expect("a table that was read can be written"))
}

/// Points an error about the changed profile at the change behind it: the one it names; else the
/// one without which the profile is valid; else, of the changes made one after the other, the first
/// with which this error occurs.
fn blame(error: ConfigError, base: &Table, settings: &[Setting]) -> ConfigError {
    let message_of = |settings: &[&Setting]| {
        changed(base, settings).and_then(|text| Profile::parse(&text)).err().map(|error| error.message)
    };
    let is_well_without = |index: usize| {
        let rest: Vec<&Setting> = settings.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, s)| s).collect();
        message_of(&rest).is_none()
    };
    let occurs_from = |index: usize| {
        let first: Vec<&Setting> = settings[..=index].iter().collect();
        message_of(&first).as_ref() == Some(&error.message)
    };
    let named = settings.iter().find(|setting| error.message.contains(&setting.key));
    let culprit = named
        .or_else(|| settings.iter().enumerate().find(|(index, _)| is_well_without(*index)).map(|(_, setting)| setting))
        .or_else(|| settings.iter().enumerate().find(|(index, _)| occurs_from(*index)).map(|(_, setting)| setting));
    let span = culprit.map_or(0..0, |setting| setting.value_span.clone());
    let message = match culprit {
        Some(setting) if named.is_none() => {
            format!("\"{}\" is not valid for this profile: {}", setting.key, error.message)
        }
        _ => error.message.clone(),
    };
    ConfigError { message, span: None, help: error.help }.within(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str, value: i64) -> Setting {
        Setting { key: key.to_owned(), value: Value::Integer(value), key_span: 0..1, value_span: 1..2 }
    }

    #[test]
    fn a_value_goes_to_the_table_that_its_key_names() {
        let table = |text: &str| -> Table { toml::from_str(text).expect("it is TOML") };
        let base = table("a = 1\n[b]\nc = 2\n[b.d]\ne = 3\n");
        let settings = [setting("b.d.e", 5), setting("a", 6), setting("b.x.y", 7)];
        let text = changed(&base, &settings.iter().collect::<Vec<_>>()).expect("they can be set");
        assert_eq!(table(&text), table("a = 6\n[b]\nc = 2\n[b.d]\ne = 5\n[b.x]\ny = 7\n"));
        let error = changed(&base, &[&setting("a.b", 1)]).expect_err("a number has no keys");
        assert_eq!(error.message, "\"a\" is one value, which has no key \"b\"");
    }
}
