//! Damage to files, and corrected checksums, so that the damage passes them.

use zonda_image::{ImageFile, MemoryFiles};
use zonda_nvme::tcp::crc32c;
use zonda_zoned::Geometry;

use crate::feed::Feed;

/// Changes of one input.
const CHANGES_MAX: usize = 16;
const SUPERBLOCK_COPY_BYTES: usize = 32 << 10;
const SUPERBLOCK_HEADER_BYTES: usize = 144;
const SLOT_HEADER_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 40;
const MARKS_BYTES: usize = 8192;
const RECORD_HEADER_BYTES: usize = 72;

pub(super) fn arbitrary_files(feed: &mut Feed<'_>) -> MemoryFiles {
    let mut files = MemoryFiles::new();
    for file in ImageFile::ALL {
        let bytes = feed.stretch(1 << 12);
        // An empty file may be missing.
        if !bytes.is_empty() {
            *files.bytes_mut(file) = bytes.to_vec();
        }
    }
    files
}

/// The number of changes, then for each: file, offset (3 bytes), kind, value.
pub(super) fn damage(files: &mut MemoryFiles, feed: &mut Feed<'_>) {
    for _ in 0..feed.below(CHANGES_MAX) {
        let file = feed.pick(&ImageFile::ALL);
        let [a, b, c] = feed.array();
        let (kind, value) = (feed.u8(), feed.u8());
        let bytes = files.bytes_mut(file);
        let length = bytes.len();
        if length == 0 {
            continue;
        }
        let at = u32::from_le_bytes([a, b, c, 0]) as usize % length;
        match kind % 8 {
            0 => bytes[at] ^= value,
            1 => bytes[at] = value,
            2 => bytes[at..(at + 8).min(length)].fill(value),
            3 => bytes[at..(at + 512).min(length)].fill(0),
            4 => bytes.truncate(at),
            5 => bytes.resize(length + usize::from(value), 0),
            6 => {
                // As if one block had been written to the address of another.
                let from = usize::from(value) * 512 % length;
                let end = (from + 512).min(length).min(from + (length - at));
                bytes.copy_within(from..end, at);
            }
            _ => {
                let end = (at + 8).min(length);
                let number = feed.u64().to_le_bytes();
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
        }
    }
}

/// Corrects every checksum, as far as the files still have their lengths.
pub(super) fn fit_checksums(files: &mut MemoryFiles, geometry: &Geometry) {
    for copy in files.bytes_mut(ImageFile::Superblock).chunks_exact_mut(SUPERBLOCK_COPY_BYTES) {
        let profile_bytes = u32_at(copy, 128) as usize;
        if let Some(covered) = copy.get(24..(SUPERBLOCK_HEADER_BYTES + profile_bytes).max(24)) {
            set_u32(copy, 20, crc32c(covered));
        }
    }
    let state = files.bytes_mut(ImageFile::State);
    let checkpoint_bytes = checkpoint_bytes(geometry);
    let half = state.len() / 2;
    if half >= checkpoint_bytes {
        for slot in state.chunks_exact_mut(half) {
            set_u32(slot, 4, crc32c(&slot[SLOT_HEADER_BYTES..checkpoint_bytes]));
            set_u32(slot, 0, crc32c(&slot[4..SLOT_HEADER_BYTES]));
        }
    }
    let journal = files.bytes_mut(ImageFile::Journal);
    if journal.len() < MARKS_BYTES {
        return;
    }
    let (marks, mut rest) = journal.split_at_mut(MARKS_BYTES);
    for mark in marks.chunks_exact_mut(MARKS_BYTES / 2) {
        set_u32(mark, 0, crc32c(&mark[4..40]));
    }
    while rest.len() >= RECORD_HEADER_BYTES {
        let payload_bytes = u32_at(rest, 12) as usize;
        let length = (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(8);
        if length > rest.len() || u32_at(rest, 8) == 0 {
            return;
        }
        let (record, behind) = rest.split_at_mut(length);
        set_u32(record, 4, crc32c(&record[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + payload_bytes]));
        set_u32(record, 8, length as u32);
        set_u32(record, 0, crc32c(&record[4..RECORD_HEADER_BYTES]));
        rest = behind;
    }
}

/// Interesting offsets in the files.
pub(super) fn places(geometry: &Geometry) -> Vec<(ImageFile, u32)> {
    let mut places = vec![
        (ImageFile::Superblock, 16),
        (ImageFile::Superblock, 40),
        (ImageFile::Superblock, 100),
        (ImageFile::State, 16),
        (ImageFile::State, 40),
        (ImageFile::State, 48),
    ];
    for field in [0, 8, 9, 16, 24, 32] {
        places.push((ImageFile::State, (SLOT_HEADER_BYTES + ENTRY_BYTES + field) as u32));
    }
    places.push((ImageFile::State, (checkpoint_bytes(geometry) - 1) as u32));
    for field in [32, 36, 40, 48, 56, 64] {
        places.push((ImageFile::Journal, (MARKS_BYTES + field) as u32));
    }
    places.extend([(ImageFile::Journal, 16), (ImageFile::Data, 700), (ImageFile::Tags, 12)]);
    places
}

fn checkpoint_bytes(geometry: &Geometry) -> usize {
    SLOT_HEADER_BYTES + geometry.zone_count as usize * (ENTRY_BYTES + geometry.descriptor_extension_bytes as usize)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn set_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
