//! Keys, values and places that are not valid where they are written: the remedy names where they
//! are, or what there is instead.

use std::fs;
use std::path::Path;

use super::remedies::{SERVE, help, make, refusal};
use super::server::Server;
use super::{Scratch, file, output_in, refused_in, scratch, zonda_in};

/// An image `a` and a conventional one `c`.
fn images(name: &str) -> Scratch {
    let directory = scratch(name);
    output_in(&directory, &["drive", "create", "a", "--profile", "tiny"]);
    output_in(&directory, &["drive", "create", "c", "--profile", "conventional", "--zones", "4"]);
    directory
}

#[test]
fn a_scheduler_outside_of_a_layer_is_to_be_a_layer() {
    let directory = scratch("misplaced-scheduler");
    let lines = |at: &str| match at {
        "" => ("scheduler = \"none\"\n".to_owned(), String::new()),
        at => (String::new(), format!("{at}\nscheduler = \"none\"\n")),
    };
    for at in ["", "[drive]", "[run]", "[[job]]"] {
        let (first, table) = lines(at);
        let drive = if at == "[drive]" { table.clone() } else { "[drive]\n".to_owned() };
        let rest = if at == "[drive]" { String::new() } else { table };
        let text = format!("{first}{drive}profile = \"tiny\"\n{rest}[[job]]\noperation = \"read\"\n");
        file(&directory, "job.toml", text);
        let help = help(&directory, &["bench", "job.toml"]);
        assert!(help.contains("[[drive.layer]] with kind = \"scheduler\""), "{at}: {help}");
    }
}

#[test]
fn level_10_is_answered_with_level_01() {
    let directory = images("misplaced-level");
    let volume = "[drive]\nprofile = \"tiny\"\n[volume]\nlevel = \"raid10\"\ndata = 2\n[[job]]\noperation = \"read\"\n";
    file(&directory, "job.toml", volume);
    assert!(help(&directory, &["bench", "job.toml"]).contains("\"raid01\", a mirrored stripe"));
    let ran = zonda_in(&directory, &["volume", "create", "v", "--members", "a", "--level", "10"]);
    assert!(ran.stderr.contains("level 10 is not supported: 01, a mirrored stripe"), "{}", ran.stderr);
}

#[test]
fn an_experiment_is_to_be_run_by_the_lab() {
    let directory = scratch("misplaced-experiment");
    file(&directory, "m.toml", "title = \"t\"\nabout = \"a\"\n[drive]\nprofile = \"tiny\"\n");
    assert!(help(&directory, &["bench", "m.toml"]).contains("zonda lab run m.toml"));
}

#[test]
fn a_directory_of_examples_is_no_volume_and_stays_as_it_is() {
    let directory = scratch("misplaced-examples");
    let examples = directory.join("examples");
    std::fs::create_dir(&examples).expect("it is new");
    std::fs::copy(super::root().join("examples/volume.toml"), examples.join("volume.toml")).expect("there is space");
    for arguments in [
        &["serve", "examples"][..],
        &["volume", "status", "examples"],
        &["volume", "check", "examples"],
        &["member", "fail", "examples", "0"],
        &["top", "examples", "--once"],
        &["volume", "create", "examples", "--members", "examples"],
    ] {
        let refused = super::refused_in(&directory, arguments);
        assert!(!refused.contains("volume import"), "{refused}");
        let names: Vec<_> =
            std::fs::read_dir(&examples).expect("it exists").map(|file| file.expect("a name")).collect();
        assert_eq!(names.len(), 1, "{arguments:?} leaves {names:?}");
    }
    let help = help(&directory, &["serve", "examples"]);
    assert!(help.contains("its volume.toml is no file of a volume"), "{help}");
}

#[test]
fn places_that_are_no_images_are_named() {
    let directory = images("misplaced-places");
    file(&directory, "f", "text");
    for (arguments, message, remedy) in [
        (&["zone", "report", "/dev/null"][..], "/dev/null is neither a block device nor", "/dev/nvme0n1"),
        (&["zone", "report", "unix:/tmp/x"], "is the address of an NBD server", "nvme-tcp://HOST:PORT/NQN"),
        (&["zone", "report", "f"], "f is a file, not the directory of an image", "the directory of an image"),
        (&["drive", "create", "nvme-tcp://x/y"], "is a URL", "the directory of the new image"),
        (&["drive", "check", "nvme-tcp://x/y"], "is a URL", "zonda zone report URL"),
        (&["drive", "show", "nvme-tcp://x/y"], "is a URL", "zonda zone report URL"),
        (&["volume", "status", "f"], "f is a file, not the directory of a volume", "zonda volume create"),
        (&["volume", "check", "f"], "f is a file, not the directory of a volume", "zonda volume create"),
        (&["volume", "scrub", "f"], "f is a file, not the directory of a volume", "zonda volume create"),
        (&["member", "fail", "f", "1"], "f is a file, not the directory of a volume", "zonda volume create"),
        (
            &["serve", "--config", "a"],
            "cannot read a: is a directory",
            "it is the directory of an image: zonda serve a",
        ),
        (&["drive", "create", "a/sub/x"], "a is the directory of an image", "outside of it"),
        (&["demo", "--out", "a"], "a is the directory of an image", "outside of it"),
        (&["drive", "create", "n", "--zones", "1000000000"], "too large", "--zones"),
        (&["serve", "c", "--nbd", "nbd://127.0.0.1:10899"], "is a URI", "write 127.0.0.1:10899, without nbd://"),
        (&["zone", "open", "c", "0"], "zone 0, which is conventional", "conventional zones have no states to change"),
    ] {
        let (error, help) = refusal(&directory, arguments);
        assert!(error.contains(message) && help.contains(remedy), "{arguments:?}: {error} | {help}");
    }
    assert!(!directory.join("nvme-tcp:").exists() && !directory.join("a/sub").exists());
    assert!(!directory.join("a/report.html").exists());
}

