//! The serial allocator: v-zones get their groups one after the other, from zones that are reserved
//! in the order in which the drive places them.

use zonda_zoned::{Operation, Origin, Status};

use super::{Op, Pool, Waiter};
use crate::balloon::Grant;
use crate::bug::SeededBug;
use crate::format::Reservation;
use crate::group::Group;
use crate::limits::NO_SPACE_PAUSE;
use crate::vzone::Held;

/// The group that is being made: its width is decided, and its zones are not all reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granting {
    namespace: u32,
    vzone: u32,
    grant: Grant,
}

impl Pool {
    /// A v-zone needs a group.
    pub(super) fn request_group(&mut self, namespace: u32, vzone: u32) {
        let own = self.vzone(namespace, vzone);
        if !own.wants_group {
            own.wants_group = true;
            self.arbiter.push_back((namespace, vzone));
            self.serve();
        }
    }

    /// The group that is being made, after namespaces have joined or left.
    pub(super) fn adopt_granting_again(&mut self) {
        if let Some(granting) = &mut self.granting {
            granting.grant = self.balloon.adopt_again(granting.namespace, granting.grant);
        }
    }

    /// The width of the group that is being made is decided again: a namespace joins.
    pub(super) fn return_granting(&mut self) {
        if let Some(Granting { namespace, vzone, grant }) = self.granting.take() {
            self.balloon.release(namespace, grant);
            self.arbiter.push_front((namespace, vzone));
        }
    }

    /// A v-zone that has failed needs no group any more.
    pub(super) fn withdraw_request(&mut self, namespace: u32, vzone: u32) {
        let own = self.vzone(namespace, vzone);
        if !std::mem::take(&mut own.wants_group) {
            return;
        }
        self.arbiter.retain(|waiting| *waiting != (namespace, vzone));
        let is_its_own = |granting: &mut Granting| (granting.namespace, granting.vzone) == (namespace, vzone);
        if let Some(Granting { grant, .. }) = self.granting.take_if(is_its_own) {
            self.balloon.release(namespace, grant);
        }
        self.serve();
    }

    /// No group can be made: writes that wait for one fail with this status.
    pub(super) fn refuse_requests(&mut self, status: Status) {
        let granting = self.granting.map(|granting| (granting.namespace, granting.vzone));
        let waiting: Vec<(u32, u32)> = granting.into_iter().chain(self.arbiter.iter().copied()).collect();
        for (namespace, vzone) in waiting.into_iter().rev() {
            if self.vzone(namespace, vzone).wants_group {
                self.refuse_writes(namespace, vzone, status);
            }
        }
    }

    /// Makes groups, in the order of requests, while there are zones for them.
    pub(super) fn serve(&mut self) {
        if !self.is_started {
            return;
        }
        loop {
            if self.granting.is_none() {
                self.redistribute_if_due();
                self.granting = self.next_grant();
            }
            let Some(Granting { namespace, vzone, grant }) = self.granting else { break };
            self.reserve(grant.width);
            if self.zones.obtainable() < grant.width {
                if self.zones.obtainable_soon() >= grant.width {
                    // A v-zone has the resources of one group: those of the one before are released in a moment.
                    break;
                }
                // Zones have failed meanwhile: a narrower group.
                self.balloon.release(namespace, grant);
                self.granting = None;
                self.arbiter.push_front((namespace, vzone));
                if self.zones.obtainable_soon() == 0 {
                    break;
                }
                continue;
            }
            let Some(zones) = self.take_zones(grant.width, namespace, vzone) else {
                if self.no_space_until.is_some() && !self.zones.must_flush(grant.width) {
                    self.refuse_requests(Status::CapacityExceeded);
                }
                return;
            };
            self.granting = None;
            self.make_group(namespace, vzone, grant, zones);
        }
        if self.lacks_space && !self.arbiter.is_empty() && self.zones.obtainable_soon() == 0 {
            // Groups that lack space hold their zones until the pool is opened again.
            self.refuse_requests(Status::CapacityExceeded);
        }
        self.reserve(0);
        self.continue_reclaim();
    }

    /// Takes zones for a group, or asks the drive for the flush that they lack.
    pub(super) fn take_zones(&mut self, width: u32, namespace: u32, vzone: u32) -> Option<Vec<u32>> {
        let zones = self.zones.take(width, namespace, vzone);
        if zones.is_none() && !self.is_flushing_reserved && self.zones.must_flush(width) {
            self.is_flushing_reserved = true;
            self.flush_reserved(1);
        }
        zones
    }

    fn flush_reserved(&mut self, tries: u8) {
        let number = self.zones.begin_flush();
        self.issue(Op::ReserveFlush { number, tries }, Operation::Flush, Origin::default());
    }

    pub(super) fn on_reserved_flushed(&mut self, number: u64, tries: u8, status: Status) {
        if let Some(tries) = Pool::another_try(tries, status) {
            return self.flush_reserved(tries);
        }
        self.is_flushing_reserved = false;
        if status.is_success() {
            self.zones.end_flush(number);
            self.serve();
        } else {
            // Nothing that is recorded now would be durable.
            self.refuse_requests(Status::InternalError);
        }
    }

