//! Identify, log pages, features, events, and discovery.

use bytes::Bytes;
use zonda_nvme::features::{AsyncEvent, notices};
use zonda_nvme::identify::{
    CommandSet, CommandSetVector, Controller, IdentifyRequest, IndependentNamespace, NamespaceList, NvmNamespace,
    Structure, ZnsController, ZnsNamespace, geometry_from, parse_descriptors,
};
use zonda_nvme::log::{CommandEffects, ErrorEntry, FirmwareSlots, GetLogPage, LogPage, SmartLog, SupportedLogPages};
use zonda_nvme::page::Page;
use zonda_nvme::tcp::Digests;
use zonda_nvme::zns::ReportFormat;
use zonda_nvme::{AdminOpcode, IoOpcode, Nqn, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{Lba, NamespaceId, Operation, ReportFilter};

use super::testbed::{Answer, HOST, SUBSYSTEM, Testbed, config, conventional, nqn, read, write, zoned};
use crate::{ConnectionId, DeviceHealth, DeviceKey, HostAccess, HostEntry};

pub(super) fn identify(
    testbed: &mut Testbed,
    id: ConnectionId,
    structure: Structure,
    set: CommandSet,
    namespace: u32,
) -> Answer {
    let mut entry = SubmissionEntry::new(AdminOpcode::Identify.code(), namespace);
    let (cdw10, cdw11, cdw14) = IdentifyRequest::of(structure, set).encode();
    (entry.cdw10, entry.cdw11, entry.cdw14) = (cdw10.into(), cdw11.into(), cdw14.into());
    entry.data_pointer = SglDescriptor::transport(4096);
    testbed.execute(id, entry, Bytes::new())
}

pub(super) fn log(testbed: &mut Testbed, id: ConnectionId, request: GetLogPage, namespace: u32) -> Answer {
    let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), namespace);
    let [cdw10, cdw11, cdw12, cdw13, cdw14] = request.encode().map(Into::into);
    (entry.cdw10, entry.cdw11, entry.cdw12, entry.cdw13, entry.cdw14) = (cdw10, cdw11, cdw12, cdw13, cdw14);
    entry.data_pointer = SglDescriptor::transport(request.length_bytes as u32);
    testbed.execute(id, entry, Bytes::new())
}

fn feature(
    testbed: &mut Testbed,
    id: ConnectionId,
    opcode: AdminOpcode,
    dword10: u32,
    value: u32,
) -> (StatusCode, u64) {
    let mut entry = SubmissionEntry::new(opcode.code(), 0xffff_ffff);
    (entry.cdw10, entry.cdw11) = (dword10.into(), value.into());
    let answer = testbed.execute(id, entry, Bytes::new());
    (answer.status, answer.result)
}

