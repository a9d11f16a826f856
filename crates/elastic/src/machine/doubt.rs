//! Commands to the drive that have failed: what is tried again, and zones that may still be active.
//!
//! A flush, a Finish or a Reset that fails is sent again a few times. A zone that should not be active
//! any more, and may be, is counted as one until the drive reports its state. A pool that lacked space, or
//! whose log has failed, is opened again as after a crash, without its hosts noticing more than a pause.

use zonda_zoned::{Geometry, NamespaceId, Operation, Origin, Outcome, ReportFilter, Status, ZoneAction, ZoneIndex};

use super::{Op, Pool};
use crate::limits::{COMMAND_TRIES_MAX, GROUP_WAIT_MAX};

impl Pool {
    /// Whether a command that has failed so is sent again, and how often it will have been sent then.
    pub(super) fn another_try(tries: u8, status: Status) -> Option<u8> {
        let is_final = status.is_success() || is_inactive_by(status) || tries >= COMMAND_TRIES_MAX;
        (!is_final).then_some(tries + 1)
    }

    /// A command that should have made this zone inactive has ended so, and is not sent again.
    pub(super) fn doubt_unless_inactive(&mut self, zone: u32, status: Status) {
        if !status.is_success() && !is_inactive_by(status) {
            self.zones.begin_doubt();
            self.ask_for_state(zone);
        }
    }

    /// A zone without data has failed, and is not used again: it is reset, since it may be active.
    pub(super) fn release_retired(&mut self, zone: u32) {
        self.zones.begin_doubt();
        self.issue_release(zone, 1);
    }

    fn issue_release(&mut self, zone: u32, tries: u8) {
        let operation = self.manage_zone(zone, ZoneAction::Reset);
        self.issue(Op::Release { zone, tries }, operation, Origin::default());
    }

    pub(super) fn on_release(&mut self, zone: u32, tries: u8, status: Status) {
        if let Some(tries) = Pool::another_try(tries, status) {
            return self.issue_release(zone, tries);
        }
        if status.is_success() || is_inactive_by(status) {
            self.zones.end_doubt();
            self.serve();
        } else {
            self.ask_for_state(zone);
        }
    }

    fn ask_for_state(&mut self, zone: u32) {
        let start = self.zone_lba(zone, 0);
        let filter = ReportFilter::All;
        let operation = Operation::ReportZones { start, filter, extended: false, partial: true, descriptors_max: 1 };
        self.issue(Op::State, operation, Origin::default());
    }

    /// Without an answer the zone is counted as active until the next mount.
    pub(super) fn on_state(&mut self, outcome: &Outcome) {
        let Outcome::Report(report) = outcome else { return };
        if report.zones.first().is_some_and(|zone| !zone.state.is_active()) {
            self.zones.end_doubt();
            self.serve();
        }
    }

    /// A write to a group of this v-zone has ended so.
    pub(super) fn note_space(&mut self, namespace: u32, vzone: u32, status: Status) {
        if status == Status::CapacityExceeded {
            self.vzone(namespace, vzone).lacks_space = true;
            self.lacks_space = true;
        }
    }

    /// Whether the pool could do more after it was opened again: changes cannot be recorded, or not in
    /// both copies of the log, or a write has lacked space, which there may be now.
    #[inline]
    pub(crate) fn must_reopen(&self) -> bool {
        self.is_started && (self.is_read_only || self.lacks_space || self.log_lacks_space)
    }

    /// Whether it takes no commands, because it is about to be opened again.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Takes no more commands, and ends those that wait.
    pub(crate) fn pause(&mut self) {
        self.is_paused = true;
        if self.granting.is_some() || !self.arbiter.is_empty() {
            let lacks_space = self.lacks_space || self.no_space_until.is_some();
            self.refuse_requests(if lacks_space { Status::CapacityExceeded } else { self.status_of_record(false) });
        }
    }

    /// It could not be opened again.
    pub(crate) fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Continues what the pool has said that was open before: its list of namespaces, its events, and which
    /// records are durable.
    pub(crate) fn succeed(&mut self, before: Pool) {
        self.log.assume_durable(before.durable_sequence());
        let events = std::mem::replace(&mut self.events, before.events);
        self.events.extend(events);
        let now = std::mem::replace(&mut self.listed, before.listed);
        let old: Vec<(NamespaceId, Geometry)> = self.listed.iter().map(|(id, own)| (id, own.clone())).collect();
        for (id, before) in old {
            let is_same = |own: &Geometry| own.zone_size_blocks == before.zone_size_blocks;
            if !now.geometry(id).is_some_and(is_same) {
                self.listed.remove(id);
            }
        }
        for (id, own) in now.iter() {
            match self.listed.geometry(id) {
                Some(_) => self.listed.resize(id, own.clone()),
                None => self.listed.add(id, own.clone()),
            }
        }
    }

    /// The last block of records of the log that is known to be durable.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.log.durable_sequence()
    }

    /// A v-zone with fewer blocks than an earlier pool of the same drive had acknowledged, or with an
    /// earlier reset, if there is one. One that is offline now is not: its host gets errors.
    pub(crate) fn lacks(&self, before: &Pool) -> Option<(NamespaceId, ZoneIndex)> {
        let listed = before.namespaces.iter().filter(|(_, own)| own.is_listed && !own.is_leaving);
        for (id, own) in listed {
            let namespace = NamespaceId(*id);
            let found = self.namespaces.get(id).filter(|found| found.record.uuid == own.record.uuid);
            let Some(found) = found else { return Some((namespace, ZoneIndex(0))) };
            for (zone, vzone) in (0..).map(ZoneIndex).zip(&own.vzones) {
                let is_uncertain = vzone.is_offline || vzone.is_damaged;
                let holds = match found.vzones.get(zone.as_usize()) {
                    Some(found) => found.is_offline || found.is_damaged || vzone.is_held_by(found),
                    None => vzone.written == 0,
                };
                if !is_uncertain && !holds {
                    return Some((namespace, zone));
                }
            }
        }
        None
    }

    /// V-zones wait for a group, and none will come: zones of the drive have failed, or stay active and
    /// cannot be finished. After a while their writes fail.
    pub(super) fn refuse_if_stuck(&mut self) {
        let is_waiting = !self.arbiter.is_empty() || self.granting.is_some();
        let may_get = self.zones.obtainable_soon() > 0 || self.zones.draining() > 0 || self.zones.are_any_resetting();
        if !is_waiting || may_get {
            self.stuck_since = None;
            return;
        }
        let since = *self.stuck_since.get_or_insert(self.now);
        if self.now.since(since) >= GROUP_WAIT_MAX {
            self.stuck_since = None;
            let is_full = self.zones.is_exhausted();
            self.refuse_requests(if is_full { Status::CapacityExceeded } else { Status::TooManyActiveZones });
        }
    }
}

/// Whether a zone is certainly inactive when a command to it ends so.
fn is_inactive_by(status: Status) -> bool {
    matches!(status, Status::ZoneIsReadOnly | Status::ZoneIsOffline)
}
