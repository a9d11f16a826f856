//! Derives the geometry of a remote namespace from its Identify data and a zone report.

use zonda_zoned::limits::{COMMAND_BLOCKS_MAX, DESCRIPTOR_EXTENSION_UNIT_BYTES};
use zonda_zoned::{Blocks, Geometry, ZoneDescriptor, ZoneState, ZoneType};

use super::capabilities::attributes;
use super::transfer::transfer_blocks;
use super::{Controller, NvmNamespace, ZnsController, ZnsNamespace};
use crate::page::{Page, PageError};

/// The pages that describe zones.
#[derive(Clone, Copy, Debug)]
pub struct ZonedPages<'a> {
    /// Identify Namespace of the Zoned Namespace Command Set.
    pub namespace: &'a ZnsNamespace,
    /// Identify Controller of the Zoned Namespace Command Set.
    pub controller: &'a ZnsController,
    /// A zone report from the start of the namespace, since no Identify structure has the zone
    /// capacity. One zone is enough for a drive known to have neither conventional zones nor
    /// different capacities; a full report checks that.
    pub zones: &'a [ZoneDescriptor],
}

/// The geometry that these pages describe; `zoned` is absent for a namespace of the NVM Command
/// Set.
///
/// Such a conventional namespace becomes **one conventional zone as large as the namespace**. Any
/// other zone size would have to divide the namespace, and none does for every size; commands to
/// conventional blocks may reach over zone boundaries anyway, so that one zone and many zones are
/// indistinguishable.
///
/// Rounding by the encoding remains: transfer limits are powers of two of 4 KiB, and those that
/// exceed what one command can name are cut to that. An open limit above the active limit becomes
/// the active limit.
///
/// # Errors
/// [`PageError::Value`] for a field that no [`Geometry`] can hold: zones of different capacities, a
/// size that is no multiple of the zone size, metadata in a buffer of its own, protection
/// information, variable zone capacity. [`PageError::Geometry`] for fields that contradict each
/// other.
pub fn geometry_from(
    controller: &Controller,
    namespace: &NvmNamespace,
    zoned: Option<ZonedPages<'_>>,
) -> Result<Geometry, PageError> {
    let block_size_bytes = namespace.block_size_bytes()?;
    let metadata_bytes = namespace.format_in_use().metadata_bytes.get();
    if metadata_bytes > 0 && !namespace.metadata_follows_data() {
        return Err(namespace_error("FLBAS", namespace.format.into(), "metadata must be at the end of each block"));
    }
    if namespace.protection_type & 0b111 != 0 {
        return Err(namespace_error(
            "DPS",
            namespace.protection_type.into(),
            "protection information must be disabled",
        ));
    }
    let counted_metadata =
        if controller.has_attributes(attributes::LIMITS_EXCLUDE_METADATA) { 0 } else { u32::from(metadata_bytes) };
    let limit = |exponent| transfer_blocks(exponent, block_size_bytes + counted_metadata);
    let max_transfer_blocks = limit(controller.max_transfer_exponent);
    let size_blocks = Blocks(namespace.size_blocks.get());
    let mut geometry = Geometry {
        block_size_bytes,
        metadata_bytes,
        zone_size_blocks: size_blocks,
        zone_capacity_blocks: size_blocks,
        zone_count: 1,
        conventional_zone_count: 1,
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks,
        max_append_blocks: max_transfer_blocks,
        zrwa: None,
        read_across_zones: true,
        descriptor_extension_bytes: 0,
    };
    if let Some(pages) = zoned {
        let append_limit = match pages.controller.append_limit_exponent {
            0 => Blocks(COMMAND_BLOCKS_MAX),
            exponent => limit(exponent),
        };
        geometry.max_append_blocks = append_limit.min(max_transfer_blocks);
        divide(&mut geometry, namespace.format_index(), &pages)?;
    }
    geometry.validate()?;
    Ok(geometry)
}

