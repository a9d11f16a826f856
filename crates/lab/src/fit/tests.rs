//! Fits of a drive whose numbers are known.

use super::*;
use zonda_profiles::builtin_text;
use zonda_ssd::profile::{Profile, SourceKind};

/// A load and the figure that is measured under it.
const LOADS: [(&str, &str, &str); 3] = [
    (
        "4 KiB reads",
        "us",
        "of = \"a.read.mean\"\nrun = { time = \"20 ms\" }\njob = [{ name = \"a\", operation = \"randread\", zones = \"0..4\" }]",
    ),
    (
        "64 KiB reads",
        "MiB/s",
        "of = \"a.read.bandwidth\"\nrun = { time = \"100 ms\" }\n\
         job = [{ name = \"a\", operation = \"randread\", zones = \"0..4\", block_size = \"64 KiB\", queue_depth = 8 }]",
    ),
    (
        "4 KiB writes",
        "us",
        "of = \"a.write.p50\"\njob = [{ name = \"a\", operation = \"write\", zones = 8, operations = 200 }]",
    ),
];

const KEYS: [&str; 3] = ["flash.read.0.time.base", "channel.bandwidth", "firmware.write.parallel.0.time.base"];

fn tiny() -> &'static str {
    builtin_text("tiny").unwrap()
}

/// `tiny` with three other numbers.
fn perturbed() -> String {
    let text = tiny().replacen("base = \"45 us\"", "base = \"70 us\"", 1).replace("\"800 MiB/s\"", "\"500 MiB/s\"");
    let write =
        "write = { server = \"core\", serial = [{ time = { base = \"2 us\" } }], parallel = [{ time = { base = ";
    assert!(text.contains(&format!("{write}\"5 us\"")));
    text.replace(&format!("{write}\"5 us\""), &format!("{write}\"12 us\""))
}

/// A file with these keys, and with the values that the profile `of` gives.
fn file_of(keys: &[&str], of: &str) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("{{ key = \"{key}\" }}")).collect();
    let head = format!("[fit]\nseeds = 1\nparameters = [{}]\n", keys.join(", "));
    let with = |values: &[f64]| {
        let measurements = LOADS.iter().zip(values).map(|((name, unit, rest), value)| {
            format!("[[measurement]]\nname = \"{name}\"\nvalue = {value:?}\nunit = \"{unit}\"\n{rest}\n")
        });
        head.clone() + &measurements.collect::<String>()
    };
    let plan = FitPlan::parse(of, &with(&[1.0; 3])).unwrap();
    let start: Vec<f64> = plan.parameters.iter().map(|parameter| parameter.start).collect();
    let tasks = plan.tasks(&start).unwrap();
    let values: Vec<f64> = plan
        .measurements
        .iter()
        .map(|measured| tasks[measured.load].measure().estimate(measured.metric).unwrap().mean)
        .collect();
    with(&values)
}

fn fitted(profile: &str, file: &str) -> (FitPlan, FitReport) {
    let plan = FitPlan::parse(profile, file).unwrap_or_else(|error| panic!("{error}"));
    let mut run = |tasks: &[Task], _: Progress| tasks.iter().map(Task::measure).collect();
    let report = plan.fit(plan.tries_default(), &mut run).unwrap();
    (plan, report)
}

fn refused(file: &str) -> (ConfigError, String) {
    let error = FitPlan::parse(tiny(), file).expect_err(file);
    let place = error.span.clone().map_or_else(String::new, |span| file[span].to_owned());
    (error, place)
}

#[test]
fn a_fit_finds_the_numbers_that_gave_the_measurements() {
    let file = file_of(&KEYS, tiny());
    let profile = perturbed();
    let (plan, report) = fitted(&profile, &file);
    let expected = [45_000.0, 800.0 * 1_048_576.0, 5_000.0];
    for (parameter, (found, expected)) in report.parameters.iter().zip(report.numbers.iter().zip(expected)) {
        assert!((found / expected - 1.0).abs() < 0.015, "{parameter:?}");
        assert!(!parameter.is_idle && parameter.at_edge.is_none(), "{parameter:?}");
    }
    assert!(report.measurements.iter().all(|measurement| measurement.met), "{report:?}");
    assert!(report.misfit_before > 10.0 && report.misfit_after < 0.2 && !report.is_cut_short, "{report:?}");
    assert!(report.tries < 40, "{}", report.tries);

    let text = plan.fitted_text(&report, "mine.toml");
    let fitted = Profile::parse(&text).unwrap();
    assert_eq!(fitted.name, "tiny-fitted");
    let source = fitted.sources.of("channel.bandwidth").unwrap();
    assert_eq!((source.kind(), source.words()), (SourceKind::Fitted, "mine.toml: 64 KiB reads; 4 KiB reads"));
    assert_eq!(fitted.sources.of("flash.read.1.time.base").unwrap().kind(), SourceKind::Assumed);
    assert_eq!(plan.candidate(&report.numbers).lines().count() + 3, text.lines().count(), "three sources more");
}

