//! Effects: actions that the target requests of its caller, and events for the log.

use std::fmt;

use bytes::Bytes;
use zonda_nvme::tcp::PduError;
use zonda_nvme::{Nqn, StatusCode};
use zonda_zoned::{Command, NamespaceId};

use crate::slots::SlotKey;
use crate::{DeviceKey, Flow};

/// A connection, from [`crate::Target::on_connect`] to its end. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// An action that the caller must carry out, in the given order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send these bytes after those sent before; report each byte that is written to the socket
    /// with [`crate::Target::on_sent`].
    Send {
        /// The connection.
        connection: ConnectionId,
        /// The bytes, in order.
        pieces: Vec<Bytes>,
    },
    /// Stop reading from the socket. Bytes that were read already may still be delivered.
    Pause {
        /// The connection.
        connection: ConnectionId,
    },
    /// Read from the socket again.
    Resume {
        /// The connection.
        connection: ConnectionId,
    },
    /// Send the remaining bytes, then close the socket. There are no further effects of this
    /// connection, and events of it are ignored.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        reason: CloseReason,
    },
    /// Submit this command to a device, now or later, after those of the same flow.
    Submit {
        /// The device.
        device: DeviceKey,
        /// The flow. Between flows there is no order: NVMe has none between queues (NVMe Base 2.0,
        /// section 3.4.1).
        flow: Flow,
        /// The command; its id is the target's, unique among all that are outstanding.
        command: Command,
    },
    /// A connection has been closed: complete the commands of its flow that have not been submitted
    /// to a device with any error. They must not be submitted any more, since they could take
    /// effect after the host's retries on another connection.
    Abandon {
        /// The flow of that connection.
        flow: Flow,
    },
    /// Save these bytes of the reservations of a device's namespace durably, in place of those
    /// saved before; empty: delete the saved bytes. Then report the result with
    /// [`crate::Target::on_reservations_saved`]. A device has one save in flight.
    SaveReservations {
        /// The device, one of [`crate::TargetConfig::saved_reservations`].
        device: DeviceKey,
        /// At most [`zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX`].
        bytes: Bytes,
    },
    /// A removed namespace ([`crate::Target::remove_namespace`]) has no command and no save at its
    /// device any more, and will have none. Other namespaces of the device, if there are any, are
    /// not affected.
    NamespaceRemoved {
        /// The device.
        device: DeviceKey,
        /// Identifier of the namespace on the device.
        device_namespace: NamespaceId,
    },
    /// Fetch a step with [`crate::Target::auth_step`], compute it off the event loop, and return
    /// the result with [`crate::Target::on_authenticated`].
    Authenticate {
        /// The connection.
        connection: ConnectionId,
    },
    /// For the log.
    Event(Event),
}

/// Why the target closes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The host violated the protocol, and was sent a C2HTermReq.
    Protocol(PduError),
    /// The host terminated the connection with an H2CTermReq of this fatal error status.
    HostTermination(u16),
    /// The host disconnected the queue.
    Disconnected,
    /// The Connect was refused, and the host has not closed the connection by itself.
    ConnectRefused(StatusCode),
    /// No queue was connected in time, or it did not authenticate in time.
    HandshakeTimeout,
    /// Evicted in favour of a newer connection, before its handshake was complete.
    Evicted,
    /// Authentication failed, and the host has not closed the connection by itself.
    AuthenticationFailed,
    /// The keep alive timer of the controller expired.
    KeepAliveExpired,
    /// The controller's admin queue was closed, or the controller was reset.
    ControllerRemoved,
    /// The host transferred too little, while others waited for the memory that the connection
    /// held.
    Stalled,
    /// The host may not connect to the subsystem any more.
    AccessRevoked,
    /// The subsystem was removed.
    SubsystemRemoved,
    /// The target is shutting down.
    Draining,
}

/// An event for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A host connected an admin queue, which created a controller.
    HostConnected {
        /// Its admin queue.
        connection: ConnectionId,
        /// The host.
        host: Nqn,
        /// The subsystem.
        subsystem: Nqn,
        /// CNTLID.
        controller_id: u16,
        /// Whether the host must still authenticate.
        authentication_pending: bool,
    },
    /// A Connect was refused.
    HostRefused {
        /// The connection.
        connection: ConnectionId,
        /// Address of the host.
        peer: String,
        /// The reason.
        status: StatusCode,
        /// The invalid field of the Connect, if the status is about one.
        field: Option<&'static str>,
    },
    /// A host authenticated a queue.
    Authenticated {
        /// The connection.
        connection: ConnectionId,
        /// Queue.
        queue: u16,
    },
    /// A host failed to authenticate.
    AuthenticationFailed {
        /// The connection.
        connection: ConnectionId,
        /// Address of the host.
        peer: String,
        /// The reason.
        failure: String,
    },
    /// A controller was removed.
    ControllerRemoved {
        /// The host.
        host: Nqn,
        /// The subsystem.
        subsystem: Nqn,
        /// CNTLID.
        controller_id: u16,
        /// The reason.
        reason: CloseReason,
    },
    /// A connection was terminated because of a protocol error.
    ProtocolError {
        /// The connection.
        connection: ConnectionId,
        /// Address of the host.
        peer: String,
        /// The error.
        error: PduError,
    },
}

impl SlotKey for ConnectionId {
    #[inline]
    fn from_bits(bits: u64) -> ConnectionId {
        ConnectionId(bits)
    }

    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
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
            CloseReason::HostTermination(status) => {
                write!(f, "the host terminated the connection with fatal error status {status:02x}h")
            }
            CloseReason::Disconnected => f.write_str("the host disconnected the queue"),
            CloseReason::ConnectRefused(status) => write!(f, "connect refused: {status}"),
            CloseReason::HandshakeTimeout => f.write_str("the handshake timed out"),
            CloseReason::Evicted => f.write_str("evicted by a newer connection: too many unauthenticated connections"),
            CloseReason::AuthenticationFailed => f.write_str("authentication failed"),
            CloseReason::KeepAliveExpired => f.write_str("the keep alive timer expired"),
            CloseReason::ControllerRemoved => f.write_str("the controller was reset or removed"),
            CloseReason::Stalled => {
                f.write_str("stalled: the host transferred too little while other connections waited for memory")
            }
            CloseReason::AccessRevoked => f.write_str("the host may not connect to the subsystem any more"),
            CloseReason::SubsystemRemoved => f.write_str("the subsystem was removed"),
            CloseReason::Draining => f.write_str("the server is shutting down"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::HostConnected { connection, host, subsystem, controller_id, authentication_pending } => {
                let pending = if *authentication_pending { ", authentication pending" } else { "" };
                write!(
                    f,
                    "connection {connection}: {host} connected to {subsystem}, controller {controller_id}{pending}"
                )
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
            Event::ControllerRemoved { host, subsystem, controller_id, reason } => {
                let reason = match reason {
                    CloseReason::Disconnected => "the host disconnected the admin queue".to_owned(),
                    _ => reason.to_string(),
                };
                write!(f, "controller {controller_id} of {host} at {subsystem} removed: {reason}")
            }
            Event::ProtocolError { connection, peer, error } => {
                write!(f, "connection {connection} from {peer}: {error}")
            }
        }
    }
}
