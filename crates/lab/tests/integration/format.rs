//! Errors in the file of an experiment are reported with their position and a remedy.

use zonda_lab::{LabError, LabExperiment};

use crate::PROFILES;

const RIGHT: &str = r#"title = "Reads"

[drive]
profile = "tiny"

[run]
time = "5 ms"

[[job]]
name = "readers"
operation = "randread"

[x]
title = "queue depth"
values = [1, 2]
set = { "job.readers.queue_depth" = "{}" }

[[series]]
name = "small"
set = { "job.readers.block_size" = "4 KiB" }

[[series]]
name = "large"
set = { "job.readers.block_size" = "16 KiB" }

[[metric]]
name = "rate"
unit = "kIOPS"
of = "readers.read.iops"

[[plot]]
title = "Rate"
metrics = ["rate"]

[[published]]
metric = "rate"
series = "small"
points = [[1, 12.0]]

[[result]]
id = "mine-small"
title = "rate of one read at a time"
unit = "kIOPS"
published = 12
tolerance = 0.1
of = { metric = "rate", series = "small", at = 1 }
"#;

/// Message, what it points at, and help.
fn refusal(change: &str, to: &str) -> (String, String, String) {
    assert!(RIGHT.contains(change), "{change}");
    let text = RIGHT.replacen(change, to, 1);
    let (error, text) = match LabExperiment::parse("mine", &text, &PROFILES) {
        Ok(_) => panic!("{to} is taken"),
        Err(LabError::File(error)) => (error, text),
        Err(LabError::Point { error, .. }) => (error.error.error.clone(), error.text),
    };
    let place = error.span.map_or("nothing".to_owned(), |span| text[span].to_owned());
    (error.message, place, error.help.unwrap_or_default())
}

#[test]
fn the_file_above_is_valid() {
    let experiment = LabExperiment::parse("mine", RIGHT, &PROFILES).expect("it is");
    assert_eq!((experiment.points.len(), experiment.series.len(), experiment.seeds), (4, 2, 3));
}

#[test]
fn unknown_names_are_reported_at_their_position_with_a_suggestion() {
    for (change, to, message, place, help) in [
        (
            "metrics = [\"rate\"]",
            "metrics = [\"rat\"]",
            "unknown metric \"rat\"",
            "[\"rat\"]",
            "did you mean \"rate\"?",
        ),
        (
            "series = \"small\", at = 1",
            "series = \"smal\", at = 1",
            "unknown series \"smal\"",
            "\"smal\"",
            "did you mean \"small\"?",
        ),
        (
            "of = \"readers.read.iops\"",
            "of = \"reader.read.iops\"",
            "unknown job \"reader\"",
            "\"reader.read.iops\"",
            "did you mean \"readers\"?",
        ),
        (
            "of = \"readers.read.iops\"",
            "of = \"readers.read.iop\"",
            "unknown figure \"iop\"",
            "\"readers.read.iop\"",
            "did you mean \"iops\"?",
        ),
        (
            "\"job.readers.queue_depth\"",
            "\"job.reader.queue_depth\"",
            "unknown job \"reader\"",
            "\"job.reader.queue_depth\"",
            "did you mean \"readers\"?",
        ),
        ("unit = \"kIOPS\"\nof", "unit = \"MiB/s\"\nof", "\"MiB/s\" is not a unit of this metric", "\"MiB/s\"", "IOPS"),
        ("[[plot]]\ntitle", "[[plot]]\ntitel", "unknown key \"titel\"", "titel", "did you mean \"title\"?"),
        ("title = \"Reads\"\n", "title = \"Reads\"\npaper = \"ezn\"\n", "unknown paper \"ezn\"", "\"ezn\"", "\"ezns\""),
    ] {
        let (said, at, remedy) = refusal(change, to);
        assert_eq!((said.as_str(), at.as_str()), (message, place), "{to}");
        assert!(remedy.contains(help), "{to}: {remedy}");
    }
}

#[test]
fn an_invalid_key_is_reported_with_the_allowed_ones() {
    let (message, _, help) = refusal("\"job.readers.queue_depth\"", "\"jobs.readers.queue_depth\"");
    assert_eq!(message, "invalid key \"jobs.readers.queue_depth\"");
    assert!(help.contains("job.NAME.KEY"), "{help}");
}

#[test]
fn a_result_must_be_one_number() {
    let (message, ..) = refusal("series = \"small\", at = 1", "series = \"small\"");
    assert_eq!(message, "mine-small is a curve, not a number");
    let (message, place, help) = refusal("series = \"small\", at = 1", "series = \"small\", at = 3");
    assert_eq!((message.as_str(), place.as_str()), ("3 is not among the values of x", "3"));
    assert_eq!(help, "they are 1, 2");
    let (message, ..) = refusal("series = \"small\", at = 1", "at = 1");
    assert_eq!(message, "missing series");
}

#[test]
fn an_invalid_point_is_reported_with_its_job_file() {
    let (message, place, _) = refusal("\"16 KiB\"", "\"18 KiB\"");
    assert_eq!(message, "a request of 18 KiB is not a multiple of the block size");
    assert_eq!(place, "\"18 KiB\"");
}

#[test]
fn an_experiment_without_a_metric_or_a_drive_has_a_remedy() {
    let (message, _, help) = refusal("[drive]\nprofile = \"tiny\"\n", "");
    assert_eq!(message, "missing table [drive]");
    assert!(help.contains("profile"), "{help}");
    let error = LabExperiment::parse("mine", "", &PROFILES).expect_err("there is nothing");
    let LabError::File(error) = error else { panic!("it is about the file") };
    assert_eq!(error.message, "the file is empty");
}

#[test]
fn the_examples_of_the_guide_are_valid() {
    let guide = include_str!("../../../../docs/guide/experiments.md");
    let whole = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has an example");
    let experiment = LabExperiment::parse("guide", whole, &PROFILES);
    assert_eq!(experiment.expect("the example is right").points.len(), 8);
}

#[test]
fn a_curve_can_only_except_values_of_x() {
    let (message, place, help) = refusal("name = \"small\"\n", "name = \"small\"\nexcept = [3]\n");
    assert_eq!((message.as_str(), place.as_str()), ("not a value of x", "3"));
    assert!(help.contains('1') && help.contains('2'), "{help}");
}

#[test]
fn a_metric_of_a_part_of_a_run_needs_a_run_with_samples() {
    let of = "of = \"readers.read.iops\"\n";
    let (message, place, help) = refusal(of, "of = \"readers.*.iops\"\nduring = [\"1 ms\", \"2 ms\"]\n");
    assert_eq!(message, "\"during\" needs runs that end by themselves");
    assert!(place.contains("1 ms") && help.contains("give it to the jobs"), "{place}: {help}");
    let (message, ..) = refusal(of, "of = \"readers.*.iops\"\nduring = [\"2 ms\", \"1 ms\"]\n");
    assert_eq!(message, "the part of the run has no length");
    let (message, _, help) = refusal(of, "of = \"readers.read.iops\"\nduring = [\"1 ms\", \"2 ms\"]\n");
    assert_eq!(message, "a part of a run has no figure of this kind");
    assert!(help.contains("JOB.*.iops"), "{help}");
}

#[test]
fn a_pool_is_changed_or_left_out_by_its_keys() {
    let key = "\"job.readers.block_size\" = \"4 KiB\"";
    let (message, _, help) = refusal(key, "elastic = true");
    assert!(message.contains("can only be false") && help.contains("elastic.KEY"), "{message}: {help}");
    let (message, ..) = refusal(key, "\"elastic.width_max\" = 8");
    assert_eq!(message, "missing table [elastic]");
}
