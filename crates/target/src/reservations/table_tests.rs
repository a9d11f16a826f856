//! The rules of reservations, one namespace.

use proptest::prelude::*;
use zonda_nvme::log::ReservationNotice;
use zonda_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationKey, ReservationKeys, ReservationType,
};
use zonda_nvme::{HostId, StatusCode};

use super::table::{Access, Changes, Reservations};
use crate::limits::REGISTRANTS_MAX;

const A: HostId = HostId([1; 16]);
const B: HostId = HostId([2; 16]);
const C: HostId = HostId([3; 16]);

fn keys(current: u64, other: u64) -> ReservationKeys {
    ReservationKeys { current: ReservationKey(current), other: ReservationKey(other) }
}

fn register(table: &mut Reservations, host: HostId, key: u64) {
    assert_eq!(table.register(host, RegisterAction::Register, keys(0, key), false), Ok(Changes::default()));
}

/// A is registered with key 1, B with key 2; C is not registered.
fn registered() -> Reservations {
    let mut table = Reservations::default();
    register(&mut table, A, 1);
    register(&mut table, B, 2);
    table
}

/// The same, and A holds a reservation.
fn reserved(kind: ReservationType) -> Reservations {
    let mut table = registered();
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(1, 0)), Ok(Changes::default()));
    table
}

fn preempt(table: &mut Reservations, host: HostId, key: u64, victim: u64) -> Result<Changes, StatusCode> {
    table.acquire(host, AcquireAction::Preempt, ReservationType::WriteExclusive, keys(key, victim))
}

fn notified(notices: &[(HostId, ReservationNotice)]) -> Result<Changes, StatusCode> {
    Ok(Changes { notices: notices.to_vec() })
}

const CONFLICT: Result<Changes, StatusCode> = Err(StatusCode::RESERVATION_CONFLICT);
const INVALID: Result<Changes, StatusCode> = Err(StatusCode::INVALID_FIELD);

#[test]
fn each_type_excludes_the_accesses_that_the_specification_lists() {
    // Reads and writes of a registrant, and of an unregistered host.
    let table = [
        (ReservationType::WriteExclusive, [true, false, true, false]),
        (ReservationType::ExclusiveAccess, [false, false, false, false]),
        (ReservationType::WriteExclusiveRegistrantsOnly, [true, true, true, false]),
        (ReservationType::ExclusiveAccessRegistrantsOnly, [true, true, false, false]),
        (ReservationType::WriteExclusiveAllRegistrants, [true, true, true, false]),
        (ReservationType::ExclusiveAccessAllRegistrants, [true, true, false, false]),
    ];
    for (kind, expected) in table {
        let reserved = reserved(kind);
        assert!(reserved.permits(A, Access::Read) && reserved.permits(A, Access::Write), "{kind:?}: the holder");
        let found = [B, C].map(|host| [Access::Read, Access::Write].map(|access| reserved.permits(host, access)));
        assert_eq!(found.concat(), expected, "{kind:?}");
    }
    let free = registered();
    assert!([A, B, C].iter().all(|&host| free.permits(host, Access::Write)), "registrations alone exclude no host");
}

#[test]
fn a_host_registers_once_and_needs_its_key_to_change_the_registration() {
    let mut table = registered();
    let generation = table.generation();
    // Repeating the command is counted and changes nothing else; a different key requires Replace.
    register(&mut table, A, 1);
    assert_eq!((table.generation(), table.registrants().len()), (generation + 1, 2));
    assert_eq!(table.register(A, RegisterAction::Register, keys(1, 9), false), CONFLICT);
    assert_eq!(table.register(A, RegisterAction::Replace, keys(7, 9), false), CONFLICT);
    assert_eq!(table.register(A, RegisterAction::Unregister, keys(7, 0), false), CONFLICT);
    assert_eq!(table.register(A, RegisterAction::Replace, keys(1, 9), false), notified(&[]));
    // IEKEY: the current key is ignored.
    assert_eq!(table.register(A, RegisterAction::Replace, keys(0, 10), true), notified(&[]));
    assert_eq!(table.register(A, RegisterAction::Unregister, keys(0, 0), true), notified(&[]));
    assert_eq!(table.registrants().iter().map(|it| it.host).collect::<Vec<_>>(), [B]);
    // An unregistered host cannot change anything, and zero is not a valid key.
    assert_eq!(table.register(C, RegisterAction::Replace, keys(0, 3), true), CONFLICT);
    assert_eq!(table.register(C, RegisterAction::Unregister, keys(0, 0), true), CONFLICT);
    assert_eq!(table.register(C, RegisterAction::Register, keys(0, 0), false), INVALID);
    assert_eq!(table.generation(), generation + 4);
}

