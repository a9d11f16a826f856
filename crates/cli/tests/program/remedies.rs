//! Remedies: they fit the command that was refused, and do not repeat it.

use std::fs;
use std::path::Path;

use super::server::Server;
use super::{Scratch, file, output_in, output_of, refused_in, scratch, zonda_in};

/// Three members of a volume `vol` of level 5, and another drive `d`.
pub(crate) fn make(name: &str) -> Scratch {
    let directory = scratch(name);
    for drive in ["a", "b", "c", "d"] {
        let size = ["--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"];
        output_in(&directory, &[&["drive", "create", drive], &size[..]].concat());
    }
    output_in(&directory, &["volume", "create", "vol", "--members", "a,b,c", "--level", "5"]);
    directory
}

pub(crate) const SERVE: [&str; 4] = ["--listen", "127.0.0.1:0", "--http", "off"];

/// The error and its remedy, in a line each.
pub(crate) fn refusal(directory: &Path, arguments: &[&str]) -> (String, String) {
    let text = refused_in(directory, arguments);
    let (error, help) = text.split_once("= help:").expect("there is a remedy");
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    (one_line(error), one_line(help))
}

pub(crate) fn help(directory: &Path, arguments: &[&str]) -> String {
    refusal(directory, arguments).1
}

#[test]
fn an_image_without_superblock_is_not_to_be_repaired() {
    let directory = make("remedies-superblock");
    fs::write(directory.join("d/image.zonda"), "garbage").expect("it can be written");
    let repaired = help(&directory, &["drive", "repair", "d", "--to", "e"]);
    assert!(repaired.contains("from a backup") && !repaired.contains("drive repair"), "{repaired}");
    let serve = [&["serve", "d"], &SERVE[..]].concat();
    for arguments in [&["drive", "check", "d"][..], &["drive", "show", "d"], &["zone", "report", "d"], &serve] {
        let help = help(&directory, arguments);
        assert!(
            help.contains("from a backup: without a superblock the image can be neither read nor repaired"),
            "{arguments:?}: {help}"
        );
    }
}

#[test]
fn an_option_that_was_given_is_not_proposed() {
    let directory = make("remedies-given");
    let serve = |options: &[&str]| help(&directory, &[&["serve", "vol"], &SERVE[..], options].concat());
    fs::rename(directory.join("b"), directory.join("away-b")).expect("it is there");
    fs::rename(directory.join("c"), directory.join("away-c")).expect("it is there");
    for options in [&["--accept-older"][..], &["--keep-side", "a"], &["--accept-side", "a"], &["--accept-losses"], &[]]
    {
        assert_eq!(serve(options), "restore a missing member, whose data is needed", "{options:?}");
    }
    assert_eq!(help(&directory, &["volume", "scrub", "vol"]), "restore a missing member, whose data is needed");
    let check = zonda_in(&directory, &["volume", "check", "vol"]).stdout;
    assert!(check.contains("help: restore a missing member, whose data is needed\n"), "{check}");
    // It cannot help: one member is too few in any epoch.
    let import = ["volume", "import", "new", "--members", "a"];
    assert_eq!(help(&directory, &import), "name the missing drives, too");
    assert_eq!(help(&directory, &[&import[..], &["--force"]].concat()), "name the missing drives, too");
}

#[test]
fn members_that_are_out_of_date_are_accepted_only_if_enough_are_present() {
    let directory = make("remedies-older");
    let away = |drive: &str| fs::rename(directory.join(drive), directory.join(format!("away-{drive}")));
    let back = |drive: &str| fs::rename(directory.join(format!("away-{drive}")), directory.join(drive));
    // The copies are from before the last assembly.
    for drive in ["a", "b"] {
        copy(&directory.join(drive), &directory.join(format!("older-{drive}")));
    }
    Server::start(&directory, &["vol"]).stop();
    for drive in ["a", "b", "c"] {
        away(drive).expect("it is there");
    }
    for drive in ["a", "b"] {
        copy(&directory.join(format!("older-{drive}")), &directory.join(drive));
    }
    let serve = [&["serve", "vol"], &SERVE[..]].concat();
    for arguments in [&serve[..], &["volume", "scrub", "vol"]] {
        let help = help(&directory, arguments);
        assert!(help.contains("zonda serve vol --accept-older continues"), "{arguments:?}: {help}");
    }
    fs::remove_dir_all(directory.join("b")).expect("it is there");
    for arguments in [&serve[..], &["volume", "scrub", "vol"]] {
        let help = help(&directory, arguments);
        assert!(help.contains("restore the member") && !help.contains("--accept-older"), "{arguments:?}: {help}");
    }
    let check = zonda_in(&directory, &["volume", "check", "vol"]).stdout;
    assert!(check.contains("help: restore the member") && !check.contains("--accept-older"), "{check}");
    back("b").expect("it is there");
    back("c").expect("it is there");
    Server::start(&directory, &["vol"]).stop();
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the disk has space");
    for entry in fs::read_dir(from).expect("it is there").map(|entry| entry.expect("it can be read")) {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("the disk has space");
    }
}

