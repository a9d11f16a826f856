//! The superblock: the drive's geometry, identity and profile. Written once, in two copies, so that
//! one damaged byte does no harm.
//!
//! ```text
//! a copy of 32 KiB:
//! byte 0..16    magic, "zonda image" and zeros
//!      16..20   version, 2; 1 is supported, and has no reservations
//!      20..24   CRC-32C over everything from byte 24 to the end of the profile
//!      24..40   UUID
//!      40..48   bytes of the journal
//!      48..56   blocks of a zone (size)
//!      56..64   writable blocks of a zone (capacity)
//!      64..72   blocks of a transfer, at most
//!      72..80   blocks of an append, at most
//!      80..88   blocks of a ZRWA; 0: not supported
//!      88..96   blocks of the ZRWA flush granularity
//!      96..100  bytes of a block
//!      100..104 zones
//!      104..108 conventional zones
//!      108..112 active zones, at most; 0: no limit
//!      112..116 open zones, at most; 0: no limit
//!      116..120 ZRWA resources
//!      120..124 bytes of a descriptor extension
//!      124..126 bytes of metadata
//!      126      bit 0: ZRWA with explicit flush; bit 1: reads across zones
//!      127      0
//!      128..132 bytes of the profile
//!      132..144 0
//!      144..    profile, UTF-8
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::{Blocks, Geometry, ZrwaGeometry};

use crate::{FileError, Files, ImageError, ImageFile, ImageSpec};

use super::{VERSION, VERSION_OLDEST, crc};

/// Bytes of one copy; the second follows the first.
pub(crate) const COPY_BYTES: usize = 32 << 10;
/// Maximum size of a profile in bytes.
pub(crate) const PROFILE_BYTES_MAX: usize = COPY_BYTES - HEADER_BYTES;

const HEADER_BYTES: usize = size_of::<Header>();
const MAGIC: [u8; 16] = *b"zonda image\0\0\0\0\0";
const SUM_FROM: usize = 24;
const EXPLICIT_FLUSH: u8 = 1;
const READ_ACROSS_ZONES: u8 = 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    magic: [u8; 16],
    version: U32,
    sum: U32,
    uuid: [u8; 16],
    journal_bytes: U64,
    zone_size_blocks: U64,
    zone_capacity_blocks: U64,
    max_transfer_blocks: U64,
    max_append_blocks: U64,
    zrwa_size_blocks: U64,
    zrwa_granularity_blocks: U64,
    block_size_bytes: U32,
    zone_count: U32,
    conventional_zone_count: U32,
    max_active_zones: U32,
    max_open_zones: U32,
    zrwa_resources: U32,
    descriptor_extension_bytes: U32,
    metadata_bytes: U16,
    flags: u8,
    reserved: u8,
    profile_bytes: U32,
    reserved_end: [u8; 12],
}

const _: () = assert!(HEADER_BYTES == 144);

