//! `zonda volume`, `zonda member`, and a server of a volume.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::server::Server;
use super::{
    Scratch, assert_golden, json_in, output_in, refused_in, scratch, wait_for, wait_until, without_numbers, zonda_in,
};

/// Five drives, four members and a spare of a volume.
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

/// A job for the volume, that verifies what it wrote: some segments, however fast the machine is.
const JOB: &str = "[run]\nverify = true\n\n[[job]]\noperation = \"randwrite\"\nblock_size = \"16 KiB\"\nqueue_depth = 4\nbytes = \"6 MiB\"\n";

#[test]
fn a_volume_is_created_and_shown() {
    let directory = make_volume("volume");
    assert_golden("volume_new.txt", &create(&directory));
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!((&report["state"], &report["scheme"]), (&"healthy".into(), &"RAID 5 (3+1)".into()));
    assert_eq!(report["spares"][0], "../drives/e");
    let refused = refused_in(&directory, &["zone", "report", "vol"]);
    assert!(refused.contains("a volume has no zones: zonda volume status vol"), "{refused}");
    // Nor does what its server exports, or a run of jobs.
    let server = Server::start(&directory, &["vol"]);
    let zones = output_in(&directory, &["zone", "report", server.url(0)]);
    assert!(zones.ends_with(" MiB, conventional: random writes, no zones\n"), "{zones}");
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    let run = output_in(&directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--quiet"]);
    assert!(run.contains("byte limit reached") && !run.contains("conventional"), "{run}");
    server.stop();
}

#[test]
fn a_missing_drive_is_replaced_by_the_spare_and_a_scrub_finds_nothing() {
    let directory = make_volume("volume-gone");
    create(&directory);
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    output_in(&directory, &["bench", "job.toml", "--target", "vol", "--yes", "--json", "--quiet"]);
    fs::remove_dir_all(directory.join("drives/b")).expect("it was there");
    let text = output_in(&directory, &["volume", "status", "vol", "--wait", "--assemble"]);
    assert!(text.contains("the spare drives/e replaces member 1"), "{text}");
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!((&report["state"], states(&report)), (&"healthy".into(), vec!["active"; 4]), "{report}");
    let report = json_in(&directory, &["volume", "scrub", "vol", "--json"]);
    assert!(report["last_scrub"]["blocks"].as_u64() > Some(0) && report["last_scrub"]["repaired"] == 0, "{report}");
}

#[test]
fn a_volume_is_managed_while_it_is_served() {
    let directory = make_volume("volume-served");
    create(&directory);
    let server = Server::start(&directory, &["vol"]);
    output_in(&directory, &["member", "fail", "vol", "c"]);
    let report = json_in(&directory, &["volume", "status", "vol", "--wait", "--json"]);
    assert_eq!((&report["state"], &report["members"][2]["at"]), (&"healthy".into(), &"../drives/e".into()), "{report}");
    let refused = refused_in(&directory, &["member", "replace", "vol", "2", "--with", "drives/c"]);
    assert!(refused.contains("member 2 (drives/e) has not failed"), "{refused}");
    output_in(&directory, &["member", "fail", "vol", "0"]);
    let refused = refused_in(&directory, &["member", "fail", "vol", "1"]);
    assert!(refused.contains("the volume cannot lose member 1 (drives/b)"), "{refused}");
    let refused = refused_in(&directory, &["member", "replace", "vol", "0", "--with", "drives/a"]);
    assert!(refused.contains("is not empty") && refused.contains("--force"), "{refused}");
    output_in(&directory, &["member", "replace", "vol", "0", "--with", "drives/a", "--force"]);
    output_in(&directory, &["volume", "spare", "add", "vol", "drives/c", "--force"]);
    let text = output_in(&directory, &["volume", "scrub", "vol"]);
    assert_golden("volume_served.txt", &without_numbers(&text));
    let status = output_in(&directory, &["status", server.http()]);
    assert!(status.contains("RAID 5 (3+1), healthy, can lose 1 more member"), "{status}");
    let metrics = server.get("/metrics");
    for series in [
        "zonda_volume_member{nqn=\"nqn.2026-01.io.zonda:vol\",namespace=\"1\",at=\"../drives/e\",state=\"active\"} 1",
        "zonda_volume_can_lose{nqn=\"nqn.2026-01.io.zonda:vol\",namespace=\"1\"} 1",
        "zonda_volume_lost_blocks{nqn=\"nqn.2026-01.io.zonda:vol\",namespace=\"1\"} 0.0",
        "zonda_volume_suspended{nqn=\"nqn.2026-01.io.zonda:vol\",namespace=\"1\"} 0.0",
    ] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
    let log = server.stop();
    assert!(log.contains("member 2 (drives/c) has failed") && log.contains("is rebuilt"), "{log}");
    assert!(!directory.join("vol/control").exists(), "the socket goes with the server");
    assert_eq!(json_in(&directory, &["volume", "status", "vol", "--json"])["state"], "healthy");
}

#[test]
fn invalid_volumes_are_refused_with_a_remedy() {
    let directory = make_volume("volume-refused");
    let make = |arguments: &[&str]| refused_in(&directory, &[&["volume", "create", "vol"], arguments].concat());
    for (arguments, words) in [
        (&["--members", "drives/a,drives/b", "--level", "5"][..], "RAID 5 needs at least 3 members, not 2"),
        (&["--members", "drives/a,drives/a"], "drive drives/a is given twice"),
        (&["--members", MEMBERS, "--data", "2"], "has 3 data chunks, not 2"),
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
    assert!(refused.contains("drives/a is an image, not a volume"), "{refused}");
    let refused = refused_in(&directory, &["member", "fail", "vol", "z"]);
    assert!(refused.contains("the volume has no member z") && refused.contains("1 (drives/b)"), "{refused}");
    let refused = refused_in(&directory, &["volume", "scrub", "vol", "--detach"]);
    assert!(refused.contains("the volume is not served"), "{refused}");
}

/// Every file below a directory with its contents.
fn contents(directory: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("it can be read")) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read(&path).expect("it can be read")));
        }
    }
    found.sort();
    found
}