#[test]
fn the_number_of_registrants_is_limited() {
    let mut table = Reservations::default();
    for host in 0..REGISTRANTS_MAX {
        register(&mut table, HostId([host as u8 + 1; 16]), 5);
    }
    let one_more = table.register(HostId([0xff; 16]), RegisterAction::Register, keys(0, 5), false);
    assert_eq!(one_more, Err(StatusCode::INTERNAL_ERROR));
}

#[test]
fn one_registrant_acquires_the_reservation_with_its_key() {
    let mut table = registered();
    let kind = ReservationType::ExclusiveAccess;
    assert_eq!(table.acquire(C, AcquireAction::Acquire, kind, keys(0, 0)), CONFLICT);
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(2, 0)), CONFLICT);
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(1, 0)), notified(&[]));
    // Repeating it is no error; another type or another host conflicts.
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(1, 0)), notified(&[]));
    let other = ReservationType::WriteExclusive;
    assert_eq!(table.acquire(A, AcquireAction::Acquire, other, keys(1, 0)), CONFLICT);
    assert_eq!(table.acquire(B, AcquireAction::Acquire, kind, keys(2, 0)), CONFLICT);
    assert!(table.is_holder(A) && !table.is_holder(B));
    let mut shared = reserved(ReservationType::WriteExclusiveAllRegistrants);
    let again = shared.acquire(B, AcquireAction::Acquire, ReservationType::WriteExclusiveAllRegistrants, keys(2, 0));
    assert_eq!(again, notified(&[]));
    assert!(shared.is_holder(A) && shared.is_holder(B) && !shared.is_holder(C));
}

#[test]
fn preempting_the_holder_moves_the_reservation_and_removes_the_holders_registration() {
    let mut table = reserved(ReservationType::ExclusiveAccess);
    register(&mut table, C, 3);
    let generation = table.generation();
    let notices = [(A, ReservationNotice::RegistrationPreempted), (C, ReservationNotice::ReservationReleased)];
    assert_eq!(preempt(&mut table, B, 2, 1), notified(&notices));
    assert_eq!((table.kind(), table.is_holder(B)), (Some(ReservationType::WriteExclusive), true));
    assert_eq!((table.permits(A, Access::Write), table.permits(A, Access::Read)), (false, true));
    assert_eq!(table.generation(), generation + 1);
    // The key of the old holder is not valid any more.
    assert_eq!(preempt(&mut table, A, 1, 2), CONFLICT);
    assert_eq!(table.release(A, ReleaseAction::Release, 1, ReservationKey(1)), CONFLICT);
}

#[test]
fn a_holder_preempts_itself_to_change_the_type() {
    let mut table = reserved(ReservationType::ExclusiveAccess);
    assert_eq!(preempt(&mut table, A, 1, 1), notified(&[(B, ReservationNotice::ReservationReleased)]));
    assert_eq!((table.kind(), table.registrants().len()), (Some(ReservationType::WriteExclusive), 2));
    assert!(table.is_holder(A));
}

#[test]
fn preempting_a_registrant_that_is_not_the_holder_removes_only_its_registration() {
    let mut table = reserved(ReservationType::ExclusiveAccess);
    register(&mut table, C, 3);
    assert_eq!(preempt(&mut table, A, 1, 3), notified(&[(C, ReservationNotice::RegistrationPreempted)]));
    assert_eq!((table.kind(), table.is_holder(A)), (Some(ReservationType::ExclusiveAccess), true));
    // No registrant has that key, and zero matches none.
    assert_eq!(preempt(&mut table, A, 1, 3), CONFLICT);
    assert_eq!(preempt(&mut table, A, 1, 0), INVALID);
    let mut free = registered();
    assert_eq!(preempt(&mut free, A, 1, 2), notified(&[(B, ReservationNotice::RegistrationPreempted)]));
    assert_eq!(free.kind(), None, "there was no reservation to preempt");
}

