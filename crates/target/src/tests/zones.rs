//! Zones over the wire: management, reports, and every status with its code.

use bytes::Bytes;
use zonda_nvme::features::AsyncEvent;
use zonda_nvme::log::{ChangedZonePage, GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_nvme::zns::ReportFormat;
use zonda_nvme::{AdminOpcode, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{Completion, Lba, Operation, ReportFilter, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use super::testbed::{Testbed, config, conventional, read, write, zoned};
use crate::{ConnectionId, DeviceKey, HostAccess};

fn manage(action: ZoneAction, target: ZoneTarget) -> Operation {
    Operation::ManageZones { action, target }
}

fn report(start: u64, filter: ReportFilter, extended: bool, partial: bool, descriptors_max: u32) -> Operation {
    Operation::ReportZones { start: Lba(start), filter, extended, partial, descriptors_max }
}

#[test]
fn zones_are_opened_closed_finished_and_reset_one_by_one_and_all_at_once() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    let zone = ZoneTarget::Zone(Lba(64));
    for (action, state) in [
        (ZoneAction::Open { zrwa: false }, ZoneState::ExplicitlyOpened),
        (ZoneAction::Finish, ZoneState::Full),
        (ZoneAction::Reset, ZoneState::Empty),
    ] {
        assert_eq!(testbed.operate(io, 1, &manage(action, zone)).status, StatusCode::SUCCESS);
        assert_eq!(testbed.devices[0].descriptor(ZoneIndex(1)).state, state);
    }
    testbed.operate(io, 1, &write(0, 2, 1));
    testbed.operate(io, 1, &write(128, 2, 1));
    assert_eq!(testbed.operate(io, 1, &manage(ZoneAction::Reset, ZoneTarget::All)).status, StatusCode::SUCCESS);
    assert!((0..8).all(|zone| testbed.devices[0].descriptor(ZoneIndex(zone)).state == ZoneState::Empty));
}

#[test]
fn a_descriptor_extension_travels_to_the_zone_and_back() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    let extension: Box<[u8]> = vec![0x5a; 64].into();
    let set = ZoneAction::SetDescriptorExtension { extension: extension.clone(), zrwa: false };
    assert_eq!(testbed.operate(io, 1, &manage(set, ZoneTarget::Zone(Lba(0)))).status, StatusCode::SUCCESS);
    let answer = testbed.operate(io, 1, &report(0, ReportFilter::All, true, true, 2));
    let format = ReportFormat { extension_bytes: Some(64), partial: true };
    let report = format.parse(&answer.data).unwrap();
    assert_eq!(report.zones.len(), 2);
    assert_eq!(report.zones[0].extension.as_deref(), Some(&extension[..]));
    assert!(report.zones[0].attributes.extension_valid && !report.zones[1].attributes.extension_valid);
}

#[test]
fn a_zone_report_equals_that_of_the_device() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.operate(io, 1, &write(64, 5, 1));
    let format = ReportFormat { extension_bytes: None, partial: false };
    let answer = testbed.operate(io, 1, &report(0, ReportFilter::All, false, false, 3));
    assert_eq!(answer.data.len(), 64 + 3 * 64);
    let found = format.parse(&answer.data).unwrap();
    assert_eq!((found.matching_zones, found.zones.len()), (8, 3));
    assert_eq!(found.zones[1].write_pointer, Some(Lba(69)));
    let open = ReportFilter::State(ZoneState::ImplicitlyOpened);
    let answer = testbed.operate(io, 1, &report(0, open, false, false, 3));
    let found = format.parse(&answer.data).unwrap();
    assert_eq!((found.matching_zones, found.zones[0].start), (1, Lba(64)));
    // Only the header: the number of zones.
    let answer = testbed.operate(io, 1, &report(0, ReportFilter::All, false, false, 0));
    assert_eq!((answer.data.len(), answer.data[0]), (64, 8));
}

#[test]
fn every_status_of_a_device_is_returned_with_its_code() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    testbed.hold = true;
    for status in Status::ERRORS {
        let (entry, _) = testbed.encoded(1, &read(0, 1));
        let command = testbed.start(io, entry, &Bytes::new());
        let (device, submitted) = testbed.held.pop_front().unwrap();
        testbed.target.on_completion(testbed.now, device, Completion::of(submitted.id, status));
        testbed.run_until_idle();
        let answer = testbed.finish(io, command, Bytes::new());
        assert_eq!(answer.status.0, status as u16);
        assert!(answer.data.is_empty());
        // After some of them the changed zones of the device are read; there are none.
        while let Some((device, survey)) = testbed.held.pop_front() {
            testbed.complete(device, &survey);
        }
    }
}

