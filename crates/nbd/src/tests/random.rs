//! Clients with many requests in flight, bytes split anywhere, replies in any order; the results
//! are checked against a plain vector of bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_zoned::Prng;

use super::testbed::{Testbed, config};
use crate::testing::{Answer, Ask, Client, Failure};
use crate::wire::handshake::flags;
use crate::wire::transmission::{command, command_flags as flag};
use crate::{CloseReason, Extent, Limits, NbdError, Operation, ReadPiece, Reply, Request, RequestId};

const SIZE: usize = 1 << 16;
const REQUESTS: u64 = 400;

/// The reference model of the export: its bytes, and for each whether it is allocated.
struct Model {
    bytes: Vec<u8>,
    allocated: Vec<bool>,
}

/// The expected result of a request.
#[derive(Debug)]
enum Expected {
    Done,
    /// Of a READ: these bytes, except those that could not be read.
    Data {
        offset: u64,
        bytes: Vec<u8>,
        failed: Vec<bool>,
    },
    Error(NbdError),
    Status {
        extents: Vec<Extent>,
        one: bool,
    },
}

struct Run {
    testbed: Testbed,
    prng: Prng,
    model: Model,
    /// Expected results by cookie. Inserted when the caller decides; refusals when they are
    /// requested.
    expected: BTreeMap<u64, Expected>,
    /// Cookies of requests that the caller has or will get, in the order in which they were sent.
    asked: std::collections::VecDeque<u64>,
    cookies: BTreeMap<RequestId, u64>,
    structured: bool,
    to_send: Vec<u8>,
    finished: u64,
}

impl Model {
    fn range(offset: u64, length: u32) -> std::ops::Range<usize> {
        offset as usize..offset as usize + length as usize
    }

    /// Extents of a range.
    fn extents(&self, offset: u64, length: u32) -> Vec<Extent> {
        let states = &self.allocated[Model::range(offset, length)];
        states
            .chunk_by(|left, right| left == right)
            .map(|run| Extent { length: run.len() as u64, is_hole: !run[0], is_zero: !run[0] })
            .collect()
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut prng = Prng::new(seed);
        let structured = prng.chance(2, 3);
        let mut config = config();
        config.exports[0].size_bytes = SIZE as u64;
        config.exports[0].fast_zero = prng.chance(1, 2);
        config.limits = Limits { requests: 1 + prng.below(20) as usize, ..Limits::default() };
        let no_zeroes = if prng.chance(1, 2) { flags::NO_ZEROES } else { 0 };
        let mut client = Client::with_flags(u32::from(flags::FIXED_NEWSTYLE | no_zeroes));
        let mut to_send = client.flags().to_vec();
        if structured {
            to_send.extend_from_slice(&client.structured("disk"));
        }
        if prng.chance(1, 4) {
            to_send.extend_from_slice(&client.option(crate::wire::handshake::option::EXPORT_NAME, b"disk"));
        } else {
            to_send.extend_from_slice(&client.go("disk"));
        }
        let model = Model { bytes: vec![0; SIZE], allocated: vec![false; SIZE] };
        Run {
            testbed: Testbed::with_client(config, client),
            prng,
            model,
            expected: BTreeMap::new(),
            asked: std::collections::VecDeque::new(),
            cookies: BTreeMap::new(),
            structured,
            to_send,
            finished: 0,
        }
    }

    fn play(mut self) {
        let mut cookie = 0;
        while self.finished < REQUESTS {
            match self.prng.below(4) {
                0 if cookie < REQUESTS => {
                    self.ask(cookie);
                    cookie += 1;
                }
                1 => self.send(),
                2 => self.answer(),
                _ => self.read(),
            }
        }
        self.testbed.feed(&self.testbed.client.disconnect());
        assert!(self.testbed.client.is_idle() && self.expected.is_empty());
        assert_eq!(self.testbed.closed, Some(CloseReason::Disconnected));
    }

