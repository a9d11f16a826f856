//! Two servers with directories of the same volume, whose members are remote.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::server::Server;
use super::{Scratch, json_in, output_in, refused_in, scratch, wait_until, zonda_in};

const JOB: &str = "[run]\nverify = true\n\n[[job]]\noperation = \"randwrite\"\nblock_size = \"16 KiB\"\nqueue_depth = 4\nbytes = \"2 MiB\"\n";

/// A directory with a volume `vol` over drives of one server, and a copy of it; returns that
/// server.
fn make(name: &str) -> (Scratch, Server) {
    let directory = drives(name);
    let drives = Server::start(&directory, &["a", "b", "c"]);
    create(&directory, [drives.url(0), drives.url(1), drives.url(2)]);
    (directory, drives)
}

fn drives(name: &str) -> Scratch {
    let directory = scratch(name);
    make_drives(&directory, &["a", "b", "c"]);
    directory
}

fn make_drives(directory: &Path, names: &[&str]) {
    for drive in names {
        let arguments =
            ["drive", "create", drive, "--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "4MiB"];
        output_in(directory, &arguments);
    }
}

fn create(directory: &Path, members: [&str; 3]) {
    output_in(directory, &["volume", "create", "vol", "--members", &members.join(","), "--level", "5"]);
    fs::write(directory.join("job.toml"), JOB).expect("the disk has space");
}

fn copy(directory: &Path) {
    fs::create_dir(directory.join("copy")).expect("the disk has space");
    fs::copy(directory.join("vol/volume.toml"), directory.join("copy/volume.toml")).expect("the disk has space");
}

fn status(directory: &Path, volume: &str) -> Value {
    // The exit code depends on the state.
    let ran = zonda_in(directory, &["volume", "status", volume, "--json"]);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stderr))
}

fn state(directory: &Path, volume: &str) -> String {
    status(directory, volume)["state"].as_str().expect("there is a state").to_owned()
}

/// Writes to a served volume, and reads what was written.
fn write(directory: &Path, server: &Server) {
    output_in(directory, &["bench", "job.toml", "--target", server.url(0), "--yes", "--json", "--quiet"]);
}

#[test]
fn a_paused_server_stops_serving_a_volume_that_was_taken_over() {
    let (directory, drives) = make("takeover");
    let first = Server::start(&directory, &["vol"]);
    copy(&directory);
    write(&directory, &first);
    first.signal(Signal::STOP);
    let report = json_in(&directory, &["volume", "takeover", "copy", "--json"]);
    for drive in report["drives"].as_array().expect("there are drives") {
        let from = drive["taken_from"].as_str().expect("reserved by the paused server");
        assert!(from.starts_with("another server of this volume, owner epoch"), "{from}");
    }
    let second = Server::start(&directory, &["copy"]);
    write(&directory, &second);
    first.signal(Signal::CONT);
    wait_until("the first server stops serving", || state(&directory, "vol") == "taken over");
    write(&directory, &second);
    assert_eq!(state(&directory, "copy"), "healthy");
    let log = first.stop();
    assert!(log.contains("the volume is no longer served"), "{log}");
    second.stop();
    // The first server might only have been paused.
    let refused = refused_in(&directory, &["serve", "vol"]);
    assert!(refused.contains("is reserved by another server of this volume"), "{refused}");
    let elsewhere = refused_in(&directory, &["volume", "takeover", "vol", "--release"]);
    assert!(elsewhere.contains("cannot release the members: member 0"), "{elsewhere}");
    let released = json_in(&directory, &["volume", "takeover", "copy", "--release", "--json"]);
    assert_eq!(released["drives"][0]["taken_from"], "this directory");
    // After the release, any server can acquire the members.
    let third = Server::start(&directory, &["vol"]);
    write(&directory, &third);
    third.stop();
    drives.stop();
}

