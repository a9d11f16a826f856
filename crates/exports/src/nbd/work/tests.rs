//! Requests against a drive that executes its commands in any order.

use bytes::Bytes;
use zonda_nbd::ReadPiece;
use zonda_nbd::limits::EXTENTS_MAX;
use zonda_zoned::{BlockBuffer, Blocks, Geometry, Lba, Operation, Outcome, Payload, Prng, Status};

use super::*;
use crate::nbd::limits::STATUS_BLOCKS_MAX;

const BLOCK: usize = 512;
const BLOCKS: usize = 64;
const SIZE: u64 = (BLOCK * BLOCKS) as u64;
const DISK: DeviceKey = DeviceKey(3);
const CONNECTION: ConnectionId = ConnectionId(1);
const GROUP: u64 = 7;

/// A drive of 64 blocks, and requests to it.
struct Testbed {
    work: Work,
    disk: Vec<u8>,
    /// Blocks that cannot be read or written.
    bad: Vec<u64>,
    commands: Vec<Command>,
    replies: Vec<(u64, Result<Reply, NbdError>)>,
    abandoned: Vec<Flow>,
    /// Names of the commands in order of execution.
    done: Vec<&'static str>,
    prng: Prng,
    asked: u64,
}

fn geometry() -> Geometry {
    Geometry {
        metadata_bytes: 8,
        zone_size_blocks: Blocks(BLOCKS as u64),
        zone_capacity_blocks: Blocks(BLOCKS as u64),
        zone_count: 1,
        conventional_zone_count: 1,
        max_transfer_blocks: Blocks(3),
        max_append_blocks: Blocks(1),
        ..Geometry::tiny()
    }
}

impl Testbed {
    fn new(seed: u64) -> Testbed {
        let mut work = Work::default();
        work.add_device(DISK, Shape::new(&geometry(), true));
        Testbed {
            work,
            disk: vec![0; SIZE as usize],
            bad: Vec::new(),
            commands: Vec::new(),
            replies: Vec::new(),
            abandoned: Vec::new(),
            done: Vec::new(),
            prng: Prng::new(seed),
            asked: 0,
        }
    }

    /// Starts a request, and returns its number.
    fn ask(&mut self, request: Request) -> u64 {
        self.asked += 1;
        let requester = Requester { connection: CONNECTION, group: GROUP, request: RequestId(self.asked) };
        self.work.begin(DISK, requester, request);
        self.take();
        self.asked
    }

    fn take(&mut self) {
        while let Some(effect) = self.work.poll_effect() {
            match effect {
                WorkEffect::Submit { device, command, .. } => {
                    assert_eq!(device, DISK);
                    assert!(self.commands.iter().all(|other| other.id != command.id), "ids are unique");
                    self.commands.push(command);
                }
                WorkEffect::Ask { device, job, start, most } => {
                    assert_eq!(device, DISK);
                    let extent = self.extent(start, most);
                    self.work.answered(job, extent);
                }
                WorkEffect::Abandon { flow } => self.abandoned.push(flow),
                WorkEffect::Reply { requester, result, .. } => self.replies.push((requester.request.0, result)),
            }
        }
        self.work.check_invariants();
    }

    /// The allocation status of some blocks: zeros are holes, and sometimes it covers only a part.
    fn extent(&mut self, start: Lba, most: Blocks) -> Extent {
        let end = start.0 + most.0;
        assert!(most.0 > 0 && end <= BLOCKS as u64);
        let is_hole = |block: u64| self.disk[block as usize * BLOCK..][..BLOCK].iter().all(|&byte| byte == 0);
        let first = is_hole(start.0);
        let blocks = (start.0..end).take_while(|&block| is_hole(block) == first).count() as u64;
        Extent { blocks: Blocks(1 + self.prng.below(blocks)), is_hole: first }
    }

    /// Executes any one of the commands in flight.
    fn step(&mut self) -> bool {
        if self.commands.is_empty() {
            return false;
        }
        let command = self.commands.swap_remove(self.prng.below(self.commands.len() as u64) as usize);
        self.done.push(command.operation.name());
        let completion = self.carry_out(command);
        self.work.on_completion(completion);
        self.take();
        true
    }

