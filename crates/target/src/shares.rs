//! What hosts may take that have not proved who they are, so that they leave room for those that have.
//!
//! Three kinds of strangers: connections that are not through their handshake, the discovery service's controllers, which
//! anybody may have, and hosts of subsystems that ask for no secret. Each has its share; where one is full, the longest silent or longest
//! idle of its own kind gives way, and never somebody who is authenticated.

use zonda_nvme::StatusCode;
use zonda_zoned::Instant;

use crate::connection::handshake::Refusal;
use crate::controller::Controller;
use crate::effects::{CloseReason, ConnectionId};
use crate::target::Target;

/// Of controllers and of connections, hosts that prove nothing leave one in so many to those that do.
const KEPT_FOR_THE_AUTHENTICATED: usize = 4;

/// What of a table is open to everybody.
fn share(places: usize) -> usize {
    places - places / KEPT_FOR_THE_AUTHENTICATED
}

impl Target {
    /// The connection that makes room for one from an address ([`Flow::group_of`](crate::Flow::group_of)); `None`: there is room, or
    /// none can be made.
    ///
    /// Who has its share of half-open connections crowds out its own.
    pub(crate) fn crowded_out_by(&self, newcomer: u64) -> Option<ConnectionId> {
        let limits = &self.config.limits;
        if self.half_open.len_of(newcomer) >= limits.half_open_per_address {
            return self.half_open.quietest_of(newcomer);
        }
        if self.connections.len() < limits.connections && self.half_open.len() < limits.half_open {
            return None;
        }
        self.half_open.gives_way(|_| true)
    }

    /// Makes room for a controller of a subsystem, or of the discovery service (`None`).
    pub(crate) fn make_room_for_controller(
        &mut self,
        now: Instant,
        subsystem: Option<usize>,
        proves: bool,
    ) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        let all = || self.controllers.iter().map(|(_, controller)| controller);
        let of_subsystems = || all().filter(|controller| controller.subsystem().is_some());
        if subsystem.is_none() {
            let of_discovery = || all().filter(|controller| controller.subsystem().is_none());
            if of_discovery().count() >= limits.discovery_controllers {
                let idle = of_discovery().min_by_key(|controller| controller.last_activity());
                let admin = idle.and_then(Controller::admin_queue);
                self.close(now, admin.expect("a controller goes with its admin queue"), &CloseReason::Crowded);
            }
            return Ok(());
        }
        if !proves && of_subsystems().filter(|it| self.is_open(it)).count() >= share(limits.controllers) {
            return Err(StatusCode::CONNECT_CONTROLLER_BUSY.into());
        }
        if of_subsystems().count() < limits.controllers {
            return Ok(());
        }
        // Who knows a host's name and not its secret has a controller until its handshake ends.
        let is_unproven_admin = |id: ConnectionId| {
            let connection = self.connections.get(id.0).expect("a half-open connection is here");
            connection.queue() == Some(0) && !connection.may_command()
        };
        match self.half_open.gives_way(is_unproven_admin) {
            Some(silent) => {
                self.close(now, silent, &CloseReason::Crowded);
                Ok(())
            }
            None => Err(StatusCode::CONNECT_CONTROLLER_BUSY.into()),
        }
    }

    /// Whether one more connection can become a queue of a host that proves nothing.
    pub(crate) fn has_room_for_open_queue(&self) -> bool {
        let limits = &self.config.limits;
        let places = share(limits.connections);
        // Cheap where it matters: an empty table needs no count.
        self.connections.len() < places
            || self.connections.iter().filter(|(_, it)| it.queue().is_some() && it.auth.is_none()).count() < places
    }

    /// Whether a controller's host had nothing to prove.
    fn is_open(&self, controller: &Controller) -> bool {
        let admin = controller.admin_queue().and_then(|admin| self.connections.get(admin.0));
        admin.is_some_and(|admin| admin.auth.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_a_quarter_and_is_never_nothing() {
        assert_eq!([1, 2, 4, 256].map(share), [1, 2, 3, 192]);
    }
}
