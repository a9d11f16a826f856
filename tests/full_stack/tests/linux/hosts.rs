//! Two concurrent hosts.

use zonda_full_stack::{Extent, Namespace, Scene, Stage, Subsystem};

/// The first zones of the shared namespace that host 1 and host 2 write.
const FIRST_ZONES: [u64; 2] = [0, 16];
/// Options of `nvme connect`: digests for host 1.
const DIGESTS: [&str; 2] = ["--hdr-digest --data-digest", ""];
/// Sectors of 512 bytes in a MiB.
const MIB_SECTORS: u64 = 2048;

/// In one guest, which connects with two host NQNs.
#[test]
fn two_hosts_share_a_server_and_a_namespace() {
    let Some(mut stage) = stage(Extent::Smoke) else { return };
    let console = stage.run_with("two_hosts.sh", &[("DIGESTS", DIGESTS[0])]);
    for first_zone in FIRST_ZONES {
        let zones = console.zones_of_blkzone(&format!("blkzone-{first_zone}"));
        assert_eq!(
            (zones.len(), zones[0].start),
            (1, first_zone * MIB_SECTORS * u64::from(Extent::Smoke.small_zone_mib()))
        );
        assert_eq!(zones[0].state, "fu", "fio filled its zone: {zones:?}");
    }
    assert_eq!(console.section("hosts").lines().count(), 2, "two host NQNs");
}

/// In two guests.
#[test]
#[ignore = "soak"]
fn soak_two_hosts_share_a_server_and_a_namespace() {
    let Some(mut stage) = stage(Extent::Soak) else { return };
    let job = |number: usize| {
        let variables = [
            ("HOST_NUMBER", number.to_string()),
            ("FIRST_ZONE", FIRST_ZONES[number - 1].to_string()),
            ("DIGESTS", DIGESTS[number - 1].to_owned()),
        ];
        variables.iter().fold(stage.job("hosts.sh"), |job, (name, value)| job.variable(name, value))
    };
    let jobs = [job(1), job(2)];
    for (console, first_zone) in stage.run_both([&jobs[0], &jobs[1]]).iter().zip(FIRST_ZONES) {
        let zones = console.zones_of_blkzone("blkzone");
        assert!(zones.iter().all(|zone| zone.state == "fu"), "fio filled its zones: {zones:?}");
        assert_eq!(zones[0].start, first_zone * MIB_SECTORS * u64::from(Extent::Soak.small_zone_mib()));
    }
}

fn stage(extent: Extent) -> Option<Stage> {
    let zones = || Namespace::zoned(32, extent.small_zone_mib());
    let scene = Scene::new("hosts", extent)
        .subsystem(Subsystem::named("own-1").namespace(zones()))
        .subsystem(Subsystem::named("own-2").namespace(zones()))
        .subsystem(Subsystem::named("shared").namespace(zones().timed()));
    scene.open_or_skip()
}
