//! BLOCK_STATUS of a volume, compared with its data.

use std::path::{Path, PathBuf};

use zonda_config::ByteSize;
use zonda_devices::{Location, NewVolume, VolumeDrive, create_image, sized};
use zonda_exports::Source;
use zonda_nbd::Extent;
use zonda_nbd::testing::Answer;
use zonda_nbd::wire::transmission::{command, command_flags};
use zonda_raid::Scheme;
use zonda_ring::{Ring, RingOptions};

use super::client::{Host, connect};
use super::{BLOCK, SIZE, address, plan, plan_of, serve, stop};

use crate::PROFILES;

/// A volume of three drives of forty zones of 1 MiB.
fn make_volume(folder: &Path) -> PathBuf {
    let members = ["a", "b", "c"].map(|name| folder.join(name));
    for member in &members {
        let spec = sized("zn540", Some(40), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
        create_image(member, &spec.plan(&PROFILES).expect("a valid size")).expect("the image is created");
    }
    let new = NewVolume {
        size: Some(ByteSize(16 << 20)),
        ..NewVolume::over(members.into_iter().map(Location::Image).collect(), Scheme::raid5(2))
    };
    let ring = Ring::new(RingOptions::default()).expect("an event loop");
    VolumeDrive::create(&folder.join("vol"), &new, &ring).expect("the volume is created");
    folder.join("vol")
}

/// Connected to an export, with BLOCK_STATUS.
fn open(address: &str, export: &str) -> Host {
    let mut host = connect(address);
    let (flags, structured) = (host.client.flags(), host.client.structured(export));
    host.send(&flags);
    host.send(&structured);
    host.choose(export)
}

/// The extents of a range, with as many requests as needed.
fn map(host: &mut Host, range: std::ops::Range<u64>, flags: u16) -> Vec<(u64, bool)> {
    let mut found: Vec<(u64, bool)> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let Ok(Answer::Status(extents)) = host.ask(command::BLOCK_STATUS, flags, at, range.end - at) else {
            panic!("a volume supports BLOCK_STATUS")
        };
        assert!(flags & command_flags::REQ_ONE == 0 || extents.len() == 1, "{extents:?}");
        for Extent { length, is_hole, is_zero } in extents {
            assert_eq!(is_hole, is_zero, "holes of volumes read as zeros");
            at += length;
            match found.last_mut() {
                Some(last) if last.1 == is_hole => last.0 += length,
                _ => found.push((length, is_hole)),
            }
        }
    }
    assert_eq!(at, range.end);
    found
}

#[test]
fn a_volume_reports_its_holes_and_these_read_as_zeros() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = make_volume(folder.path());
    let volume = || plan_of(Source::Volume(path.clone()));
    let server = serve(volume());
    let at = address(&server);
    let (mut host, size) = (open(&at, "vol"), 16 << 20);
    assert_eq!(map(&mut host, 0..size, 0), [(size, true)]);
    let data = vec![7; 3 * BLOCK as usize];
    assert_eq!(host.write(10 * BLOCK, &data), Ok(Answer::Done));
    assert_eq!(host.write(100 * BLOCK, &data), Ok(Answer::Done));
    assert_eq!(host.ask(command::TRIM, 0, 11 * BLOCK, BLOCK), Ok(Answer::Done));
    let is_hole = |block: u64| !matches!(block, 10 | 12 | 100..103);
    for (range, flags) in [(0..size, 0), (0..size, command_flags::REQ_ONE), (10 * BLOCK..101 * BLOCK, 0)] {
        let mut at = range.start;
        for (length, is_reported_hole) in map(&mut host, range, flags) {
            for block in at / BLOCK..(at + length) / BLOCK {
                assert_eq!(is_reported_hole, is_hole(block), "block {block}");
            }
            at += length;
        }
    }
    // Unaligned ranges: the status of the block at each end applies to all its bytes.
    assert_eq!(map(&mut host, 10 * BLOCK + 1..11 * BLOCK + 5, 0), [(BLOCK - 1, false), (5, true)]);
    for block in 0..size / BLOCK {
        let is_zeros = host.read(block * BLOCK, BLOCK).iter().all(|&byte| byte == 0);
        assert_eq!(is_zeros, is_hole(block), "block {block}");
    }
    assert_eq!(host.flush(), Ok(Answer::Done));
    host.disconnect();
    stop(server);
    let server = serve(volume());
    let mut host = open(&address(&server), "vol");
    let expected = [(10, true), (1, false), (1, true), (1, false), (87, true), (3, false), (size / BLOCK - 103, true)];
    assert_eq!(map(&mut host, 0..size, 0), expected.map(|(blocks, is_hole)| (blocks * BLOCK, is_hole)));
    host.disconnect();
    stop(server);
}

#[test]
fn a_drive_without_allocation_status_reports_everything_as_allocated() {
    let server = serve(plan());
    let mut host = open(&address(&server), "memory");
    assert_eq!(map(&mut host, 0..SIZE, 0), [(SIZE, false)]);
    host.disconnect();
    stop(server);
}
