//! Parsing of the data pages that the peer has sent.
//!
//! ```text
//! 0 which page   1 a choice of that page   2.. its bytes
//! ```
//! For a geometry the bytes are changes of valid pages, each with: which page, offset (2 bytes),
//! value.

use zonda_nvme::HostId;
use zonda_nvme::discovery::{self, AddressFamily, DiscoveryEntry, SubsystemKind, TcpAddress};
use zonda_nvme::features::HostBehavior;
use zonda_nvme::identify::{
    CommandSet, CommandSetVector, Controller, IndependentNamespace, IoController, NamespaceIdentity, NamespaceList,
    NvmController, NvmNamespace, ZnsController, ZnsNamespace, ZonedPages, geometry_from, linux_accepts,
    parse_descriptors, write_descriptors,
};
use zonda_nvme::io::NamespaceFormat;
use zonda_nvme::log::{
    ChangedNamespaceList, ChangedZonePage, CommandEffects, ErrorEntry, FirmwareSlots, LogPage, SmartLog,
    SupportedLogPages,
};
use zonda_nvme::page::Page;
use zonda_nvme::reservation::{ReservationKey, ReservationType, SavedReservations};
use zonda_nvme::zns::ReportFormat;
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, ChangedZoneList, Geometry, Lba, NamespaceId, ReportFilter, ZoneIndex, ZoneReport, ZoneType};

use crate::feed::Feed;
use crate::{Seed, shapes};

const PAGES: usize = 12;
const GEOMETRY: u8 = 11;
/// Bytes of the extension after each descriptor, by the choice of the input.
const EXTENSIONS: [Option<u32>; 4] = [None, Some(64), Some(0), Some(128)];

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let (page, choice) = (feed.below(PAGES), feed.u8());
    let geometry = &shapes::all()[usize::from(choice) % 4];
    let bytes = feed.rest();
    match page {
        0 => controller(bytes),
        1 => namespace(bytes),
        2 => zoned_namespace(bytes),
        3 => lists(bytes, choice),
        4 => check_descriptors(bytes),
        5 => logs(bytes, choice),
        6 => changed_zones(bytes, geometry),
        7 => discovery_log(bytes),
        8 | 9 => zone_report(bytes, choice),
        10 => {
            let _ = HostBehavior::parse(bytes);
            let _ = IndependentNamespace::parse(bytes).map(|page| page.is_ready());
            if let Ok(saved) = SavedReservations::read(bytes) {
                assert_eq!(saved.to_bytes(), bytes, "reservations survive encoding");
            }
        }
        _ => check_geometry(bytes, geometry),
    }
}

fn controller(bytes: &[u8]) {
    let Ok(page) = Controller::parse(bytes) else { return };
    let texts = [page.serial_number(), page.model_number(), page.firmware_revision(), page.subsystem_nqn()];
    assert!(texts.iter().all(|text| !text.contains('\0')), "{texts:?}");
    let _ = (page.in_capsule_data_bytes(), page.has_attributes(1 << 16));
}

fn namespace(bytes: &[u8]) {
    let Ok(page) = NvmNamespace::parse(bytes) else { return };
    let _ = (page.format_index(), page.format_in_use(), page.metadata_follows_data());
    let _ = page.deallocated_blocks_read_zeros();
    if let Ok(block_size) = page.block_size_bytes() {
        assert!(block_size.is_power_of_two() && (512..=65_536).contains(&block_size), "blocks of {block_size} bytes");
    }
}

fn zoned_namespace(bytes: &[u8]) {
    let Ok(page) = ZnsNamespace::parse(bytes) else { return };
    let (active, open) = (page.max_active_zones(), page.max_open_zones());
    assert!(active.is_none_or(|active| open.is_some_and(|open| open <= active)), "{open:?} open of {active:?} active");
    let _ = (page.zrwa(), page.read_across_zones());
    let _ = ZnsController::parse(bytes);
}

fn lists(bytes: &[u8], choice: u8) {
    if let Ok(page) = NamespaceList::parse(bytes) {
        assert!(page.iter().count() <= 1024);
        let active: Vec<NamespaceId> = page.iter().collect();
        let above = NamespaceList::above(NamespaceId(choice.into()), &active);
        assert!(above.iter().all(|id| id.0 > choice.into()));
    }
    if let Ok(page) = CommandSetVector::parse(bytes) {
        let _ = page.combination_with(&[CommandSet::Nvm, CommandSet::Zoned]);
    }
    let _ = NvmController::parse(bytes).map(|page| page.deallocate_ranges_max());
}

