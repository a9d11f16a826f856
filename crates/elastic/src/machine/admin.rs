//! Namespaces are created, resized and deleted.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, Geometry, Instant, NamespaceId, ZoneIndex};

use super::{Namespace, Pool, Record, Waiter};
use crate::bug::SeededBug;
use crate::format::NamespaceRecord;
use crate::limits::{EXTENSION_BYTES_MAX, FROZEN_TIME, NAME_BYTES_MAX, NAMESPACES_MAX, WEIGHT_MAX};
use crate::vzone::VZone;

/// A namespace to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// Its name, unique in the pool.
    pub name: String,
    /// Its identity, which hosts see.
    pub uuid: [u8; 16],
    /// Number of v-zones.
    pub zone_count: u32,
    /// Blocks of a v-zone; by default as many as its physical zones hold.
    pub zone_capacity_blocks: Option<Blocks>,
    /// Blocks from one v-zone to the next; by default the next power of two.
    pub zone_size_blocks: Option<Blocks>,
    /// Active v-zones (and open ones, if no less are named).
    pub max_active_zones: u32,
    /// Open v-zones.
    pub max_open_zones: Option<u32>,
    /// Its part of the drive's active zones, and of its time.
    pub weight: u32,
    /// Blocks of one command, at most those of the drive, which are the default.
    pub max_transfer_blocks: Option<Blocks>,
    /// Blocks of one append.
    pub max_append_blocks: Option<Blocks>,
    /// Bytes of a zone's descriptor extension.
    pub descriptor_extension_bytes: u32,
    /// Whether a read may cross zones.
    pub read_across_zones: bool,
}

/// Why a namespace cannot be created, resized or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminError(pub(super) String);

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AdminError {}

/// What has happened to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolEvent {
    /// It is open.
    Started {
        /// Its epoch is recorded; otherwise nothing can be written.
        is_recorded: bool,
    },
    /// A namespace was created, and hosts see it.
    Created {
        /// Its identifier.
        namespace: NamespaceId,
        /// Whether it is recorded; otherwise it does not exist.
        is_durable: bool,
    },
    /// A namespace was resized.
    Resized {
        /// Its identifier.
        namespace: NamespaceId,
        /// Whether that is recorded.
        is_durable: bool,
    },
    /// A namespace was deleted, and its zones are reset.
    Deleted {
        /// Its identifier.
        namespace: NamespaceId,
    },
    /// Both copies of the log have failed: nothing can be changed any more.
    ReadOnly,
}

impl NamespaceConfig {
    /// A namespace of so many v-zones, as large as they can be.
    #[must_use]
    pub fn new(name: &str, uuid: [u8; 16], zone_count: u32, max_active_zones: u32) -> NamespaceConfig {
        NamespaceConfig {
            name: name.to_owned(),
            uuid,
            zone_count,
            zone_capacity_blocks: None,
            zone_size_blocks: None,
            max_active_zones,
            max_open_zones: None,
            weight: 1,
            max_transfer_blocks: None,
            max_append_blocks: None,
            descriptor_extension_bytes: 0,
            read_across_zones: false,
        }
    }
}

const UNCHANGEABLE: &str = "the pool cannot be changed now: its log has failed, or the drive has no space";

