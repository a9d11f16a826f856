//! Drives with conventional zones before their sequential ones, as most SMR disks are: servers, volumes
//! and pools use the sequential zones.

use zonda_devices::{Connection, Location, NamespaceOptions};
use zonda_zoned::{BlockBuffer, Blocks, Lba, Operation, Outcome, Payload};

use super::server::Server;
use super::{Scratch, file, json_in, output_in, refused_in, root, scratch, zonda_in};

const NOT_USED: &str = "the 4 conventional zones of the drive are not used";

/// Images of 44 zones of 1 MiB, the first 4 of which are conventional.
fn images(test: &str, names: &[&str]) -> Scratch {
    let directory = scratch(test);
    let profile = std::fs::read_to_string(root().join("crates/profiles/drives/tiny.toml")).expect("it is a profile");
    let edited = profile
        .replace("name = \"tiny\"", "name = \"mixed\"")
        .replace("metadata_bytes = 16\n", "")
        .replace("zone_size = \"2 MiB\"", "zone_size = \"1536 KiB\"")
        .replace("zones = 16", "zones = 44\nconventional_zones = 4")
        .replace("cap = \"512 KiB\"\n", "")
        .replace("[sources]\n", "[conventional]\nover_provisioning_percent = 30\ngc_low_units = 3\n\n[sources]\nconventional = \"assumed\"\n");
    file(&directory, "mixed.toml", edited);
    for name in names {
        output_in(&directory, &["drive", "create", name, "--profile", "./mixed.toml"]);
    }
    directory
}

fn connect(url: &str) -> Connection {
    let location: Location = url.parse().expect("the server prints valid URLs");
    Connection::open(&location, &NamespaceOptions::default()).expect("it is served")
}

fn write(connection: &mut Connection, lba: u64, byte: u8) {
    let block_bytes = connection.geometry().block_size_bytes as usize;
    let payload =
        Payload::Bytes(Box::new(BlockBuffer { data: vec![byte; block_bytes].into(), metadata: vec![].into() }));
    let operation = Operation::Write { start: Lba(lba), blocks: Blocks(1), payload };
    let status = connection.execute(operation).expect("the server is running").status;
    assert!(status.is_success(), "{status}");
}

fn byte_at(connection: &mut Connection, lba: u64) -> u8 {
    let read = Operation::Read { start: Lba(lba), blocks: Blocks(1) };
    match connection.execute(read).expect("the server is running").outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data[0],
        other => panic!("no data: {other:?}"),
    }
}

/// Serves a volume or a pool, writes to it, and kills the server.
fn write_and_kill(directory: &Scratch, served: &str) {
    let server = Server::start(directory, &[served]);
    let mut host = connect(server.url(0));
    (0..64).for_each(|lba| write(&mut host, lba, lba as u8 + 1));
    host.close().expect("the server is running");
    server.kill();
}

fn holds_what_was_written(directory: &Scratch, served: &str) {
    let server = Server::start(directory, &[served]);
    let mut host = connect(server.url(0));
    (0..64).for_each(|lba| assert_eq!(byte_at(&mut host, lba), lba as u8 + 1));
    host.close().expect("the server is running");
}

#[test]
fn a_server_shows_the_sequential_zones_and_says_once_that_the_others_are_not_used() {
    let directory = images("mixed-serve", &["a"]);
    let server = Server::start(&directory, &["a"]);
    let mut host = connect(server.url(0));
    let geometry = host.geometry().clone();
    assert_eq!((geometry.zone_count, geometry.conventional_zone_count), (40, 0));
    write(&mut host, 0, 7);
    write(&mut host, geometry.zone_size_blocks.0 * 39, 8);
    host.close().expect("the server is running");
    server.wait_until_alone();
    let log = server.stop();
    assert_eq!(log.matches(NOT_USED).count(), 1, "{log}");
    // The zones of the image have the numbers of the image.
    let report = output_in(&directory, &["zone", "report", "a"]);
    assert!(report.contains("44 zones"), "{report}");
    let server = Server::start(&directory, &["a", "--read-only"]);
    let mut host = connect(server.url(0));
    assert_eq!((byte_at(&mut host, 0), byte_at(&mut host, geometry.zone_size_blocks.0 * 39)), (7, 8));
    host.close().expect("the server is running");
}

