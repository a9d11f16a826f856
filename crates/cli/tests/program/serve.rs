//! `zonda serve`, `zonda status`, and commands that connect to a server.

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::images::make_image;
use super::server::{Server, greeting_in};
use super::{assert_golden, file, json_in, output_in, output_of, refused_in, scratch, without_numbers, zonda_in};

/// The text with the default ports instead of those that the system chose.
pub(crate) fn with_default_ports(text: &str, listen: &str, http: Option<&str>) -> String {
    let text = text.replace(&format!("-s {}", port(listen)), "-s 4420").replace(listen, "127.0.0.1:4420");
    let text = match http {
        Some(http) => text.replace(&format!(" status {http}"), " status").replace(http, "127.0.0.1:9420"),
        None => text,
    };
    // io_uring may be unavailable on this machine.
    let lines = text.lines().filter(|line| !line.starts_with("io_uring is not available"));
    let mut text = lines.collect::<Vec<_>>().join("\n").replace("(epoll)", "(io_uring)");
    text.push('\n');
    text
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().expect("an address has a port")
}

/// The text after a word in a greeting.
fn behind<'a>(text: &'a str, word: &str) -> &'a str {
    let rest = text.split_once(word).unwrap_or_else(|| panic!("no {word} in {text}")).1;
    rest.split([' ', '/', '\n']).next().expect("there is a word")
}

#[test]
fn the_greeting_shows_namespaces_and_how_to_connect() {
    let directory = scratch("greeting");
    make_image(&directory);
    output_in(&directory, &["drive", "create", "drives/b", "--profile", "conventional", "--zones", "4"]);
    let (text, log) = greeting_in(&directory, &["drives/a", "drives/b"]);
    let (listen, http) = (behind(&text, "listening on "), behind(&text, "http://"));
    assert_golden("serve.txt", &with_default_ports(&text, listen, Some(http)));
    let lines: Vec<&str> = log.lines().filter_map(|line| line.split_once("Z ")).map(|(_, what)| what).collect();
    let stopping = "stopping: waiting for outstanding commands (a second signal stops immediately)";
    assert_eq!(lines, [stopping, "stopped: all data is on stable storage"], "{log}");
}

#[test]
fn a_server_in_json_has_the_urls() {
    let directory = scratch("greeting-json");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a"]);
    let namespace = &server.greeting["subsystems"][0]["namespaces"][0];
    assert_eq!((&namespace["zones"], &namespace["source"]), (&16.into(), &"drives/a".into()));
    let listen = server.greeting["listen"][0].as_str().unwrap();
    assert_eq!(server.url(0), format!("nvme-tcp://{listen}/nqn.2026-01.io.zonda:a"));
    server.stop();
}

#[test]
fn without_arguments_a_drive_is_created_and_reused() {
    let directory = scratch("default");
    let server = Server::start(&directory, &[]);
    assert_eq!(server.greeting["subsystems"][0]["nqn"], "nqn.2026-01.io.zonda:zonda-drive");
    assert_eq!(json_in(&directory, &["zone", "finish", server.url(0), "7", "--json"])["changed_zones"][0], 7);
    let log = server.stop();
    assert!(log.starts_with("created zonda-drive, a drive of 4 GiB"), "{log}");
    let server = Server::start(&directory, &[]);
    let report = json_in(&directory, &["zone", "report", server.url(0), "7", "--json"]);
    assert_eq!(report["zones"][0]["state"], "full");
    assert!(!server.stop().contains("created"));
}

