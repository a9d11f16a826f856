//! STARTTLS, and state that must not survive it.

use super::testbed::{Testbed, ask, config};
use crate::testing::{info_data, meta_context_data, option as option_bytes};
use crate::wire::handshake::{option, reply};
use crate::wire::transmission::command;
use crate::{CloseReason, Fault, NbdError, ServerConfig, TlsPolicy};

fn testbed(tls: TlsPolicy) -> Testbed {
    Testbed::greeted(ServerConfig { tls, ..config() })
}

#[test]
fn a_server_without_tls_refuses_starttls_and_continues() {
    let mut testbed = testbed(TlsPolicy::Off);
    assert_eq!(testbed.option_reply(option::STARTTLS, &[]), reply::ERR_POLICY);
    assert!(!testbed.tls && !testbed.connection.is_encrypted());
    assert_eq!(testbed.option(option::GO, &info_data(b"disk", &[])).last().unwrap().kind, reply::ACK);
}

#[test]
fn a_client_that_starts_tls_continues_encrypted() {
    for tls in [TlsPolicy::Allowed, TlsPolicy::Required] {
        let mut testbed = testbed(tls);
        assert_eq!(testbed.option_reply(option::STARTTLS, b"data"), reply::ERR_INVALID);
        assert_eq!(testbed.option_reply(option::STARTTLS, &[]), reply::ACK);
        assert!(testbed.tls && testbed.connection.is_encrypted());
        assert_eq!(testbed.option_reply(option::STARTTLS, &[]), reply::ERR_INVALID, "not twice");
        assert_eq!(testbed.option(option::LIST, &[]).len(), 3);
        assert_eq!(testbed.option(option::GO, &info_data(b"disk", &[])).last().unwrap().kind, reply::ACK);
    }
}

#[test]
fn where_tls_is_allowed_it_is_not_required() {
    let mut testbed = testbed(TlsPolicy::Allowed);
    assert_eq!(testbed.option(option::GO, &info_data(b"disk", &[])).last().unwrap().kind, reply::ACK);
}

#[test]
fn where_tls_is_required_other_options_are_refused_before_it() {
    let mut testbed = testbed(TlsPolicy::Required);
    let options = [option::LIST, option::INFO, option::GO, option::STRUCTURED_REPLY, option::SET_META_CONTEXT, 11, 99];
    for option in options {
        for data in [&b""[..], &info_data(b"disk", &[]), &[0; 70_000]] {
            assert_eq!(testbed.option_reply(option, data), reply::ERR_TLS_REQD);
        }
    }
    let bytes = testbed.client.option(option::EXPORT_NAME, b"disk");
    testbed.feed(&bytes);
    assert_eq!(testbed.closed, Some(CloseReason::TlsRequired));
}

#[test]
fn where_tls_is_required_a_client_may_still_abort() {
    let mut testbed = testbed(TlsPolicy::Required);
    assert_eq!(testbed.option_reply(option::ABORT, &[]), reply::ACK);
    assert_eq!(testbed.closed, Some(CloseReason::Aborted));
}

#[test]
fn negotiation_before_tls_is_discarded() {
    let mut testbed = testbed(TlsPolicy::Allowed);
    let structured = testbed.client.structured("disk");
    testbed.feed(&structured);
    while testbed.client.option_replied().is_some() {}
    testbed.option(option::STARTTLS, &[]);
    let contexts = meta_context_data(b"disk", &[]);
    assert_eq!(testbed.option_reply(option::LIST_META_CONTEXT, &contexts), reply::ERR_INVALID);
    assert_eq!(testbed.option_reply(option::STRUCTURED_REPLY, &[]), reply::ACK);
    testbed.option(option::GO, &info_data(b"disk", &[]));
    assert_eq!(testbed.refusal(ask(command::BLOCK_STATUS, 1, 0, 512), &[]), NbdError::Invalid);
}

#[test]
fn unencrypted_bytes_after_starttls_are_refused() {
    let together = [option_bytes(option::STARTTLS, &[]), option_bytes(option::LIST, &[])].concat();
    let mut one = testbed(TlsPolicy::Allowed);
    one.feed(&together);
    assert_eq!(one.closed, Some(CloseReason::Fault(Fault::PlaintextBehindStartTls)));
    assert!(!one.tls, "TLS is not started");
    // The same, in two pieces that the caller passes before it polls effects.
    let mut two = testbed(TlsPolicy::Allowed);
    let (first, second) = together.split_at(16);
    two.connection.on_bytes(first.to_vec().into());
    two.connection.on_bytes(second.to_vec().into());
    two.client.option(option::STARTTLS, &[]);
    two.run_effects();
    assert_eq!(two.closed, Some(CloseReason::Fault(Fault::PlaintextBehindStartTls)));
}
