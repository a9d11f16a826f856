//! Two servers of one pool, whose drive is a namespace of another server.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use zonda_devices::{Connection, Location, NamespaceOptions};
use zonda_zoned::{BlockBuffer, Blocks, Lba, Operation, Outcome, Payload, Status};

use super::server::Server;
use super::{Scratch, json_in, output_in, refused_in, scratch, wait_until, zonda_in};

/// A pool `pool` with the namespace `db` on a drive of a server, which is returned.
fn make(name: &str) -> (Scratch, Server) {
    let directory = scratch(name);
    output_in(&directory, &["drive", "create", "a", "--zones", "40", "--zone-capacity", "1MiB"]);
    let drive = Server::start(&directory, &["a"]);
    let options = ["--zones-per-vzone", "4", "--width-max", "4"];
    output_in(&directory, &[&["pool", "create", "pool", "--drive", drive.url(0)][..], &options].concat());
    output_in(&directory, &["namespace", "create", "pool", "db", "--zones", "3", "--active", "2"]);
    (directory, drive)
}

fn copy(directory: &Path) {
    fs::create_dir(directory.join("copy")).expect("the disk has space");
    fs::copy(directory.join("pool/pool.toml"), directory.join("copy/pool.toml")).expect("the disk has space");
}

fn connect(server: &Server) -> Connection {
    let location: Location = server.url(0).parse().expect("the server prints valid URLs");
    Connection::open(&location, &NamespaceOptions::default()).expect("it is served")
}

fn write(connection: &mut Connection, block: u64) -> Status {
    let data = vec![block as u8 ^ 0x55; 4096].into();
    let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
    let write = Operation::Write { start: Lba(block), blocks: Blocks(1), payload };
    connection.execute(write).expect("the server is running").status
}

fn write_all(connection: &mut Connection, blocks: std::ops::Range<u64>) {
    blocks.for_each(|block| assert_eq!(write(connection, block), Status::Success, "block {block}"));
}

/// Checks that these blocks hold what was written, and that the next one was never written.
fn check(connection: &mut Connection, blocks: u64) {
    for block in 0..=blocks {
        let read = Operation::Read { start: Lba(block), blocks: Blocks(1) };
        let ended = connection.execute(read).expect("the server is running");
        let Outcome::Data(Payload::Bytes(buffer)) = ended.outcome else { panic!("block {block}: {}", ended.status) };
        let expected = if block < blocks { block as u8 ^ 0x55 } else { 0 };
        assert!(buffer.data.iter().all(|byte| *byte == expected), "block {block}");
    }
}