#[test]
fn zones_of_a_server_are_reported_and_managed_and_its_status_is_shown() {
    let directory = scratch("zones");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a"]);
    let (url, listen) = (server.url(0), server.greeting["listen"][0].as_str().unwrap());
    let zone = |arguments: &[&str]| output_in(&directory, &[&["zone"], arguments].concat());
    let mut transcript = zone(&["open", url, "3"]);
    transcript += &zone(&["open", url, "3"]);
    transcript += &zone(&["finish", url, "2"]);
    transcript += &zone(&["report", url]);
    transcript += &zone(&["report", url, "3"]);
    transcript += &refused_in(&directory, &["zone", "open", url, "2"]);
    transcript += &zone(&["reset", url, "--all"]);
    transcript += &zone(&["reset", url, "--all"]);
    assert_golden("zones_served.txt", &with_default_ports(&transcript, listen, None));
    server.wait_until_alone();
    let status = output_in(&directory, &["status", server.http()]);
    assert_golden("status.txt", &without_numbers(&with_default_ports(&status, listen, None)));
    let status = json_in(&directory, &["status", server.http(), "--json"]);
    assert_eq!(status["subsystems"][0]["namespaces"][0]["zones_by_state"][0]["zones"], 16);
    let log = server.stop();
    let connects = log.lines().filter(|line| line.contains("nqn.2014-08.org.nvmexpress:uuid:"));
    assert!(
        connects.count() >= 2 && !log.contains('\u{1b}'),
        "connects and disconnects are logged without colours: {log}"
    );
}

#[test]
fn metrics_have_every_series_by_its_name() {
    let directory = scratch("metrics");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a", "--memory-limit", "256MiB"]);
    output_in(&directory, &["zone", "finish", server.url(0), "2"]);
    server.wait_until_alone();
    let metrics = server.get("/metrics");
    for series in [
        "zonda_uptime_seconds",
        "zonda_connections",
        "zonda_connections_accepted_total",
        "zonda_memory_budget_bytes{} 268435456.0",
        "zonda_memory_used_bytes{} ",
        "zonda_memory_waits_total{} 0",
        "zonda_received_bytes_total",
        "zonda_sessions{nqn=\"nqn.2026-01.io.zonda:a\"} 0",
        "zonda_zones{nqn=\"nqn.2026-01.io.zonda:a\",namespace=\"1\",state=\"full\"} 1",
        "zonda_active_zones{",
        "zonda_written_bytes{",
        "zonda_dlwa{",
        "zonda_media_errors_total{",
        "zonda_life_host_write_bytes_total{",
        "zonda_commands_total{nqn=\"nqn.2026-01.io.zonda:a\",namespace=\"1\",kind=\"finish\"} 1",
        "zonda_command_latency_seconds_bucket{",
        "zonda_command_latency_seconds_count{",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(series)), "no {series}\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
    assert!(server.get("/").contains("/status.json"));
    server.stop();
}

#[test]
fn incomplete_requests_do_not_block_the_metrics_and_unknown_host_names_are_refused() {
    let directory = scratch("http");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a"]);
    let mut half: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(server.http()).expect("it listens")).collect();
    for stream in &mut half {
        // The oldest connections have been closed.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: loc");
    }
    assert!(server.get("/metrics").ends_with("# EOF\n"));
    let answer = |head: &str| {
        let mut stream = TcpStream::connect(server.http()).expect("it listens");
        write!(stream, "GET /status.json HTTP/1.1\r\n{head}\r\n").expect("the connection holds");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the connection ends after one answer");
        answer.split_whitespace().nth(1).expect("a status").to_owned()
    };
    assert_eq!(answer("Host: localhost\r\n"), "200");
    assert_eq!(answer("Host: evil.example\r\n"), "421");
    assert_eq!(answer("Host: localhost\r\nOrigin: http://evil.example\r\n"), "403");
    assert_eq!(answer(&format!("Host: localhost\r\nX: {}\r\n", "x".repeat(20_000))), "431");
    // A client that stops sending is disconnected, even if no other client connects.
    let mut last = half.pop().expect("there are many");
    last.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let mut rest = String::new();
    assert!(last.read_to_string(&mut rest).is_ok(), "closed after five seconds");
    server.stop();
}

