//! Preempt and abort: the command completes once no command of another host is outstanding.
//!
//! A device cannot abort a command. So the preemption completes only when all commands of other
//! hosts at the device have completed, including those of closed connections: the preempting host
//! then reads data that no longer changes.

use std::collections::BTreeSet;

use zonda_nvme::HostId;
use zonda_zoned::Instant;

use super::ReservationRequestKey;
use crate::subsystems::NamespaceIndex;
use crate::target::{CommandKey, Owner, Target};

/// A preemption that waits.
#[derive(Debug)]
pub(crate) struct Fence {
    request: ReservationRequestKey,
    /// Commands at devices.
    waits_for: BTreeSet<CommandKey>,
}

impl Fence {
    /// The commands that it waits for.
    pub(crate) fn commands(&self) -> impl Iterator<Item = CommandKey> + '_ {
        self.waits_for.iter().copied()
    }

    pub(crate) fn request(&self) -> ReservationRequestKey {
        self.request
    }

    pub(crate) fn is_over(&self) -> bool {
        self.waits_for.is_empty()
    }
}

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
        self.fences.push(Fence { request, waits_for });
    }

    /// A device has completed a command that preemptions may wait for.
    #[inline]
    pub(crate) fn pass_fences(&mut self, now: Instant, command: CommandKey) {
        if self.fences.is_empty() {
            return;
        }
        for fence in &mut self.fences {
            fence.waits_for.remove(&command);
        }
        let mut ended = Vec::new();
        while let Some(over) = self.fences.iter().position(Fence::is_over) {
            let fence = self.fences.remove(over);
            ended.push(self.connection_of(fence.request));
            // A disconnected host gets no response; the preemption holds all the same.
            self.complete_request(fence.request, Ok(()));
        }
        self.close_drained(now, ended);
    }
}
