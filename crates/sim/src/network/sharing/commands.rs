//! Encodes the requests of hosts that share a namespace as NVMe commands, and decodes the
//! responses.

use bytes::Bytes;
use zonda_nvme::features::{Feature, FeatureRequest};
use zonda_nvme::io::{NamespaceFormat, Transfer, encode, encode_ranges};
use zonda_nvme::reservation::{
    AcquireAction, CONTROLLER_ID_NONE, PersistChange, RegisterAction, ReleaseAction, ReservationCommand,
    ReservationKey, ReservationKeys, ReservationStatus, ReservationType,
};
use zonda_nvme::{AdminOpcode, HostId, IoOpcode, SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::{
    BlockBuffer, Blocks, Geometry, Lba, LbaRange, NamespaceId, Operation, Payload, Prng, ReportFilter, ZoneAction,
    ZoneTarget,
};

use super::rules::{Request, Response};
use crate::drive::one_of;

/// Buffer size of a report: enough for all hosts, and for controllers that are about to be removed.
const REPORT_BYTES: u32 = 4096;
/// Number of reservation keys: few, so that some hosts have the same.
const KEYS: u64 = 3;

/// An encoded command.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) entry: SubmissionEntry,
    pub(super) data: Bytes,
    pub(super) is_admin: bool,
}

/// Generates the next request of a host. `own` is the key with which it believes to be registered.
pub(super) fn generate(prng: &mut Prng, own: Option<u64>, keeps: bool) -> Request {
    let key = |prng: &mut Prng| if prng.chance(1, 12) { 0 } else { 1 + prng.below(KEYS) };
    let current = match own {
        Some(own) if prng.chance(7, 8) => own,
        _ => key(prng),
    };
    let kind = 1 + prng.below(6) as u8;
    let weights: [u64; 8] = if own.is_some() { [22, 22, 16, 10, 14, 8, 6, 2] } else { [16, 16, 10, 50, 3, 2, 1, 2] };
    let mut number = prng.below(weights.iter().sum());
    let chosen = weights.iter().position(|&weight| {
        let is_it = number < weight;
        number = number.saturating_sub(weight);
        is_it
    });
    match chosen.expect("the number is below the sum of the weights") {
        0 => Request::Read,
        1 => Request::Write,
        2 => Request::Report,
        3 => {
            let action = if own.is_some() { prng.below(3) as u8 } else { one_of(prng, &[0, 0, 0, 0, 1, 2]) as u8 };
            let persist = one_of(prng, if keeps { &[0, 0, 2, 3, 3] } else { &[0, 0, 0, 2, 3] }) as u8;
            Request::Register { action, ignores_key: prng.chance(1, 4), persist, current, new: key(prng) }
        }
        4 => Request::Acquire { action: 0, kind, current, preempted: 0 },
        5 => Request::Acquire { action: 1 + prng.below(2) as u8, kind, current, preempted: key(prng) },
        6 => Request::Release { action: u8::from(prng.chance(1, 4)), kind, current },
        _ => Request::Persist(prng.chance(2, 3)),
    }
}

/// Encodes a request. Reads and writes become any command of their group.
pub(super) fn command(request: Request, namespace: NamespaceId, geometry: &Geometry, prng: &mut Prng) -> Sent {
    let keyed = |command: ReservationCommand, current: u64, other: u64, bytes: usize| {
        let keys = ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) };
        let data = Bytes::copy_from_slice(&keys.to_bytes()[..bytes]);
        Sent { entry: entry_of(command, namespace, bytes as u32), data, is_admin: false }
    };
    match request {
        Request::Register { action, ignores_key, persist, current, new } => {
            let action =
                [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace][action as usize];
            let persist = match persist {
                2 => PersistChange::Clear,
                3 => PersistChange::Set,
                _ => PersistChange::Keep,
            };
            keyed(ReservationCommand::Register { action, ignores_key, persist }, current, new, 16)
        }
        Request::Acquire { action, kind, current, preempted } => {
            let action =
                [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort][action as usize];
            let kind = ReservationType::ALL[kind as usize - 1];
            keyed(ReservationCommand::Acquire { action, kind }, current, preempted, 16)
        }
        Request::Release { action, kind, current } => {
            let action = [ReleaseAction::Release, ReleaseAction::Clear][action as usize];
            keyed(ReservationCommand::Release { action, kind_code: kind }, current, 0, 8)
        }
        Request::Report => {
            let command = ReservationCommand::Report { bytes: REPORT_BYTES.into(), extended: true };
            Sent { entry: entry_of(command, namespace, REPORT_BYTES), data: Bytes::new(), is_admin: false }
        }
        Request::Persist(persists) => {
            let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), namespace.0);
            let feature = Feature::ReservationPersistence as u8;
            entry.cdw10 = FeatureRequest { feature, ..FeatureRequest::default() }.encode().into();
            entry.cdw11 = u32::from(persists).into();
            Sent { entry, data: Bytes::new(), is_admin: true }
        }
        Request::Read => of_operation(&a_read(prng), namespace, geometry, prng.chance(1, 4)),
        Request::Write => of_operation(&a_write(prng, geometry), namespace, geometry, false),
    }
}