/// The copy names a member that a spare has replaced since, and cannot reach another member.
/// The servers of both drives have closed its connections when it wakes.
#[test]
fn a_paused_server_does_not_continue_with_one_half_of_a_mirror_if_the_other_was_taken_over() {
    let directory = drives("half-taken-over");
    let (one, two) = (Server::start(&directory, &["a"]), Server::start(&directory, &["b"]));
    let members = [one.url(0), two.url(0)].join(",");
    output_in(&directory, &["volume", "create", "vol", "--members", &members, "--level", "1"]);
    fs::write(directory.join("job.toml"), JOB).expect("the disk has space");
    let first = Server::start(&directory, &["vol"]);
    write(&directory, &first);
    first.signal(Signal::STOP);
    copy(&directory);
    let file = directory.join("copy/volume.toml");
    let text = fs::read_to_string(&file).expect("it exists").replace(&two.address(), "127.0.0.1:1");
    fs::write(&file, text).expect("the disk has space");
    let report = json_in(&directory, &["volume", "takeover", "copy", "--accept-missing", "--json"]);
    assert_eq!(report["is_enough"], true, "{report}");
    let second = Server::start(&directory, &["copy"]);
    write(&directory, &second);
    std::thread::sleep(Duration::from_secs(10));
    first.signal(Signal::CONT);
    let bench = ["bench", "job.toml", "--target", first.url(0), "--yes", "--json", "--quiet"];
    assert_ne!(zonda_in(&directory, &bench).code, Some(0), "no write is acknowledged");
    wait_until("the first server stops serving", || state(&directory, "vol") == "taken over");
    write(&directory, &second);
    let log = first.stop();
    assert!(log.contains("has been taken over by another server of this volume"), "{log}");
    assert!(!log.contains("has failed"), "{log}");
    second.stop();
    one.stop();
    two.stop();
}

#[test]
fn a_release_of_members_of_which_none_can_be_reached_fails() {
    let (directory, drives) = make("release-nothing");
    Server::start(&directory, &["vol"]).stop();
    drives.stop();
    let ran = zonda_in(&directory, &["volume", "takeover", "vol", "--release", "--accept-missing"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("no drive was acquired, so nothing was released"), "{}", ran.stdout);
}

#[test]
fn a_takeover_from_an_outdated_directory_is_refused() {
    let (directory, drives) = make("older-takeover");
    make_drives(&directory, &["s"]);
    let spares = Server::start(&directory, &["s"]);
    copy(&directory);
    let first = Server::start(&directory, &["vol"]);
    output_in(&directory, &["volume", "spare", "add", "vol", spares.url(0)]);
    output_in(&directory, &["member", "fail", "vol", "0"]);
    wait_until("the spare is rebuilt", || state(&directory, "vol") == "healthy");
    let file = directory.join("copy/volume.toml");
    let text = fs::read_to_string(&file).expect("it is there");
    let nowhere = drives.url(2).replacen(&drives.address(), "127.0.0.1:1", 1);
    fs::write(&file, text.replacen(drives.url(2), &nowhere, 1)).expect("the disk has space");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| (0..4).for_each(|_| write(&directory, &first)));
        for _ in 0..6 {
            let refused = refused_in(&directory, &["volume", "takeover", "copy"]);
            assert!(
                refused.contains("another server may continue with it: too few of its members 0, 2 can"),
                "{refused}"
            );
            assert!(refused.contains("a newer copy of its directory"), "{refused}");
        }
        writing.join().expect("no host has seen an error");
    });
    wait_until("a temporarily preempted member is connected again", || state(&directory, "vol") == "healthy");
    let outside = refused_in(&directory, &["zone", "reset", drives.url(1), "3"]);
    assert!(outside.contains("reservation conflict"), "it is reserved for its server again: {outside}");
    write(&directory, &first);
    let log = first.stop();
    assert!(!log.contains("is no longer served") && !log.contains("its commands have failed"), "{log}");
    // After a stop nothing of the takeovers is left.
    let second = Server::start(&directory, &["vol"]);
    assert_eq!(state(&directory, "vol"), "healthy");
    second.stop();
    spares.stop();
    drives.stop();
}