    fn run(&mut self) {
        while self.step() {}
        assert!(self.work.is_idle());
    }

    /// Runs a request and all others in flight to completion, and returns its reply.
    fn reply(&mut self, request: Request) -> Result<Reply, NbdError> {
        let asked = self.ask(request);
        self.run();
        let place = self.replies.iter().position(|(number, _)| *number == asked).expect("a reply");
        self.replies.remove(place).1
    }

    fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        match self.reply(Request::Read { offset, length }) {
            Ok(Reply::Read(pieces)) => bytes_of(&pieces),
            other => panic!("{other:?}"),
        }
    }

    fn carry_out(&mut self, command: Command) -> Completion {
        let is_bad =
            |start: Lba, blocks: Blocks| self.bad.iter().any(|bad| (start.0..start.0 + blocks.0).contains(bad));
        let place = |start: Lba, blocks: Blocks| start.0 as usize * BLOCK..(start.0 + blocks.0) as usize * BLOCK;
        let mut outcome = Outcome::None;
        let mut status = Status::Success;
        match command.operation {
            Operation::Read { start, blocks } if is_bad(start, blocks) => status = Status::UnrecoveredReadError,
            Operation::Write { start, blocks, .. } if is_bad(start, blocks) => status = Status::WriteFault,
            Operation::Read { start, blocks } => {
                assert!((1..=3).contains(&blocks.0));
                let data = Bytes::copy_from_slice(&self.disk[place(start, blocks)]);
                let metadata = vec![0; blocks.0 as usize * 8].into();
                outcome = Outcome::Data(Payload::Bytes(Box::new(BlockBuffer { data, metadata })));
            }
            Operation::Write { start, blocks, payload } => {
                assert!((1..=3).contains(&blocks.0) && payload.fits(blocks.0, BLOCK as u32, 8));
                let Payload::Bytes(buffer) = payload else { panic!("bytes are written") };
                self.disk[place(start, blocks)].copy_from_slice(&buffer.data);
            }
            Operation::WriteZeroes { start, blocks } => self.disk[place(start, blocks)].fill(0),
            Operation::Deallocate { ranges } => {
                ranges.iter().for_each(|range| self.disk[place(range.start, range.blocks)].fill(0));
            }
            Operation::Flush => {}
            other => panic!("no request needs {other:?}"),
        }
        Completion { id: command.id, status, outcome }
    }
}

fn bytes_of(pieces: &[ReadPiece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            ReadPiece::Data(data) => bytes.extend_from_slice(data),
            ReadPiece::Hole { length } => bytes.resize(bytes.len() + *length as usize, 0),
            ReadPiece::Failed { .. } => panic!("{piece:?}"),
        }
    }
    bytes
}

fn write(offset: u64, data: Vec<u8>) -> Request {
    Request::Write { offset, data: data.into(), fua: false }
}

fn zeroes(offset: u64, length: u32, may_trim: bool) -> Request {
    Request::WriteZeroes { offset, length, fua: false, may_trim, fast: false }
}

#[test]
fn written_bytes_are_read_back_regardless_of_alignment() {
    for seed in 0..200 {
        let mut testbed = Testbed::new(seed);
        let mut oracle = vec![0; SIZE as usize];
        for _ in 0..40 {
            let offset = testbed.prng.below(SIZE);
            let length = 1 + testbed.prng.below((SIZE - offset).min(4000));
            let range = offset as usize..(offset + length) as usize;
            let byte = 1 + testbed.prng.below(255) as u8;
            let reply = match testbed.prng.below(4) {
                0 => {
                    assert_eq!(testbed.read(offset, length as u32), oracle[range], "seed {seed}");
                    continue;
                }
                1 => {
                    oracle[range].fill(0);
                    let may_trim = testbed.prng.below(2) == 0;
                    testbed.reply(zeroes(offset, length as u32, may_trim))
                }
                _ => {
                    oracle[range].fill(byte);
                    testbed.reply(write(offset, vec![byte; length as usize]))
                }
            };
            assert_eq!(reply, Ok(Reply::Done));
        }
        assert_eq!(testbed.disk, oracle, "seed {seed}");
    }
}

