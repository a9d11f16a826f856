//! Discovery, Identify, logs, features and zone commands, by nvme-cli and blkzone; a conventional
//! namespace.

use serde_json::Value;
use zonda_full_stack::{Console, Extent, Namespace, Scene, Subsystem, Zone};

use crate::{BLOCK_SECTORS, assert_the_image_has};

/// Zone size (64 MiB) and zone capacity (48 MiB), in sectors of 512 bytes.
const ZONE_SECTORS: u64 = 0x20000;
const CAPACITY_SECTORS: u64 = 0x18000;

#[test]
fn linux_drives_every_command_of_a_zoned_namespace() {
    commands(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_linux_drives_every_command_of_a_zoned_namespace() {
    commands(Extent::Soak);
}

fn commands(extent: Extent) {
    let subsystem = Subsystem::named("a").namespace(Namespace::zoned(64, 48)).namespace(Namespace::conventional(2, 96));
    let Some(mut stage) = Scene::new("commands", extent).subsystem(subsystem).open_or_skip() else { return };
    let console = stage.run("commands.sh");

    the_subsystem_is_discovered(&console);
    the_controller_describes_itself(&console, stage.is_zonda());
    logs_and_features_are_sane(&console, stage.is_zonda());
    both_reports_show_what_was_done(&console);
    let zones = console.zones_of_blkzone("blkzone-after-reset");
    assert!(zones.iter().all(|zone| zone.state == "em"), "a reset of all zones empties them: {zones:?}");
    if let Some(sheet) = stage.stop_and_show("a", 1) {
        assert_the_image_has(&console.zones_of_blkzone("blkzone-last"), &sheet);
    }
}

fn the_subsystem_is_discovered(console: &Console) {
    let log = console.json("discover");
    let records = log["records"].as_array().expect("a discovery log has records");
    let is_ours = |record: &&Value| record["subnqn"] == "nqn.2026-01.io.zonda:a";
    let record = records.iter().find(is_ours).unwrap_or_else(|| panic!("not discovered: {log}"));
    assert_eq!(record["trtype"], "tcp");
    assert_eq!(record["subtype"], "nvme subsystem");
}

fn the_controller_describes_itself(console: &Console, is_zonda: bool) {
    let controller = console.json("id-ctrl");
    let number = |key: &str| controller[key].as_u64().unwrap_or_else(|| panic!("{key} of {controller}"));
    assert_eq!((number("sqes"), number("cqes")), (0x66, 0x44), "entries of 64 and 16 bytes");
    assert!(number("kas") > 0, "keep-alive is mandatory over fabrics");
    assert!(number("nn") >= 2);
    if is_zonda {
        assert_eq!(controller["mn"].as_str().map(str::trim), Some("zonda"));
        assert!(controller["sn"].as_str().is_some_and(|serial| serial.starts_with("ZONDA")));
    }
    assert_eq!(console.json("list-ns")["nsid_list"].as_array().map(Vec::len), Some(2), "two namespaces");

    let namespace = console.json("id-ns");
    assert_eq!(namespace["nsze"], 64 * ZONE_SECTORS / BLOCK_SECTORS);
    assert_eq!(namespace["lbafs"][0]["ds"], 12, "blocks of 4 KiB");
    assert!(console.json("id-ns-2")["nsze"].as_u64() >= Some(128 * 256));

    let zns = console.json("zns-id-ns");
    assert_eq!((&zns["mar"], &zns["mor"]), (&Value::from(13), &Value::from(13)), "14 zones, counted from 0");
    assert_eq!(zns["lbafe"][0]["zsze"], ZONE_SECTORS / BLOCK_SECTORS);
    assert_eq!(console.section("queue-zoned"), "host-managed");
    let limits = console.section("queue-limits");
    let limits: Vec<u64> = limits.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(limits[..4], [64, 14, 14, ZONE_SECTORS]);
    assert!(limits[4] >= 4096, "Zone Append supports at least one block");
}

fn logs_and_features_are_sane(console: &Console, is_zonda: bool) {
    let before = console.json("smart-log");
    let after = console.json("smart-log-after");
    let number = |log: &Value, key: &str| log[key].as_u64().unwrap_or_else(|| panic!("{key} of {log}"));
    assert_eq!(number(&before, "critical_warning"), 0);
    assert_eq!(number(&after, "media_errors"), 0);
    for key in ["host_write_commands", "host_read_commands", "data_units_written"] {
        assert!(number(&after, key) > number(&before, key), "{key} counts: {before} {after}");
    }
    if is_zonda {
        assert_eq!(number(&before, "avail_spare"), 100);
    }
    assert!(console.json("error-log")["errors"].is_array());
    for name in ["fw-log", "effects-log", "ns-descs", "zns-id-ctrl"] {
        assert!(!console.json(name).is_null(), "{name}");
    }
    assert!(console.section("ns-descs").contains("uuid"), "a namespace has a UUID");
    for feature in ["0x06", "0x07", "0x0b", "0x0f"] {
        let answer = console.section(&format!("feature-{feature}"));
        assert!(answer.contains("urrent value") || answer.contains("Current Value"), "{answer}");
    }
    if is_zonda {
        assert!(!console.json("supported-log-pages").is_null());
        assert!(!console.section("changed-zone-list").is_empty());
    }
}

/// The state after commands.sh: index of the zone, state, blocks written.
const LEFT: [(u64, &str, Option<u64>); 10] = [
    (0, "oi", Some(16)),
    (1, "oe", Some(0)),
    (2, "cl", Some(8)),
    (3, "fu", None),
    (4, "oe", Some(0)),
    (5, "em", Some(0)),
    (6, "oi", Some(4)),
    (7, "fu", None),
    (8, "cl", Some(4)),
    (9, "oi", Some(8)),
];

fn both_reports_show_what_was_done(console: &Console) {
    let zones = console.zones_of_blkzone("blkzone");
    assert_eq!(zones.len(), 64);
    for (index, zone) in (0..).zip(&zones) {
        let left = LEFT.iter().find(|(left, ..)| *left == index);
        let (state, blocks) = left.map_or(("em", Some(0)), |(_, state, blocks)| (*state, *blocks));
        let expected = Zone {
            start: index * ZONE_SECTORS,
            capacity: CAPACITY_SECTORS,
            written: blocks.map(|blocks| blocks * BLOCK_SECTORS),
            state: state.to_owned(),
        };
        assert_eq!(*zone, expected, "zone {index}");
    }
    assert_eq!(console.zones_of_nvme("zns-report", 4096), zones);
}