    /// The client makes a request; its bytes are appended to its output.
    fn ask(&mut self, cookie: u64) {
        let has_status = self.structured;
        let commands = [
            command::READ,
            command::WRITE,
            command::TRIM,
            command::WRITE_ZEROES,
            command::FLUSH,
            command::BLOCK_STATUS,
        ];
        let command = *self.prng.pick(&commands[..if has_status { 6 } else { 5 }]).unwrap();
        let (mut offset, mut length) = (self.prng.below(SIZE as u64), self.prng.below(9000) as u32);
        if command == command::FLUSH {
            (offset, length) = (0, 0);
        }
        let own = match command {
            command::READ if self.structured => flag::DF,
            command::WRITE_ZEROES => flag::NO_HOLE,
            command::BLOCK_STATUS => flag::REQ_ONE,
            _ => 0,
        };
        let mut flags = if self.prng.chance(1, 3) { own } else { 0 };
        flags |= if self.prng.chance(1, 4) { flag::FUA } else { 0 };
        let is_inside = offset + u64::from(length) <= SIZE as u64;
        let is_write = command == command::WRITE || command == command::WRITE_ZEROES;
        let is_empty = length == 0 && command != command::FLUSH;
        if !is_inside {
            let error = if is_write { NbdError::NoSpace } else { NbdError::Invalid };
            self.expected.insert(cookie, Expected::Error(error));
        } else if is_empty && command == command::BLOCK_STATUS {
            self.expected.insert(cookie, Expected::Error(NbdError::Invalid));
        } else if is_empty && command == command::READ {
            self.expected.insert(cookie, Expected::Data { offset, bytes: vec![], failed: vec![] });
        } else if is_empty {
            self.expected.insert(cookie, Expected::Done);
        } else {
            self.asked.push_back(cookie);
        }
        let data = if command == command::WRITE { vec![cookie as u8; length as usize] } else { vec![] };
        let bytes = self.testbed.client.ask(Ask { command, flags, cookie, offset, length }, &data);
        self.to_send.extend_from_slice(&bytes);
    }

    /// Some of the client's output arrives.
    fn send(&mut self) {
        if !self.testbed.connection.wants_bytes() {
            assert!(!self.testbed.requests.is_empty() || !self.testbed.unsent.is_empty(), "progress is possible");
            return;
        }
        let most = *self.prng.pick(&[1, 30, 5000, 100_000]).unwrap();
        let length = self.prng.below(most + 1).min(self.to_send.len() as u64) as usize;
        let bytes: Vec<u8> = self.to_send.drain(..length).collect();
        self.testbed.feed(&bytes);
        self.note();
    }

    /// The client reads, or stops reading for a while.
    fn read(&mut self) {
        self.testbed.hold = self.prng.chance(1, 2);
        self.testbed.release();
        self.testbed.run_effects();
        self.note();
        while let Some((cookie, result)) = self.testbed.client.finished() {
            let expected = self.expected.remove(&cookie).expect("a result that was decided");
            check(expected, result);
            self.finished += 1;
        }
    }

    /// Records requests that the caller has got.
    fn note(&mut self) {
        for request in &self.testbed.requests {
            if !self.cookies.contains_key(&request.id) {
                let cookie = self.asked.pop_front().expect("requests arrive in order");
                self.cookies.insert(request.id, cookie);
            }
        }
    }

    /// The caller ends any of its requests.
    fn answer(&mut self) {
        let place = self.prng.below(self.testbed.requests.len() as u64 + 1) as usize;
        let Some(request) = self.testbed.requests.remove(place) else { return };
        let cookie = self.cookies.remove(&request.id).expect("a request that was noted");
        let (result, expected) = self.end(&request);
        self.expected.insert(cookie, expected);
        self.testbed.connection.reply(request.id, result);
        self.testbed.run_effects();
        self.note();
    }

