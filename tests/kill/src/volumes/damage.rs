//! Flips bytes of a member's files while no program uses them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zonda_zoned::Prng;

/// The files of an image, so that metadata are damaged as often as data.
const FILES: [&str; 5] = ["data.zonda", "tags.zonda", "journal.zonda", "state.zonda", "image.zonda"];
const PAGE_BYTES: u64 = 4096;
/// Pages that are tried to find one that is not all zeros.
const TRIES: u32 = 200;
/// Bytes of a zone of the members of a run.
pub(super) const ZONE_BYTES: u64 = 4 << 20;
/// Bytes of the tags of one block of data.
const TAG_BYTES: u64 = 128;

/// Flips some bytes of the image in `member`; returns the places.
///
/// # Errors
/// When a file cannot be changed.
pub(super) fn flip(member: &Path, prng: &mut Prng) -> io::Result<Vec<String>> {
    let mut places = Vec::new();
    for _ in 0..1 + prng.below(6) {
        let name = match prng.below(10) {
            0..6 => FILES[0],
            6..8 => FILES[1],
            _ => FILES[2 + prng.below(3) as usize],
        };
        let file = OpenOptions::new().read(true).write(true).open(member.join(name))?;
        let zone_bytes = match name {
            "data.zonda" => ZONE_BYTES,
            "tags.zonda" => ZONE_BYTES / PAGE_BYTES * TAG_BYTES,
            _ => u64::MAX,
        };
        let Some(page) = page_with_contents(&file, zone_bytes, prng)? else { continue };
        let mut bytes = vec![0; PAGE_BYTES as usize];
        let read = file.read_at(&mut bytes, page)?;
        bytes.truncate(read);
        // One byte, a sector, or all of a page.
        let length = (*prng.pick(&[1, 1, 512, PAGE_BYTES]).expect("not empty")).min(bytes.len() as u64);
        let first = prng.below(bytes.len() as u64 - length + 1);
        for byte in &mut bytes[first as usize..(first + length) as usize] {
            *byte ^= 1 << prng.below(8);
        }
        file.write_all_at(&bytes, page)?;
        places.push(format!("{name} at {} ({length})", page + first));
    }
    Ok(places)
}

/// A page that is not all zeros: one in three times one of the first of a zone, where headers and
/// superblocks are.
fn page_with_contents(file: &File, zone_bytes: u64, prng: &mut Prng) -> io::Result<Option<u64>> {
    let pages = file.metadata()?.len() / PAGE_BYTES;
    let mut bytes = vec![0; PAGE_BYTES as usize];
    for _ in 0..TRIES {
        let mut page = prng.below(pages.max(1)) * PAGE_BYTES;
        if zone_bytes < u64::MAX && prng.chance(1, 3) {
            page = page / zone_bytes * zone_bytes + prng.below(3) * PAGE_BYTES;
        }
        if file.read_at(&mut bytes, page)? > 0 && bytes.iter().any(|&byte| byte != 0) {
            return Ok(Some(page));
        }
    }
    Ok(None)
}
