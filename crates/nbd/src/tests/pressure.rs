//! As much as may be under way, and not more.

use bytes::Bytes;

use super::world::{World, ask, config};
use crate::limits::{DATA_BYTES_MIN, REQUEST_BYTES_MAX};
use crate::testing::Answer;
use crate::wire::handshake::option;
use crate::wire::transmission::command;
use crate::{Limits, Reply, ServerConfig};

fn limited(requests: usize) -> ServerConfig {
    let mut config = config();
    config.exports[0].size_bytes = 1 << 30;
    ServerConfig { limits: Limits { requests, data_bytes: DATA_BYTES_MIN }, ..config }
}

fn world(requests: usize) -> World {
    World::structured_with(limited(requests), "disk")
}

#[test]
fn with_all_requests_under_way_no_more_bytes_are_wanted_until_one_ends() {
    let mut world = world(2);
    for cookie in 0..4 {
        let bytes = world.client.ask(ask(command::FLUSH, cookie, 0, 0), &[]);
        world.feed(&bytes);
    }
    assert_eq!((world.requests.len(), world.connection.wants_bytes()), (2, false));
    world.reply(Ok(Reply::Done));
    assert_eq!((world.requests.len(), world.connection.wants_bytes()), (2, false), "the third takes its place");
    world.reply(Ok(Reply::Done));
    world.reply(Ok(Reply::Done));
    assert!(world.connection.wants_bytes());
    world.reply(Ok(Reply::Done));
    assert_eq!((0..4).map(|cookie| world.finished(cookie)).filter(Result::is_ok).count(), 4);
}

#[test]
fn data_waits_for_room_and_then_goes_on() {
    let mut world = world(8);
    let half = REQUEST_BYTES_MAX / 2;
    let bytes = world.client.write(0, 0, &vec![1; half as usize]);
    world.feed(&bytes);
    world.ask(ask(command::READ, 1, 0, half), &[]);
    assert!(!world.connection.wants_bytes(), "all room is taken");
    let bytes = world.client.read(2, 0, 1);
    world.feed(&bytes);
    assert_eq!(world.requests.len(), 2);
    world.reply(Ok(Reply::Done));
    assert_eq!(world.requests.len(), 2, "what the write held is free");
    assert!(world.connection.wants_bytes());
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut world = world(8);
    world.hold = true;
    world.ask(ask(command::READ, 0, 0, REQUEST_BYTES_MAX), &[]);
    world.reply(Ok(Reply::data(Bytes::from(vec![1; REQUEST_BYTES_MAX as usize]))));
    assert!(!world.connection.wants_bytes());
    let bytes = world.client.read(1, 0, 512);
    world.feed(&bytes);
    assert!(world.requests.is_empty());
    world.release();
    world.settle();
    assert!(world.connection.wants_bytes() && world.requests.len() == 1);
    world.reply(Ok(Reply::data(Bytes::from(vec![2; 512]))));
    world.release();
    assert_eq!(world.finished(0), Ok(Answer::Data(vec![1; REQUEST_BYTES_MAX as usize])));
    assert_eq!(world.finished(1), Ok(Answer::Data(vec![2; 512])));
}

#[test]
fn refusals_of_a_client_that_does_not_read_stay_within_the_bound() {
    let mut world = world(8);
    world.hold = true;
    let bytes = world.client.read(1, u64::MAX, 512);
    let many = Bytes::from(bytes.repeat(4096));
    let most = limited(8).limits.buffered_bytes_max() + many.len();
    let mut rounds = 0;
    while world.connection.wants_bytes() {
        world.connection.received(many.clone());
        world.settle();
        assert!(world.connection.buffered_bytes() <= most);
        rounds += 1;
    }
    assert!(rounds > 50 && world.unsent.len() >= DATA_BYTES_MIN, "{rounds} rounds");
}

#[test]
fn lists_for_a_client_that_does_not_read_stay_within_the_bound() {
    let mut long = limited(8);
    long.exports = (0..256).map(|index| crate::Export::new(&format!("{index:04096}"), 512)).collect();
    long.exports.iter_mut().for_each(|export| export.description = "d".repeat(4096));
    let most = long.limits.buffered_bytes_max();
    let mut world = World::greeted(long);
    world.hold = true;
    let mut rounds = 0;
    while world.connection.wants_bytes() {
        let bytes = world.client.option(option::LIST, &[]);
        world.feed(&bytes);
        assert!(world.connection.buffered_bytes() <= most);
        rounds += 1;
    }
    assert_eq!(rounds, DATA_BYTES_MIN / (256 * (8192 + 24)) + 1);
    world.release();
    assert!(world.connection.wants_bytes() && world.client.is_idle());
}

#[test]
fn with_room_for_one_request_any_request_is_served() {
    let mut world = world(1);
    for cookie in 0..3 {
        world.ask(ask(command::WRITE, cookie, 0, REQUEST_BYTES_MAX), &vec![1; REQUEST_BYTES_MAX as usize]);
        world.reply(Ok(Reply::Done));
        assert_eq!(world.finished(cookie), Ok(Answer::Done));
    }
}

#[test]
#[should_panic(expected = "bytes sent of")]
fn a_caller_that_sends_more_than_there_was_has_a_mistake() {
    World::simple("disk").connection.sent(1);
}

/// Sends bytes with so much allowed; requests in flight then.
fn in_flight(world: &mut World, allowed: usize, bytes: &[u8]) -> usize {
    world.connection.allow(allowed);
    world.feed(bytes);
    world.requests.len()
}

#[test]
fn a_request_waits_until_the_caller_allows_what_it_holds() {
    let mut world = world(8);
    let read = world.client.ask(ask(command::READ, 0, 0, 3000), &[]);
    assert_eq!(in_flight(&mut world, 4096, &read), 1);
    assert_eq!((world.connection.held_bytes(), world.connection.wanted_bytes()), (3000, None));
    let write = world.client.write(1, 0, &[7; 2000]);
    let (header, data) = write.split_at(28);
    assert_eq!(in_flight(&mut world, 4096, header), 1);
    assert_eq!((world.connection.wanted_bytes(), world.connection.wants_bytes()), (Some(5000), false));
    world.connection.allow(4999);
    assert!(!world.connection.wants_bytes());
    world.connection.allow(5000);
    assert_eq!((world.connection.wanted_bytes(), world.connection.wants_bytes()), (None, true));
    world.feed(data);
    assert_eq!(world.requests.len(), 2);
}

#[test]
fn a_status_holds_its_longest_reply() {
    let mut world = world(8);
    let status = world.client.ask(ask(command::BLOCK_STATUS, 0, 0, 4096), &[]);
    assert_eq!(in_flight(&mut world, 8000, &status), 0);
    assert_eq!(world.connection.wanted_bytes(), Some(20 + 4 + 1024 * 8));
}

#[test]
fn replies_that_the_client_does_not_read_end_what_is_allowed_too() {
    let mut world = world(8);
    world.hold = true;
    world.connection.allow(100);
    for cookie in 0..100 {
        // Behind the export.
        let bytes = world.client.ask(ask(command::READ, cookie, 1 << 40, 1), &[]);
        world.feed(&bytes);
    }
    let held = world.connection.held_bytes();
    assert!((101..300).contains(&held), "{held} bytes");
    assert_eq!((world.connection.wanted_bytes(), world.connection.wants_bytes()), (Some(held), false));
    world.connection.sent(held);
    assert_eq!(world.connection.wanted_bytes(), Some(world.connection.held_bytes()), "the next have been answered");
    assert!(world.connection.held_bytes() < 300);
}
