//! What the Linux host accepts as a block device.
//!
//! Linux restricts what the specification allows. The rules are those of kernel 6.12
//! (`drivers/nvme/host/core.c` and `zns.c`, `block/blk-zoned.c`); a namespace that violates one
//! connects, but has no usable block device.

use std::fmt;

use zonda_zoned::Geometry;

use super::transfer::is_zoned;

/// Why Linux creates no block device for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinuxRefusal {
    /// The zone size is not a power of two: "invalid zone size".
    ZoneSizeNotPowerOfTwo,
    /// The zone size in sectors of 512 bytes does not fit the 32 bits of the block layer.
    ZoneTooLarge,
    /// Conventional zones among sequential ones: "invalid zone type".
    ConventionalZones,
    /// Blocks larger than a memory page of 4 KiB: the device has capacity 0.
    BlocksTooLarge,
    /// Metadata without protection information, which Linux does not support over Fabrics: the
    /// device has capacity 0.
    Metadata,
}

/// Checks whether Linux creates a block device for a namespace with this geometry.
///
/// # Errors
/// The first reason why it will not.
pub fn linux_accepts(geometry: &Geometry) -> Result<(), LinuxRefusal> {
    if geometry.block_size_bytes > 4096 {
        return Err(LinuxRefusal::BlocksTooLarge);
    }
    if geometry.metadata_bytes > 0 {
        return Err(LinuxRefusal::Metadata);
    }
    if !is_zoned(geometry) {
        return Ok(());
    }
    if geometry.conventional_zone_count > 0 {
        return Err(LinuxRefusal::ConventionalZones);
    }
    if !geometry.zone_size_blocks.0.is_power_of_two() {
        return Err(LinuxRefusal::ZoneSizeNotPowerOfTwo);
    }
    let zone_size_bytes = u128::from(geometry.zone_size_blocks.0) * u128::from(geometry.block_size_bytes);
    if zone_size_bytes / 512 > u128::from(u32::MAX) {
        return Err(LinuxRefusal::ZoneTooLarge);
    }
    Ok(())
}

impl fmt::Display for LinuxRefusal {
    /// What Linux does not support, and the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinuxRefusal::ZoneSizeNotPowerOfTwo => {
                "Linux supports only power-of-two zone sizes: round zone_size_blocks up, and keep the capacity"
            }
            LinuxRefusal::ZoneTooLarge => "Linux supports only zones smaller than 2 TiB: reduce zone_size_blocks",
            LinuxRefusal::ConventionalZones => {
                "Linux does not support conventional zones in a zoned NVMe namespace: set conventional_zone_count to 0"
            }
            LinuxRefusal::BlocksTooLarge => {
                "Linux 6.12 supports only blocks of up to 4096 bytes: reduce block_size_bytes"
            }
            LinuxRefusal::Metadata => "Linux does not support metadata over Fabrics: set metadata_bytes to 0",
        })
    }
}

impl std::error::Error for LinuxRefusal {}

#[cfg(test)]
mod tests {
    use zonda_zoned::Blocks;

    use super::*;

    fn plain() -> Geometry {
        Geometry { metadata_bytes: 0, ..Geometry::tiny() }
    }

    #[test]
    fn a_capacity_below_a_power_of_two_size_is_accepted() {
        assert_eq!(linux_accepts(&plain()), Ok(()));
        assert_eq!(linux_accepts(&Geometry { block_size_bytes: 4096, ..plain() }), Ok(()));
    }

    #[test]
    fn each_refusal_has_its_reason() {
        let refused = |geometry: Geometry| linux_accepts(&geometry).expect_err("refused");
        assert_eq!(refused(Geometry::tiny()), LinuxRefusal::Metadata);
        assert_eq!(refused(Geometry { block_size_bytes: 8192, ..plain() }), LinuxRefusal::BlocksTooLarge);
        assert_eq!(refused(Geometry { zone_size_blocks: Blocks(24), ..plain() }), LinuxRefusal::ZoneSizeNotPowerOfTwo);
        assert_eq!(
            refused(Geometry { zone_capacity_blocks: Blocks(16), conventional_zone_count: 1, ..plain() }),
            LinuxRefusal::ConventionalZones
        );
        assert_eq!(refused(Geometry { zone_size_blocks: Blocks(1 << 32), ..plain() }), LinuxRefusal::ZoneTooLarge);
        assert_eq!(linux_accepts(&Geometry { zone_size_blocks: Blocks(1 << 31), ..plain() }), Ok(()));
    }

    #[test]
    fn a_conventional_namespace_has_no_zone_size_to_refuse() {
        let blocks = Blocks(24);
        let geometry =
            Geometry { zone_size_blocks: blocks, zone_capacity_blocks: blocks, conventional_zone_count: 8, ..plain() };
        assert_eq!(linux_accepts(&geometry), Ok(()));
    }
}
