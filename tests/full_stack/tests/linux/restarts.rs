//! A host that stays connected while its server has many silent connections, is stopped cleanly,
//! and killed.

use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

use crate::assert_the_image_has;

#[test]
fn a_host_survives_connection_floods_stops_and_kills_of_its_server() {
    restarts(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_a_host_survives_connection_floods_stops_and_kills_of_its_server() {
    restarts(Extent::Soak);
}

fn restarts(extent: Extent) {
    let subsystem = Subsystem::named("a")
        .namespace(Namespace::zoned(32, extent.small_zone_mib()))
        .namespace(Namespace::conventional(2, 48));
    let Some(mut stage) = Scene::new("restarts", extent).subsystem(subsystem).open_or_skip() else { return };
    let console = stage.run("restarts.sh");
    let zones = console.zones_of_blkzone("blkzone");
    assert_eq!(console.zones_of_nvme("zns-report", 4096), zones);

    let zones_written = if extent.is_soak() { 2 } else { 1 };
    for status in stage.statuses() {
        let subsystem = &status["subsystems"][0];
        let sessions = subsystem["sessions"].as_array().expect("a subsystem has sessions");
        assert_eq!(sessions.len(), 1, "the session before the reset has ended: {status}");
        assert_eq!((&sessions[0]["io_queues"], &sessions[0]["authenticated"]), (&2.into(), &false.into()), "{status}");
        let written_bytes = subsystem["namespaces"][0]["written_bytes"].as_u64();
        let full_zones = zones_written * (u64::from(extent.small_zone_mib()) << 20);
        assert!(written_bytes >= Some(full_zones), "{zones_written} zones are full: {status}");
        assert!(status["traffic"]["connections_accepted"].as_u64() >= Some(500), "{status}");
    }
    if let Some(sheet) = stage.stop_and_show("a", 1) {
        assert_the_image_has(&zones, &sheet);
    }
}
