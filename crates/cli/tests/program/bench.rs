//! `zonda bench` and `zonda demo`.

use super::{assert_golden, file, json_of, output_of, scratch, zonda};

/// A mix of jobs and layers on a small drive.
const TINY: &str = r#"
[drive]
profile = "tiny"

[[drive.layer]]
kind = "fault"
status = "unrecovered read error"
operations = ["read"]
when = { every = 100 }

[[drive.layer]]
kind = "trace"
events = 10

[[job]]
name = "log, and more"
operation = "append"
block_size = "16 KiB"
workers = 2
zones = "0..3"

[[job]]
operation = "write"
block_size = "64 KiB"
zones = "3..5"
finish_at = 0.4

[[job]]
name = "reader"
operation = "randread"
queue_depth = 4
zones = "8..12"
operations = 2000

[[job]]
operation = "reset"
zones = "14..16"
"#;

#[test]
fn the_figures_of_a_small_run() {
    let directory = scratch("small");
    let job = file(&directory, "tiny.toml", TINY);
    assert_golden("bench_tiny.txt", &output_of(&["bench", &job]));
    assert_golden("bench_tiny_wide.txt", &output_of(&["bench", &job, "--wide"]));
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_seed_another() {
    let directory = scratch("twice");
    let job = file(&directory, "tiny.toml", TINY);
    let run = |seed: &str| output_of(&["bench", &job, "--json", "--seed", seed]);
    assert_eq!(run("1"), output_of(&["bench", &job, "--json"]));
    assert_ne!(run("1"), run("2"));
}

#[test]
fn results_are_written_to_a_directory() {
    let directory = scratch("results");
    let job = file(&directory, "tiny.toml", TINY);
    let out = directory.join("a/b");
    let output = output_of(&["bench", &job, "--out", out.to_str().unwrap()]);
    assert!(output.contains("report.html"), "{output}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(read("job.toml"), TINY);
    assert!(read("report.html").to_lowercase().starts_with("<!doctype html>"));
    let result: serde_json::Value = serde_json::from_str(&read("result.json")).unwrap();
    assert_eq!(result, json_of(&["bench", &job, "--json"]));
    assert_eq!(read("trace.txt").lines().count(), 10);

    let series = read("series.csv");
    let mut lines = series.lines();
    assert_eq!(lines.next(), Some("start_ns,length_ns,job,operations,bytes,errors,mean_latency_ns,p99_latency_ns"));
    assert!(lines.next().unwrap().starts_with("0,10000000,\"log, and more\","), "{series}");
    let zones = read("zones.csv");
    let mut lines = zones.lines();
    assert_eq!(lines.next(), Some("zone,state,written_blocks,written_bytes"));
    assert_eq!(lines.next(), Some("0,full,384,1572864"));
    assert_eq!(lines.count(), 15);
}

#[test]
fn output_to_a_pipe_has_no_colours() {
    let directory = scratch("plain");
    let job = file(&directory, "tiny.toml", TINY);
    let ran = zonda(&["bench", &job]);
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'));
}

#[test]
fn verbose_output_has_the_speed_of_the_simulation() {
    let directory = scratch("verbose");
    let job = file(&directory, "tiny.toml", TINY);
    assert!(output_of(&["bench", &job, "--verbose"]).contains("Simulated "));
}

#[test]
fn the_demo_prints_its_results_and_writes_a_report() {
    let out = scratch("demo");
    let output = output_of(&["demo", "--quiet", "--out", out.to_str().unwrap()]);
    for part in [
        "Eight writers append",
        "write amplification",
        "each cell is a zone",
        "latency of",
        "The second drive is an image in",
        "blocks: no mismatch",
        "zonda serve",
        "report.html",
    ] {
        assert!(output.contains(part), "\"{part}\" is not in:\n{output}");
    }
    assert!(out.join("report.html").exists() && out.join("tour.toml").exists());
    // The server has shut down cleanly: the image is unlocked and needs no recovery.
    let drive = json_of(&["drive", "show", out.join("drive").to_str().unwrap(), "--json"]);
    assert_eq!(drive["clean"], true);
}

#[test]
fn verification_is_reported_and_needs_a_drive_that_stores_data() {
    let text = TINY.replace("[[drive.layer]]\nkind = \"trace\"\nevents = 10\n", "[run]\nverify = true\n");
    let directory = scratch("verify");
    let job = file(&directory, "none.toml", &text);
    let ran = zonda(&["bench", &job]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("reads cannot be verified"), "{}", ran.stderr);
    let job = file(&directory, "bytes.toml", text.replace("\"tiny\"", "\"tiny\"\npayload = \"bytes\""));
    let output = output_of(&["bench", &job]);
    assert!(output.contains("Verified 1,980 blocks: no mismatch."), "{output}");
}

#[test]
fn a_failed_job_fails_the_run() {
    let job = r#"
        [drive]
        profile = "tiny"
        [[drive.layer]]
        kind = "fault"
        status = "write fault"
        operations = ["write"]
        when = { every = 1 }
        [[job]]
        operation = "write"
        zones = "0..1"
        block_size = "4 KiB"
        on_full = "reset"
        time = "10 s"
    "#;
    let directory = scratch("failed-job");
    let job = file(&directory, "job.toml", job);
    let ran = zonda(&["bench", &job]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.contains("FAILED"), "{}", ran.stdout);
}
