//! Copies of whole disks, in both directions.

use std::fs;

use crate::tools::{have, run};
use crate::{Fixture, SIZE, fill};

/// Bytes of the copied images.
const IMAGE: u64 = 64 << 20;

#[test]
fn nbdcopy_copies_a_disk_in_both_directions_over_four_connections() {
    if !have(&["nbdcopy"]) {
        return;
    }
    let fixture = Fixture::open();
    let (there, back) = (fixture.path("there.raw"), fixture.path("back.raw"));
    fill(&there, SIZE);
    let (there, back) = (there.to_str().expect("UTF-8"), back.to_str().expect("UTF-8"));
    for url in [fixture.unix_url(), fixture.url("nbd")] {
        run("nbdcopy", &["--connections=4", "--flush", there, &url]);
        run("nbdcopy", &["--connections=4", &url, back]);
        assert!(fs::read(there).expect("the file exists") == fs::read(back).expect("the file exists"), "{url}");
        fs::remove_file(back).expect("the file exists");
    }
    // A sparse file becomes trims or zeros.
    fs::File::create(there).and_then(|file| file.set_len(SIZE)).expect("the file is written");
    run("nbdcopy", &["--allocated", there, &fixture.unix_url()]);
    run("nbdcopy", &[&fixture.unix_url(), back]);
    assert!(fs::read(back).expect("the file exists").iter().all(|&byte| byte == 0));
}

#[test]
fn qemu_img_converts_and_compares() {
    if !have(&["qemu-img"]) {
        return;
    }
    let mut fixture = Fixture::open();
    let (raw, qcow) = (fixture.path("disk.raw"), fixture.path("disk.qcow2"));
    fill(&raw, IMAGE);
    let (raw, qcow) = (raw.to_str().expect("UTF-8"), qcow.to_str().expect("UTF-8"));
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", raw, qcow]);
    run("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", qcow, &fixture.unix_url()]);
    // The disk is larger than the image; the rest is zeros.
    let same = run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", qcow, &fixture.unix_url()]);
    assert!(same.contains("identical"), "{same}");
    // The copied data were flushed: they survive a kill, and the stale socket of the server is
    // replaced.
    fixture.server.kill();
    fixture.server.start_again();
    let same = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", raw, &fixture.unix_url()]);
    assert!(same.contains("identical"), "{same}");
    assert!(fixture.server.stop().success());
}
