//! Remedies that are followed: what they propose must work.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::remedies::{SERVE, copy, help, make, refusal};
use super::server::Server;
use super::{file, json_in, output_in, output_of, scratch, zonda, zonda_in};

const SIZE: [&str; 4] = ["--zones", "24", "--zone-capacity", "1MiB"];

#[test]
fn an_image_in_use_can_be_checked_while_it_is_served_read_only() {
    let directory = make("followed-read-only");
    let server = Server::start(&directory, &["d"]);
    for command in ["show", "check"] {
        let help = help(&directory, &["drive", command, "d"]);
        assert!(help.contains("zonda serve --read-only: zonda drive show and zonda drive check"), "{help}");
    }
    server.stop();
    let server = Server::start(&directory, &["d", "--read-only"]);
    for command in ["show", "check"] {
        output_in(&directory, &["drive", command, "d"]);
    }
    server.stop();
}

#[test]
fn an_invalid_file_of_a_volume_is_removed_and_recreated_from_the_drives() {
    let directory = make("followed-file");
    let place = directory.join("vol/volume.toml");
    let text = fs::read_to_string(&place).expect("it is there");
    fs::write(&place, text.replacen("\"active\"", "\"actif\"", 1)).expect("it can be written");
    let (error, help) = refusal(&directory, &["volume", "status", "vol"]);
    assert!(error.contains("unknown value \"actif\" for \"state\""), "{error}");
    assert!(help.starts_with("allowed here: active, rebuilding, failed, joining; correct the line"), "{help}");
    assert!(help.contains("remove vol/volume.toml, and run zonda volume import vol --members"), "{help}");
    fs::remove_file(&place).expect("it is there");
    output_in(&directory, &["volume", "import", "vol", "--members", "a,b,c"]);
    Server::start(&directory, &["vol"]).stop();
}

#[test]
fn a_member_that_another_volume_uses_now_is_missing_and_can_be_replaced() {
    let directory = make("followed-foreign");
    output_in(&directory, &["volume", "create", "other", "--members", "b", "--force"]);
    let check = zonda_in(&directory, &["volume", "check", "vol"]);
    assert!(check.stdout.contains("degraded"), "{}{}", check.stdout, check.stderr);
    let status = output_in(&directory, &["volume", "status", "vol"]);
    assert!(status.contains("degraded") && status.contains("missing"), "{status}");
    let log = Server::start(&directory, &["vol"]).stop();
    assert!(log.contains("member 1 (b) is missing: the drive is member 0 of the volume"), "{log}");
    assert!(log.contains("zonda member replace --force uses it anyway"), "{log}");
    let status = output_in(&directory, &["volume", "status", "vol"]);
    assert!(status.contains("degraded"), "{status}");
    output_in(&directory, &["member", "replace", "vol", "b", "--with", "b", "--force"]);
    let status = output_in(&directory, &["volume", "status", "vol"]);
    assert!(status.contains("healthy"), "{status}");
}

#[test]
fn members_of_other_volumes_are_named_if_too_few_are_left() {
    let directory = make("followed-foreigners");
    output_in(&directory, &["volume", "create", "other", "--members", "b,c", "--force"]);
    let (error, help) = refusal(&directory, &[&["serve", "vol"], &SERVE[..]].concat());
    assert!(error.contains(": b belongs to another volume, which is named \"other\""), "{error}");
    assert!(help.contains("zonda volume import NEW --members"), "{help}");
}

#[test]
fn lost_blocks_of_a_volume_that_is_not_served_are_listed_by_a_check() {
    let directory = make("followed-lost");
    let (error, help) = refusal(&directory, &["volume", "status", "vol", "--lost"]);
    assert!(error.contains("this volume is not served"), "{error}");
    assert!(help.contains("zonda volume check vol"), "{help}");
    output_in(&directory, &["volume", "check", "vol"]);
    let server = Server::start(&directory, &["vol"]);
    output_in(&directory, &["volume", "status", "vol", "--lost"]);
    server.stop();
}