    /// The result of a request, and what its client must receive.
    fn end(&mut self, request: &Request) -> (Result<Reply, NbdError>, Expected) {
        if self.prng.chance(1, 10) {
            return (Err(NbdError::Io), Expected::Error(NbdError::Io));
        }
        match &request.operation {
            Operation::Read { offset, length } => return self.end_read(*offset, *length),
            Operation::BlockStatus { offset, length, one } => {
                let extents = self.model.extents(*offset, *length);
                let expected = Expected::Status { extents: extents.clone(), one: *one };
                return (Ok(Reply::Status(extents)), expected);
            }
            Operation::Flush => {}
            Operation::Write { offset, data, .. } => {
                let range = Model::range(*offset, data.len() as u32);
                self.model.bytes[range.clone()].copy_from_slice(data);
                self.model.allocated[range].fill(true);
            }
            Operation::Trim { offset, length, .. } | Operation::WriteZeroes { offset, length, may_trim: true, .. } => {
                self.model.bytes[Model::range(*offset, *length)].fill(0);
                self.model.allocated[Model::range(*offset, *length)].fill(false);
            }
            Operation::WriteZeroes { offset, length, .. } => {
                self.model.bytes[Model::range(*offset, *length)].fill(0);
                self.model.allocated[Model::range(*offset, *length)].fill(true);
            }
        }
        (Ok(Reply::Done), Expected::Done)
    }

    /// A read in pieces: holes where nothing is allocated, data split anywhere, some of it
    /// unreadable.
    fn end_read(&mut self, offset: u64, length: u32) -> (Result<Reply, NbdError>, Expected) {
        let range = Model::range(offset, length);
        let (mut pieces, mut failed) = (Vec::new(), vec![false; range.len()]);
        let mut at = range.start;
        for extent in self.model.extents(offset, length) {
            let end = at + extent.length as usize;
            while at < end {
                let part = 1 + self.prng.below((end - at) as u64) as usize;
                let piece = if self.prng.chance(1, 30) {
                    failed[at - range.start..][..part].fill(true);
                    ReadPiece::Failed { length: part as u32, error: NbdError::Io }
                } else if extent.is_hole {
                    ReadPiece::Hole { length: part as u32 }
                } else {
                    ReadPiece::Data(Bytes::copy_from_slice(&self.model.bytes[at..at + part]))
                };
                pieces.push(piece);
                at += part;
            }
        }
        (Ok(Reply::Read(pieces)), Expected::Data { offset, bytes: self.model.bytes[range].to_vec(), failed })
    }
}

fn check(expected: Expected, result: Result<Answer, Failure>) {
    match (expected, result) {
        (Expected::Done, result) => assert_eq!(result, Ok(Answer::Done)),
        (Expected::Error(error), result) => assert_eq!(result.unwrap_err().error, error),
        (Expected::Status { mut extents, one }, result) => {
            extents.truncate(if one { 1 } else { crate::limits::EXTENTS_MAX });
            assert_eq!(result, Ok(Answer::Status(extents)));
        }
        (Expected::Data { bytes, failed, .. }, Ok(answer)) => {
            assert!(!failed.contains(&true), "an error was reported");
            assert_eq!(answer, Answer::Data(bytes));
        }
        (Expected::Data { offset, bytes, failed }, Err(failure)) => {
            assert_eq!(failure.error, NbdError::Io);
            let first = failed.iter().position(|&failed| failed).expect("an error only if one occurred") as u64;
            assert!(failure.offset.is_none_or(|at| at == offset + first), "the first error, at its place");
            for (start, data) in failure.contents {
                let place = (start - offset) as usize;
                let readable = data.iter().zip(&failed[place..]).take_while(|(_, failed)| !**failed).count();
                assert_eq!(data[..readable], bytes[place..place + readable], "the readable data are correct");
            }
        }
    }
}

#[test]
fn clients_read_what_they_have_written_in_random_runs() {
    for seed in 0..60 {
        Run::new(seed).play();
    }
}
