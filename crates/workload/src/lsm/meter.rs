//! Counts the commands in flight on a device, and the bytes transferred to and from it.

use zonda_zoned::{Command, CompletionQueue, Instant, Namespaces, Operation, QueueFull, ZonedDevice};

/// A device, and the bytes written to it and read from it by commands that it accepted.
#[derive(Debug)]
pub(super) struct Meter<D> {
    device: D,
    pub(super) bytes: HostBytes,
    pub(super) in_flight: usize,
}

/// Bytes that a host has transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostBytes {
    pub(super) written: u64,
    pub(super) read: u64,
}

impl<D: ZonedDevice> Meter<D> {
    pub(super) fn new(device: D) -> Meter<D> {
        Meter { device, bytes: HostBytes::default(), in_flight: 0 }
    }

    pub(super) fn inner(&self) -> &D {
        &self.device
    }

    pub(super) fn into_inner(self) -> D {
        self.device
    }
}

impl HostBytes {
    pub(super) fn since(self, earlier: HostBytes) -> HostBytes {
        HostBytes { written: self.written - earlier.written, read: self.read - earlier.read }
    }

    pub(super) fn plus(self, other: HostBytes) -> HostBytes {
        HostBytes { written: self.written + other.written, read: self.read + other.read }
    }
}

impl<D: ZonedDevice> ZonedDevice for Meter<D> {
    fn namespaces(&self) -> &Namespaces {
        self.device.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let block = self.device.geometry(command.namespace).block_size_bytes;
        let (written, read) = match &command.operation {
            Operation::Write { blocks, .. } | Operation::Append { blocks, .. } => (blocks.bytes(block), 0),
            Operation::Read { blocks, .. } => (0, blocks.bytes(block)),
            _ => (0, 0),
        };
        self.device.submit(now, command)?;
        self.bytes = self.bytes.plus(HostBytes { written, read });
        self.in_flight += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let before = completions.len();
        self.device.poll(now, completions);
        self.in_flight -= completions.len() - before;
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.device.next_timeout()
    }
}
