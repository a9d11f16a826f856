//! Helpers for the tests of all layers.

use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces,
    Operation, Payload, PayloadKind, QueueFull, ZonedDevice,
};

/// A small reference device that stores fingerprints.
pub(crate) fn reference() -> ReferenceDevice {
    ReferenceDevice::new(Geometry::tiny(), PayloadKind::Fingerprints)
}

pub(crate) fn command(id: u64, operation: Operation) -> Command {
    Command::new(CommandId(id), NamespaceId::FIRST, operation)
}

pub(crate) fn read(id: u64, start: u64, blocks: u64) -> Command {
    command(id, Operation::Read { start: Lba(start), blocks: Blocks(blocks) })
}

/// A write whose fingerprints identify its command and each block.
pub(crate) fn write(id: u64, start: u64, blocks: u64) -> Command {
    let payload = Payload::Fingerprints((0..blocks).map(|block| (id << 16) + start + block + 1).collect());
    command(id, Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload })
}

pub(crate) fn poll_all(device: &mut impl ZonedDevice, now: Instant) -> Vec<Completion> {
    let mut queue = CompletionQueue::new();
    device.poll(now, &mut queue);
    std::iter::from_fn(|| queue.pop()).collect()
}

pub(crate) fn poll_ids(device: &mut impl ZonedDevice, now: Instant) -> Vec<u64> {
    poll_all(device, now).into_iter().map(|completion| completion.id.0).collect()
}

/// Polls at each wakeup until none is left.
pub(crate) fn run_until_idle(device: &mut impl ZonedDevice, from: Instant) -> Vec<(Instant, Completion)> {
    let mut now = from;
    let mut ended = Vec::new();
    let mut polls = 0;
    while let Some(wakeup) = device.next_timeout() {
        now = now.max(wakeup);
        ended.extend(poll_all(device, now).into_iter().map(|completion| (now, completion)));
        polls += 1;
        assert!(polls < 1_000_000, "the device never becomes idle");
    }
    ended
}

/// Runs one command alone, from its submission to its completion.
pub(crate) fn run_one(device: &mut impl ZonedDevice, command: Command) -> Completion {
    let id = command.id;
    device.submit(Instant::ZERO, command).expect("an idle device accepts a command");
    let ended = run_until_idle(device, Instant::ZERO);
    let [(_, completion)] = <[_; 1]>::try_from(ended).expect("one command has one completion");
    assert_eq!(completion.id, id);
    completion
}

/// A device with a short queue.
pub(crate) struct Narrow<D> {
    pub(crate) inner: D,
    slots: usize,
    outstanding: usize,
    pub(crate) refusals: usize,
}

impl<D: ZonedDevice> Narrow<D> {
    pub(crate) fn new(inner: D, slots: usize) -> Narrow<D> {
        Narrow { inner, slots, outstanding: 0, refusals: 0 }
    }
}

impl<D: ZonedDevice> ZonedDevice for Narrow<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.outstanding == self.slots {
            self.refusals += 1;
            return Err(QueueFull(command));
        }
        self.inner.submit(now, command)?;
        self.outstanding += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let before = completions.len();
        self.inner.poll(now, completions);
        self.outstanding -= completions.len() - before;
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}
