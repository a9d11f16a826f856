//! Replies to READ: data, holes, and errors.

use bytes::Bytes;

use super::testbed::{Testbed, ask};
use crate::testing::{Answer, Ask, Failure};
use crate::wire::transmission::{command, command_flags};
use crate::{Effect, NbdError, ReadPiece, Reply};

fn data(byte: u8, length: usize) -> ReadPiece {
    ReadPiece::Data(Bytes::from(vec![byte; length]))
}

fn hole(length: u32) -> ReadPiece {
    ReadPiece::Hole { length }
}

fn failed(length: u32, error: NbdError) -> ReadPiece {
    ReadPiece::Failed { length, error }
}

/// A READ of 4096 bytes at 8192 with these flags, answered with these pieces.
fn read(mut testbed: Testbed, flags: u16, pieces: Vec<ReadPiece>) -> Result<Answer, Failure> {
    testbed.ask(Ask { flags, ..ask(command::READ, 1, 8192, 4096) }, &[]);
    testbed.reply(Ok(Reply::Read(pieces)));
    let result = testbed.finished(1);
    assert!(testbed.client.is_idle());
    result
}

fn whole(parts: &[(u8, usize)]) -> Result<Answer, Failure> {
    Ok(Answer::Data(parts.iter().flat_map(|&(byte, length)| vec![byte; length]).collect()))
}

#[test]
fn the_client_reads_data_and_holes() {
    let pieces = || vec![data(1, 512), data(2, 512), hole(1024), hole(1024), data(3, 1024)];
    let expected = whole(&[(1, 512), (2, 512), (0, 2048), (3, 1024)]);
    assert_eq!(read(Testbed::simple("disk"), 0, pieces()), expected);
    assert_eq!(read(Testbed::structured("disk"), 0, pieces()), expected);
    assert_eq!(read(Testbed::structured("disk"), command_flags::DF, pieces()), expected);
    assert_eq!(read(Testbed::structured("disk"), command_flags::DF, vec![hole(4096)]), whole(&[(0, 4096)]));
}

#[test]
fn an_error_in_the_middle_fails_a_simple_read_as_a_whole() {
    let pieces = vec![data(1, 1024), failed(1024, NbdError::Io), data(2, 1024), failed(1024, NbdError::NoMemory)];
    let failure = Failure { error: NbdError::Io, offset: None, contents: vec![] };
    assert_eq!(read(Testbed::simple("disk"), 0, pieces), Err(failure));
}

#[test]
fn an_error_in_the_middle_leaves_the_rest_of_a_structured_read() {
    let pieces = vec![data(1, 1024), failed(512, NbdError::Io), failed(512, NbdError::Io), hole(1024), data(2, 1024)];
    let contents = vec![(8192, vec![1; 1024]), (10_240, vec![0; 1024]), (11_264, vec![2; 1024])];
    let failure = Failure { error: NbdError::Io, offset: Some(9216), contents };
    assert_eq!(read(Testbed::structured("disk"), 0, pieces), Err(failure));
}

#[test]
fn an_error_in_an_unfragmented_read_reports_its_offset() {
    let pieces = vec![data(1, 1024), failed(1024, NbdError::Io), data(2, 1024), failed(1024, NbdError::NoMemory)];
    let chunk = [vec![1; 1024], vec![0; 1024], vec![2; 1024], vec![0; 1024]].concat();
    let failure = Failure { error: NbdError::Io, offset: Some(9216), contents: vec![(8192, chunk)] };
    assert_eq!(read(Testbed::structured("disk"), command_flags::DF, pieces), Err(failure));
    let at_the_end = vec![data(1, 1024), failed(3072, NbdError::Io)];
    let failure = Failure { error: NbdError::Io, offset: Some(9216), contents: vec![(8192, vec![1; 1024])] };
    assert_eq!(read(Testbed::structured("disk"), command_flags::DF, at_the_end), Err(failure));
}

#[test]
fn a_read_in_too_many_parts_is_sent_as_one_chunk() {
    let pieces = (0..256).map(|index| if index % 2 == 0 { data(7, 16) } else { hole(16) }).collect();
    let expected: Vec<(u8, usize)> = (0..256).map(|index| (if index % 2 == 0 { 7 } else { 0 }, 16)).collect();
    assert_eq!(read(Testbed::structured("disk"), 0, pieces), whole(&expected));
}

#[test]
fn a_read_that_fails_as_a_whole_returns_no_data() {
    for mut testbed in [Testbed::simple("disk"), Testbed::structured("disk")] {
        testbed.ask(ask(command::READ, 1, 0, 512), &[]);
        testbed.reply(Err(NbdError::Io));
        assert_eq!(testbed.finished(1), Err(Failure { error: NbdError::Io, offset: None, contents: vec![] }));
    }
}

#[test]
fn large_data_is_sent_without_a_copy_between_headers() {
    for mut testbed in [Testbed::simple("disk"), Testbed::structured("disk")] {
        let large = Bytes::from(vec![5; 65_536]);
        testbed.ask(ask(command::READ, 1, 0, 65_536), &[]);
        let request = testbed.requests.pop_front().unwrap();
        testbed.connection.reply(request.id, Ok(Reply::data(large.clone())));
        let Some(Effect::Send(pieces)) = testbed.connection.poll_effect() else { panic!("a reply") };
        assert_eq!((pieces.len(), pieces[1].as_ptr()), (2, large.as_ptr()));
    }
}

#[test]
#[should_panic(expected = "a reply to a READ covers its whole length")]
fn a_reply_that_is_too_short_panics() {
    let _ = read(Testbed::simple("disk"), 0, vec![data(1, 100)]);
}
