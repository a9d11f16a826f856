//! `zonda pool`, `zonda namespace`, and a server of a pool.

use std::os::unix::fs::FileExt;
use std::path::Path;

use zonda_devices::{Connection, Location, NamespaceOptions};
use zonda_zoned::{BlockBuffer, Blocks, Lba, Operation, Outcome, Payload};

use super::server::{Server, greeting_in};
use super::{Scratch, assert_golden, file, json_in, output_in, refused_in, scratch, wait_until};

/// A drive of forty zones of 1 MiB.
fn make_drive(name: &str) -> Scratch {
    let directory = scratch(name);
    output_in(&directory, &["drive", "create", "drives/a", "--zones", "40", "--zone-capacity", "1MiB"]);
    directory
}

const CREATE: [&str; 9] =
    ["pool", "create", "pool", "--drive", "drives/a", "--zones-per-vzone", "4", "--width-max", "4"];

/// A pool with the namespaces `db` and `log`.
fn make_pool(name: &str) -> Scratch {
    let directory = make_drive(name);
    output_in(&directory, &CREATE);
    output_in(&directory, &["namespace", "create", "pool", "db", "--size", "8MiB", "--weight", "2", "--active", "2"]);
    output_in(&directory, &["namespace", "create", "pool", "log", "--zones", "2", "--active", "2"]);
    directory
}

fn connect(url: &str) -> Connection {
    let location: Location = url.parse().expect("the server prints valid URLs");
    Connection::open(&location, &NamespaceOptions::default()).expect("it is served")
}

/// Writes blocks from the start of a namespace, each with its number and `salt`.
fn write(connection: &mut Connection, blocks: u64, salt: u8) {
    for block in 0..blocks {
        let data = vec![block as u8 ^ salt; 4096].into();
        let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
        let write = Operation::Write { start: Lba(block), blocks: Blocks(1), payload };
        let ended = connection.execute(write).expect("the server is running");
        assert!(ended.status.is_success(), "block {block}: {}", ended.status);
    }
}

fn check(connection: &mut Connection, blocks: u64, salt: u8) {
    for block in 0..blocks {
        let read = Operation::Read { start: Lba(block), blocks: Blocks(1) };
        let ended = connection.execute(read).expect("the server is running");
        let Outcome::Data(Payload::Bytes(buffer)) = ended.outcome else { panic!("block {block}: {}", ended.status) };
        assert!(buffer.data.iter().all(|byte| *byte == block as u8 ^ salt), "block {block}");
    }
}

#[test]
fn a_pool_is_created_and_shown() {
    let directory = make_drive("pool");
    let created = output_in(&directory, &CREATE);
    let made = output_in(&directory, &["namespace", "create", "pool", "db", "--size", "8MiB", "--active", "2"]);
    output_in(&directory, &["namespace", "create", "pool", "log", "--zones", "2", "--active", "1", "--weight", "3"]);
    let shown = output_in(&directory, &["pool", "show", "pool"]);
    assert_golden("pool_new.txt", &format!("{created}\n{made}\n{shown}"));
    let report = json_in(&directory, &["pool", "show", "pool", "--json"]);
    assert_eq!((&report["drive"], &report["namespaces"][1]["weight"]), (&"../drives/a".into(), &3.into()));
    let list = json_in(&directory, &["namespace", "list", "pool", "--json"]);
    assert_eq!(list, report["namespaces"]);
    let grown = json_in(&directory, &["namespace", "resize", "pool", "log", "--zones", "3", "--json"]);
    assert_eq!((&grown["name"], &grown["zones"]), (&"log".into(), &3.into()));
    assert_eq!(output_in(&directory, &["namespace", "delete", "pool", "db"]), "deleted db\n");
    let list = output_in(&directory, &["namespace", "list", "pool"]);
    assert!(list.contains("log") && !list.contains("db"), "{list}");
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let directory = make_pool("pool-refused");
    for (arguments, words) in [
        (&CREATE[..], "the directory pool holds a pool already"),
        (&["pool", "create", "other", "--drive", "drives/a"], "it is the drive of the pool"),
        (&["pool", "create", "other", "--drive", "pool"], "is a pool, not a zoned drive"),
        (&["pool", "create", "drives/a", "--drive", "drives/a"], "drives/a is the directory of an image"),
        (&["pool", "create", "other", "--drive", "drives/a", "--width-max", "3"], "must be a power of two up to 16"),
        (&["pool", "show", "drives/a"], "not of a pool"),
        (&["pool", "show", "none"], "there is no pool in none"),
        (&["namespace", "create", "pool", "big", "--size", "1GiB", "--active", "1"], "that are not promised to others"),
        (
            &["namespace", "resize", "pool", "db", "--size", "1GiB"],
            "zones (1 GiB) are more than the 5 zones (14.68 MiB) that are not promised to others",
        ),
        (&["namespace", "create", "pool", "db", "--zones", "1", "--active", "1"], "has a namespace \"db\" already"),
        (&["namespace", "create", "pool", "a/b", "--zones", "1", "--active", "1"], "cannot be the name"),
        (&["namespace", "create", "pool", "wide", "--zones", "3", "--active", "3"], "--active 3 needs 3"),
        (&["namespace", "create", "pool", "many", "--zones", "0", "--active", "1"], "has at least one zone"),
        (&["namespace", "resize", "pool", "none", "--zones", "1"], "has no namespace \"none\""),
        (&["namespace", "delete", "pool", "none"], "has no namespace \"none\""),
        (&["serve", "drives/a", "--listen", "127.0.0.1:0", "--http", "off"], "is the drive of the pool"),
        (&["zone", "reset", "drives/a", "0"], "drives/a is the drive of the pool"),
        (&["volume", "create", "vol", "--members", "drives/a"], "is not empty: it is the drive of the pool"),
    ] {
        let refused = refused_in(&directory, arguments);
        let flat = refused.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{arguments:?}: {refused}");
    }
    assert!(!directory.join("other").exists(), "nothing is left of a refused creation");
    // Nothing was changed by all that.
    let list = json_in(&directory, &["namespace", "list", "pool", "--json"]);
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
}

