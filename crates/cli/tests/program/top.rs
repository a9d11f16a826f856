//! `zonda top`: figures of a running server, a server that is lost and returns, and the terminal.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use zonda_devices::{Connection, Location, NamespaceOptions};
use zonda_zoned::{BlockBuffer, Blocks, Lba, Operation, Payload};

use super::server::Server;
use super::terminal::{Ended, OnTerminal};
use super::{Scratch, file, json_in, output_in, refused_in, scratch, zonda_in};

/// A pool with the namespaces `db`, `log` and `idle`.
fn make_pool(name: &str) -> Scratch {
    let directory = scratch(name);
    output_in(&directory, &["drive", "create", "drives/a", "--zones", "64", "--zone-capacity", "1MiB"]);
    let sizes = ["--zones-per-vzone", "4", "--width-max", "2", "--essential-zones", "6"];
    output_in(&directory, &[&["pool", "create", "pool", "--drive", "drives/a"][..], &sizes].concat());
    for name in ["db", "log", "idle"] {
        output_in(&directory, &["namespace", "create", "pool", name, "--zones", "3", "--active", "2"]);
    }
    directory
}

/// Writes and reads the first zone of a namespace until `is_done`.
fn work(url: &str, is_done: &AtomicBool) {
    let location: Location = url.parse().expect("the server prints valid URLs");
    let mut connection = Connection::open(&location, &NamespaceOptions::default()).expect("it is served");
    let mut execute = |operation| {
        let ended = connection.execute(operation).expect("the server is running");
        assert!(ended.status.is_success(), "{}", ended.status);
    };
    let mut next = 0;
    while !is_done.load(Ordering::Relaxed) {
        if next < 900 {
            let payload =
                Payload::Bytes(Box::new(BlockBuffer { data: vec![1; 4096].into(), metadata: Vec::new().into() }));
            execute(Operation::Write { start: Lba(next), blocks: Blocks(1), payload });
            next += 1;
        }
        execute(Operation::Read { start: Lba(next / 2), blocks: Blocks(1) });
    }
}

/// The result of `take` while hosts use the first namespaces of a server.
fn under_load<T>(server: &Server, namespaces: usize, take: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for index in 0..namespaces {
            let is_done = &is_done;
            scope.spawn(move || work(server.url(index), is_done));
        }
        let taken = take();
        is_done.store(true, Ordering::Relaxed);
        taken
    })
}

fn sum(rows: &[Value], key: &str) -> u64 {
    rows.iter().map(|row| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"))).sum()
}

#[test]
fn a_picture_of_a_pool_under_load_has_rates_latencies_and_spares_that_add_up() {
    let directory = make_pool("top-pool");
    let server = Server::start(&directory, &["pool"]);
    let arguments = ["top", "pool", "--once", "--json", "--interval", "300ms"];
    let top = under_load(&server, 2, || json_in(&directory, &arguments));
    let rows = top["namespaces"].as_array().expect("it is a list");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["db", "log", "idle"]);
    for row in &rows[..2] {
        assert!(row["iops"].as_f64() > Some(0.0) && row["read_bytes_per_s"].as_f64() > Some(0.0), "{row}");
        let [p50, p99_9] = ["p50_ns", "p99_9_ns"].map(|key| row[key].as_u64().expect("it has latencies"));
        assert!(0 < p50 && p50 <= p99_9, "{row}");
        assert!(row["active_zones"].as_u64() >= Some(1) && row["max_active_zones"] == 2, "{row}");
    }
    assert_eq!((&rows[2]["iops"], &rows[2]["p50_ns"]), (&0.0.into(), &Value::Null));
    assert!(!rows[0]["stripe_groups"].as_array().expect("it is a list").is_empty(), "{}", rows[0]);
    let pool = &top["pools"][0];
    assert_eq!(sum(rows, "spares_own"), pool["spare_zones"].as_u64().expect("it is a number"));
    assert_eq!(sum(rows, "spares_lent"), sum(rows, "spares_leased"));
    assert_eq!(sum(rows, "essentials"), pool["essential_zones"].as_u64().expect("it is a number"));
    let picture = output_in(&directory, &["top", server.http(), "--once", "--interval", "100ms"]);
    for words in ["namespace", "/drives/a, the drive of the pool", "6 log", "A", "weight 1, 2 essentials"] {
        assert!(picture.contains(words), "no {words} in\n{picture}");
    }
    server.stop();
}

