//! Input from the host: receives PDUs, and dispatches the command of each capsule.

use bytes::Bytes;
use zonda_nvme::tcp::{DigestCheck, FatalStatus, Pdu, PduError};
use zonda_nvme::{AdminOpcode, FabricsType, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::Phase;
use crate::controller::ControllerKey;
use crate::effects::{CloseReason, ConnectionId};
use crate::target::Target;

impl Target {
    /// Processes PDUs from a connection's reader until it has no more, the host has to read first,
    /// or memory has to be released.
    pub(crate) fn pump(&mut self, now: Instant, id: ConnectionId) {
        while !self.draining && !self.pause_if_full(id) {
            let Some(connection) = self.connections.get_mut(id) else { return };
            if connection.is_draining {
                return;
            }
            let next = match connection.parked.take() {
                Some(pdu) => Ok(Some(*pdu)),
                None => connection.reader.next(),
            };
            match next {
                Ok(Some(pdu)) => {
                    if let Some(pdu) = self.admit_pdu(id, pdu) {
                        self.pdu(now, id, pdu);
                        self.count_memory(id);
                    } else if self.connections.get(id).is_some_and(|connection| connection.parked.is_some()) {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return self.fail(now, id, error),
            }
        }
    }

    fn pdu(&mut self, now: Instant, id: ConnectionId, pdu: Pdu) {
        match pdu {
            Pdu::Command { entry, data, data_digest } => self.command(now, id, &entry, &data, data_digest),
            Pdu::HostData { header, data, data_digest } => self.host_data(now, id, &header, data, data_digest),
            Pdu::InitializeRequest(request) => self.initialize(now, id, &request),
            Pdu::HostTermination(termination) => {
                self.close(now, id, &CloseReason::HostTermination(termination.status));
            }
            Pdu::InitializeResponse(_)
            | Pdu::Response(_)
            | Pdu::ControllerData { .. }
            | Pdu::ReadyToTransfer(_)
            | Pdu::ControllerTermination(_) => unreachable!("the reader refuses what only a controller sends"),
        }
    }

    /// A command capsule.
    fn command(&mut self, now: Instant, id: ConnectionId, entry: &SubmissionEntry, data: &Bytes, digest: DigestCheck) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let command_id = entry.command_id.get();
        let (controller, queue) = match connection.phase {
            Phase::Connected { controller, queue } => (controller, queue),
            Phase::Connect => return self.first_command(now, id, entry, data, digest),
            Phase::Initialize => unreachable!("the reader accepts no command before the exchange of ICReq and ICResp"),
        };
        connection.advance_head();
        self.statistics.commands += 1;
        if digest == DigestCheck::Bad {
            self.statistics.data_digest_errors += 1;
            return self.refuse(id, entry, StatusCode::TRANSIENT_TRANSPORT_ERROR);
        }
        let connection = self.connections.get(id).expect("the connection was just found");
        let is_fabrics = entry.opcode == AdminOpcode::Fabrics.code();
        if !is_fabrics && connection.may_command() && queue > 0 {
            return self.io_command(now, id, controller, entry, data);
        }
        let reply = if is_fabrics {
            self.fabrics(now, id, controller, queue, entry, data)
        } else if connection.may_command() {
            self.admin(now, id, controller, entry, data)
        } else {
            Err(StatusCode::AUTHENTICATION_REQUIRED)
        };
        match reply {
            Ok(Answer::Later) => {}
            Ok(Answer::Now(result)) => self.respond(id, command_id, StatusCode::SUCCESS, result),
            Err(status) => self.refuse(id, entry, status),
        }
    }

    /// A Fabrics command on a queue that is connected.
    fn fabrics(
        &mut self,
        now: Instant,
        id: ConnectionId,
        controller: ControllerKey,
        queue: u16,
        entry: &SubmissionEntry,
        data: &Bytes,
    ) -> Result<Answer, StatusCode> {
        let kind = FabricsType::try_from(entry.namespace.get() as u8).map_err(|_| StatusCode::INVALID_OPCODE)?;
        let authentication = matches!(kind, FabricsType::AuthenticationSend | FabricsType::AuthenticationReceive);
        let may_command = self.connections.get(id).is_some_and(super::Connection::may_command);
        if !authentication && !may_command {
            return Err(StatusCode::AUTHENTICATION_REQUIRED);
        }
        match kind {
            FabricsType::Connect => Err(StatusCode::COMMAND_SEQUENCE_ERROR),
            FabricsType::PropertyGet | FabricsType::PropertySet if queue > 0 => Err(StatusCode::INVALID_QUEUE_TYPE),
            FabricsType::PropertyGet => self.property_get(controller, entry).map(Answer::Now),
            FabricsType::PropertySet => self.property_set(now, controller, entry).map(Answer::Now),
            // Disconnect deletes an I/O queue; the admin queue is deleted with its connection (NVMe
            // Base 2.0, section 6.4).
            FabricsType::Disconnect if queue == 0 => Err(StatusCode::INVALID_QUEUE_TYPE),
            FabricsType::Disconnect if entry.cdw10.get() & 0xffff != 0 => Err(StatusCode::CONNECT_INCOMPATIBLE_FORMAT),
            FabricsType::Disconnect => {
                self.respond(id, entry.command_id.get(), StatusCode::SUCCESS, 0);
                self.close(now, id, &CloseReason::Disconnected);
                Ok(Answer::Later)
            }
            FabricsType::AuthenticationSend => self.with_host_data(id, entry, data, Needed::Fabrics, now),
            FabricsType::AuthenticationReceive => self.authentication_receive(id, entry),
        }
    }

    /// All data of an admin or Fabrics command has been received.
    pub(crate) fn command_with_data(&mut self, now: Instant, id: ConnectionId, entry: &SubmissionEntry, data: &Bytes) {
        let command_id = entry.command_id.get();
        let Some(connection) = self.connections.get(id) else { return };
        let Some(controller) = connection.controller() else {
            return self.connect(now, id, entry, data);
        };
        let is_io = connection.queue().is_some_and(|queue| queue > 0);
        let reply = if entry.opcode == AdminOpcode::Fabrics.code() {
            self.authentication_send(id, entry, data)
        } else if is_io {
            self.reserve(id, entry, data)
        } else {
            self.set_features(now, controller, entry, data).map(Answer::Now)
        };
        match reply {
            Ok(Answer::Later) => {}
            Ok(Answer::Now(result)) => self.respond(id, command_id, StatusCode::SUCCESS, result),
            Err(status) => self.refuse(id, entry, status),
        }
    }

    /// Terminates a connection whose host sent a PDU that is not allowed in this phase.
    pub(crate) fn sequence_error(&mut self, now: Instant, id: ConnectionId, header: &[u8]) {
        self.fail(now, id, PduError::new(FatalStatus::SequenceError, 0, header));
    }
}

/// When a command completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Now, with this result.
    Now(u64),
    /// It has completed already, or will later.
    Later,
}

/// How much data a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// Exactly so many bytes.
    Exactly(u32),
    /// At least so many; more is accepted and ignored.
    AtLeast(u32),
    /// As many as the command specifies, up to the limit of Fabrics commands.
    Fabrics,
}
