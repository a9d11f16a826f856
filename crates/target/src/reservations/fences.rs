//! The wait of preemptions for commands of other hosts: see [`requests`](super::requests).

use std::collections::BTreeSet;

use zonda_nvme::HostId;
use zonda_zoned::Instant;

use super::ReservationRequestKey;
use crate::subsystems::NamespaceIndex;
use crate::target::{CommandKey, Owner, Target};

impl Target {
    /// Completes a preemption at once, or when the commands of other hosts on the namespace have
    /// completed.
    pub(super) fn fence(&mut self, request: ReservationRequestKey, namespace: NamespaceIndex, host: HostId) {
        let is_own = |owner: Owner| match owner {
            Owner::Request(other, _) => self.host_of(other) == Some(host),
            // The target's own: it changes no data.
            Owner::Survey(_) => true,
            // The host is not known any more.
            Owner::Shutdown(_) | Owner::Orphaned => false,
        };
        let others = self.commands.iter().filter(|(_, it)| it.namespace == namespace && !is_own(it.owner));
        let waits_for: BTreeSet<CommandKey> = others.map(|(key, _)| key).collect();
        if waits_for.is_empty() {
            return self.complete_request(request, Ok(()));
        }
        self.reservation_requests.wait_for(request, waits_for);
    }

    /// A device has completed a command that preemptions may wait for.
    #[inline]
    pub(crate) fn pass_fences(&mut self, now: Instant, command: CommandKey) {
        if self.reservation_requests.fences() == 0 {
            return;
        }
        self.reservation_requests.pass(command);
        let mut ended = Vec::new();
        while let Some(request) = self.reservation_requests.pop_passed() {
            ended.push(self.reservation_requests.connection_of(request));
            // A disconnected host gets no response; the preemption holds all the same.
            self.complete_request(request, Ok(()));
        }
        self.close_drained(now, ended);
    }
}
