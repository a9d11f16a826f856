//! Connects one queue: TCP connection, ICReq, Connect, authentication.

use bytes::Bytes;
use zonda_chap::{HostAuth, HostAuthConfig, Random, Step as AuthStep};
use zonda_nvme::fabrics::{AuthenticationCommand, ConnectCommand, ConnectData, ConnectResult, connect_offsets};
use zonda_nvme::{FabricsType, HostId, Nqn};
use zonda_zoned::Instant;

use super::{Progress, send, succeeded};
use crate::InitiatorConfig;
use crate::error::Reason;
use crate::limits::AUTHENTICATION_RECEIVE_BYTES;
use crate::queue::{CommandData, Ended, HostData, Queue, QueueId};
use crate::state::Step;

/// The parameters of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeOptions {
    pub(crate) queue: QueueId,
    /// Entries of the submission queue: one more than outstanding commands.
    pub(crate) entries: u16,
    /// The controller an I/O queue belongs to, or [`zonda_nvme::fabrics::CONTROLLER_ID_DYNAMIC`].
    pub(crate) controller_id: u16,
    /// KATO, of an admin queue.
    pub(crate) keep_alive_timeout_ms: u32,
    /// Identifies authentications of one controller.
    pub(crate) transaction: u16,
}

/// The procedure.
#[derive(Debug)]
pub(crate) struct Handshake {
    options: HandshakeOptions,
    stage: Stage,
    /// CNTLID, once connected.
    pub(crate) controller_id: u16,
}

#[derive(Debug)]
enum Stage {
    OpenConnection,
    Negotiate,
    Connect,
    AuthSend(Box<HostAuth>),
    AuthReceive(Box<HostAuth>),
    /// Complete, or failed.
    End,
}

impl Handshake {
    pub(crate) fn new(options: HandshakeOptions) -> Handshake {
        Handshake { options, stage: Stage::OpenConnection, controller_id: options.controller_id }
    }

    pub(crate) fn step(&self) -> Step {
        let queue = self.options.queue;
        match self.stage {
            Stage::OpenConnection => Step::OpenConnection(queue),
            Stage::Negotiate => Step::Negotiate(queue),
            Stage::Connect => Step::ConnectQueue(queue),
            Stage::AuthSend(_) | Stage::AuthReceive(_) | Stage::End => Step::Authenticate(queue),
        }
    }

    /// The TCP connection is established.
    pub(crate) fn on_connect(&mut self, queue: &mut Queue, capsule_data_bytes: u32) {
        queue.on_connect(capsule_data_bytes);
        self.stage = Stage::Negotiate;
    }

    /// ICResp was received.
    pub(crate) fn negotiated(&mut self, now: Instant, queue: &mut Queue, config: &InitiatorConfig, host_id: HostId) {
        let HandshakeOptions { entries, controller_id, keep_alive_timeout_ms, .. } = self.options;
        let attributes = if self.options.queue == QueueId::ADMIN { 0 } else { ConnectCommand::DISABLE_FLOW_CONTROL };
        let command = ConnectCommand::new(self.options.queue.0, entries, attributes, keep_alive_timeout_ms);
        let data = connect_data(host_id, controller_id, &config.subsystem_nqn, &config.host_nqn);
        send(queue, now, command.into(), CommandData::FromHost(HostData::Bytes(data)));
        self.stage = Stage::Connect;
    }

    /// A command of the handshake has completed.
    pub(crate) fn ended(
        &mut self,
        now: Instant,
        queue: &mut Queue,
        config: &InitiatorConfig,
        random: &mut Random,
        ended: &Ended,
    ) -> Result<Progress, Reason> {
        succeeded(ended)?;
        match std::mem::replace(&mut self.stage, Stage::End) {
            Stage::OpenConnection | Stage::Negotiate | Stage::End => {
                unreachable!("commands are sent from Connect to the end of authentication")
            }
            Stage::Connect => {
                let ConnectResult::Connected { controller_id, authentication_required } =
                    ConnectResult::of_success(ended.result)
                else {
                    unreachable!("a successful Connect returns Connected")
                };
                if self.options.queue == QueueId::ADMIN {
                    self.controller_id = controller_id;
                } else if controller_id != self.options.controller_id {
                    return Err(Reason::Lacks(
                        "a constant controller identifier: an I/O queue was connected to another controller",
                    ));
                }
                if !authentication_required && config.controller_secret.is_none() {
                    return Ok(Progress::Done);
                }
                let Some(secret) = &config.host_secret else { return Err(Reason::SecretMissing) };
                let (host, subsystem) = (config.host_nqn.as_str(), config.subsystem_nqn.as_str());
                let mut auth = HostAuthConfig::new(host, subsystem, secret.clone());
                auth.controller_secret = config.controller_secret.clone();
                auth.policy = config.policy.clone();
                auth.transaction = self.options.transaction;
                let mut auth = Box::new(HostAuth::new(auth, random.fork()));
                send_message(now, queue, &mut auth);
                self.stage = Stage::AuthSend(auth);
                Ok(Progress::More)
            }
            Stage::AuthSend(auth) => {
                if auth.is_authenticated() {
                    return Ok(Progress::Done);
                }
                let receive =
                    AuthenticationCommand::new(FabricsType::AuthenticationReceive, AUTHENTICATION_RECEIVE_BYTES);
                send(queue, now, receive.into(), CommandData::ToHost(AUTHENTICATION_RECEIVE_BYTES));
                self.stage = Stage::AuthReceive(auth);
                Ok(Progress::More)
            }
            Stage::AuthReceive(mut auth) => {
                let step = auth.receive(&ended.data);
                // A failure has a message for the controller, too; it is sent before the connection
                // is closed.
                let has_sent = send_message(now, queue, &mut auth);
                match step.map_err(Reason::Authentication)? {
                    AuthStep::Authenticated if !has_sent => Ok(Progress::Done),
                    AuthStep::Authenticated | AuthStep::Continue => {
                        self.stage = Stage::AuthSend(auth);
                        Ok(Progress::More)
                    }
                }
            }
        }
    }
}

/// Sends the next message, if there is one.
fn send_message(now: Instant, queue: &mut Queue, auth: &mut HostAuth) -> bool {
    let Some(message) = auth.message() else { return false };
    let command = AuthenticationCommand::new(FabricsType::AuthenticationSend, message.len() as u32);
    send(queue, now, command.into(), CommandData::FromHost(HostData::Bytes(message.into())));
    true
}

/// The bytes of [`ConnectData`].
fn connect_data(host_id: HostId, controller_id: u16, subsystem: &Nqn, host: &Nqn) -> Bytes {
    let mut bytes = vec![0; size_of::<ConnectData>()];
    let mut put = |offset: u16, field: &[u8]| bytes[usize::from(offset)..][..field.len()].copy_from_slice(field);
    put(connect_offsets::HOST_ID, &host_id.0);
    put(connect_offsets::CONTROLLER_ID, &controller_id.to_le_bytes());
    put(connect_offsets::SUBSYSTEM_NQN, &subsystem.to_field());
    put(connect_offsets::HOST_NQN, &host.to_field());
    bytes.into()
}
