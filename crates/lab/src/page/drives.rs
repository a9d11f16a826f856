//! The drives: their fitted values, and the results that these were fitted to.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};
use zonda_plot::text::{counted, escape};
use zonda_ssd::profile::{Profile, Source, SourceKind};
use zonda_stack::Drive;

use super::entry::Site;
use super::experiment::drive_anchor;
use super::words;

/// The drives by name, without changes by experiments.
fn drives<'a>(site: &'a Site<'_>) -> BTreeMap<&'a str, &'a Drive> {
    let points = site.entries.iter().flat_map(|entry| &entry.experiment.points);
    let mut drives = BTreeMap::new();
    for drive in points.map(|point| point.experiment().drive()) {
        drives.entry(drive.profile().name.as_str()).or_insert(drive);
    }
    drives
}

/// The section about all drives.
pub(super) fn html(site: &Site<'_>) -> String {
    let each: String = drives(site).into_values().map(|drive| one(site, drive)).collect();
    format!(
        "<p>A drive is a profile: a file of values such as the latency of a read or the size of the write buffer, each with its \
         source. Most values are taken from a data sheet or a paper, computed from published results, or assumed. Some are free: \
         fitted by running the model until it met certain results. The tables list all fitted values, and how many results each of \
         them carries.</p>\n{each}"
    )
}

fn one(site: &Site<'_>, drive: &Drive) -> String {
    let profile = drive.profile();
    let table: Table = drive.profile_text().parse().unwrap_or_default();
    let keys = profile.fitted_numbers();
    let rows: String = keys.iter().filter_map(|key| row(site, profile, &table, key)).collect();
    let fitted = match rows.as_str() {
        "" => "<p class=\"none\">No value is fitted.</p>\n".to_owned(),
        rows => format!(
            "<table class=\"fitted\"><thead><tr><th scope=\"col\">{}</th><th scope=\"col\">Value</th>\
             <th scope=\"col\">Results</th><th scope=\"col\">Fitted to</th><th scope=\"col\">Method</th></tr></thead>\n\
             <tbody>\n{rows}</tbody></table>\n",
            counted(keys.len() as u64, "fitted value")
        ),
    };
    let used = free_values(profile);
    format!(
        "<section class=\"drive\" id=\"{}\">\n<h3>{} <code>{}</code></h3>\n<p>{}{used}</p>\n{fitted}</section>\n",
        drive_anchor(&profile.name),
        escape(&profile.title),
        escape(&profile.name),
        words::line(&profile.description),
    )
}

/// The number of free values, and of results that they carry; then those of derived values.
fn free_values(profile: &Profile) -> String {
    let fitted = profile.fitted_numbers();
    let carried: BTreeSet<&String> =
        fitted.iter().filter_map(|key| profile.sources.of(key)).flat_map(Source::results).collect();
    let used = profile.results_used();
    let derived = used.iter().filter(|id| !carried.iter().any(|fitted| fitted.as_str() == **id)).count();
    let mut text = match fitted.len() {
        0 => " It has no free (fitted) value.".to_owned(),
        count => format!(
            " It has {}, fitted to {}.",
            counted(count as u64, "free value"),
            counted(carried.len() as u64, "published result")
        ),
    };
    if derived > 0 {
        text += &format!(" Other values are derived from {} more.", counted(derived as u64, "published result"));
    }
    text
}

/// A fitted value, the results that it was fitted to, and the method.
fn row(site: &Site<'_>, profile: &Profile, table: &Table, key: &str) -> Option<String> {
    let source = profile.sources.of(key).filter(|source| source.kind() == SourceKind::Fitted)?;
    let value = value_at(table, key).map_or_else(String::new, |value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    Some(format!(
        "<tr><th scope=\"row\"><code>{}</code></th><td data-name=\"Value\">{}</td><td data-name=\"Results\">{}</td>\
         <td data-name=\"Fitted to\">{}</td>\
         <td data-name=\"Method\">{}</td></tr>\n",
        breakable(key),
        escape(&value),
        source.results().len(),
        results(site, source),
        words::line(source.words())
    ))
}

/// The results of a source, as links if they are on these pages.
fn results(site: &Site<'_>, source: &Source) -> String {
    let each = source.results().iter().map(|id| match site.result(id) {
        Some((entry, row)) => format!(
            "<li><a href=\"{}\">{}</a> <small>{}</small></li>",
            entry.result_link(row),
            escape(&words::capitalized(&row.title)),
            escape(entry.place())
        ),
        None => format!("<li><code>{}</code></li>", breakable(id)),
    });
    format!("<ul>{}</ul>", each.collect::<String>())
}

/// Allows line breaks in a long key after dots and hyphens.
fn breakable(key: &str) -> String {
    escape(key).replace('.', ".<wbr>").replace('-', "-<wbr>")
}

/// The value at a dotted key, which goes into lists by position.
fn value_at<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| match value {
        Value::Table(table) => table.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_into_tables_and_lists() {
        let table: Table = "[flash]\nread = [{ time = { base = \"1 us\" } }]\n".parse().expect("it is TOML");
        assert_eq!(value_at(&table, "flash.read.0.time.base").and_then(Value::as_str), Some("1 us"));
        assert_eq!(value_at(&table, "flash.read.1.time.base"), None);
    }
}
