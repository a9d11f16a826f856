//! Sequences of reservation commands that no well-behaved host sends, with persistence and without:
//! each completes as NVMe Base 2.0 (sections 7.2 to 7.5 and 8.19) specifies, and does not change
//! other state.

use bytes::Bytes;
use zonda_nvme::features::{Feature, FeatureRequest};
use zonda_nvme::reservation::{
    AcquireAction, PersistChange, RegisterAction, ReleaseAction, ReservationCommand, ReservationStatus, ReservationType,
};
use zonda_nvme::{AdminOpcode, HostId, IoOpcode, SglDescriptor, StatusCode, SubmissionEntry};

use super::reservations::{CONFLICT, EXCLUSIVE, Host};
use super::testbed::{Testbed, config, read, write, zoned};
use crate::{DeviceKey, HostAccess, TargetConfig};

const SUCCESS: StatusCode = StatusCode::SUCCESS;
const INVALID: StatusCode = StatusCode::INVALID_FIELD;
const SHARED: ReservationType = ReservationType::WriteExclusiveAllRegistrants;

/// Whether registrations persist.
const BOTH: [bool; 2] = [false, true];

fn persistent_config(saved: Bytes) -> TargetConfig {
    let mut config = config(&[zoned()], HostAccess::Any);
    config.saved_reservations.insert(DeviceKey(0), saved);
    config
}

/// Registered hosts, each with its number as key.
fn with(registrants: usize, persists: bool) -> (Testbed, Vec<Host>) {
    let mut testbed = Testbed::of(persistent_config(Bytes::new()));
    let hosts: Vec<Host> = (1..=registrants as u8).map(|number| testbed.host(number)).collect();
    for &host in &hosts {
        assert_eq!(testbed.reserve(host, &register(persists), 0, host.key), SUCCESS);
    }
    (testbed, hosts)
}

/// The server after power loss.
fn after_power_loss(testbed: &Testbed) -> Testbed {
    Testbed::of(persistent_config(testbed.saved.get(&DeviceKey(0)).cloned().unwrap_or_default()))
}

fn register(persists: bool) -> ReservationCommand {
    let persist = if persists { PersistChange::Set } else { PersistChange::Keep };
    ReservationCommand::Register { action: RegisterAction::Register, ignores_key: false, persist }
}

fn acquire(action: AcquireAction, kind: ReservationType) -> ReservationCommand {
    ReservationCommand::Acquire { action, kind }
}

fn register_by(action: RegisterAction, ignores_key: bool) -> ReservationCommand {
    ReservationCommand::Register { action, ignores_key, persist: PersistChange::Keep }
}

fn keys_of(status: &ReservationStatus) -> Vec<(u64, bool)> {
    status.controllers.iter().map(|it| (it.key.0, it.is_holder)).collect()
}

#[test]
fn a_power_loss_between_register_and_acquire_leaves_the_key_valid_only_if_it_persists() {
    for persists in BOTH {
        let (testbed, hosts) = with(1, persists);
        let mut testbed = after_power_loss(&testbed);
        let host = testbed.host(1);
        assert_eq!(host.id, hosts[0].id);
        let expected = if persists { SUCCESS } else { CONFLICT };
        assert_eq!(testbed.acquire(host, EXCLUSIVE), expected, "persists: {persists}");
        assert_eq!(testbed.report(host, 4096).kind, persists.then_some(EXCLUSIVE));
    }
}

#[test]
fn a_host_that_is_not_registered_acquires_preempts_and_releases_nothing_whatever_key_it_sends() {
    for persists in BOTH {
        let (mut testbed, hosts) = with(1, persists);
        assert_eq!(testbed.acquire(hosts[0], EXCLUSIVE), SUCCESS);
        let other = testbed.host(9);
        let before = testbed.report(hosts[0], 4096);
        for action in [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort] {
            for (current, preempted) in [(0, 1), (1, 1), (0, 0), (9, 1)] {
                assert_eq!(testbed.reserve(other, &acquire(action, EXCLUSIVE), current, preempted), CONFLICT);
            }
        }
        for action in [ReleaseAction::Release, ReleaseAction::Clear] {
            for current in [0, 1] {
                let release = ReservationCommand::Release { action, kind_code: EXCLUSIVE.code() };
                assert_eq!(testbed.reserve(other, &release, current, 0), CONFLICT);
            }
        }
        for action in [RegisterAction::Unregister, RegisterAction::Replace] {
            assert_eq!(
                testbed.reserve(other, &register_by(action, true), 1, 5),
                CONFLICT,
                "IEKEY does not register a host"
            );
        }
        assert_eq!(testbed.report(hosts[0], 4096), before);
    }
}

