//! `zonda serve --config`, whose file changes while it runs.

use std::path::Path;
use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use super::images::make_image;
use super::server::Server;
use super::{file, json_in, output_in, refused_in, scratch, wait_until, zonda_in};

const NQN: &str = "nqn.2026-01.io.zonda:a";
/// Writers and readers that verify, for two seconds.
const JOBS: &str = r#"
[run]
time = "2 s"
verify = true

[[job]]
operation = "mix"
mix = { read = 1, append = 1 }
zones = "0..2"
on_full = "reset"
queue_depth = 4
"#;

/// A configuration with these lines in its first subsystem, and what follows it.
fn config(directory: &Path, hosts: &str, namespaces: &[&str], rest: &str) {
    let namespaces: String =
        namespaces.iter().map(|namespace| format!("[[subsystem.namespace]]\n{namespace}\n")).collect();
    let server = "[server]\nlisten = \"127.0.0.1:0\"\n";
    file(directory, "zonda.toml", format!("{server}[[subsystem]]\nnqn = \"{NQN}\"\n{hosts}{namespaces}{rest}"));
}

/// The namespaces that the server reports, as "subsystem/id source".
fn served(server: &Server) -> Vec<String> {
    let status: Value = serde_json::from_str(&server.get("/status.json")).expect("it is JSON");
    let list = |value: &Value| value.as_array().expect("it is a list").clone();
    let mut all = Vec::new();
    for subsystem in list(&status["subsystems"]) {
        let nqn = subsystem["nqn"].as_str().expect("it is text").rsplit(':').next().expect("it has a name").to_owned();
        for namespace in list(&subsystem["namespaces"]) {
            let source = namespace["source"].as_str().expect("it is text");
            all.push(format!("{nqn}/{} {source}", namespace["id"]));
        }
    }
    all
}

fn reload_until(server: &Server, expected: &[&str]) {
    server.signal(Signal::HUP);
    wait_until("the server has reloaded its configuration", || served(server) == expected);
}

fn url(server: &Server, name: &str, id: u32) -> String {
    format!("nvme-tcp://{}/nqn.2026-01.io.zonda:{name}?namespace={id}", server.address())
}

#[test]
fn subsystems_and_namespaces_come_and_go_while_another_host_verifies_its_data() {
    let directory = scratch("reload");
    make_image(&directory);
    output_in(&directory, &["drive", "create", "drives/b", "--zones", "16", "--zone-capacity", "1MiB"]);
    let job = file(&directory, "job.toml", JOBS);
    let (a, b) = ("image = \"drives/a\"", "image = \"drives/b\"");
    config(&directory, "", &[a], "");
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let result = thread::scope(|scope| {
        let bench = scope
            .spawn(|| json_in(&directory, &["bench", "--target", server.url(0), &job, "--yes", "--json", "--quiet"]));
        for _ in 0..2 {
            let memory = "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:m\"\n[[subsystem.namespace]]\n\
                          memory = { profile = \"tiny\" }\n";
            config(&directory, "", &[a, b], memory);
            reload_until(&server, &["a/1 drives/a", "a/2 drives/b", "m/1 memory"]);
            let report = output_in(&directory, &["zone", "report", &url(&server, "a", 2)]);
            assert!(report.contains("16 zones"), "{report}");
            output_in(&directory, &["zone", "open", &url(&server, "m", 1), "1"]);
            let in_use = refused_in(&directory, &["drive", "check", "drives/b"]);
            assert!(in_use.contains("in use"), "{in_use}");
            config(&directory, "", &[a], "");
            reload_until(&server, &["a/1 drives/a"]);
            // The image is shut down cleanly, and can be used by others.
            wait_until("the image is closed", || zonda_in(&directory, &["drive", "check", "drives/b"]).code == Some(0));
            let shown = output_in(&directory, &["drive", "show", "drives/b"]);
            assert!(shown.contains("clean") && !shown.contains("unclean"), "{shown}");
            let gone = refused_in(&directory, &["zone", "report", &url(&server, "a", 2)]);
            assert!(gone.contains("the namespace does not exist"), "{gone}");
        }
        bench.join().expect("no host was disturbed")
    });
    assert!(result["run"]["verified_blocks"].as_u64().expect("it is a number") > 0);
    assert!(result["run"]["jobs"][0]["errors"].as_array().expect("it is a list").is_empty(), "{result}");
    let log = server.stop();
    for line in ["namespace 2 added (drives/b)", "subsystem nqn.2026-01.io.zonda:m removed"] {
        assert_eq!(log.matches(line).count(), 2, "{line}: {log}");
    }
}

