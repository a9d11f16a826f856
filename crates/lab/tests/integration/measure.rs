//! Measurements of an experiment.

use zonda_lab::{LabExperiment, Outcome, Row, csv};

use crate::PROFILES;

const SWEEP: &str = r#"title = "Reads of a zone by queue depth"
statistics = { seeds = 2 }

[drive]
profile = "tiny"

[run]
time = "20 ms"

[[job]]
name = "readers"
operation = "randread"

[[job]]
name = "writer"
operation = "append"
zones = "8..12"
on_full = "reset"

[x]
title = "queue depth"
values = [1, 2, 4, 8, 16, 32]
scale = "log2"
set = { "job.readers.queue_depth" = "{}" }

[[series]]
name = "alone"
set = { jobs = ["readers"], "job.readers.zones" = "0..1" }

[[series]]
name = "beside a writer"
set = { "job.readers.zones" = "0..1" }

[[metric]]
name = "rate"
unit = "kIOPS"
of = "readers.read.iops"

[[metric]]
name = "p99"
unit = "us"
of = "readers.read.p99"

[[metric]]
name = "share"
unit = "fraction"
of = "readers.read.bandwidth"
over = ["readers.read.bandwidth", "writer.append.bandwidth"]

[[result]]
id = "mine-peak"
title = "highest rate"
unit = "kIOPS"
published = 100
tolerance = 0.9
of = { metric = "rate", series = "alone", take = "max" }

[[result]]
id = "mine-knee"
title = "where more reads bring no more"
unit = ""
published = 8
tolerance = 0.5
of = { metric = "rate", series = "alone", take = { saturates = 0.9 } }

[[result]]
id = "mine-loss"
title = "alone over beside a writer, over all depths"
unit = "ratio"
published = 100
tolerance = 0.1
of = { metric = "rate", series = "alone" }
over = { metric = "rate", series = "beside a writer" }
take = "mean"
miss = "a factor of 100 is not reachable"
"#;

fn measured() -> (LabExperiment, Outcome) {
    let experiment = LabExperiment::parse("sweep", SWEEP, &PROFILES).expect("the file is right");
    let measurements = experiment.points.iter().map(|point| point.measure(&experiment.metrics, experiment.seeds, None));
    let outcome = Outcome { measurements: measurements.collect() };
    (experiment, outcome)
}

#[test]
fn the_same_file_gives_the_same_bytes() {
    let (experiment, outcome) = measured();
    let (_, again) = measured();
    assert_eq!(csv(&experiment, &outcome), csv(&experiment, &again));
}

#[test]
fn curves_are_reduced_to_values_as_specified() {
    let (experiment, outcome) = measured();
    let rates: Vec<f64> = (0..6).map(|x| outcome.estimate(&experiment, 0, 0, x).expect("readers read").mean).collect();
    let beside: Vec<f64> = (0..6).map(|x| outcome.estimate(&experiment, 0, 1, x).expect("readers read").mean).collect();
    let rows = Row::all(&experiment, &outcome);
    let most = rates.iter().copied().fold(0.0, f64::max);
    assert_eq!(rows[0].ours, Some(most));
    let knee = rates.iter().position(|rate| *rate >= 0.9 * most).expect("the highest is one of them");
    assert_eq!(rows[1].ours, Some([1.0, 2.0, 4.0, 8.0, 16.0, 32.0][knee]));
    let loss = rates.iter().zip(&beside).map(|(alone, beside)| alone / beside).sum::<f64>() / 6.0;
    assert!((rows[2].ours.expect("both curves are there") - loss).abs() < 1e-12 && loss > 1.0, "{loss}");
}

#[test]
fn only_missed_results_have_a_reason() {
    let (experiment, outcome) = measured();
    let rows = Row::all(&experiment, &outcome);
    assert!(rows[0].met && rows[0].note.is_empty() && !rows[0].fitted);
    assert_eq!((rows[2].met, rows[2].note.as_str()), (false, "a factor of 100 is not reachable"));
    let spread = rows[0].runs.expect("it was measured");
    assert!(spread.low <= spread.mean && spread.mean <= spread.high && spread.low < spread.high, "two seeds differ");
}