    fn next_grant(&mut self) -> Option<Granting> {
        let (namespace, vzone) = *self.arbiter.front()?;
        let own = &self.namespaces[&namespace];
        let active = own.vzones.iter().filter(|other| other.is_being_written()).count() as u32;
        let capacity = zonda_zoned::Blocks(own.record.zone_capacity_blocks);
        let left = self.shape.zones_of(capacity) - own.vzones[vzone as usize].zone_count();
        assert!(left > 0, "a v-zone asks for groups up to its capacity");
        // The width is that of a drive without the groups that only have to end. Otherwise v-zones that
        // change groups at the same moment would take narrow ones, and keep them for long.
        let zones_max = left.min(self.zones.obtainable_soon());
        let grant = self.balloon.allocate(self.now, namespace, active, zones_max)?;
        self.arbiter.pop_front();
        Some(Granting { namespace, vzone, grant })
    }

    /// Reserves zones ahead, and at least so many.
    pub(super) fn reserve(&mut self, at_least: u32) {
        if self.no_space_until.is_some() {
            return;
        }
        while let Some((zone, number)) = self.zones.reserve_next(at_least) {
            let block = Reservation { zone, number }.to_block(self.id, self.format.data_bytes);
            let operation = self.write_of_block(zone, 0, block);
            self.issue(Op::Reserve { zone }, operation, Origin::default());
        }
    }

    pub(super) fn on_reserved(&mut self, zone: u32, status: Status) {
        if status == Status::TooManyActiveZones {
            // A zone that could not be reset or finished is still active; this one is as good as before.
            self.zones.on_resource_missing(zone);
        } else if status == Status::CapacityExceeded {
            self.zones.on_no_space(zone);
            self.no_space_until = Some(self.now + NO_SPACE_PAUSE);
            self.refuse_requests(status);
        } else {
            self.zones.on_reserved(zone, status.is_success());
            if !status.is_success() {
                // Not recorded: the next mount sees in which state the zone is.
                self.release_retired(zone);
            }
        }
        self.serve();
    }

    pub(super) fn reserve_if_due(&mut self) {
        if self.no_space_until.take_if(|at| *at <= self.now).is_some() {
            self.serve();
        }
    }

    fn make_group(&mut self, namespace: u32, vzone: u32, grant: Grant, zones: Vec<u32>) {
        let width_min = self.balloon.share(namespace).width_min;
        let stripe_blocks = self.shape.stripe_blocks(grant.width, width_min);
        let blocks_per_zone = self.shape.blocks_per_zone;
        let is_early = self.bug.has(SeededBug::EarlyGroup);
        let own = self.vzone(namespace, vzone);
        let group = Group::new(zones, stripe_blocks, own.groups_end(), blocks_per_zone);
        let index = own.groups.len();
        own.groups.push(group);
        own.grants.push_back(Held { group: index, grant, is_draining: false });
        (own.wants_group, own.is_ready) = (false, is_early);
        let generation = own.generation;
        own.headers_in_flight += grant.width;
        for place in 0..grant.width as usize {
            self.write_owner(namespace, vzone, index, place, Op::Owner { namespace, vzone });
        }
        self.record_vzone(namespace, vzone, Waiter::Group { namespace, vzone, generation });
    }

    /// Writes the second block of a zone, as this step.
    pub(super) fn write_owner(&mut self, namespace: u32, vzone: u32, group: usize, place: usize, op: Op) {
        let owner = self.owner_of(namespace, vzone, group, place);
        let block = owner.to_block(self.id, self.format.data_bytes);
        let operation = self.write_of_block(owner.reservation.zone, 1, block);
        let origin = Pool::origin_of(namespace, &self.namespaces[&namespace].vzones[vzone as usize].groups[group]);
        self.issue(op, operation, origin);
    }

    /// The second block of a zone was written. If it has failed, data behind it have, too: with an error
    /// that says less, and that may have arrived before this one.
    pub(super) fn on_owner_written(&mut self, namespace: u32, vzone: u32, status: Status) {
        self.note_space(namespace, vzone, status);
        let own = self.vzone(namespace, vzone);
        own.headers_in_flight -= 1;
        if own.headers_in_flight == 0 && !(own.writes.is_empty() && own.items.is_empty()) {
            self.end_writes(namespace, vzone);
            self.pump(namespace, vzone);
        }
    }

    pub(super) fn on_group_recorded(&mut self, namespace: u32, vzone: u32, generation: u64, is_durable: bool) {
        let own = self.vzone(namespace, vzone);
        if own.generation != generation {
            // A write before it has failed, and a reset took the group with the others.
            return;
        }
        own.is_ready = is_durable;
        if !is_durable {
            self.fail_unrecorded(namespace, vzone);
        }
        self.pump(namespace, vzone);
    }

    pub(super) fn redistribute_if_due(&mut self) {
        if !self.balloon.is_due(self.now) {
            return;
        }
        let namespaces = &self.namespaces;
        for (id, _) in namespaces.iter().filter(|(_, own)| own.next_write > 0 && !own.quiet.is_quiet(own.next_write)) {
            self.balloon.on_written(self.now, *id);
        }
        let active_vzones = |id: u32| {
            let own = namespaces.get(&id);
            own.map_or(0, |own| own.vzones.iter().filter(|vzone| vzone.is_being_written()).count() as u32)
        };
        self.balloon.redistribute(self.now, active_vzones);
        self.consider_reclaim();
    }
}
