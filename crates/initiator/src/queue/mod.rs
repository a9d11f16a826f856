//! One queue: the byte streams of its connection, and its outstanding commands.
//!
//! The queue handles PDUs, command identifiers and data; it does not interpret commands.

mod commands;
mod receive;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_nvme::tcp::{Digests, InitializeRequest, PduError, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{SglDescriptor, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use commands::{Cid, Commands, Received, Transfer};
pub(crate) use commands::{CommandData, HostData, Owner};
pub(crate) use receive::Failure;

/// A queue of an initiator: 0 is the admin queue, I/O queues count from 1. Each is a TCP connection
/// of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u16);

impl QueueId {
    /// The admin queue.
    pub const ADMIN: QueueId = QueueId(0);
}

impl std::fmt::Display for QueueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == QueueId::ADMIN { f.write_str("admin queue") } else { write!(f, "I/O queue {}", self.0) }
    }
}

/// An event that results from received bytes.
#[derive(Debug)]
pub(crate) enum QueueEvent {
    /// ICResp: commands can be sent.
    Negotiated,
    /// All solicited data of a write has been sent: commands submitted later arrive after it.
    DataSent(Owner),
    /// A command has completed.
    Ended(Ended),
}

/// The completion of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) owner: Owner,
    pub(crate) status: StatusCode,
    pub(crate) do_not_retry: bool,
    pub(crate) result: u64,
    /// Data that the controller has sent, at most the requested length.
    pub(crate) data: Bytes,
    /// A data digest was wrong.
    pub(crate) is_damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not connected: late input is ignored.
    Closed,
    /// ICReq has been sent.
    Negotiating,
    /// Commands can be sent.
    Open,
}

/// The parameters of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueOptions {
    /// Outstanding commands.
    pub(crate) depth: u16,
    /// Digests to request.
    pub(crate) digests: Digests,
    /// Bytes of data that one PDU of the controller may have.
    pub(crate) data_bytes_max: u32,
    /// Solicited data is sent in the order of the commands' submission.
    pub(crate) in_order: bool,
}

/// One queue.
#[derive(Debug)]
pub(crate) struct Queue {
    options: QueueOptions,
    phase: Phase,
    reader: PduReader,
    writer: PduWriter,
    commands: Commands,
    /// MAXH2CDATA.
    host_data_bytes_max: u32,
    /// Data that fits a command capsule.
    capsule_data_bytes: u32,
    /// With `in_order`, writes whose data has not all been sent, in the order of submission.
    unsent: VecDeque<Cid>,
}

impl Queue {
    pub(crate) fn new(options: QueueOptions) -> Queue {
        Queue {
            phase: Phase::Closed,
            reader: new_reader(&options),
            writer: PduWriter::new(),
            commands: Commands::new(options.depth),
            host_data_bytes_max: 0,
            capsule_data_bytes: 0,
            unsent: VecDeque::new(),
            options,
        }
    }

    /// The connection is established: sends ICReq. `capsule_data_bytes` is the limit of in-capsule
    /// data.
    pub(crate) fn on_connect(&mut self, capsule_data_bytes: u32) {
        self.reader = new_reader(&self.options);
        self.writer = PduWriter::new();
        self.commands = Commands::new(self.options.depth);
        self.unsent.clear();
        self.capsule_data_bytes = capsule_data_bytes;
        self.phase = Phase::Negotiating;
        self.writer.initialize_request(&InitializeRequest::new(0, self.options.digests, R2T_MAX));
    }

    /// Closes the connection, and drops the outstanding commands.
    pub(crate) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.reader = new_reader(&self.options);
        self.writer = PduWriter::new();
        self.commands = Commands::new(self.options.depth);
        self.unsent.clear();
    }

    /// The most outstanding commands.
    pub(crate) fn depth(&self) -> u16 {
        self.options.depth
    }

    /// Sets the limit of in-capsule data, once it is known.
    pub(crate) fn set_capsule_data_bytes(&mut self, capsule_data_bytes: u32) {
        self.capsule_data_bytes = capsule_data_bytes;
    }

    /// Whether commands can be sent.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether another command can be submitted.
    #[inline]
    pub(crate) fn has_free_slot(&self) -> bool {
        self.is_open() && self.commands.has_free_slot()
    }

    /// Outstanding commands.
    pub(crate) fn outstanding(&self) -> usize {
        self.commands.outstanding()
    }

    /// When the oldest command was submitted, except event requests, which may wait forever.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.commands.oldest()
    }

    /// Whether data fits the capsule, so that the controller need not solicit it.
    #[inline]
    pub(crate) fn fits_capsule(&self, data: &HostData) -> bool {
        data.len() <= self.capsule_data_bytes && data.is_one_piece()
    }

    /// Whether there are writes whose data has not all been sent.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends a command. Identifier and data pointer are filled in here. Returns whether all its
    /// data has been sent, too.
    ///
    /// # Panics
    /// If no slot is free.
    pub(crate) fn submit(&mut self, now: Instant, owner: Owner, mut entry: SubmissionEntry, data: CommandData) -> bool {
        assert!(self.is_open(), "a command is sent only over an open queue");
        let mut in_capsule = Bytes::new();
        let mut is_data_sent = true;
        let transfer = match data {
            CommandData::None => {
                entry.data_pointer = SglDescriptor::transport(0);
                Transfer::None
            }
            CommandData::ToHost(bytes) => {
                entry.data_pointer = SglDescriptor::transport(bytes);
                Transfer::Receive(Received::new(bytes))
            }
            CommandData::FromHost(data) => {
                let bytes = data.len();
                match data.one_piece() {
                    Some(piece) if bytes <= self.capsule_data_bytes => {
                        entry.data_pointer = SglDescriptor::in_capsule(0, bytes);
                        in_capsule = piece;
                        Transfer::None
                    }
                    _ => {
                        entry.data_pointer = SglDescriptor::transport(bytes);
                        is_data_sent = false;
                        Transfer::Send { data, sent: 0, request: None }
                    }
                }
            }
        };
        let id = self.commands.insert(now, owner, transfer);
        entry.command_id = id.0.into();
        if !is_data_sent && self.options.in_order {
            self.unsent.push_back(id);
        }
        self.writer.command(&entry, &in_capsule);
        is_data_sent
    }

    /// Terminates the connection with H2CTermReq; nothing else is sent.
    pub(crate) fn terminate(&mut self, error: &PduError) {
        self.writer.host_termination(error);
    }

    /// Whether there is unsent output.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.writer.queued_bytes() > 0
    }

    /// Takes the unsent output.
    pub(crate) fn take_output(&mut self) -> Vec<Bytes> {
        self.writer.take()
    }
}

/// Outstanding R2Ts per command: one, as in Linux; each can solicit all data.
const R2T_MAX: u32 = 1;

fn new_reader(options: &QueueOptions) -> PduReader {
    let limits = ReaderLimits { data_bytes: options.data_bytes_max, ..ReaderLimits::default() };
    PduReader::new(Side::Host, limits)
}
