//! An open image on a simulated disk, with file operations in progress.

use zonda_image::testing::{Observed, open_with_bug};
use zonda_image::{FileCommand, Image, ImageError, RecoveryReport};
use zonda_zoned::{Command, CommandId, Completion, CompletionQueue, Instant, NamespaceId, Operation, Prng, Status};

use super::disk::Disk;
use crate::images::ImageBug;

/// Ids of commands of the tester itself start here, those of the load at 0.
const OWN_IDS: u64 = 1 << 40;

/// An open drive.
pub(crate) struct Drive {
    pub(crate) disk: Disk,
    pub(crate) image: Image,
    pub(super) report: RecoveryReport,
    /// File operations in progress, each with the tick at which it was submitted.
    in_progress: Vec<(FileCommand, u64)>,
    next_id: u64,
}

impl Drive {
    /// Opens the image on a disk; returns the disk with the error if that fails.
    pub(crate) fn open(mut disk: Disk, bug: Option<ImageBug>) -> Result<Drive, Box<(Disk, ImageError)>> {
        match open_with_bug(&mut disk, bug) {
            Ok((image, report)) => {
                image.check_invariants();
                Ok(Drive { disk, image, report, in_progress: Vec::new(), next_id: OWN_IDS })
            }
            Err(error) => Err(Box::new((disk, error))),
        }
    }

    pub(super) fn submit(&mut self, now: Instant, command: Command) {
        self.image.submit(now, command).expect("the queue is longer than that of any scenario");
        self.collect();
    }

    /// Takes file operations from the image.
    pub(crate) fn collect(&mut self) {
        while let Some(command) = self.image.poll_effect() {
            self.in_progress.push((command, self.disk.tick));
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_progress.is_empty()
    }

    /// Executes a random one of the operations in progress.
    pub(crate) fn step(&mut self, prng: &mut Prng) -> bool {
        if self.in_progress.is_empty() {
            return false;
        }
        let choice = prng.below(self.in_progress.len() as u64) as usize;
        let (FileCommand { id, operation }, tick) = self.in_progress.remove(choice);
        let result = self.disk.carry_out(&operation, tick);
        self.image.on_completion(id, result);
        self.collect();
        true
    }

    pub(crate) fn poll(&mut self) -> Vec<Completion> {
        let mut queue = CompletionQueue::new();
        self.image.poll(&mut queue);
        std::iter::from_fn(|| queue.pop()).collect()
    }

    /// Runs one command of the tester to completion, on an idle drive.
    pub(super) fn run(&mut self, operation: Operation) -> Completion {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        self.submit(Instant::ZERO, Command::new(id, NamespaceId::FIRST, operation));
        let mut order = Prng::new(self.next_id);
        while self.step(&mut order) {}
        let completions = self.poll();
        // If a checkpoint cannot be written, the command never completes.
        completions
            .into_iter()
            .find(|completion| completion.id == id)
            .unwrap_or(Completion::of(id, Status::InternalError))
    }

    /// The state of all zones and blocks.
    pub(super) fn observe(&mut self) -> Observed {
        let zones = self.image.zones().clone();
        Observed::of(&zones, |operation| self.run(operation))
    }

    /// Kills the process: operations in progress are executed completely, in part or not at all.
    pub(crate) fn kill(mut self) -> Disk {
        for (command, _) in std::mem::take(&mut self.in_progress) {
            self.disk.carry_out_in_part(&command.operation);
        }
        self.disk
    }
}