#[test]
fn a_killed_server_reacquires_its_members_which_stay_reserved_meanwhile() {
    let (directory, drives) = make("owner-killed");
    let first = Server::start(&directory, &["vol"]);
    let refused = refused_in(&directory, &["zone", "reset", drives.url(1), "3"]);
    assert!(refused.contains("reservation conflict"), "{refused}");
    first.kill();
    let second = Server::start(&directory, &["vol"]);
    assert_eq!(state(&directory, "vol"), "healthy");
    second.stop();
    drives.stop();
}

#[test]
fn a_copy_of_the_directory_of_a_served_volume_is_refused_at_the_first_attempt() {
    let (directory, drives) = make("owner-copy");
    let first = Server::start(&directory, &["vol"]);
    copy(&directory);
    let refused = refused_in(&directory, &["serve", "copy", "--listen", "127.0.0.1:0"]);
    assert!(refused.contains("is reserved by another server of this volume, owner epoch"), "{refused}");
    let words = refused.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("zonda volume takeover copy"), "{refused}");
    write(&directory, &first);
    first.stop();
    // Its creation, the first server, and one attempt.
    let log = drives.stop();
    assert_eq!(log.matches("connected to nqn.2026-01.io.zonda:a, controller").count(), 3, "{log}");
}

#[test]
fn the_status_of_a_copy_of_a_directory_shows_which_server_owns_the_volume() {
    let (directory, drives) = make("status-of-copy");
    let first = Server::start(&directory, &["vol"]);
    copy(&directory);
    let refused = refused_in(&directory, &["volume", "status", "copy"]);
    assert!(refused.contains("the volume is in use: member 0"), "{refused}");
    assert!(refused.contains("is reserved by another server of this volume, owner epoch 2 (host "), "{refused}");
    assert!(refused.contains("takeover copy"), "{refused}");
    first.kill();
    // Restarted as another host, and the copy does not know it.
    let second = Server::start(&directory, &["vol"]);
    let refused = refused_in(&directory, &["volume", "status", "copy"]);
    assert!(refused.contains("is reserved by another server of this volume, owner epoch 3 (host "), "{refused}");
    write(&directory, &second);
    second.kill();
    assert_eq!(state(&directory, "vol"), "healthy", "its own directory can read the status after a crash");
    let third = Server::start(&directory, &["vol"]);
    third.stop();
    assert_eq!(state(&directory, "copy"), "healthy", "no server owns it");
    drives.stop();
}

#[test]
fn the_status_of_a_volume_shows_members_of_an_unresponsive_server_as_unreachable() {
    let directory = drives("status-paused");
    let (two, third) = (Server::start(&directory, &["a", "b"]), Server::start(&directory, &["c"]));
    create(&directory, [two.url(0), two.url(1), third.url(0)]);
    third.signal(Signal::STOP);
    let report = status(&directory, "vol");
    assert_eq!(report["state"], "degraded");
    let members = report["members"].as_array().expect("there are members").iter();
    let states: Vec<_> = members.map(|member| member["state"].as_str().expect("it has one").to_owned()).collect();
    assert_eq!(states, ["active", "active", "missing"]);
    let text = output_in(&directory, &["volume", "status", "vol"]);
    assert!(text.contains("missing (cannot be reached)"), "{text}");
    third.signal(Signal::CONT);
    third.stop();
    two.stop();
}

#[test]
fn a_spare_that_another_volume_has_reserved_is_shown_as_such() {
    let (directory, drives) = make("spare-elsewhere");
    make_drives(&directory, &["d", "s"]);
    let others = Server::start(&directory, &["d", "s"]);
    output_in(&directory, &["volume", "create", "other", "--members", others.url(0), "--spare", others.url(1)]);
    output_in(&directory, &["volume", "spare", "add", "vol", others.url(1)]);
    let second = Server::start(&directory, &["other"]);
    let text = output_in(&directory, &["volume", "status", "vol"]);
    assert!(text.contains("spare, reserved by another host"), "{text}");
    let first = Server::start(&directory, &["vol"]);
    wait_until("the server shows it", || {
        output_in(&directory, &["volume", "status", "vol"]).contains("spare, reserved by another host")
    });
    assert_eq!(status(&directory, "vol")["reserved_spares"], status(&directory, "vol")["unreachable_spares"]);
    first.stop();
    second.stop();
    others.stop();
    drives.stop();
}

