//! Requests passed to the caller, and its replies to clients.

use bytes::Bytes;

use super::testbed::{Testbed, ask, config};
use crate::limits::SHARED_DATA_BYTES_MIN;
use crate::testing::{Answer, Ask};
use crate::wire::transmission::{command, command_flags as flag};
use crate::{Extent, NbdError, Operation, Reply};

fn extent(length: u64, is_hole: bool, is_zero: bool) -> Extent {
    Extent { length, is_hole, is_zero }
}

#[test]
fn every_command_reaches_the_caller_with_its_flags() {
    let mut fast = config();
    fast.exports[0].fast_zero = true;
    let mut testbed = Testbed::structured_with(fast, "disk");
    let zeroes = |fua, may_trim, fast| Operation::WriteZeroes { offset: 512, length: 1024, fua, may_trim, fast };
    let data = Bytes::from(vec![9; 1024]);
    let cases = [
        (command::READ, 0, Operation::Read { offset: 512, length: 1024 }),
        (command::READ, flag::FUA | flag::DF, Operation::Read { offset: 512, length: 1024 }),
        (command::WRITE, 0, Operation::Write { offset: 512, data: data.clone(), fua: false }),
        (command::WRITE, flag::FUA, Operation::Write { offset: 512, data: data.clone(), fua: true }),
        (command::TRIM, 0, Operation::Trim { offset: 512, length: 1024, fua: false }),
        (command::TRIM, flag::FUA, Operation::Trim { offset: 512, length: 1024, fua: true }),
        (command::WRITE_ZEROES, 0, zeroes(false, true, false)),
        (command::WRITE_ZEROES, flag::NO_HOLE | flag::FUA, zeroes(true, false, false)),
        (command::WRITE_ZEROES, flag::FAST_ZERO, zeroes(false, true, true)),
        (command::BLOCK_STATUS, 0, Operation::BlockStatus { offset: 512, length: 1024, one: false }),
        (command::BLOCK_STATUS, flag::REQ_ONE, Operation::BlockStatus { offset: 512, length: 1024, one: true }),
    ];
    for (cookie, (command, flags, operation)) in cases.into_iter().enumerate() {
        let ask = Ask { command, flags, cookie: cookie as u64, offset: 512, length: 1024 };
        let data: &[u8] = if command == command::WRITE { &data } else { &[] };
        assert_eq!(testbed.ask(ask, data), operation);
    }
    let flush = ask(command::FLUSH, 99, 0, 0);
    assert_eq!(testbed.ask(Ask { flags: flag::FUA, ..flush }, &[]), Operation::Flush);
    assert_eq!(testbed.connection.requests_in_flight(), 12);
}

#[test]
fn replies_reach_the_client_in_the_order_of_the_caller() {
    for mut testbed in [Testbed::simple("disk"), Testbed::structured("disk")] {
        testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
        testbed.ask(ask(command::TRIM, 2, 0, 512), &[]);
        testbed.ask(ask(command::READ, 3, 0, 4), &[]);
        testbed.requests.rotate_left(2);
        testbed.reply(Ok(Reply::data(Bytes::from_static(b"zone"))));
        assert_eq!(testbed.finished(3), Ok(Answer::Data(b"zone".to_vec())));
        testbed.requests.swap(0, 1);
        testbed.reply(Ok(Reply::Done));
        testbed.reply(Err(NbdError::NoSpace));
        assert_eq!(testbed.finished(2), Ok(Answer::Done));
        assert_eq!(testbed.finished(1).unwrap_err().error, NbdError::NoSpace);
        assert!(testbed.client.is_idle() && testbed.connection.requests_in_flight() == 0);
    }
}

#[test]
fn requests_with_the_same_cookie_have_different_ids() {
    let mut testbed = Testbed::simple("disk");
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    testbed.reply(Ok(Reply::Done));
    assert_eq!(testbed.finished(1), Ok(Answer::Done));
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    testbed.reply(Err(NbdError::Io));
    assert_eq!(testbed.finished(1).unwrap_err().error, NbdError::Io);
}

#[test]
fn requests_of_no_bytes_complete_at_once() {
    for mut testbed in [Testbed::simple("disk"), Testbed::structured("disk")] {
        for (cookie, command) in [command::WRITE, command::TRIM, command::WRITE_ZEROES].into_iter().enumerate() {
            assert_eq!(testbed.ask_server(ask(command, cookie as u64, 512, 0), &[]), Ok(Answer::Done));
        }
        assert_eq!(testbed.ask_server(ask(command::READ, 9, 512, 0), &[]), Ok(Answer::Data(vec![])));
    }
}

