//! Holes of a volume, seen by NBD tools.

use std::fs;
use std::path::Path;

use serde_json::Value;
use zonda_full_stack::{create_drive, zonda};

use crate::tools::{have, run};
use crate::{Fixture, fill};

/// Bytes of the volume.
const VOLUME: u64 = 128 << 20;
/// Bytes written at its start, and in its middle.
const WRITTEN: u64 = 8 << 20;

/// A server of a volume of three drives, `vol`.
fn volume() -> Fixture {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let drives = ["a", "b", "c"].map(path);
    drives.iter().for_each(|drive| create_drive(Path::new(drive), "zn540-zapraid", 32, 4));
    let size = VOLUME.to_string();
    zonda(&["volume", "create", &path("vol"), "--members", &drives.join(","), "--level", "5", "--size", &size]);
    Fixture::of_volume(directory)
}

/// Offset, length and whether it is a hole, of each entry of a map, with adjacent entries of one
/// state merged.
fn extents(map: &Value, offset: &str, is_hole: impl Fn(&Value) -> bool) -> Vec<(u64, u64, bool)> {
    let mut found: Vec<(u64, u64, bool)> = Vec::new();
    for entry in map.as_array().expect("a list") {
        let (at, length) = (entry[offset].as_u64().expect("a number"), entry["length"].as_u64().expect("a number"));
        match found.last_mut() {
            Some(last) if last.2 == is_hole(entry) => last.1 += length,
            _ => found.push((at, length, is_hole(entry))),
        }
    }
    found
}

#[test]
fn tools_report_the_holes_of_a_volume_and_copies_skip_them() {
    if !have(&["nbdinfo", "nbdcopy", "qemu-img", "qemu-io"]) {
        return;
    }
    let mut fixture = volume();
    let (there, back) = (fixture.path("there.raw"), fixture.path("back.raw"));
    fill(&there, WRITTEN);
    let (there, back) = (there.to_str().expect("UTF-8"), back.to_str().expect("UTF-8"));
    let (middle, half) = (VOLUME / 2, WRITTEN / 2);
    let io = |fixture: &Fixture, commands: &[String]| {
        let here = fixture.unix_url();
        let mut arguments = vec!["-f", "raw"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(&here);
        run("qemu-io", &arguments);
    };
    io(
        &fixture,
        &[
            format!("write -s {there} 0 {WRITTEN}"),
            format!("write -P 0xa5 {middle} {WRITTEN}"),
            format!("discard {half} {half}"),
            "flush".to_owned(),
        ],
    );
    let expected = [
        (0, half, false),
        (half, middle - half, true),
        (middle, WRITTEN, false),
        (middle + WRITTEN, VOLUME - middle - WRITTEN, true),
    ];
    for _ in 0..2 {
        let map: Value =
            serde_json::from_str(&run("nbdinfo", &["--map", "--json", &fixture.unix_url()])).expect("JSON");
        assert_eq!(extents(&map, "offset", |entry| entry["type"] == 3), expected, "{map}");
        let map = run("qemu-img", &["map", "--output=json", "-f", "raw", &fixture.unix_url()]);
        let map: Value = serde_json::from_str(&map).expect("JSON");
        let is_hole = |entry: &Value| entry["zero"] == true && entry["data"] == false;
        assert_eq!(extents(&map, "start", is_hole), expected, "{map}");
        // Holes survive a restart.
        fixture.server.kill();
        fixture.server.start_again();
    }
    run("nbdcopy", &[&fixture.unix_url(), back]);
    let copy = fs::read(back).expect("the file exists");
    let there = fs::read(there).expect("the file exists");
    assert!(copy.len() as u64 == VOLUME && copy[..half as usize] == there[..half as usize]);
    assert!(copy[half as usize..middle as usize].iter().all(|&byte| byte == 0));
    assert!(copy[middle as usize..(middle + WRITTEN) as usize].iter().all(|&byte| byte == 0xa5));
    let same = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", back, &fixture.unix_url()]);
    assert!(same.contains("identical"), "{same}");
    // Holes were not even read.
    let status = run("qemu-img", &["map", "--output=json", "-f", "raw", back]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let copied: u64 = extents(&status, "start", |entry| entry["data"] == false)
        .iter()
        .filter(|(.., is_hole)| !is_hole)
        .map(|(_, length, _)| length)
        .sum();
    assert!(copied <= WRITTEN + half, "the copy is as sparse as the volume: {status}");
    assert!(fixture.server.stop().success());
}
