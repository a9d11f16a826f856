//! An image on a full file system.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use zonda_devices::create_image;
use zonda_exports::snapshot::SpaceSnapshot;
use zonda_exports::{Running, Source};
use zonda_nbd::NbdError;
use zonda_nbd::testing::Answer;

use super::client::open;
use super::{BLOCK, address, drive, plan_of, serve, stop};

/// How long to wait for an expected event.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A file system of 12 MiB; unmounted when it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().expect("a directory");
        mount("zonda", directory.path(), "tmpfs", MountFlags::empty(), c"size=12m").ok()?;
        Some(SmallDisk(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A mount that is left disappears at the next reboot.
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn fill(path: &Path) {
    let mut ballast = File::create(path).expect("the file is created");
    while ballast.write_all(&[1; BLOCK as usize]).is_ok() {}
}

fn space_of(server: &Running) -> SpaceSnapshot {
    let snapshot = server.handle().snapshot(TIMEOUT).expect("it runs");
    snapshot.subsystems[0].namespaces[0].space.expect("an image is on a file system")
}

#[test]
fn a_full_file_system_is_reported_to_clients_until_space_is_free() {
    let Some(disk) = SmallDisk::new() else {
        println!("skipped: cannot mount a small file system here");
        return;
    };
    let (path, ballast) = (disk.0.path().join("image"), disk.0.path().join("ballast"));
    create_image(&path, &drive()).expect("the image is created");
    let server = serve(plan_of(Source::Image(path)));
    let mut host = open(&address(&server), "image");
    let data = vec![7; BLOCK as usize];
    assert_eq!(host.write(0, &data), Ok(Answer::Done));
    assert_eq!(space_of(&server), SpaceSnapshot::default());

    fill(&ballast);
    for block in 100..105 {
        assert_eq!(host.write(block * BLOCK, &data), Err(NbdError::NoSpace));
    }
    let space = space_of(&server);
    assert!(space.is_full && space.failures >= 5, "{space:?}");
    assert!(host.read(0, BLOCK) == data, "written data are readable");

    std::fs::remove_file(&ballast).expect("it exists");
    let until = Instant::now() + TIMEOUT;
    while space_of(&server).is_full {
        assert!(Instant::now() < until, "the free space is not detected");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(host.write(100 * BLOCK, &data), Ok(Answer::Done));
    host.disconnect();
    stop(server);
}
