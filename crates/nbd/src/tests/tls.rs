//! STARTTLS, and what must not survive it.

use super::world::{World, ask, config};
use crate::testing::{info_data, meta_context_data, option as option_bytes};
use crate::wire::handshake::{option, reply};
use crate::wire::transmission::command;
use crate::{CloseReason, Fault, NbdError, ServerConfig, TlsPolicy};

fn world(tls: TlsPolicy) -> World {
    World::greeted(ServerConfig { tls, ..config() })
}

#[test]
fn a_server_without_tls_refuses_it_and_goes_on() {
    let mut world = world(TlsPolicy::Off);
    assert_eq!(world.option_reply(option::STARTTLS, &[]), reply::ERR_POLICY);
    assert!(!world.tls && !world.connection.is_encrypted());
    assert_eq!(world.option(option::GO, &info_data(b"disk", &[])).last().unwrap().kind, reply::ACK);
}

#[test]
fn a_client_that_starts_tls_goes_on_in_it() {
    for tls in [TlsPolicy::Allowed, TlsPolicy::Required] {
        let mut world = world(tls);
        assert_eq!(world.option_reply(option::STARTTLS, b"data"), reply::ERR_INVALID);
        assert_eq!(world.option_reply(option::STARTTLS, &[]), reply::ACK);
        assert!(world.tls && world.connection.is_encrypted());
        assert_eq!(world.option_reply(option::STARTTLS, &[]), reply::ERR_INVALID, "not twice");
        assert_eq!(world.option(option::LIST, &[]).len(), 3);
        assert_eq!(world.option(option::GO, &info_data(b"disk", &[])).last().unwrap().kind, reply::ACK);
    }
}

#[test]
fn where_tls_is_allowed_nobody_needs_it() {
    let mut world = world(TlsPolicy::Allowed);
    assert_eq!(world.option(option::GO, &info_data(b"disk", &[])).last().unwrap().kind, reply::ACK);
}

#[test]
fn where_tls_is_required_nothing_else_comes_first() {
    let mut world = world(TlsPolicy::Required);
    let options = [option::LIST, option::INFO, option::GO, option::STRUCTURED_REPLY, option::SET_META_CONTEXT, 11, 99];
    for option in options {
        for data in [&b""[..], &info_data(b"disk", &[]), &[0; 70_000]] {
            assert_eq!(world.option_reply(option, data), reply::ERR_TLS_REQD);
        }
    }
    let bytes = world.client.option(option::EXPORT_NAME, b"disk");
    world.feed(&bytes);
    assert_eq!(world.closed, Some(CloseReason::TlsRequired));
}

#[test]
fn where_tls_is_required_a_client_may_still_leave() {
    let mut world = world(TlsPolicy::Required);
    assert_eq!(world.option_reply(option::ABORT, &[]), reply::ACK);
    assert_eq!(world.closed, Some(CloseReason::Aborted));
}

#[test]
fn what_was_agreed_on_before_tls_does_not_hold_in_it() {
    let mut world = world(TlsPolicy::Allowed);
    let structured = world.client.structured("disk");
    world.feed(&structured);
    while world.client.option_replied().is_some() {}
    world.option(option::STARTTLS, &[]);
    let contexts = meta_context_data(b"disk", &[]);
    assert_eq!(world.option_reply(option::LIST_META_CONTEXT, &contexts), reply::ERR_INVALID);
    assert_eq!(world.option_reply(option::STRUCTURED_REPLY, &[]), reply::ACK);
    world.option(option::GO, &info_data(b"disk", &[]));
    assert_eq!(world.refusal(ask(command::BLOCK_STATUS, 1, 0, 512), &[]), NbdError::Invalid);
}

#[test]
fn words_of_a_stranger_behind_starttls_are_not_taken_for_the_clients() {
    let together = [option_bytes(option::STARTTLS, &[]), option_bytes(option::LIST, &[])].concat();
    let mut one = world(TlsPolicy::Allowed);
    one.feed(&together);
    assert_eq!(one.closed, Some(CloseReason::Fault(Fault::PlaintextBehindStartTls)));
    assert!(!one.tls, "nobody is told to start");
    // The same, in two pieces that the caller hands over before it looks at the effects.
    let mut two = world(TlsPolicy::Allowed);
    let (first, second) = together.split_at(16);
    two.connection.received(first.to_vec().into());
    two.connection.received(second.to_vec().into());
    two.client.option(option::STARTTLS, &[]);
    two.settle();
    assert_eq!(two.closed, Some(CloseReason::Fault(Fault::PlaintextBehindStartTls)));
}
