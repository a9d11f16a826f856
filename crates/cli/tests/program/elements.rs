//! Images with storage elements: shown, served, killed, and opened without the file of elements.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use super::images::without_uuid;
use super::server::Server;
use super::{assert_golden, file, json_in, output_in, refused_in, scratch};

/// Three quarters of zone 0.
const FILL: &str = "[[job]]\noperation = \"append\"\nblock_size = \"32 KiB\"\nzones = \"0..2\"\nbytes = \"1184 KiB\"\n";

/// Makes a small image in `drives/e`, its zones of 1.5 MiB on an erase block of each of four dies.
fn make_image(directory: &Path) -> String {
    output_in(directory, &["drive", "create", "drives/e", "--profile", "tiny", "--allocation", "block"])
}

fn show(directory: &Path) -> Value {
    json_in(directory, &["drive", "show", "drives/e", "--json"])
}

#[test]
fn an_image_is_shown_with_its_elements() {
    let directory = scratch("elements");
    let made = make_image(&directory);
    let new = output_in(&directory, &["drive", "show", "drives/e"]);
    let job = file(&directory, "fill.toml", FILL);
    output_in(&directory, &["bench", "--target", "drives/e", &job, "--quiet"]);
    output_in(&directory, &["zone", "finish", "drives/e", "0"]);
    output_in(&directory, &["zone", "finish", "drives/e", "2"]);
    let used = output_in(&directory, &["drive", "show", "drives/e"]);
    output_in(&directory, &["zone", "reset", "drives/e", "0"]);
    let reset = output_in(&directory, &["drive", "show", "drives/e"]);
    assert_golden("image_elements.txt", &format!("{made}\n{}", without_uuid(&[new, used, reset].join("\n"))));

    let sheet = show(&directory);
    let elements = &sheet["elements"];
    assert_eq!(
        (&elements["policy"], &elements["count"], &elements["per_zone"]),
        (&"block".into(), &64.into(), &4.into())
    );
    std::fs::remove_file(directory.join("drives/e/elements.zonda")).unwrap();
    let text = output_in(&directory, &["drive", "show", "drives/e"]);
    assert!(text.contains("their wear will be reset: elements.zonda is missing"), "{text}");
    assert_eq!(show(&directory)["elements_trouble"], "elements.zonda is missing");
    assert!(!directory.join("drives/e/elements.zonda").exists(), "drive show writes nothing");
}

#[test]
fn elements_are_the_same_after_a_kill() {
    let directory = scratch("elements-kill");
    make_image(&directory);
    let job = file(&directory, "fill.toml", FILL);
    let server = Server::start(&directory, &["drives/e"]);
    output_in(&directory, &["bench", "--target", server.url(0), &job, "--yes", "--quiet"]);
    output_in(&directory, &["zone", "finish", server.url(0), "0"]);
    server.wait_until_alone();
    let namespace = |server: &Server| -> Value {
        let status: Value = serde_json::from_str(&server.get("/status.json")).expect("it is JSON");
        status["subsystems"][0]["namespaces"][0].clone()
    };
    let before = namespace(&server);
    assert!(before["life"]["device_write_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{before}");
    let metrics = server.get("/metrics");
    for series in [
        "zonda_elements{nqn=\"nqn.2026-01.io.zonda:e\",namespace=\"1\",policy=\"block\",state=\"written\"} ",
        "zonda_element_erases_max{",
        "zonda_element_mapping_bytes{",
        "zonda_life_element_erases_total{",
    ] {
        assert!(metrics.contains(series), "no {series} in\n{metrics}");
    }
    assert!(!metrics.contains("zonda_zone_erases_max{"), "wear is counted by element, not by zone");
    let status = output_in(&directory, &["status", server.http()]);
    let line = "elements   block, 4 of 768 KiB per zone: 60 empty, 0 allocated, 4 written, 0 invalid; 0 erases, mapping table 64 B";
    assert!(status.contains(line) && status.contains("0 to 0 erases per element"), "{status}");
    server.signal(Signal::KILL);
    server.wait();

    let mut after = show(&directory);
    assert_eq!(after["clean"], false);
    // What a host has read since the last flush is not counted after a kill.
    let mut before = before;
    before["life"]["host_read_bytes"] = after["life"]["host_read_bytes"].take();
    after["life"]["host_read_bytes"] = before["life"]["host_read_bytes"].clone();
    for key in ["elements", "life"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    let server = Server::start(&directory, &["drives/e", "--timing", "profile"]);
    assert_eq!(namespace(&server)["elements"], before["elements"]);
    let log = server.stop();
    assert!(!log.contains("elements"), "nothing to report: {log}");
    assert_eq!(show(&directory)["elements"], before["elements"]);

    std::fs::write(directory.join("drives/e/elements.zonda"), "a letter").unwrap();
    let server = Server::start(&directory, &["drives/e"]);
    let state = server.greeting["subsystems"][0]["namespaces"][0]["state"].as_str().expect("it is text");
    assert_eq!(state, "last shutdown: clean, storage elements reset");
    server.wait_until_alone();
    let log = server.stop();
    assert!(
        log.contains("the storage elements are reset, and their wear is lost: elements.zonda: it is damaged"),
        "{log}"
    );
}

#[test]
fn invalid_allocations_are_refused() {
    let directory = scratch("elements-mistakes");
    for (kind, part) in
        [("vchunk-3", "3 does not divide"), ("blocks", "did you mean \"block\"?"), ("hchunk-2", "2 does not divide")]
    {
        let refusal = refused_in(&directory, &["drive", "create", "d", "--profile", "tiny", "--allocation", kind]);
        assert!(refusal.contains(part), "{kind}: {refusal}");
    }
    assert!(!directory.join("d").exists());
}
