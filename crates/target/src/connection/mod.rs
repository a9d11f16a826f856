//! One connection: one queue of one controller, once it is connected.

use zonda_chap::ControllerAuth;
use zonda_nvme::StatusCode;
use zonda_nvme::tcp::{ADMIN_CAPSULE_DATA_BYTES, Pdu, PduReader, PduWriter, ReaderLimits, Side};
use zonda_zoned::Instant;

use crate::auth::AuthStep;
use crate::budget::{Account, Progress};
use crate::controller::ControllerKey;
use crate::effects::CloseReason;
use crate::fair::Flow;
use crate::limits::Limits;

pub(crate) mod handshake;
mod memory;
mod output;
pub(crate) mod receive;
mod requests;
pub(crate) mod transfer;

pub(crate) use requests::{Held, Request, Requests, Stage, TransferTag, Work};

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
            let asked = u32::try_from(self.requests.missing_bytes()).unwrap_or(u32::MAX);
            self.reader.set_limits(ReaderLimits {
                capsule_data_bytes: ADMIN_CAPSULE_DATA_BYTES.max(limits.in_capsule_bytes),
                data_bytes: asked.max(ADMIN_CAPSULE_DATA_BYTES).min(host_data_bytes_max(limits)),
            });
        }
    }

    /// Bytes of data that are held, or for which memory has been admitted.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.outgoing_bytes() + self.requests.held_bytes()
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
        self.unsent_bytes + self.requests.expected_out_bytes() + self.writer.queued_bytes()
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

    /// Whether it waits for memory of the budget: requests in the table do, or a command in the byte
    /// stream.
    pub(crate) fn has_waiting(&self) -> bool {
        self.requests.has_waiting() || self.parked.is_some()
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

/// The result of a command: its DW0 and DW1, or the status of a refusal.
pub(crate) type Reply = Result<u64, StatusCode>;
