//! A pool from what was read.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::{Blocks, Instant, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use super::{Found, Start, StartError, ZoneFound};
use crate::balloon::Grant;
use crate::bug::SeededBug;
use crate::format::{Owner, PoolId, Reservation, VZoneRecord};
use crate::group::Group;
use crate::limits::{HEADER_BLOCKS, LOG_ZONES};
use crate::log::{CopyEnd, Log};
use crate::machine::{Namespace, Pool, PoolParts};
use crate::shape::{PoolOptions, Shape};
use crate::vzone::{Held, VZone};
use crate::zones::{ZoneUse, Zones};

impl Start {
    pub(super) fn create(&mut self, now: Instant, id: PoolId, options: PoolOptions) -> Result<Pool, StartError> {
        let not_empty = self.zones.iter().filter(|zone| zone.state != ZoneState::Empty).count();
        if not_empty > 0 {
            return Err(StartError::NotEmpty { zones: not_empty as u32 });
        }
        let shape = Shape::of_drive(&self.drive, options).map_err(StartError::Unfit)?;
        let mut zones = Zones::new(self.drive.zone_count, LOG_ZONES, shape.active_max(), 1);
        (LOG_ZONES..self.drive.zone_count).for_each(|zone| zones.set(zone, ZoneUse::Free, 0));
        let last = LOG_ZONES as usize / 2 - 1;
        let ends = [CopyEnd { current: last, generation: 0, read: None }; 2];
        let log =
            Log::new(id, self.drive.block_size_bytes as usize, self.drive.zone_capacity_blocks.0, 0, ends, self.bug);
        Ok(self.pool(now, id, shape, 1, zones, log))
    }

    fn pool(&self, now: Instant, id: PoolId, shape: Shape, epoch: u64, zones: Zones, log: Log) -> Pool {
        let (drive, drive_namespace, kind, bug) = (self.drive.clone(), self.namespace, self.kind, self.bug);
        Pool::from_parts(now, PoolParts { id, drive, drive_namespace, kind, shape, epoch, zones, log, bug })
    }

