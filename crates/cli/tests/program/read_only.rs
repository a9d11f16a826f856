//! Images that are served read-only: hosts can read them, and no file of the directory changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use zonda_nbd::NbdError;
use zonda_nbd::wire::transmission::{command, flags};
use zonda_nvme::StatusCode;
use zonda_nvme::reservation::{AcquireAction, PersistChange};

use super::images::make_image;
use super::reservations::{Host, NbdClient, hosts_of};
use super::serve::with_default_ports;
use super::server::{Server, greeting_in};
use super::{assert_golden, json_in, output_in, refused_in, scratch, zonda_in};

const SUCCESS: StatusCode = StatusCode::SUCCESS;
const PROTECTED: StatusCode = StatusCode::NAMESPACE_WRITE_PROTECTED;

/// An image of conventional zones in `drive`.
fn make_conventional(directory: &Path) {
    let size = ["--zones", "2", "--zone-capacity", "2MiB"];
    output_in(directory, &[&["drive", "create", "drive", "--profile", "conventional"], &size[..]].concat());
}

/// Names and contents of all files of a directory.
fn contents(directory: PathBuf) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let files = std::fs::read_dir(directory).expect("it exists").map(|file| file.expect("it can be listed").path());
    files.map(|path| (path.clone(), std::fs::read(path).expect("it can be read"))).collect()
}

fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_image_of_a_killed_server_is_read_over_nvme_and_nbd_without_a_change() {
    let directory = scratch("read-only-served");
    make_conventional(&directory);
    let writer = Server::start(&directory, &["drive"]);
    let mut host = Host::connect(&writer, 3);
    assert_eq!((host.write(0), host.write(9)), (SUCCESS, SUCCESS));
    writer.kill();
    let before = contents(directory.join("drive"));

    let server = Server::start(&directory, &["--read-only", "drive", "--nbd", "unix:nbd.sock"]);
    let namespace = &server.greeting["subsystems"][0]["namespaces"][0];
    assert_eq!((&namespace["read_only"], &server.greeting["nbd"][0]["read_only"]), (&true.into(), &true.into()));
    let state = namespace["state"].as_str().expect("it is text");
    assert!(state.starts_with("read-only, recovered in memory after an unclean shutdown"), "{state}");

    let mut host = Host::connect(&server, 4);
    assert_eq!((host.read(0), host.read(9), host.read(1)), ((SUCCESS, 3), (SUCCESS, 3), (SUCCESS, 0)));
    assert_eq!((host.write(0), host.write(1), host.read(0)), (PROTECTED, PROTECTED, (SUCCESS, 3)));

    let mut client = NbdClient::open(&directory);
    // NBD_INFO_EXPORT: its type, the size in bytes and the transmission flags.
    let mut replies = std::iter::from_fn(|| client.client.option_replied());
    let shown = replies.find(|reply| reply.data.len() == 12 && reply.data[..2] == [0, 0]).expect("it was chosen");
    assert_ne!(u16::from_be_bytes([shown.data[10], shown.data[11]]) & flags::READ_ONLY, 0, "{:?}", shown.data);
    let refused = Err(NbdError::NotPermitted);
    assert_eq!((client.read(), client.write(5), client.read(), client.flush()), (Ok(3), refused, Ok(3), Ok(())));
    for request in [command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(client.ask(request, 4096, &[]).map(|_| ()), refused, "{request}");
    }

    let status = json_in(&directory, &["status", server.http(), "--json"]);
    assert_eq!(status["subsystems"][0]["namespaces"][0]["read_only"], true);
    let status = output_in(&directory, &["status", server.http()]);
    assert!(status.lines().any(|line| line.contains("namespace 1: drive,") && line.ends_with("read-only")), "{status}");
    assert!(contents(directory.join("drive")) == before, "while it is served");
    drop((host, client));
    server.stop();
    assert!(contents(directory.join("drive")) == before, "after the end");
}

#[test]
fn several_servers_and_a_check_read_one_image_and_writers_are_refused() {
    let directory = scratch("read-only-shared");
    make_image(&directory);
    let first = Server::start(&directory, &["--read-only", "drives/a"]);
    let before = contents(directory.join("drives/a"));
    let second = Server::start(&directory, &["--read-only", "drives/a"]);
    output_in(&directory, &["drive", "check", "drives/a", "--quiet"]);
    for server in [&first, &second] {
        output_in(&directory, &["zone", "report", server.url(0)]);
    }
    let writers =
        [&["serve", "drives/a", "--listen", "127.0.0.1:0", "--http", "off"][..], &["zone", "finish", "drives/a", "3"]];
    for writer in writers {
        assert!(words_of(&refused_in(&directory, writer)).contains("in use by another program"), "{writer:?}");
    }
    first.stop();
    second.stop();
    assert!(contents(directory.join("drives/a")) == before, "nothing has changed");

    let writer = Server::start(&directory, &["drives/a"]);
    let reader = ["serve", "--read-only", "drives/a", "--listen", "127.0.0.1:0", "--http", "off"];
    assert!(words_of(&refused_in(&directory, &reader)).contains("in use by another program"));
    writer.stop();
}

