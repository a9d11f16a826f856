//! Write protected namespaces: commands that would change data or zones fail before they reach a
//! device.

use bytes::Bytes;
use zonda_nvme::identify::{CommandSet, Structure};
use zonda_nvme::log::{GetLogPage, LogPage};
use zonda_nvme::reservation::{PersistChange, RegisterAction, ReservationCommand};
use zonda_nvme::{AdminOpcode, IoOpcode, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{BlockBuffer, Blocks, Lba, LbaRange, Operation, Payload, ReportFilter, ZoneAction, ZoneTarget};

use super::admin::{identify, log};
use super::reservations::{CONFLICT, EXCLUSIVE};
use super::testbed::{Testbed, config, conventional, pattern, read, write, zoned};
use crate::{DeviceKey, HostAccess, TargetConfig};

const SUCCESS: StatusCode = StatusCode::SUCCESS;
const PROTECTED: StatusCode = StatusCode::NAMESPACE_WRITE_PROTECTED;

/// Two write protected namespaces, one with zones and one without, and a third that is not
/// protected.
fn protected() -> TargetConfig {
    let mut config = config(&[zoned(), conventional(), conventional()], HostAccess::Any);
    config.write_protected = [DeviceKey(0), DeviceKey(1)].into();
    for namespace in &mut config.subsystems[0].namespaces {
        namespace.volatile_write_cache = namespace.device == DeviceKey(2);
    }
    config
}

fn append() -> Operation {
    let payload = Payload::Bytes(Box::new(BlockBuffer { data: pattern(2, 512, 1), metadata: Bytes::new() }));
    Operation::Append { zone_start: Lba(0), blocks: Blocks(2), payload }
}

fn deallocate() -> Operation {
    Operation::Deallocate { ranges: [LbaRange { start: Lba(0), blocks: Blocks(2) }].into() }
}

/// Every operation that can change a zone or a block.
fn changes() -> Vec<Operation> {
    let actions = [
        ZoneAction::Open { zrwa: false },
        ZoneAction::Close,
        ZoneAction::Finish,
        ZoneAction::Reset,
        ZoneAction::Offline,
        ZoneAction::SetDescriptorExtension { extension: [0x5a; 64].into(), zrwa: false },
        ZoneAction::FlushZrwa,
    ];
    let of_one = |action| Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(64)) };
    let mut all: Vec<Operation> = actions.into_iter().map(of_one).collect();
    all.extend(
        [ZoneAction::Open { zrwa: false }, ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset]
            .map(|action| Operation::ManageZones { action, target: ZoneTarget::All }),
    );
    all.extend([append()]);
    all.extend(changes_of_blocks());
    all
}

fn changes_of_blocks() -> [Operation; 3] {
    [write(0, 2, 1), Operation::WriteZeroes { start: Lba(0), blocks: Blocks(2) }, deallocate()]
}

#[test]
fn every_command_that_would_change_data_or_zones_fails_as_write_protected_and_reaches_no_device() {
    let mut testbed = Testbed::of(protected());
    let io = testbed.io();
    for (namespace, operations) in [(1, changes()), (2, changes_of_blocks().to_vec())] {
        for operation in operations {
            let (entry, data) = testbed.encoded(namespace, &operation);
            let command = testbed.start(io, entry, &Bytes::new());
            assert_eq!(testbed.r2ts_received(io), 0, "no data is solicited for a refused write: {operation:?}");
            assert_eq!(testbed.finish(io, command, data.clone()).status, PROTECTED, "{operation:?}");
            if !data.is_empty() {
                let status = testbed.execute_in_capsule(io, entry, data).status;
                assert_eq!(status, PROTECTED, "in the capsule: {operation:?}");
            }
        }
    }
    assert_eq!(PROTECTED, StatusCode(0x020), "generic, 20h");
    assert!(!PROTECTED.may_retry(), "a host does not retry");
    assert!(testbed.submitted.is_empty(), "{:?}", testbed.submitted);
    for operation in changes_of_blocks() {
        assert_eq!(testbed.operate(io, 3, &operation).status, SUCCESS, "another namespace: {operation:?}");
    }
}

