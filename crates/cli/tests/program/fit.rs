//! `zonda drive fit`.

use std::fs;

use super::{assert_golden, file, json_of, output_in, output_of, refused_in, root, scratch, zonda};
use zonda_lab::fit::FitPlan;
use zonda_profiles::builtin_text;

const EXAMPLE: [&str; 5] = ["drive", "fit", "tiny", "--to", "examples/fit/measurements.toml"];

fn example() -> String {
    fs::read_to_string(root().join(EXAMPLE[4])).expect("the example exists")
}

/// The error message for this file of measurements.
fn refusal(test: &str, measurements: &str) -> String {
    let directory = scratch(test);
    file(&directory, "mine.toml", measurements);
    refused_in(&directory, &["drive", "fit", "tiny", "--to", "mine.toml", "--quiet"])
}

#[test]
fn the_example_is_fitted_as_the_guide_shows() {
    let report = output_of(&[&EXAMPLE[..], &["--quiet"]].concat());
    assert_golden("drive_fit.txt", &report);
    let guide = fs::read_to_string(root().join("docs/guide/fit-a-drive.md")).unwrap();
    assert!(guide.contains(&report), "the guide shows another report");
}

#[test]
fn the_fitted_profile_is_valid_and_matches_the_report() {
    let directory = scratch("fit");
    file(&directory, "measurements.toml", example());
    let fit = ["drive", "fit", "tiny", "--to", "measurements.toml", "--quiet", "--threads", "1"];
    let report = output_in(&directory, &[&fit[..], &["--out", "mine.toml"]].concat());
    assert!(report.ends_with("Wrote profile tiny-fitted to mine.toml.\n"), "{report}");
    let shown = output_in(&directory, &["drive", "show", "./mine.toml"]);
    assert!(shown.contains("tiny-fitted") && shown.contains("5 values are fitted (*)"), "{shown}");
    let json = json_of(&[&EXAMPLE[..], &["--json", "--quiet", "--threads", "2"]].concat());
    assert_eq!(json["fitted_profile"], fs::read_to_string(directory.join("mine.toml")).unwrap());
    assert_eq!(json["measurements"].as_array().unwrap().len(), 6);
    assert!(json["misfit_after"].as_f64().unwrap() < json["misfit_before"].as_f64().unwrap());
}

#[test]
fn invalid_input_is_reported_with_its_position() {
    let good = example();
    let message = refusal("fit_key", &good.replace("flash.program.base", "flash.programm.base"));
    for part in ["no number \"flash.programm.base\"", "mine.toml:13:13", "did you mean \"flash.program.base\"?"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let message = refusal("fit_job", &good.replacen("randread", "randraed", 1));
    assert!(message.contains("mine.toml:") && message.contains("\"randraed\""), "{message}");
    refusal("fit_empty", "");
    refusal("fit_unit", &good.replacen("unit = \"us\"", "unit = \"MB\"", 1));
    let message = refused_in(&root(), &[&EXAMPLE[..], &["--tries", "3"]].concat());
    assert!(message.contains("--tries 3 is too small for 5 parameters"), "{message}");
    let message = refused_in(&root(), &["drive", "fit", "tinny", "--to", EXAMPLE[4]]);
    assert!(message.contains("did you mean \"tiny\"?"), "{message}");
}

#[test]
fn a_fit_that_runs_out_of_tries_warns_and_succeeds() {
    let ran = zonda(&[&EXAMPLE[..], &["--tries", "6", "--quiet"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("the search was stopped before it converged") && ran.stdout.contains(" NO"),
        "{}",
        ran.stdout
    );
}

#[test]
fn the_files_in_the_guide_are_valid() {
    let guide = fs::read_to_string(root().join("docs/guide/fit-a-drive.md")).unwrap();
    let blocks: Vec<&str> = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        FitPlan::parse(builtin_text("tiny").unwrap(), block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
}
