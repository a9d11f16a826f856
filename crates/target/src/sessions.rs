//! Sessions: the hosts that are connected.

use zonda_nvme::Nqn;

use crate::target::Target;

/// A host's session: a controller with its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The host.
    pub host: Nqn,
    /// The subsystem; `None` for a session with the discovery service.
    pub subsystem: Option<Nqn>,
    /// CNTLID.
    pub controller_id: u16,
    /// Connected I/O queues.
    pub io_queues: u16,
    /// Whether the host has authenticated.
    pub authenticated: bool,
}

impl Target {
    /// All sessions, in no particular order.
    #[must_use]
    pub fn sessions(&self) -> Vec<Session> {
        let sessions = self.controllers.iter().map(|(_, controller)| {
            let authenticated = controller
                .queues()
                .next()
                .and_then(|admin| self.connections.get(admin))
                .is_some_and(|connection| connection.auth.as_ref().is_some_and(|auth| auth.passed));
            Session {
                host: controller.host.clone(),
                subsystem: controller.subsystem().map(|place| self.subsystems[place].nqn.clone()),
                controller_id: controller.id,
                io_queues: (controller.queues().count() as u16).saturating_sub(1),
                authenticated,
            }
        });
        sessions.collect()
    }
}
