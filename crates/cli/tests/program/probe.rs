//! `zonda probe`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::server::Server;
use super::{assert_golden, json_in, json_of, output_in, output_of, refused_in, scratch, zonda_in};

/// Names and contents of all files of a directory.
fn contents(directory: PathBuf) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(directory).expect("it exists").map(|file| file.expect("it can be listed").path());
    files.map(|path| (path.clone(), std::fs::read(path).expect("it can be read"))).collect()
}

/// An image with 24 zones of 1 MiB in `drive`, of which the first are full.
fn make_drive(directory: &Path, full: u32) {
    let size = ["--zones", "24", "--zone-capacity", "1MiB"];
    output_in(directory, &[&["drive", "create", "drive"], &size[..]].concat());
    if full == 0 {
        return;
    }
    let job = format!("[[job]]\noperation = \"write\"\nblock_size = \"64 KiB\"\nzones = \"0..{full}\"\n");
    std::fs::write(directory.join("fill.toml"), job).expect("the directory is writable");
    output_in(directory, &["bench", "fill.toml", "--target", "drive", "--yes", "--quiet"]);
}

/// Zones in each state.
fn states(directory: &Path) -> Vec<String> {
    let report = json_in(directory, &["zone", "report", "drive", "--json"]);
    let zones = report["zones"].as_array().expect("a list of zones");
    zones.iter().map(|zone| zone["state"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn the_groups_of_a_simulated_drive_are_shown_and_stored_as_they_are_printed() {
    let directory = scratch("probe");
    let arguments = ["probe", "--groups-only", "model:bae-small", "--sample", "100", "--quiet"];
    let ran = zonda_in(&directory, &[&arguments[..], &["--json", "--out", "groups.json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("the table is JSON");
    assert_eq!((&json["groups"], &json["drive"]["serial"]), (&8.into(), &"model:bae-small".into()));
    assert_eq!(json["drive"]["serial_kind"], "profile");
    let stored = std::fs::read_to_string(directory.join("groups.json")).expect("the table was stored");
    let text = output_of(&arguments);
    assert!(text.starts_with("model:bae-small: 8 conflict groups\n"), "{text}");
    assert!(text.contains("inferred from the order of allocation"), "{text}");
    assert_eq!(stored, ran.stdout);
    let refused = refused_in(&directory, &[&arguments[..], &["--out", "groups.json"]].concat());
    assert!(refused.contains("groups.json exists") && refused.contains("--force"), "{refused}");
    output_in(&directory, &[&arguments[..], &["--out", "groups.json", "--force"]].concat());
}

#[test]
fn a_server_schedules_by_the_groups_of_a_simulated_drive() {
    let directory = scratch("probe-scheduled");
    output_in(
        &directory,
        &["probe", "--groups-only", "model:bae-small", "--sample", "64", "--out", "groups.json", "--quiet"],
    );
    let namespace = |profile: &str| {
        format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:a\"\n\
             [[subsystem.namespace]]\nmemory = {{ profile = \"{profile}\" }}\nscheduler = \"interference\"\n\
             groups = \"groups.json\"\n"
        )
    };
    let write = |text: String| std::fs::write(directory.join("zonda.toml"), text).expect("the directory is writable");
    write(namespace("bae-small"));
    Server::start(&directory, &["--config", "zonda.toml"]).stop();
    // Another drive with zones of the same size and number.
    let own = include_str!("../../../profiles/drives/bae-small.toml");
    std::fs::write(directory.join("other.toml"), own.replace("name = \"bae-small\"", "name = \"other\""))
        .expect("it is writable");
    write(namespace("other.toml"));
    let refused = refused_in(&directory, &["serve", "--config", "zonda.toml"]);
    assert!(
        refused.contains("model:bae-small, that of the drive model:other") && refused.contains("probe"),
        "{refused}"
    );
    write(namespace("tiny"));
    let refused = refused_in(&directory, &["serve", "--config", "zonda.toml"]);
    assert!(refused.contains("groups.json"), "the table is of a drive with other zones: {refused}");
}

#[test]
fn a_server_warns_of_a_table_without_a_group_and_uses_it() {
    let directory = scratch("probe-no-groups");
    make_drive(&directory, 0);
    output_in(&directory, &["probe", "--groups-only", "drive", "--budget", "300ms", "--quiet", "--out", "groups.json"]);
    let plan = "[server]\nlisten = [\"127.0.0.1:0\"]\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:a\"\n\
                [[subsystem.namespace]]\nimage = \"drive\"\nscheduler = \"interference\"\ngroups = \"groups.json\"\n";
    std::fs::write(directory.join("zonda.toml"), plan).expect("the directory is writable");
    let log = Server::start(&directory, &["--config", "zonda.toml"]).stop();
    let words = ["groups.json: no zone has a conflict group", "fair round robin", "zonda probe --groups-only DRIVE"];
    assert!(words.iter().all(|words| log.contains(words)), "{log}");
}

#[test]
fn a_drive_of_large_zones_has_one_group() {
    let json = json_of(&["probe", "--groups-only", "model:zn540", "--json", "--quiet"]);
    assert_eq!(json["verdict"], "one-group");
    let text = output_of(&["probe", "--groups-only", "model:tiny", "--quiet"]);
    assert!(text.contains("groups make no sense on this drive"), "{text}");
}

#[test]
fn an_image_is_probed_without_a_change_while_a_server_reads_it() {
    let directory = scratch("probe-read-only");
    make_drive(&directory, 12);
    let before = contents(directory.join("drive"));
    let server = Server::start(&directory, &["--read-only", "drive"]);
    output_in(&directory, &["probe", "--groups-only", "drive", "--budget", "300ms", "--quiet"]);
    let report = json_in(&directory, &["probe", "drive", "--budget", "1s", "--json", "--quiet"]);
    assert_eq!(report["conditions"]["is_destructive"], false);
    let loads = report["findings"].as_array().expect("a list");
    assert!(loads.len() > 5 && loads.iter().all(|load| load["load"]["kind"] == "read"), "{loads:?}");
    assert!(contents(directory.join("drive")) == before);
    server.stop();
}

#[test]
fn a_simulated_drive_has_the_same_report_each_time() {
    let directory = scratch("probe-model");
    let arguments = ["probe", "model:tiny", "--destructive", "--budget", "4s", "--quiet"];
    let out = output_in(&directory, &[&arguments[..], &["--out", "report"]].concat());
    assert_golden("probe_tiny.txt", &out);
    let stored = |name: &str| std::fs::read_to_string(directory.join("report").join(name)).expect("it was written");
    let json = output_in(&directory, &[&arguments[..], &["--json"]].concat());
    assert_eq!(stored("report.json"), json, "the same seed");
    assert_golden("probe_tiny.json", &json.replace("},{\"part\"", "},\n{\"part\""));
    assert_golden("probe_tiny.toml", &stored("zonda.toml"));
    let page = stored("report.html");
    assert!(
        !page.contains("<script") && !page.contains("http:") && !page.contains("https:"),
        "it loads nothing from other servers"
    );
    for words in
        ["Guidelines", "Interference", "At rate limits", "Schedulers", "Recommended configuration", "Conflict groups"]
    {
        assert!(page.contains(words), "{words}");
    }
    let refused = refused_in(&directory, &[&arguments[..], &["--out", "report"]].concat());
    assert!(refused.contains("report/report.html exists") && refused.contains("--force"), "{refused}");
    assert_eq!(stored("report.json"), json, "the older report is as it was");
    output_in(&directory, &[&arguments[..], &["--out", "report", "--force"]].concat());
    let same = output_in(&directory, &["probe", "report/report.json", "--compare", "report/report.json"]);
    assert!(same.contains("no change beyond noise"), "{same}");
    let printed = output_in(&directory, &["probe", "report/report.json", "--json"]);
    assert_eq!(printed, json, "a stored report is printed again");
    output_in(&directory, &["probe", "report/report.json", "--out", "again", "--quiet"]);
    for name in ["report.html", "report.json", "groups.json", "zonda.toml"] {
        let again = std::fs::read_to_string(directory.join("again").join(name)).expect("it was written");
        assert!(again == stored(name), "{name} is written again as it was");
    }
}

#[test]
fn a_namespace_of_a_server_is_written_after_confirmation_and_empty_at_the_end() {
    let directory = scratch("probe-remote");
    make_drive(&directory, 4);
    let server = Server::start(&directory, &["drive"]);
    let url = server.url(0).to_owned();
    let refused = refused_in(&directory, &["probe", &url, "--destructive", "--quiet"]);
    assert!(refused.contains("4.00 MiB of data in zones 0..4 would be lost"), "{refused}");
    let arguments = ["probe", &url, "--destructive", "--yes", "--budget", "3s", "--quiet", "--out", "report"];
    output_in(&directory, &arguments);
    let settings = std::fs::read_to_string(directory.join("report/zonda.toml")).expect("it was written");
    assert!(settings.contains("is a namespace of another server"), "{settings}");
    let zones = json_in(&directory, &["zone", "report", &url, "--json"]);
    let zones = zones["zones"].as_array().expect("a list of zones");
    assert!(zones.iter().all(|zone| zone["state"] == "empty"), "{zones:?}");
    server.stop();
}

#[test]
fn a_report_is_fitted_as_measurements() {
    let directory = scratch("probe-fit");
    output_in(&directory, &["probe", "model:tiny", "--destructive", "--budget", "4s", "--quiet", "--out", "report"]);
    let arguments = ["drive", "fit", "tiny", "--to", "report/report.json", "--tries", "30", "--json", "--quiet"];
    let fit = json_in(&directory, &arguments);
    let measurements = fit["measurements"].as_array().expect("a list");
    let met = measurements.iter().filter(|measurement| measurement["met"] == true).count();
    assert!(measurements.len() >= 8 && met * 10 >= measurements.len() * 7, "{met} of {measurements:#?}");
    std::fs::write(directory.join("damaged.json"), "{\"format\":\"zonda-report\",\"version\":1}").expect("writable");
    let text = refused_in(&directory, &["drive", "fit", "tiny", "--to", "damaged.json"]);
    assert!(text.contains("damaged.json"), "{text}");
}

#[test]
fn another_drive_differs_from_an_older_report() {
    let directory = scratch("probe-compare");
    let of = |profile: &str| {
        output_in(
            &directory,
            &["probe", profile, "--budget", "500ms", "--quiet", "--out", profile.trim_start_matches("model:")],
        )
    };
    of("model:tiny");
    of("model:zn540");
    let text = output_in(&directory, &["probe", "zn540/report.json", "--compare", "tiny/report.json"]);
    assert!(text.contains("beyond noise") && text.contains("zone capacity"), "{text}");
    let changes = json_in(&directory, &["probe", "zn540/report.json", "--compare", "tiny/report.json", "--json"]);
    assert!(changes["changes"].as_array().is_some_and(|changes| changes.len() > 3), "{changes}");
}

#[test]
fn zones_are_written_only_after_confirmation_and_are_empty_at_the_end() {
    let directory = scratch("probe-destructive");
    make_drive(&directory, 6);
    let before = states(&directory);
    let refused = refused_in(&directory, &["probe", "drive", "--destructive", "--budget", "1s", "--quiet"]);
    assert!(refused.contains("6.00 MiB of data in zones 0..6 would be lost") && refused.contains("--yes"), "{refused}");
    assert_eq!(states(&directory), before, "nothing was changed");
    let arguments = ["probe", "drive", "--destructive", "--yes", "--budget", "4s", "--quiet", "--out", "report"];
    let text = output_in(&directory, &arguments);
    assert!(text.contains("reads, writes and resets"), "{text}");
    let of_cache = "through the page cache of this host";
    assert!(text.contains(of_cache), "{text}");
    let page = std::fs::read_to_string(directory.join("report/report.html")).expect("it was written");
    assert!(page.contains(of_cache), "the page says what its figures are");
    let report = json_in(&directory, &["probe", "report/report.json", "--json"]);
    assert_eq!(report["conditions"]["is_page_cached"], true);
    assert!(states(&directory).iter().all(|state| state == "empty"), "{:?}", states(&directory));
    // The recommended configuration can be served.
    let path = directory.join("report/zonda.toml");
    let settings = std::fs::read_to_string(&path).expect("it was written");
    std::fs::write(&path, settings.replace(":4420", ":0").replace(":9420", ":0")).expect("it can be written");
    let server = Server::start(&directory, &["--config", "report/zonda.toml"]);
    server.stop();
}

#[test]
fn an_image_is_not_opened_for_writing_before_the_confirmation() {
    let directory = scratch("probe-unconfirmed");
    make_drive(&directory, 6);
    let before = contents(directory.join("drive"));
    // It locks the image against writers.
    let server = Server::start(&directory, &["--read-only", "drive"]);
    let arguments = ["probe", "drive", "--destructive", "--budget", "1s", "--quiet"];
    let refused = refused_in(&directory, &arguments);
    assert!(refused.contains("6.00 MiB of data in zones 0..6 would be lost") && refused.contains("--yes"), "{refused}");
    let refused = refused_in(&directory, &[&arguments[..], &["--yes"]].concat());
    assert!(refused.contains("in use"), "{refused}");
    server.stop();
    assert!(contents(directory.join("drive")) == before);
}

#[test]
fn an_interrupted_measurement_reports_what_it_has_and_leaves_no_zone_written() {
    let directory = scratch("probe-interrupt");
    make_drive(&directory, 0);
    let arguments = ["probe", "drive", "--destructive", "--yes", "--budget", "1h", "--json", "--quiet"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_zonda"));
    let child = command.args(arguments).current_dir(&*directory).stdout(std::process::Stdio::piped()).spawn();
    let child = child.expect("the program starts");
    std::thread::sleep(std::time::Duration::from_secs(4));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert_eq!(report["is_interrupted"], true);
    assert!(report["findings"].as_array().is_some_and(|loads| loads.iter().any(|load| load["figures"].is_object())));
    assert!(states(&directory).iter().all(|state| state == "empty"), "{:?}", states(&directory));
}

#[test]
fn mistakes_are_refused_before_the_measurement() {
    let directory = scratch("probe-refused");
    let of = |arguments: &[&str]| refused_in(&directory, arguments);
    assert!(of(&["probe", "--groups-only", "model:tinny"]).contains("did you mean \"tiny\"?"));
    assert!(of(&["probe", "model:tinny"]).contains("did you mean \"tiny\"?"));
    let text = of(&["probe", "--groups-only", "model:tiny", "--out", "missing/groups.json"]);
    assert!(text.contains("missing/groups.json"), "{text}");
    std::fs::write(directory.join("other.json"), "{\"format\":\"zonda-groups\",\"version\":1}").expect("writable");
    let text = of(&["probe", "model:tiny", "--compare", "other.json"]);
    assert!(text.contains("other.json") && text.contains("zonda-groups"), "{text}");
    make_drive(&directory, 0);
    output_in(
        &directory,
        &["pool", "create", "pool", "--drive", "drive", "--zones-per-vzone", "4", "--width-max", "4"],
    );
    let text = of(&["probe", "drive", "--destructive", "--yes", "--quiet"]);
    assert!(text.contains("pool") && text.contains("without --destructive"), "{text}");
    let text = of(&["probe", "nothing-here"]);
    assert!(text.contains("nothing-here"), "{text}");
}
