//! What clients hold of the server's memory, and those whose next request waits for some.

use zonda_nbd::Connection;
use zonda_target::{Account, Budget, ConnectionId, SHARE_BYTES};

use super::limits::REPLY_ROOM_BYTES;
use super::service::{Client, Nbd};

/// Clients that wait for memory.
#[derive(Default)]
pub(super) struct MemoryQueue {
    /// In the order in which they came, each once.
    waiting: Vec<ConnectionId>,
    /// [`Budget::releases`] when they were last looked at.
    releases_seen: u64,
    /// Of clients that are gone.
    closed: Vec<Account>,
}

/// What one client holds.
#[derive(Default)]
pub(super) struct ClientMemory {
    account: Account,
    /// What its machine may hold.
    allowed_bytes: usize,
    is_waiting: bool,
}

impl ClientMemory {
    /// Of a client that has just come: it may hold its share.
    pub(super) fn new(machine: &mut Connection) -> ClientMemory {
        machine.allow(SHARE_BYTES);
        ClientMemory { allowed_bytes: SHARE_BYTES, ..ClientMemory::default() }
    }

    /// What this client holds of what others may wait for.
    pub(super) fn pool_bytes(&self, budget: &Budget) -> usize {
        budget.pool_bytes_of(&self.account)
    }
}

impl MemoryQueue {
    /// Counts what a client holds, and finds memory for its next request. Returns whether it goes on with that.
    pub(super) fn divide(&mut self, id: ConnectionId, client: &mut Client, budget: &mut Budget) -> bool {
        let Client { machine, memory, .. } = client;
        let held = machine.held_bytes();
        budget.set(&mut memory.account, held);
        let allowed = memory.allowed_bytes.min(held + REPLY_ROOM_BYTES).max(SHARE_BYTES);
        if allowed != memory.allowed_bytes {
            memory.allowed_bytes = allowed;
            machine.allow(allowed);
        }
        let Some(wanted) = machine.wanted_bytes() else {
            budget.withdraw(&mut memory.account);
            return false;
        };
        let wanted = wanted + REPLY_ROOM_BYTES;
        if !budget.admit(&mut memory.account, wanted - held) {
            if !memory.is_waiting {
                memory.is_waiting = true;
                self.waiting.push(id);
            }
            return false;
        }
        memory.allowed_bytes = wanted;
        machine.allow(wanted);
        true
    }

    /// A client is gone.
    pub(super) fn close(&mut self, memory: ClientMemory) {
        self.closed.push(memory.account);
    }
}

impl Nbd {
    /// What clients that are gone have held is free; what of it they still hold elsewhere is counted there.
    pub(super) fn release_closed(&mut self, budget: &mut Budget) {
        self.memory.closed.drain(..).for_each(|account| budget.close(account, 0));
    }

    /// Has clients that wait looked at again, if something has been released since. Returns whether that is so.
    pub(super) fn wake_waiting(&mut self, budget: &Budget) -> bool {
        if self.memory.waiting.is_empty() || self.memory.releases_seen == budget.releases() {
            return false;
        }
        self.memory.releases_seen = budget.releases();
        for id in self.memory.waiting.drain(..) {
            if let Some(client) = self.clients.get_mut(&id) {
                client.memory.is_waiting = false;
                self.dirty.push(id);
            }
        }
        true
    }
}
