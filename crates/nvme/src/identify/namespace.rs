//! Identify Namespace of the NVM Command Set (NVM Command Set 1.0, section 4.1.5.1), which zoned
//! namespaces have too.

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::{Blocks, Geometry};

use super::lists::NamespaceIdentity;
use crate::page::{Page, PageError};

/// Size, format and limits of a namespace.
///
/// ```text
///   0 NSZE | 8 NCAP | 16 NUSE | 24 NSFEAT | 25 NLBAF | 26 FLBAS | 27 MC | 28 DPC | 29 DPS | 30 NMIC | 31 RESCAP
///  32 FPI | 33 DLFEAT | 34 NAWUN | 36 NAWUPF | 38 NACWU | 40 NABSN | 42 NABO | 44 NABSPF | 46 NOIOB | 48 NVMCAP
///  64 NPWG | 66 NPWA | 68 NPDG | 70 NPDA | 72 NOWS | 74 MSSRL | 76 MCL | 80 MSRC | 92 ANAGRPID | 99 NSATTR
/// 100 NVMSETID | 102 ENDGID | 104 NGUID | 120 EUI64 | 128 LBA formats 0 .. 63 | 384 vendor specific
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmNamespace {
    /// Namespace Size (NSZE): blocks with an address.
    pub size_blocks: U64,
    /// Namespace Capacity (NCAP): blocks that can be allocated. Equals the size without thin
    /// provisioning (NSFEAT bit 0).
    pub capacity_blocks: U64,
    /// Namespace Utilization (NUSE): blocks that are allocated.
    pub used_blocks: U64,
    /// Namespace Features (NSFEAT).
    pub features: u8,
    /// Number of LBA Formats (NLBAF), zero-based.
    pub formats_count: u8,
    /// Formatted LBA Size (FLBAS): bits 3:0 and 6:5 the format in use, bit 4 metadata at the end of
    /// each block.
    pub format: u8,
    /// Metadata Capabilities (MC): bit 0 at the end of each block, bit 1 in a buffer of its own.
    pub metadata_capabilities: u8,
    /// End-to-end Data Protection Capabilities (DPC).
    pub protection_capabilities: u8,
    /// End-to-end Data Protection Type Settings (DPS): bits 2:0 the type in use, 0 for none.
    pub protection_type: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC): bit 0 shared between
    /// controllers.
    pub sharing: u8,
    /// Reservation Capabilities (RESCAP).
    pub reservations: u8,
    /// Format Progress Indicator (FPI).
    pub format_progress: u8,
    /// Deallocate Logical Block Features (DLFEAT): bits 2:0 = 001b deallocated blocks read as
    /// zeros, bit 3 the Deallocate bit of Write Zeroes.
    pub deallocate_features: u8,
    /// Namespace Atomic Write Unit Normal (NAWUN).
    pub atomic_write_normal: U16,
    /// Namespace Atomic Write Unit Power Fail (NAWUPF).
    pub atomic_write_power_fail: U16,
    /// Namespace Atomic Compare & Write Unit (NACWU).
    pub atomic_compare_write: U16,
    /// Namespace Atomic Boundary Size Normal (NABSN).
    pub atomic_boundary_normal: U16,
    /// Namespace Atomic Boundary Offset (NABO).
    pub atomic_boundary_offset: U16,
    /// Namespace Atomic Boundary Size Power Fail (NABSPF).
    pub atomic_boundary_power_fail: U16,
    /// Namespace Optimal I/O Boundary (NOIOB), blocks; zero is none. Linux ignores it, with a
    /// warning, for zoned ones.
    pub optimal_boundary_blocks: U16,
    /// NVM Capacity (NVMCAP), bytes.
    pub nvm_capacity_bytes: U128,
    /// Namespace Preferred Write Granularity (NPWG), zero-based blocks; valid with NSFEAT bit 4.
    pub preferred_write_granularity: U16,
    /// Namespace Preferred Write Alignment (NPWA), zero-based blocks.
    pub preferred_write_alignment: U16,
    /// Namespace Preferred Deallocate Granularity (NPDG), zero-based blocks.
    pub preferred_deallocate_granularity: U16,
    /// Namespace Preferred Deallocate Alignment (NPDA), zero-based blocks.
    pub preferred_deallocate_alignment: U16,
    /// Namespace Optimal Write Size (NOWS), zero-based blocks.
    pub optimal_write_size: U16,
    /// Maximum Single Source Range Length (MSSRL), for Copy.
    pub copy_range_max_blocks: U16,
    /// Maximum Copy Length (MCL).
    pub copy_max_blocks: U32,
    /// Maximum Source Range Count (MSRC), zero-based.
    pub copy_ranges_max: u8,
    _reserved_81: [u8; 11],
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group: U32,
    _reserved_96: [u8; 3],
    /// Namespace Attributes (NSATTR): bit 0 write protected.
    pub attributes: u8,
    /// NVM Set Identifier (NVMSETID); zero without NVM sets.
    pub nvm_set: U16,
    /// Endurance Group Identifier (ENDGID); zero without endurance groups.
    pub endurance_group: U16,
    /// Namespace Globally Unique Identifier (NGUID), most significant byte first; zeros for none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier (EUI64), most significant byte first; zeros for none.
    pub eui64: [u8; 8],
    /// LBA Formats (LBAF0 to LBAF63).
    pub formats: [LbaFormat; 64],
    _vendor_384: [u8; 3712],
}

