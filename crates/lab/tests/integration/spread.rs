//! Open loads: which runs there are, and what a spread does to a verdict.

use zonda_lab::{LabError, LabExperiment, LoadValue, Outcome, Row, Spread, Verdict};

use crate::PROFILES;

const RIGHT: &str = r#"title = "Reads of a zone"
statistics = { seeds = 2 }

[drive]
profile = "tiny"

[run]
time = "5 ms"

[[job]]
name = "readers"
operation = "randread"
queue_depth = 4

[[metric]]
name = "rate"
unit = "kIOPS"
of = "readers.read.iops"

[[result]]
id = "mine-rate"
title = "rate"
unit = "kIOPS"
published = 50
tolerance = 0.1
of = { metric = "rate" }

[[open]]
key = "job.readers.queue_depth"
why = "the paper is silent"
"#;

fn parsed(text: &str) -> LabExperiment {
    LabExperiment::parse("mine", text, &PROFILES).expect("the file is right")
}

fn measured(experiment: &LabExperiment) -> Outcome {
    let measurements = experiment.points.iter().map(|point| point.measure(&experiment.metrics, experiment.seeds, None));
    Outcome { measurements: measurements.collect() }
}

#[test]
fn an_open_load_is_run_a_quarter_lower_and_higher() {
    let experiment = parsed(RIGHT);
    let variations: Vec<_> = experiment.open[0].variations().collect();
    assert_eq!(variations.iter().map(|variation| variation.change()).collect::<Vec<_>>(), ["-25%", "+25%"]);
    let depths = variations.iter().map(|variation| {
        let varied = experiment.varied(variation, &PROFILES).expect("it is right").expect("4 can be varied");
        varied.points[0].text().lines().find(|line| line.starts_with("queue_depth")).map(str::to_owned)
    });
    let depths: Vec<String> = depths.map(|line| line.expect("the job has a depth")).collect();
    assert_eq!(depths, ["queue_depth = 3", "queue_depth = 5"]);
}

#[test]
fn an_open_load_makes_a_result_chosen() {
    let experiment = parsed(RIGHT);
    assert_eq!(experiment.basis(&experiment.results[0]).name(), "chosen");
    let closed = parsed(&RIGHT[..RIGHT.find("[[open]]").expect("it has one")]);
    assert_eq!(closed.basis(&closed.results[0]).name(), "predicted");
}

#[test]
fn an_open_load_without_a_value_or_with_an_unknown_result_is_refused() {
    let refused = |of: &str, by: &str| match LabExperiment::parse("mine", &RIGHT.replace(of, by), &PROFILES) {
        Err(LabError::File(error)) => error.message,
        other => panic!("{by}: {other:?}"),
    };
    assert!(refused("readers.queue_depth", "readers.rate").contains("no configuration has a value"));
    assert!(refused("why = \"the paper is silent\"", "why = \"\"").contains("needs a reason"));
    let message = refused("why = \"the", "results = [\"mine-rat\"]\nwhy = \"the");
    assert_eq!(message, "unknown result \"mine-rat\"");
}

#[test]
fn a_result_is_fragile_if_a_seed_or_a_load_leaves_the_tolerance() {
    let text = RIGHT.replace("published = 50", "published = PUBLISHED");
    let ours = {
        let experiment = parsed(RIGHT);
        measured(&experiment).result(&experiment, &experiment.results[0]).expect("readers read").mean
    };
    let experiment = parsed(&text.replace("PUBLISHED", &format!("{ours:.6}")));
    let (outcome, plan) = (measured(&experiment), &experiment.results[0]);
    let row = |values: &[f64], load: Option<f64>| {
        let load = load.map(|value| LoadValue { key: "run.time".to_owned(), change: "+25%".to_owned(), value });
        let loads = load.into_iter().collect();
        let spread = Spread { result: plan.id.clone(), first_seed: 1, values: values.to_vec(), loads };
        Row::with_spread(&experiment, &outcome, plan, Some(&spread))
    };
    let met = row(&[ours * 0.95, ours * 1.05], Some(ours));
    assert!(met.verdict == Verdict::Met && met.met && met.note.is_empty(), "{met:?}");
    let by_seed = row(&[ours * 0.95, ours * 1.5], None);
    assert!(by_seed.verdict == Verdict::Fragile && !by_seed.met, "{by_seed:?}");
    assert_eq!(by_seed.note, "Outside of the tolerance with 1 of 2 seeds.");
    let by_load = row(&[ours * 0.95, ours * 1.05], Some(ours * 2.0));
    assert!(by_load.verdict == Verdict::Fragile && by_load.note.contains("run.time +25%"), "{by_load:?}");
    let stale = row(&[ours * 1.5, ours * 1.6], None);
    assert!(stale.verdict == Verdict::Met && stale.spread.is_some_and(|spread| spread.stale), "{stale:?}");
}
