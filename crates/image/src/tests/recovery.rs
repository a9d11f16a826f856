//! The reads, memory and writes of an opening are proportional to the contents of the drive.

use zonda_zoned::{Blocks, Geometry, Lba, LbaRange, Operation, Prng};

use crate::load::load;
use crate::testing::{Drive, spec};
use crate::{ImageFile, ImageSpec};

#[test]
fn deallocations_are_stored_as_ranges_until_they_are_written() {
    let geometry = Geometry {
        metadata_bytes: 8,
        conventional_zone_count: 1,
        zone_size_blocks: Blocks(1 << 17),
        zone_capacity_blocks: Blocks(1 << 17),
        ..Geometry::tiny()
    };
    let mut drive = Drive::create(&ImageSpec { journal_bytes: 1 << 20, ..spec(geometry) });
    // The same blocks again and again: eight commands of 64 ranges are 33 million blocks in the
    // journal.
    for _ in 0..8 {
        let ranges = vec![LbaRange { start: Lba(0), blocks: Blocks(1 << 16) }; 64];
        assert!(drive.run(Operation::Deallocate { ranges: ranges.into() }).status.is_success());
    }
    let mut disk = drive.kill(&mut Prng::new(1));
    let loaded = load(&mut disk).unwrap();
    assert!(loaded.records > 25, "{} records", loaded.records);
    assert_eq!(loaded.logged.blocks(), 1 << 16);
    assert_eq!(Drive::open(disk).report.rewritten_blocks, 1 << 16);
}

#[test]
fn data_of_zeros_and_of_zones_that_were_never_written_are_not_read() {
    let geometry = Geometry {
        metadata_bytes: 0,
        conventional_zone_count: 0,
        zone_count: 64,
        zone_size_blocks: Blocks(4096),
        zone_capacity_blocks: Blocks(4096),
        max_transfer_blocks: Blocks(4096),
        max_active_zones: None,
        max_open_zones: None,
        ..Geometry::tiny()
    };
    let mut drive = Drive::create(&spec(geometry.clone()));
    for zone in 0..8 {
        let start = Lba(zone * geometry.zone_size_blocks.0);
        assert!(drive.run(Operation::WriteZeroes { start, blocks: Blocks(4000) }).status.is_success());
    }
    assert!(drive.write(8 * geometry.zone_size_blocks.0, 3, 1).is_success());
    let mut disk = drive.kill(&mut Prng::new(1));
    disk.bytes_read.clear();
    let drive = Drive::open(disk);
    assert_eq!(drive.report.found_blocks, 8 * 4000 + 3);
    assert_eq!(drive.disk.bytes_read[&ImageFile::Data], 3 * 512);
    // Tags of the written zones, and at most a chunk of the ninth.
    let tags = drive.disk.bytes_read[&ImageFile::Tags];
    assert!(tags <= 9 * 4096 * 8, "{tags} bytes");
}
