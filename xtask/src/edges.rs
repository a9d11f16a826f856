//! The lines that an edit of each crate rebuilds: its own, and those of all dependent crates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::layout::rust_files;
use crate::levels;

/// A crate and its dependents.
#[derive(Debug, PartialEq, Eq)]
struct Edited {
    name: String,
    /// Lines of its `src`.
    lines: usize,
    /// Crates that are rebuilt, including itself.
    crates: usize,
    /// Their lines.
    rebuilt_lines: usize,
}

/// A table of all crates, sorted by rebuilt lines.
///
/// # Errors
/// If cargo cannot read the workspace.
pub(crate) fn table(root: &Path) -> Result<String, String> {
    let metadata = levels::metadata(root)?;
    let edited = edited(&metadata, &|manifest| {
        let folder = Path::new(manifest).with_file_name("src");
        let texts = rust_files(&folder).into_iter().map(|file| std::fs::read_to_string(file).unwrap_or_default());
        texts.map(|text| text.lines().count()).sum()
    });
    let all: usize = edited.iter().map(|one| one.lines).sum();
    let mut table =
        format!("{:<20} {:>7} {:>7} {:>14} {:>8}\n", "crate", "lines", "crates", "lines rebuilt", "percent");
    for Edited { name, lines, crates, rebuilt_lines } in edited {
        let percent = 100.0 * rebuilt_lines as f64 / all.max(1) as f64;
        table += &format!("{name:<20} {lines:>7} {crates:>7} {rebuilt_lines:>14} {percent:>7.1}%\n");
    }
    Ok(format!("{table}{:<20} {all:>7}\n", "all"))
}

/// Without dev-dependencies: dependent crates do not link them.
fn edited(metadata: &Value, lines_of: &dyn Fn(&str) -> usize) -> Vec<Edited> {
    let packages: Vec<&Value> = metadata["packages"].as_array().into_iter().flatten().collect();
    let name_of = |package: &Value| package["name"].as_str().unwrap_or_default().to_owned();
    let lines: BTreeMap<String, usize> = packages
        .iter()
        .map(|package| (name_of(package), lines_of(package["manifest_path"].as_str().unwrap_or_default())))
        .collect();
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &packages {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["kind"].as_str() != Some("dev") {
                users.entry(name_of(dependency)).or_default().push(name_of(package));
            }
        }
    }
    let mut edited: Vec<Edited> = lines
        .iter()
        .map(|(name, own)| {
            let above = with_all_above(name, &users);
            let rebuilt_lines = above.iter().map(|name| lines.get(*name).copied().unwrap_or(0)).sum();
            Edited { name: name.clone(), lines: *own, crates: above.len(), rebuilt_lines }
        })
        .collect();
    edited.sort_by_key(|one| std::cmp::Reverse(one.rebuilt_lines));
    edited
}

fn with_all_above<'a>(name: &'a str, users: &'a BTreeMap<String, Vec<String>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::from([name]);
    let mut todo = vec![name];
    while let Some(name) = todo.pop() {
        for user in users.get(name).into_iter().flatten() {
            if found.insert(user) {
                todo.push(user);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_rebuilds_itself_and_all_that_link_it_once() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "low", "manifest_path": "1", "dependencies": [] },
            { "name": "left", "manifest_path": "10", "dependencies": [{ "name": "low", "kind": null }] },
            { "name": "right", "manifest_path": "100", "dependencies": [{ "name": "low", "kind": "build" }] },
            { "name": "top", "manifest_path": "1000", "dependencies": [
                { "name": "left", "kind": null }, { "name": "right", "kind": null }, { "name": "serde", "kind": null },
            ] },
            { "name": "tested", "manifest_path": "10000", "dependencies": [{ "name": "low", "kind": "dev" }] },
        ] });
        let edited = edited(&metadata, &|path| path.parse().unwrap());
        let found: Vec<(&str, usize, usize)> =
            edited.iter().map(|one| (one.name.as_str(), one.crates, one.rebuilt_lines)).collect();
        let expected =
            [("tested", 1, 10_000), ("low", 4, 1_111), ("right", 2, 1_100), ("left", 2, 1_010), ("top", 1, 1_000)];
        assert_eq!(found, expected);
    }
}
