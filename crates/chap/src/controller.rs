//! The controller's side.

use subtle::ConstantTimeEq;
use zerocopy::IntoBytes;

use crate::failure::AuthFailure;
use crate::group::{Group, KeyPair};
use crate::hash::{Digest, Hash};
use crate::message::{
    Challenge, Failure, Header, MESSAGE_BYTES_MAX, MessageKind, Negotiate, ProtocolDescriptor, Reply, ReplyParts,
    Success1, Success2, TYPE_DH_HMAC_CHAP, check_public_length, exact,
};
use crate::policy::Policy;
use crate::random::Random;
use crate::response::{NO_CONCATENATION, Proof, Prover, SessionKey};
use crate::secret::Secret;
use crate::step::{Agreement, SequenceNumbers, Step};

/// Configuration of a controller's side of an authentication.
#[derive(Clone, Debug)]
pub struct ControllerAuthConfig {
    /// NQN of the host, from its Connect command. Checked before: neither empty nor with a 0 byte.
    pub host_nqn: String,
    /// NQN of the subsystem, from the same command.
    pub subsystem_nqn: String,
    /// The secret with which the host must authenticate.
    pub host_secret: Secret,
    /// The secret with which this controller authenticates if the host requests it. Must differ
    /// from the host's.
    pub controller_secret: Option<Secret>,
    /// Hashes and groups that the host may use.
    pub policy: Policy,
}

/// Authenticates the host of one queue: processes the data of Authentication Send, and returns the
/// data for Authentication Receive.
///
/// After each [`receive`](ControllerAuth::receive), whatever it returned, the next Authentication
/// Receive gets [`message`](ControllerAuth::message). A failed authentication stays failed; the
/// connection must be closed once the host has fetched the failure. An authenticated host may
/// reauthenticate with AUTH_Negotiate, and stays authenticated until that fails. There is no clock:
/// the owner must time out a silent host.
#[derive(Debug)]
pub struct ControllerAuth {
    host_nqn: String,
    subsystem_nqn: String,
    host_key: Digest,
    controller_key: Option<Digest>,
    policy: Policy,
    random: Random,
    sequence_numbers: SequenceNumbers,
    state: State,
    outgoing: Option<Vec<u8>>,
    agreement: Option<Agreement>,
    authenticated: bool,
}

#[derive(Debug)]
enum State {
    /// Nothing has happened, or an earlier exchange succeeded.
    AwaitNegotiate,
    AwaitReply(Box<Challenged>),
    AwaitSuccess2 {
        transaction: u16,
    },
    Failed,
}

/// What the reply is checked against.
#[derive(Debug)]
struct Challenged {
    transaction: u16,
    hash: Hash,
    group: Group,
    key_pair: Option<KeyPair>,
    challenge: Vec<u8>,
    sequence: u32,
}

impl ControllerAuthConfig {
    /// A configuration without a controller secret, with the default [`Policy`].
    pub fn new(host_nqn: impl Into<String>, subsystem_nqn: impl Into<String>, host_secret: Secret) -> Self {
        ControllerAuthConfig {
            host_nqn: host_nqn.into(),
            subsystem_nqn: subsystem_nqn.into(),
            host_secret,
            controller_secret: None,
            policy: Policy::default(),
        }
    }
}

impl ControllerAuth {
    /// Waits for AUTH_Negotiate. `random` must not share its seed with any other user.
    #[must_use]
    pub fn new(config: ControllerAuthConfig, random: Random) -> ControllerAuth {
        let ControllerAuthConfig { host_nqn, subsystem_nqn, host_secret, controller_secret, policy } = config;
        ControllerAuth {
            host_key: host_secret.key(&host_nqn),
            controller_key: controller_secret.map(|secret| secret.key(&subsystem_nqn)),
            host_nqn,
            subsystem_nqn,
            policy,
            random,
            sequence_numbers: SequenceNumbers::new(),
            state: State::AwaitNegotiate,
            outgoing: None,
            agreement: None,
            authenticated: false,
        }
    }

    /// Processes a message of the host, exactly the bytes of one Authentication Send.
    ///
    /// # Errors
    /// [`AuthFailure`]: the authentication has failed. Unless the host reported it,
    /// [`message`](Self::message) returns AUTH_Failure1.
    pub fn receive(&mut self, message: &[u8]) -> Result<Step, AuthFailure> {
        let state = std::mem::replace(&mut self.state, State::Failed);
        let result = self.accept(state, message);
        if let Err(failure) = result {
            self.fail(message, failure);
        }
        result
    }

