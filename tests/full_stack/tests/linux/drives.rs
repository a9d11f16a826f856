//! zonda on zoned drives of the guest: QEMU's NVMe drive by the block layer and by passthrough, null_blk,
//! and a host-managed disk of scsi_debug.

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
}
