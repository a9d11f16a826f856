//! Tenants: their commands, what they expect of completions, and namespaces that come, grow and go.

use zonda_elastic::NamespaceConfig;
use zonda_elastic::testing::{BlockTag, Content, Life, TenantZone};
use zonda_zoned::{
    BlockBuffer, Blocks, Completion, Geometry, Lba, NamespaceId, Operation, Outcome, Payload, Status, ZoneAction,
    ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use super::lives::contents_of;
use super::run::ElasticRun;
use crate::drive::one_of;
use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Blocks of all zones of a namespace, at most: they are all read after each mount.
const BLOCKS_MAX: u64 = 1_500;

/// A namespace, and what its host knows.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) id: NamespaceId,
    /// Its name in its blocks, unique in the run.
    pub(super) tag: u64,
    pub(super) stage: Stage,
    /// The number of zones before a change that was not acknowledged.
    pub(super) resized_from: Option<u32>,
    pub(super) zones: Vec<TenantZone>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its creation was not acknowledged.
    Creating,
    Live,
    /// It submits nothing, and is deleted when nothing is in flight.
    Draining,
    /// Its deletion was not acknowledged.
    Deleting,
}

/// A command in flight.
#[derive(Clone, Debug)]
pub(super) enum Flight {
    Write {
        id: NamespaceId,
        zone: usize,
        life: u64,
        end: u64,
        appended: Option<Lba>,
    },
    Read {
        id: NamespaceId,
        zone: usize,
        start: u64,
        expected: Vec<u64>,
    },
    Finish {
        id: NamespaceId,
        zone: usize,
        life: u64,
    },
    Reset {
        id: NamespaceId,
        zone: usize,
        life: u64,
    },
    /// Open or Close.
    Manage {
        id: NamespaceId,
        zone: usize,
    },
    Extension {
        id: NamespaceId,
        zone: usize,
        life: u64,
    },
    /// Acknowledged blocks of each zone, with their lives.
    Flush {
        id: NamespaceId,
        floors: Vec<(u64, u64)>,
    },
    /// A command beyond a limit.
    Refused {
        id: NamespaceId,
        status: Status,
    },
    /// Of a check.
    Probe,
}

impl Flight {
    pub(super) fn namespace(&self) -> Option<NamespaceId> {
        match self {
            Flight::Write { id, .. }
            | Flight::Read { id, .. }
            | Flight::Finish { id, .. }
            | Flight::Reset { id, .. }
            | Flight::Manage { id, .. }
            | Flight::Extension { id, .. }
            | Flight::Flush { id, .. }
            | Flight::Refused { id, .. } => Some(*id),
            Flight::Probe => None,
        }
    }

    /// The zone of a command to one.
    pub(super) fn zone(&self) -> Option<usize> {
        match self {
            Flight::Write { zone, .. }
            | Flight::Read { zone, .. }
            | Flight::Finish { zone, .. }
            | Flight::Reset { zone, .. }
            | Flight::Manage { zone, .. }
            | Flight::Extension { zone, .. } => Some(*zone),
            Flight::Flush { .. } | Flight::Refused { .. } | Flight::Probe => None,
        }
    }
}

