//! Whole disks, there and back.

use std::fs;

use crate::tools::{have, run};
use crate::{SIZE, Shelf, fill};

/// Bytes of the images that are copied.
const IMAGE: u64 = 64 << 20;

#[test]
fn nbdcopy_brings_a_disk_there_and_back_over_four_connections() {
    if !have(&["nbdcopy"]) {
        return;
    }
    let shelf = Shelf::open();
    let (there, back) = (shelf.path("there.raw"), shelf.path("back.raw"));
    fill(&there, SIZE);
    let (there, back) = (there.to_str().expect("UTF-8"), back.to_str().expect("UTF-8"));
    for url in [shelf.here(), shelf.url("nbd")] {
        run("nbdcopy", &["--connections=4", "--flush", there, &url]);
        run("nbdcopy", &["--connections=4", &url, back]);
        assert!(fs::read(there).expect("it is there") == fs::read(back).expect("it is there"), "{url}");
        fs::remove_file(back).expect("it is there");
    }
    // A sparse file becomes trims or zeros.
    fs::File::create(there).and_then(|file| file.set_len(SIZE)).expect("there is room");
    run("nbdcopy", &["--allocated", there, &shelf.here()]);
    run("nbdcopy", &[&shelf.here(), back]);
    assert!(fs::read(back).expect("it is there").iter().all(|&byte| byte == 0));
}

#[test]
fn qemu_img_converts_and_compares() {
    if !have(&["qemu-img"]) {
        return;
    }
    let mut shelf = Shelf::open();
    let (raw, qcow) = (shelf.path("disk.raw"), shelf.path("disk.qcow2"));
    fill(&raw, IMAGE);
    let (raw, qcow) = (raw.to_str().expect("UTF-8"), qcow.to_str().expect("UTF-8"));
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", raw, qcow]);
    run("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", qcow, &shelf.here()]);
    // The disk is larger than the image; what is behind it is zeros.
    let same = run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", qcow, &shelf.here()]);
    assert!(same.contains("identical"), "{same}");
    // What was copied was flushed: it is there after a kill, and the socket that the server left is replaced.
    shelf.server.kill();
    shelf.server.start_again();
    let same = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", raw, &shelf.here()]);
    assert!(same.contains("identical"), "{same}");
    assert!(shelf.server.stop().success());
}