#[test]
fn invalid_drives_and_addresses_are_refused_with_a_remedy() {
    let directory = scratch("serve-mistakes");
    make_image(&directory);
    output_in(&directory, &["drive", "create", "more/a", "--zones", "4", "--zone-capacity", "1MiB"]);
    file(&directory, "broken.toml", "[server]\nlisen = \"127.0.0.1:0\"\n");
    let server = Server::start(&directory, &["drives/a"]);
    let (listen, http) = (server.greeting["listen"][0].as_str().unwrap(), server.http());
    let port_0 = ["--listen", "127.0.0.1:0", "--http", "off"];
    let cases: &[(&[&str], &str)] = &[
        (&["drives/a"], "the image in drives/a is in use by another program"),
        (&["none"], "there is no directory none"),
        (&["drives"], "there is no image in drives"),
        (&["more/a", "drives/a"], "more/a and drives/a would have the same subsystem name"),
        (&["--memory", "zn504"], "did you mean \"zn540\"?"),
        (&["--memory", "zn540", "--zones", "0"], "change --zones or --zone-capacity"),
        (&["drives/a", "--memory-limit", "1MiB"], "--memory-limit: use at least 128 MiB"),
    ];
    for (arguments, part) in cases {
        let refusal = refused_in(&directory, &[&["serve"], *arguments, &port_0].concat());
        assert!(refusal.contains(part), "{arguments:?}: \"{part}\" is not in:\n{refusal}");
    }
    let cases: &[(&[&str], &str)] = &[
        (&["--listen", listen, "--http", "off"], "stop the other server, or choose another --listen address"),
        (&["--listen", "127.0.0.1:0", "--http", http], "stop the other server, or choose another address with --http"),
        (&["--listen", "nowhere", "--http", "off"], "cannot resolve the address \"nowhere\""),
        (&["--listen", "127.0.0.1:0", "--http", "nowhere"], "use --http HOST:PORT, or --http off"),
    ];
    for (arguments, part) in cases {
        let refusal = refused_in(&directory, &[&["serve", "more/a"], *arguments].concat());
        assert!(refusal.contains(part), "{arguments:?}: \"{part}\" is not in:\n{refusal}");
    }
    assert!(refused_in(&directory, &["zone", "report", "drives/a"]).contains("by its nvme-tcp:// URL"));
    let refusal = refused_in(&directory, &["serve", "--config", "broken.toml"]);
    assert!(refusal.contains("unknown key \"lisen\"") && refusal.contains("broken.toml:2:1"), "{refusal}");
    let other = server.url(0).replace(":a", ":b");
    let refusal = refused_in(&directory, &["zone", "report", &other]);
    assert!(refusal.contains("cannot use nvme-tcp://"), "{refusal}");
    server.stop();
}

#[test]
fn acknowledged_writes_survive_a_kill_of_the_server() {
    let directory = scratch("killed");
    make_image(&directory);
    let server = Server::start(&directory, &["drives/a"]);
    let job = "[[job]]\noperation = \"append\"\nblock_size = \"64 KiB\"\nzones = \"0..4\"\n";
    let job = file(&directory, "job.toml", job);
    output_in(&directory, &["bench", "--target", server.url(0), &job, "--quiet"]);
    server.signal(Signal::KILL);
    let (status, _) = server.wait();
    assert!(!status.success());
    let server = Server::start(&directory, &["drives/a"]);
    let state = server.greeting["subsystems"][0]["namespaces"][0]["state"].as_str().unwrap();
    assert!(state.starts_with("recovered after an unclean shutdown"), "{state}");
    let zones = json_in(&directory, &["zone", "report", server.url(0), "--count", "4", "--json"]);
    assert!(zones["zones"].as_array().unwrap().iter().all(|zone| zone["state"] == "full"), "{zones}");
    server.stop();
    assert!(output_in(&directory, &["drive", "check", "drives/a"]).contains("no damage, 1,024 blocks verified\n"));
}

/// A file that only its owner can read.
pub(crate) fn key_file(directory: &Path, name: &str, text: &str) {
    file(directory, name, text);
    fs::set_permissions(directory.join(name), Permissions::from_mode(0o600)).expect("it is ours");
}