#[test]
fn key_zero_preempts_all_other_holders_of_an_all_registrants_reservation() {
    let mut table = reserved(ReservationType::WriteExclusiveAllRegistrants);
    register(&mut table, C, 3);
    assert_eq!(preempt(&mut table, A, 1, 3), notified(&[(C, ReservationNotice::RegistrationPreempted)]));
    assert_eq!(table.kind(), Some(ReservationType::WriteExclusiveAllRegistrants));
    assert_eq!(preempt(&mut table, A, 1, 0), notified(&[(B, ReservationNotice::RegistrationPreempted)]));
    assert_eq!((table.kind(), table.registrants().len()), (Some(ReservationType::WriteExclusive), 1));
    assert!(table.is_holder(A) && !table.permits(B, Access::Write));
}

#[test]
fn a_release_needs_the_type_and_notifies_the_registrants_of_shared_types() {
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    let mut table = reserved(kind);
    let key = ReservationKey(1);
    assert_eq!(table.release(A, ReleaseAction::Release, kind.code() + 1, key), INVALID);
    assert_eq!(
        table.release(B, ReleaseAction::Release, kind.code(), ReservationKey(2)),
        notified(&[]),
        "it is not the holder"
    );
    assert_eq!(table.kind(), Some(kind));
    let notices = [(B, ReservationNotice::ReservationReleased)];
    assert_eq!(table.release(A, ReleaseAction::Release, kind.code(), key), notified(&notices));
    assert_eq!((table.kind(), table.registrants().len()), (None, 2));
    let mut alone = reserved(ReservationType::WriteExclusive);
    assert_eq!(alone.release(A, ReleaseAction::Release, 1, key), notified(&[]));
}

#[test]
fn a_reservation_ends_with_the_registration_of_its_holder_or_of_the_last_of_all_registrants() {
    let mut table = reserved(ReservationType::ExclusiveAccessRegistrantsOnly);
    let notices = [(B, ReservationNotice::ReservationReleased)];
    assert_eq!(table.register(A, RegisterAction::Unregister, keys(1, 0), false), notified(&notices));
    assert_eq!(table.kind(), None);
    let mut shared = reserved(ReservationType::ExclusiveAccessAllRegistrants);
    assert_eq!(shared.register(A, RegisterAction::Unregister, keys(1, 0), false), notified(&[]));
    assert!(shared.is_holder(B) && !shared.permits(A, Access::Read));
    assert_eq!(shared.register(B, RegisterAction::Unregister, keys(2, 0), false), notified(&[]));
    assert_eq!(shared.kind(), None);
}

#[test]
fn a_clear_removes_everything_and_notifies_all_other_registrants() {
    let mut table = reserved(ReservationType::ExclusiveAccess);
    assert_eq!(table.release(B, ReleaseAction::Clear, 0, ReservationKey(1)), CONFLICT);
    let notices = [(A, ReservationNotice::ReservationPreempted)];
    assert_eq!(table.release(B, ReleaseAction::Clear, 0, ReservationKey(2)), notified(&notices));
    assert_eq!((table.kind(), table.registrants().len()), (None, 0));
}

proptest! {
    /// Whatever hosts send: the invariants hold, refused commands change nothing, and no host
    /// except the sender loses its registration without a notification.
    #[test]
    fn any_commands_of_any_hosts_keep_the_invariants(
        commands in proptest::collection::vec((0_u8..4, 0_u8..4, 0_u8..3, 1_u8..7, 0_u64..4, 0_u64..4, any::<bool>()), 1..60)
    ) {
        let mut table = Reservations::default();
        for (host, command, action, kind, current, other, ignores_key) in commands {
            let before = table.clone();
            let (host, keys) = (HostId([host + 1; 16]), keys(current, other));
            let kind = ReservationType::from_code(kind).expect("codes are 1 to 6");
            let result = match command {
                0 | 1 => {
                    let actions = [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace];
                    table.register(host, actions[usize::from(action)], keys, ignores_key)
                }
                2 => {
                    let actions = [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort];
                    table.acquire(host, actions[usize::from(action)], kind, keys)
                }
                _ => {
                    let actions = [ReleaseAction::Release, ReleaseAction::Clear, ReleaseAction::Release];
                    table.release(host, actions[usize::from(action)], kind.code(), keys.current)
                }
            };
            table.check_invariants();
            match result {
                Err(_) => prop_assert_eq!(&table, &before),
                Ok(changes) => for registrant in before.registrants().iter().filter(|it| it.host != host) {
                    let is_registrant = table.registrants().iter().any(|it| it.host == registrant.host);
                    let is_notified = changes.notices.iter().any(|&(notified, _)| notified == registrant.host);
                    prop_assert!(is_registrant || is_notified, "{:?} was not notified", registrant);
                },
            }
        }
    }
}
