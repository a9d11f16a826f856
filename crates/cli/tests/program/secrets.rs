//! A volume whose remote members require bidirectional authentication.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::serve::key_file;
use super::server::Server;
use super::{Scratch, json_in, output_in, output_of, refused_in, scratch, wait_until, zonda_in};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
const JOB: &str = "[run]\nverify = true\n\n[[job]]\noperation = \"randwrite\"\nblock_size = \"16 KiB\"\nqueue_depth = 4\nbytes = \"2 MiB\"\n";
const RIGHT: [&str; 6] = ["--host-nqn", HOST, "--secret-file", "keys/host", "--controller-secret-file", "keys/server"];
const DRIVES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Images `a` to `e` behind a server that allows one host. Also returns the secrets, which no
/// output may contain.
fn make(name: &str) -> (Scratch, Server, Vec<String>) {
    let directory = scratch(name);
    fs::create_dir(directory.join("keys")).expect("it does not exist yet");
    let mut secrets = Vec::new();
    for (name, hash) in [("host", "sha256"), ("server", "sha384"), ("wrong", "sha256")] {
        let text = output_of(&["secret", "--hash", hash]);
        key_file(&directory.join("keys"), name, &text);
        let of_it = text.trim().split(':').nth(2).expect("DHHC-1:hash:secret:");
        secrets.push(of_it.to_owned());
    }
    let mut config = "[server]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for drive in DRIVES {
        let arguments =
            ["drive", "create", drive, "--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"];
        output_in(&directory, &arguments);
        config += &format!(
            "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:{drive}\"\n\
             host = [{{ nqn = \"{HOST}\", secret_file = \"keys/host\", controller_secret_file = \"keys/server\" }}]\n\
             [[subsystem.namespace]]\nimage = \"{drive}\"\n"
        );
    }
    fs::write(directory.join("drives.toml"), config).expect("there is space");
    fs::write(directory.join("job.toml"), JOB).expect("there is space");
    let drives = Server::start(&directory, &["--config", "drives.toml"]);
    (directory, drives, secrets)
}

fn create<'a>(members: &'a str, credentials: &[&'a str]) -> Vec<&'a str> {
    [&["volume", "create", "vol", "--members", members, "--level", "5"], credentials].concat()
}

fn status(directory: &Path) -> (Value, String) {
    let ran = zonda_in(directory, &["volume", "status", "vol", "--json"]);
    let report = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr));
    (report, ran.stdout + &ran.stderr)
}

fn write(directory: &Path, server: &Server) {
    output_in(directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--json", "--quiet"]);
}

/// A file below this directory, other than the keys, that contains one of these texts.
fn is_in_a_file(directory: &Path, texts: &[String]) -> Option<String> {
    for entry in fs::read_dir(directory).expect("it is a directory").map(|entry| entry.expect("it can be read")) {
        let path = entry.path();
        if path.is_dir() {
            if path.ends_with("keys") {
                continue;
            }
            if let Some(found) = is_in_a_file(&path, texts) {
                return Some(found);
            }
        } else if path.is_file() {
            let bytes = fs::read(&path).expect("it can be read");
            let content = String::from_utf8_lossy(&bytes);
            if texts.iter().any(|text| content.contains(text.as_str())) {
                return Some(path.display().to_string());
            }
        }
    }
    None
}

#[test]
fn a_volume_with_authenticated_members_is_created_served_rebuilt_and_restarted() {
    let (directory, drives, secrets) = make("volume-secrets");
    let members = [drives.url(0), drives.url(1), drives.url(2)].join(",");
    let mut shown = output_in(&directory, &[&create(&members, &RIGHT)[..], &["--json"]].concat());
    let first = Server::start(&directory, &["vol"]);
    write(&directory, &first);
    shown +=
        &output_in(&directory, &[&["volume", "spare", "add", "vol", drives.url(3)], &RIGHT[..], &["--json"]].concat());
    // The spare replaces a member, and another drive the next.
    shown += &output_in(&directory, &["member", "fail", "vol", "0", "--json"]);
    wait_until("the spare is rebuilt", || status(&directory).0["state"] == "healthy");
    write(&directory, &first);
    shown += &output_in(&directory, &["member", "fail", "vol", "1", "--json"]);
    let replace = ["member", "replace", "vol", "1", "--with", drives.url(4), "--json"];
    shown += &output_in(&directory, &[&replace[..], &RIGHT[..]].concat());
    wait_until("the new member is rebuilt", || status(&directory).0["state"] == "healthy");
    write(&directory, &first);
    first.kill();
    let second = Server::start(&directory, &["vol"]);
    write(&directory, &second);
    let (report, text) = status(&directory);
    assert_eq!(report["state"], "healthy", "{report}");
    shown += &text;
    shown += &second.get("/status.json");
    shown += &second.stop();
    shown += &output_in(&directory, &["volume", "status", "vol"]);
    shown += &drives.stop();
    for secret in &secrets {
        assert!(!shown.contains(secret.as_str()) && !shown.contains("DHHC-1"), "{shown}");
    }
    assert_eq!(is_in_a_file(&directory, &secrets), None, "secrets are only in key files");
    let file = fs::read_to_string(directory.join("vol/volume.toml")).expect("it can be read");
    assert_eq!(file.matches("secret_file = \"../keys/host\"").count(), 3, "{file}");
}

#[test]
fn a_wrong_secret_is_refused_with_a_remedy_and_nothing_is_changed() {
    let (directory, drives, secrets) = make("volume-wrong-secrets");
    let members = [drives.url(0), drives.url(1), drives.url(2)].join(",");
    let wrong_host = ["--host-nqn", HOST, "--secret-file", "keys/wrong"];
    let wrong_server = ["--host-nqn", HOST, "--secret-file", "keys/host", "--controller-secret-file", "keys/wrong"];
    let assert_refused = |refused: &str, what: &str| {
        assert!(refused.contains(what), "{what}: {refused}");
        assert!(!secrets.iter().any(|secret| refused.contains(secret.as_str())), "{refused}");
    };
    for (credentials, what) in [(&wrong_host[..], "secret"), (&wrong_server[..], "secret"), (&[], "host")] {
        assert_refused(&refused_in(&directory, &create(&members, credentials)), what);
        assert!(!directory.join("vol/volume.toml").exists(), "nothing was created");
    }
    output_in(&directory, &create(&members, &RIGHT));
    let server = Server::start(&directory, &["vol"]);
    for credentials in [&wrong_host[..], &wrong_server[..]] {
        let add = [&["volume", "spare", "add", "vol", drives.url(3)], credentials].concat();
        assert_refused(&refused_in(&directory, &add), "secret");
    }
    let before = json_in(&directory, &["volume", "status", "vol", "--json"]);
    assert_eq!((&before["state"], before["spares"].as_array().map_or(0, Vec::len)), (&Value::from("healthy"), 0));
    server.stop();
    // The server has another secret now.
    fs::copy(directory.join("keys/wrong"), directory.join("keys/host")).expect("it can be written");
    let refused = refused_in(&directory, &["serve", "vol", "--listen", "127.0.0.1:0"]);
    assert_refused(&refused, "= help: the server rejected this host's secret: compare secret and host NQN");
    drives.stop();
}
