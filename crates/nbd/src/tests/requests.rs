//! Requests as the caller gets them, and what clients learn of its replies.

use bytes::Bytes;

use super::world::{World, ask, config};
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
    let mut world = World::structured_with(fast, "disk");
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
        assert_eq!(world.ask(ask, data), operation);
    }
    let flush = ask(command::FLUSH, 99, 0, 0);
    assert_eq!(world.ask(Ask { flags: flag::FUA, ..flush }, &[]), Operation::Flush);
    assert_eq!(world.connection.requests_in_flight(), 12);
}

#[test]
fn replies_reach_the_client_in_the_order_of_the_caller() {
    for mut world in [World::simple("disk"), World::structured("disk")] {
        world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
        world.ask(ask(command::TRIM, 2, 0, 512), &[]);
        world.ask(ask(command::READ, 3, 0, 4), &[]);
        world.requests.rotate_left(2);
        world.reply(Ok(Reply::data(Bytes::from_static(b"zone"))));
        assert_eq!(world.finished(3), Ok(Answer::Data(b"zone".to_vec())));
        world.requests.swap(0, 1);
        world.reply(Ok(Reply::Done));
        world.reply(Err(NbdError::NoSpace));
        assert_eq!(world.finished(2), Ok(Answer::Done));
        assert_eq!(world.finished(1).unwrap_err().error, NbdError::NoSpace);
        assert!(world.client.is_idle() && world.connection.requests_in_flight() == 0);
    }
}

#[test]
fn requests_with_one_cookie_are_told_apart_by_the_caller() {
    let mut world = World::simple("disk");
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    world.reply(Ok(Reply::Done));
    assert_eq!(world.finished(1), Ok(Answer::Done));
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    world.reply(Err(NbdError::Io));
    assert_eq!(world.finished(1).unwrap_err().error, NbdError::Io);
}

#[test]
fn requests_of_no_bytes_are_done_at_once() {
    for mut world in [World::simple("disk"), World::structured("disk")] {
        for (cookie, command) in [command::WRITE, command::TRIM, command::WRITE_ZEROES].into_iter().enumerate() {
            assert_eq!(world.ask_server(ask(command, cookie as u64, 512, 0), &[]), Ok(Answer::Done));
        }
        assert_eq!(world.ask_server(ask(command::READ, 9, 512, 0), &[]), Ok(Answer::Data(vec![])));
    }
}

#[test]
fn data_of_a_write_is_one_piece_however_it_comes() {
    let data: Vec<u8> = (0..100_000).map(|index| (index / 7) as u8).collect();
    for split in [1_000, 28, 99_999, 200_000] {
        let mut world = World::simple("disk");
        let bytes = world.client.write(5, 4096, &data);
        for chunk in bytes.chunks(split) {
            assert!(world.connection.wants_bytes());
            world.feed(chunk);
        }
        let Operation::Write { data: received, .. } = &world.requests[0].operation else { panic!("a write") };
        assert_eq!(received, &data[..]);
    }
}

#[test]
fn long_data_that_came_with_their_header_are_not_copied_and_short_data_hold_no_buffer_of_the_caller() {
    for (length, is_shared) in [(SHARED_DATA_BYTES_MIN, true), (SHARED_DATA_BYTES_MIN - 1, false)] {
        let mut world = World::simple("disk");
        let bytes = world.client.write(5, 4096, &vec![3; length]);
        let place = bytes[28..].as_ptr();
        world.connection.received(bytes);
        world.settle();
        let Operation::Write { data, .. } = &world.requests[0].operation else { panic!("a write") };
        assert_eq!((data.len(), data.as_ptr() == place), (length, is_shared));
    }
}

#[test]
fn a_status_ends_where_the_request_ends_and_neighbours_in_one_state_are_one() {
    let mut world = World::structured("disk");
    world.ask(ask(command::BLOCK_STATUS, 1, 0, 8192), &[]);
    let extents =
        [extent(512, false, false), extent(512, false, false), extent(512, true, true), extent(1 << 33, false, true)];
    world.reply(Ok(Reply::Status(extents.to_vec())));
    let told = vec![extent(1024, false, false), extent(512, true, true), extent(6656, false, true)];
    assert_eq!(world.finished(1), Ok(Answer::Status(told)));
}

#[test]
fn a_client_that_wants_one_extent_gets_one() {
    let mut world = World::structured("disk");
    let one = Ask { flags: flag::REQ_ONE, ..ask(command::BLOCK_STATUS, 1, 0, 8192) };
    world.ask(one, &[]);
    world.reply(Ok(Reply::Status(vec![extent(512, true, false), extent(512, true, false), extent(512, true, true)])));
    assert_eq!(world.finished(1), Ok(Answer::Status(vec![extent(1024, true, false)])));
    world.ask(one, &[]);
    world.reply(Ok(Reply::Status(vec![extent(1 << 20, true, true)])));
    assert_eq!(world.finished(1), Ok(Answer::Status(vec![extent(8192, true, true)])));
}

#[test]
fn a_status_with_too_many_extents_is_cut() {
    let mut world = World::structured("disk");
    world.ask(ask(command::BLOCK_STATUS, 1, 0, 1 << 20), &[]);
    let extents = (0..2048).map(|index| extent(512, false, index % 2 == 0)).collect();
    world.reply(Ok(Reply::Status(extents)));
    let Ok(Answer::Status(told)) = world.finished(1) else { panic!("a status") };
    assert_eq!(told.len(), 1024);
}

#[test]
fn errors_that_belong_to_one_command_are_not_told_of_others() {
    let mut fast = config();
    fast.exports[0].fast_zero = true;
    let mut world = World::structured_with(fast, "disk");
    let mut error_of = |command, flags, error| {
        world.ask(
            Ask { flags, ..ask(command, 1, 0, 512) },
            &[0; 512][..if command == command::WRITE { 512 } else { 0 }],
        );
        world.reply(Err(error));
        world.finished(1).expect_err("an error").error
    };
    assert_eq!(error_of(command::WRITE_ZEROES, flag::FAST_ZERO, NbdError::NotSupported), NbdError::NotSupported);
    assert_eq!(error_of(command::WRITE_ZEROES, 0, NbdError::NotSupported), NbdError::Invalid);
    assert_eq!(error_of(command::READ, flag::DF, NbdError::TooLarge), NbdError::TooLarge);
    assert_eq!(error_of(command::READ, 0, NbdError::TooLarge), NbdError::Invalid);
    assert_eq!(error_of(command::WRITE, 0, NbdError::NoSpace), NbdError::NoSpace);
    assert_eq!(error_of(command::BLOCK_STATUS, 0, NbdError::Io), NbdError::Io);
}

#[test]
#[should_panic(expected = "a reply is to a request that is under way")]
fn a_caller_that_replies_twice_has_a_mistake() {
    let mut world = World::simple("disk");
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    let id = world.requests[0].id;
    world.connection.reply(id, Ok(Reply::Done));
    world.connection.reply(id, Ok(Reply::Done));
}

#[test]
#[should_panic(expected = "is no reply to")]
fn a_caller_that_answers_a_flush_with_data_has_a_mistake() {
    let mut world = World::simple("disk");
    world.ask(ask(command::FLUSH, 1, 0, 0), &[]);
    world.reply(Ok(Reply::data(Bytes::from_static(b"zone"))));
}
