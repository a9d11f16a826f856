//! What went wrong, in which step, and what a person can do about it.

use std::fmt;

use zonda_chap::AuthFailure;
use zonda_nvme::StatusCode;
use zonda_nvme::page::PageError;
use zonda_nvme::tcp::{FatalStatus, PduError};

use crate::state::Step;
use crate::{ConfigError, Holder, QueueId};

/// A failure of an initiator or of a discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorError {
    /// During which step.
    pub step: Step,
    /// What went wrong.
    pub reason: Reason,
}

/// What can go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The configuration cannot be used.
    Config(ConfigError),
    /// A connection could not be made, or ended: in the words of its owner.
    Connection {
        /// Which.
        queue: QueueId,
        /// Why.
        why: String,
    },
    /// The step took too long, or a command did.
    Timeout,
    /// A command ended with a status that the step cannot go on with.
    Status {
        /// The status.
        status: StatusCode,
        /// Result of the completion: for a Connect, which field is at fault.
        result: u64,
        /// The Do Not Retry bit.
        do_not_retry: bool,
    },
    /// The controller broke the rules of the transport.
    Protocol(PduError),
    /// The controller says that this host did.
    Terminated {
        /// Fatal Error Status of its C2HTermReq.
        status: u16,
        /// Fatal Error Information.
        information: u32,
    },
    /// Data of the step came with a wrong digest, or not whole.
    Damaged,
    /// Authentication failed.
    Authentication(AuthFailure),
    /// The controller asks for authentication, and there is no secret.
    SecretMissing,
    /// A page says something that cannot be used.
    Page(PageError),
    /// The controller has set its fatal status (CSTS.CFS).
    ControllerFatal,
    /// The subsystem has no such namespace, or it is not active.
    NoSuchNamespace,
    /// The namespace belongs to another I/O command set.
    CommandSet(u8),
    /// The controller lacks something that NVMe over Fabrics demands.
    Lacks(&'static str),
    /// Another host holds the namespace.
    Reserved(Holder),
    /// After reconnecting, the namespace is another one.
    NamespaceChanged,
    /// The discovery log keeps changing while it is read, or is too long.
    DiscoveryLog,
}

impl InitiatorError {
    /// Whether trying again without a change on either side is in vain.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match &self.reason {
            Reason::Config(_)
            | Reason::SecretMissing
            | Reason::CommandSet(_)
            | Reason::Lacks(_)
            | Reason::NamespaceChanged => true,
            Reason::Authentication(_) => true,
            Reason::Status { status, .. } => *status == StatusCode::CONNECT_INVALID_HOST,
            _ => false,
        }
    }

    /// What a person can do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match (&self.reason, self.step) {
            (Reason::Config(_), _) => "change the configuration",
            (Reason::Connection { .. }, Step::OpenConnection(_)) => {
                "check the address and port, and that the server runs"
            }
            (Reason::Connection { .. } | Reason::Terminated { .. }, Step::Serve) => {
                "the server went away or gave this host up: look into its log"
            }
            (Reason::Connection { .. } | Reason::Terminated { .. }, Step::Authenticate(_)) => {
                "the server ended the connection during authentication: compare the secrets on both sides"
            }
            (Reason::Connection { .. } | Reason::Terminated { .. }, _) => {
                "the server ended the connection: look into its log, and check that the port is one of NVMe/TCP"
            }
            (Reason::Timeout, Step::Serve) => "the server is silent: check it and the network",
            (Reason::Timeout, Step::Negotiate(_)) => {
                "check that the port is one of NVMe/TCP, and of a server without TLS"
            }
            (Reason::Timeout, _) => "the server is slow or silent: check it and the network, or allow more time",
            (Reason::Status { status, result, .. }, Step::ConnectQueue(_)) => connect_remedy(*status, *result),
            (Reason::Status { status, .. }, Step::Authenticate(_)) if *status == StatusCode::INVALID_OPCODE => {
                "the server has no authentication: remove the controller secret"
            }
            (Reason::Status { status, .. }, _) if *status == StatusCode::RESERVATION_CONFLICT => {
                "another host has reserved the namespace, as servers of volumes do with their members: stop that server"
            }
            (Reason::Reserved(_), _) => "stop what runs on that host, or take the namespace from it",
            (Reason::Status { .. }, _) => "the server refuses the step: look into its log",
            (Reason::Protocol(_), Step::Negotiate(_)) => "check that the port is one of NVMe/TCP",
            (Reason::Protocol(error), _) if error.status == FatalStatus::HeaderDigestError => {
                "bytes are damaged on the way: check the network"
            }
            (Reason::Protocol(_), _) => "the server does not speak NVMe/TCP as it should: report it with this message",
            (Reason::Damaged, _) => "bytes are damaged on the way: check the network",
            (Reason::Authentication(failure), _) => auth_remedy(*failure),
            (Reason::SecretMissing, _) => "the server asks for authentication: give this host its secret",
            (Reason::Page(_), _) => "the namespace has a format that is not supported here: format it differently",
            (Reason::ControllerFatal, _) => "the controller has failed: look into the server's log",
            (Reason::NoSuchNamespace, _) => "choose a namespace that the subsystem has",
            (Reason::CommandSet(_), _) => "choose a zoned or a conventional (NVM) namespace",
            (Reason::Lacks(_), _) => "this server cannot be used",
            (Reason::NamespaceChanged, _) => "the server now has another drive under this name: connect anew",
            (Reason::DiscoveryLog, _) => "try again when the server's configuration has come to rest",
        }
    }
}