#[test]
fn zone_rules_are_enforced_over_the_wire() {
    let mut testbed = Testbed::new();
    let io = testbed.io();
    assert_eq!(testbed.operate(io, 1, &write(1, 1, 1)).status, StatusCode::ZONE_INVALID_WRITE);
    assert_eq!(testbed.operate(io, 1, &write(0, 32, 1)).status, StatusCode::SUCCESS);
    assert_eq!(testbed.operate(io, 1, &write(32, 17, 1)).status, StatusCode::ZONE_BOUNDARY_ERROR);
    assert_eq!(testbed.operate(io, 1, &write(32, 16, 1)).status, StatusCode::SUCCESS);
    assert_eq!(testbed.operate(io, 1, &write(48, 1, 1)).status, StatusCode::ZONE_IS_FULL);
    for zone in 1..3 {
        let open = manage(ZoneAction::Open { zrwa: false }, ZoneTarget::Zone(Lba(zone * 64)));
        assert_eq!(testbed.operate(io, 1, &open).status, StatusCode::SUCCESS);
    }
    assert_eq!(testbed.operate(io, 1, &write(192, 1, 1)).status, StatusCode::TOO_MANY_OPEN_ZONES);
    assert_eq!(testbed.operate(io, 1, &read(10_000, 1)).status, StatusCode::LBA_OUT_OF_RANGE);
}

#[test]
fn a_conventional_namespace_supports_no_zone_commands() {
    let mut testbed = Testbed::of(config(&[zoned(), conventional()], HostAccess::Any));
    let io = testbed.io();
    let reset = manage(ZoneAction::Reset, ZoneTarget::All);
    assert_eq!(testbed.operate(io, 2, &reset).status, StatusCode::INVALID_OPCODE);
    assert_eq!(testbed.operate(io, 2, &write(100, 4, 1)).status, StatusCode::SUCCESS, "anywhere");
    assert_eq!(testbed.operate(io, 1, &reset).status, StatusCode::SUCCESS);
}

fn want_zone_events(testbed: &mut Testbed, admin: ConnectionId) {
    let mut wants = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 0);
    wants.cdw10 = 0x0b.into();
    wants.cdw11 = (1u32 << 27).into();
    assert_eq!(testbed.execute(admin, wants, Bytes::new()).status, StatusCode::SUCCESS);
}

#[test]
fn a_failed_zone_is_reported_once_and_again_after_the_list_was_read() {
    let mut testbed = Testbed::new();
    let (admin, _) = testbed.admin();
    want_zone_events(&mut testbed, admin);
    let request = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
    let first = testbed.start(admin, request, &Bytes::new());
    let second = testbed.start(admin, request, &Bytes::new());
    assert!(testbed.wire(admin).pdus.is_empty());
    testbed.devices[0].degrade(ZoneIndex(3), ZoneState::ReadOnly);
    for _ in 0..2 {
        testbed.target.on_zones_changed(testbed.now, DeviceKey(0));
    }
    testbed.run_until_idle();
    let event = AsyncEvent::decode(testbed.finish(admin, first, Bytes::new()).result);
    assert_eq!(event, AsyncEvent::zone_descriptor_changed(zonda_zoned::NamespaceId(1)));
    assert!(testbed.wire(admin).pdus.is_empty(), "reported once");
    let page = |testbed: &mut Testbed, retain_event| {
        let log = GetLogPage { retain_event, ..GetLogPage::of(LogPage::ChangedZones, 4096) };
        let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 1);
        let [cdw10, cdw11, ..] = log.encode();
        (entry.cdw10, entry.cdw11) = (cdw10.into(), cdw11.into());
        entry.data_pointer = SglDescriptor::transport(4096);
        let answer = testbed.execute(admin, entry, Bytes::new());
        ChangedZonePage::parse(&answer.data).unwrap().list(&zoned()).unwrap().zones
    };
    assert_eq!(page(&mut testbed, true), [ZoneIndex(3)]);
    assert_eq!(page(&mut testbed, false), [ZoneIndex(3)], "retained");
    assert_eq!(page(&mut testbed, false), []);
    testbed.devices[0].degrade(ZoneIndex(4), ZoneState::Offline);
    testbed.target.on_zones_changed(testbed.now, DeviceKey(0));
    testbed.run_until_idle();
    assert_eq!(testbed.finish(admin, second, Bytes::new()).status, StatusCode::SUCCESS);
}

#[test]
fn a_zone_that_fails_under_a_write_is_reported_to_every_host() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, zonda_nvme::tcp::Digests::NONE, 0);
    let event = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
    want_zone_events(&mut testbed, admin);
    let waiting = testbed.start(admin, event, &Bytes::new());
    testbed.devices[0].degrade(ZoneIndex(1), ZoneState::ReadOnly);
    // Other errors do not cause a read of the changed zones.
    assert_eq!(testbed.operate(io, 1, &read(1 << 40, 1)).status, StatusCode::LBA_OUT_OF_RANGE);
    assert_eq!(testbed.submitted.iter().filter(|name| **name == "read changed zones").count(), 0);
    assert_eq!(testbed.operate(io, 1, &write(64, 1, 1)).status, StatusCode::ZONE_IS_READ_ONLY);
    let reported = AsyncEvent::decode(testbed.finish(admin, waiting, Bytes::new()).result);
    assert_eq!(reported, AsyncEvent::zone_descriptor_changed(zonda_zoned::NamespaceId(1)));
    // Again: the device has no new changes, and no event is reported.
    let waiting = testbed.start(admin, event, &Bytes::new());
    assert_eq!(testbed.operate(io, 1, &write(64, 1, 1)).status, StatusCode::ZONE_IS_READ_ONLY);
    assert!(testbed.wire(admin).pdus.is_empty(), "{waiting}");
}