#[test]
fn a_drive_under_two_names_is_refused_as_two_members_and_stays_reserved() {
    let (directory, drives) = make("two-names");
    let other_name = |at| drives.url(at).replacen("127.0.0.1", "localhost", 1);
    let (a, b) = (drives.url(0), drives.url(1));
    let numbered = format!("{b}?namespace=1");
    for (members, spare) in [([a, &other_name(0)], None), ([b, &numbered], None), ([a, b], Some(other_name(1)))] {
        let members = members.join(",");
        let mut create = vec!["volume", "create", "two", "--members", &members, "--level", "1", "--force"];
        create.extend(spare.iter().flat_map(|spare| ["--spare", spare]));
        let refused = refused_in(&directory, &create);
        assert!(refused.contains("are the same drive: both have the same identifier"), "{refused}");
    }
    let first = Server::start(&directory, &["vol"]);
    let again = other_name(0);
    for options in [&[][..], &["--force"]] {
        let refused = refused_in(&directory, &[&["volume", "spare", "add", "vol", &again], options].concat());
        assert!(refused.contains("of this volume, at another address"), "{refused}");
        let outside = refused_in(&directory, &["zone", "reset", a, "3"]);
        assert!(outside.contains("reservation conflict"), "{outside}");
    }
    write(&directory, &first);
    first.stop();
    drives.stop();
}

#[test]
fn a_drive_that_is_refused_as_a_member_or_spare_is_released_with_all_others() {
    let directory = drives("refused-drive");
    let small = ["drive", "create", "d", "--profile", "zn540-zapraid", "--zones", "12", "--zone-capacity", "4MiB"];
    output_in(&directory, &small);
    let drives = Server::start(&directory, &["a", "b", "c", "d"]);
    create(&directory, [drives.url(0), drives.url(1), drives.url(2)]);
    output_in(&directory, &["member", "fail", "vol", "0"]);
    let small = drives.url(3);
    let mut refusals = Vec::new();
    for arguments in
        [&["member", "replace", "vol", "0", "--with", small][..], &["volume", "spare", "add", "vol", small]]
    {
        let refused = refused_in(&directory, &[arguments, &["--force"]].concat());
        assert!(refused.contains("the drive does not suit the volume: it has 12 zones"), "{refused}");
        refusals.push(refused);
        for at in [1, 2, 3] {
            output_in(&directory, &["zone", "report", drives.url(at)]);
        }
    }
    assert_eq!(refusals[0], refusals[1]);
    drives.stop();
}

#[test]
fn a_volume_whose_server_and_directory_are_lost_is_imported_with_a_takeover() {
    let (directory, drives) = make("import-takeover");
    let members = [drives.url(2), drives.url(0), drives.url(1)].join(",");
    let first = Server::start(&directory, &["vol"]);
    write(&directory, &first);
    first.signal(Signal::STOP);
    fs::remove_dir_all(directory.join("vol")).expect("it is ours");
    let import = ["volume", "import", "new", "--members", &members];
    let refused = refused_in(&directory, &import);
    assert!(refused.contains("reservation conflict") && refused.contains("--take-over"), "{refused}");
    assert!(!directory.join("new").exists(), "nothing was written");
    let report = json_in(&directory, &[&import[..], &["--take-over", "--json"]].concat());
    let taken = report["taken"].as_array().expect("there are drives");
    assert_eq!(taken.len(), 3, "{report}");
    for drive in taken {
        let from = drive["taken_from"].as_str().expect("reserved by the first server");
        assert!(from.starts_with("another server of this volume, owner epoch 2 (host "), "{from}");
    }
    first.signal(Signal::CONT);
    let second = Server::start(&directory, &["new"]);
    write(&directory, &second);
    assert_eq!(state(&directory, "new"), "healthy");
    let log = first.stop();
    assert!(log.contains("the volume is no longer served"), "{log}");
    write(&directory, &second);
    second.stop();
    drives.stop();
}

