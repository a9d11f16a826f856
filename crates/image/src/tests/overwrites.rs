//! Intents that a recovery needs for blocks that were being overwritten.

use zonda_zoned::{Blocks, Geometry, Operation, Status};

use crate::testing::{Drive, spec};
use crate::{FileOperation, ImageFile};

/// One conventional zone of two regions, whose blocks are overwritten in place without being
/// journaled.
fn two_regions() -> Geometry {
    Geometry {
        metadata_bytes: 0,
        conventional_zone_count: 1,
        zone_size_blocks: Blocks(512),
        zone_capacity_blocks: Blocks(512),
        ..Geometry::tiny()
    }
}

#[test]
fn a_flush_that_ends_while_an_intent_is_being_recorded_does_not_end_the_intent() {
    let mut drive = Drive::create(&spec(two_regions()));
    assert_eq!(drive.write(300, 1, 9), Status::Success);
    assert_eq!(drive.run(Operation::Flush).status, Status::Success);
    // Record another intent, so that the flush has intents to end.
    assert_eq!(drive.write(0, 1, 1), Status::Success);
    drive.submit(Operation::Flush);
    let syncs = drive.out.len();
    drive.submit(drive.write_of(300, 1, 10));
    (0..syncs).for_each(|_| drive.step(0));
    let intended = |operation: &FileOperation| {
        operation.file() == ImageFile::Journal || matches!(operation, FileOperation::Read { .. })
    };
    while let Some(next) = drive.out.iter().position(|(command, _)| intended(&command.operation)) {
        drive.step(next);
    }
    // The data are on file, their tags are not, and the program is killed.
    let data = drive.out.iter().position(|(command, _)| command.operation.file() == ImageFile::Data);
    drive.step(data.expect("the intent is recorded, so the write continues"));
    assert_eq!(Drive::open(drive.disk).marks(300, 1), [Ok(10)]);
}
