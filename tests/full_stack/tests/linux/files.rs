//! fio on zones, and zonefs.

use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

use crate::assert_the_image_has;

#[test]
fn fio_verifies_what_it_wrote_and_zonefs_keeps_files() {
    files(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_fio_verifies_what_it_wrote_and_zonefs_keeps_files() {
    files(Extent::Soak);
}

fn files(extent: Extent) {
    let scene = Scene::new("files", extent)
        .subsystem(Subsystem::named("small").namespace(Namespace::zoned(64, extent.small_zone_mib())))
        .on_epoll();
    let Some(mut stage) = scene.open_or_skip() else { return };
    let console = stage.run("files.sh");

    // zonefs has its superblock in zone 0; file 0 is zone 1. This many pieces of 128 sectors were
    // appended to each file.
    let appended = Some(128 * if extent.is_soak() { 80 } else { 10 });
    let zones = console.zones_of_blkzone("blkzone");
    let written: Vec<Option<u64>> = [1, 2, 3, 6].iter().map(|&index: &usize| zones[index].written).collect();
    assert_eq!(written, [appended, Some(0), Some(0), appended]);
    assert_eq!(console.zones_of_nvme("zns-report", 4096), zones);
    if let Some(sheet) = stage.stop_and_show("small", 1) {
        assert_the_image_has(&zones, &sheet);
    }
}