#[test]
fn the_geometry_of_a_namespace_comes_out_of_identify() {
    let mut testbed = Testbed::of(config(&[zoned(), conventional()], HostAccess::Any));
    let (admin, cntlid) = testbed.admin();
    let io = testbed.io_with(cntlid, 1, Digests::NONE, 0);
    let everything = Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: 8,
    };
    let report = testbed.operate(io, 1, &everything).data;
    let report = ReportFormat { extension_bytes: None, partial: true }.parse(&report).unwrap();
    let controller = identify(&mut testbed, admin, Structure::Controller, CommandSet::Nvm, 0).data;
    let controller = Controller::parse(&controller).unwrap();
    assert_eq!(controller.controller_id.get(), cntlid);
    assert_eq!(controller.subsystem_nqn(), SUBSYSTEM);
    assert_eq!(controller.in_capsule_data_bytes(), 8192);
    let list = identify(&mut testbed, admin, Structure::ActiveNamespaces, CommandSet::Nvm, 0).data;
    let active: Vec<u32> = NamespaceList::parse(&list).unwrap().iter().map(|id| id.0).collect();
    assert_eq!(active, [1, 2]);
    let zoned_ids = identify(&mut testbed, admin, Structure::CommandSetActiveNamespaces, CommandSet::Zoned, 0).data;
    assert_eq!(NamespaceList::parse(&zoned_ids).unwrap().iter().collect::<Vec<_>>(), [NamespaceId(1)]);

    let descriptors = identify(&mut testbed, admin, Structure::NamespaceDescriptors, CommandSet::Nvm, 1).data;
    let (identity, set) = parse_descriptors(&descriptors).unwrap();
    assert_eq!((identity.uuid, set), (Some([1; 16]), Some(CommandSet::Zoned as u8)));
    let namespace = identify(&mut testbed, admin, Structure::Namespace, CommandSet::Nvm, 1).data;
    let namespace = NvmNamespace::parse(&namespace).unwrap();
    let zns = identify(&mut testbed, admin, Structure::CommandSetNamespace, CommandSet::Zoned, 1).data;
    let zns_controller = identify(&mut testbed, admin, Structure::CommandSetController, CommandSet::Zoned, 0).data;
    let zoned_pages = zonda_nvme::identify::ZonedPages {
        namespace: &ZnsNamespace::parse(&zns).unwrap(),
        controller: &ZnsController::parse(&zns_controller).unwrap(),
        zones: &report.zones,
    };
    let found = geometry_from(&controller, &namespace, Some(zoned_pages)).unwrap();
    assert_eq!(found, zoned());

    let independent = identify(&mut testbed, admin, Structure::IndependentNamespace, CommandSet::Nvm, 2).data;
    assert!(IndependentNamespace::parse(&independent).unwrap().is_ready());
    let sets = identify(&mut testbed, admin, Structure::CommandSets, CommandSet::Nvm, 0).data;
    let both = [CommandSet::Nvm, CommandSet::Zoned];
    assert_eq!(CommandSetVector::parse(&sets).unwrap().combination_with(&both), Some(0));
}

#[test]
fn identify_refuses_unsupported_structures_and_namespaces() {
    let mut testbed = Testbed::new();
    let (admin, _) = testbed.admin();
    for (structure, set, namespace, expected) in [
        (Structure::Namespace, CommandSet::Nvm, 0, StatusCode::INVALID_NAMESPACE),
        (Structure::Namespace, CommandSet::Nvm, 9, StatusCode::INVALID_NAMESPACE),
        (Structure::CommandSetNamespace, CommandSet::KeyValue, 1, StatusCode::INVALID_FIELD),
        (Structure::ActiveNamespaces, CommandSet::Nvm, 0xffff_fffe, StatusCode::INVALID_NAMESPACE),
    ] {
        assert_eq!(identify(&mut testbed, admin, structure, set, namespace).status, expected);
    }
    let mut unknown = SubmissionEntry::new(AdminOpcode::Identify.code(), 0);
    unknown.cdw10 = 0x7f.into();
    unknown.data_pointer = SglDescriptor::transport(4096);
    assert_eq!(testbed.execute(admin, unknown, Bytes::new()).status, StatusCode::INVALID_FIELD);
    let too_small = SubmissionEntry::new(AdminOpcode::Identify.code(), 1);
    assert_eq!(testbed.execute(admin, too_small, Bytes::new()).status, StatusCode::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn log_pages_report_what_has_happened() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.operate(io, 1, &write(0, 32, 1));
    testbed.operate(io, 1, &read(0, 8));
    assert_eq!(testbed.operate(io, 1, &write(0, 1, 1)).status, StatusCode::ZONE_INVALID_WRITE);

    let errors = log(&mut testbed, admin, GetLogPage::of(LogPage::ErrorInformation, 128), 0).data;
    let newest = ErrorEntry::parse(&errors).unwrap();
    assert_eq!((newest.count.get(), newest.queue.get(), newest.namespace.get()), (1, 1, 1));
    assert_eq!(StatusCode::from_status_field(newest.status.get()), StatusCode::ZONE_INVALID_WRITE);
    assert!(!ErrorEntry::parse(&errors[64..]).unwrap().is_used());

    let smart = log(&mut testbed, admin, GetLogPage::of(LogPage::Smart, 512), 0xffff_ffff).data;
    let smart = SmartLog::parse(&smart).unwrap();
    assert_eq!((smart.host_reads.get(), smart.host_writes.get(), smart.error_log_entries.get()), (1, 1, 1));
    let firmware = log(&mut testbed, admin, GetLogPage::of(LogPage::FirmwareSlot, 512), 0).data;
    assert_eq!(FirmwareSlots::parse(&firmware).unwrap().active_revision().as_deref(), Some("1.0"));
    for (set, append) in [(CommandSet::Nvm, false), (CommandSet::Zoned, true)] {
        let request = GetLogPage { command_set: set as u8, ..GetLogPage::of(LogPage::CommandEffects, 4096) };
        let effects = log(&mut testbed, admin, request, 0).data;
        assert_eq!(CommandEffects::parse(&effects).unwrap().has_io(IoOpcode::ZoneAppend.code()), append);
    }
    let supported = log(&mut testbed, admin, GetLogPage::of(LogPage::SupportedPages, 1024), 0).data;
    let supported = SupportedLogPages::parse(&supported).unwrap();
    assert!(supported.has(0xbf) && supported.has(0x02) && !supported.has(0x70));

    let request = GetLogPage { offset: 64, ..GetLogPage::of(LogPage::ErrorInformation, 64) };
    assert_eq!(log(&mut testbed, admin, request, 0).data, [0; 64]);
    let request = GetLogPage { offset: 1 << 40, ..GetLogPage::of(LogPage::Smart, 64) };
    assert_eq!(log(&mut testbed, admin, request, 0).status, StatusCode::INVALID_FIELD);
    let huge = GetLogPage::of(LogPage::Smart, 1 << 33);
    let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 0);
    let [cdw10, cdw11, ..] = huge.encode();
    (entry.cdw10, entry.cdw11) = (cdw10.into(), cdw11.into());
    assert_eq!(testbed.execute(admin, entry, Bytes::new()).status, StatusCode::INVALID_FIELD);
}

