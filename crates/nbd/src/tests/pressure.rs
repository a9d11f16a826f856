//! Limits on requests and data in flight.

use bytes::Bytes;

use super::testbed::{Testbed, ask, config};
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

fn testbed(requests: usize) -> Testbed {
    Testbed::structured_with(limited(requests), "disk")
}

#[test]
fn with_all_requests_in_flight_no_more_bytes_are_wanted_until_one_ends() {
    let mut testbed = testbed(2);
    for cookie in 0..4 {
        let bytes = testbed.client.ask(ask(command::FLUSH, cookie, 0, 0), &[]);
        testbed.feed(&bytes);
    }
    assert_eq!((testbed.requests.len(), testbed.connection.wants_bytes()), (2, false));
    testbed.reply(Ok(Reply::Done));
    assert_eq!((testbed.requests.len(), testbed.connection.wants_bytes()), (2, false), "the third takes its slot");
    testbed.reply(Ok(Reply::Done));
    testbed.reply(Ok(Reply::Done));
    assert!(testbed.connection.wants_bytes());
    testbed.reply(Ok(Reply::Done));
    assert_eq!((0..4).map(|cookie| testbed.finished(cookie)).filter(Result::is_ok).count(), 4);
}

#[test]
fn data_waits_for_memory_and_is_then_processed() {
    let mut testbed = testbed(8);
    let half = REQUEST_BYTES_MAX / 2;
    let bytes = testbed.client.write(0, 0, &vec![1; half as usize]);
    testbed.feed(&bytes);
    testbed.ask(ask(command::READ, 1, 0, half), &[]);
    assert!(!testbed.connection.wants_bytes(), "all memory is in use");
    let bytes = testbed.client.read(2, 0, 1);
    testbed.feed(&bytes);
    assert_eq!(testbed.requests.len(), 2);
    testbed.reply(Ok(Reply::Done));
    assert_eq!(testbed.requests.len(), 2, "the memory of the write is free");
    assert!(testbed.connection.wants_bytes());
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut testbed = testbed(8);
    testbed.hold = true;
    testbed.ask(ask(command::READ, 0, 0, REQUEST_BYTES_MAX), &[]);
    testbed.reply(Ok(Reply::data(Bytes::from(vec![1; REQUEST_BYTES_MAX as usize]))));
    assert!(!testbed.connection.wants_bytes());
    let bytes = testbed.client.read(1, 0, 512);
    testbed.feed(&bytes);
    assert!(testbed.requests.is_empty());
    testbed.release();
    testbed.run_effects();
    assert!(testbed.connection.wants_bytes() && testbed.requests.len() == 1);
    testbed.reply(Ok(Reply::data(Bytes::from(vec![2; 512]))));
    testbed.release();
    assert_eq!(testbed.finished(0), Ok(Answer::Data(vec![1; REQUEST_BYTES_MAX as usize])));
    assert_eq!(testbed.finished(1), Ok(Answer::Data(vec![2; 512])));
}

#[test]
fn refusals_of_a_client_that_does_not_read_stay_within_the_bound() {
    let mut testbed = testbed(8);
    testbed.hold = true;
    let bytes = testbed.client.read(1, u64::MAX, 512);
    let many = Bytes::from(bytes.repeat(4096));
    let most = limited(8).limits.buffered_bytes_max() + many.len();
    let mut rounds = 0;
    while testbed.connection.wants_bytes() {
        testbed.connection.on_bytes(many.clone());
        testbed.run_effects();
        assert!(testbed.connection.buffered_bytes() <= most);
        rounds += 1;
    }
    assert!(rounds > 50 && testbed.unsent.len() >= DATA_BYTES_MIN, "{rounds} rounds");
}

