//! Drives of pools whose log is damaged: they are still those of a pool.

use std::os::unix::fs::FileExt;

use super::*;

const BLOCK: u64 = 4096;
const ZONE: u64 = 1 << 20;

/// Replaces a byte of each of these blocks of a zone.
fn damage(bench: &Bench, zone: u64, blocks: impl IntoIterator<Item = u64>, byte: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(bench.at("a/data.zonda")).expect("it exists");
    for block in blocks {
        let (at, mut old) = (zone * ZONE + block * BLOCK + byte, [0]);
        // Behind the last written block the file may end.
        let _ = file.read_at(&mut old, at).expect("it can be read");
        file.write_all_at(&[old[0] ^ 1], at).expect("there is space");
    }
}

/// A pool with data; returns its UUID.
fn pool(bench: &Bench) -> String {
    let pool = bench.with_namespaces();
    let uuid = pool.report().pool;
    let mut namespace = pool.namespace("db").expect("it exists");
    bench.write(&mut namespace, 0, 4, 1);
    bench.close(namespace);
    uuid
}

#[test]
fn a_drive_whose_log_begins_with_damaged_blocks_is_that_of_its_pool() {
    let bench = Bench::new();
    let uuid = pool(&bench);
    (0..6).for_each(|zone| damage(&bench, zone, [0], 200));
    let error = bench.refusal();
    assert!(error.message.contains("the pool's log is damaged"), "{error}");
    assert_eq!(user_of_image(&bench.at("a")), Some(DriveUser::DamagedPool(Some(uuid.clone()))));
    let new = NewPool::on(Location::Image(bench.at("a")));
    let error = PoolDrive::create(&bench.at("other"), &new, &bench.ring).err().expect("it may hold data");
    assert!(error.message.ends_with(&format!("it is the drive of the pool {uuid}, and its log is damaged")), "{error}");
}

#[test]
fn a_drive_without_any_readable_block_of_the_log_is_known_by_the_headers_of_other_zones() {
    let bench = Bench::new();
    let uuid = pool(&bench);
    // Neither magic nor checksum is left.
    (0..6).for_each(|zone| damage(&bench, zone, 0..ZONE / BLOCK, 0));
    assert_eq!(user_of_image(&bench.at("a")), Some(DriveUser::DamagedPool(Some(uuid))));
}

#[test]
fn a_drive_with_other_data_is_that_of_no_pool() {
    let bench = Bench::new();
    let location = Location::Image(bench.at("a"));
    let mut drive = zonda_devices::Connection::open(&location, &Default::default()).expect("it exists");
    for zone in 0..10 {
        let ended = drive.execute(write(zone * (ZONE / BLOCK), 7)).expect("the loop works");
        assert_eq!(ended.status, Status::Success);
    }
    assert_eq!(drive.user().expect("it can be read"), None);
    drive.close().expect("it can be closed");
    assert_eq!(user_of_image(&bench.at("a")), None);
}