#[test]
fn a_volume_and_an_image_are_not_taken_for_each_other() {
    let directory = make("remedies-kinds");
    for (arguments, words) in [
        (&["drive", "show", "vol"][..], "zonda volume status vol"),
        (&["drive", "check", "vol"], "zonda volume check vol"),
        (&["drive", "repair", "vol", "--to", "e"], "zonda volume scrub vol"),
        (&["zone", "report", "vol"], "zonda volume status vol"),
        (&["zone", "reset", "vol", "0"], "a volume has no zones"),
    ] {
        let (error, help) = refusal(&directory, arguments);
        assert!(
            error.contains("vol is a volume, not an image") && help.contains(words),
            "{arguments:?}: {error} {help}"
        );
    }
    for arguments in [
        &["volume", "status", "a"][..],
        &["volume", "check", "a"],
        &["volume", "scrub", "a"],
        &["volume", "takeover", "a"],
        &["member", "fail", "a", "0"],
    ] {
        let (error, help) = refusal(&directory, arguments);
        assert!(error.contains("a is an image, not a volume"), "{arguments:?}: {error}");
        assert!(help.contains("the directory of the volume") && help.contains("zonda drive show a"), "{help}");
    }
    for command in ["import", "create"] {
        let help = help(&directory, &["volume", command, "a", "--members", "a,b,c"]);
        assert!(help.contains("a is the new directory of the volume") && !help.contains("remove"), "{help}");
    }
    for (key, place, what, other) in [
        ("image", "vol", "vol is a volume, not an image", "the key volume instead of image"),
        ("volume", "d", "d is an image, not a volume", "the key image instead of volume"),
    ] {
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:x\"\n\
             [[subsystem.namespace]]\n{key} = \"{place}\"\n"
        );
        file(&directory, "zonda.toml", config);
        let (error, help) = refusal(&directory, &["serve", "--config", "zonda.toml"]);
        assert!(error.contains(what) && help.contains(other), "{error} {help}");
    }
}

#[test]
fn an_image_in_use_is_not_to_be_reached_through_its_server_where_that_does_not_help() {
    let directory = make("remedies-in-use");
    let server = Server::start(&directory, &["d"]);
    let serve = [&["serve", "d"], &SERVE[..]].concat();
    for arguments in
        [&["drive", "check", "d"][..], &["drive", "show", "d"], &["drive", "repair", "d", "--to", "e"], &serve]
    {
        let (error, help) = refusal(&directory, arguments);
        assert!(
            error.contains("in use") && help.contains("stop the program that uses it"),
            "{arguments:?}: {error} {help}"
        );
        assert!(!help.contains("nvme-tcp"), "{arguments:?}: {help}");
    }
    // There it does.
    assert!(help(&directory, &["zone", "reset", "d", "0"]).contains("nvme-tcp"));
    server.stop();
}

#[test]
fn zones_of_a_member_are_managed_by_its_volume() {
    let directory = make("remedies-member");
    let zones = help(&directory, &["zone", "reset", "a", "0"]);
    assert!(zones.contains("the volume manages the zones of its members"), "{zones}");
    file(&directory, "job.toml", "[[job]]\noperation = \"append\"\nzones = 1\noperations = 1\n");
    let bench = help(&directory, &["bench", "job.toml", "--target", "a", "--yes"]);
    assert!(bench.contains("give --target the directory of the volume"), "{bench}");
}

#[test]
fn a_zone_in_the_wrong_state_has_a_remedy_for_that_state() {
    let directory = make("remedies-zones");
    let close = help(&directory, &["zone", "close", "d", "1"]);
    assert!(close.contains("choose an open zone: zonda zone report --list"), "{close}");
    output_in(&directory, &["zone", "finish", "d", "1"]);
    let server = Server::start(&directory, &["d"]);
    let open = help(&directory, &["zone", "open", server.url(0), "1"]);
    assert!(open.contains("an empty or closed zone, or reset this one first"), "{open}");
    server.stop();
}

#[test]
fn a_leftover_reservation_is_released_by_the_command_in_the_remedy() {
    let directory = make("remedies-reservation");
    let far = Server::start(&directory, &["d"]);
    let url = far.url(0);
    output_in(&directory, &["volume", "create", "remote", "--members", url]);
    Server::start(&directory, &["remote"]).kill();
    for arguments in [&["zone", "reset", url, "0"][..], &["zone", "reset", url, "0", "--force"]] {
        let help = help(&directory, arguments);
        assert!(help.contains("start it again, or release them with zonda volume takeover DIR --release"), "{help}");
    }
    let create = help(&directory, &["volume", "create", "other", "--members", url, "--force"]);
    assert!(create.contains("zonda volume takeover DIR --release") && !create.contains("--force"), "{create}");
    output_in(&directory, &["volume", "takeover", "remote", "--release"]);
    output_in(&directory, &["zone", "reset", url, "0", "--force"]);
    far.stop();
}

