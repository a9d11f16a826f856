//! `zonda bench --target`: real time, on images and over the network.

use std::path::Path;
use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use super::images::make_image;
use super::server::Server;
use super::{assert_golden, file, json_in, output_in, refused_in, scratch, wait_until, zonda_in};

/// Writers and readers that verify, for a fifth of a second.
const JOBS: &str = r#"
[run]
time = "200 ms"
verify = true

[[job]]
name = "log"
operation = "mix"
mix = { read = 1, append = 1 }
zones = "0..2"
on_full = "reset"
queue_depth = 4

[[job]]
name = "reader"
operation = "randread"
zones = "4..6"
queue_depth = 8
"#;

fn jobs_of(result: &Value) -> &Vec<Value> {
    result["run"]["jobs"].as_array().expect("there are jobs")
}

fn read_to_string(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn jobs_run_on_an_image_and_over_the_network_with_the_same_report() {
    let directory = scratch("target");
    make_image(&directory);
    let job = file(&directory, "job.toml", JOBS);
    let on_image = json_in(&directory, &["bench", "--target", "drives/a", &job, "--json", "--quiet"]);
    let server = Server::start(&directory, &["drives/a"]);
    let options = ["--yes", "--queues", "2", "--depth", "16", "--spin", "10us", "--digests", "--seed", "7", "--quiet"];
    let arguments = [&["bench", "--target", server.url(0), &job, "--json"], &options[..]].concat();
    let served = json_in(&directory, &arguments);
    assert_eq!((&on_image["target"], &on_image["run"]["seed"]), (&"drives/a".into(), &1.into()));
    assert_eq!((&served["target"], &served["run"]["seed"]), (&server.url(0).into(), &7.into()));
    for result in [&on_image, &served] {
        assert_eq!(result["format"], 1);
        assert!(result.get("drive").is_none(), "no simulated drive");
        assert_eq!(result["namespace"]["zones"].as_array().unwrap().last().unwrap()["state"], "empty");
        assert!(result["client"]["cpu_ns"].as_u64().unwrap() > 0);
        assert!(result["run"]["verified_blocks"].as_u64().unwrap() > 0);
        assert_eq!(result["run"]["elapsed_ns"].as_u64().unwrap() / 100_000_000, 2);
        assert!(jobs_of(result).iter().all(|job| job["errors"].as_array().unwrap().is_empty()), "{result}");
    }
    let out = directory.join("out");
    let arguments = ["bench", "--target", server.url(0), &job, "--yes", "--out", "out", "--verbose", "--quiet"];
    let output = output_in(&directory, &arguments);
    for part in ["of real time, seed 1", "Verified ", "each cell is a zone", "CPU time of the client: ", "report.html"]
    {
        assert!(output.contains(part), "\"{part}\" is not in:\n{output}");
    }
    assert!(!output.contains("virtual"), "{output}");
    assert!(read_to_string(&out.join("report.html")).contains("of real time on nvme-tcp://"));
    assert_eq!(read_to_string(&out.join("job.toml")), JOBS);
    let result: Value = serde_json::from_str(&read_to_string(&out.join("result.json"))).unwrap();
    assert_eq!(jobs_of(&result).len(), 2);
    assert_eq!(read_to_string(&out.join("zones.csv")).lines().count(), 17);
    server.stop();
}

#[test]
fn zones_with_data_are_not_reset_without_confirmation() {
    let directory = scratch("unasked");
    make_image(&directory);
    output_in(&directory, &["zone", "finish", "drives/a", "5"]);
    let job = file(&directory, "job.toml", JOBS);
    let bench = ["bench", "--target", "drives/a", &job, "--quiet"];
    assert_golden("bench_target_loss.txt", &refused_in(&directory, &bench));
    // The refusal has left the image unchanged and cleanly shut down.
    assert_eq!(json_in(&directory, &["drive", "show", "drives/a", "--json"])["clean"], true);
    let report = json_in(&directory, &["zone", "report", "drives/a", "5", "--json"]);
    assert_eq!(report["zones"][0]["state"], "full");
    assert_eq!(zonda_in(&directory, &[&bench[..], &["--yes"]].concat()).code, Some(0));
}

#[test]
fn a_range_of_zones_is_managed_one_after_the_other() {
    let directory = scratch("zone-range");
    make_image(&directory);
    let manage = |action, zones| output_in(&directory, &["zone", action, "drives/a", zones]);
    assert_eq!(manage("finish", "5..8"), "3 zones are now full: 5..8\n");
    assert_eq!(manage("finish", "5..8"), "zones 5..8 were already full\n");
    assert_eq!(manage("reset", "4..7"), "2 zones are now empty: 5..7\n");
    assert_eq!(manage("reset", "7"), "zone 7 is empty\n");
    // A range that ends behind the last zone changes nothing.
    assert!(refused_in(&directory, &["zone", "finish", "drives/a", "14..17"]).contains("zone 16 does not exist"));
    let report = json_in(&directory, &["zone", "report", "drives/a", "--json"]);
    assert!(report["zones"].as_array().unwrap().iter().all(|zone| zone["state"] == "empty"), "{report}");
}

#[test]
fn a_file_for_a_simulated_drive_and_options_without_a_target_are_refused() {
    let directory = scratch("target-mistakes");
    make_image(&directory);
    file(&directory, "drive.toml", format!("[drive]\nprofile = \"tiny\"\n{JOBS}"));
    file(&directory, "job.toml", JOBS);
    file(&directory, "zones.toml", "[[job]]\noperation = \"append\"\nzones = \"10..20\"\n");
    let drive = ["bench", "--target", "drives/a", "drive.toml"];
    assert_golden("bench_target_drive.txt", &refused_in(&directory, &drive));
    let cases: &[(&[&str], &str)] = &[
        (&["bench", "job.toml"], "to run the jobs of this file on an existing drive, use zonda bench --target"),
        (&["bench", "drive.toml", "--digests"], "add --target URL"),
        (&["bench", "--target", "drives/a", "zones.toml"], "zone 16 does not exist: the drive has 16 zones"),
        (&["bench", "--target", "none", "job.toml"], "there is no directory none"),
        (&["bench", "--target", "http://a/b", "job.toml"], "is not supported"),
        (&["bench", "--target", "drives/a", "none.toml"], "cannot read none.toml: no such file"),
        (
            &["bench", "--target", "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.zonda:a", "job.toml"],
            "cannot connect to 127.0.0.1:1",
        ),
    ];
    for (arguments, part) in cases {
        let refusal = refused_in(&directory, arguments).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(refusal.contains(part), "{arguments:?}: \"{part}\" is not in:\n{refusal}");
    }
    let ran = zonda_in(&directory, &["bench", "drive.toml", "--queues", "2"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("--target"), "{}", ran.stderr);
}

/// Starts a long run over the network, waits until it reads, and calls `then`.
fn while_it_runs(directory: &Path, server: &Server, then: impl FnOnce()) -> (Option<i32>, Value) {
    let text = "[run]\ntime = \"4 s\"\nverify = true\n[[job]]\nname = \"reader\"\noperation = \"randread\"\nzones = \"0..4\"\n";
    let job = file(directory, "long.toml", text);
    let arguments = ["bench", "--target", server.url(0), &job, "--json", "--quiet"];
    thread::scope(|scope| {
        let run = scope.spawn(|| zonda_in(directory, &arguments));
        let reads = || {
            let status = json_in(directory, &["status", server.http(), "--json"]);
            let commands = status["subsystems"][0]["namespaces"][0]["commands"].as_array().cloned().unwrap_or_default();
            commands
                .iter()
                .find(|command| command["kind"] == "read")
                .map_or(0, |read| read["count"].as_u64().expect("it is a count"))
        };
        wait_until("reads have begun", || reads() >= 100 || run.is_finished());
        then();
        let ran = run.join().expect("it ends");
        (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr)))
    })
}

