//! The page as a whole.

use std::collections::BTreeSet;

use zonda_plot::text::{count, duration, escape};
use zonda_stack::{Experiment, ExperimentResult, StateCount, ZoneRange};
use zonda_workload::{
    EndReason, Finding, JobResult, JobSample, LatencySummary, RequestKind, Sample, VerifyError, VerifyErrors,
};

use super::html;
use crate::results::{ClientCost, LiveResult, NamespaceSummary, Subject};

const JOB_FILE: &str = r#"
[drive]
profile = "tiny"

[[drive.layer]]
kind = "fault"
operations = ["read"]
status = "unrecovered read error"
when = { every = 3 }

[run]
seed = 5
sample = "100 us"

[[job]]
name = "fill & <b>\"finish\"</b>"
operation = "write"
block_size = "16 KiB"
zones = "0..3"
finish_at = 0.5

[[job]]
name = "look"
operation = "randread"
queue_depth = 4
zones = "6..8"
operations = 200

[[job]]
name = "tidy"
operation = "reset"
zones = "8..12"
"#;

fn small_run() -> ExperimentResult {
    let experiment =
        Experiment::parse(JOB_FILE, &crate::files::BUILTIN_PROFILES).map_err(|error| error.error.message).unwrap();
    experiment.run(&mut |_| {})
}

/// The page of a changed result, after checks that apply to every page.
fn checked_page(result: &ExperimentResult) -> String {
    let page = html(JOB_FILE, Subject::Simulated(result));
    assert_well_formed(&page);
    assert_self_contained(&page);
    let mut words = page.split(|character: char| !character.is_ascii_alphanumeric());
    assert_eq!(words.find(|word| matches!(*word, "NaN" | "inf" | "Infinity")), None);
    for job in &result.run.jobs {
        assert!(page.contains(&escape(&job.name)), "no job {}", job.name);
    }
    page
}

/// Asserts that tags are balanced, and that IDs of elements are unique and references to them
/// valid.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let (mut ids, mut references) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = page.strip_prefix("<!doctype html>").unwrap();
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "a tag in a tag: {tag}");
        assert!(tag.matches('"').count().is_multiple_of(2), "a quote is open: {tag}");
        let name = tag.split([' ', '\n', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in the wrong order");
        } else if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
        for id in attribute(tag, "id") {
            assert!(ids.insert(id), "two elements are called {id}");
        }
        references.extend(attribute(tag, "aria-labelledby").flat_map(str::split_ascii_whitespace));
        references.extend(attribute(tag, "fill").filter_map(|fill| fill.strip_prefix("url(#")?.strip_suffix(')')));
        rest = &rest[end + 1..];
        // What is in a style sheet is no markup.
        if name == "style" && !tag.starts_with('/') {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "never closed");
    assert_eq!(references.difference(&ids).collect::<Vec<_>>(), Vec::<&&str>::new(), "nothing has this name");
}

fn attribute<'a>(tag: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = tag.find(&format!(" {name}=\"")).map(|place| place + name.len() + 3);
    start.map(|start| tag[start..].split('"').next().unwrap()).into_iter()
}

fn assert_self_contained(page: &str) {
    for forbidden in ["<script", "http:", "https:", " src=", " href=", "@import", "url(//", "<link"] {
        assert!(!page.contains(forbidden), "the page has {forbidden}");
    }
}

#[test]
fn the_page_has_the_figures_of_the_run() {
    let result = small_run();
    let page = checked_page(&result);
    for job in &result.run.jobs {
        for figures in &job.kinds {
            let LatencySummary { mean_ns, p50_ns, p95_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns, .. } = figures.latency;
            let times = [mean_ns, p50_ns, p95_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns];
            let cells: String = times.map(|time| format!("<td>{}</td>", duration(time))).concat();
            assert!(page.contains(&cells), "no latencies of {}", job.name);
            assert!(page.contains(&format!("<td>{}</td>", count(figures.operations))));
        }
    }
    assert!(result.run.jobs[1].error_count() > 0, "the fault layer injects errors");
    assert!(page.contains("<td class=\"words\">unrecovered read error</td>"));
    assert!(page.contains(">A drive small enough to show completely</h1>"));
    assert!(page.contains("<dt>Seed</dt><dd>5</dd>"));
    assert!(page.contains(&format!("<b>{:.2}</b>", result.drive.dlwa)), "DLWA {}", result.drive.dlwa);
    assert!(page.contains("<title>zone 0: full, 50.0% written</title>"), "finished half written");
    assert!(page.contains("<title>zone 9: empty, 0% written</title>"), "reset");
    assert!(page.contains("Layers around the drive"));
    for title in ["Bandwidth", "IOPS", "Mean latency", "99th percentile of latency"] {
        assert!(
            page.contains(&format!("<h3>{title} over time</h3>\n<div class=\"drawing\"><svg")),
            "no chart of {title}"
        );
    }
}

#[test]
fn the_same_result_gives_the_same_page() {
    let page = || html(JOB_FILE, Subject::Simulated(&small_run()));
    assert_eq!(page(), page());
}