/// Divides the single zone of `geometry` as the pages specify.
fn divide(geometry: &mut Geometry, format_index: usize, pages: &ZonedPages<'_>) -> Result<(), PageError> {
    if pages.namespace.operation_characteristics.get() & VARIABLE_ZONE_CAPACITY != 0 {
        let found = pages.namespace.operation_characteristics.get();
        return Err(zoned_error("ZOC", found.into(), "variable zone capacity is not supported"));
    }
    let extension = &pages.namespace.format_extensions[format_index];
    let zone_size = extension.zone_size_blocks.get();
    let size_blocks = geometry.zone_size_blocks.0;
    if zone_size == 0 || !size_blocks.is_multiple_of(zone_size) {
        return Err(zoned_error("ZSZE", zone_size, "must divide the size of the namespace (NSZE)"));
    }
    geometry.zone_count = u32::try_from(size_blocks / zone_size)
        .map_err(|_| zoned_error("ZSZE", zone_size, "makes more than 2^32 - 1 zones of the namespace"))?;
    geometry.zone_size_blocks = Blocks(zone_size);
    (geometry.zone_capacity_blocks, geometry.conventional_zone_count) = survey(pages.zones, zone_size)?;
    geometry.max_active_zones = pages.namespace.max_active_zones();
    geometry.max_open_zones = pages.namespace.max_open_zones();
    geometry.zrwa = pages.namespace.zrwa();
    geometry.read_across_zones = pages.namespace.read_across_zones();
    geometry.descriptor_extension_bytes =
        u32::from(extension.descriptor_extension_64b) * DESCRIPTOR_EXTENSION_UNIT_BYTES;
    Ok(())
}

/// The common capacity of all zones, and the number of conventional zones before the others.
/// Offline zones are ignored.
fn survey(zones: &[ZoneDescriptor], zone_size: u64) -> Result<(Blocks, u32), PageError> {
    let mut capacity = None;
    let mut conventional = 0;
    for (index, zone) in zones.iter().enumerate() {
        if Some(zone.start.0) != (index as u64).checked_mul(zone_size) {
            return Err(zone_error("ZSLBA", zone.start.0, "zones must be contiguous from the start of the namespace"));
        }
        if zone.zone_type == ZoneType::Conventional {
            if conventional != index as u32 {
                return Err(zone_error("ZT", zone.start.0, "conventional zones must come first"));
            }
            conventional += 1;
        }
        if zone.state == ZoneState::Offline {
            continue;
        }
        if *capacity.get_or_insert(zone.capacity_blocks) != zone.capacity_blocks {
            return Err(zone_error("ZCAP", zone.capacity_blocks.0, "all zones must have the same capacity"));
        }
    }
    let capacity =
        capacity.ok_or(zone_error("ZCAP", 0, "at least one zone must have a capacity, that is, not be offline"))?;
    Ok((capacity, conventional))
}

/// ZOC bit 0.
const VARIABLE_ZONE_CAPACITY: u16 = 1 << 0;

fn namespace_error(field: &'static str, value: u64, remedy: &'static str) -> PageError {
    PageError::Value { page: NvmNamespace::NAME, field, value, remedy }
}

fn zoned_error(field: &'static str, value: u64, remedy: &'static str) -> PageError {
    PageError::Value { page: ZnsNamespace::NAME, field, value, remedy }
}