#[test]
fn host_and_server_authenticate_each_other() {
    let directory = scratch("secrets");
    make_image(&directory);
    let secret = |hash: &str| output_of(&["secret", "--hash", hash]);
    let (ours, theirs, wrong) = (secret("sha256"), secret("sha384"), secret("sha256"));
    assert!(ours.starts_with("DHHC-1:01:") && theirs.starts_with("DHHC-1:02:") && ours != wrong);
    for (name, text) in [("host.key", &ours), ("server.key", &theirs), ("wrong.key", &wrong)] {
        key_file(&directory, name, text);
    }
    // The files of the server are in the directory of its configuration, not in its working
    // directory.
    let etc = directory.join("etc");
    std::fs::create_dir(&etc).expect("it does not exist yet");
    for (name, text) in [("host.key", &ours), ("server.key", &theirs)] {
        key_file(&etc, name, text);
    }
    let host = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:private\"\n\
         host = [{{ nqn = \"{host}\", secret_file = \"host.key\", controller_secret_file = \"server.key\" }}]\n\
         [[subsystem.namespace]]\nimage = \"../drives/a\"\n"
    );
    file(&etc, "zonda.toml", config);
    let server = Server::start(&directory, &["--config", "etc/zonda.toml"]);
    let report = |options: &[&str]| zonda_in(&directory, &[&["zone", "report", server.url(0)], options].concat());
    let right =
        ["--host-nqn", host, "--secret-file", "host.key", "--controller-secret-file", "server.key", "--digests"];
    assert_eq!(report(&right).code, Some(0));
    for options in [
        &right[..0],
        &right[..2],
        &["--host-nqn", host, "--secret-file", "wrong.key"],
        &["--host-nqn", host, "--secret-file", "host.key", "--controller-secret-file", "wrong.key"],
    ] {
        let ran = report(options);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{options:?}");
        assert!(
            ran.stderr.contains("cannot use nvme-tcp://") && !ran.stderr.contains("DHHC"),
            "{options:?}: {}",
            ran.stderr
        );
    }
    let log = server.stop();
    assert!(log.contains("warning: ") && !log.contains("DHHC"), "{log}");
    // A secret that other users can read is refused before connecting.
    let url = "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.zonda:private";
    fs::set_permissions(directory.join("host.key"), Permissions::from_mode(0o640)).expect("it is ours");
    let refused = refused_in(&directory, &["zone", "report", url, "--host-nqn", host, "--secret-file", "host.key"]);
    assert!(refused.contains("mode 0640"), "{refused}");
    fs::set_permissions(etc.join("server.key"), Permissions::from_mode(0o604)).expect("it is ours");
    let refused = refused_in(&directory, &["serve", "--config", "etc/zonda.toml"]);
    assert!(refused.contains("mode 0604") && refused.contains("chmod 600"), "{refused}");
}

#[test]
fn images_are_accessible_to_their_owner_only() {
    let directory = scratch("modes");
    make_image(&directory);
    for entry in fs::read_dir(directory.join("drives/a")).expect("it is there") {
        let entry = entry.expect("it can be read");
        let mode = entry.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", entry.path().display());
    }
}

/// A pipe that is full and not read: its ends.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().expect("there are file descriptors");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can be non-blocking");
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe can be blocking");
    (reader, writer)
}

#[test]
fn a_server_whose_log_is_not_read_continues() {
    let directory = scratch("unread-log");
    make_image(&directory);
    let (_reader, log) = full_pipe();
    let server = Server::start_with_log(&directory, &["drives/a"], log.into());
    for _ in 0..3 {
        assert_eq!(zonda_in(&directory, &["zone", "report", server.url(0)]).code, Some(0));
    }
    server.signal(Signal::TERM);
    let (status, _) = server.wait();
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_whose_log_cannot_be_written_continues() {
    let directory = scratch("full-log");
    make_image(&directory);
    let server = Server::start_without_log(&directory, &["drives/a"]);
    for _ in 0..3 {
        assert_eq!(zonda_in(&directory, &["zone", "report", server.url(0)]).code, Some(0));
    }
    server.signal(Signal::TERM);
    let (status, _) = server.wait();
    assert!(status.success(), "{status}");
}
