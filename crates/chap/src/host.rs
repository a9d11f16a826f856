//! The host's side.

use subtle::ConstantTimeEq;
use zerocopy::IntoBytes;

use crate::failure::AuthFailure;
use crate::group::{Group, KeyPair};
use crate::hash::{Digest, Hash};
use crate::message::{
    Challenge, Failure, Header, MessageKind, Negotiate, ProtocolDescriptor, Reply, Success1, Success2,
    check_hash_length, check_public_length, front,
};
use crate::policy::Policy;
use crate::random::Random;
use crate::response::{NO_CONCATENATION, Proof, Prover, SessionKey};
use crate::secret::Secret;
use crate::step::{Agreement, SequenceNumbers, Step};

/// Configuration of a host's side of an authentication.
#[derive(Clone, Debug)]
pub struct HostAuthConfig {
    /// NQN of this host, as in its Connect command. Checked before: neither empty nor with a 0
    /// byte.
    pub host_nqn: String,
    /// NQN of the subsystem, as in the same command.
    pub subsystem_nqn: String,
    /// The secret with which this host authenticates.
    pub host_secret: Secret,
    /// The secret with which the controller must authenticate. With `None`, the controller is not
    /// authenticated.
    pub controller_secret: Option<Secret>,
    /// Hashes and groups that are offered.
    pub policy: Policy,
    /// Transaction identifier (T_ID): different for each concurrent exchange of one controller.
    pub transaction: u16,
}

/// Authenticates the host for one queue, and the controller to the host when a controller secret is
/// configured.
///
/// [`message`](HostAuth::message) has AUTH_Negotiate from the start. Each message is sent in an
/// Authentication Send. Unless the exchange is complete, an Authentication Receive of at least
/// [`MESSAGE_BYTES_MAX`] bytes follows, whose data is passed to [`receive`](HostAuth::receive). One
/// value runs one exchange.
///
/// [`MESSAGE_BYTES_MAX`]: crate::message::MESSAGE_BYTES_MAX
#[derive(Debug)]
pub struct HostAuth {
    host_nqn: String,
    subsystem_nqn: String,
    host_key: Digest,
    controller_key: Option<Digest>,
    policy: Policy,
    transaction: u16,
    random: Random,
    state: State,
    outgoing: Option<Vec<u8>>,
    agreement: Option<Agreement>,
}

#[derive(Debug)]
enum State {
    AwaitChallenge,
    AwaitSuccess1 {
        hash: Hash,
        /// The response expected from the controller; `None` without a challenge.
        expected: Option<Digest>,
    },
    Authenticated,
    Failed,
}

impl HostAuthConfig {
    /// A configuration without a controller secret, with the default [`Policy`] and transaction 0.
    pub fn new(host_nqn: impl Into<String>, subsystem_nqn: impl Into<String>, host_secret: Secret) -> Self {
        HostAuthConfig {
            host_nqn: host_nqn.into(),
            subsystem_nqn: subsystem_nqn.into(),
            host_secret,
            controller_secret: None,
            policy: Policy::default(),
            transaction: 0,
        }
    }
}

impl HostAuth {
    /// Starts an exchange. `random` must not share its seed with any other user.
    #[must_use]
    pub fn new(config: HostAuthConfig, random: Random) -> HostAuth {
        let HostAuthConfig { host_nqn, subsystem_nqn, host_secret, controller_secret, policy, transaction } = config;
        let negotiate = Negotiate {
            header: MessageKind::Negotiate.header(transaction),
            concatenation: NO_CONCATENATION,
            descriptors: 1,
        };
        let descriptor = ProtocolDescriptor::offer(policy.hashes(), policy.groups());
        HostAuth {
            host_key: host_secret.key(&host_nqn),
            controller_key: controller_secret.map(|secret| secret.key(&subsystem_nqn)),
            host_nqn,
            subsystem_nqn,
            policy,
            transaction,
            random,
            state: State::AwaitChallenge,
            outgoing: Some([negotiate.as_bytes(), descriptor.as_bytes()].concat()),
            agreement: None,
        }
    }

    /// Processes a message of the controller: the data of one Authentication Receive. Bytes after
    /// the message are ignored.
    ///
    /// # Errors
    /// [`AuthFailure`]: the authentication has failed. Unless the controller reported it,
    /// [`message`](Self::message) returns AUTH_Failure2.
    pub fn receive(&mut self, message: &[u8]) -> Result<Step, AuthFailure> {
        let state = std::mem::replace(&mut self.state, State::Failed);
        let result = self.accept(state, message);
        if let Err(failure) = result {
            self.state = State::Failed;
            self.outgoing = match failure {
                AuthFailure::Peer(_) => None,
                failure => Some(Failure::bytes(MessageKind::Failure2, self.transaction, failure.explanation())),
            };
        }
        result
    }

