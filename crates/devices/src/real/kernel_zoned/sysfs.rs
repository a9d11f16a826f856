//! What sysfs says about a block device.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zonda_nvme::identify::NamespaceIdentity;

/// The attributes of a block device and of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockAttributes {
    /// `host-managed`, `host-aware` or `none`.
    pub(crate) zoned: String,
    pub(crate) sectors: u64,
    pub(crate) logical_block_bytes: u64,
    /// Writes to sequential zones are whole blocks of this size: of an SMR disk those of its physical
    /// blocks, which may be larger than the logical ones.
    pub(crate) write_granularity_bytes: u64,
    pub(crate) zone_sectors: u64,
    /// 0: no limit.
    pub(crate) max_open_zones: u64,
    /// 0: no limit.
    pub(crate) max_active_zones: u64,
    pub(crate) max_transfer_bytes: u64,
    pub(crate) identity: Option<NamespaceIdentity>,
}

/// A block device in sysfs.
pub(crate) struct BlockDevice {
    directory: PathBuf,
}

impl BlockDevice {
    /// The device with this number, below the root of sysfs.
    pub(crate) fn of_number(sysfs: &Path, major: u32, minor: u32) -> io::Result<BlockDevice> {
        let directory = fs::canonicalize(sysfs.join(format!("dev/block/{major}:{minor}")))?;
        Ok(BlockDevice { directory })
    }

    /// The name of the whole disk, if this is a partition.
    pub(crate) fn partition_of(&self) -> Option<String> {
        let is_partition = self.directory.join("partition").exists();
        let disk = self.directory.parent()?.file_name()?.to_string_lossy().into_owned();
        is_partition.then_some(disk)
    }

    pub(crate) fn attributes(&self) -> io::Result<BlockAttributes> {
        let number = |name: &str| self.number(name);
        // A buffer of pages that are not contiguous is a segment for each page. A command that the
        // block layer has to split could be reordered by a scheduler.
        let pages = number("queue/max_segments")?.max(1) * 4096;
        let max_transfer_bytes = pages.min(number("queue/max_sectors_kb")?.max(4) << 10);
        let logical_block_bytes = number("queue/logical_block_size")?;
        Ok(BlockAttributes {
            // Linux before 4.10 has no zoned block devices.
            zoned: self.text("queue/zoned").unwrap_or_else(|| "none".to_owned()),
            sectors: number("size")?,
            logical_block_bytes,
            // Linux before 5.12 does not report it.
            write_granularity_bytes: number("queue/zone_write_granularity").unwrap_or(0).max(logical_block_bytes),
            zone_sectors: number("queue/chunk_sectors").unwrap_or(0),
            max_open_zones: number("queue/max_open_zones").unwrap_or(0),
            max_active_zones: number("queue/max_active_zones").unwrap_or(0),
            max_transfer_bytes,
            identity: self.identity(),
        })
    }

    /// The identifiers of an NVMe namespace, or the worldwide name of a SCSI disk.
    fn identity(&self) -> Option<NamespaceIdentity> {
        let of_namespace = NamespaceIdentity {
            uuid: self.text("uuid").and_then(|text| bytes_of(&text)),
            nguid: self.text("nguid").and_then(|text| bytes_of(&text)),
            eui64: self.text("eui").and_then(|text| bytes_of(&text)),
        };
        if of_namespace != NamespaceIdentity::default() {
            return Some(of_namespace);
        }
        let wwid = self.text("device/wwid")?;
        // A name of NAA has 8 or 16 bytes.
        let name = wwid.strip_prefix("naa.")?;
        let identity =
            NamespaceIdentity { nguid: bytes_of(name), eui64: bytes_of(name), ..NamespaceIdentity::default() };
        (identity != NamespaceIdentity::default()).then_some(identity)
    }

    fn text(&self, attribute: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(attribute)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, attribute: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.directory.join(attribute))?;
        let error = || io::Error::new(io::ErrorKind::InvalidData, format!("{attribute} of sysfs is not a number"));
        text.trim().parse().map_err(|_| error())
    }
}

