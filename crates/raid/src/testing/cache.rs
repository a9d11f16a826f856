//! A volatile write cache: a power loss leaves each zone as it was at the last flush, or at any
//! moment since, with block granularity. Zones are independent: of two commands to two zones the
//! later one may be kept, and the earlier one lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use zonda_zoned::reference::ZoneImage;
use zonda_zoned::{
    Blocks, Command, CommandId, Lba, NamespaceId, Operation, Outcome, Payload, ZoneAction, ZoneIndex, ZoneState,
    ZoneTarget,
};

use super::Drive;

/// The cached state of each zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    /// Snapshots of zones since the last flush, the oldest first.
    zones: BTreeMap<u32, Vec<ZoneSnapshot>>,
}

/// The state of a zone at a moment.
#[derive(Clone, Debug)]
pub(super) struct ZoneSnapshot {
    image: ZoneImage,
    /// Its blocks with their metadata, if a reset has erased them since.
    erased: Option<Arc<[(Bytes, Bytes)]>>,
}

impl Drive {
    /// The same drive with a volatile cache that a power loss may discard.
    #[must_use]
    pub fn with_volatile_cache(mut self) -> Drive {
        self.cache = Some(Cache::default());
        self
    }

    /// Snapshots of the zones of a command before it takes effect.
    pub(super) fn before(&mut self, operation: &Operation) -> Vec<(u32, ZoneSnapshot)> {
        let (zones, is_reset) = match operation {
            _ if self.cache.is_none() => return Vec::new(),
            Operation::ManageZones { action, target } => {
                let zones = match target {
                    ZoneTarget::All => 0..self.geometry.zone_count,
                    ZoneTarget::Zone(_) => self.zone_of(operation).map_or(0..0, |zone| zone..zone + 1),
                };
                (zones, *action == ZoneAction::Reset)
            }
            Operation::Write { .. } | Operation::Append { .. } => {
                (self.zone_of(operation).map_or(0..0, |zone| zone..zone + 1), false)
            }
            _ => return Vec::new(),
        };
        let mut snapshots = Vec::new();
        for zone in zones {
            let image = self.device.image(ZoneIndex(zone));
            let erased = is_reset.then(|| self.blocks_of(zone, image.write_pointer_blocks));
            snapshots.push((zone, ZoneSnapshot { image, erased }));
        }
        snapshots
    }

    /// A command has taken effect on zones; `before`: their snapshots before it.
    pub(super) fn after(&mut self, operation: &Operation, before: Vec<(u32, ZoneSnapshot)>) {
        let ignored = self.faults.ignored_flushes;
        let is_ignored = *operation == Operation::Flush && ignored > 0 && self.prng.chance(ignored, 1000);
        self.is_unreliable |= is_ignored && self.cache.is_some();
        let Some(cache) = &mut self.cache else { return };
        if *operation == Operation::Flush && !is_ignored {
            cache.zones.clear();
        }
        for (zone, snapshot) in before {
            if self.device.image(ZoneIndex(zone)) == snapshot.image {
                continue;
            }
            let snapshots = cache.zones.entry(zone).or_default();
            if let Some(erased) = &snapshot.erased {
                for earlier in snapshots.iter_mut().filter(|earlier| earlier.erased.is_none()) {
                    earlier.erased = Some(erased.clone());
                }
            }
            snapshots.push(snapshot);
        }
    }

    /// Durable blocks of the current contents of a zone.
    pub(super) fn durable_blocks(&self, zone: u32) -> u64 {
        let blocks = |image: &ZoneImage| image.write_pointer_blocks.0;
        let now = blocks(&self.device.image(ZoneIndex(zone)));
        match self.cache.as_ref().and_then(|cache| cache.zones.get(&zone)) {
            Some(snapshots) if snapshots.iter().any(|snapshot| snapshot.erased.is_some()) => 0,
            Some(snapshots) => snapshots.first().map_or(now, |snapshot| blocks(&snapshot.image).min(now)),
            None => now,
        }
    }

    /// The current state of a zone becomes durable.
    pub(super) fn discard_snapshots_of(&mut self, zone: u32) {
        if let Some(cache) = &mut self.cache {
            cache.zones.remove(&zone);
        }
    }