#[test]
fn a_volume_uses_the_sequential_zones_of_its_members() {
    let directory = images("mixed-volume", &["a", "b", "c"]);
    let created = zonda_in(&directory, &["volume", "create", "vol", "--members", "a,b,c"]);
    assert_eq!((created.code, created.stderr.matches(NOT_USED).count()), (Some(0), 3), "{}", created.stderr);
    // The drive as a whole names its volume, too.
    let refusal = refused_in(&directory, &["zone", "reset", "a", "--all"]);
    assert!(refusal.contains("member 0 of the volume"), "{refusal}");
    let refusal = refused_in(&directory, &["pool", "create", "pool", "--drive", "b"]);
    assert!(refusal.contains("member 1 of the volume"), "{refusal}");
    let refusal = refused_in(&directory, &["serve", "c", "--listen", "127.0.0.1:0"]);
    assert!(refusal.contains("member 2 of the volume"), "{refusal}");
    write_and_kill(&directory, "vol");
    let checked = output_in(&directory, &["volume", "check", "vol"]);
    assert!(checked.contains("healthy"), "{checked}");
    let status = output_in(&directory, &["volume", "status", "vol"]);
    assert!(status.contains("healthy"), "{status}");
    holds_what_was_written(&directory, "vol");
    // The directory is recreated from the superblocks.
    std::fs::rename(directory.join("vol"), directory.join("lost")).expect("it exists");
    output_in(&directory, &["volume", "import", "vol", "--members", "c,a,b"]);
}

#[test]
fn a_pool_uses_the_sequential_zones_of_its_drive() {
    let directory = images("mixed-pool", &["a"]);
    let create = ["pool", "create", "pool", "--drive", "a", "--zones-per-vzone", "2", "--width-max", "1"];
    let created = zonda_in(&directory, &create);
    assert_eq!((created.code, created.stderr.matches(NOT_USED).count()), (Some(0), 1), "{}", created.stderr);
    output_in(&directory, &["namespace", "create", "pool", "x", "--zones", "4", "--active", "1"]);
    write_and_kill(&directory, "pool");
    let shown = json_in(&directory, &["pool", "show", "pool", "--json"]);
    assert_eq!((&shown["drive_zones"], &shown["namespaces"][0]["name"]), (&40.into(), &"x".into()), "{shown}");
    let refusal = refused_in(&directory, &["zone", "reset", "a", "--all"]);
    assert!(refusal.contains("the drive of the pool"), "{refusal}");
    holds_what_was_written(&directory, "pool");
}

#[test]
fn the_conflict_groups_of_a_pool_must_be_those_of_its_drive() {
    let directory = images("mixed-groups", &["a", "b"]);
    output_in(&directory, &["pool", "create", "pool", "--drive", "a", "--zones-per-vzone", "2", "--width-max", "1"]);
    output_in(&directory, &["namespace", "create", "pool", "x", "--zones", "4", "--active", "1"]);
    for drive in ["a", "b"] {
        let table = format!("{drive}.json");
        output_in(&directory, &["probe", "--groups-only", drive, "--budget", "300ms", "--quiet", "--out", &table]);
        let settings = format!("[[pool]]\npath = \"pool\"\nscheduler = \"interference\"\ngroups = \"{table}\"\n");
        let served =
            "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:p\"\n[[subsystem.namespace]]\npool = \"pool\"\nname = \"x\"\n";
        let listen = "[server]\nlisten = [\"127.0.0.1:0\"]\n";
        file(&directory, &format!("{drive}.toml"), format!("{listen}{settings}{served}"));
    }
    let refusal = refused_in(&directory, &["serve", "--config", "b.toml", "--http", "off"]);
    assert!(refusal.contains("b.json") && refusal.contains("serial number"), "{refusal}");
    // The refusal has not mounted the pool, and its drive is free.
    let server = Server::start(&directory, &["--config", "a.toml"]);
    let mut host = connect(server.url(0));
    write(&mut host, 0, 3);
    assert_eq!(byte_at(&mut host, 0), 3);
    host.close().expect("the server is running");
}
