//! Output to the host: responses, data, termination; and backpressure when the host does not read.

use bytes::Bytes;
use zonda_nvme::tcp::PduError;
use zonda_nvme::{AdminOpcode, CompletionEntry, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::{Connection, Phase, TransferTag, Work};
use crate::controller::ErrorLocation;
use crate::effects::{CloseReason, ConnectionId, Effect, Event};
use crate::fair::Flow;
use crate::target::{Owner, Target};

impl Target {
    /// Completes a command that has no request in the table.
    pub(crate) fn respond(&mut self, id: ConnectionId, command_id: u16, status: StatusCode, result: u64) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let head = connection.sq_head();
        connection.writer.response(&CompletionEntry::new(command_id, head, status, result));
        self.mark_dirty(id);
    }

    /// Completes a command with an error before it was started.
    pub(crate) fn refuse(&mut self, id: ConnectionId, entry: &SubmissionEntry, status: StatusCode) {
        let io = self.connections.get(id).and_then(Connection::queue).is_some_and(|queue| queue > 0);
        let at = match entry.opcode == AdminOpcode::Fabrics.code() {
            true => ErrorLocation::default(),
            false => ErrorLocation { namespace: entry.namespace.get(), lba: if io { entry.starting_lba() } else { 0 } },
        };
        let command_id = entry.command_id.get();
        self.respond(id, command_id, status, 0);
        self.note_error(id, command_id, status, at);
    }

    /// Completes a command with data for the host, which is the command's whole data.
    pub(crate) fn respond_with_data(&mut self, id: ConnectionId, command_id: u16, data: &[Bytes], result: u64) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        // Without SQ flow control no head pointer is owed, and success needs no capsule (NVMe/TCP
        // 1.0, section 3.3.2.1).
        let stands_for_response = connection.flow_control_off && result == 0;
        connection.writer.controller_data(command_id, 0, data, true, stands_for_response);
        if !stands_for_response {
            let head = connection.sq_head();
            connection.writer.response(&CompletionEntry::new(command_id, head, StatusCode::SUCCESS, result));
        }
        self.mark_dirty(id);
    }

    /// Completes a request: frees its tag and its bytes.
    pub(crate) fn end_request(&mut self, id: ConnectionId, tag: TransferTag, status: StatusCode, result: u64) {
        let at = if status.is_success() { ErrorLocation::default() } else { self.place_of_request(id, tag) };
        if let Some(command_id) = self.release_request(id, tag) {
            self.respond(id, command_id, status, result);
            if !status.is_success() {
                self.note_error(id, command_id, status, at);
            }
            self.after_release(id);
        }
    }

    /// Completes a request with data for the host.
    pub(crate) fn end_request_with_data(&mut self, id: ConnectionId, tag: TransferTag, data: &[Bytes]) {
        if let Some(command_id) = self.release_request(id, tag) {
            self.respond_with_data(id, command_id, data, 0);
            self.after_release(id);
        }
    }

    /// Frees a request's tag and its bytes; returns its command identifier.
    pub(crate) fn release_request(&mut self, id: ConnectionId, tag: TransferTag) -> Option<u16> {
        let connection = self.connections.get_mut(id)?;
        Some(connection.requests.remove(tag)?.command_id)
    }

    /// The namespace and LBA of a request, for the error log.
    fn place_of_request(&self, id: ConnectionId, tag: TransferTag) -> ErrorLocation {
        let request = self.request(id, tag);
        match request.map(|request| &request.work) {
            Some(Work::Io { request, namespace, .. }) => ErrorLocation {
                namespace: self.subsystems.namespace(*namespace).id().0,
                lba: request.start().map_or(0, |lba| lba.0),
            },
            Some(Work::Removed(at)) => *at,
            _ => ErrorLocation::default(),
        }
    }

    /// A request has completed: others may have waited for the memory that it held.
    fn after_release(&mut self, id: ConnectionId) {
        self.count_memory(id);
        self.start_waiting(id);
        self.resume_if_drained(id);
    }

    /// Schedules the output of a connection for the next poll.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push_back(id);
        }
    }

    /// Makes a Send effect of a connection's pending output.
    pub(crate) fn flush_output(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.dirty = false;
        let bytes = connection.writer.queued_bytes();
        if bytes > 0 {
            connection.unsent_bytes += bytes;
            self.statistics.bytes_sent += bytes as u64;
            let pieces = connection.writer.take();
            let held_bytes = connection.held_bytes();
            self.budget.set(&mut connection.account, held_bytes);
            self.effects.push_back(Effect::Send { connection: id, pieces });
        }
    }

    /// Whether a connection's pending output has reached its limit: then it accepts no more
    /// commands, and pauses.
    pub(crate) fn pause_if_full(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return true };
        if connection.paused {
            return true;
        }
        if connection.outgoing_bytes() < self.limits.outgoing_bytes {
            return false;
        }
        connection.paused = true;
        if !connection.stopped {
            connection.stopped = true;
            self.effects.push_back(Effect::Pause { connection: id });
        }
        true
    }

    /// Accepts commands again once pending output has fallen to half of its limit.
    pub(crate) fn resume_if_drained(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.paused && connection.outgoing_bytes() <= self.limits.outgoing_bytes / 2 {
            connection.paused = false;
            self.stalled.push_back(id);
        }
    }

    /// Terminates a connection whose host violated the protocol.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnectionId, error: PduError) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.writer.controller_termination(&error);
        let peer = connection.peer.to_string();
        self.statistics.protocol_errors += 1;
        self.effects.push_back(Effect::Event(Event::ProtocolError { connection: id, peer, error: error.clone() }));
        self.close(now, id, &CloseReason::Protocol(error));
    }

    /// Sends the pending output, closes a connection, and removes it.
    pub(crate) fn close(&mut self, now: Instant, id: ConnectionId, reason: &CloseReason) {
        if self.connections.get(id).is_none() {
            return;
        }
        self.flush_output(id);
        self.effects.push_back(Effect::Close { connection: id, reason: reason.clone() });
        self.forget(now, id, reason);
    }

    /// Removes a closed connection: completions of its commands will be dropped; the controller of
    /// an admin queue is removed with it.
    pub(crate) fn forget(&mut self, now: Instant, id: ConnectionId, reason: &CloseReason) {
        let Some(connection) = self.connections.remove(id) else { return };
        self.half_open.remove(id);
        self.drop_held(id, &connection.requests);
        let (mut orphaned_bytes, mut has_commands) = (0, false);
        for (_, request) in connection.requests.iter() {
            if let Some(command) = request.device_command() {
                let command = self.commands.get_mut(command).expect("the device command of a request exists");
                command.owner = Owner::Orphaned;
                command.orphaned_bytes = request.held_bytes();
                orphaned_bytes += command.orphaned_bytes;
                has_commands = true;
            }
        }
        let flow = Flow { group: connection.group, queue: id.0 };
        if has_commands {
            self.effects.push_back(Effect::Abandon { flow });
        }
        if let Some(auth) = &connection.auth {
            self.auth_steps.forget(auth.flow(flow.group), id);
        }
        self.budget.close(connection.account, orphaned_bytes);
        if let Phase::Connected { controller, queue } = connection.phase {
            self.queue_closed(now, controller, queue, reason);
        }
    }
}
