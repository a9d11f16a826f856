//! The geometry of a zoned block device, from sysfs and its zone report.

use std::path::Path;

use zonda_zoned::limits::COMMAND_BLOCKS_MAX;
use zonda_zoned::{Blocks, Geometry};

use super::report::{ReportedZone, SECTOR_BYTES};
use super::sysfs::BlockAttributes;
use crate::DriveError;

const NOT_SUPPORTED: &str = "this version of zonda cannot use the drive";

/// Refuses drives without zones, and those whose zones need not be written sequentially.
pub(super) fn must_be_zoned(path: &Path, attributes: &BlockAttributes) -> Result<(), DriveError> {
    let shown = path.display();
    match attributes.zoned.as_str() {
        "host-managed" => Ok(()),
        "none" => Err(DriveError::new(
            format!("{shown} is not a zoned block device: it has no zones"),
            "give a ZNS SSD or a host-managed SMR disk (lsblk -z lists zone models); an image on an ordinary drive \
             simulates one: zonda drive create",
        )),
        other => Err(DriveError::new(
            format!("{shown} is a {other} zoned block device, not a host-managed one"),
            "use its file system of choice directly: such a drive accepts random writes",
        )),
    }
}

/// The geometry, and notes for the log.
pub(super) fn geometry_of(
    path: &Path,
    attributes: &BlockAttributes,
    zones: &[ReportedZone],
) -> Result<(Geometry, Vec<String>), DriveError> {
    let shown = path.display();
    let refuse = |why: String| Err(DriveError::new(format!("cannot use {shown}: {why}"), NOT_SUPPORTED));
    let mut notes = Vec::new();
    // Logical blocks of 512e disks are smaller than what can be written: larger blocks are shown.
    let block_bytes = attributes.write_granularity_bytes.max(attributes.logical_block_bytes);
    let block_sectors = block_bytes / SECTOR_BYTES;
    let Some(first) = zones.first().filter(|_| block_sectors > 0) else {
        return refuse("it reports no zones".to_owned());
    };
    let size = first.length;
    // The last zone of some disks is smaller.
    let whole = match zones.last() {
        Some(last) if last.length < size => {
            notes.push(format!("{shown}: the last zone is smaller than the others, and is not used"));
            &zones[..zones.len() - 1]
        }
        _ => zones,
    };
    if let Some(other) = whole.iter().find(|zone| zone.length != size) {
        return refuse(format!("the zones at sectors 0 and {} have different sizes", other.start));
    }
    let conventional = whole.iter().take_while(|zone| zone.is_conventional).count();
    if let Some(zone) = whole[conventional..].iter().find(|zone| zone.is_conventional) {
        return refuse(format!("the conventional zone at sector {} is behind sequential zones", zone.start));
    }
    let capacity = whole.last().map_or(size, |zone| zone.capacity);
    if let Some(zone) = whole.iter().find(|zone| zone.capacity != capacity) {
        return refuse(format!(
            "the zones at sectors {} and {} have different capacities",
            zone.start,
            whole.last().map_or(0, |zone| zone.start)
        ));
    }
    if !size.is_multiple_of(block_sectors) || !capacity.is_multiple_of(block_sectors) {
        return refuse(format!(
            "its zones of {size} sectors, {capacity} of them writable, do not consist of whole blocks of {block_bytes} \
             bytes, the smallest that it writes"
        ));
    }
    if let Some(zone) = whole.iter().find(|zone| zone.is_within_block(block_bytes)) {
        return Err(DriveError::new(
            format!(
                "cannot use {shown}: the write pointer of the zone at sector {} is within a block of {block_bytes} \
                 bytes, the smallest that the drive writes",
                zone.start
            ),
            "finish or reset the zone with blkzone",
        ));
    }
    if block_bytes > attributes.logical_block_bytes {
        notes.push(format!(
            "{shown}: its blocks of {} bytes are used as blocks of {block_bytes}, the smallest that it writes",
            attributes.logical_block_bytes
        ));
    }
    let transfer = (attributes.max_transfer_bytes / block_bytes).clamp(1, COMMAND_BLOCKS_MAX);
    // NVMe expresses the largest transfer as a power of two.
    let transfer = Blocks(1 << transfer.ilog2());
    let limit = |limit: u64| u32::try_from(limit).ok().filter(|limit| *limit > 0);
    let (open, active) = (limit(attributes.max_open_zones), limit(attributes.max_active_zones));
    let geometry = Geometry {
        block_size_bytes: block_bytes as u32,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(size / block_sectors),
        zone_capacity_blocks: Blocks(capacity / block_sectors),
        zone_count: whole.len() as u32,
        conventional_zone_count: conventional as u32,
        max_active_zones: active,
        // An open zone is active.
        max_open_zones: match (open, active) {
            (Some(open), Some(active)) => Some(open.min(active)),
            (open, active) => open.or(active),
        },
        max_transfer_blocks: transfer,
        max_append_blocks: transfer,
        zrwa: None,
        read_across_zones: true,
        descriptor_extension_bytes: 0,
    };
    match geometry.validate() {
        Ok(()) => Ok((geometry, notes)),
        Err(error) => refuse(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> BlockAttributes {
        BlockAttributes {
            zoned: "host-managed".to_owned(),
            sectors: 40_960,
            logical_block_bytes: 4096,
            write_granularity_bytes: 4096,
            zone_sectors: 8192,
            max_open_zones: 14,
            max_active_zones: 0,
            max_transfer_bytes: 508 << 10,
            identity: None,
        }
    }

    fn zones() -> Vec<ReportedZone> {
        let zone = |index: u64| ReportedZone::empty(index * 8192, 8192, 8192, index == 0);
        (0..5).map(zone).collect()
    }

    fn geometry(attributes: &BlockAttributes, zones: &[ReportedZone]) -> Result<(Geometry, Vec<String>), DriveError> {
        geometry_of(Path::new("/dev/sdz"), attributes, zones)
    }

    #[test]
    fn the_geometry_follows_from_zones_and_limits() {
        let expected = Geometry {
            block_size_bytes: 4096,
            metadata_bytes: 0,
            zone_size_blocks: Blocks(1024),
            zone_capacity_blocks: Blocks(1024),
            zone_count: 5,
            conventional_zone_count: 1,
            max_active_zones: None,
            max_open_zones: Some(14),
            max_transfer_blocks: Blocks(64),
            max_append_blocks: Blocks(64),
            zrwa: None,
            read_across_zones: true,
            descriptor_extension_bytes: 0,
        };
        assert_eq!(geometry(&attributes(), &zones()), Ok((expected, Vec::new())));
    }

    #[test]
    fn a_smaller_last_zone_is_not_used() {
        let mut zones = zones();
        zones[4].length = 4096;
        let (geometry, notes) = geometry(&attributes(), &zones).unwrap();
        assert_eq!((geometry.zone_count, notes.len()), (4, 1));
    }

    #[test]
    fn a_512e_disk_has_blocks_of_the_size_that_it_writes() {
        let disk = BlockAttributes { logical_block_bytes: 512, ..attributes() };
        let (found, notes) = geometry(&disk, &zones()).unwrap();
        let (expected, _) = geometry(&attributes(), &zones()).unwrap();
        assert_eq!((found, notes.len()), (expected, 1));
        assert!(notes[0].contains("blocks of 512 bytes are used as blocks of 4096"), "{notes:?}");
        let mut odd = zones();
        odd.iter_mut().for_each(|zone| zone.capacity = 8188);
        let error = geometry(&disk, &odd).expect_err("a block is cut");
        assert!(error.message.contains("8188 of them writable, do not consist of whole blocks of 4096"), "{error}");
        let mut cut = zones();
        cut[2] = ReportedZone::closed(2 * 8192, 8192, 12);
        let error = geometry(&disk, &cut).expect_err("its next block cannot be written");
        assert!(error.message.contains("of the zone at sector 16384 is within a block"), "{error}");
        cut[2] = ReportedZone::closed(2 * 8192, 8192, 16);
        assert!(geometry(&disk, &cut).is_ok());
    }

    #[test]
    fn zones_that_no_geometry_describes_are_refused() {
        type Spoil = fn(&mut Vec<ReportedZone>);
        let cases: [(Spoil, &str); 4] = [
            (|zones| zones.clear(), "reports no zones"),
            (|zones| zones[2].is_conventional = true, "behind sequential zones"),
            (|zones| zones[3].capacity = 4096, "different capacities"),
            (|zones| zones[1].length = 4096, "different sizes"),
        ];
        for (spoil, words) in cases {
            let mut zones = zones();
            spoil(&mut zones);
            let error = geometry(&attributes(), &zones).expect_err(words);
            assert!(error.message.contains(words), "{error}");
        }
    }

    #[test]
    fn a_drive_without_zones_is_named_as_such() {
        for (zoned, words) in [("none", "is not a zoned block device"), ("host-aware", "not a host-managed one")] {
            let attributes = BlockAttributes { zoned: zoned.to_owned(), ..attributes() };
            let error = must_be_zoned(Path::new("/dev/sdz"), &attributes).expect_err(zoned);
            assert!(error.message.contains(words) && !error.help.is_empty(), "{error}");
        }
        assert_eq!(must_be_zoned(Path::new("/dev/sdz"), &attributes()), Ok(()));
    }
}
