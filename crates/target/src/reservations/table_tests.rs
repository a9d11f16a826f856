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

/// A with key 1, B with key 2; C is a stranger.
fn registered() -> Reservations {
    let mut table = Reservations::default();
    register(&mut table, A, 1);
    register(&mut table, B, 2);
    table
}

/// A holds a reservation.
fn held(kind: ReservationType) -> Reservations {
    let mut table = registered();
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(1, 0)), Ok(Changes::default()));
    table
}

fn preempt(table: &mut Reservations, host: HostId, key: u64, victim: u64) -> Result<Changes, StatusCode> {
    table.acquire(host, AcquireAction::Preempt, ReservationType::WriteExclusive, keys(key, victim))
}

fn told(notices: &[(HostId, ReservationNotice)]) -> Result<Changes, StatusCode> {
    Ok(Changes { notices: notices.to_vec() })
}

const CONFLICT: Result<Changes, StatusCode> = Err(StatusCode::RESERVATION_CONFLICT);
const INVALID: Result<Changes, StatusCode> = Err(StatusCode::INVALID_FIELD);

#[test]
fn each_type_keeps_others_from_what_the_specification_says() {
    // Reads and writes of a registrant, and of a host that is none.
    let table = [
        (ReservationType::WriteExclusive, [true, false, true, false]),
        (ReservationType::ExclusiveAccess, [false, false, false, false]),
        (ReservationType::WriteExclusiveRegistrantsOnly, [true, true, true, false]),
        (ReservationType::ExclusiveAccessRegistrantsOnly, [true, true, false, false]),
        (ReservationType::WriteExclusiveAllRegistrants, [true, true, true, false]),
        (ReservationType::ExclusiveAccessAllRegistrants, [true, true, false, false]),
    ];
    for (kind, expected) in table {
        let held = held(kind);
        assert!(held.permits(A, Access::Read) && held.permits(A, Access::Write), "{kind:?}: the holder");
        let found = [B, C].map(|host| [Access::Read, Access::Write].map(|access| held.permits(host, access)));
        assert_eq!(found.concat(), expected, "{kind:?}");
    }
    let free = registered();
    assert!([A, B, C].iter().all(|&host| free.permits(host, Access::Write)), "registrations alone exclude nobody");
}

#[test]
fn a_registration_is_made_once_and_changed_only_by_who_knows_its_key() {
    let mut table = registered();
    let generation = table.generation();
    // The same again is counted and changes nothing else, and another key needs Replace.
    register(&mut table, A, 1);
    assert_eq!((table.generation(), table.registrants().len()), (generation + 1, 2));
    assert_eq!(table.register(A, RegisterAction::Register, keys(1, 9), false), CONFLICT);
    assert_eq!(table.register(A, RegisterAction::Replace, keys(7, 9), false), CONFLICT);
    assert_eq!(table.register(A, RegisterAction::Unregister, keys(7, 0), false), CONFLICT);
    assert_eq!(table.register(A, RegisterAction::Replace, keys(1, 9), false), told(&[]));
    // IEKEY: the key is not looked at.
    assert_eq!(table.register(A, RegisterAction::Replace, keys(0, 10), true), told(&[]));
    assert_eq!(table.register(A, RegisterAction::Unregister, keys(0, 0), true), told(&[]));
    assert_eq!(table.registrants().iter().map(|it| it.host).collect::<Vec<_>>(), [B]);
    // Who is none cannot change anything, and zero is no key.
    assert_eq!(table.register(C, RegisterAction::Replace, keys(0, 3), true), CONFLICT);
    assert_eq!(table.register(C, RegisterAction::Unregister, keys(0, 0), true), CONFLICT);
    assert_eq!(table.register(C, RegisterAction::Register, keys(0, 0), false), INVALID);
    assert_eq!(table.generation(), generation + 4);
}

#[test]
fn there_is_room_for_so_many_registrants() {
    let mut table = Reservations::default();
    for host in 0..REGISTRANTS_MAX {
        register(&mut table, HostId([host as u8 + 1; 16]), 5);
    }
    let one_more = table.register(HostId([0xff; 16]), RegisterAction::Register, keys(0, 5), false);
    assert_eq!(one_more, Err(StatusCode::INTERNAL_ERROR));
}

#[test]
fn a_reservation_is_acquired_by_one_registrant_that_says_its_key() {
    let mut table = registered();
    let kind = ReservationType::ExclusiveAccess;
    assert_eq!(table.acquire(C, AcquireAction::Acquire, kind, keys(0, 0)), CONFLICT);
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(2, 0)), CONFLICT);
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(1, 0)), told(&[]));
    // Again is no error; another type or another host is.
    assert_eq!(table.acquire(A, AcquireAction::Acquire, kind, keys(1, 0)), told(&[]));
    let other = ReservationType::WriteExclusive;
    assert_eq!(table.acquire(A, AcquireAction::Acquire, other, keys(1, 0)), CONFLICT);
    assert_eq!(table.acquire(B, AcquireAction::Acquire, kind, keys(2, 0)), CONFLICT);
    assert!(table.is_holder(A) && !table.is_holder(B));
    let mut shared = held(ReservationType::WriteExclusiveAllRegistrants);
    let again = shared.acquire(B, AcquireAction::Acquire, ReservationType::WriteExclusiveAllRegistrants, keys(2, 0));
    assert_eq!(again, told(&[]));
    assert!(shared.is_holder(A) && shared.is_holder(B) && !shared.is_holder(C));
}