#[test]
fn names_and_the_job_file_are_escaped() {
    let page = checked_page(&small_run());
    assert!(!page.contains("<b>\"finish"));
    assert!(page.contains("fill &amp; &lt;b&gt;&quot;finish&quot;&lt;/b&gt;"));
    assert!(page.contains("name = &quot;fill &amp; &lt;b&gt;\\&quot;finish"));
    let mut result = small_run();
    result.drive.title = "</title><script>".to_owned();
    result.drive.profile = "'\"><img>".to_owned();
    assert!(checked_page(&result).contains("&lt;/title&gt;&lt;script&gt;"));
}

#[test]
fn a_run_without_jobs_samples_and_time_has_a_page() {
    let mut result = small_run();
    result.run.jobs.clear();
    result.run.series.clear();
    (result.run.elapsed_ns, result.run.drained_ns) = (0, 0);
    let page = checked_page(&result);
    assert!(page.contains("No jobs.") && page.contains("No time passed."));
    assert_eq!(page.matches("Nothing to draw.").count(), 5);
}

#[test]
fn a_job_that_completed_nothing_has_a_row() {
    let mut result = small_run();
    result.run.jobs[1].kinds.clear();
    for sample in &mut result.run.series {
        sample.jobs[1] = JobSample::default();
    }
    assert!(checked_page(&result).contains("<td class=\"words\">randread</td><td>0</td><td>–</td>"));
}

#[test]
fn a_single_sample_is_a_point_and_a_sample_without_length_is_left_out() {
    let mut result = small_run();
    let sample = |length_ns| Sample {
        start_ns: 0,
        length_ns,
        jobs: vec![JobSample { operations: 3, bytes: 4096, errors: 0, mean_latency_ns: 0, p99_latency_ns: 0 }; 3],
    };
    result.run.series = vec![sample(result.run.elapsed_ns)];
    let page = checked_page(&result);
    assert!(page.contains("A latency of 0 ns is drawn at 1 ns."));
    result.run.series = vec![sample(0)];
    checked_page(&result);
}

#[test]
fn a_short_last_interval_of_a_series_makes_no_spike() {
    let mut result = small_run();
    let sample = |start_ns, length_ns, bytes| Sample {
        start_ns,
        length_ns,
        jobs: vec![JobSample { operations: 1, bytes, errors: 0, mean_latency_ns: 50, p99_latency_ns: 50 }; 3],
    };
    result.run.series =
        vec![sample(0, 1 << 20, 1 << 20), sample(1 << 20, 1 << 20, 1 << 20), sample(2 << 20, 1, 1 << 20)];
    let page = checked_page(&result);
    assert!(page.contains("look between 954 MiB/s and 1,907 MiB/s."), "not a million GiB/s");
}

#[test]
fn long_series_and_many_jobs_are_reduced_and_the_page_says_so() {
    let mut result = small_run();
    let job = result.run.jobs[1].clone();
    result.run.jobs = (0..256).map(|index| JobResult { name: format!("job <{index}>"), ..job.clone() }).collect();
    let jobs =
        vec![
            JobSample { operations: 9, bytes: 9 << 12, errors: 0, mean_latency_ns: 80_000, p99_latency_ns: 99_000 };
            256
        ];
    result.run.series =
        (0..2_000).map(|index| Sample { start_ns: index * 1000, length_ns: 1000, jobs: jobs.clone() }).collect();
    result.run.series_is_cut = true;
    let page = checked_page(&result);
    assert!(page.contains("The charts show the 8 of 256 jobs with the most operations"));
    assert!(page.contains("248 other jobs together") && page.contains("and 248 more"));
    assert!(page.contains("is the mean of 34 intervals") && page.contains("truncated"));
    assert!(page.len() < 600_000, "{} bytes", page.len());
}

#[test]
fn figures_at_their_limits_do_not_break_the_page() {
    let mut result = small_run();
    let wildest = LatencySummary { count: u64::MAX, mean_ns: u64::MAX, max_ns: u64::MAX, ..LatencySummary::default() };
    let job = &mut result.run.jobs[1];
    job.ended_by = EndReason::TimeStoodStill;
    job.kinds[0].kind = RequestKind::Append;
    job.kinds[0].bandwidth_bytes_per_second = f64::INFINITY;
    job.kinds[0].iops = f64::NAN;
    job.kinds[0].latency = wildest;
    result.drive.dlwa = f64::NAN;
    result.drive.utilisation.firmware_busy_ns = vec![u64::MAX / 2];
    result.drive.utilisation.die_busy_ns = vec![result.run.drained_ns * 2; 4096];
    result.drive.utilisation.channel_busy_ns.clear();
    let page = checked_page(&result);
    assert!(page.contains("dies, 32 in a bar") && page.contains("time does not advance on this device"));
}