/// What a refused Connect calls for.
fn connect_remedy(status: StatusCode, result: u64) -> &'static str {
    use zonda_nvme::fabrics::connect_offsets as at;
    if status == StatusCode::CONNECT_INVALID_HOST {
        return "the server does not allow this host: add its NQN there, or use another host NQN";
    }
    if status == StatusCode::CONNECT_CONTROLLER_BUSY {
        return "the server has no controller free: try again later, or raise its limit";
    }
    if status == StatusCode::CONNECT_RESTART_DISCOVERY || status == StatusCode::DISCOVER_RESTART {
        return "the subsystem has moved: discover again";
    }
    if status == StatusCode::AUTHENTICATION_REQUIRED {
        return "the server asks for authentication: give this host its secret";
    }
    if status == StatusCode::CONNECT_INVALID_PARAMETERS {
        let (is_data, offset) = (result >> 16 & 1 == 1, result as u16);
        return match (is_data, offset) {
            (true, at::SUBSYSTEM_NQN) => "the server has no such subsystem: check its NQN",
            (true, at::HOST_NQN) => "the server does not take this host NQN: check it",
            (true, at::HOST_ID) => "the server does not take this host identifier: check it",
            (true, at::CONTROLLER_ID) => "the controller is gone: connect anew",
            (false, at::QUEUE_ID) => "ask for fewer I/O queues",
            (false, at::QUEUE_SIZE) => "ask for a smaller queue depth",
            (false, at::KEEP_ALIVE_TIMEOUT) => "choose another keep alive timeout",
            _ => "look into the server's log",
        };
    }
    "look into the server's log"
}

