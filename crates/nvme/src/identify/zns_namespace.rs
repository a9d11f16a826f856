//! Identify Namespace of the Zoned Namespace Command Set (Zoned Namespace Command Set 1.1, section
//! 4.1.5.1).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::limits::DESCRIPTOR_EXTENSION_UNIT_BYTES;
use zonda_zoned::{Blocks, Geometry, ZrwaGeometry};

use crate::page::{Page, PageError};

/// Namespace data of the Zoned Namespace Command Set.
///
/// ```text
///  0 ZOC | 2 OZCS | 4 MAR | 8 MOR | 12 RRL | 16 FRL | 20 RRL1 | 24 RRL2 | 28 RRL3 | 32 FRL1 | 36 FRL2 | 40 FRL3
/// 44 NUMZRWA | 48 ZRWAFG | 50 ZRWASZ | 52 ZRWACAP | 2816 LBA format extensions 0 .. 63 | 3840 vendor specific
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZnsNamespace {
    /// Zone Operation Characteristics (ZOC): bit 0 variable zone capacity, bit 1 zone active
    /// excursions. Linux refuses a namespace with either.
    pub operation_characteristics: U16,
    /// Optional Zoned Command Support (OZCS): bit 0 read across zone boundaries, bit 1 Zone Random
    /// Write Areas.
    pub optional_commands: U16,
    /// Maximum Active Resources (MAR), zero-based; FFFFFFFFh is no limit.
    pub active_resources_max: U32,
    /// Maximum Open Resources (MOR), zero-based; FFFFFFFFh is no limit.
    pub open_resources_max: U32,
    /// Reset Recommended Limit (RRL), seconds; zero is none.
    pub reset_recommended_seconds: U32,
    /// Finish Recommended Limit (FRL), seconds; zero is none.
    pub finish_recommended_seconds: U32,
    /// Reset Recommended Limits 1 to 3 (RRL1 to RRL3), seconds.
    pub reset_recommended_more_seconds: [U32; 3],
    /// Finish Recommended Limits 1 to 3 (FRL1 to FRL3), seconds.
    pub finish_recommended_more_seconds: [U32; 3],
    /// Number of ZRWA Resources (NUMZRWA), zero-based.
    pub zrwa_resources: U32,
    /// ZRWA Flush Granularity (ZRWAFG), blocks.
    pub zrwa_flush_granularity_blocks: U16,
    /// ZRWA Size (ZRWASZ), blocks.
    pub zrwa_size_blocks: U16,
    /// ZRWA Capability (ZRWACAP): bit 0 explicit flush.
    pub zrwa_capability: u8,
    _reserved_53: [u8; 2763],
    /// LBA Format Extensions (LBAFE0 to LBAFE63), one for each LBA format.
    pub format_extensions: [LbaFormatExtension; 64],
    _vendor_3840: [u8; 256],
}

/// The zones of one LBA format (Zoned Namespace Command Set 1.1, section 4.1.5.1).
///
/// ```text
/// 0 zone size (ZSZE) | 8 descriptor extension size (ZDES) | 9 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaFormatExtension {
    /// Zone Size (ZSZE), blocks.
    pub zone_size_blocks: U64,
    /// Zone Descriptor Extension Size (ZDES), in 64 bytes.
    pub descriptor_extension_64b: u8,
    _reserved_9: [u8; 7],
}

const _: () = assert!(size_of::<ZnsNamespace>() == super::IDENTIFY_BYTES);
const _: () = assert!(size_of::<LbaFormatExtension>() == 16);

impl Page for ZnsNamespace {
    const NAME: &'static str = "Identify Namespace of the Zoned Namespace Command Set";
}

