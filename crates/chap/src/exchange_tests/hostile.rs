//! Each side against messages that an attacker sends or changes.

use proptest::prelude::*;

use super::Direction::{Bidirectional, OneWay};
use super::*;
use crate::message::MessageKind;

#[test]
fn public_values_out_of_range_are_refused_on_both_sides() {
    for (index, offset) in [(1, 16 + 32), (2, 16 + 64)] {
        for value in [0, 1] {
            let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Ffdhe2048);
            let mut change = |message: &mut Vec<u8>| {
                message[offset..].fill(0);
                *message.last_mut().unwrap() = value;
            };
            assert_eq!(pair.run(Some((index, &mut change))).1, Some(AuthFailure::PublicValueOutOfRange));
        }
        let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Ffdhe2048);
        let mut change = |message: &mut Vec<u8>| message[offset..].fill(0xff);
        assert_eq!(pair.run(Some((index, &mut change))).1, Some(AuthFailure::PublicValueOutOfRange));
        let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Ffdhe2048);
        let mut change = |message: &mut Vec<u8>| {
            message.truncate(offset);
            message[10..12].fill(0);
        };
        assert_eq!(pair.run(Some((index, &mut change))).1, Some(AuthFailure::WrongPublicLength(0)));
    }
}

#[test]
fn the_host_ignores_what_follows_a_message_and_the_controller_does_not() {
    for index in 0..5 {
        let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Ffdhe2048);
        let failure = pair.run(Some((index, &mut |message: &mut Vec<u8>| message.resize(message.len() + 64, 0x5a)))).1;
        let from_controller = index % 2 == 1;
        assert_eq!(
            (failure.is_none(), pair.both_authenticated()),
            (from_controller, from_controller),
            "message {index}"
        );
    }
}

#[test]
fn a_message_cut_anywhere_is_refused() {
    for (direction, group) in [(OneWay, Group::Null), (Bidirectional, Group::Ffdhe2048)] {
        let policy = only(Hash::Sha512, group);
        let recorded = messages(direction, Hash::Sha512, group);
        for (index, message) in recorded.iter().enumerate() {
            // The exchange up to here costs exponentiations: try the lengths where something begins
            // or ends, and some between.
            let step = if group == Group::Null { 1 } else { 13 };
            for length in (0..message.len()).step_by(step).chain([message.len() - 1]) {
                let cut = &message[..length];
                if index % 2 == 0 {
                    let mut controller = controller_after(index / 2, &recorded, policy.clone());
                    assert!(controller.receive(cut).is_err(), "message {index}, {length} bytes");
                    assert!(!controller.is_authenticated());
                    assert_eq!(controller.message().unwrap()[..2], [0x00, 0xf1]);
                } else {
                    let mut host = host_after(index / 2, &recorded, direction, policy.clone());
                    assert!(host.receive(cut).is_err(), "message {index}, {length} bytes");
                    assert!(!host.is_authenticated());
                    assert_eq!(host.message().unwrap()[..2], [0x00, 0xf0]);
                }
            }
        }
    }
}

#[test]
fn messages_of_every_kind_and_length_with_any_contents_do_no_harm() {
    let recorded = messages(Bidirectional, Hash::Sha256, Group::Null);
    let policy = only(Hash::Sha256, Group::Null);
    let kinds = [
        MessageKind::Negotiate,
        MessageKind::Challenge,
        MessageKind::Reply,
        MessageKind::Success1,
        MessageKind::Success2,
        MessageKind::Failure1,
        MessageKind::Failure2,
    ];
    for received in 0..3 {
        for kind in kinds {
            for length in (0..200).chain([MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1, 16_384]) {
                for fill in [0x00, 0x01, 0xff] {
                    let mut message = vec![fill; length];
                    let header = zerocopy::IntoBytes::as_bytes(&kind.header(TRANSACTION)).to_vec();
                    let front = length.min(header.len());
                    message[..front].copy_from_slice(&header[..front]);
                    let mut controller = controller_after(received, &recorded, policy.clone());
                    let _ = controller.receive(&message);
                    // Success2 contains no proof: when it is expected, the host has authenticated
                    // already.
                    let content = received == 2 && kind == MessageKind::Success2 && length == 16;
                    assert_eq!(controller.is_authenticated(), content, "{kind:?} {length} {fill}");
                    if received < 2 {
                        let mut host = host_after(received, &recorded, Bidirectional, policy.clone());
                        let _ = host.receive(&message);
                        assert!(!host.is_authenticated(), "{kind:?} {length} {fill}");
                    }
                }
            }
        }
    }
}

/// The bytes of a message that are reserved, and so ignored.
fn is_reserved(index: usize, offset: usize) -> bool {
    match (index, offset) {
        (_, 2 | 3) => true,
        (0, offset) => offset == 9 || (13..42).contains(&offset) || offset >= 43,
        (1, offset) => offset == 7,
        (2, offset) => offset == 7 || offset == 9,
        (3, offset) => offset == 7 || (9..16).contains(&offset),
        (_, offset) => offset >= 6,
    }
}

