//! The state of an initiator.

use std::fmt;

use crate::{InitiatorError, QueueId};

/// The state of an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started: [`crate::Initiator::start`] has not been called.
    Idle,
    /// Connecting, with the present step.
    Connecting(Step),
    /// Connected: commands are accepted.
    Ready,
    /// The connection failed, or was lost and is not retried.
    Failed(InitiatorError),
    /// Shut down by its owner.
    Closed,
}

/// The steps of connecting, in order. Discovery uses some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Checks the configuration.
    Configure,
    /// After a loss, waits before the next attempt.
    Wait,
    /// The owner opens a TCP connection.
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
    /// Reservation Report: the present holder.
    ReportReservations,
    /// Reservation Register.
    Register,
    /// Reservation Acquire.
    Reserve,
    /// Zone Management Receive: types, capacities and states of the zones.
    SurveyZones,
    /// Get Log Page 70h, of a discovery controller.
    ReadDiscoveryLog,
    /// After connecting: commands are executed.
    Serve,
    /// Before shutdown: releases the reservation.
    Release,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Configure => f.write_str("checking the configuration"),
            Step::Wait => f.write_str("waiting to reconnect"),
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
            Step::SurveyZones => f.write_str("reporting zones"),
            Step::ReadDiscoveryLog => f.write_str("reading the discovery log"),
            Step::Serve => f.write_str("executing commands"),
            Step::Release => f.write_str("releasing the reservation"),
        }
    }
}