#[test]
fn features_are_set_read_and_limited() {
    use AdminOpcode::{GetFeatures, SetFeatures};
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let success = StatusCode::SUCCESS;
    assert_eq!(
        feature(&mut testbed, admin, SetFeatures, 0x07, 0x0001_0003),
        (success, 0x0001_0001),
        "the smaller number of queues"
    );
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x07, 0), (success, 0x0001_0001));
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x06, 0), (success, 1));
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x06, 0).0, StatusCode::FEATURE_NOT_CHANGEABLE);
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x0f, 0), (success, 5000));
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x0f, 1234), (success, 0));
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x0f, 0), (success, 1300), "rounded up to KAS");
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x0f, u32::MAX).0, StatusCode::KEEP_ALIVE_TIMEOUT_INVALID);
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x04, 350), (success, 0));
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x04, 0), (success, 350));
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x04 | 1 << 8, 0), (success, 343), "the default");
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x04 | 1 << 31, 350).0, StatusCode::FEATURE_NOT_SAVEABLE);
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x02, 1).0, StatusCode::INVALID_FIELD);
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x55, 0).0, StatusCode::INVALID_FIELD);
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x0b, u32::MAX), (success, 0));
    let wanted = notices::NAMESPACE_ATTRIBUTE | notices::ZONE_DESCRIPTOR | 0xff;
    assert_eq!(feature(&mut testbed, admin, GetFeatures, 0x0b, 0), (success, wanted.into()));
    testbed.io_with(controller, 1, Digests::NONE, 0);
    assert_eq!(feature(&mut testbed, admin, SetFeatures, 0x07, 0).0, StatusCode::COMMAND_SEQUENCE_ERROR);

    let mut behavior = SubmissionEntry::new(SetFeatures.code(), 0);
    behavior.cdw10 = 0x16.into();
    behavior.data_pointer = SglDescriptor::transport(512);
    let data: Bytes = vec![1; 512].into();
    assert_eq!(testbed.execute(admin, behavior, data.clone()).status, success);
    behavior.opcode = GetFeatures.code();
    assert_eq!(testbed.execute(admin, behavior, Bytes::new()).data, data);
    behavior.cdw10 = 0x81.into();
    behavior.data_pointer = SglDescriptor::transport(8);
    assert_eq!(testbed.execute(admin, behavior, Bytes::new()).status, StatusCode::INVALID_FIELD);
    behavior.cdw11 = 1.into();
    behavior.data_pointer = SglDescriptor::transport(16);
    assert_eq!(testbed.execute(admin, behavior, Bytes::new()).data, [7; 16]);
}

