//! An open image on a simulated disk, with outstanding file operations.

use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId,
    Operation, Outcome, Payload, Prng, Status, ZoneAction, ZoneTarget,
};

use crate::format::layout::Layout;
use crate::{FileCommand, Image, ImageSpec, RecoveryReport, create, open};

use super::{Disk, Observed};

pub(crate) struct Drive {
    pub(crate) disk: Disk,
    pub(crate) image: Image,
    pub(crate) report: RecoveryReport,
    /// Outstanding operations, each with the tick at which it was issued.
    pub(crate) out: Vec<(FileCommand, u64)>,
    next_id: u64,
}

/// A specification with the shortest possible journal.
pub(crate) fn spec(geometry: Geometry) -> ImageSpec {
    let journal_bytes = Layout::journal_bytes_min(&geometry);
    ImageSpec { journal_bytes, ..ImageSpec::new(geometry, "name = \"test\"\n".into(), *b"0123456789abcdef") }
}

/// Contents of so many blocks, each with its own mark.
fn block(geometry: &Geometry, blocks: u64, mark: u8) -> Payload {
    let data: Vec<u8> =
        (0..blocks).flat_map(|i| vec![mark.wrapping_add(i as u8); geometry.block_size_bytes as usize]).collect();
    let metadata = (0..blocks).flat_map(|i| vec![!mark.wrapping_add(i as u8); usize::from(geometry.metadata_bytes)]);
    Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.collect::<Vec<u8>>().into() }))
}

impl Drive {
    pub(crate) fn create(spec: &ImageSpec) -> Drive {
        let mut disk = Disk::new();
        create(spec, &mut disk).unwrap();
        Drive::open(disk)
    }

    pub(crate) fn open(mut disk: Disk) -> Drive {
        let (image, report) = open(&mut disk).unwrap_or_else(|error| panic!("{error}"));
        image.check_invariants();
        Drive { disk, image, report, out: Vec::new(), next_id: 1 << 40 }
    }

    pub(crate) fn submit(&mut self, operation: Operation) -> CommandId {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        self.submit_command(Command::new(id, NamespaceId::FIRST, operation));
        id
    }

    pub(crate) fn submit_command(&mut self, command: Command) {
        self.image.submit(Instant::ZERO, command).unwrap();
        self.collect();
    }

    pub(crate) fn collect(&mut self) {
        while let Some(command) = self.image.poll_effect() {
            self.out.push((command, self.disk.tick));
        }
    }

    /// Carries out one of the operations.
    pub(crate) fn step(&mut self, choice: usize) {
        let (FileCommand { id, operation }, tick) = self.out.remove(choice);
        let result = self.disk.carry_out(&operation, tick);
        self.image.on_completion(id, result);
        self.collect();
    }

    pub(crate) fn step_any(&mut self, prng: &mut Prng) -> bool {
        if self.out.is_empty() {
            return false;
        }
        let choice = prng.below(self.out.len() as u64) as usize;
        self.step(choice);
        true
    }

    /// Carries out all operations, the oldest first.
    pub(crate) fn complete_all(&mut self) -> Vec<Completion> {
        while !self.out.is_empty() {
            self.step(0);
        }
        self.poll()
    }

    pub(crate) fn poll(&mut self) -> Vec<Completion> {
        let mut queue = CompletionQueue::new();
        self.image.poll(&mut queue);
        std::iter::from_fn(|| queue.pop()).collect()
    }

    /// Runs one command to completion.
    pub(crate) fn run(&mut self, operation: Operation) -> Completion {
        let id = self.submit(operation);
        let mut completions = self.complete_all();
        assert_eq!(completions.len(), 1, "{completions:?}");
        let completion = completions.remove(0);
        assert_eq!(completion.id, id);
        completion
    }

    pub(crate) fn write(&mut self, start: u64, blocks: u64, mark: u8) -> Status {
        self.run(self.write_of(start, blocks, mark)).status
    }

    pub(crate) fn write_of(&self, start: u64, blocks: u64, mark: u8) -> Operation {
        let payload = block(self.image.geometry(), blocks, mark);
        Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload }
    }

    pub(crate) fn manage(&mut self, action: ZoneAction, lba: u64) -> Status {
        self.run(Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(lba)) }).status
    }

    /// Status and data of a read.
    pub(crate) fn read(&mut self, start: u64, blocks: u64) -> Result<BlockBuffer, Status> {
        let completion = self.run(Operation::Read { start: Lba(start), blocks: Blocks(blocks) });
        match completion.outcome {
            Outcome::Data(Payload::Bytes(buffer)) => Ok(*buffer),
            _ => Err(completion.status),
        }
    }

    /// The first byte of each block.
    pub(crate) fn marks(&mut self, start: u64, blocks: u64) -> Vec<Result<u8, Status>> {
        (start..start + blocks).map(|lba| self.read(lba, 1).map(|buffer| buffer.data[0])).collect()
    }

    /// The program is killed: outstanding operations are carried out, in part or not at all.
    pub(crate) fn kill(mut self, prng: &mut Prng) -> Disk {
        self.disk.fault = None;
        for (command, _) in std::mem::take(&mut self.out) {
            self.disk.carry_out_in_part(&command.operation, prng);
        }
        self.disk
    }

    pub(crate) fn lose_power(self, prng: &mut Prng) -> Disk {
        let mut disk = self.kill(prng);
        disk.lose_power(prng);
        disk
    }

    /// Shuts the drive down cleanly.
    pub(crate) fn close(mut self) -> Disk {
        self.image.shutdown();
        self.collect();
        self.complete_all();
        assert_eq!(self.image.shutdown_result(), Some(&Ok(())));
        assert!(self.image.is_idle());
        self.disk
    }

    /// Shuts the drive down cleanly while a change of reservations is in progress, which succeeds.
    pub(crate) fn close_during_reservations_change(mut self) -> Disk {
        self.image.shutdown();
        self.collect();
        self.complete_all();
        assert_eq!(self.image.take_reservations_saved(), Some(true));
        self.close()
    }

    /// All zones and blocks.
    pub(crate) fn observe(&mut self) -> Observed {
        let zones = self.image.zones().clone();
        Observed::of(&zones, |operation| self.run(operation))
    }
}
