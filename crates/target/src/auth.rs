//! In-band authentication of a queue: between the Fabrics commands and the machine that knows the protocol.

use bytes::Bytes;
use zonda_chap::{ControllerAuth, ControllerAuthConfig, Random, Secret};
use zonda_nvme::fabrics::AuthenticationCommand;
use zonda_nvme::{Nqn, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use crate::connection::Reply;
use crate::connection::receive::Answer;
use crate::connection::transfer::check_room;
use crate::effects::{ConnectionId, Effect, Event};
use crate::limits::AUTHENTICATION_BYTES_MAX;
use crate::target::Target;

/// The machine that authenticates one queue of a host.
pub(crate) fn machine(
    host: &Nqn,
    subsystem: &Nqn,
    secret: &Secret,
    controller_secret: Option<&Secret>,
    random: &mut Random,
) -> ControllerAuth {
    let mut config = ControllerAuthConfig::new(host.as_str(), subsystem.as_str(), secret.clone());
    config.controller_secret = controller_secret.cloned();
    ControllerAuth::new(config, random.fork())
}

impl Target {
    /// Authentication Send: a message of the host.
    pub(crate) fn authentication_send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        entry: &SubmissionEntry,
        data: &Bytes,
    ) -> Reply {
        let command = AuthenticationCommand::from(*entry);
        if !command.is_nvme_authentication() || command.length.get() as usize != data.len() {
            return Err(StatusCode::INVALID_FIELD);
        }
        let Some(connection) = self.connections.get_mut(id.0) else { return Ok(0) };
        let Some(queue) = connection.queue() else { return Err(StatusCode::COMMAND_SEQUENCE_ERROR) };
        let Some(auth) = connection.auth.as_mut() else { return Err(StatusCode::COMMAND_SEQUENCE_ERROR) };
        if auth.failed {
            return Err(StatusCode::COMMAND_SEQUENCE_ERROR);
        }
        match auth.machine.receive(data) {
            Ok(_) => {
                if auth.machine.is_authenticated() && !auth.passed {
                    auth.passed = true;
                    self.effects.push_back(Effect::Event(Event::Authenticated { connection: id, queue }));
                    self.finish_handshake(id);
                }
            }
            Err(failure) => {
                auth.failed = true;
                self.statistics.authentication_failures += 1;
                auth.passed = false;
                let peer = connection.peer.to_string();
                let failure = failure.to_string();
                self.effects.push_back(Effect::Event(Event::AuthenticationFailed { connection: id, peer, failure }));
                self.linger(now, id);
            }
        }
        Ok(0)
    }

    /// Authentication Receive: the next message for the host.
    pub(crate) fn authentication_receive(
        &mut self,
        id: ConnectionId,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        let command = AuthenticationCommand::from(*entry);
        let room = command.length.get();
        if !command.is_nvme_authentication() || room == 0 || room > AUTHENTICATION_BYTES_MAX {
            return Err(StatusCode::INVALID_FIELD);
        }
        check_room(entry, room, false)?;
        let connection = self.connections.get_mut(id.0).expect("a connection that sends a command is here");
        let auth = connection.auth.as_mut().ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        let mut message = auth.machine.message().ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        if message.len() > room as usize {
            return Err(StatusCode::INVALID_FIELD);
        }
        // The host gets as much as it made room for; what is behind the message is zeros.
        message.resize(room as usize, 0);
        self.respond_with_data(id, entry.command_id.get(), &[message.into()], 0);
        Ok(Answer::Later)
    }
}
