//! What was read: data, holes, and what could not be read.

use bytes::Bytes;

use super::world::{World, ask};
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
fn read(mut world: World, flags: u16, pieces: Vec<ReadPiece>) -> Result<Answer, Failure> {
    world.ask(Ask { flags, ..ask(command::READ, 1, 8192, 4096) }, &[]);
    world.reply(Ok(Reply::Read(pieces)));
    let result = world.finished(1);
    assert!(world.client.is_idle());
    result
}

fn whole(parts: &[(u8, usize)]) -> Result<Answer, Failure> {
    Ok(Answer::Data(parts.iter().flat_map(|&(byte, length)| vec![byte; length]).collect()))
}

#[test]
fn data_and_holes_are_what_the_client_reads() {
    let pieces = || vec![data(1, 512), data(2, 512), hole(1024), hole(1024), data(3, 1024)];
    let expected = whole(&[(1, 512), (2, 512), (0, 2048), (3, 1024)]);
    assert_eq!(read(World::simple("disk"), 0, pieces()), expected);
    assert_eq!(read(World::structured("disk"), 0, pieces()), expected);
    assert_eq!(read(World::structured("disk"), command_flags::DF, pieces()), expected);
    assert_eq!(read(World::structured("disk"), command_flags::DF, vec![hole(4096)]), whole(&[(0, 4096)]));
}

#[test]
fn an_error_in_the_middle_fails_a_simple_read_as_a_whole() {
    let pieces = vec![data(1, 1024), failed(1024, NbdError::Io), data(2, 1024), failed(1024, NbdError::NoMemory)];
    let failure = Failure { error: NbdError::Io, offset: None, contents: vec![] };
    assert_eq!(read(World::simple("disk"), 0, pieces), Err(failure));
}

#[test]
fn an_error_in_the_middle_leaves_the_rest_of_a_structured_read() {
    let pieces = vec![data(1, 1024), failed(512, NbdError::Io), failed(512, NbdError::Io), hole(1024), data(2, 1024)];
    let contents = vec![(8192, vec![1; 1024]), (10_240, vec![0; 1024]), (11_264, vec![2; 1024])];
    let failure = Failure { error: NbdError::Io, offset: Some(9216), contents };
    assert_eq!(read(World::structured("disk"), 0, pieces), Err(failure));
}

#[test]
fn an_error_in_a_read_of_one_chunk_says_from_where_the_chunk_is_not_to_be_believed() {
    let pieces = vec![data(1, 1024), failed(1024, NbdError::Io), data(2, 1024), failed(1024, NbdError::NoMemory)];
    let chunk = [vec![1; 1024], vec![0; 1024], vec![2; 1024], vec![0; 1024]].concat();
    let failure = Failure { error: NbdError::Io, offset: Some(9216), contents: vec![(8192, chunk)] };
    assert_eq!(read(World::structured("disk"), command_flags::DF, pieces), Err(failure));
    let at_the_end = vec![data(1, 1024), failed(3072, NbdError::Io)];
    let failure = Failure { error: NbdError::Io, offset: Some(9216), contents: vec![(8192, vec![1; 1024])] };
    assert_eq!(read(World::structured("disk"), command_flags::DF, at_the_end), Err(failure));
}

#[test]
fn a_read_in_too_many_parts_goes_as_one_chunk() {
    let pieces = (0..256).map(|index| if index % 2 == 0 { data(7, 16) } else { hole(16) }).collect();
    let expected: Vec<(u8, usize)> = (0..256).map(|index| (if index % 2 == 0 { 7 } else { 0 }, 16)).collect();
    assert_eq!(read(World::structured("disk"), 0, pieces), whole(&expected));
}

#[test]
fn a_read_that_fails_as_a_whole_brings_nothing() {
    for mut world in [World::simple("disk"), World::structured("disk")] {
        world.ask(ask(command::READ, 1, 0, 512), &[]);
        world.reply(Err(NbdError::Io));
        assert_eq!(world.finished(1), Err(Failure { error: NbdError::Io, offset: None, contents: vec![] }));
    }
}

#[test]
fn large_data_is_sent_as_it_is_and_headers_beside_it() {
    for mut world in [World::simple("disk"), World::structured("disk")] {
        let large = Bytes::from(vec![5; 65_536]);
        world.ask(ask(command::READ, 1, 0, 65_536), &[]);
        let request = world.requests.pop_front().unwrap();
        world.connection.reply(request.id, Ok(Reply::data(large.clone())));
        let Some(Effect::Send(pieces)) = world.connection.poll_effect() else { panic!("a reply") };
        assert_eq!((pieces.len(), pieces[1].as_ptr()), (2, large.as_ptr()));
    }
}

#[test]
#[should_panic(expected = "a read is answered for all of its length")]
fn a_caller_that_answers_too_little_has_a_mistake() {
    let _ = read(World::simple("disk"), 0, vec![data(1, 100)]);
}