/// Sizes of a block and its metadata (NVM Command Set 1.0, section 4.1.5.1).
///
/// ```text
/// 0 metadata size (MS) | 2 data size (LBADS) | 3 relative performance (RP), bits 1:0
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size (MS), bytes of each block.
    pub metadata_bytes: U16,
    /// LBA Data Size (LBADS), 2^n bytes; less than 9 is not a valid format.
    pub data_exponent: u8,
    /// Relative Performance (RP), 0 the best.
    pub relative_performance: u8,
}

const _: () = assert!(size_of::<NvmNamespace>() == super::IDENTIFY_BYTES);
const _: () = assert!(size_of::<LbaFormat>() == 4);

impl Page for NvmNamespace {
    const NAME: &'static str = "Identify Namespace";
}

impl NvmNamespace {
    /// The page of a namespace with this geometry, shared between controllers, all of it in use.
    ///
    /// One format; metadata at the end of each block, as Fabrics requires; deallocated blocks read
    /// as zeros; no protection information, no thin provisioning: the capacity is the size even
    /// where zones can hold less, and only the bytes (NVMCAP) leave the gaps out.
    ///
    /// # Errors
    /// [`PageError::Geometry`] for a geometry that cannot be.
    pub fn from_geometry(geometry: &Geometry, identity: &NamespaceIdentity) -> Result<NvmNamespace, PageError> {
        geometry.validate()?;
        let size_blocks = geometry.namespace_blocks().0;
        let has_metadata = geometry.metadata_bytes > 0;
        let mut page = NvmNamespace::empty();
        page.size_blocks = size_blocks.into();
        page.capacity_blocks = size_blocks.into();
        page.used_blocks = size_blocks.into();
        page.format = u8::from(has_metadata) << 4;
        page.metadata_capabilities = u8::from(has_metadata);
        page.sharing = 1;
        page.reservations = super::RESERVATION_CAPABILITIES;
        page.deallocate_features = READS_ZEROS;
        page.nvm_capacity_bytes = (u128::from(geometry.zone_capacity_bytes()) * u128::from(geometry.zone_count)).into();
        page.nguid = identity.nguid.unwrap_or_default();
        page.eui64 = identity.eui64.unwrap_or_default();
        page.formats[0] = LbaFormat {
            metadata_bytes: geometry.metadata_bytes.into(),
            data_exponent: geometry.block_size_bytes.ilog2() as u8,
            relative_performance: 0,
        };
        Ok(page)
    }

    /// Which format is in use (FLBAS): 0 to 63.
    #[must_use]
    pub fn format_index(&self) -> usize {
        usize::from(self.format & 0xf | (self.format >> 1) & 0x30)
    }

    /// The format in use.
    #[must_use]
    pub fn format_in_use(&self) -> LbaFormat {
        self.formats[self.format_index()]
    }

    /// Bytes of a block, without metadata.
    ///
    /// # Errors
    /// [`PageError::Value`] for a size that is not from 512 bytes to 64 KiB.
    pub fn block_size_bytes(&self) -> Result<u32, PageError> {
        let exponent = self.format_in_use().data_exponent;
        if (9..=16).contains(&exponent) {
            Ok(1 << exponent)
        } else {
            Err(PageError::Value {
                page: Self::NAME,
                field: "LBADS",
                value: exponent.into(),
                remedy: "must be 9 to 16",
            })
        }
    }

    /// Whether metadata travels at the end of each block (FLBAS bit 4).
    #[must_use]
    pub fn metadata_follows_data(&self) -> bool {
        self.format & 1 << 4 != 0
    }

    /// Whether deallocated blocks read as zeros (DLFEAT).
    #[must_use]
    pub fn deallocated_blocks_read_zeros(&self) -> bool {
        self.deallocate_features & 0b111 == READS_ZEROS
    }

    /// Sets support of Persist Through Power Loss (RESCAP bit 0).
    pub fn set_reservations_can_persist(&mut self) {
        self.reservations |= super::RESERVATIONS_CAN_PERSIST;
    }

