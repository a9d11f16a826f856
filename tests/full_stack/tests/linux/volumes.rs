//! ext4 on a redundant volume, while its drives and its server fail.

use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

#[test]
fn ext4_on_a_volume_survives_a_kill_a_failed_drive_and_a_rebuild() {
    volumes(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_ext4_on_a_volume_survives_kills_a_failed_drive_and_a_rebuild() {
    volumes(Extent::Soak);
}

fn volumes(extent: Extent) {
    let scene = Scene::new("volumes", extent).subsystem(Subsystem::named("v").namespace(Namespace::volume(4, 32, 4)));
    let Some(mut stage) = scene.open_or_skip() else { return };
    stage.run("volumes.sh");
    for status in stage.statuses() {
        let volume = &status["subsystems"][0]["namespaces"][0]["volume"];
        assert_eq!((&volume["scheme"], &volume["lost_blocks"]), (&"RAID 5 (3+1)".into(), &0.into()), "{status}");
        assert!(volume["host_write_bytes"].as_u64() > Some(1 << 20), "{status}");
    }
}
