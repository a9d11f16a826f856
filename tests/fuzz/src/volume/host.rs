//! A host of a volume that sends one command at a time, and checks the contents of blocks.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_raid::VolumeDevice;
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Instant, Lba, LbaRange, NamespaceId,
    Operation, Outcome, Payload, Prng, Status, ZonedDevice,
};

use crate::feed::Feed;
use crate::history::History;

/// Iterations of a volume for one command, or for a mount: many times more than needed.
const ITERATIONS_MAX: u32 = 100_000;
/// Blocks of one read.
const READ_BLOCKS: u64 = 4;
const BLOCK_BYTES: usize = 512;

pub(super) struct Host {
    volume: VolumeDevice<ReferenceDevice>,
    now: Instant,
    next_id: u64,
}

impl Host {
    /// Waits until the volume accepts commands; `None` if the mount fails.
    pub(super) fn until_ready(mut volume: VolumeDevice<ReferenceDevice>) -> Option<Host> {
        let mut now = Instant::ZERO;
        for _ in 0..ITERATIONS_MAX {
            volume.process(now);
            if let Some(error) = volume.volume().failure() {
                assert!(!error.to_string().is_empty());
                return None;
            }
            if volume.volume().is_ready() {
                return Some(Host { volume, now, next_id: 1 });
            }
            now = volume.next_timeout().expect("a mount in progress has a next wakeup").max(now);
        }
        panic!("the mount does not end");
    }

    pub(super) fn into_members(self) -> Vec<Option<ReferenceDevice>> {
        self.volume.into_parts().1
    }

    fn blocks(&self) -> u64 {
        self.volume.volume().geometry().namespace_blocks().0
    }

    /// Runs one command to its end.
    fn run(&mut self, operation: Operation) -> Completion {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        let command = Command::new(id, NamespaceId::FIRST, operation);
        self.volume.submit(self.now, command).expect("an idle volume accepts a command");
        let mut ended = CompletionQueue::new();
        for _ in 0..ITERATIONS_MAX {
            self.volume.poll(self.now, &mut ended);
            if let Some(completion) = ended.pop() {
                assert_eq!(completion.id, id);
                assert!(ended.pop().is_none(), "one command has one completion");
                return completion;
            }
            self.now = self.volume.next_timeout().expect("a command in flight has a next wakeup").max(self.now);
        }
        panic!("the command does not complete");
    }

    /// Flushes; returns whether it succeeded.
    pub(super) fn flush(&mut self) -> bool {
        self.run(Operation::Flush).status == Status::Success && self.volume.volume().failure().is_none()
    }

    pub(super) fn command(&mut self, feed: &mut Feed<'_>, history: &mut History, latest: &mut BTreeMap<u64, Bytes>) {
        let (kind, start, count) = (feed.u8(), u64::from(feed.u16()), u64::from(feed.u8()));
        self.one(kind, start, count, history, latest);
    }

    pub(super) fn random_command(&mut self, prng: &mut Prng, history: &mut History, latest: &mut BTreeMap<u64, Bytes>) {
        let (kind, start, count) = (prng.below(256) as u8, prng.below(1 << 16), prng.below(256));
        self.one(kind, start, count, history, latest);
    }

    fn one(&mut self, kind: u8, start: u64, count: u64, history: &mut History, latest: &mut BTreeMap<u64, Bytes>) {
        let start = start % self.blocks();
        let blocks = (1 + count % 8).min(self.blocks() - start);
        let lbas = start..start + blocks;
        let range = LbaRange { start: Lba(start), blocks: Blocks(blocks) };
        match kind % 16 {
            0..=10 => {
                let data: Vec<Bytes> = lbas.clone().map(|lba| self.contents(lba)).collect();
                for (lba, block) in lbas.clone().zip(&data) {
                    history.note(lba, block.clone());
                }
                let buffer = BlockBuffer { data: data.concat().into(), metadata: Bytes::new() };
                let payload = Payload::Bytes(Box::new(buffer));
                let write = Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload };
                let is_written = self.run(write).status == Status::Success;
                note(latest, lbas.zip(data), is_written);
            }
            11 | 12 => {
                let is_trimmed = self.run(Operation::Deallocate { ranges: [range].into() }).status == Status::Success;
                let zeros = Bytes::from(vec![0; BLOCK_BYTES]);
                note(latest, lbas.map(|lba| (lba, zeros.clone())), is_trimmed);
            }
            13 => drop(self.run(Operation::Flush)),
            _ => drop(self.run(Operation::Read { start: Lba(start), blocks: Blocks(blocks) })),
        }
    }

    /// Contents that the block never had before.
    fn contents(&self, lba: u64) -> Bytes {
        let mut block = vec![self.next_id as u8; BLOCK_BYTES];
        block[..8].copy_from_slice(&lba.to_le_bytes());
        block[8..16].copy_from_slice(&self.next_id.to_le_bytes());
        block.into()
    }

    /// Reads every block: it must have its latest known contents, else any earlier contents, or
    /// zeros.
    pub(super) fn read_everything(&mut self, history: &History, latest: &BTreeMap<u64, Bytes>) {
        let blocks = self.blocks();
        for start in (0..blocks).step_by(READ_BLOCKS as usize) {
            let count = READ_BLOCKS.min(blocks - start);
            let read = self.run(Operation::Read { start: Lba(start), blocks: Blocks(count) });
            if read.status != Status::Success {
                // A block of the range is lost: reads the others separately.
                (start..start + count).for_each(|lba| self.read_one(lba, history, latest));
                continue;
            }
            let data = data_of(read.outcome);
            for (lba, at) in (start..start + count).zip((0..data.len()).step_by(BLOCK_BYTES)) {
                check(lba, &data.slice(at..at + BLOCK_BYTES), history, latest);
            }
        }
    }

    fn read_one(&mut self, lba: u64, history: &History, latest: &BTreeMap<u64, Bytes>) {
        let read = self.run(Operation::Read { start: Lba(lba), blocks: Blocks(1) });
        if read.status == Status::Success {
            check(lba, &data_of(read.outcome), history, latest);
        } else {
            assert!(!latest.contains_key(&lba), "block {lba} was written after the damage, and is lost");
        }
    }
}

fn data_of(outcome: Outcome) -> Bytes {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data,
        other => panic!("a successful read returns data, not {other:?}"),
    }
}

fn check(lba: u64, block: &Bytes, history: &History, latest: &BTreeMap<u64, Bytes>) {
    if let Some(latest) = latest.get(&lba) {
        assert_eq!(block, latest, "block {lba} does not have the contents that were written after the damage");
        return;
    }
    history.check(lba, block);
}

/// Updates the latest known contents; those of a failed command are unknown.
fn note(latest: &mut BTreeMap<u64, Bytes>, blocks: impl Iterator<Item = (u64, Bytes)>, is_done: bool) {
    for (lba, block) in blocks {
        if is_done {
            latest.insert(lba, block);
        } else {
            latest.remove(&lba);
        }
    }
}