#[test]
fn drives_that_do_not_suit_a_volume_are_refused_with_a_remedy() {
    let directory = make("followed-members");
    let create = |drive: &str, size: &[&str]| output_in(&directory, &[&["drive", "create", drive], size].concat());
    create("conventional", &["--profile", "conventional", "--zones", "16"]);
    for force in [&[][..], &["--force"]] {
        let (error, help) =
            refusal(&directory, &[&["volume", "create", "v", "--members", "d,conventional"], force].concat());
        assert!(error.contains("conventional has conventional zones"), "{error}");
        assert!(help.contains("name another drive") && !help.contains("--force"), "{help}");
    }
    for zones in ["4", "8"] {
        let small = format!("small-{zones}");
        create(&small, &["--profile", "zn540-zapraid", "--zones", zones, "--zone-capacity", "1MiB"]);
        let (error, help) = refusal(&directory, &["volume", "create", "v", "--members", &small]);
        assert!(
            error.contains(&format!("the smallest member has {zones} zones, and each member needs at least")),
            "{error}"
        );
        assert_eq!(help, "name drives with more zones");
        let (_, least) = error.split_once("at least ").expect("it has a minimum");
        let least = least.split(' ').next().expect("it is a number");
        let enough = format!("enough-for-{zones}");
        create(&enough, &["--profile", "zn540-zapraid", "--zones", least, "--zone-capacity", "1MiB"]);
        output_in(&directory, &["volume", "create", &format!("v{zones}"), "--members", &enough]);
    }
    let (error, help) = refusal(&directory, &["volume", "create", "v", "--members", "d", "--size", "1000"]);
    assert!(error.contains("a volume has at least 1 block of 4096 bytes"), "{error}");
    assert_eq!(help, "choose a larger size");
    copy(&directory.join("d"), &directory.join("d2"));
    let (error, help) = refusal(&directory, &["volume", "create", "v", "--members", "d,d2"]);
    assert!(error.contains("d and d2 are the same drive: both have the same identifier"), "{error}");
    assert!(help.contains("create a new image instead: zonda drive create"), "{help}");
    let (error, _) = refusal(&directory, &["volume", "create", "v", "--members", "d,e,f", "--level", "4+2"]);
    assert!(error.contains("over 3 members, a stripe of Reed-Solomon (1+2) has 1 data chunk, not 4"), "{error}");
    let (error, _) =
        refusal(&directory, &["volume", "create", "v", "--members", "d,e,f", "--level", "5", "--parity", "2"]);
    assert!(error.contains("RAID 5 over 3 members has 1 parity chunk in each stripe, not 2"), "{error}");
}

#[test]
fn drives_in_use_can_be_members_of_a_volume_through_their_server() {
    let directory = make("followed-through");
    let server = Server::start(&directory, &["d"]);
    let help = help(&directory, &["volume", "create", "v", "--members", "d"]);
    assert!(help.contains("zonda volume create --members, can also use the drive through its server"), "{help}");
    output_in(&directory, &["volume", "create", "v", "--members", server.url(0)]);
    server.stop();
}

#[test]
fn a_takeover_with_too_few_members_fails() {
    let directory = make("followed-takeover");
    for drive in ["e", "f"] {
        output_in(&directory, &[&["drive", "create", drive, "--profile", "zn540-zapraid"], &SIZE[..]].concat());
    }
    let (first, others) = (Server::start(&directory, &["d"]), Server::start(&directory, &["e", "f"]));
    let members = [first.url(0), others.url(0), others.url(1)].join(",");
    output_in(&directory, &["volume", "create", "far", "--members", &members, "--level", "5"]);
    Server::start(&directory, &["far"]).kill();
    fs::create_dir(directory.join("copy")).expect("the disk has space");
    fs::copy(directory.join("far/volume.toml"), directory.join("copy/volume.toml")).expect("the disk has space");
    others.stop();
    let few = zonda_in(&directory, &["volume", "takeover", "copy", "--accept-missing"]);
    assert_eq!(few.code, Some(1), "{}{}", few.stdout, few.stderr);
    assert!(few.stdout.contains("too few members were acquired to serve the volume"), "{}", few.stdout);
    assert!(few.stdout.contains("repeat zonda volume takeover --accept-missing copy"), "{}", few.stdout);
    assert!(!few.stdout.contains("zonda serve"), "{}", few.stdout);
    first.stop();
    let none = zonda_in(&directory, &["volume", "takeover", "copy", "--accept-missing"]);
    assert_eq!(none.code, Some(1), "{}{}", none.stdout, none.stderr);
}