#[test]
fn requests_that_share_blocks_but_no_bytes_do_not_undo_one_another() {
    for seed in 0..300 {
        let mut testbed = Testbed::new(seed);
        let mut oracle = vec![0; SIZE as usize];
        let mut offset = 0;
        let mut requests = Vec::new();
        while offset < SIZE {
            let length = (1 + testbed.prng.below(700)).min(SIZE - offset);
            let byte = 1 + testbed.prng.below(255) as u8;
            oracle[offset as usize..(offset + length) as usize].fill(byte);
            requests.push(write(offset, vec![byte; length as usize]));
            offset += length;
        }
        while !requests.is_empty() {
            let next = requests.swap_remove(testbed.prng.below(requests.len() as u64) as usize);
            testbed.ask(next);
            if testbed.prng.below(2) == 0 {
                testbed.step();
            }
        }
        testbed.run();
        assert!(testbed.replies.iter().all(|(_, result)| *result == Ok(Reply::Done)));
        assert_eq!(testbed.disk, oracle, "seed {seed}");
    }
}

#[test]
fn a_trim_of_everything_is_split_and_leaves_partial_blocks_alone() {
    let mut testbed = Testbed::new(1);
    testbed.disk.fill(7);
    let trim = Request::Trim { offset: 100, length: SIZE as u32 - 200, fua: true };
    assert_eq!(testbed.reply(trim), Ok(Reply::Done));
    assert_eq!(testbed.done, ["deallocate", "flush"]);
    assert!(testbed.disk[..BLOCK].iter().chain(&testbed.disk[SIZE as usize - BLOCK..]).all(|&byte| byte == 7));
    assert!(testbed.disk[BLOCK..SIZE as usize - BLOCK].iter().all(|&byte| byte == 0));
    assert_eq!(testbed.reply(Request::Trim { offset: 100, length: 300, fua: false }), Ok(Reply::Done));
    assert_eq!(testbed.done.len(), 2, "a partial block is not trimmed");
    assert!(testbed.disk[..BLOCK].iter().all(|&byte| byte == 7));
}

#[test]
fn four_gigabytes_of_trim_are_never_one_command() {
    let mut work = Work::default();
    let large = Geometry { block_size_bytes: 4096, zone_size_blocks: Blocks(1 << 30), ..geometry() };
    work.add_device(DISK, Shape::new(&large, false));
    let requester = Requester { connection: CONNECTION, group: GROUP, request: RequestId(1) };
    work.begin(DISK, requester, Request::Trim { offset: 0, length: u32::MAX, fua: true });
    let (mut commands, mut most) = (0, 0);
    let mut in_flight = VecDeque::new();
    loop {
        while let Some(WorkEffect::Submit { command, .. }) = work.poll_effect() {
            let Operation::Deallocate { ranges } = &command.operation else { panic!("{command:?}") };
            assert!(ranges.len() == 1 && ranges[0].blocks.bytes(4096) <= 64 << 20);
            in_flight.push_back(command.id);
        }
        most = most.max(in_flight.len());
        let Some(id) = in_flight.pop_front() else { break };
        commands += 1;
        work.on_completion(Completion::of(id, Status::Success));
    }
    assert_eq!((commands, most, work.is_idle()), (64, 8, true));
}

#[test]
fn fua_adds_a_flush_after_the_writes_if_the_drive_has_a_volatile_cache() {
    let mut testbed = Testbed::new(1);
    let fua = Request::Write { offset: 0, data: vec![1; 8 * BLOCK].into(), fua: true };
    assert_eq!(testbed.reply(fua.clone()), Ok(Reply::Done));
    assert_eq!(testbed.done, ["write", "write", "write", "flush"]);
    testbed.work = Work::default();
    testbed.work.add_device(DISK, Shape::new(&geometry(), false));
    assert_eq!(testbed.reply(fua), Ok(Reply::Done));
    assert_eq!(testbed.done.len(), 7, "no flush without a volatile cache");
    assert_eq!(testbed.reply(Request::Flush), Ok(Reply::Done));
    assert_eq!(testbed.done[7..], ["flush"]);
}