#[test]
fn the_status_of_a_volume_that_is_not_served_assembles_and_writes_nothing() {
    let directory = make_volume("volume-look");
    create(&directory);
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    let server = Server::start(&directory, &["vol"]);
    output_in(&directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--json", "--quiet"]);
    // Only assembly recovers from a crash.
    server.kill();
    fs::remove_file(directory.join("vol/control")).expect("a killed server leaves it");
    let before = contents(&directory);
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!((&report["mounted"], &report["state"]), (&false.into(), &"healthy".into()), "{report}");
    assert_eq!((states(&report), &report["spares"][0]), (vec!["active"; 4], &"../drives/e".into()), "{report}");
    assert!(report["volume_bytes"].as_u64() > Some(0) && report["epoch"].is_u64(), "{report}");
    assert!(report.get("live_bytes").is_none() && report["members"][0].get("free_zones").is_none(), "{report}");
    let text = output_in(&directory, &["volume", "status", "vol"]);
    assert_golden("volume_not_assembled.txt", &without_numbers(&text));
    assert!(contents(&directory) == before, "volume status has changed a file");
    fs::remove_dir_all(directory.join("drives/b")).expect("it was there");
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!((&report["state"], &report["can_lose"]), (&"degraded".into(), &0.into()), "{report}");
    assert_eq!(states(&report), ["active", "missing", "active", "active"], "no spare has replaced it");
    fs::remove_dir_all(directory.join("drives/c")).expect("it was there");
    let ran = zonda_in(&directory, &["volume", "status", "vol"]);
    assert!(ran.code == Some(1) && ran.stdout.contains("too few members are present"), "{}", ran.stdout);
}

#[test]
fn a_member_of_a_volume_is_protected_from_direct_writes() {
    let directory = make_volume("volume-member");
    create(&directory);
    fs::write(directory.join("job.toml"), "[[job]]\noperation = \"append\"\nzones = \"4..6\"\noperations = 8\n")
        .expect("it can be written");
    for arguments in [
        &["zone", "reset", "drives/a", "--all"][..],
        &["zone", "finish", "drives/a", "0"],
        &["zone", "close", "drives/a", "--all"],
        &["bench", "job.toml", "--target", "drives/a", "--yes", "--quiet"],
        &["serve", "drives/a", "--listen", "127.0.0.1:0", "--http", "off"],
        &["volume", "create", "other", "--members", "drives/a"],
    ] {
        let refused = refused_in(&directory, arguments);
        assert!(refused.contains("member 0 of the volume \"vol\"") && refused.contains("--force"), "{refused}");
    }
    assert_eq!(states(&json_in(&directory, &["volume", "status", "vol", "--json"])), ["active"; 4]);
    // Unless --force is given.
    let server = Server::start(&directory, &["drives/a", "--force"]);
    let refused = refused_in(&directory, &["zone", "reset", server.url(0), "--all"]);
    assert!(refused.contains("member 0 of the volume \"vol\""), "{refused}");
    output_in(&directory, &["zone", "report", server.url(0)]);
    server.stop();
    output_in(&directory, &["bench", "job.toml", "--target", "drives/e", "--yes", "--quiet"]);
    output_in(&directory, &["zone", "reset", "drives/a", "--all", "--force"]);
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!(states(&report), ["failed", "active", "active", "active"], "{report}");
}

#[test]
fn an_active_member_cannot_replace_another_even_with_force() {
    let directory = make_volume("volume-active");
    let far = Server::start(&directory, &["drives/a"]);
    let members = format!("{},drives/b,drives/c", far.url(0));
    output_in(&directory, &["volume", "create", "vol", "--members", &members]);
    let _server = Server::start(&directory, &["vol"]);
    output_in(&directory, &["member", "fail", "vol", "1"]);
    let elsewhere = far.url(0).replace("127.0.0.1", "localhost");
    for with in [far.url(0), &elsewhere, "drives/c"] {
        for command in [&["member", "replace", "vol", "1", "--with"][..], &["volume", "spare", "add", "vol"]] {
            let refused = refused_in(&directory, &[command, &[with, "--force"]].concat());
            assert!(refused.contains("of this volume"), "{with}: {refused}");
        }
    }
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!(states(&report), ["active", "failed", "active"], "{report}");
}

#[test]
fn a_drive_under_two_names_is_refused_as_two_members_or_spares() {
    let directory = make_volume("volume-names");
    let far = Server::start(&directory, &["drives/e"]);
    let (one, other) = (far.url(0).to_owned(), far.url(0).replace("127.0.0.1", "localhost"));
    let both = format!("{one},{other}");
    let refused = refused_in(&directory, &["volume", "create", "vol", "--members", &both, "--level", "1"]);
    assert!(refused.contains("are the same drive"), "{refused}");
    let members = "drives/a,drives/b,drives/c";
    let new = ["volume", "create", "vol", "--members", members, "--spare", &one];
    let refused = refused_in(&directory, &[&new[..], &["--spare", &other]].concat());
    assert!(refused.contains("are the same drive"), "{refused}");
    output_in(&directory, &new);
    {
        let server = Server::start(&directory, &["vol"]);
        for force in [&[][..], &["--force"]] {
            let refused = refused_in(&directory, &[&["volume", "spare", "add", "vol", &other], force].concat());
            assert!(refused.contains("of this volume, at another address"), "{refused}");
        }
        server.stop();
    }
    // The same by hand: the second name stays a name of the drive that has become a member.
    let file = directory.join("vol/volume.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    let second = text.replace(&format!("\"{one}\""), &format!("\"{other}\""));
    let table = second.split("[[spare]]").nth(1).expect("it has a spare").to_owned();
    fs::write(&file, format!("{text}\n[[spare]]{table}")).expect("the disk has space");
    let server = Server::start(&directory, &["vol"]);
    fs::write(directory.join("job.toml"), JOB).expect("the disk has space");
    output_in(&directory, &["bench", "job.toml", "--target", server.url(0), "--yes"]);
    output_in(&directory, &["member", "fail", "vol", "0"]);
    output_in(&directory, &["volume", "status", "vol", "--wait"]);
    output_in(&directory, &["member", "fail", "vol", "1"]);
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!(states(&report), ["active", "failed", "active"], "{report}");
    assert_eq!((&report["lost_blocks"], &report["can_lose"]), (&0.into(), &0.into()), "{report}");
    server.stop();
}

