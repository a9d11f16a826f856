//! Images: created, shown, checked, repaired and managed without a server.

use std::fs::{OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal, prlimit};

use super::server::Server;
use super::{assert_golden, file, json_in, output_in, refused_in, scratch, wait_until, zonda_in};

/// Writes some zones full, and some in part.
const FILL: &str = "[[job]]\noperation = \"append\"\nblock_size = \"64 KiB\"\nzones = \"0..2\"\nbytes = \"1536 KiB\"\n";

/// Makes a small image in `drives/a`.
pub(crate) fn make_image(directory: &Path) -> String {
    output_in(directory, &["drive", "create", "drives/a", "--zones", "16", "--zone-capacity", "1MiB"])
}

/// The text with the UUID in it made the same for all images.
pub(crate) fn without_uuid(text: &str) -> String {
    let is_uuid = |word: &str| word.len() == 36 && word.split('-').count() == 5;
    let words = text.split(' ').map(|word| {
        let bare = word.trim_end();
        if is_uuid(bare.lines().next().unwrap_or("")) { word.replacen(&bare[..36], "UUID", 1) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn an_image_is_created_shown_and_checked() {
    let directory = scratch("image");
    let made = make_image(&directory);
    let shown = output_in(&directory, &["drive", "show", "drives/a"]);
    let checked = output_in(&directory, &["drive", "check", "drives/a"]);
    assert_golden("image_new.txt", &format!("{made}\n{}\n{checked}", without_uuid(&shown)));

    let job = file(&directory, "fill.toml", FILL);
    output_in(&directory, &["bench", "--target", "drives/a", &job, "--quiet"]);
    let shown = output_in(&directory, &["drive", "show", "drives/a"]);
    let checked = output_in(&directory, &["drive", "check", "drives/a", "--quiet"]);
    assert_golden("image_used.txt", &format!("{}\n{checked}", without_uuid(&shown)));

    let sheet = json_in(&directory, &["drive", "show", "drives/a", "--json"]);
    assert_eq!((&sheet["clean"], &sheet["profile"]), (&true.into(), &"zn540".into()));
    assert_eq!(sheet["zones"][1]["written_blocks"], 128);
    assert_eq!(sheet["life"]["host_write_bytes"], 1536 << 10);
    let verdict = json_in(&directory, &["drive", "check", "drives/a", "--json"]);
    assert_eq!((&verdict["is_healthy"], &verdict["blocks_verified"]), (&true.into(), &384.into()));
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_does_not_kill_the_program() {
    let directory = scratch("file-size-limit");
    let limited = format!("ulimit -f 1; exec {} drive create small --profile tiny", env!("CARGO_BIN_EXE_zonda"));
    let ran = Command::new("sh").args(["-c", &limited]).current_dir(&*directory).output().expect("sh runs");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{}: {stderr}", ran.status);
    assert!(stderr.contains("ulimit -f"), "{stderr}");

    make_image(&directory);
    let server = Server::start(&directory, &["drives/a", "--quiet"]);
    let nothing = Rlimit { current: Some(0), maximum: None };
    prlimit(Some(server.process()), Resource::Fsize, nothing).expect("the limit of an own process can be set");
    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert_eq!(status.signal(), None, "{status}: {log}");
    output_in(&directory, &["drive", "check", "drives/a", "--quiet"]);
}

#[test]
fn a_check_finds_a_corrupted_byte() {
    let directory = scratch("damaged");
    make_image(&directory);
    let job = file(&directory, "fill.toml", FILL);
    output_in(&directory, &["bench", "--target", "drives/a", &job, "--quiet"]);
    let mut data = OpenOptions::new().write(true).open(directory.join("drives/a/data.zonda")).unwrap();
    data.seek(SeekFrom::Start(5 * 4096 + 17)).unwrap();
    data.write_all(b"\xa5\x5a\xa5").unwrap();
    let ran = zonda_in(&directory, &["drive", "check", "drives/a", "--quiet"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    assert_golden("image_damaged.txt", &ran.stdout);
    let ran = zonda_in(&directory, &["drive", "check", "drives/a", "--quiet", "--json"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("\"is_healthy\":false"), "{}", ran.stdout);
}

#[test]
fn a_damaged_image_is_repaired_into_a_new_image() {
    let directory = scratch("repair");
    make_image(&directory);
    let job = file(&directory, "fill.toml", FILL);
    output_in(&directory, &["bench", "--target", "drives/a", &job, "--quiet"]);
    let at = |name: &str| directory.join("drives/a").join(name);
    let data = OpenOptions::new().write(true).open(at("data.zonda")).unwrap();
    data.set_len((256 + 100) * 4096).unwrap();
    let refusal = refused_in(&directory, &["drive", "check", "drives/a"]);
    let words = refusal.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("save what can be read: zonda drive repair drives/a --to OTHER"), "{refusal}");
    let before = std::fs::read(at("state.zonda")).unwrap();
    let ran = zonda_in(&directory, &["drive", "repair", "drives/a", "--to", "drives/b", "--quiet"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    let checked = zonda_in(&directory, &["drive", "check", "drives/b", "--quiet", "--json"]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.stdout.contains("\"blocks_verified\":384") && checked.stdout.contains("\"clean\":true"));
    assert_golden("image_repaired.txt", &ran.stdout);
    assert!(std::fs::read(at("state.zonda")).unwrap() == before, "the damaged image stays as it is");
    let ran = zonda_in(&directory, &["drive", "repair", "drives/a", "--to", "drives/c", "--quiet", "--json"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains(r#""unreadable":[{"first_lba":356,"blocks":28}]"#), "{}", ran.stdout);

    // An undamaged image is copied completely; one without a superblock is refused, and nothing is
    // created.
    output_in(&directory, &["drive", "create", "d", "--zones", "4", "--zone-capacity", "1MiB"]);
    let whole = json_in(&directory, &["drive", "repair", "d", "--to", "e", "--json"]);
    assert_eq!((&whole["is_complete"], &whole["blocks_unreadable"]), (&true.into(), &0.into()));
    let refusal = refused_in(&directory, &["drive", "repair", "d", "--to", "e"]);
    assert!(refusal.contains("holds an image already"), "{refusal}");
    std::fs::write(directory.join("d/image.zonda"), [0; 65536]).unwrap();
    let refusal = refused_in(&directory, &["drive", "repair", "d", "--to", "f"]);
    assert!(refusal.contains("not the superblock of a zonda image"), "{refusal}");
    assert!(!directory.join("f").exists());
}

#[test]
fn an_image_is_not_repaired_into_its_own_directory_or_one_around_it() {
    let directory = scratch("repair-nested");
    output_in(&directory, &["drive", "create", "drives/a", "--zones", "4", "--zone-capacity", "1MiB"]);
    std::os::unix::fs::symlink("a", directory.join("drives/link")).unwrap();
    let within = "it is inside the directory of the damaged image, drives/a";
    for (to, why) in [
        ("drives/a", "it is the directory of the damaged image"),
        ("drives/a/new", within),
        ("drives/link/deep/new", within),
        ("elsewhere/../drives/a/new", within),
        ("drives", "the damaged image, drives/a, is inside it"),
        (".", "the damaged image, drives/a, is inside it"),
    ] {
        let refusal = refused_in(&directory, &["drive", "repair", "drives/a", "--to", to]);
        let words = refusal.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("cannot write the new image to {to}: {why}")), "{refusal}");
        assert!(words.contains("choose another directory for --to"), "{refusal}");
    }
    let mut names: Vec<_> =
        directory.join("drives/a").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| !name.to_string_lossy().ends_with(".zonda"));
    assert!(names.is_empty() && !directory.join("elsewhere").exists(), "{names:?}");
    // The name of one directory may be a prefix of the other.
    output_in(&directory, &["drive", "repair", "drives/a", "--to", "drives/ab", "--quiet"]);
}

#[test]
fn zones_of_an_image_are_managed_without_a_server() {
    let directory = scratch("image-zones");
    make_image(&directory);
    let zone = |arguments: &[&str]| output_in(&directory, &[&["zone"], arguments].concat());
    let mut transcript = zone(&["finish", "drives/a", "2"]);
    transcript += &zone(&["finish", "drives/a", "2"]);
    transcript += &zone(&["report", "drives/a"]);
    transcript += &zone(&["report", "drives/a", "1", "--count", "3"]);
    transcript += &zone(&["reset", "drives/a", "--all"]);
    transcript += &zone(&["close", "drives/a", "--all"]);
    assert_golden("zones_image.txt", &transcript);
    let report = json_in(&directory, &["zone", "report", "drives/a", "15", "--json"]);
    let last = &report["zones"][0];
    assert_eq!((&report["zones_in_namespace"], &last["zone"]), (&16.into(), &15.into()));
    assert_eq!((&last["state"], &last["type"]), (&"empty".into(), &"sequential write required".into()));
    // Each command has shut the image down cleanly.
    assert_eq!(json_in(&directory, &["drive", "show", "drives/a", "--json"])["clean"], true);
}

#[test]
fn the_zones_of_a_conventional_drive_are_not_managed() {
    let directory = scratch("image-conventional");
    output_in(&directory, &["drive", "create", "c", "--profile", "conventional", "--zones", "2"]);
    let report = output_in(&directory, &["zone", "report", "c"]);
    assert!(report.contains("2 zones of 96.0 MiB, conventional: random writes, no zone management"), "{report}");
    let refusal = refused_in(&directory, &["zone", "reset", "c", "1"]);
    assert!(refusal.contains("refuses to reset zone 1, which is conventional"), "{refusal}");
}

#[test]
fn errors_about_images_have_a_remedy() {
    let directory = scratch("image-mistakes");
    make_image(&directory);
    file(&directory, "file", "");
    std::fs::set_permissions(directory.join("file"), Permissions::from_mode(0o600)).unwrap();
    std::fs::create_dir(directory.join("empty")).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["drive", "create", "drives/a"], "holds an image already"),
        (&["drive", "create", "drives"], "is not empty"),
        (&["drive", "create", "b", "--profile", "zn504"], "did you mean \"zn540\"?"),
        (&["drive", "create", "b", "--zones", "0"], "change --zones or --zone-capacity"),
        (&["drive", "create", "b", "--zone-capacity", "5kB"], "must be a multiple of"),
        (&["drive", "show", "empty"], "there is no image in empty"),
        (&["drive", "check", "none"], "there is no directory none"),
        (&["drive", "check", "file"], "file is not a directory"),
        (&["zone", "report", "none"], "create an image there: zonda drive create none"),
        (&["zone", "report", "drives/a", "16"], "choose a zone from 0 to 15"),
        (&["zone", "reset", "drives/a"], "--all for all zones"),
        (&["zone", "reset", "drives/a", "99"], "zone 99 does not exist"),
        (&["zone", "close", "drives/a", "3"], "refuses to close zone 3, which is empty"),
        (&["zone", "open", "drives/a", "3"], "zones of an image cannot stay open"),
        (&["zone", "report", "http://localhost/"], "protocol \"http\" is not supported"),
        (&["zone", "report", "nvme-tcp://localhost/"], "not a valid NQN"),
        (&["zone", "report", "nvme-tcp://127.0.0.1:1/nqn.2026-01.io.zonda:a"], "check the address and port"),
        (&["zone", "report", "drives/a", "--host-nqn", "me"], "\"me\" is not a valid NQN"),
        (
            &["zone", "report", "drives/a", "--host-nqn", "nqn.2014-08.org.nvmexpress:uuid:..."],
            "must be followed by a UUID of 36 characters",
        ),
        (&["zone", "report", "drives/a", "--secret-file", "file"], "file holds no secret"),
        (&["status", "127.0.0.1:1"], "start a server with zonda serve"),
        (&["status", "nowhere"], "give HOST:PORT, such as 127.0.0.1:9420"),
    ];
    for (arguments, part) in cases {
        let refusal = refused_in(&directory, arguments);
        let words = refusal.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(part), "{arguments:?}: \"{part}\" is not in:\n{refusal}");
    }
    assert!(!directory.join("b").exists(), "nothing is created from invalid numbers");
}

/// An image whose server was killed.
fn killed_image(directory: &Path) {
    make_image(directory);
    Server::start(directory, &["drives/a"]).kill();
    wait_until("the lock is free", || zonda_in(directory, &["drive", "show", "drives/a"]).code == Some(0));
}

/// Makes one copy of the checkpoint incomplete.
fn tear_checkpoint(directory: &Path) {
    let mut state = OpenOptions::new().write(true).open(directory.join("drives/a/state.zonda")).expect("it is there");
    state.write_all(&[0; 512]).expect("it is there");
}

#[test]
fn an_incomplete_checkpoint_is_damage_only_after_a_clean_shutdown() {
    let directory = scratch("torn");
    killed_image(&directory);
    tear_checkpoint(&directory);
    let checked = output_in(&directory, &["drive", "check", "drives/a", "--quiet"]);
    let words = checked.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("drives/a: no damage") && words.contains("is incomplete"), "{checked}");
    assert!(!words.contains("drives/a: damaged"), "{checked}");
    let verdict = json_in(&directory, &["drive", "check", "drives/a", "--quiet", "--json"]);
    assert_eq!((&verdict["is_healthy"], &verdict["findings"]), (&true.into(), &serde_json::json!([])));
    assert!(verdict["notes"][0].as_str().is_some_and(|note| note.starts_with("state.zonda: one of the two copies")));

    // Opening it writes both.
    output_in(&directory, &["zone", "finish", "drives/a", "3"]);
    let verdict = json_in(&directory, &["drive", "check", "drives/a", "--quiet", "--json"]);
    assert_eq!((&verdict["clean"], &verdict["notes"]), (&true.into(), &serde_json::json!([])));
    tear_checkpoint(&directory);
    let ran = zonda_in(&directory, &["drive", "check", "drives/a", "--quiet"]);
    assert!(ran.code == Some(1) && ran.stdout.contains("one of two copies is damaged"), "{}", ran.stdout);
}

/// The commands that only read an image.
const LOOKS: [&[&str]; 3] =
    [&["drive", "show", "drives/a"], &["drive", "check", "drives/a", "--quiet"], &["zone", "report", "drives/a"]];

#[test]
fn an_image_is_read_by_several_processes_at_once_without_a_change() {
    let directory = scratch("looks");
    killed_image(&directory);
    let contents = || {
        let files = std::fs::read_dir(directory.join("drives/a")).unwrap().map(|file| file.unwrap().path());
        files.map(|path| (std::fs::read(&path).unwrap(), path)).collect::<std::collections::BTreeSet<_>>()
    };
    let before = contents();
    let other = std::fs::File::open(directory.join("drives/a/image.zonda")).unwrap();
    other.lock_shared().unwrap();
    for look in LOOKS {
        output_in(&directory, look);
    }
    assert!(refused_in(&directory, &["zone", "reset", "drives/a", "3"]).contains("in use by another program"));
    assert!(contents() == before, "nothing has changed");
    drop(other);
    let server = Server::start(&directory, &["drives/a"]);
    for look in LOOKS {
        assert!(refused_in(&directory, look).contains("in use by another program"));
    }
    server.stop();
}

#[test]
fn an_image_on_a_read_only_medium_can_be_read() {
    let directory = scratch("read-only");
    killed_image(&directory);
    let mounted = "mount --bind drives drives && mount -o remount,bind,ro drives";
    let in_private = |script: &str| {
        let script = format!("{mounted} && {script}");
        let command =
            std::process::Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(&*directory).output();
        command.is_ok_and(|output| output.status.success())
    };
    if !in_private("true") {
        println!("skipped: nothing can be mounted here");
        return;
    }
    assert!(!in_private("touch drives/a/new"), "it is read-only");
    for look in LOOKS {
        let script = format!("{} {}", env!("CARGO_BIN_EXE_zonda"), look.join(" "));
        assert!(in_private(&script), "{look:?}");
    }
}

#[test]
fn files_that_other_users_can_open_are_reported_with_a_remedy() {
    let directory = scratch("exposed");
    make_image(&directory);
    for look in LOOKS {
        assert_eq!(zonda_in(&directory, look).stderr, "", "{look:?}");
    }
    std::fs::set_permissions(directory.join("drives/a/data.zonda"), Permissions::from_mode(0o644)).unwrap();
    let words = "data.zonda (mode 0644) is accessible to group or others: chmod 600 drives/a/*.zonda";
    for command in LOOKS.into_iter().chain([&["zone", "finish", "drives/a", "3"][..]]) {
        let ran = zonda_in(&directory, command);
        let warning = format!("warning: drives/a: {words}\n");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), warning.as_str()), "{command:?}");
    }
    let server = Server::start(&directory, &["drives/a"]);
    output_in(&directory, &["zone", "finish", server.url(0), "4"]);
    let log = server.stop();
    assert_eq!(log.matches(words).count(), 1, "{log}");
    std::fs::set_permissions(directory.join("drives/a/data.zonda"), Permissions::from_mode(0o600)).unwrap();
    assert!(!Server::start(&directory, &["drives/a"]).stop().contains("chmod"));
}