#[test]
fn an_unreadable_block_fails_only_its_part_of_the_read() {
    let mut testbed = Testbed::new(1);
    testbed.bad = vec![4];
    let offset = BLOCK as u64 + 100;
    let Ok(Reply::Read(pieces)) = testbed.reply(Request::Read { offset, length: 8 * BLOCK as u32 }) else {
        panic!("a read is answered in pieces");
    };
    let lengths: Vec<usize> = pieces.iter().map(ReadPiece::length).collect();
    assert_eq!(lengths, [3 * BLOCK - 100, 3 * BLOCK, 2 * BLOCK + 100]);
    assert!(matches!(pieces[1], ReadPiece::Failed { error: NbdError::Io, .. }));
    assert!(matches!((&pieces[0], &pieces[2]), (ReadPiece::Data(_), ReadPiece::Data(_))));
    let part = testbed.reply(write(4 * BLOCK as u64 + 1, vec![1; 10]));
    assert_eq!((part, testbed.disk[4 * BLOCK + 1]), (Err(NbdError::Io), 0), "a block that was not read is not written");
}

#[test]
fn a_failed_write_starts_no_more_commands() {
    let mut testbed = Testbed::new(1);
    testbed.bad = (0..BLOCKS as u64).collect();
    assert_eq!(testbed.reply(write(0, vec![1; 60 * BLOCK])), Err(NbdError::Io));
    assert!(testbed.done.len() <= 8, "of 20 commands, {} were started", testbed.done.len());
}

#[test]
fn a_closed_connection_gets_no_reply_and_blocks_no_other() {
    let mut testbed = Testbed::new(1);
    testbed.ask(write(10, vec![1; 20]));
    testbed.ask(write(40, vec![2; 20]));
    testbed.work.abandon(CONNECTION);
    testbed.work.abandon(ConnectionId(9));
    let late = Requester { connection: ConnectionId(2), group: GROUP, request: RequestId(1) };
    testbed.work.begin(DISK, late, write(100, vec![3; 20]));
    testbed.take();
    testbed.run();
    assert_eq!(testbed.replies, [(1, Ok(Reply::Done))]);
    assert_eq!((testbed.disk[100], testbed.disk[40]), (3, 0));
    // The other one had nothing to abandon. Connections of NVMe/TCP have flows of the same numbers.
    assert_eq!(testbed.abandoned, [Flow { group: GROUP, queue: 1 << 63 | 1 }]);
}

/// The extents that the reply to a BLOCK_STATUS has.
fn status(testbed: &mut Testbed, offset: u64, length: u32, one: bool) -> Vec<zonda_nbd::Extent> {
    match testbed.reply(Request::BlockStatus { offset, length, one }) {
        Ok(Reply::Status(extents)) => extents,
        other => panic!("{other:?}"),
    }
}

#[test]
fn holes_read_as_zeros_and_data_are_reported_as_allocated() {
    for seed in 0..200 {
        let mut testbed = Testbed::new(seed);
        for _ in 0..testbed.prng.below(12) {
            let block = testbed.prng.below(BLOCKS as u64 - 4) as usize;
            let blocks = 1 + testbed.prng.below(4) as usize;
            testbed.disk[block * BLOCK..(block + blocks) * BLOCK].fill(7);
        }
        let offset = testbed.prng.below(SIZE);
        let length = 1 + testbed.prng.below(SIZE - offset);
        let extents = status(&mut testbed, offset, length as u32, false);
        let mut at = offset;
        for pair in extents.windows(2) {
            assert_ne!(pair[0].is_hole, pair[1].is_hole, "seed {seed}: adjacent extents of one state are merged");
        }
        for extent in extents {
            let end = (at + extent.length).min(offset + length);
            let is_zero = testbed.disk[at as usize..end as usize].iter().all(|&byte| byte == 0);
            assert_eq!((extent.is_hole, extent.is_zero), (is_zero, is_zero), "seed {seed}: {at}..{end}");
            at += extent.length;
        }
        assert!(at >= offset + length, "seed {seed}: everything is covered, and perhaps the rest of the last block");
    }
}