#[test]
fn a_copy_of_a_volume_s_directory_is_refused_by_each_command_while_the_volume_is_served() {
    let directory = make_volume("volume-copy");
    create(&directory);
    let _server = Server::start(&directory, &["vol"]);
    fs::create_dir(directory.join("copy")).expect("the disk has space");
    for name in ["volume.toml", "lock"] {
        fs::copy(directory.join("vol").join(name), directory.join("copy").join(name)).expect("the disk has space");
    }
    for arguments in [
        &["volume", "status", "copy"][..],
        &["volume", "status", "copy", "--wait"],
        &["volume", "status", "copy", "--wait", "--assemble"],
        &["volume", "scrub", "copy"],
        &["volume", "rates", "copy"],
        &["volume", "spare", "add", "copy", "drives/none"],
        &["volume", "spare", "remove", "copy", "drives/e"],
        &["member", "fail", "copy", "0"],
        &["member", "replace", "copy", "0", "--with", "drives/e"],
        &["serve", "copy", "--listen", "127.0.0.1:0", "--http", "off"],
        &["zone", "reset", "drives/a", "--all", "--force"],
    ] {
        let refused = refused_in(&directory, arguments);
        assert!(refused.contains("drives/a is in use by another program"), "{arguments:?}: {refused}");
    }
}

