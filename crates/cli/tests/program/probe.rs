//! `zonda probe`.

use super::{json_of, output_of, refused_in, scratch, zonda_in};

#[test]
fn the_groups_of_a_simulated_drive_are_shown_and_stored_as_they_are_printed() {
    let directory = scratch("probe");
    let arguments = ["probe", "--groups-only", "model:bae-small", "--sample", "100", "--quiet"];
    let ran = zonda_in(&directory, &[&arguments[..], &["--json", "--out", "groups.json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("the table is JSON");
    assert_eq!((&json["groups"], &json["drive"]["serial"]), (&8.into(), &"model:bae-small".into()));
    let stored = std::fs::read_to_string(directory.join("groups.json")).expect("the table was stored");
    let text = output_of(&arguments);
    assert!(text.starts_with("model:bae-small: 8 conflict groups\n"), "{text}");
    assert!(text.contains("inferred from the order of allocation"), "{text}");
    assert_eq!(stored, ran.stdout);
}

#[test]
fn a_drive_of_large_zones_has_one_group() {
    let json = json_of(&["probe", "--groups-only", "model:zn540", "--json", "--quiet"]);
    assert_eq!(json["verdict"], "one-group");
    let text = output_of(&["probe", "--groups-only", "model:tiny", "--quiet"]);
    assert!(text.contains("groups make no sense on this drive"), "{text}");
}

#[test]
fn mistakes_are_refused_before_the_measurement() {
    let directory = scratch("probe-refused");
    let of = |arguments: &[&str]| refused_in(&directory, arguments);
    assert!(of(&["probe", "--groups-only", "model:tinny"]).contains("did you mean \"tiny\"?"));
    let text = of(&["probe", "--groups-only", "model:tiny", "--out", "missing/groups.json"]);
    assert!(text.contains("missing/groups.json"), "{text}");
}