#[test]
fn a_run_that_reads_wrong_data_fails() {
    let directory = scratch("mismatch");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a"]);
    let (code, result) = while_it_runs(&directory, &server, || {
        output_in(&directory, &["zone", "reset", server.url(0), "2"]);
    });
    assert_eq!(code, Some(1), "{result}");
    let wrong = &jobs_of(&result)[0]["verify_errors"];
    assert!(wrong["blocks"].as_u64().is_some_and(|blocks| blocks > 0), "{wrong}");
    assert_eq!((&wrong["first"]["zone"], &wrong["first"]["found"]), (&2.into(), &"zeros".into()));
    server.stop();
}

#[test]
fn a_run_whose_server_is_killed_fails_and_reports_its_measurements() {
    let directory = scratch("dies");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a"]);
    let (code, result) = while_it_runs(&directory, &server, || server.signal(Signal::KILL));
    assert_eq!(code, Some(1), "{result}");
    let reader = &jobs_of(&result)[0];
    assert_eq!(reader["ended_by"]["reason"], "errors", "{reader}");
    assert!(reader["kinds"][0]["operations"].as_u64().unwrap() >= 50, "{reader}");
    assert!(result["namespace"]["zones"].as_array().unwrap().is_empty(), "the server has exited");
    assert!(!server.wait().0.success());
}