fn auth_remedy(failure: AuthFailure) -> &'static str {
    use zonda_chap::Explanation;
    match failure {
        AuthFailure::Peer(Explanation::AuthenticationFailed) => {
            "the server refuses this host's secret: compare it with the server's, and the host NQN with it"
        }
        AuthFailure::Peer(Explanation::HashNotUsable | Explanation::GroupNotUsable)
        | AuthFailure::HashNotOffered(_)
        | AuthFailure::GroupNotOffered(_) => "allow a hash and a group that the server has",
        AuthFailure::ControllerResponse | AuthFailure::ControllerResponseMissing => {
            "the server does not know the controller secret: compare it with the server's"
        }
        _ => "the server does not authenticate as it should: look into its log",
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Config(error) => write!(f, "{error}"),
            Reason::Connection { queue, why } => write!(f, "{queue}: {why}"),
            Reason::Timeout => f.write_str("no answer in time"),
            Reason::Status { status, .. } => write!(f, "{status} (status {}/{:02X}h)", status.0 >> 8, status.0 & 0xff),
            Reason::Protocol(error) => write!(f, "{error}"),
            Reason::Terminated { status, information } => match FatalStatus::from_code(*status) {
                Some(named) => write!(f, "the controller ended the connection: {named} ({information:x}h)"),
                None => write!(f, "the controller ended the connection: status {status:x}h ({information:x}h)"),
            },
            Reason::Damaged => f.write_str("data did not arrive as it was sent"),
            Reason::Authentication(failure) => write!(f, "{failure}"),
            Reason::SecretMissing => f.write_str("authentication is required, and no host secret is configured"),
            Reason::Page(error) => write!(f, "{error}"),
            Reason::ControllerFatal => f.write_str("the controller reports a fatal status (CSTS.CFS)"),
            Reason::NoSuchNamespace => f.write_str("no such namespace"),
            Reason::CommandSet(code) => write!(f, "the namespace belongs to I/O command set {code:02X}h"),
            Reason::Lacks(what) => write!(f, "the controller has no {what}"),
            Reason::Reserved(holder) => write!(f, "it is reserved by {holder}"),
            Reason::NamespaceChanged => f.write_str("the namespace is not the one that was connected before"),
            Reason::DiscoveryLog => f.write_str("the discovery log is too long, or changes all the time"),
        }
    }
}

impl fmt::Display for InitiatorError {
    /// Step, reason and remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.step, self.reason, self.remedy())
    }
}

impl std::error::Error for InitiatorError {}

impl From<PageError> for Reason {
    fn from(error: PageError) -> Reason {
        Reason::Page(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: StatusCode, result: u64) -> InitiatorError {
        let reason = Reason::Status { status, result, do_not_retry: true };
        InitiatorError { step: Step::ConnectQueue(QueueId::ADMIN), reason }
    }

    #[test]
    fn a_refused_connect_says_which_name_is_wrong() {
        let wrong_subsystem = refused(StatusCode::CONNECT_INVALID_PARAMETERS, 0x1_0100);
        assert!(wrong_subsystem.remedy().contains("no such subsystem"));
        assert!(!wrong_subsystem.is_permanent(), "a server that restarts may not have it yet");
        let not_allowed = refused(StatusCode::CONNECT_INVALID_HOST, 0);
        assert!(not_allowed.is_permanent() && not_allowed.remedy().contains("does not allow this host"));
        assert_eq!(
            not_allowed.to_string(),
            "Connect of the admin queue: connect invalid host (status 1/84h); \
             the server does not allow this host: add its NQN there, or use another host NQN"
        );
    }

    #[test]
    fn each_field_that_a_connect_is_refused_for_has_a_remedy_of_its_own() {
        use zonda_nvme::fabrics::connect_offsets as at;
        const IN_DATA: u64 = 1 << 16;
        for (field, words) in [
            (IN_DATA | u64::from(at::SUBSYSTEM_NQN), "the server has no such subsystem: check its NQN"),
            (IN_DATA | u64::from(at::HOST_NQN), "the server does not take this host NQN: check it"),
            (IN_DATA | u64::from(at::HOST_ID), "the server does not take this host identifier: check it"),
            (IN_DATA | u64::from(at::CONTROLLER_ID), "the controller is gone: connect anew"),
            (at::QUEUE_ID.into(), "ask for fewer I/O queues"),
            (at::QUEUE_SIZE.into(), "ask for a smaller queue depth"),
            (at::KEEP_ALIVE_TIMEOUT.into(), "choose another keep alive timeout"),
            (at::ATTRIBUTES.into(), "look into the server's log"),
            (IN_DATA | u64::from(at::QUEUE_ID), "look into the server's log"),
        ] {
            assert_eq!(refused(StatusCode::CONNECT_INVALID_PARAMETERS, field).remedy(), words, "field {field:x}h");
        }
    }
}