#[test]
fn commands_that_change_nothing_succeed_and_open_no_zone() {
    let mut testbed = Testbed::of(protected());
    let io = testbed.io();
    assert_eq!(testbed.operate(io, 1, &read(0, 2)).data, [0; 1024]);
    let (mut compare, _) = testbed.encoded(1, &write(0, 2, 1));
    compare.opcode = IoOpcode::Compare.code();
    assert_eq!(testbed.execute(io, compare, vec![0; 1024].into()).status, SUCCESS);
    assert_eq!(testbed.operate(io, 1, &Operation::Flush).status, SUCCESS);
    let report = Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::State(zonda_zoned::ZoneState::Empty),
        extended: false,
        partial: false,
        descriptors_max: 8,
    };
    let found = testbed.operate(io, 1, &report);
    assert_eq!((found.status, found.data[0]), (SUCCESS, 8), "all zones are empty as before");
    // A hint without deallocation.
    let (mut advice, data) = testbed.encoded(2, &deallocate());
    advice.cdw11 = 0.into();
    assert_eq!(testbed.execute(io, advice, data).status, SUCCESS);
    // Force Unit Access needs no flush without volatile data.
    let (mut fua, _) = testbed.encoded(2, &read(0, 2));
    fua.cdw12 = (fua.cdw12.get() | 1 << 30).into();
    assert_eq!(testbed.execute(io, fua, Bytes::new()).status, SUCCESS);
    assert_eq!(testbed.submitted, ["read", "read", "flush", "report zones", "read"]);
}

#[test]
fn the_namespace_attributes_report_the_protection_and_there_is_no_media_warning() {
    let mut testbed = Testbed::of(protected());
    let (admin, _) = testbed.admin();
    for (namespace, set, expected) in [(1, CommandSet::Zoned, 1), (2, CommandSet::Nvm, 1), (3, CommandSet::Nvm, 0)] {
        let own = identify(&mut testbed, admin, Structure::Namespace, set, namespace);
        let independent = identify(&mut testbed, admin, Structure::IndependentNamespace, set, namespace);
        assert_eq!((own.data[99], independent.data[8]), (expected, expected), "NSATTR of namespace {namespace}");
    }
    let smart = log(&mut testbed, admin, GetLogPage::of(LogPage::Smart, 512), 0xffff_ffff);
    assert_eq!((smart.status, smart.data[0]), (SUCCESS, 0), "Critical Warning");
}

#[test]
fn saved_reservations_are_enforced_and_changes_are_lost_with_the_server() {
    let register =
        |persist| ReservationCommand::Register { action: RegisterAction::Register, ignores_key: false, persist };
    let mut config_with_reservations = config(&[conventional()], HostAccess::Any);
    config_with_reservations.saved_reservations.insert(DeviceKey(0), Bytes::new());
    let mut testbed = Testbed::of(config_with_reservations.clone());
    let owner = testbed.host(1);
    assert_eq!(testbed.reserve(owner, &register(PersistChange::Set), 0, owner.key), SUCCESS);
    assert_eq!(testbed.acquire(owner, EXCLUSIVE), SUCCESS);

    config_with_reservations.saved_reservations.clone_from(&testbed.saved);
    config_with_reservations.write_protected = [DeviceKey(0)].into();
    let mut testbed = Testbed::of(config_with_reservations);
    let (owner, other) = (testbed.host(1), testbed.host(2));
    assert_eq!(testbed.operate(other.io, 1, &read(0, 1)).status, CONFLICT, "the owner's reservation is restored");
    assert_eq!(testbed.operate(owner.io, 1, &read(0, 1)).status, SUCCESS);
    assert_eq!(testbed.operate(owner.io, 1, &write(0, 1, 1)).status, PROTECTED);
    assert!(!testbed.report(owner, 4096).persists, "later changes do not persist");
    assert_eq!(testbed.reserve(other, &register(PersistChange::Set), 0, other.key), StatusCode::INVALID_FIELD);
    assert_eq!(testbed.reserve(other, &register(PersistChange::Keep), 0, other.key), SUCCESS);
    assert_eq!(testbed.report(other, 4096).controllers.len(), 2);
    let mut identify = SubmissionEntry::new(AdminOpcode::Identify.code(), 1);
    identify.data_pointer = SglDescriptor::transport(4096);
    assert_eq!(testbed.execute(owner.admin, identify, Bytes::new()).data[31] & 1, 0, "RESCAP");
    assert!(testbed.saved.is_empty() && testbed.saving.is_empty(), "the device saves nothing");
}
