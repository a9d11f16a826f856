//! A server that is killed and immediately restarted with the same addresses and drives.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use zonda_nbd::NbdError;
use zonda_nbd::testing::Client;

use super::server::Server;
use super::volume::{create, make_volume};
use super::{output_in, refused_in, scratch, wait_until, zonda_in};

const KILLS: usize = 20;
/// Writes that a server acknowledges before it is killed.
const WRITES: u64 = 50;
/// Outstanding writes on each connection, and their size in bytes.
const DEPTH: u64 = 8;
const PIECE: u64 = 16 << 10;
/// Pieces that are overwritten repeatedly.
const PIECES: u64 = 64;

/// A loopback address that no other run of the tests uses, so that its ports are free.
fn own_address() -> String {
    let [a, b, c, d] = std::process::id().to_be_bytes();
    format!("127.{}.{c}.{d}", 64 + ((a ^ b) & 63))
}

/// Serves a drive and a volume over NVMe/TCP, HTTP and NBD.
fn start(directory: &Path) -> Server {
    let host = own_address();
    let (listen, http, nbd) = (format!("{host}:4420"), format!("{host}:9420"), format!("{host}:10809"));
    let arguments =
        ["drives/plain", "vol", "--listen", &listen, "--http", &http, "--nbd", "unix:nbd.sock", "--nbd", &nbd];
    Server::start(directory, &arguments)
}