#[test]
fn a_page_has_a_map_of_ten_million_zones_and_none_without_zones() {
    let mut result = small_run();
    result.drive.zones = vec![
        ZoneRange { first: 0, count: 9_999_999, state: "empty".to_owned(), written_blocks: 0 },
        ZoneRange { first: 9_999_999, count: 1, state: "offline".to_owned(), written_blocks: 0 },
    ];
    result.drive.zones_by_state = vec![
        StateCount { state: "empty".to_owned(), zones: 9_999_999 },
        StateCount { state: "offline".to_owned(), zones: 1 },
    ];
    let page = checked_page(&result);
    assert!(page.contains("Each square is 5,000 neighboring zones"));
    assert!(page.contains("zones 9,995,000 to 9,999,999: 1 offline and 4,999 empty, 0% written"));
    assert!(page.len() < 500_000, "{} bytes", page.len());

    result.drive.zones.clear();
    result.drive.zones_by_state.clear();
    assert!(checked_page(&result).contains("The drive has no zones."));
    result.drive.zone_capacity_blocks = 0;
    result.drive.zones = vec![ZoneRange { first: 0, count: 1, state: "full".to_owned(), written_blocks: 0 }];
    checked_page(&result);
}

#[test]
fn a_drive_that_programmed_nothing_has_no_bar() {
    let mut result = small_run();
    result.drive.counters = zonda_ssd::Counters::default();
    let page = checked_page(&result);
    assert!(page.contains("The host wrote 0 B") && !page.contains("bytes-title"));
}

#[test]
fn blocks_that_failed_verification_are_shown_at_the_top_and_in_a_table() {
    let mut result = small_run();
    result.run.verified_blocks = Some(4321);
    assert!(checked_page(&result).contains("<dt>Verified</dt><dd><b>4,321</b> blocks<small>no mismatch"));
    let first = VerifyError { lba: 77, zone: 6, at_ns: 5_000, found: Finding::Damaged };
    result.run.jobs[1].verify_errors = Some(VerifyErrors { blocks: 3, first });
    result.run.jobs[1].ended_by = EndReason::Refused;
    let page = checked_page(&result);
    assert!(page.contains("<em>3 blocks failed verification.</em>"));
    assert!(page.contains("<em>3 wrong</em>"));
    assert!(page.contains("<td>3</td><td class=\"words\">block 77 of zone 6: a damaged block</td>"));
    assert!(page.contains("the device accepted no command for 30 s"));
}

#[test]
fn a_run_in_real_time_has_a_page_without_a_model() {
    let ExperimentResult { run, drive, .. } = small_run();
    let namespace = NamespaceSummary {
        block_size_bytes: drive.block_size_bytes,
        zone_capacity_blocks: drive.zone_capacity_blocks,
        max_active_zones: None,
        max_open_zones: Some(3),
        zones_by_state: drive.zones_by_state,
        zones: drive.zones,
    };
    let client = ClientCost { cpu_ns: 9_000_000, requests: 1000 };
    let result = LiveResult::new("drives/<a>".to_owned(), run, namespace, client);
    let page = html(JOB_FILE, Subject::Live(&result));
    assert_well_formed(&page);
    assert_self_contained(&page);
    for part in
        ["<h1>drives/&lt;a&gt;</h1>", "of real time on drives/&lt;a&gt;", "<dt>Real time</dt>", "<b>9.00 us</b>"]
    {
        assert!(page.contains(part), "{part} is missing");
    }
    for part in ["DLWA", "irtual", "give the same figures"] {
        assert!(!page.contains(part), "{part} is present");
    }
}

#[test]
fn the_pool_has_a_section_with_its_charts_and_the_shares_of_its_namespaces() {
    let file = r#"
[drive]
profile = "ezns-small"

[elastic]

[[elastic.namespace]]
name = "db & co"
zones = 8
active = 16

[[elastic.namespace]]
name = "log"
zones = 4
active = 16
weight = 2

[run]
time = "20 ms"
sample = "2 ms"

[[job]]
name = "writer"
namespace = "db & co"
operation = "write"
block_size = "256 KiB"
"#;
    let experiment = Experiment::parse(file, &crate::files::BUILTIN_PROFILES).map_err(|error| error.error.message);
    let result = experiment.unwrap().run(&mut |_| {});
    let page = checked_page(&result);
    let section = page.split("<h2 id=\"pool\">").nth(1).expect("the page has a section of the pool");
    let section = section.split("</section>").next().unwrap();
    for part in ["<th scope=\"row\">db &amp; co</th>", "<th scope=\"row\">log</th>", "available-zones", "spares-in-use"]
    {
        assert!(section.contains(part), "{part} is not in\n{section}");
    }
    let pool = result.elastic.expect("the run has a pool");
    let essentials: Vec<u32> = pool.namespaces.iter().map(|namespace| namespace.essentials).collect();
    assert_eq!(essentials, [42, 85], "128 essentials by weight");
    assert!(section.contains("<td>42</td>") && section.contains("<td>85</td>"), "{section}");
    assert_eq!(pool.series.len(), 11, "ten intervals of 2 ms and the end");
    assert!(pool.series.iter().all(|sample| sample.namespaces.len() == 2));
}
