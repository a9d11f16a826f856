//! Commands that do not wait for a checkpoint, and depend on it.

use zonda_zoned::{Geometry, Operation, Prng, Status, ZoneIndex};

use crate::ImageFile;
use crate::testing::{Drive, Fault, spec};

#[test]
fn a_flush_whose_record_does_not_fit_behind_a_failed_checkpoint_begins_another_checkpoint() {
    for metadata_bytes in [0, 8] {
        let mut drive = Drive::create(&spec(Geometry { metadata_bytes, ..Geometry::tiny() }));
        drive.write(0, 1, 10);
        drive.disk.fault = Some(Fault::Write(ImageFile::State, 0));
        drive.image.checkpoint();
        drive.collect();
        drive.complete_all();
        drive.write(1, 2, 11);
        assert_eq!(drive.run(Operation::Flush).status, Status::Success);
        // Neither journal nor checkpoint would record that the block was flushed: it would count as
        // never written.
        drive.disk.bytes(ImageFile::Data)[2 * 512] ^= 1;
        let mut drive = Drive::open(drive.kill(&mut Prng::new(1)));
        let pointer = drive.image.zones().zone(ZoneIndex(0)).write_pointer_blocks.0;
        assert_eq!((pointer, drive.report.found_blocks), (3, 0));
        assert_eq!(drive.marks(0, 3), [Ok(10), Ok(11), Err(Status::UnrecoveredReadError)]);
    }
}

#[test]
fn a_checkpoint_after_a_failed_one_does_not_overwrite_the_only_synced_copy() {
    for failing_sync in [0, 1] {
        for seed in 0..50 {
            let mut drive = Drive::create(&spec(Geometry::tiny()));
            drive.disk.prng = Some(Prng::new(seed));
            drive.write(0, 2, 10);
            drive.disk.fault = Some(Fault::Sync(ImageFile::State, failing_sync));
            drive.image.checkpoint();
            drive.collect();
            drive.complete_all();
            drive.write(2, 2, 12);
            drive.disk.fault = Some(Fault::Write(ImageFile::State, 0));
            drive.run(Operation::Flush);
            let mut drive = Drive::open(drive.lose_power(&mut Prng::new(seed)));
            assert_eq!(drive.marks(0, 2), [Ok(10), Ok(11)], "seed {seed}, sync {failing_sync} failed");
        }
    }
}