#[test]
fn lists_for_a_client_that_does_not_read_stay_within_the_bound() {
    let mut long = limited(8);
    long.exports = (0..256).map(|index| crate::Export::new(&format!("{index:04096}"), 512)).collect();
    long.exports.iter_mut().for_each(|export| export.description = "d".repeat(4096));
    let most = long.limits.buffered_bytes_max();
    let mut testbed = Testbed::greeted(long);
    testbed.hold = true;
    let mut rounds = 0;
    while testbed.connection.wants_bytes() {
        let bytes = testbed.client.option(option::LIST, &[]);
        testbed.feed(&bytes);
        assert!(testbed.connection.buffered_bytes() <= most);
        rounds += 1;
    }
    assert_eq!(rounds, DATA_BYTES_MIN / (256 * (8192 + 24)) + 1);
    testbed.release();
    assert!(testbed.connection.wants_bytes() && testbed.client.is_idle());
}

#[test]
fn any_request_is_served_with_a_limit_of_one_request() {
    let mut testbed = testbed(1);
    for cookie in 0..3 {
        testbed.ask(ask(command::WRITE, cookie, 0, REQUEST_BYTES_MAX), &vec![1; REQUEST_BYTES_MAX as usize]);
        testbed.reply(Ok(Reply::Done));
        assert_eq!(testbed.finished(cookie), Ok(Answer::Done));
    }
}

#[test]
#[should_panic(expected = "bytes sent of")]
fn a_caller_that_reports_more_bytes_than_there_were_panics() {
    Testbed::simple("disk").connection.on_sent(1);
}

/// Feeds bytes with this allowance, and returns the requests in flight.
fn in_flight(testbed: &mut Testbed, allowed: usize, bytes: &[u8]) -> usize {
    testbed.connection.allow(allowed);
    testbed.feed(bytes);
    testbed.requests.len()
}

#[test]
fn a_request_waits_until_the_caller_allows_its_memory() {
    let mut testbed = testbed(8);
    let read = testbed.client.ask(ask(command::READ, 0, 0, 3000), &[]);
    assert_eq!(in_flight(&mut testbed, 4096, &read), 1);
    assert_eq!((testbed.connection.held_bytes(), testbed.connection.wanted_bytes()), (3000, None));
    let write = testbed.client.write(1, 0, &[7; 2000]);
    let (header, data) = write.split_at(28);
    assert_eq!(in_flight(&mut testbed, 4096, header), 1);
    assert_eq!((testbed.connection.wanted_bytes(), testbed.connection.wants_bytes()), (Some(5000), false));
    testbed.connection.allow(4999);
    assert!(!testbed.connection.wants_bytes());
    testbed.connection.allow(5000);
    assert_eq!((testbed.connection.wanted_bytes(), testbed.connection.wants_bytes()), (None, true));
    testbed.feed(data);
    assert_eq!(testbed.requests.len(), 2);
}

#[test]
fn a_block_status_reserves_its_longest_reply() {
    let mut testbed = testbed(8);
    let status = testbed.client.ask(ask(command::BLOCK_STATUS, 0, 0, 4096), &[]);
    assert_eq!(in_flight(&mut testbed, 8000, &status), 0);
    assert_eq!(testbed.connection.wanted_bytes(), Some(20 + 4 + 1024 * 8));
}

#[test]
fn unread_replies_count_against_the_allowance_too() {
    let mut testbed = testbed(8);
    testbed.hold = true;
    testbed.connection.allow(100);
    for cookie in 0..100 {
        // Beyond the end of the export.
        let bytes = testbed.client.ask(ask(command::READ, cookie, 1 << 40, 1), &[]);
        testbed.feed(&bytes);
    }
    let held = testbed.connection.held_bytes();
    assert!((101..300).contains(&held), "{held} bytes");
    assert_eq!((testbed.connection.wanted_bytes(), testbed.connection.wants_bytes()), (Some(held), false));
    testbed.connection.on_sent(held);
    assert_eq!(testbed.connection.wanted_bytes(), Some(testbed.connection.held_bytes()), "the next have been answered");
    assert!(testbed.connection.held_bytes() < 300);
}
