//! After a clean shutdown the next opening scans nothing, because everything is synced.

use zonda_zoned::{Geometry, Status};

use crate::FileOperation;
use crate::testing::{Drive, spec};

#[test]
fn writes_during_the_sync_of_a_checkpoint_are_synced_before_the_drive_is_closed() {
    let mut drive = Drive::create(&spec(Geometry::tiny()));
    assert_eq!(drive.write(0, 1, 1), Status::Success);
    drive.image.checkpoint();
    drive.collect();
    let syncs = drive.out.len();
    assert!(drive.out.iter().all(|(command, _)| matches!(command.operation, FileOperation::Sync { .. })) && syncs > 0);
    drive.submit(drive.write_of(1, 1, 2));
    while drive.out.len() > syncs {
        drive.step(syncs);
    }
    assert_eq!(drive.poll()[0].status, Status::Success);
    let mut disk = drive.close();
    disk.forget_unsynced();
    assert_eq!(Drive::open(disk).marks(0, 2), [Ok(1), Ok(2)]);
}
