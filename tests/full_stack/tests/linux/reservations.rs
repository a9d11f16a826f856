//! Reservations of two hosts, while their server is killed.

use serde_json::Value;
use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

#[test]
fn reservations_of_hosts_survive_kills_of_the_server() {
    reservations(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_reservations_of_hosts_survive_kills_of_the_server() {
    reservations(Extent::Soak);
}

fn reservations(extent: Extent) {
    let subsystem = Subsystem::named("a")
        .namespace(Namespace::zoned(8, extent.small_zone_mib()))
        .namespace(Namespace::conventional(1, 48));
    let Some(mut stage) = Scene::new("reservations", extent).subsystem(subsystem).open_or_skip() else { return };
    let console = stage.run("reservations.sh");
    if !stage.is_zonda() {
        return;
    }
    for (when, persists, reserved, hosts) in [
        ("before", 1, [1, 2], [(1, 0x11, true)].as_slice()),
        ("killed", 1, [1, 2], &[(1, 0x11, true)]),
        ("taken", 1, [1, 1], &[(2, 0x22, true)]),
    ] {
        for (namespace, kind) in ["zoned", "plain"].iter().zip(reserved) {
            let name = format!("{namespace}-{when}");
            let report = console.json(&name);
            assert_eq!((&report["rtype"], &report["ptpls"]), (&kind.into(), &persists.into()), "{name}: {report}");
            assert_eq!(hosts_of(&report), hosts, "{name}");
        }
    }
    for (name, persists, hosts) in
        [("zoned-ended", 0, [].as_slice()), ("plain-ended", 1, &[(2, 0x22, false)]), ("plain-cleared", 1, &[])]
    {
        let report = console.json(name);
        assert_eq!((&report["rtype"], &report["ptpls"]), (&0.into(), &persists.into()), "{name}: {report}");
        assert_eq!(hosts_of(&report), hosts, "{name}");
    }
}

/// The hosts of a report by number, with their keys, and whether they hold the reservation.
fn hosts_of(report: &Value) -> Vec<(u64, u64, bool)> {
    let registered = report["regctlext"].as_array().map_or(&[][..], Vec::as_slice);
    let host = |entry: &Value| {
        let id = entry["hostid"].as_str().expect("an identifier").replace('-', "");
        let number = u64::from_str_radix(&id[id.len() - 4..], 16).expect("hexadecimal digits");
        (number, entry["rkey"].as_u64().expect("a key"), entry["rcsts"] == 1)
    };
    registered.iter().map(host).collect()
}
