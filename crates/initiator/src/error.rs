//! Errors: the step that failed, the reason, and the remedy.

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
    /// The step that failed.
    pub step: Step,
    /// Why it failed.
    pub reason: Reason,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The configuration is invalid.
    Config(ConfigError),
    /// A connection could not be established, or was closed: the reason that its owner has given.
    Connection {
        /// Its queue.
        queue: QueueId,
        /// The reason.
        why: String,
    },
    /// The step or a command has timed out.
    Timeout,
    /// A command of the step failed.
    Status {
        /// The status.
        status: StatusCode,
        /// Result of the completion: for a Connect, the invalid field.
        result: u64,
        /// The Do Not Retry bit.
        do_not_retry: bool,
    },
    /// The controller violated the transport protocol.
    Protocol(PduError),
    /// The controller terminated the connection because of a protocol error of this host.
    Terminated {
        /// Fatal Error Status of its C2HTermReq.
        status: u16,
        /// Fatal Error Information.
        information: u32,
    },
    /// Data of the step had a wrong digest, or was incomplete.
    Damaged,
    /// Authentication failed.
    Authentication(AuthFailure),
    /// The controller requires authentication, and no host secret is configured.
    SecretMissing,
    /// A page has an invalid or unsupported value.
    Page(PageError),
    /// The controller has set its fatal status (CSTS.CFS).
    ControllerFatal,
    /// The subsystem has no such namespace, or it is not active.
    NoSuchNamespace,
    /// The namespace belongs to another I/O command set.
    CommandSet(u8),
    /// The controller lacks a feature that NVMe over Fabrics requires.
    Lacks(&'static str),
    /// Another host holds a reservation.
    Reserved(Holder),
    /// After reconnecting, the namespace is a different one.
    NamespaceChanged,
    /// The discovery log keeps changing while it is read, or is too long.
    DiscoveryLog,
}

impl Reason {
    /// Whether the server has no subsystem of this name, or not for this host.
    #[must_use]
    pub fn is_unknown_subsystem(&self) -> bool {
        use zonda_nvme::fabrics::connect_offsets::SUBSYSTEM_NQN;
        let Reason::Status { status, result, .. } = self else { return false };
        *status == StatusCode::CONNECT_INVALID_PARAMETERS && result >> 16 & 1 == 1 && *result as u16 == SUBSYSTEM_NQN
    }
}

impl InitiatorError {
    /// Whether a retry cannot succeed unless one side changes.
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

    /// The remedy, for a user.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match (&self.reason, self.step) {
            (Reason::Config(_), _) => "change the configuration",
            (Reason::Connection { .. }, Step::OpenConnection(_)) => {
                "check the address and port, and that the server is running"
            }
            (Reason::Connection { .. } | Reason::Terminated { .. }, Step::Serve) => {
                "the server stopped, or its keep alive timer for this host expired: check the server's log"
            }
            (Reason::Connection { .. } | Reason::Terminated { .. }, Step::Authenticate(_)) => {
                "the server closed the connection during authentication: compare the secrets on both sides"
            }
            (Reason::Connection { .. } | Reason::Terminated { .. }, _) => {
                "the server closed the connection: check its log, and that the port is an NVMe/TCP port"
            }
            (Reason::Timeout, Step::Serve) => "the server does not respond: check the server and the network",
            (Reason::Timeout, Step::Negotiate(_)) => {
                "check that the port is an NVMe/TCP port without TLS, and that its server is not paused"
            }
            (Reason::Timeout, _) => {
                "the server did not respond in time: check the server and the network, or raise the timeout"
            }
            (Reason::Status { status, result, .. }, Step::ConnectQueue(_)) => connect_remedy(*status, *result),
            (Reason::Status { status, .. }, Step::Authenticate(_)) if *status == StatusCode::INVALID_OPCODE => {
                "the server does not support authentication: remove the controller secret"
            }
            (Reason::Status { status, .. }, _) if *status == StatusCode::RESERVATION_CONFLICT => {
                "another host holds a reservation, as the server of a volume does on its members: stop that server; if it was \
                 killed, start it again, or release its reservations with zonda volume takeover DIR --release"
            }
            (Reason::Reserved(_), _) => "stop the application on that host, or preempt its reservation",
            (Reason::Status { .. }, _) => "the server refused the command: check its log",
            (Reason::Protocol(_), Step::Negotiate(_)) => "check that the port is an NVMe/TCP port",
            (Reason::Protocol(error), _) if error.status == FatalStatus::HeaderDigestError => {
                "data was corrupted in transit: check the network"
            }
            (Reason::Protocol(_), _) => "the server violates the NVMe/TCP protocol: report a bug with this message",
            (Reason::Damaged, _) => "data was corrupted in transit: check the network",
            (Reason::Authentication(failure), _) => auth_remedy(*failure),
            (Reason::SecretMissing, _) => {
                "the server requires authentication: name the file with this host's secret with --secret-file"
            }
            (Reason::Page(_), _) => "the format of the namespace is not supported: format it differently",
            (Reason::ControllerFatal, _) => "the controller has failed: check the server's log",
            (Reason::NoSuchNamespace, _) => "choose an active namespace of the subsystem",
            (Reason::CommandSet(_), _) => "choose a zoned or a conventional (NVM) namespace",
            (Reason::Lacks(_), _) => "this server is not supported",
            (Reason::NamespaceChanged, _) => "the server now exports a different drive under this NQN: connect again",
            (Reason::DiscoveryLog, _) => "try again when the server's configuration no longer changes",
        }
    }
}

