use zonda_zoned::{Blocks, Geometry};

use super::capabilities::{attributes, optional_commands, sgl_support};
use super::controller::{Controller, ControllerKind, DiscoveryController, IoController, PowerState};
use crate::page::{Page, PageError, assert_layout};

impl Page for PowerState {
    const NAME: &'static str = "Power State Descriptor";
}

pub(super) fn example() -> IoController<'static> {
    IoController {
        serial_number: "0042",
        model_number: "zonda",
        firmware_revision: "0.1",
        subsystem_nqn: "nqn.2024-01.org.example:drive",
        controller_id: 7,
        namespaces_max: 3,
        max_transfer_exponent: 8,
        volatile_write_cache: true,
        flush_all_namespaces: true,
        in_capsule_data_bytes: 8192,
        max_outstanding_commands: 128,
        async_event_requests: 4,
        error_log_entries: 64,
        keep_alive_granularity_100ms: 10,
        traffic_keeps_alive: true,
        total_capacity_bytes: 1 << 40,
    }
}

#[test]
fn every_field_has_the_offset_of_the_specification() {
    assert_layout!(Controller {
        pci_vendor_id: 0..=1,
        pci_subsystem_vendor_id: 2..=3,
        serial_number_bytes: 4..=23,
        model_number_bytes: 24..=63,
        firmware_revision_bytes: 64..=71,
        arbitration_burst: 72..=72,
        ieee_oui: 73..=75,
        sharing: 76..=76,
        max_transfer_exponent: 77..=77,
        controller_id: 78..=79,
        version: 80..=83,
        resume_latency_us: 84..=87,
        entry_latency_us: 88..=91,
        async_events: 92..=95,
        attributes: 96..=99,
        read_recovery_levels: 100..=101,
        kind: 111..=111,
        fru_guid: 112..=127,
        command_retry_delays_100ms: 128..=133,
        management_interface: 240..=255,
        optional_admin_commands: 256..=257,
        abort_limit: 258..=258,
        async_event_limit: 259..=259,
        firmware_updates: 260..=260,
        log_attributes: 261..=261,
        error_log_entries: 262..=262,
        power_states_count: 263..=263,
        vendor_admin_format: 264..=264,
        autonomous_power: 265..=265,
        warning_temperature_kelvin: 266..=267,
        critical_temperature_kelvin: 268..=269,
        firmware_activation_100ms: 270..=271,
        host_memory_preferred: 272..=275,
        host_memory_minimum: 276..=279,
        total_capacity_bytes: 280..=295,
        unallocated_capacity_bytes: 296..=311,
        replay_protected_memory: 312..=315,
        self_test_minutes: 316..=317,
        self_test_options: 318..=318,
        firmware_granularity: 319..=319,
        keep_alive_granularity_100ms: 320..=321,
        thermal_management: 322..=323,
        thermal_minimum_kelvin: 324..=325,
        thermal_maximum_kelvin: 326..=327,
        sanitize_capabilities: 328..=331,
        host_memory_descriptor_minimum: 332..=335,
        host_memory_descriptors_max: 336..=337,
        nvm_sets_max: 338..=339,
        endurance_groups_max: 340..=341,
        ana_transition_seconds: 342..=342,
        ana_capabilities: 343..=343,
        ana_group_max: 344..=347,
        ana_groups: 348..=351,
        persistent_event_log_size: 352..=355,
        domain_id: 356..=357,
        endurance_group_capacity_max_bytes: 368..=383,
        submission_entry_sizes: 512..=512,
        completion_entry_sizes: 513..=513,
        max_outstanding_commands: 514..=515,
        namespaces_max: 516..=519,
        optional_commands: 520..=521,
        fused_operations: 522..=523,
        format_attributes: 524..=524,
        write_cache: 525..=525,
        atomic_write_normal: 526..=527,
        atomic_write_power_fail: 528..=529,
        vendor_io_format: 530..=530,
        write_protection: 531..=531,
        atomic_compare_write: 532..=533,
        copy_formats: 534..=535,
        sgl_support: 536..=539,
        allowed_namespaces_max: 540..=543,
        domain_attachments_max: 544..=559,
        controller_attachments_max: 560..=563,
        subsystem_nqn_bytes: 768..=1023,
        command_capsule_16b: 1792..=1795,
        response_capsule_16b: 1796..=1799,
        in_capsule_offset_16b: 1800..=1801,
        fabrics_attributes: 1802..=1802,
        data_descriptors_max: 1803..=1803,
        optional_fabrics_commands: 1804..=1805,
        power_states: 2048..=3071,
    });
    assert_layout!(PowerState {
        max_power: 0..=1,
        scale: 3..=3,
        entry_latency_us: 4..=7,
        exit_latency_us: 8..=11,
        relative_performance: 12..=15,
        idle_power: 16..=17,
        idle_power_scale: 18..=18,
        active_power: 20..=21,
        active_power_scale: 22..=22,
    });
}

