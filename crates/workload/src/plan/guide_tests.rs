//! The examples of the guide are accepted, and it documents every key.

use super::*;
use crate::parse_jobs;

const GUIDE: &str = include_str!("../../../../docs/guide/job-files.md");

/// A drive of the size that the guide assumes.
fn drive() -> Geometry {
    Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(1 << 19),
        zone_capacity_blocks: Blocks(275_712),
        zone_count: 32,
        conventional_zone_count: 0,
        max_active_zones: Some(14),
        max_open_zones: Some(14),
        max_transfer_blocks: Blocks(256),
        max_append_blocks: Blocks(64),
        zrwa: None,
        read_across_zones: false,
        descriptor_extension_bytes: 0,
    }
}

fn examples() -> impl Iterator<Item = &'static str> {
    let blocks = GUIDE.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("a split has a first part"))
}

#[test]
fn every_example_of_the_guide_is_a_plan() {
    assert!(examples().count() > 10);
    for example in examples() {
        let (run, jobs) = parse_jobs(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        let plan = if example.contains("\nnamespace = ") {
            let namespaces = ["db", "log"].map(|name| NamedNamespace { name: name.to_owned(), geometry: drive() });
            Plan::over_namespaces(&run, &jobs, &namespaces)
        } else {
            Plan::new(&run, &jobs, &drive())
        };
        plan.unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}

#[test]
fn every_key_has_its_place_in_the_guide_and_in_an_example() {
    for table in ["[run]\n", "[[job]]\noperation = \"read\"\n"] {
        let error = parse_jobs(&format!("{table}no_such_key = 1\n")).expect_err("the key does not exist");
        let help = error.help.expect("the keys are listed");
        let (_, keys) = help.split_once("allowed here: ").expect("the keys are listed");
        for key in keys.split(", ") {
            assert!(GUIDE.contains(&format!("`{key}`")), "the guide does not document {key}");
            let shown = examples().any(|example| example.lines().any(|line| line.starts_with(&format!("{key} = "))));
            assert!(shown, "no example shows {key}");
        }
    }
}