#[test]
fn the_same_files_give_the_same_fit() {
    let file = file_of(&KEYS[..2], tiny());
    let profile = perturbed();
    let reports = [0, 1].map(|_| format!("{:?}", fitted(&profile, &file).1));
    assert_eq!(reports[0], reports[1]);
}

#[test]
fn a_parameter_that_no_measurement_depends_on_is_reported_and_unchanged() {
    let file = file_of(&["flash.read.0.time.base", "flash.erase.base"], tiny());
    let (_, report) = fitted(&perturbed(), &file);
    let erase = &report.parameters[1];
    assert!(erase.is_idle && erase.moves.is_empty() && erase.uncertainty.is_none(), "{erase:?}");
    assert_eq!(erase.before, erase.after);
    assert_eq!(report.parameters[0].moves[0].measurement, "4 KiB reads");
}

#[test]
fn indistinguishable_parameters_are_reported() {
    let file = file_of(&["firmware.read.serial.0.time.base", "firmware.read.parallel.0.time.base"], tiny());
    let (_, report) = fitted(&perturbed(), &file);
    assert_eq!(report.alike.len(), 1, "{report:?}");
    assert!(!report.alike[0].is_opposite);
}

#[test]
fn a_parameter_stays_within_its_range() {
    let file = file_of(&["flash.read.0.time.base"], tiny());
    let file =
        file.replace("{ key = \"flash.read.0.time.base\" }", "{ key = \"flash.read.0.time.base\", low = \"60 us\" }");
    let (_, report) = fitted(&perturbed(), &file);
    assert_eq!((report.parameters[0].at_edge, report.parameters[0].after.as_str()), (Some("low"), "60 us"));
    assert!(!report.measurements[0].met);
}

#[test]
fn an_invalid_candidate_is_a_bad_try_and_not_an_error() {
    // Below 10 us, the uniform part would be greater than the base.
    let file = file_of(&["flash.read.0.time.base"], &tiny().replacen("base = \"45 us\"", "base = \"10100 ns\"", 1));
    let file = file.replace("time.base\" }", "time.base\", low = \"2 us\" }");
    let (_, report) = fitted(tiny(), &file);
    assert!((report.numbers[0] - 10_100.0).abs() < 500.0, "{:?}", report.parameters);
}

#[test]
fn no_more_tries_are_made_than_allowed() {
    let file = file_of(&KEYS, tiny());
    let profile = perturbed();
    let plan = FitPlan::parse(&profile, &file).unwrap();
    let mut run = |tasks: &[Task], _: Progress| tasks.iter().map(Task::measure).collect();
    let report = plan.fit(5, &mut run).unwrap();
    assert!(report.tries <= 5 && report.is_cut_short && report.misfit_after < report.misfit_before, "{report:?}");
}

#[test]
fn measurements_of_one_load_are_taken_in_one_run() {
    let file = file_of(&KEYS[..1], tiny());
    let again = file.replace(
        "[[measurement]]\nname = \"64 K",
        &format!(
            "[[measurement]]\nname = \"p50\"\nvalue = 60\nunit = \"us\"\n{}\n[[measurement]]\nname = \"64 K",
            LOADS[0].2.replace("mean", "p50"),
        ),
    );
    let plan = FitPlan::parse(tiny(), &again).unwrap();
    assert_eq!((plan.measurements.len(), plan.loads.len()), (4, 3));
}