#[test]
fn a_registrant_with_a_wrong_key_changes_nothing_and_may_ignore_it_only_to_register() {
    for persists in BOTH {
        let (mut testbed, hosts) = with(2, persists);
        let host = hosts[0];
        assert_eq!(testbed.acquire(host, EXCLUSIVE), SUCCESS);
        let before = testbed.report(host, 4096);
        let release = ReservationCommand::Release { action: ReleaseAction::Clear, kind_code: 0 };
        for wrong in [0, 2, u64::MAX] {
            for action in [RegisterAction::Unregister, RegisterAction::Replace] {
                assert_eq!(testbed.reserve(host, &register_by(action, false), wrong, 7), CONFLICT);
            }
            assert_eq!(testbed.reserve(host, &acquire(AcquireAction::Preempt, EXCLUSIVE), wrong, 2), CONFLICT);
            assert_eq!(testbed.reserve(host, &release, wrong, 0), CONFLICT);
        }
        // IEKEY, bit 3 of dword 10, is valid for Register only.
        for command in [acquire(AcquireAction::Acquire, EXCLUSIVE), release] {
            let mut entry = Testbed::entry_of(&command);
            entry.cdw10 = (entry.cdw10.get() | 1 << 3).into();
            assert_eq!(testbed.execute_in_capsule(host.io, entry, vec![1; 16].into()).status, INVALID);
        }
        assert_eq!(testbed.report(host, 4096), before);
        assert_eq!(testbed.reserve(host, &register_by(RegisterAction::Replace, true), 99, 7), SUCCESS);
        assert_eq!(keys_of(&testbed.report(host, 4096)), [(7, true), (2, false)]);
    }
}

#[test]
fn reserved_actions_types_and_changes_are_invalid_fields_and_change_nothing() {
    for persists in BOTH {
        let (mut testbed, hosts) = with(1, persists);
        let before = testbed.report(hosts[0], 4096);
        let reserved = [
            (IoOpcode::ReservationRegister, vec![3, 7, 1 << 30]),
            (IoOpcode::ReservationAcquire, vec![0x103, 0x107, 0x000, 0x700, 0xff00]),
            (IoOpcode::ReservationRelease, vec![2, 7]),
        ];
        for (opcode, dwords) in reserved {
            for dword in dwords {
                let mut entry = SubmissionEntry::new(opcode.code(), 1);
                entry.cdw10 = dword.into();
                let data = Bytes::copy_from_slice(&[1_u64.to_le_bytes(), 1_u64.to_le_bytes()].concat());
                assert_eq!(
                    testbed.execute_in_capsule(hosts[0].io, entry, data).status,
                    INVALID,
                    "{opcode:?} {dword:x}"
                );
            }
        }
        // A Release must specify the type of the reservation.
        assert_eq!(testbed.acquire(hosts[0], EXCLUSIVE), SUCCESS);
        for kind_code in [0, 1, 7] {
            let release = ReservationCommand::Release { action: ReleaseAction::Release, kind_code };
            assert_eq!(testbed.reserve(hosts[0], &release, 1, 0), INVALID, "type {kind_code}");
        }
        let after = testbed.report(hosts[0], 4096);
        assert_eq!((after.kind, after.generation), (Some(EXCLUSIVE), before.generation));
    }
}

#[test]
fn a_holder_that_unregisters_releases_the_reservation_unless_others_hold_it_too() {
    for persists in BOTH {
        for (kind, left) in [(EXCLUSIVE, None), (SHARED, Some(SHARED))] {
            let (mut testbed, hosts) = with(2, persists);
            assert_eq!(testbed.acquire(hosts[0], kind), SUCCESS);
            let unregister = register_by(RegisterAction::Unregister, false);
            assert_eq!(testbed.reserve(hosts[0], &unregister, 1, 0), SUCCESS);
            let status = testbed.report(hosts[1], 4096);
            assert_eq!((status.kind, keys_of(&status)), (left, vec![(2, left.is_some())]), "{kind:?}");
            let writes = testbed.operate(hosts[0].io, 1, &write(0, 1, 1)).status;
            assert_eq!(writes, if left.is_some() { CONFLICT } else { SUCCESS });
            // The last registrant releases a shared reservation.
            assert_eq!(testbed.reserve(hosts[1], &unregister, 2, 0), SUCCESS);
            assert_eq!(testbed.report(hosts[1], 4096).kind, None);
            let mut testbed = after_power_loss(&testbed);
            let host = testbed.host(1);
            let found = testbed.report(host, 4096);
            assert_eq!((found.kind, keys_of(&found), found.persists), (None, vec![], persists));
        }
    }
}