#[test]
fn drives_and_volumes_are_shown_and_only_a_server_can_be_named() {
    let directory = scratch("top-drives");
    for drive in ["a", "b", "plain"] {
        output_in(&directory, &["drive", "create", drive, "--zones", "40", "--zone-capacity", "1MiB"]);
    }
    output_in(&directory, &["volume", "create", "vol", "--members", "a,b", "--level", "1"]);
    let refused = refused_in(&directory, &["top", "vol", "--once"]);
    assert!(refused.contains("no server uses it") && refused.contains("zonda serve vol"), "{refused}");
    let server = Server::start(&directory, &["vol", "plain"]);
    let top = json_in(&directory, &["top", "vol", "--once", "--json", "--interval", "100ms"]);
    let of = |index: usize, key: &str| top["namespaces"][index][key].clone();
    assert_eq!((of(0, "kind"), of(1, "kind")), ("volume".into(), "drive".into()));
    assert_eq!((of(1, "name"), of(1, "iops"), of(1, "essentials")), ("plain".into(), 0.0.into(), Value::Null));
    let picture = output_in(&directory, &["top", server.http(), "--once", "--interval", "100ms"]);
    for words in ["RAID 1", "member 0 at a: active", "member 1 at b: active"] {
        assert!(picture.contains(words), "no {words} in\n{picture}");
    }
    let zones: Value = serde_json::from_str(&server.get("/status.json?zones")).expect("it is JSON");
    let maps = &zones["subsystems"][0]["namespaces"][0]["zone_maps"];
    assert_eq!((&maps[1]["member"], &maps[1]["zones"]), (&1.into(), &40.into()));
    assert!(!server.get("/status.json").contains("zone_maps"), "maps are only for those who ask");
    for (named, words) in [("plain", "is the directory of an image"), (".", "is not the directory of a pool")] {
        let refused = refused_in(&directory, &["top", named, "--once"]);
        assert!(refused.contains(words), "{refused}");
    }
    let refused = refused_in(&directory, &["top", server.http()]);
    assert!(refused.contains("needs a terminal") && refused.contains("--json"), "{refused}");
    let ran = zonda_in(&directory, &["top", "--interval", "1ms"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("from 100ms to 1h"), "{}", ran.stderr);
    server.stop();
}

/// `zonda top --json`.
struct Lines {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Lines {
    fn start(directory: &Path, server: &str) -> Lines {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonda"));
        command.args(["top", server, "--json", "--interval", "100ms"]).current_dir(directory);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("the output is a pipe")).lines();
        Lines { child, lines }
    }

    /// The next line with this value of `connected`, after lines with the other one.
    fn next(&mut self, connected: bool) -> Value {
        loop {
            let line = self.lines.next().expect("it runs").expect("it is UTF-8");
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if line["connected"] == connected {
                return line;
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn lines_continue_over_a_server_that_is_killed_and_started_again() {
    let directory = make_pool("top-killed");
    let server = Server::start(&directory, &["pool"]);
    let http = server.http().to_owned();
    let mut of_address = Lines::start(&directory, &http);
    let mut of_directory = Lines::start(&directory, "pool");
    for lines in [&mut of_address, &mut of_directory] {
        assert_eq!(lines.next(true)["namespaces"][1]["name"], "log");
    }
    server.kill();
    let lost = of_address.next(false);
    assert!(lost["error"].as_str().is_some_and(|error| error.contains(&http)), "{lost}");
    let lost = of_directory.next(false);
    // It may have been killed while it answered.
    let is_expected = |error: &str| error.contains("no server uses it") || error.contains("reset by peer");
    assert!(lost["error"].as_str().is_some_and(is_expected), "{lost}");
    let server = Server::start(&directory, &["pool", "--http", &http]);
    for lines in [&mut of_address, &mut of_directory] {
        let first = lines.next(true);
        assert_eq!((&first["interval_s"], first["namespaces"][0].get("iops")), (&0.0.into(), None));
        assert!(lines.next(true)["interval_s"].as_f64() > Some(0.0));
    }
    server.stop();
}

#[test]
fn a_drive_with_a_scheduler_has_read_windows_and_write_tokens() {
    let directory = scratch("top-scheduler");
    output_in(&directory, &["drive", "create", "a", "--zones", "8", "--zone-capacity", "4MiB"]);
    let plan = "[server]\nlisten = \"127.0.0.1:0\"\ntiming = \"profile\"\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:a\"\n\
                [[subsystem.namespace]]\nimage = \"a\"\nscheduler = \"ezns\"\n";
    file(&directory, "zonda.toml", plan);
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let mut lines = Lines::start(&directory, server.http());
    let idle = lines.next(true)["namespaces"][0].clone();
    assert_eq!((&idle["scheduler"], idle.get("read_window")), (&"ezns".into(), None), "no request is in progress");
    under_load(&server, 1, || {
        // A snapshot may be taken while no request is in the scheduler.
        let busy = (0..600).map(|_| lines.next(true)["namespaces"][0].clone()).find(|row| row["read_window"].is_u64());
        let busy = busy.expect("the profile takes longer than the server");
        assert!(busy["read_window"].as_u64() >= Some(1) && busy["write_tokens_bytes"].is_i64(), "{busy}");
    });
    server.stop();
}

#[test]
fn a_drive_with_conflict_groups_has_the_outstanding_commands_of_each() {
    let directory = scratch("top-groups");
    let probe = ["probe", "--groups-only", "model:bae-small", "--sample", "64", "--out", "groups.json", "--quiet"];
    output_in(&directory, &probe);
    let plan = "[server]\nlisten = \"127.0.0.1:0\"\ntiming = \"profile\"\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:a\"\n\
                [[subsystem.namespace]]\nmemory = { profile = \"bae-small\" }\nscheduler = \"interference\"\n\
                groups = \"groups.json\"\n";
    file(&directory, "zonda.toml", plan);
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let mut lines = Lines::start(&directory, server.http());
    let idle = lines.next(true)["namespaces"][0]["conflict_groups"].clone();
    let expected = serde_json::json!({"groups": 8, "is_used": true, "rejected": 0, "restored": 0, "outstanding": []});
    assert_eq!(idle, expected, "no request is in progress");
    under_load(&server, 1, || {
        // A snapshot may be taken while no request is in the scheduler.
        let of = |line: Value| line["namespaces"][0]["conflict_groups"]["outstanding"].as_array().cloned();
        let busy = (0..600).find_map(|_| of(lines.next(true)).filter(|groups| !groups.is_empty()));
        let busy = busy.expect("the profile takes longer than the server");
        // The host uses one zone, with one command at a time.
        assert_eq!(busy.len(), 1, "{busy:?}");
        assert!(busy[0]["group"].as_u64().is_some_and(|group| group < 8), "{busy:?}");
        assert_eq!((&busy[0]["waiting"], &busy[0]["in_flight"]), (&0.into(), &1.into()));
    });
    let picture = output_in(&directory, &["top", server.http(), "--once", "--interval", "100ms"]);
    assert!(picture.contains("8 conflict groups, 0 with outstanding commands\n        ········\n"), "{picture}");
    server.stop();
}

/// The view of a server, which has drawn its first picture.
fn view(directory: &Path, server: &Server) -> OnTerminal {
    let top = OnTerminal::start(directory, &format!("top {} --interval 100ms", server.http()));
    top.wait_for("p99.9", 0);
    top
}

fn assert_ended_well(ended: &Ended) {
    assert_eq!(ended.code, "0", "{}", ended.output);
    assert!(ended.is_restored, "the terminal has its modes again");
    assert!(ended.output.contains("\u{1b}[?1049h") && ended.output.contains("\u{1b}[?1049l"), "{:?}", ended.output);
    assert!(ended.output.rfind("\u{1b}[?25h") > ended.output.rfind("\u{1b}[?25l"), "the cursor is shown again");
}

#[test]
fn every_end_of_the_view_restores_the_terminal() {
    let directory = make_pool("top-ends");
    let server = Server::start(&directory, &["pool"]);
    type End = fn(&mut OnTerminal);
    let ends: [End; 4] =
        [|top| top.press("q"), |top| top.press("\u{3}"), |top| top.signal(Signal::TERM), |top| top.signal(Signal::INT)];
    for end in ends {
        let mut top = view(&directory, &server);
        end(&mut top);
        assert_ended_well(&top.wait());
    }
    server.stop();
}

#[test]
fn keys_change_the_view_and_a_lost_server_is_shown_until_it_returns() {
    let directory = make_pool("top-keys");
    let server = Server::start(&directory, &["pool"]);
    let mut top = view(&directory, &server);
    for (key, shown) in [("s", "bandwidth"), ("?", "essentials:"), ("?", "outstanding"), ("d", "pool:db;")] {
        let from = top.drawn_bytes();
        top.press(key);
        top.wait_for_redrawn(shown, from);
    }
    let http = server.http().to_owned();
    let from = top.drawn_bytes();
    server.kill();
    top.wait_for_redrawn("lost", from);
    let from = top.drawn_bytes();
    let server = Server::start(&directory, &["pool", "--http", &http]);
    top.wait_for_redrawn("restarted", from);
    top.press("q");
    assert_ended_well(&top.wait());
    server.stop();
}