#[test]
fn an_import_that_cannot_reserve_all_members_names_the_missing_ones() {
    let directory = make("remedies-take-over");
    output_in(
        &directory,
        &["drive", "create", "e", "--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"],
    );
    let far = Server::start(&directory, &["d", "e"]);
    let both = format!("{},{}", far.url(0), far.url(1));
    output_in(&directory, &["volume", "create", "remote", "--members", &both, "--level", "1"]);
    Server::start(&directory, &["remote"]).kill();
    let import = ["volume", "import", "new", "--members", far.url(0), "--take-over"];
    let (error, help) = refusal(&directory, &import);
    assert!(error.contains("new/volume.toml was written, but the drives are not reserved"), "{error}");
    assert!(help.contains("repeat the command with the missing members: it continues"), "{help}");
    assert!(help.contains("zonda volume takeover --accept-missing new"), "{help}");
    assert_eq!(refusal(&directory, &import), (error, help), "it continues, and lacks the same member");
    let released = self::help(&directory, &["volume", "takeover", "new", "--release"]);
    assert!(released.contains("zonda volume takeover --release --accept-missing new"), "{released}");
    far.stop();
}

#[test]
fn an_import_that_did_not_reserve_all_members_is_continued_by_the_same_command() {
    let directory = make("remedies-take-over-again");
    let shape = ["--profile", "zn540-zapraid", "--zones", "24", "--zone-capacity", "1MiB"];
    output_in(&directory, &[&["drive", "create", "e"][..], &shape].concat());
    let far = Server::start(&directory, &["d", "e"]);
    let both = format!("{},{}", far.url(0), far.url(1));
    output_in(&directory, &["volume", "create", "remote", "--members", &both, "--level", "1"]);
    Server::start(&directory, &["remote"]).kill();
    refusal(&directory, &["volume", "import", "new", "--members", far.url(0), "--take-over"]);
    for arguments in [&["--members", far.url(0)][..], &["--scan", "."]] {
        let (error, _) = refusal(&directory, &[&["volume", "import", "new"], arguments].concat());
        assert!(error.contains("holds a volume already"), "without --take-over: {error}");
    }
    let import = ["volume", "import", "new", "--members", &both, "--take-over"];
    output_in(&directory, &import);
    Server::start(&directory, &["new"]).kill();
    let (error, _) = refusal(&directory, &import);
    assert!(error.contains("holds a volume already"), "it was complete: {error}");
    far.stop();
}

#[test]
fn what_is_missing_on_the_command_line_is_named() {
    let directory = make("remedies-usage");
    let import = help(&directory, &["volume", "import", "new"]);
    assert!(import.contains("--members") && import.contains("--scan"), "{import}");
    let (error, help) = refusal(&directory, &["status", "foo"]);
    assert!(error.contains("which has a host and a port") && help.contains("give HOST:PORT"), "{error} {help}");
    let size = ["volume", "create", "new", "--members", "d", "--size", "1TiB"];
    let (error, help) = refusal(&directory, &size);
    assert!(error.contains("cannot create a volume of 1 TiB: the members hold at most"), "{error}");
    assert!(help.contains("choose another --size"), "{help}");
    let remove = output_of(&["volume", "spare", "remove", "--help"]);
    assert!(!remove.contains("--force"), "{remove}");
}

#[test]
fn errors_in_files_without_a_remedy_of_their_own_name_the_guide() {
    let directory = make("remedies-files");
    file(&directory, "job.toml", "[drive]\nprofile = \"tiny\"\nset = { zones = 4 }\n[[job]]\noperation = \"read\"\n");
    let set = help(&directory, &["bench", "job.toml"]);
    assert!(set.contains("\"geometry.zones\" = 64") && set.contains("zonda drive show PROFILE"), "{set}");
    file(&directory, "job.toml", "drive = \"tiny\"\n[[job]]\noperation = \"read\"\n");
    let drive = help(&directory, &["bench", "job.toml"]);
    assert!(drive.contains("docs/guide/job-files.md describes the keys"), "{drive}");
    file(&directory, "mine.toml", "title = 4\n");
    let experiment = help(&directory, &["lab", "run", "./mine.toml"]);
    assert!(experiment.contains("docs/guide/experiments.md describes the keys"), "{experiment}");
    file(&directory, "zonda.toml", "server = 4\n");
    let server = help(&directory, &["serve", "--config", "zonda.toml"]);
    assert!(server.contains("docs/guide/serve.md describes the keys"), "{server}");
}

#[test]
fn a_missing_file_is_to_be_looked_for_where_files_of_its_kind_are() {
    let directory = scratch("remedies-missing");
    for (arguments, words) in [
        (&["bench", "none.toml"][..], "the directory examples/"),
        (&["serve", "--config", "none.toml"], "the directory examples/"),
        (&["sim", "none.toml"], "sim/bugbase"),
        (&["lab", "run", "./none.toml"], "zonda lab show ID"),
    ] {
        let help = help(&directory, arguments);
        assert!(help.contains("check the path") && help.contains(words), "{arguments:?}: {help}");
    }
}

#[test]
fn each_part_that_a_simulation_can_leave_out_is_described() {
    let help = output_of(&["sim", "--help"]);
    for line in ["rot                 silent corruption", "kills               kills and restarts of hosts"] {
        assert!(help.contains(line), "{help}");
    }
}