/// Writes to an export and counts acknowledged writes, until the connection is lost.
fn write_until_lost(mut stream: UnixStream, export: &str, acknowledged: &AtomicU64) {
    let mut client = Client::new();
    let (mut sent, mut answered) = (0, 0);
    let mut bytes = vec![0; 64 << 10];
    let mut to_send = [client.flags(), client.go(export)].concat();
    loop {
        if client.is_in_transmission() {
            while sent < answered + DEPTH {
                let data = vec![sent as u8; PIECE as usize];
                to_send.extend(client.write(sent + 1, sent % PIECES * PIECE, &data));
                sent += 1;
            }
        }
        if stream.write_all(&std::mem::take(&mut to_send)).is_err() {
            return;
        }
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            Ok(count) => client.on_bytes(&bytes[..count]),
        }
        while client.option_replied().is_some() {}
        while let Some((_, result)) = client.finished() {
            if result.as_ref().is_err_and(|failure| failure.error == NbdError::Shutdown) {
                // The server is stopping and accepts no more writes.
                return;
            }
            result.expect("a write succeeds while the server lives");
            answered += 1;
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The same in a thread of its own, with the count of acknowledged writes.
fn writer(directory: &Path, export: &'static str) -> (Arc<AtomicU64>, thread::JoinHandle<()>) {
    let acknowledged: Arc<AtomicU64> = Arc::default();
    let stream = UnixStream::connect(directory.join("nbd.sock")).expect("it listens");
    let count = Arc::clone(&acknowledged);
    (acknowledged, thread::spawn(move || write_until_lost(stream, export, &count)))
}

/// Waits until more writes are acknowledged; none may fail meanwhile.
fn wait_for_writes(acknowledged: &AtomicU64, writer: &thread::JoinHandle<()>) {
    let before = acknowledged.load(Ordering::SeqCst);
    wait_until("writes are acknowledged", || {
        assert!(!writer.is_finished(), "a write has failed");
        acknowledged.load(Ordering::SeqCst) >= before + WRITES
    });
}

/// Waits until the volume is suspended.
fn wait_until_suspended(directory: &Path) {
    wait_until("the volume is suspended", || zonda_in(directory, &["volume", "status", "vol"]).code == Some(1));
}

#[test]
fn a_server_that_is_killed_under_load_restarts_immediately() {
    let directory = make_volume("restarts");
    create(&directory);
    output_in(&directory, &["drive", "create", "drives/plain", "--profile", "conventional", "--zones", "2"]);
    let mut writers = Vec::new();
    for round in 0..KILLS {
        let server = start(&directory);
        let started = ["plain", "vol"].map(|export| writer(&directory, export));
        let acknowledged = started.map(|(acknowledged, writer)| {
            writers.push(writer);
            acknowledged
        });
        wait_until("writes are acknowledged", || {
            let is_lost = writers.iter().rev().take(2).any(thread::JoinHandle::is_finished);
            assert!(!is_lost, "a connection was lost in round {round}");
            acknowledged.iter().all(|count| count.load(Ordering::SeqCst) >= WRITES)
        });
        // The next server starts before the writers have noticed the end of their connections.
        server.kill();
    }
    start(&directory).stop();
    writers.into_iter().for_each(|writer| writer.join().expect("no write failed"));
    assert!(output_in(&directory, &["drive", "check", "drives/plain"]).contains("no damage"));
    let left = |name: &str| directory.join(name).exists();
    assert!(!left("nbd.sock") && !left("nbd.sock.lock"), "a stopped server removes its sockets");
}

#[test]
fn a_check_counts_blocks_with_a_write_in_flight_at_a_kill() {
    let directory = scratch("uncertain");
    output_in(&directory, &["drive", "create", "drives/plain", "--profile", "conventional", "--zones", "2"]);
    let server = Server::start(&directory, &["drives/plain", "--nbd", "unix:nbd.sock"]);
    let (acknowledged, writing) = writer(&directory, "plain");
    // Long enough for blocks to be written again.
    (0..3).for_each(|_| wait_for_writes(&acknowledged, &writing));
    server.kill();
    writing.join().expect("no write failed");
    let check = ["drive", "check", "drives/plain", "--quiet"];
    wait_until("the lock is free", || zonda_in(&directory, &check).code == Some(0));
    // A byte is corrupted in each written block; none was flushed.
    let data = directory.join("drives/plain/data.zonda");
    let (mut file, mut block) = (File::options().read(true).write(true).open(data).expect("it is there"), [0; 4096]);
    let mut corrupted: u64 = 0;
    for number in 0..256 {
        file.seek(SeekFrom::Start(number * 4096)).expect("the file is longer");
        file.read_exact(&mut block).expect("the file is longer");
        if block.iter().any(|&byte| byte != 0) {
            corrupted += 1;
            file.seek(SeekFrom::Start(number * 4096)).expect("the file is longer");
            file.write_all(&[!block[0]]).expect("it may be written");
        }
    }
    // The intent of a block that was written once has its checksum; contents of overwritten blocks
    // are accepted.
    let verdict = zonda_in(&directory, &[&check[..], &["--json"]].concat()).stdout;
    let verdict: serde_json::Value = serde_json::from_str(&verdict).expect("it is JSON");
    let found = verdict["findings"].as_array().expect("a list").len() as u64;
    let accepted = verdict["blocks_accepted"].as_u64().expect("a number");
    assert!(accepted > 0 && accepted + found == corrupted, "{accepted} accepted and {found} found of {corrupted}");
    assert_eq!(verdict["is_healthy"], found == 0);
    let words = zonda_in(&directory, &check).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("were being overwritten when the drive stopped"), "{words}");
}

#[test]
fn the_socket_and_drives_of_a_running_server_are_refused_to_another() {
    let directory = scratch("alive");
    output_in(&directory, &["drive", "create", "drives/plain", "--profile", "conventional", "--zones", "2"]);
    output_in(&directory, &["drive", "create", "drives/other", "--profile", "conventional", "--zones", "2"]);
    let server = Server::start(&directory, &["drives/plain", "--nbd", "unix:nbd.sock"]);
    let second = |drive: &str, nbd: &str| {
        let arguments = ["serve", drive, "--nbd", nbd, "--listen", "127.0.0.1:0", "--http", "off"];
        refused_in(&directory, &arguments).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let refused = second("drives/other", "unix:nbd.sock");
    assert!(
        refused.contains("another server listens on nbd.sock") && refused.contains("stop the other server, or choose"),
        "{refused}"
    );
    let refused = second("drives/plain", "unix:other.sock");
    assert!(refused.contains("the image in drives/plain is in use by another program"), "{refused}");
    UnixStream::connect(directory.join("nbd.sock")).expect("the first server still runs");
    server.stop();
}

#[test]
fn a_server_waits_for_the_lock_of_a_terminating_server() {
    let directory = make_volume("ending");
    create(&directory);
    output_in(&directory, &["drive", "create", "drives/plain", "--profile", "conventional", "--zones", "2"]);
    for (served, locked) in [("drives/plain", "drives/plain/image.zonda"), ("vol", "vol/lock"), ("vol", "vol")] {
        // A killed server holds its locks until its outstanding disk I/O completes.
        let lock = File::open(directory.join(locked)).expect("it exists");
        lock.try_lock().expect("no server runs");
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(lock);
        });
        Server::start(&directory, &[served]).stop();
        ending.join().expect("it has ended");
    }
}

