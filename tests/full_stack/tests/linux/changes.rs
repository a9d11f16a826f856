//! Namespaces that come, grow and go while a host uses others.

use serde_json::Value;
use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

#[test]
fn a_namespace_comes_grows_and_goes_while_another_is_verified() {
    changes(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_a_namespace_comes_grows_and_goes_while_another_is_verified() {
    changes(Extent::Soak);
}

fn changes(extent: Extent) {
    // Zones of 8 MiB, the least with which fio is content.
    let subsystem = Subsystem::named("a").namespace(Namespace::zoned(16, 8));
    let Some(mut stage) = Scene::new("changes", extent).subsystem(subsystem).open_or_skip() else { return };
    if !stage.is_zonda() {
        return println!("skipped: the kernel's target cannot be changed from this machine");
    }
    let console = stage.run("changes.sh");
    let rounds = if extent.is_soak() { 3 } else { 1 };
    for round in 1..=rounds {
        let zones = console.zones_of_blkzone(&format!("zones-{round}"));
        let states: Vec<&str> = zones.iter().map(|zone| zone.state.as_str()).collect();
        assert_eq!(states, ["oi", "em", "em", "em", "em", "em", "oi", "em"]);
    }
    assert!(console.section("busy").parse::<u32>().expect("a number") >= 1, "namespace 1 was verified meanwhile");
    let [before, after] = stage.statuses() else { panic!("the script has asked twice") };
    let accepted = |status: &Value| status["traffic"]["connections_accepted"].clone();
    assert_eq!(accepted(before), accepted(after), "the host has not connected again");
    assert_eq!(after["subsystems"][0]["namespaces"].as_array().map(Vec::len), Some(1), "{after}");
    assert_eq!(after["configuration"]["reloads"], 3 * rounds);
}
