//! Groups that can not be written any more: because they are full, by a Finish, or by a Reset.

use zonda_zoned::{Key, Operation, Origin, Status, ZoneAction};

use super::{Ending, Op, Pool, Record, Waiter};
use crate::bug::SeededBug;
use crate::vzone::{Busy, Held};

/// What a zone that is reset belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResetOf {
    VZone(u32, u32),
    /// A copy that was abandoned, or a group that was copied: its zones are active.
    Copy,
    /// Nothing: a mount has found it.
    NoVZone,
}

impl Pool {
    /// Finishes the zones of groups that are written to their end.
    pub(super) fn end_groups(&mut self, namespace: u32, vzone: u32) {
        loop {
            let found = self.namespaces.get_mut(&namespace).expect("a namespace stays while its v-zones are in use");
            let (capacity, own) = (found.record.zone_capacity_blocks, &found.vzones[vzone as usize]);
            let end = own.grants.front().map(|held| own.groups[held.group].blocks().end.min(capacity));
            if own.has_failed || end.is_none_or(|end| own.written < end) {
                if own.has_failed {
                    self.close_failed(namespace, vzone);
                }
                return;
            }
            self.end_first_group(namespace, vzone);
        }
    }

    pub(super) fn end_all_groups(&mut self, namespace: u32, vzone: u32) {
        while !self.vzone(namespace, vzone).grants.is_empty() {
            self.end_first_group(namespace, vzone);
        }
    }

    /// No block of a group is left to submit. What the next groups may have is counted without it from
    /// now on; its zones become inactive later, and until then the next groups wait for them.
    pub(super) fn drain(&mut self, namespace: u32, held: &mut Held) {
        if !std::mem::replace(&mut held.is_draining, true) {
            self.zones.begin_draining(held.grant.width);
            if !self.bug.has(SeededBug::KeptSpares) {
                self.balloon.release(namespace, held.grant);
            }
        }
    }

    /// All blocks of the v-zone's groups were submitted.
    pub(super) fn drain_last_group(&mut self, namespace: u32, vzone: u32) {
        let held = self.vzone(namespace, vzone).grants.pop_back();
        let mut held = held.expect("a group that is being written has resources");
        self.drain(namespace, &mut held);
        self.vzone(namespace, vzone).grants.push_back(held);
    }

    fn end_first_group(&mut self, namespace: u32, vzone: u32) {
        let own = self.vzone(namespace, vzone);
        let mut held = own.grants.pop_front().expect("the v-zone has a group that can be written");
        own.endings += 1;
        let zones = own.groups[held.group].zones().into();
        self.drain(namespace, &mut held);
        let ending = self.endings.insert(Ending { namespace, vzone, zones, outstanding: 0 });
        if self.bug.has(SeededBug::UnflushedEnd) {
            return self.on_end_flushed(ending, 1, Status::Success);
        }
        // A zone that is finished says nothing of what its cache has lost.
        self.issue(Op::EndFlush { ending, tries: 1 }, Operation::Flush, Origin::default());
    }

    pub(super) fn on_end_flushed(&mut self, key: Key<Ending>, tries: u8, status: Status) {
        if let Some(tries) = Pool::another_try(tries, status) {
            return self.issue(Op::EndFlush { ending: key, tries }, Operation::Flush, Origin::default());
        }
        if !status.is_success() {
            // Blocks that a finished zone has lost would be zeros: these stay active until a mount.
            let zones = self.endings[key].zones.len();
            (0..zones).for_each(|_| self.zones.begin_doubt());
            return self.end_ending(key);
        }
        let zones = self.endings[key].zones.clone();
        self.endings[key].outstanding = zones.len() as u32;
        for zone in zones {
            self.finish_zone(key, zone, 1);
        }
    }

    fn finish_zone(&mut self, ending: Key<Ending>, zone: u32, tries: u8) {
        let operation = self.manage_zone(zone, ZoneAction::Finish);
        self.issue(Op::EndFinish { ending, zone, tries }, operation, Origin::default());
    }

    pub(super) fn on_end_finished(&mut self, key: Key<Ending>, zone: u32, tries: u8, status: Status) {
        if let Some(tries) = Pool::another_try(tries, status) {
            return self.finish_zone(key, zone, tries);
        }
        self.doubt_unless_inactive(zone, status);
        let ending = &mut self.endings[key];
        ending.outstanding -= 1;
        if ending.outstanding == 0 {
            self.end_ending(key);
        }
    }

    fn end_ending(&mut self, key: Key<Ending>) {
        let Ending { namespace, vzone, zones, .. } = self.endings.remove(key);
        self.zones.release_active(zones.len() as u32);
        let own = self.vzone(namespace, vzone);
        own.endings -= 1;
        if let (0, Some(Busy::Ending(host))) = (own.endings, own.busy) {
            own.busy = None;
            self.end_part(host, Status::Success);
        }
        self.pump(namespace, vzone);
        self.serve();
    }

    pub(super) fn on_finish_recorded(&mut self, namespace: u32, vzone: u32, is_durable: bool) {
        let own = self.vzone(namespace, vzone);
        let Some(Busy::Finish(host, number)) = own.busy else { unreachable!("the v-zone waits for its record") };
        own.torn = None;
        own.is_unrecorded = !is_durable;
        let has_groups = !own.grants.is_empty() || own.endings > 0;
        if is_durable && has_groups {
            own.busy = Some(Busy::Ending(host));
            self.end_all_groups(namespace, vzone);
            self.on_released(namespace, number);
            return;
        }
        self.on_released(namespace, number);
        let own = self.vzone(namespace, vzone);
        own.busy = None;
        let status = self.status_of_record(is_durable);
        self.end_part(host, status);
        self.pump(namespace, vzone);
    }

