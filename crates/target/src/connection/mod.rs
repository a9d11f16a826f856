//! One connection: one queue of one controller, once it is connected.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zonda_chap::ControllerAuth;
use zonda_nvme::io::IoRequest;
use zonda_nvme::tcp::{ADMIN_CAPSULE_DATA_BYTES, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_nvme::{StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use crate::auth::AuthStep;
use crate::budget::{Account, Progress};
use crate::controller::{ControllerKey, ErrorLocation};
use crate::effects::CloseReason;
use crate::fair::Flow;
use crate::limits::Limits;
use crate::namespace::NamespaceIndex;
use crate::target::CommandKey;

pub(crate) mod handshake;
mod memory;
mod output;
pub(crate) mod receive;
pub(crate) mod transfer;

/// Phase of a connection's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for ICReq.
    Initialize,
    /// Waits for a Connect.
    Connect,
    /// The queue is connected.
    Connected {
        controller: ControllerKey,
        /// QID.
        queue: u16,
    },
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) portal: usize,
    /// Local address, if the caller has set it.
    pub(crate) local: Option<Box<str>>,
    pub(crate) peer: Box<str>,
    /// See [`Flow::group_of`].
    pub(crate) group: u64,
    pub(crate) phase: Phase,
    pub(crate) reader: PduReader,
    pub(crate) writer: PduWriter,
    /// The queue's entries; 0 until it is connected.
    pub(crate) queue_entries: u16,
    /// How many commands have been accepted, modulo the entries.
    pub(crate) sq_head: u16,
    /// SQ flow control is disabled: responses to reads may be left out.
    pub(crate) flow_control_off: bool,
    pub(crate) requests: Requests,
    /// Bytes handed out in Send effects and not yet reported as sent.
    pub(crate) unsent_bytes: usize,
    /// Bytes for the host that commands in flight will return.
    pub(crate) expected_out_bytes: usize,
    /// Bytes that R2Ts have solicited, until the device has completed the command.
    pub(crate) received_bytes: usize,
    /// Of these, bytes that have not been received.
    pub(crate) asked_bytes: usize,
    /// Bytes that requests hold besides those that they receive and send: see
    /// [`Request::scratch_bytes`].
    pub(crate) scratch_bytes: usize,
    /// Requests that wait for memory or for `received_bytes` to fall below its limit, in order.
    pub(crate) waiting: VecDeque<TransferTag>,
    /// Memory that is held for this connection.
    pub(crate) account: Account,
    /// In the target's list of connections that wait for memory.
    pub(crate) is_short_of_memory: bool,
    /// A command that waits for memory, and blocks all that follow it.
    pub(crate) parked: Option<Box<Pdu>>,
    /// How much the host reads, and sends of solicited data.
    pub(crate) progress: Progress,
    /// The handshake is complete.
    pub(crate) is_trusted: bool,
    /// Commands wait in the reader until the host has read.
    pub(crate) paused: bool,
    /// The caller was asked to stop reading from the socket.
    pub(crate) stopped: bool,
    /// In the target's list of connections with output.
    pub(crate) dirty: bool,
    /// Deadline of the handshake, while it is in progress.
    pub(crate) handshake: Option<Instant>,
    /// Its subsystem was removed: it accepts no more commands, and is closed after those at
    /// devices.
    pub(crate) is_draining: bool,
    /// Status with which the last Connect was refused.
    pub(crate) refused: Option<StatusCode>,
    pub(crate) auth: Option<Box<Auth>>,
}

/// In-band authentication of this queue.
#[derive(Debug)]
pub(crate) struct Auth {
    /// Absent while a step is being computed.
    pub(crate) machine: Option<ControllerAuth>,
    /// A step was computed.
    pub(crate) has_begun: bool,
    /// A step that the caller has not fetched yet.
    pub(crate) step: Option<AuthStep>,
    /// The queue may be used.
    pub(crate) passed: bool,
    /// The exchange failed: the host may fetch the reason, and should close the connection.
    pub(crate) failed: bool,
}

