//! Files that were cut, and bytes that were altered.

use zonda_zoned::{Blocks, Geometry, Operation, Prng, Status, ZoneAction, ZrwaGeometry};

use crate::format::layout::Layout;
use crate::format::superblock::COPY_BYTES;
use crate::testing::{Disk, Drive, spec};
use crate::{Finding, ImageError, ImageFile, check, open};

/// What blocks hold, as a list of their marks.
type Contents = Vec<Result<u8, Status>>;

fn small() -> Geometry {
    Geometry {
        zone_count: 4,
        conventional_zone_count: 1,
        zone_size_blocks: Blocks(8),
        zone_capacity_blocks: Blocks(8),
        metadata_bytes: 0,
        zrwa: Some(ZrwaGeometry {
            size_blocks: Blocks(2),
            flush_granularity_blocks: Blocks(1),
            resources: 1,
            explicit_flush: true,
        }),
        ..Geometry::tiny()
    }
}

/// A drive with something of everything, flushed, and management after the flush; the files as they are after a kill, or
/// a shutdown in order.
fn used(clean: bool) -> (Disk, Contents) {
    let mut drive = Drive::create(&spec(small()));
    drive.write(0, 4, 1);
    drive.write(8, 8, 20);
    drive.manage(ZoneAction::Reset, 8);
    drive.write(8, 3, 40);
    drive.manage(ZoneAction::SetDescriptorExtension { extension: vec![3; 64].into(), zrwa: true }, 16);
    drive.write(16, 2, 60);
    drive.manage(ZoneAction::FlushZrwa, 16);
    drive.run(Operation::Flush);
    drive.write(24, 2, 80);
    drive.manage(ZoneAction::Finish, 24);
    let contents = drive.marks(0, 32);
    let disk = if clean { drive.close() } else { drive.kill(&mut Prng::new(1)) };
    (disk, contents)
}

/// Opens a copy of the files; what it shows, or the words with which it is refused.
fn shown(disk: &Disk) -> Result<Contents, String> {
    match open(&mut disk.clone()) {
        Err(error) => Err(error.to_string()),
        Ok(_) => Ok(Drive::open(disk.clone()).marks(0, 32)),
    }
}

/// A bit of a byte flips; the drive shows what it held or is refused with a remedy. Returns how often it is refused.
fn flip(disk: &Disk, file: ImageFile, bytes: impl Iterator<Item = usize>, contents: &Contents) -> usize {
    let mut refused = 0;
    for byte in bytes {
        let mut damaged = disk.clone();
        damaged.bytes(file)[byte] ^= 1 << (byte % 8);
        match shown(&damaged) {
            Ok(found) => assert_eq!(found, *contents, "byte {byte} of {file}"),
            Err(words) => {
                refused += 1;
                assert!(words.contains(file.name()) && words.contains(": "), "byte {byte}: {words}");
            }
        }
    }
    refused
}

#[test]
fn any_byte_of_superblock_or_checkpoint_may_be_altered_and_nothing_is_lost() {
    for clean in [true, false] {
        let (disk, contents) = used(clean);
        let used_of_copy = 200;
        let superblock = (0..used_of_copy).chain(COPY_BYTES..COPY_BYTES + used_of_copy);
        assert_eq!(flip(&disk, ImageFile::Superblock, superblock, &contents), 0);
        let padding = (used_of_copy..2 * COPY_BYTES).step_by(97);
        assert_eq!(flip(&disk, ImageFile::Superblock, padding, &contents), 0);
        let state = disk.clone().bytes(ImageFile::State).len();
        assert_eq!(flip(&disk, ImageFile::State, 0..state, &contents), 0);
    }
}

#[test]
fn an_altered_byte_of_the_journal_is_of_no_consequence_or_is_named() {
    let (disk, contents) = used(true);
    let journal = spec(small()).journal_bytes as usize;
    assert_eq!(flip(&disk, ImageFile::Journal, 0..journal, &contents), 0, "after a clean stop nobody reads it");
    let (disk, contents) = used(false);
    let refused = flip(&disk, ImageFile::Journal, 0..journal, &contents);
    assert!((500..1500).contains(&refused), "the synced records, of about 70 bytes each: {refused}");
}

#[test]
fn a_file_cut_anywhere_is_mended_or_refused_by_its_length() {
    for clean in [true, false] {
        let (disk, contents) = used(clean);
        for file in ImageFile::ALL {
            let length = disk.clone().bytes(file).len();
            let step = if file == ImageFile::Superblock { 31 } else { 1 };
            for cut in (0..length).step_by(step) {
                let mut damaged = disk.clone();
                damaged.bytes(file).truncate(cut);
                match shown(&damaged) {
                    Ok(found) => {
                        assert_eq!(file, ImageFile::Superblock);
                        assert_eq!(found, contents);
                    }
                    Err(words) => assert!(words.contains(file.name()), "{file} cut at {cut}: {words}"),
                }
            }
        }
    }
}