    /// The next message for the controller, once; `None` if there is none.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        self.outgoing.take()
    }

    /// Whether the controller has accepted this host and, if a controller secret is configured, has
    /// authenticated.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        matches!(self.state, State::Authenticated)
    }

    /// Hash and group, once the controller has chosen them.
    #[must_use]
    pub fn agreement(&self) -> Option<Agreement> {
        self.agreement
    }

    fn accept(&mut self, state: State, message: &[u8]) -> Result<Step, AuthFailure> {
        let header = Header::of(message)?;
        let kind = header.kind();
        if kind == Some(MessageKind::Failure1) {
            return Err(AuthFailure::Peer(Failure::explanation_of(message)?));
        }
        if self.outgoing.is_some() {
            // The controller responds to a message that was not sent.
            return Err(header.unexpected());
        }
        match (state, kind) {
            (State::AwaitChallenge, Some(MessageKind::Challenge)) => {
                header.check_transaction(self.transaction)?;
                self.challenge(message)
            }
            (State::AwaitSuccess1 { hash, expected }, Some(MessageKind::Success1)) => {
                header.check_transaction(self.transaction)?;
                self.success1(hash, expected.as_ref(), message)
            }
            _ => Err(header.unexpected()),
        }
    }

    fn challenge(&mut self, message: &[u8]) -> Result<Step, AuthFailure> {
        let (head, rest) = Challenge::of(message)?;
        let hash = Hash::from_id(head.hash).filter(|hash| self.policy.hashes().contains(hash));
        let hash = hash.ok_or(AuthFailure::HashNotOffered(head.hash))?;
        let group = Group::from_id(head.group).filter(|group| self.policy.groups().contains(group));
        let group = group.ok_or(AuthFailure::GroupNotOffered(head.group))?;
        check_hash_length(head.hash_length, hash)?;
        check_public_length(head.public_length.get(), group)?;
        let rest = front(message, rest, hash.length_bytes() + usize::from(head.public_length.get()))?;
        let (challenge, controller_public) = rest.split_at(hash.length_bytes());

        let (public, session_key) = match KeyPair::generate(group, &mut self.random) {
            None => (Box::default(), SessionKey::none()),
            Some(key_pair) => {
                let shared = key_pair.shared_secret(controller_public).ok_or(AuthFailure::PublicValueOutOfRange)?;
                (key_pair.public_value(), SessionKey::new(hash, &shared))
            }
        };
        let proof = Proof {
            hash,
            session_key: &session_key,
            prover: Prover::Host,
            challenge,
            sequence: head.sequence.get(),
            transaction: self.transaction,
            host_nqn: &self.host_nqn,
            subsystem_nqn: &self.subsystem_nqn,
        };
        let response = proof.response(&self.host_key);
        let (own_challenge, sequence, expected) = match &self.controller_key {
            None => (vec![0; hash.length_bytes()], 0, None),
            Some(key) => {
                let own = self.random.challenge(hash);
                let sequence = SequenceNumbers::new().next(&mut self.random);
                let expected = Proof { prover: Prover::Controller, challenge: &own, sequence, ..proof }.response(key);
                (own, sequence, Some(expected))
            }
        };
        let reply = Reply {
            header: MessageKind::Reply.header(self.transaction),
            hash_length: hash.length_bytes() as u8,
            reserved: 0,
            challenge_valid: u8::from(expected.is_some()),
            reserved_too: 0,
            public_length: (public.len() as u16).into(),
            sequence: sequence.into(),
        };
        self.agreement = Some(Agreement { hash, group, bidirectional: expected.is_some() });
        self.outgoing = Some([reply.as_bytes(), &response, &own_challenge, &public].concat());
        self.state = State::AwaitSuccess1 { hash, expected };
        Ok(Step::Continue)
    }

    fn success1(&mut self, hash: Hash, expected: Option<&Digest>, message: &[u8]) -> Result<Step, AuthFailure> {
        let (success, response) = Success1::of(message, hash)?;
        match (expected, response) {
            (None, None) => {}
            (Some(expected), Some(response)) => {
                if !bool::from(expected.ct_eq(response)) {
                    return Err(AuthFailure::ControllerResponse);
                }
                let header = MessageKind::Success2.header(self.transaction);
                self.outgoing = Some(Success2 { header, reserved: [0; 10] }.as_bytes().to_vec());
            }
            (Some(_), None) => return Err(AuthFailure::ControllerResponseMissing),
            (None, Some(_)) => return Err(AuthFailure::WrongValidity(success.response_valid)),
        }
        self.state = State::Authenticated;
        Ok(Step::Authenticated)
    }
}
