//! What goes to the host: responses, data, the end; and the reserve when the host does not read.

use bytes::Bytes;
use zonda_nvme::tcp::PduError;
use zonda_nvme::{AdminOpcode, CompletionEntry, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::{Connection, Phase, Work};
use crate::controller::ErrorPlace;
use crate::effects::{CloseReason, ConnectionId, Effect, Event};
use crate::fair::Flow;
use crate::target::{Owner, Target};

impl Target {
    /// Ends a command that has no request in the table.
    pub(crate) fn respond(&mut self, id: ConnectionId, command_id: u16, status: StatusCode, result: u64) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        let head = connection.sq_head();
        connection.writer.response(&CompletionEntry::new(command_id, head, status, result));
        self.mark_dirty(id);
    }

    /// Ends a command that was refused.
    pub(crate) fn refuse(&mut self, id: ConnectionId, entry: &SubmissionEntry, status: StatusCode) {
        let io = self.connections.get(id.0).and_then(Connection::queue).is_some_and(|queue| queue > 0);
        let at = match entry.opcode == AdminOpcode::Fabrics.code() {
            true => ErrorPlace::default(),
            false => ErrorPlace { namespace: entry.namespace.get(), lba: if io { entry.starting_lba() } else { 0 } },
        };
        let command_id = entry.command_id.get();
        self.respond(id, command_id, status, 0);
        self.note_error(id, command_id, status, at);
    }

    /// Ends a command with data for the host, which is the command's whole data.
    pub(crate) fn respond_with_data(&mut self, id: ConnectionId, command_id: u16, data: &[Bytes], result: u64) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        // Without SQ flow control no head pointer is owed, and success needs no capsule (NVMe/TCP 1.0, section 3.3.2.1).
        let stands_for_response = connection.flow_control_off && result == 0;
        connection.writer.controller_data(command_id, 0, data, true, stands_for_response);
        if !stands_for_response {
            let head = connection.sq_head();
            connection.writer.response(&CompletionEntry::new(command_id, head, StatusCode::SUCCESS, result));
        }
        self.mark_dirty(id);
    }

    /// Ends a request: frees its slot and what it counts.
    pub(crate) fn end_request(&mut self, id: ConnectionId, slot: u16, status: StatusCode, result: u64) {
        let at = if status.is_success() { ErrorPlace::default() } else { self.place_of_request(id, slot) };
        if let Some(command_id) = self.release_request(id, slot) {
            self.respond(id, command_id, status, result);
            if !status.is_success() {
                self.note_error(id, command_id, status, at);
            }
            self.after_release(id);
        }
    }

    /// Ends a request with data for the host.
    pub(crate) fn end_request_with_data(&mut self, id: ConnectionId, slot: u16, data: &[Bytes]) {
        if let Some(command_id) = self.release_request(id, slot) {
            self.respond_with_data(id, command_id, data, 0);
            self.after_release(id);
        }
    }

    /// Frees a request's slot and what it counts; its command identifier.
    pub(crate) fn release_request(&mut self, id: ConnectionId, slot: u16) -> Option<u16> {
        let connection = self.connections.get_mut(id.0)?;
        let request = connection.requests.remove(slot)?;
        assert!(request.device_command.is_none(), "a request ends after its device commands");
        connection.received_bytes -= request.counted_in;
        connection.expected_out_bytes -= request.counted_out;
        connection.scratch_bytes -= request.scratch_bytes;
        Some(request.command_id)
    }

    /// What a request is about.
    fn place_of_request(&self, id: ConnectionId, slot: u16) -> ErrorPlace {
        let request = self.connections.get(id.0).and_then(|connection| connection.requests.get(slot));
        match request.map(|request| &request.work) {
            Some(Work::Io { request, namespace, .. }) => ErrorPlace {
                namespace: self.namespaces[*namespace as usize].id.0,
                lba: request.start().map_or(0, |lba| lba.0),
            },
            _ => ErrorPlace::default(),
        }
    }

    /// A request has ended: others may have waited for what it held.
    fn after_release(&mut self, id: ConnectionId) {
        self.count_memory(id);
        self.start_waiting(id);
        self.resume_if_drained(id);
    }

    /// The output of a connection is to be sent when the caller polls.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id.0)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push_back(id);
        }
    }

    /// Makes a Send of what a connection has to send.
    pub(crate) fn flush_output(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
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

    /// Whether a connection has as much to send as it may: then it takes no more commands, and pauses.
    pub(crate) fn pause_if_full(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(id.0) else { return true };
        if connection.paused {
            return true;
        }
        if connection.outgoing_bytes() < self.config.limits.outgoing_bytes {
            return false;
        }
        connection.paused = true;
        if !connection.stopped {
            connection.stopped = true;
            self.effects.push_back(Effect::Pause { connection: id });
        }
        true
    }

    /// Takes commands again once half of what may wait has gone.
    pub(crate) fn resume_if_drained(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        if connection.paused && connection.outgoing_bytes() <= self.config.limits.outgoing_bytes / 2 {
            connection.paused = false;
            self.stalled.push_back(id);
        }
    }

    /// Ends a connection for what its host sent.
    pub(crate) fn fail(&mut self, now: Instant, id: ConnectionId, error: PduError) {
        let Some(connection) = self.connections.get_mut(id.0) else { return };
        connection.writer.controller_termination(&error);
        let peer = connection.peer.to_string();
        self.statistics.protocol_errors += 1;
        self.effects.push_back(Effect::Event(Event::ProtocolError { connection: id, peer, error: error.clone() }));
        self.close(now, id, &CloseReason::Protocol(error));
    }

    /// Sends what there is to send, closes a connection, and forgets it.
    pub(crate) fn close(&mut self, now: Instant, id: ConnectionId, reason: &CloseReason) {
        if self.connections.get(id.0).is_none() {
            return;
        }
        self.flush_output(id);
        self.effects.push_back(Effect::Close { connection: id, reason: reason.clone() });
        self.forget(now, id, reason);
    }

    /// Forgets a connection that is closed: its commands' completions will be dropped; with an admin queue goes its
    /// controller.
    pub(crate) fn forget(&mut self, now: Instant, id: ConnectionId, reason: &CloseReason) {
        let Some(connection) = self.connections.remove(id.0) else { return };
        self.half_open.remove(id);
        let (mut orphaned_bytes, mut has_commands) = (0, false);
        for (_, request) in connection.requests.iter() {
            if let Some(command) = request.device_command {
                let command = self.commands.get_mut(command).expect("a request's device command is in the table");
                command.owner = Owner::Gone;
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
            self.auth_queue.remove_item(auth.flow(flow.group), &id);
        }
        self.budget.close(connection.account, orphaned_bytes);
        if let Phase::Connected { controller, queue } = connection.phase {
            self.queue_gone(now, controller, queue, reason);
        }
    }
}
