//! An open image on a simulated disk, with file operations in progress.

use zonda_image::testing::Observed;
use zonda_image::{FileCommand, Image, ImageError, RecoveryReport, open_with_bug};
use zonda_zoned::{Command, CommandId, Completion, CompletionQueue, Instant, NamespaceId, Operation, Prng, Status};

use super::disk::Disk;
use crate::images::ImageBug;

/// Commands of the tester itself count from here, those of the load from 0.
const OWN_IDS: u64 = 1 << 40;

/// A drive while its program runs.
pub(super) struct Drive {
    pub(super) disk: Disk,
    pub(super) image: Image,
    pub(super) report: RecoveryReport,
    /// Operations that are out, each with the tick at which it was handed out.
    out: Vec<(FileCommand, u64)>,
    next_id: u64,
}

impl Drive {
    /// Opens the image on a disk; a disk on which it cannot be opened comes back.
    pub(super) fn open(mut disk: Disk, bug: Option<ImageBug>) -> Result<Drive, Box<(Disk, ImageError)>> {
        match open_with_bug(&mut disk, bug) {
            Ok((image, report)) => {
                image.check_invariants();
                Ok(Drive { disk, image, report, out: Vec::new(), next_id: OWN_IDS })
            }
            Err(error) => Err(Box::new((disk, error))),
        }
    }

    pub(super) fn submit(&mut self, now: Instant, command: Command) {
        self.image.submit(now, command).expect("a drive takes more commands than any scenario has at a time");
        self.collect();
    }

    /// Takes file operations from the machine.
    pub(super) fn collect(&mut self) {
        while let Some(command) = self.image.poll_effect() {
            self.out.push((command, self.disk.tick));
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.out.is_empty()
    }

    /// Carries one of the operations that are out out, whichever.
    pub(super) fn step(&mut self, prng: &mut Prng) -> bool {
        if self.out.is_empty() {
            return false;
        }
        let choice = prng.below(self.out.len() as u64) as usize;
        let (FileCommand { ticket, operation }, tick) = self.out.remove(choice);
        let result = self.disk.carry_out(&operation, tick);
        self.image.on_file_done(ticket, result);
        self.collect();
        true
    }

    pub(super) fn poll(&mut self) -> Vec<Completion> {
        let mut queue = CompletionQueue::new();
        self.image.poll(&mut queue);
        std::iter::from_fn(|| queue.pop()).collect()
    }

    /// One command of the tester, to its end, on a drive that does nothing else.
    pub(super) fn run(&mut self, operation: Operation) -> Completion {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        self.submit(Instant::ZERO, Command { id, namespace: NamespaceId::FIRST, operation });
        let mut oldest_first = Prng::new(self.next_id);
        while self.step(&mut oldest_first) {}
        let completions = self.poll();
        // A checkpoint that cannot be written leaves nothing to wait for: the command is never answered.
        completions
            .into_iter()
            .find(|completion| completion.id == id)
            .unwrap_or(Completion::of(id, Status::InternalError))
    }

    /// Everything there is to see.
    pub(super) fn observe(&mut self) -> Observed {
        let zones = self.image.zones().clone();
        Observed::of(&zones, |operation| self.run(operation))
    }

    /// The program is killed: operations that are out are done, in part or not at all.
    pub(super) fn kill(mut self) -> Disk {
        for (command, _) in std::mem::take(&mut self.out) {
            self.disk.carry_out_in_part(&command.operation);
        }
        self.disk
    }
}