#[test]
fn older_members_are_served_once_they_are_accepted_for_one_volume() {
    let directory = make_volume("volume-older");
    create(&directory);
    let file = directory.join("vol/volume.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    let line = text.lines().find(|line| line.starts_with("epoch = ")).expect("the epoch is kept");
    fs::write(&file, text.replace(line, "epoch = 1000")).expect("the disk has space");
    let serve = |arguments: &[&str]| {
        refused_in(&directory, &[&["serve", "--listen", "127.0.0.1:0", "--http", "off"], arguments].concat())
    };
    let refused = serve(&["vol"]);
    assert!(refused.contains("has reached 1000") && refused.contains("--accept-older"), "{refused}");
    let refused = serve(&["vol", "--accept-losses"]);
    assert!(refused.contains("has reached 1000"), "each risk is accepted separately: {refused}");
    let refused = serve(&["drives/e", "--force", "--accept-older"]);
    assert!(refused.contains("0 volumes are to be served"), "{refused}");
    let log = Server::start(&directory, &["vol", "--accept-older"]).stop();
    assert!(log.contains("older members are accepted: the volume had reached epoch 1000"), "{log}");
    Server::start(&directory, &["vol"]).stop();
}

#[test]
fn the_exit_code_of_a_check_shows_whether_the_volume_can_be_assembled_and_no_file_changes() {
    let directory = make_volume("volume-check");
    create(&directory);
    let server = Server::start(&directory, &["vol"]);
    let refused = refused_in(&directory, &["volume", "check", "vol"]);
    assert!(refused.contains("in use by a server") && refused.contains("zonda volume scrub"), "{refused}");
    let refused = refused_in(&directory, &["volume", "status", "none", "--lost"]);
    assert!(refused.contains("there is no volume in none"), "{refused}");
    let text = output_in(&directory, &["volume", "status", "vol", "--lost"]);
    assert!(text.ends_with("no lost blocks\n"), "{text}");
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    output_in(&directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--json", "--quiet"]);
    server.stop();
    let refused = refused_in(&directory, &["volume", "status", "vol", "--lost"]);
    assert!(refused.contains("zonda volume check"), "{refused}");
    let check = || {
        let before = contents(&directory);
        let ran = zonda_in(&directory, &["volume", "check", "vol", "--json"]);
        assert!(contents(&directory) == before, "a check has changed a file");
        let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
        (ran.code, report)
    };
    let (code, report) = check();
    assert_eq!((code, &report["wrong_blocks"], &report["lost_blocks"]), (Some(0), &0.into(), &0.into()), "{report}");
    assert!(report["blocks"].as_u64() > Some(0), "{report}");
    for drive in ["a", "c"] {
        fs::remove_dir_all(directory.join("drives").join(drive)).expect("it was there");
    }
    let (code, report) = check();
    assert!(
        code == Some(1) && report["refusal"][0].as_str().is_some_and(|text| text.contains("it can lose at most 1"))
    );
}

#[test]
fn a_check_reads_members_that_are_namespaces_of_servers_and_reserves_and_writes_nothing() {
    let directory = make_volume("volume-check-remote");
    let far = Server::start(&directory, &["drives/b", "drives/c"]);
    let members = format!("drives/a,{},{}", far.url(0), far.url(1));
    output_in(&directory, &["volume", "create", "vol", "--level", "5", "--members", &members]);
    let server = Server::start(&directory, &["vol"]);
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    output_in(&directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--json", "--quiet"]);
    // Another directory of the volume, on another machine.
    fs::create_dir(directory.join("copy")).expect("it is new");
    fs::copy(directory.join("vol/volume.toml"), directory.join("copy/volume.toml")).expect("the disk has space");
    let text = fs::read_to_string(directory.join("copy/volume.toml")).expect("it was copied");
    let text: String =
        text.lines().filter(|line| !line.starts_with("host = ")).map(|line| line.to_owned() + "\n").collect();
    let without_owner = text.split("\n[owner]").next().expect("it has a first part").to_owned();
    let members_of = text.find("[[member]]").map_or("", |at| &text[at..]);
    let text = if without_owner.contains("[[member]]") { without_owner } else { without_owner + "\n" + members_of };
    fs::write(directory.join("copy/volume.toml"), text).expect("the disk has space");
    let refused = refused_in(&directory, &["volume", "check", "copy"]);
    assert!(refused.contains("in use"), "{refused}");
    server.stop();
    let before = contents(&directory);
    let ran = zonda_in(&directory, &["volume", "check", "vol", "--json"]);
    assert!(contents(&directory) == before, "a check has changed a file");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
    assert_eq!(
        (ran.code, &report["wrong_blocks"], &report["lost_blocks"]),
        (Some(0), &0.into(), &0.into()),
        "{report}"
    );
    assert!(report["blocks"].as_u64() > Some(0) && states(&report) == ["active"; 3], "{report}");
    far.stop();
    let ran = zonda_in(&directory, &["volume", "check", "vol", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
    assert!(ran.code == Some(1) && states(&report) == ["active", "missing", "missing"], "{report}");
}

#[test]
fn a_lost_directory_is_recreated_from_the_drives() {
    let directory = make_volume("volume-import");
    create(&directory);
    let text = output_in(&directory, &["member", "fail", "vol", "3"]);
    assert!(text.contains("degraded") && text.contains("spare"), "no rebuild is started without a request: {text}");
    output_in(&directory, &["volume", "status", "vol", "--wait", "--assemble"]);
    fs::remove_dir_all(directory.join("vol")).expect("it was there");
    let dry = ["volume", "import", "vol", "--scan", "drives", "--dry-run"];
    let before = contents(&directory);
    let report = json_in(&directory, &[&dry[..], &["--json"]].concat());
    assert_eq!((&report["written"], &report["scheme"]), (&false.into(), &"RAID 5 (3+1)".into()), "{report}");
    // The spare has taken the place of the member that failed.
    assert_eq!((states(&report), &report["members"][3]["at"]), (vec!["active"; 4], &"../drives/e".into()), "{report}");
    assert!(report["ignored"][0]["reason"].as_str().is_some_and(|text| text.contains("another drive is member 3")));
    let text = output_in(&directory, &dry);
    assert!(text.contains("was not written") && text.contains("excluded:"), "{text}");
    assert!(contents(&directory) == before, "nothing is written");
    let refused = refused_in(&directory, &["volume", "import", "vol", "--members", "drives/a,drives/b"]);
    assert!(refused.contains("too few members: 2 of 4") && refused.contains("(id "), "{refused}");
    let drives = "drives/e,drives/c,drives/b,drives/a";
    output_in(&directory, &["volume", "import", "vol", "--members", drives]);
    let server = Server::start(&directory, &["vol"]);
    let refused = refused_in(&directory, &["volume", "import", "other", "--members", drives]);
    assert!(refused.contains("drives/e is in use by another program"), "{refused}");
    let refused = refused_in(&directory, &["volume", "import", "other", "--scan", "drives"]);
    assert!(refused.contains("in use by another program, and not read"), "{refused}");
    server.stop();
    assert_eq!(json_in(&directory, &["volume", "status", "vol", "--json"])["state"], "healthy");
    let refused = refused_in(&directory, &["volume", "import", "vol", "--members", drives]);
    assert!(refused.contains("holds a volume already"), "{refused}");
    // One member is remote now.
    fs::remove_dir_all(directory.join("vol")).expect("it was there");
    let far = Server::start(&directory, &["drives/c", "--force"]);
    let drives = format!("drives/b,{},drives/a,drives/e", far.url(0));
    let report = json_in(&directory, &["volume", "import", "vol", "--members", &drives, "--json"]);
    assert_eq!((&report["members"][2]["at"], states(&report)), (&far.url(0).into(), vec!["active"; 4]), "{report}");
    assert_eq!(json_in(&directory, &["volume", "status", "vol", "--json"])["state"], "healthy");
}

#[test]
fn a_side_is_chosen_for_one_start_and_later_starts_need_no_option() {
    let directory = make_volume("volume-side");
    let file = directory.join("vol/volume.toml");
    output_in(&directory, &["volume", "create", "vol", "--members", "drives/a,drives/b"]);
    let before = fs::read(&file).expect("it is there");
    for drive in ["a", "b"] {
        fs::write(&file, &before).expect("the disk has space");
        fs::rename(directory.join("drives").join(drive), directory.join("away")).expect("it is there");
        Server::start(&directory, &["vol"]).stop();
        fs::rename(directory.join("away"), directory.join("drives").join(drive)).expect("it is there");
    }
    let serve = ["serve", "vol", "--listen", "127.0.0.1:0", "--http", "off"];
    let refused = refused_in(&directory, &serve);
    assert!(refused.contains("split brain: drives/") && refused.contains("--keep-side MEMBER"), "{refused}");
    let ran = zonda_in(&directory, &["volume", "status", "vol"]);
    assert!(ran.code == Some(1) && ran.stdout.contains("incomplete, split brain: drives/"), "{}", ran.stdout);
    let refused = refused_in(&directory, &[&serve[..], &["--keep-side", "c"]].concat());
    assert!(refused.contains("the volume has no member c"), "{refused}");
    let log = Server::start(&directory, &["vol", "--accept-side", "b"]).stop();
    assert!(log.contains("member 0 (drives/a, epoch ") && log.contains("is treated as failed"), "{log}");
    let server = Server::start(&directory, &["vol"]);
    let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!(states(&report), ["failed", "active"], "{report}");
    output_in(&directory, &["member", "replace", "vol", "a", "--with", "drives/a", "--force"]);
    server.stop();
    assert_eq!(json_in(&directory, &["volume", "status", "vol", "--json"])["state"], "healthy");
}

#[test]
fn waiting_for_a_volume_that_is_not_served_changes_nothing_without_assemble() {
    let directory = make_volume("volume-wait");
    create(&directory);
    output_in(&directory, &["volume", "rates", "vol", "--rebuild", "4KiB/s"]);
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    let server = Server::start(&directory, &["vol"]);
    output_in(&directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--json", "--quiet"]);
    output_in(&directory, &["member", "fail", "vol", "b"]);
    wait_until("member 1 is rebuilding", || {
        let report = json_in(&directory, &["volume", "status", "vol", "--json"]);
        states(&report)[1] == "rebuilding"
    });
    server.kill();
    fs::remove_file(directory.join("vol/control")).expect("a killed server leaves it");
    let before = contents(&directory);
    let refused = refused_in(&directory, &["volume", "status", "vol", "--wait"]);
    assert!(refused.contains("the volume is not served") && refused.contains("--wait --assemble"), "{refused}");
    assert!(contents(&directory) == before, "nothing is written");
}

#[test]
fn rates_are_shown_and_set_separately_and_logged() {
    let directory = make_volume("volume-rates");
    create(&directory);
    let rates = |arguments: &[&str]| output_in(&directory, &[&["volume", "rates", "vol"], arguments].concat());
    assert_eq!(rates(&[]), "vol\n  rebuild    unlimited (default)\n  scrub      64 MiB/s (default)\n");
    assert_eq!(rates(&["--rebuild", "10MiB/s"]), "vol\n  rebuild    10 MiB/s\n  scrub      64 MiB/s (default)\n");
    let server = Server::start(&directory, &["vol"]);
    let both = "vol\n  rebuild    10 MiB/s\n  scrub      20 MiB/s\n";
    assert_eq!((rates(&["--scrub", "20MiB/s"]).as_str(), rates(&[]).as_str()), (both, both));
    let report = json_in(&directory, &["volume", "rates", "vol", "--rebuild", "default", "--json"]);
    assert_eq!((report.get("rebuild"), &report["scrub"]), (None, &"20 MiB/s".into()));
    let refused = refused_in(&directory, &["volume", "create", "other", "--members", MEMBERS]);
    assert!(refused.contains("in use"), "{refused}");
    let log = server.stop();
    assert!(log.contains("vol: request: set rates: rebuild unchanged, scrub 20 MiB/s"), "{log}");
    assert!(!log.contains("Some("), "{log}");
    let refused = refused_in(&directory, &["volume", "create", "other", "--members", MEMBERS]);
    assert!(refused.contains("zonda volume import"), "{refused}");
    fs::remove_dir_all(directory.join("drives/b")).expect("it exists");
    let log = Server::start(&directory, &["vol"]).stop();
    assert!(log.contains("member 1 (drives/b) is missing") && !log.contains("drive create"), "{log}");
}

/// Waits until the report of a served volume satisfies the condition.
fn status_until(directory: &Path, holds: impl Fn(&Value) -> bool) -> Value {
    wait_for(Duration::from_secs(40), || {
        let report = json_in(directory, &["volume", "status", "vol", "--json"]);
        if holds(&report) { Ok(report) } else { Err(report) }
    })
}

#[test]
fn a_member_is_readded_after_a_restart_of_its_server_but_not_after_a_failure_by_command() {
    let directory = make_volume("volume-returns");
    let far = Server::start(&directory, &["drives/b"]);
    let url = far.url(0).to_owned();
    let port = url.split(['/', ':']).find_map(|part| part.parse::<u16>().ok()).expect("it has a port");
    output_in(&directory, &["volume", "create", "vol", "--members", &format!("drives/a,{url},drives/c")]);
    fs::write(directory.join("job.toml"), JOB).expect("it can be written");
    let server = Server::start(&directory, &["vol"]);
    let bench =
        || output_in(&directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--json", "--quiet"]);
    bench();
    far.kill();
    bench();
    let report = status_until(&directory, |report| states(report)[1] == "failed");
    assert_eq!((&report["members"][1]["failed"], &report["state"]), (&"errors".into(), &"degraded".into()));
    let far = Server::start(&directory, &["drives/b", "--force", "--listen", &format!("127.0.0.1:{port}")]);
    status_until(&directory, |report| report["state"] == "healthy");
    output_in(&directory, &["member", "fail", "vol", "1"]);
    let text = output_in(&directory, &["volume", "status", "vol"]);
    assert!(text.contains("failed (by command)"), "{text}");
    bench();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(states(&json_in(&directory, &["volume", "status", "vol", "--json"]))[1], "failed");
    let refused = refused_in(&directory, &["member", "re-add", "vol", "0"]);
    assert!(refused.contains("member 0 (drives/a) has not failed"), "{refused}");
    let report = json_in(&directory, &["member", "re-add", "vol", "1", "--json"]);
    assert_eq!((&report["state"], states(&report)), (&"healthy".into(), vec!["active"; 3]));
    output_in(&directory, &["member", "fail", "vol", "2"]);
    bench();
    let log = server.stop();
    assert!(log.contains("is back: resynchronizing") && log.contains("is re-added: resynchronizing"), "{log}");
    far.stop();
}