impl ElasticRun<'_> {
    /// Submits a random command of a random tenant. Returns whether there was one.
    pub(super) fn act(&mut self) -> Result<bool, CheckError> {
        if !self.stalled.is_empty() || self.pool().is_paused() || !self.pool().is_started() {
            return Ok(false);
        }
        let live: Vec<usize> = (0..self.tenants.len()).filter(|at| self.tenants[*at].stage == Stage::Live).collect();
        let Some(tenant) = self.prng.pick(&live).copied() else { return Ok(false) };
        let id = self.tenants[tenant].id;
        let zone = self.prng.below(self.tenants[tenant].zones.len() as u64) as usize;
        let geometry = self.device().geometry(id).clone();
        let mix = self.simulation.mix;
        let kinds = [
            mix.writes,
            mix.appends,
            mix.zeroes,
            mix.reads,
            mix.finishes,
            mix.resets,
            mix.opens,
            mix.closes,
            mix.flushes,
            mix.extensions,
        ];
        let mut choice = self.prng.below(kinds.iter().sum::<u64>().max(1));
        let kind = kinds.iter().position(|weight| {
            let is_it = choice < *weight;
            choice = choice.saturating_sub(*weight);
            is_it
        });
        let before = self.next_id;
        match kind {
            Some(kind @ 0..=2) => self.write(tenant, zone, kind, &geometry),
            Some(3) => self.read(tenant, zone, &geometry),
            Some(kind @ 4..=7) => self.manage(tenant, zone, kind, &geometry),
            Some(8) => {
                let own = &self.tenants[tenant].zones;
                let floors = own.iter().map(|zone| (zone.now.number, zone.now.acknowledged)).collect();
                self.submit(id, Flight::Flush { id, floors }, Operation::Flush);
            }
            _ => self.extend(tenant, zone, &geometry),
        }
        let has_acted = self.next_id > before;
        self.commands += u64::from(has_acted);
        Ok(has_acted)
    }

    /// The state of a zone, and the status of a command that would make it active or open it.
    fn limits(&self, tenant: usize, zone: usize) -> (ZoneState, Option<Status>, Option<Status>) {
        let id = self.tenants[tenant].id;
        let table = self.pool().table(id).expect("it is a tenant's");
        let geometry = table.geometry();
        let state = table.zone(ZoneIndex(zone as u32)).state;
        let explicit = (0..geometry.zone_count).map(ZoneIndex);
        let explicit = explicit.filter(|zone| table.zone(*zone).state == ZoneState::ExplicitlyOpened).count() as u32;
        let is_full = |limit: Option<u32>, number: u32| limit.is_some_and(|limit| number >= limit);
        let is_over = !state.is_active() && is_full(geometry.max_active_zones, table.active_zones());
        let is_over_open = !state.is_open() && is_full(geometry.max_open_zones, explicit);
        (state, is_over.then_some(Status::TooManyActiveZones), is_over_open.then_some(Status::TooManyOpenZones))
    }

    fn write(&mut self, tenant: usize, zone: usize, kind: usize, geometry: &Geometry) {
        let (state, over_active, over_open) = self.limits(tenant, zone);
        let own = &self.tenants[tenant].zones[zone];
        let is_writable = state.is_active() || state == ZoneState::Empty;
        // The errors of writes that were to fill it may be on their way.
        let is_filled = own.now.blocks.len() as u64 >= geometry.zone_capacity_blocks.0;
        if !is_writable || own.is_suspended || is_filled {
            return;
        }
        let refused = over_active.or(over_open);
        if refused.is_some() && !self.prng.chance(1, 8) {
            return;
        }
        let (id, tag) = (self.tenants[tenant].id, self.tenants[tenant].tag);
        // The error of a write that finds no space may be on its way: then the place of an append is not known.
        let is_written =
            |flight: &Flight| matches!(flight, Flight::Write { id: of, zone: at, .. } if (*of, *at) == (id, zone));
        if kind == 1 && self.lacked_space && self.flights.values().any(is_written) {
            return;
        }
        let start = geometry.zone_start(ZoneIndex(zone as u32));
        let from = self.tenants[tenant].zones[zone].now.blocks.len() as u64;
        let most = if kind == 1 { geometry.max_append_blocks } else { geometry.max_transfer_blocks };
        let end = (from + 1 + self.prng.below(most.0.min(16))).min(geometry.zone_capacity_blocks.0);
        let write = if kind == 2 { 0 } else { self.next_write };
        self.next_write += 1;
        let blocks = Blocks(end - from);
        let payload = || payload(tag, zone, from..end, write, geometry);
        let operation = match kind {
            0 => Operation::Write { start: start + Blocks(from), blocks, payload: payload() },
            1 => Operation::Append { zone_start: start, blocks, payload: payload() },
            _ => Operation::WriteZeroes { start: start + Blocks(from), blocks },
        };
        if let Some(status) = refused {
            return self.submit(id, Flight::Refused { id, status }, operation);
        }
        let own = &mut self.tenants[tenant].zones[zone].now;
        own.blocks.resize(end as usize, write);
        let appended = (kind == 1).then_some(start + Blocks(from));
        let flight = Flight::Write { id, zone, life: own.number, end, appended };
        self.submit(id, flight, operation);
    }

    fn read(&mut self, tenant: usize, zone: usize, geometry: &Geometry) {
        let own = &self.tenants[tenant].zones[zone];
        let state = self.limits(tenant, zone).0;
        if state == ZoneState::Offline || (own.is_suspended && (!own.has_failed || own.before.is_some())) {
            return;
        }
        let (id, capacity) = (self.tenants[tenant].id, geometry.zone_capacity_blocks.0);
        let known = self.tenants[tenant].zones[zone].now.blocks.clone();
        let is_behind = self.prng.chance(1, 8) && !self.tenants[tenant].zones[zone].has_failed;
        let last = if is_behind { capacity } else { (known.len() as u64).max(1) };
        let start = self.prng.below(last);
        let blocks = 1 + self.prng.below(geometry.max_transfer_blocks.0.min(capacity - start).min(16));
        let expected = (start..start + blocks).map(|at| known.get(at as usize).copied().unwrap_or(0)).collect();
        let lba = geometry.zone_start(ZoneIndex(zone as u32)) + Blocks(start);
        let operation = Operation::Read { start: lba, blocks: Blocks(blocks) };
        self.submit(id, Flight::Read { id, zone, start, expected }, operation);
    }

    fn manage(&mut self, tenant: usize, zone: usize, kind: usize, geometry: &Geometry) {
        let (state, over_active, over_open) = self.limits(tenant, zone);
        let id = self.tenants[tenant].id;
        let own = &mut self.tenants[tenant].zones[zone];
        // A zone in which a write has found no space can still be finished and reset.
        let lacks_space = own.now.is_cut && !own.has_failed && own.before.is_none();
        if own.is_suspended && !(lacks_space && matches!(kind, 4 | 5)) {
            return;
        }
        let (action, flight) = match kind {
            4 if state.is_active() => {
                own.now.finish = Some(false);
                (ZoneAction::Finish, Flight::Finish { id, zone, life: own.now.number })
            }
            5 if own.before.is_none() && (state.is_active() || state == ZoneState::Full) => {
                own.begin_reset();
                (ZoneAction::Reset, Flight::Reset { id, zone, life: own.now.number })
            }
            // Repeated before they have ended: what is acknowledged first must be there after a crash, too.
            4 if state == ZoneState::Full && own.now.finish == Some(false) => {
                (ZoneAction::Finish, Flight::Finish { id, zone, life: own.now.number })
            }
            5 if state == ZoneState::Empty && own.before.is_some() => {
                (ZoneAction::Reset, Flight::Reset { id, zone, life: own.now.number })
            }
            6 if state.is_active() || state == ZoneState::Empty => {
                let flight = match over_active.or(over_open) {
                    Some(status) => Flight::Refused { id, status },
                    None => Flight::Manage { id, zone },
                };
                (ZoneAction::Open { zrwa: false }, flight)
            }
            7 if state.is_open() => (ZoneAction::Close, Flight::Manage { id, zone }),
            _ => return,
        };
        let target = ZoneTarget::Zone(geometry.zone_start(ZoneIndex(zone as u32)));
        self.submit(id, flight, Operation::ManageZones { action, target });
    }

    fn extend(&mut self, tenant: usize, zone: usize, geometry: &Geometry) {
        let (state, over_active, _) = self.limits(tenant, zone);
        let id = self.tenants[tenant].id;
        let is_possible = state == ZoneState::Empty && geometry.descriptor_extension_bytes > 0;
        if !is_possible || over_active.is_some() || self.tenants[tenant].zones[zone].is_suspended {
            return;
        }
        let byte = 1 + self.prng.below(255) as u8;
        let own = &mut self.tenants[tenant].zones[zone].now;
        own.extension = Some((byte, false));
        let extension = vec![byte; geometry.descriptor_extension_bytes as usize].into();
        let action = ZoneAction::SetDescriptorExtension { extension, zrwa: false };
        let target = ZoneTarget::Zone(geometry.zone_start(ZoneIndex(zone as u32)));
        let flight = Flight::Extension { id, zone, life: own.number };
        self.submit(id, flight, Operation::ManageZones { action, target });
    }

    /// A completion for a host.
    pub(super) fn on_completion(&mut self, completion: Completion) -> Result<(), CheckError> {
        let Some(flight) = self.flights.remove(&completion.id.0) else {
            let message = format!("command {} completes, and is not in flight", completion.id);
            return Err(CheckError::new(FailureKind::StrayCompletion, None, message));
        };
        let Some(id) = flight.namespace() else {
            self.on_probe(completion);
            return Ok(());
        };
        let Some(tenant) = self.tenants.iter().position(|tenant| tenant.id == id) else {
            let message = format!("a command of namespace {id} completes, which was deleted");
            return Err(CheckError::new(FailureKind::StrayCompletion, None, message));
        };
        let status = completion.status;
        let wrong = |message: String, zone: Option<usize>| {
            let zone = zone.map(|zone| ZoneIndex(zone as u32));
            Err(CheckError::new(FailureKind::WrongAnswer, zone, format!("namespace {id}: {message}")))
        };
        let zone = flight.zone();
        let is_excused = zone.is_some_and(|zone| self.is_excused(tenant, zone));
        if let Flight::Refused { status: expected, .. } = &flight {
            // A write before it may have found no space; its error has not arrived yet.
            let is_behind_refused = self.lacked_space && status == Status::ZoneInvalidWrite;
            if status != *expected && !is_behind_refused {
                return wrong(format!("a command beyond a limit ends with \"{status}\", not \"{expected}\""), None);
            }
            return Ok(());
        }
        if let Flight::Flush { floors, .. } = flight {
            if !status.is_success() {
                let is_excused = self.had_management_faults;
                return if is_excused { Ok(()) } else { wrong(format!("a Flush ends with \"{status}\""), None) };
            }
            for (own, (life, blocks)) in self.tenants[tenant].zones.iter_mut().zip(floors) {
                if let Some(life) = own.life(life) {
                    life.flushed = life.flushed.max(blocks);
                }
            }
            return Ok(());
        }
        let zone = zone.expect("the others have a zone");
        if !status.is_success() {
            // Zones that have failed, or stay active, may leave none for a write.
            let is_refused = matches!(flight, Flight::Write { .. })
                && matches!(status, Status::TooManyActiveZones | Status::CapacityExceeded);
            let has_failures = !self.touched.is_empty() || self.had_management_faults;
            let needs_space = matches!(flight, Flight::Write { .. } | Flight::Extension { .. });
            let is_unrecorded =
                matches!(flight, Flight::Finish { .. } | Flight::Reset { .. }) && status == Status::CapacityExceeded;
            // Writes behind one that has found no space are at a wrong place, or find another zone active; a zone
            // whose reset was not recorded is offline until the pool was opened again.
            let follows = matches!(
                status,
                Status::CapacityExceeded
                    | Status::ZoneInvalidWrite
                    | Status::ZoneIsOffline
                    | Status::ZoneIsFull
                    | Status::TooManyActiveZones
            );
            let is_without_space = (needs_space && follows || is_unrecorded) && self.lacked_space;
            if (is_refused && has_failures) || is_without_space {
                self.tenants[tenant].zones[zone].is_suspended = true;
                if let Flight::Write { life, .. } = flight
                    && let Some(life) = self.tenants[tenant].zones[zone].life(life)
                {
                    life.is_cut = true;
                }
                return Ok(());
            }
            if !is_excused {
                return wrong(format!("zone {zone}: {} ends with \"{status}\"", name_of(&flight)), Some(zone));
            }
            let own = &mut self.tenants[tenant].zones[zone];
            if !matches!(flight, Flight::Read { .. }) {
                own.is_suspended = true;
                own.has_failed |= !matches!(flight, Flight::Reset { .. });
            }
            return Ok(());
        }
        match flight {
            Flight::Read { start, expected, .. } => {
                let geometry = self.device().geometry(id).clone();
                let sizes = (geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
                let found = contents_of(&completion, expected.len() as u64, sizes);
                // A write that is read before it ends may have found no space, or no zone.
                let is_cut = self.tenants[tenant].zones[zone].now.is_cut;
                self.check_read(tenant, zone, start, &expected, &found, is_excused || is_cut || self.lacked_space)?;
            }
            Flight::Write { life, end, appended, .. } => {
                if appended.is_some_and(|lba| completion.outcome != Outcome::Appended(lba)) {
                    return wrong(format!("zone {zone}: an append returns {:?}", completion.outcome), Some(zone));
                }
                if let Some(life) = self.tenants[tenant].zones[zone].life(life) {
                    if end <= life.acknowledged {
                        return wrong(format!("zone {zone}: writes end out of order"), Some(zone));
                    }
                    life.acknowledged = end;
                }
            }
            Flight::Finish { life, .. } => {
                if let Some(life) = self.tenants[tenant].zones[zone].life(life) {
                    life.finish = Some(true);
                    life.flushed = life.acknowledged;
                }
            }
            Flight::Reset { life, .. } => {
                let own = &mut self.tenants[tenant].zones[zone];
                own.before.take_if(|_| own.now.number == life);
            }
            Flight::Extension { life, .. } => {
                if let Some(Life { extension: Some((_, is_acknowledged)), .. }) =
                    self.tenants[tenant].zones[zone].life(life)
                {
                    *is_acknowledged = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The blocks of a read are those that were written before it was submitted.
    fn check_read(
        &mut self,
        tenant: usize,
        zone: usize,
        start: u64,
        expected: &[u64],
        found: &[Content],
        is_excused: bool,
    ) -> Result<(), CheckError> {
        let own = &self.tenants[tenant];
        let acknowledged = own.zones[zone].now.acknowledged;
        for (index, (write, found)) in expected.iter().zip(found).enumerate() {
            let block = start + index as u64;
            let tag = BlockTag { tenant: own.tag, zone: zone as u64, block, write: *write };
            let is_right = match found {
                Content::Zeros => *write == 0 || (is_excused && block >= acknowledged),
                Content::Tag(found) => *found == tag,
                _ => false,
            };
            if !is_right {
                let message =
                    format!("namespace {}, zone {zone}: block {block} reads as {found:?}, not {tag:?}", own.id);
                return Err(CheckError::new(FailureKind::WrongContents, ZoneIndex(zone as u32), message));
            }
        }
        Ok(())
    }

    /// A namespace is created, resized or deleted, now and then.
    ///
    /// A request may be what lets the pool notice that it has been opened again. That event speaks of
    /// the changes before the request, so it is taken before the request is noted.
    pub(super) fn change_namespaces(&mut self) -> Result<(), CheckError> {
        let draining = self.tenants.iter().filter(|tenant| tenant.stage == Stage::Draining);
        for id in draining.map(|tenant| tenant.id).collect::<Vec<_>>() {
            let now = self.now;
            // Zones may still be finished for it.
            if !self.has_flights(id) && self.device().delete_namespace(now, id).is_ok() {
                self.take_events()?;
                // It does not exist any more if the pool has not waited for the record.
                if let Some(tenant) = self.tenants.iter_mut().find(|tenant| tenant.id == id) {
                    tenant.stage = Stage::Deleting;
                }
            }
        }
        let every = self.simulation.load.changes_every;
        if every == 0 || !self.prng.chance(1, every) {
            return Ok(());
        }
        let live: Vec<usize> = (0..self.tenants.len()).filter(|at| self.tenants[*at].stage == Stage::Live).collect();
        let choice = self.prng.below(3);
        match self.prng.pick(&live).copied() {
            Some(place) if choice == 0 => self.tenants[place].stage = Stage::Draining,
            Some(place) if choice == 1 => self.resize(place)?,
            _ if self.tenants.len() < self.simulation.load.tenants + 1 => self.create_namespace()?,
            _ => {}
        }
        Ok(())
    }

    fn resize(&mut self, place: usize) -> Result<(), CheckError> {
        let before = self.tenants[place].zones.len() as u32;
        let after = 1 + self.prng.below(u64::from(before) + 3) as u32;
        let (now, id) = (self.now, self.tenants[place].id);
        if self.tenants[place].resized_from.is_some() || after == before {
            return Ok(());
        }
        let is_empty = |zone: &TenantZone| zone.now == Life { number: zone.now.number, ..Life::default() };
        let has_flights = self.flights.values().any(|flight| flight.namespace() == Some(id));
        let keeps = self.tenants[place].zones.iter().skip(after as usize).all(is_empty);
        // A zone that is opened or has been reset is known to the namespace, too.
        if (after < before && (!keeps || has_flights)) || self.device().resize_namespace(now, id, after).is_err() {
            return Ok(());
        }
        self.take_events()?;
        self.trace.log(self.now, || format!("namespace {id} is resized from {before} to {after} zones"));
        let found = self.tenants.iter_mut().find(|tenant| tenant.id == id).expect("it is live");
        found.zones.resize_with(after as usize, TenantZone::default);
        found.resized_from = Some(before);
        Ok(())
    }

    /// Creates a namespace of a random shape, if the pool has space for it.
    pub(super) fn create_namespace(&mut self) -> Result<(), CheckError> {
        let extensions = self.prng.chance(1, 3);
        let capacity = self.pool().shape().vzone_capacity_blocks();
        let capacity = if self.prng.chance(1, 4) { Blocks(1 + self.prng.below(capacity.0)) } else { capacity };
        let zone_count = 1 + self.prng.below((BLOCKS_MAX / capacity.0).clamp(1, 10)) as u32;
        let active = one_of(&mut self.prng, &[1, 1, 2, 3, 4]) as u32;
        let open = 1 + self.prng.below(u64::from(active)) as u32;
        let tag = self.next_tenant;
        self.next_tenant += 1;
        let config = NamespaceConfig {
            zone_capacity_blocks: Some(capacity),
            max_open_zones: Some(open),
            weight: 1 + self.prng.below(3) as u32,
            descriptor_extension_bytes: if extensions { 64 } else { 0 },
            read_across_zones: self.prng.chance(1, 2),
            ..NamespaceConfig::new(&format!("tenant {tag}"), [tag as u8; 16], zone_count, active)
        };
        self.create_tenant(tag, &config)
    }

    /// Creates the smallest namespace.
    pub(super) fn create_smallest_namespace(&mut self) -> Result<(), CheckError> {
        let tag = self.next_tenant;
        self.next_tenant += 1;
        let config = NamespaceConfig::new(&format!("tenant {tag}"), [tag as u8; 16], 1, 1);
        self.create_tenant(tag, &config)
    }

    /// Creates a namespace, if the pool has space for it.
    fn create_tenant(&mut self, tag: u64, config: &NamespaceConfig) -> Result<(), CheckError> {
        let now = self.now;
        let Ok(id) = self.device().create_namespace(now, config) else { return Ok(()) };
        self.take_events()?;
        let (zone_count, active) = (config.zone_count, config.max_active_zones);
        let capacity = config.zone_capacity_blocks.unwrap_or(self.pool().shape().vzone_capacity_blocks());
        self.trace.log(self.now, || {
            format!("namespace {id} is created: {zone_count} zones of {} blocks, {active} active", capacity.0)
        });
        let zones = (0..zone_count).map(|_| TenantZone::default()).collect();
        self.tenants.push(Tenant { id, tag, stage: Stage::Creating, resized_from: None, zones });
        Ok(())
    }
}

fn name_of(flight: &Flight) -> &'static str {
    match flight {
        Flight::Write { .. } => "a write",
        Flight::Read { .. } => "a read",
        Flight::Finish { .. } => "a Finish",
        Flight::Reset { .. } => "a Reset",
        Flight::Extension { .. } => "Set Zone Descriptor Extension",
        _ => "an Open or a Close",
    }
}

/// Blocks that name their tenant, zone, place and write.
fn payload(tenant: u64, zone: usize, blocks: std::ops::Range<u64>, write: u64, geometry: &Geometry) -> Payload {
    let (mut data, mut metadata) = (Vec::new(), Vec::new());
    for block in blocks {
        let tag = BlockTag { tenant, zone: zone as u64, block, write };
        let own = tag.to_block(geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
        data.extend_from_slice(&own.data);
        metadata.extend_from_slice(&own.metadata);
    }
    Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.into() }))
}