    /// The cache is lost, or a part of it.
    pub(super) fn lose_cache(&mut self) {
        let Some(cache) = &mut self.cache else { return };
        let zones = std::mem::take(&mut cache.zones);
        let mood = self.prng.below(5);
        let mut left: BTreeMap<u32, ZoneSnapshot> = BTreeMap::new();
        for (&zone, snapshots) in &zones {
            let at = match mood {
                0 => continue,
                1 => 0,
                // Writes are lost, and resets are not.
                2 if self.device.image(ZoneIndex(zone)).state == ZoneState::Empty => continue,
                2 => 0,
                _ if self.prng.chance(1, 2) => continue,
                _ => self.prng.below(snapshots.len() as u64) as usize,
            };
            let snapshot = self.part_of_next(zone, snapshots, at);
            left.insert(zone, snapshot);
        }
        self.keep_to_limit(&zones, &mut left);
        for (zone, snapshot) in left {
            self.restore(zone, snapshot);
        }
    }

    /// The state of a zone, possibly with the beginning of what was written next.
    fn part_of_next(&mut self, zone: u32, snapshots: &[ZoneSnapshot], at: usize) -> ZoneSnapshot {
        let mut snapshot = snapshots[at].clone();
        let next = match snapshots.get(at + 1) {
            Some(next) => next.image.clone(),
            None => self.device.image(ZoneIndex(zone)),
        };
        let is_same_use = match snapshots.get(at + 1) {
            Some(next) => next.erased.as_ref().map(Arc::as_ptr) == snapshot.erased.as_ref().map(Arc::as_ptr),
            None => snapshot.erased.is_none(),
        };
        let (from, to) = (snapshot.image.write_pointer_blocks.0, next.write_pointer_blocks.0);
        if is_same_use && to > from && self.prng.chance(1, 2) {
            let blocks = from + self.prng.below(to - from);
            if blocks > 0 {
                snapshot.image = ZoneImage {
                    state: ZoneState::Closed,
                    write_pointer_blocks: Blocks(blocks),
                    zrwa: false,
                    extension: None,
                };
            }
        }
        snapshot
    }

    /// Respects the limit on active zones: some zones revert to the last flush, when they were not
    /// active.
    fn keep_to_limit(&self, zones: &BTreeMap<u32, Vec<ZoneSnapshot>>, left: &mut BTreeMap<u32, ZoneSnapshot>) {
        let Some(most) = self.geometry.max_active_zones else { return };
        let state = |left: &BTreeMap<u32, ZoneSnapshot>, zone: u32| {
            left.get(&zone).map_or_else(|| self.device.image(ZoneIndex(zone)).state, |snapshot| snapshot.image.state)
        };
        for (&zone, snapshots) in zones {
            let active = (0..self.geometry.zone_count).filter(|&zone| state(left, zone).is_active()).count();
            if active <= most as usize {
                return;
            }
            if state(left, zone).is_active() && !snapshots[0].image.state.is_active() {
                left.insert(zone, snapshots[0].clone());
            }
        }
    }

    fn restore(&mut self, zone: u32, snapshot: ZoneSnapshot) {
        let index = ZoneIndex(zone);
        let blocks = snapshot.image.write_pointer_blocks.0;
        if snapshot.erased.is_some() {
            let empty =
                ZoneImage { state: ZoneState::Empty, write_pointer_blocks: Blocks::ZERO, zrwa: false, extension: None };
            self.device.set_zone(index, empty);
        }
        self.device.set_zone(index, snapshot.image);
        let start = self.geometry.zone_start(index);
        for (at, (data, metadata)) in (0..blocks).zip(snapshot.erased.iter().flat_map(|erased| erased.iter())) {
            self.device.set_block_bytes(start + Blocks(at), data, metadata);
        }
        // Damage behind its end was in blocks that are unwritten now, and can be rewritten.
        let lost = start + Blocks(blocks)..start + self.geometry.zone_size_blocks;
        self.forget_damage(lost);
    }

    fn blocks_of(&mut self, zone: u32, blocks: Blocks) -> Arc<[(Bytes, Bytes)]> {
        let start = self.geometry.zone_start(ZoneIndex(zone));
        let read = |lba: Lba| {
            let operation = Operation::Read { start: lba, blocks: Blocks(1) };
            let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
            match self.device.execute(&command).outcome {
                Outcome::Data(Payload::Bytes(buffer)) => (buffer.data, buffer.metadata),
                _ => {
                    let (data, metadata) = (self.geometry.block_size_bytes, self.geometry.metadata_bytes);
                    (vec![0; data as usize].into(), vec![0; usize::from(metadata)].into())
                }
            }
        };
        (0..blocks.0).map(|at| start + Blocks(at)).map(read).collect()
    }
}
