//! What hosts that share a namespace ask for, as commands on the wire, and answers read from it.

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

use super::rules::{Answer, Ask};
use crate::drive::one_of;

/// Room for a report: of all hosts, with controllers that are on their way out.
const REPORT_BYTES: u32 = 4096;
/// Keys that hosts choose from: few, so that some have the same.
const KEYS: u64 = 3;

/// A command for the wire.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) entry: SubmissionEntry,
    pub(super) data: Bytes,
    pub(super) is_admin: bool,
}

/// What a host asks for next. `own` is the key that it believes it has.
pub(super) fn draw(prng: &mut Prng, own: Option<u64>, keeps: bool) -> Ask {
    let key = |prng: &mut Prng| if prng.chance(1, 12) { 0 } else { 1 + prng.below(KEYS) };
    let current = match own {
        Some(own) if prng.chance(7, 8) => own,
        _ => key(prng),
    };
    let kind = 1 + prng.below(6) as u8;
    let weights: [u64; 8] = if own.is_some() { [22, 22, 16, 10, 14, 8, 6, 2] } else { [16, 16, 10, 50, 3, 2, 1, 2] };
    let mut dice = prng.below(weights.iter().sum());
    let chosen = weights.iter().position(|&weight| {
        let is_it = dice < weight;
        dice = dice.saturating_sub(weight);
        is_it
    });
    match chosen.expect("the weights make up the sum") {
        0 => Ask::Read,
        1 => Ask::Write,
        2 => Ask::Report,
        3 => {
            let action = if own.is_some() { prng.below(3) as u8 } else { one_of(prng, &[0, 0, 0, 0, 1, 2]) as u8 };
            let persist = one_of(prng, if keeps { &[0, 0, 2, 3, 3] } else { &[0, 0, 0, 2, 3] }) as u8;
            Ask::Register { action, ignores_key: prng.chance(1, 4), persist, current, new: key(prng) }
        }
        4 => Ask::Acquire { action: 0, kind, current, preempted: 0 },
        5 => Ask::Acquire { action: 1 + prng.below(2) as u8, kind, current, preempted: key(prng) },
        6 => Ask::Release { action: u8::from(prng.chance(1, 4)), kind, current },
        _ => Ask::Persist(prng.chance(2, 3)),
    }
}

/// The command on the wire. Reads and writes are any of their group.
pub(super) fn command(ask: Ask, namespace: NamespaceId, geometry: &Geometry, prng: &mut Prng) -> Sent {
    let keyed = |command: ReservationCommand, current: u64, other: u64, bytes: usize| {
        let keys = ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) };
        let data = Bytes::copy_from_slice(&keys.to_bytes()[..bytes]);
        Sent { entry: entry_of(command, namespace, bytes as u32), data, is_admin: false }
    };
    match ask {
        Ask::Register { action, ignores_key, persist, current, new } => {
            let action =
                [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace][action as usize];
            let persist = match persist {
                2 => PersistChange::Clear,
                3 => PersistChange::Set,
                _ => PersistChange::Keep,
            };
            keyed(ReservationCommand::Register { action, ignores_key, persist }, current, new, 16)
        }
        Ask::Acquire { action, kind, current, preempted } => {
            let action =
                [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort][action as usize];
            let kind = ReservationType::ALL[kind as usize - 1];
            keyed(ReservationCommand::Acquire { action, kind }, current, preempted, 16)
        }
        Ask::Release { action, kind, current } => {
            let action = [ReleaseAction::Release, ReleaseAction::Clear][action as usize];
            keyed(ReservationCommand::Release { action, kind_code: kind }, current, 0, 8)
        }
        Ask::Report => {
            let command = ReservationCommand::Report { bytes: REPORT_BYTES.into(), extended: true };
            Sent { entry: entry_of(command, namespace, REPORT_BYTES), data: Bytes::new(), is_admin: false }
        }
        Ask::Persist(persists) => {
            let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), namespace.0);
            let feature = Feature::ReservationPersistence as u8;
            entry.cdw10 = FeatureRequest { feature, ..FeatureRequest::default() }.encode().into();
            entry.cdw11 = u32::from(persists).into();
            Sent { entry, data: Bytes::new(), is_admin: true }
        }
        Ask::Read => of_operation(&a_read(prng), namespace, geometry, prng.chance(1, 4)),
        Ask::Write => of_operation(&a_write(prng, geometry), namespace, geometry, false),
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

/// With `compares`, a read is a Compare, which is of the same group.
fn of_operation(operation: &Operation, namespace: NamespaceId, geometry: &Geometry, compares: bool) -> Sent {
    let format = NamespaceFormat::of(geometry, 1 << 20);
    let encoded = encode(operation, namespace, &format).expect("an operation that can be told");
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

/// What a host was answered. Of reads and writes only a conflict is of interest.
pub(super) fn answer(
    ask: Ask,
    status: StatusCode,
    data: &[u8],
    controller: u16,
    hosts: &[HostId],
    host: usize,
) -> Answer {
    match (ask, status) {
        (_, StatusCode::RESERVATION_CONFLICT) => Answer::Conflict,
        (Ask::Read | Ask::Write, _) => Answer::Success,
        (Ask::Report, StatusCode::SUCCESS) => report(data, controller, hosts, host),
        (_, StatusCode::SUCCESS) => Answer::Success,
        (_, StatusCode::INVALID_FIELD) => Answer::Invalid,
        (_, StatusCode::WRITE_FAULT) => Answer::WriteFault,
        (_, other) => Answer::Other(other.to_string()),
    }
}

fn report(data: &[u8], controller: u16, hosts: &[HostId], host: usize) -> Answer {
    let wrong = |what: &str| Answer::Other(format!("a report with {what}"));
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
        return wrong("a registrant, and not its controller");
    }
    if status.controllers.iter().any(|it| it.host == hosts[host] && it.controller_id == CONTROLLER_ID_NONE) {
        return wrong("no controller of the host that asks");
    }
    let kind = status.kind.map_or(0, ReservationType::code);
    Answer::Report { generation: status.generation, kind, persists: status.persists, registrants }
}
