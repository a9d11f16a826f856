//! Preempt and abort: the answer waits until nothing of other hosts is under way any more.
//!
//! A device cannot give a command back. So the host that takes a namespace over is answered once every command that others had
//! brought to the device has ended there, those of connections that are gone among them: what it then reads stays as it is.

use std::collections::BTreeSet;

use zonda_nvme::HostId;
use zonda_zoned::Instant;

use crate::target::{Owner, Target};

/// A preemption that waits.
#[derive(Debug)]
pub(crate) struct Fence {
    /// Whose it is.
    ask: u64,
    /// Keys of commands at devices.
    waits_for: BTreeSet<u64>,
}

impl Fence {
    /// Keys of what it waits for.
    pub(crate) fn commands(&self) -> impl Iterator<Item = u64> + '_ {
        self.waits_for.iter().copied()
    }

    pub(crate) fn ask(&self) -> u64 {
        self.ask
    }

    pub(crate) fn is_over(&self) -> bool {
        self.waits_for.is_empty()
    }
}

impl Target {
    /// Answers a preemption at once, or when the commands of others on the namespace have ended.
    pub(super) fn fence(&mut self, ask: u64, namespace: u32, host: HostId) {
        let is_own = |owner: Owner| match owner {
            Owner::Request(other, _) => self.host_of(other) == Some(host),
            // Nobody's: it changes nothing that a host has written.
            Owner::Survey(_) => true,
            // Nobody knows whose it was.
            Owner::Shutdown(_) | Owner::Gone => false,
        };
        let others = self.commands.iter().filter(|(_, it)| it.namespace == namespace && !is_own(it.owner));
        let waits_for: BTreeSet<u64> = others.map(|(key, _)| key).collect();
        if waits_for.is_empty() {
            return self.end_ask(ask, Ok(()));
        }
        self.fences.push(Fence { ask, waits_for });
    }

    /// A device has ended a command that preemptions may wait for.
    #[inline]
    pub(crate) fn pass_fences(&mut self, now: Instant, command: u64) {
        if self.fences.is_empty() {
            return;
        }
        for fence in &mut self.fences {
            fence.waits_for.remove(&command);
        }
        let mut ended = Vec::new();
        while let Some(over) = self.fences.iter().position(Fence::is_over) {
            let fence = self.fences.remove(over);
            ended.push(self.connection_of(fence.ask));
            // A host that is gone hears nothing; the preemption holds all the same.
            self.end_ask(fence.ask, Ok(()));
        }
        self.close_drained(now, ended);
    }
}
