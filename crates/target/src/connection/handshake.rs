//! The start of a connection: ICReq, then Connect.

use bytes::Bytes;
use zonda_nvme::fabrics::{CONTROLLER_ID_DYNAMIC, ConnectCommand, ConnectData, ConnectResult, connect_offsets as at};
use zonda_nvme::tcp::{
    DATA_ALIGNMENT_MAX, DigestCheck, Digests, FatalStatus, InitializeRequest, InitializeResponse, PDU_FORMAT_VERSION,
    PduError,
};
use zonda_nvme::{AdminOpcode, FabricsType, HostId, Nqn, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::receive::Needed;
use super::{Phase, host_data_bytes_max};
use crate::controller::Association;
use crate::effects::{ConnectionId, Effect, Event};
use crate::limits::{ADMIN_QUEUE_ENTRIES_MIN, QUEUE_ENTRIES_MAX, REFUSAL_LINGER};
use crate::target::Target;

/// A Connect that is refused: the status, and the invalid field where the status is Connect Invalid
/// Parameters or Connect Invalid Host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) u64);

impl Refusal {
    pub(crate) fn data_field(offset: u16) -> Refusal {
        Refusal(StatusCode::CONNECT_INVALID_PARAMETERS, ConnectResult::InvalidDataField(offset).value())
    }

    pub(crate) fn command_field(offset: u16) -> Refusal {
        Refusal(StatusCode::CONNECT_INVALID_PARAMETERS, ConnectResult::InvalidCommandField(offset).value())
    }

    pub(crate) fn host() -> Refusal {
        Refusal(StatusCode::CONNECT_INVALID_HOST, ConnectResult::InvalidDataField(at::HOST_NQN).value())
    }
}

impl Refusal {
    /// The invalid field, by its name in the specification.
    fn field(self) -> Option<&'static str> {
        ConnectResult::of_refusal(self.1).field_name()
    }
}

impl From<StatusCode> for Refusal {
    fn from(status: StatusCode) -> Refusal {
        Refusal(status, 0)
    }
}

impl Target {
    /// ICReq: agrees on digests and alignment, and answers with ICResp.
    pub(crate) fn initialize(&mut self, now: Instant, id: ConnectionId, request: &InitializeRequest) {
        const FORMAT_VERSION: u32 = 8;
        const DATA_ALIGNMENT: u32 = 10;
        let unsupported = |offset| PduError::new(FatalStatus::UnsupportedParameter, offset, request.bytes());
        if request.format_version.get() != PDU_FORMAT_VERSION {
            return self.fail(now, id, unsupported(FORMAT_VERSION));
        }
        if request.data_alignment > DATA_ALIGNMENT_MAX {
            return self.fail(now, id, unsupported(DATA_ALIGNMENT));
        }
        let digests = Digests::from_code(request.digests).and(self.subsystems.config().digests);
        let response = InitializeResponse::new(0, digests, host_data_bytes_max(&self.limits));
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.writer.initialize_response(&response);
        connection.writer.set_options(digests, request.data_alignment);
        connection.reader.set_digests(digests);
        connection.phase = Phase::Connect;
        // The Connect may need an R2T for its data; until it completes, the queue holds no other
        // command.
        connection.requests.set_capacity(1);
        self.half_open.advance(id);
        self.mark_dirty(id);
    }

    /// The first command of a connection, which must be a Connect.
    pub(crate) fn first_command(
        &mut self,
        now: Instant,
        id: ConnectionId,
        entry: &SubmissionEntry,
        data: &Bytes,
        digest: DigestCheck,
    ) {
        if self.connections.get(id).is_some_and(|connection| connection.requests.len() > 0) {
            // A Connect is outstanding, and no command may follow it before it has completed.
            return self.sequence_error(now, id, &[]);
        }
        let is_connect =
            entry.opcode == AdminOpcode::Fabrics.code() && entry.namespace.get() as u8 == FabricsType::Connect.code();
        let refused = if !is_connect {
            StatusCode::COMMAND_SEQUENCE_ERROR
        } else if digest == DigestCheck::Bad {
            self.statistics.data_digest_errors += 1;
            StatusCode::TRANSIENT_TRANSPORT_ERROR
        } else {
            match self.with_host_data(id, entry, data, Needed::AtLeast(size_of::<ConnectData>() as u32), now) {
                Ok(_) => return,
                Err(status) => status,
            }
        };
        self.refuse_connect(now, id, entry.command_id.get(), Refusal(refused, 0));
    }

