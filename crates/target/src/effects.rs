//! What the target wants done, and what it has to tell.

use std::fmt;

use bytes::Bytes;
use zonda_nvme::tcp::PduError;
use zonda_nvme::{Nqn, StatusCode};
use zonda_zoned::Command;

use crate::{DeviceKey, Flow};

/// A connection, from [`crate::Target::connected`] to its end. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Something the caller has to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send these bytes behind those sent before; each byte that leaves for the socket is told with
    /// [`crate::Target::sent`].
    Send {
        /// Where.
        connection: ConnectionId,
        /// What, in order.
        pieces: Vec<Bytes>,
    },
    /// Stop reading from the socket. What has been read already may still be handed over.
    Pause {
        /// Whose.
        connection: ConnectionId,
    },
    /// Read from the socket again.
    Resume {
        /// Whose.
        connection: ConnectionId,
    },
    /// Send what is still to be sent, then close the socket. Nothing more comes of this connection, and nothing that is
    /// told of it has an effect.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// Give this command to a device, now or later, and behind those of the same flow.
    Submit {
        /// Which device.
        device: DeviceKey,
        /// For whom. Between flows there is no order: NVMe has none between queues (NVMe Base 2.0, section 3.4.1).
        flow: Flow,
        /// The command; its id is the target's, unique among all that are outstanding.
        command: Command,
    },
    /// A connection is gone: complete commands of its flow that no device has been given, with any error. They must not be given to
    /// one from now on, since they could follow commands that the host sends again on another connection.
    Abandon {
        /// Of that connection.
        flow: Flow,
    },
    /// Keep these bytes of the reservations of a device's namespace in place of those kept before, so that they survive a loss of
    /// power; none: keep nothing. Then tell with [`crate::Target::reservations_kept`]. For a device there is one at a time.
    KeepReservations {
        /// Which device: one of [`crate::TargetConfig::kept_reservations`].
        device: DeviceKey,
        /// At most [`zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX`].
        bytes: Bytes,
    },
    /// Take the step with [`crate::Target::auth_step`], compute it where nobody waits for it, and bring back what came of it.
    Authenticate {
        /// Whose.
        connection: ConnectionId,
    },
    /// For the log.
    Event(Event),
}

/// Why the target closes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The host's bytes make no sense; it has been told with a C2HTermReq.
    Protocol(PduError),
    /// The host ended the connection with an H2CTermReq of this fatal error status.
    HostTermination(u16),
    /// The host disconnected the queue.
    Disconnected,
    /// The Connect was refused, and the host has not closed the connection by itself.
    ConnectRefused(StatusCode),
    /// No queue was connected in time, or it did not authenticate in time.
    HandshakeTimeout,
    /// Made room for a newer connection before it had connected a queue.
    Crowded,
    /// The host did not prove to be who it says, and has not closed the connection by itself.
    AuthenticationFailed,
    /// The keep alive timer of the controller expired.
    KeepAliveExpired,
    /// The controller's admin queue is gone, or the controller was reset.
    ControllerGone,
    /// Its host read or sent too little, while others waited for the memory that it held.
    Stalled,
    /// The target is shutting down.
    Draining,
}

/// What an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A host made a controller.
    HostConnected {
        /// Its admin queue.
        connection: ConnectionId,
        /// The host.
        host: Nqn,
        /// The subsystem.
        subsystem: Nqn,
        /// CNTLID.
        controller_id: u16,
    },
    /// A Connect was refused.
    HostRefused {
        /// Which connection.
        connection: ConnectionId,
        /// Address of the host.
        peer: String,
        /// Why.
        status: StatusCode,
        /// Which field of the Connect, where it is one of them.
        field: Option<&'static str>,
    },
    /// A host proved to be who it says.
    Authenticated {
        /// Which connection.
        connection: ConnectionId,
        /// Queue.
        queue: u16,
    },
    /// A host did not.
    AuthenticationFailed {
        /// Which connection.
        connection: ConnectionId,
        /// Address of the host.
        peer: String,
        /// What went wrong.
        failure: String,
    },
    /// A controller was torn down.
    ControllerGone {
        /// The host.
        host: Nqn,
        /// The subsystem.
        subsystem: Nqn,
        /// CNTLID.
        controller_id: u16,
        /// Why.
        reason: CloseReason,
    },
    /// A connection ended for breaking the protocol.
    ProtocolError {
        /// Which connection.
        connection: ConnectionId,
        /// Address of the host.
        peer: String,
        /// What was wrong.
        error: PduError,
    },
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 as u32, self.0 >> 32)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Protocol(error) => write!(f, "{error}"),
            CloseReason::HostTermination(status) => write!(f, "the host ended the connection, status {status:02x}h"),
            CloseReason::Disconnected => f.write_str("the host disconnected the queue"),
            CloseReason::ConnectRefused(status) => write!(f, "connect refused: {status}"),
            CloseReason::HandshakeTimeout => f.write_str("no queue was connected in time"),
            CloseReason::Crowded => f.write_str("too many connections without a queue"),
            CloseReason::AuthenticationFailed => f.write_str("authentication failed"),
            CloseReason::KeepAliveExpired => f.write_str("the keep alive timer expired"),
            CloseReason::ControllerGone => f.write_str("the controller is gone"),
            CloseReason::Stalled => {
                f.write_str("the host read and sent too little, while others waited for the memory it held")
            }
            CloseReason::Draining => f.write_str("the server is shutting down"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::HostConnected { connection, host, subsystem, controller_id } => {
                write!(f, "connection {connection}: {host} connected to {subsystem}, controller {controller_id}")
            }
            Event::HostRefused { connection, peer, status, field } => {
                write!(f, "connection {connection} from {peer}: connect refused: {status}")?;
                field.map_or(Ok(()), |field| write!(f, ", in {field}"))
            }
            Event::Authenticated { connection, queue } => {
                write!(f, "connection {connection}: queue {queue} authenticated")
            }
            Event::AuthenticationFailed { connection, peer, failure } => {
                write!(f, "connection {connection} from {peer}: authentication failed: {failure}")
            }
            Event::ControllerGone { host, subsystem, controller_id, reason } => {
                write!(f, "controller {controller_id} of {host} at {subsystem} is gone: {reason}")
            }
            Event::ProtocolError { connection, peer, error } => {
                write!(f, "connection {connection} from {peer}: {error}")
            }
        }
    }
}
