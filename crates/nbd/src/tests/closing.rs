//! Closing of connections.

use bytes::Bytes;

use super::testbed::{Testbed, ask, config, raw_request};
use crate::testing::{Answer, client_flags};
use crate::wire::transmission::{REQUEST_MAGIC, command};
use crate::{CloseReason, Fault, NbdError, Reply, Stage};

#[test]
fn a_client_that_disconnects_gets_outstanding_replies_first() {
    let mut testbed = Testbed::simple("disk");
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    testbed.ask(ask(command::READ, 2, 0, 4), &[]);
    let bytes = [&testbed.client.disconnect()[..], b"to be ignored"].concat();
    testbed.feed(&bytes);
    assert_eq!((testbed.connection.stage(), testbed.connection.wants_bytes()), (Stage::Draining, false));
    testbed.feed(b"and more of it");
    testbed.reply(Ok(Reply::Done));
    assert_eq!((testbed.closed.clone(), testbed.finished(1)), (None, Ok(Answer::Done)));
    testbed.reply(Ok(Reply::data(Bytes::from_static(b"zone"))));
    assert_eq!(testbed.finished(2), Ok(Answer::Data(b"zone".to_vec())));
    assert_eq!(testbed.closed, Some(CloseReason::Disconnected));
}

#[test]
fn a_client_that_disconnects_with_nothing_in_flight_is_closed_at_once() {
    let mut testbed = Testbed::simple("disk");
    testbed.feed(&testbed.client.disconnect());
    assert_eq!((testbed.closed, testbed.connection.stage()), (Some(CloseReason::Disconnected), Stage::Closed));
}

#[test]
fn an_invalid_request_closes_the_connection_and_late_replies_are_dropped() {
    let mut testbed = Testbed::simple("disk");
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let request = testbed.requests.pop_front().unwrap();
    testbed.feed(&raw_request(0x2560_9514, ask(command::READ, 2, 0, 4)));
    assert_eq!(testbed.closed, Some(CloseReason::Fault(Fault::RequestMagic { found: 0x2560_9514 })));
    testbed.connection.reply(request.id, Ok(Reply::Done));
    testbed.feed(&raw_request(REQUEST_MAGIC, ask(command::READ, 3, 0, 4)));
    assert!(testbed.connection.poll_effect().is_none() && testbed.connection.buffered_bytes() == 0);
}

#[test]
fn requests_that_the_caller_has_not_polled_are_dropped_after_a_fault() {
    let mut testbed = Testbed::simple("disk");
    let read = testbed.client.read(1, 0, 4);
    testbed.connection.on_bytes([&read[..], &[0; 28]].concat().into());
    testbed.run_effects();
    assert_eq!((testbed.requests.len(), testbed.closed.is_some()), (0, true));
}

#[test]
fn a_disconnected_socket_leaves_nothing_buffered() {
    let mut testbed = Testbed::simple("disk");
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let bytes = testbed.client.write(2, 0, &[0; 4096]);
    testbed.connection.on_bytes(bytes.slice(..1000));
    testbed.connection.on_disconnect();
    assert!(testbed.connection.poll_effect().is_none());
    assert_eq!((testbed.connection.stage(), testbed.connection.buffered_bytes()), (Stage::Closed, 0));
    let request = testbed.requests.pop_front().unwrap();
    testbed.connection.reply(request.id, Ok(Reply::Done));
    assert!(testbed.connection.poll_effect().is_none());
    testbed.connection.check_invariants();
}

#[test]
fn a_shutdown_closes_handshakes_at_once() {
    let mut testbed = Testbed::new(config());
    testbed.feed(&client_flags(3));
    testbed.connection.shutdown();
    testbed.run_effects();
    assert_eq!(testbed.closed, Some(CloseReason::Shutdown));
}

#[test]
fn a_shutdown_answers_requests_in_flight_and_refuses_the_rest() {
    let mut testbed = Testbed::structured("disk");
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let write = testbed.client.write(2, 0, &[0; 4096]);
    testbed.feed(&write[..100]);
    testbed.connection.shutdown();
    testbed.run_effects();
    testbed.feed(&write[100..]);
    assert_eq!(testbed.requests.len(), 2, "its header had been processed");
    let late = testbed.client.write(3, 0, &[0; 4096]);
    testbed.feed(&late);
    assert_eq!(testbed.finished(3).unwrap_err().error, NbdError::Shutdown);
    testbed.reply(Ok(Reply::Done));
    assert_eq!((testbed.closed.clone(), testbed.finished(1)), (None, Ok(Answer::Done)));
    testbed.reply(Ok(Reply::Done));
    assert_eq!((testbed.closed.clone(), testbed.finished(2)), (Some(CloseReason::Shutdown), Ok(Answer::Done)));
}

#[test]
fn a_shutdown_closes_an_idle_client() {
    let mut testbed = Testbed::simple("disk");
    testbed.connection.shutdown();
    testbed.run_effects();
    assert_eq!(testbed.closed, Some(CloseReason::Shutdown));
    testbed.connection.shutdown();
    testbed.run_effects();
}