#[test]
fn event_requests_are_limited_can_be_aborted_and_report_health() {
    let mut testbed = Testbed::new();
    let (admin, _) = testbed.admin();
    let request = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
    let waiting: Vec<u16> = (0..4).map(|_| testbed.start(admin, request, &Bytes::new())).collect();
    let one_more = testbed.execute(admin, request, Bytes::new());
    assert_eq!(one_more.status, StatusCode::ASYNC_EVENT_LIMIT_EXCEEDED);
    let mut abort = SubmissionEntry::new(AdminOpcode::Abort.code(), 0);
    abort.cdw10 = (u32::from(waiting[1]) << 16).into();
    assert_eq!(testbed.execute(admin, abort, Bytes::new()).result, 0, "aborted");
    assert_eq!(testbed.finish(admin, waiting[1], Bytes::new()).status, StatusCode::ABORT_REQUESTED);
    assert_eq!(testbed.execute(admin, abort, Bytes::new()).result, 1, "the command is not outstanding any more");

    feature(&mut testbed, admin, AdminOpcode::SetFeatures, 0x0b, 0xff | notices::NAMESPACE_ATTRIBUTE);
    let ill = DeviceHealth { spare_percent: 5, ..DeviceHealth::default() };
    for _ in 0..2 {
        testbed.target.set_health(testbed.now, DeviceKey(0), ill);
        testbed.run_until_idle();
    }
    let event = AsyncEvent::decode(testbed.finish(admin, waiting[0], Bytes::new()).result);
    assert_eq!(event, AsyncEvent::spare_below_threshold());
    testbed.target.on_namespace_changed(testbed.now, DeviceKey(0));
    testbed.run_until_idle();
    let event = AsyncEvent::decode(testbed.finish(admin, waiting[2], Bytes::new()).result);
    assert_eq!(event, AsyncEvent::namespace_attribute_changed());
    let list = log(&mut testbed, admin, GetLogPage::of(LogPage::ChangedNamespaces, 4096), 0).data;
    assert_eq!(list[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let list = log(&mut testbed, admin, GetLogPage::of(LogPage::ChangedNamespaces, 4096), 0).data;
    assert_eq!(list[..4], [0; 4], "read once");
}

#[test]
fn the_same_warning_is_reported_again_once_its_log_page_was_read_and_not_before() {
    for is_read in [false, true] {
        let mut testbed = Testbed::new();
        let (admin, _) = testbed.admin();
        let request = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
        let waiting = [0, 1].map(|_| testbed.start(admin, request, &Bytes::new()));
        feature(&mut testbed, admin, AdminOpcode::SetFeatures, 0x0b, 0xff);
        let ill = DeviceHealth { spare_percent: 5, ..DeviceHealth::default() };
        for round in 0..2 {
            for health in [DeviceHealth::default(), ill] {
                testbed.target.set_health(testbed.now, DeviceKey(0), health);
                testbed.run_until_idle();
            }
            if round == 0 && is_read {
                log(&mut testbed, admin, GetLogPage::of(LogPage::Smart, 512), 0xffff_ffff);
            }
        }
        let event = AsyncEvent::decode(testbed.finish(admin, waiting[0], Bytes::new()).result);
        assert_eq!(event, AsyncEvent::spare_below_threshold());
        let mut abort = SubmissionEntry::new(AdminOpcode::Abort.code(), 0);
        abort.cdw10 = (u32::from(waiting[1]) << 16).into();
        let is_left = testbed.execute(admin, abort, Bytes::new()).result == 0;
        assert_eq!(is_left, !is_read, "the second request waits unless the page was read");
    }
}

#[test]
fn a_threshold_warns_at_once_if_the_temperature_is_beyond_it_and_otherwise_when_it_is_crossed() {
    let mut testbed = Testbed::new();
    let (admin, _) = testbed.admin();
    let request = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
    feature(&mut testbed, admin, AdminOpcode::SetFeatures, 0x0b, 0xff);
    let mut waiting = testbed.start(admin, request, &Bytes::new());
    let mut warning = |testbed: &mut Testbed| {
        let event = AsyncEvent::decode(testbed.finish(admin, waiting, Bytes::new()).result);
        assert_eq!(event, AsyncEvent::temperature_threshold());
        let page = log(testbed, admin, GetLogPage::of(LogPage::Smart, 512), 0xffff_ffff).data;
        waiting = testbed.start(admin, request, &Bytes::new());
        page[0]
    };
    // A drive of 298 K: over 290, then under 300, with the other threshold out of the way.
    feature(&mut testbed, admin, AdminOpcode::SetFeatures, 0x04, 290);
    assert_eq!(warning(&mut testbed), 0b10, "over");
    feature(&mut testbed, admin, AdminOpcode::SetFeatures, 0x04, 343);
    feature(&mut testbed, admin, AdminOpcode::SetFeatures, 0x04, 0x10_0000 | 300);
    assert_eq!(warning(&mut testbed), 0b10, "under");
    feature(&mut testbed, admin, AdminOpcode::SetFeatures, 0x04, 0x10_0000);
    let page = log(&mut testbed, admin, GetLogPage::of(LogPage::Smart, 512), 0xffff_ffff).data;
    assert_eq!(page[0], 0, "no warning is left");
    let hot = DeviceHealth { temperature_kelvin: 343, ..DeviceHealth::default() };
    for _ in 0..2 {
        testbed.target.set_health(testbed.now, DeviceKey(0), hot);
        testbed.run_until_idle();
    }
    assert_eq!(warning(&mut testbed), 0b10, "as hot as the threshold");
    assert!(testbed.wire(admin).pdus.is_empty(), "once");
}

#[test]
fn admin_commands_wait_for_the_controller_to_be_enabled() {
    let mut testbed = Testbed::new();
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    testbed.connect_as(id, HOST, SUBSYSTEM, 0, None, 0);
    let answer = identify(&mut testbed, id, Structure::Controller, CommandSet::Nvm, 0);
    assert_eq!(answer.status, StatusCode::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn a_portal_on_every_address_is_reported_with_the_address_that_the_host_has_connected_to() {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.portals[0].address = "0.0.0.0".to_owned();
    let mut testbed = Testbed::of(config);
    let id = testbed.open();
    testbed.target.on_local_address(id, "198.51.100.7");
    testbed.initialize(id, Digests::NONE, 0);
    assert_eq!(testbed.connect_as(id, HOST, Nqn::DISCOVERY, 0, None, 0).status, StatusCode::SUCCESS);
    testbed.enable(id);
    let page = log(&mut testbed, id, GetLogPage::of(LogPage::Discovery, 4096), 0).data;
    let (_, entries) = zonda_nvme::discovery::parse_log(&page).unwrap();
    assert_eq!(entries[0].address(), "198.51.100.7");
}

#[test]
fn the_discovery_service_reports_to_each_host_its_own_subsystems() {
    let entry = HostEntry { nqn: nqn(HOST), secret: None, controller_secret: None };
    let mut testbed = Testbed::of(config(&[zoned()], HostAccess::Hosts(vec![entry])));
    for (host, records) in [(HOST, 1), ("nqn.2024-01.org.example:unlisted", 0)] {
        let id = testbed.open();
        testbed.initialize(id, Digests::NONE, 0);
        assert_eq!(testbed.connect_as(id, host, Nqn::DISCOVERY, 0, None, 0).status, StatusCode::SUCCESS);
        testbed.enable(id);
        let controller = identify(&mut testbed, id, Structure::Controller, CommandSet::Nvm, 0).data;
        assert_eq!(Controller::parse(&controller).unwrap().kind, 2);
        // As nvme-cli reads it: the counts, the records after the header, then the counts again.
        let head = log(&mut testbed, id, GetLogPage::of(LogPage::Discovery, 20), 0).data;
        assert_eq!(head[8], records);
        let page = log(&mut testbed, id, GetLogPage::of(LogPage::Discovery, 4096), 0).data;
        let (_, entries) = zonda_nvme::discovery::parse_log(&page).unwrap();
        assert_eq!(entries.len(), usize::from(records));
        if let Some(entry) = entries.first() {
            assert_eq!((entry.subsystem_nqn(), entry.address()), (SUBSYSTEM.to_owned(), "192.0.2.1".to_owned()));
        }
        let list = identify(&mut testbed, id, Structure::ActiveNamespaces, CommandSet::Nvm, 0);
        assert_eq!(list.status, StatusCode::INVALID_FIELD);
    }
}