#[test]
fn a_volume_that_is_renamed_while_served_does_not_touch_a_new_one_of_that_name() {
    let directory = make_volume("renamed");
    let make = |members| output_in(&directory, &["volume", "create", "vol", "--members", members, "--level", "1"]);
    let array = |name: &str| {
        let text = fs::read_to_string(directory.join(name).join("volume.toml")).expect("it exists");
        text.lines().find(|line| line.starts_with("array")).expect("a volume has an array").to_owned()
    };
    make("drives/a,drives/b");
    let (first, first_array) = (Server::start(&directory, &["vol"]), array("vol"));
    fs::rename(directory.join("vol"), directory.join("renamed")).expect("a user may");
    make("drives/c,drives/d");
    let (second, second_array) = (Server::start(&directory, &["vol"]), array("vol"));
    // Both save the state of their members.
    first.stop();
    let report = output_in(&directory, &["volume", "scrub", "vol"]);
    assert!(report.contains("RAID 1"), "the second volume is still reachable: {report}");
    second.stop();
    assert_eq!((array("renamed"), array("vol")), (first_array, second_array));
    Server::start(&directory, &["renamed", "vol"]).stop();
}

#[test]
fn a_volume_is_suspended_while_a_needed_member_is_unreachable_and_resumes_afterwards() {
    let (directory, host) = (make_volume("needed-remote"), own_address());
    let (listen, http) = (format!("{host}:4430"), format!("{host}:9430"));
    let start = || Server::start(&directory, &["drives/a", "--force", "--listen", &listen, "--http", &http]);
    let mut remote = start();
    output_in(&directory, &["volume", "create", "vol", "--members", remote.url(0), "--level", "0"]);
    let volume = Server::start(&directory, &["vol", "--nbd", "unix:nbd.sock", "--http", "off"]);
    let (acknowledged, writer) = writer(&directory, "vol");
    for _ in 0..2 {
        wait_for_writes(&acknowledged, &writer);
        remote.kill();
        wait_until_suspended(&directory);
        assert!(!writer.is_finished(), "a write has failed");
        remote = start();
    }
    wait_for_writes(&acknowledged, &writer);
    assert_eq!(zonda_in(&directory, &["volume", "status", "vol"]).code, Some(0), "it is no longer suspended");
    let log = volume.stop();
    assert_eq!(log.matches("is reconnected").count(), 2, "{log}");
    writer.join().expect("no write failed");
    remote.stop();
}

#[test]
fn a_suspended_volume_can_be_stopped() {
    let (directory, host) = (make_volume("remote-gone"), own_address());
    let (listen, http) = (format!("{host}:4440"), format!("{host}:9440"));
    let remote = Server::start(&directory, &["drives/a", "--force", "--listen", &listen, "--http", &http]);
    output_in(&directory, &["volume", "create", "vol", "--members", remote.url(0), "--level", "0"]);
    let volume = Server::start(&directory, &["vol", "--nbd", "unix:nbd.sock", "--http", "off"]);
    let (acknowledged, writer) = writer(&directory, "vol");
    wait_for_writes(&acknowledged, &writer);
    remote.kill();
    wait_until_suspended(&directory);
    // Writes wait for the member, which stays unreachable.
    volume.signal(Signal::TERM);
    let (status, log) = volume.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("requests did not complete before the server stopped"), "{log}");
    assert!(log.contains("is not connected: writes that were not flushed may be lost"), "{log}");
    writer.join().expect("no write failed");
    let remote = Server::start(&directory, &["drives/a", "--force", "--listen", &listen, "--http", &http]);
    assert_eq!(zonda_in(&directory, &["volume", "scrub", "vol"]).code, Some(0), "the volume is healthy");
    remote.stop();
}
