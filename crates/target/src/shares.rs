//! Shares of the tables that unauthenticated hosts may use; the rest is reserved for authenticated
//! hosts.
//!
//! There are three kinds of unauthenticated users: half-open connections, controllers of the
//! discovery service, which any host may create, and hosts of subsystems without authentication.
//! Each kind has its share. If a share is used up, the longest silent or longest idle connection of
//! the same kind is evicted, and never an authenticated one.

use zonda_nvme::StatusCode;
use zonda_zoned::Instant;

use crate::connection::handshake::Refusal;
use crate::controller::Controller;
use crate::effects::{CloseReason, ConnectionId};
use crate::subsystems::SubsystemIndex;
use crate::target::Target;

/// Of controllers and of connections, one in so many is reserved for authenticated hosts.
const RESERVED_FOR_AUTHENTICATED: usize = 4;

/// The slots of a table that unauthenticated hosts may use.
fn share(places: usize) -> usize {
    places - places / RESERVED_FOR_AUTHENTICATED
}

impl Target {
    /// The connection to evict for a new one from an address
    /// ([`Flow::group_of`](crate::Flow::group_of)); `None`: a slot is free, or no connection can be
    /// evicted.
    ///
    /// An address that has used up its share of half-open connections evicts one of its own.
    pub(crate) fn evicted_by(&self, newcomer: u64) -> Option<ConnectionId> {
        let limits = &self.limits;
        if self.half_open.len_of(newcomer) >= limits.half_open_per_address {
            return self.half_open.longest_silent_of(newcomer);
        }
        if self.connections.len() < limits.connections && self.half_open.len() < limits.half_open {
            return None;
        }
        self.half_open.eviction_candidate(|_| true)
    }

    /// Frees a slot for a controller of a subsystem, or of the discovery service (`None`).
    pub(crate) fn free_controller_slot(
        &mut self,
        now: Instant,
        subsystem: Option<SubsystemIndex>,
        is_authenticated: bool,
    ) -> Result<(), Refusal> {
        let limits = &self.limits;
        let of_subsystems = || self.controllers.values().filter(|controller| controller.subsystem().is_some());
        if subsystem.is_none() {
            let of_discovery = || self.controllers.of(None);
            if of_discovery().count() >= limits.discovery_controllers {
                let idle = of_discovery().min_by_key(|controller| controller.last_activity());
                let admin = idle.and_then(Controller::admin_queue);
                self.close(now, admin.expect("a controller has an admin queue"), &CloseReason::Evicted);
            }
            return Ok(());
        }
        if !is_authenticated && of_subsystems().filter(|it| self.is_open(it)).count() >= share(limits.controllers) {
            return Err(StatusCode::CONNECT_CONTROLLER_BUSY.into());
        }
        if of_subsystems().count() < limits.controllers {
            return Ok(());
        }
        // A client that knows a host's NQN but not its secret holds a controller until its
        // handshake fails.
        let is_unauthenticated_admin = |id: ConnectionId| {
            let connection = self.connections.get(id).expect("a half-open connection exists");
            connection.queue() == Some(0) && !connection.may_command()
        };
        match self.half_open.eviction_candidate(is_unauthenticated_admin) {
            Some(silent) => {
                self.close(now, silent, &CloseReason::Evicted);
                Ok(())
            }
            None => Err(StatusCode::CONNECT_CONTROLLER_BUSY.into()),
        }
    }

    /// Whether one more connection can become a queue of an unauthenticated host.
    pub(crate) fn has_slot_for_open_queue(&self) -> bool {
        let limits = &self.limits;
        let places = share(limits.connections);
        // An empty table needs no count, which keeps the common case cheap.
        self.connections.len() < places
            || self.connections.iter().filter(|(_, it)| it.queue().is_some() && it.auth.is_none()).count() < places
    }

    /// Whether a controller's host did not need to authenticate.
    fn is_open(&self, controller: &Controller) -> bool {
        let admin = controller.admin_queue().and_then(|admin| self.connections.get(admin));
        admin.is_some_and(|admin| admin.auth.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_reserves_a_quarter_and_is_never_zero() {
        assert_eq!([1, 2, 4, 256].map(share), [1, 2, 3, 192]);
    }
}
