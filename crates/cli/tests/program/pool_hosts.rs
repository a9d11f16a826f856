//! What a server accepts for the namespaces of a pool, and what their hosts see.

use std::fs;
use std::path::Path;

use zonda_nvme::StatusCode;
use zonda_nvme::reservation::{AcquireAction, PersistChange};

use super::reservations::Host;
use super::server::Server;
use super::{Scratch, file, json_in, output_in, refused_in, scratch, zonda_in};

const SUCCESS: StatusCode = StatusCode::SUCCESS;
const CONFLICT: StatusCode = StatusCode::RESERVATION_CONFLICT;
const PROTECTED: StatusCode = StatusCode::NAMESPACE_WRITE_PROTECTED;

/// A pool `pool` with the namespaces `db` and `log`.
fn make_pool(name: &str) -> Scratch {
    let directory = scratch(name);
    output_in(&directory, &["drive", "create", "a", "--zones", "40", "--zone-capacity", "1MiB"]);
    output_in(&directory, &["pool", "create", "pool", "--drive", "a", "--zones-per-vzone", "4", "--width-max", "4"]);
    create(&directory, "db");
    create(&directory, "log");
    directory
}

fn create(directory: &Path, name: &str) {
    output_in(directory, &["namespace", "create", "pool", name, "--zones", "2", "--active", "2", "--weight", "3"]);
}

/// A configuration with these tables, and each namespace with these keys as a subsystem.
fn configure(directory: &Path, tables: &str, namespaces: &[(&str, &str)]) {
    let mut text = format!("[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n{tables}\n");
    for (name, keys) in namespaces {
        text += &format!(
            "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:{name}\"\n[[subsystem.namespace]]\npool = \"pool\"\n\
             name = \"{name}\"\n{keys}\n"
        );
    }
    file(directory, "zonda.toml", text);
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_pool_is_served_through_a_scheduler_with_the_timing_of_its_drive_and_a_namespace_read_only() {
    let directory = make_pool("pool-scheduled");
    let settings = "[[pool]]\npath = \"pool\"\nscheduler = \"ezns\"\ntiming = \"profile\"\n";
    configure(&directory, settings, &[("db", ""), ("log", "")]);
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let report = json_in(&directory, &["pool", "show", "pool", "--json"]);
    assert_eq!(report["scheduler"], "ezns");
    let shown = output_in(&directory, &["pool", "show", "pool"]);
    assert!(shown.contains("scheduler  ezns"), "{shown}");
    let status: serde_json::Value = serde_json::from_str(&server.get("/status.json")).expect("it is JSON");
    assert_eq!(
        (&status["pools"][0]["report"]["scheduler"], &status["pools"][0]["report"]["log_copies"]),
        (&"ezns".into(), &2.into())
    );
    let text = output_in(&directory, &["status", server.http()]);
    assert!(text.contains("scheduler  ezns") && text.contains("stripe groups of at most"), "{text}");
    for (number, zone) in [(0, 0), (1, 1024)] {
        let mut host = Host::connect_to(&server, number, 3 + number as u8);
        assert_eq!(
            (host.write(0), host.write(zone)),
            (SUCCESS, if zone == 0 { StatusCode::ZONE_INVALID_WRITE } else { SUCCESS })
        );
        assert_eq!(host.read(0), (SUCCESS, 3 + number as u8));
    }
    let status: serde_json::Value = serde_json::from_str(&server.get("/status.json")).expect("it is JSON");
    assert_eq!(status["subsystems"][0]["namespaces"][0]["timing"], "profile");
    // The settings stay while the pool is served.
    configure(&directory, "", &[("db", ""), ("log", "")]);
    let http = server.http().to_owned();
    let refused = flat(&zonda_in(&directory, &["reload", "--http", &http]).stderr);
    assert!(
        refused.contains("scheduler and timing of the pool of pool:db cannot change while it is served"),
        "{refused}"
    );
    server.stop();

    configure(&directory, "", &[("db", "read_only = true"), ("log", "")]);
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let namespace = &server.greeting["subsystems"][0]["namespaces"][0];
    assert_eq!(namespace["read_only"], true);
    let state = namespace["state"].as_str().expect("it is text");
    assert_eq!(state, "read-only, weight 3, at most 2 active zones");
    let (mut db, mut log) = (Host::connect_to(&server, 0, 9), Host::connect_to(&server, 1, 8));
    assert_eq!((db.write(1), db.read(0), db.read(1)), (PROTECTED, (SUCCESS, 3), (SUCCESS, 0)));
    assert_eq!((log.write(1), log.read(1)), (SUCCESS, (SUCCESS, 8)), "the other one can be written");
    drop((db, log));
    server.stop();
    let server = Server::start(&directory, &["--read-only", "pool"]);
    let mut log = Host::connect_to(&server, 1, 7);
    assert_eq!((log.write(2), log.read(1)), (PROTECTED, (SUCCESS, 8)));
    drop(log);
    server.stop();
}

#[test]
fn a_reservation_on_a_namespace_of_a_pool_persists_until_the_namespace_is_deleted() {
    let directory = make_pool("pool-reservations");
    let server = Server::start(&directory, &["pool"]);
    let mut owner = Host::connect_to(&server, 0, 3);
    assert_eq!(owner.register(PersistChange::Set), SUCCESS);
    assert_eq!(owner.acquire(AcquireAction::Acquire, 0), SUCCESS);
    assert_eq!(owner.write(0), SUCCESS);
    server.kill();
    let server = Server::start(&directory, &["pool"]);
    let (mut owner, mut other) = (Host::connect_to(&server, 0, 3), Host::connect_to(&server, 0, 4));
    assert_eq!((other.write(1), other.read(0)), (CONFLICT, (SUCCESS, 3)), "the reservation has survived");
    assert_eq!(Host::connect_to(&server, 1, 4).write(0), SUCCESS, "it is that of one namespace");
    assert_eq!(owner.write(1), SUCCESS);
    drop((owner, other));
    server.stop();

    let file = fs::read_dir(directory.join("pool")).expect("it exists").filter_map(Result::ok).map(|file| file.path());
    let mut files =
        file.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"reservations-")));
    let place = files.next().expect("the reservation was saved");
    let away = directory.join("away");
    fs::rename(&place, &away).expect("the disk has space");
    let refused = flat(&refused_in(&directory, &["serve", "pool", "--listen", "127.0.0.1:0", "--http", "off"]));
    assert!(
        refused.contains("the saved reservations of namespace \"db\"") && refused.contains("are lost"),
        "{refused}"
    );
    fs::rename(&away, &place).expect("the disk has space");

    output_in(&directory, &["namespace", "delete", "pool", "db", "--yes"]);
    create(&directory, "db");
    let server = Server::start(&directory, &["pool"]);
    let mut other = Host::connect_to(&server, 0, 4);
    assert_eq!(other.write(0), SUCCESS, "the namespace of the same name is another one");
    drop(other);
    server.stop();
}
