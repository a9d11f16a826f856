//! Zones over the wire: management, reports, and every status with its code.

use bytes::Bytes;
use zonda_nvme::features::AsyncEvent;
use zonda_nvme::log::{ChangedZonePage, GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_nvme::zns::ReportFormat;
use zonda_nvme::{AdminOpcode, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{Completion, Lba, Operation, ReportFilter, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use super::world::{World, config, conventional, read, write, zoned};
use crate::{ConnectionId, DeviceKey, HostAccess};

fn manage(action: ZoneAction, target: ZoneTarget) -> Operation {
    Operation::ManageZones { action, target }
}

fn report(start: u64, filter: ReportFilter, extended: bool, partial: bool, descriptors_max: u32) -> Operation {
    Operation::ReportZones { start: Lba(start), filter, extended, partial, descriptors_max }
}

#[test]
fn zones_are_opened_closed_finished_and_reset_one_by_one_and_all_at_once() {
    let mut world = World::new();
    let io = world.io();
    let zone = ZoneTarget::Zone(Lba(64));
    for (action, state) in [
        (ZoneAction::Open { zrwa: false }, ZoneState::ExplicitlyOpened),
        (ZoneAction::Finish, ZoneState::Full),
        (ZoneAction::Reset, ZoneState::Empty),
    ] {
        assert_eq!(world.operate(io, 1, &manage(action, zone)).status, StatusCode::SUCCESS);
        assert_eq!(world.devices[0].descriptor(ZoneIndex(1)).state, state);
    }
    world.operate(io, 1, &write(0, 2, 1));
    world.operate(io, 1, &write(128, 2, 1));
    assert_eq!(world.operate(io, 1, &manage(ZoneAction::Reset, ZoneTarget::All)).status, StatusCode::SUCCESS);
    assert!((0..8).all(|zone| world.devices[0].descriptor(ZoneIndex(zone)).state == ZoneState::Empty));
}

#[test]
fn a_descriptor_extension_travels_to_the_zone_and_back() {
    let mut world = World::new();
    let io = world.io();
    let extension: Box<[u8]> = vec![0x5a; 64].into();
    let set = ZoneAction::SetDescriptorExtension { extension: extension.clone(), zrwa: false };
    assert_eq!(world.operate(io, 1, &manage(set, ZoneTarget::Zone(Lba(0)))).status, StatusCode::SUCCESS);
    let answer = world.operate(io, 1, &report(0, ReportFilter::All, true, true, 2));
    let format = ReportFormat { extension_bytes: Some(64), partial: true };
    let report = format.parse(&answer.data).unwrap();
    assert_eq!(report.zones.len(), 2);
    assert_eq!(report.zones[0].extension.as_deref(), Some(&extension[..]));
    assert!(report.zones[0].attributes.extension_valid && !report.zones[1].attributes.extension_valid);
}

#[test]
fn a_report_is_what_the_device_says() {
    let mut world = World::new();
    let io = world.io();
    world.operate(io, 1, &write(64, 5, 1));
    let format = ReportFormat { extension_bytes: None, partial: false };
    let answer = world.operate(io, 1, &report(0, ReportFilter::All, false, false, 3));
    assert_eq!(answer.data.len(), 64 + 3 * 64);
    let found = format.parse(&answer.data).unwrap();
    assert_eq!((found.matching_zones, found.zones.len()), (8, 3));
    assert_eq!(found.zones[1].write_pointer, Some(Lba(69)));
    let open = ReportFilter::State(ZoneState::ImplicitlyOpened);
    let answer = world.operate(io, 1, &report(0, open, false, false, 3));
    let found = format.parse(&answer.data).unwrap();
    assert_eq!((found.matching_zones, found.zones[0].start), (1, Lba(64)));
    // Only the header: how many zones there are.
    let answer = world.operate(io, 1, &report(0, ReportFilter::All, false, false, 0));
    assert_eq!((answer.data.len(), answer.data[0]), (64, 8));
}

#[test]
fn every_status_of_a_device_comes_through_with_its_code() {
    let mut world = World::new();
    let io = world.io();
    world.hold = true;
    for status in Status::ERRORS {
        let (entry, _) = world.encoded(1, &read(0, 1));
        let command = world.start(io, entry, &Bytes::new());
        let (device, submitted) = world.held.pop_front().unwrap();
        world.target.completed(world.now, device, Completion::of(submitted.id, status));
        world.settle();
        let answer = world.finish(io, command, Bytes::new());
        assert_eq!(answer.status.0, status as u16);
        assert!(answer.data.is_empty());
        // After some of them the device is asked for zones that have changed; it knows of none.
        while let Some((device, survey)) = world.held.pop_front() {
            world.complete(device, &survey);
        }
    }
}

#[test]
fn the_zone_rules_speak_through_the_wire() {
    let mut world = World::new();
    let io = world.io();
    assert_eq!(world.operate(io, 1, &write(1, 1, 1)).status, StatusCode::ZONE_INVALID_WRITE);
    assert_eq!(world.operate(io, 1, &write(0, 32, 1)).status, StatusCode::SUCCESS);
    assert_eq!(world.operate(io, 1, &write(32, 17, 1)).status, StatusCode::ZONE_BOUNDARY_ERROR);
    assert_eq!(world.operate(io, 1, &write(32, 16, 1)).status, StatusCode::SUCCESS);
    assert_eq!(world.operate(io, 1, &write(48, 1, 1)).status, StatusCode::ZONE_IS_FULL);
    for zone in 1..3 {
        let open = manage(ZoneAction::Open { zrwa: false }, ZoneTarget::Zone(Lba(zone * 64)));
        assert_eq!(world.operate(io, 1, &open).status, StatusCode::SUCCESS);
    }
    assert_eq!(world.operate(io, 1, &write(192, 1, 1)).status, StatusCode::TOO_MANY_OPEN_ZONES);
    assert_eq!(world.operate(io, 1, &read(10_000, 1)).status, StatusCode::LBA_OUT_OF_RANGE);
}

#[test]
fn a_conventional_namespace_knows_no_zone_commands() {
    let mut world = World::of(config(&[zoned(), conventional()], HostAccess::Any));
    let io = world.io();
    let reset = manage(ZoneAction::Reset, ZoneTarget::All);
    assert_eq!(world.operate(io, 2, &reset).status, StatusCode::INVALID_OPCODE);
    assert_eq!(world.operate(io, 2, &write(100, 4, 1)).status, StatusCode::SUCCESS, "anywhere");
    assert_eq!(world.operate(io, 1, &reset).status, StatusCode::SUCCESS);
}

fn want_zone_events(world: &mut World, admin: ConnectionId) {
    let mut wants = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 0);
    wants.cdw10 = 0x0b.into();
    wants.cdw11 = (1u32 << 27).into();
    assert_eq!(world.execute(admin, wants, Bytes::new()).status, StatusCode::SUCCESS);
}

#[test]
fn a_zone_that_fails_is_told_once_and_again_after_the_list_was_read() {
    let mut world = World::new();
    let (admin, _) = world.admin();
    want_zone_events(&mut world, admin);
    let request = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
    let first = world.start(admin, request, &Bytes::new());
    let second = world.start(admin, request, &Bytes::new());
    assert!(world.wire(admin).pdus.is_empty());
    world.devices[0].degrade(ZoneIndex(3), ZoneState::ReadOnly);
    for _ in 0..2 {
        world.target.zones_changed(world.now, DeviceKey(0));
    }
    world.settle();
    let event = AsyncEvent::decode(world.finish(admin, first, Bytes::new()).result);
    assert_eq!(event, AsyncEvent::zone_descriptor_changed(zonda_zoned::NamespaceId(1)));
    assert!(world.wire(admin).pdus.is_empty(), "told once");
    let page = |world: &mut World, retain_event| {
        let log = GetLogPage { retain_event, ..GetLogPage::of(LogPage::ChangedZones, 4096) };
        let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 1);
        let [cdw10, cdw11, ..] = log.encode();
        (entry.cdw10, entry.cdw11) = (cdw10.into(), cdw11.into());
        entry.data_pointer = SglDescriptor::transport(4096);
        let answer = world.execute(admin, entry, Bytes::new());
        ChangedZonePage::parse(&answer.data).unwrap().list(&zoned()).unwrap().zones
    };
    assert_eq!(page(&mut world, true), [ZoneIndex(3)]);
    assert_eq!(page(&mut world, false), [ZoneIndex(3)], "retained");
    assert_eq!(page(&mut world, false), []);
    world.devices[0].degrade(ZoneIndex(4), ZoneState::Offline);
    world.target.zones_changed(world.now, DeviceKey(0));
    world.settle();
    assert_eq!(world.finish(admin, second, Bytes::new()).status, StatusCode::SUCCESS);
}

#[test]
fn a_zone_that_fails_under_a_write_is_told_to_every_host_without_being_asked_for() {
    let mut world = World::new();
    let (admin, controller) = world.admin();
    let io = world.io_with(controller, 1, zonda_nvme::tcp::Digests::NONE, 0);
    let event = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
    want_zone_events(&mut world, admin);
    let waiting = world.start(admin, event, &Bytes::new());
    world.devices[0].degrade(ZoneIndex(1), ZoneState::ReadOnly);
    // A command that fails for another reason is no sign of it.
    assert_eq!(world.operate(io, 1, &read(1 << 40, 1)).status, StatusCode::LBA_OUT_OF_RANGE);
    assert_eq!(world.submitted.iter().filter(|name| **name == "read changed zones").count(), 0);
    assert_eq!(world.operate(io, 1, &write(64, 1, 1)).status, StatusCode::ZONE_IS_READ_ONLY);
    let told = AsyncEvent::decode(world.finish(admin, waiting, Bytes::new()).result);
    assert_eq!(told, AsyncEvent::zone_descriptor_changed(zonda_zoned::NamespaceId(1)));
    // Again: the device has nothing new to say, and the host is not told.
    let waiting = world.start(admin, event, &Bytes::new());
    assert_eq!(world.operate(io, 1, &write(64, 1, 1)).status, StatusCode::ZONE_IS_READ_ONLY);
    assert!(world.wire(admin).pdus.is_empty(), "{waiting}");
}