    /// A Connect with its data.
    pub(crate) fn connect(&mut self, now: Instant, id: ConnectionId, entry: &SubmissionEntry, data: &Bytes) {
        let command = ConnectCommand::from(*entry);
        let command_id = entry.command_id.get();
        match self.try_connect(now, id, &command, data) {
            Err(refusal) => self.refuse_connect(now, id, command_id, refusal),
            Ok(result) => {
                self.respond(id, command_id, StatusCode::SUCCESS, result.value());
                self.half_open.advance(id);
                self.finish_handshake(id);
            }
        }
    }

    fn refuse_connect(&mut self, now: Instant, id: ConnectionId, command_id: u16, refusal: Refusal) {
        self.statistics.connects_refused += 1;
        let Some(connection) = self.connections.get(id) else { return };
        let peer = connection.peer.to_string();
        let event = Event::HostRefused { connection: id, peer, status: refusal.0, field: refusal.field() };
        self.effects.push_back(Effect::Event(event));
        self.respond(id, command_id, refusal.0, refusal.1);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.refused = Some(refusal.0);
        }
        self.linger(now, id);
    }

    fn try_connect(
        &mut self,
        now: Instant,
        id: ConnectionId,
        command: &ConnectCommand,
        data: &Bytes,
    ) -> Result<ConnectResult, Refusal> {
        let data = ConnectData::read(data).ok_or(StatusCode::DATA_SGL_LENGTH_INVALID)?;
        if command.record_format.get() != 0 {
            return Err(Refusal(StatusCode::CONNECT_INCOMPATIBLE_FORMAT, 0));
        }
        let queue = command.queue_id.get();
        let entries = u32::from(command.queue_size.get()) + 1;
        // A queue of one entry can hold no command (NVMe Base 2.0, section 3.3.3.1). An admin queue
        // gets the size that the host requests up to the limit, as every controller must support 32
        // entries.
        let entries_max = match queue {
            0 => u32::from(QUEUE_ENTRIES_MAX.max(ADMIN_QUEUE_ENTRIES_MIN)),
            _ => u32::from(self.limits.queue_entries),
        };
        if entries < 2 || entries > entries_max {
            return Err(Refusal::command_field(at::QUEUE_SIZE));
        }
        let host = Nqn::from_field(&data.host_nqn).map_err(|_| Refusal::data_field(at::HOST_NQN))?;
        let subsystem = Nqn::from_field(&data.subsystem_nqn).map_err(|_| Refusal::data_field(at::SUBSYSTEM_NQN))?;
        let host_id = HostId(data.host_id);
        if host_id.is_zero() {
            return Err(Refusal::data_field(at::HOST_ID));
        }
        let association = Association { host, host_id, subsystem };
        let (controller, requires) = if queue == 0 {
            if data.controller_id.get() != CONTROLLER_ID_DYNAMIC {
                return Err(Refusal::data_field(at::CONTROLLER_ID));
            }
            self.create_controller(now, id, association, command.keep_alive_timeout_ms.get())?
        } else {
            self.join_controller(now, id, &association, data.controller_id.get(), queue)?
        };
        let flow_control_off = command.attributes & ConnectCommand::DISABLE_FLOW_CONTROL != 0;
        let connection = self.connections.get_mut(id).expect("a connection that sends a command exists");
        connection.phase = Phase::Connected { controller, queue };
        connection.refused = None;
        connection.queue_entries = entries as u16;
        connection.flow_control_off = flow_control_off;
        // The Connect itself was the queue's first command.
        connection.sq_head = 1 % connection.queue_entries;
        connection.requests.set_capacity(connection.queue_entries);
        connection.auth = requires;
        let authentication_required = connection.auth.is_some();
        let controller = self.controllers.get(controller).expect("the controller was just found");
        Ok(ConnectResult::Connected { controller_id: controller.id, authentication_required })
    }

    /// Gives a refused host some time to close the connection by itself.
    pub(crate) fn linger(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let mut deadline = now + REFUSAL_LINGER;
        match connection.handshake {
            Some(old) => {
                deadline = deadline.min(old);
                self.half_open.set_deadline(id, deadline);
            }
            None if self.half_open.len() >= self.limits.half_open => {
                let reason = connection.handshake_end();
                return self.close(now, id, &reason);
            }
            None => self.half_open.insert(id, connection.group, deadline),
        }
        connection.handshake = Some(deadline);
    }

    /// Ends the handshake: the queue is connected and authenticated.
    pub(crate) fn finish_handshake(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.queue().is_some() && connection.may_command() && connection.handshake.take().is_some() {
            self.half_open.remove(id);
            connection.trust(&self.limits);
        }
    }
}
