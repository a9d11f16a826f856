//! `zonda drive`.

use super::{assert_golden, json_of, output_of, zonda};

#[test]
fn the_list_of_profiles() {
    assert_golden("drive_profiles.txt", &output_of(&["drive", "profiles"]));
    let json = json_of(&["drive", "profiles", "--json"]);
    let names: Vec<&str> =
        json["profiles"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, zonda_profiles::builtin_names().collect::<Vec<_>>());
}

#[test]
fn every_profile_is_shown_with_its_sources() {
    for name in zonda_profiles::builtin_names() {
        let text = output_of(&["drive", "show", name]);
        assert!(text.contains("[write_buffer]") && text.contains("writes, at most"), "{text}");
        let json = json_of(&["drive", "show", name, "--json"]);
        let values = json["values"].as_array().unwrap();
        assert!(values.iter().all(|value| !value["source"].as_str().unwrap().is_empty()), "{name}");
        assert_eq!(json["name"], name);
    }
    assert_golden("drive_show_tiny.txt", &output_of(&["drive", "show", "tiny"]));
}

#[test]
fn the_help_of_each_command_has_an_example() {
    for (command, example) in [
        (vec!["--help"], "zonda demo"),
        (vec!["bench", "--help"], "zonda bench examples/randread.toml"),
        (vec!["sim", "--help"], "zonda sim 42"),
        (vec!["demo", "--help"], "zonda demo --out"),
        (vec!["drive", "profiles", "--help"], "zonda drive profiles"),
        (vec!["drive", "show", "--help"], "zonda drive show zn540"),
        (vec!["pool", "create", "--help"], "zonda pool create pool --drive drives/a"),
        (vec!["pool", "show", "--help"], "zonda pool show pool"),
        (vec!["namespace", "--help"], "zonda namespace create pool db --size 64GiB --weight 2 --active 16"),
        (vec!["namespace", "list", "--help"], "zonda namespace list pool"),
        (vec!["namespace", "resize", "--help"], "zonda namespace resize pool db --size 128GiB"),
        (vec!["namespace", "delete", "--help"], "zonda namespace delete pool db"),
    ] {
        let help = output_of(&command);
        assert!(help.contains(example), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    let version = zonda(&["--version"]);
    assert_eq!(version.stdout, format!("zonda {}\n", env!("CARGO_PKG_VERSION")));
}
