//! The example files, and the files within the guide.

use std::fs;

use super::{json_of, output_of, root};
use zonda_exports::{ParseContext, ServerPlan};
use zonda_profiles::BUILTIN;
use zonda_stack::{Experiment, Profiles};

fn examples() -> Vec<String> {
    let entries = fs::read_dir(root().join("examples")).expect("there are examples");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("the directory can be read").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".toml") && !OTHERS.contains(&name.as_str()))
        .collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    names.into_iter().map(|name| format!("examples/{name}")).collect()
}

/// Examples that are not experiments: a server configuration, and jobs for an existing drive.
const OTHERS: [&str; 2] = ["zonda.toml", "target.toml"];

#[test]
fn the_example_of_a_server_configuration_is_valid() {
    let text = fs::read_to_string(root().join("examples/zonda.toml")).unwrap();
    let context = ParseContext {
        base: &root().join("examples"),
        builtin_profiles: BUILTIN,
        read_file: &|_| Err("files are not available".to_owned()),
        read_key: &|_| Err("files are not available".to_owned()),
    };
    let plan = ServerPlan::parse(&text, &context).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.subsystems.len(), 2);
}

#[test]
fn every_example_runs_without_an_error() {
    for example in examples() {
        let result = json_of(&["bench", &example, "--json", "--quiet"]);
        assert_eq!(result["format"], 1);
        for job in result["run"]["jobs"].as_array().unwrap() {
            assert_eq!(job["errors"].as_array().unwrap().len(), 0, "{example}: {job}");
            assert_ne!(job["kinds"].as_array().unwrap().len(), 0, "{example}: {job}");
        }
    }
}

#[test]
fn an_example_gives_the_same_bytes_twice() {
    let arguments = ["bench", "examples/interference.toml", "--json", "--quiet"];
    assert_eq!(output_of(&arguments), output_of(&arguments));
}

#[test]
fn the_examples_show_what_their_comments_state() {
    let jobs = |example: &str| json_of(&["bench", example, "--json", "--quiet"])["run"]["jobs"].clone();
    let bandwidth = |job: &serde_json::Value| job["kinds"][0]["bandwidth_bytes_per_second"].as_f64().unwrap();
    let append = jobs("examples/append.toml");
    assert!(bandwidth(&append[0]) > bandwidth(&append[1]), "an append costs more than a write");
    assert!(bandwidth(&append[2]) > 1.5 * bandwidth(&append[1]), "several appends go side by side");
    let dlwa = json_of(&["bench", "examples/conventional.toml", "--json", "--quiet"])["drive"]["dlwa"].clone();
    assert!(dlwa.as_f64().unwrap() > 1.2, "garbage is collected: {dlwa}");
}

#[test]
fn every_file_in_the_guide_to_stacks_is_valid() {
    let guide = fs::read_to_string(root().join("docs/guide/stacks.md")).unwrap();
    let blocks: Vec<&str> = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 6);
    for block in blocks {
        let experiment = Experiment::parse(block, &Profiles::without_files(BUILTIN))
            .unwrap_or_else(|error| panic!("{error}\n{block}"));
        let result = experiment.run(&mut |_| {});
        assert!(!result.run.jobs.is_empty());
    }
}