#[test]
fn an_import_does_not_take_over_drives_of_other_volumes() {
    let (directory, drives) = make("import-two");
    make_drives(&directory, &["d", "e"]);
    let others = Server::start(&directory, &["d", "e"]);
    let mirror = [others.url(0), others.url(1)].join(",");
    output_in(&directory, &["volume", "create", "mirror", "--members", &mirror, "--level", "1"]);
    let first = Server::start(&directory, &["vol"]);
    let second = Server::start(&directory, &["mirror"]);
    let both = [drives.url(0), others.url(0)].join(",");
    let import = ["volume", "import", "new", "--members", &both, "--take-over"];
    let refused = refused_in(&directory, &import);
    assert!(refused.contains("not for the same volume as the other drives"), "{refused}");
    for (server, volume) in [(&first, "vol"), (&second, "mirror")] {
        write(&directory, server);
        assert_eq!(state(&directory, volume), "healthy");
    }
    let uuid = status(&directory, "mirror")["array"].as_str().expect("it has one").to_owned();
    let import = ["volume", "import", "new", "--members", drives.url(1), "--take-over", "--uuid", &uuid];
    let refused = refused_in(&directory, &import);
    assert!(refused.contains("not for the same volume as"), "{refused}");
    assert_eq!(state(&directory, "vol"), "healthy");
    first.stop();
    second.stop();
    others.stop();
    drives.stop();
}

#[test]
fn a_spare_whose_server_restarts_is_shown_as_unreachable_and_can_be_used_afterwards() {
    let (directory, drives) = make("spare-restarts");
    output_in(
        &directory,
        &["drive", "create", "s", "--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "4MiB"],
    );
    let spares = Server::start(&directory, &["s"]);
    let (url, address) = (spares.url(0).to_owned(), spares.address());
    let first = Server::start(&directory, &["vol"]);
    output_in(&directory, &["volume", "spare", "add", "vol", &url]);
    let unreachable = || status(&directory, "vol")["unreachable_spares"].as_array().map_or(0, Vec::len);
    assert_eq!(unreachable(), 0);
    spares.kill();
    wait_until("the spare is unreachable", || unreachable() == 1);
    let text = output_in(&directory, &["volume", "status", "vol"]);
    assert!(text.contains("spare, unreachable"), "{text}");
    let spares = Server::start(&directory, &["s", "--listen", &address]);
    wait_until("the spare is reachable", || unreachable() == 0);
    let refused = refused_in(&directory, &["zone", "reset", &url, "0"]);
    assert!(refused.contains("reservation conflict"), "{refused}");
    output_in(&directory, &["member", "fail", "vol", "a"]);
    wait_until("the spare is rebuilt", || state(&directory, "vol") == "healthy");
    write(&directory, &first);
    let log = first.stop();
    assert_eq!(log.matches(&format!("the spare {url} cannot be reached")).count(), 1, "{log}");
    assert!(log.contains("can be reached again"), "{log}");
    spares.stop();
    drives.stop();
}

/// Connections to the other members are kept alive while the third times out.
#[test]
fn a_volume_starts_and_is_taken_over_while_the_server_of_a_member_is_unresponsive() {
    let directory = drives("silent-member");
    let (two, third) = (Server::start(&directory, &["a", "b"]), Server::start(&directory, &["c"]));
    create(&directory, [two.url(0), two.url(1), third.url(0)]);
    copy(&directory);
    third.signal(Signal::STOP);
    let first = Server::start(&directory, &["vol"]);
    assert_eq!(state(&directory, "vol"), "degraded");
    write(&directory, &first);
    first.kill();
    let report = json_in(&directory, &["volume", "takeover", "copy", "--json"]);
    let errors = report["drives"].as_array().expect("there are drives").iter().map(|drive| !drive["error"].is_null());
    assert_eq!((errors.collect::<Vec<bool>>(), &report["is_enough"]), (vec![false, false, true], &Value::Bool(true)));
    let second = Server::start(&directory, &["copy"]);
    write(&directory, &second);
    second.stop();
    third.signal(Signal::CONT);
    third.stop();
    two.stop();
}