#[test]
fn a_pool_without_namespaces_is_not_served() {
    let directory = make_drive("pool-empty");
    output_in(&directory, &CREATE);
    let refused = refused_in(&directory, &["serve", "pool", "--listen", "127.0.0.1:0", "--http", "off"]);
    assert!(refused.contains("no namespace to serve") && refused.contains("zonda namespace create pool"), "{refused}");
}

#[test]
fn each_namespace_is_a_subsystem_and_its_data_survives_a_kill() {
    let directory = make_pool("pool-served");
    let server = Server::start(&directory, &["pool"]);
    assert!(server.url(0).contains("io.zonda:pool:db") && server.url(1).contains("io.zonda:pool:log"));
    let (mut db, mut log) = (connect(server.url(0)), connect(server.url(1)));
    write(&mut db, 300, 1);
    write(&mut log, 200, 0x80);
    check(&mut db, 300, 1);
    let status = output_in(&directory, &["status", server.http()]);
    assert!(status.contains("pool:db, 3 zones of") && status.contains("1 of 2 active"), "{status}");
    let refused = refused_in(&directory, &["drive", "check", "drives/a"]);
    assert!(refused.contains("in use"), "{refused}");
    server.kill();
    drop((db, log));
    // The lock is free when the process has ended, some time after the kill.
    let server = wait_for_server(&directory);
    let (mut db, mut log) = (connect(server.url(0)), connect(server.url(1)));
    check(&mut db, 300, 1);
    check(&mut log, 200, 0x80);
    let zones = output_in(&directory, &["zone", "report", server.url(1)]);
    assert!(zones.contains("2 zones"), "{zones}");
    drop((db, log));
    let log = server.stop();
    assert!(log.contains("stopped: all data is on stable storage"), "{log}");
    assert!(!directory.join("pool/control").exists(), "the socket goes with the server");
    assert!(output_in(&directory, &["drive", "check", "drives/a"]).contains("no damage"));
    let refused = refused_in(&directory, &["namespace", "delete", "pool", "db"]);
    assert!(refused.contains("holds 1.17 MiB of data") && refused.contains("--yes"), "{refused}");
    output_in(&directory, &["namespace", "delete", "pool", "db", "--yes"]);
}

/// Starts a server of the pool once the drive can be read again.
fn wait_for_server(directory: &Path) -> Server {
    wait_until("the lock is free", || super::zonda_in(directory, &["pool", "show", "pool"]).code == Some(0));
    Server::start(directory, &["pool"])
}