#[test]
fn a_host_that_is_not_allowed_is_named_and_can_choose_its_nqn() {
    let directory = make("followed-host");
    let host = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
    let config = |host: &str| {
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \
             \"nqn.2026-01.io.zonda:x\"\nhost = [{{ nqn = \"{host}\" }}]\n[[subsystem.namespace]]\nimage = \"d\"\n"
        )
    };
    file(&directory, "bad.toml", config("me"));
    let bad = help(&directory, &["serve", "--config", "bad.toml"]);
    assert!(bad.contains("use the NQN of the host, as in its /etc/nvme/hostnqn"), "{bad}");
    file(&directory, "zonda.toml", config(host));
    let server = Server::start(&directory, &["--config", "zonda.toml"]);
    let (error, help) = refusal(&directory, &["zone", "report", server.url(0)]);
    assert!(error.contains("as host nqn.2014-08.org.nvmexpress:uuid:"), "{error}");
    assert!(help.contains("connect with one that is allowed: --host-nqn NQN"), "{help}");
    output_in(&directory, &["zone", "report", server.url(0), "--host-nqn", host]);
    server.stop();
    file(&directory, "loose.toml", config("nqn.2014-08.org.nvmexpress:uuid:..."));
    let (error, _) = refusal(&directory, &["serve", "--config", "loose.toml"]);
    assert!(error.contains("must be followed by a UUID of 36 characters"), "{error}");
}

#[test]
fn an_unknown_subsystem_is_answered_with_those_that_the_server_has() {
    let directory = make("followed-subsystem");
    let server = Server::start(&directory, &["d"]);
    let wrong = server.url(0).replace("io.zonda:d", "io.zonda:e");
    let (error, help) = refusal(&directory, &["zone", "report", &wrong]);
    assert!(error.contains("io.zonda:e"), "{error}");
    assert_eq!(help, "check its NQN: the server has nqn.2026-01.io.zonda:d");
    server.stop();
}

/// A configuration with these keys of `[server]`, and these lines at its end.
fn config(keys: &str, end: &str) -> String {
    format!(
        "[server]\n{keys}\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:x\"\n[[subsystem.namespace]]\nimage = \
         \"conventional\"\n{end}"
    )
}

#[test]
fn addresses_of_a_configuration_have_remedies_for_their_keys() {
    let directory = scratch("followed-addresses");
    let refused = |text: String| {
        file(&directory, "zonda.toml", text);
        refusal(&directory, &["serve", "--config", "zonda.toml"])
    };
    let (_, http) = refused(config("listen = \"127.0.0.1:0\"\nhttp = \"off\"", ""));
    assert_eq!(http, "remove the key http: without it, the server has no HTTP port");
    let both = "[[nbd]]\nlisten = \"127.0.0.1:14420\"\n";
    let (error, help) = refused(config("listen = \"127.0.0.1:14420\"", both));
    assert!(error.contains("127.0.0.1:14420 is already the NVMe/TCP address of this server"), "{error}");
    assert!(help.contains("choose another port for NBD clients, such as 10809"), "{help}");
    let long = format!("[[nbd]]\nlisten = \"unix:/{}\"\n", "x".repeat(132));
    let (error, help) = refused(config("listen = \"127.0.0.1:0\"", &long));
    assert!(error.contains("133 bytes, and the maximum is 107"), "{error}");
    assert_eq!(help, "choose a shorter path");
}

#[test]
fn paths_of_another_kind_and_missing_images_have_their_own_remedies() {
    let directory = scratch("followed-paths");
    file(&directory, "plain", "");
    file(&directory, "zonda.toml", "");
    let create = help(&directory, &["drive", "create", "plain"]);
    assert!(create.contains("is a file: choose another path"), "{create}");
    let serve = help(&directory, &[&["serve", "zonda.toml"], &SERVE[..]].concat());
    assert!(serve.contains("--config"), "{serve}");
    for arguments in [&["drive", "check", "none"][..], &["drive", "repair", "none", "--to", "other"]] {
        assert_eq!(help(&directory, arguments), "check the path: give the directory of an existing image");
    }
    let spare = help(&directory, &["volume", "spare", "add", "none", "plain"]);
    assert!(spare.starts_with("check the path"), "{spare}");
}

