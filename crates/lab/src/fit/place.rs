//! Positions in a text: spans of keys by path, and paths by span.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The places of the name and of the value at the end of a path; items of lists have a number for a
/// name, and their value's place for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

/// A value that is neither a table nor a list of tables.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// Its path, dotted.
    pub(super) key: String,
    /// The text of a string; other values as written.
    pub(super) text: String,
    pub(super) is_float: bool,
    pub(super) is_text: bool,
    pub(super) value: Range<usize>,
}

/// The position of a path, if it exists. A text that is not valid TOML has no positions.
pub(super) fn find<S: AsRef<str>>(text: &str, path: &[S]) -> Option<Place> {
    let root = DeTable::parse(text).ok()?;
    let mut found = None;
    walk(root.get_ref(), &mut |at, place, _| {
        if found.is_none() && at.iter().map(String::as_str).eq(path.iter().map(AsRef::as_ref)) {
            found = Some(place);
        }
    });
    found
}

/// The path whose name or value covers exactly these bytes, the innermost; and whether it is the
/// name.
pub(super) fn path_at(text: &str, span: &Range<usize>) -> Option<(Vec<String>, bool)> {
    let root = DeTable::parse(text).ok()?;
    let mut found = None;
    walk(root.get_ref(), &mut |at, place, _| {
        if place.value == *span || place.name == *span {
            found = Some((at.to_vec(), place.value != *span));
        }
    });
    found
}

/// The places of the values right below a table at the top.
pub(super) fn below(text: &str, table: &str) -> Vec<Range<usize>> {
    let Ok(root) = DeTable::parse(text) else { return Vec::new() };
    let mut places = Vec::new();
    walk(root.get_ref(), &mut |at, place, _| {
        if at.len() == 2 && at[0] == table {
            places.push(place.value);
        }
    });
    places
}

/// All values of a text that are neither tables nor lists of tables.
pub(super) fn leaves(text: &str) -> Vec<Leaf> {
    let Ok(root) = DeTable::parse(text) else { return Vec::new() };
    let mut leaves = Vec::new();
    walk(root.get_ref(), &mut |at, place, value| {
        let written = match value {
            DeValue::Table(_) => return,
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => return,
            DeValue::String(text) => text.to_string(),
            _ => text[place.value.clone()].to_owned(),
        };
        leaves.push(Leaf {
            key: at.join("."),
            text: written,
            is_float: matches!(value, DeValue::Float(_)),
            is_text: matches!(value, DeValue::String(_)),
            value: place.value,
        });
    });
    leaves
}

type Visit<'a> = dyn FnMut(&[String], Place, &DeValue<'_>) + 'a;

fn walk(table: &DeTable<'_>, visit: &mut Visit<'_>) {
    walk_table(table, &mut Vec::new(), visit);
}

fn walk_table(table: &DeTable<'_>, path: &mut Vec<String>, visit: &mut Visit<'_>) {
    for (name, value) in table {
        path.push(name.get_ref().to_string());
        walk_value(name.span(), value, path, visit);
        path.pop();
    }
}

fn walk_value(name: Range<usize>, value: &Spanned<DeValue<'_>>, path: &mut Vec<String>, visit: &mut Visit<'_>) {
    visit(path, Place { name, value: value.span() }, value.get_ref());
    match value.get_ref() {
        DeValue::Table(inner) => walk_table(inner, path, visit),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                walk_value(item.span(), item, path, visit);
                path.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[flash]\nread = [{ time = { base = \"1 us\" } }]\nchance = 0.5\n[[job]]\nname = \"a\"\n";

    #[test]
    fn a_path_is_found_and_its_span_leads_back_to_it() {
        let place = find(TEXT, &["flash", "read", "0", "time", "base"]).unwrap();
        assert_eq!((&TEXT[place.name], &TEXT[place.value.clone()]), ("base", "\"1 us\""));
        let (path, is_name) = path_at(TEXT, &place.value).unwrap();
        assert_eq!((path.join("."), is_name), ("flash.read.0.time.base".to_owned(), false));
        assert_eq!(find(TEXT, &["flash", "write"]), None);
    }

    #[test]
    fn leaves_are_all_values_that_hold_no_tables() {
        let keys: Vec<String> = leaves(TEXT).into_iter().map(|leaf| leaf.key).collect();
        assert_eq!(keys, ["flash.chance", "flash.read.0.time.base", "job.0.name"]);
    }
}
