//! In-band authentication of a queue: the Fabrics commands that drive the state machine of
//! DH-HMAC-CHAP.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_chap::{ControllerAuth, ControllerAuthConfig, Policy, Random, Secret};
use zonda_nvme::fabrics::AuthenticationCommand;
use zonda_nvme::{Nqn, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use crate::connection::Auth;
use crate::connection::receive::Answer;
use crate::connection::transfer::check_host_buffer;
use crate::effects::{ConnectionId, Effect, Event};
use crate::fair::{FairQueue, Flow};
use crate::limits::AUTHENTICATION_BYTES_MAX;
use crate::target::Target;

/// Cost of a step in the fair queue: its group, which decides on the CPU time, is not known before
/// the step is computed.
const STEP_COST: u64 = 1;

/// The state machine that authenticates one queue of a host.
pub(crate) fn machine(
    host: &Nqn,
    subsystem: &Nqn,
    secret: &Secret,
    controller_secret: Option<&Secret>,
    policy: &Policy,
    random: &mut Random,
) -> ControllerAuth {
    let mut config = ControllerAuthConfig::new(host.as_str(), subsystem.as_str(), secret.clone());
    config.controller_secret = controller_secret.cloned();
    config.policy = policy.clone();
    ControllerAuth::new(config, random.fork())
}

/// A step of an authentication: processes one message of the host. It may include a Diffie-Hellman
/// exchange, which takes milliseconds, so it is computed on a thread that serves no other commands.
#[derive(Debug)]
pub struct AuthStep {
    connection: ConnectionId,
    /// Command identifier of the Authentication Send.
    command_id: u16,
    machine: ControllerAuth,
    message: Bytes,
}

/// A step that was computed.
#[derive(Debug)]
pub struct CompletedAuthStep {
    connection: ConnectionId,
    command_id: u16,
    machine: ControllerAuth,
    failure: Option<String>,
}

impl AuthStep {
    /// Computes the step, on any thread.
    #[must_use]
    pub fn run(mut self) -> CompletedAuthStep {
        let failure = self.machine.receive(&self.message).err().map(|failure| failure.to_string());
        CompletedAuthStep { connection: self.connection, command_id: self.command_id, machine: self.machine, failure }
    }
}

/// Steps of all connections: those that wait to be computed, and those that are being computed.
#[derive(Debug, Default)]
pub(crate) struct AuthSteps {
    /// Connections whose next step waits: for each address, those that begin and those in progress
    /// alternate.
    waiting: FairQueue<ConnectionId>,
    /// Connections whose step is being computed, or about to be, and the groups of their addresses.
    /// Some may be closed already.
    out: BTreeMap<ConnectionId, u64>,
}

impl AuthSteps {
    /// The step of a connection waits.
    fn push(&mut self, flow: Flow, connection: ConnectionId) {
        self.waiting.push(flow, STEP_COST, connection);
    }

    /// The next connection whose step can be computed, addresses in turn, up to the limit of
    /// concurrent steps. One address never takes the last slot.
    fn start_next(&mut self, limit: usize, group_of: impl Fn(ConnectionId) -> u64) -> Option<ConnectionId> {
        if self.out.len() >= limit {
            return None;
        }
        let out = &self.out;
        let may_have_more = |group| out.values().filter(|&&other| other == group).count() < (limit - 1).max(1);
        let (_, connection) = self.waiting.pop_of(may_have_more)?;
        let other = self.out.insert(connection, group_of(connection));
        assert!(other.is_none(), "the state machine of a queue is with one step at a time");
        Some(connection)
    }

    /// The step of a connection was computed, or is not needed any more.
    fn end(&mut self, connection: ConnectionId) {
        self.out.remove(&connection);
    }

    /// A connection was closed: its step does not wait any more.
    pub(crate) fn forget(&mut self, flow: Flow, connection: ConnectionId) {
        self.waiting.remove_item(flow, &connection);
    }

    /// Steps that wait, and steps that are being computed.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.waiting.len(), self.out.len())
    }

    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check_invariants(&self, limit: usize) {
        assert!(self.out.len() <= limit, "steps that are computed are within their limit");
        assert!(
            self.waiting.is_empty() || self.out.len() + 1 >= limit.max(2),
            "a step waits only while others are computed"
        );
    }
}

impl Auth {
    /// The flow in which the next step of this authentication waits. Each address has two: one for
    /// authentications that begin and one for those in progress. They are served alternately, so
    /// that a host in mid-exchange does not wait for every authentication that began meanwhile.
    pub(crate) fn flow(&self, group: u64) -> Flow {
        Flow { group, queue: u64::from(self.has_begun) }
    }
}