/// A size as users give it.
fn size_words(bytes: u64) -> String {
    // Rounded down: what is offered must fit when the user gives it again.
    let in_unit = |shift: u32| format!("{:.2}", (bytes as f64 / (1u64 << shift) as f64 * 100.0).floor() / 100.0);
    let (number, unit) = match bytes {
        0..0x10_0000 => (in_unit(10), "KiB"),
        0x10_0000..0x4000_0000 => (in_unit(20), "MiB"),
        0x4000_0000..0x100_0000_0000 => (in_unit(30), "GiB"),
        _ => (in_unit(40), "TiB"),
    };
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

fn refused<T>(text: impl Into<String>) -> Result<T, AdminError> {
    Err(AdminError(text.into()))
}

impl Pool {
    /// Creates a namespace; [`PoolEvent::Created`] says when hosts see it.
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the drive lacks.
    pub fn create_namespace(&mut self, now: Instant, config: &NamespaceConfig) -> Result<NamespaceId, AdminError> {
        self.advance(now);
        if !self.can_be_changed() {
            return refused(UNCHANGEABLE);
        }
        if self.namespaces.len() >= NAMESPACES_MAX {
            return refused(format!("the pool has {NAMESPACES_MAX} namespaces, and cannot have more: delete one"));
        }
        if config.name.is_empty() || config.name.len() > NAME_BYTES_MAX {
            return refused(format!("the name must have 1 to {NAME_BYTES_MAX} bytes"));
        }
        if self.namespaces.values().any(|other| other.record.name == config.name) {
            return refused(format!("the pool has a namespace \"{}\" already: choose another name", config.name));
        }
        if !(1..=WEIGHT_MAX).contains(&config.weight) {
            return refused(format!("the weight must be 1 to {WEIGHT_MAX}"));
        }
        let id = (1..).find(|id| !self.namespaces.contains_key(id)).expect("there are fewer namespaces than numbers");
        let record = self.record_of(id, config)?;
        let geometry = record.geometry(&self.drive);
        geometry.validate().map_err(|error| AdminError(error.to_string()))?;
        if !self.balloon.can_add([(config.weight, config.max_active_zones)]) {
            return refused(format!(
                "{} active zones are more than the drive has for a namespace of this weight: it has {} for all, and each \
                 namespace needs one for each of its own; reduce the active zones of this one or of others",
                config.max_active_zones, self.shape.essential_zones
            ));
        }
        let zones_per_vzone = self.shape.zones_of(geometry.zone_capacity_blocks);
        let needed = u64::from(config.zone_count) * u64::from(zones_per_vzone);
        self.check_promise(0, config.zone_count, geometry.zone_capacity_blocks)?;
        self.check_metadata(config.zone_count, record.extension_bytes, needed)?;
        self.check_active_zones(config.weight)?;
        self.namespaces.insert(id, Namespace::new(record.clone(), geometry));
        // Its share is its own from now on: groups that others get until it is recorded are narrower.
        self.return_granting();
        self.balloon.add(id, config.weight, config.max_active_zones);
        self.adopt_groups_again();
        let is_early = self.bug.has(SeededBug::EarlyCreation);
        self.record(
            &Record::Namespace(record),
            if is_early { Waiter::Nothing } else { Waiter::Created { namespace: id } },
        );
        if is_early {
            self.on_created(id, true);
        }
        self.serve();
        Ok(NamespaceId(id))
    }

    /// Whether namespaces can be created, resized and deleted: its log can be written, and it is not about to
    /// be opened again.
    #[must_use]
    pub fn can_be_changed(&self) -> bool {
        self.is_started && !self.is_read_only && !self.is_paused
    }

    fn record_of(&self, id: u32, config: &NamespaceConfig) -> Result<NamespaceRecord, AdminError> {
        let capacity = config.zone_capacity_blocks.unwrap_or(self.shape.vzone_capacity_blocks());
        if capacity > self.shape.vzone_capacity_blocks() {
            return refused(format!(
                "a zone of this pool holds at most {} blocks, not {capacity}",
                self.shape.vzone_capacity_blocks()
            ));
        }
        if config.descriptor_extension_bytes as usize > EXTENSION_BYTES_MAX {
            return refused(format!("a descriptor extension has at most {EXTENSION_BYTES_MAX} bytes"));
        }
        let max_transfer_blocks = config.max_transfer_blocks.unwrap_or(self.drive.max_transfer_blocks);
        if max_transfer_blocks > self.drive.max_transfer_blocks {
            return refused(format!("the drive transfers at most {} blocks at once", self.drive.max_transfer_blocks));
        }
        // More than a command can have is refused with the geometry.
        let blocks_of_command = |blocks: Blocks| u32::try_from(blocks.0).unwrap_or(u32::MAX);
        Ok(NamespaceRecord {
            id,
            uuid: config.uuid,
            name: config.name.clone(),
            zone_count: config.zone_count,
            zone_size_blocks: config.zone_size_blocks.map_or(capacity.0.next_power_of_two(), |size| size.0),
            zone_capacity_blocks: capacity.0,
            max_active_zones: config.max_active_zones,
            max_open_zones: config.max_open_zones.unwrap_or(config.max_active_zones),
            weight: config.weight,
            max_transfer_blocks: blocks_of_command(max_transfer_blocks),
            max_append_blocks: blocks_of_command(config.max_append_blocks.unwrap_or(max_transfer_blocks)),
            extension_bytes: config.descriptor_extension_bytes as u8,
            read_across_zones: config.read_across_zones,
        })
    }

    /// The configuration of a namespace that hosts see, with every default filled in.
    #[must_use]
    pub fn namespace_config(&self, id: NamespaceId) -> Option<NamespaceConfig> {
        let own = self.namespaces.get(&id.0).filter(|own| own.is_listed && !own.is_leaving)?;
        let record = &own.record;
        Some(NamespaceConfig {
            name: record.name.clone(),
            uuid: record.uuid,
            zone_count: record.zone_count,
            zone_capacity_blocks: Some(Blocks(record.zone_capacity_blocks)),
            zone_size_blocks: Some(Blocks(record.zone_size_blocks)),
            max_active_zones: record.max_active_zones,
            max_open_zones: Some(record.max_open_zones),
            weight: record.weight,
            max_transfer_blocks: Some(Blocks(record.max_transfer_blocks.into())),
            max_append_blocks: Some(Blocks(record.max_append_blocks.into())),
            descriptor_extension_bytes: record.extension_bytes.into(),
            read_across_zones: record.read_across_zones,
        })
    }

    /// Whether no command of a host and none to the drive is in flight, and every record is written:
    /// the drive can be closed.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.is_started && self.commands() == 0 && self.ops.is_empty() && self.waiters.is_empty()
    }

    /// Physical zones that are promised to namespaces.
    #[must_use]
    pub fn promised_zones(&self) -> u64 {
        self.namespaces
            .values()
            .map(|own| u64::from(own.record.zone_count) * u64::from(self.zones_of_namespace(own)))
            .sum()
    }

    fn zones_of_namespace(&self, own: &Namespace) -> u32 {
        self.shape.zones_of(Blocks(own.record.zone_capacity_blocks))
    }

    /// Whether a namespace that has `before` v-zones of this capacity can have so many.
    fn check_promise(&self, before: u32, zone_count: u32, capacity: Blocks) -> Result<(), AdminError> {
        let counts = self.zones.counts();
        let lost = u64::from(counts.retired) + u64::from(counts.set_aside);
        let left = u64::from(self.shape.promised_max()).saturating_sub(lost).saturating_sub(self.promised_zones());
        // In the zones that the user sees, of which each has several of the drive.
        let most = u64::from(before) + left / u64::from(self.shape.zones_of(capacity));
        if u64::from(zone_count) <= most {
            return Ok(());
        }
        let sized = |zones: u64| {
            let bytes = zones.saturating_mul(capacity.bytes(self.drive.block_size_bytes));
            let noun = if zones == 1 { "zone" } else { "zones" };
            format!("{zones} {noun} ({})", size_words(bytes))
        };
        let (wanted, possible) = (sized(zone_count.into()), sized(most));
        let verb = if zone_count == 1 { "is" } else { "are" };
        let why = format!("{wanted} {verb} more than the {possible} that are not promised to others");
        let smaller = if most > u64::from(before) { format!("make it {possible} at most, ") } else { String::new() };
        refused(format!("{why}; {smaller}make other namespaces smaller, or delete one"))
    }

    /// Whether a namespace of this weight would get its essentials at once: others may have wide groups
    /// from a time when their share was larger.
    fn check_active_zones(&self, weight: u32) -> Result<(), AdminError> {
        let weights = self.namespaces.values().map(|own| u64::from(own.record.weight)).sum::<u64>() + u64::from(weight);
        let mut needed = self.balloon.essentials_of(weight, weights);
        let mut widest: Option<(u32, &str)> = None;
        for own in self.namespaces.values() {
            let essentials = self.balloon.essentials_of(own.record.weight, weights);
            let held = own.vzones.iter().flat_map(|vzone| &vzone.grants).filter(|held| !held.is_draining);
            let used: u32 = held.map(|held| held.grant.width).sum();
            needed += used.max(essentials);
            if used > essentials && widest.is_none_or(|(over, _)| used - essentials > over) {
                widest = Some((used - essentials, &own.record.name));
            }
        }
        match widest {
            Some((over, name)) if needed > self.zones.active_usable() => refused(format!(
                "namespace \"{name}\" has {over} active zones of the drive more than its share beside a new namespace: finish \
                 or reset zones of it, or do not write it for {} s, and try again",
                2.0 * FROZEN_TIME.as_secs_f64()
            )),
            _ => Ok(()),
        }
    }

    /// Namespaces have joined or left.
    fn adopt_groups_again(&mut self) {
        for (id, own) in self.namespaces.iter_mut() {
            for held in own.vzones.iter_mut().flat_map(|vzone| &mut vzone.grants).filter(|held| !held.is_draining) {
                held.grant = self.balloon.adopt_again(*id, held.grant);
            }
        }
        self.adopt_granting_again();
    }

    pub(super) fn on_created(&mut self, namespace: u32, is_durable: bool) {
        if is_durable {
            self.list(namespace);
        } else {
            self.namespaces.remove(&namespace);
            self.balloon.remove(namespace);
            self.adopt_groups_again();
        }
        self.events.push_back(PoolEvent::Created { namespace: NamespaceId(namespace), is_durable });
    }

    /// Shows a namespace to hosts.
    pub(crate) fn list(&mut self, namespace: u32) {
        let own = self.namespaces.get_mut(&namespace).expect("it was created");
        own.is_listed = true;
        self.listed.add(NamespaceId(namespace), own.table.geometry().clone());
    }

    /// Changes the number of v-zones of a namespace.
    ///
    /// # Errors
    /// If there is no such namespace, the drive lacks zones, or v-zones that would go are not empty.
    pub fn resize_namespace(&mut self, now: Instant, id: NamespaceId, zone_count: u32) -> Result<(), AdminError> {
        self.advance(now);
        let Some(own) = self.namespaces.get(&id.0).filter(|own| own.is_listed && !own.is_leaving) else {
            return refused(format!("the pool has no namespace {id}"));
        };
        if !self.can_be_changed() {
            return refused(UNCHANGEABLE);
        }
        if zone_count == 0 {
            return refused("a namespace has at least one zone");
        }
        let before = own.record.zone_count;
        if zone_count > before {
            let zones_per_vzone = self.zones_of_namespace(own);
            let needed = u64::from(zone_count - before) * u64::from(zones_per_vzone);
            self.check_promise(before, zone_count, Blocks(own.record.zone_capacity_blocks))?;
            self.check_metadata(zone_count - before, own.record.extension_bytes, needed)?;
        }
        let own = self.namespaces.get_mut(&id.0).expect("it was just found");
        let kept = zone_count.min(before);
        let going = own.vzones.iter().enumerate().skip(kept as usize);
        if let Some((index, _)) = going.into_iter().find(|(_, vzone)| !vzone.is_idle() || !vzone.groups.is_empty()) {
            return refused(format!("zone {index} of the namespace is not empty: reset it first"));
        }
        let geometry = Geometry { zone_count, ..own.table.geometry().clone() };
        geometry.validate().map_err(|error| AdminError(error.to_string()))?;
        let mut table = ZoneTable::new(geometry.clone());
        for zone in (0..kept).map(ZoneIndex) {
            let is_restored = table.restore(zone, &own.table.snapshot(zone));
            assert!(is_restored, "the limits stay as they are");
        }
        own.table = table;
        own.vzones.resize_with(zone_count as usize, VZone::default);
        own.record.zone_count = zone_count;
        let record = own.record.clone();
        self.listed.resize(id, geometry);
        self.record(&Record::Namespace(record), Waiter::Resized { namespace: id.0 });
        Ok(())
    }

    /// Deletes a namespace; [`PoolEvent::Deleted`] says when its zones are reset.
    ///
    /// # Errors
    /// If there is no such namespace, or commands of hosts are in flight.
    pub fn delete_namespace(&mut self, now: Instant, id: NamespaceId) -> Result<(), AdminError> {
        self.advance(now);
        let can_be_changed = self.can_be_changed();
        let Some(own) = self.namespaces.get_mut(&id.0).filter(|own| own.is_listed && !own.is_leaving) else {
            return refused(format!("the pool has no namespace {id}"));
        };
        if !can_be_changed {
            return refused(UNCHANGEABLE);
        }
        let is_idle = own.vzones.iter().all(VZone::is_idle) && own.flushes.is_empty();
        if !is_idle {
            return refused("commands of hosts are in flight: stop its export first");
        }
        own.is_leaving = true;
        (0..own.vzones.len() as u32).for_each(|vzone| self.abandon_reclaim(id.0, vzone));
        self.listed.remove(id);
        if self.bug.has(SeededBug::EarlyDeletion) {
            self.record(&Record::Deleted { namespace: id.0 }, Waiter::Nothing);
            self.on_deleted(id.0, true);
            return Ok(());
        }
        self.record(&Record::Deleted { namespace: id.0 }, Waiter::Deleted { namespace: id.0 });
        Ok(())
    }

    pub(super) fn on_deleted(&mut self, namespace: u32, is_durable: bool) {
        if !is_durable {
            return;
        }
        self.namespaces.get_mut(&namespace).expect("it is being deleted").is_deleted = true;
        let own = &self.namespaces[&namespace];
        let used = own.vzones.iter().enumerate().filter(|(_, vzone)| !vzone.groups.is_empty());
        let used: Vec<u32> = used.map(|(index, _)| index as u32).collect();
        if self.bug.has(SeededBug::ForgottenDeletion) {
            self.namespaces.get_mut(&namespace).expect("it is being deleted").vzones.clear();
            return self.on_vzone_left(namespace);
        }
        if used.is_empty() {
            self.on_vzone_left(namespace);
        }
        for vzone in used {
            self.begin_reset(namespace, vzone, None);
        }
    }

    /// A v-zone of a namespace that is being deleted was reset.
    pub(super) fn on_vzone_left(&mut self, namespace: u32) {
        let own = &self.namespaces[&namespace];
        if own.vzones.iter().any(|vzone| vzone.busy.is_some() || !vzone.groups.is_empty()) {
            return;
        }
        self.namespaces.remove(&namespace);
        self.balloon.remove(namespace);
        self.adopt_groups_again();
        self.events.push_back(PoolEvent::Deleted { namespace: NamespaceId(namespace) });
    }
}

impl Namespace {
    pub(crate) fn new(record: NamespaceRecord, geometry: Geometry) -> Namespace {
        let mut vzones = Vec::new();
        vzones.resize_with(geometry.zone_count as usize, VZone::default);
        Namespace {
            record,
            table: ZoneTable::new(geometry),
            vzones,
            writes: super::numbers::Numbers::default(),
            next_write: 0,
            releases: super::releases::Releases::default(),
            waiting_for_releases: BTreeSet::new(),
            flushes: VecDeque::new(),
            is_listed: false,
            is_leaving: false,
            is_deleted: false,
            quiet: super::reclaim::Quiet::default(),
        }
    }
}