#[test]
fn a_metric_of_a_job_that_does_not_run_has_no_value() {
    let (experiment, outcome) = measured();
    assert_eq!(outcome.estimate(&experiment, 2, 0, 0), None);
    let share = outcome.estimate(&experiment, 2, 1, 5).expect("both jobs run").mean;
    assert!(share > 0.0 && share < 1.0);
}

#[test]
fn the_seed_of_the_file_is_the_first_of_the_seeds() {
    let rows_of_seed_2 = |seed: &str| {
        let text = SWEEP
            .replace("[run]\ntime = \"20 ms\"\n", seed)
            .replace("\"randread\"\n", "\"randread\"\noperations = 200\n");
        let text = text.replace("\"append\"\n", "\"append\"\noperations = 200\n");
        let experiment = LabExperiment::parse("sweep", &text, &PROFILES).expect("the file is right");
        let measure = |point: &zonda_lab::Point| point.measure(&experiment.metrics, experiment.seeds, None);
        let outcome = Outcome { measurements: experiment.points.iter().map(measure).collect() };
        let table = csv(&experiment, &outcome);
        let of_seed_2 = table.lines().filter(|line| line.split(',').nth(4) == Some("2"));
        of_seed_2.map(str::to_owned).collect::<Vec<_>>()
    };
    let (from_1, from_2) = (rows_of_seed_2(""), rows_of_seed_2("[run]\nseed = 2\n"));
    assert!(from_1.len() > 20, "{from_1:?}");
    assert_eq!(from_1, from_2, "the second of two seeds is the first from 2 on");
}

#[test]
fn completions_before_the_steady_state_are_excluded() {
    let (_, outcome) = measured();
    for measurement in &outcome.measurements {
        assert!(measurement.is_steady && measurement.warm_up_ns < measurement.time_ns, "{measurement:?}");
        assert_eq!(measurement.errors, 0);
    }
}

/// The sweep with a curve that leaves some depths out.
fn with_gaps() -> (LabExperiment, Outcome) {
    let text = SWEEP.replace("name = \"beside a writer\"\n", "name = \"beside a writer\"\nexcept = [2, 32]\n");
    let text = text.replace("published = 100\ntolerance = 0.1\n", "published = 100\ntolerance = 0.1\nat_most = true\n");
    let experiment = LabExperiment::parse("sweep", &text, &PROFILES).expect("the file is right");
    let measurements = experiment.points.iter().map(|point| point.measure(&experiment.metrics, experiment.seeds, None));
    let outcome = Outcome { measurements: measurements.collect() };
    (experiment, outcome)
}

#[test]
fn curves_with_gaps_are_compared_where_both_have_points() {
    let ((whole, all), (experiment, outcome)) = (measured(), with_gaps());
    assert_eq!((whole.points.len(), experiment.points.len()), (12, 10));
    let beside = |of: &LabExperiment, outcome: &Outcome, x| outcome.estimate(of, 0, 1, x).map(|rate| rate.mean);
    let left: Vec<Option<f64>> = (0..6).map(|x| beside(&experiment, &outcome, x)).collect();
    assert_eq!((left[1], left[5]), (None, None), "there is no point there");
    for x in [0, 2, 3, 4] {
        assert_eq!(left[x], beside(&whole, &all, x), "the others are where they were");
    }
    let alone = |x| outcome.estimate(&experiment, 0, 0, x).expect("readers read").mean;
    let ratios = [0, 2, 3, 4].map(|x| alone(x) / left[x].expect("it was measured"));
    let mean = ratios.iter().sum::<f64>() / 4.0;
    let row = &Row::all(&experiment, &outcome)[2];
    assert!((row.ours.expect("both curves are there") - mean).abs() < 1e-12, "{row:?}");
    assert!(row.met, "the published number is a bound, and ours is below it");
}