/// Every bit of every message matters, except reserved ones, and the counts of the offer: a longer
/// list still contains the same hash and group.
#[test]
fn a_single_bit_changed_in_any_message_fails_the_exchange() {
    let lengths: Vec<usize> = messages(Bidirectional, Hash::Sha256, Group::Null).iter().map(Vec::len).collect();
    for (index, length) in lengths.into_iter().enumerate() {
        for bit in (0..length * 8).filter(|bit| index > 0 || !matches!(bit / 8, 10 | 11)) {
            let mut pair = Pair::of(Bidirectional, Hash::Sha256, Group::Null);
            let mut change = |message: &mut Vec<u8>| message[bit / 8] ^= 1 << (bit % 8);
            let failure = pair.run(Some((index, &mut change))).1;
            let reserved = is_reserved(index, bit / 8);
            assert_eq!(
                (failure.is_none(), pair.both_authenticated()),
                (reserved, reserved),
                "message {index}, bit {bit}"
            );
        }
    }
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Truncate(usize),
    Insert(usize, u8),
    Remove(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => any::<usize>().prop_map(Mutation::Truncate),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        1 => any::<usize>().prop_map(Mutation::Remove),
    ]
}

fn mutate(message: &mut Vec<u8>, mutations: &[Mutation]) {
    for mutation in mutations {
        let length = message.len();
        match *mutation {
            Mutation::Insert(at, byte) => message.insert(at % (length + 1), byte),
            _ if length == 0 => {}
            Mutation::Set(at, byte) => message[at % length] = byte,
            Mutation::Truncate(at) => message.truncate(at % length),
            Mutation::Remove(at) => {
                message.remove(at % length);
            }
        }
    }
}

/// `message` without its reserved bytes and, for those to the host, without what follows it.
fn meaning(index: usize, message: &[u8], length: usize) -> Vec<u8> {
    let end = if index % 2 == 1 { length.min(message.len()) } else { message.len() };
    let kept = message[..end].iter().enumerate().filter(|&(offset, _)| !is_reserved(index, offset) || end != length);
    kept.map(|(_, &byte)| byte).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn with_a_changed_message_never_both_sides_are_authenticated(
        index in 1usize..5,
        group in prop_oneof![9 => Just(Group::Null), 1 => Just(Group::Ffdhe2048)],
        mutations in prop::collection::vec(mutation(), 1..6),
    ) {
        let mut pair = Pair::of(Bidirectional, Hash::Sha256, group);
        let mut same = false;
        let mut change = |message: &mut Vec<u8>| {
            let before = meaning(index, message, message.len());
            let length = message.len();
            mutate(message, &mutations);
            // A message that lost only its reserved bytes would compare equal.
            same = message.len() >= length && before == meaning(index, message, length);
        };
        let failure = pair.run(Some((index, &mut change))).1;
        prop_assert_eq!(failure.is_none(), same);
        prop_assert_eq!(pair.both_authenticated(), same);
        // A change of the last two messages is too late to affect the side that has authenticated
        // its peer already.
        prop_assert!(same || index >= 3 || !pair.controller.is_authenticated());
        prop_assert!(same || index >= 4 || !pair.host.is_authenticated());
    }

    /// No response covers the offer: a change of it may weaken the agreement, within the policies
    /// of both sides.
    #[test]
    fn a_changed_offer_never_violates_the_policies(mutations in prop::collection::vec(mutation(), 1..6)) {
        let policy = Policy::new(&[Hash::Sha512, Hash::Sha384], &[Group::Ffdhe2048, Group::Null]).unwrap();
        let mut pair = Pair::new(host_config(Bidirectional, policy.clone()), controller_config(policy.clone()));
        let failure = pair.run(Some((0, &mut |message: &mut Vec<u8>| mutate(message, &mutations)))).1;
        prop_assert_eq!(failure.is_none(), pair.both_authenticated());
        if failure.is_none() {
            prop_assert_eq!(pair.host.agreement(), pair.controller.agreement());
            let agreement = pair.host.agreement().unwrap();
            prop_assert!(policy.hashes().contains(&agreement.hash) && policy.groups().contains(&agreement.group));
        } else {
            prop_assert!(!pair.host.is_authenticated() && !pair.controller.is_authenticated());
        }
    }

    #[test]
    fn random_bytes_never_authenticate(received in 0usize..2, message in prop::collection::vec(any::<u8>(), 0..300)) {
        let policy = only(Hash::Sha256, Group::Null);
        let recorded = messages(Bidirectional, Hash::Sha256, Group::Null);
        let mut controller = controller_after(received, &recorded, policy.clone());
        let _ = controller.receive(&message);
        prop_assert!(!controller.is_authenticated());
        let mut host = host_after(received, &recorded, Bidirectional, policy);
        let _ = host.receive(&message);
        prop_assert!(!host.is_authenticated());
    }
}