#[test]
fn a_bench_run_verifies_its_data_on_two_tenants() {
    let directory = make_pool("pool-bench");
    let job = "[run]\ntime = \"1 s\"\nverify = true\n\n[[job]]\noperation = \"mix\"\nmix = { read = 1, append = 1 }\n\
               zones = \"0..1\"\non_full = \"reset\"\nqueue_depth = 4\n";
    file(&directory, "job.toml", job);
    let server = Server::start(&directory, &["pool"]);
    for index in 0..2 {
        let arguments = ["bench", "job.toml", "--target", server.url(index), "--yes", "--json", "--quiet"];
        let result = json_in(&directory, &arguments);
        let errors = &result["run"]["jobs"][0]["errors"];
        assert!(errors.as_array().is_some_and(Vec::is_empty), "{errors}");
        assert!(result["run"]["verified_blocks"].as_u64() > Some(0), "{result}");
    }
    server.stop();
}

/// A configuration that exports these namespaces of the pool, each as a subsystem.
fn configure(directory: &Path, names: &[&str]) {
    let mut text = "[server]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for name in names {
        text += &format!(
            "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:{name}\"\n\
             host = [{{ nqn = \"nqn.2014-08.org.nvmexpress:{name}\" }}]\n\
             [[subsystem.namespace]]\npool = \"pool\"\nname = \"{name}\"\n"
        );
    }
    file(directory, "zonda.toml", text);
}

#[test]
fn namespaces_are_created_resized_and_deleted_while_the_pool_is_served() {
    let directory = make_pool("pool-online");
    configure(&directory, &["db", "log"]);
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let refused = refused_in(&directory, &["zone", "report", server.url(0)]);
    assert!(refused.contains("does not allow this host NQN"), "{refused}");
    let report = |name: &str| {
        let url = format!("nvme-tcp://{}/nqn.2026-01.io.zonda:{name}", server.address());
        let host = format!("nqn.2014-08.org.nvmexpress:{name}");
        output_in(&directory, &["zone", "report", &url, "--host-nqn", &host])
    };
    assert!(report("db").contains("3 zones"));
    let grown = output_in(&directory, &["namespace", "resize", "pool", "db", "--zones", "4"]);
    assert!(grown.contains("db now has") && grown.contains("4 zones"), "{grown}");
    wait_until("hosts see the new size", || report("db").contains("4 zones"));
    let made = output_in(&directory, &["namespace", "create", "pool", "new", "--zones", "1", "--active", "1"]);
    assert!(made.contains("to export it: add pool = \"pool\", name = \"new\" to zonda.toml"), "{made}");
    let refused = refused_in(&directory, &["namespace", "delete", "pool", "log"]);
    assert!(refused.contains("is served") && refused.contains("zonda reload"), "{refused}");
    let refused = refused_in(&directory, &["namespace", "create", "pool", "new", "--zones", "1", "--active", "1"]);
    assert!(refused.contains("has a namespace \"new\" already"), "{refused}");
    configure(&directory, &["db", "new"]);
    server.signal(rustix::process::Signal::HUP);
    wait_until("the configuration is reloaded", || server.get("/status.json").contains("pool:new"));
    assert!(report("new").contains("1 zone"), "{}", report("new"));
    wait_until("log is not served any more", || {
        super::zonda_in(&directory, &["namespace", "delete", "pool", "log"]).code == Some(0)
    });
    let list = json_in(&directory, &["namespace", "list", "pool", "--json"]);
    let names: Vec<_> = list.as_array().expect("it is a list").iter().map(|own| own["name"].clone()).collect();
    assert_eq!(names, ["db", "new"]);
    let log = server.stop();
    assert!(log.contains("request: resize namespace \"db\" to 4 zones"), "{log}");
    let report = json_in(&directory, &["pool", "show", "pool", "--json"]);
    assert_eq!((&report["namespaces"][0]["zones"], &report["namespaces"][1]["name"]), (&4.into(), &"new".into()));
}