#[test]
fn a_mistake_in_the_file_changes_nothing_and_is_named() {
    let directory = scratch("reload-mistakes");
    make_image(&directory);
    let a = "image = \"drives/a\"";
    config(&directory, "", &[a], "");
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let memory = "memory = { profile = \"tiny\" }";
    // Unknown keys, drives that do not exist, settings that cannot change, and one namespace that
    // could be added beside another that cannot.
    config(&directory, "", &[a, "imagee = \"drives/b\""], "");
    server.signal(Signal::HUP);
    config_after(&server, &directory, &[a, memory, "image = \"drives/missing\""], "");
    config_after(&server, &directory, &[a, memory], "[[nbd]]\nlisten = \"unix:nbd.sock\"\n");
    config_after(&server, &directory, &[memory], "");
    config_after(&server, &directory, &[a, memory], "");
    wait_until("the last file is right", || served(&server) == ["a/1 drives/a", "a/2 memory"]);
    assert!(zonda_in(&directory, &["zone", "report", server.url(0)]).code == Some(0));
    let log = server.stop();
    assert_eq!(log.matches("is not reloaded, and the server continues as before").count(), 4, "{log}");
    for part in [
        "zonda.toml:",
        "imagee",
        "drives/missing",
        "[[nbd]] cannot be added to a server that was started without it",
        "namespace 1 has another drive or other options",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert_eq!(log.matches("namespace 2 added (memory)").count(), 1, "{log}");
}

/// Changes the file, and asks for a reload, once the last one has ended.
fn config_after(server: &Server, directory: &Path, namespaces: &[&str], rest: &str) {
    // The server reads its file after the signal.
    thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(served(server), ["a/1 drives/a"]);
    config(directory, "", namespaces, rest);
    server.signal(Signal::HUP);
}

#[test]
fn a_host_that_is_not_allowed_any_more_is_disconnected() {
    let directory = scratch("reload-hosts");
    make_image(&directory);
    let host = |name: &str| format!("nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-55555555555{name}");
    let a = "image = \"drives/a\"";
    config(&directory, "", &[a], "");
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let report = |nqn: &str| zonda_in(&directory, &["zone", "report", server.url(0), "--host-nqn", nqn]).code;
    assert_eq!((report(&host("1")), report(&host("2"))), (Some(0), Some(0)));
    config(&directory, &format!("host = [{{ nqn = \"{}\" }}]\n", host("1")), &[a], "");
    server.signal(Signal::HUP);
    wait_until("the second host is refused", || report(&host("2")) == Some(2));
    assert_eq!(report(&host("1")), Some(0));
    let log = server.stop();
    assert!(log.contains("subsystem nqn.2026-01.io.zonda:a: hosts changed"), "{log}");
}

#[test]
fn zonda_reload_prints_what_has_changed_or_why_nothing_has() {
    let directory = scratch("reload-command");
    make_image(&directory);
    let (a, memory) = ("image = \"drives/a\"", "memory = { profile = \"tiny\" }");
    config(&directory, "", &[a], "");
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let reload = |options: &[&str]| zonda_in(&directory, &[&["reload", "--http", server.http()], options].concat());
    let status = || -> Value { serde_json::from_str(&server.get("/status.json")).expect("it is JSON") };
    let started = status();
    assert_eq!(started["configuration"], serde_json::json!({ "file": "zonda.toml", "reloads": 0 }));
    let unchanged = reload(&[]);
    assert_eq!((unchanged.code, unchanged.stdout.as_str()), (Some(0), "reloaded zonda.toml: no changes\n"));

    config(&directory, "", &[a, memory], "");
    let added = reload(&[]);
    let line = format!("reloaded zonda.toml:\n  subsystem {NQN}: namespace 2 added (memory)\n");
    assert_eq!((added.code, added.stdout), (Some(0), line));
    config(&directory, "", &[a], "");
    let removed: Value = serde_json::from_str(&reload(&["--json"]).stdout).expect("it is JSON");
    let change = format!("subsystem {NQN}: namespace 2 removed");
    assert_eq!((&removed["ok"], &removed["changes"]), (&Value::Bool(true), &serde_json::json!([change])));

    config(&directory, "", &[a, "imagee = \"drives/b\""], "");
    let refused = reload(&[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    for part in ["zonda.toml:8:1", "imagee", "zonda.toml is not reloaded: the server continues as before"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let refused = reload(&["--json"]);
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(1), ""));
    let refused: Value = serde_json::from_str(&refused.stdout).expect("it is JSON");
    assert!(refused["ok"] == false && refused["error"].as_str().is_some_and(|error| error.contains("zonda.toml:8:1")));
    let now = status();
    assert_eq!((&now["pid"], &now["configuration"]["reloads"]), (&started["pid"], &5.into()));
    assert_eq!(now["configuration"]["last_reload"]["error"], refused["error"]);
    let shown = output_in(&directory, &["status", server.http()]);
    assert!(shown.contains("the last reload was refused") && shown.contains("zonda.toml:8:1"), "{shown}");
    server.stop();
}

#[test]
fn zonda_reload_signals_only_servers_that_can_reload() {
    let directory = scratch("reload-refused");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a"]);
    let none = refused_in(&directory, &["reload", "--http", server.http()]);
    assert!(none.contains("was started without a configuration file, and cannot reload"), "{none}");
    let help = none.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("restart it") && help.contains("zonda serve --config FILE"), "{none}");
    let http = server.http().to_owned();
    server.stop();
    let gone = refused_in(&directory, &["reload", "--http", &http]);
    assert!(gone.contains("cannot read the status of a server at"), "{gone}");
}
