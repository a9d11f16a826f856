//! How connections end.

use bytes::Bytes;

use super::world::{World, ask, config, raw_request};
use crate::testing::{Answer, client_flags};
use crate::wire::transmission::{REQUEST_MAGIC, command};
use crate::{CloseReason, Fault, NbdError, Reply, Stage};

#[test]
fn a_client_that_disconnects_gets_the_replies_that_are_owed_first() {
    let mut world = World::simple("disk");
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    world.ask(ask(command::READ, 2, 0, 4), &[]);
    let bytes = [&world.client.disconnect()[..], b"what must not come"].concat();
    world.feed(&bytes);
    assert_eq!((world.connection.stage(), world.connection.wants_bytes()), (Stage::Draining, false));
    world.feed(b"and more of it");
    world.reply(Ok(Reply::Done));
    assert_eq!((world.closed.clone(), world.finished(1)), (None, Ok(Answer::Done)));
    world.reply(Ok(Reply::data(Bytes::from_static(b"zone"))));
    assert_eq!(world.finished(2), Ok(Answer::Data(b"zone".to_vec())));
    assert_eq!(world.closed, Some(CloseReason::Disconnected));
}

#[test]
fn a_client_that_disconnects_with_nothing_under_way_is_closed_at_once() {
    let mut world = World::simple("disk");
    world.feed(&world.client.disconnect());
    assert_eq!((world.closed, world.connection.stage()), (Some(CloseReason::Disconnected), Stage::Closed));
}

#[test]
fn bytes_that_are_no_request_end_the_connection_and_late_replies_are_not_heard() {
    let mut world = World::simple("disk");
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let request = world.requests.pop_front().unwrap();
    world.feed(&raw_request(0x2560_9514, ask(command::READ, 2, 0, 4)));
    assert_eq!(world.closed, Some(CloseReason::Fault(Fault::RequestMagic { found: 0x2560_9514 })));
    world.connection.reply(request.id, Ok(Reply::Done));
    world.feed(&raw_request(REQUEST_MAGIC, ask(command::READ, 3, 0, 4)));
    assert!(world.connection.poll_effect().is_none() && world.connection.buffered_bytes() == 0);
}

#[test]
fn requests_that_the_caller_has_not_seen_are_not_shown_after_a_fault() {
    let mut world = World::simple("disk");
    let read = world.client.read(1, 0, 4);
    world.connection.received([&read[..], &[0; 28]].concat().into());
    world.settle();
    assert_eq!((world.requests.len(), world.closed.is_some()), (0, true));
}

#[test]
fn a_socket_that_is_gone_leaves_nothing() {
    let mut world = World::simple("disk");
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let bytes = world.client.write(2, 0, &[0; 4096]);
    world.connection.received(bytes.slice(..1000));
    world.connection.disconnected();
    assert!(world.connection.poll_effect().is_none());
    assert_eq!((world.connection.stage(), world.connection.buffered_bytes()), (Stage::Closed, 0));
    let request = world.requests.pop_front().unwrap();
    world.connection.reply(request.id, Ok(Reply::Done));
    assert!(world.connection.poll_effect().is_none());
    world.connection.check_invariants();
}

#[test]
fn a_server_that_ends_closes_handshakes_at_once() {
    let mut world = World::new(config());
    world.feed(&client_flags(3));
    world.connection.shutdown();
    world.settle();
    assert_eq!(world.closed, Some(CloseReason::Shutdown));
}

#[test]
fn a_server_that_ends_answers_what_is_under_way_and_refuses_the_rest() {
    let mut world = World::structured("disk");
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let write = world.client.write(2, 0, &[0; 4096]);
    world.feed(&write[..100]);
    world.connection.shutdown();
    world.settle();
    world.feed(&write[100..]);
    assert_eq!(world.requests.len(), 2, "its header had been taken");
    let late = world.client.write(3, 0, &[0; 4096]);
    world.feed(&late);
    assert_eq!(world.finished(3).unwrap_err().error, NbdError::Shutdown);
    world.reply(Ok(Reply::Done));
    assert_eq!((world.closed.clone(), world.finished(1)), (None, Ok(Answer::Done)));
    world.reply(Ok(Reply::Done));
    assert_eq!((world.closed.clone(), world.finished(2)), (Some(CloseReason::Shutdown), Ok(Answer::Done)));
}

#[test]
fn a_server_that_ends_closes_an_idle_client() {
    let mut world = World::simple("disk");
    world.connection.shutdown();
    world.settle();
    assert_eq!(world.closed, Some(CloseReason::Shutdown));
    world.connection.shutdown();
    world.settle();
}