#[test]
fn who_preempts_the_holder_has_the_reservation_and_the_holder_is_no_registrant_any_more() {
    let mut table = held(ReservationType::ExclusiveAccess);
    register(&mut table, C, 3);
    let generation = table.generation();
    let notices = [(A, ReservationNotice::RegistrationPreempted), (C, ReservationNotice::ReservationReleased)];
    assert_eq!(preempt(&mut table, B, 2, 1), told(&notices));
    assert_eq!((table.kind(), table.is_holder(B)), (Some(ReservationType::WriteExclusive), true));
    assert_eq!((table.permits(A, Access::Write), table.permits(A, Access::Read)), (false, true));
    assert_eq!(table.generation(), generation + 1);
    // What the old holder knew is worth nothing.
    assert_eq!(preempt(&mut table, A, 1, 2), CONFLICT);
    assert_eq!(table.release(A, ReleaseAction::Release, 1, ReservationKey(1)), CONFLICT);
}

#[test]
fn a_holder_preempts_itself_to_change_the_type() {
    let mut table = held(ReservationType::ExclusiveAccess);
    assert_eq!(preempt(&mut table, A, 1, 1), told(&[(B, ReservationNotice::ReservationReleased)]));
    assert_eq!((table.kind(), table.registrants().len()), (Some(ReservationType::WriteExclusive), 2));
    assert!(table.is_holder(A));
}

#[test]
fn preempting_a_registrant_that_holds_nothing_ends_its_registration_alone() {
    let mut table = held(ReservationType::ExclusiveAccess);
    register(&mut table, C, 3);
    assert_eq!(preempt(&mut table, A, 1, 3), told(&[(C, ReservationNotice::RegistrationPreempted)]));
    assert_eq!((table.kind(), table.is_holder(A)), (Some(ReservationType::ExclusiveAccess), true));
    // Nobody has that key, and zero names nobody.
    assert_eq!(preempt(&mut table, A, 1, 3), CONFLICT);
    assert_eq!(preempt(&mut table, A, 1, 0), INVALID);
    let mut free = registered();
    assert_eq!(preempt(&mut free, A, 1, 2), told(&[(B, ReservationNotice::RegistrationPreempted)]));
    assert_eq!(free.kind(), None, "there was no reservation to take over");
}

#[test]
fn a_reservation_of_all_registrants_is_taken_from_all_the_others_with_key_zero() {
    let mut table = held(ReservationType::WriteExclusiveAllRegistrants);
    register(&mut table, C, 3);
    assert_eq!(preempt(&mut table, A, 1, 3), told(&[(C, ReservationNotice::RegistrationPreempted)]));
    assert_eq!(table.kind(), Some(ReservationType::WriteExclusiveAllRegistrants));
    assert_eq!(preempt(&mut table, A, 1, 0), told(&[(B, ReservationNotice::RegistrationPreempted)]));
    assert_eq!((table.kind(), table.registrants().len()), (Some(ReservationType::WriteExclusive), 1));
    assert!(table.is_holder(A) && !table.permits(B, Access::Write));
}

#[test]
fn a_release_says_the_type_and_others_hear_of_it_where_registrants_may_write() {
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    let mut table = held(kind);
    let key = ReservationKey(1);
    assert_eq!(table.release(A, ReleaseAction::Release, kind.code() + 1, key), INVALID);
    assert_eq!(table.release(B, ReleaseAction::Release, kind.code(), ReservationKey(2)), told(&[]), "not its own");
    assert_eq!(table.kind(), Some(kind));
    let notices = [(B, ReservationNotice::ReservationReleased)];
    assert_eq!(table.release(A, ReleaseAction::Release, kind.code(), key), told(&notices));
    assert_eq!((table.kind(), table.registrants().len()), (None, 2));
    let mut alone = held(ReservationType::WriteExclusive);
    assert_eq!(alone.release(A, ReleaseAction::Release, 1, key), told(&[]));
}

#[test]
fn a_reservation_goes_with_the_registration_of_its_holder_and_one_of_all_with_the_last() {
    let mut table = held(ReservationType::ExclusiveAccessRegistrantsOnly);
    let notices = [(B, ReservationNotice::ReservationReleased)];
    assert_eq!(table.register(A, RegisterAction::Unregister, keys(1, 0), false), told(&notices));
    assert_eq!(table.kind(), None);
    let mut shared = held(ReservationType::ExclusiveAccessAllRegistrants);
    assert_eq!(shared.register(A, RegisterAction::Unregister, keys(1, 0), false), told(&[]));
    assert!(shared.is_holder(B) && !shared.permits(A, Access::Read));
    assert_eq!(shared.register(B, RegisterAction::Unregister, keys(2, 0), false), told(&[]));
    assert_eq!(shared.kind(), None);
}

#[test]
fn a_clear_ends_everything_and_all_other_registrants_hear_of_it() {
    let mut table = held(ReservationType::ExclusiveAccess);
    assert_eq!(table.release(B, ReleaseAction::Clear, 0, ReservationKey(1)), CONFLICT);
    let notices = [(A, ReservationNotice::ReservationPreempted)];
    assert_eq!(table.release(B, ReleaseAction::Clear, 0, ReservationKey(2)), told(&notices));
    assert_eq!((table.kind(), table.registrants().len()), (None, 0));
}

proptest! {
    /// Whatever hosts send: the invariants hold, what is refused changes nothing, and nobody but the sender loses anything
    /// unless it hears of it.
    #[test]
    fn any_commands_of_any_hosts_keep_the_rules(
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
                    let has_heard = changes.notices.iter().any(|&(told, _)| told == registrant.host);
                    prop_assert!(is_registrant || has_heard, "{:?} lost its registration unheard", registrant);
                },
            }
        }
    }
}