fn check_descriptors(bytes: &[u8]) {
    let Ok((identity, command_set)) = parse_descriptors(bytes) else { return };
    let set = command_set.and_then(|code| CommandSet::try_from(code).ok()).unwrap_or(CommandSet::Nvm);
    let written = write_descriptors(&identity, set);
    assert_eq!(parse_descriptors(&written), Ok((identity, Some(set as u8))), "an identity survives encoding");
}

fn logs(bytes: &[u8], choice: u8) {
    let _ = SupportedLogPages::parse(bytes).map(|page| page.has(choice));
    let _ = ErrorEntry::parse(bytes).map(|entry| entry.is_used());
    let _ = SmartLog::parse(bytes).map(|page| format!("{page:?}"));
    let _ = FirmwareSlots::parse(bytes).map(|page| page.active_revision());
    let _ = CommandEffects::parse(bytes).map(|page| page.has_io(choice));
    if let Ok(page) = ChangedNamespaceList::parse(bytes)
        && let Some(changed) = page.changed()
    {
        assert_eq!(ChangedNamespaceList::of(&changed).changed().map(|again| again.len() <= changed.len()), Some(true));
    }
}

fn changed_zones(bytes: &[u8], geometry: &Geometry) {
    let Ok(page) = ChangedZonePage::parse(bytes) else { return };
    let Ok(list) = page.list(geometry) else { return };
    assert!(list.zones.iter().all(|zone| zone.0 < geometry.zone_count), "zones of the namespace");
    assert_eq!(ChangedZonePage::of(&list, geometry).list(geometry), Ok(list));
}

fn discovery_log(bytes: &[u8]) {
    let Ok((generation, entries)) = discovery::parse_log(bytes) else { return };
    for entry in &entries {
        let texts = [entry.service(), entry.address(), entry.subsystem_nqn()];
        assert!(texts.iter().all(|text| !text.contains('\0')), "{texts:?}");
        let _ = entry.is_tcp();
    }
    let again = discovery::parse_log(&discovery::write_log(generation, &entries));
    assert_eq!(again, Ok((generation, entries)), "a log survives encoding");
}

fn zone_report(bytes: &[u8], choice: u8) {
    let format = ReportFormat { extension_bytes: EXTENSIONS[usize::from(choice) % 4], partial: choice & 4 != 0 };
    let Ok(report) = format.parse(bytes) else { return };
    assert!(report.zones.len() <= format.descriptors_in(bytes.len()).expect("the buffer holds the header"));
    let written = format.write(&report, format.report_bytes(report.zones.len())).expect("the buffer is large enough");
    let again = format.parse(&written).expect("an encoded report can be parsed");
    assert_eq!(again.zones, report.zones, "zones survive encoding");
}

/// Pages of a namespace with a few bytes changed: the result is a valid geometry, or an error.
fn check_geometry(changes: &[u8], geometry: &Geometry) {
    let mut pages = pages_of(geometry);
    let mut report = report_of(geometry);
    for change in changes.chunks_exact(4) {
        let offset = usize::from(u16::from_le_bytes([change[1], change[2]]));
        let page = match change[0] % 5 {
            4 => &mut report,
            page => &mut pages[usize::from(page)],
        };
        let length = page.len();
        page[offset % length] = change[3];
    }
    let [controller, namespace, zoned, zoned_controller] = &pages;
    let controller = Controller::parse(controller).expect("a complete page");
    let namespace = NvmNamespace::parse(namespace).expect("a complete page");
    let zoned = ZnsNamespace::parse(zoned).expect("a complete page");
    let zoned_controller = ZnsController::parse(zoned_controller).expect("a complete page");
    let zones = ReportFormat { extension_bytes: None, partial: false }.parse(&report);
    let zones = zones.map(|report| report.zones).unwrap_or_default();
    let zoned = ZonedPages { namespace: &zoned, controller: &zoned_controller, zones: &zones };
    for zoned in [None, Some(zoned)] {
        let Ok(found) = geometry_from(&controller, &namespace, zoned) else { continue };
        assert_eq!(found.validate(), Ok(()), "{found:?}");
        let _ = (linux_accepts(&found), NamespaceFormat::of(&found, 1 << 20));
        let _ = (NvmNamespace::from_geometry(&found, &identity()), ZnsNamespace::from_geometry(&found));
    }
}

