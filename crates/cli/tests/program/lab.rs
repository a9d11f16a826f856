//! `zonda lab`: reproduced measurements.

use std::path::Path;

use super::{Ran, assert_golden, file, golden, json_in, output_in, refused_in, root, scratch, zonda_in};

/// Published results about drives that must be met.
const DEVICE_MET_MIN: usize = 45;
/// Of the 11 results of SilentZNS about systems and shapes, those that must be met.
const SILENT_SYSTEMS_MET_MIN: usize = 7;

const MINE: &str = r#"title = "Reads of a small drive by queue depth"

[drive]
profile = "tiny"

[run]
time = "10 ms"

[[job]]
name = "readers"
operation = "randread"

[x]
title = "queue depth"
values = [1, 8]
set = { "job.readers.queue_depth" = "{}" }

[[metric]]
name = "rate"
unit = "kIOPS"
of = "readers.read.iops"

[[plot]]
title = "Rate by queue depth"
metrics = ["rate"]

[[result]]
id = "mine-gain"
title = "eight at a time over one"
unit = "ratio"
published = 4
tolerance = 0.5
of = { metric = "rate", at = 8 }
over = { metric = "rate", at = 1 }
"#;

/// Without times measured on this machine, which vary.
fn without_times_of_this_machine(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_whitespace().next() {
        Some(id @ ("silent-t4-block" | "zapraid-s3.2-query")) => {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{id}, a time of this machine, met: {}\n", words.contains(&"met"))
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// Long experiments, which only `soak_` runs.
const LONG: [&str; 26] = [
    "confzns-read-finish",
    "silent-figure-7b",
    "silent-figure-7c",
    "silent-figure-8",
    "silent-figure-9",
    "silent-table-3",
    "bae-figure-2",
    "bae-figure-4",
    "ezns-figure-9",
    "ezns-figure-13",
    "ezns-figure-26",
    "ezns-figure-27",
    "ezns-figure-30",
    "ezns-figure-32",
    "ezns-figure-34",
    "ezns-figure-40",
    "study-figure-3",
    "zapraid-figure-4",
    "zapraid-figure-5",
    "zapraid-figure-6",
    "volumes-ageing",
    "volumes-collection",
    "volumes-groups",
    "volumes-latency",
    "volumes-levels",
    "volumes-sizes",
];

/// Experiments that measure this machine; their results are those of a release build.
const OF_THIS_MACHINE: [&str; 2] = ["silent-table-4", "zapraid-section-3-2"];

/// Lines without the widths of columns, which depend on what else is in a table.
fn lines_of(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    // The last lines count results.
    lines.filter(|line| !line.is_empty() && !line.starts_with("---") && !line.contains(" fragile, ")).collect()
}

#[test]
fn the_comparison_with_published_results_is_unchanged() {
    let directory = scratch("lab_compare_short");
    let list = json_in(&directory, &["lab", "list", "--json"]);
    let ids: Vec<&str> = list.as_array().expect("a list").iter().filter_map(|entry| entry["id"].as_str()).collect();
    let left_out = [&LONG[..], &OF_THIS_MACHINE].concat();
    assert!(left_out.iter().all(|id| ids.contains(id)), "{ids:?}");
    let short = ids.iter().filter(|id| !left_out.contains(id)).copied();
    let arguments: Vec<&str> = ["lab", "compare", "--quiet"].into_iter().chain(short).collect();
    let lines = lines_of(&output_in(&directory, &arguments));
    let golden = golden("lab_compare.txt");
    let golden = lines_of(&golden);
    let other = lines.iter().find(|line| !golden.contains(line));
    assert_eq!(other, None, "this line is not in lab_compare.txt, which soak_ writes with ZONDA_UPDATE_GOLDEN=1");
    assert!(lines.len() * 5 >= golden.len() * 2, "{} of {} lines", lines.len(), golden.len());
}

#[test]
#[ignore = "soak"]
fn soak_the_comparison_with_all_published_results_is_unchanged() {
    let directory = scratch("lab_compare");
    // A change that moves a number shows in this file.
    let text = output_in(&directory, &["lab", "compare", "--quiet"]);
    assert_golden("lab_compare.txt", &without_times_of_this_machine(&text));

    // Stored measurements give the same results.
    let comparison = json_in(&directory, &["lab", "compare", "--json"]);
    let rows = comparison["results"].as_array().expect("a list");
    let (counts, uncovered) = (&comparison["counts"], comparison["uncovered"].as_array().expect("a list"));
    assert_eq!(counts["uncovered"], uncovered.len());
    for (of, is_published) in [("published", true), ("own", false)] {
        let of_set = rows.iter().filter(|row| row["published_result"] == is_published);
        for verdict in ["met", "fragile", "missed"] {
            assert_eq!(counts[of][verdict], of_set.clone().filter(|row| row["verdict"] == verdict).count(), "{of}");
        }
    }
    let device: Vec<_> = rows.iter().filter(|row| row["kind"] == "device").collect();
    let met = device.iter().filter(|row| row["met"] == true).count();
    assert_eq!(device.len(), 113);
    assert!(met >= DEVICE_MET_MIN, "{met} of 113 met");
    let of_silent = |row: &&serde_json::Value| {
        row["kind"] != "device" && row["id"].as_str().is_some_and(|id| id.starts_with("silent-"))
    };
    let systems: Vec<_> = rows.iter().filter(of_silent).collect();
    let met = systems.iter().filter(|row| row["met"] == true).count();
    assert_eq!(systems.len(), 11);
    assert!(met >= SILENT_SYSTEMS_MET_MIN, "{met} of 11 met");
    for row in rows {
        let (published, ours) = (row["published"].as_f64(), row["ours"].as_f64());
        let (published, ours) = (published.expect("a number"), ours.expect("everything comes to a number"));
        let error = (ours - published) / published;
        assert!((row["error"].as_f64().expect("a number") - error).abs() < 1e-9, "{row}");
        let tolerance = row["tolerance"].as_f64().expect("a number");
        let is_below = row["at_most"] == true && error < 0.0 || row["at_least"] == true && error > 0.0;
        assert_eq!(row["verdict"] != "missed", error.abs() <= tolerance || is_below, "{row}");
        assert_eq!(row["note"] == "", row["met"] == true, "a miss has a reason, and nothing else has: {row}");
        assert!(row["fitted"].is_boolean() && row["unit"].is_string() && row["id"].is_string(), "{row}");
    }
    for page in ["index.html", "ezns.html", "study.html", "zapraid.html", "silent.html", "bae.html"] {
        assert!(directory.join("out/lab").join(page).is_file(), "{page}");
    }
}

#[test]
fn an_experiment_of_the_user_has_a_table_a_page_and_measurements() {
    let directory = scratch("lab_mine");
    file(&directory, "mine.toml", MINE);
    let text = output_in(&directory, &["lab", "run", "./mine.toml", "--quiet"]);
    assert!(text.contains("mine-gain") && text.contains("device: 1 of 1 met, 0 fragile, 0 missed"), "{text}");
    let output = |name: &str| {
        let path = directory.join("out/lab/mine").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert_eq!(output("mine.toml"), MINE);
    let measurements = output("measurements.csv");
    assert_eq!(measurements.lines().count(), 1 + 2 * 3, "two points, three seeds: {measurements}");
    let again = output_in(&directory, &["lab", "run", "./mine.toml", "--quiet", "--rerun", "--threads", "1"]);
    assert_eq!(output("measurements.csv"), measurements, "the same file gives the same bytes");
    let without_time = |text: &str| text.lines().filter(|line| !line.contains(" in ")).collect::<Vec<_>>().join("\n");
    assert_eq!(without_time(&again), without_time(&text));
}

#[test]
fn the_spread_of_an_experiment_of_the_user_is_measured() {
    let directory = scratch("lab-spread");
    // With a load that is left open, and a profile beside the file.
    let tiny = std::fs::read_to_string(root().join("crates/profiles/drives/tiny.toml")).expect("it is built in");
    file(&directory, "own.toml", tiny);
    let open = "\n[[open]]\nkey = \"run.time\"\nwhy = \"It is open.\"\nvalues = [\"5 ms\", \"20 ms\"]\n";
    file(&directory, "mine.toml", MINE.replace("\"tiny\"", "\"./own.toml\"") + open);
    let spreads = json_in(&directory, &["lab", "spread", "./mine.toml", "--seeds", "3", "--quiet", "--json"]);
    assert_eq!((&spreads[0]["result"], spreads.as_array().map(Vec::len)), (&"mine-gain".into(), Some(1)));
    assert_eq!(spreads[0]["values"].as_array().map(Vec::len), Some(3));
    assert_eq!(spreads[0]["loads"].as_array().map(Vec::len), Some(2), "{spreads}");
    let without = MINE.split("[[result]]").next().expect("a text has a beginning");
    file(&directory, "without.toml", without);
    let refused = refused_in(&directory, &["lab", "spread", "without.toml"]);
    assert!(refused.contains("without.toml has no results whose spread could be measured"), "{refused}");
}

#[test]
fn the_list_names_every_experiment_and_show_prints_a_file_that_runs() {
    let list = json_in(Path::new("/"), &["lab", "list", "--json"]);
    let ids: Vec<&str> = list.as_array().expect("a list").iter().filter_map(|entry| entry["id"].as_str()).collect();
    assert!(ids.contains(&"ezns-table-2") && ids.len() >= 25, "{ids:?}");
    let text = output_in(Path::new("/"), &["lab", "list"]);
    assert!(ids.iter().all(|id| text.contains(id)), "{text}");
    let file = output_in(Path::new("/"), &["lab", "show", "ezns-table-2"]);
    assert!(file.contains("paper = \"ezns\""), "{file}");
}

#[test]
fn an_unknown_experiment_is_refused_with_a_suggestion() {
    let directory = scratch("lab_refused");
    let error = refused_in(&directory, &["lab", "run", "ezns-tabel-2"]);
    assert!(error.contains("did you mean \"ezns-table-2\"?"), "{error}");
    let error = refused_in(&directory, &["lab", "show", "nothing-like-it"]);
    assert!(error.contains("nothing-like-it"), "{error}");
    file(&directory, "mine.toml", MINE.replace("kIOPS", "MIPS"));
    let error = refused_in(&directory, &["lab", "run", "./mine.toml"]);
    assert!(error.contains("mine.toml:20:8") && error.contains("IOPS"), "{error}");
    let Ran { code, .. } = zonda_in(&directory, &["lab", "run"]);
    assert_eq!(code, Some(2));
}
