//! `zonda advise`: recommendations for workloads.

use std::path::Path;

use super::{assert_golden, file, golden, json_in, output_in, refused_in, scratch, zonda_in};

/// Two threads that create and delete small files.
fn trace() -> String {
    let mut text = "zonda-file-trace 1\n".to_owned();
    for round in 0..40 {
        for thread in 0..2 {
            let name = format!("log-{thread}-{round}");
            text += &format!("{thread} create {name} short\n");
            text += &format!("{thread} append {name} 64KiB\n{thread} sync {name}\n").repeat(4);
            text += &format!("{thread} close {name}\n");
            if round > 1 {
                text += &format!("{thread} delete log-{thread}-{}\n", round - 2);
            }
        }
    }
    text
}

/// Without the line with the elapsed time.
fn without_time(text: &str) -> String {
    let lines = text.lines().filter(|line| !(line.ends_with(" s") && line.contains(" runs in ")));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The output for a workload; checks its page, too.
fn advice_for(directory: &Path, kind: &str) -> String {
    let text = output_in(directory, &["advise", "--workload", kind, "--quiet"]);
    let page = std::fs::read_to_string(directory.join("out/advise/index.html")).expect("there is a page");
    assert!(page.starts_with("<!doctype html>") && !page.contains("http:") && !page.contains("<script"), "{kind}");
    format!("{}\n", without_time(&text))
}

/// For a workload that takes a few seconds; `soak_` tests all.
#[test]
fn the_advice_for_compaction_is_unchanged() {
    let directory = scratch("advise_compaction");
    let text = advice_for(&directory, "compaction");
    assert!(
        golden("advise.txt").contains(&text),
        "this is not in advise.txt, which soak_ writes with ZONDA_UPDATE_GOLDEN=1:\n{text}"
    );
}

#[test]
#[ignore = "soak"]
fn soak_the_advice_for_every_workload_is_unchanged() {
    let directory = scratch("advise_presets");
    let kinds = ["wal", "flush", "compaction", "mixed", "read"];
    // A change that moves a figure shows in this file.
    assert_golden("advise.txt", &kinds.map(|kind| advice_for(&directory, kind)).concat());
}

#[test]
fn advice_for_a_trace_is_deterministic() {
    let directory = scratch("advise_trace");
    file(&directory, "mine.trace", trace());
    let arguments = ["advise", "--trace", "mine.trace", "--geometry", "tiny", "--quiet"];
    let text = output_in(&directory, &arguments);
    assert!(text.contains("For mine.trace on tiny:") && text.contains("[zones]"), "{text}");
    let read = |name: &str| std::fs::read(directory.join("out/advise").join(name)).expect(name);
    let (page, json) = (read("index.html"), read("advice.json"));
    let with = |more: &[&str]| output_in(&directory, &[&arguments[..], more].concat());
    assert_eq!(without_time(&with(&["--threads", "1"])), without_time(&text));
    assert_eq!((read("index.html"), read("advice.json")), (page, json));
    assert!(with(&["--top", "3"]).contains("The 3 best of "));

    let advice = json_in(&directory, &[&arguments[..], &["--workload", "wal", "--json"]].concat());
    assert_eq!((advice["preset"].as_str(), advice["published"]["zones"].as_str()), (Some("wal"), Some("small")));
    let ranking = advice["ranking"].as_array().expect("a list");
    assert!(ranking.len() >= 4, "{}", ranking.len());
    let scores: Vec<f64> = ranking.iter().map(|of| of["score"].as_f64().expect("a number")).collect();
    assert!(scores[1..].is_sorted() && scores[0] <= scores[1] + 0.005, "{scores:?}");
    for of in ranking {
        let costs: f64 = of["costs"].as_array().expect("a list").iter().filter_map(serde_json::Value::as_f64).sum();
        assert!((costs - of["score"].as_f64().expect("a number")).abs() < 1e-9, "{of}");
    }
}

#[test]
fn a_generated_workload_can_be_used_as_a_trace() {
    let directory = scratch("advise_again");
    let advice = |arguments: &[&str]| {
        let shared = ["advise", "--geometry", "tiny", "--workload", "compaction", "--json"];
        json_in(&directory, &[&shared[..], arguments].concat())
    };
    let made = advice(&[]);
    std::fs::copy(directory.join("out/advise/load.trace"), directory.join("load.trace")).expect("the load was written");
    let given = advice(&["--trace", "load.trace"]);
    assert_eq!(made["load_bytes"], given["load_bytes"]);
    assert_eq!(made["ranking"][0]["element"], given["ranking"][0]["element"]);
}

#[test]
fn invalid_input_is_reported_with_its_position() {
    let directory = scratch("advise_refused");
    file(&directory, "bad.trace", "zonda-file-trace 1\n0 create a\n0 append b 8KiB\n");
    let error = refused_in(&directory, &["advise", "--trace", "bad.trace"]);
    assert!(error.contains("bad.trace:3:1") && error.contains("file b does not exist"), "{error}");
    let error = refused_in(&directory, &["advise", "--trace", "none.trace"]);
    assert!(error.contains("cannot read trace none.trace"), "{error}");
    let error = refused_in(&directory, &["advise", "--workload", "wal", "--geometry", "silent-costum"]);
    assert!(error.contains("did you mean \"silent-custom\"?"), "{error}");
    let large = "0 append a 64MiB\n".repeat(4);
    file(&directory, "large.trace", format!("zonda-file-trace 1\n0 create a\n{large}"));
    let error = refused_in(&directory, &["advise", "--trace", "large.trace", "--geometry", "tiny"]);
    assert!(error.contains("does not fit on tiny"), "{error}");
    assert_eq!(zonda_in(Path::new("/"), &["advise"]).code, Some(2), "a load is needed");
    assert_eq!(zonda_in(Path::new("/"), &["advise", "--workload", "logs"]).code, Some(2));
}