    /// Resets a v-zone: first it is recorded, so that no crash leaves a part of it.
    pub(super) fn begin_reset(&mut self, namespace: u32, vzone: u32, host: Option<(Key<super::Host>, u64)>) {
        let own = self.vzone(namespace, vzone);
        own.generation += 1;
        let mut zones: Vec<u32> = own.groups.iter().flat_map(|group| group.zones().iter().copied()).collect();
        if own.is_damaged {
            // Zones that do not say that they are the pool's may be another program's.
            let foreign: Vec<u32> = zones.extract_if(.., |zone| self.zones.reservation(*zone) == 0).collect();
            foreign.into_iter().for_each(|zone| self.zones.set_aside(zone));
        }
        let is_kept = self.bug.has(SeededBug::KeptExtension);
        let own = self.vzone(namespace, vzone);
        let groups = std::mem::take(&mut own.groups);
        let grants = std::mem::take(&mut own.grants);
        let written_before = own.written;
        (own.issued, own.written, own.torn) = (0, 0, None);
        (own.is_finished, own.has_failed, own.is_ready, own.is_unmovable) = (false, false, false, false);
        (own.is_unrecorded, own.is_finished_by_pool) = (false, false);
        own.lacks_space = false;
        own.extension.take_if(|_| !is_kept);
        own.busy = Some(Busy::Reset { host, zones_left: zones.len() as u32, status: Status::Success, written_before });
        drop(groups);
        for mut held in grants {
            self.repairs.remove(&(namespace, vzone));
            // The zones stay active until they are reset, which comes before any is reserved for them.
            self.drain(namespace, &mut held);
            *self.leaving_widths.entry((namespace, vzone)).or_default() += held.grant.width;
        }
        self.leaving_zones.insert((namespace, vzone), zones);
        if self.bug.has(SeededBug::EarlyReset) {
            self.record_vzone(namespace, vzone, Waiter::Nothing);
            return self.on_reset_recorded(namespace, vzone, true);
        }
        self.record_vzone(namespace, vzone, Waiter::Reset { namespace, vzone });
    }

    pub(super) fn on_reset_recorded(&mut self, namespace: u32, vzone: u32, is_durable: bool) {
        let zones = self.leaving_zones.remove(&(namespace, vzone)).unwrap_or_default();
        let refusal = self.status_of_record(false);
        let own = self.vzone(namespace, vzone);
        let Some(Busy::Reset { zones_left, status, host, .. }) = &mut own.busy else {
            unreachable!("the v-zone waits for its record")
        };
        let number = host.map(|(_, number)| number);
        if !is_durable {
            // The zones keep their data, and belong to no one until the next mount.
            (*zones_left, *status) = (0, refusal);
            own.has_failed = true;
            let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
            found.table.degrade(zonda_zoned::ZoneIndex(vzone), zonda_zoned::ZoneState::Offline);
        }
        if let Some(number) = number {
            self.on_released(namespace, number);
        }
        self.end_failure(namespace, vzone);
        if !is_durable {
            self.end_reset(namespace, vzone);
            return;
        }
        if zones.is_empty() {
            self.end_reset(namespace, vzone);
            return;
        }
        for zone in zones {
            self.reset_zone(zone, ResetOf::VZone(namespace, vzone));
        }
    }

    pub(super) fn reset_zone(&mut self, zone: u32, of: ResetOf) {
        self.zones.begin_reset(zone);
        self.issue_reset(zone, of, 1);
    }

    fn issue_reset(&mut self, zone: u32, of: ResetOf, tries: u8) {
        let operation = self.manage_zone(zone, ZoneAction::Reset);
        self.issue(Op::ResetZone { zone, of, tries }, operation, Origin::default());
    }

    pub(super) fn on_zone_reset(&mut self, zone: u32, of: ResetOf, tries: u8, status: Status) {
        if let Some(tries) = Pool::another_try(tries, status) {
            return self.issue_reset(zone, of, tries);
        }
        self.zones.on_reset(zone, status.is_success());
        if !status.is_success() {
            self.doubt_unless_inactive(zone, status);
            self.record(&Record::Retired { zone }, Waiter::Nothing);
        }
        match of {
            ResetOf::Copy => self.on_copy_reset(),
            ResetOf::NoVZone => self.on_start_reset(),
            ResetOf::VZone(namespace, vzone) => {
                let own = self.vzone(namespace, vzone);
                let Some(Busy::Reset { zones_left, .. }) = &mut own.busy else {
                    unreachable!("the v-zone is being reset")
                };
                *zones_left -= 1;
                if *zones_left == 0 {
                    self.end_reset(namespace, vzone);
                }
            }
        }
        self.serve();
    }

    fn end_reset(&mut self, namespace: u32, vzone: u32) {
        let own = self.vzone(namespace, vzone);
        let Some(Busy::Reset { host, status, .. }) = own.busy.take() else { unreachable!("the v-zone is being reset") };
        // Zones that keep their data because the reset is not recorded stay active.
        if status.is_success() {
            let width = self.leaving_widths.remove(&(namespace, vzone)).unwrap_or(0);
            self.zones.release_active(width);
        }
        match host {
            Some((host, _)) => self.end_part(host, status),
            None => self.on_vzone_left(namespace),
        }
        if self.namespaces.contains_key(&namespace) {
            self.pump(namespace, vzone);
        }
        self.serve();
    }
}