#[test]
fn invalid_keys_and_ranges_are_reported_at_their_position() {
    let rest = file_of(&KEYS[..1], tiny()).split_once("[[measurement]]").unwrap().1.to_owned();
    for (parameter, message, place) in [
        ("key = \"flash.reed.0.time.base\"", "no number \"flash.reed.0.time.base\"", "\"flash.reed.0.time.base\""),
        ("key = \"flash.read\"", "\"flash.read\" has more than one value", "\"flash.read\""),
        ("key = \"flash.channels\"", "is a count, 2", "\"flash.channels\""),
        ("key = \"write_buffer.admission\"", "is a word, \"first-come\"", "\"write_buffer.admission\""),
        ("key = \"flash.read_unit\"", "is part of the layout of the drive", "\"flash.read_unit\""),
        ("key = \"channel.bandwidth\", low = \"3 us\"", "invalid bound for \"channel.bandwidth\"", "\"3 us\""),
        ("key = \"channel.bandwidth\", low = 7", "invalid bound for \"channel.bandwidth\"", "7"),
        ("key = \"channel.bandwidth\", low = \"900 MiB/s\"", "is not between low and high", "\"900 MiB/s\""),
        ("key = \"channel.bandwidth\", low = \"800 MiB/s\", high = \"800 MiB/s\"", "is empty", "\"800 MiB/s\""),
        ("key = \"channel.bandwidth\", lwo = \"1 MiB/s\"", "unknown key \"lwo\"", "lwo"),
        (
            "key = \"link.read_bandwidth\" }, { key = \"link.read_bandwidth\"",
            "duplicate parameter",
            "\"link.read_bandwidth\"",
        ),
    ] {
        let file = format!("[fit]\nparameters = [{{ {parameter} }}]\n[[measurement]]{rest}");
        let (error, at) = refused(&file);
        assert!(error.message.contains(message), "{parameter}: {error:?}");
        assert_eq!(at, place, "{error:?}");
        assert!(error.help.is_some(), "{error:?}");
    }
}

#[test]
fn invalid_measurements_are_reported_at_their_position() {
    let good = file_of(&KEYS[..1], tiny());
    for (from, to, message, place) in [
        ("unit = \"us\"", "unit = \"MiB/s\"", "is not a unit of this metric", "\"MiB/s\""),
        ("\"a.read.mean\"", "\"b.read.mean\"", "unknown job \"b\" in this measurement", "\"b.read.mean\""),
        ("\"a.read.mean\"", "\"a.read.median\"", "unknown figure \"median\"", "\"a.read.median\""),
        ("zones = \"0..4\"", "zones = \"0..40\"", "zone 16 does not exist", "\"0..40\""),
        ("operation = \"randread\"", "operation = \"randraed\"", "randraed", "\"randraed\""),
        ("operation = \"randread\"", "operation = \"randread\", quedepth = 3", "unknown key \"quedepth\"", "quedepth"),
        ("name = \"64 KiB reads\"", "name = \"4 KiB reads\"", "two measurements", "\"4 KiB reads\""),
        ("seeds = 1", "seeds = 0", "invalid number of seeds: 0", "0"),
        ("unit = \"us\"", "unit = \"us\"\ntolerance = 0", "not a relative uncertainty", "0"),
        (
            "unit = \"us\"",
            "unit = \"us\"\ndrive_set = { \"zones.paralelism\" = 2 }",
            "zones.paralelism",
            "\"zones.paralelism\"",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let (error, at) = refused(&good.replacen(from, to, 1));
        assert!(error.message.contains(message), "{to}: {error:?}");
        assert_eq!(at, place, "{to}: {error:?}");
        assert!(error.help.is_some(), "{error:?}");
    }
    let (error, at) = refused(&good.replacen("value = ", "value = -", 1));
    assert!(error.message.contains("must be above zero") && at.starts_with('-'), "{error:?}");
    let (error, _) = refused(good.split("[[measurement]]").next().unwrap());
    assert!(error.message.contains("fewer measurements (0) than parameters (1)"), "{error:?}");
}

#[test]
fn a_workload_without_the_figure_is_reported() {
    let file = file_of(&KEYS[..1], tiny()).replacen("a.read.mean", "a.write.mean", 1);
    let plan = FitPlan::parse(tiny(), &file).unwrap();
    let mut run = |tasks: &[Task], _: Progress| tasks.iter().map(Task::measure).collect();
    let error = plan.fit(9, &mut run).expect_err("no write is measured");
    assert_eq!(&file[error.span.unwrap()], "\"a.write.mean\"");
}