impl Target {
    /// Authentication Send: a message of the host. Completes once the step is computed; until then
    /// the queue accepts no other.
    pub(crate) fn authentication_send(
        &mut self,
        id: ConnectionId,
        entry: &SubmissionEntry,
        data: &Bytes,
    ) -> Result<Answer, StatusCode> {
        let command = AuthenticationCommand::from(*entry);
        if !command.is_nvme_authentication() || command.length.get() as usize != data.len() {
            return Err(StatusCode::INVALID_FIELD);
        }
        let connection = self.connections.get_mut(id).ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        let auth = connection.auth.as_mut().ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        if auth.failed {
            return Err(StatusCode::COMMAND_SEQUENCE_ERROR);
        }
        let machine = auth.machine.take().ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        let command_id = entry.command_id.get();
        auth.step = Some(AuthStep { connection: id, command_id, machine, message: data.clone() });
        let flow = auth.flow(connection.group);
        self.half_open.advance(id);
        self.half_open.pin(id);
        self.auth_steps.push(flow, id);
        self.start_auth_steps();
        Ok(Answer::Later)
    }

    /// Starts the steps that can be computed now.
    fn start_auth_steps(&mut self) {
        let connections = &self.connections;
        let group_of = |id| connections.get(id).expect("a closed connection has no step that waits").group;
        while let Some(connection) = self.auth_steps.start_next(self.limits.auth_steps, group_of) {
            self.effects.push_back(Effect::Authenticate { connection });
        }
    }

    /// The step that [`Effect::Authenticate`] announced; `None` if its connection has been closed.
    /// Pass the result of [`AuthStep::run`] to [`Target::on_authenticated`].
    pub fn auth_step(&mut self, connection: ConnectionId) -> Option<AuthStep> {
        let auth = self.connections.get_mut(connection).and_then(|connection| connection.auth.as_mut());
        let step = auth.and_then(|auth| auth.step.take());
        if step.is_none() {
            self.auth_steps.end(connection);
            self.start_auth_steps();
        }
        step
    }

    /// A step was computed.
    pub fn on_authenticated(&mut self, now: Instant, ended: CompletedAuthStep) {
        self.auth_steps.end(ended.connection);
        self.start_auth_steps();
        let CompletedAuthStep { connection: id, command_id, machine, failure } = ended;
        let Some(connection) = self.connections.get_mut(id) else { return };
        let queue = connection.queue().expect("a queue that authenticates is connected");
        let auth = connection.auth.as_mut().expect("a queue that authenticates has its state");
        let has_passed = machine.is_authenticated() && !auth.passed && failure.is_none();
        (auth.machine, auth.has_begun) = (Some(machine), true);
        auth.passed |= has_passed;
        if let Some(failure) = failure {
            (auth.failed, auth.passed) = (true, false);
            self.statistics.authentication_failures += 1;
            let peer = connection.peer.to_string();
            self.effects.push_back(Effect::Event(Event::AuthenticationFailed { connection: id, peer, failure }));
        } else if has_passed {
            self.effects.push_back(Effect::Event(Event::Authenticated { connection: id, queue }));
            self.finish_handshake(id);
        }
        self.half_open.advance(id);
        self.half_open.unpin(id);
        self.respond(id, command_id, StatusCode::SUCCESS, 0);
        if self.connections.get(id).and_then(|it| it.auth.as_ref()).is_some_and(|auth| auth.failed) {
            self.linger(now, id);
        }
    }

    /// Authentication Receive: the next message for the host.
    pub(crate) fn authentication_receive(
        &mut self,
        id: ConnectionId,
        entry: &SubmissionEntry,
    ) -> Result<Answer, StatusCode> {
        let command = AuthenticationCommand::from(*entry);
        let buffer_bytes = command.length.get();
        if !command.is_nvme_authentication() || buffer_bytes == 0 || buffer_bytes > AUTHENTICATION_BYTES_MAX {
            return Err(StatusCode::INVALID_FIELD);
        }
        check_host_buffer(entry, buffer_bytes, false)?;
        let connection = self.connections.get_mut(id).expect("a connection that sends a command exists");
        let auth = connection.auth.as_mut().ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        let machine = auth.machine.as_mut().ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        let mut message = machine.message().ok_or(StatusCode::COMMAND_SEQUENCE_ERROR)?;
        if message.len() > buffer_bytes as usize {
            return Err(StatusCode::INVALID_FIELD);
        }
        // The response fills the host's buffer: zeros follow the message.
        message.resize(buffer_bytes as usize, 0);
        self.half_open.advance(id);
        self.respond_with_data(id, entry.command_id.get(), &[message.into()], 0);
        Ok(Answer::Later)
    }
}