/// Identify Controller, Identify Namespace, and both of the Zoned Namespace Command Set.
fn pages_of(geometry: &Geometry) -> [Vec<u8>; 4] {
    let controller = Controller::io(&IoController {
        serial_number: "1",
        model_number: "zonda",
        firmware_revision: "1.0",
        subsystem_nqn: "nqn.2024-01.org.example:drive",
        controller_id: 1,
        namespaces_max: 4,
        max_transfer_exponent: 2,
        volatile_write_cache: true,
        flush_all_namespaces: true,
        in_capsule_data_bytes: 8192,
        max_outstanding_commands: 128,
        async_event_requests: 4,
        error_log_entries: 64,
        keep_alive_granularity_100ms: 1,
        traffic_keeps_alive: true,
        total_capacity_bytes: 1 << 30,
    });
    // A namespace without zones gets these pages from one with zones, so that an input can turn one
    // into the other.
    let sequential = Geometry { conventional_zone_count: 0, ..geometry.clone() };
    [
        controller.expect("its texts are short").bytes().to_vec(),
        NvmNamespace::from_geometry(geometry, &identity()).expect("a small namespace").bytes().to_vec(),
        ZnsNamespace::from_geometry(&sequential).expect("a small namespace").bytes().to_vec(),
        ZnsController::from_geometries([&sequential]).expect("limits that can be encoded").bytes().to_vec(),
    ]
}

fn report_of(geometry: &Geometry) -> Vec<u8> {
    let format = ReportFormat { extension_bytes: None, partial: false };
    let report = report(geometry, false);
    format.write(&report, format.report_bytes(report.zones.len())).expect("the buffer is large enough")
}

fn report(geometry: &Geometry, extended: bool) -> ZoneReport {
    let mut table = ZoneTable::new(geometry.clone());
    if geometry.zone_type(ZoneIndex(1)) == ZoneType::SequentialWriteRequired {
        let _ = table.write(geometry.zone_start(ZoneIndex(1)), Blocks(4), true);
    }
    table.report(Lba(0), ReportFilter::All, extended, false, u32::MAX).expect("a report of all zones")
}

fn identity() -> NamespaceIdentity {
    NamespaceIdentity { uuid: Some([5; 16]), eui64: Some([6; 8]), ..NamespaceIdentity::default() }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |name: &str, page: u8, choice: u8, bytes: &[u8]| {
        seeds.push((format!("{name}-{choice}"), [&[page, choice], bytes].concat()));
    };
    for (choice, geometry) in (0u8..).zip(shapes::all()) {
        let pages = pages_of(&geometry);
        if choice == 0 {
            add("controller", 0, 0, &pages[0]);
        }
        add("namespace", 1, choice, &pages[1]);
        add("zoned-namespace", 2, choice, &pages[2]);
        let list = ChangedZoneList { overflowed: false, zones: vec![ZoneIndex(1), ZoneIndex(6)] };
        add("changed-zones", 6, choice, ChangedZonePage::of(&list, &geometry).bytes());
        add("geometry", GEOMETRY, choice, &[0, 77, 0, 2, 2, 44, 0, 1]);
        let extended = geometry.descriptor_extension_bytes == 64;
        let format = ReportFormat { extension_bytes: extended.then_some(64), partial: false };
        let report = report(&geometry, extended);
        let bytes = format.write(&report, format.report_bytes(report.zones.len())).expect("the buffer is large enough");
        add(if extended { "extended-report" } else { "report" }, 8, u8::from(extended) + 4 * choice, &bytes);
    }
    add("namespaces", 3, 0, NamespaceList::above(NamespaceId(0), &[NamespaceId(1), NamespaceId(7)]).bytes());
    add("command-sets", 3, 1, CommandSetVector::of(&[CommandSet::Nvm, CommandSet::Zoned]).bytes());
    add("descriptors", 4, 0, &write_descriptors(&identity(), CommandSet::Zoned)[..64]);
    add("supported-pages", 5, 0, SupportedLogPages::of(&[LogPage::Smart, LogPage::Discovery]).bytes());
    add("firmware", 5, 1, FirmwareSlots::only("1.0").expect("a short text").bytes());
    add("effects", 5, 2, CommandEffects::of(CommandSet::Zoned).expect("a known set").bytes());
    add("changed-namespaces", 5, 3, ChangedNamespaceList::of(&[NamespaceId(2)]).bytes());
    let at = TcpAddress { family: AddressFamily::Ipv4, address: "192.0.2.1", service: "4420" };
    let entry = DiscoveryEntry::tcp(SubsystemKind::Nvm, 1, "nqn.2024-01.org.example:drive", &at, 32);
    add("discovery", 7, 0, &discovery::write_log(3, &[entry.expect("short texts")]));
    add("host-behavior", 10, 0, &[1; 512]);
    let host = HostId([9; 16]);
    let held = Some((ReservationType::ExclusiveAccess, Some(host)));
    let saved = SavedReservations { generation: 3, registrants: vec![(host, ReservationKey(1))], held };
    add("saved-reservations", 10, 1, &saved.to_bytes());
    seeds
}
