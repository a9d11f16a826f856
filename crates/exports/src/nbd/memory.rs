//! Memory of clients, and clients whose next request waits for memory.

use zonda_nbd::Connection;
use zonda_target::{Account, Budget, ConnectionId, SHARE_BYTES};

use super::limits::REPLY_RESERVE_BYTES;
use super::service::{Client, Nbd};

/// Clients that wait for memory.
#[derive(Default)]
pub(super) struct MemoryQueue {
    /// In order of arrival, each once.
    waiting: Vec<ConnectionId>,
    /// [`Budget::releases`] when they were last checked.
    releases_seen: u64,
    /// Of closed connections.
    closed: Vec<Account>,
}

/// Memory of one client.
#[derive(Default)]
pub(super) struct ClientMemory {
    account: Account,
    /// What its connection may hold.
    allowed_bytes: usize,
    is_waiting: bool,
}

impl ClientMemory {
    /// For a new client: it may hold its share.
    pub(super) fn new(machine: &mut Connection) -> ClientMemory {
        machine.allow(SHARE_BYTES);
        ClientMemory { allowed_bytes: SHARE_BYTES, ..ClientMemory::default() }
    }

    /// Bytes that this client holds of the pool.
    pub(super) fn pool_bytes(&self, budget: &Budget) -> usize {
        budget.pool_bytes_of(&self.account)
    }
}

impl MemoryQueue {
    /// Accounts for the memory of a client, and allocates memory for its next request. Returns
    /// whether it can continue.
    pub(super) fn divide(&mut self, id: ConnectionId, client: &mut Client, budget: &mut Budget) -> bool {
        let Client { machine, memory, .. } = client;
        let held = machine.held_bytes();
        budget.set(&mut memory.account, held);
        let allowed = memory.allowed_bytes.min(held + REPLY_RESERVE_BYTES).max(SHARE_BYTES);
        if allowed != memory.allowed_bytes {
            memory.allowed_bytes = allowed;
            machine.allow(allowed);
        }
        let Some(wanted) = machine.wanted_bytes() else {
            budget.withdraw(&mut memory.account);
            return false;
        };
        let wanted = wanted + REPLY_RESERVE_BYTES;
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

    /// Closes the account of a client.
    pub(super) fn close(&mut self, memory: ClientMemory) {
        self.closed.push(memory.account);
    }
}

impl Nbd {
    /// Frees the memory of closed connections; what they still hold elsewhere is counted there.
    pub(super) fn release_closed(&mut self, budget: &mut Budget) {
        self.memory.closed.drain(..).for_each(|account| budget.close(account, 0));
    }

    /// Wakes waiting clients, if memory has been released since. Returns whether it has.
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