/// The remedy for a refused Connect.
fn connect_remedy(status: StatusCode, result: u64) -> &'static str {
    use zonda_nvme::fabrics::connect_offsets as at;
    if status == StatusCode::CONNECT_INVALID_HOST {
        return "the server does not allow this host NQN: allow it in the configuration of the server, or connect with \
                one that is allowed: --host-nqn NQN";
    }
    if status == StatusCode::CONNECT_CONTROLLER_BUSY {
        return "all controllers of the server are in use: try again later, or raise its limit";
    }
    if status == StatusCode::CONNECT_RESTART_DISCOVERY || status == StatusCode::DISCOVER_RESTART {
        return "the subsystem has moved: run discovery again";
    }
    if status == StatusCode::AUTHENTICATION_REQUIRED {
        return "the server requires authentication: name the file with this host's secret with --secret-file";
    }
    if status == StatusCode::CONNECT_INVALID_PARAMETERS {
        let (is_data, offset) = (result >> 16 & 1 == 1, result as u16);
        return match (is_data, offset) {
            (true, at::SUBSYSTEM_NQN) => {
                "the server has no such subsystem: check its NQN; nvme discover lists those of a server"
            }
            (true, at::HOST_NQN) => "the server does not accept this host NQN: check it",
            (true, at::HOST_ID) => "the server does not accept this host identifier: check it",
            (true, at::CONTROLLER_ID) => "the controller does not exist any more: connect again",
            (false, at::QUEUE_ID) => "request fewer I/O queues",
            (false, at::QUEUE_SIZE) => "request a smaller queue depth",
            (false, at::KEEP_ALIVE_TIMEOUT) => "choose another keep alive timeout",
            _ => "check the server's log",
        };
    }
    "check the server's log"
}