impl ZnsNamespace {
    /// The page of a namespace with this geometry, in LBA format 0. The page contains neither the
    /// zones' capacity nor which of them are conventional: that is in the zone descriptors.
    ///
    /// # Errors
    /// [`PageError::Geometry`] for an invalid geometry, [`PageError::Value`] for one too large for
    /// its fields: a Zone Random Write Area has at most 65,535 blocks, a descriptor extension 255
    /// times 64 bytes.
    pub fn from_geometry(geometry: &Geometry) -> Result<ZnsNamespace, PageError> {
        geometry.validate()?;
        let mut page = ZnsNamespace::empty();
        page.optional_commands = (u16::from(geometry.read_across_zones) * READ_ACROSS_ZONES
            + u16::from(geometry.zrwa.is_some()) * HAS_ZRWA)
            .into();
        page.active_resources_max = resource_code(geometry.max_active_zones).into();
        page.open_resources_max = resource_code(geometry.max_open_zones).into();
        if let Some(zrwa) = &geometry.zrwa {
            page.zrwa_resources = (zrwa.resources - 1).into();
            page.zrwa_flush_granularity_blocks = narrow("ZRWAFG", zrwa.flush_granularity_blocks)?.into();
            page.zrwa_size_blocks = narrow("ZRWASZ", zrwa.size_blocks)?.into();
            page.zrwa_capability = u8::from(zrwa.explicit_flush);
        }
        let units = geometry.descriptor_extension_bytes / DESCRIPTOR_EXTENSION_UNIT_BYTES;
        page.format_extensions[0].zone_size_blocks = geometry.zone_size_blocks.0.into();
        page.format_extensions[0].descriptor_extension_64b = u8::try_from(units).map_err(|_| PageError::Value {
            page: Self::NAME,
            field: "ZDES",
            value: units.into(),
            remedy: "a descriptor extension has at most 16320 bytes (255 times 64)",
        })?;
        Ok(page)
    }

    /// Maximum Active Resources as a count; `None` is no limit.
    #[must_use]
    pub fn max_active_zones(&self) -> Option<u32> {
        zone_resources(self.active_resources_max.get())
    }

    /// Maximum Open Resources as a count, at most the active ones, since an open zone is active;
    /// `None` is no limit.
    #[must_use]
    pub fn max_open_zones(&self) -> Option<u32> {
        match (zone_resources(self.open_resources_max.get()), self.max_active_zones()) {
            (Some(open), Some(active)) => Some(open.min(active)),
            (open, active) => open.or(active),
        }
    }

    /// Whether one read may reach over a zone's end (OZCS bit 0).
    #[must_use]
    pub fn read_across_zones(&self) -> bool {
        self.optional_commands.get() & READ_ACROSS_ZONES != 0
    }

    /// The Zone Random Write Areas, if there are any (OZCS bit 1). Sizes are unchecked: see
    /// [`Geometry::validate`].
    #[must_use]
    pub fn zrwa(&self) -> Option<ZrwaGeometry> {
        (self.optional_commands.get() & HAS_ZRWA != 0).then(|| ZrwaGeometry {
            size_blocks: Blocks(self.zrwa_size_blocks.get().into()),
            flush_granularity_blocks: Blocks(self.zrwa_flush_granularity_blocks.get().into()),
            resources: self.zrwa_resources.get().saturating_add(1),
            explicit_flush: self.zrwa_capability & 1 != 0,
        })
    }
}

/// The count of a zero-based resource field (MAR, MOR); `None` for FFFFFFFFh, which is no limit.
#[must_use]
pub fn zone_resources(code: u32) -> Option<u32> {
    (code != NO_LIMIT).then(|| code + 1)
}

/// MAR and MOR without a limit.
const NO_LIMIT: u32 = u32::MAX;
/// OZCS bit 0.
const READ_ACROSS_ZONES: u16 = 1 << 0;
/// OZCS bit 1.
const HAS_ZRWA: u16 = 1 << 1;

fn resource_code(count: Option<u32>) -> u32 {
    count.map_or(NO_LIMIT, |count| count - 1)
}