#[test]
fn an_altered_byte_of_a_block_or_its_tag_is_an_unreadable_block_and_found_by_a_check() {
    for clean in [true, false] {
        let (disk, contents) = used(clean);
        let layout = Layout::new(&small(), spec(small()).journal_bytes);
        for file in [ImageFile::Data, ImageFile::Tags] {
            let unit = if file == ImageFile::Data { layout.block_bytes } else { layout.tag_bytes } as usize;
            for byte in 0..disk.clone().bytes(file).len() {
                // Of a data block every thirteenth byte will do.
                if file == ImageFile::Data && byte % 13 != 0 {
                    continue;
                }
                let mut damaged = disk.clone();
                damaged.bytes(file)[byte] ^= 0x40;
                let block = byte / unit;
                let report = check(&mut damaged, &mut |_| {}).unwrap();
                let findings: Vec<u64> = report
                    .findings
                    .iter()
                    .map(|finding| match finding {
                        Finding::Block { lba, .. } => lba.0,
                        Finding::Copy { .. } => panic!("{finding}"),
                    })
                    .collect();
                let found = shown(&damaged).unwrap();
                let unreadable: Vec<u64> =
                    (0..32).filter(|&lba| found[lba as usize] == Err(Status::UnrecoveredReadError)).collect();
                assert_eq!(findings, unreadable, "clean {clean}: byte {byte} of {file}");
                assert!(unreadable.is_empty() || unreadable == [block as u64]);
                for (lba, (found, expected)) in found.iter().zip(&contents).enumerate() {
                    // Behind what was flushed, in a ZRWA, a crash may have torn the block: it is accepted.
                    let accepted = !clean && lba == 17;
                    assert!(
                        found == expected || lba == block && (found.is_err() || accepted),
                        "block {lba} is {found:?}"
                    );
                }
                let written = contents[block] != Ok(0) && (clean || block != 17);
                // The tag of a block that may be unwritten counts if it is not zero.
                if written || file == ImageFile::Data {
                    assert_eq!(unreadable.is_empty(), !written, "clean {clean}: byte {byte} of {file}");
                }
            }
        }
    }
}

#[test]
fn a_check_of_a_good_image_finds_nothing_and_tells_how_far_it_is() {
    for clean in [true, false] {
        let (mut disk, _) = used(clean);
        let before: Vec<Vec<u8>> = ImageFile::ALL.map(|file| disk.bytes(file).clone()).into();
        let mut steps = Vec::new();
        let report = check(&mut disk, &mut |progress| steps.push(progress)).unwrap();
        let after: Vec<Vec<u8>> = ImageFile::ALL.map(|file| disk.bytes(file).clone()).into();
        assert!(before == after, "a check changes nothing");
        assert_eq!((report.clean, report.findings.len(), report.blocks), (clean, 0, 8 + 3 + 2 + 2));
        assert_eq!(steps.iter().map(|step| step.zones).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(steps.last().unwrap().blocks, report.blocks);
        disk.bytes(ImageFile::State)[100] ^= 1;
        let report = check(&mut disk, &mut |_| {}).unwrap();
        assert_eq!(report.findings, [Finding::Copy { file: ImageFile::State }]);
        assert!(open(&mut disk).unwrap().1.checkpoint_mended);
        let report = check(&mut disk, &mut |_| {}).unwrap();
        assert_eq!(report.findings, []);
    }
}

#[test]
fn an_image_of_another_magic_or_version_is_refused_by_name() {
    let (mut disk, _) = used(true);
    for copy in 0..2 {
        disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES + 16] = 9;
    }
    let words = open(&mut disk).unwrap_err().to_string();
    assert!(words.contains("format version 9") && words.contains("version 1"), "{words}");
    for copy in 0..2 {
        disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES] = b'Z';
    }
    assert_eq!(open(&mut disk).unwrap_err(), ImageError::NotAnImage);
    assert_eq!(open(&mut Disk::new()).unwrap_err(), ImageError::NotAnImage);
}

#[test]
fn files_of_two_images_are_not_mixed() {
    let (mut disk, _) = used(true);
    let mut other = Disk::new();
    crate::create(&crate::ImageSpec { uuid: [9; 16], ..spec(small()) }, &mut other).unwrap();
    *disk.bytes(ImageFile::State) = other.bytes(ImageFile::State).clone();
    let error = open(&mut disk).unwrap_err();
    assert_eq!(error, ImageError::OtherImage { file: ImageFile::State });
    assert!(error.to_string().contains("state.zonda belongs to another image"));
}