fn auth_remedy(failure: AuthFailure) -> &'static str {
    use zonda_chap::Explanation;
    match failure {
        AuthFailure::Peer(Explanation::AuthenticationFailed) => {
            "the server rejected this host's secret: compare secret and host NQN with the server's configuration; if this host \
             has a controller secret, the server must have it, too"
        }
        AuthFailure::Peer(Explanation::HashNotUsable | Explanation::GroupNotUsable)
        | AuthFailure::HashNotOffered(_)
        | AuthFailure::GroupNotOffered(_) => "allow a hash and a group that the server supports",
        AuthFailure::ControllerResponse | AuthFailure::ControllerResponseMissing => {
            "the server has a different controller secret: compare it with the server's configuration"
        }
        _ => "the server violates the authentication protocol: check its log",
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Config(error) => write!(f, "{error}"),
            Reason::Connection { queue, why } => write!(f, "{queue}: {why}"),
            Reason::Timeout => f.write_str("timed out"),
            Reason::Status { status, .. } => write!(f, "{status} (status {}/{:02X}h)", status.0 >> 8, status.0 & 0xff),
            Reason::Protocol(error) => write!(f, "{error}"),
            Reason::Terminated { status, information } => match FatalStatus::from_code(*status) {
                Some(named) => write!(f, "the controller terminated the connection: {named} ({information:x}h)"),
                None => write!(
                    f,
                    "the controller terminated the connection: fatal error status {status:x}h ({information:x}h)"
                ),
            },
            Reason::Damaged => f.write_str("received data has a wrong digest or is incomplete"),
            Reason::Authentication(failure) => write!(f, "{failure}"),
            Reason::SecretMissing => f.write_str("authentication is required, and no host secret is configured"),
            Reason::Page(error) => write!(f, "{error}"),
            Reason::ControllerFatal => f.write_str("the controller reports a fatal status (CSTS.CFS)"),
            Reason::NoSuchNamespace => f.write_str("the namespace does not exist, or is not active"),
            Reason::CommandSet(code) => write!(f, "the namespace belongs to I/O command set {code:02X}h"),
            Reason::Lacks(what) => write!(f, "the controller does not support {what}"),
            Reason::Reserved(holder) => write!(f, "the namespace is reserved by {holder}"),
            Reason::NamespaceChanged => f.write_str("the namespace differs from the one that was connected before"),
            Reason::DiscoveryLog => f.write_str("the discovery log is too long, or keeps changing"),
        }
    }
}

impl fmt::Display for InitiatorError {
    /// Step, reason and remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.step) {
            // The code has another meaning for other commands, which its name includes.
            (Reason::Status { status, .. }, Step::ConnectQueue(_))
                if *status == StatusCode::CONNECT_INVALID_PARAMETERS =>
            {
                write!(f, "{}: connect invalid parameters (status 1/82h); {}", self.step, self.remedy())
            }
            _ => write!(f, "{}: {}; {}", self.step, self.reason, self.remedy()),
        }
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
    fn a_refused_connect_reports_which_name_is_wrong() {
        let wrong_subsystem = refused(StatusCode::CONNECT_INVALID_PARAMETERS, 0x1_0100);
        assert!(wrong_subsystem.remedy().contains("no such subsystem"));
        assert!(!wrong_subsystem.is_permanent(), "a server that restarts may not export it yet");
        let not_allowed = refused(StatusCode::CONNECT_INVALID_HOST, 0);
        assert!(not_allowed.is_permanent() && not_allowed.remedy().contains("does not allow this host"));
        assert_eq!(
            not_allowed.to_string(),
            "Connect of the admin queue: connect invalid host (status 1/84h); \
             the server does not allow this host NQN: allow it in the configuration of the server, or connect with \
             one that is allowed: --host-nqn NQN"
        );
    }

    #[test]
    fn each_invalid_field_of_a_connect_has_its_own_remedy() {
        use zonda_nvme::fabrics::connect_offsets as at;
        const IN_DATA: u64 = 1 << 16;
        for (field, words) in [
            (
                IN_DATA | u64::from(at::SUBSYSTEM_NQN),
                "the server has no such subsystem: check its NQN; nvme discover lists those of a server",
            ),
            (IN_DATA | u64::from(at::HOST_NQN), "the server does not accept this host NQN: check it"),
            (IN_DATA | u64::from(at::HOST_ID), "the server does not accept this host identifier: check it"),
            (IN_DATA | u64::from(at::CONTROLLER_ID), "the controller does not exist any more: connect again"),
            (at::QUEUE_ID.into(), "request fewer I/O queues"),
            (at::QUEUE_SIZE.into(), "request a smaller queue depth"),
            (at::KEEP_ALIVE_TIMEOUT.into(), "choose another keep alive timeout"),
            (at::ATTRIBUTES.into(), "check the server's log"),
            (IN_DATA | u64::from(at::QUEUE_ID), "check the server's log"),
        ] {
            assert_eq!(refused(StatusCode::CONNECT_INVALID_PARAMETERS, field).remedy(), words, "field {field:x}h");
        }
    }
}