fn narrow(field: &'static str, blocks: Blocks) -> Result<u16, PageError> {
    u16::try_from(blocks.0).map_err(|_| PageError::Value {
        page: ZnsNamespace::NAME,
        field,
        value: blocks.0,
        remedy: "must be at most 65535 blocks",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    impl Page for LbaFormatExtension {
        const NAME: &'static str = "LBA Format Extension";
    }

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(ZnsNamespace {
            operation_characteristics: 0..=1,
            optional_commands: 2..=3,
            active_resources_max: 4..=7,
            open_resources_max: 8..=11,
            reset_recommended_seconds: 12..=15,
            finish_recommended_seconds: 16..=19,
            reset_recommended_more_seconds: 20..=31,
            finish_recommended_more_seconds: 32..=43,
            zrwa_resources: 44..=47,
            zrwa_flush_granularity_blocks: 48..=49,
            zrwa_size_blocks: 50..=51,
            zrwa_capability: 52..=52,
            format_extensions: 2816..=3839,
        });
        assert_layout!(LbaFormatExtension { zone_size_blocks: 0..=7, descriptor_extension_64b: 8..=8 });
    }

    #[test]
    fn resources_are_zero_based_and_all_ones_is_no_limit() {
        let page = ZnsNamespace::from_geometry(&Geometry::tiny()).unwrap();
        assert_eq!(page.bytes()[4..12], [2, 0, 0, 0, 1, 0, 0, 0], "MAR 3, MOR 2");
        let unlimited = Geometry { max_active_zones: None, max_open_zones: None, ..Geometry::tiny() };
        let page = ZnsNamespace::from_geometry(&unlimited).unwrap();
        assert_eq!(page.bytes()[4..12], [0xff; 8]);
        assert_eq!((page.max_active_zones(), page.max_open_zones()), (None, None));
    }

    #[test]
    fn open_resources_are_never_more_than_active_ones() {
        for (mar, mor, open) in [(13, u32::MAX, Some(14)), (13, 20, Some(14)), (13, 5, Some(6)), (u32::MAX, 5, Some(6))]
        {
            let mut page = ZnsNamespace::empty();
            page.active_resources_max = mar.into();
            page.open_resources_max = mor.into();
            assert_eq!(page.max_open_zones(), open, "MAR {mar}, MOR {mor}");
        }
    }

    #[test]
    fn zone_size_and_extension_size_are_in_the_format_extension_zero() {
        let page = ZnsNamespace::from_geometry(&Geometry::tiny()).unwrap();
        assert_eq!(page.bytes()[2816..2826], [16, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(page.bytes()[0..4], [0, 0, 1, 0], "ZOC none, OZCS read across zones");
    }

    #[test]
    fn a_random_write_area_survives_encoding_and_parsing() {
        let zrwa = ZrwaGeometry {
            size_blocks: Blocks(8),
            flush_granularity_blocks: Blocks(4),
            resources: 3,
            explicit_flush: true,
        };
        let page = ZnsNamespace::from_geometry(&Geometry { zrwa: Some(zrwa), ..Geometry::tiny() }).unwrap();
        assert_eq!(page.bytes()[44..53], [2, 0, 0, 0, 4, 0, 8, 0, 1]);
        assert_eq!(ZnsNamespace::parse(page.bytes()).unwrap().zrwa(), Some(zrwa));
        assert_eq!(ZnsNamespace::empty().zrwa(), None);
    }

    #[test]
    fn values_that_do_not_fit_a_field_are_refused() {
        let refused = |geometry: &Geometry| match ZnsNamespace::from_geometry(geometry) {
            Err(PageError::Value { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&Geometry { descriptor_extension_bytes: 256 * 64, ..Geometry::tiny() }), "ZDES");
        let blocks = Blocks(65_536);
        let zrwa = ZrwaGeometry {
            size_blocks: blocks,
            flush_granularity_blocks: Blocks(1),
            resources: 1,
            explicit_flush: false,
        };
        let large =
            Geometry { zone_size_blocks: blocks, zone_capacity_blocks: blocks, zrwa: Some(zrwa), ..Geometry::tiny() };
        assert_eq!(refused(&large), "ZRWASZ");
    }
}