fn zone_error(field: &'static str, value: u64, remedy: &'static str) -> PageError {
    PageError::Value { page: "Zone Descriptor", field, value, remedy }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zonda_zoned::zones::ZoneTable;
    use zonda_zoned::{Lba, ReportFilter, ZrwaGeometry};

    use super::super::controller_tests::example;
    use super::super::{IoController, NamespaceIdentity};
    use super::*;

    fn zones_of(geometry: &Geometry) -> Vec<ZoneDescriptor> {
        ZoneTable::new(geometry.clone()).report(Lba(0), ReportFilter::All, false, false, u32::MAX).unwrap().zones
    }

    /// Encodes and parses, as over a connection.
    fn travel(geometry: &Geometry) -> Result<Geometry, PageError> {
        let max_transfer_exponent = Controller::max_transfer_exponent_for([geometry])?;
        let controller = Controller::io(&IoController { max_transfer_exponent, ..example() })?;
        let controller = Controller::parse(controller.bytes())?;
        let namespace = NvmNamespace::from_geometry(geometry, &NamespaceIdentity::default())?;
        let namespace = NvmNamespace::parse(namespace.bytes())?;
        let zns_controller = ZnsController::parse(ZnsController::from_geometries([geometry])?.bytes())?;
        let zns_namespace = ZnsNamespace::parse(ZnsNamespace::from_geometry(geometry)?.bytes())?;
        let zones = zones_of(geometry);
        let pages = ZonedPages { namespace: &zns_namespace, controller: &zns_controller, zones: &zones };
        geometry_from(&controller, &namespace, Some(pages))
    }

    fn usual() -> Geometry {
        Geometry {
            block_size_bytes: 4096,
            max_transfer_blocks: Blocks(256),
            max_append_blocks: Blocks(8),
            ..Geometry::tiny()
        }
    }

    fn value_field(result: Result<Geometry, PageError>) -> &'static str {
        match result {
            Err(PageError::Value { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_zoned_geometry_survives_its_pages() {
        assert_eq!(travel(&usual()), Ok(usual()));
        let no_limits = Geometry { max_active_zones: None, max_open_zones: None, read_across_zones: false, ..usual() };
        assert_eq!(travel(&no_limits), Ok(no_limits));
        let mixed = Geometry { zone_capacity_blocks: Blocks(16), conventional_zone_count: 3, ..usual() };
        assert_eq!(travel(&mixed), Ok(mixed));
    }

    #[test]
    fn a_limit_that_is_not_a_power_of_two_is_rounded_down() {
        let odd = Geometry { max_transfer_blocks: Blocks(100), max_append_blocks: Blocks(7), ..usual() };
        let back = travel(&odd).unwrap();
        assert_eq!((back.max_transfer_blocks, back.max_append_blocks), (Blocks(64), Blocks(4)));
    }

    #[test]
    fn a_conventional_namespace_becomes_one_zone() {
        let geometry = Geometry { zone_capacity_blocks: Blocks(16), conventional_zone_count: 8, ..usual() };
        let controller = Controller::io(&example()).unwrap();
        let namespace = NvmNamespace::from_geometry(&geometry, &NamespaceIdentity::default()).unwrap();
        let back = geometry_from(&controller, &namespace, None).unwrap();
        assert_eq!((back.zone_count, back.conventional_zone_count, back.zone_size_blocks), (1, 1, Blocks(128)));
        assert_eq!(back.namespace_blocks(), geometry.namespace_blocks());
        assert_eq!(back.max_transfer_blocks, Blocks(256), "MDTS 8: 1 MiB");
    }

    #[test]
    fn metadata_counts_towards_the_limit_unless_the_controller_excludes_it() {
        let geometry = Geometry { zone_capacity_blocks: Blocks(16), conventional_zone_count: 8, ..usual() };
        let mut controller = Controller::io(&example()).unwrap();
        controller.attributes = 0.into();
        let namespace = NvmNamespace::from_geometry(&geometry, &NamespaceIdentity::default()).unwrap();
        let back = geometry_from(&controller, &namespace, None).unwrap();
        assert_eq!(back.max_transfer_blocks, Blocks(255), "1 MiB of 4104 bytes each");
    }

    #[test]
    fn a_controller_without_limits_allows_the_longest_command() {
        let mut controller = Controller::io(&example()).unwrap();
        controller.max_transfer_exponent = 0;
        let namespace = NvmNamespace::from_geometry(&usual(), &NamespaceIdentity::default()).unwrap();
        let zns_namespace = ZnsNamespace::from_geometry(&usual()).unwrap();
        let zns_controller = ZnsController::empty();
        let zones = zones_of(&usual());
        let pages = ZonedPages { namespace: &zns_namespace, controller: &zns_controller, zones: &zones };
        let back = geometry_from(&controller, &namespace, Some(pages)).unwrap();
        assert_eq!((back.max_transfer_blocks, back.max_append_blocks), (Blocks(65_536), Blocks(65_536)));
    }

    #[test]
    fn pages_without_a_valid_geometry_are_refused_by_field() {
        let controller = Controller::io(&example()).unwrap();
        let namespace = NvmNamespace::from_geometry(&usual(), &NamespaceIdentity::default()).unwrap();
        let zns_namespace = ZnsNamespace::from_geometry(&usual()).unwrap();
        let zns_controller = ZnsController::from_geometries([&usual()]).unwrap();
        let all = zones_of(&usual());
        let refused = |namespace: &NvmNamespace, zns_namespace: &ZnsNamespace, zones: &[ZoneDescriptor]| {
            let pages = ZonedPages { namespace: zns_namespace, controller: &zns_controller, zones };
            value_field(geometry_from(&controller, namespace, Some(pages)))
        };
        let mut separate = namespace.clone();
        separate.format = 0;
        assert_eq!(refused(&separate, &zns_namespace, &all), "FLBAS");
        let mut protected = namespace.clone();
        protected.protection_type = 1;
        assert_eq!(refused(&protected, &zns_namespace, &all), "DPS");
        let mut odd = namespace.clone();
        odd.size_blocks = 129.into();
        assert_eq!(refused(&odd, &zns_namespace, &all), "ZSZE");
        let mut unformatted = zns_namespace.clone();
        unformatted.format_extensions[0].zone_size_blocks = 0.into();
        assert_eq!(refused(&namespace, &unformatted, &all), "ZSZE");
        let mut variable = zns_namespace.clone();
        variable.operation_characteristics = 1.into();
        assert_eq!(refused(&namespace, &variable, &all), "ZOC");
        assert_eq!(refused(&namespace, &zns_namespace, &[]), "ZCAP");
        let mut uneven = all.clone();
        uneven[3].capacity_blocks = Blocks(5);
        assert_eq!(refused(&namespace, &zns_namespace, &uneven), "ZCAP");
        uneven[3].state = ZoneState::Offline;
        let pages = ZonedPages { namespace: &zns_namespace, controller: &zns_controller, zones: &uneven };
        assert_eq!(geometry_from(&controller, &namespace, Some(pages)), Ok(usual()), "an offline zone is ignored");
        assert_eq!(refused(&namespace, &zns_namespace, &all[1..]), "ZSLBA");
        let mut late = all.clone();
        late[3].zone_type = ZoneType::Conventional;
        assert_eq!(refused(&namespace, &zns_namespace, &late), "ZT");
    }

    proptest! {
        #[test]
        fn every_exactly_encodable_geometry_survives_its_pages(
            block_exponent in 9u32..=12,
            metadata_bytes in 0u16..=64,
            zones in (1u32..=40, 1u64..=3000, 0u64..=500),
            limits in (1u32..=40, 1u32..=40, any::<bool>()),
            transfer in (3u32..=10, 3u32..=10),
            zrwa in proptest::option::of((1u64..=8, 1u32..=5, any::<bool>())),
            flags in (any::<bool>(), 0u32..=255),
        ) {
            let (zone_count, capacity, gap) = zones;
            let (a, b, limited) = limits;
            let unit = 1u64 << (12 - block_exponent);
            let geometry = Geometry {
                block_size_bytes: 1 << block_exponent,
                metadata_bytes,
                zone_size_blocks: Blocks(capacity * 8 + gap),
                zone_capacity_blocks: Blocks(capacity * 8),
                zone_count,
                conventional_zone_count: 0,
                max_active_zones: limited.then_some(a.max(b)),
                max_open_zones: limited.then_some(a.min(b)),
                max_transfer_blocks: Blocks(unit << transfer.0.max(transfer.1)),
                max_append_blocks: Blocks(unit << transfer.0.min(transfer.1)),
                zrwa: zrwa.map(|(units, resources, explicit_flush)| ZrwaGeometry {
                    size_blocks: Blocks(units.min(capacity) * 8),
                    flush_granularity_blocks: Blocks(8),
                    resources,
                    explicit_flush,
                }),
                read_across_zones: flags.0,
                descriptor_extension_bytes: flags.1 * 64,
            };
            prop_assert_eq!(travel(&geometry), Ok(geometry));
        }

        #[test]
        fn garbage_pages_never_panic(seed in proptest::collection::vec(any::<u8>(), 4096), zone_size in any::<u64>()) {
            let controller = Controller::parse(&seed).unwrap();
            let mut namespace = NvmNamespace::parse(&seed).unwrap();
            let mut zns_namespace = ZnsNamespace::parse(&seed).unwrap();
            let zns_controller = ZnsController::parse(&seed).unwrap();
            let zones = zones_of(&Geometry::tiny());
            let pages = ZonedPages { namespace: &zns_namespace, controller: &zns_controller, zones: &zones };
            let _ = geometry_from(&controller, &namespace, Some(pages));
            let _ = geometry_from(&controller, &namespace, None);
            // Mostly valid values, so that later checks are reached.
            namespace.format = 0;
            namespace.protection_type = 0;
            namespace.formats[0].data_exponent = 9 + seed[0] % 8;
            namespace.formats[0].metadata_bytes = 0.into();
            zns_namespace.operation_characteristics = 0.into();
            zns_namespace.format_extensions[0].zone_size_blocks = (zone_size >> (seed[1] % 64)).into();
            let pages = ZonedPages { namespace: &zns_namespace, controller: &zns_controller, zones: &zones };
            let _ = geometry_from(&controller, &namespace, Some(pages));
            let _ = geometry_from(&controller, &namespace, None);
        }
    }
}