#[test]
fn a_client_that_wants_one_extent_gets_the_whole_first_one() {
    let mut testbed = Testbed::new(1);
    testbed.disk[8 * BLOCK..9 * BLOCK].fill(7);
    let hole = |length| zonda_nbd::Extent { length, is_hole: true, is_zero: true };
    assert_eq!(status(&mut testbed, 100, 40 * BLOCK as u32, true), [hole(8 * BLOCK as u64 - 100)]);
    assert_eq!(status(&mut testbed, 9 * BLOCK as u64, 3 * BLOCK as u32, true), [hole(3 * BLOCK as u64)]);
}

#[test]
fn a_block_status_of_everything_is_limited_in_blocks_and_extents() {
    let large = Geometry { zone_size_blocks: Blocks(1 << 30), ..geometry() };
    // For drives with extents of this length.
    for (run, covered, extents) in [(u64::MAX, STATUS_BLOCKS_MAX, 1), (3, 3 * EXTENTS_MAX as u64, EXTENTS_MAX)] {
        let mut work = Work::default();
        work.add_device(DISK, Shape::new(&large, false));
        let requester = Requester { connection: CONNECTION, group: GROUP, request: RequestId(1) };
        work.begin(DISK, requester, Request::BlockStatus { offset: 0, length: u32::MAX, one: false });
        let reply = loop {
            match work.poll_effect().expect("it continues to its reply") {
                WorkEffect::Ask { job, start, most, .. } => {
                    let blocks = Blocks(most.0.min(run).min(1 << 16));
                    work.answered(job, Extent { blocks, is_hole: start.0 / run % 2 == 0 });
                }
                WorkEffect::Reply { result, .. } => break result,
                WorkEffect::Submit { .. } | WorkEffect::Abandon { .. } => panic!("a BLOCK_STATUS needs no commands"),
            }
        };
        let Ok(Reply::Status(found)) = reply else { panic!("{reply:?}") };
        let reported: u64 = found.iter().map(|extent| extent.length).sum();
        assert_eq!((reported, found.len()), (covered * BLOCK as u64, extents));
        assert!(work.is_idle());
    }
}

#[test]
fn a_closed_connection_gets_no_block_status() {
    let mut testbed = Testbed::new(1);
    let requester = Requester { connection: CONNECTION, group: GROUP, request: RequestId(1) };
    testbed.work.begin(DISK, requester, Request::BlockStatus { offset: 0, length: 512, one: false });
    testbed.work.abandon(CONNECTION);
    testbed.take();
    assert!(testbed.replies.is_empty() && testbed.work.is_idle());
}

#[test]
fn requests_beyond_the_end_of_a_drive_that_has_shrunk_fail_without_a_command() {
    let mut testbed = Testbed::new(1);
    let half = SIZE / 2;
    // The client may have chosen the export when the drive was larger.
    testbed.work.resize_device(DISK, half);
    assert_eq!(testbed.reply(write(half - 10, vec![1; 10])), Ok(Reply::Done));
    testbed.done.clear();
    for (request, error) in [
        (Request::Read { offset: half - 4, length: 5 }, NbdError::Invalid),
        (write(half - 4, vec![2; 5]), NbdError::NoSpace),
        (Request::WriteZeroes { offset: half, length: 1, fua: false, may_trim: true, fast: false }, NbdError::NoSpace),
        (Request::Trim { offset: 0, length: SIZE as u32, fua: true }, NbdError::Invalid),
        (Request::BlockStatus { offset: half - 4, length: 5, one: false }, NbdError::Invalid),
    ] {
        assert_eq!(testbed.reply(request), Err(error));
    }
    assert!(testbed.done.is_empty(), "{:?}", testbed.done);
    assert_eq!(testbed.read(half - 10, 10), [1; 10]);
    assert_eq!(testbed.reply(Request::Flush), Ok(Reply::Done));
    testbed.work.resize_device(DISK, SIZE);
    assert_eq!(testbed.reply(write(half - 4, vec![3; 5])), Ok(Reply::Done), "it has grown again");
}