    pub(super) fn adopt(&mut self, now: Instant) -> Result<Pool, StartError> {
        let found = self.found.take().expect("the log was read");
        let shape = Shape::of_record(&self.drive, &found.pool).map_err(StartError::Unfit)?;
        let zone_count = self.drive.zone_count;
        let newest = self.headers.values().filter_map(|header| header.reservation?.ok()).map(|it| it.number).max();
        let next_reservation = newest.map_or(0, |newest| newest + 1).max(found.pool.next_reservation);
        let mut zones = Zones::new(zone_count, LOG_ZONES, shape.active_max(), next_reservation);
        let mut owned: BTreeSet<u32> = BTreeSet::new();
        let (mut to_reset, mut active_to_reset) = (Vec::new(), 0);
        let mut mounted: BTreeMap<(u32, u32), VZone> = BTreeMap::new();
        for (key, record) in &found.vzones {
            let mut all = record.groups.iter().flat_map(|group| &group.zones);
            if let Some(zone) = all.find(|zone| !(LOG_ZONES..zone_count).contains(zone)) {
                return Err(StartError::LogDamaged(format!("zone {zone} cannot be in a stripe group")));
            }
            let capacity = found.namespaces[&record.namespace].zone_capacity_blocks;
            let own = self.mount_vzone(&shape, record, capacity)?;
            for zone in own.groups.iter().flat_map(|group| group.zones()) {
                if !owned.insert(*zone) {
                    return Err(StartError::LogDamaged(format!("zone {zone} is in two places")));
                }
                let number = self.reservation_in(*zone).map_or(0, |reservation| reservation.number);
                zones.set(*zone, ZoneUse::Group { namespace: key.0, vzone: key.1 }, number);
            }
            mounted.insert(*key, own);
        }
        // The newest records are lost: nothing of these v-zones is taken for what they hold, and none of
        // their zones is reset. They are recorded as offline, since later mounts cannot tell.
        let unrecorded = self.unrecorded_groups(&found, &mounted, &owned);
        for ((namespace, vzone), (generation, _)) in &unrecorded {
            let own = mounted.entry((*namespace, *vzone)).or_default();
            (own.is_damaged, own.is_offline) = (true, true);
            own.generation = own.generation.max(*generation);
        }
        let kept: BTreeSet<u32> = unrecorded.into_values().flat_map(|(_, zones)| zones).collect();
        let mut retired_active = Vec::new();
        let retired: BTreeSet<u32> = found.retired.iter().copied().collect();
        for zone in (LOG_ZONES..zone_count).filter(|zone| !owned.contains(zone)) {
            let ZoneFound { state, .. } = self.zones[zone as usize];
            let to = match state {
                _ if retired.contains(&zone) => ZoneUse::Retired,
                ZoneState::Empty => ZoneUse::Free,
                ZoneState::ReadOnly | ZoneState::Offline => ZoneUse::Retired,
                _ if kept.contains(&zone) => ZoneUse::SetAside,
                // A power loss may leave a zone active that has lost all its blocks.
                _ if self.zones[zone as usize].written == 0 => {
                    to_reset.push(zone);
                    ZoneUse::Leaving
                }
                _ if self.reservation_in(zone).is_some() && self.bug.has(SeededBug::UnresetZones) => ZoneUse::Free,
                _ if self.reservation_in(zone).is_some() => {
                    to_reset.push(zone);
                    ZoneUse::Leaving
                }
                _ => ZoneUse::SetAside,
            };
            zones.set(zone, to, 0);
            match to {
                ZoneUse::Leaving if state.is_active() => active_to_reset += 1,
                // Nothing resets it.
                ZoneUse::SetAside if state.is_active() => zones.lose_active(),
                ZoneUse::Retired if state.is_active() => retired_active.push(zone),
                _ => {}
            }
        }
        let block_bytes = self.drive.block_size_bytes as usize;
        let log =
            Log::new(found.id, block_bytes, self.drive.zone_capacity_blocks.0, found.sequence, found.ends, self.bug);
        let mut pool = self.pool(now, found.id, shape, found.pool.epoch + 1, zones, log);
        // Each zone of a namespace takes at least one of the drive.
        let promised: u64 = found.namespaces.values().map(|record| u64::from(record.zone_count)).sum();
        if promised > u64::from(zone_count) {
            let what = format!("its namespaces have {promised} zones, and the drive has {zone_count}");
            return Err(StartError::LogDamaged(what));
        }
        for record in found.namespaces.values() {
            let geometry = record.geometry(&self.drive);
            geometry.validate().map_err(|error| StartError::LogDamaged(error.to_string()))?;
            let mut own = Namespace::new(record.clone(), geometry);
            let of_namespace = mounted.extract_if((record.id, 0)..=(record.id, u32::MAX), |_, _| true);
            let all: Vec<((u32, u32), VZone)> = of_namespace.collect();
            // Those that cannot be written first: on their way they are active for a moment.
            let is_closed = |vzone: &VZone| vzone.is_finished || vzone.has_failed || vzone.is_offline;
            let (closed, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, vzone)| is_closed(vzone));
            for ((_, index), vzone) in closed.into_iter().chain(others) {
                place(vzone, &mut own, index);
            }
            pool.adopt_namespace(own);
        }
        pool.finish_unrepairable();
        pool.adopt_groups();
        pool.reset_at_start(to_reset, active_to_reset, retired_active);
        Ok(pool)
    }

    /// Stripe groups that hold data, and that the log does not have, by v-zone: the generation, and their
    /// zones. A group is written only once it is recorded, so that the newest copy of the log is lost.
    ///
    /// Not so a group that a crash has left without its first block, which was dropped; a copy of a group
    /// that is not full, which replaces it once it is recorded; and zones that were reserved before the
    /// pool was last opened, or that are retired: a namespace that was deleted may have had them, under an
    /// identifier that is used again. If both copies of the log end alike, none of their zones is offline,
    /// and nothing is lost: what a zone that is read only seems to hold may never have been written.
    fn unrecorded_groups(
        &self,
        log: &Found,
        mounted: &BTreeMap<(u32, u32), VZone>,
        owned: &BTreeSet<u32>,
    ) -> BTreeMap<(u32, u32), (u64, Vec<u32>)> {
        let mut found: BTreeMap<(u32, u32), (u64, Vec<u32>)> = BTreeMap::new();
        let owners = self.headers.iter().filter(|(zone, _)| !owned.contains(zone));
        let owners = owners.filter_map(|(zone, header)| Some((*zone, header.owner?.ok()?)));
        let holds_data = |zone: u32| self.zones[zone as usize].written > HEADER_BLOCKS;
        let is_whole =
            log.copies_agree && self.zones[..LOG_ZONES as usize].iter().all(|zone| zone.state != ZoneState::Offline);
        let is_new = |owner: &Owner| {
            let own = mounted.get(&(owner.namespace, owner.vzone));
            // Another mount has found it.
            let was_found = own.is_some_and(|own| own.is_offline && own.generation == owner.generation);
            was_found || (!is_whole && owner.reservation.number >= log.pool.next_reservation)
        };
        let is_own =
            |zone: u32, owner: &Owner| owner.reservation.zone == zone && is_new(owner) && !log.retired.contains(&zone);
        let owners: Vec<(u32, Owner)> =
            owners.filter(|(zone, owner)| is_own(*zone, owner) && holds_data(*zone)).collect();
        let is_unknown = |owner: &Owner| {
            let (generation, groups, is_full) = match mounted.get(&(owner.namespace, owner.vzone)) {
                Some(own) => (own.generation, own.groups.len(), own.written >= own.groups_end() && !own.is_finished),
                None => (0, 0, true),
            };
            let is_next = owner.generation == generation && usize::from(owner.group) >= groups && is_full;
            owner.place == 0 && (owner.generation > generation || is_next)
        };
        for (_, owner) in owners.iter().filter(|(_, owner)| is_unknown(owner)) {
            let exists = log.namespaces.get(&owner.namespace).is_some_and(|own| owner.vzone < own.zone_count);
            if exists {
                let of_vzone = found.entry((owner.namespace, owner.vzone)).or_default();
                of_vzone.0 = of_vzone.0.max(owner.generation);
            }
        }
        for (zone, owner) in owners {
            if let Some((generation, zones)) = found.get_mut(&(owner.namespace, owner.vzone))
                && owner.generation == *generation
            {
                zones.push(zone);
            }
        }
        found
    }

    /// The reservation of this zone by this pool, as the zone says itself.
    fn reservation_in(&self, zone: u32) -> Option<Reservation> {
        let header = self.headers.get(&zone).and_then(|header| header.reservation);
        header.and_then(Result::ok).filter(|found| found.zone == zone)
    }

    /// A v-zone from its record and its zones.
    fn mount_vzone(&self, shape: &Shape, record: &VZoneRecord, capacity: u64) -> Result<VZone, StartError> {
        let mut vzone = VZone {
            generation: record.generation,
            is_finished: record.is_finished,
            is_finished_by_pool: record.is_finished && record.is_finished_by_pool,
            has_failed: record.is_read_only,
            is_offline: record.is_offline,
            extension: record.extension.clone(),
            ..VZone::default()
        };
        let mut first_block = 0;
        for group in &record.groups {
            let group = Group::of_record(group, first_block, shape.blocks_per_zone)
                .ok_or_else(|| StartError::LogDamaged("a stripe group has an impossible form".to_owned()))?;
            first_block = group.blocks().end;
            vzone.groups.push(group);
        }
        vzone.written = record.written_blocks;
        let (group, stands) = self.first_missing(&vzone.groups);
        if stands < vzone.written && !vzone.is_offline {
            // The power was lost before the record and the data were flushed: the finish has not ended.
            (vzone.written, vzone.is_finished, vzone.is_finished_by_pool) = (stands, false, false);
        }
        let is_closed = vzone.is_finished || vzone.has_failed || vzone.is_offline;
        let mut whole = VZone { groups: vzone.groups.clone(), ..VZone::default() };
        if !is_closed {
            vzone.written = stands.min(capacity);
            self.drop_behind(&mut vzone.groups, group, stands);
        }
        whole.written = vzone.written;
        if self.has_lost_zones(&whole) || !self.owners_are_right(record, &whole) {
            // All of its zones are kept as they are, and so is its record: the next mount may read them.
            let written = record.written_blocks.min(first_block);
            (vzone.groups, vzone.written, vzone.is_damaged) = (whole.groups, written, true);
            vzone.is_finished = record.is_finished;
        }
        vzone.issued = vzone.written;
        self.find_resources(&mut vzone, capacity);
        if !is_closed && !vzone.is_damaged {
            // The write pointer of a zone that is read only is not known: blocks that it does not have must
            // not become the middle of a v-zone.
            let is_read_only = |zone: &u32| self.zones[*zone as usize].state == ZoneState::ReadOnly;
            vzone.has_failed |= vzone.groups.last().is_some_and(|group| group.zones().iter().any(is_read_only));
            self.find_torn(&mut vzone, capacity);
        }
        Ok(vzone)
    }

    /// The first block of all groups that is missing, and the index of its group; behind the last
    /// group if none is.
    fn first_missing(&self, groups: &[Group]) -> (usize, u64) {
        let mut stands = 0;
        for (index, group) in groups.iter().enumerate() {
            stands = group.first_missing(&self.written_in(group));
            if stands < group.blocks().end {
                return (index, stands);
            }
        }
        (groups.len(), stands)
    }

    /// Drops the groups behind the first missing block, which is in the group at `index`: what is in
    /// them was not acknowledged.
    fn drop_behind(&self, groups: &mut Vec<Group>, index: usize, missing: u64) {
        let Some(group) = groups.get(index) else { return };
        // A group without a block is made again when the v-zone is written.
        let is_kept = missing > group.blocks().start || !self.can_be_dropped(group);
        groups.truncate(index + usize::from(is_kept));
    }

    fn can_be_dropped(&self, group: &Group) -> bool {
        let refuses = |zone: &u32| {
            let state = self.zones[*zone as usize].state;
            matches!(state, ZoneState::ReadOnly | ZoneState::Offline | ZoneState::Full)
        };
        !group.zones().iter().any(refuses)
    }

    /// Blocks of data in each zone of a group.
    fn written_in(&self, group: &Group) -> Vec<u64> {
        group.zones().iter().map(|zone| self.zones[*zone as usize].written.saturating_sub(HEADER_BLOCKS)).collect()
    }

    /// Whether zones of a v-zone have lost all that they held. The first block of each was durable
    /// before its group was recorded, so no crash does this.
    fn has_lost_zones(&self, vzone: &VZone) -> bool {
        if self.bug.has(SeededBug::BelievedEmpty) {
            return false;
        }
        let is_lost = |zone: &u32| self.zones[*zone as usize].written == 0;
        vzone.groups.iter().flat_map(|group| group.zones()).any(is_lost)
    }

    /// Whether the zones of a v-zone say that they are its own. Zones behind what is written need not.
    fn owners_are_right(&self, record: &VZoneRecord, vzone: &VZone) -> bool {
        if self.bug.has(SeededBug::IgnoredOwner) {
            return true;
        }
        vzone.groups.iter().enumerate().all(|(index, group)| {
            group.zones().iter().enumerate().all(|(place, zone)| {
                let first = group.blocks().start + place as u64 * group.stripe_blocks();
                match self.headers.get(zone).and_then(|header| header.owner) {
                    Some(Ok(owner)) => {
                        owner.reservation.zone == *zone
                            && (owner.namespace, owner.vzone) == (record.namespace, record.vzone)
                            && owner.generation == record.generation
                            && (usize::from(owner.group), usize::from(owner.place)) == (index, place)
                    }
                    _ => first >= vzone.written,
                }
            })
        })
    }

    /// Groups whose zones are active, or will be: the pool grants them what they hold.
    fn find_resources(&self, vzone: &mut VZone, capacity: u64) {
        let nothing = Grant { width: 0, spares: 0 };
        let is_closed = vzone.is_finished || vzone.has_failed || vzone.is_offline;
        for (index, group) in vzone.groups.iter().enumerate() {
            let is_active = group.zones().iter().any(|zone| self.zones[*zone as usize].state.is_active());
            let is_full = vzone.written >= group.blocks().end.min(capacity);
            if is_active || (!is_full && !is_closed && !vzone.is_damaged) {
                vzone.grants.push_back(Held { group: index, grant: nothing, is_draining: false });
            }
        }
        vzone.is_ready = true;
    }

    /// Whether a power loss tore rows of the last group, and whether it can be written at all.
    fn find_torn(&self, vzone: &mut VZone, capacity: u64) {
        let Some(group) = vzone.groups.last().filter(|group| vzone.written < group.blocks().end.min(capacity)) else {
            return;
        };
        let can_be_written = |zone: &u32| {
            let state = self.zones[*zone as usize].state;
            state.is_active() || state == ZoneState::Empty
        };
        if !group.zones().iter().all(can_be_written) {
            // A zone failed, or was full, before the others were: what is there can be read.
            vzone.has_failed = true;
            return;
        }
        let pointers: Box<[u64]> = group.zones().iter().map(|zone| self.zones[*zone as usize].written).collect();
        let expected = group.pointers_at(vzone.written);
        if *expected != *pointers && !self.bug.has(SeededBug::IgnoredTear) {
            vzone.torn = Some(pointers);
        }
    }
}