/// The checks of the Linux 6.12 host on a Fabrics controller.
#[test]
fn a_tcp_controller_passes_the_checks_of_linux() {
    let page = Controller::io(&example()).unwrap();
    let bytes = page.bytes();
    assert_eq!(bytes[111], 1, "CNTRLTYPE");
    assert_eq!(&bytes[80..84], &[0, 0, 2, 0], "VER 2.0.0");
    assert_eq!(&bytes[78..80], &[7, 0], "CNTLID");
    assert_ne!(page.keep_alive_granularity_100ms.get(), 0);
    assert!(page.command_capsule_16b.get() >= 4 && page.response_capsule_16b.get() >= 1);
    assert_eq!(page.in_capsule_offset_16b.get(), 0);
    assert_eq!(page.sgl_support.get() & 0b111, sgl_support::SUPPORTED, "SGLs, not keyed");
    assert_ne!(page.sgl_support.get() & 1 << 20, 0, "in-capsule offset");
    assert_ne!(page.max_outstanding_commands.get(), 0);
    assert_eq!(page.async_events.get(), 1 << 8 | 1 << 27);
    assert_eq!((page.submission_entry_sizes, page.completion_entry_sizes), (0x66, 0x44));
    assert_ne!(page.sharing & 0b10, 0, "several controllers");
    assert_eq!(page.log_attributes, 0b110);
}

#[test]
fn an_io_controller_supports_compare_zeroes_deallocation_and_reservations() {
    let page = Controller::io(&example()).unwrap();
    let commands = page.optional_commands.get();
    assert_eq!(
        commands,
        optional_commands::COMPARE
            | optional_commands::DATASET_MANAGEMENT
            | optional_commands::WRITE_ZEROES
            | optional_commands::RESERVATIONS
    );
    assert_eq!(page.optional_admin_commands.get(), 0);
    assert_eq!(page.write_cache, 0b111);
    assert_eq!(
        Controller::io(&IoController { volatile_write_cache: false, flush_all_namespaces: false, ..example() })
            .unwrap()
            .write_cache,
        0b100
    );
    assert_eq!((page.async_event_limit, page.error_log_entries), (3, 63), "zero-based");
    assert!(page.has_attributes(attributes::LONG_HOST_IDENTIFIER | attributes::TRAFFIC_KEEPS_ALIVE));
    let quiet = Controller::io(&IoController { traffic_keeps_alive: false, ..example() }).unwrap();
    assert!(!quiet.has_attributes(attributes::TRAFFIC_KEEPS_ALIVE));
}

#[test]
fn a_controller_survives_encoding_and_parsing() {
    let page = Controller::io(&example()).unwrap();
    let read = Controller::parse(page.bytes()).unwrap();
    assert_eq!(read, page);
    assert_eq!(read.serial_number(), "0042");
    assert_eq!(read.model_number(), "zonda");
    assert_eq!(read.firmware_revision(), "0.1");
    assert_eq!(read.subsystem_nqn(), "nqn.2024-01.org.example:drive");
    assert_eq!(read.in_capsule_data_bytes(), 8192);
}

#[test]
fn a_discovery_controller_has_no_namespaces_and_reports_changes_of_its_log() {
    let page = Controller::discovery(&DiscoveryController {
        firmware_revision: "0.1",
        subsystem_nqn: "nqn.2014-08.org.nvmexpress.discovery",
        controller_id: 1,
        max_transfer_exponent: 5,
        max_outstanding_commands: 32,
        async_event_requests: 1,
        keep_alive_granularity_100ms: 10,
    })
    .unwrap();
    assert_eq!(page.kind, ControllerKind::Discovery as u8);
    assert_eq!(page.namespaces_max.get(), 0);
    assert_eq!(page.async_events.get(), 1 << 31);
    assert_eq!(page.in_capsule_data_bytes(), 0);
    assert_eq!(page.log_attributes & 0b100, 0b100, "reads of the log page at an offset");
}

#[test]
fn invalid_values_are_refused_by_field_name() {
    let refused = |with: IoController<'_>| match Controller::io(&with) {
        Err(PageError::Value { field, .. } | PageError::Text { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(IoController { serial_number: "a serial number of 30 characters", ..example() }), "SN");
    assert_eq!(refused(IoController { model_number: "m\u{f6}del", ..example() }), "MN");
    assert_eq!(refused(IoController { subsystem_nqn: "", ..example() }), "SUBNQN");
    assert_eq!(refused(IoController { in_capsule_data_bytes: 8, ..example() }), "in-capsule data (IOCCSZ)");
    assert_eq!(refused(IoController { max_outstanding_commands: 0, ..example() }), "outstanding commands (MAXCMD)");
    assert_eq!(refused(IoController { async_event_requests: 0, ..example() }), "asynchronous event requests (AERL)");
    assert_eq!(refused(IoController { error_log_entries: 0, ..example() }), "error log entries (ELPE)");
}

#[test]
fn the_transfer_limit_of_a_controller_is_valid_for_all_its_namespaces() {
    let large = Geometry { block_size_bytes: 4096, max_transfer_blocks: Blocks(256), ..Geometry::tiny() };
    let small = Geometry { block_size_bytes: 512, max_transfer_blocks: Blocks(256), ..Geometry::tiny() };
    assert_eq!(Controller::max_transfer_exponent_for([&large]), Ok(8));
    assert_eq!(Controller::max_transfer_exponent_for([&large, &small]), Ok(5));
    assert!(Controller::max_transfer_exponent_for([&large, &Geometry::tiny()]).is_err(), "4 KiB has no code");
}

#[test]
fn invalid_capsule_sizes_allow_no_in_capsule_data() {
    let mut page = Controller::empty();
    assert_eq!(page.in_capsule_data_bytes(), 0);
    page.command_capsule_16b = u32::MAX.into();
    assert_eq!(page.in_capsule_data_bytes(), u32::MAX - 64);
}