#[test]
fn a_pool_on_a_drive_of_another_server_reserves_it() {
    let directory = make_drive("pool-remote");
    let drives = Server::start(&directory, &["drives/a"]);
    let url = drives.url(0);
    let create = [&["pool", "create", "pool", "--drive", url][..], &CREATE[5..]].concat();
    output_in(&directory, &create);
    output_in(&directory, &["namespace", "create", "pool", "db", "--zones", "2", "--active", "2"]);
    let server = Server::start(&directory, &["pool"]);
    let mut db = connect(server.url(0));
    write(&mut db, 100, 3);
    // Another host cannot write to the drive meanwhile, and another directory cannot open the pool.
    let refused = refused_in(&directory, &["zone", "reset", url, "0", "--force"]);
    assert!(refused.contains("reserv"), "{refused}");
    std::fs::create_dir(directory.join("copy")).expect("there is space");
    std::fs::copy(directory.join("pool/pool.toml"), directory.join("copy/pool.toml")).expect("it exists");
    let refused = refused_in(&directory, &["namespace", "delete", "copy", "db", "--yes"]);
    assert!(refused.contains("is reserved by"), "{refused}");
    server.kill();
    drop(db);
    let server = Server::start(&directory, &["pool"]);
    check(&mut connect(server.url(0)), 100, 3);
    server.stop();
    let shown = output_in(&directory, &["namespace", "list", "pool"]);
    assert!(shown.contains("db"), "{shown}");
    drives.stop();
}

#[test]
fn the_greeting_names_the_pool_and_the_namespace() {
    let directory = make_pool("pool-greeting");
    let (text, _) = greeting_in(&directory, &["pool", "--http", "off"]);
    assert!(text.contains("  namespace 1: pool:db, 3 zones of"), "{text}");
    assert!(text.contains("weight 2, at most 2 active zones"), "{text}");
}

#[test]
fn a_pool_with_a_damaged_log_keeps_the_protection_of_its_drive() {
    let directory = make_pool("pool-damaged");
    let server = Server::start(&directory, &["pool"]);
    let mut db = connect(server.url(0));
    write(&mut db, 20, 1);
    drop(db);
    server.stop();
    let data = std::fs::OpenOptions::new().write(true).open(directory.join("drives/a/data.zonda")).expect("it exists");
    // The first block of each zone of the log.
    (0..6).for_each(|zone| data.write_all_at(&[0; 4096], zone << 20).expect("the disk has space"));
    let shown = refused_in(&directory, &["pool", "show", "pool"]);
    assert!(shown.contains("the pool's log is damaged"), "{shown}");
    for arguments in [
        &["serve", "drives/a", "--listen", "127.0.0.1:0", "--http", "off"][..],
        &["zone", "reset", "drives/a", "--all"],
        &["bench", "job.toml", "--target", "drives/a", "--yes"],
        &["volume", "create", "vol", "--members", "drives/a"],
        &["pool", "create", "other", "--drive", "drives/a"],
    ] {
        file(&directory, "job.toml", "[run]\n[[job]]\noperation = \"write\"\n");
        let refused = refused_in(&directory, arguments);
        let flat = refused.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("the drive of the pool") && flat.contains("its log is damaged"), "{refused}");
    }
    let after = refused_in(&directory, &["pool", "show", "pool"]);
    assert_eq!(shown, after, "nothing was written");
    output_in(&directory, &["zone", "reset", "drives/a", "--all", "--force"]);
}

#[test]
fn a_pool_is_managed_at_a_path_of_any_length_and_its_names_are_parts_of_nqns() {
    let directory = make_drive("pool-long");
    let above = "d".repeat(150);
    std::fs::create_dir(directory.join(&above)).expect("the disk has space");
    let path = format!("{above}/a pool");
    output_in(&directory, &["pool", "create", &path, "--drive", "drives/a"]);
    for name in [".", ".."] {
        let refused = refused_in(&directory, &["namespace", "create", &path, name, "--zones", "1", "--active", "1"]);
        assert!(refused.contains("cannot be the name of a namespace"), "{refused}");
    }
    output_in(&directory, &["namespace", "create", &path, "db", "--zones", "1", "--active", "1"]);
    let twice = refused_in(&directory, &["serve", &path, &path]);
    assert!(twice.contains("a pool can be served only once"), "{twice}");
    let server = Server::start(&directory, &[&path]);
    assert!(server.url(0).ends_with("nqn.2026-01.io.zonda:a-pool:db"), "{}", server.url(0));
    output_in(&directory, &["namespace", "create", &path, "log", "--zones", "1", "--active", "1"]);
    let names = output_in(&directory, &["namespace", "list", &path]);
    assert!(names.contains("db") && names.contains("log"), "{names}");
    server.stop();
}