/// A command that has not completed.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) command_id: u16,
    pub(crate) work: Work,
    pub(crate) incoming: Incoming,
    /// The command at the device, while one is outstanding.
    pub(crate) device_command: Option<CommandKey>,
    /// Its part of [`Connection::received_bytes`].
    pub(crate) counted_in: usize,
    /// Its part of [`Connection::expected_out_bytes`].
    pub(crate) counted_out: usize,
    /// Bytes of in-capsule data, and of data that a compare reads.
    pub(crate) scratch_bytes: usize,
    pub(crate) held: Held,
}

/// Whether a request waits because its namespace is paused, and for what after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It does not.
    No,
    /// It does, and waits for memory after that.
    BeforeMemory,
    /// It does, with all its data, and is submitted to the device after that.
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
pub(crate) struct Incoming {
    /// Bytes that the command transfers; zero where none are expected.
    pub(crate) expected: u32,
    pub(crate) received: u32,
    /// An R2T has solicited them.
    pub(crate) asked: bool,
    pub(crate) digest_failed: bool,
    /// The data received, if it came in one PDU.
    pub(crate) whole: Bytes,
    pub(crate) parts: BytesMut,
}

/// TTAG of a request (NVMe/TCP 1.0, section 3.6.2.9): its place in [`Requests`]. Hosts return it with
/// their data, so any value may be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransferTag(u16);

/// Outstanding requests of a queue, by transfer tag. The tag has the 16 bits of the wire, without a
/// generation: a host that returns an old one is refused unless the new request expects its data.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Vec<Option<Request>>,
    free: Vec<TransferTag>,
    capacity: u16,
}

impl Connection {
    pub(crate) fn new(portal: usize, peer: &str, handshake: Instant) -> Connection {
        // Before authentication, only Connect and authentication messages are accepted.
        let reader_limits =
            ReaderLimits { capsule_data_bytes: ADMIN_CAPSULE_DATA_BYTES, data_bytes: ADMIN_CAPSULE_DATA_BYTES };
        Connection {
            portal,
            local: None,
            peer: peer.into(),
            group: Flow::group_of(peer),
            phase: Phase::Initialize,
            reader: PduReader::new(Side::Controller, reader_limits),
            writer: PduWriter::new(),
            queue_entries: 0,
            sq_head: 0,
            flow_control_off: false,
            requests: Requests::default(),
            unsent_bytes: 0,
            expected_out_bytes: 0,
            received_bytes: 0,
            asked_bytes: 0,
            scratch_bytes: 0,
            waiting: VecDeque::new(),
            account: Account::default(),
            is_short_of_memory: false,
            parked: None,
            progress: Progress::default(),
            is_trusted: false,
            paused: false,
            stopped: false,
            dirty: false,
            handshake: Some(handshake),
            is_draining: false,
            refused: None,
            auth: None,
        }
    }

    /// The queue is connected and authenticated: its commands may have data.
    pub(crate) fn trust(&mut self, limits: &Limits) {
        self.is_trusted = true;
        self.limit_reader(limits);
    }

    /// The reader buffers no more data than R2Ts have solicited.
    #[inline]
    pub(crate) fn limit_reader(&mut self, limits: &Limits) {
        if self.is_trusted {
            let asked = u32::try_from(self.asked_bytes).unwrap_or(u32::MAX);
            self.reader.set_limits(ReaderLimits {
                capsule_data_bytes: ADMIN_CAPSULE_DATA_BYTES.max(limits.in_capsule_bytes),
                data_bytes: asked.max(ADMIN_CAPSULE_DATA_BYTES).min(host_data_bytes_max(limits)),
            });
        }
    }