#[test]
fn an_image_that_lacks_its_superblock_is_incomplete_and_not_missing() {
    let directory = images("misplaced-superblock");
    fs::remove_file(directory.join("a/image.zonda")).expect("it exists");
    let serve = [&["serve", "a"], &SERVE[..]].concat();
    let repair = ["drive", "repair", "a", "--to", "b"];
    for arguments in
        [&["zone", "report", "a"][..], &["drive", "show", "a"], &["zone", "reset", "a", "0"], &repair, &serve]
    {
        let (error, help) = refusal(&directory, arguments);
        assert!(error.contains("the file image.zonda is missing from the image in a"), "{arguments:?}: {error}");
        assert!(help.contains("restore the file from a backup"), "{arguments:?}: {help}");
    }
}

#[test]
fn options_that_do_not_exist_are_not_to_be_escaped_and_counts_are_not_zero() {
    let directory = scratch("misplaced-options");
    let ran = zonda_in(&directory, &["drive", "check", "d", "--fix"]);
    assert!(ran.code == Some(2) && !ran.stderr.contains("as a value"), "{}", ran.stderr);
    for arguments in [&["advise", "--top", "0"][..], &["advise", "--threads", "0"]] {
        let ran = zonda_in(&directory, arguments);
        assert!(ran.stderr.contains("must be at least 1"), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_server_that_cannot_help_is_not_the_remedy() {
    let directory = images("misplaced-servers");
    let server = Server::start(&directory, &["a", "--read-only"]);
    let help = self::help(&directory, &["zone", "reset", "a", "0"]);
    assert!(help.contains("serve it without --read-only") && !help.contains("nvme-tcp"), "{help}");
    server.stop();
    let status = self::help(&directory, &["status", "127.0.0.1:9"]);
    assert!(status.contains("http = \"127.0.0.1:9420\" in [server]"), "{status}");
}

#[test]
fn one_address_for_two_protocols_is_reported_as_such() {
    let directory = images("misplaced-address");
    let server = "[server]\nlisten = \"127.0.0.1:7777\"\nhttp = \"127.0.0.1:7777\"\n";
    let subsystem = "[[subsystem]]\nnqn = \"nqn.2026-01.io.example:a\"\n[[subsystem.namespace]]\nimage = \"a\"\n";
    file(&directory, "zonda.toml", format!("{server}{subsystem}"));
    let (error, _) = refusal(&directory, &["serve", "--config", "zonda.toml"]);
    assert!(error.contains("listen and http of [server] use the same address, 127.0.0.1:7777"), "{error}");
}

/// The files of an image that are rewritten when it is opened, with the times of their last change.
fn changes(directory: &Path) -> Vec<std::time::SystemTime> {
    let changed = |name: &str| fs::metadata(directory.join(name)).and_then(|file| file.modified());
    ["state.zonda", "journal.zonda"].map(|name| changed(name).expect("it is a file")).to_vec()
}

#[test]
fn a_refused_command_does_not_rewrite_the_files_of_an_image() {
    let directory = make("misplaced-rewrites");
    output_in(&directory, &["drive", "create", "plain", "--profile", "conventional", "--zones", "4"]);
    let job =
        file(&directory, "job.toml", "[[job]]\noperation = \"append\"\nblock_size = \"64KiB\"\nbytes = \"1MiB\"\n");
    let wrong = file(&directory, "wrong.toml", "[[job]]\noperation = \"append\"\nzones = 99\noperations = 1\n");
    output_in(&directory, &["bench", "--target", "d", &job, "--quiet"]);
    for (image, arguments) in [
        ("d", &["zone", "reset", "d", "99"][..]),
        ("plain", &["zone", "finish", "plain", "0"]),
        ("a", &["zone", "reset", "a", "0"]),
        ("d", &["bench", "--target", "d", &job]),
        ("d", &["bench", "--target", "d", &wrong]),
        ("a", &["bench", "--target", "a", &job]),
        ("a", &["volume", "create", "w", "--members", "a"]),
    ] {
        let before = changes(&directory.join(image));
        refused_in(&directory, arguments);
        assert_eq!(changes(&directory.join(image)), before, "{arguments:?}");
    }
}

#[test]
fn a_server_without_a_configuration_file_survives_sighup_and_shows_its_drives() {
    let directory = images("misplaced-hangup");
    let server = Server::start(&directory, &["a", "c"]);
    let status = output_in(&directory, &["status", server.http()]);
    assert!(status.contains(": c, 4 zones of 96.0 MiB, conventional\n"), "no part of it counts as written: {status}");
    server.signal(rustix::process::Signal::HUP);
    // It is still running, and stops cleanly.
    assert!(server.get("/metrics").contains("zonda"));
    let log = server.stop();
    assert!(log.contains("no configuration file to read again"), "{log}");
}
