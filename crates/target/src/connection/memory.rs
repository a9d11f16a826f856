//! Accounts for the memory that connections hold, and admits the requests that wait for memory.
//!
//! A request waits where it holds no memory and delays no data that an R2T has solicited:
//!
//! - Reads, and writes that need an R2T, wait in the table of requests. Reception continues.
//! - Commands that return data at once, such as Get Log Page, and commands with in-capsule data
//!   wait in the byte stream, and reception stops. They wait only while no R2T is outstanding,
//!   since its data would come after them. If one is outstanding, commands with in-capsule data are
//!   accepted regardless, since the device frees the data without the host's help, and the others
//!   complete with Command Interrupted, after which hosts retry them.

use bytes::Bytes;
use zonda_nvme::tcp::{ADMIN_CAPSULE_DATA_BYTES, Pdu};
use zonda_nvme::{AdminOpcode, DataPlace, IoOpcode, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::{Connection, Held, Work};
use crate::budget::Budget;
use crate::effects::{CloseReason, ConnectionId, Effect};
use crate::limits::{LOG_PAGE_BYTES_MAX, STALL_INTERVAL};
use crate::target::Target;

/// Bits of an opcode, or of a Fabrics command type, with the data transfer direction (NVMe Base
/// 2.0, section 3.3.3.1).
const DIRECTION: u8 = 0b11;
const TO_HOST: u8 = 0b10;

impl Target {
    /// The budget that the connections of this target share.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The same, for other users of the budget in the server. Call [`Target::resume`] after
    /// releasing bytes.
    pub fn budget_mut(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// Resumes requests that have waited for memory, as far as memory is free now.
    pub fn resume(&mut self, now: Instant) {
        while !self.short_of_memory.is_empty() && self.releases_seen != self.budget.releases() {
            self.releases_seen = self.budget.releases();
            for connection in std::mem::take(&mut self.short_of_memory) {
                let Some(state) = self.connections.get_mut(connection) else { continue };
                state.is_short_of_memory = false;
                // A parked command may have resumed as more bytes came, or its host has to read
                // first.
                if !state.requests.has_waiting() && (state.parked.is_none() || state.paused) {
                    self.budget.withdraw(&mut state.account);
                }
                if state.stopped {
                    self.stalled.push_back(connection);
                }
                self.start_waiting(connection);
            }
            self.continue_stalled_once(now);
        }
        self.watch_stalls(now);
    }

    /// While any connection waits for memory of the budget, here or elsewhere, monitors those that
    /// hold it.
    pub(crate) fn watch_stalls(&mut self, now: Instant) {
        if !self.budget.has_waiting() {
            self.stalls_at = None;
        } else if self.stalls_at.is_none() {
            self.stalls_at = Some(now + STALL_INTERVAL);
        }
    }

    /// Reports to the budget what a connection holds now.
    #[inline]
    pub(crate) fn count_memory(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            let held_bytes = connection.held_bytes();
            self.budget.set(&mut connection.account, held_bytes);
        }
    }

    /// Admits the memory that a PDU needs at once. `None`: it waits, or was refused.
    #[inline]
    pub(crate) fn admit_pdu(&mut self, id: ConnectionId, pdu: Pdu) -> Option<Pdu> {
        let Pdu::Command { entry, data, .. } = &pdu else { return Some(pdu) };
        let connection = self.connections.get_mut(id)?;
        let answer_bytes = answer_bytes(connection, entry);
        let bytes = data.len() + answer_bytes;
        if bytes == 0 {
            return Some(pdu);
        }
        let may_wait = connection.requests.missing_bytes() == 0;
        let account = &mut connection.account;
        let is_admitted = match may_wait && !connection.is_short_of_memory {
            true => self.budget.admit(account, bytes),
            false => self.budget.try_admit(account, bytes),
        };
        if is_admitted {
            return Some(pdu);
        }
        if may_wait {
            connection.parked = Some(Box::new(pdu));
            if !connection.stopped {
                connection.stopped = true;
                self.effects.push_back(Effect::Pause { connection: id });
            }
            self.wait_for_memory(id);
            return None;
        }
        if answer_bytes > 0 {
            let entry = *entry;
            connection.advance_head();
            self.refuse(id, &entry, StatusCode::COMMAND_INTERRUPTED);
            self.count_memory(id);
            return None;
        }
        Some(pdu)
    }

    /// Starts the requests that wait, in order, as far as memory is free: submits reads to the
    /// device, and sends R2Ts for data of hosts. One R2T solicits all data of a command.
    pub(crate) fn start_waiting(&mut self, id: ConnectionId) {
        let limit = self.limits.receive_bytes;
        let mut has_solicited = false;
        while let Some(connection) = self.connections.get_mut(id)
            && let Some((tag, request)) = connection.requests.first_waiting()
        {
            if matches!(request.work, Work::Io { namespace, .. } if self.subsystems.namespace(namespace).is_paused()) {
                self.hold(id, tag, Held::BeforeMemory);
                self.withdraw_if_nothing_waits(id);
                continue;
            }
            let (command_id, incoming_bytes) = (request.command_id, request.incoming_bytes());
            let needed_bytes = request.needed_bytes();
            if incoming_bytes > 0 && connection.requests.solicited_bytes() + incoming_bytes > limit {
                if !connection.is_short_of_memory {
                    // The request itself is among those that wait.
                    self.budget.withdraw(&mut connection.account);
                }
                break;
            }
            if !self.budget.admit(&mut connection.account, needed_bytes) {
                self.wait_for_memory(id);
                break;
            }
            connection.requests.admit_first();
            if incoming_bytes == 0 {
                self.start_io(id, tag, Bytes::new());
                continue;
            }
            connection.writer.ready_to_transfer(command_id, tag.to_wire(), 0, incoming_bytes as u32);
            connection.limit_reader(&self.limits);
            has_solicited = true;
        }
        if has_solicited {
            self.mark_dirty(id);
        }
    }

    /// Ends the wait of a connection for memory if nothing of it waits any more.
    pub(crate) fn withdraw_if_nothing_waits(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.has_waiting()
        {
            self.budget.withdraw(&mut connection.account);
        }
    }

    fn wait_for_memory(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.is_short_of_memory
        {
            connection.is_short_of_memory = true;
            self.short_of_memory.push_back(id);
        }
    }

    /// Closes connections that hold memory of the pool while others wait for it, if their hosts
    /// hardly read or send.
    pub(crate) fn close_stalled(&mut self, now: Instant) {
        for id in self.connections.keys() {
            let connection = self.connections.get_mut(id).expect("the connection was just found");
            let is_owed = connection.unsent_bytes > 0 || connection.requests.missing_bytes() > 0;
            let pool_bytes = self.budget.pool_bytes_of(&connection.account);
            if connection.progress.is_stalled(pool_bytes, is_owed) {
                self.close(now, id, &CloseReason::Stalled);
            }
        }
    }
}

/// Bytes of data that a command returns at once.
#[inline]
fn answer_bytes(connection: &Connection, entry: &SubmissionEntry) -> usize {
    let is_fabrics = entry.opcode == AdminOpcode::Fabrics.code();
    let code = if is_fabrics { entry.namespace.get() as u8 } else { entry.opcode };
    if code & DIRECTION != TO_HOST {
        return 0;
    }
    let is_io = !is_fabrics && connection.queue().is_some_and(|queue| queue > 0);
    // Commands for a device wait in the table.
    if is_io && code != IoOpcode::ReservationReport.code() {
        return 0;
    }
    // Requests above the limit are refused.
    let most = if is_fabrics { ADMIN_CAPSULE_DATA_BYTES } else { LOG_PAGE_BYTES_MAX };
    match entry.data_place() {
        Ok(DataPlace::Transport { length }) => length.min(most) as usize,
        _ => 0,
    }
}