#[test]
fn a_preemption_with_a_key_that_several_hosts_use_removes_all_their_registrations_and_its_own() {
    for persists in BOTH {
        let (mut testbed, hosts) = with(4, persists);
        let replace = register_by(RegisterAction::Replace, false);
        for &host in &hosts[1..3] {
            assert_eq!(testbed.reserve(host, &replace, host.key, 7), SUCCESS);
        }
        assert_eq!(testbed.acquire(hosts[0], EXCLUSIVE), SUCCESS);
        // The second host preempts key 7, which is its own key, and not the holder's.
        assert_eq!(testbed.reserve(hosts[1], &acquire(AcquireAction::Preempt, SHARED), 7, 7), SUCCESS);
        let status = testbed.report(hosts[0], 4096);
        assert_eq!((status.kind, keys_of(&status)), (Some(EXCLUSIVE), vec![(1, true), (4, false)]));
        // It is not registered any more.
        assert_eq!(testbed.reserve(hosts[1], &acquire(AcquireAction::Preempt, SHARED), 7, 1), CONFLICT);
        // If one host holds the reservation, no registrant has key zero, nor a key that was never
        // registered.
        assert_eq!(testbed.reserve(hosts[3], &acquire(AcquireAction::Preempt, SHARED), 4, 0), INVALID);
        assert_eq!(testbed.reserve(hosts[3], &acquire(AcquireAction::Preempt, SHARED), 4, 99), CONFLICT);
        assert_eq!(testbed.report(hosts[0], 4096), status);
    }
}

#[test]
fn a_holder_that_preempts_itself_changes_the_type_and_stays_registered() {
    for persists in BOTH {
        let (mut testbed, hosts) = with(2, persists);
        assert_eq!(testbed.acquire(hosts[0], EXCLUSIVE), SUCCESS);
        assert_eq!(testbed.acquire(hosts[0], SHARED), CONFLICT, "an Acquire does not change the type");
        assert_eq!(testbed.operate(hosts[1].io, 1, &read(0, 1)).status, CONFLICT);
        let to = ReservationType::WriteExclusive;
        assert_eq!(testbed.reserve(hosts[0], &acquire(AcquireAction::PreemptAndAbort, to), 1, 1), SUCCESS);
        let status = testbed.report(hosts[0], 4096);
        assert_eq!((status.kind, keys_of(&status)), (Some(to), vec![(1, true), (2, false)]));
        assert_eq!(testbed.operate(hosts[1].io, 1, &read(0, 1)).status, SUCCESS);
        // Key zero preempts all holders of a shared reservation except the sender.
        assert_eq!(testbed.reserve(hosts[0], &acquire(AcquireAction::Preempt, SHARED), 1, 1), SUCCESS);
        assert_eq!(testbed.reserve(hosts[1], &acquire(AcquireAction::Preempt, EXCLUSIVE), 2, 0), SUCCESS);
        let status = testbed.report(hosts[1], 4096);
        assert_eq!((status.kind, keys_of(&status)), (Some(EXCLUSIVE), vec![(2, true)]));
    }
}

/// Over Fabrics host identifiers have 128 bits, which do not fit the short forms.
#[test]
fn identifiers_of_64_bits_are_refused_in_reports_and_in_features() {
    let (mut testbed, hosts) = with(1, false);
    let mut entry = Testbed::entry_of(&ReservationCommand::Report { bytes: 4096, extended: false });
    entry.data_pointer = SglDescriptor::transport(4096);
    let status = testbed.execute(hosts[0].io, entry, Bytes::new()).status;
    assert_eq!(status, StatusCode::HOST_ID_INCONSISTENT_FORMAT);
    for (extended, status, found) in [(1, SUCCESS, vec![1; 16]), (0, INVALID, vec![])] {
        let mut entry = SubmissionEntry::new(AdminOpcode::GetFeatures.code(), 0);
        let feature = Feature::HostIdentifier as u8;
        entry.cdw10 = FeatureRequest { feature, ..FeatureRequest::default() }.encode().into();
        entry.cdw11 = extended.into();
        entry.data_pointer = SglDescriptor::transport(if extended == 1 { 16 } else { 8 });
        let answer = testbed.execute(hosts[0].admin, entry, Bytes::new());
        assert_eq!((answer.status, answer.data), (status, found), "EXHID {extended}");
    }
    // Hosts whose identifiers differ only in the upper half are different hosts.
    let low = HostId(std::array::from_fn(|at| if at < 8 { 1 } else { 2 }));
    assert!(low != hosts[0].id && low.0[..8] == hosts[0].id.0[..8]);
    assert_eq!(testbed.acquire(hosts[0], EXCLUSIVE), SUCCESS);
    assert!(!testbed.target.first_namespace().reservations().permits(low, crate::reservations::Access::Read));
}

#[test]
fn a_register_with_key_zero_or_with_too_little_data_registers_no_host() {
    for persists in BOTH {
        let (mut testbed, hosts) = with(1, persists);
        let other = testbed.host(2);
        assert_eq!(testbed.reserve(other, &register(persists), 0, 0), INVALID);
        for length in [0, 8, 15] {
            let entry = Testbed::entry_of(&register(persists));
            let answer = testbed.execute_in_capsule(other.io, entry, vec![7; length].into());
            assert_ne!(answer.status, SUCCESS, "{length} bytes");
        }
        assert_eq!(keys_of(&testbed.report(hosts[0], 4096)), [(1, false)]);
    }
}