    /// The next message for the host, once; `None` if there is none.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        self.outgoing.take()
    }

    /// Whether the host has authenticated and, if it challenged the controller, has accepted its
    /// response.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Hash and group of the last exchange, once they are chosen.
    #[must_use]
    pub fn agreement(&self) -> Option<Agreement> {
        self.agreement
    }

    fn accept(&mut self, state: State, message: &[u8]) -> Result<Step, AuthFailure> {
        let header = Header::of(message)?;
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(AuthFailure::WrongLength { expected: MESSAGE_BYTES_MAX, actual: message.len() });
        }
        let kind = header.kind();
        if kind == Some(MessageKind::Failure2) {
            exact(message, size_of::<Failure>())?;
            return Err(AuthFailure::Peer(Failure::explanation_of(message)?));
        }
        if self.outgoing.is_some() {
            // The host responds to a message that it has not fetched.
            return Err(header.unexpected());
        }
        match (state, kind) {
            (State::AwaitNegotiate, Some(MessageKind::Negotiate)) => self.negotiate(message),
            (State::AwaitReply(challenged), Some(MessageKind::Reply)) => self.reply(&challenged, message),
            (State::AwaitSuccess2 { transaction }, Some(MessageKind::Success2)) => {
                header.check_transaction(transaction)?;
                exact(message, size_of::<Success2>())?;
                Ok(self.succeed())
            }
            _ => Err(header.unexpected()),
        }
    }

    fn negotiate(&mut self, message: &[u8]) -> Result<Step, AuthFailure> {
        let (negotiate, descriptors) = Negotiate::of(message)?;
        if negotiate.concatenation != NO_CONCATENATION {
            return Err(AuthFailure::ConcatenationNotOffered(negotiate.concatenation));
        }
        let descriptor = descriptors.iter().find(|descriptor| descriptor.protocol == TYPE_DH_HMAC_CHAP);
        let (hash, group) = self.choose(descriptor.ok_or(AuthFailure::ProtocolNotOffered)?)?;
        let transaction = negotiate.header.transaction.get();
        let challenged = Challenged {
            transaction,
            hash,
            group,
            key_pair: KeyPair::generate(group, &mut self.random),
            challenge: self.random.challenge(hash),
            sequence: self.sequence_numbers.next(&mut self.random),
        };
        self.agreement = Some(Agreement { hash, group, bidirectional: false });
        self.outgoing = Some(challenged.message());
        self.state = State::AwaitReply(Box::new(challenged));
        Ok(Step::Continue)
    }

    fn choose(&self, descriptor: &ProtocolDescriptor) -> Result<(Hash, Group), AuthFailure> {
        let (hash_ids, group_ids) = (descriptor.hash_ids()?, descriptor.group_ids()?);
        let hash = self.policy.hashes().iter().find(|hash| hash_ids.contains(&hash.id()));
        let group = self.policy.groups().iter().find(|group| group_ids.contains(&group.id()));
        Ok((*hash.ok_or(AuthFailure::NoCommonHash)?, *group.ok_or(AuthFailure::NoCommonGroup)?))
    }

    fn reply(&mut self, challenged: &Challenged, message: &[u8]) -> Result<Step, AuthFailure> {
        Header::of(message)?.check_transaction(challenged.transaction)?;
        let ReplyParts { head, response, challenge: host_challenge, public } = Reply::of(message, challenged.hash)?;
        check_public_length(head.public_length.get(), challenged.group)?;
        let bidirectional = match head.challenge_valid {
            0 => false,
            1 if head.sequence.get() == 0 => return Err(AuthFailure::SequenceNumberZero),
            1 if *host_challenge == *challenged.challenge => return Err(AuthFailure::ReflectedChallenge),
            1 => true,
            other => return Err(AuthFailure::WrongValidity(other)),
        };
        let session_key = match &challenged.key_pair {
            None => SessionKey::none(),
            Some(key_pair) => {
                let shared = key_pair.shared_secret(public).ok_or(AuthFailure::PublicValueOutOfRange)?;
                SessionKey::new(challenged.hash, &shared)
            }
        };
        let proof = Proof {
            hash: challenged.hash,
            session_key: &session_key,
            prover: Prover::Host,
            challenge: &challenged.challenge,
            sequence: challenged.sequence,
            transaction: challenged.transaction,
            host_nqn: &self.host_nqn,
            subsystem_nqn: &self.subsystem_nqn,
        };
        if !bool::from(proof.response(&self.host_key).ct_eq(response)) {
            return Err(AuthFailure::HostResponse);
        }
        let answer = if bidirectional {
            let key = self.controller_key.as_ref().ok_or(AuthFailure::NoControllerSecret)?;
            let sequence = head.sequence.get();
            Some(Proof { prover: Prover::Controller, challenge: host_challenge, sequence, ..proof }.response(key))
        } else {
            None
        };
        self.agreement = Some(Agreement { hash: challenged.hash, group: challenged.group, bidirectional });
        self.outgoing = Some(success1(challenged, answer.as_deref()));
        if bidirectional {
            self.state = State::AwaitSuccess2 { transaction: challenged.transaction };
            Ok(Step::Continue)
        } else {
            Ok(self.succeed())
        }
    }

    fn succeed(&mut self) -> Step {
        self.state = State::AwaitNegotiate;
        self.authenticated = true;
        Step::Authenticated
    }

    fn fail(&mut self, message: &[u8], failure: AuthFailure) {
        self.state = State::Failed;
        self.authenticated = false;
        self.outgoing = match failure {
            AuthFailure::Peer(_) => None,
            failure => {
                let transaction = Header::of(message).map_or(0, |header| header.transaction.get());
                Some(Failure::bytes(MessageKind::Failure1, transaction, failure.explanation()))
            }
        };
    }
}

impl Challenged {
    fn message(&self) -> Vec<u8> {
        let public = self.key_pair.as_ref().map(KeyPair::public_value).unwrap_or_default();
        let head = Challenge {
            header: MessageKind::Challenge.header(self.transaction),
            hash_length: self.hash.length_bytes() as u8,
            reserved: 0,
            hash: self.hash.id(),
            group: self.group.id(),
            public_length: (public.len() as u16).into(),
            sequence: self.sequence.into(),
        };
        [head.as_bytes(), &self.challenge, &public].concat()
    }
}

fn success1(challenged: &Challenged, answer: Option<&[u8]>) -> Vec<u8> {
    let head = Success1 {
        header: MessageKind::Success1.header(challenged.transaction),
        hash_length: challenged.hash.length_bytes() as u8,
        reserved: 0,
        response_valid: u8::from(answer.is_some()),
        reserved_too: [0; 7],
    };
    [head.as_bytes(), answer.unwrap_or_default()].concat()
}
