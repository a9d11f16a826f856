//! A command that is refused changes nothing.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use super::images::make_image;
use super::remedies::make;
use super::{file, json_in, output_in, refused_in, scratch, zonda_in};

/// `zonda serve` with free ports unless the arguments choose them; it must be refused.
fn refused_to_serve(directory: &Path, arguments: &[&str]) -> String {
    let mut all = [&["serve"], arguments].concat();
    for option in ["--listen", "--http"] {
        if !arguments.contains(&option) {
            all.extend([option, "127.0.0.1:0"]);
        }
    }
    refused_in(directory, &all)
}

/// Whether an image was closed cleanly.
fn is_clean(directory: &Path, image: &str) -> bool {
    json_in(directory, &["drive", "show", image, "--json"])["clean"] == true
}

fn epoch(directory: &Path) -> u64 {
    json_in(directory, &["volume", "status", "vol", "--json"])["epoch"].as_u64().expect("it is known")
}

#[test]
fn a_server_that_does_not_start_creates_no_default_drive() {
    let directory = scratch("refused-default");
    let busy = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let busy = busy.local_addr().expect("it is bound").to_string();
    fs::create_dir(directory.join("dir")).expect("it can be created");
    for (arguments, words) in [
        (&["--nbd", "dir"][..], "--nbd needs an address, and dir is a directory"),
        (&["--nbd", "unix:s"], "nothing can be exported over NBD: the drive that is served without DIR"),
        (&["--listen", "bad"], "cannot resolve the address \"bad\""),
        (&["--listen", "192.0.2.1:4420"], "cannot listen on 192.0.2.1:4420"),
        (&["--memory-limit", "1MiB"], "memory"),
    ] {
        let refused = refused_to_serve(&directory, arguments);
        assert!(refused.contains(words), "{arguments:?}: {refused}");
    }
    let refused = refused_to_serve(&directory, &["--http", "192.0.2.1:9420"]);
    assert!(refused.contains("cannot serve metrics"), "{refused}");
    drop(busy);
    let left: Vec<_> = fs::read_dir(&*directory).expect("it exists").map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["dir"]);
}

#[test]
fn a_server_that_does_not_start_closes_its_images_cleanly() {
    let directory = make("refused-clean");
    make_image(&directory);
    output_in(&directory, &["drive", "create", "plain", "--profile", "conventional", "--zones", "4"]);
    let busy = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let busy_address = busy.local_addr().expect("it is bound").to_string();
    let before = epoch(&directory);
    for (arguments, words) in [
        (&["plain", "--nbd", "unix:/nonexistent/s"][..], "cannot listen for NBD clients"),
        (&["vol", "--nbd", "unix:/nonexistent/s"], "cannot listen for NBD clients"),
        (&["plain", "--nbd", &busy_address], "in use"),
        (&["vol", "--listen", &busy_address], "in use"),
    ] {
        let refused = refused_to_serve(&directory, arguments);
        assert!(refused.contains(words), "{arguments:?}: {refused}");
        assert_eq!(epoch(&directory), before, "{arguments:?} does not assemble the volume");
    }
    let refused = refused_to_serve(&directory, &["drives/a", "--nbd", "unix:s"]);
    assert!(refused.contains("nothing can be exported over NBD: all namespaces are zoned"), "{refused}");
    let holder = super::server::Server::start(&directory, &["d"]);
    for images in [&["drives/a", "plain", "vol", "d"][..], &["vol", "d"]] {
        let refused = refused_to_serve(&directory, images);
        assert!(refused.contains("in use"), "{refused}");
        assert_eq!(epoch(&directory), before, "volumes are assembled last");
    }
    holder.stop();
    for image in ["drives/a", "plain", "a", "b", "c"] {
        assert!(is_clean(&directory, image), "{image}");
    }
    assert!(!directory.join("s").exists() && !directory.join("vol/control").exists());
}

