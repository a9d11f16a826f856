//! `zonda volume`, `zonda member`, and a server that has a volume.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::server::Server;
use super::{Scratch, assert_golden, json_in, output_in, refused_in, scratch, without_numbers, zonda_in};

/// Five drives, the first four of which are a volume.
pub(crate) fn make_volume(name: &str) -> Scratch {
    let directory = scratch(name);
    for drive in ["a", "b", "c", "d", "e"] {
        let place = format!("drives/{drive}");
        let size = ["--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"];
        output_in(&directory, &[&["drive", "create", &place], &size[..]].concat());
    }
    directory
}

const MEMBERS: &str = "drives/a,drives/b,drives/c,drives/d";

pub(crate) fn create(directory: &Path) -> String {
    output_in(directory, &["volume", "create", "vol", "--members", MEMBERS, "--level", "5", "--spare", "drives/e"])
}

fn states(report: &Value) -> Vec<&str> {
    let members = report["members"].as_array().expect("a volume has members");
    members.iter().map(|member| member["state"].as_str().expect("a word")).collect()
}

/// A job for the volume, that verifies what it wrote.
const JOB: &str = "[run]\ntime = \"300 ms\"\nverify = true\n\n[[job]]\noperation = \"randwrite\"\nblock_size = \"16 KiB\"\nqueue_depth = 4\n";

#[test]
fn a_volume_is_made_used_and_shown() {
    let directory = make_volume("volume");
    assert_golden("volume_new.txt", &create(&directory));
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!((&report["state"], &report["scheme"]), (&"well".into(), &"RAID 5 (3+1)".into()));
    assert_eq!(report["spares"][0], "../drives/e");
    let zones = output_in(&directory, &["zone", "report", "vol"]);
    assert!(zones.contains("conventional: written anywhere"), "{zones}");
}

#[test]
fn a_drive_that_is_gone_is_replaced_by_the_spare_and_a_scrub_finds_nothing() {
    let directory = make_volume("volume-gone");
    create(&directory);
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    output_in(&directory, &["bench", "job.toml", "--target", "vol", "--yes", "--json", "--quiet"]);
    fs::remove_dir_all(directory.join("drives/b")).expect("it was there");
    let text = output_in(&directory, &["volume", "status", "vol", "--wait"]);
    assert!(text.contains("the spare ../drives/e takes the place of member 1"), "{text}");
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!((&report["state"], states(&report)), (&"well".into(), vec!["active"; 4]), "{report}");
    let report = json_in(&directory, &["volume", "scrub", "vol", "--json"]);
    assert!(report["last_scrub"]["blocks"].as_u64() > Some(0) && report["last_scrub"]["mended"] == 0, "{report}");
}

#[test]
fn a_volume_is_looked_after_while_a_server_has_it() {
    let directory = make_volume("volume-served");
    create(&directory);
    let server = Server::start(&directory, &["vol"]);
    output_in(&directory, &["member", "fail", "vol", "c"]);
    let report = json_in(&directory, &["volume", "status", "vol", "--wait", "--json"]);
    assert_eq!((&report["state"], &report["members"][2]["at"]), (&"well".into(), &"../drives/e".into()), "{report}");
    let refused = refused_in(&directory, &["member", "replace", "vol", "2", "--with", "drives/c"]);
    assert!(refused.contains("member 2 (../drives/e) has not failed"), "{refused}");
    output_in(&directory, &["member", "fail", "vol", "0"]);
    let refused = refused_in(&directory, &["member", "fail", "vol", "1"]);
    assert!(refused.contains("the volume cannot do without member 1 (../drives/b)"), "{refused}");
    let refused = refused_in(&directory, &["member", "replace", "vol", "0", "--with", "drives/a"]);
    assert!(refused.contains("is not empty") && refused.contains("--force"), "{refused}");
    output_in(&directory, &["member", "replace", "vol", "0", "--with", "drives/a", "--force"]);
    output_in(&directory, &["volume", "spare", "add", "vol", "drives/c", "--force"]);
    let text = output_in(&directory, &["volume", "scrub", "vol"]);
    assert_golden("volume_served.txt", &without_numbers(&text));
    let status = output_in(&directory, &["status", server.http()]);
    assert!(status.contains("RAID 5 (3+1), well, can lose 1 more member"), "{status}");
    let metrics = server.get("/metrics");
    for series in [
        "zonda_volume_member{nqn=\"nqn.2026-01.io.zonda:vol\",namespace=\"1\",at=\"../drives/e\",state=\"active\"} 1",
        "zonda_volume_can_lose{nqn=\"nqn.2026-01.io.zonda:vol\",namespace=\"1\"} 1",
        "zonda_volume_lost_blocks_total{nqn=\"nqn.2026-01.io.zonda:vol\",namespace=\"1\"} 0",
    ] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
    let log = server.stop();
    assert!(log.contains("member 2 (../drives/c) is given up") && log.contains("is rebuilt"), "{log}");
    assert!(!directory.join("vol/control").exists(), "the socket goes with the server");
    assert_eq!(json_in(&directory, &["volume", "status", "vol", "--json"])["state"], "well");
}

#[test]
fn what_a_volume_cannot_be_is_refused_with_a_remedy() {
    let directory = make_volume("volume-refused");
    let make = |arguments: &[&str]| refused_in(&directory, &[&["volume", "create", "vol"], arguments].concat());
    for (arguments, words) in [
        (&["--members", "drives/a,drives/b", "--level", "5"][..], "RAID 5 needs at least 3 members, 2 are named"),
        (&["--members", "drives/a,drives/a"], "drives/a is named twice"),
        (&["--members", MEMBERS, "--data", "2"], "3 hold data, not 2"),
        (&["--members", "drives/a,drives/none"], "drives/none"),
        (&["--members", MEMBERS, "--size", "1TiB"], "the members hold at most"),
    ] {
        let refused = make(arguments);
        assert!(refused.contains(words), "{arguments:?}: {refused}");
        assert!(!directory.join("vol").exists(), "{arguments:?} leaves nothing behind");
    }
    assert_eq!(
        zonda_in(&directory, &["volume", "create", "vol", "--members", "drives/a", "--level", "9"]).code,
        Some(2)
    );
    create(&directory);
    assert!(make(&["--members", MEMBERS]).contains("the directory vol holds a volume already"));
    let refused = refused_in(&directory, &["volume", "create", "other", "--members", MEMBERS]);
    assert!(refused.contains("drives/a is not empty") && refused.contains("--force"), "{refused}");
    let refused = refused_in(&directory, &["volume", "status", "drives/a"]);
    assert!(refused.contains("there is no volume in drives/a"), "{refused}");
    let refused = refused_in(&directory, &["member", "fail", "vol", "z"]);
    assert!(refused.contains("the volume has no member z") && refused.contains("1 (../drives/b)"), "{refused}");
    let refused = refused_in(&directory, &["volume", "scrub", "vol", "--detach"]);
    assert!(refused.contains("no server has the volume"), "{refused}");
}