#[test]
fn numbers_of_the_command_line_are_refused_by_what_they_must_be() {
    let directory = scratch("followed-numbers");
    let stderr = |arguments: &[&str]| zonda_in(&directory, arguments).stderr;
    let zone = stderr(&["zone", "report", "a", "-1"]);
    assert!(zone.contains("invalid value '-1'") && !zone.contains("-- -1"), "{zone}");
    let seed = stderr(&["bench", "job.toml", "--seed", "x"]);
    assert!(seed.contains("must be a whole number from 0"), "{seed}");
    for capacity in ["0", "1000", "2KiB"] {
        let (error, _) = refusal(&directory, &["drive", "create", "a", "--zone-capacity", capacity]);
        assert!(error.contains("geometry.zone_capacity must be a multiple"), "{error}");
    }
    let (error, help) =
        refusal(&directory, &["drive", "create", "a", "--profile", "tiny", "--allocation", "hchunk-64"]);
    assert!(error.contains("flash.erase_unit") && error.contains("geometry.zone_capacity"), "{error}");
    assert!(help.contains("vchunk-N") && help.contains("superblock"), "{help}");
}

#[test]
fn an_incomplete_profile_is_shown_a_complete_one() {
    let directory = scratch("followed-profile");
    file(&directory, "mine.toml", "name = \"mine\"\n");
    let help = help(&directory, &["drive", "create", "a", "--profile", "./mine.toml"]);
    assert!(help.contains("crates/profiles/drives/tiny.toml is a complete profile"), "{help}");
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles/drives/tiny.toml").is_file());
}

#[test]
fn parts_of_scenarios_have_plain_names_and_their_former_ones() {
    for (name, former) in [
        ("kills", "deaths"),
        ("rogue-clients", "strangers"),
        ("missing-members", "absences"),
        ("interrupted-opens", "cut-openings"),
    ] {
        let help = output_of(&["sim", "--help"]);
        assert!(help.contains(&format!("\n  {name} ")) && !help.contains(&format!("\n  {former} ")), "{help}");
        for name in [name, former] {
            output_of(&["sim", "--seeds", "1", "--quiet", "--without", name]);
        }
    }
    let directory = scratch("followed-sim");
    file(&directory, "p.toml", "seed = 1\n");
    let (error, help) = refusal(&directory, &["sim", "p.toml"]);
    assert!(error.contains("not a stored failure of this version: it has no key \"format\""), "{error}");
    assert!(help.contains("zonda sim SEED --shrink"), "{help}");
    assert_eq!(zonda(&["sim", "--first", "x"]).code, Some(2));
}

#[test]
fn damaged_superblocks_are_found_by_a_check_and_replaced_by_a_scrub() {
    let directory = make("followed-superblocks");
    for _ in 0..2 {
        Server::start(&directory, &["vol"]).stop();
    }
    let zones = json_in(&directory, &["drive", "show", "a", "--json"])["zones"].clone();
    let written = zones[0]["written_blocks"].as_u64().expect("it is a number");
    assert!(written >= 2, "{zones}");
    let data = OpenOptions::new().write(true).open(directory.join("a/data.zonda")).expect("it is there");
    for block in [0, written - 1] {
        data.write_all_at(&[0xa5; 512], block * 4096).expect("it can be written");
    }
    drop(data);
    let check = zonda_in(&directory, &["volume", "check", "vol"]);
    assert_eq!(check.code, Some(1), "{}", check.stdout);
    assert!(check.stdout.contains("RAID 5 (2+1), damaged") && check.stdout.contains("superblocks 1 damaged"));
    assert!(check.stdout.contains("zonda volume scrub repairs damaged blocks, and writes new superblocks"));
    assert!(check.stdout.contains("1 damaged block of older superblocks"), "{}", check.stdout);
    output_in(&directory, &["volume", "scrub", "vol"]);
    let check = output_in(&directory, &["volume", "check", "vol"]);
    assert!(check.contains("healthy") && check.contains("2 damaged blocks of older superblocks"), "{check}");
}