/// Bytes from hexadecimal digits with hyphens or spaces; `None` for another number of digits, and for
/// zeros.
fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|one| !matches!(one, '-' | ' '))
        .map(|one| one.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len() == 2 * N)?;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    (bytes != [0; N]).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attributes of QEMU's zoned NVMe drive under Linux 6.12.
    const NVME: [(&str, &str); 9] = [
        ("queue/zoned", "host-managed\n"),
        ("size", "131072\n"),
        ("queue/logical_block_size", "4096\n"),
        ("queue/chunk_sectors", "8192\n"),
        ("queue/max_open_zones", "14\n"),
        ("queue/max_active_zones", "14\n"),
        ("queue/max_sectors_kb", "508\n"),
        ("queue/max_segments", "127\n"),
        ("nguid", "a2a3a4a5-0000-0000-0000-00000000000f\n"),
    ];

    fn device(attributes: &[(&str, &str)]) -> (tempfile::TempDir, BlockDevice) {
        let sysfs = tempfile::tempdir().unwrap();
        let directory = sysfs.path().join("dev/block/259:3");
        for (name, text) in attributes {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let device = BlockDevice::of_number(sysfs.path(), 259, 3).unwrap();
        (sysfs, device)
    }

    #[test]
    fn the_limits_of_a_zoned_namespace_are_read() {
        let (_sysfs, device) = device(&NVME);
        let nguid = Some([0xa2, 0xa3, 0xa4, 0xa5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f]);
        let expected = BlockAttributes {
            zoned: "host-managed".to_owned(),
            sectors: 131_072,
            logical_block_bytes: 4096,
            write_granularity_bytes: 4096,
            zone_sectors: 8192,
            max_open_zones: 14,
            max_active_zones: 14,
            max_transfer_bytes: 508 << 10,
            identity: Some(NamespaceIdentity { nguid, ..NamespaceIdentity::default() }),
        };
        assert_eq!(device.attributes().unwrap(), expected);
        assert_eq!(device.partition_of(), None);
    }

    #[test]
    fn a_transfer_has_no_more_pages_than_a_request_has_segments() {
        let mut attributes = NVME;
        attributes[6].1 = "1280\n";
        attributes[7].1 = "128\n";
        let (_sysfs, device) = device(&attributes);
        assert_eq!(device.attributes().unwrap().max_transfer_bytes, 512 << 10);
    }

    #[test]
    fn writes_of_a_512e_disk_are_physical_blocks() {
        let granularity = |logical: &'static str, granularity: Option<&'static str>| {
            let mut attributes = NVME.to_vec();
            attributes[2].1 = logical;
            attributes.extend(granularity.map(|text| ("queue/zone_write_granularity", text)));
            let (_sysfs, device) = device(&attributes);
            device.attributes().unwrap().write_granularity_bytes
        };
        assert_eq!(granularity("512\n", Some("4096\n")), 4096);
        assert_eq!(granularity("512\n", None), 512, "an older Linux does not report it");
        assert_eq!(granularity("4096\n", Some("0\n")), 4096, "a device without zones");
    }

    #[test]
    fn a_scsi_disk_is_identified_by_its_worldwide_name() {
        let mut attributes = NVME;
        attributes[8] = ("device/wwid", "naa.5000c500a1b2c3d4\n");
        let (_sysfs, device) = device(&attributes);
        let eui64 = Some([0x50, 0, 0xc5, 0, 0xa1, 0xb2, 0xc3, 0xd4]);
        let expected = NamespaceIdentity { eui64, ..NamespaceIdentity::default() };
        assert_eq!(device.attributes().unwrap().identity, Some(expected));
        attributes[8].1 = "t10.Linux   scsi_debug      2000\n";
        let (_sysfs, device) = self::device(&attributes);
        assert_eq!(device.attributes().unwrap().identity, None, "the name of a vendor is not a number");
    }

    #[test]
    fn a_partition_and_a_device_without_zones_are_distinguished() {
        let (_sysfs, whole) = device(&NVME[1..]);
        assert_eq!(whole.attributes().unwrap().zoned, "none");
        let (_sysfs, part) = device(&[("partition", "1\n")]);
        assert!(part.partition_of().is_some());
    }

    #[test]
    fn an_attribute_that_is_no_number_is_an_error() {
        let mut attributes = NVME;
        attributes[1].1 = "many\n";
        let (_sysfs, device) = device(&attributes);
        assert!(device.attributes().unwrap_err().to_string().contains("size"));
    }
}