/// Encodes one copy.
pub(crate) fn encode(spec: &ImageSpec) -> Vec<u8> {
    let geometry = &spec.geometry;
    let zrwa = geometry.zrwa;
    let explicit_flush = zrwa.is_some_and(|zrwa| zrwa.explicit_flush);
    let mut header = Header {
        magic: MAGIC,
        version: VERSION.into(),
        sum: 0.into(),
        uuid: spec.uuid,
        journal_bytes: spec.journal_bytes.into(),
        zone_size_blocks: geometry.zone_size_blocks.0.into(),
        zone_capacity_blocks: geometry.zone_capacity_blocks.0.into(),
        max_transfer_blocks: geometry.max_transfer_blocks.0.into(),
        max_append_blocks: geometry.max_append_blocks.0.into(),
        zrwa_size_blocks: zrwa.map_or(0, |zrwa| zrwa.size_blocks.0).into(),
        zrwa_granularity_blocks: zrwa.map_or(0, |zrwa| zrwa.flush_granularity_blocks.0).into(),
        block_size_bytes: geometry.block_size_bytes.into(),
        zone_count: geometry.zone_count.into(),
        conventional_zone_count: geometry.conventional_zone_count.into(),
        max_active_zones: geometry.max_active_zones.unwrap_or(0).into(),
        max_open_zones: geometry.max_open_zones.unwrap_or(0).into(),
        zrwa_resources: zrwa.map_or(0, |zrwa| zrwa.resources).into(),
        descriptor_extension_bytes: geometry.descriptor_extension_bytes.into(),
        metadata_bytes: geometry.metadata_bytes.into(),
        flags: u8::from(explicit_flush) * EXPLICIT_FLUSH + u8::from(geometry.read_across_zones) * READ_ACROSS_ZONES,
        reserved: 0,
        profile_bytes: (spec.profile.len() as u32).into(),
        reserved_end: [0; 12],
    };
    let mut copy = vec![0; COPY_BYTES];
    let end = HEADER_BYTES + spec.profile.len();
    copy[HEADER_BYTES..end].copy_from_slice(spec.profile.as_bytes());
    copy[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    header.sum = crc(&copy[SUM_FROM..end]).into();
    copy[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    copy
}

/// The superblock, and which copies are good.
pub(crate) struct Superblock {
    pub(crate) spec: ImageSpec,
    pub(crate) copies_good: [bool; 2],
    /// Copies that are good and of the version that this program writes.
    pub(crate) copies_current: [bool; 2],
}

/// Reads the superblock. One good copy is enough.
pub(crate) fn read(files: &mut dyn Files) -> Result<Superblock, ImageError> {
    let mut bytes = vec![0; 2 * COPY_BYTES];
    let found = match files.read_at(ImageFile::Superblock, 0, &mut bytes) {
        Err(FileError::Missing) => return Err(ImageError::NotAnImage),
        Err(error) => return Err(ImageError::File { file: ImageFile::Superblock, operation: "read", error }),
        Ok(found) => found,
    };
    let copies = [decode(&bytes[..COPY_BYTES]), decode(&bytes[COPY_BYTES..])];
    let copies_good = copies.each_ref().map(Result::is_ok);
    let copies_current = copies.each_ref().map(|copy| matches!(copy, Ok((_, VERSION))));
    let [first, second] = copies;
    match (first, second) {
        (Ok((spec, _)), _) | (_, Ok((spec, _))) => Ok(Superblock { spec, copies_good, copies_current }),
        (Err(ImageError::OtherVersion { found }), _) | (_, Err(ImageError::OtherVersion { found })) => {
            Err(ImageError::OtherVersion { found })
        }
        (Err(damage @ ImageError::Damaged { .. }), _) | (_, Err(damage @ ImageError::Damaged { .. })) => {
            let expected = bytes.len() as u64;
            let found = found as u64;
            Err(if found < expected {
                ImageError::Length { file: ImageFile::Superblock, found, expected }
            } else {
                damage
            })
        }
        (Err(error), _) => Err(error),
    }
}

/// Decodes a copy, and its version.
fn decode(copy: &[u8]) -> Result<(ImageSpec, u32), ImageError> {
    let damaged = || ImageError::Damaged {
        file: ImageFile::Superblock,
        what: "both copies of the superblock are damaged".into(),
    };
    let (header, rest) = Header::read_from_prefix(copy).map_err(|_| damaged())?;
    if header.magic != MAGIC {
        return Err(ImageError::NotAnImage);
    }
    let version = header.version.get();
    if !(VERSION_OLDEST..=VERSION).contains(&version) {
        return Err(ImageError::OtherVersion { found: version });
    }
    let profile = rest.get(..header.profile_bytes.get() as usize).ok_or_else(damaged)?;
    let end = HEADER_BYTES + profile.len();
    if crc(&copy[SUM_FROM..end]) != header.sum.get() {
        return Err(damaged());
    }
    let limit = |value: U32| (value.get() > 0).then(|| value.get());
    let geometry = Geometry {
        block_size_bytes: header.block_size_bytes.get(),
        metadata_bytes: header.metadata_bytes.get(),
        zone_size_blocks: Blocks(header.zone_size_blocks.get()),
        zone_capacity_blocks: Blocks(header.zone_capacity_blocks.get()),
        zone_count: header.zone_count.get(),
        conventional_zone_count: header.conventional_zone_count.get(),
        max_active_zones: limit(header.max_active_zones),
        max_open_zones: limit(header.max_open_zones),
        max_transfer_blocks: Blocks(header.max_transfer_blocks.get()),
        max_append_blocks: Blocks(header.max_append_blocks.get()),
        zrwa: (header.zrwa_size_blocks.get() > 0).then(|| ZrwaGeometry {
            size_blocks: Blocks(header.zrwa_size_blocks.get()),
            flush_granularity_blocks: Blocks(header.zrwa_granularity_blocks.get()),
            resources: header.zrwa_resources.get(),
            explicit_flush: header.flags & EXPLICIT_FLUSH != 0,
        }),
        read_across_zones: header.flags & READ_ACROSS_ZONES != 0,
        descriptor_extension_bytes: header.descriptor_extension_bytes.get(),
    };
    let profile = String::from_utf8(profile.to_vec()).map_err(|_| damaged())?;
    let spec = ImageSpec { geometry, profile, uuid: header.uuid, journal_bytes: header.journal_bytes.get() };
    // The checksum matches: invalid contents were written by another program.
    spec.validate().map_err(|_| damaged())?;
    Ok((spec, version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;
    use zonda_zoned::reference::random_geometry;

    #[test]
    fn a_superblock_reads_back_as_it_was_written() {
        let mut prng = Prng::new(1);
        for i in 0..200 {
            let mut spec = ImageSpec::new(random_geometry(&mut prng), "name = \"x\"\n".repeat(i), [i as u8; 16]);
            spec.journal_bytes += 4096 * i as u64;
            assert_eq!(decode(&encode(&spec)), Ok((spec, VERSION)));
        }
    }
}
