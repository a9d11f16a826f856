//! Preempt and abort: the answer waits until nothing of other hosts is under way any more.
//!
//! A device cannot give a command back. So the host that takes a namespace over is answered once every command that others had
//! brought to the device has ended there, those of connections that are gone among them: what it then reads stays as it is.

use std::collections::BTreeSet;

use zonda_nvme::{HostId, StatusCode};

use crate::connection::receive::Answer;
use crate::effects::ConnectionId;
use crate::target::{Owner, Target};

/// A preemption that waits.
#[derive(Debug)]
pub(crate) struct Fence {
    connection: ConnectionId,
    /// Of the connection's requests.
    command_id: u16,
    /// Keys of commands at devices.
    waits_for: BTreeSet<u64>,
}

impl Fence {
    /// Keys of what it waits for.
    pub(crate) fn commands(&self) -> impl Iterator<Item = u64> + '_ {
        self.waits_for.iter().copied()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.waits_for.is_empty()
    }
}

impl Target {
    /// Answers a preemption at once, or when the commands of others on the namespace have ended.
    pub(super) fn fence(&mut self, connection: ConnectionId, command_id: u16, namespace: u32, host: HostId) -> Answer {
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
            return Answer::Now(0);
        }
        self.fences.push(Fence { connection, command_id, waits_for });
        Answer::Later
    }

    /// A device has ended a command that preemptions may wait for.
    #[inline]
    pub(crate) fn pass_fences(&mut self, command: u64) {
        if self.fences.is_empty() {
            return;
        }
        for fence in &mut self.fences {
            fence.waits_for.remove(&command);
        }
        while let Some(over) = self.fences.iter().position(Fence::is_over) {
            let fence = self.fences.remove(over);
            // A host that is gone hears nothing; the preemption holds all the same.
            self.respond(fence.connection, fence.command_id, StatusCode::SUCCESS, 0);
        }
    }
}
