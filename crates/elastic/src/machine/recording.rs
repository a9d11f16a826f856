//! Records: from a change to the log of the pool, and on to whoever waits until it is durable.

use zonda_zoned::{NamespaceId, Operation, Origin, Status, ZoneAction};

use super::{LogRetry, Op, Pool, PoolEvent, Record, Ticket, Waiter, metadata};
use crate::log::LogEffect;

impl Pool {
    pub(super) fn record(&mut self, record: &Record, waiter: Waiter) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiters.insert(ticket, waiter);
        self.log.add(record, ticket);
    }

    pub(super) fn record_vzone(&mut self, namespace: u32, vzone: u32, waiter: Waiter) {
        let record = self.namespaces[&namespace].vzones[vzone as usize].record(namespace, vzone);
        self.record(&Record::VZone(record), waiter);
    }

    /// Sends what the log has to write, and tells those who wait for records.
    #[inline]
    pub(super) fn pump_log(&mut self) {
        // Called with each command, and hardly one has a record.
        if !self.log.is_quiet() {
            self.pump_busy_log();
        }
    }

    fn pump_busy_log(&mut self) {
        loop {
            while let Some((ticket, is_durable)) = self.log.poll_durable() {
                let waiter = self.waiters.remove(&ticket).expect("a ticket comes back once");
                self.on_recorded(waiter, is_durable);
            }
            let (shape, epoch, next) = (self.shape, self.epoch, self.zones.next_reservation());
            let (namespaces, zones, zone_count) = (&self.namespaces, &self.zones, self.drive.zone_count);
            let snapshot = || metadata::snapshot_of(&shape, epoch, next, namespaces, zones, zone_count);
            let Some(effect) = self.log.poll_effect(snapshot) else {
                if self.log.has_durable() {
                    continue;
                }
                return;
            };
            match effect {
                LogEffect::Reset { copy, zone } => self.issue_for_log(Some(copy), LogRetry::Reset { zone }, 1),
                LogEffect::Write { copy, zone, zone_block, block } => {
                    let operation = self.write_of_block(zone, zone_block, block);
                    self.issue(Op::Log { copy: Some(copy), retry: None, tries: 1 }, operation, Origin::default());
                }
                LogEffect::Flush => {
                    let number = self.zones.begin_flush();
                    self.issue_for_log(None, LogRetry::Flush { number }, 1);
                }
            }
        }
    }

    fn issue_for_log(&mut self, copy: Option<usize>, retry: LogRetry, tries: u8) {
        let operation = match retry {
            LogRetry::Flush { .. } => Operation::Flush,
            LogRetry::Reset { zone } => self.manage_zone(zone, ZoneAction::Reset),
        };
        self.issue(Op::Log { copy, retry: Some(retry), tries }, operation, Origin::default());
    }

    pub(super) fn on_log_effect(&mut self, copy: Option<usize>, retry: Option<LogRetry>, tries: u8, status: Status) {
        match (retry, Pool::another_try(tries, status)) {
            (Some(retry), Some(tries)) => return self.issue_for_log(copy, retry, tries),
            (Some(LogRetry::Flush { number }), None) if status.is_success() => self.zones.end_flush(number),
            _ => {}
        }
        // The copy goes on once the pool is opened again.
        self.log_lacks_space |= status == Status::CapacityExceeded;
        self.log.on_completion(copy, status.is_success());
    }

    fn on_recorded(&mut self, waiter: Waiter, is_durable: bool) {
        if !is_durable && !self.is_read_only {
            self.is_read_only = true;
            self.events.push_back(PoolEvent::ReadOnly);
            self.refuse_requests(self.status_of_record(false));
        }
        match waiter {
            Waiter::Nothing => {}
            Waiter::Start if is_durable => self.on_started(true),
            // Records that are only in the drive's cache may name what was made or deleted. What users
            // have seen once must not be undone by a power loss.
            Waiter::Start => self.issue(Op::StartFlush { tries: 1 }, Operation::Flush, Origin::default()),
            Waiter::Group { namespace, vzone, generation } => {
                self.on_group_recorded(namespace, vzone, generation, is_durable);
            }
            Waiter::Finish { namespace, vzone } => self.on_finish_recorded(namespace, vzone, is_durable),
            Waiter::Reset { namespace, vzone } => self.on_reset_recorded(namespace, vzone, is_durable),
            Waiter::Change { namespace, vzone } => self.on_change_recorded(namespace, vzone, is_durable),
            Waiter::Fail { namespace, vzone } => self.on_fail_recorded(namespace, vzone, is_durable),
            Waiter::Repair { namespace, vzone } => self.on_repair_recorded(namespace, vzone, is_durable),
            Waiter::Reclaim { namespace, vzone } => self.on_reclaim_recorded(namespace, vzone, is_durable),
            Waiter::Created { namespace } => self.on_created(namespace, is_durable),
            Waiter::Resized { namespace } => {
                self.events.push_back(PoolEvent::Resized { namespace: NamespaceId(namespace), is_durable });
            }
            Waiter::Deleted { namespace } => self.on_deleted(namespace, is_durable),
        }
    }
}
