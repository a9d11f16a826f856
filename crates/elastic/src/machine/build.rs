//! A pool from its parts, and its first steps.

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{
    CompletionQueue, Geometry, Instant, NamespaceId, Namespaces, Operation, Origin, PayloadKind, Slab, Status,
};

use super::by_number::ByNumber;
use super::ending::ResetOf;
use super::{Namespace, Op, Pool, Record, Waiter};
use crate::PoolEvent;
use crate::balloon::Balloon;
use crate::bug::Seeded;
use crate::format::PoolId;
use crate::log::Log;
use crate::payload::BlockFormat;
use crate::shape::Shape;
use crate::zones::{ZoneUse, Zones};

/// What a pool is made of.
#[derive(Debug)]
pub(crate) struct PoolParts {
    pub(crate) id: PoolId,
    pub(crate) drive: Geometry,
    pub(crate) drive_namespace: NamespaceId,
    pub(crate) kind: PayloadKind,
    pub(crate) shape: Shape,
    pub(crate) epoch: u64,
    pub(crate) zones: Zones,
    pub(crate) log: Log,
    pub(crate) bug: Seeded,
}

impl Pool {
    /// A pool whose first record is its epoch.
    pub(crate) fn from_parts(now: Instant, parts: PoolParts) -> Pool {
        let PoolParts { id, drive, drive_namespace, kind, shape, epoch, zones, log, bug } = parts;
        let format = BlockFormat {
            data_bytes: drive.block_size_bytes as usize,
            metadata_bytes: usize::from(drive.metadata_bytes),
        };
        let mut pool = Pool {
            id,
            drive,
            drive_namespace,
            shape,
            format,
            kind,
            epoch,
            is_started: false,
            namespaces: ByNumber::new(),
            listed: Namespaces::none(),
            zones,
            balloon: Balloon::new(shape.essential_zones, shape.spare_zones, shape.width_max),
            log,
            arbiter: VecDeque::new(),
            granting: None,
            stuck_since: None,
            is_flushing_reserved: false,
            no_space_until: None,
            lacks_space: false,
            log_lacks_space: false,
            is_paused: false,
            waiters: BTreeMap::new(),
            next_ticket: 0,
            hosts: Slab::new(),
            direct_reads: 0,
            writes: Slab::new(),
            endings: Slab::new(),
            repairs: BTreeMap::new(),
            leaving_zones: BTreeMap::new(),
            leaving_widths: BTreeMap::new(),
            to_reset: Vec::new(),
            to_release: Vec::new(),
            resetting_at_start: 0,
            active_to_reset: 0,
            reclaim: None,
            to_reclaim: Vec::new(),
            leaving_copies: 0,
            reclaimed_groups: 0,
            ops: Slab::new(),
            outbox: VecDeque::new(),
            completions: CompletionQueue::new(),
            events: VecDeque::new(),
            now,
            is_read_only: false,
            scratch: Vec::new(),
            bug,
        };
        let record = Record::Pool(shape.record(epoch, pool.zones.next_reservation()));
        pool.record(&record, Waiter::Start);
        pool
    }

    /// Adds a namespace that was read.
    pub(crate) fn adopt_namespace(&mut self, namespace: Namespace) {
        let (id, weight, active) = (namespace.record.id, namespace.record.weight, namespace.record.max_active_zones);
        self.namespaces.insert(id, namespace);
        self.balloon.add(id, weight, active);
        self.list(id);
    }

    /// Grants the groups that were read what they hold. All namespaces have joined: the minimum width
    /// of each depends on the others.
    pub(crate) fn adopt_groups(&mut self) {
        for (id, own) in self.namespaces.iter_mut() {
            for vzone in &mut own.vzones {
                for held in &mut vzone.grants {
                    let width = vzone.groups[held.group].width();
                    held.grant = self.balloon.adopt(*id, width);
                    self.zones.adopt_active(width);
                }
            }
        }
    }

    /// Zones that are to be reset once the epoch is recorded, and how many of them are active. A reset
    /// that a power loss cancels leaves its zone active beside the one that took its place: no zone is
    /// reserved before all of them are reset. Zones that are retired and active are reset, too.
    pub(crate) fn reset_at_start(&mut self, zones: Vec<u32>, active: u32, retired_active: Vec<u32>) {
        self.to_reset = zones;
        self.to_release = retired_active;
        self.active_to_reset = active;
        self.zones.adopt_active(active);
        self.zones.begin_draining(active);
        self.zones.end_mount();
    }

    /// The zones that a mount has found are reset or retired.
    pub(super) fn on_start_reset(&mut self) {
        self.resetting_at_start -= 1;
        if self.resetting_at_start == 0 {
            self.zones.release_active(std::mem::take(&mut self.active_to_reset));
        }
    }

    /// What the mount has read is durable, or the drive cannot make it so.
    pub(super) fn on_start_flushed(&mut self, tries: u8, status: Status) {
        match Pool::another_try(tries, status) {
            Some(tries) => self.issue(Op::StartFlush { tries }, Operation::Flush, Origin::default()),
            None => self.on_started(false),
        }
    }

    pub(super) fn on_started(&mut self, is_recorded: bool) {
        self.is_started = true;
        self.events.push_back(PoolEvent::Started { is_recorded });
        self.begin(is_recorded);
    }

    /// The epoch is recorded, or cannot be: what waited for it begins.
    fn begin(&mut self, is_durable: bool) {
        if is_durable {
            for zone in std::mem::take(&mut self.to_reset) {
                assert_eq!(self.zones.zone_use(zone), ZoneUse::Leaving, "zone {zone} is of no v-zone");
                self.resetting_at_start += 1;
                self.reset_zone(zone, ResetOf::NoVZone);
            }
            for zone in std::mem::take(&mut self.to_release) {
                self.release_retired(zone);
            }
        }
        let all: Vec<(u32, u32)> = self
            .namespaces
            .iter()
            .flat_map(|(id, own)| (0..own.vzones.len() as u32).map(|vzone| (*id, vzone)))
            .collect();
        for (namespace, vzone) in all {
            let own = self.vzone(namespace, vzone);
            if is_durable && own.busy.is_none() && own.is_finished_by_pool {
                own.is_unrecorded = false;
            }
            let is_closed = own.is_finished || own.is_offline;
            if own.is_damaged || (own.grants.is_empty() && own.items.is_empty()) {
                continue;
            }
            if is_durable && is_closed {
                self.end_all_groups(namespace, vzone);
            } else if is_durable {
                self.end_groups(namespace, vzone);
            }
            self.pump(namespace, vzone);
        }
        self.serve();
    }
}