#[test]
fn data_of_a_write_are_one_piece_however_they_are_split() {
    let data: Vec<u8> = (0..100_000).map(|index| (index / 7) as u8).collect();
    for split in [1_000, 28, 99_999, 200_000] {
        let mut testbed = Testbed::simple("disk");
        let bytes = testbed.client.write(5, 4096, &data);
        for chunk in bytes.chunks(split) {
            assert!(testbed.connection.wants_bytes());
            testbed.feed(chunk);
        }
        let Operation::Write { data: received, .. } = &testbed.requests[0].operation else { panic!("a write") };
        assert_eq!(received, &data[..]);
    }
}

#[test]
fn long_data_received_with_their_header_are_not_copied_and_short_data_keep_no_buffer() {
    for (length, is_shared) in [(SHARED_DATA_BYTES_MIN, true), (SHARED_DATA_BYTES_MIN - 1, false)] {
        let mut testbed = Testbed::simple("disk");
        let bytes = testbed.client.write(5, 4096, &vec![3; length]);
        let place = bytes[28..].as_ptr();
        testbed.connection.on_bytes(bytes);
        testbed.run_effects();
        let Operation::Write { data, .. } = &testbed.requests[0].operation else { panic!("a write") };
        assert_eq!((data.len(), data.as_ptr() == place), (length, is_shared));
    }
}

#[test]
fn a_block_status_ends_with_the_request_and_adjacent_extents_of_one_state_are_merged() {
    let mut testbed = Testbed::structured("disk");
    testbed.ask(ask(command::BLOCK_STATUS, 1, 0, 8192), &[]);
    let extents =
        [extent(512, false, false), extent(512, false, false), extent(512, true, true), extent(1 << 33, false, true)];
    testbed.reply(Ok(Reply::Status(extents.to_vec())));
    let extents = vec![extent(1024, false, false), extent(512, true, true), extent(6656, false, true)];
    assert_eq!(testbed.finished(1), Ok(Answer::Status(extents)));
}

#[test]
fn a_client_that_wants_one_extent_gets_one() {
    let mut testbed = Testbed::structured("disk");
    let one = Ask { flags: flag::REQ_ONE, ..ask(command::BLOCK_STATUS, 1, 0, 8192) };
    testbed.ask(one, &[]);
    testbed.reply(Ok(Reply::Status(vec![extent(512, true, false), extent(512, true, false), extent(512, true, true)])));
    assert_eq!(testbed.finished(1), Ok(Answer::Status(vec![extent(1024, true, false)])));
    testbed.ask(one, &[]);
    testbed.reply(Ok(Reply::Status(vec![extent(1 << 20, true, true)])));
    assert_eq!(testbed.finished(1), Ok(Answer::Status(vec![extent(8192, true, true)])));
}

#[test]
fn a_block_status_with_too_many_extents_is_truncated() {
    let mut testbed = Testbed::structured("disk");
    testbed.ask(ask(command::BLOCK_STATUS, 1, 0, 1 << 20), &[]);
    let extents = (0..2048).map(|index| extent(512, false, index % 2 == 0)).collect();
    testbed.reply(Ok(Reply::Status(extents)));
    let Ok(Answer::Status(extents)) = testbed.finished(1) else { panic!("a status") };
    assert_eq!(extents.len(), 1024);
}

#[test]
fn errors_of_one_command_are_not_sent_for_others() {
    let mut fast = config();
    fast.exports[0].fast_zero = true;
    let mut testbed = Testbed::structured_with(fast, "disk");
    let mut error_of = |command, flags, error| {
        testbed.ask(
            Ask { flags, ..ask(command, 1, 0, 512) },
            &[0; 512][..if command == command::WRITE { 512 } else { 0 }],
        );
        testbed.reply(Err(error));
        testbed.finished(1).expect_err("an error").error
    };
    assert_eq!(error_of(command::WRITE_ZEROES, flag::FAST_ZERO, NbdError::NotSupported), NbdError::NotSupported);
    assert_eq!(error_of(command::WRITE_ZEROES, 0, NbdError::NotSupported), NbdError::Invalid);
    assert_eq!(error_of(command::READ, flag::DF, NbdError::TooLarge), NbdError::TooLarge);
    assert_eq!(error_of(command::READ, 0, NbdError::TooLarge), NbdError::Invalid);
    assert_eq!(error_of(command::WRITE, 0, NbdError::NoSpace), NbdError::NoSpace);
    assert_eq!(error_of(command::BLOCK_STATUS, 0, NbdError::Io), NbdError::Io);
}

#[test]
#[should_panic(expected = "a reply is to a request in flight")]
fn a_second_reply_panics() {
    let mut testbed = Testbed::simple("disk");
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let id = testbed.requests[0].id;
    testbed.connection.reply(id, Ok(Reply::Done));
    testbed.connection.reply(id, Ok(Reply::Done));
}

#[test]
#[should_panic(expected = "does not match")]
fn a_reply_to_a_flush_with_data_panics() {
    let mut testbed = Testbed::simple("disk");
    testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    testbed.reply(Ok(Reply::data(Bytes::from_static(b"zone"))));
}
