//! Levels of crates: crates depend on lower levels only, and only crates of tests turn on their test
//! kits.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Every crate and its level. A crate can depend only on lower levels and on the listed crates of
/// the same level.
const LEVELS: &[(&str, u32, &[&str])] = &[
    ("zonda-zoned", 0, &[]),
    ("zonda-config", 0, &[]),
    ("zonda-profiles", 0, &[]),
    ("zonda-ssd", 1, &[]),
    ("zonda-layers", 1, &[]),
    ("zonda-sched", 1, &[]),
    ("zonda-elastic", 1, &[]),
    ("zonda-profiler", 1, &[]),
    ("zonda-files", 1, &[]),
    ("zonda-erasure", 1, &[]),
    ("zonda-raid", 1, &["zonda-erasure"]),
    ("zonda-workload", 1, &["zonda-files"]),
    ("zonda-nvme", 1, &[]),
    ("zonda-nbd", 1, &[]),
    ("zonda-chap", 1, &[]),
    ("zonda-target", 1, &["zonda-nvme", "zonda-chap"]),
    ("zonda-initiator", 1, &["zonda-nvme", "zonda-chap"]),
    ("zonda-image", 1, &[]),
    ("zonda-plot", 1, &[]),
    ("zonda-stack", 2, &[]),
    ("zonda-sim", 2, &["zonda-stack"]),
    ("zonda-lab", 2, &["zonda-stack"]),
    ("zonda-advise", 2, &["zonda-stack"]),
    ("zonda-characterise", 2, &[]),
    ("zonda-ring", 3, &[]),
    ("zonda-isal", 3, &[]),
    ("zonda-devices", 3, &["zonda-isal", "zonda-ring"]),
    ("zonda-exports", 3, &["zonda-ring", "zonda-devices"]),
    ("zonda-capi", 4, &[]),
    ("zonda-conformance", 4, &[]),
    ("zonda-fuzz-bodies", 4, &[]),
    ("zonda-full-stack", 4, &["zonda-kill"]),
    ("zonda-kill", 4, &[]),
    ("zonda-attacks", 4, &["zonda-kill"]),
    ("zonda-cli", 4, &[]),
    ("zonda-bench", 4, &[]),
    ("xtask", 4, &[]),
];

/// The feature that has the test kit and the seeded bugs of a crate.
const TESTING: &str = "testing";

/// Crates that turn it on. The program has the first of them only with its feature `simulation`.
const OF_TESTS: &[&str] = &[
    "zonda-sim",
    "zonda-conformance",
    "zonda-fuzz-bodies",
    "zonda-full-stack",
    "zonda-kill",
    "zonda-attacks",
    "zonda-bench",
];

pub(crate) fn check(root: &Path) -> Vec<String> {
    match metadata(root) {
        Ok(metadata) => findings(&metadata, LEVELS),
        Err(error) => vec![format!("levels: cannot read the workspace: {error}")],
    }
}

pub(crate) fn metadata(root: &Path) -> Result<Value, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

fn findings(metadata: &Value, levels: &[(&str, u32, &[&str])]) -> Vec<String> {
    let level_of = |name: &str| levels.iter().find(|(known, ..)| *known == name);
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, level, siblings)) = level_of(name) else {
            findings.push(format!("levels: {name} has no level: add it to xtask/src/levels.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Dev-dependencies do not affect users of the crate.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let below = dependency["name"].as_str().unwrap_or_default();
            let mut features = dependency["features"].as_array().into_iter().flatten();
            if features.any(|feature| feature == TESTING) && !OF_TESTS.contains(&name) {
                findings.push(format!("levels: {name} turns on the test kit of {below}: only crates of tests do"));
            }
            let Some((_, below_level, _)) = level_of(below) else { continue };
            if below_level >= level && !siblings.contains(&below) {
                findings.push(format!("levels: {name} (level {level}) depends on {below} (level {below_level})"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(dependency: &str, kind: Option<&str>) -> Value {
        serde_json::json!({ "packages": [
            { "name": "low", "dependencies": [{ "name": dependency, "kind": kind }] },
            { "name": "high", "dependencies": [] },
        ] })
    }

    const TWO: &[(&str, u32, &[&str])] = &[("low", 0, &[]), ("high", 1, &[])];

    #[test]
    fn an_edge_that_points_up_is_found() {
        assert_eq!(findings(&workspace("high", None), TWO), ["levels: low (level 0) depends on high (level 1)"]);
    }

    #[test]
    fn test_dependencies_and_outsiders_are_free() {
        assert!(findings(&workspace("high", Some("dev")), TWO).is_empty());
        assert!(findings(&workspace("serde", None), TWO).is_empty());
    }

    #[test]
    fn a_product_that_turns_on_a_test_kit_is_found() {
        let with_kit = |name: &str, kind: Option<&str>| {
            let dependencies = serde_json::json!([{ "name": "low", "kind": kind, "features": ["testing"] }]);
            let package = serde_json::json!({ "name": name, "dependencies": dependencies });
            let workspace = serde_json::json!({ "packages": [package] });
            findings(&workspace, &[("low", 0, &[]), ("high", 1, &[]), ("zonda-sim", 1, &[])])
        };
        assert_eq!(with_kit("high", None), ["levels: high turns on the test kit of low: only crates of tests do"]);
        assert!(with_kit("high", Some("dev")).is_empty() && with_kit("zonda-sim", None).is_empty());
    }

    #[test]
    fn a_crate_without_a_level_is_found() {
        assert_eq!(findings(&workspace("serde", None), &TWO[..1]).len(), 1);
    }
}
