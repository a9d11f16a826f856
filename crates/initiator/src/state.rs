//! Where an initiator stands.

use std::fmt;

use crate::{InitiatorError, QueueId};

/// What an initiator is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing yet: [`crate::Initiator::start`] has not been called.
    Idle,
    /// On the way to the namespace.
    Connecting(Step),
    /// Commands are taken.
    Ready,
    /// The connection could not be made, or was lost and is not to be made again.
    Failed(InitiatorError),
    /// Shut down by its owner.
    Closed,
}

/// The steps of connecting, in their order. Discovery takes some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The configuration is looked at.
    Configure,
    /// After a loss, time passes before the next try.
    Wait,
    /// The owner makes a TCP connection.
    OpenConnection(QueueId),
    /// ICReq and ICResp.
    Negotiate(QueueId),
    /// Fabrics Connect.
    ConnectQueue(QueueId),
    /// DH-HMAC-CHAP.
    Authenticate(QueueId),
    /// Property CAP.
    ReadCapabilities,
    /// Property CC.
    Enable,
    /// Property CSTS, until the controller is ready.
    WaitUntilReady,
    /// Identify Controller, CNS 01h.
    IdentifyController,
    /// Namespace Identification Descriptors, CNS 03h.
    IdentifyDescriptors,
    /// Identify Namespace, CNS 00h.
    IdentifyNamespace,
    /// Identify Controller of the NVM Command Set, CNS 06h.
    IdentifyNvmController,
    /// Identify Namespace of the Zoned Namespace Command Set, CNS 05h.
    IdentifyZonedNamespace,
    /// Identify Controller of the Zoned Namespace Command Set, CNS 06h.
    IdentifyZonedController,
    /// Set Features, Number of Queues.
    RequestQueues,
    /// Set Features, Asynchronous Event Configuration.
    RequestEvents,
    /// Reservation Report: whose the namespace is.
    ReportReservations,
    /// Reservation Register.
    Register,
    /// Reservation Acquire.
    Reserve,
    /// Zone Management Receive: zone capacity, and what the zones are.
    SurveyZones,
    /// Get Log Page 70h, of a discovery controller.
    ReadDiscoveryLog,
    /// After connecting: commands flow.
    Serve,
    /// At the end: the reservation is given back.
    Release,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Configure => f.write_str("configuration"),
            Step::Wait => f.write_str("waiting before the next try"),
            Step::OpenConnection(queue) => write!(f, "TCP connection of the {queue}"),
            Step::Negotiate(queue) => write!(f, "ICReq on the {queue}"),
            Step::ConnectQueue(queue) => write!(f, "Connect of the {queue}"),
            Step::Authenticate(queue) => write!(f, "authentication on the {queue}"),
            Step::ReadCapabilities => f.write_str("reading capabilities (CAP)"),
            Step::Enable => f.write_str("enabling the controller (CC.EN)"),
            Step::WaitUntilReady => f.write_str("waiting until the controller is ready (CSTS.RDY)"),
            Step::IdentifyController => f.write_str("Identify Controller"),
            Step::IdentifyDescriptors => f.write_str("Identify Namespace Descriptors"),
            Step::IdentifyNamespace => f.write_str("Identify Namespace"),
            Step::IdentifyNvmController => f.write_str("Identify Controller (NVM)"),
            Step::IdentifyZonedNamespace => f.write_str("Identify Namespace (ZNS)"),
            Step::IdentifyZonedController => f.write_str("Identify Controller (ZNS)"),
            Step::RequestQueues => f.write_str("requesting I/O queues"),
            Step::RequestEvents => f.write_str("requesting asynchronous events"),
            Step::ReportReservations => f.write_str("Reservation Report"),
            Step::Register => f.write_str("Reservation Register"),
            Step::Reserve => f.write_str("Reservation Acquire"),
            Step::SurveyZones => f.write_str("zone report"),
            Step::ReadDiscoveryLog => f.write_str("reading the discovery log"),
            Step::Serve => f.write_str("serving commands"),
            Step::Release => f.write_str("giving the reservation back"),
        }
    }
}