    /// Says that `used` blocks are allocated (NUSE), at most all of them.
    pub fn set_used(&mut self, used: Blocks) {
        self.used_blocks = used.0.min(self.capacity_blocks.get()).into();
    }
}

/// DLFEAT bits 2:0: deallocated blocks read as zeros.
const READS_ZEROS: u8 = 0b001;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    impl Page for LbaFormat {
        const NAME: &'static str = "LBA Format";
    }

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(NvmNamespace {
            size_blocks: 0..=7,
            capacity_blocks: 8..=15,
            used_blocks: 16..=23,
            features: 24..=24,
            formats_count: 25..=25,
            format: 26..=26,
            metadata_capabilities: 27..=27,
            protection_capabilities: 28..=28,
            protection_type: 29..=29,
            sharing: 30..=30,
            reservations: 31..=31,
            format_progress: 32..=32,
            deallocate_features: 33..=33,
            atomic_write_normal: 34..=35,
            atomic_write_power_fail: 36..=37,
            atomic_compare_write: 38..=39,
            atomic_boundary_normal: 40..=41,
            atomic_boundary_offset: 42..=43,
            atomic_boundary_power_fail: 44..=45,
            optimal_boundary_blocks: 46..=47,
            nvm_capacity_bytes: 48..=63,
            preferred_write_granularity: 64..=65,
            preferred_write_alignment: 66..=67,
            preferred_deallocate_granularity: 68..=69,
            preferred_deallocate_alignment: 70..=71,
            optimal_write_size: 72..=73,
            copy_range_max_blocks: 74..=75,
            copy_max_blocks: 76..=79,
            copy_ranges_max: 80..=80,
            ana_group: 92..=95,
            attributes: 99..=99,
            nvm_set: 100..=101,
            endurance_group: 102..=103,
            nguid: 104..=119,
            eui64: 120..=127,
            formats: 128..=383,
        });
        assert_layout!(LbaFormat { metadata_bytes: 0..=1, data_exponent: 2..=2, relative_performance: 3..=3 });
    }

    #[test]
    fn a_namespace_reports_its_size_and_format() {
        let identity = NamespaceIdentity { nguid: Some([7; 16]), ..NamespaceIdentity::default() };
        let page = NvmNamespace::from_geometry(&Geometry::tiny(), &identity).unwrap();
        assert_eq!((page.size_blocks.get(), page.capacity_blocks.get()), (128, 128));
        assert_eq!(page.nvm_capacity_bytes.get(), 8 * 12 * 512);
        assert_eq!(page.block_size_bytes(), Ok(512));
        assert!(page.metadata_follows_data());
        assert_eq!(page.bytes()[128..132], [8, 0, 9, 0], "LBA format 0");
        assert_eq!(page.bytes()[33], 1, "DLFEAT");
        assert_eq!((page.nguid, page.eui64), ([7; 16], [0; 8]));
        assert_eq!(page.nvm_set.get(), 0);
    }

    #[test]
    fn reservations_persist_through_power_loss_only_if_the_namespace_supports_it() {
        let mut page = NvmNamespace::from_geometry(&Geometry::tiny(), &NamespaceIdentity::default()).unwrap();
        assert_eq!(page.bytes()[31], 0xfe);
        page.set_reservations_can_persist();
        assert_eq!(page.bytes()[31], 0xff);
    }

    #[test]
    fn a_format_without_metadata_does_not_claim_extended_blocks() {
        let geometry = Geometry { metadata_bytes: 0, block_size_bytes: 4096, ..Geometry::tiny() };
        let page = NvmNamespace::from_geometry(&geometry, &NamespaceIdentity::default()).unwrap();
        assert_eq!((page.format, page.metadata_capabilities), (0, 0));
        assert_eq!(page.block_size_bytes(), Ok(4096));
    }

    #[test]
    fn the_format_index_is_spread_over_the_byte() {
        let mut page = NvmNamespace::empty();
        for (byte, index) in [(0x00, 0), (0x0f, 15), (0x20, 16), (0x40, 32), (0x6f, 63), (0x9f, 15)] {
            page.format = byte;
            assert_eq!(page.format_index(), index, "{byte:#x}");
        }
    }

    #[test]
    fn an_invalid_block_size_is_an_error() {
        for exponent in [0, 8, 17, 255] {
            let mut page = NvmNamespace::empty();
            page.formats[0].data_exponent = exponent;
            assert!(page.block_size_bytes().is_err(), "{exponent}");
        }
    }

    #[test]
    fn the_used_blocks_do_not_exceed_the_size() {
        let mut page = NvmNamespace::from_geometry(&Geometry::tiny(), &NamespaceIdentity::default()).unwrap();
        page.set_used(Blocks(5));
        assert_eq!(page.used_blocks.get(), 5);
        page.set_used(Blocks(500));
        assert_eq!(page.used_blocks.get(), 128);
    }
}
