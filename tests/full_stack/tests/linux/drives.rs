//! zonda on zoned drives of the guest: QEMU's NVMe drive by the block layer and by passthrough, null_blk,
//! and a host-managed disk of scsi_debug; and `zonda probe` on them.

use zonda_full_stack::{DrivesGuest, Extent};

#[test]
fn zonda_runs_on_real_drives() {
    drives(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_zonda_runs_on_real_drives() {
    drives(Extent::Soak);
}

fn drives(extent: Extent) {
    let Some(mut guest) = DrivesGuest::boot_or_skip("drives", extent) else { return };
    let console = guest.run("drives.sh");
    assert!(console.section("conformance").contains("0 failed"), "{}", console.section("conformance"));
    for check in ["check-plug", "check-ngs", "check-ng"] {
        let report = console.json(check);
        assert_eq!((&report["wrong_blocks"], &report["lost_blocks"]), (&0.into(), &0.into()), "{check}: {report}");
    }
    let status = console.json("status-resynchronized");
    assert_eq!((&status["state"], &status["lost_blocks"]), (&"healthy".into(), &0.into()), "{status}");
    // Linux has set a descriptor extension: the zone is closed without a block.
    let zones = console.json("zones-extension");
    assert_eq!(zones["zones"][0]["state"], "closed", "{zones}");
    // A 512e disk of 32 zones, the first 3 of which are conventional.
    let zones = console.json("zones-512e");
    assert_eq!((&zones["block_size_bytes"], &zones["zones_in_namespace"]), (&4096.into(), &32.into()), "{zones}");
    if extent.is_soak() {
        let metadata = console.section("conformance-metadata");
        assert!(metadata.contains("0 failed"), "{metadata}");
        for check in ["check", "check-smr"] {
            let report = console.json(check);
            let found = (&report["refusal"], &report["wrong_blocks"], &report["members"][0]["state"]);
            assert_eq!(found, (&serde_json::Value::Null, &0.into(), &"active".into()), "{report}");
            assert!(report["blocks"].as_u64().is_some_and(|blocks| blocks > 100), "{report}");
        }
    }
}

/// The parts of a report of `zonda probe`, and those that only read.
const PARTS: [&str; 7] = ["groups", "reads", "writes", "appends", "zones", "interference", "schedulers"];
const READ_PARTS: [&str; 2] = ["groups", "reads"];

#[test]
#[ignore = "soak"]
fn soak_real_drives_are_probed_within_the_budget_with_a_complete_report() {
    let Some(mut guest) = DrivesGuest::boot_or_skip("probe", Extent::Soak) else { return };
    let console = guest.run("probe.sh");
    for drive in ["passthrough", "nvme", "null_blk", "scsi_debug"] {
        let report = console.json(&format!("{drive}-all"));
        for part in PARTS {
            let summary = part_of(&report, part);
            assert!(summary["reason"].is_null(), "{drive}: {summary}");
            assert!(part == "groups" || measured(summary) > 0, "{drive}: {summary}");
        }
        is_within_budget(&report, drive);
        let zones = console.json(&format!("{drive}-zones"));
        let zones = zones["zones"].as_array().expect("a list of zones");
        let is_clean = |state: &str| state == "empty" || state == "conventional";
        assert!(zones.iter().all(|zone| is_clean(zone["state"].as_str().expect("a name"))), "{drive}: {zones:?}");

        let report = console.json(&format!("{drive}-reads"));
        for part in PARTS {
            let summary = part_of(&report, part);
            let is_read = READ_PARTS.contains(&part);
            assert_eq!(summary["reason"].is_null(), is_read, "{drive}: {summary}");
            assert!(part != "reads" || measured(summary) > 5, "{drive}: {summary}");
        }
        is_within_budget(&report, drive);
    }
}

fn part_of<'a>(report: &'a serde_json::Value, part: &str) -> &'a serde_json::Value {
    let parts = report["parts"].as_array().expect("a list of parts");
    parts.iter().find(|summary| summary["part"] == part).unwrap_or_else(|| panic!("no part {part}: {parts:?}"))
}

fn measured(summary: &serde_json::Value) -> u64 {
    summary["measured"].as_u64().expect("a number of loads")
}

/// A command in progress at the end of the budget is not interrupted.
fn is_within_budget(report: &serde_json::Value, drive: &str) {
    let of = |value: &serde_json::Value| value.as_u64().expect("nanoseconds") / 1_000_000;
    let (elapsed_ms, budget_ms) = (of(&report["elapsed_ns"]), of(&report["conditions"]["budget_ns"]));
    println!("{drive}: {elapsed_ms} ms of {budget_ms}");
    assert!(elapsed_ms <= budget_ms + 2000, "{drive}: {elapsed_ms} ms of {budget_ms}");
}