fn entry_of(command: ReservationCommand, namespace: NamespaceId, bytes: u32) -> SubmissionEntry {
    let (opcode, [dword10, dword11]) = command.encode();
    let mut entry = SubmissionEntry::new(opcode.code(), namespace.0);
    (entry.cdw10, entry.cdw11) = (dword10.into(), dword11.into());
    entry.data_pointer = SglDescriptor::transport(bytes);
    entry
}

fn a_read(prng: &mut Prng) -> Operation {
    if prng.chance(1, 3) {
        return Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max: 2,
        };
    }
    Operation::Read { start: Lba(prng.below(8)), blocks: Blocks(1 + prng.below(4)) }
}

fn a_write(prng: &mut Prng, geometry: &Geometry) -> Operation {
    let zone = geometry.zone_size_blocks.0;
    let payload = || {
        let data = vec![7; geometry.block_size_bytes as usize].into();
        Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() }))
    };
    let (start, blocks) = (Lba(prng.below(zone)), Blocks(1));
    match prng.below(6) {
        0 => Operation::Write { start, blocks, payload: payload() },
        1 => Operation::Append { zone_start: Lba(0), blocks, payload: payload() },
        2 => Operation::WriteZeroes { start, blocks },
        3 => Operation::Flush,
        4 => Operation::Deallocate { ranges: [LbaRange { start, blocks }].into() },
        _ => Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(0)) },
    }
}

/// With `compares`, a read is encoded as Compare, which is of the same group.
fn of_operation(operation: &Operation, namespace: NamespaceId, geometry: &Geometry, compares: bool) -> Sent {
    let format = NamespaceFormat::of(geometry, 1 << 20);
    let encoded = encode(operation, namespace, &format).expect("the operation can be encoded");
    let (mut entry, transfer) = (encoded.entry, encoded.transfer);
    let mut data = match (transfer, operation) {
        (Transfer::FromHost(_), Operation::Deallocate { ranges }) => encode_ranges(ranges).into(),
        (Transfer::FromHost(bytes), _) => vec![7; bytes as usize].into(),
        _ => Bytes::new(),
    };
    if let (Operation::Read { blocks, .. }, true) = (operation, compares) {
        entry.opcode = IoOpcode::Compare.code();
        data = vec![7; blocks.bytes(geometry.block_size_bytes) as usize].into();
    }
    Sent { entry, data, is_admin: false }
}

/// Decodes a response. Of reads and writes only a conflict matters.
pub(super) fn answer(
    request: Request,
    status: StatusCode,
    data: &[u8],
    controller: u16,
    hosts: &[HostId],
    host: usize,
) -> Response {
    match (request, status) {
        (_, StatusCode::RESERVATION_CONFLICT) => Response::Conflict,
        (Request::Read | Request::Write, _) => Response::Success,
        (Request::Report, StatusCode::SUCCESS) => report(data, controller, hosts, host),
        (_, StatusCode::SUCCESS) => Response::Success,
        (_, StatusCode::INVALID_FIELD) => Response::Invalid,
        (_, StatusCode::WRITE_FAULT) => Response::WriteFault,
        (_, other) => Response::Other(other.to_string()),
    }
}

fn report(data: &[u8], controller: u16, hosts: &[HostId], host: usize) -> Response {
    let wrong = |what: &str| Response::Other(format!("a report with {what}"));
    let Ok(status) = ReservationStatus::read(data, true) else { return wrong("a reserved type") };
    let mut registrants = std::collections::BTreeMap::new();
    for it in &status.controllers {
        let Some(of) = hosts.iter().position(|id| *id == it.host) else { return wrong("a host that does not exist") };
        let said = (it.key.0, it.is_holder);
        if registrants.insert(of, said).is_some_and(|before| before != said) {
            return wrong("two entries of a host that differ");
        }
    }
    let lists_own = status.controllers.iter().any(|it| it.host == hosts[host] && it.controller_id == controller);
    if registrants.contains_key(&host) && !lists_own {
        return wrong("the host as registrant, without its controller");
    }
    if status.controllers.iter().any(|it| it.host == hosts[host] && it.controller_id == CONTROLLER_ID_NONE) {
        return wrong("a controller ID of 0xffff for the requesting host");
    }
    let kind = status.kind.map_or(0, ReservationType::code);
    Response::Report { generation: status.generation, kind, persists: status.persists, registrants }
}