    /// Bytes of data that are held, or for which memory has been admitted.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.outgoing_bytes() + self.received_bytes + self.scratch_bytes
    }

    /// SQHD of the next completion.
    #[inline]
    pub(crate) fn sq_head(&self) -> u16 {
        if self.flow_control_off { 0xffff } else { self.sq_head }
    }

    /// One more command was accepted.
    #[inline]
    pub(crate) fn advance_head(&mut self) {
        self.sq_head += 1;
        if self.sq_head >= self.queue_entries {
            self.sq_head = 0;
        }
    }

    /// Bytes for the host: unsent, or expected from commands in flight.
    #[inline]
    pub(crate) fn outgoing_bytes(&self) -> usize {
        self.unsent_bytes + self.expected_out_bytes + self.writer.queued_bytes()
    }

    /// The reason for closing a connection whose handshake has timed out.
    pub(crate) fn handshake_end(&self) -> CloseReason {
        match (&self.auth, self.refused) {
            (Some(auth), _) if auth.failed => CloseReason::AuthenticationFailed,
            (_, Some(status)) => CloseReason::ConnectRefused(status),
            _ => CloseReason::HandshakeTimeout,
        }
    }

    /// Whether a step of its authentication is being computed, or waits to be.
    pub(crate) fn is_being_authenticated(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| auth.machine.is_none())
    }

    pub(crate) fn controller(&self) -> Option<ControllerKey> {
        match self.phase {
            Phase::Connected { controller, .. } => Some(controller),
            _ => None,
        }
    }

    pub(crate) fn queue(&self) -> Option<u16> {
        match self.phase {
            Phase::Connected { queue, .. } => Some(queue),
            _ => None,
        }
    }

    /// Whether commands other than those of authentication are accepted.
    pub(crate) fn may_command(&self) -> bool {
        self.auth.as_ref().is_none_or(|auth| auth.passed && !auth.failed)
    }
}

/// MAXH2CDATA: the largest transfer with its metadata fits one PDU, so that it is copied at most
/// once.
pub(crate) fn host_data_bytes_max(limits: &Limits) -> u32 {
    limits.transfer_bytes + limits.transfer_bytes / 8
}

impl Request {
    pub(crate) fn new(command_id: u16, work: Work) -> Request {
        Request {
            command_id,
            work,
            incoming: Incoming::default(),
            device_command: None,
            counted_in: 0,
            counted_out: 0,
            scratch_bytes: 0,
            held: Held::No,
        }
    }

    /// All bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.counted_in + self.counted_out + self.scratch_bytes
    }

    pub(crate) fn io(command_id: u16, request: IoRequest, namespace: NamespaceIndex) -> Request {
        let work = Work::Io { request, namespace, stage: Stage::Itself, compare: Bytes::new(), result: 0 };
        Request::new(command_id, work)
    }
}

impl Incoming {
    /// Appends data; the caller has checked its offset.
    pub(crate) fn add(&mut self, data: Bytes) {
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

    /// Keeps the data of a command that waits.
    pub(crate) fn keep(&mut self, data: Bytes) {
        self.whole = data;
    }

    /// Takes all data received.
    pub(crate) fn take(&mut self) -> Bytes {
        if self.parts.is_empty() { std::mem::take(&mut self.whole) } else { std::mem::take(&mut self.parts).freeze() }
    }
}

impl TransferTag {
    /// The tag that a host has sent, which may be of no request.
    #[inline]
    pub(crate) fn from_wire(tag: u16) -> TransferTag {
        TransferTag(tag)
    }

    #[inline]
    pub(crate) fn to_wire(self) -> u16 {
        self.0
    }
}

impl Requests {
    /// Sets how many commands the queue can hold. Slots are allocated when first needed.
    pub(crate) fn set_capacity(&mut self, entries: u16) {
        self.capacity = entries;
    }

    /// Adds a request, unless the host has more outstanding than its queue has entries.
    #[inline]
    pub(crate) fn insert(&mut self, request: Request) -> Option<TransferTag> {
        if let Some(tag) = self.free.pop() {
            self.slots[usize::from(tag.0)] = Some(request);
            return Some(tag);
        }
        if self.slots.len() >= usize::from(self.capacity) {
            return None;
        }
        self.slots.push(Some(request));
        Some(TransferTag((self.slots.len() - 1) as u16))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, tag: TransferTag) -> Option<&mut Request> {
        self.slots.get_mut(usize::from(tag.0))?.as_mut()
    }

    pub(crate) fn get(&self, tag: TransferTag) -> Option<&Request> {
        self.slots.get(usize::from(tag.0))?.as_ref()
    }

    #[inline]
    pub(crate) fn remove(&mut self, tag: TransferTag) -> Option<Request> {
        let request = self.slots.get_mut(usize::from(tag.0))?.take()?;
        self.free.push(tag);
        Some(request)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TransferTag, &Request)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, request)| Some((TransferTag(index as u16), request.as_ref()?)))
    }
}

/// The result of a command: its DW0 and DW1, or the status of a refusal.
pub(crate) type Reply = Result<u64, StatusCode>;