#[test]
fn a_refused_request_does_not_assemble_a_volume() {
    let directory = make("refused-request");
    let create = |drive: &str, profile: &str, zones: &str| {
        let size = ["--profile", profile, "--zones", zones, "--zone-capacity", "1MiB"];
        output_in(&directory, &[&["drive", "create", drive], &size[..]].concat());
    };
    create("spare", "zn540-zapraid", "24");
    create("plain", "zn540", "24");
    create("small", "zn540-zapraid", "20");
    output_in(&directory, &["volume", "spare", "add", "vol", "spare"]);
    let job =
        file(&directory, "job.toml", "[[job]]\noperation = \"append\"\nblock_size = \"64KiB\"\nbytes = \"1MiB\"\n");
    output_in(&directory, &["bench", "--target", "d", &job, "--quiet"]);
    let before = epoch(&directory);
    for (arguments, words) in [
        (&["member", "fail", "vol", "z"][..], "the volume has no member z"),
        (&["member", "re-add", "vol", "b"], "member 1 (b) has not failed"),
        (&["member", "replace", "vol", "b", "--with", "d"], "member 1 (b) has not failed"),
        (&["volume", "scrub", "vol", "--detach"], "the volume is not served"),
        (&["member", "re-add", "vol", "b", "--detach"], "the volume is not served"),
        (&["volume", "spare", "add", "vol", "none"], "none"),
        (&["volume", "spare", "add", "vol", "d"], "d is not empty"),
        (&["volume", "spare", "add", "vol", "b"], "b is member 1 (b) of this volume"),
        (&["volume", "spare", "add", "vol", "spare"], "spare is a spare of this volume"),
        (&["volume", "spare", "add", "vol", "vol"], "is a volume"),
        (
            &["volume", "spare", "add", "vol", "plain"],
            "it has 0 bytes of metadata per block, but at least 32 are needed",
        ),
        (&["volume", "spare", "add", "vol", "small", "--force"], "it has 20 zones, but at least 24 are needed"),
        (&["volume", "spare", "remove", "vol", "b"], "the volume has no spare b"),
    ] {
        let refused = refused_in(&directory, arguments);
        assert!(refused.contains(words), "{arguments:?}: {refused}");
        assert_eq!(epoch(&directory), before, "{arguments:?}");
    }
    let zones = file(&directory, "zones.toml", "[[job]]\noperation = \"randwrite\"\nzones = 1\noperations = 1\n");
    let refused = refused_in(&directory, &["bench", "--target", "vol", &zones, "--yes"]);
    assert!(refused.contains("zone 1 does not exist: the namespace is conventional"), "{refused}");
    assert_eq!(epoch(&directory), before);
    let stopped = output_in(&directory, &["volume", "scrub", "vol", "--stop"]);
    assert!(stopped.contains("no scrub was in progress"), "{stopped}");
    assert_eq!(epoch(&directory), before);
}

#[test]
fn a_refused_command_leaves_no_directories() {
    let directory = make("refused-directories");
    fs::create_dir(directory.join("empty")).expect("it can be created");
    for place in ["new/deep/volume", "empty"] {
        let refused = refused_in(&directory, &["volume", "create", place, "--members", "a,b"]);
        assert!(refused.contains("is not empty"), "{refused}");
    }
    assert!(!directory.join("new").exists() && directory.join("empty").is_dir());
    let job =
        file(&directory, "job.toml", "[[job]]\noperation = \"append\"\nblock_size = \"64KiB\"\nbytes = \"1MiB\"\n");
    output_in(&directory, &["bench", "--target", "d", &job, "--quiet"]);
    let refused = refused_in(&directory, &["bench", "--target", "d", &job, "--out", "new/results"]);
    assert!(refused.contains("add --yes"), "{refused}");
    assert!(!directory.join("new").exists());
    let ran = zonda_in(&directory, &["bench", "--target", "d", &job, "--out", "new/results", "--yes", "--quiet"]);
    assert!(ran.code == Some(0) && directory.join("new/results/report.html").exists(), "{}", ran.stderr);
}