/// Gives a namespace a v-zone that was read.
fn place(mut vzone: VZone, own: &mut Namespace, index: u32) {
    let zone = ZoneIndex(index);
    let table = &mut own.table;
    // A host reads nothing of a damaged one.
    let written = Blocks(if vzone.is_damaged { 0 } else { vzone.written });
    if table.set_written(zone, written).is_err() {
        // More are active than the limits allow: a write that was to fill one has found no space, and another
        // was active instead. A full zone is not active, and its blocks can be read.
        table.finish_by_controller_at(zone, written);
        (vzone.is_finished, vzone.is_finished_by_pool, vzone.is_unrecorded) = (true, true, true);
        vzone.torn = None;
    }
    if let Some(extension) = vzone.extension.clone() {
        vzone.has_failed |= !table.restore_extension(zone, extension);
    }
    let start = table.geometry().zone_start(zone);
    let mut effects = Vec::new();
    if vzone.is_finished_by_pool && table.zone(zone).state.is_active() {
        table.finish_by_controller(zone);
    } else if vzone.is_finished && !vzone.is_finished_by_pool && !vzone.is_damaged {
        let _ = table.manage(&ZoneAction::Finish, ZoneTarget::Zone(start), &mut effects);
    }
    if vzone.is_damaged || vzone.is_offline {
        table.degrade(zone, ZoneState::Offline);
    } else if vzone.has_failed {
        table.degrade(zone, ZoneState::ReadOnly);
    }
    own.vzones[index as usize] = vzone;
}
