//! btrfs, while its server is killed.

use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

use crate::assert_the_image_has;

#[test]
fn btrfs_finds_everything_it_synced_after_the_server_was_killed() {
    btrfs(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_btrfs_finds_everything_it_synced_after_the_server_was_killed() {
    btrfs(Extent::Soak);
}

fn btrfs(extent: Extent) {
    let scene = Scene::new("btrfs", extent).subsystem(Subsystem::named("a").namespace(Namespace::zoned(64, 48)));
    let Some(mut stage) = scene.open_or_skip() else { return };
    let console = stage.run("btrfs.sh");
    let zones = console.zones_of_blkzone("blkzone");
    assert_eq!(console.zones_of_nvme("zns-report", 4096), zones);
    if let Some(sheet) = stage.stop_and_show("a", 1) {
        assert_the_image_has(&zones, &sheet);
    }
}