#[test]
fn zones_of_an_image_that_is_served_read_only_are_reported_and_not_managed() {
    let directory = scratch("read-only-zones");
    make_image(&directory);
    output_in(&directory, &["zone", "finish", "drives/a", "2"]);
    let before = contents(directory.join("drives/a"));
    let server = Server::start(&directory, &["--read-only", "drives/a", "--timing", "profile"]);
    let url = server.url(0);
    for action in ["reset", "open", "finish", "close"] {
        let refusal = words_of(&refused_in(&directory, &["zone", action, url, "2"]));
        assert!(refusal.contains("namespace is write protected"), "{action}: {refusal}");
        assert!(refusal.contains("the namespace is served read-only (zonda status)"), "{action}: {refusal}");
    }
    let report = json_in(&directory, &["zone", "report", url, "2", "--json"]);
    assert_eq!(report["zones"][0]["state"], "full");
    server.stop();
    assert!(contents(directory.join("drives/a")) == before, "nothing has changed");
}

#[test]
fn a_reservation_holds_on_a_read_only_image_and_is_kept_afterwards() {
    let directory = scratch("read-only-reservations");
    make_conventional(&directory);
    let writer = Server::start(&directory, &["drive"]);
    let mut owner = Host::connect(&writer, 1);
    assert_eq!(owner.register(PersistChange::Set), SUCCESS);
    assert_eq!(owner.acquire(AcquireAction::Acquire, 0), SUCCESS);
    writer.kill();

    let server = Server::start(&directory, &["--read-only", "drive"]);
    let mut other = Host::connect(&server, 2);
    assert_eq!(other.register(PersistChange::Set), StatusCode::INVALID_FIELD, "nothing can be stored");
    assert_eq!(other.register(PersistChange::Keep), SUCCESS);
    let found = other.report();
    assert_eq!((hosts_of(&found), found.persists), (vec![(1, 1, true), (2, 2, false)], false));
    assert_eq!((other.write(0), other.read(0)), (StatusCode::RESERVATION_CONFLICT, (SUCCESS, 0)));
    server.stop();

    let writer = Server::start(&directory, &["drive"]);
    let found = Host::connect(&writer, 2).report();
    assert_eq!((hosts_of(&found), found.persists), (vec![(1, 1, true)], true));
    writer.stop();
}

#[test]
fn volumes_and_memory_are_refused_read_only_before_anything_is_opened() {
    let directory = scratch("read-only-refused");
    output_in(
        &directory,
        &["drive", "create", "a", "--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"],
    );
    output_in(&directory, &["volume", "create", "vol", "--members", "a"]);
    let before = contents(directory.join("a"));
    let refusal = words_of(&refused_in(&directory, &["serve", "--read-only", "vol"]));
    assert!(refusal.contains("the volume vol cannot be served read-only"), "{refusal}");
    for arguments in [&["serve", "--read-only"][..], &["serve", "--read-only", "a", "--memory", "zn540"]] {
        assert_eq!(zonda_in(&directory, arguments).code, Some(2), "{arguments:?}");
    }
    assert!(!directory.join("zonda-drive").exists(), "no drive is created");
    assert!(contents(directory.join("a")) == before);

    // A member of a volume can be served read-only: hosts cannot overwrite data of the volume.
    Server::start(&directory, &["--read-only", "a"]).stop();
    assert!(contents(directory.join("a")) == before);
}

#[test]
fn the_greeting_of_a_read_only_server_shows_it() {
    let directory = scratch("read-only-greeting");
    make_conventional(&directory);
    let nbd = ["--nbd", "127.0.0.1:0"];
    let (text, _) = greeting_in(&directory, &[&["--read-only", "drive"], &nbd[..]].concat());
    let behind = |word: &str| {
        let rest = text.split_once(word).unwrap_or_else(|| panic!("no {word} in {text}")).1;
        rest.split([' ', '/', '\n']).next().expect("there is a word")
    };
    let shown = with_default_ports(&text, behind("listening on "), Some(behind("http://")));
    let shown = shown.replace(behind("nbd://"), "127.0.0.1:10809");
    assert_golden("serve_read_only.txt", &shown);
}