fn is_disconnected(directory: &Path) -> bool {
    json_in(directory, &["pool", "show", "pool", "--json"])["is_disconnected"] == true
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_paused_server_of_a_pool_does_no_harm_after_a_takeover() {
    let (directory, drive) = make("pool-takeover");
    let first = Server::start(&directory, &["pool"]);
    let mut old_host = connect(&first);
    write_all(&mut old_host, 0..100);
    first.signal(Signal::STOP);
    copy(&directory);
    for arguments in [&["serve", "copy"][..], &["pool", "show", "copy"], &["namespace", "list", "copy"]] {
        let refused = flat(&refused_in(&directory, arguments));
        assert!(refused.contains("is reserved by another server of this pool, owner epoch"), "{refused}");
        assert!(refused.contains("take the pool over: zonda pool takeover copy"), "{refused}");
    }
    let report = json_in(&directory, &["pool", "takeover", "copy", "--json"]);
    let from = report["drives"][0]["taken_from"].as_str().expect("it was reserved by the paused server");
    assert!(from.starts_with("another server of this pool, owner epoch"), "{from}");
    let second = Server::start(&directory, &["copy"]);
    let mut new_host = connect(&second);
    check(&mut new_host, 100);
    write_all(&mut new_host, 100..120);
    first.signal(Signal::CONT);
    // The paused server has not seen block 100, nor that it was preempted.
    let read = Operation::Read { start: Lba(100), blocks: Blocks(1) };
    let stale = old_host.execute(read).expect("the server is running");
    assert!(!stale.status.is_success(), "a block that was written since is not read as unwritten");
    assert!(!write(&mut old_host, 100).is_success());
    wait_until("the first server stops serving", || {
        flat(&zonda_in(&directory, &["pool", "show", "pool"]).stderr)
            .contains("taken over by another server of this pool")
    });
    write_all(&mut new_host, 120..140);
    check(&mut new_host, 140);
    drop((old_host, new_host));
    let log = first.stop();
    assert!(log.contains("the pool is no longer served"), "{log}");
    second.stop();
    // The first server might only have been paused.
    let refused = flat(&refused_in(&directory, &["serve", "pool"]));
    assert!(refused.contains("is reserved by another server of this pool"), "{refused}");
    let elsewhere = flat(&refused_in(&directory, &["pool", "takeover", "pool", "--release"]));
    assert!(elsewhere.contains("cannot release the drive"), "{elsewhere}");
    let released = json_in(&directory, &["pool", "takeover", "copy", "--release", "--json"]);
    assert_eq!(released["drives"][0]["taken_from"], "this directory");
    let third = Server::start(&directory, &["pool"]);
    let mut host = connect(&third);
    check(&mut host, 140);
    drop(host);
    third.stop();
    drive.stop();
}

#[test]
fn a_pool_whose_server_was_killed_and_whose_directory_is_lost_is_taken_over() {
    let (directory, drive) = make("pool-lost");
    let first = Server::start(&directory, &["pool"]);
    let mut host = connect(&first);
    write_all(&mut host, 0..50);
    drop(host);
    first.kill();
    let file = directory.join("pool/pool.toml");
    let text = fs::read_to_string(&file).expect("it exists");
    let uuid = text.lines().find(|line| line.starts_with("pool = ")).expect("it has an identity").to_owned();
    fs::remove_dir_all(directory.join("pool")).expect("it exists");
    fs::create_dir(directory.join("pool")).expect("the disk has space");
    let text = format!("format = 1\n{uuid}\n\n[drive]\nat = \"{}\"\n", drive.url(0));
    fs::write(&file, text).expect("the disk has space");
    for arguments in
        [&["serve", "pool"][..], &["pool", "show", "pool"], &["namespace", "delete", "pool", "db", "--yes"]]
    {
        let refused = flat(&refused_in(&directory, arguments));
        assert!(refused.contains("is reserved by another server of this pool"), "{refused}");
        assert!(refused.contains("zonda pool takeover pool"), "{refused}");
    }
    let other = flat(&refused_in(&directory, &["pool", "create", "other", "--drive", drive.url(0), "--force"]));
    assert!(other.contains("is reserved by host") && other.contains("zonda pool takeover"), "{other}");
    let report = flat(&refused_in(&directory, &["zone", "report", drive.url(0)]));
    assert!(report.contains("zonda pool takeover DIR --release"), "{report}");
    let taken = output_in(&directory, &["pool", "takeover", "pool"]);
    assert!(taken.contains("owner epoch") && taken.contains("to serve the pool: zonda serve pool"), "{taken}");
    let second = Server::start(&directory, &["pool"]);
    let mut host = connect(&second);
    check(&mut host, 50);
    drive.kill();
    wait_until("the loss is noticed", || is_disconnected(&directory));
    drop(host);
    second.signal(Signal::TERM);
    let (_, log) = second.wait();
    assert!(log.contains("the connection to the drive nvme-tcp://"), "{log}");
}

#[test]
fn a_pool_continues_when_the_server_of_its_drive_is_killed_and_started_again() {
    let (directory, mut drive) = make("pool-reconnects");
    let address = drive.address();
    let server = Server::start(&directory, &["pool"]);
    let mut host = connect(&server);
    write_all(&mut host, 0..20);
    for round in 1..4 {
        drive.kill();
        wait_until("the loss is noticed", || is_disconnected(&directory));
        let shown = output_in(&directory, &["pool", "show", "pool"]);
        assert!(flat(&shown).contains("the connection to the drive is lost: hosts wait"), "{shown}");
        let refused = refused_in(&directory, &["namespace", "create", "pool", "x", "--zones", "1", "--active", "1"]);
        assert!(flat(&refused).contains("the connection to the drive"), "{refused}");
        drive = Server::start(&directory, &["a", "--force", "--listen", &address]);
        // It waits until the pool is mounted again.
        write_all(&mut host, 20 * round..20 * (round + 1));
        check(&mut host, 20 * (round + 1));
    }
    drop(host);
    let log = server.stop();
    assert_eq!(flat(&log).matches("the pool was opened again, and can be written").count(), 3, "{log}");
    drive.stop();
}

#[test]
fn a_takeover_of_another_pool_is_refused_and_its_owner_stays() {
    let (directory, drive) = make("pool-other");
    let first = Server::start(&directory, &["pool"]);
    let mut host = connect(&first);
    write_all(&mut host, 0..10);
    fs::create_dir(directory.join("other")).expect("the disk has space");
    let uuid = "0d0b6d3e-5a0f-4a53-9f0c-0f2a3c7c9f10";
    let text = format!("format = 1\npool = \"{uuid}\"\n\n[drive]\nat = \"{}\"\n", drive.url(0));
    fs::write(directory.join("other/pool.toml"), text).expect("the disk has space");
    let refused = flat(&refused_in(&directory, &["pool", "takeover", "other"]));
    assert!(refused.contains("which is no server of this pool") && refused.contains("--force other"), "{refused}");
    write_all(&mut host, 10..20);
    // It does not notice that its reservation was preempted and restored.
    first.signal(Signal::STOP);
    let refused = flat(&refused_in(&directory, &["pool", "takeover", "other", "--force"]));
    assert!(refused.contains("the drive has the pool"), "{refused}");
    first.signal(Signal::CONT);
    write_all(&mut host, 20..30);
    check(&mut host, 30);
    drop(host);
    first.stop();
    output_in(&directory, &["drive", "create", "b", "--zones", "40", "--zone-capacity", "1MiB"]);
    output_in(&directory, &["pool", "create", "local", "--drive", "b"]);
    let refused = flat(&refused_in(&directory, &["pool", "takeover", "local"]));
    assert!(refused.contains("cannot be taken over: its drive is an image"), "{refused}");
    let refused = refused_in(&directory, &["pool", "takeover", "b"]);
    assert!(refused.contains("not of a pool"), "{refused}");
    drive.stop();
}

#[test]
fn the_directory_of_a_pool_is_recreated_from_its_drive() {
    let (directory, drive) = make("pool-recreated");
    let first = Server::start(&directory, &["pool"]);
    let mut old_host = connect(&first);
    write_all(&mut old_host, 0..50);
    first.signal(Signal::STOP);
    fs::rename(directory.join("pool"), directory.join("lost")).expect("it exists");
    let url = drive.url(0);
    // Who has reserved the drive is shown; nothing is left of a takeover that is refused.
    output_in(&directory, &["drive", "create", "empty", "--zones", "40", "--zone-capacity", "1MiB"]);
    let refused = flat(&refused_in(&directory, &["pool", "takeover", "new", "--drive", "empty"]));
    assert!(refused.contains("there is no pool on") && !directory.join("new").exists(), "{refused}");
    let refused = flat(&refused_in(&directory, &["pool", "takeover", "lost", "--drive", url]));
    assert!(refused.contains("holds a pool already"), "{refused}");
    let report = json_in(&directory, &["pool", "takeover", "new/pool", "--drive", url, "--json"]);
    let from = report["drives"][0]["taken_from"].as_str().expect("it was reserved by the paused server");
    assert!(from.starts_with("another server of this pool, owner epoch"), "{from}");
    let second = Server::start(&directory, &["new/pool"]);
    let mut host = connect(&second);
    check(&mut host, 50);
    write_all(&mut host, 50..60);
    drop(host);
    second.stop();
    // The paused server is locked out, and stays so.
    first.signal(Signal::CONT);
    wait_until("its host is refused", || !write(&mut old_host, 50).is_success());
    drop(old_host);
    first.signal(Signal::TERM);
    let (_, log) = first.wait();
    assert!(log.contains("the pool is no longer served"), "{log}");
    let third = Server::start(&directory, &["new/pool"]);
    let mut host = connect(&third);
    check(&mut host, 60);
    drop(host);
    third.stop();
    output_in(&directory, &["pool", "takeover", "--release", "new/pool"]);
    // A drive that no server has reserved, and an image.
    let taken = output_in(&directory, &["pool", "takeover", "free", "--drive", url]);
    assert!(taken.contains("not reserved before") && taken.contains("to serve the pool: zonda serve free"), "{taken}");
    output_in(&directory, &["pool", "takeover", "--release", "free"]);
    drive.stop();
    let wrote = output_in(&directory, &["pool", "takeover", "local", "--drive", "a"]);
    assert!(wrote.contains("wrote local/pool.toml"), "{wrote}");
    let fourth = Server::start(&directory, &["local"]);
    let refused = flat(&refused_in(&directory, &["pool", "takeover", "local2", "--drive", "a"]));
    assert!(refused.contains("in use") && !directory.join("local2").exists(), "{refused}");
    let mut host = connect(&fourth);
    check(&mut host, 60);
    drop(host);
    fourth.stop();
}

#[test]
fn a_host_that_is_no_server_of_the_pool_keeps_the_drive_unless_it_is_forced() {
    let (directory, drive) = make("pool-foreign");
    let url = drive.url(0);
    let mut foreign = super::reservations::Host::connect_to(&drive, 0, 5);
    assert_eq!(foreign.register(zonda_nvme::reservation::PersistChange::Keep), zonda_nvme::StatusCode::SUCCESS);
    let exclusive = foreign.acquire_exclusive();
    assert_eq!(exclusive, zonda_nvme::StatusCode::SUCCESS);
    let refused = flat(&refused_in(&directory, &["pool", "takeover", "new", "--drive", url]));
    assert!(refused.contains("which is no server of its pool"), "{refused}");
    assert!(refused.contains(&format!("zonda pool takeover --force new --drive {url}")), "{refused}");
    assert!(!directory.join("new").exists());
    assert_eq!(foreign.read(0).0, zonda_nvme::StatusCode::SUCCESS, "it still has the drive");
    output_in(&directory, &["pool", "takeover", "new", "--drive", url, "--force"]);
    assert_eq!(foreign.read(0).0, zonda_nvme::StatusCode::RESERVATION_CONFLICT);
    drop(foreign);
    Server::start(&directory, &["new"]).stop();
    drive.stop();
}

/// Starts a takeover into `pool`, and kills it when `is_reached`.
fn take_over_until(directory: &Path, drive: &Server, what: &str, is_reached: impl FnMut() -> bool) {
    let mut taking = Command::new(env!("CARGO_BIN_EXE_zonda"));
    let taking = taking.args(["pool", "takeover", "pool", "--drive", drive.url(0)]).current_dir(directory);
    let mut taking = taking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be started");
    wait_until(what, is_reached);
    taking.kill().expect("it runs");
    taking.wait().expect("it was started");
}

fn continue_takeover(directory: &Path, drive: &Server) {
    let taken = flat(&output_in(directory, &["pool", "takeover", "pool", "--drive", drive.url(0)]));
    assert!(taken.contains("an interrupted takeover into this directory"), "{taken}");
    Server::start(directory, &["pool"]).stop();
    output_in(directory, &["pool", "takeover", "pool", "--release"]);
}

#[test]
fn a_takeover_of_a_lost_pool_that_is_killed_is_continued_by_the_next() {
    let (directory, drive) = make("pool-takeover-killed");
    // Of a pool whose server is lost, and of one that no server has reserved.
    for is_served in [true, false] {
        if is_served {
            Server::start(&directory, &["pool"]).kill();
        }
        fs::remove_dir_all(directory.join("pool")).expect("it exists");
        let file = directory.join("pool/pool.toml");
        // It waits for two seconds before it succeeds.
        take_over_until(&directory, &drive, "the directory is written", || file.exists());
        for other in [&["serve", "pool"][..], &["pool", "show", "pool"], &["pool", "takeover", "pool"]] {
            let refused = flat(&refused_in(&directory, other));
            assert!(refused.contains("the takeover of the pool into pool was interrupted"), "{refused}");
            assert!(refused.contains("zonda pool takeover pool --drive nvme-tcp://"), "{refused}");
        }
        continue_takeover(&directory, &drive);
    }
    drive.stop();
}

#[test]
fn a_takeover_that_is_killed_once_it_has_reserved_the_drive_is_continued_by_the_next() {
    let (directory, drive) = make("pool-takeover-reserved");
    let mut watching = super::reservations::Host::connect(&drive, 5);
    let mut holder = || watching.report().controllers.iter().find(|it| it.is_holder).map(|it| it.host);
    for is_served in [true, false] {
        if is_served {
            Server::start(&directory, &["pool"]).kill();
        }
        fs::remove_dir_all(directory.join("pool")).expect("it exists");
        let before = holder();
        assert_eq!(before.is_some(), is_served);
        // The directory is written a few milliseconds later.
        let mut is_reserved = || (0..1000).any(|_| ![None, before].contains(&holder()));
        take_over_until(&directory, &drive, "the drive is reserved", &mut is_reserved);
        continue_takeover(&directory, &drive);
    }
    drive.stop();
}
