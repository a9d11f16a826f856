//! A request: a command that has not completed, and what it waits for.

use bytes::{Bytes, BytesMut};
use zonda_nvme::SubmissionEntry;
use zonda_nvme::io::IoRequest;

use crate::controller::ErrorLocation;
use crate::subsystems::NamespaceIndex;
use crate::target::CommandKey;

/// A command that has not completed.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command_id: u16,
    pub(crate) work: Work,
    pub(super) step: Step,
    pub(super) incoming: Incoming,
    /// Its part of the table's solicited bytes.
    pub(super) solicited_bytes: usize,
    /// Its part of the table's expected bytes.
    pub(super) expected_out_bytes: usize,
    /// Bytes of in-capsule data, and of data that a compare reads.
    pub(super) scratch_bytes: usize,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: the event that takes it to its next step is being processed.
    Running,
    /// Memory. It holds none.
    Memory,
    /// The data that an R2T has solicited.
    Data,
    /// The end of the pause of its namespace.
    Namespace(Held),
    /// A command at the device.
    Device(CommandKey),
}

/// When the pause of its namespace began for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Before it waited for memory, which it does after that.
    BeforeMemory,
    /// With all its data: it is submitted to the device after that.
    WithData,
}

/// The kind of a command in the table.
#[derive(Debug)]
pub(crate) enum Work {
    /// An I/O command to a namespace.
    Io { request: IoRequest, namespace: NamespaceIndex, stage: Stage, compare: Bytes, result: u64 },
    /// An admin or Fabrics command that waits for its data.
    Command(Box<SubmissionEntry>),
    /// A Get Log Page of the Changed Zone List, which the device is queried for.
    ChangedZones { entry: Box<SubmissionEntry>, namespace: NamespaceIndex },
    /// A command whose namespace was removed while its data was on the way: it fails once all data
    /// has been received.
    Removed(ErrorLocation),
}

/// Which device command of an I/O command is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A flush before a read with FUA.
    FlushBefore,
    /// The command itself.
    Itself,
    /// A flush after a write with FUA.
    FlushAfter,
}

/// Data on its way from the host.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Bytes that the command transfers; zero where none are expected.
    pub(super) expected: u32,
    pub(super) received: u32,
    pub(super) digest_failed: bool,
    /// The data received, if it came in one PDU.
    whole: Bytes,
    parts: BytesMut,
}

/// All data of a request.
#[derive(Debug)]
pub(crate) struct HostBytes {
    pub(crate) data: Bytes,
    /// The digest of a PDU was wrong.
    pub(crate) digest_failed: bool,
}

impl Request {
    pub(crate) fn new(command_id: u16, work: Work) -> Request {
        Request {
            command_id,
            work,
            step: Step::Running,
            incoming: Incoming::default(),
            solicited_bytes: 0,
            expected_out_bytes: 0,
            scratch_bytes: 0,
        }
    }

    pub(crate) fn io(command_id: u16, request: IoRequest, namespace: NamespaceIndex) -> Request {
        let work = Work::Io { request, namespace, stage: Stage::Itself, compare: Bytes::new(), result: 0 };
        Request::new(command_id, work)
    }

    /// The host has to send so many bytes.
    pub(crate) fn expect_data(&mut self, bytes: u32) {
        self.incoming.expected = bytes;
    }

    /// The command returns so many bytes.
    pub(crate) fn expect_out(&mut self, bytes: u32) {
        self.expected_out_bytes = bytes as usize;
    }

    /// The command needs so many bytes more: see [`Request::scratch_bytes`].
    pub(crate) fn add_scratch(&mut self, bytes: usize) {
        self.scratch_bytes += bytes;
    }

    pub(crate) fn returns_data(&self) -> bool {
        self.expected_out_bytes > 0
    }

    /// Bytes that have to be solicited from the host.
    #[inline]
    pub(crate) fn incoming_bytes(&self) -> usize {
        self.incoming.expected as usize
    }

    /// Offset at which the host continues its data.
    #[inline]
    pub(crate) fn received_bytes(&self) -> u32 {
        self.incoming.received
    }

    /// The bytes that it needs in order to start.
    #[inline]
    pub(crate) fn needed_bytes(&self) -> usize {
        self.incoming_bytes() + self.expected_out_bytes + self.scratch_bytes
    }

    /// All bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.solicited_bytes + self.expected_out_bytes + self.scratch_bytes
    }

    /// An R2T has solicited its data, and not all has been received.
    #[inline]
    pub(crate) fn is_soliciting(&self) -> bool {
        self.step == Step::Data
    }

    /// Whether it waits for the end of a pause.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.step, Step::Namespace(_))
    }

    /// The command at the device, while one is outstanding.
    #[inline]
    pub(crate) fn device_command(&self) -> Option<CommandKey> {
        match self.step {
            Step::Device(command) => Some(command),
            _ => None,
        }
    }

    /// A command was submitted to the device.
    #[inline]
    pub(crate) fn submitted(&mut self, command: CommandKey) {
        // The completion of a second command would find a request that has ended, and a request
        // that still waits would start twice.
        assert!(self.step == Step::Running, "a request that is submitted waits for nothing: {:?}", self.step);
        self.step = Step::Device(command);
    }

    /// The device has completed the command.
    #[inline]
    pub(crate) fn device_completed(&mut self, command: CommandKey) {
        assert!(self.step == Step::Device(command), "a completion is of the command that the request waits for");
        self.step = Step::Running;
    }

    /// Keeps the data of a command that is held.
    pub(crate) fn keep(&mut self, data: Bytes) {
        self.incoming.whole = data;
    }
}

impl Incoming {
    /// Appends data; the caller has checked its offset.
    pub(super) fn add(&mut self, data: Bytes) {
        self.received += data.len() as u32;
        if self.received == self.expected && self.parts.is_empty() {
            self.whole = data;
            return;
        }
        if self.parts.capacity() == 0 {
            self.parts.reserve(self.expected as usize);
        }
        self.parts.extend_from_slice(&data);
    }

    /// Takes all data received.
    pub(super) fn take(&mut self) -> Bytes {
        if self.parts.is_empty() { std::mem::take(&mut self.whole) } else { std::mem::take(&mut self.parts).freeze() }
    }
}
